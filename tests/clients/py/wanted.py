"""What the scripts structured_*.py ask for, and how each says that it came.

The model answers nonsense where a schema holds it, so that only types are asked for. Where no schema reaches the daemon
(json_object, a schema in the prompt's words), it says what Place takes: see tests/clients/held.py.
"""
import datetime
import enum
import ipaddress
from typing import Literal, Optional, Union

from case import say
from pydantic import UUID4, BaseModel, Field, SecretStr

QUESTION = "Who is it? Ada, 36, of 1 Main Street in London."
TALK = [{"role": "user", "content": QUESTION}]


class Colour(str, enum.Enum):
    red = "red"
    dark_green = "dark green"


class Address(BaseModel):
    street: str
    city: str


class Mail(BaseModel):
    kind: Literal["mail"]
    address: str


class Phone(BaseModel):
    kind: Literal["phone"]
    number: int


class Person(BaseModel):
    """A person, with what schemas of clients have: references, enums, null, lists, unions."""
    name: str = Field(description="of the person")
    age: int
    height: float
    home: Address
    work: Optional[Address] = None
    colours: list[Colour]
    level: Literal["low", "high"]
    contact: Union[Mail, Phone]
    friends: list[Address] = Field(default_factory=list)
    known: bool = True


class Bounded(BaseModel):
    """Words that SDKs leave out, describe in prose, or send."""
    age: int = Field(ge=0, le=120)
    ratio: float = Field(gt=0, lt=10)
    name: str = Field(min_length=2, max_length=20)
    code: str = Field(pattern=r"^[A-Z]{2}\d{2}$")
    tags: list[str] = Field(min_length=1, max_length=3)


class Formats(BaseModel):
    """Types whose schemas are formats. HttpUrl is left out: its schema allows a URI of any scheme, and it does not."""
    day: datetime.date
    wait: datetime.timedelta
    id: UUID4
    host: ipaddress.IPv6Address
    key: SecretStr


class Place(BaseModel):
    city: str
    days: int


def came(x, kind):
    """It is what was asked for."""
    if kind is Place:
        assert x.model_dump() == {"city": "Paris", "days": 3}, x
    assert isinstance(x, kind), f"{type(x).__name__}: {x!r}"[:300]
    say(x.model_dump_json() if isinstance(x, BaseModel) else repr(x))
