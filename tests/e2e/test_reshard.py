"""Models of a model's own weights: tiers of context, other functions, heads that give tokens, through the daemon; and what
is refused."""
import os
import shutil
import subprocess

import pytest

from conftest import Daemon
from test_anectl import Ctl
from test_jobs import wait

PROMPTS = ["How do I list the models?", "The cat", "aned convert", "a b c d e f g h"]


@pytest.fixture(scope="module")
def d(aned, anectl, demo_gguf, tmp_path_factory):
    """`demo` of 512 positions and `demo-128`, from one command."""
    x = Daemon(aned)
    x.ctl = Ctl(anectl, x.sock)
    x.ctl("convert", demo_gguf, "--name", "demo", "--context", "128,512")
    yield x
    assert x.close() == 0


def complete(d, model, prompt, code=200, **fields):
    with d.http() as c:
        r = c.post("/v1/completions", json={"model": model, "prompt": prompt, "max_tokens": 24, **fields})
    assert r.status_code == code, r.text
    return r.json()


def greedy(d, model, prompt):
    return complete(d, model, prompt, temperature=0)["choices"][0]["text"]


def gates(d, job):
    return {g["name"]: g["verdict"] for g in job["result"]["gates"]}


def reshard(d, name, **fields):
    with d.http() as c:
        r = c.post("/aned/v1/jobs", json={"reshard": "demo", "name": name, **fields})
        assert r.status_code == 202, r.text
    return wait(d, r.json()["id"])


def model(d, name):
    with d.http() as c:
        return c.get(f"/aned/v1/models/{name}").json()


def test_tiers(d):
    assert model(d, "demo")["context"] == 512
    assert model(d, "demo-128")["context"] == 128
    for p in PROMPTS:
        assert greedy(d, "demo-128", p) == greedy(d, "demo", p)
    assert any(greedy(d, "demo", p) for p in PROMPTS)
    r = complete(d, "demo-128", "a " * 200, code=400)  # more than it holds, and not more than demo does
    assert "context" in r["error"]["message"]
    complete(d, "demo", "a " * 200)


def test_weights_take_room_once(d):
    def blocks(*names):
        seen = {}
        for name in names:
            for folder, _, files in os.walk(d.home / "models" / name):
                for f in files:
                    s = os.lstat(os.path.join(folder, f))
                    seen[s.st_dev, s.st_ino] = s.st_blocks
        return 512 * sum(seen.values())
    one, two = blocks("demo"), blocks("demo", "demo-128")
    if os.stat(d.home / "models/demo/embed.bin").st_nlink == 1:
        pytest.skip("this file system has clones: what they share is not told")
    assert two < 1.2 * one


@pytest.mark.parametrize("shape", ["functions", "functions:1,2,8", "functions:4", "functions:3,12,48"])
def test_functions(d, shape):
    name = shape.replace(":", "-").replace(",", "-")
    job = reshard(d, name, shape=shape)
    alone = shape in ("functions", "functions:1,2,8")
    assert job["state"] == "done"
    assert gates(d, job)["exactness"] == ("passed" if alone else "not run")  # no row alone: other kernels
    assert model(d, name)["shape"] == "functions"
    for p in PROMPTS:
        assert greedy(d, name, p) == greedy(d, "demo", p)


def test_host(d):
    assert reshard(d, "host", kv="host")["state"] == "done"
    assert model(d, "host")["kv"] == "host"
    assert greedy(d, "host", "The cat") != ""


@pytest.mark.parametrize("shape", ["ranged", "functions:1,4"])
def test_likeliest_tokens(d, shape):
    name = "top-" + shape.split(":")[0]
    assert reshard(d, name, output="argmax", shape=shape)["state"] == "done"
    assert model(d, name)["output"] == "argmax"
    for p in PROMPTS:
        assert greedy(d, name, p) == greedy(d, "demo", p)
        assert complete(d, name, p)["choices"][0]["text"] == greedy(d, "demo", p), "greedy where nothing is said"
    for fields, what in (({"temperature": 0.5}, "temperature"), ({"logprobs": 1}, "logprobs"),
                         ({"logit_bias": {"5": 1}}, "logit_bias"), ({"ignore_eos": True}, "ignore_eos"),
                         ({"repeat_penalty": 1.1}, "repeat_penalty"), ({"presence_penalty": 0.1}, "presence_penalty"),
                         ({"frequency_penalty": 0.1}, "frequency_penalty")):
        r = complete(d, name, PROMPTS[0], code=400, **fields)
        assert r["error"]["message"] == f"this model gives only its likeliest token: no {what}"


def test_anectl(d, anectl):
    d.ctl("reshard", "demo", "--profile", "m4-max")
    assert model(d, "demo-m4-max")["context"] == 512
    d.ctl("reshard", "demo", "--context", "96", "--as", "small")
    assert model(d, "small")["context"] == 96
    assert "--as" in d.ctl("reshard", "demo", code=64).stderr
    assert "no model 'none'" in d.ctl("reshard", "none", "--profile", "m4", code=65).stderr


def test_what_is_refused(d, demo_gguf):
    for fields, param in (({"quant": "int8"}, "quant"), ({"source": str(demo_gguf)}, "source"), ({"norm": "max"}, "norm"),
                          ({"residual_scale": 0.5}, "residual_scale"), ({"head_quant": "int8"}, "head_quant"),
                          ({"quant_for": ["a=int8"]}, "quant_for"), ({"shape": "functions:2,1"}, "shape"),
                          ({"shape": "functions:0"}, "shape"), ({"shape": "functions:513"}, "shape"),
                          ({"output": "top"}, "output"), ({"kv": "x"}, "kv"), ({"reshard": "none"}, "reshard"),
                          ({"reshard": 5}, "reshard"), ({"name": "demo"}, "name"), ({"name": None}, "name")):
        with d.http() as c:
            r = c.post("/aned/v1/jobs", json={"reshard": "demo", "name": "x", **fields})
        assert r.status_code in (400, 409), (fields, r.text)
        assert r.json()["error"]["param"] == param, (fields, r.text)
    job = reshard(d, "wide", context=100000)
    assert job["state"] == "failed" and "was made for" in job["error"]["message"]


def test_the_first_one_removed(d):
    """Its weights stay as long as somebody has them."""
    want = greedy(d, "demo", PROMPTS[1])
    d.ctl("unload", "demo-128")
    d.ctl("rm", "demo")
    assert greedy(d, "demo-128", PROMPTS[1]) == want
    d.ctl("verify", "demo-128")


# --- on files ---


def run(aned, *args, code=0):
    r = subprocess.run([str(aned), *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert r.returncode == code, (args, r.returncode, r.stdout, r.stderr)
    return r.stdout + r.stderr


def test_commands(aned, demo_gguf, tmp_path):
    run(aned, "convert", demo_gguf, "--out", tmp_path / "m", "--context", "96,256")
    assert (tmp_path / "m-96").is_dir()
    text = run(aned, "reshard", tmp_path / "m", "--out", tmp_path / "n", "--profile", "m2", "--name", "other")
    assert "bit for bit" in text and "the same logits" in text
    assert "already there" in run(aned, "reshard", tmp_path / "m", "--out", tmp_path / "n", code=73)
    shutil.rmtree(tmp_path / "m")
    assert "other" in run(aned, "inspect", tmp_path / "n")
    for args, what, code in ((("--shape", "functions:4,2"), "functions:T,T,...", 65), (("--kv", "x"), "state or host", 65),
                             (("--output", "x"), "logits or argmax", 65), (("--context", "1,1"), "context", 64)):
        assert what in run(aned, "convert", demo_gguf, "--out", tmp_path / "x", *args, code=code)
        assert not (tmp_path / "x").exists()


def test_foretold(aned, demo_gguf, tmp_path):
    args = ["--shape", "functions:1,8", "--output", "argmax", "--profile", "m4"]
    told = run(aned, "convert", demo_gguf, "--out", tmp_path / "m", "--dry-run", *args)
    made = run(aned, "convert", demo_gguf, "--out", tmp_path / "m", *args)
    line = next(x.split("residency", 1)[1].strip() for x in made.splitlines() if "residency" in x)
    assert line in told and "op.argmax" in told


def test_each_context_is_foretold(aned, demo_gguf, tmp_path):
    told = run(aned, "convert", demo_gguf, "--out", tmp_path / "m", "--dry-run", "--context", "96,256,128")
    assert [told.count(f"context {n} (as asked),") for n in (256, 128, 96)] == [1, 1, 1] and told.count("take room once") == 2
    assert list(tmp_path.iterdir()) == []
