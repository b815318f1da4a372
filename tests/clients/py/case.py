"""What the clients' scripts share: where aned is, what is asked, and how the runner hears what came of it.

A script has a function for each thing that its client can do, and `main(chat, stream, ...)` at its end.
"""
import gc
import json
import os
import sys

BASE = os.environ["ANED_BASE"]  # http://127.0.0.1:PORT
KEY = os.environ["ANED_KEY"]
MODEL = os.environ["ANED_MODEL"]
QUESTION = "What is the weather in Paris?"
FOREVER = "Tell a neverending-please story."
ASK = [{"role": "user", "content": QUESTION}]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather of a city.",
                                           "parameters": PARAMETERS}}]
called = []


def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: its name
    """
    called.append({"city": city})
    return "It is sunny."


def say(text, pieces=1):
    """The client's answer; of a stream, in how many pieces it came."""
    print("ANSWER " + json.dumps({"text": text, "pieces": pieces, "called": called}), flush=True)


def say_all(pieces):
    pieces = [p for p in pieces if p]
    say("".join(pieces), len(pieces))


def leave(pieces, close=lambda: None):
    """Read a little of an answer without an end, and leave. The process stays, so that its end is not what ends the stream."""
    n = 0
    for p in pieces:
        n += bool(p)
        if n > 3:
            break
    close()
    del pieces  # and with it a stream that nobody else holds
    gc.collect()
    print("LEFT", flush=True)
    sys.stdin.read()


def main(*cases):
    {f.__name__: f for f in cases}[sys.argv[1]]()
