import anthropic
from case import ASK, BASE, FOREVER, KEY, MODEL, PARAMETERS, get_weather, leave, main, say, say_all

client = anthropic.Anthropic(base_url=BASE, api_key=KEY, max_retries=0)
TOOLS = [{"name": "get_weather", "description": "The weather of a city.", "input_schema": PARAMETERS}]


def ask(messages=ASK, **more):
    return client.messages.create(model=MODEL, max_tokens=1024, messages=messages, **more)


def text(m):
    return "".join(b.text for b in m.content if b.type == "text")


def results(m):
    return [{"type": "tool_result", "tool_use_id": b.id, "content": get_weather(**b.input)} for b in m.content
            if b.type == "tool_use"]


def chat():
    say(text(ask()))


def stream():
    with client.messages.stream(model=MODEL, max_tokens=1024, messages=ASK) as s:
        say_all(list(s.text_stream))


def tools():
    m = ask(tools=TOOLS)
    talk = [*ASK, {"role": "assistant", "content": m.content}, {"role": "user", "content": results(m)}]
    say(text(ask(talk, tools=TOOLS)))


def tools_stream():
    with client.messages.stream(model=MODEL, max_tokens=1024, messages=ASK, tools=TOOLS) as s:
        results(s.get_final_message())
    say("")


def cancel():
    with client.messages.stream(model=MODEL, max_tokens=16000, messages=[{"role": "user", "content": FOREVER}]) as s:
        leave(s.text_stream, s.close)


main(chat, stream, tools, tools_stream, cancel)
