import json

from case import ASK, BASE, FOREVER, KEY, MODEL, TOOLS, get_weather, leave, main, say, say_all
from huggingface_hub import InferenceClient

client = InferenceClient(base_url=BASE, api_key=KEY)


def ask(messages=ASK, **more):
    return client.chat_completion(messages, model=MODEL, **more)


def chat():
    say(ask().choices[0].message.content)


def stream():
    say_all(c.choices[0].delta.content for c in ask(stream=True))


def tools():
    m = ask(tools=TOOLS).choices[0].message
    results = []
    for c in m.tool_calls:
        a = c.function.arguments
        results.append({"role": "tool", "tool_call_id": c.id,
                        "content": get_weather(**(json.loads(a) if isinstance(a, str) else a))})
    calls = [{"id": c.id, "type": "function", "function": {"name": c.function.name, "arguments": c.function.arguments}}
             for c in m.tool_calls]
    say(ask([*ASK, {"role": "assistant", "content": "", "tool_calls": calls}, *results], tools=TOOLS).choices[0].message.content)


def cancel():
    s = ask([{"role": "user", "content": FOREVER}], stream=True, max_tokens=16000)
    leave((c.choices[0].delta.content for c in s), s.close)


main(chat, stream, tools, cancel)
