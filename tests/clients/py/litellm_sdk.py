import json
import os

import litellm
from case import ASK, BASE, FOREVER, KEY, MODEL, TOOLS, get_weather, leave, main, say, say_all

WHERE = {"openai": BASE + "/v1", "hosted_vllm": BASE + "/v1", "anthropic": BASE, "ollama_chat": BASE}
kind = os.environ["ANED_KIND"]
litellm.suppress_debug_info = True


def ask(messages=ASK, **more):
    return litellm.completion(model=f"{kind}/{MODEL}", api_base=WHERE[kind], api_key=KEY, messages=messages, num_retries=0, **more)


def chat():
    say(ask().choices[0].message.content)


def stream():
    say_all(c.choices[0].delta.content for c in ask(stream=True))


def tools():
    m = ask(tools=TOOLS).choices[0].message
    results = [{"role": "tool", "tool_call_id": c.id, "name": c.function.name,
                "content": get_weather(**json.loads(c.function.arguments))} for c in m.tool_calls]
    say(ask([*ASK, m, *results], tools=TOOLS).choices[0].message.content)


def cancel():
    streams = [ask([{"role": "user", "content": FOREVER}], stream=True)]

    def close():  # Some of its streams can be closed; the others end when nobody holds them.
        getattr(streams.pop().completion_stream, "close", lambda: None)()
    leave((c.choices[0].delta.content for c in streams[0]), close)


main(chat, stream, tools, cancel)
