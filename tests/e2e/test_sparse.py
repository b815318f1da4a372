"""A mixture whose experts the engine runs, through the daemon: made, listed, loaded, sampled side by side, saved; and what
is refused. That its logits are right, and no row's depend on others: tests/oracle/test_families.py, tests/unit/engine/test_sparse.c."""
import concurrent.futures
import json
import subprocess

import pytest

from conftest import Daemon, converted
from test_anectl import Ctl
from test_jobs import wait

TEXTS = ["The cat", "a b c", "Then he said", "0 1 2 3 4", "x", "of the sea and"]


@pytest.fixture(scope="module")
def source(shared):
    return shared / "data/families/lfm2moe/a/model.gguf"


@pytest.fixture(scope="module")
def d(aned, anectl, source):
    x = Daemon(aned)
    x.ctl = Ctl(anectl, x.sock)
    x.ctl("convert", source, "--name", "few", "--experts", "sparse:3", "--accept", "quality,exactness")
    yield x
    assert x.close() == 0


def complete(d, model, prompt, **fields):
    with d.http() as c:
        r = c.post("/v1/completions", json={"model": model, "prompt": prompt, "max_tokens": 24, "seed": 7, **fields})
    assert r.status_code == 200, r.text
    return r.json()["choices"][0]["text"]


def test_listed(d, source):
    with d.http() as c:
        assert c.get("/aned/v1/models/few").json()["experts"] == "sparse"
    with converted(d, source, "all", experts="dense", accept=["quality", "exactness"]), d.http() as c:
        assert c.get("/aned/v1/models/all").json()["experts"] == "dense"


def test_side_by_side(d):
    alone = [complete(d, "few", t, temperature=0.9) for t in TEXTS]
    with concurrent.futures.ThreadPoolExecutor(len(TEXTS)) as pool:
        assert list(pool.map(lambda t: complete(d, "few", t, temperature=0.9), TEXTS)) == alone
    d.ctl("unload", "few")
    assert [complete(d, "few", t, temperature=0.9) for t in TEXTS] == alone, "loaded anew"


def test_refused(d, source, demo_gguf):
    with d.http() as c:
        for value in ("few", "sparse:", "sparse:0", "sparse:300", 3):
            r = c.post("/aned/v1/jobs", json={"source": str(source), "name": "x", "experts": value})
            assert r.status_code == 400 and r.json()["error"]["param"] == "experts", r.text
        r = c.post("/aned/v1/jobs", json={"reshard": "few", "name": "x", "experts": "dense"})
        assert r.status_code == 400 and r.json()["error"]["param"] == "experts", r.text
        r = c.post("/aned/v1/jobs", json={"reshard": "few", "name": "x", "shape": "functions"})
        assert r.status_code == 202, r.text
    job = wait(d, r.json()["id"])
    assert job["state"] == "failed" and "sparse form" in job["error"]["message"]
    assert "has none here" in d.ctl("convert", demo_gguf, "--name", "x", "--experts", "sparse", code=65).stderr
    job = d.convert(demo_gguf, "x", experts="sparse")
    assert job["state"] == "failed" and "has none here" in job["error"]["message"]


def plan(aned, source, *options):
    r = subprocess.run([aned, "plan", source, "--json", *options], check=True, capture_output=True, text=True)
    return json.loads(r.stdout)


def test_plan(aned, source):
    """What the plan says of the form is what is made."""
    both = {form: plan(aned, source, "--profile", "m4", "--experts", form) for form in ("auto", "dense", "sparse:3")}
    dense, sparse = both["dense"], both["sparse:3"]
    assert both["auto"] == dense, "three small layers are faster in one program"
    assert dense["experts"]["form"] == "dense" and sparse["experts"]["form"] == "sparse"
    assert sparse["experts"]["packages"] == 9 and sparse["experts"]["package_experts"] == 3
    assert sparse["limited_by"]["layers"] == "experts"
    assert dense["experts"]["dense_predictions"] == sparse["experts"]["dense_predictions"] == len(dense["layers"])
    assert dense["experts"]["sparse_predictions"] == sparse["experts"]["sparse_predictions"] == len(sparse["layers"]) + 3 * 2
    for key in ("dense_steps", "sparse_steps"):
        for a, b in zip(dense["experts"][key][0]["ms"], sparse["experts"][key][0]["ms"], strict=True):
            assert abs(a - b) < 1e-6 * b, key  # records of constants are cut otherwise
    said = subprocess.run([aned, "plan", source, "--profile", "m4", "--experts", "sparse"], check=True, capture_output=True, text=True).stdout
    assert "chosen by the host" in said and "functions of experts in" in said
