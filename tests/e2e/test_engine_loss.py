"""Engines that are killed or hang while streams run: they are replaced, and every stream ends with exactly the text it
has without a disturbance, greedy or drawn with a seed. The third death within ten minutes marks the model failed."""
import json
import os
import signal
import threading
import time

import pytest

from conftest import SLOW_S

STEP_MS = 4000  # more than a step takes on any machine
TOKENS = 300 if SLOW_S == 1 else 100  # enough to be in the middle of
CASES = [  # (seed, sampling): what a stream of its own draws
    (1, {"temperature": 0}),
    (2, {"temperature": 0.9}),
    (3, {"temperature": 1.2, "top_k": 40, "repeat_penalty": 1.1}),
    (4, {"temperature": 0, "repeat_penalty": 1.2}),
    (5, {"temperature": 0.7, "top_p": 0.9, "presence_penalty": 0.5}),
    (6, {"temperature": 1.0, "min_p": 0.05}),
]


class Stream(threading.Thread):
    """One streamed completion; events counts its pieces, text is what they said."""

    def __init__(self, daemon, seed, sampling):
        super().__init__(daemon=True)
        self.d, self.text, self.events, self.error = daemon, "", 0, None
        self.body = {"model": "demo", "stream": True, "seed": seed, "max_tokens": TOKENS, "ignore_eos": True,
                     "prompt": f"{seed}. What is aned?", **sampling}
        self.start()

    def run(self):
        try:
            with self.d.http() as c, c.stream("POST", "/v1/completions", json=self.body) as r:
                assert r.status_code == 200, r.read()
                for line in r.iter_lines():
                    if line == "data: [DONE]":
                        return
                    if line.startswith("data: "):
                        j = json.loads(line[6:])
                        assert "error" not in j, j
                        self.text += j["choices"][0]["text"]
                        self.events += 1
            raise AssertionError("no [DONE]")
        except Exception as e:  # noqa: BLE001  (told by result)
            self.error = e

    def result(self):
        self.join(120 * SLOW_S)
        assert not self.is_alive(), "the stream hangs"
        assert self.error is None, self.error
        return self.text

    def reach(self, n):
        end = time.monotonic() + 60 * SLOW_S
        while self.events < n and self.error is None and self.is_alive() and time.monotonic() < end:
            time.sleep(0.002)
        assert self.error is None, self.error


def engine(d):
    with d.http() as c:
        return c.get("/aned/v1/models/demo").json()["engine"]


@pytest.fixture(scope="module")
def made(aned, demo_gguf, tmp_path_factory):
    """A home with the demo model, converted once, and the undisturbed texts."""
    from conftest import Daemon
    home = tmp_path_factory.mktemp("loss") / "home"
    conf = home.parent / "aned.conf"
    # without drafts: they make streams so short that they end before the third kill
    conf.write_text(f"[engine]\nbackend = interpreter\nthreads = 1\nstep_ms = {STEP_MS * SLOW_S}\n"
                    "[speculation]\nmax_draft = 0\n")
    d = Daemon(aned, home=home, args=["--config", str(conf)])
    try:
        assert d.convert(demo_gguf, "demo", context=512)["state"] == "done"
        texts = [Stream(d, *c).result() for c in CASES]
    finally:
        assert d.close() == 0
    assert len(set(texts)) == len(texts)
    return home, texts, conf


@pytest.fixture
def slow(made, make_daemon):
    """A daemon on that home whose engine takes its time, and hangs for STEP_MS at most."""
    return make_daemon(home=made[0], args=["--config", str(made[2])])


def disturb(d, streams, after, sig, known=()):
    """Send `sig` to the engine, none of `known`, once every stream has said `after` pieces. Returns its pid."""
    end = time.monotonic() + 60 * SLOW_S
    for s in streams:
        s.reach(after)
    while (pid := (engine(d) or {"pid": 0})["pid"]) in (0, *known):
        assert time.monotonic() < end, "no engine came"
        time.sleep(0.01)
    os.kill(pid, sig)
    return pid


@pytest.mark.parametrize("sig", [pytest.param(signal.SIGKILL, marks=pytest.mark.asan), signal.SIGSEGV, signal.SIGSTOP],
                         ids=lambda s: s.name)
def test_streams_go_on_byte_for_byte(slow, made, sig):
    streams = [Stream(slow, *c) for c in CASES]
    pid = disturb(slow, streams, 5, sig)
    at = [s.events for s in streams]
    assert [s.result() for s in streams] == made[1]
    assert max(at) < TOKENS, "the streams were over before the engine was disturbed"
    assert engine(slow)["pid"] != pid
    with slow.http() as c:
        metrics = c.get("/metrics").text
    assert "aned_engine_restarts_total 1\n" in metrics


def test_killed_twice_in_one_stream(slow, made):
    s = Stream(slow, *CASES[2])
    first = disturb(slow, [s], 5, signal.SIGKILL)
    second = disturb(slow, [s], 0, signal.SIGKILL, [first])
    assert s.result() == made[1][2]
    assert len({first, second, engine(slow)["pid"]}) == 3


def test_killed_while_it_reads_a_prompt(slow, made):
    with slow.http() as c:
        assert c.post("/aned/v1/models/demo/load").status_code == 200
    s = Stream(slow, *CASES[1])
    os.kill(engine(slow)["pid"], signal.SIGKILL)
    assert s.result() == made[1][1]


def test_the_third_death_marks_the_model(slow, made):
    s = Stream(slow, *CASES[1])
    dead = []
    for _ in range(3):
        dead.append(disturb(slow, [s], 3, signal.SIGKILL, dead))  # as soon as there is another
    s.join(60 * SLOW_S)
    assert "3 crashes" in str(s.error) and "signal 9" in str(s.error), s.error
    with slow.http() as c:
        m = c.get("/aned/v1/models/demo").json()
        assert m["state"] == "failed" and m["engine"] is None
        assert "3 crashes" in m["reason"] and "signal 9" in m["reason"]
        r = c.post("/v1/completions", json={"model": "demo", "prompt": "a", "max_tokens": 1})
        assert r.status_code == 503 and r.json()["error"]["code"] == "model.failed", r.text
        assert "3 crashes" in r.json()["error"]["message"]
        assert c.post("/aned/v1/models/demo/load").status_code == 200  # a person tries again, with a clean record
    assert Stream(slow, *CASES[1]).result() == made[1][1]
