"""Several prompts in one request of /v1/completions, on the fake engine: its tokens are a hash of the text, so that an answer tells which prompt it is of."""
import json

import httpx
import openai
import pytest

from conftest import SLOW_S, Daemon, metric, raw_post, status, until, wait_idle
from fake import make_home

PROMPTS = ["hello", "a", "onceuponatime"]
IDS = [[1, *(b + 3 for b in p.encode())] for p in PROMPTS]  # 1: BOS
BODY = {"model": "fake", "prompt": PROMPTS, "max_tokens": 8, "temperature": 0}


@pytest.fixture(scope="module")
def plain(aned, tmp_path_factory):
    d = Daemon(aned, home=make_home(tmp_path_factory.mktemp("prompts") / "home"))
    yield d
    wait_idle(d)
    assert d.close() == 0


def ask(d, **more):
    with d.http() as c:
        return c.post("/v1/completions", json={**BODY, **more})


def texts(r):
    assert r.status_code == 200, r.text
    choices = r.json()["choices"]
    assert [c["index"] for c in choices] == list(range(len(choices)))
    return [c["text"] for c in choices]


def alone(d, **more):
    """The texts of each prompt by itself, in their order."""
    prompts = more.pop("prompt", PROMPTS)
    return [t for p in prompts for t in texts(ask(d, prompt=p, **more))]


def streamed(d, **more):
    """The texts of a stream, by index, and its events."""
    got, events = {}, []
    with d.http() as c, c.stream("POST", "/v1/completions", json={**BODY, "stream": True, **more}) as r:
        assert r.status_code == 200, r.read()
        lines = [x.removeprefix("data: ") for x in r.iter_lines() if x.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    for e in map(json.loads, lines):
        events.append(e)
        for c in e["choices"]:
            got[c["index"]] = got.get(c["index"], "") + c["text"]
    return [got[i] for i in sorted(got)], events


@pytest.mark.parametrize("more", [{}, {"n": 3, "temperature": 1, "seed": 7}, {"echo": True}, {"stop": ["c", "x"], "max_tokens": 40},
                                  {"n": 2, "echo": True}])
def test_each_as_if_alone(plain, more):
    want = alone(plain, **more)
    assert len(set(want)) >= len(PROMPTS)
    assert texts(ask(plain, **more)) == want
    got, events = streamed(plain, **more)
    assert got == want
    ends = [c["index"] for e in events for c in e["choices"] if c["finish_reason"]]
    assert sorted(ends) == list(range(len(want))) and len({e["id"] for e in events}) == 1


def test_tokens(plain):
    want = alone(plain)
    assert texts(ask(plain, prompt=IDS)) == want
    assert texts(ask(plain, prompt=PROMPTS[:2])) == want[:2]
    assert texts(ask(plain, prompt=[PROMPTS[1]] * 3)) == [want[1]] * 3


def test_usage_is_of_all(plain):
    use = ask(plain, n=2).json()["usage"]
    assert use["prompt_tokens"] == sum(map(len, IDS)) and use["completion_tokens"] == 2 * 3 * 8
    assert use["total_tokens"] == use["prompt_tokens"] + use["completion_tokens"]
    _, events = streamed(plain, stream_options={"include_usage": True}, n=2)
    last = events[-1]
    assert last["choices"] == [] and {k: last["usage"][k] for k in ("prompt_tokens", "completion_tokens", "total_tokens")} == {
        k: use[k] for k in ("prompt_tokens", "completion_tokens", "total_tokens")}
    assert all(e["usage"] is None for e in events[:-1])


def test_no_seed_differs(plain):
    """Whoever asks the same thing twice wants two answers; with a seed it is the same request twice."""
    same = {"prompt": ["hello"] * 4, "temperature": 1}
    assert len(set(texts(ask(plain, **same)))) == 4
    assert len(set(texts(ask(plain, **same, seed=3)))) == 1


def test_logprobs_are_of_their_prompt(plain):
    r = ask(plain, logprobs=2).json()["choices"]
    assert ["".join(c["logprobs"]["tokens"]) for c in r] == [c["text"] for c in r]
    assert all(c["logprobs"]["text_offset"] == list(range(8)) for c in r)


def test_openai_client(plain):
    c = openai.OpenAI(base_url="http://aned/v1", api_key="none", max_retries=0,
                      http_client=httpx.Client(transport=httpx.HTTPTransport(uds=str(plain.sock))))
    r = c.completions.create(model="fake", prompt=PROMPTS, max_tokens=8, temperature=0)
    assert [x.text for x in sorted(r.choices, key=lambda x: x.index)] == alone(plain)
    got = {}
    for e in c.completions.create(model="fake", prompt=PROMPTS, max_tokens=8, temperature=0, stream=True):
        for x in e.choices:
            got[x.index] = got.get(x.index, "") + x.text
    assert [got[i] for i in range(3)] == alone(plain)


@pytest.mark.parametrize("more, words", [
    ({"prompt": []}, "not empty"), ({"prompt": [{}]}, "not empty"), ({"prompt": ["a", [1]]}, "together"), ({"prompt": [[1], "a"]}, "together"),
    ({"prompt": [[1], [-1]]}, "no token id"), ({"prompt": [[1], 2]}, "together"), ({"prompt": ["a", None]}, "together"),
    ({"prompt": [[1], []]}, "prompt[1]: it has no token"), ({"prompt": [[1], [2], [261]]}, "prompt[2]: token 261"),
    ({"prompt": ["a", "b" * 600]}, "prompt[1]: the request exceeds the available context size"),
    ({"suffix": "x"}, "suffix: only with a text prompt"),
    ({"prompt": ["a"] * 33}, "more than 32 prompts"), ({"prompt": ["a"] * 5, "n": 16}, "5 prompts with n 16 are more than 64 choices"),
])
def test_refused(plain, more, words):
    r = ask(plain, **more)
    e = r.json()["error"]
    assert r.status_code in (400, 413) and words in e["message"], r.text
    assert e["param"] in ("prompt", "echo", "suffix", None), e
    wait_idle(plain)  # the others do not go on
    assert status(plain)["running"] == 0


def test_as_many_as_the_limit(plain):
    prompts = [f"prompt {i}" for i in range(32)]
    assert texts(ask(plain, prompt=prompts, max_tokens=3)) == alone(plain, prompt=prompts, max_tokens=3)
    assert len(texts(ask(plain, prompt=prompts, n=2, max_tokens=1))) == 64


def test_no_room_is_told_at_once(aned, tmp_path):
    """All of them have a place, or none."""
    d = Daemon(aned, home=make_home(tmp_path / "h", conf="[limits]\nstreams = 1\nqueue = 2\n"))
    try:
        r = ask(d, prompt=["a", "b", "c", "d"])
        assert r.status_code == 503 and r.headers["retry-after"], r.text
        wait_idle(d)
        assert texts(ask(d)) == alone(d)  # three have room
    finally:
        assert d.close() == 0


def test_a_client_that_leaves(aned, tmp_path):
    d = Daemon(aned, home=make_home(tmp_path / "h", fake="delay_us 2000\n", context=32768))
    try:
        before = metric(d, "generations_cancelled_total")
        for stream in (True, False):
            s = raw_post(d, {**BODY, "max_tokens": 30000, "stream": stream}, "/v1/completions")
            until(lambda: status(d)["running"] == 3)
            s.close()
            wait_idle(d)
        assert metric(d, "generations_cancelled_total") == before + 6
    finally:
        assert d.close() == 0


@pytest.mark.parametrize("stream", [False, True])
def test_one_that_fails_ends_all(aned, tmp_path, stream):
    """A token that is in one prompt, and is never drawn, is refused by the engine: the others are not left running."""
    d = Daemon(aned, home=make_home(tmp_path / "h", fake=f"refuse {ord('H') + 3}\ndelay_us 500\n", context=32768))
    try:
        with d.http(timeout=60 * SLOW_S) as c:
            r = c.post("/v1/completions", json={**BODY, "prompt": ["a", "Hello", "b"], "max_tokens": 20000, "stream": stream})
        if r.status_code == 200:
            assert stream and "[DONE]" not in r.text and '"error"' in r.text.splitlines()[-2]
        else:
            assert r.status_code >= 400 and r.json()["error"]["message"]
        wait_idle(d)
        assert len(texts(ask(d, prompt=["a", "b"]))) == 2
    finally:
        assert d.close() == 0


def test_deadline(aned, tmp_path):
    d = Daemon(aned, home=make_home(tmp_path / "h", fake="delay_us 20000\n", context=32768))
    try:
        r = ask(d, max_tokens=30000, deadline_ms=700).json()
        assert [c["finish_reason"] for c in r["choices"]] == ["length"] * 3 and r["timings"]["deadline_reached"] is True
    finally:
        assert d.close() == 0


def test_resumed(plain):
    """A stream of several prompts can be read again by its id."""
    want, events = streamed(plain, resumable=True)
    with plain.http() as c:
        again = c.get(f"/aned/v1/streams/{events[0]['id']}").text
    got = {}
    for line in again.split("\n"):
        if line.startswith("data: {"):
            for x in json.loads(line[6:])["choices"]:
                got[x["index"]] = got.get(x["index"], "") + x["text"]
    assert [got[i] for i in range(3)] == want == alone(plain)
