"""A cancelled request gives back at once what it held (issue 5, item 4: within one step, 100 of 100).

The engine is stopped in the middle of a step, so that no count depends on how fast anybody looks: the client leaves, the
place has to be free before that step is over, and another request has to be in the very next one. What the daemon tells
itself is compared: steps of /aned/v1/status, generations_cancelled_total, and timings.queue_steps of who takes the place.
"""
import json
import os
import signal
import socket
import time

import pytest

from conftest import SLOW_S, raw_post
from fake import make_home

TIMES = 10
FAKE = "delay_us 2000\n"
CONF = "[limits]\nstreams = 1\nqueue = 2\n[engine]\nprefill_chunk = 4\n"
BODY = {"prompt": "hello", "temperature": 0, "max_tokens": 30000, "stream": True}  # a minute of steps, but for who stops them
CONTEXT = 32768


class Call:
    """A request on a connection of its own, which nobody reads unless asked to."""

    def __init__(self, d, body, path="/v1/completions"):
        self.s = raw_post(d, body, path)

    def answer(self):
        """Status and JSON of an answer that is not a stream."""
        data = b""
        while chunk := self.s.recv(65536):
            data += chunk
        self.s.close()
        return int(data.split()[1]), json.loads(data.split(b"\r\n\r\n", 1)[1])

    def first_event(self):
        data = b""
        while b"\n\n" not in data[data.find(b"data: "):]:
            data += self.s.recv(65536)
        return json.loads(data[data.find(b"data: ") + 6:].split(b"\n\n")[0])

    def leave(self):
        self.s.close()

    def say_no_more(self):
        """Only the writing side is shut: it still waits for its answer."""
        self.s.shutdown(socket.SHUT_WR)
        time.sleep(0.1)  # which changes nothing, whenever it is noticed


class World:
    """A daemon, what it tells, and the engine of one of its models."""

    def __init__(self, d, model):
        self.d, self.model, self.http = d, model, d.http()

    def status(self):
        return self.http.get("/aned/v1/status").json()

    def count(self, name):
        return self.status()["counters"][name]

    def metric(self, name):
        text = self.http.get("/metrics").text
        return next(float(x.split()[1]) for x in text.splitlines() if x.startswith(f"aned_{name} "))

    def until(self, what, why):
        end = time.monotonic() + 120 * SLOW_S
        while not what():
            assert time.monotonic() < end, f"{why}: {self.status()}"

    def idle(self):
        self.until(lambda: (s := self.status())["running"] + s["queued"] == 0, "not idle")

    def begin(self, body=None, path="/v1/completions", **more):
        return Call(self.d, {"model": self.model, **BODY, **more} if body is None else body, path)

    def other(self):
        """Who is to have the place."""
        return self.begin(prompt="another", max_tokens=2, stream=False)

    def stop(self):
        """The engine stands still, with what was sent to it; what it had answered is known."""
        self.pid = self.http.get(f"/aned/v1/models/{self.model}").json()["engine"]["pid"]
        os.kill(self.pid, signal.SIGSTOP)
        self.until(lambda: open(f"/proc/{self.pid}/stat").read().rsplit(")", 1)[1].split()[0] == "T", "not stopped")
        steps = -1
        while steps != (steps := self.count("steps")):
            pass

    def go(self):
        os.kill(self.pid, signal.SIGCONT)

    def cancel(self, leave):
        """Until the daemon has noticed; no step may have been needed. Returns its status just then."""
        cancelled, steps = self.metric("generations_cancelled_total"), self.count("steps")
        leave()
        self.until(lambda: self.metric("generations_cancelled_total") > cancelled, "not noticed")
        s = self.status()
        assert s["counters"]["steps"] == steps
        return s

    def taken(self, other):
        """How many steps began between the cancel and the one that has `other` in it."""
        code, r = other.answer()
        assert code == 200 and r["usage"]["completion_tokens"] == 2, r
        return r["timings"]["queue_steps"] - 1

    def replaced(self, victim, leave=None, ran=1):
        """Cancel what has the place; another waits for it already."""
        self.stop()
        try:
            other = self.other()
            self.until(lambda: self.status()["queued"] == ran, "the other one is not in the queue")
            s = self.cancel(leave or victim.leave)
            assert (s["running"], s["queued"]) == (0, 1), "the place was not free when the cancel was known"
        finally:
            self.go()
        return self.taken(other)


def after(w, name, least, same=None):
    """Until a count has grown by so much; `same` must not have."""
    counters = w.status()["counters"]

    def grown():
        now = w.status()["counters"]
        assert same is None or now[same] == counters[same], f"{same} went on"
        return now[name] - counters[name] >= least
    w.until(grown, f"{name} does not grow")


def prefill(w):
    victim = w.begin(prompt="x" * 32000)
    after(w, "steps", 3, same="output_tokens")
    return w.replaced(victim)


def decode(w):
    victim = w.begin()
    after(w, "output_tokens", 3)
    return w.replaced(victim)


def verify(w):
    victim = w.begin()
    after(w, "accepted_tokens", 20)
    return w.replaced(victim)


def not_streamed(w):
    victim = w.begin(stream=False)
    after(w, "output_tokens", 3)
    return w.replaced(victim)


def several_choices(w):
    victim = w.begin(n=2)
    after(w, "output_tokens", 3)
    return w.replaced(victim, ran=2)


def resumable_deleted(w):
    victim = w.begin(resumable=True)
    name = victim.first_event()["id"]

    def delete():
        assert w.http.delete(f"/aned/v1/streams/{name}").status_code == 200
    try:
        return w.replaced(victim, delete)
    finally:
        victim.leave()


def a_session(w):
    s = w.http.post("/aned/v1/sessions", json={"model": w.model, "prompt": "hello"}).json()["id"]
    victim = w.begin({"max_tokens": 30000, "temperature": 0, "stream": True}, f"/aned/v1/sessions/{s}/generate")
    after(w, "output_tokens", 3)
    steps = w.replaced(victim)
    assert not w.http.get(f"/aned/v1/sessions/{s}").json()["busy"]
    assert w.http.delete(f"/aned/v1/sessions/{s}").status_code == 200
    return steps


def queued(w):
    """Its two places in the queue are free for others, without a step."""
    holder = w.begin()
    after(w, "output_tokens", 1)
    w.stop()
    try:
        victim = w.begin(n=2)
        w.until(lambda: w.status()["queued"] == 2, "not queued")
        assert w.other().answer()[0] == 503, "the queue is full"
        s = w.cancel(victim.leave)
        assert (s["running"], s["queued"]) == (1, 0)
        other = w.other()
        w.until(lambda: w.status()["queued"] == 1, "not queued")
        w.cancel(holder.leave)
    finally:
        w.go()
    return w.taken(other)


def paused(w):
    """Its reader stalls: no step is out, and none comes."""
    victim = w.begin(logprobs=20)
    w.until(lambda: w.metric("http_queued_bytes") > 256 * 1024, "it is read")
    steps, since = -1, time.monotonic()
    while time.monotonic() < since + 0.5:  # the one that was out has come back
        if steps != (steps := w.count("steps")):
            since = time.monotonic()
    assert w.status()["running"] == 1
    s = w.cancel(victim.leave)
    assert (s["running"], s["queued"]) == (0, 0)
    return w.taken(w.other())


def half_closed(begin):
    """The same of a client that had shut its writing side, which by itself ends nothing."""
    def phase(w):
        normal, w.begin = w.begin, lambda *a, **more: silent(normal(*a, **more))
        try:
            return begin(w)
        finally:
            del w.begin

    def silent(call):
        call.say_no_more()
        return call
    return phase


def restoring(w):
    """Its state is on its way from the disk, into the only sequence there is."""
    w.stop()
    try:
        prompts, asked = w.count("prompt_tokens"), w.count("generations")
        victim = w.begin(prompt=LONG)
        w.until(lambda: w.metric("sequences_warm") == 0, "no place is being restored")
        w.cancel(victim.leave)
        other = w.other()
        w.until(lambda: w.count("generations") == asked + 2, "the other one is not there")
    finally:
        w.go()
    steps = w.taken(other)
    assert w.count("prompt_tokens") - prompts < 30, "the cancelled prompt was queued all the same"
    return steps


LONG = "What is aned? It is a daemon that keeps models and sessions warm. " * 6
PHASES = {"plain": (queued, prefill, decode, not_streamed, several_choices, resumable_deleted, a_session),
          "rote": (verify, paused), "demo": (restoring,)}


@pytest.fixture
def worlds(make_daemon, demo_home, tmp_path):
    """Per model: one whose text surprises, one that says the same again and again, and a real one with states on disk."""
    home = make_home(tmp_path / "home", models=("plain", "rote"), fake=FAKE, conf=CONF, context=CONTEXT)
    with open(home / "models" / "rote" / "fake", "a") as f:
        f.write("period 5\n")
    d = make_daemon(home=home, args=["--config", str(home / "aned.conf")])
    made = {name: World(d, name) for name in ("plain", "rote")}
    conf = tmp_path / "aned.conf"
    conf.write_text("[limits]\nstreams = 1\nqueue = 2\n[cache]\nsessions = 1\ndisk_tokens = 64\n")
    made["demo"] = World(make_daemon(home=demo_home, args=["--config", str(conf)]), "demo")
    for w in made.values():
        for prompt in (LONG, "another"):  # the model is up, and of LONG's state a file is left
            assert w.begin(prompt=prompt, max_tokens=2, stream=False).answer()[0] == 200
    made["demo"].until(lambda: made["demo"].metric("states_saves_total") > 0, "LONG was not saved")
    yield made
    for w in made.values():
        w.http.close()


def test_a_half_closed_client_that_closes(make_daemon, tmp_path):
    home = make_home(tmp_path / "home", models=("plain",), fake=FAKE, conf=CONF, context=CONTEXT)
    w = World(make_daemon(home=home, args=["--config", str(home / "aned.conf")]), "plain")
    assert w.other().answer()[0] == 200
    for phase in (queued, prefill, decode, not_streamed):
        assert half_closed(phase)(w) <= 1, phase.__name__
        w.idle()
    w.http.close()


def test_a_hundred_of_a_hundred(worlds):
    steps = {}
    for model, phases in PHASES.items():
        w = worlds[model]
        fds = w.d.fds()
        for phase in phases:
            steps[phase.__name__] = []
            for _ in range(TIMES):
                steps[phase.__name__].append(phase(w))
                w.idle()
        w.until(lambda: w.d.fds() <= fds + 1, "descriptors are left")
    print("\nsteps between a cancel and the one that has another request in its place:", steps)
    free = [n for times in steps.values() for n in times]
    assert len(free) == 100 and sum(n <= 1 for n in free) == 100, steps
