"""As examples/structured_outputs*.py of anthropic-python do it, with a larger model; and calls that are forced.

Its transform_schema, which parse and stream use, moves bounds and patterns into the description: so Bounded is asked for only
by a schema that goes as it is."""
import anthropic
from anthropic import transform_schema
from case import BASE, KEY, MODEL, main
from wanted import TALK, Bounded, Person, came

client = anthropic.Anthropic(base_url=BASE, api_key=KEY, max_retries=0)
ASK = {"model": MODEL, "max_tokens": 2048, "messages": TALK}
TOOLS = [{"name": k.__name__, "description": "A person.", "input_schema": k.model_json_schema()} for k in (Bounded, Person)]


def parse():
    m = client.messages.parse(**ASK, output_format=Person)
    assert m.stop_reason == "end_turn", m.stop_reason
    came(m.parsed_output, Person)


def stream():
    with client.messages.stream(**ASK, output_format=Person) as s:
        pieces = [e.parsed_snapshot() for e in s if e.type == "text"]
    assert len(pieces) > 1
    came(s.get_final_message().parsed_output, Person)


def output_config():
    for kind, schema in ((Person, transform_schema(Person)), (Bounded, Bounded.model_json_schema())):
        m = client.messages.create(**ASK, output_config={"format": {"type": "json_schema", "schema": schema}})
        came(kind.model_validate_json(m.content[0].text), kind)


def beta_parse():
    came(client.beta.messages.parse(**ASK, output_format=Person).parsed_output, Person)


def tool():
    """A call of any tool, of one by its name, and of a strict one that the model chooses."""
    strict = [{**t, "strict": True, "input_schema": transform_schema(t["input_schema"])} for t in TOOLS[1:]]
    for tools, choice in ((TOOLS, {"type": "any"}), (TOOLS, {"type": "tool", "name": "Person"}), (strict, {"type": "auto"})):
        m = client.messages.create(**ASK, tools=tools, tool_choice={**choice, "disable_parallel_tool_use": True})
        assert m.stop_reason == "tool_use" and [b.type for b in m.content] == ["tool_use"], m
        kind = {"Person": Person, "Bounded": Bounded}[m.content[0].name]
        came(kind.model_validate(m.content[0].input), Person if "name" in choice else kind)


main(parse, stream, output_config, beta_parse, tool)
