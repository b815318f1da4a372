"""OpenAI's responses: /v1/responses, by OpenAI's own client, whose types are held to the answers strictly."""
import contextlib
import json
import os
import signal

import httpx
import openai
import pydantic
import pytest
from openai.types.responses import Response, ResponseStreamEvent

from conftest import SLOW_S, Daemon, raw_post, until
from fake import make_home

ASK = "What is aned?"
BODY = {"model": "demo", "input": ASK, "temperature": 0, "max_output_tokens": 16}
EVENT = pydantic.TypeAdapter(ResponseStreamEvent)


def sdk(d):
    return openai.OpenAI(base_url="http://aned/v1", api_key="none", max_retries=0, timeout=120 * SLOW_S,
                         http_client=httpx.Client(transport=httpx.HTTPTransport(uds=str(d.sock))))


def post(d, **more):
    with d.http() as c:
        return c.post("/v1/responses", json={**BODY, **more})


def answer(d, **more):
    """A whole answer; the client's types take it as it is."""
    r = post(d, **more)
    assert r.status_code == 200, r.text
    Response.model_validate_json(r.text, strict=True)
    return r.json()


def text_of(x):
    return "".join(p["text"] for i in x["output"] if i["type"] == "message" for p in i["content"])


def events(d, **more):
    out = []
    with d.http() as c, c.stream("POST", "/v1/responses", json={**BODY, "stream": True, **more}) as r:
        assert r.status_code == 200 and r.headers["content-type"] == "text/event-stream"
        for line in r.iter_lines():
            if line.startswith("event: "):
                name = line[7:]
            elif line:
                assert line.startswith("data: "), line
                EVENT.validate_json(line[6:], strict=True)
                out.append(json.loads(line[6:]))
                assert out[-1]["type"] == name
    assert [x["sequence_number"] for x in out] == list(range(len(out)))
    return out


def chat(d, messages, **more):
    """The same conversation in the dialect of chat."""
    with d.http() as c:
        r = c.post("/v1/chat/completions", json={"model": "demo", "max_tokens": 16, "temperature": 0, "messages": messages, **more})
    assert r.status_code == 200, r.text
    return r.json()


def said(x):
    return x["choices"][0]["message"]["content"]


def refused(d, message, code=400, **more):
    r = post(d, **more)
    assert r.status_code == code and message in r.json()["error"]["message"], r.text
    return r.json()["error"]


def user(text):
    return {"role": "user", "content": text}


def test_whole(daemon):
    with sdk(daemon) as c:
        x = c.responses.create(**BODY)
    want = chat(daemon, [user(ASK)])
    assert x.id.startswith("resp_") and (x.object, x.model) == ("response", "demo")
    assert [i.type for i in x.output] == ["message"] and x.output_text == said(want) != ""
    short = want["choices"][0]["finish_reason"] == "length"
    assert x.status == ("incomplete" if short else "completed")
    assert (x.incomplete_details.reason == "max_output_tokens") if short else x.incomplete_details is None
    assert x.usage.input_tokens == want["usage"]["prompt_tokens"] and x.usage.output_tokens == want["usage"]["completion_tokens"]
    assert x.usage.total_tokens == x.usage.input_tokens + x.usage.output_tokens
    again = answer(daemon)
    assert again["usage"]["input_tokens_details"]["cached_tokens"] > 0 and text_of(again) == x.output_text


def test_what_is_said_again(daemon):
    x = answer(daemon, instructions="Be brief.", metadata={"a": "b"}, top_p=0.5, tools=[], reasoning={"effort": "low", "summary": "auto"},
               text={"verbosity": "low"}, user="me", service_tier="flex", store=False)
    assert (x["instructions"], x["metadata"], x["top_p"], x["temperature"], x["user"]) == ("Be brief.", {"a": "b"}, 0.5, 0, "me")
    assert (x["max_output_tokens"], x["service_tier"], x["store"], x["tools"], x["tool_choice"]) == (16, "flex", False, [], "auto")
    assert x["reasoning"] == {"effort": "low", "summary": "auto"} and x["previous_response_id"] is None


def test_streamed(daemon):
    whole = answer(daemon)
    got = events(daemon)
    kinds = [x["type"] for x in got]
    assert kinds[:4] == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
    assert kinds[-4:-1] == ["response.output_text.done", "response.content_part.done", "response.output_item.done"]
    assert set(kinds[4:-4]) == {"response.output_text.delta"} and len(kinds) > 10
    assert got[0]["response"]["status"] == "in_progress" and got[0]["response"]["output"] == [] and got[0]["response"]["usage"] is None
    last = got[-1]["response"]
    assert kinds[-1] == "response." + last["status"] and last["status"] == whole["status"]
    assert "".join(x["delta"] for x in got if x["type"].endswith("text.delta")) == text_of(last) == text_of(whole)
    assert got[-4]["text"] == text_of(whole) and last["output"] == [got[-2]["item"]]
    assert {x["item_id"] for x in got if "item_id" in x} == {last["output"][0]["id"]}
    assert {k: v for k, v in last.items() if k not in ("id", "created_at", "output", "usage")} == \
           {k: v for k, v in whole.items() if k not in ("id", "created_at", "output", "usage")}
    assert last["usage"]["output_tokens"] == whole["usage"]["output_tokens"]
    stop = text_of(whole)[5:8]  # the client wants an answer that is complete
    with sdk(daemon) as c, c.responses.stream(**BODY, extra_body={"stop": stop}) as s:
        seen = [e.type for e in s]
        assert s.get_final_response().output_text == text_of(whole)[:text_of(whole).index(stop)]
    assert seen[0] == "response.created" and seen[-1] == "response.completed"


def test_instructions_and_messages(daemon):
    one = [{"role": "system", "content": "Be brief."}, user("Hi"), {"role": "assistant", "content": "Hello"}, user("Go on")]
    want = chat(daemon, one)
    items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
             {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "eA=="},
             {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
              "content": [{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}]},
             {"role": "user", "content": [{"type": "input_text", "text": "Go "}, {"type": "input_text", "text": "on"}]}]
    x = answer(daemon, instructions="Be brief.", input=items)
    assert text_of(x) == said(want) and x["usage"]["input_tokens"] == want["usage"]["prompt_tokens"]
    system = answer(daemon, input=[{"role": "system", "content": "Be brief."}, *items])
    assert text_of(system) == text_of(x)
    assert text_of(answer(daemon, input=[*items, {"role": "assistant", "content": "A dae"}])) == \
        said(chat(daemon, [*one, {"role": "assistant", "content": "A dae"}])) != text_of(x)


def test_goes_on_by_id(daemon):
    """What was said before is in the prompt, its instructions are not."""
    first = answer(daemon, instructions="Be brief.")
    assert first["store"] is True
    talk = [user(ASK), {"role": "assistant", "content": text_of(first)}, user("And then?")]
    second = answer(daemon, previous_response_id=first["id"], input="And then?", stop=["\x01"])
    want = chat(daemon, talk)
    assert second["previous_response_id"] == first["id"]
    assert text_of(second) == said(want) and second["usage"]["input_tokens"] == want["usage"]["prompt_tokens"]
    third = events(daemon, previous_response_id=second["id"], input=[user("Why?")], instructions="Be kind.")[-1]["response"]
    talk = [{"role": "system", "content": "Be kind."}, *talk, {"role": "assistant", "content": text_of(second)}, user("Why?")]
    want = chat(daemon, talk)
    assert text_of(third) == said(want) and third["usage"]["input_tokens"] == want["usage"]["prompt_tokens"]
    fourth = answer(daemon, previous_response_id=third["id"], input="Oh", max_output_tokens=4)
    assert fourth["usage"]["input_tokens"] > third["usage"]["input_tokens"]
    begun = answer(daemon, input=[user(ASK), {"role": "assistant", "content": "A dae"}])
    talk = [user(ASK), {"role": "assistant", "content": "A dae" + text_of(begun)}, user("Oh")]
    fifth = answer(daemon, previous_response_id=begun["id"], input="Oh")
    assert text_of(fifth) == said(chat(daemon, talk)), "what was begun and its answer are one message"
    with sdk(daemon) as c:
        assert c.responses.retrieve(first["id"]).output_text == text_of(first)
        got = c.responses.retrieve(third["id"])
        assert got.output_text == text_of(third) and got.status == third["status"]
        c.responses.delete(first["id"])
        with pytest.raises(openai.NotFoundError, match=f"Response with id '{first['id']}' not found."):
            c.responses.retrieve(first["id"])
        with pytest.raises(openai.NotFoundError, match="not found"):
            c.responses.delete(first["id"])
    error = refused(daemon, f"Previous response with id '{first['id']}' not found.", 404, previous_response_id=first["id"])
    assert error["param"] == "previous_response_id"
    assert text_of(answer(daemon, previous_response_id=third["id"], input="Oh", max_output_tokens=4)) == text_of(fourth)


def test_not_stored(daemon):
    x = answer(daemon, store=False)
    assert x["store"] is False
    refused(daemon, "not found", 404, previous_response_id=x["id"])
    with daemon.http() as c:
        assert c.get(f"/v1/responses/{x['id']}").status_code == 404


def test_oldest_go(daemon):
    first = answer(daemon, max_output_tokens=1)
    for _ in range(256):
        last = answer(daemon, max_output_tokens=1)
    with daemon.http() as c:
        assert c.get(f"/v1/responses/{first['id']}").status_code == 404
        assert c.get(f"/v1/responses/{last['id']}").json() == last


def test_taken(daemon):
    plain = text_of(answer(daemon))
    for more in ({"include": []}, {"include": ["reasoning.encrypted_content"]}, {"parallel_tool_calls": False}, {"truncation": "auto"},
                 {"client_metadata": {"x": "y"}}, {"prompt_cache_key": "k", "safety_identifier": "s"}, {"top_logprobs": 0},
                 {"stream_options": {"include_obfuscation": False}}, {"tool_choice": "none"}, {"background": False},
                 {"text": {"format": {"type": "text"}, "verbosity": "medium"}}, {"instructions": ""}, {"instructions": None},
                 {"tools": [{"type": "web_search", "external_web_access": False}, {"type": "custom", "name": "x"}]},
                 {"input": [{"role": "user", "content": ASK}]}, {"input": [{"type": "message", "role": "user", "content": ASK}]}):
        assert text_of(answer(daemon, **more)) == plain, more


def test_refused(daemon):
    for field, value, words in (
            ("text", {"format": {"type": "xml"}}, "text.format: only types"),
            ("text", {"format": {"type": "json_schema", "name": "x", "schema": {"not": {}}}}, "text.format: schema #: not"),
            ("tool_choice", "required", "tool_choice: there are no tools"), ("tool_choice", {"type": "custom", "name": "f"}, "tool_choice: only"),
            ("include", ["message.output_text.logprobs"], "include: no 'message.output_text.logprobs' here"),
            ("background", True, "background: only false"), ("conversation", "c", "conversation: not here"),
            ("prompt", {"id": "p"}, "prompt: not here"), ("n", 2, "n: no such field here"), ("top_logprobs", 3, "top_logprobs: only 0"),
            ("input", None, "input: must be a string or an array"), ("input", [], "input: must be"), ("input", 3, "input: must be"),
            ("input", [3], "input[0]: must be an item"), ("input", [{"type": "item_search", "id": "x"}], "input[0]: no item of type 'item_search'"),
            ("input", [user(ASK), {"role": "user", "content": [{"type": "input_image"}]}], "input[1].content: no part of type 'input_image' here"),
            ("input", [{"role": "tool", "content": "x"}], "input[0].role: 'tool' is not one of"),
            ("input", [{"role": "user", "content": "x", "name": "bob"}], "input[0].name: no such field here"),
            ("input", [{"role": "user", "content": [{"type": "input_text"}]}], "input[0].content.text: must be a string"),
            ("input", [{"type": "reasoning", "summary": []}], "input: there is no message in it"),
            ("input", [{"type": "function_call", "call_id": "c", "name": "f"}], "input[0].arguments: must be a string"),
            ("input", [{"type": "function_call_output", "call_id": "c"}], "input[0].output: must be"),
            ("tools", {}, "tools: must be an array"), ("tools", [{"name": "f"}], "tools[0].type: must be"),
            ("tools", [{"type": "function"}], "tools[0].name: must be"),
            ("tools", [{"type": "function", "name": "f", "parameters": []}], "tools[0].parameters: must be"),
            ("tools", [{"type": "namespace", "name": "s", "tools": [{"type": "function"}]}], "tools[0].tools[0].name: must be"),
            ("max_output_tokens", 0, "max_output_tokens: must be"), ("input", "many words " * 600, "exceeds the available context size")):
        error = refused(daemon, words, **{field: value})
        assert error["param"] in (field, *[f"{field}.{k}" for k in ("format", "effort")]), error


def test_kept_over_restarts(aned, tmp_path):
    """What was stored is there after a restart, in its order, what was deleted is not; the limit holds there, too."""
    d = Daemon(aned, home=make_home(tmp_path / "home"))
    try:
        ask = {"model": "fake", "max_output_tokens": 4}
        first = answer(d, **ask)
        second = answer(d, **ask, previous_response_id=first["id"], input="And then?")
        gone = answer(d, **ask)
        with d.http() as c:
            assert c.delete(f"/v1/responses/{gone['id']}").json() == {"id": gone["id"], "object": "response", "deleted": True}
        want = answer(d, **ask, previous_response_id=second["id"], input="Why?", store=False)
        assert d.stop() == 0
        d.start()
        with d.http() as c:
            assert [c.get(f"/v1/responses/{x['id']}").status_code for x in (first, second, gone, want)] == [200, 200, 404, 404]
            assert c.get(f"/v1/responses/{second['id']}").json() == second
        got = answer(d, **ask, previous_response_id=second["id"], input="Why?")
        assert text_of(got) == text_of(want) and got["usage"]["input_tokens"] == want["usage"]["input_tokens"]
    finally:
        assert d.close() == 0


def test_an_error_behind_text(aned, tmp_path):
    """An engine that dies again and again: the answer has begun, so its failure is its last event."""
    d = Daemon(aned, home=make_home(tmp_path / "home", fake="delay_us 20000\n"))
    try:
        s = raw_post(d, {"input": ASK, "max_output_tokens": 400, "stream": True}, path="/v1/responses")
        data = b""
        while b"output_text.delta" not in data:
            data += s.recv(65536)
        gone = set()
        while len(gone) < 3:
            until(lambda: set(d.engines()) - gone)
            pid = (set(d.engines()) - gone).pop()
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            gone.add(pid)
        while chunk := s.recv(65536):
            data += chunk
        last = data.split(b"event: ")[-1]
        assert last.startswith(b"response.failed\n"), last
        event = last.split(b"data: ")[1].split(b"\n")[0]
        EVENT.validate_json(event, strict=True)
        x = json.loads(event)["response"]
        assert x["status"] == "failed" and x["error"]["message"] and x["store"] is False
        refused(d, "not found", 404, previous_response_id=x["id"], model="fake")
    finally:
        assert d.close() == 0
