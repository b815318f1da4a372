"""Ollama's dialect: /api/chat, /api/generate and what its clients ask about models, by Ollama's own client and byte by byte."""
import datetime
import json
import socket

import httpx
import ollama
import pytest

from conftest import SLOW_S, Daemon, raw_post, status, until, wait_idle
from fake import make_home

ASK = [{"role": "user", "content": "What is aned?"}]
GREEDY = {"temperature": 0, "repeat_penalty": 1, "num_predict": 16}
CHAT = {"model": "demo", "messages": ASK, "options": GREEDY}
TEXT = {"model": "demo", "prompt": "What is aned?", "options": GREEDY}


def sdk(d):
    c = ollama.Client(host="http://aned")
    c._client = httpx.Client(transport=httpx.HTTPTransport(uds=str(d.sock), verify=False), base_url="http://aned",
                             timeout=120 * SLOW_S)
    return c


def post(d, path, body):
    with d.http() as c:
        return c.post(path, json=body)


def lines(d, path, body):
    """The objects of a stream."""
    with d.http() as c, c.stream("POST", path, json=body) as r:
        assert r.status_code == 200 and r.headers["content-type"] == "application/x-ndjson"
        return [json.loads(x) for x in r.iter_lines()]


def openai_chat(d, messages=ASK, **more):
    body = {"model": "demo", "max_tokens": 16, "temperature": 0, "messages": messages, **more}
    r = post(d, "/v1/chat/completions", body)
    assert r.status_code == 200, r.text
    return r.json()


def refused(d, message, path="/api/chat", code=400, **more):
    r = post(d, path, {**(TEXT if "generate" in path else CHAT), **more})
    assert r.status_code == code and list(r.json()) == ["error"] and message in r.json()["error"], r.text


def check_end(x, why):
    assert x["done"] is True and x["done_reason"] == why
    assert x["prompt_eval_count"] > 0 and x["eval_count"] > 0
    parts = [x[k] for k in ("load_duration", "prompt_eval_duration", "eval_duration")]
    assert min(parts) >= 0 and x["total_duration"] >= sum(parts) > 0
    datetime.datetime.strptime(x["created_at"], "%Y-%m-%dT%H:%M:%S.%fZ")


def test_chat(daemon):
    want = openai_chat(daemon)
    text = want["choices"][0]["message"]["content"]
    c = sdk(daemon)
    got = c.chat(**CHAT)
    assert got.message.role == "assistant" and got.message.content == text != "" and got.model == "demo"
    assert got.prompt_eval_count == want["usage"]["prompt_tokens"]
    assert got.eval_count == want["usage"]["completion_tokens"]
    assert "".join(x.message.content for x in c.chat(**CHAT, stream=True)) == text
    streamed = lines(daemon, "/api/chat", CHAT)
    assert len(streamed) > 4 and all(x["done"] is False and x["message"]["role"] == "assistant" for x in streamed[:-1])
    assert all(x["message"]["content"] for x in streamed[:-1]) and streamed[-1]["message"]["content"] == ""
    assert "".join(x["message"]["content"] for x in streamed) == text
    why = {"length": "length", "stop": "stop"}[want["choices"][0]["finish_reason"]]
    check_end(streamed[-1], why)
    whole = post(daemon, "/api/chat", {**CHAT, "stream": False})
    assert whole.headers["content-type"] == "application/json" and whole.json()["message"]["content"] == text
    check_end(whole.json(), why)


def test_generate(daemon):
    """What a user says, in the model's template; raw: as it is."""
    text = openai_chat(daemon)["choices"][0]["message"]["content"]
    assert sdk(daemon).generate(**TEXT).response == text
    assert "".join(x["response"] for x in lines(daemon, "/api/generate", TEXT)) == text
    told = openai_chat(daemon, [{"role": "system", "content": "Be brief."}, *ASK])
    got = post(daemon, "/api/generate", {**TEXT, "stream": False, "system": "Be brief."}).json()
    assert got["response"] == told["choices"][0]["message"]["content"]
    assert got["prompt_eval_count"] == told["usage"]["prompt_tokens"]
    raw = post(daemon, "/v1/completions", {"model": "demo", "prompt": "aned is", "max_tokens": 16, "temperature": 0}).json()
    got = post(daemon, "/api/generate", {**TEXT, "prompt": "aned is", "stream": False, "raw": True}).json()
    assert got["response"] == raw["choices"][0]["text"] != ""
    assert got["prompt_eval_count"] == raw["usage"]["prompt_tokens"]
    refused(daemon, "system: not with raw", path="/api/generate", raw=True, system="x")


def test_options_have_their_meaning(daemon):
    """Ollama's names and defaults, told in OpenAI's fields: the same text from the same seed."""
    def both(options, **fields):
        a = post(daemon, "/api/chat", {**CHAT, "stream": False, "options": {"seed": 11, "num_predict": 24, **options}}).json()
        o = {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "repeat_penalty": 1.1, **fields}
        b = openai_chat(daemon, seed=11, **{"max_tokens": 24, **o})
        assert a["message"]["content"] == b["choices"][0]["message"]["content"], options
        return a
    both({})
    for name, v in (("temperature", 1.5), ("top_k", 3), ("top_p", 0.2), ("min_p", 0.3), ("repeat_penalty", 1.7),
                    ("typical_p", 0.4), ("mirostat", 2),
                    ("repeat_last_n", 4), ("presence_penalty", 1.5), ("frequency_penalty", 1.5)):
        both({name: v}, **{name: v})
    assert both({"num_predict": 3}, max_tokens=3)["eval_count"] == 3
    text = both({})["message"]["content"]
    stop = text[4:7]
    got = both({"stop": [stop]}, stop=[stop])
    assert got["message"]["content"] == text[:text.index(stop)] and got["done_reason"] == "stop"
    assert both({"num_predict": -1}, max_tokens=None)["eval_count"] > 24  # to the end of the text


HINTS = {"num_ctx": 4096, "num_keep": 4, "num_batch": 512, "num_gpu": -1, "main_gpu": 0, "num_thread": 4, "numa": True,
         "low_vram": False, "f16_kv": True, "use_mmap": True, "use_mlock": False, "draft_num_predict": 4, "typical_p": 1.0,
         "tfs_z": 1, "mirostat": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1, "stop": []}
FIELDS = {"tools": [], "format": "", "think": False, "truncate": True, "shift": True, "keep_alive": "5m"}


def test_hints_change_nothing(daemon):
    plain = post(daemon, "/api/chat", {**CHAT, "stream": False}).json()["message"]
    for bodies in ([{"options": {**GREEDY, k: v}} for name, v in HINTS.items() for k, v in ((name, v), (name, None))],
                   [{name: v} for name, w in FIELDS.items() for v in (w, None)],
                   [{"messages": [{**ASK[0], "images": [], "tool_calls": None}]}]):
        for more in bodies:
            r = post(daemon, "/api/chat", {**CHAT, "stream": False, **more})
            assert r.status_code == 200 and r.json()["message"] == plain, (more, r.text)
    two = [*ASK, {"role": "assistant", "content": "A daemon.", "thinking": "Hm."}, *ASK]
    got = post(daemon, "/api/chat", {**CHAT, "stream": False, "messages": two}).json()
    assert got["message"] == post(daemon, "/api/chat", {**CHAT, "stream": False, "messages": [
        {k: v for k, v in m.items() if k != "thinking"} for m in two]}).json()["message"]


def test_logprobs(daemon):
    want = openai_chat(daemon, logprobs=True, top_logprobs=2)["choices"][0]["logprobs"]["content"]
    got = post(daemon, "/api/chat", {**CHAT, "stream": False, "logprobs": True, "top_logprobs": 2}).json()
    assert got["logprobs"] == want and len(want) > 3 and len(want[0]["top_logprobs"]) == 2
    streamed = lines(daemon, "/api/chat", {**CHAT, "logprobs": True, "top_logprobs": 2})
    assert [x for s in streamed for x in s["logprobs"]] == want


def test_what_is_refused(daemon):
    refused(daemon, "tools: this model's chat template shows no tools", tools=[{"type": "function", "function": {"name": "f"}}])
    for v in ("some", 1):
        refused(daemon, "think: must be true, false, low, medium or high", think=v)
    refused(daemon, "format: only \"json\" or a schema", format="xml")
    refused(daemon, "format: schema #: not: this word is not supported", format={"not": {}})
    refused(daemon, "options.mirostat: must be a whole number from 0 to 2", options={"mirostat": 3})
    refused(daemon, "options.typical_p: must be a number from 0 to 1", options={"typical_p": 1.5})
    refused(daemon, "options.temperature: must be a number from 0 to 2", options={"temperature": "hot"})
    refused(daemon, "options.grammar: no such field here", options={"grammar": "x"})
    refused(daemon, "options: must be an object", options=[])
    refused(daemon, "no token fim_pre", path="/api/generate", suffix="return x")
    refused(daemon, "suffix: not with raw or system", path="/api/generate", suffix="return x", raw=True)
    refused(daemon, "suffix: not with raw or system", path="/api/generate", suffix="return x", system="Be brief.")
    refused(daemon, "context: only an empty one", path="/api/generate", context=[1, 2])
    refused(daemon, "template: only an empty one", path="/api/generate", template="{{ .Prompt }}")
    refused(daemon, "images: only an empty one", path="/api/generate", images=["iVBORw0KGgo="])
    refused(daemon, "messages: no such field here", path="/api/generate", messages=ASK)
    refused(daemon, "messages[0].images: no such field here", messages=[{**ASK[0], "images": ["iVBORw0KGgo="]}])
    refused(daemon, "messages[0].role: 'function' is not one of system, user, assistant, tool",
            messages=[{"role": "function", "content": "x"}])
    refused(daemon, "messages[0].content: must be a string", messages=[{"role": "user", "content": [{"type": "text", "text": "x"}]}])
    refused(daemon, "top_logprobs: only with logprobs", top_logprobs=2)
    refused(daemon, "exceeds the available context size", messages=[{"role": "user", "content": "many words " * 600}])
    refused(daemon, "there is no model 'none'", code=404, model="none")
    for path, body in (("/api/push", {"model": "demo"}), ("/api/create", {"model": "x", "from": "demo"}),
                       ("/api/copy", {"source": "demo", "destination": "x"})):
        r = post(daemon, path, body)
        assert r.status_code == 400 and r.json()["error"].startswith(path[5:] + ": "), r.text
    with pytest.raises(ollama.ResponseError, match="tools: this model"):
        sdk(daemon).chat(**CHAT, tools=[{"type": "function", "function": {"name": "f"}}])


def test_models(daemon):
    c = sdk(daemon)
    with daemon.http() as h:
        ours = h.get("/aned/v1/models/demo").json()
    tag = next(m for m in c.list().models if m.model == "demo")
    assert (tag.digest, tag.size) == (ours["fingerprint"], ours["bytes"])
    assert (tag.details.family, tag.details.quantization_level) == (ours["architecture"], ours["quant"])
    assert abs(tag.modified_at.timestamp() * 1000 - ours["created_ms"]) < 2
    for body in ({"model": "demo"}, {"name": "demo", "verbose": None}, {"model": "demo:latest"}):
        show = post(daemon, "/api/show", body).json()
        arch = show["model_info"]["general.architecture"]
        assert show["model_info"][f"{arch}.context_length"] == ours["context"] == 512
        assert show["model_info"][f"{arch}.embedding_length"] == ours["d_model"] and show["capabilities"] == ["completion"]
    assert c.show("demo").details.family == ours["architecture"]
    post(daemon, "/api/chat", {**CHAT, "stream": False, "keep_alive": "10m"})
    up = next(m for m in c.ps().models if m.model == "demo")
    left = up.expires_at.timestamp() - datetime.datetime.now().timestamp()
    assert 500 < left < 601 and up.context_length == 512 and up.size > 0
    with daemon.http() as h:
        assert tuple(int(x) for x in h.get("/api/version").json()["version"].split(".")) > (0, 13)
        assert h.get("/").text == "Ollama is running" and h.head("/").status_code == 200 and h.head("/").content == b""
    for body in ({"model": "none"}, {"model": 3}, {}, {"model": "demo", "x": 1}, []):
        r = post(daemon, "/api/show", body)
        assert r.status_code in (400, 404) and list(r.json()) == ["error"], r.text
    assert post(daemon, "/api/pull", {"model": "demo", "stream": False}).json() == {"status": "success"}
    assert c.pull("demo").status == "success" and [x.status for x in c.pull("demo", stream=True)] == ["success"]
    with pytest.raises(ollama.ResponseError, match="there is no model 'none'"):
        c.pull("none")


@pytest.fixture
def slow(aned, tmp_path):
    """Two models, and an engine that takes its time."""
    d = Daemon(aned, home=make_home(tmp_path / "home", models=("fake", "other"), fake="delay_us 50000\n"))
    yield d
    assert d.close() == 0


def test_load_unload_delete(slow):
    def state(name):
        with slow.http() as c:
            return c.get(f"/aned/v1/models/{name}").json()["state"]
    for path, what in (("/api/generate", {"prompt": ""}), ("/api/chat", {"messages": []}), ("/api/chat", {})):
        r = post(slow, path, {"model": "fake", "keep_alive": -1, "stream": False, **what})
        assert r.status_code == 200 and r.json()["done_reason"] == "load" and r.json()["done"] is True, r.text
        assert state("fake") == "loaded"
        with slow.http() as c:
            assert c.get("/aned/v1/models/fake").json()["keep_alive_ms"] is None
        assert lines(slow, path, {"model": "fake", "keep_alive": 0, **what})[0]["done_reason"] == "unload"
        assert state("fake") != "loaded"
        assert post(slow, path, {"model": "fake", "keep_alive": 0, **what}).json()["done_reason"] == "unload"
    s = raw_post(slow, {"model": "fake", "prompt": "hello", "raw": True, "options": {"num_predict": 40}}, path="/api/generate")
    s.recv(100)
    got = post(slow, "/api/generate", {"model": "fake", "keep_alive": 0, "stream": False})
    assert got.json()["done_reason"] == "unload" and state("fake") == "loaded"  # its last user is still there
    data = b""
    while chunk := s.recv(65536):
        data += chunk
    assert b'"done":true' in data
    until(lambda: state("fake") != "loaded")
    c = sdk(slow)
    with pytest.raises(ollama.ResponseError, match="there is no model 'none'"):
        c.delete("none")
    assert c.delete("other").status == "success"
    assert [m.model for m in c.list().models] == ["fake"]


def test_a_client_that_leaves_is_a_cancel(slow):
    s = raw_post(slow, {"model": "fake", "prompt": "hello", "raw": True, "options": {"num_predict": 400}}, path="/api/generate")
    data = b""
    while b'"done":false' not in data:
        data += s.recv(65536)
    assert status(slow)["running"] == 1
    s.shutdown(socket.SHUT_RDWR)
    s.close()
    until(lambda: status(slow)["running"] == 0, 20)
    wait_idle(slow)
