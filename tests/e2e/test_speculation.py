"""Speculation is exact (design 9): with drafts and without them every answer is the same to the last digit of its
log-probabilities, alone and in company; and what was drafted is told in usage, timings and /metrics."""
import json
import re
import subprocess
import sys
import threading

import pytest

from conftest import SLOW_S
from fake import make_home

TRIES = 40  # on a busy machine drafts may seem not to pay for a while
JSON = '[{"name": "aned", "size": 1}, {"name": "aned", "size": 2}, {"name": "aned", "size": 3}, {"name": "aned", '
TEXT = "What is aned? " * 6

CASES = {  # name: (endpoint, body)
    "greedy": ("completions", {"prompt": TEXT, "temperature": 0, "max_tokens": 120}),
    "json": ("completions", {"prompt": JSON, "temperature": 0, "max_tokens": 100, "ignore_eos": True}),
    "seeded": ("completions", {"prompt": TEXT, "temperature": 0.8, "seed": 7, "max_tokens": 120, "ignore_eos": True}),
    "hot": ("completions", {"prompt": TEXT, "temperature": 1.5, "seed": 8, "max_tokens": 80, "ignore_eos": True}),
    "penalties": ("completions", {"prompt": JSON, "temperature": 0.5, "seed": 3, "repeat_penalty": 1.2,
                                  "presence_penalty": 0.4, "frequency_penalty": 0.2, "repeat_last_n": -1,
                                  "max_tokens": 90, "ignore_eos": True}),
    "filters": ("completions", {"prompt": TEXT, "temperature": 0.9, "top_k": 12, "top_p": 0.9, "min_p": 0.02,
                                "logit_bias": {"5": 2, "9": -100}, "seed": 5, "max_tokens": 90, "ignore_eos": True}),
    "stop": ("completions", {"prompt": TEXT, "temperature": 0, "max_tokens": 120, "stop": ["ne", "zzz"]}),
    "later stop": ("completions", {"prompt": JSON, "temperature": 0, "max_tokens": 100, "ignore_eos": True,
                                   "stop": ['size": 9', "}, {\"name\": \"aned\", \"size\": 5"]}),
    "one token": ("completions", {"prompt": JSON, "temperature": 0, "max_tokens": 1}),
    "two tokens": ("completions", {"prompt": JSON, "temperature": 0, "max_tokens": 2}),
    "choices": ("completions", {"prompt": JSON, "temperature": 0.7, "seed": 11, "n": 3, "max_tokens": 60}),
    "logprobs": ("completions", {"prompt": JSON, "temperature": 0.3, "seed": 2, "logprobs": 4, "max_tokens": 60,
                                 "ignore_eos": True}),
    "whole context": ("completions", {"prompt": JSON, "temperature": 0, "n_predict": -1, "ignore_eos": True}),
    "chat": ("chat/completions", {"messages": [{"role": "user", "content": TEXT}], "temperature": 0}),
    "chat logprobs": ("chat/completions", {"messages": [{"role": "user", "content": "What is a shard?"}], "seed": 4,
                                           "temperature": 0.6, "logprobs": True, "top_logprobs": 3, "max_tokens": 80}),
}


def ask(d, name, **more):
    path, body = CASES[name]
    with d.http() as c:
        r = c.post("/v1/" + path, json={"model": "demo", **body, **more})
    assert r.status_code == 200, r.text
    return r.json()


def answer(r):
    """What must not depend on drafts."""
    u = {k: v for k, v in r["usage"].items() if k in ("prompt_tokens", "completion_tokens", "total_tokens")}
    return r["choices"], u


def details(r):
    d = r["usage"]["completion_tokens_details"]
    return d["accepted_prediction_tokens"], d["rejected_prediction_tokens"]


@pytest.fixture(scope="module")
def plain(aned, demo_gguf, tmp_path_factory):
    """A daemon without speculation."""
    from conftest import Daemon
    conf = tmp_path_factory.mktemp("conf") / "aned.conf"
    conf.write_text("[speculation]\nmax_draft = 0\n[cache]\ndisk_mib = 0\n")
    d = Daemon(aned, args=["--config", str(conf)])
    assert d.convert(demo_gguf, "demo", context=512)["state"] == "done"
    yield d
    assert d.close() == 0


@pytest.fixture(scope="module")
def expected(plain):
    got = {}
    for name in CASES:
        r = ask(plain, name)
        assert details(r) == (0, 0) and "draft_n" not in r["timings"]
        got[name] = answer(r)
    return got


@pytest.mark.asan
@pytest.mark.parametrize("name", CASES)
def test_same_answer(daemon, expected, name):
    r = ask(daemon, name)
    assert answer(r) == expected[name]
    accepted, rejected = details(r)
    assert accepted <= r["usage"]["completion_tokens"]
    if accepted + rejected > 0:
        assert r["timings"]["draft_n"] == accepted + rejected
        assert r["timings"]["draft_n_accepted"] == accepted


def test_same_answer_streamed(daemon, expected):
    """Text events of a stream add up to the answer, whatever came in one step."""
    for name in ("json", "later stop", "seeded"):
        path, body = CASES[name]
        text = ""
        with daemon.http() as c, c.stream("POST", "/v1/" + path, json={"model": "demo", "stream": True, **body}) as r:
            for line in r.iter_lines():
                if line.startswith("data: {"):
                    text += json.loads(line[6:])["choices"][0]["text"]
        assert text == expected[name][0][0]["text"]


def test_same_answer_in_company(daemon, expected):
    """All of them at once, twice: drafts of some, prompts of others, in the same steps."""
    bad = []

    def one(name):
        try:
            r = ask(daemon, name)
            if answer(r) != expected[name]:
                bad.append((name, answer(r)))
        except Exception as e:  # noqa: BLE001  (reported below)
            bad.append((name, repr(e)))
    for _ in range(2):
        threads = [threading.Thread(target=one, args=(n,)) for n in CASES]
        for t in threads:
            t.start()
        for t in threads:
            t.join(120 * SLOW_S)
        assert not any(t.is_alive() for t in threads)
    assert not bad, bad[:2]


def metric(d, name):
    with d.http() as c:
        return float(re.search(rf"^aned_{name} (\S+)$", c.get("/metrics").text, re.M).group(1))


def test_repetition_is_drafted(daemon):
    """One token over and over (by a bias): all but the first few are drafts, and steps are saved."""
    before = metric(daemon, "speculation_accepted_tokens_total")
    for _ in range(TRIES):
        steps = metric(daemon, "steps_total")
        r = ask(daemon, "json", max_tokens=300, logit_bias={"70": 100})
        accepted, rejected = details(r)
        assert len(set(r["choices"][0]["text"])) == 1
        assert metric(daemon, "steps_total") - steps <= 300 - accepted + 10
        if accepted > 100:
            break
    assert accepted > 100 and rejected < accepted / 4, r["usage"]
    assert metric(daemon, "speculation_accepted_tokens_total") - before >= accepted
    assert metric(daemon, "speculation_drafted_tokens_total") >= metric(daemon, "speculation_accepted_tokens_total")
    assert metric(daemon, "speculation_accepted_per_row_count") > 0


def test_prediction_is_used(daemon):
    """The answer itself as its prediction: much of it is drafted. Another one changes nothing."""
    body = {"messages": [{"role": "user", "content": "How do I convert a model?"}], "temperature": 0,
            "max_tokens": 60}

    def chat(**more):
        with daemon.http() as c:
            r = c.post("/v1/chat/completions", json={"model": "demo", **body, **more})
        assert r.status_code == 200, r.text
        return r.json()
    bare = chat()
    text = bare["choices"][0]["message"]["content"]
    n = bare["usage"]["completion_tokens"]
    assert n > 8
    used = []
    for content in (text, [{"type": "text", "text": text[:20]}, {"type": "text", "text": text[20:]}]) * TRIES:
        told = chat(prediction={"type": "content", "content": content})
        assert answer(told) == answer(bare)
        used.append(details(told)[0])
        if len(used) > 1 and max(used) > n / 3:
            break
    assert max(used) > n / 3, used
    wrong = chat(prediction={"type": "content", "content": "Something else entirely, and more of it."})
    assert answer(wrong) == answer(bare)


def told(d, body, content):
    """The answer with such a prediction."""
    with d.http() as c:
        r = c.post("/v1/completions", json={"model": "demo", **body, "prediction": {"type": "content", "content": content}})
    assert r.status_code == 200, r.text
    return r.json()


def test_prediction_of_token_ids(daemon, plain):
    """Ids are drafted as they are. A text tokenised anew may be other tokens than those that were drawn."""
    body = {"prompt": TEXT, "temperature": 1.5, "seed": 21, "max_tokens": 80, "ignore_eos": True}
    sampling = {k: v for k, v in body.items() if k != "prompt"}
    with plain.http() as c:
        bare = c.post("/v1/completions", json={"model": "demo", **body}).json()
        s = c.post("/aned/v1/sessions", json={"model": "demo", "prompt": TEXT}).json()
        assert c.post(f"/aned/v1/sessions/{s['id']}/generate", json=sampling).status_code == 200
        ids = c.get(f"/aned/v1/sessions/{s['id']}").json()["tokens"][s["n_tokens"]:]
        vocab = c.get("/v1/models").json()["data"][0]["meta"]["n_vocab"]
    assert len(ids) == 80
    best = (0, 1)
    for _ in range(TRIES):
        r = told(daemon, body, ids)
        assert answer(r) == answer(bare)
        best = max(best, details(r))
        if best[0] > 50:
            break
    assert best[0] > 50 and best[1] == 0, best  # each of them is right
    for _ in range(TRIES):  # every eighth is another: drafting goes on after it
        r = told(daemon, body, [(x + 1) % vocab if i % 8 == 5 else x for i, x in enumerate(ids)])
        assert answer(r) == answer(bare)
        best = details(r)
        if best[0] > 40:
            break
    assert best[0] > 40 and best[1] > 0, best
    for content in ([0] * 500, [vocab - 1], ids[40:], ids[::-1]):
        assert answer(told(daemon, body, content)) == answer(bare)


@pytest.mark.asan
def test_predictions_refused(daemon):
    with daemon.http() as c:
        vocab = c.get("/v1/models").json()["data"][0]["meta"]["n_vocab"]
        part = {"type": "text", "text": "a"}
        for path, body in (("completions", {"prompt": "x"}), ("chat/completions", {"messages": [
                {"role": "user", "content": "x"}]})):
            def post(content):
                return c.post("/v1/" + path, json={"model": "demo", "max_tokens": 2, **body,
                                                   "prediction": {"type": "content", "content": content}})
            for content in ([-1], [1.5], [1, "a"], [1, part], [part, 1], [[1]], [2**20], [2**63], [None], [True], 7, {}):
                r = post(content)
                assert r.status_code == 400 and r.json()["error"]["param"] == "prediction", (content, r.text)
            r = post([1, vocab])  # an id, but not of this model
            assert r.status_code == 400 and r.json()["error"]["message"].startswith("prediction: "), r.text
            r = post([1] * (2**20 + 1))
            assert r.status_code in (400, 413) and r.json()["error"]["param"] == "prediction", r.text
            assert post([1] * 2**20).status_code == 200
            assert post([]).status_code == 200 and post([vocab - 1]).status_code == 200


def test_fields(daemon):
    with daemon.http() as c:
        def post(**more):
            return c.post("/v1/completions", json={"model": "demo", "prompt": "x", "max_tokens": 2, **more})
        assert "service_tier" not in post().json()
        for sent, got in (("auto", "default"), ("default", "default"), ("flex", "flex"), ("priority", "priority")):
            assert post(service_tier=sent).json()["service_tier"] == got
        for more in ({"service_tier": "best"}, {"prediction": "x"}, {"prediction": {"type": "content"}}):
            r = post(**more)
            assert r.status_code == 400 and r.json()["error"]["param"] == list(more)[0]


ANOTHER = """import json, sys, httpx
with httpx.Client(transport=httpx.HTTPTransport(uds=sys.argv[1]), base_url="http://aned", timeout=120) as c:
    print(c.post("/v1/completions", json=json.loads(sys.argv[2])).text)"""


@pytest.mark.parametrize("share,n", [(4096, 200), (0, 200)])
def test_what_an_ended_stream_said_is_drafted_for_its_own_process(make_daemon, tmp_path, share, n):
    """Asked again by the same process the answer is drafted, by another one it is not; without share_tokens by nobody.
    The text itself repeats no eight tokens, so no draft comes from it."""
    home = make_home(tmp_path / "home", fake="delay_us 2000\n",
                     conf=f"[speculation]\nngram_min = 8\nshare_tokens = {share}\n")
    d = make_daemon(home=home, args=["--config", str(home / "aned.conf")])
    body = {"model": "fake", "prompt": "What is said once more?", "max_tokens": n, "temperature": 0}

    def mine():
        with d.http() as c:
            return c.post("/v1/completions", json=body).json()

    def another():
        out = subprocess.run([sys.executable, "-c", ANOTHER, str(d.sock), json.dumps(body)], capture_output=True, check=True)
        return json.loads(out.stdout)
    first = mine()
    assert details(first) == (0, 0) and first["usage"]["completion_tokens"] == n
    for _ in range(3):  # each is another process
        assert (answer(another()), details(another())) == (answer(first), (0, 0))
    again = []
    for _ in range(TRIES if share else 2):
        again.append(mine())
        assert answer(again[-1]) == answer(first)
        accepted = max(details(r)[0] for r in again)
        if accepted > n * 2 // 3:
            break
    assert accepted > n * 2 // 3 if share else accepted == 0, [details(r) for r in again]
    assert details(another()) == (0, 0)
