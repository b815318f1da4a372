"""A model that turns by one list of factors up to its original context and by another beyond (longrope). An answer that
grows past the border is computed again by the long list; then and in every other way it is the answer that each token
has when all before it are computed from the first one on."""
import json
import os
import signal
import subprocess
import threading

import gguf
import numpy as np
import pytest

from conftest import BACKEND, SLOW_S, Daemon, engine_pid, metric, until
from gguf_copy import with_original
from test_decoders import BUSY, PLAIN, TEXT, model, with_vocabulary

ORIGINAL = 96  # of this copy: the longest sequence of the short list
PROMPT = 80  # so that the answer grows past it
MOST = 50
BLOCK = 64  # positions a saved state has at least
S = "/aned/v1/sessions"
GREEDY = {"temperature": 0, "max_tokens": MOST}
BODIES = {"greedy": GREEDY, "seeded": {"temperature": 1, "seed": 7, "max_tokens": MOST},
          "short": {"temperature": 0, "max_tokens": ORIGINAL - PROMPT}}  # its last token is drawn at the border


def ask(d, prompt, body, **more):
    with d.http() as c:
        r = c.post("/v1/completions", json={"model": "long", "prompt": prompt, "ignore_eos": True, "logprobs": 3, **body,
                                            **more})
    assert r.status_code == 200, r.text
    return r.json()


def session(c, tokens):
    """Where a session of the first PROMPT of them is."""
    r = c.post(S, json={"model": "long", "tokens": tokens[:PROMPT]})
    assert r.status_code == 201, r.text
    return f"{S}/{r.json()['id']}"


def choice(r):
    return r["choices"][0]["text"], r["choices"][0]["logprobs"]


def cached(r):
    return r["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.fixture(scope="module")
def home(aned, demo_gguf, tmp_path_factory):
    """A home with the model, the tokens of a text, and the answers to its first PROMPT, token by token and alone."""
    folder = tmp_path_factory.mktemp("longrope")
    whole = with_vocabulary(model("phi3"), model("phi3"), demo_gguf, folder / "whole.gguf")
    with_original(whole, folder / "long.gguf", ORIGINAL)
    (folder / "plain.conf").write_text(PLAIN)
    d = Daemon(aned, home=folder / "home", args=["--config", str(folder / "plain.conf")])
    try:
        job = d.convert(folder / "long.gguf", "long", context=512)
        assert job["state"] == "done", job
        with d.http() as c:
            whole = c.post(S, json={"model": "long", "prompt": TEXT + TEXT}).json()
            tokens = c.get(f"{S}/{whole['id']}").json()["tokens"]
            assert len(tokens) > 2 * BLOCK + 20
            at = session(c, tokens)
            said = c.post(f"{at}/generate", json={**GREEDY, "ignore_eos": True})
            assert said.status_code == 200, said.text
            answer = c.get(at).json()["tokens"][PROMPT:]
        assert len(answer) == MOST
        expected = {name: choice(ask(d, tokens[:PROMPT], body)) for name, body in BODIES.items()}
    finally:
        assert d.close() == 0
    return folder, tokens, answer, expected


@pytest.fixture
def start(home, make_daemon):
    def new(conf):
        (home[0] / "aned.conf").write_text(conf)
        return make_daemon(home=home[0] / "home", args=["--config", str(home[0] / "aned.conf")])
    return new


def test_every_token_as_from_scratch(aned, home, start, tmp_path):
    """Each token of the answer, and the digits of its log-probability, are those of a new prompt that ends before it; and
    the logits of `aned logits`, which knows the whole text before it begins, prefer it too."""
    folder, tokens, answer, expected = home
    kinds = gguf.GGUFReader(str(folder / "long.gguf")).fields["tokenizer.ggml.token_type"].contents()
    control = np.array(kinds) == gguf.TokenType.CONTROL
    d = start(PLAIN)
    _, probs = expected["greedy"]
    for i in [*range(ORIGINAL - PROMPT - 3, ORIGINAL - PROMPT + 4), MOST - 1]:
        line = tokens[:PROMPT] + answer[:i]
        r = ask(d, line, {"temperature": 0, "max_tokens": 1}, cache_prompt=False)
        got = r["choices"][0]["logprobs"]
        assert got["token_logprobs"] == probs["token_logprobs"][i : i + 1], i
        assert got["top_logprobs"] == probs["top_logprobs"][i : i + 1], i
        np.save(tmp_path / "tokens.npy", np.array(line, np.int32))
        run = subprocess.run([aned, "logits", folder / "home" / "models" / "long", tmp_path / "tokens.npy",
                              tmp_path / "out.npy", "--backend", BACKEND or "cpu"], capture_output=True, text=True, timeout=60 * SLOW_S)
        assert run.returncode == 0, run.stderr
        last = np.load(tmp_path / "out.npy")[-1].astype(np.float64)
        said = last[answer[i]] - last.max() - np.log(np.exp(last - last.max()).sum())
        assert abs(said - probs["token_logprobs"][i]) < 1e-4, i
        last[control] = -np.inf  # ignore_eos: the ends are among them
        assert last.argmax() == answer[i]


@pytest.mark.parametrize("backend", [None, "interpreter"])
@pytest.mark.parametrize("chunk", [7, 0])
def test_same_tokens(home, start, chunk, backend):
    """Chunks, company and what is warm change nothing; with another backend, whose bits are its own, neither."""
    _, tokens, _, want = home
    d = start(BUSY.format(chunk=chunk).replace("[engine]", f"[engine]\nbackend = {backend}" if backend else "[engine]"))
    if backend:
        want = {name: choice(ask(d, tokens[:PROMPT], body, cache_prompt=False)) for name, body in BODIES.items()}
    for warm in (False, True, True):
        got = {}

        def one(name, i):
            got[name, i] = choice(ask(d, tokens[:PROMPT], BODIES[name], cache_prompt=warm))
        pool = [threading.Thread(target=one, args=(name, i)) for name in BODIES for i in range(3)]
        for t in pool:
            t.start()
        for t in pool:
            t.join(120 * SLOW_S)
        assert len(got) == len(pool)
        for (name, _), r in got.items():
            assert r == want[name], name


def test_drafts_end_at_the_border(home, start):
    """The whole answer as its prediction: drafts come before and after the border, and change nothing."""
    _, tokens, answer, expected = home
    d = start(BUSY.format(chunk=0))
    accepted = 0
    for _ in range(40):  # on a busy machine drafts may seem not to pay for a while
        r = ask(d, tokens[:PROMPT], GREEDY, prediction={"type": "content", "content": answer})
        assert choice(r) == expected["greedy"]
        accepted = r["usage"]["completion_tokens_details"]["accepted_prediction_tokens"]
        if accepted > MOST * 2 // 3:  # more than there are on either side
            break
    assert accepted > MOST * 2 // 3


def test_the_pause_is_told(home, start):
    _, tokens, _, _ = home
    d = start(PLAIN)
    assert ask(d, tokens[:PROMPT], BODIES["greedy"])["timings"]["recomputed_n"] == ORIGINAL
    assert "recomputed_n" not in ask(d, tokens[:PROMPT], BODIES["short"])["timings"]
    assert "recomputed_n" not in ask(d, tokens[: ORIGINAL + 1], BODIES["short"])["timings"]


def test_lists_share_nothing(home, start):
    """What a long sequence computed does not serve a short one, nor the other way round; each serves its own kind."""
    _, tokens, _, _ = home
    one = {"temperature": 0, "max_tokens": 1}
    d = start(PLAIN)
    fresh = {n: choice(ask(d, tokens[:n], one, cache_prompt=False)) for n in (70, ORIGINAL, ORIGINAL + 1, 150)}
    d.stop()
    d = start(PLAIN)
    for n, serves in [(150, 0), (70, 0), (ORIGINAL, 70), (ORIGINAL + 1, ORIGINAL), (70, 69), (150, 149)]:
        r = ask(d, tokens[:n], one)
        assert (choice(r), cached(r)) == (fresh[n], serves), n


def test_saved_states_have_their_list(home, start):
    """After a restart a long prompt begins with the file of a long one, a short one with that of a short one."""
    _, tokens, _, _ = home
    conf = "[engine]\nthreads = 1\n[cache]\ndisk_tokens = 64\n"
    one = {"temperature": 0, "max_tokens": 1}
    d = start(conf)
    long = choice(ask(d, tokens[:150], one))
    until(lambda: metric(d, "states_saves_total") == 1)
    assert d.stop() == 0
    d = start(conf)
    r = ask(d, tokens[:ORIGINAL], one)
    short = choice(r)
    assert cached(r) == 0, "a long sequence's file served a short one"
    r = ask(d, tokens[:150], one)
    assert (choice(r), cached(r)) == (long, 2 * BLOCK)
    until(lambda: metric(d, "states_saves_total") == 1)
    assert d.stop() == 0
    d = start(conf)
    r = ask(d, tokens[:ORIGINAL], one)
    assert (choice(r), cached(r)) == (short, BLOCK)
    r = ask(d, tokens[: ORIGINAL + 1], one)
    assert cached(r) == BLOCK
    assert choice(r) == choice(ask(d, tokens[: ORIGINAL + 1], one, cache_prompt=False))


@pytest.mark.parametrize("when", [5, ORIGINAL - PROMPT, ORIGINAL - PROMPT + 9])
def test_a_dead_engine(home, start, when):
    """Killed before the border, about at it, and after: the stream goes on with the same text."""
    _, tokens, _, expected = home
    d = start(PLAIN)
    said = ""
    body = {"model": "long", "prompt": tokens[:PROMPT], "ignore_eos": True, "stream": True, **GREEDY}
    with d.http() as c, c.stream("POST", "/v1/completions", json=body) as r:
        n = 0
        for line in r.iter_lines():
            if line.startswith("data: {"):
                said += json.loads(line[6:])["choices"][0]["text"]
                n += 1
                if n == when:
                    os.kill(engine_pid(d, "long"), signal.SIGKILL)
    assert n >= when and said == expected["greedy"][0]


def test_a_session_back_and_on(home, start):
    """A session that grows past the border, is cut back before it, and grows again."""
    _, tokens, answer, _ = home
    d = start(BUSY.format(chunk=0))
    with d.http() as c:
        at = session(c, tokens)

        def on_to(n):
            """Generate until the session has the first n tokens of the answer."""
            have = c.get(at).json()["n_tokens"] - PROMPT
            r = c.post(f"{at}/generate", json={"temperature": 0, "max_tokens": n - have, "ignore_eos": True})
            assert r.status_code == 200, r.text
            assert c.get(at).json()["tokens"][PROMPT:] == answer[:n]
        for n in (10, 20, 40, MOST):
            on_to(n)
        for back in (PROMPT, ORIGINAL, ORIGINAL + 1, PROMPT + 3):
            r = c.post(f"{at}/truncate", json={"n": back})
            assert r.status_code == 200, r.text
            on_to(MOST)
