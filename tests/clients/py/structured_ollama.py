"""As examples/structured-outputs.py of ollama-python does it, with a larger model."""
import ollama
from case import BASE, KEY, MODEL, main
from wanted import QUESTION, TALK, Bounded, Formats, Person, Place, came

client = ollama.Client(host=BASE, headers={"Authorization": "Bearer " + KEY})


def chat():
    for kind in (Person, Bounded, Formats):
        r = client.chat(model=MODEL, messages=TALK, format=kind.model_json_schema(), options={"temperature": 0})
        assert r.done_reason == "stop", r.done_reason
        came(kind.model_validate_json(r.message.content), kind)


def stream():
    pieces = [p.message.content for p in client.chat(model=MODEL, messages=TALK, format=Person.model_json_schema(), stream=True)]
    came(Person.model_validate_json("".join(pieces)), Person)


def generate():
    r = client.generate(model=MODEL, prompt=QUESTION, format=Person.model_json_schema())
    came(Person.model_validate_json(r.response), Person)


def json_word():
    came(Place.model_validate_json(client.chat(model=MODEL, messages=TALK, format="json").message.content), Place)


main(chat, stream, generate, json_word)
