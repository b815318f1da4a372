"""Embeddings of a decoder, pooled by its engine: in every dialect, in any company, with clients that leave and engines that
die. What the vectors are: test_pooling.py."""
import base64
import concurrent.futures
import json
import os
import signal
import socket
import subprocess
import time

import numpy as np
import ollama
import openai
import pytest

from conftest import converted, engine_pid, metric, status, until, wait_idle

TEXT = "The daemon runs a model on the Neural Engine. It answers on a socket, and keeps what it computed."
TEXTS = [TEXT, TEXT[::-1], TEXT * 3, "x", TEXT[:40]]


def post(d, path="/v1/embeddings", **body):
    with d.http() as c:
        return c.post(path, json={"model": "demo", **body})


def ids_of(d, text):
    return post(d, "/tokenize", content=text, add_special=True).json()["tokens"]


def vectors(d, **body):
    r = post(d, **body)
    assert r.status_code == 200, r.text
    data = r.json()["data"]
    assert [x["index"] for x in data] == list(range(len(data))) and {x["object"] for x in data} == {"embedding"}
    return np.array([x["embedding"] for x in data], dtype=np.float32)


@pytest.fixture(scope="module")
def alone(daemon):
    """Each text's vector, asked for alone."""
    return np.concatenate([vectors(daemon, input=t) for t in TEXTS])


def test_lengths_and_usage(daemon, alone):
    assert np.abs(np.linalg.norm(alone.astype(np.float64), axis=1) - 1).max() < 1e-6
    x = post(daemon, input=TEXTS).json()
    n = sum(len(ids_of(daemon, t)) for t in TEXTS)
    assert x["object"] == "list" and x["model"] == "demo" and x["usage"] == {"prompt_tokens": n, "total_tokens": n}
    assert (alone[0] @ alone[1:].T < 0.9999).all(), "other texts have other vectors"


def test_the_same_bits_in_any_company(daemon, alone):
    """In a list, twice, as ids, as base64, among others and among streams: bit by bit."""
    ids = [ids_of(daemon, t) for t in TEXTS]
    assert np.array_equal(vectors(daemon, input=TEXTS), alone)
    assert np.array_equal(vectors(daemon, input=TEXTS + TEXTS[::-1]), np.concatenate([alone, alone[::-1]]))
    assert np.array_equal(vectors(daemon, input=ids), alone)
    assert np.array_equal(vectors(daemon, input=ids[0]), alone[:1])
    packed = post(daemon, input=TEXTS, encoding_format="base64").json()["data"]
    assert np.array_equal(np.array([np.frombuffer(base64.b64decode(x["embedding"]), "<f4") for x in packed]), alone)
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        noise = [pool.submit(post, daemon, "/v1/completions", prompt=TEXT[:40], max_tokens=60, seed=i) for i in range(3)]
        runs = [pool.submit(vectors, daemon, input=TEXTS[i % 5:] + TEXTS[:i % 5]) for i in range(12)]
        for i, r in enumerate(runs):
            assert np.array_equal(r.result(), np.roll(alone, -(i % 5), axis=0))
        assert all(r.result().status_code == 200 for r in noise)
    wait_idle(daemon)


def test_streams_draw_the_same_beside_them(make_daemon, demo_home, tmp_path):
    """... and what is warm stays so, unless the machine is short of memory: embedded texts leave nothing."""
    (tmp_path / "calm").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
    (tmp_path / "aned.conf").write_text(f"[limits]\npressure_file = {tmp_path / 'calm'}\n")
    d = make_daemon(home=demo_home, args=["--config", tmp_path / "aned.conf"])

    def draw():
        return post(d, "/v1/completions", prompt=TEXT, max_tokens=30, seed=3).json()
    before = draw()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        noise = [pool.submit(vectors, d, input=TEXTS * 4) for _ in range(2)]
        during = [pool.submit(draw) for _ in range(2)]
        assert all(r.result()["choices"][0]["text"] == before["choices"][0]["text"] for r in during)
        for r in noise:
            r.result()
    wait_idle(d)
    assert draw()["usage"]["prompt_tokens_details"]["cached_tokens"] > 10, "the prompt is still warm"
    new = "A text that was embedded, and that nobody has continued before."
    vectors(d, input=new)
    x = post(d, "/v1/completions", prompt=new, max_tokens=1).json()
    assert x["usage"]["prompt_tokens_details"]["cached_tokens"] < 3


def test_llama_servers_form(daemon, alone):
    for path in ("/embedding", "/embeddings"):
        x = post(daemon, path, content=TEXTS).json()
        assert [y["index"] for y in x] == list(range(5)) and all(len(y["embedding"]) == 1 for y in x)
        assert np.array_equal(np.array([y["embedding"][0] for y in x], np.float32), alone)
    x = post(daemon, "/embedding", input=TEXT).json()
    assert np.array_equal(np.array(x[0]["embedding"][0], np.float32), alone[0])
    raw = np.array(post(daemon, "/embedding", content=TEXT, embd_normalize=-1).json()[0]["embedding"][0])
    assert abs(np.linalg.norm(raw) - 1) > 1e-3
    assert np.abs(raw / np.linalg.norm(raw) - alone[0]).max() < 1e-6


def test_ollamas_forms(daemon, alone):
    x = post(daemon, "/api/embed", input=TEXTS, options={"temperature": 0.5}, keep_alive="10m").json()
    assert np.array_equal(np.array(x["embeddings"], np.float32), alone)
    n = sum(len(ids_of(daemon, t)) for t in TEXTS)
    assert x["model"] == "demo" and x["prompt_eval_count"] == n and x["total_duration"] > 0
    x = post(daemon, "/api/embeddings", prompt=TEXT).json()
    assert list(x) == ["embedding"] and np.array_equal(np.array(x["embedding"], np.float32), alone[0])
    assert post(daemon, "/api/embed").json()["embeddings"] == [] == post(daemon, "/api/embeddings", prompt="").json()["embedding"]
    r = post(daemon, "/api/embed", input=[[1, 2]])
    assert r.status_code == 400 and list(r.json()) == ["error"]


def test_lm_studios_name(daemon, alone):
    assert np.array_equal(vectors(daemon, path="/api/v0/embeddings", input=TEXTS, ttl=600), alone)


def test_texts_beyond_the_context(daemon):
    long = TEXT * 40
    r = post(daemon, input=["a", long])
    assert r.status_code == 400, r.text
    e = r.json()["error"]
    assert e["code"] == "context_length_exceeded" and e["param"] == "input" and "input 1 has" in e["message"] and "512" in e["message"]
    ids = ids_of(daemon, long)
    want = vectors(daemon, input=ids[:512])
    for path, body in (("/api/embed", {"input": long}), ("/api/embeddings", {"prompt": long})):
        x = post(daemon, path, **body).json()
        got = x["embeddings"][0] if "embeddings" in x else x["embedding"]
        assert np.array_equal(np.array(got, np.float32), want[0])
    r = post(daemon, "/api/embed", input=long, truncate=False)
    assert r.status_code == 400 and "512" in r.json()["error"]


REFUSED = [
    ({}, "input"), ({"input": None}, "input"), ({"input": []}, "input"), ({"input": 3}, "input"), ({"input": [[]]}, "input"),
    ({"input": ["a", 3]}, "input"), ({"input": [1, "a"]}, "input"), ({"input": [1.5]}, "input"), ({"input": [-1]}, "input"),
    ({"input": {"a": 1}}, "input"), ({"input": [10**6 - 1]}, "input"), ({"input": ["a"] * 2049}, "input"),
    ({"input": "a", "encoding_format": "int8"}, "encoding_format"), ({"input": "a", "dimensions": 32769}, "dimensions"),
    ({"input": "a", "dimensions": 0}, "dimensions"), ({"input": "a", "embd_normalize": 1}, "embd_normalize"),
    ({"input": "a", "truncate": True}, "truncate"), ({"input": "a", "nonsense": 1}, "nonsense"), ({"input": "a", "user": 1}, "user"),
    ({"input": "a", "model": "none"}, "model"),
]


@pytest.mark.parametrize("body,param", REFUSED)
def test_refused_by_name(daemon, body, param):
    r = post(daemon, **body)
    e = r.json()["error"]
    assert r.status_code in (400, 404, 413) and e["param"] == param and param in e["message"].replace("'none'", "model"), e


def test_taken(daemon, alone):
    d = alone.shape[1]
    got = vectors(daemon, input=TEXTS, dimensions=d, user="me", service_tier="flex", encoding_format="float", keep_alive=600)
    assert np.array_equal(got, alone)


def unit(v):
    return v / np.linalg.norm(v, axis=-1, keepdims=True)


def test_dimensions(daemon, alone):
    """The first numbers, of length 1 again, in each dialect that has them; as the model has them where that is asked for."""
    width = alone.shape[1]
    for n in (1, 7, width - 1, width):
        want = unit(alone[:, :n].astype(float))
        got = vectors(daemon, input=TEXTS, dimensions=n)
        assert got.shape == want.shape and np.abs(got - want).max() < 1e-6
        x = post(daemon, input=TEXTS, dimensions=n, encoding_format="base64").json()["data"]
        assert [base64.b64decode(y["embedding"]) for y in x] == [v.astype("<f4").tobytes() for v in got]
        x = post(daemon, "/api/embed", input=TEXTS, dimensions=n).json()["embeddings"]
        assert np.array_equal(np.array(x, np.float32), got)
        x = post(daemon, "/embedding", content=TEXTS, dimensions=n).json()
        assert np.array_equal(np.array([y["embedding"][0] for y in x], np.float32), got)
    raw = vectors(daemon, input=TEXTS, embd_normalize=-1)
    assert np.array_equal(vectors(daemon, input=TEXTS, embd_normalize=-1, dimensions=7), raw[:, :7])
    r = post(daemon, input="a", dimensions=width + 1)
    assert r.status_code == 400 and r.json()["error"]["param"] == "dimensions" and f"have {width} numbers" in r.text


def test_many(daemon):
    """More texts than run at once, or fit the queue."""
    texts = [f"{i} is a number." for i in range(300)]
    all_of_them = vectors(daemon, input=texts)
    for i in (0, 150, 299):
        assert np.array_equal(vectors(daemon, input=texts[i]), all_of_them[i:i + 1])


def test_metrics(daemon):
    names = ["embeddings_total", "embeddings_failed_total", "embedded_texts_total", "embedded_tokens_total"]
    before = [metric(daemon, n) for n in names]
    vectors(daemon, input=TEXTS)
    assert post(daemon, input=TEXT * 40).status_code == 400
    after = [metric(daemon, n) for n in names]
    tokens = sum(len(ids_of(daemon, t)) for t in TEXTS)
    assert [b - a for a, b in zip(before, after)] == [2, 1, 5, tokens]


def test_clients_that_leave(daemon):
    """In any phase: nothing of them runs on, and nobody else notices."""
    body = b'{"model":"demo","input":[%s]}' % b",".join(b'"' + TEXT.encode() * 3 + b'"' for _ in range(100))
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    for delay in (0, 0.005, 0.02, 0.1):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(daemon.sock))
            s.sendall(head + body)
            time.sleep(delay)
    wait_idle(daemon)
    assert vectors(daemon, input="x").shape[0] == 1


def test_an_engine_that_dies(make_daemon, demo_home):
    d = make_daemon(home=demo_home)
    want = vectors(d, input=TEXTS * 20)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        run = pool.submit(vectors, d, input=TEXTS * 20)
        until(lambda: status(d)["running"] > 0)
        os.kill(engine_pid(d, "demo"), signal.SIGKILL)
        assert np.array_equal(run.result(), want)


def test_a_model_without_logits(daemon, demo_gguf):
    """One that gives only its likeliest token has hidden states too."""
    with converted(daemon, demo_gguf, "tops", context=512, output="argmax"):
        assert np.array_equal(vectors(daemon, model="tops", input=TEXTS), vectors(daemon, input=TEXTS))


def test_openais_client(daemon, alone):
    """It asks for base64 by itself, and for floats when it is told to."""
    client = openai.OpenAI(base_url="http://aned/v1", api_key="x", http_client=daemon.http(), max_retries=0)
    for more in ({}, {"encoding_format": "float"}, {"dimensions": alone.shape[1], "user": "me"}):
        r = client.embeddings.create(model="demo", input=TEXTS, **more)
        assert np.array_equal(np.array([x.embedding for x in r.data], np.float32), alone)
        assert r.usage.prompt_tokens == r.usage.total_tokens > 100 and r.model == "demo"
    with pytest.raises(openai.BadRequestError, match="context"):
        client.embeddings.create(model="demo", input=TEXT * 40)


def test_ollamas_client(daemon, alone):
    client = ollama.Client(host="http://aned")
    client._client = daemon.http()
    r = client.embed(model="demo", input=TEXTS)
    assert np.array_equal(np.array(r.embeddings, np.float32), alone) and r.prompt_eval_count > 100
    assert np.array_equal(np.array(client.embeddings(model="demo", prompt=TEXT).embedding, np.float32), alone[0])
    assert len(client.embed(model="demo", input=TEXT * 40).embeddings) == 1
    with pytest.raises(ollama.ResponseError, match="512"):
        client.embed(model="demo", input=TEXT * 40, truncate=False)


def test_anectl(daemon, anectl, alone):
    def say(*args, text=None):
        return subprocess.run([anectl, "--socket", daemon.sock, "embed", "demo", *args], input=text, capture_output=True, text=True)
    got = say("-l", text="\n".join(["", *TEXTS, ""]))
    assert got.returncode == 0 and np.array_equal(np.loadtxt(got.stdout.splitlines()).astype(np.float32), alone), got.stderr
    assert np.array_equal(np.loadtxt(say(TEXT).stdout.splitlines()).astype(np.float32), alone[0])
    assert np.array_equal(np.loadtxt(say("-", text=TEXT).stdout.splitlines()).astype(np.float32), alone[0])
    x = json.loads(say("--json", TEXT).stdout)
    assert np.array_equal(np.array(x["data"][0]["embedding"], np.float32), alone[0])
    raw = np.loadtxt(say("--raw", TEXT).stdout.splitlines())
    assert np.abs(raw / np.linalg.norm(raw) - alone[0]).max() < 1e-6
    wrong = say("-l", text="\n\n")
    assert wrong.returncode != 0 and "input" in wrong.stderr


def test_a_model_that_labels_tokens(daemon, shared):
    """It is refused by name, and says what it does instead."""
    gguf = shared / "data" / "families" / "privacy-filter" / "a" / "model.gguf"
    if not gguf.exists():
        pytest.skip(f"{gguf} is not there")
    with converted(daemon, gguf, "labels", quant="fp16"):
        for path, body in (("/v1/embeddings", {"input": "a"}), ("/api/embed", {"input": "a"}), ("/embedding", {"content": "a"})):
            r = post(daemon, path, model="labels", **body)
            assert r.status_code == 400 and "labels tokens" in r.text and "/aned/v1/classify" in r.text, r.text
