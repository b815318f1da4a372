"""An answer goes out after the store said yes. Where it says no, the client is told, what is in memory is as it was, and the
same request works when there is room again; what was answered 2xx is there after a kill -9."""
import json
import os
import signal

import pytest

from conftest import child_of, has_ended, stopped, until
from faulty import faulty, new_home  # noqa: F401 (fixtures)

S = "/aned/v1/sessions"
GENERATE = {"max_tokens": 6, "temperature": 0, "ignore_eos": True}


@pytest.fixture
def home(faulty, tmp_path):
    """With the model `good`."""
    home = new_home(tmp_path / "home")
    (tmp_path / "source.gguf").write_bytes(b"x")
    d = faulty(home)
    assert d.convert(tmp_path / "source.gguf", "good")["state"] == "done"
    assert d.stop() == 0
    return home


def post(d, tmp_path, name):
    return d.ask("POST", "/aned/v1/jobs", json={"source": str(tmp_path / "source.gguf"), "name": name}).json()["id"]


def refused(r):
    assert r.status_code == 507 and r.json()["error"]["code"] == "no_space", r.text


def again(faulty, d, home):
    """What a kill -9 leaves."""
    os.kill(d.proc.pid, signal.SIGKILL)
    until(d.dead)
    return faulty(home)


# --- sessions ---

CHANGES = {  # name: method, path, body, tokens then
    "append": ("POST", "/append", {"tokens": [7, 8]}, [5, 6, 7, 8]),
    "truncate": ("POST", "/truncate", {"n": 1}, [5]),
    "pin": ("POST", "/pin", {"pinned": True}, [5, 6]),
    "fork": ("POST", "/fork", {}, [5, 6]),
    "delete": ("DELETE", "", None, None),
}


def sessions(d):
    return {x["id"]: {k: x[k] for k in ("n_tokens", "pinned", "busy")} for x in d.ask("GET", S).json()["sessions"]}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_that_finds_no_room(faulty, home, what):
    method, path, body, tokens = CHANGES[what]
    d = faulty(home, "full+:1")
    at = f"{S}/{d.ask('POST', S, json={'model': 'good', 'tokens': [5, 6]}).json()['id']}"
    before = sessions(d)
    d.arm()
    for _ in range(3):
        refused(d.ask(method, at + path, json=body))
        assert sessions(d) == before and d.ask("GET", at).json()["tokens"] == [5, 6]
    d.disarm()
    r = d.ask(method, at + path, json=body)
    assert r.status_code in (200, 201), r.text
    after = sessions(d)
    assert len(after) == {"fork": 2, "delete": 0}.get(what, 1)
    assert tokens is None or d.ask("GET", at).json()["tokens"] == tokens
    d = again(faulty, d, home)
    assert sessions(d) == after
    assert tokens is None or d.ask("GET", at).json()["tokens"] == tokens


def test_a_session_that_finds_no_room(faulty, home):
    d = faulty(home, "full+:1")
    d.arm()
    refused(d.ask("POST", S, json={"model": "good", "tokens": [5, 6]}))
    assert sessions(d) == {}
    d.disarm()
    assert d.ask("POST", S, json={"model": "good", "tokens": [5, 6]}).status_code == 201
    assert len(sessions(d)) == 1


def test_a_turn_that_finds_no_room(faulty, home):
    """The text of a turn whose record failed is not the session's, and the next try draws the same."""
    d = faulty(home, "full+:1")
    at = f"{S}/{d.ask('POST', S, json={'model': 'good', 'tokens': [5, 6]}).json()['id']}"
    want = d.ask("POST", "/v1/completions", json={"model": "good", "prompt": [5, 6], **GENERATE}).json()
    d.arm()
    for _ in range(2):
        refused(d.ask("POST", at + "/generate", json=GENERATE))
        assert d.ask("GET", at).json()["tokens"] == [5, 6] and not d.ask("GET", at).json()["busy"]
    d.disarm()
    r = d.ask("POST", at + "/generate", json=GENERATE)
    assert r.json()["choices"][0]["text"] == want["choices"][0]["text"]
    tokens = d.ask("GET", at).json()["tokens"]
    assert len(tokens) == 8
    d = again(faulty, d, home)
    assert d.ask("GET", at).json()["tokens"] == tokens


def events(r):
    return [x[6:] for x in r.iter_lines() if x.startswith("data: ")]


def test_a_streamed_turn_that_finds_no_room(faulty, home):
    """Its tokens were sent; what says that all is well is not."""
    d = faulty(home, "full+:1")
    at = f"{S}/{d.ask('POST', S, json={'model': 'good', 'tokens': [5, 6]}).json()['id']}"
    d.arm()
    with d.http() as c, c.stream("POST", at + "/generate", json={**GENERATE, "stream": True}) as r:
        got = events(r)
    assert "[DONE]" not in got and json.loads(got[-1])["error"]["code"] == "no_space"
    assert not any(x["finish_reason"] for e in got[:-1] for x in json.loads(e)["choices"])
    assert "".join(x["text"] for e in got[:-1] for x in json.loads(e)["choices"])
    assert d.ask("GET", at).json()["tokens"] == [5, 6]
    d.disarm()
    with d.http() as c, c.stream("POST", at + "/generate", json={**GENERATE, "stream": True}) as r:
        got = events(r)
    assert got[-1] == "[DONE]" and len(d.ask("GET", at).json()["tokens"]) == 8


def test_a_turn_is_stored_before_its_last_event(faulty, home, tmp_path):
    """With a store that stands still all tokens come, the end does not."""
    gate = tmp_path / "gate"
    d = faulty(home, gate=gate)
    at = f"{S}/{d.ask('POST', S, json={'model': 'good', 'tokens': [5, 6]}).json()['id']}"
    want = d.ask("POST", "/v1/completions", json={"model": "good", "prompt": [5, 6], **GENERATE}).json()
    text, over = "", False
    gate.touch()
    with d.http() as c, c.stream("POST", at + "/generate", json={**GENERATE, "stream": True}) as r:
        for x in r.iter_lines():
            if not x.startswith("data: ") or x == "data: [DONE]":
                continue
            ch = json.loads(x[6:])["choices"][0]
            text += ch["text"]
            over = over or ch["finish_reason"] is not None
            if text == want["choices"][0]["text"] and gate.exists():
                assert not over
                assert d.ask("GET", at).json()["busy"]
                gate.unlink()
    assert over and text == want["choices"][0]["text"]
    assert len(d.ask("GET", at).json()["tokens"]) == 8


def test_appends_that_come_together_are_all_there(faulty, home, tmp_path):
    """In an order of their own, each once."""
    import concurrent.futures
    gate = tmp_path / "gate"
    d = faulty(home, gate=gate)
    at = f"{S}/{d.ask('POST', S, json={'model': 'good', 'tokens': []}).json()['id']}"
    gate.touch()
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        asked = [pool.submit(d.ask, "POST", at + "/append", json={"tokens": [i, i]}) for i in range(8)]
        assert d.ask("GET", at).json()["tokens"] == []
        gate.unlink()
        assert [f.result().status_code for f in asked] == [200] * 8
    tokens = d.ask("GET", at).json()["tokens"]
    assert sorted(tokens[::2]) == list(range(8)) and tokens[::2] == tokens[1::2]
    d = again(faulty, d, home)
    assert d.ask("GET", at).json()["tokens"] == tokens


def test_kill_at_every_step_of_a_session(faulty, home):
    """Whatever was answered is there; what was not may be, whole."""
    n, whole = 0, False
    while not whole:
        n += 1
        d = faulty(home, f"kill:{n}")
        d.arm()
        r = d.ask("POST", S, json={"model": "good", "tokens": [5, 6]})
        one, want = r and r.json()["id"], [[5, 6]]
        for body, then in (({"tokens": [7]}, [5, 6, 7]), ({"tokens": [8]}, [5, 6, 7, 8])):
            if r is not None:
                r = d.ask("POST", f"{S}/{one}/append", json=body)
                want = [then] if r is not None else [*want, then]
        whole = r is not None
        d = again(faulty, d, home) if whole else faulty(home)
        if one is not None:
            assert d.ask("GET", f"{S}/{one}").json()["tokens"] in want
        for x in sessions(d):
            assert d.ask("DELETE", f"{S}/{x}").status_code == 200
        assert d.stop() == 0
    assert n > 5


# --- jobs ---

def test_a_cancel_that_finds_no_room(faulty, home, tmp_path):
    """Of a job that runs and of one that waits: it goes on as if nobody had asked."""
    d = faulty(home, "full+:1")
    d.worker_gate.touch()
    one = post(d, tmp_path, "one")
    with stopped(child_of(d, "convert-worker")):
        two = post(d, tmp_path, "two")
        d.arm()
        for job, state in ((one, "running"), (two, "queued")):
            refused(d.ask("DELETE", f"/aned/v1/jobs/{job}"))
            assert d.job(job)["state"] == state and not d.job(job)["cancelling"]
        d.disarm()
        assert d.ask("DELETE", f"/aned/v1/jobs/{two}").json()["state"] == "cancelled"
        assert d.ask("DELETE", f"/aned/v1/jobs/{one}").json()["cancelling"]
        d.worker_gate.unlink()
    until(lambda: d.job(one)["state"] == "cancelled")
    d = again(faulty, d, home)
    assert [d.job(j)["state"] for j in (one, two)] == ["cancelled"] * 2
    assert set(d.models()) == {"good"}


def test_what_was_cancelled_does_not_run_again(faulty, home, tmp_path):
    """The daemon dies as soon as the client has its answer, the worker still being there."""
    d = faulty(home)
    d.worker_gate.touch()
    one = post(d, tmp_path, "one")
    pid = child_of(d, "convert-worker")
    with stopped(pid):
        two = post(d, tmp_path, "two")
        for job in (two, one):
            assert d.ask("DELETE", f"/aned/v1/jobs/{job}").status_code == 200
        d.kill()
        d.worker_gate.unlink()
        d = faulty(home)
        assert [d.job(j)["state"] for j in (one, two)] == ["cancelled"] * 2
        until(lambda: not list((home / "staging").iterdir()))
    until(lambda: has_ended(pid))
    assert not list((home / "staging").iterdir())
    assert set(d.models()) == {"good"}


# --- models ---

def test_a_delete_that_finds_no_room(faulty, home):
    d = faulty(home, "full+:1")
    one = d.ask("POST", S, json={"model": "good", "tokens": [5, 6]}).json()["id"]
    d.arm()
    for _ in range(2):
        refused(d.ask("DELETE", "/aned/v1/models/good"))
        assert set(d.models()) == {"good"} and (home / "models" / "good").is_dir() and set(sessions(d)) == {one}
    d.disarm()
    r = d.ask("POST", "/v1/completions", json={"model": "good", "prompt": "x", "max_tokens": 2})
    assert r.status_code == 200, r.text
    assert d.ask("DELETE", "/aned/v1/models/good").status_code == 200
    assert d.models() == {} and sessions(d) == {}
    d = again(faulty, d, home)
    assert d.models() == {} and sessions(d) == {} and not list((home / "models").iterdir())


def test_kill_at_every_step_of_a_delete(faulty, home, tmp_path):
    """There as it was, or gone with its sessions."""
    n, whole = 0, False
    while not whole:
        n += 1
        d = faulty(home, f"kill:{n}")
        if not d.models():
            assert d.convert(tmp_path / "source.gguf", "good")["state"] == "done"
        if not sessions(d):
            d.ask("POST", S, json={"model": "good", "tokens": [5, 6]})
        d.arm()
        r = d.ask("DELETE", "/aned/v1/models/good")
        until(lambda: d.dead() or not list((home / "staging").iterdir()))
        whole = not d.dead()
        d = again(faulty, d, home) if whole else faulty(home)
        models = d.models()
        assert not (models and r is not None)
        assert {p.name for p in (home / "models").iterdir()} == set(models)
        assert len(sessions(d)) == len(models)
        for m in models.values():
            assert m["state"] == "unverified" and m["gates"], m
        assert d.stop() == 0
    assert n > 5
