"""deadline_ms: an answer ends in time, wherever it is by then, with what there is; its place is another's in the next step."""
import json
import os
import signal
import threading
import time

import httpx
import openai
import pytest

from conftest import SLOW_S, Daemon, child_of, engine_pid, is_stopped, metric, raw_post, status, stopped, until
from fake import make_home

STEP_MS = 20
SOME_MS = 20 * STEP_MS  # not all of any answer here
MORE_MS = 5 * SOME_MS  # nor this
BODY = {"model": "fake", "temperature": 0, "max_tokens": 400}
CONF = "[limits]\nstreams = 1\nqueue = 8\n[engine]\nprefill_chunk = 4\n[speculation]\nmax_draft = 0\n"


@pytest.fixture(scope="module")
def d(aned, tmp_path_factory):
    """One place, and an engine that takes its time."""
    home = make_home(tmp_path_factory.mktemp("late") / "home", fake=f"delay_us {STEP_MS * 1000}\n", conf=CONF)
    x = Daemon(aned, home=home, args=["--config", str(home / "aned.conf")])
    ask(x, prompt="hello", max_tokens=1)  # loads the model
    yield x
    assert x.close() == 0


def ask(d, path="/v1/completions", code=200, **more):
    with d.http() as c:
        r = c.post(path, json={**BODY, **more})
    assert r.status_code == code, r.text
    return r.json()


def timed(d, **more):
    began = time.monotonic()
    r = ask(d, **more)
    return r, (time.monotonic() - began) * 1000


def late(r, n_prompt=None, tokens=None):
    """That is what an answer looks like whose time was over."""
    assert [c["finish_reason"] for c in r["choices"]] == ["length"] * len(r["choices"])
    assert r["timings"]["deadline_reached"] is True
    u = r["usage"]
    assert u["total_tokens"] == u["prompt_tokens"] + u["completion_tokens"]
    assert n_prompt is None or u["prompt_tokens"] == n_prompt
    assert tokens is None or u["completion_tokens"] == tokens
    return u["completion_tokens"]


def with_a_token(answer, tokens):
    """answer(ms) of a time in which one was drawn, however late the steps came."""
    for ms in (MORE_MS, 2 * MORE_MS, 3 * MORE_MS):
        r = answer(ms)
        if tokens(r) > 0:
            break
    return r


def gone(d):
    s = status(d)
    return s["running"] + s["queued"] == 0


class Holder:
    """Has the one place until the end of the block."""

    def __init__(self, d):
        self.d = d

    def __enter__(self):
        self.s = raw_post(self.d, {**BODY, "prompt": "I stay", "stream": True})
        assert self.s.recv(12) == b"HTTP/1.1 200"  # with its first token
        return self

    def __exit__(self, *_):
        self.s.close()
        until(lambda: gone(self.d))


def test_between_tokens(d):
    whole = ask(d, prompt="hello", max_tokens=22)["choices"][0]["text"]
    before = metric(d, "generations_late_total")
    r, ms = timed(d, prompt="hello", deadline_ms=SOME_MS)
    n = late(r, n_prompt=6)
    assert n <= SOME_MS / STEP_MS and r["choices"][0]["text"] == whole[:n], "what was drawn in time, and nothing else"
    assert SOME_MS <= ms
    assert gone(d) and metric(d, "generations_late_total") == before + 1
    r = ask(d, prompt="hello", max_tokens=3, deadline_ms=60_000 * SLOW_S)
    assert "deadline_reached" not in r["timings"] and r["usage"]["completion_tokens"] == 3


def test_while_the_prompt_is_scored(d):
    """What was found of it by then is told; nothing, where it was not even tokenised."""
    body = {"prompt": "x" * 400, "echo": True, "logprobs": 1, "n": 2}
    r = ask(d, **body, deadline_ms=SOME_MS)
    late(r, tokens=0)
    for c in r["choices"]:
        p = c["logprobs"]
        assert c["text"] == "x" * 400 and 1 < len(p["tokens"]) < 401
        assert p["token_logprobs"] == [None, *(-float(i) for i in range(1, len(p["tokens"])))]
        assert len(p["tokens"]) == len(p["top_logprobs"]) == len(p["text_offset"])
    for stream in (False, True):
        for prompt in ("x" * 400, [100] * 400):
            with d.http() as c:
                r = c.post("/v1/completions", json={**BODY, **body, "prompt": prompt, "stream": stream, "deadline_ms": 1})
            assert r.status_code == 200 and ("[DONE]" in r.text if stream else r.json()["choices"]), r.text


def test_in_the_prompt(d):
    """No token yet: an empty answer to a prompt that was read but not computed."""
    r = ask(d, prompt="x" * 400, deadline_ms=SOME_MS)  # of 100 steps
    late(r, n_prompt=401, tokens=0)
    assert r["choices"][0]["text"] == ""
    assert gone(d)


def test_behind_others(d):
    with Holder(d):
        r = ask(d, prompt="later", deadline_ms=SOME_MS)
        late(r, n_prompt=6, tokens=0)
        assert "queue_steps" not in r["timings"], "it never had a step"
        s = status(d)
        assert (s["running"], s["queued"]) == (1, 0)


def test_its_place_is_anothers_in_the_next_step(d):
    """The one that waits has its first row in the step after the last one of the late."""
    ask(d, prompt="x", max_tokens=1)  # a step of the last test may still have been out
    steps, got = metric(d, "steps_total"), []
    first = threading.Thread(target=lambda: got.append(ask(d, prompt="first", deadline_ms=3 * SOME_MS)))
    first.start()
    until(lambda: status(d)["running"] == 1 or not first.is_alive())
    second = ask(d, prompt="second", max_tokens=3)
    first.join()
    n = late(got[0])
    # "first" is two steps of prompt, the second one with a token; "second" likewise, and then two more. The step that
    # was out when time was over brought a token that nobody was told of.
    assert metric(d, "steps_total") - steps - (1 + n) - (1 + 3) <= 1
    assert second["usage"]["completion_tokens"] == 3


def test_while_the_model_loads(aned, make_daemon, tmp_path):
    x = make_daemon(home=make_home(tmp_path / "home", fake="stop_load 1\n"))
    with x.http() as c:  # its files are hashed before: who leaves then leaves nothing to be loaded
        assert c.post("/aned/v1/models/fake/verify").status_code == 202
        until(lambda: c.get("/aned/v1/models/fake").json()["verification"]["state"] == "verified")
    late(ask(x, prompt="hello", deadline_ms=SOME_MS), tokens=0)
    engine = child_of(x, "engine")
    until(lambda: is_stopped(engine))
    os.kill(engine, signal.SIGCONT)
    assert ask(x, prompt="hello", max_tokens=2)["usage"]["completion_tokens"] == 2, "the load went on"


def test_while_the_engine_hangs(d):
    """A step that does not end holds up nobody's deadline."""
    with stopped(engine_pid(d, "fake")):
        r = ask(d, prompt="hello", deadline_ms=SOME_MS)
    late(r, n_prompt=6, tokens=0)
    assert ask(d, prompt="hello", max_tokens=2)["usage"]["completion_tokens"] == 2


def test_all_choices_of_a_request(d):
    # one place: the second and third never start
    r = with_a_token(lambda ms: ask(d, prompt="hello", n=3, deadline_ms=ms), lambda r: r["usage"]["completion_tokens"])
    assert len(r["choices"]) == 3
    n = late(r)
    assert n > 0 and len(r["choices"][0]["text"]) == n and r["choices"][2]["text"] == ""
    assert gone(d)


@pytest.mark.asan
@pytest.mark.parametrize("resumable", [False, True])
def test_a_stream_ends_like_any_other(d, resumable):
    def said(ms):
        with d.http() as c, c.stream("POST", "/v1/completions", json={
                **BODY, "prompt": "hello", "stream": True, "resumable": resumable, "deadline_ms": ms,
                "stream_options": {"include_usage": True}}) as r:
            return [x[6:] for x in r.iter_lines() if x.startswith("data: ")]
    events = with_a_token(said, lambda e: json.loads(e[-2])["usage"]["completion_tokens"])
    assert events[-1] == "[DONE]"
    told = [json.loads(x) for x in events[:-1]]
    assert [x["choices"][0]["finish_reason"] for x in told[:-1]] == [None] * (len(told) - 2) + ["length"]
    assert told[-2]["timings"]["deadline_reached"] is True
    assert told[-1]["usage"]["completion_tokens"] == sum(len(x["choices"][0]["text"]) for x in told[:-1]) > 0


def test_a_chat_of_openais_client(d):
    """A client that repeats what met an error is told once."""
    before = metric(d, "generations_total")
    c = openai.OpenAI(base_url="http://aned/v1", api_key="none",
                      http_client=httpx.Client(transport=httpx.HTTPTransport(uds=str(d.sock))))
    with Holder(d):
        r = c.chat.completions.create(model="fake", messages=[{"role": "user", "content": "hello"}],
                                      extra_body={"deadline_ms": 4 * STEP_MS})
    assert r.choices[0].finish_reason == "length" and r.choices[0].message.content == ""
    assert metric(d, "generations_total") == before + 2


def test_a_session_keeps_what_was_drawn(d):
    with d.http() as c:
        name = c.post("/aned/v1/sessions", json={"model": "fake", "prompt": "hello"}).json()["id"]
        r = with_a_token(lambda ms: c.post(f"/aned/v1/sessions/{name}/generate", json={
            "max_tokens": 400, "temperature": 0, "deadline_ms": ms}).json(), lambda r: r["usage"]["completion_tokens"])
        n = late(r)
        assert n > 0 and c.get(f"/aned/v1/sessions/{name}").json()["n_tokens"] == 6 + n
        c.delete(f"/aned/v1/sessions/{name}")


def test_what_it_may_be(d):
    for bad in (0, -1, 1.5, "1s", True, 86_400_001):
        for path, more in (("/v1/completions", {"prompt": "x"}),
                           ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})):
            e = ask(d, path, 400, deadline_ms=bad, **more)["error"]
            assert e["param"] == "deadline_ms" and "86400000" in e["message"]
    ask(d, prompt="x", max_tokens=1, deadline_ms=None)
