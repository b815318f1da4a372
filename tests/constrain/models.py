"""Schemas as pydantic makes them of models, which is what most clients in Python send; and as the OpenAI SDK then makes them
strict: every property required, nothing else allowed."""
import datetime
import decimal
import enum
import ipaddress
import pathlib
import typing
import uuid

import pydantic
from openai.lib._pydantic import to_strict_json_schema
from pydantic import BaseModel, ConfigDict, Field


class Colour(str, enum.Enum):
    red = "red"
    dark_green = "dark green"
    blue = "bl\u00fc"


class Level(enum.IntEnum):
    low = 1
    middle = 5
    high = 10


class Person(BaseModel):
    name: str = Field(max_length=20)
    age: int


class Bounded(BaseModel):
    small: int = Field(ge=0, le=10)
    above: int = Field(gt=5, lt=120)
    ratio: float = Field(ge=0, le=1)
    negative: float = Field(gt=-3, lt=-1)


class Texts(BaseModel):
    short: str = Field(min_length=1, max_length=5)
    code: str = Field(pattern=r"^[A-Z]{2}\d{4}$")
    slug: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+){0,3}$")
    either: str = Field(pattern="^(yes|no|maybe)$")


class Moments(BaseModel):
    day: datetime.date
    time: datetime.time
    at: datetime.datetime
    id: uuid.UUID


class Links(BaseModel):
    page: pydantic.HttpUrl
    any: pydantic.AnyUrl


class Named(BaseModel):
    """Types whose schemas are formats."""
    wait: datetime.timedelta
    host: ipaddress.IPv6Address
    id: pydantic.UUID4
    data: pydantic.Base64Bytes
    key: pydantic.SecretStr
    file: pathlib.Path


class Nothing(BaseModel):
    pass


class Choices(BaseModel):
    colour: Colour
    level: Level
    word: typing.Literal["one", "two", "three"]
    number: typing.Literal[1, 2, 3]
    only: typing.Literal["this"]


class Maybe(BaseModel):
    name: typing.Optional[str] = Field(None, max_length=8)
    count: typing.Optional[int] = None
    choice: typing.Optional[Colour] = None
    either: typing.Union[int, bool, None] = None


class Address(BaseModel):
    street: str = Field(max_length=12)
    zip: str = Field(pattern=r"^\d{5}(-\d{4})?$")


class Customer(BaseModel):
    home: Address
    work: typing.Optional[Address] = None
    others: list[Address] = Field(max_length=2)


class Step(BaseModel):
    explanation: str = Field(max_length=16)
    output: str = Field(max_length=16)


class Reasoning(BaseModel):
    steps: list[Step] = Field(min_length=1, max_length=3)
    final_answer: str = Field(max_length=16)


class Tree(BaseModel):
    value: int
    left: typing.Optional["Tree"] = None
    right: typing.Optional["Tree"] = None


class Chain(BaseModel):
    item: Level
    next: typing.Optional["Chain"]


class Folder(BaseModel):
    name: str = Field(max_length=6)
    folders: list["Folder"] = Field(max_length=2)


class Cat(BaseModel):
    kind: typing.Literal["cat"]
    lives: int = Field(ge=1, le=9)


class Dog(BaseModel):
    kind: typing.Literal["dog"]
    tricks: list[Colour] = Field(max_length=3)


class Bird(BaseModel):
    kind: typing.Literal["bird"]
    can_fly: bool


class Owner(BaseModel):
    pet: typing.Union[Cat, Dog, Bird] = Field(discriminator="kind")


class Pets(BaseModel):
    pets: list[typing.Annotated[typing.Union[Cat, Dog], Field(discriminator="kind")]] = Field(max_length=2)


class Anything(BaseModel):
    either: typing.Union[Cat, Level, str]


class Forbidding(BaseModel):
    model_config = ConfigDict(extra="forbid")
    x: int
    y: int = 3


class Allowing(BaseModel):
    model_config = ConfigDict(extra="allow")
    x: bool


class Mapping(BaseModel):
    counts: dict[str, int]
    flags: dict[typing.Literal["a", "b", "c"], bool]


class Tuples(BaseModel):
    pair: tuple[int, bool]
    triple: tuple[Level, Level, Level]
    many: tuple[bool, ...] = Field(max_length=4)


class Aliased(BaseModel):
    first: int = Field(alias="first-name")
    second: bool = Field(alias="$ref")
    third: bool = Field(alias='with "quotes"')
    fourth: bool = Field(alias="na\u00efve/~key")


class Extract(BaseModel):
    """What a mail is about."""
    subject: str = Field(description="of the mail", max_length=10)
    urgent: bool = Field(False, description="whether it can wait")
    labels: list[typing.Literal["bug", "question", "praise"]] = Field(default_factory=list, max_length=3)
    confidence: float = Field(ge=0, le=1, description="between 0 and 1")


class Lists(BaseModel):
    grid: list[list[int]] = Field(min_length=2, max_length=2)
    empty: list[bool] = Field(max_length=0)
    words: list[typing.Annotated[str, Field(max_length=4)]] = Field(min_length=2, max_length=4)


class Money(BaseModel):
    amount: decimal.Decimal
    currency: typing.Literal["EUR", "USD"]


class Mixed(BaseModel):
    value: typing.Union[bool, Level, typing.Literal["none"], list[bool], None]


class Defaults(BaseModel):
    a: int = 1
    b: bool = True
    c: Colour = Colour.red
    d: list[Level] = []


MODELS = [Person, Bounded, Texts, Moments, Links, Named, Nothing, Choices, Maybe, Customer, Reasoning, Tree, Chain, Folder, Owner, Pets,
          Anything, Forbidding, Allowing, Mapping, Tuples, Aliased, Extract, Lists, Money, Mixed, Defaults]
NOT_STRICT = (Allowing, Mapping)  # other names have no place in a strict schema


def schemas():
    out = {f"pydantic {m.__name__}": m.model_json_schema() for m in MODELS}
    for m in MODELS:
        if m not in NOT_STRICT:
            out[f"strict {m.__name__}"] = to_strict_json_schema(m)
    out["pydantic list"] = pydantic.TypeAdapter(list[Person]).json_schema()
    out["pydantic union"] = pydantic.TypeAdapter(typing.Union[Cat, Dog]).json_schema()
    return out
