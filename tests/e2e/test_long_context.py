"""Contexts beyond what a Neural Engine takes: for the CPU backend, by profile cpu."""
import json
import subprocess

import pytest

import scripted
from conftest import Daemon

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
