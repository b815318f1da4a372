"""How likely the tokens of a prompt were: /v1/completions with echo and logprobs, against `aned logits` on the same bundle."""
import concurrent.futures
import json
import subprocess

import numpy as np
import pytest

from conftest import Daemon, converted, wait_idle
from fake import make_home

TEXT = "The daemon runs a model on the Neural Engine. It answers on a socket, and keeps what it computed."
CLOSE = 2e-6  # of a float32 log-probability


def post(d, path="/v1/completions", **body):
    with d.http() as c:
        return c.post(path, json={"model": "demo", **body})


def ask(d, **body):
    r = post(d, **{"max_tokens": 0, "echo": True, "logprobs": 3, **body})
    assert r.status_code == 200, r.text
    return r.json()


def ids_of(d, text):
    return post(d, "/tokenize", content=text, add_special=True).json()["tokens"]


def log_softmax(x):
    x = x.astype(np.float64)
    top = x.max(axis=-1, keepdims=True)
    return x - top - np.log(np.exp(x - top).sum(axis=-1, keepdims=True))


@pytest.fixture(scope="module")
def wanted(aned, daemon, tmp_path_factory):
    """wanted(ids): log-probabilities [n, vocab] by `aned logits`."""
    tmp = tmp_path_factory.mktemp("logits")

    def run(ids):
        np.save(tmp / "t.npy", np.array(ids, dtype=np.int32))
        subprocess.run([aned, "logits", daemon.home / "models" / "demo", tmp / "t.npy", tmp / "l.npy"], check=True)
        return log_softmax(np.load(tmp / "l.npy"))
    return run


def check(probs, ids, want, top=3, drawn=0):
    """The log-probabilities of an answer are those of the prompt's ids, and `drawn` more."""
    got = probs["token_logprobs"]
    assert len(got) == len(ids) + drawn == len(probs["tokens"]) == len(probs["top_logprobs"]) == len(probs["text_offset"])
    assert got[0] is None and probs["top_logprobs"][0] is None
    for i, id in enumerate(ids[1:]):
        assert abs(got[i + 1] - want[i][id]) < CLOSE
        others = probs["top_logprobs"][i + 1]
        assert top <= len(others) <= top + 1 or len(set(others)) < len(others)
        best = sorted(others.values(), reverse=True)[:top]
        assert np.abs(np.array(best) - np.sort(want[i])[::-1][:top]).max(initial=0) < CLOSE
        assert probs["tokens"][i + 1] in others


@pytest.mark.parametrize("text", ["a", TEXT, TEXT * 8])
def test_as_aned_logits(daemon, wanted, text):
    ids = ids_of(daemon, text)
    want = wanted(ids)
    for prompt in (text, ids):
        for drawn in (0, 2):
            x = ask(daemon, prompt=prompt, max_tokens=drawn, temperature=0, ignore_eos=True)
            c = x["choices"][0]
            check(c["logprobs"], ids, want, drawn=drawn)
            assert c["text"].startswith(text) and c["finish_reason"] == "length"
            assert x["usage"]["prompt_tokens"] == len(ids) and x["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_tokens_and_offsets_are_the_text(daemon):
    x = ask(daemon, prompt=TEXT + " é 数", max_tokens=5, temperature=0, ignore_eos=True)["choices"][0]
    p = x["logprobs"]
    starts = p["text_offset"] + [len(x["text"])]
    whole = [(t, x["text"][a:b]) for t, a, b in zip(p["tokens"], starts, starts[1:]) if "\ufffd" not in t]
    assert len(whole) > 20 and all(a == b for a, b in whole)


def test_the_same_bits_in_any_company(daemon):
    """Alone, in a list, with others at the same time, whatever is warm, as text and as ids."""
    texts = [TEXT, TEXT[::-1], TEXT * 3, "x"]
    alone = [ask(daemon, prompt=t)["choices"][0]["logprobs"] for t in texts]
    assert [c["logprobs"] for c in ask(daemon, prompt=texts)["choices"]] == alone
    assert [c["logprobs"] for c in ask(daemon, prompt=[ids_of(daemon, t) for t in texts])["choices"]] == alone
    both = ask(daemon, prompt=texts, n=2)["choices"]
    assert [c["logprobs"] for c in both] == [a for a in alone for _ in range(2)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        runs = [pool.submit(ask, daemon, prompt=texts[i % 4]) for i in range(12)]
        noise = [pool.submit(post, daemon, prompt=TEXT[:40], max_tokens=60, seed=i) for i in range(3)]
        for i, r in enumerate(runs):
            assert r.result()["choices"][0]["logprobs"] == alone[i % 4]
        assert all(r.result().status_code == 200 for r in noise)


def test_drawn_tokens_do_not_change(daemon):
    plain = post(daemon, prompt=TEXT, max_tokens=12, temperature=1, seed=5, logprobs=2).json()["choices"][0]
    x = ask(daemon, prompt=TEXT, max_tokens=12, temperature=1, seed=5, logprobs=2)["choices"][0]
    n = len(ids_of(daemon, TEXT))
    assert x["text"] == TEXT + plain["text"]
    for k in ("tokens", "token_logprobs", "top_logprobs"):
        assert x["logprobs"][k][n:][:len(plain["logprobs"][k])] == plain["logprobs"][k]
    offsets = plain["logprobs"]["text_offset"]
    assert x["logprobs"]["text_offset"][n:][:len(offsets)] == [o + len(TEXT) for o in offsets]


@pytest.mark.parametrize("more", [{}, {"n": 2, "temperature": 1, "seed": 1}, {"max_tokens": 0}, {"prompt": ["a", TEXT]}, {"stop": ["e"]}])
def test_streams_say_the_same(daemon, more):
    body = {"prompt": TEXT, "max_tokens": 6, "temperature": 0, **more}
    want = ask(daemon, **body)["choices"]
    got = [{"text": "", "tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []} for _ in want]
    with daemon.http() as c, c.stream("POST", "/v1/completions",
                                      json={"model": "demo", "echo": True, "logprobs": 3, "stream": True, **body}) as r:
        for line in r.iter_lines():
            if line.startswith("data: {"):
                for x in json.loads(line[6:])["choices"]:
                    g = got[x["index"]]
                    g["text"] += x["text"]
                    for k, v in (x["logprobs"] or {}).items():
                        g[k] += v
    assert got == [{"text": x["text"], **x["logprobs"]} for x in want]


def test_an_end_has_an_entry_too(daemon):
    """lm_eval counts on one for the token that it asks for, whichever it is."""
    got = 0
    for i in range(1, len(TEXT)):
        x = ask(daemon, prompt=TEXT[:i], max_tokens=1, temperature=0)["choices"][0]
        n = len(ids_of(daemon, TEXT[:i]))
        assert len(x["logprobs"]["tokens"]) == n + 1
        got += x["finish_reason"] == "stop" and x["text"] == TEXT[:i]
    assert got > 0


def test_vllm_asks(daemon):
    """What lm_eval's remote tokenizer asks, in vLLM's words."""
    with daemon.http() as c:
        info = c.get("/tokenizer_info", params={"model": "demo"}).json()
        assert info["eos_token"] and info["chat_template"] and info["model_max_length"] == 512
    ids = post(daemon, "/tokenize", prompt=TEXT, add_special_tokens=False).json()
    assert ids == {"tokens": post(daemon, "/tokenize", content=TEXT).json()["tokens"], "count": len(ids["tokens"])}
    both = post(daemon, "/tokenize", content=TEXT, add_special=True).json()["tokens"]
    assert post(daemon, "/tokenize", prompt=TEXT).json()["tokens"] == both
    assert post(daemon, "/detokenize", tokens=ids["tokens"]).json() == {"content": TEXT, "prompt": TEXT}
    for wrong in ({}, {"prompt": "a", "content": "a"}, {"prompt": 1}):
        assert post(daemon, "/tokenize", **wrong).status_code == 400


def test_echo_of_ids(daemon):
    ids = ids_of(daemon, TEXT)
    assert post(daemon, prompt=ids, max_tokens=0, echo=True).json()["choices"][0]["text"] == TEXT
    assert post(daemon, prompt=[ids, ids[:3]], max_tokens=0, echo=True).json()["choices"][0]["text"] == TEXT


def test_what_is_computed_stays_warm(daemon):
    text = TEXT + " And this is new."
    ask(daemon, prompt=text)
    assert post(daemon, prompt=text, max_tokens=1).json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 10
    assert ask(daemon, prompt=text)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_refused(daemon):
    long = ids_of(daemon, TEXT * 20)[:500]
    r = post(daemon, prompt=long * 2, echo=True, logprobs=1, max_tokens=0)
    assert r.status_code == 400 and "context" in r.json()["error"]["message"]
    r = post(daemon, prompt=[0, 10**6], echo=True, logprobs=1, max_tokens=0)
    assert r.status_code == 400
    wait_idle(daemon)


def test_long_prompts(aned, tmp_path):
    """20,000 tokens are an answer of some MB; what is more than an answer may have is refused, and forgotten."""
    d = Daemon(aned, home=make_home(tmp_path / "home", context=32768))
    try:
        ids = [100 + i % 26 for i in range(20000)]
        r = post(d, model="fake", prompt=ids, echo=True, logprobs=5, max_tokens=0)
        probs = r.json()["choices"][0]["logprobs"]
        assert probs["token_logprobs"] == [None, *(-float(i) for i in range(1, 20000))]
        assert probs["text_offset"] == list(range(20000))
        held = d.rss_kib()
        for more in ({}, {"stream": True}):
            r = post(d, model="fake", prompt=[ids, ids], n=8, echo=True, logprobs=20, max_tokens=0, **more)
            assert "over the limit" in r.text and (more or r.status_code == 413), r.text[:300]
        assert post(d, model="fake", prompt=ids, echo=True, logprobs=5, max_tokens=0).status_code == 200
        assert d.rss_kib() < held + 100_000
        wait_idle(d)
    finally:
        assert d.close() == 0


def test_no_logits(daemon, demo_gguf):
    """A model that gives only its likeliest token says so, by name."""
    with converted(daemon, demo_gguf, "tops", context=512, output="argmax"):
        r = post(daemon, model="tops", prompt=TEXT, echo=True, logprobs=1)
        assert r.status_code == 400 and "log-probabilities of a prompt" in r.json()["error"]["message"]
        assert post(daemon, model="tops", prompt=TEXT, echo=True, max_tokens=2).json()["choices"][0]["text"].startswith(TEXT)
