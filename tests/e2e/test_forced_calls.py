"""Calls that a request asks for, and answers by a schema, of the demo model, which was never taught any of them: with the
templates of real families it is held to legal calls, in their own forms, over several turns and in three dialects."""
import json
import pathlib

import jsonschema
import pytest

import ggufs
from conftest import Daemon
from test_tools import by_anthropic, by_openai

PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
                                           "kind": {"enum": ["cat", "dog", "bird"]}}, "required": ["name", "age", "kind"], "additionalProperties": False}
SCHEMAS = {
    "get_weather": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 16}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
                    "required": ["city"], "additionalProperties": False},
    "add_person": {"type": "object", "properties": {"person": {"$ref": "#/$defs/person"}}, "required": ["person"], "additionalProperties": False,
                   "$defs": {"person": PERSON}},
    "tick": {"type": "object", "properties": {}},
}
TOOLS = [{"type": "function", "function": {"name": n, "description": f"Does {n}.", "parameters": s}} for n, s in SCHEMAS.items()]
A_TOOLS = [{"name": n, "input_schema": s} for n, s in SCHEMAS.items()]
ASK = [{"role": "user", "content": "What is the weather in Paris?"}]
FAMILIES = {  # name -> template in the shared data
    "qwen": "llamacpp/Qwen-Qwen2.5-7B-Instruct.jinja", "llama": "llamacpp/meta-llama-Llama-3.1-8B-Instruct.jinja",
    "mistral": "llamacpp/mistralai-Mistral-Nemo-Instruct-2407.jinja",
}


@pytest.fixture(scope="module")
def d(aned, demo_gguf, shared, tmp_path_factory):
    """The demo's words are short tokens: templates need more of them than it was trained for."""
    gguf = ggufs.copy(demo_gguf, tmp_path_factory.mktemp("forced") / "demo.gguf", lambda t: (t.data, None, t.tensor_type),
                      more={"qwen2.context_length": 8192})
    d = Daemon(aned)
    for name, path in FAMILIES.items():
        job = d.convert(gguf, name, context=8192, chat_template=str(pathlib.Path(shared) / "data/templates/jinja" / path))
        assert job["state"] == "done", job
    yield d
    assert d.close() == 0


def check(name, arguments):
    jsonschema.Draft202012Validator(SCHEMAS[name]).validate(json.loads(arguments))


@pytest.mark.parametrize("model", list(FAMILIES))
def test_conversations(d, model):
    """Every turn calls, one tool or several; the results go back in the template's own form."""
    c = by_openai(d)
    names = set()
    for seed in range(6):
        messages = list(ASK)
        for turn in range(3):
            choice = {"type": "function", "function": {"name": "add_person"}} if turn == 1 else "required"
            r = c.chat.completions.create(model=model, messages=messages, tools=TOOLS, tool_choice=choice, parallel_tool_calls=turn == 0 and model != "mistral",
                                          seed=seed, temperature=1, max_tokens=300)
            m, why = r.choices[0].message, r.choices[0].finish_reason
            if why == "length":  # several long calls
                break
            assert why == "tool_calls" and not m.content, (seed, turn, r)
            assert turn == 0 or len(m.tool_calls) == 1
            for t in m.tool_calls:
                check(t.function.name, t.function.arguments)
                assert turn != 1 or t.function.name == "add_person"
                names.add(t.function.name)
            messages += [m.to_dict(), *({"role": "tool", "tool_call_id": t.id, "content": "sunny"} for t in m.tool_calls)]
        else:
            assert r.usage.prompt_tokens_details.cached_tokens > 0
    assert names >= {"get_weather", "add_person"}


def test_streamed(d):
    """The same bytes in a stream, and arguments arrive in pieces."""
    c = by_openai(d)
    for seed in range(3):
        ask = {"model": "qwen", "messages": ASK, "tools": TOOLS, "tool_choice": "required", "seed": seed, "max_tokens": 300}
        whole = c.chat.completions.create(**ask).choices[0].message.tool_calls
        with c.chat.completions.stream(**ask) as s:
            list(s)
            final = s.get_final_completion().choices[0].message.tool_calls
        assert [(t.function.name, t.function.arguments) for t in whole] == [(t.function.name, t.function.arguments) for t in final]


def test_other_dialects(d):
    a = by_anthropic(d)
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        r = a.messages.create(model="qwen", max_tokens=300, messages=ASK, tools=A_TOOLS, tool_choice={**choice, "disable_parallel_tool_use": True})
        assert r.stop_reason == "tool_use" and [b.type for b in r.content] == ["tool_use"]
        assert r.content[0].name == choice.get("name", r.content[0].name)
        check(r.content[0].name, json.dumps(r.content[0].input))
    c = by_openai(d)
    for choice in ("required", {"type": "function", "name": "tick"}):
        r = c.responses.create(model="qwen", input="What is the weather in Paris?", tool_choice=choice, max_output_tokens=300, parallel_tool_calls=False,
                               tools=[{"type": "function", "name": n, "parameters": s, "strict": False} for n, s in SCHEMAS.items()])
        assert [x.type for x in r.output] == ["function_call"] and r.status == "completed"
        check(r.output[0].name, r.output[0].arguments)


def answers(d, model, seed):
    """One answer by a schema in each dialect that has a field for it: (path, text)."""
    ours = {"seed": seed, "temperature": 1}
    typed = {"type": "json_schema", "name": "person", "schema": PERSON}
    with d.http() as c:
        def post(path, **body):
            r = c.post(path, json={"model": model, **({} if "options" in body else ours), **body})
            assert r.status_code == 200, (path, r.text)
            return r.json()
        yield "chat", post("/v1/chat/completions", messages=ASK, max_tokens=300,
                           response_format={"type": "json_schema", "json_schema": typed})["choices"][0]["message"]["content"]
        yield "responses", post("/v1/responses", input="Who?", max_output_tokens=300, text={"format": typed})["output"][0]["content"][0]["text"]
        yield "ollama", post("/api/chat", messages=ASK, stream=False, format=PERSON, options={"seed": seed, "temperature": 1})["message"]["content"]
        yield "generate", post("/api/generate", prompt="Who?", stream=False, format=PERSON, options={"seed": seed})["response"]
        yield "completions", post("/v1/completions", prompt="Who? ", max_tokens=300, json_schema=PERSON)["choices"][0]["text"]
        yield "completion", post("/completion", prompt="Who? ", n_predict=300, json_schema=PERSON)["content"]
        r = c.post("/v1/messages", json={"model": model, "max_tokens": 300, "messages": ASK, "output_config": {"format": typed}})
        assert r.status_code == 200, r.text
        yield "messages", r.json()["content"][0]["text"]


def test_answers_by_a_schema(d):
    for model in FAMILIES:
        for seed in range(2):
            for path, text in answers(d, model, seed):
                try:
                    jsonschema.Draft202012Validator(PERSON).validate(json.loads(text))
                except ValueError as e:
                    raise AssertionError((path, text)) from e


def test_what_cannot_be_kept(d):
    """Refused with the word's name and path, before anything is generated."""
    bad = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True, "items": {"type": "integer"}}}}
    with d.http() as c:
        for path, field, body in (
                ("/v1/chat/completions", "response_format", {"messages": ASK, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": bad}}}),
                ("/v1/responses", "text.format", {"input": "x", "text": {"format": {"type": "json_schema", "name": "x", "schema": bad}}}),
                ("/v1/completions", "json_schema", {"prompt": "x", "json_schema": bad}),
                ("/api/chat", "format", {"messages": ASK, "format": bad}),
                ("/v1/messages", "output_config.format", {"messages": ASK, "max_tokens": 9, "output_config": {"format": {"type": "json_schema", "schema": bad}}}),
                ("/v1/completions", "grammar", {"prompt": "x", "grammar": "root ::= \"a\" rest"})):
            r = c.post(path, json={"model": "qwen", **body})
            assert r.status_code == 400, (path, r.text)
            e = r.json()["error"]
            words = e if isinstance(e, str) else e["message"]
            assert words.startswith(f"{field}: ") and ("uniqueItems" in words or field == "grammar"), words
            assert isinstance(e, str) or "param" not in e or e["param"] == field, e
