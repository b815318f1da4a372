"""A folder with an ONNX decoder, as a job: read in the converter's sandbox, and answered from; what is none is told by name."""
import os
import shutil

import pytest

from conftest import Daemon


@pytest.fixture
def d(aned, tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    x = Daemon(aned, home=home)
    yield x
    assert x.close() == 0


@pytest.fixture
def bundle(shared, tmp_path):
    source = shared / "data" / "onnx" / "qwen3-a"
    if not source.exists():
        pytest.skip(f"{source} is not there")
    return shutil.copytree(source, tmp_path / "Tiny Qwen")


@pytest.mark.asan
def test_as_a_job(d, bundle):
    # random weights, quantised already: the gates' bars are for real models
    job = d.convert(bundle, "tiny", quant="fp16", accept=["quality", "exactness"])
    assert job["state"] == "done", job
    with d.http() as c:
        r = c.post("/v1/completions", json={"model": "tiny", "temperature": 0, "max_tokens": 4, "prompt": "hello"})
        assert r.status_code == 200, r.text
        assert r.json()["usage"]["completion_tokens"] > 0


def test_what_is_refused(d, bundle, shared):
    job = d.convert(shared / "data" / "onnx" / "genai-tiny-graph-capture-gqa", "other")
    assert job["state"] == "failed" and job["error"]["code"] == "onnx.not_understood", job
    assert "'residual' (Add)" in job["error"]["message"]
    data = bundle / "model.onnx.data"
    data.rename(bundle / "kept")
    os.symlink("/etc/passwd", data)
    job = d.convert(bundle, "link")
    assert job["state"] == "failed" and "symbolic link" in job["error"]["message"], job
    data.unlink()
    os.link(bundle / "kept", data)
    job = d.convert(bundle, "hard")
    assert job["state"] == "failed" and job["error"]["code"] == "onnx.external_data", job
