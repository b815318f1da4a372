"""What a conversion would be, asked before it: aned plan, anectl plan, aned convert --dry-run, and a disk with too little room."""
import json
import os
import struct
import subprocess
import sys

import pytest

from conftest import OVER, TOP, Daemon, until


def run(*args, **more):
    return subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=120, **more)


def plan(aned, file, *args):
    r = run(aned, "plan", file, "--json", *args)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def test_the_plan_is_what_the_bundle_becomes(aned, demo_gguf, tmp_path):
    p = plan(aned, demo_gguf, "--context", "256", "--quant", "fp16")
    out = tmp_path / "bundle"
    assert run(aned, "convert", demo_gguf, "--out", out, "--context", "256", "--quant", "fp16").returncode == 0
    b = json.loads((out / "bundle.json").read_text())
    assert [(x["first"], x["last"]) for x in p["layers"]] == [(x["first"], x["last"]) for x in b["shards"]]
    assert [(x["first"], x["last"]) for x in p["heads"]] == [(x["vocab_first"], x["vocab_last"]) for x in b["heads"]]
    for said, is_ in zip(p["layers"] + p["heads"], b["shards"] + b["heads"]):
        assert abs(said["bytes"] - is_["weight_bytes"]) <= 256
    real = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
    assert real <= p["bundle_bytes"] <= real * 1.2 + 100000
    assert (p["object"], p["architecture"], p["quant"], p["context"]) == ("aned.plan", "qwen2", "fp16", 256)
    assert p["resident"] == "fits" and p["convert_s"] > 0


def test_every_figure_has_its_source(aned, demo_gguf):
    """Of every profile: a source that is named, and a word; and a prediction only where all that it needs is known."""
    r = run(aned, "plan", demo_gguf, "--profile", "nonsense")
    assert r.returncode == 65 and r.stderr.startswith("invalid: ")
    names = r.stderr.split("there are")[1].split()
    assert {"law", "m1", "m4-max", "m5-pro", "m5-max"} <= set(names)
    help_text = run(aned, "plan", "--help").stdout
    for name in names:
        assert name in help_text
        p = plan(aned, demo_gguf, "--profile", name)
        figures = p["profile"]["figures"]
        assert p["profile"]["name"] == name
        for key, f in figures.items():
            assert f is None or f["source"].split(":")[0] in p["profile"]["sources"], (name, key)
            assert f is None or f["confidence"] in ("measured", "inferred", "conservative"), (name, key)
        assert [s["rows"] for s in p["steps"]] == [1, 4]
        assert (p["steps"][0]["ms"] is None) == (figures["gbytes_per_s"] is None), name
        for s in p["steps"]:
            assert s["ms"] is None or 0 < s["ms"][0] <= s["ms"][1]
            assert s["ms"] is None or abs(s["tokens_per_s"][1] - 1000 * s["rows"] / s["ms"][0]) < 1e-6 * s["tokens_per_s"][1]


def test_the_text_says_why(aned, anectl, demo_gguf, tmp_path):
    r = run(aned, "plan", demo_gguf, "--profile", "m5-max")
    assert r.returncode == 0 and r.stderr == ""
    assert "gbytes_per_s is not known for m5-max" in r.stdout and "the bundle: " in r.stdout
    mine = run(aned, "plan", demo_gguf, "--profile", "m1").stdout
    assert "fold_bits 16, measured (aneforge:" in mine and "next, m2:" in mine
    # the same from anectl, in a folder of the user's, with no daemon
    odd = tmp_path / "-odd name.gguf"
    odd.write_bytes(demo_gguf.read_bytes())
    env = dict(os.environ, ANED_SOCKET=str(tmp_path / "none.sock"))
    for args in (["--profile", "m1"], ["-q", "int4", "--json", "-c", "64"]):
        theirs = run(anectl, "plan", *args, "--", odd.name, cwd=tmp_path, env=env)
        want = run(aned, "plan", *[{"-q": "--quant", "-c": "--context"}.get(a, a) for a in args], "--", odd.name, cwd=tmp_path)
        assert (theirs.returncode, theirs.stdout) == (0, want.stdout), theirs.stderr
        assert want.stdout
    assert run(anectl, "plan", tmp_path / "none.gguf", env=env).returncode == 66


def large_llama(path, layers=32, d=4096, ff=14336, vocab=128):
    """A llama of 7 GB at int8 that takes no room: a head and a hole."""
    def text(s):
        return struct.pack("<Q", len(s)) + s.encode()
    numbers = {"block_count": layers, "embedding_length": d, "attention.head_count": d // 128, "attention.head_count_kv": d // 128,
               "feed_forward_length": ff, "context_length": 4096}
    keys = [text("general.architecture") + struct.pack("<I", 8) + text("llama")]
    keys += [text(f"llama.{k}") + struct.pack("<II", 4, v) for k, v in numbers.items()]
    keys += [text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5)]
    shapes = {"token_embd.weight": (d, vocab), "output_norm.weight": (d,)}
    for n in range(layers):
        shapes |= {f"blk.{n}.{k}.weight": s for k, s in {
            "attn_norm": (d,), "attn_q": (d, d), "attn_k": (d, d), "attn_v": (d, d), "attn_output": (d, d), "ffn_norm": (d,),
            "ffn_gate": (d, ff), "ffn_up": (d, ff), "ffn_down": (ff, d)}.items()}
    info, at = b"", 0
    for name, dims in shapes.items():  # Q8_0, vectors F32
        info += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        info += struct.pack("<IQ", 8 if len(dims) == 2 else 0, at)
        at += (dims[0] * dims[1] // 32 * 34 if len(dims) == 2 else 4 * dims[0]) + 31 & ~31
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(keys)) + b"".join(keys) + info
    head += bytes(-len(head) % 32)
    with open(path, "wb") as f:
        f.write(head)
        f.truncate(len(head) + at)


def test_a_chip_that_does_not_keep_all_programs(aned, tmp_path):
    """Whoever asks is told; whoever names such a chip gets no model for it."""
    large_llama(tmp_path / "large.gguf")
    p = plan(aned, tmp_path / "large.gguf", "--profile", "m4-max")
    assert p["resident"] == "too_big" and p["resident_bytes"] > 4294967296
    assert all(s["ms"] is None for s in p["steps"])
    text = run(aned, "plan", tmp_path / "large.gguf", "--profile", "m4-max").stdout
    assert "they do not stay in memory together" in text and "resident_bytes 3000000000 to 4294967296, inferred (" in text
    p = plan(aned, tmp_path / "large.gguf", "--profile", "m5-pro")
    assert p["resident"] == "fits" and p["steps"][0]["ms"] is not None
    for more in ([], ["--dry-run"]):
        r = run(aned, "convert", tmp_path / "large.gguf", "--out", tmp_path / "out", "--profile", "m4-max", *more)
        assert r.returncode == 65 and r.stderr.startswith("convert.") and "profile m4-max: resident_bytes" in r.stderr
    assert [x.name for x in tmp_path.iterdir()] == ["large.gguf"]


def test_a_dry_run_writes_nothing(aned, demo_gguf, tmp_path):
    out = tmp_path / "bundle"
    r = run(aned, "convert", demo_gguf, "--out", out, "--dry-run", "--profile", "m2")
    assert r.returncode == 0
    asked = run(aned, "plan", demo_gguf, "--profile", "m2").stdout
    assert r.stdout.split(":", 1)[1] == asked.split(":", 1)[1] and len(asked) > 500  # but for the name
    assert list(tmp_path.iterdir()) == []
    out.mkdir()  # whatever would stop the conversion stops this
    assert run(aned, "convert", demo_gguf, "--out", out, "--dry-run").returncode == 73
    r = run(aned, "convert", demo_gguf, "--out", tmp_path / "no/such/bundle", "--dry-run")
    assert r.returncode == 66 and r.stderr.startswith("not_found: "), r.stderr
    r = run(aned, "convert", demo_gguf, "--out", tmp_path / "x", "--dry-run", "--context", "99999")
    assert r.returncode == 65


def on_a_small_disk(folder, command):
    """Run it where `folder` is a file system of 3 MiB that nobody else sees; what is in there afterwards is printed last."""
    script = 'mount -t tmpfs -o size=3m none "$0" || exit 99; "$@"; code=$?; echo "left: $(ls -A "$0")"; exit $code'
    for unshare in (["unshare", "-m"], ["unshare", "-rm"]):
        try:
            r = run(*unshare, "sh", "-c", script, folder, *command)
        except FileNotFoundError:
            break
        if r.returncode != 99 and "unshare" not in r.stderr:
            return r
    pytest.skip("mounting is not allowed here")


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_a_disk_that_is_too_small(aned, demo_gguf, tmp_path, more):
    small = tmp_path / "small"
    small.mkdir()
    r = on_a_small_disk(small, [aned, "convert", demo_gguf, "--out", small / "bundle", *more])
    assert r.returncode == 73, (r.stdout, r.stderr)
    assert r.stderr.startswith("no_space: the bundle needs ") and str(small) in r.stderr
    assert r.stdout.rstrip().endswith("left:")


def test_a_job_on_a_small_disk(aned, demo_gguf, tmp_path):
    """Its worker finds it out, in its sandbox; the job says what is needed."""
    small = tmp_path / "small"
    small.mkdir()
    code = """
import os, sys
from conftest import OVER, Daemon, until
aned, source, home = sys.argv[1:]
os.mkdir(home, 0o700)
d = Daemon(aned, home=home)
with d.http() as c:
    job = c.post("/aned/v1/jobs", json={"source": source}).json()["id"]
    until(lambda: c.get(f"/aned/v1/jobs/{job}").json()["state"] in OVER)
    print(c.get(f"/aned/v1/jobs/{job}").text)
sys.exit(d.close())
"""
    r = on_a_small_disk(small, ["env", f"PYTHONPATH={TOP / 'tests'}", sys.executable, "-c", code, aned, demo_gguf, small / "home"])
    assert r.returncode == 0, (r.stdout, r.stderr)
    j = json.loads(r.stdout.splitlines()[0])
    assert j["state"] == "failed" and j["error"]["code"] == "no_space", j
    assert j["error"]["message"].startswith("the bundle needs ") and j["error"]["message"].endswith("nothing was written")


def test_a_job_for_a_chip(aned, demo_gguf, tmp_path):
    d = Daemon(aned, home=tmp_path / "home")
    try:
        with d.http() as c:
            def job(profile):
                j = c.post("/aned/v1/jobs", json={"source": str(demo_gguf), "name": profile, "profile": profile}).json()["id"]
                until(lambda: c.get(f"/aned/v1/jobs/{j}").json()["state"] in OVER)
                return c.get(f"/aned/v1/jobs/{j}").json()
            assert job("m4-max")["state"] == "done"
            bad = job("m9")["error"]
            assert bad["code"] == "invalid" and "m5-max" in bad["message"]
    finally:
        assert d.close() == 0
