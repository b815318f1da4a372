import json

import openai
from case import BASE, FOREVER, KEY, MODEL, PARAMETERS, QUESTION, get_weather, leave, main, say, say_all

client = openai.OpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0)
TOOLS = [{"type": "function", "name": "get_weather", "description": "The weather of a city.", "parameters": PARAMETERS}]


def ask(question=QUESTION, **more):
    return client.responses.create(model=MODEL, input=question, **more)


def deltas(s):
    return (e.delta for e in s if e.type == "response.output_text.delta")


def chat():
    say(ask().output_text)


def stream():
    say_all(deltas(ask(stream=True)))


def tools():
    talk = [{"role": "user", "content": QUESTION}]
    r = ask(talk, tools=TOOLS)
    for c in [x for x in r.output if x.type == "function_call"]:
        talk += [c, {"type": "function_call_output", "call_id": c.call_id, "output": get_weather(**json.loads(c.arguments))}]
    say(ask(talk, tools=TOOLS).output_text)


def tools_stream():
    for e in ask(tools=TOOLS, stream=True):
        if e.type == "response.function_call_arguments.done":
            get_weather(**json.loads(e.arguments))
    say("")


def cancel():
    s = ask(FOREVER, stream=True)
    leave(deltas(s), s.close)


main(chat, stream, tools, tools_stream, cancel)
