"""Anthropic's dialect: /v1/messages and its count_tokens, by Anthropic's own client and byte by byte."""
import contextlib
import json
import os
import signal
import socket

import anthropic
import httpx2
import pytest

from conftest import SLOW_S, Daemon, raw_post, status, until, wait_idle
from fake import make_home

ASK = [{"role": "user", "content": "What is aned?"}]
BODY = {"model": "demo", "max_tokens": 16, "temperature": 0, "messages": ASK}


def sdk(d):
    return anthropic.Anthropic(base_url="http://aned", api_key="none", max_retries=0, timeout=120 * SLOW_S,
                               http_client=httpx2.Client(transport=httpx2.HTTPTransport(uds=str(d.sock), verify=False)))


def by_sdk(body):
    """The same for the client, which does not name every field of the service in each of its versions."""
    return {**{k: v for k, v in body.items() if k != "temperature"}, "extra_body": {"temperature": body["temperature"]}}


def post(d, body, path="/v1/messages"):
    with d.http() as c:
        return c.post(path, json=body)


def chat(d, messages=ASK, **more):
    """The same conversation in OpenAI's dialect."""
    with d.http() as c:
        r = c.post("/v1/chat/completions", json={"model": "demo", "max_tokens": 16, "temperature": 0, "messages": messages,
                                                 **more})
    assert r.status_code == 200, r.text
    return r.json()


def events(d, body):
    """[(type, data)] of a stream; each event says its type twice."""
    out = []
    with d.http() as c, c.stream("POST", "/v1/messages", json={**body, "stream": True}) as r:
        assert r.status_code == 200 and r.headers["content-type"] == "text/event-stream"
        for line in r.iter_lines():
            if line.startswith("event: "):
                name = line[7:]
            elif line:
                assert line.startswith("data: "), line
                out.append((name, json.loads(line[6:])))
                assert out[-1][1]["type"] == name
    return out


def prompt_tokens(u):
    return u["input_tokens"] + u["cache_read_input_tokens"]


def refused(d, message, code=400, kind="invalid_request_error", path="/v1/messages", **more):
    r = post(d, {**BODY, **more}, path)
    assert r.status_code == code, r.text
    e = r.json()
    assert list(e) == ["type", "error"] and e["type"] == "error" and e["error"]["type"] == kind, e
    assert message in e["error"]["message"], e


def test_whole(daemon):
    with sdk(daemon) as c:
        m = c.messages.create(**by_sdk(BODY))
    want = chat(daemon)
    assert m.id.startswith("msg_") and (m.type, m.role, m.model) == ("message", "assistant", "demo")
    assert [b.type for b in m.content] == ["text"] and m.content[0].text == want["choices"][0]["message"]["content"] != ""
    assert m.stop_reason == {"length": "max_tokens", "stop": "end_turn"}[want["choices"][0]["finish_reason"]]
    assert m.stop_sequence is None
    assert m.usage.output_tokens == want["usage"]["completion_tokens"]
    assert m.usage.input_tokens + m.usage.cache_read_input_tokens == want["usage"]["prompt_tokens"]


def test_streamed(daemon):
    whole = post(daemon, BODY).json()
    with sdk(daemon) as c, c.messages.stream(**by_sdk(BODY)) as s:
        text = "".join(s.text_stream)
        m = s.get_final_message()
    assert text == m.content[0].text == whole["content"][0]["text"]
    assert m.stop_reason == whole["stop_reason"] and m.usage.output_tokens == whole["usage"]["output_tokens"]
    got = events(daemon, BODY)
    assert [n for n, _ in got[:3]] == ["message_start", "content_block_start", "ping"]
    assert [n for n, _ in got[-3:]] == ["content_block_stop", "message_delta", "message_stop"]
    assert {n for n, _ in got[3:-3]} == {"content_block_delta"} and len(got) > 7
    start = got[0][1]["message"]
    assert start["content"] == [] and start["stop_reason"] is None and start["usage"]["output_tokens"] == 0
    assert prompt_tokens(start["usage"]) == prompt_tokens(whole["usage"])
    assert "".join(j["delta"]["text"] for n, j in got if n == "content_block_delta") == text
    assert got[-2][1]["delta"] == {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    assert got[-2][1]["usage"]["output_tokens"] == whole["usage"]["output_tokens"]


def test_stop_sequence(daemon):
    text = post(daemon, BODY).json()["content"][0]["text"]
    stop = text[5:8]
    body = {**BODY, "stop_sequences": ["\x01never", stop]}
    m = post(daemon, body).json()
    assert (m["stop_reason"], m["stop_sequence"]) == ("stop_sequence", stop)
    assert m["content"][0]["text"] == text[:text.index(stop)]
    got = events(daemon, body)
    assert got[-2][1]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": stop}
    assert "".join(j["delta"]["text"] for n, j in got if n == "content_block_delta") == text[:text.index(stop)]


def test_warm_prefixes_are_told(daemon):
    body = {**BODY, "messages": [{"role": "user", "content": "Tell me of warm prefixes, twice. " * 4}]}
    first, second = post(daemon, body).json(), post(daemon, body).json()
    assert second["usage"]["cache_read_input_tokens"] > 0
    assert prompt_tokens(first["usage"]) == prompt_tokens(second["usage"])
    assert second["content"] == first["content"]


def test_system_and_blocks(daemon):
    """A system prompt is the first message; blocks are lines; what is only a hint, or an earlier thought, changes nothing."""
    cache = {"cache_control": {"type": "ephemeral"}}
    one = [{"role": "system", "content": "Be brief.\nBe kind."}, {"role": "user", "content": "Hi\nthere"}]
    two = [*one, {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "Go on"}]
    blocks = {"system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=1"},
                         {"type": "text", "text": "Be brief.", **cache}, {"type": "text", "text": "Be kind."}],
              "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"},
                                                        {"type": "text", "text": "there", **cache}]},
                           {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm", "signature": "c2ln"},
                                                             {"type": "redacted_thinking", "data": "x"},
                                                             {"type": "text", "text": "Hello"}]},
                           {"role": "user", "content": "Go on"}]}
    want = chat(daemon, two)
    got = post(daemon, {**BODY, **blocks}).json()
    assert got["content"][0]["text"] == want["choices"][0]["message"]["content"]
    assert prompt_tokens(got["usage"]) == want["usage"]["prompt_tokens"]
    plain = post(daemon, {**BODY, "system": "Be brief.\nBe kind.", "messages": two[1:]}).json()
    assert plain["content"] == got["content"]
    assert post(daemon, {**BODY, "system": []}).json()["content"] == post(daemon, BODY).json()["content"]


def test_continued(daemon):
    """The answer is what comes after a last message of the assistant; blocks are lines of it, an empty one is none."""
    begun = {"role": "assistant", "content": "aned is\na"}
    got = post(daemon, {**BODY, "messages": [*ASK, begun]}).json()
    want = chat(daemon, [*ASK, begun], continue_final_message=True, add_generation_prompt=False)
    assert got["content"][0]["text"] == want["choices"][0]["message"]["content"] != ""
    assert got["content"] != post(daemon, BODY).json()["content"]
    assert prompt_tokens(got["usage"]) == want["usage"]["prompt_tokens"] > prompt_tokens(post(daemon, BODY).json()["usage"])
    blocks = [{"type": "text", "text": "aned is"}, {"type": "text", "text": "a"}]
    assert post(daemon, {**BODY, "messages": [*ASK, {**begun, "content": blocks}]}).json()["content"] == got["content"]
    assert post(daemon, {**BODY, "messages": [*ASK, {**begun, "content": " "}]}).json()["content"] == post(daemon, BODY).json()["content"]
    with daemon.http() as c:
        for messages, field, value in (([*ASK, begun], "continue_final_message", False), ([*ASK, begun], "add_generation_prompt", True),
                                       (ASK, "continue_final_message", True), (ASK, "add_generation_prompt", False)):
            r = c.post("/v1/chat/completions", json={"model": "demo", "messages": messages, field: value})
            assert r.status_code == 400 and r.json()["error"]["param"] == field and f"{field}: only" in r.json()["error"]["message"]
        r = c.post("/api/chat", json={"model": "demo", "stream": False, "messages": [*ASK, begun],
                                      "options": {"temperature": 0, "num_predict": 16, "repeat_penalty": 1}})
        assert r.json()["message"]["content"] == got["content"][0]["text"]


def test_count_tokens(daemon):
    with sdk(daemon) as c:
        for more in ({}, {"system": "Be brief."}, {"messages": [*ASK, {"role": "assistant", "content": "A daemon."}, *ASK]}):
            body = {k: v for k, v in {**BODY, **more}.items() if k not in ("max_tokens", "temperature")}
            n = c.messages.count_tokens(**body).input_tokens
            assert n == prompt_tokens(post(daemon, {**BODY, **more}).json()["usage"]) > 0
    path = "/v1/messages/count_tokens"
    refused(daemon, "max_tokens: no such field here", path=path)
    assert post(daemon, {"messages": ASK, "model": "none"}, path).json()["error"]["type"] == "not_found_error"
    assert post(daemon, {"messages": ASK, "model": "demo", "max_tokens": None}, path).status_code in (200, 400)


HINTS = {"metadata": {"user_id": "u"}, "service_tier": "auto", "thinking": {"type": "disabled"}, "tools": [],
         "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}, "cache_control": {"type": "ephemeral"},
         "output_config": {"effort": "high", "format": None}, "stop_sequences": [],
         "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}


@pytest.mark.parametrize("field", HINTS)
def test_hints_change_nothing(daemon, field):
    plain = post(daemon, BODY).json()["content"]
    for v in (HINTS[field], None, *([{"type": "adaptive"}, {"type": "enabled", "budget_tokens": 1024}] if field == "thinking" else [])):
        r = post(daemon, {**BODY, field: v})
        assert r.status_code == 200 and r.json()["content"] == plain, (v, r.text)


def test_what_is_refused(daemon):
    refused(daemon, "max_tokens: must be given", max_tokens=None)
    refused(daemon, "max_tokens: must be", max_tokens=-1)
    refused(daemon, "temperature: must be a number from 0 to 1", temperature=1.5)
    refused(daemon, "tools: this model's chat template shows no tools", tools=[{"name": "f", "input_schema": {"type": "object"}}])
    refused(daemon, "tool_choice: there are no tools", tool_choice={"type": "any"})
    refused(daemon, "tool_choice: only auto, none, any or tool", tool_choice={"type": "some"})
    refused(daemon, "thinking: must be an object of type", thinking={"type": "some"})
    refused(daemon, "output_config.format: only types", output_config={"format": {"type": "xml"}})
    refused(daemon, "output_config.format: there is no schema", output_config={"format": {"type": "json_schema"}})
    refused(daemon, "output_config.format: schema #/properties/a: unevaluatedItems",
            output_config={"format": {"type": "json_schema", "schema": {"properties": {"a": {"unevaluatedItems": False}}}}})
    refused(daemon, "output_config.x: no such field here", output_config={"x": 1})
    refused(daemon, "context_management: only edits clear_thinking", context_management={"edits": [{"type": "compact"}]})
    refused(daemon, "grammar: no such field here", grammar="x")
    refused(daemon, "service_tier: must be one of auto, standard_only", service_tier="flex")
    refused(daemon, "messages[1].content.tool_use_id: must be a string",
            messages=[*ASK, {"role": "user", "content": [{"type": "tool_result"}]}])
    for kind in ("image", "tool_use", "document"):
        refused(daemon, f"messages[1].content: no block of type '{kind}' here",
                messages=[*ASK, {"role": "user", "content": [{"type": kind}]}])
    refused(daemon, "messages[0].role: 'tool' is not one of user, assistant, system", messages=[{"role": "tool", "content": "x"}])
    refused(daemon, "messages[0].name: no such field here", messages=[{**ASK[0], "name": "bob"}])
    refused(daemon, "messages: must be an array with a message", messages=[])
    refused(daemon, "system: must be a string or an array", system=3)
    refused(daemon, "exceeds the available context size", messages=[{"role": "user", "content": "many words " * 600}])
    refused(daemon, "there is no model 'none'", code=404, kind="not_found_error", model="none")
    with daemon.http() as c:
        r = c.put("/v1/messages")
        assert r.status_code in (405, 501) and r.json()["type"] == "error"
        r = c.post("/v1/messages", content=b"{", headers={"Content-Type": "application/json"})
        assert r.status_code == 400 and r.json()["error"]["type"] == "invalid_request_error"
    with sdk(daemon) as c:
        with pytest.raises(anthropic.NotFoundError):
            c.messages.create(**by_sdk({**BODY, "model": "none"}))
        with pytest.raises(anthropic.BadRequestError, match="tools: this model"):
            c.messages.create(**by_sdk(BODY), tools=[{"name": "f", "input_schema": {"type": "object"}}])


@pytest.fixture
def slow(aned, tmp_path):
    """An engine that takes its time, and a daemon that breaks every silence."""
    d = Daemon(aned, home=make_home(tmp_path / "home", fake="delay_us 50000\n", conf="[http]\nkeepalive_ms = 20\n"))
    yield d
    assert d.close() == 0


def test_silence_is_broken_by_pings(slow):
    body = {**BODY, "model": "fake", "max_tokens": 8}
    with sdk(slow) as c, c.messages.stream(**by_sdk(body)) as s:
        assert len("".join(s.text_stream)) > 0
    got = [n for n, _ in events(slow, body)]
    assert got[0] == "ping" and got.index("message_start") < len(got) - 6
    assert [n for n in got if n != "ping"] == ["message_start", "content_block_start", *["content_block_delta"] * 8,
                                              "content_block_stop", "message_delta", "message_stop"]


def test_an_error_behind_text(slow):
    """An engine that dies again and again: the answer has begun, so the error is its last event."""
    s = raw_post(slow, {**BODY, "model": "fake", "max_tokens": 400, "stream": True}, path="/v1/messages")
    data = b""
    while b"content_block_delta" not in data:
        data += s.recv(65536)
    gone = set()
    while len(gone) < 3:
        until(lambda: set(slow.engines()) - gone)
        pid = (set(slow.engines()) - gone).pop()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        gone.add(pid)
    while chunk := s.recv(65536):
        data += chunk
    last = data.split(b"event: ")[-1]
    assert last.startswith(b"error\n"), last
    e = json.loads(last.split(b"data: ")[1].split(b"\n")[0])
    assert e["type"] == "error" and e["error"]["type"] == "overloaded_error" and e["error"]["message"], e


def test_a_client_that_leaves_is_a_cancel(slow):
    s = raw_post(slow, {**BODY, "model": "fake", "max_tokens": 400, "stream": True}, path="/v1/messages")
    while b"content_block_delta" not in s.recv(65536):
        pass
    assert status(slow)["running"] == 1
    s.shutdown(socket.SHUT_RDWR)
    s.close()
    until(lambda: status(slow)["running"] == 0, 20)
    wait_idle(slow)


def test_models(daemon):
    """The list that OpenAI's clients ask for, too, in the form of who asks."""
    with sdk(daemon) as c:
        page = c.models.list()
        one = c.models.retrieve("demo")
        with pytest.raises(anthropic.NotFoundError, match="no model 'nope'"):
            c.models.retrieve("nope")
    assert [m.id for m in page.data] == ["demo"] and not page.has_next_page()
    assert page.data[0] == one and (one.type, one.display_name) == ("model", "demo")
    assert one.created_at.year > 2000 and one.max_input_tokens == one.max_tokens > 0
    with daemon.http() as c:
        assert c.get("/v1/models").json()["object"] == "list" and c.get("/v1/models/demo").json()["object"] == "model"
