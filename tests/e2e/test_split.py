"""A split model is one model: on the command line, as a job, by any part's name."""
import hashlib
import json
import pathlib
import subprocess

import pytest

from conftest import Daemon, until, worker_stopped
from ggufs import split


@pytest.fixture
def d(aned, tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    x = Daemon(aned, home=home)
    yield x
    assert x.close() == 0


@pytest.fixture
def parts(demo_gguf, tmp_path):
    made = split(demo_gguf, tmp_path, "demo model", 12, small_first=True)
    assert len(made) >= 3
    return made


def files(bundle):
    """Name -> bytes, and bundle.json apart."""
    bundle = pathlib.Path(bundle)
    got = {str(p.relative_to(bundle)): p.read_bytes() for p in bundle.rglob("*") if p.is_file()}
    return got, json.loads(got.pop("bundle.json"))


def check_bundle(bundle, whole, parts):
    """As that of the file that was split, but for what it says of its source."""
    got, manifest = files(bundle)
    want, other = files(whole)
    assert got == want
    source = b"".join(p.read_bytes() for p in parts)
    assert manifest.pop("source") == {"name": parts[0].name, "bytes": len(source),
                                      "sha256": hashlib.sha256(source).hexdigest()}
    other.pop("source")
    assert manifest.pop("name") == "demo-model"
    other.pop("name")
    assert manifest == other


def run(*args, code=0):
    r = subprocess.run([str(a) for a in args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert r.returncode == code, r.stdout + r.stderr
    return r.stderr if code else r.stdout


def test_on_the_command_line(aned, demo_gguf, parts, tmp_path):
    run(aned, "convert", demo_gguf, "--out", tmp_path / "whole")
    for i in (0, len(parts) - 1):
        run(aned, "convert", parts[i], "--out", tmp_path / f"b{i}")
        check_bundle(tmp_path / f"b{i}", tmp_path / "whole", parts)
    shown = json.loads(run(aned, "inspect", parts[1], "--json"))
    whole = json.loads(run(aned, "inspect", demo_gguf, "--json"))
    assert shown["parts"] == len(parts) and "parts" not in whole
    assert shown["tensors"] == whole["tensors"]
    name = whole["tensors"][-1]["name"]
    for f, out in ((demo_gguf, "a.npy"), (parts[0], "b.npy")):
        run(aned, "tensor", f, name, tmp_path / out)
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


@pytest.mark.asan
def test_as_a_job(d, aned, demo_gguf, parts, tmp_path):
    run(aned, "convert", demo_gguf, "--out", tmp_path / "whole", "--name", "x")
    with d.http() as c:
        r = c.post("/aned/v1/jobs", json={"source": str(parts[1])})  # no name: the file's, without the part's number
        assert r.status_code == 202, r.text
        job = r.json()["id"]
        until(lambda: c.get(f"/aned/v1/jobs/{job}").json()["state"] in ("done", "failed"))
        assert c.get(f"/aned/v1/jobs/{job}").json()["state"] == "done", c.get(f"/aned/v1/jobs/{job}").text
        source = c.get("/aned/v1/models/demo-model").json()["source"]
        assert source["name"] == parts[0].name and source["bytes"] == sum(p.stat().st_size for p in parts)
        r = c.post("/v1/completions", json={"model": "demo-model", "prompt": "What is", "max_tokens": 4})
        assert r.status_code == 200, r.text
    check_bundle(tmp_path / "home" / "models" / "demo-model", tmp_path / "whole", parts)


def test_a_part_that_is_missing_is_named(d, aned, parts, tmp_path):
    gone = parts[-1].rename(tmp_path / "elsewhere")
    text = run(aned, "convert", parts[0], "--out", tmp_path / "b", code=66)
    assert text.startswith("not_found: ") and str(parts[-1]) in text
    j = d.convert(parts[0], "m")
    assert (j["state"], j["error"]["code"]) == ("failed", "not_found") and str(parts[-1]) in j["error"]["message"]
    gone.rename(parts[-1])
    assert d.convert(parts[0], "m")["state"] == "done"


def test_a_part_that_is_written_to_is_seen(d, parts):
    """Where the worker stood still after it had read the part for the last time, the job is done, and the next one is tried."""
    was = parts[-1].read_bytes()
    for i in range(20):
        with worker_stopped(d, parts[0], (f"m{i}-{k}" for k in range(20))) as job:
            with open(parts[-1], "ab") as f:
                f.write(b"x")
        with d.http() as c:
            until(lambda: c.get(f"/aned/v1/jobs/{job}").json()["state"] in ("done", "failed"))
            j = c.get(f"/aned/v1/jobs/{job}").json()
        if j["state"] == "failed":
            assert j["error"]["code"] == "source.changed"
            return
        parts[-1].write_bytes(was)
    raise AssertionError("no job saw it")
