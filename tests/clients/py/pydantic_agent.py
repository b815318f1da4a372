import asyncio
import os

from case import BASE, FOREVER, KEY, MODEL, QUESTION, get_weather, leave, main, say, say_all
from pydantic_ai import Agent


def model():
    kind = os.environ["ANED_KIND"]
    if kind == "anthropic":
        from anthropic import AsyncAnthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider
        return AnthropicModel(MODEL, provider=AnthropicProvider(
            anthropic_client=AsyncAnthropic(base_url=BASE, api_key=KEY, max_retries=0)))
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider
    return {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}[kind](
        MODEL, provider=OpenAIProvider(base_url=BASE + "/v1", api_key=KEY))


def chat():
    say(Agent(model()).run_sync(QUESTION).output)


def stream():
    async def run():
        async with Agent(model()).run_stream(QUESTION) as r:
            return [t async for t in r.stream_text(delta=True, debounce_by=None)]
    say_all(asyncio.run(run()))


def tools():
    say(Agent(model(), tools=[get_weather]).run_sync(QUESTION).output)


def cancel():
    async def run():
        async with Agent(model()).run_stream(FOREVER) as r:
            n = 0
            async for _ in r.stream_text(delta=True, debounce_by=None):
                n += 1
                if n > 3:
                    break
    asyncio.run(run())
    leave([])


if __name__ == "__main__":
    main(chat, stream, tools, cancel)
