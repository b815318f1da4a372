"""Who goes first: a request that is in a hurry takes a place from a full queue of batch work, which goes on as if nothing
had happened; one whose client does not read makes way for others."""
import threading
import time

import pytest

from conftest import SLOW_S

BODY = {"model": "demo", "temperature": 0.8, "ignore_eos": True}


PLACES, QUEUE = 2, 16


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


def status(d):
    with d.http() as c:
        return c.get("/aned/v1/status").json()


def test_hurry_overtakes_a_full_batch_queue(narrow):
    """Full but for one place. Who is in a hurry has its first row within two steps, ten times of ten, and is over before
    the batch moves on; what made way for it is none the worse."""
    n = QUEUE + PLACES - 1
    alone = {s: complete(narrow, s, max_tokens=350) for s in range(4)}
    got, steps = {}, []

    def batch(i):
        got[i] = complete(narrow, i % 4, max_tokens=350, service_tier="flex")
    threads = [threading.Thread(target=batch, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    end = time.monotonic() + 30 * SLOW_S
    while status(narrow)["queued"] < QUEUE - 1:
        assert time.monotonic() < end, "the queue was never full"
    for seed in range(50, 60):
        before = status(narrow)["queued"]
        steps.append(ask(narrow, seed, max_tokens=4, service_tier="priority")["timings"]["queue_steps"])
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
    import json
    import socket
    try:
        for seed in (1, 2):
            s = socket.socket(socket.AF_UNIX)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect(str(narrow.sock))
            body = json.dumps({**BODY, "prompt": "a", "seed": seed, "stream": True, "logprobs": 20, "n": 2}).encode()
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: "
                      + str(len(body)).encode() + b"\r\n\r\n" + body)
            socks.append(s)
        assert len(complete(narrow, 9, max_tokens=20)) > 0
    finally:
        for s in socks:
            s.close()
    end = time.monotonic() + 20 * SLOW_S
    while status(narrow)["running"] + status(narrow)["queued"] > 0:
        assert time.monotonic() < end, "a closed connection still has its place"
        time.sleep(0.02)
