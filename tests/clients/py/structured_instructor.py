"""instructor by a mode (ANED_KIND), as its tests of providers do it (tests/llm/test_core_providers), without their names and
ages, which a model would have to understand."""
import os
from typing import Literal, Optional, Union

import instructor
import openai
from case import BASE, KEY, MODEL, main
from pydantic import BaseModel
from wanted import TALK, Address, Bounded, Colour, Formats, Mail, Person, Phone, Place, came

CREATE = {"model": MODEL, "messages": TALK, "max_retries": 0}


class Visit(BaseModel):
    name: str
    home: Address
    level: Literal["low", "high"]
    notes: list[str]


def client():
    kind = os.environ["ANED_KIND"]
    if kind.islower():  # a provider
        base = {} if kind == "anthropic" else {"base_url": BASE + "/v1"}  # which it takes from the environment alone
        return instructor.from_provider(f"{kind}/{MODEL}", api_key=KEY, **base)
    return instructor.from_openai(openai.OpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0), mode=instructor.Mode[kind])


def create(kind, **more):
    if os.environ["ANED_KIND"] == "anthropic":
        more["max_tokens"] = 2048
    return client().chat.completions.create(response_model=kind, **CREATE, **more)


def models():
    for kind in (Person, Bounded, Formats):
        came(create(kind), kind)


def simple():
    """What instructor wraps into a model of its own."""
    for kind, types in ((int, int), (bool, bool), (str, str), (Literal["low", "high"], str), (Union[int, str], (int, str)),
                        (Colour, Colour), (list[Mail], list), (Optional[int], (int, type(None)))):
        came(create(kind), types)
    came(create(Union[Mail, Phone]), (Mail, Phone))


def partial():
    """Without enums in lists, which a Partial of instructor's refuses as text."""
    seen = list(client().chat.completions.create_partial(response_model=Visit, **CREATE))
    assert len(seen) > 1
    came(Visit.model_validate(seen[-1].model_dump()), Visit)


def iterable():
    for x in client().chat.completions.create_iterable(response_model=Mail, **CREATE):
        came(x, Mail)


def place():
    came(create(Place), Place)


main(models, simple, partial, iterable, place)
