"""Further families as users meet them: converted by the daemon, answering, and exact however they are run.

The tiny models have no chat template, and not all of them a vocabulary that aned reads; what is asked here gets both from
phi3's and the demo model's template. Whether the logits are right is asked elsewhere (tests/oracle/test_families.py).
"""
import concurrent.futures
import pathlib
import subprocess

import gguf
import pytest

from conftest import SHARED, SLOW_S, Daemon
from families import BY_NAME, FAMILIES
from gguf_copy import copy, value_of

# longrope and fused tensors; soft caps; shared keys and values, embeddings of each layer
ASKED = ["phi3", "gemma2", "gemma4-e", "gemma4", "lfm2moe"]
TEXT = "the lion was in the ion and the ion was on the lion; " * 6
WINDOW = 32  # positions that the local layers see at most
MOST = 120  # tokens of the longest answer
BODIES = {
    "greedy": {"temperature": 0, "max_tokens": MOST},
    "seeded": {"temperature": 1, "seed": 7, "max_tokens": 60},
    "hot": {"temperature": 1.5, "seed": 8, "top_k": 40, "max_tokens": 60},
}
PLAIN = "[engine]\nthreads = 1\nprefill_chunk = 1\n[speculation]\nmax_draft = 0\n[cache]\ndisk_mib = 0\n"
BUSY = "[engine]\nthreads = 2\nprefill_chunk = {chunk}\n[speculation]\nmax_draft = 8\n[cache]\ndisk_mib = 0\n"


def model(family):
    path = BY_NAME[family].source(SHARED)
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def with_vocabulary(source, other, template, out):
    """The model `source` with the tokenizer of `other`, of as many tokens, and the chat template of a third."""
    def fields(path):
        return {f.name: value_of(f) for f in gguf.GGUFReader(str(path)).fields.values()}

    def keys(found):
        kept = {k: v for k, v in found.items() if not k.startswith("tokenizer.")}
        kept.update((k, v) for k, v in fields(other).items() if k.startswith("tokenizer."))
        return {**kept, "tokenizer.chat_template": fields(template)["tokenizer.chat_template"]}
    return copy(source, out, keys)


def ask(d, family, body, path="completions", **more):
    prompt = {"messages": [{"role": "user", "content": TEXT}]} if path.startswith("chat") else {"prompt": TEXT}
    probs = {"logprobs": True, "top_logprobs": 3} if path.startswith("chat") else {"logprobs": 3}
    with d.http() as c:
        r = c.post("/v1/" + path, json={"model": family, "ignore_eos": True, **prompt, **probs, **body, **more})
    assert r.status_code == 200, r.text
    return r.json()


def answer(r):
    return r["choices"], r["usage"]["prompt_tokens"], r["usage"]["completion_tokens"]


@pytest.fixture(scope="module")
def home(aned, demo_gguf, tmp_path_factory):
    """A home with ASKED converted, and what one daemon says that works token by token, one stream at a time."""
    folder = tmp_path_factory.mktemp("decoders")
    (folder / "plain.conf").write_text(PLAIN)
    d = Daemon(aned, home=folder / "home", args=["--config", str(folder / "plain.conf")])
    expected, tokens = {}, {}
    try:
        for family in ASKED:
            source = with_vocabulary(model(family), model("phi3"), demo_gguf, folder / f"{family}.gguf")
            job = d.convert(source, family, context=512)
            assert job["state"] == "done", job
            for name, body in BODIES.items():
                expected[family, name] = answer(ask(d, family, body))
            assert expected[family, "greedy"][1] > 2 * WINDOW
            expected[family, "chat"] = answer(ask(d, family, BODIES["greedy"], "chat/completions"))
            with d.http() as c:  # the greedy answer as token ids
                s = c.post("/aned/v1/sessions", json={"model": family, "prompt": TEXT}).json()
                r = c.post(f"/aned/v1/sessions/{s['id']}/generate", json=dict(BODIES["greedy"], ignore_eos=True))
                assert r.status_code == 200, r.text
                tokens[family] = c.get(f"/aned/v1/sessions/{s['id']}").json()["tokens"][s["n_tokens"]:]
    finally:
        assert d.close() == 0
    return folder, expected, tokens


@pytest.mark.parametrize("family", ["phi3", "gemma4-e"])
def test_chat(make_daemon, home, family):
    """The same answer from another daemon, with other settings, and again from what is warm."""
    folder, expected, _ = home
    (folder / "busy.conf").write_text(BUSY.format(chunk=0))
    d = make_daemon(home=folder / "home", args=["--config", str(folder / "busy.conf")])
    for _ in range(2):
        choices, n, made = answer(ask(d, family, BODIES["greedy"], "chat/completions"))
        assert (choices, n, made) == expected[family, "chat"]
        assert made == MOST and choices[0]["message"]["content"]


@pytest.mark.parametrize("chunk", [1, 7, 64])
@pytest.mark.parametrize("family", ASKED)
def test_same_tokens(make_daemon, home, family, chunk):
    """Chunks of the prompt, drafts, threads and company change no digit of a log-probability."""
    folder, expected, tokens = home
    (folder / "busy.conf").write_text(BUSY.format(chunk=chunk))
    d = make_daemon(home=folder / "home", args=["--config", str(folder / "busy.conf")])
    names = list(BODIES) * 3
    for warm in (False, True):
        with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
            got = list(pool.map(lambda name: ask(d, family, BODIES[name], cache_prompt=warm), names))
        for name, r in zip(names, got):
            assert answer(r) == expected[family, name], name
    assert len(tokens[family]) == MOST
    for _ in range(40):  # on a busy machine drafts may seem not to pay for a while
        r = ask(d, family, BODIES["greedy"], prediction={"type": "content", "content": tokens[family]})
        assert answer(r) == expected[family, "greedy"]
        accepted = r["usage"]["completion_tokens_details"]["accepted_prediction_tokens"]
        if accepted > MOST / 4:
            break
    assert accepted > MOST / 4, "its own answer as its prediction makes no drafts"


@pytest.mark.parametrize("family", FAMILIES)
def test_runs_as_rows(aned, tmp_path, family):
    """Any number of rows, many sequences at once: no operation of it needs another form."""
    def run(*args):
        r = subprocess.run([aned, *map(str, args)], capture_output=True, text=True, timeout=120 * SLOW_S)
        assert r.returncode == 0, r.stderr
        return r.stdout + r.stderr
    run("convert", model(family), "--out", tmp_path / "bundle")
    found = sorted(pathlib.Path(tmp_path / "bundle").glob("*.mlpackage"))
    assert len(found) >= 2
    for p in found:
        text = run("mil", "compile", p, "--backend", "cpu")
        assert any(line.startswith("rows of ") for line in text.splitlines()), f"{p.name}: {text[-500:]}"
