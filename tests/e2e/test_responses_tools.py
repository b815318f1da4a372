"""Calls of functions and thoughts in OpenAI's responses, by the client's own types. The model says what a script has."""
import json

import pytest

import scripted
from conftest import Daemon
from test_responses import EVENT, Response, answer, events, sdk, text_of

NAME, ARGS = "get_weather", {"city": "Paris"}
BEFORE, ANSWER, TEXT, THOUGHT = "Let me look. ", "It is sunny.", "Hello there.", "The user greets me."
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "name": NAME, "description": "The weather.", "parameters": SCHEMA, "strict": False}
EARLIER = "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content[:SHOWN] }}\n</think>\n{% endif %}{{ shown(m.content) }}"
SCRIPTS = [scripted.Script(ANSWER, "last.role == 'tool' and last.name == 'get_weather' and messages[-2].tool_calls|length > 0"),
           scripted.Script("The result has no call.", "last.role == 'tool'"),
           scripted.Script(BEFORE + scripted.calls_text([(NAME, ARGS), ("get_time", {})]), "tools and 'time' in last.content"),
           scripted.Script(BEFORE + scripted.calls_text([(NAME, ARGS)]), "tools"),
           scripted.Script(f"<think>\n{THOUGHT}\n</think>\n\n{TEXT}", "'think' in last.content"), scripted.Script(TEXT)]


@pytest.fixture(scope="module")
def d(aned, tmp_path_factory):
    d = Daemon(aned)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scripted, "TEMPLATE", scripted.TEMPLATE.replace("{{ shown(m.content) }}", EARLIER))
        path = scripted.write(tmp_path_factory.mktemp("scripted") / "s.gguf", SCRIPTS)
    assert d.convert(path, "demo", context=2048)["state"] == "done"
    yield d
    assert d.close() == 0


def ask(d, **more):
    return answer(d, **{"max_output_tokens": None, "tools": [TOOL], **more})


def kinds(x):
    return [i["type"] for i in x["output"]]


def test_a_call(d):
    x = ask(d, input="Weather?")
    assert kinds(x) == ["message", "function_call"] and x["status"] == "completed"
    call = x["output"][1]
    assert text_of(x).strip() == BEFORE.strip() and (call["name"], json.loads(call["arguments"])) == (NAME, ARGS)
    assert call["status"] == "completed" and call["call_id"].startswith("call_") and call["id"].startswith("fc_")
    assert [t["name"] for t in x["tools"]] == [NAME]
    assert text_of(ask(d, input="Weather?", tool_choice="none")) == TEXT


def test_a_strict_call(d):
    """The script says Paris; a strict tool knows only Rome, and one in a namespace too."""
    rome = {"type": "object", "properties": {"city": {"enum": ["Rome"]}}, "required": ["city"], "additionalProperties": False}
    for strict, city in ((True, "Rome"), (False, "Paris")):
        tool = {**TOOL, "parameters": rome, "strict": strict}
        for tools in ([tool], [{"type": "namespace", "name": "near", "description": "x", "tools": [tool]}]):
            call = ask(d, input="Weather?", tools=tools)["output"][-1]
            assert (call["name"], json.loads(call["arguments"])) == (NAME, {"city": city})


def test_its_result(d):
    """With all items again, as Codex does it, and by the answer's id."""
    first = ask(d, input="Weather?")
    result = {"type": "function_call_output", "call_id": first["output"][1]["call_id"], "output": "sunny"}
    items = [{"role": "user", "content": "Weather?"}, *first["output"], result]
    by_items = ask(d, input=items, store=False)
    by_id = ask(d, input=[result], previous_response_id=first["id"])
    assert text_of(by_items) == ANSWER and kinds(by_items) == ["message"]
    assert text_of(by_id) == ANSWER and by_id["usage"]["input_tokens"] == by_items["usage"]["input_tokens"]
    parts = {**result, "output": [{"type": "input_text", "text": "sun"}, {"type": "input_text", "text": "ny"}]}
    assert ask(d, input=[*items[:-1], parts], store=False)["usage"]["input_tokens"] == by_items["usage"]["input_tokens"]


def test_streamed_call(d):
    whole = ask(d, input="Weather, time?")
    assert kinds(whole) == ["message", "function_call", "function_call"]
    got = events(d, max_output_tokens=None, tools=[TOOL], input="Weather, time?")
    last = got[-1]["response"]
    assert got[-1]["type"] == "response.completed" and kinds(last) == kinds(whole)
    for k, item in enumerate(last["output"][1:], 1):
        mine = [x for x in got if x.get("output_index") == k]
        assert mine[0]["type"] == "response.output_item.added" and mine[0]["item"]["arguments"] == ""
        assert mine[-2]["type"] == "response.function_call_arguments.done" and mine[-2]["arguments"] == item["arguments"]
        assert mine[-1]["item"] == item
        assert "".join(x["delta"] for x in mine if x["type"].endswith("arguments.delta")) == item["arguments"]
    assert [(i["name"], i["arguments"]) for i in last["output"][1:]] == [(i["name"], i["arguments"]) for i in whole["output"][1:]]
    one = ask(d, input="Weather, time?", parallel_tool_calls=False)
    assert kinds(one) == ["message", "function_call"] and one["status"] == "completed"
    with sdk(d) as c, c.responses.stream(model="demo", input="Weather, time?", tools=[TOOL]) as s:
        for _ in s:
            pass
        assert [i.type for i in s.get_final_response().output] == kinds(whole)


def test_namespaces_and_other_tools(d):
    """As Codex sends them: a function of a namespace is called by its own name, and says whose it is."""
    space = {"type": "namespace", "name": "sky", "description": "Of the sky.", "tools": [TOOL]}
    x = ask(d, input="Weather?", tools=[{"type": "web_search", "external_web_access": False}, space, {"type": "custom", "name": "patch"}])
    assert (x["output"][1]["name"], x["output"][1]["namespace"]) == (NAME, "sky")
    assert [t["type"] for t in x["tools"]] == ["namespace"]
    assert text_of(ask(d, input="Weather?", tools=[{"type": "web_search"}])) == TEXT


def test_thoughts(d):
    x = ask(d, input="think", tools=[])
    assert kinds(x) == ["reasoning", "message"] and text_of(x) == TEXT
    assert x["output"][0]["content"] == [{"type": "reasoning_text", "text": THOUGHT}] and x["output"][0]["summary"] == []
    n = x["usage"]["output_tokens_details"]["reasoning_tokens"]
    assert 0 < n < x["usage"]["output_tokens"]
    got = events(d, max_output_tokens=None, input="think")
    assert "".join(e["delta"] for e in got if e["type"] == "response.reasoning_text.delta") == THOUGHT
    assert kinds(got[-1]["response"]) == kinds(x)
    again = [{"role": "user", "content": "think"}, *x["output"], {"role": "user", "content": "Go on"}]
    with_thought = ask(d, input=again, tools=[])
    without = ask(d, input=[again[0], *again[2:]], tools=[])
    assert with_thought["usage"]["input_tokens"] > without["usage"]["input_tokens"]
    by_id = ask(d, input="Go on", previous_response_id=x["id"], tools=[])
    assert by_id["usage"]["input_tokens"] == with_thought["usage"]["input_tokens"]


def test_recorded_requests(d, shared):
    """Every turn that real clients sent is served, streamed as they asked for it."""
    served = 0
    for path in sorted((shared / "data" / "clients").glob("*.json")):
        x = json.loads(path.read_text())
        if x["path"] != "/v1/responses":
            continue
        body = json.loads(x["body"]) if isinstance(x["body"], str) else x["body"]
        with d.http() as c:
            r = c.post("/v1/responses", json={**body, "model": "demo"})
        if body.get("stream"):
            assert r.status_code == 200, (path.name, r.text)
            got = [json.loads(line[6:]) for line in r.text.splitlines() if line.startswith("data: ")]
            assert all(EVENT.validate_python(e) for e in got) and got[-1]["type"] == "response.completed", path.name
            served += 1
        else:
            assert r.status_code == 200, (path.name, r.text)
            assert Response.model_validate_json(r.text, strict=True).output, path.name
            served += 1
    assert served >= 30, served
