"""Who goes first: a request that is in a hurry takes a place from a full queue of batch work, which goes on as if nothing
had happened; one whose client does not read makes way for others."""
import concurrent.futures
import threading

import pytest

from conftest import SLOW_S, engine_pid, raw_post, status, stopped, until, wait_idle
from fake import make_home

BODY = {"model": "demo", "temperature": 0.8, "ignore_eos": True}


PLACES, QUEUE = 2, 16
LONG = 800  # tokens of a batch request: the queue is still there when those in a hurry are done


@pytest.fixture
def narrow(make_daemon, demo_home, tmp_path):
    """Two places, and a queue for many."""
    conf = tmp_path / "aned.conf"
    conf.write_text(f"[limits]\nstreams = {PLACES}\nqueue = {QUEUE}\n[cache]\nsessions = 3\ndisk_mib = 0\n"
                    "[speculation]\nmax_draft = 0\n")  # so that there is something to overtake
    return make_daemon(home=demo_home, args=["--config", str(conf)])


def ask(d, seed, **more):
    with d.http() as c:
        r = c.post("/v1/completions", json={**BODY, "prompt": f"{seed}. What is aned?", "seed": seed, **more})
    assert r.status_code == 200, r.text
    return r.json()


def complete(d, seed, **more):
    return ask(d, seed, **more)["choices"][0]["text"]


def test_hurry_overtakes_a_full_batch_queue(narrow):
    """Full but for one place. Who is in a hurry has its first row within two steps, ten times of ten, and is over before
    the batch moves on; what made way for it is none the worse."""
    n = QUEUE + PLACES - 1
    alone = {s: complete(narrow, s, max_tokens=LONG) for s in range(4)}
    got, steps = {}, []

    def batch(i):
        got[i] = complete(narrow, i % 4, max_tokens=LONG, service_tier="flex")
    threads = [threading.Thread(target=batch, args=(i,)) for i in range(n)]
    engine = engine_pid(narrow, "demo")
    with stopped(engine):  # else the first are over before the last have come
        for t in threads:
            t.start()
        until(lambda: (s := status(narrow))["queued"] + s["running"] == n)
    until(lambda: status(narrow)["running"] == PLACES)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        for seed in range(50, 60):
            with stopped(engine):  # nor does the batch move on before it is there
                before = status(narrow)["queued"]
                hurried = pool.submit(ask, narrow, seed, max_tokens=4, service_tier="priority")
                until(lambda: status(narrow)["queued"] == before + 1)
            steps.append(hurried.result()["timings"]["queue_steps"])
            after = status(narrow)["queued"]
            assert before > 4, "the batch was over too early to tell"
            assert after >= before - 4, "batch requests went before the one in a hurry"
    print("\nsteps until the first of their own:", steps)
    assert max(steps) <= 2, steps
    for t in threads:
        t.join(120 * SLOW_S)
    assert len(got) == n
    assert all(got[i] == alone[i % 4] for i in got)


def test_who_does_not_read_makes_way(narrow):
    """Two clients that never read hold no place that another could have."""
    socks = []
    try:
        for seed in (1, 2):
            socks.append(raw_post(narrow, {**BODY, "prompt": "a", "seed": seed, "stream": True, "logprobs": 20, "n": 2},
                                  rcvbuf=4096))
        assert len(complete(narrow, 9, max_tokens=20)) > 0
    finally:
        for s in socks:
            s.close()
    wait_idle(narrow)  # else a closed connection still has its place


class Asked(threading.Thread):
    """A request on its way; `answer` when it is over."""

    def __init__(self, d, number, path="completions", **body):
        super().__init__()
        text = f"{number}. request"
        said = {"prompt": text} if path == "completions" else {"messages": [{"role": "user", "content": text}]}
        self.d, self.path, self.answer = d, path, None
        self.body = {"model": "fake", "temperature": 0, "max_tokens": 30, **said, **body}
        self.start()

    def run(self):
        with self.d.http() as c:
            self.answer = c.post("/v1/" + self.path, json=self.body)

    def refused(self):
        """It ended with what a full queue says."""
        self.join(120 * SLOW_S)
        r = self.answer
        assert r.status_code == 503, r.text
        return int(r.headers["retry-after"]) >= 1 and r.json()["error"]["code"] == "busy"

    def served(self):
        self.join(120 * SLOW_S)
        assert self.answer.status_code == 200, self.answer.text
        return True


def waiting(d):
    s = status(d)
    return s["queued"] + s["running"]


def has(d, n):
    """So many are there, soon: a new one is not counted while its text is made into tokens."""
    until(lambda: waiting(d) == n)
    return True


def test_a_full_queue_makes_way(make_daemon, tmp_path):
    """One place and a queue for three, full of work of later classes: who is in a hurry gets in, and the youngest of the
    last class that waits is told to come again. Never the one that has begun, not for its equal, and not one more.

    The engine stands still meanwhile, so that nobody is over before the next one comes."""
    home = make_home(tmp_path / "home",
                     conf="[limits]\nstreams = 1\nqueue = 3\n[speculation]\nmax_draft = 0\n")
    d = make_daemon(home=home, args=["--config", str(home / "aned.conf")])
    with d.http() as c:
        assert c.post("/aned/v1/models/fake/load", json={}).status_code == 200
    flex, hurry = {"service_tier": "flex"}, {"service_tier": "priority"}
    with stopped(engine_pid(d, "fake")):
        # It has the place, and loses it to nobody but those in a hurry.
        first = Asked(d, 0, "chat/completions", max_tokens=90)
        assert has(d, 1)
        old = Asked(d, 1, **flex)
        assert has(d, 2)
        chat = Asked(d, 2, "chat/completions")
        assert has(d, 3)
        young = Asked(d, 3, stream=True, **flex)
        assert has(d, 4)
        assert Asked(d, 4, **flex).refused(), "among equals the one that comes last"
        one = Asked(d, 5, **hurry)
        assert young.refused() and has(d, 4)
        two = Asked(d, 6, **hurry)
        assert old.refused() and has(d, 4)
        three = Asked(d, 7, n=2, **hurry)
        assert three.refused() and has(d, 4), "one that waits is not enough for two choices, and stays"
        three = Asked(d, 8, **hurry)
        assert chat.refused(), "no flex is left"
    assert all(x.served() for x in (one, two, three, first))
    assert has(d, 0)
