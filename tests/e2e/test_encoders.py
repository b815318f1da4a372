"""Encoders that give embeddings and nothing else: in every dialect, in any company, with clients that leave and an engine that
dies. What their numbers are: tests/oracle/test_bert.py."""
import concurrent.futures
import json
import os
import signal
import socket
import subprocess
import time

import numpy as np
import pytest

from bert_tiny import Tiny
from conftest import Daemon, engine_pid, metric, status, until

TEXT = "The daemon runs a model on the neural engine, and keeps what it computed."
TEXTS = [TEXT, TEXT[::-1], TEXT * 3, "x", TEXT[:40]]
CLOSE = 0.9999
CLS, SEP = 2, 3
MODELS = {"bert": ("bert", "cls"), "nomic": ("nomic-bert", "mean"), "unsaid": ("bert", None)}


@pytest.fixture(scope="module")
def daemon(aned, tmp_path_factory):
    tmp = tmp_path_factory.mktemp("encoders")
    d = Daemon(aned, home=tmp / "home")
    for name, (arch, pooling) in MODELS.items():
        source = Tiny(arch).write(tmp / f"{name}.gguf", pooling=pooling)
        assert d.convert(source, name, quant="fp16")["state"] == "done"
    yield d
    assert d.close() == 0


def post(d, path="/v1/embeddings", **body):
    with d.http() as c:
        return c.post(path, json={"model": "bert", **body})


def vectors(d, **body):
    r = post(d, **body)
    assert r.status_code == 200, r.text
    return np.array([x["embedding"] for x in r.json()["data"]], np.float32)


def ids_of(d, text, model="bert"):
    """As an encoder reads it."""
    return post(d, "/tokenize", model=model, content=text, add_special=True).json()["tokens"]


def unit(v):
    return v / np.linalg.norm(v)


@pytest.fixture(scope="module")
def alone(daemon):
    return np.concatenate([vectors(daemon, input=t) for t in TEXTS])


@pytest.mark.parametrize("model", MODELS)
def test_vectors(daemon, model):
    arch, pooling = MODELS[model]
    tiny = Tiny(arch)
    got = vectors(daemon, model=model, input=TEXTS)
    for v, text in zip(got, TEXTS):
        ids = ids_of(daemon, text, model)
        assert ids[0] == CLS and ids[-1] == SEP and ids.count(SEP) == 1 and 1 not in ids, "everything is known"
        plain = post(daemon, "/tokenize", model=model, content=text).json()["tokens"]
        assert plain == ids[1:-1] and post(daemon, "/tokenize", model=model, prompt=text).json()["tokens"] == ids
        assert unit(tiny.vector(ids, pooling or "mean")) @ v > CLOSE
        assert abs(np.linalg.norm(v.astype(float)) - 1) < 1e-6


def test_every_dialect(daemon, alone):
    x = post(daemon, input=TEXTS).json()
    n = sum(len(ids_of(daemon, t)) for t in TEXTS)
    assert x["usage"] == {"prompt_tokens": n, "total_tokens": n}
    assert np.array_equal(vectors(daemon, path="/api/v0/embeddings", input=TEXTS), alone)
    assert np.array_equal(vectors(daemon, input=[ids_of(daemon, t) for t in TEXTS]), alone)
    x = post(daemon, "/embedding", content=TEXTS).json()
    assert np.array_equal(np.array([y["embedding"][0] for y in x], np.float32), alone)
    x = post(daemon, "/api/embed", input=TEXTS).json()
    assert np.array_equal(np.array(x["embeddings"], np.float32), alone) and x["prompt_eval_count"] == n
    assert np.array_equal(np.array(post(daemon, "/api/embeddings", prompt=TEXT).json()["embedding"], np.float32), alone[0])


def test_the_same_bits_in_any_company(daemon, alone):
    assert np.array_equal(vectors(daemon, input=TEXTS + TEXTS[::-1]), np.concatenate([alone, alone[::-1]]))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        runs = [pool.submit(vectors, daemon, input=TEXTS[i % 5:] + TEXTS[:i % 5]) for i in range(16)]
        for i, r in enumerate(runs):
            assert np.array_equal(r.result(), np.roll(alone, -(i % 5), axis=0))
    texts = [f"{i} is a number." + " far" * (i % 90) for i in range(300)]  # as many as fit go together
    many = vectors(daemon, input=texts)
    for i in range(0, 300, 7):
        assert np.array_equal(vectors(daemon, input=texts[i]), many[i:i + 1])


def test_each_waits_for_its_own(daemon, alone):
    """Requests of several lengths at once, and some whose clients leave: the others' texts share runs with theirs."""
    def leave(i):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(daemon.sock))
            body = json.dumps({"model": "bert", "input": TEXTS * 40}).encode()
            s.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(0.003 * i)
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        left = [pool.submit(leave, i) for i in range(12)]
        runs = [pool.submit(vectors, daemon, input=TEXTS * (1 + i % 3) + [TEXTS[i % 5]]) for i in range(24)]
        for i, r in enumerate(runs):
            assert np.array_equal(r.result(), np.concatenate([alone] * (1 + i % 3) + [alone[i % 5:i % 5 + 1]]))
        for x in left:
            x.result()


def test_texts_beyond_the_context(daemon):
    long = TEXT * 40
    ids = ids_of(daemon, long)
    r = post(daemon, input=["a", long])
    assert r.status_code == 400 and r.json()["error"]["code"] == "context_length_exceeded" and "300" in r.text
    want = vectors(daemon, input=ids[:299] + [SEP])
    for path, body in (("/api/embed", {"input": long}), ("/api/embeddings", {"prompt": long})):
        x = post(daemon, path, **body).json()
        got = x["embeddings"][0] if "embeddings" in x else x["embedding"]
        assert np.array_equal(np.array(got, np.float32), want[0])
    r = post(daemon, "/api/embed", input=long, truncate=False)
    assert r.status_code == 400 and "300" in r.json()["error"]


@pytest.mark.parametrize("path, body", [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}), ("/v1/completions", {"prompt": "a"}),
    ("/api/generate", {"prompt": "a"}), ("/api/chat", {"messages": [{"role": "user", "content": "a"}]}),
    ("/completion", {"prompt": "a"}), ("/aned/v1/classify", {"input": "a"}), ("/aned/v1/redact", {"input": "a"})])
def test_what_it_does_not(daemon, path, body):
    r = post(daemon, path, **body)
    assert r.status_code == 400 and "bert is an encoder that gives embeddings" in r.text, r.text


def test_what_it_says_of_itself(daemon):
    with daemon.http() as c:
        for name in MODELS:
            assert c.post("/api/show", json={"model": name}).json()["capabilities"] == ["embedding"]
        m = c.get("/aned/v1/models/bert").json()
    assert m["kind"] == "encoder" and "labels" not in m and m["heads"] == 0 and m["context"] == 300


def test_metrics(daemon):
    names = ["embeddings_total", "embedded_texts_total", "embedded_tokens_total", "labelled_texts_total"]
    before = [metric(daemon, n) for n in names]
    vectors(daemon, input=TEXTS)
    tokens = sum(len(ids_of(daemon, t)) for t in TEXTS)
    assert [metric(daemon, n) - b for n, b in zip(names, before)] == [1, 5, tokens, 0]


def test_clients_that_leave(daemon, alone):
    """In any phase: others have the engine afterwards."""
    body = b'{"model":"bert","input":[%s]}' % b",".join(b'"' + TEXT.encode() * 3 + b'"' for _ in range(300))
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    for delay in (0, 0.005, 0.02, 0.1):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(daemon.sock))
            s.sendall(head + body)
            time.sleep(delay)
    assert np.array_equal(vectors(daemon, input=TEXTS), alone)


def test_an_engine_that_dies(daemon, alone):
    failed = metric(daemon, "embeddings_failed_total")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        texts = [TEXT * 3] * 400
        done = metric(daemon, "embedded_texts_total")
        run = pool.submit(vectors, daemon, input=texts)
        until(lambda: metric(daemon, "embedded_texts_total") > done)
        os.kill(engine_pid(daemon, "bert"), signal.SIGKILL)
        assert np.array_equal(run.result(), np.repeat(alone[2:3], len(texts), axis=0))
    assert metric(daemon, "embeddings_failed_total") == failed


def test_threads_change_nothing(aned, daemon, alone, tmp_path):
    (tmp_path / "aned.conf").write_text("[engine]\nthreads = 1\n")
    source = Tiny("bert").write(tmp_path / "m.gguf", pooling="cls")
    d = Daemon(aned, home=tmp_path / "home", args=["--config", tmp_path / "aned.conf"])
    try:
        assert d.convert(source, "bert", quant="fp16")["state"] == "done"
        assert np.array_equal(vectors(d, input=TEXTS), alone)
    finally:
        assert d.close() == 0


def test_anectl(daemon, anectl, alone, tmp_path):
    def say(*args, text=None):
        return subprocess.run([anectl, "--socket", daemon.sock, *args], input=text, capture_output=True, text=True)
    got = say("embed", "bert", "-l", text="\n".join(["", *TEXTS, ""]))
    assert np.array_equal(np.loadtxt(got.stdout.splitlines()).astype(np.float32), alone), got.stderr
    x = json.loads(say("embed", "bert", "--json", TEXT).stdout)
    assert np.array_equal(np.array(x["data"][0]["embedding"], np.float32), alone[0])
    for args in (("redact", "--model", "bert", "-"), ("run", "bert", "a")):
        r = say(*args, text="a\n")
        assert r.returncode != 0 and "gives embeddings" in r.stderr, (args, r.stderr)
    r = say("redact", "-", text="a\n")
    assert r.returncode != 0 and "no model here labels text" in r.stderr
    source = Tiny("bert", layers=1).write(tmp_path / "small.gguf")
    r = say("convert", str(source), "--name", "small")
    assert r.returncode == 0 and r.stdout.endswith("next: anectl embed small TEXT\n"), r.stdout + r.stderr
