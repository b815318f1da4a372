"""An older machine, emulated: nothing dies of an instruction it lacks, and every bit is the same."""
import platform
import shutil
import subprocess

import numpy as np
import pytest

QEMU = shutil.which("qemu-x86_64")
pytestmark = pytest.mark.skipif(QEMU is None or platform.machine() != "x86_64", reason="no qemu-x86_64 here")

OLD = "Westmere"  # 2010: SSE4.2, no AVX
MIDDLE = "Haswell"  # 2013: AVX2, FMA and F16C, nothing more


def run(*args, stdin=b""):
    r = subprocess.run([str(a) for a in args], input=stdin, capture_output=True, timeout=600)
    assert r.returncode == 0, (args, r.returncode, r.stderr[-2000:])
    return r.stdout


def files(bundle):
    return {str(p.relative_to(bundle)): p.read_bytes() for p in sorted(bundle.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def demo(aned, demo_gguf, tmp_path_factory):
    out = tmp_path_factory.mktemp("machines") / "demo"
    run(aned, "convert", demo_gguf, "--out", out, "--name", "demo")
    return out


@pytest.mark.parametrize("cpu", [OLD, MIDDLE])
def test_the_same_logits(aned, demo, tmp_path, cpu):
    text = b"Once upon a time there was a little girl who lived near the sea."
    ids = run(aned, "tokenize", demo, "--bos", stdin=text)
    assert run(QEMU, "-cpu", cpu, aned, "tokenize", demo, "--bos", stdin=text) == ids
    np.save(tmp_path / "t.npy", np.array(ids.split(), dtype=np.int32))
    run(aned, "logits", demo, tmp_path / "t.npy", tmp_path / "here.npy")
    run(QEMU, "-cpu", cpu, aned, "logits", demo, tmp_path / "t.npy", tmp_path / "there.npy", "--threads", "1")
    here, there = np.load(tmp_path / "here.npy"), np.load(tmp_path / "there.npy")
    assert here.shape[0] == len(ids.split())
    assert np.array_equal(here.argmax(1), there.argmax(1))
    assert here.tobytes() == there.tobytes()


def test_the_same_conversion(aned, demo_gguf, tmp_path):
    """The context is small because the gates measure as many positions, which takes minutes under emulation."""
    args = ("convert", demo_gguf, "--name", "demo", "--context", "32", "--out")
    run(aned, *args, tmp_path / "here")
    run(QEMU, "-cpu", OLD, aned, *args, tmp_path / "there")
    assert files(tmp_path / "there") == files(tmp_path / "here")


def test_what_each_machine_takes(aned, anectl):
    for cpu, sets in ((OLD, "scalar"), (MIDDLE, "avx2, scalar")):
        r = subprocess.run([QEMU, "-cpu", cpu, aned, "logits", "--isa", "nonsense", "a", "b", "c"], capture_output=True)
        assert r.returncode == 64 and f"--isa takes {sets} on this machine" in r.stderr.decode(), r.stderr
    assert b"anectl" in run(QEMU, "-cpu", OLD, anectl, "--version")
