"""As examples/parsing*.py and examples/responses/structured_outputs*.py of openai-python do it, with a larger model."""
import openai
from case import BASE, KEY, MODEL, main
from wanted import QUESTION, TALK, Bounded, Formats, Person, Place, came

client = openai.OpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0)
CHAT_TOOLS = [openai.pydantic_function_tool(Bounded), openai.pydantic_function_tool(Person)]
TOOLS = [{"type": "function", **t["function"]} for t in CHAT_TOOLS]


def chat_parse():
    for kind in (Person, Bounded, Formats):
        c = client.chat.completions.parse(model=MODEL, messages=TALK, response_format=kind).choices[0]
        assert c.finish_reason == "stop" and c.message.refusal is None
        came(c.message.parsed, kind)


def chat_stream():
    with client.chat.completions.stream(model=MODEL, messages=TALK, response_format=Person) as s:
        done = [e.parsed for e in s if e.type == "content.done"]
    came(done[0], Person)
    came(s.get_final_completion().choices[0].message.parsed, Person)


def chat_json_object():
    c = client.chat.completions.create(model=MODEL, messages=TALK, response_format={"type": "json_object"})
    came(Place.model_validate_json(c.choices[0].message.content), Place)


def chat_tool():
    """A strict tool that the model chooses; one that is required, or named; streamed."""
    for choice in ("auto", "required", {"type": "function", "function": {"name": "Person"}}):
        c = client.chat.completions.parse(model=MODEL, messages=TALK, tools=CHAT_TOOLS, tool_choice=choice,
                                          parallel_tool_calls=False).choices[0]
        assert c.finish_reason == "tool_calls" and len(c.message.tool_calls) == 1, c
        came(c.message.tool_calls[0].function.parsed_arguments, Person if isinstance(choice, dict) else (Person, Bounded))
    with client.chat.completions.stream(model=MODEL, messages=TALK, tools=CHAT_TOOLS, tool_choice="required") as s:
        done = [e.parsed_arguments for e in s if e.type == "tool_calls.function.arguments.done"]
    came(done[0], (Person, Bounded))


def responses_parse():
    for kind in (Person, Bounded, Formats):
        r = client.responses.parse(model=MODEL, input=QUESTION, text_format=kind)
        assert r.status == "completed", r.status
        came(r.output_parsed, kind)


def responses_stream():
    with client.responses.stream(model=MODEL, input=QUESTION, text_format=Person) as s:
        done = [e.parsed for e in s if e.type == "response.output_text.done"]
    came(done[0], Person)
    came(s.get_final_response().output_parsed, Person)


def responses_tool():
    for choice in ("auto", "required", {"type": "function", "name": "Person"}):
        r = client.responses.parse(model=MODEL, input=QUESTION, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False)
        assert [x.type for x in r.output] == ["function_call"] and r.output[0].status == "completed", r.output
        kind = {"Person": Person, "Bounded": Bounded}[r.output[0].name]
        came(kind.model_validate_json(r.output[0].arguments), Person if isinstance(choice, dict) else kind)


main(chat_parse, chat_stream, chat_json_object, chat_tool, responses_parse, responses_stream, responses_tool)
