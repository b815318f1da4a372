"""Texts are labelled: /aned/v1/classify, /aned/v1/redact and `anectl redact` with the tiny Privacy Filter, against a decode of
our own (tests/oracle/tagger.py). sentences.jsonl has 200 sentences of our own making in many scripts, with emoji, combining
marks and all line ends, and what is private in them; the model's weights are random, so what it finds is something else."""
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time

import gguf
import httpx
import numpy as np
import pytest

from conftest import SLOW_S, TOP, Daemon, until

sys.path.insert(0, str(TOP / "tests" / "oracle"))
from tagger import Weights, spans, tag_logits, viterbi  # noqa: E402

SENTENCES = [json.loads(x) for x in (TOP / "tests" / "e2e" / "sentences.jsonl").read_text().splitlines()]
SPACE = " \t\n\v\f\r\u00a0\u2028\u2029\u3000"
SAME = 0.97  # of the sentences: in the others an expert is chosen by a hair


class Tagged:
    def __init__(self, aned, source, place):
        self.source, self.aned, self.place = source, aned, place
        self.d = Daemon(aned, home=place / "home")
        job = self.d.convert(source, "pf", quant="fp16")
        assert job["state"] == "done", job
        self.weights = Weights(source)
        self.bundle = next(p.parent for p in (place / "home").rglob("bundle.json"))
        self.pieces = [to_bytes(t) for t in gguf.GGUFReader(source).fields["tokenizer.ggml.tokens"].contents()]

    def post(self, path, code=200, **body):
        with self.d.http() as c:
            r = c.post(path, json=body)
        assert r.status_code == code, r.text
        return r.json()

    def classify(self, text, **more):
        return self.post("/aned/v1/classify", input=text, **more)["results"][0]["spans"]

    def tokens(self, text):
        return self.post("/tokenize", content=text, parse_special=False)["tokens"]

    def logits(self, tokens):
        np.save(self.place / "t.npy", np.array(tokens, np.int32))
        subprocess.run([self.aned, "logits", self.bundle, self.place / "t.npy", self.place / "l.npy"], check=True)
        return np.load(self.place / "l.npy")

    def engine(self):
        with self.d.http() as c:
            return c.get("/aned/v1/models/pf").json()["engine"]


def to_bytes(token):
    """Of a piece as GPT-2's byte-level BPE writes it."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    back = {chr(b): b for b in keep}
    others = [b for b in range(256) if b not in keep]
    back.update({chr(256 + i): b for i, b in enumerate(others)})
    return bytes(back[c] for c in token) if all(c in back for c in token) else token.encode()


def places(tagged, text, tokens, path):
    """(label, first character, one after the last) of the path's spans: whole characters, no white space at the ends."""
    whole, edges, byte = text.encode(), [], [0]
    for c in text:
        byte.append(byte[-1] + len(c.encode()))
    at = 0
    for t in tokens:
        assert whole[at:].startswith(tagged.pieces[t])
        at += len(tagged.pieces[t])
        edges.append(at)
    assert at == len(whole)
    found, least = [], 0
    for label, first, last in spans(tagged.weights.labels, path):
        a = edges[first - 1] if first else 0
        b = edges[last - 1]
        a = max(max(i for i, x in enumerate(byte) if x <= a), least)
        b = min(i for i, x in enumerate(byte) if x >= b)
        while a < b and text[a] in SPACE:
            a += 1
        while a < b and text[b - 1] in SPACE:
            b -= 1
        if a < b:
            found.append((label, a, b))
            least = b
    return found


def short(answer):
    return [(s["label"], s["start"], s["end"]) for s in answer]


@pytest.fixture(scope="module")
def tagged(aned, shared, tmp_path_factory):
    source = shared / "data" / "families" / "privacy-filter" / "a" / "model.gguf"
    if not source.exists():
        pytest.skip(f"{source} is not there")
    x = Tagged(aned, source, tmp_path_factory.mktemp("redact"))
    yield x
    assert x.d.close() == 0


@pytest.fixture(scope="module")
def run(anectl, tagged):
    def call(*args, stdin=b"", code=0):
        r = subprocess.run([anectl, "redact", *map(str, args)], input=stdin, capture_output=True, timeout=300 * SLOW_S,
                           env={**os.environ, "ANED_SOCKET": str(tagged.d.sock)})
        assert r.returncode == code, (args, r.returncode, r.stdout[-300:], r.stderr)
        return r
    return call


def lines(n):
    """Text of n bytes at least, whose lines are all different."""
    out = []
    i = size = 0
    while size < n:
        s = SENTENCES[i % len(SENTENCES)]["text"].strip(SPACE + "\ufeff")
        out.append(f"{i}. {s}{(chr(10), chr(13) + chr(10))[i % 2]}")
        size += len(out[-1].encode())
        i += 1
    return "".join(out)


# --- spans -----------------------------------------------------------------

def test_sentences_are_what_they_say():
    assert len(SENTENCES) == 200 and len({s["language"] for s in SENTENCES}) == 25
    for s in SENTENCES:
        for x in s["spans"]:
            piece = s["text"][x["start"]:x["end"]]
            assert piece and piece.strip(SPACE) == piece, (s, x)
    text = "".join(s["text"] for s in SENTENCES)
    assert all(x in text for x in ("\r\n", "\u200d", "e\u0301", "住", "\u3000", "\ufeff"))


def test_sentences(tagged):
    """Paths of the engine's own logits, decoded by another: all spans are the same. So they are from logits in float64, but
    where an expert was chosen by less than fp32 tells."""
    texts = [s["text"] for s in SENTENCES]
    results = tagged.post("/aned/v1/classify", input=texts)["results"]
    n = same = 0
    for text, r in zip(texts, results, strict=True):
        tokens = tagged.tokens(text)
        assert r["n_tokens"] == len(tokens)
        logits = tagged.logits(tokens)
        path = viterbi(tagged.weights.labels, logits)
        want = places(tagged, text, tokens, path)
        assert short(r["spans"]) == want, text
        for s in r["spans"]:
            assert text[s["start"]:s["end"]] == s["text"]
            assert text.encode()[s["start_byte"]:s["end_byte"]].decode() == s["text"]
            assert 0 <= s["score"] <= 1
        n += len(want)
        exact = viterbi(tagged.weights.labels, tag_logits(tagged.weights, np.array(tokens)))
        same += want == places(tagged, text, tokens, exact)
    assert n > 1000 and same >= SAME * len(texts), (n, same)


def test_scores(tagged):
    """A span's score is the mean of its tokens' probabilities of their labels."""
    text = SENTENCES[0]["text"]
    tokens = tagged.tokens(text)
    z = tagged.logits(tokens).astype(np.float64)
    p = np.exp(z - z.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    path = viterbi(tagged.weights.labels, z)
    want = [p[range(a, b), path[a:b]].mean() for _, a, b in spans(tagged.weights.labels, path)]
    got = [s["score"] for s in tagged.classify(text)]
    assert len(got) <= len(want) and any(abs(got[0] - w) < 1e-4 for w in want)
    assert all(min(abs(g - w) for w in want) < 1e-4 for g in got)


def test_biases(tagged):
    """They are added to the path's steps, as the decode of our own does it."""
    text = SENTENCES[40]["text"]
    tokens = tagged.tokens(text)
    logits = tagged.logits(tokens)
    names = ("background_stay", "background_to_start", "inside_to_continue", "inside_to_end", "end_to_background", "end_to_start")
    for k, name in enumerate(names):
        for b in (-8.0, 6.5):
            path = viterbi(tagged.weights.labels, logits, [b if i == k else 0 for i in range(6)])
            assert short(tagged.classify(text, biases={name: b})) == places(tagged, text, tokens, path), (name, b)


@pytest.mark.asan
def test_redacted(tagged):
    texts = [s["text"] for s in SENTENCES[:50]]
    for labels in (None, ["private_email", "private_url"]):
        more = {"labels": labels} if labels else {}
        for text, r in zip(texts, tagged.post("/aned/v1/redact", input=texts, **more)["results"], strict=True):
            whole = tagged.classify(text)
            wanted = [s for s in whole if labels is None or s["label"] in labels]
            assert r["spans"] == wanted
            for s in reversed(wanted):
                text = text[:s["start"]] + f"[{s['label'].upper()}]" + text[s["end"]:]
            assert r["text"] == text


def test_empty(tagged):
    r = tagged.post("/aned/v1/redact", input=["", "a", ""])
    assert [x["n_tokens"] for x in r["results"]] == [0, 1, 0] and r["results"][0]["text"] == ""
    assert r["usage"] == {"prompt_tokens": 1, "total_tokens": 1}


# --- requests that are refused ----------------------------------------------

@pytest.mark.parametrize("body, param", [
    ({}, "input"), ({"input": 7}, "input"), ({"input": []}, "input"), ({"input": ["a", None]}, "input"),
    ({"input": ["a"] * 257}, "input"), ({"input": "a", "task": "x"}, "task"), ({"input": "a", "labels": "nothing"}, "labels"),
    ({"input": "a", "labels": []}, "labels"), ({"input": "a", "biases": {"stay": 1}}, "biases"),
    ({"input": "a", "biases": {"background_stay": "1"}}, "biases"), ({"input": "a", "biases": [1]}, "biases"),
    ({"input": "a", "biases": {"background_stay": 1e7}}, "biases"), ({"input": "a " * 140000}, "input")])
def test_refused(tagged, body, param):
    for path in ("classify", "redact"):
        with tagged.d.http() as c:
            r = c.post(f"/aned/v1/{path}", json=body)
        assert r.status_code in (400, 413), r.text
        e = r.json()["error"]
        assert e["param"] == param and param in e["message"], e


def test_other_kind(tagged, demo_gguf):
    """A decoder has no labels, an encoder writes no text, and neither is probed for the other's sake."""
    assert tagged.d.convert(demo_gguf, "demo")["state"] == "done"
    try:
        e = tagged.post("/aned/v1/classify", 400, model="demo", input="a")["error"]
        assert e["code"] == "unsupported" and "demo is a decoder" in e["message"]
        asked = [("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}), ("/v1/completions", {"prompt": "a"}),
                 ("/v1/responses", {"input": "a"}), ("/aned/v1/sessions", {}), ("/completion", {"prompt": "a"}),
                 ("/v1/messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 5})]
        for path, body in asked:
            e = tagged.post(path, 400, model="pf", **body)["error"]
            assert "pf is an encoder" in e["message"], (path, e)
        e = tagged.post("/aned/v1/models/pf/probe", 400)["error"]
        assert "pf is an encoder" in e["message"]
        models = {m["name"]: m for m in httpx_models(tagged)}
        assert models["pf"]["kind"] == "encoder" and "private_email" in models["pf"]["labels"]
        assert models["demo"]["kind"] == "decoder" and "labels" not in models["demo"]
        assert tagged.post("/aned/v1/classify", 400, input="a")["error"]["param"] == "model"
    finally:
        with tagged.d.http() as c:
            assert c.delete("/aned/v1/models/demo").status_code == 200


def httpx_models(tagged):
    with tagged.d.http() as c:
        return c.get("/aned/v1/models").json()["models"]


def test_reports(tagged):
    """The gates of its conversion, and the quality that was measured then."""
    with tagged.d.http() as c:
        m = c.get("/aned/v1/models/pf").json()
        q = c.get("/aned/v1/models/pf/quality").json()
    gates = {g["name"]: g for g in m["gates"]}
    assert gates["quality"]["verdict"] == "passed" and "encoder" in gates["exactness"]["detail"]
    report = json.dumps(q)
    assert "an encoder reads a text at once" in report and '"layers"' in report


# --- others, and losses ------------------------------------------------------

LONG = lines(60000)


class Asking(threading.Thread):
    def __init__(self, tagged, text):
        super().__init__(daemon=True)
        self.tagged, self.text, self.found, self.error = tagged, text, None, None
        self.start()

    def run(self):
        try:
            self.found = self.tagged.classify(self.text)
        except BaseException as e:  # noqa: BLE001  (told by result)
            self.error = e

    def result(self):
        self.join(200 * SLOW_S)
        assert not self.is_alive() and self.error is None, self.error
        return self.found


def counter(tagged, name):
    with tagged.d.http() as c:
        return next(float(x.split()[1]) for x in c.get("/metrics").text.splitlines() if x.startswith(f"aned_{name} "))


@pytest.mark.asan
def test_at_once(tagged):
    """Requests at the same time get what each gets alone."""
    texts = [s["text"] for s in SENTENCES[::20]] + [lines(9000)]
    alone = [tagged.classify(t) for t in texts]
    before = counter(tagged, "labelled_texts_total")
    asked = [Asking(tagged, t) for t in texts * 2]
    assert [a.result() for a in asked] == alone * 2
    assert counter(tagged, "labelled_texts_total") == before + 2 * len(texts)


@pytest.mark.asan
def test_client_leaves(tagged):
    """Its text is not read to the end, and others are answered."""
    want = tagged.classify("Call 555")
    for _ in range(3):
        with pytest.raises(httpx.ReadTimeout), tagged.d.http(timeout=0.3 / SLOW_S) as c:
            c.post("/aned/v1/classify", json={"input": [LONG] * 20})
        before = counter(tagged, "labelled_texts_total")
        assert tagged.classify("Call 555") == want
        assert counter(tagged, "labelled_texts_total") <= before + 2  # hers, and one that was over already
    until(lambda: tagged.engine() is not None)


def test_engine_loss(tagged):
    """The text that an engine was killed at is read again by the next one."""
    want = tagged.classify(LONG)
    pid = tagged.engine()["pid"]
    asked = [Asking(tagged, LONG), Asking(tagged, "Call 555")]
    time.sleep(0.2)
    os.kill(pid, signal.SIGKILL)
    assert asked[0].result() == want and asked[1].result() == tagged.classify("Call 555")
    assert tagged.engine()["pid"] != pid
    assert counter(tagged, "engine_starts_total") >= 2


def test_restart(tagged):
    text = SENTENCES[77]["text"]
    want = tagged.classify(text)
    assert tagged.d.stop() == 0
    tagged.d.start()
    assert tagged.classify(text) == want


# --- anectl redact -----------------------------------------------------------

@pytest.mark.parametrize("text", ["", "\n", "a", "One line", "Two\nlines\n", "Two\r\nlines\r\n", "\r\n\r\n x \r", "\ufeffMark",
                                  "No end\nhere", "é 漢 👩🏽‍💻\n", *(s["text"] for s in SENTENCES[4::40])])
def test_redact_keeps(tagged, run, tmp_path, text):
    """All but the spans stays, to the byte, from a file and from standard input."""
    want = tagged.post("/aned/v1/redact", input=text)["results"][0]["text"].encode()
    (tmp_path / "in.txt").write_bytes(text.encode())
    assert run(tmp_path / "in.txt").stdout == want
    assert run("-", "--model", "pf", stdin=text.encode()).stdout == want


@pytest.mark.asan
def test_redact_labels_and_json(tagged, run):
    text = "".join(s["text"] for s in SENTENCES[:30])
    found = tagged.classify(text)
    got = [json.loads(x) for x in run("-", "--json", stdin=text.encode()).stdout.splitlines()]
    assert got == found and len(got) > 50
    only = run("-", "--labels", "private_email,private_url", "-l", "secret", "--json", stdin=text.encode()).stdout
    assert [json.loads(x) for x in only.splitlines()] == [
        s for s in found if s["label"] in ("private_email", "private_url", "secret")]


@pytest.mark.parametrize("args, stdin, code, word", [
    (["-", "--labels", "nothing"], b"a", 65, "nothing"), (["-", "--model", "none"], b"a", 66, "none"),
    (["/none/such"], b"", 66, "/none/such"), (["-"], b"ok\n\xff\n", 65, "byte 3"), (["-"], b"ab\x00", 65, "byte 2"),
    (["-"], b"a\xe2\x82", 65, "byte 1"), ([], b"", 64, "FILE"), (["-", "x"], b"", 64, "")])
def test_redact_errors(run, args, stdin, code, word):
    r = run(*args, stdin=stdin, code=code)
    assert word in r.stderr.decode() and r.stdout == b""


def test_redact_long(tagged, run):
    """A text of several parts: its spans are those of the text as a whole."""
    text = lines(40000)
    whole = tagged.classify(text)
    got = [json.loads(x) for x in run("-", "--json", stdin=text.encode()).stdout.splitlines()]
    a, b = {tuple(short([s])[0]) for s in whole}, {tuple(short([s])[0]) for s in got}
    assert len(a ^ b) <= 0.001 * len(a), sorted(a ^ b)[:20]  # positions are others: an expert that is chosen by a hair may be
    for s in got[:: len(got) // 50]:
        assert text[s["start"]:s["end"]] == s["text"] == text.encode()[s["start_byte"]:s["end_byte"]].decode()
    ends = [x["end"] for x in got]
    assert all(e <= s["start"] for e, s in zip(ends, got[1:], strict=False))
    plain = run("-", stdin=text.encode()).stdout
    assert plain.count(b"\n") + sum(s["text"].count("\n") for s in got) == text.count("\n")


def test_redact_without_lines(tagged, run):
    """Nothing to cut at but spaces, and not even those: characters stay whole."""
    for text in ("slovo " * 8000, "漢字é" * 6000):
        out = run("-", "--json", stdin=text.encode()).stdout
        got = [json.loads(x) for x in out.splitlines()]
        assert got and all(text[s["start"]:s["end"]] == s["text"] for s in got)
        run("-", stdin=text.encode()).stdout.decode()


def peak_kib(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(x.split()[1]) for x in f if x.startswith("VmHWM:"))


def peaks(tagged, anectl, text, tmp_path):
    """Most memory of anectl, of serve and of the engine, in KiB."""
    (tmp_path / "in.txt").write_text(text, newline="")
    p = subprocess.Popen([anectl, "redact", tmp_path / "in.txt"], stdout=subprocess.DEVNULL,
                         env={**os.environ, "ANED_SOCKET": str(tagged.d.sock)})
    most = 0  # looked at while it runs: ru_maxrss has what this process had when it forked
    while p.poll() is None:
        with contextlib.suppress(OSError, StopIteration):  # it is about to end
            most = peak_kib(p.pid)
        time.sleep(0.02)
    assert p.returncode == 0 and most > 0
    return [most, peak_kib(tagged.d.proc.pid), peak_kib(tagged.engine()["pid"])]


@pytest.mark.parametrize("sizes", [(150_000, 210_000), pytest.param((1_000_000, 10_000_000), marks=[pytest.mark.slow, pytest.mark.timeout(7200)])])
def test_memory(tagged, anectl, tmp_path, sizes):
    """It does not grow with the text. One that kept the spans would: a byte of this text has some 80 bytes of them. The smaller
    text has a whole part already (client/redact.h)."""
    if SLOW_S > 1:
        pytest.skip("a sanitizer keeps what is freed")
    less, more = (peaks(tagged, anectl, lines(n), tmp_path) for n in sizes)
    # the engine keeps plans of the windows' lengths that it met, of ENGINE_PLANS_BYTES_MAX (256 MiB) together
    for name, a, b, room in zip(("anectl", "serve", "engine"), less, more, (4, 4, 256 + 4), strict=True):
        print(name, a, b)
        assert b < a + room * 1024, (name, a, b)
