"""A model in the form of the transformers library, as a job: a folder, or one file in it. What it answers is what its GGUF
answers, and the hub's cache, whose files are links, is such a folder too."""
import json
import os
import subprocess

import pytest

import hf_export
from conftest import Daemon

EOS = 2  # of the demo model


@pytest.fixture
def d(aned, tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    x = Daemon(aned, home=home)
    yield x
    assert x.close() == 0


@pytest.fixture
def folder(demo_gguf, tmp_path):
    m = hf_export.write(demo_gguf, tmp_path / "Demo Model", shards=2, eos_token_id=EOS)
    (tmp_path / "Demo Model" / "chat_template.jinja").write_text(m.keys["tokenizer.chat_template"])
    return tmp_path / "Demo Model"


def weights(bundle):
    return {str(p.relative_to(bundle)): p.read_bytes() for p in bundle.rglob("*") if p.is_file()
            and p.name not in ("bundle.json", "tokenizer.gguf")}


def bundle_of(d, name):
    found = [p.parent for p in (d.home / "models").rglob("bundle.json") if p.parent.name == name]
    assert len(found) == 1, found
    return found[0]


def ask(d, model):
    with d.http() as c:
        r = c.post("/v1/chat/completions", json={"model": model, "temperature": 0, "max_tokens": 24,
                                                 "messages": [{"role": "user", "content": "hello"}]})
        assert r.status_code == 200, r.text
        return r.json()["choices"][0]["message"]["content"], r.json()["usage"]


@pytest.mark.asan
def test_as_a_job(d, anectl, demo_gguf, folder):
    r = subprocess.run([anectl, "--socket", d.sock, "convert", f"{folder}/"], capture_output=True, text=True, timeout=240)
    assert r.returncode == 0, r.stderr
    assert d.convert(demo_gguf, "whole")["state"] == "done"
    assert weights(bundle_of(d, "Demo-Model")) == weights(bundle_of(d, "whole"))
    assert ask(d, "Demo-Model") == ask(d, "whole")
    source = json.loads((bundle_of(d, "Demo-Model") / "bundle.json").read_text())["source"]
    assert source["name"] == "Demo Model" and source["bytes"] == sum(p.stat().st_size for p in folder.iterdir())


def test_the_cache_of_the_hub(d, folder, tmp_path):
    """snapshots/REVISION holds links into blobs/."""
    (tmp_path / "hub" / "blobs").mkdir(parents=True)
    revision = tmp_path / "hub" / "snapshots" / "abc"
    revision.mkdir(parents=True)
    for i, p in enumerate(sorted(folder.iterdir())):
        p.rename(tmp_path / "hub" / "blobs" / str(i))
        (revision / p.name).symlink_to(f"../../blobs/{i}")
    assert d.convert(revision, "cached")["state"] == "done"
    assert ask(d, "cached")[1]["completion_tokens"] > 0


def test_what_is_refused(d, folder, tmp_path):
    os.symlink("/etc/passwd", folder / "tokenizer_config.json")
    job = d.convert(folder, "link")
    assert job["state"] == "failed" and "symbolic link" in job["error"]["message"]
    (folder / "tokenizer_config.json").unlink()
    index = folder / "model.safetensors.index.json"
    j = json.loads(index.read_text())
    j["weight_map"]["model.norm.weight"] = "../model-00001-of-00002.safetensors"
    index.write_text(json.dumps(j))
    job = d.convert(folder, "index")
    assert job["state"] == "failed" and "index.json" in job["error"]["message"]
    with d.http() as c:
        r = c.post("/aned/v1/jobs", json={"source": str(tmp_path / "home")})
        assert r.status_code == 400 and "no model" in r.text
