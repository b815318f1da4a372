import ollama
from case import ASK, BASE, FOREVER, KEY, MODEL, get_weather, leave, main, say, say_all

client = ollama.Client(host=BASE, headers={"Authorization": "Bearer " + KEY})


def ask(messages=ASK, **more):
    return client.chat(model=MODEL, messages=messages, **more)


def chat():
    say(ask().message.content)


def stream():
    say_all(p.message.content for p in ask(stream=True))


def tools():
    m = ask(tools=[get_weather]).message
    results = [{"role": "tool", "tool_name": c.function.name, "content": get_weather(**c.function.arguments)}
               for c in m.tool_calls or []]
    say(ask([*ASK, m, *results], tools=[get_weather]).message.content)


def tools_stream():
    for p in ask(tools=[get_weather], stream=True):
        for c in p.message.tool_calls or []:
            get_weather(**c.function.arguments)
    say("")


def cancel():
    s = ask([{"role": "user", "content": FOREVER}], stream=True)
    leave((p.message.content for p in s), s.close)


main(chat, stream, tools, tools_stream, cancel)
