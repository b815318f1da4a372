"""Contexts beyond what a Neural Engine takes: for the CPU backend, by profile cpu."""
import json
import subprocess

import pytest

import scripted
from conftest import Daemon, status

CONTEXT = 32768


def run(*args):
    return subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return scripted.write(tmp_path_factory.mktemp("long") / "long.gguf", [scripted.Script("I have read it.")], context=CONTEXT)


def test_the_error_says_what_has_room(aned, source, tmp_path):
    r = run(aned, "convert", source, "--out", tmp_path / "m", "--context", str(CONTEXT))
    assert r.returncode == 65 and "axis 16384" in r.stderr and "profile cpu" in r.stderr, r.stderr
    assert not (tmp_path / "m").exists()
    m4 = json.loads(run(aned, "plan", source, "--context", str(CONTEXT), "--profile", "m4", "--json").stdout)
    cpu = json.loads(run(aned, "plan", source, "--context", str(CONTEXT), "--profile", "cpu", "--json").stdout)
    assert m4["context_by"] == "asked"
    own = json.loads(run(aned, "plan", source, "--profile", "cpu", "--json").stdout)
    assert (own["context"], own["context_by"]) == (CONTEXT, "model")
    assert m4["steps"][0]["ms"] is not None and cpu["steps"][0]["ms"] is None


def test_a_prompt_longer_than_a_neural_engine_takes(aned, source):
    d = Daemon(aned)
    try:
        job = d.convert(source, "long", context=CONTEXT, profile="cpu")
        assert job["state"] == "done", job
        with d.http(timeout=300) as c:
            prompt = "x" * (CONTEXT - 64)  # a token a byte
            ask = {"model": "long", "prompt": prompt, "max_tokens": 32}
            first = c.post("/v1/completions", json=ask).json()
            assert 16384 < first["usage"]["prompt_tokens"] <= CONTEXT - 32, first
            again = c.post("/v1/completions", json=ask).json()
            assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 16384
            assert again["choices"][0]["text"] == first["choices"][0]["text"]
            more = c.post("/v1/completions", json=ask | {"prompt": prompt + "x" * 128})
            assert more.status_code == 400 and more.json()["error"]["n_ctx"] == CONTEXT, more.text
    finally:
        assert d.close() == 0


def test_short_conversations_stay_warm_where_one_full_fits(aned, source, tmp_path):
    """A sequence of 32 768 positions costs 18 MiB at most, of 1000 some 2.5; there are 24 MiB for all."""
    (tmp_path / "aned.conf").write_text("[cache]\nstate_mib = 24\ndisk_mib = 0\n")
    d = Daemon(aned, home=tmp_path / "home", args=["--config", str(tmp_path / "aned.conf")])
    try:
        assert d.convert(source, "long", context=CONTEXT, profile="cpu")["state"] == "done"
        with d.http(timeout=300) as c:
            def ask(prompt):
                r = c.post("/v1/completions", json={"model": "long", "prompt": prompt, "max_tokens": 8})
                assert r.status_code == 200, r.text
                u = r.json()["usage"]
                return u["prompt_tokens"], u["prompt_tokens_details"]["cached_tokens"], r.json()["choices"][0]["text"]

            def engine():
                return next(m["engine"] for m in status(d)["models"] if m["name"] == "long")

            first = [ask(f"{i}" + "x" * 1000) for i in range(6)]
            e = engine()
            assert e["state_bytes"] <= 24 << 20 < 2 * e["state_bytes"], "one full sequence fits, and no second one"
            assert e["warm"] == 6 < e["sequences"]
            assert e["bytes"] <= e["weight_bytes"] + e["scratch_bytes"] + (24 << 20)
            again = [ask(f"{i}" + "x" * 1000) for i in range(6)]
            assert all(n - 2 <= cached < n for n, cached, _ in again), again
            assert [a[2] for a in again] == [f[2] for f in first]
            n, cached, _ = ask("y" * (CONTEXT - 64))  # it needs nearly all: others are closed, those used last stay
            assert n > CONTEXT - 100 and cached < 16 and engine()["warm"] < 6
            assert ask("0" + "x" * 1000)[1:] == (0, first[0][2]), "it was closed, and is computed again"
    finally:
        assert d.close() == 0
