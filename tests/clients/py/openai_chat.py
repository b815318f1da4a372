import json

import openai
from case import ASK, BASE, FOREVER, KEY, MODEL, TOOLS, get_weather, leave, main, say, say_all

client = openai.OpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0)


def ask(messages=ASK, **more):
    return client.chat.completions.create(model=MODEL, messages=messages, **more)


def chat():
    say(ask().choices[0].message.content)


def stream():
    say_all(c.choices[0].delta.content for c in ask(stream=True) if c.choices)


def tools():
    m = ask(tools=TOOLS).choices[0].message
    results = [{"role": "tool", "tool_call_id": c.id, "content": get_weather(**json.loads(c.function.arguments))}
               for c in m.tool_calls]
    say(ask([*ASK, m, *results], tools=TOOLS).choices[0].message.content)


def tools_stream():
    with client.chat.completions.stream(model=MODEL, messages=ASK, tools=TOOLS) as s:
        m = s.get_final_completion().choices[0].message
    for c in m.tool_calls:
        get_weather(**json.loads(c.function.arguments))
    say("")


def cancel():
    s = ask([{"role": "user", "content": FOREVER}], stream=True)
    leave((c.choices[0].delta.content for c in s), s.close)


main(chat, stream, tools, tools_stream, cancel)
