"""What clients send that changes nothing here is taken, and what changes the answer is refused by name: a row for each field
that real clients were seen to send (OpenAI's dialect; the others have the same in test_anthropic.py and test_ollama.py)."""
import http.client
import json
import signal
import socket

import pytest

from conftest import Daemon, until
from fake import make_home

ASK = [{"role": "user", "content": "What is aned?"}]
CHAT = {"model": "demo", "messages": ASK, "temperature": 0, "max_tokens": 8}
TEXT = {"model": "demo", "prompt": "aned is", "temperature": 0, "max_tokens": 8}


def post(d, path, body):
    with d.http() as c:
        return c.post(path, json=body)


def said(r):
    assert r.status_code == 200, r.text
    x = r.json()["choices"][0]
    return x["text"] if "text" in x else x["message"]["content"]


# field: (values that change nothing, values that are refused by the field's name)
BOTH = {
    "typical_p": ([1, 1.0], [1.5]), "mirostat": ([0], [3]), "dry_multiplier": ([0, 0.0], [-1]), "n_cmpl": ([1], [2]),
    "lora": ([[]], [[{"id": 0, "scale": 1}]]), "timings_per_token": ([False], [True]), "return_progress": ([False], [True]),
    "grammar": ([""], ["root ::= x", 1]), "json_schema": ([{}], [{"type": "objekt"}, "x"]), "num_ctx": ([0], [4096]),
    "options": ([{}], [{"num_ctx": 1}]), "ttl": ([60], ["10m"]), "priority": ([0], [3]), "repetition_penalty": ([1], [1.2]),
    "samplers": ([[], ["top_k", "top_p", "min_p"], ["min_p", "temperature"], "kpt"], [["infill"], "top_k"]),
    "response_fields": ([[], ["content", "timings/prompt_n"], [""]], ["content"]), "stop": (["", []], [[""]]),
    "max_tokens": ([8], [-2]), "suffix_of_nobody": ([], [1, ""]), "user": (["u"], [1]), "logit_bias": ([{}], [[1]]),
}
CHAT_ONLY = {
    "reasoning_effort": (["low", "none"], [1]), "verbosity": (["low"], [1]), "prompt_cache_key": (["k"], [1]),
    "prompt_cache_retention": (["24h"], [1]), "safety_identifier": (["s"], [1]), "modalities": ([["text"]], [["text", "audio"]]),
    "audio": ([], [{"voice": "x"}]), "functions": ([[]], [[{"name": "f"}]]), "function_call": (["none", "auto"], [{"name": "f"}]),
    "web_search_options": ([{}], [{"search_context_size": "low"}]), "chat_template_kwargs": ([{}, {"enable_thinking": False, "x": [1]}], [{"tools": []}, [], "x"]),
    "thinking": ([{"type": "disabled"}, {"type": "enabled"}, {"type": "enabled", "budget_tokens": 1024}, {"type": "adaptive"}],
                 [{"type": "some"}, {"type": "enabled", "budget_tokens": -1}, True]), "enable_thinking": ([False, True], ["x"]),
    "reasoning_format": (["none", "auto", "deepseek"], ["x"]), "n_probs": ([0], [5]), "documents": ([[], [{"text": "x"}]], [["x"], {}]),
    "tools": ([[]], [[{"type": "function"}], [{"type": "function", "function": {"name": "f"}}], {}]),
    "tool_choice": (["none", "auto"], ["required", {"type": "function", "function": {"name": "f"}}, 1]), "response_format": ([{"type": "text"}], [{"type": "xml"}, {"type": "json_schema"}, "json"]),
    "parallel_tool_calls": ([True, False], [1]), "store": ([True], ["x"]), "metadata": ([{"a": "b"}], [[]]),
    "service_tier": (["auto", "default"], ["slow"]),
}
TEXT_ONLY = {"suffix": ([""], [1]), "best_of": ([1], [2])}
ROWS = [(path, f, *row) for path, rows in (("/v1/chat/completions", {**BOTH, **CHAT_ONLY}), ("/v1/completions", {**BOTH, **TEXT_ONLY}))
        for f, row in rows.items()]


@pytest.mark.parametrize("path,field,taken,refused", ROWS, ids=[f"{p[4:8]}-{f}" for p, f, *_ in ROWS])
def test_fields(daemon, path, field, taken, refused):
    body = CHAT if "chat" in path else TEXT
    plain = said(post(daemon, path, body))
    assert plain
    for v in [*taken, *([] if field in body else [None])]:
        assert said(post(daemon, path, {**body, field: v})) == plain, v
    for v in refused:
        r = post(daemon, path, {**body, field: v})
        assert r.status_code == 400 and r.json()["error"]["param"] == field and field in r.json()["error"]["message"], (v, r.text)


def test_no_limit(daemon):
    for path, body in (("/v1/chat/completions", CHAT), ("/v1/completions", TEXT)):
        r = post(daemon, path, {**body, "max_tokens": -1})
        assert r.status_code == 200 and r.json()["usage"]["completion_tokens"] > 8, r.text


def test_messages(daemon):
    """Earlier thoughts are dropped, hints about caching taken, an answer that was nothing is nothing."""
    def ask(middle):
        return post(daemon, "/v1/chat/completions", {**CHAT, "messages": [*ASK, middle, *ASK]})
    a = {"role": "assistant", "content": "A daemon."}
    plain = said(ask(a))
    for more in ({"reasoning_content": "Let me think."}, {"reasoning": "Hm."}, {"reasoning_content": None}, {"annotations": []},
                 {"refusal": None, "audio": None, "tool_calls": None, "function_call": None, "name": None},
                 {"content": [{"type": "text", "text": "A daemon.", "cache_control": {"type": "ephemeral"}}]}):
        assert said(ask({**a, **more})) == plain, more
    assert said(ask({**a, "content": None})) == said(ask({**a, "content": ""}))
    who = ask({**ASK[0], "name": "bob"})  # for the template, which does not ask
    assert said(who) == said(ask(ASK[0]))
    for m, name in (({**ASK[0], "name": 1}, ""), ({**ASK[0], "reasoning_content": "x"}, "reasoning_content"),
                    ({"role": "user", "content": None}, "content"), ({**a, "tool_calls": [{"id": "1"}]}, "tool_calls"),
                    ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}, "content"),
                    ({"role": "user", "content": [{"type": "text", "text": "x", "cache_control": 1}]}, "content")):
        r = ask(m)
        assert r.status_code == 400 and (f"messages[1].{name}" if name else "messages[1]: 'name'") in r.json()["error"]["message"], r.text


@pytest.mark.parametrize("path,body", [("/v1/chat/completions", CHAT), ("/v1/completions", TEXT), ("/tokenize", {"content": "x"})])
def test_which_model(daemon, path, body):
    """Nothing and "" are the only model; NAME:latest is NAME."""
    plain = post(daemon, path, {**body, "model": "demo"})
    for name in ("", None, "demo:latest"):
        r = post(daemon, path, {**body, "model": name})
        assert r.status_code == 200, r.text
        assert path == "/tokenize" or said(r) == said(plain)
    for name in ("demo:other", "demo:", ":latest", "latest", "nope:latest", "d" * 300 + ":latest"):
        r = post(daemon, path, {**body, "model": name})
        assert r.status_code == 404 and r.json()["error"]["code"] == "model_not_found", r.text
    with daemon.http() as c:
        assert c.get("/v1/models/demo:latest").json()["id"] == "demo"


def test_aliases(aned, tmp_path):
    """[aliases] gives models the names that clients ask for; a reload changes them, and nothing is deleted by one."""
    conf = "[aliases]\ntwo = one\nmini = one\nclaude-* = two\nlost-? = nobody\n"
    home = make_home(tmp_path / "home", models=("one", "two"), conf=conf)
    d = Daemon(aned, home=home)
    text, chat = {"prompt": "x", "max_tokens": 2}, {"messages": ASK, "max_tokens": 2}
    try:
        for name, model in (("mini", "one"), ("mini:latest", "one"), ("claude-opus-4-1", "two"), ("claude-x:latest", "two"), ("two", "two")):
            for path, body in (("/v1/completions", text), ("/v1/chat/completions", chat), ("/v1/messages", chat)):
                r = post(d, path, {**body, "model": name})
                assert r.status_code == 200 and r.json()["model"] == model, r.text
            r = post(d, "/api/generate", {"model": name, "prompt": "x", "stream": False, "options": {"num_predict": 2}})
            assert r.status_code == 200 and r.json()["model"] == model, r.text
        r = post(d, "/v1/completions", {**text, "model": "lost-1"})
        assert r.status_code == 404 and "'nobody', which [aliases] has for 'lost-1'" in r.json()["error"]["message"], r.text
        assert post(d, "/v1/completions", {**text, "model": "Mini"}).status_code == 404
        with d.http() as c:
            listed = {x["id"]: x["root"] for x in c.get("/v1/models").json()["data"]}
            assert listed == {"one": "one", "two": "two", "mini": "one"}  # no pattern, no name that a model has
            assert {x["name"] for x in c.get("/api/tags").json()["models"]} == set(listed)
            assert c.get("/v1/models/claude-opus-4-1").json()["id"] == "two"
            for r in (c.delete("/aned/v1/models/mini"), c.request("DELETE", "/api/delete", json={"model": "claude-x"})):
                assert r.status_code == 404 and "alias" in r.text, r.text
            assert c.get("/v1/models/one").status_code == c.get("/v1/models/two").status_code == 200
        old = (home / "aned.conf").read_text()
        assert conf in old
        (home / "aned.conf").write_text(old.replace("claude-* = two", "claude-* = one"))
        d.proc.send_signal(signal.SIGHUP)
        until(lambda: post(d, "/v1/completions", {**text, "model": "claude-x"}).json()["model"] == "one")
        (home / "aned.conf").write_text(old.replace("mini = one", "mini ="))  # refused: the old ones stay
        d.proc.send_signal(signal.SIGHUP)
        until(lambda: "the old options" in d.log.read_text() or "reload_refused" in d.log.read_text())
        assert post(d, "/v1/completions", {**text, "model": "mini"}).status_code == 200
    finally:
        assert d.close() == 0


def test_default_model(aned, tmp_path):
    """Of several models the one that the configuration names."""
    home = make_home(tmp_path / "home", models=("one", "two"), conf="[http]\ndefault_model = two\n")
    d = Daemon(aned, home=home)
    try:
        for path, body in (("/v1/completions", {"prompt": "x", "max_tokens": 2}), ("/v1/completions", {"prompt": "x", "model": ""}),
                           ("/api/generate", {"prompt": "x", "raw": True, "stream": False})):
            r = post(d, path, {**body, "max_tokens": 2} if "v1" in path else body)
            assert r.status_code == 200 and r.json()["model"] == "two", r.text
        conf = home / "aned.conf"
        conf.write_text(conf.read_text().replace("default_model = two", "default_model = gone"))
        d.proc.send_signal(signal.SIGHUP)
        until(lambda: "'gone'" in post(d, "/v1/completions", {"prompt": "x"}).text)
        assert post(d, "/v1/completions", {"prompt": "x"}).status_code == 404
    finally:
        assert d.close() == 0


class Plain(http.client.HTTPConnection):
    """Python's own client: it sends all of a body before it reads."""

    def __init__(self, path):
        super().__init__("aned", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(str(self.path))


@pytest.mark.parametrize("path,size,status,what", [
    ("/no/such/path", 3 << 20, 404, "no such path: /no/such/path"), ("/v1/models", 3 << 20, 405, "/v1/models: path exists"),
    ("/v1/chat/completions", 5 << 20, 413, "/v1/chat/completions: the body is over its limit, 4194304 bytes"),
    ("/aned/v1/jobs", 3 << 20, 413, "/aned/v1/jobs: the body is over its limit"), ("/api/nope", 10, 404, "no such path: /api/nope")])
def test_a_refusal_reaches_who_sends_all_first(daemon, path, size, status, what):
    c = Plain(daemon.sock)
    c.request("POST", path, body=b"x" * size, headers={"Content-Type": "application/json"})
    r = c.getresponse()
    e = json.loads(r.read())["error"]
    assert r.status == status and what in (e if isinstance(e, str) else e["message"]), e
    c.close()


def test_sessions_check_types(daemon):
    with daemon.http() as c:
        for body, what in (({"model": 3.5}, "model"), ({"model": ["demo"]}, "model"), ({"model": "demo", "pinned": 1}, "pinned"),
                           ({"model": "demo", "prompt": 1}, "prompt"), ({"model": "demo", "tokens": "x"}, "tokens")):
            r = c.post("/aned/v1/sessions", json=body)
            assert r.status_code == 400 and what in r.json()["error"]["message"], r.text
        r = c.post("/aned/v1/sessions", json={"model": "demo", "prompt": None, "tokens": None, "pinned": None})
        assert r.status_code == 201 and c.delete(f"/aned/v1/sessions/{r.json()['id']}").status_code == 200


ALTERNATING = ("{{ bos_token }}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
               "{{ raise_exception('roles must alternate') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"
               "{% if add_generation_prompt %}<assistant>{% endif %}")


def test_neighbours_are_joined(aned, demo_gguf, tmp_path):
    """A template that wants roles that alternate is shown neighbours of a role as one message (opencode asks for a title so); what cannot
    be joined is told in the template's own words."""
    template = tmp_path / "alternating.jinja"
    template.write_text(ALTERNATING)
    d = Daemon(aned)
    try:
        assert d.convert(demo_gguf, "m", context=512, chat_template=str(template))["state"] == "done"
        two = [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]
        r = post(d, "/apply-template", {"model": "m", "messages": two})
        assert r.status_code == 200 and r.json()["prompt"].endswith("<user>one\n\ntwo<assistant>"), r.text
        said(post(d, "/v1/chat/completions", {"model": "m", "messages": two, "max_tokens": 2}))
        for path, body in (("/v1/messages", {"max_tokens": 2}), ("/api/chat", {"stream": False, "options": {"num_predict": 2}})):
            r = post(d, path, {"model": "m", "messages": two, **body})
            assert r.status_code == 200, (path, r.text)
        r = post(d, "/v1/chat/completions", {"model": "m", "messages": [{"role": "assistant", "content": "one"}, *two]})
        assert r.status_code == 400 and "roles must alternate" in r.text
    finally:
        assert d.close() == 0
