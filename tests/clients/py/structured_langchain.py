"""langchain's with_structured_output, by each of its methods, with each of its models (ANED_KIND)."""
import os
from typing import Optional, TypedDict

from case import main
from langchain_any import model
from wanted import QUESTION, Bounded, Formats, Person, Place, came


class Joke(TypedDict):
    setup: str
    punchline: str
    rating: Optional[int]


def by(method):
    moved = method == "json_schema" and os.environ["ANED_KIND"] == "anthropic"  # its SDK moves bounds into the description
    for kind in (Person,) if moved else (Person, Bounded, Formats):
        came(model().with_structured_output(kind, method=method).invoke(QUESTION), kind)
    for schema in (Joke, Person.model_json_schema()):
        came(model().with_structured_output(schema, method=method).invoke(QUESTION), dict)
    raw = model().with_structured_output(Person, method=method, include_raw=True).invoke(QUESTION)
    assert raw["parsing_error"] is None
    came(raw["parsed"], Person)
    *_, last = model().with_structured_output(Person, method=method).stream(QUESTION)
    came(last, Person)


def json_schema():
    by("json_schema")


def function_calling():
    by("function_calling")


def json_mode():
    came(model().with_structured_output(Place, method="json_mode").invoke(QUESTION), Place)


def tool_choice():
    for choice in ("any", "Person"):
        m = model().bind_tools([Bounded, Person], tool_choice=choice).invoke(QUESTION)
        call = m.tool_calls[0]
        kind = {"Person": Person, "Bounded": Bounded}[call["name"]]
        came(kind.model_validate(call["args"]), Person if choice == "Person" else kind)


main(json_schema, function_calling, json_mode, tool_choice)
