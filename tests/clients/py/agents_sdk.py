import asyncio
import os

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from case import BASE, FOREVER, KEY, MODEL, QUESTION, get_weather, leave, main, say, say_all
from openai import AsyncOpenAI

set_tracing_disabled(True)
KINDS = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}


def agent(tools=()):
    client = AsyncOpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0)
    return Agent(name="a", tools=list(tools), model=KINDS[os.environ["ANED_KIND"]](model=MODEL, openai_client=client))


async def pieces(run, most=None):
    found = []
    async for e in run.stream_events():
        if e.type == "raw_response_event" and e.data.type == "response.output_text.delta":
            found.append(e.data.delta)
            if most and len(found) > most:
                run.cancel()
                break
    return found


def chat():
    say(Runner.run_sync(agent(), QUESTION).final_output)


def stream():
    async def run():
        return await pieces(Runner.run_streamed(agent(), QUESTION))
    say_all(asyncio.run(run()))


def tools():
    say(Runner.run_sync(agent([function_tool(get_weather)]), QUESTION).final_output)


def cancel():
    async def run():
        await pieces(Runner.run_streamed(agent(), FOREVER), 3)
        await asyncio.sleep(1)
    asyncio.run(run())
    leave([])


main(chat, stream, tools, cancel)
