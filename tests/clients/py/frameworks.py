"""Frameworks with agents: chat, stream and tools of each, by its own words."""
import asyncio
import os
import sys

from case import BASE, KEY, MODEL, QUESTION, get_weather, say, say_all

URL = BASE + "/v1"


def strands(case):
    from strands import Agent, tool
    from strands.models.openai import OpenAIModel
    model = OpenAIModel(client_args={"api_key": KEY, "base_url": URL}, model_id=MODEL)
    agent = Agent(model=model, tools=[tool(get_weather)] if case == "tools" else [], callback_handler=None)
    if case != "stream":
        return say(str(agent(QUESTION)).strip())

    async def run():
        return [e["data"] async for e in agent.stream_async(QUESTION) if "data" in e]
    say_all(asyncio.run(run()))


def agno(case):
    from agno.agent import Agent
    from agno.models.openai.like import OpenAILike
    agent = Agent(model=OpenAILike(id=MODEL, api_key=KEY, base_url=URL), tools=[get_weather] if case == "tools" else [], telemetry=False)
    if case == "stream":
        return say_all(e.content for e in agent.run(QUESTION, stream=True) if getattr(e, "event", "") == "RunContent")
    say(agent.run(QUESTION).content)


def llama_index(case):
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.openai_like import OpenAILike
    model = OpenAILike(model=MODEL, api_base=URL, api_key=KEY, is_chat_model=True, is_function_calling_model=True, max_retries=0)
    if case == "chat":
        return say(model.chat([ChatMessage(role="user", content=QUESTION)]).message.content)
    if case == "stream":
        return say_all(p.delta for p in model.stream_chat([ChatMessage(role="user", content=QUESTION)]))
    from llama_index.core.agent.workflow import FunctionAgent

    async def run():
        return str(await FunctionAgent(tools=[get_weather], llm=model).run(QUESTION))
    say(asyncio.run(run()))


def haystack(case):
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.utils import Secret
    pieces = []
    make = dict(api_key=Secret.from_token(KEY), model=MODEL, api_base_url=URL, max_retries=0)
    if case == "tools":
        from haystack.components.agents import Agent
        from haystack.tools import create_tool_from_function
        agent = Agent(chat_generator=OpenAIChatGenerator(**make), tools=[create_tool_from_function(get_weather)])
        return say(agent.run(messages=[ChatMessage.from_user(QUESTION)])["messages"][-1].text)
    stream = {"streaming_callback": lambda c: pieces.append(c.content)} if case == "stream" else {}
    r = OpenAIChatGenerator(**make, **stream).run([ChatMessage.from_user(QUESTION)])
    if case == "stream":
        say_all(pieces)
    else:
        say(r["replies"][0].text)


def dspy(case):
    import dspy as d
    say(d.LM(f"openai/{MODEL}", api_base=URL, api_key=KEY, cache=False, num_retries=0)(QUESTION)[0])


def autogen(case):
    from autogen_agentchat.agents import AssistantAgent
    from autogen_ext.models.openai import OpenAIChatCompletionClient
    from autogen_core.models import UserMessage
    info = {"vision": False, "function_calling": True, "json_output": False, "family": "unknown", "structured_output": False}
    client = OpenAIChatCompletionClient(model=MODEL, base_url=URL, api_key=KEY, model_info=info, max_retries=0)

    async def run():
        if case == "chat":
            return say((await client.create([UserMessage(content=QUESTION, source="user")])).content)
        if case == "stream":
            return say_all([p async for p in client.create_stream([UserMessage(content=QUESTION, source="user")]) if isinstance(p, str)])
        agent = AssistantAgent("a", client, tools=[get_weather], reflect_on_tool_use=True)
        say((await agent.run(task=QUESTION)).messages[-1].content)
    asyncio.run(run())


PROGRAMS = {f.__name__: f for f in (strands, agno, llama_index, haystack, dspy, autogen)}
PROGRAMS[os.environ["ANED_PROGRAM"]](sys.argv[1])
