"""What one thread owes all clients (issue 14, item 13): between two polls the loop uses at most 20 ms of its own CPU time,
whatever was asked, and an answer holds a bounded number of bytes.

The figure is the daemon's own (aned_loop_cpu_max_seconds, serve/meter.h): the CPU clock of the loop thread, which no other
process of the machine can move. A sanitizer's build is not held to it.
"""
import concurrent.futures
import contextlib
import json
import sqlite3
import sys
import time

import pytest

from conftest import BIN, engine_pid, metric, stopped, until
from fake import make_home

MIB = 1 << 20
WIDE = "lo 33\nhi 126\n"


@pytest.fixture
def fake(make_daemon, tmp_path):
    made = []

    def start(env=None, **kw):
        home = make_home(tmp_path / "home", **kw)
        made.append(make_daemon(home=home, args=["--config", str(home / "aned.conf")], env=env))
        return made[-1]
    yield start
    for d in made:
        assert d.stop() == 0, d.log.read_text()[-3000:]


def peak_kib(d):
    return int(next(x.split()[1] for x in open(f"/proc/{d.proc.pid}/status") if x.startswith("VmHWM")))


def post(d, path, body, timeout=120):
    """Status and answer; the body goes as it is."""
    with d.http(timeout=timeout) as c:
        r = c.post(path, content=body if isinstance(body, bytes) else json.dumps(body).encode(),
                   headers={"Content-Type": "application/json"})
        return r.status_code, r.json()


def get(d, path):
    with d.http() as c:
        return c.get(path)


def many_jobs(home, n, kib):
    """Jobs that ended, as an earlier life of the daemon left them."""
    with contextlib.closing(sqlite3.connect(home / "aned.db")) as db:
        result = json.dumps({"gates": [{"name": "structure", "verdict": "passed", "detail": "x" * 64}] * (kib * 8)})
        spec = json.dumps({"source": "/nowhere/model.gguf", "name": "nobody", "quant": "int8"})
        db.executemany("INSERT INTO jobs(id, state, spec, name, stage, progress, error, message, result, attempts, created_ms,"
                       " started_ms, finished_ms) VALUES(?,'failed',?,'nobody','done',1,'internal','it failed',?,1,?,?,?)",
                       [(f"job_{i:026d}", spec, result, i + 1, i + 2, i + 3) for i in range(n)])
        db.commit()


def bodies():
    """Large or hostile ones."""
    ids = ",".join(["7"] * (MIB - 100))  # 2 MiB of numbers
    text = "The quick brown fox jumps over the lazy dog. " * 90000
    chat = {"model": "fake", "max_tokens": 1}
    one = {"model": "fake", "max_tokens": 1, "prompt": "hello"}
    return [
        ("/v1/completions", b'{"model":"fake","prompt":[%s]}' % ids.encode()),
        ("/v1/completions", b'{"model":"fake","max_tokens":1,"prompt":"a","prediction":{"type":"content","content":[%s]}}'
         % ids.encode()),
        ("/v1/completions", b'{"model":"fake","prompt":' + b"[" * (4 * MIB - 100)),
        ("/v1/completions", b'{"model":"fake","prompt":[' + b'"a",' * (MIB - 100) + b'"a"]}'),
        ("/v1/completions", b'{"model":"fake","metadata":{' + b",".join(b'"k%d":{}' % i for i in range(4000)) + b"}}"),
        ("/v1/completions", {**one, "prompt": text}),
        ("/v1/completions", {**one, "prompt": text, "echo": True, "n": 16}),
        ("/v1/completions", {**one, "prompt": "\u0007" * (600 * 1024)}),
        ("/v1/chat/completions", {**chat, "messages": [{"role": "user", "content": "x" * 900}] * 4096}),
        ("/v1/chat/completions", {**chat, "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}] * 60000}]}),
        ("/v1/chat/completions", {**chat, "messages": [{"role": "user", "content": "hi"}], "stop": ["y" * 1024] * 16}),
        ("/v1/completions", {**one, "stop": ["y"] * 400000}),
        ("/v1/completions", {**one, "logit_bias": {str(i): 1 for i in range(200)}}),
        ("/v1/completions", {**one, "logit_bias": {str(i): -100 for i in range(4096)}}),
        ("/v1/completions", {**one, "logit_bias": {f"{i:0900d}": 1 for i in range(4000)}}),
        ("/tokenize", {"model": "fake", "content": text[:MIB], "with_pieces": True}),
        ("/tokenize", {"model": "fake", "content": text[:MIB]}),
        ("/detokenize", b'{"model":"fake","tokens":[%s]}' % ids.encode()),
        ("/aned/v1/sessions", b'{"model":"fake","tokens":[%s]}' % ids.encode()),
        ("/aned/v1/sessions", {"model": "fake", "prompt": text[:MIB]}),
        ("/aned/v1/jobs", {"source": "/dev/null/" + "x" * 200000}),
    ]


def slow_machine():
    """How much slower than one on which the loop used at most 16 ms this machine is now, at least 1: the CPU time of reading a
    million numbers as JSON (33 ms on that one), which is like the loop's largest piece of work. Two threads on one core slow each
    other down, and that is not the loop's doing."""
    text = "[" + "7," * MIB + "7]"

    def once():
        began = time.thread_time()
        json.loads(text)
        return time.thread_time() - began
    return max(1.0, sorted(once() for _ in range(5))[2] / 0.033)


# Of CPU time between two polls, on the machine that slow_machine compares with. Such a one needs 16 ms for the largest piece, a Zen 3
# with AVX2 alone 21 to 25 of this measure, since C and Python are not slower there by one factor; a piece without a bound takes hundreds.
LIMIT_MS = 32


def within(d, what, told, name):
    """Do it; the loop stayed within its limit. What the kernel charges to a thread that happens to run (interrupts, stolen time)
    is not the loop's work and does not come every time."""
    slow = 1.0
    for _ in range(5):
        before = metric(d, "loop_cpu_over_total")
        what()
        most = metric(d, "loop_cpu_max_seconds") * 1000
        if metric(d, "loop_cpu_over_total") == before or most <= LIMIT_MS * slow:
            break
        slow = max(slow, slow_machine())
    else:
        pytest.fail(f"{name}: {most:.1f} ms between two polls, five times of five, on a machine {slow:.1f} times slower; {told}")
    told[name] = round(most, 1)


@pytest.mark.skipif("asan" in BIN.name, reason="a sanitizer costs what it costs")
def test_the_loop_between_two_polls(fake, tmp_path):
    d = fake(fake=WIDE, context=2048)
    assert d.stop() == 0
    many_jobs(d.home, 1000, 2)
    d.start()
    told = {}
    until(lambda: len(get(d, "/aned/v1/jobs").json()["jobs"]) == 1000)
    large = bodies()

    def body(i, right):
        path, content = large[i % len(large)]
        status, answer = post(d, path, content)
        assert status in right, (path, status, str(answer)[:300])
    for i in range(len(large)):
        within(d, lambda: body(i, (200, 201, 400, 413)), told, f"body {i}")
    wide = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "n": 16, "logprobs": True, "top_logprobs": 20,
            "max_tokens": 900}
    within(d, lambda: post(d, "/v1/chat/completions", wide), told, "n 16, 20 logprobs")
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        def together(what, times):
            list(pool.map(what, range(times)))
        made = {"model": "fake", "tokens": [65] * 400}
        within(d, lambda: together(lambda i: post(d, "/aned/v1/sessions", made), 330), told, "sessions made")
        assert len(get(d, "/aned/v1/sessions").json()["sessions"]) >= 330
        for path in ("/aned/v1/sessions", "/aned/v1/jobs", "/metrics", "/aned/v1/models", "/aned/v1/status"):
            within(d, lambda: together(lambda i: get(d, path).raise_for_status(), 16), told, f"16 times {path}")
        within(d, lambda: together(lambda i: body(i, (200, 201, 400, 413, 503)), 48), told, "all of it at once")
    print("\nthe loop's maximum until then, ms:", told)


def logprobs_of(r):
    return [len(x["logprobs"]["content"]) for x in r["choices"]]


def test_an_answer_is_bounded(fake):
    """135 bytes that asked for 25 MiB: an answer of 16 MiB, ended with "length" like one that reached max_tokens."""
    d = fake(fake=WIDE, context=2048)
    body = {"model": "fake", "messages": [{"role": "user", "content": "x"}], "n": 16, "logprobs": True, "top_logprobs": 20,
            "max_tokens": 1500}
    assert post(d, "/v1/chat/completions", {**body, "max_tokens": 2})[0] == 200
    before = peak_kib(d)
    status, r = post(d, "/v1/chat/completions", body)
    assert status == 200
    assert "asan" in BIN.name or peak_kib(d) - before < 80 * 1024
    assert {x["finish_reason"] for x in r["choices"]} == {"length"} and r["timings"]["answer_limit_reached"] is True
    n = logprobs_of(r)
    assert max(n) - min(n) <= 4 and 200 < min(n) and max(n) < 1500, n
    for x in r["choices"]:
        assert "".join(t["token"] for t in x["logprobs"]["content"]) == x["message"]["content"]
        assert all(len(t["top_logprobs"]) == 20 for t in x["logprobs"]["content"])
    assert sum(n) == r["usage"]["completion_tokens"]
    assert metric(d, "answers_held_bytes") == 0
    one = post(d, "/v1/chat/completions", {**body, "n": 1, "max_tokens": 1500})[1]  # what a client may well want
    assert logprobs_of(one) == [1500] and "answer_limit_reached" not in one["timings"]


def test_all_answers_are_bounded(fake):
    """Many of them at once: who finds no room is told to come again, and the others get theirs."""
    d = fake(fake=WIDE, context=8192, conf="[limits]\nstreams = 32\n")
    body = {"model": "fake", "messages": [{"role": "user", "content": "x"}], "n": 2, "logprobs": True, "top_logprobs": 20,
            "max_tokens": 8000}
    assert post(d, "/v1/chat/completions", {**body, "max_tokens": 1})[0] == 200
    begun = metric(d, "generations_total")
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        with stopped(engine_pid(d, "fake")):  # none is over before all are there
            answers = [pool.submit(post, d, "/v1/chat/completions", {**body, "seed": i}) for i in range(16)]
            until(lambda: metric(d, "generations_total") == begun + 16)
        answers = [x.result() for x in answers]
    codes = [s for s, _ in answers]
    assert set(codes) == {200, 503}, codes
    assert all(r["error"]["code"] == "busy" for s, r in answers if s == 503)
    assert metric(d, "answers_held_bytes") == 0


@pytest.mark.skipif(sys.platform != "linux" or "asan" in BIN.name, reason="LD_PRELOAD beside a sanitizer")
def test_the_loop_opens_no_file(fake, tmp_path, demo_gguf):
    """No call that may block is made by the loop's thread once the daemon is up: tests/unit/serve/watch_calls.c tells. Files of
    /proc, /sys and /dev are the kernel's memory."""
    calls = tmp_path / "calls"
    d = fake(fake=WIDE, conf="[speculation]\nshare_tokens = 1024\n",
             env={"LD_PRELOAD": str(BIN / "tests" / "unit" / "serve" / "watch_calls.so"), "WATCH_CALLS": str(calls)})
    assert calls.stat().st_size > 0, "nothing was watched"
    until(lambda: get(d, "/health").status_code == 200)
    begin = calls.stat().st_size
    chat = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 20}
    assert post(d, "/v1/chat/completions", chat)[0] == 200  # loads the model
    assert post(d, "/v1/chat/completions", {**chat, "n": 4, "logprobs": True, "top_logprobs": 20, "max_tokens": 400})[0] == 200
    assert post(d, "/tokenize", {"model": "fake", "content": "x" * 100000, "with_pieces": True})[0] == 200
    status, s = post(d, "/aned/v1/sessions", {"model": "fake", "prompt": "hello"})
    assert status == 201
    assert post(d, f"/aned/v1/sessions/{s['id']}/generate", {"max_tokens": 4})[0] == 200
    for path in ("/metrics", "/v1/models", "/aned/v1/models", "/aned/v1/status", "/aned/v1/jobs", "/aned/v1/sessions"):
        assert get(d, path).status_code == 200
    with d.http() as c:
        assert c.delete(f"/aned/v1/sessions/{s['id']}").status_code == 200
        assert c.post("/aned/v1/models/fake/unload").status_code == 200
        assert c.post("/aned/v1/models/fake/verify").status_code == 202
        until(lambda: c.get("/aned/v1/models/fake").json()["verification"]["state"] == "verified")
        assert c.post("/aned/v1/jobs", json={"source": "/nowhere", "name": "x"}).status_code == 400
    assert d.convert(demo_gguf, "demo")["state"] == "done"
    assert d.convert(__file__, "broken")["state"] == "failed"
    with d.http() as c:
        assert c.delete("/aned/v1/models/demo").status_code == 200
        assert c.delete("/aned/v1/models/fake").status_code == 200
    made = calls.read_text()[begin:].splitlines()
    assert not [x for x in made if not x.split(" ", 1)[1].startswith(("/proc/", "/sys/", "/dev/"))], made
