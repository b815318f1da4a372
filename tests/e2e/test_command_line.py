"""The command line without a daemon (design 13): exit codes, stable error names, no half-made output."""
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

from conftest import TOP


def run(*args, stdin=b"", env=None, timeout=120):
    return subprocess.run([str(a) for a in args], input=stdin, capture_output=True, timeout=timeout,
                          env=dict(os.environ, **(env or {})))


@pytest.mark.parametrize("args, code", [
    ([], 64), (["nonsense"], 64), (["--help"], 0), (["--version"], 0), (["convert"], 64), (["tensor"], 64),
    (["tokenize"], 64), (["logits"], 64), (["mil"], 64), (["mil", "nonsense"], 64), (["inspect"], 64),
    (["machine", "x"], 64), (["sandbox"], 64), (["sandbox", "/nonexistent"], 66), (["mil", "time", "/nonexistent"], 66),
    (["mil", "time", "x", "--width", "0"], 64), (["mil", "time", "x", "--count", "0"], 64),
    (["inspect", "/nonexistent/x.gguf"], 66), (["tokenize", "/nonexistent/x.gguf"], 66),
    (["convert", "/nonexistent/x.gguf", "--out", "/tmp/never"], 66), (["plan"], 64), (["plan", "/nonexistent/x.gguf"], 66),
    (["plan", "x", "--context", "0"], 64), (["plan", "x", "--nonsense"], 64)])
def test_exit_codes(aned, args, code):
    r = run(aned, *args)
    assert r.returncode == code, r.stderr
    if code:
        assert r.stderr


@pytest.mark.parametrize("cmd", ["serve", "convert", "plan", "inspect", "tensor", "tokenize", "detokenize", "logits", "mil",
                                 "machine", "sandbox", "api"])
def test_every_command_has_help(aned, cmd):
    r = run(aned, cmd, "--help")
    assert r.returncode == 0
    assert b"usage:" in r.stdout.lower()


def test_malformed_files_are_refused_by_name(aned, shared):
    seen = set()
    folders = [shared / "data/gguf/malformed", shared / "data/gguf/malformed-modelled", shared / "data/gguf/legacy"]
    for f in sorted(p for d in folders for p in d.iterdir() if p.suffix == ".gguf"):
        if f.name == "ggml-vocab-gpt2.nopre.gguf":
            continue  # an old file, but a good one
        r = run(aned, "inspect", f)
        assert r.returncode == 65, (f.name, r.returncode, r.stdout, r.stderr)
        name = r.stderr.decode().split(":")[0]
        assert "." in name, (f.name, r.stderr)
        seen.add(name)
        out = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"aned-never-{os.getpid()}"
        r = run(aned, "convert", f, "--out", out)
        assert r.returncode == 65, (f.name, r.stderr)
        assert not out.exists()
    assert len(seen) > 5


def test_good_files_are_read(aned, shared):
    for f in [shared / "data/models/derived/stories260K.Q4_K_M.gguf",
              shared / "data/gguf/minimal/weight-inspect-empty.gguf",
              shared / "data/tokenizers/gguf-vocab/ggml-vocab-gpt-2.gguf"]:
        r = run(aned, "inspect", f)
        assert r.returncode == 0, (f.name, r.stderr)


def test_demo_converts_and_tells_what_it_is(aned, demo_gguf, tmp_path):
    out = tmp_path / "bundle"
    r = run(aned, "convert", demo_gguf, "--out", out, "--context", "256")
    assert r.returncode == 0, r.stderr
    for gate in (b"structure", b"range", b"quality", b"exactness"):
        assert b"  " + gate + b" " * (11 - len(gate)) + b"passed" in r.stdout, r.stdout
    assert run(aned, "convert", demo_gguf, "--out", out).returncode == 73  # already there
    assert run(aned, "inspect", out).returncode == 0
    ids = run(aned, "tokenize", out, "--special", stdin="<|im_start|>user\nWhat is aned?".encode())
    assert ids.returncode == 0
    tokens = [int(x) for x in ids.stdout.split()]
    assert tokens[0] == 1
    back = run(aned, "detokenize", out, stdin=ids.stdout)
    assert back.stdout.decode().endswith("user\nWhat is aned?")
    np.save(tmp_path / "t.npy", np.array(tokens, np.int32))
    full = None
    for chunk in ("1", "3", "4"):
        r = run(aned, "logits", out, tmp_path / "t.npy", tmp_path / "l.npy", "--chunk", chunk)
        assert r.returncode == 0, r.stderr
        got = np.load(tmp_path / "l.npy")
        assert got.shape[0] == len(tokens) and got.dtype == np.float32
        if full is not None:
            assert np.array_equal(full, got), f"--chunk {chunk} changes bits"
        full = got
    for threads in ("1", "2"):
        run(aned, "logits", out, tmp_path / "t.npy", tmp_path / "l.npy", "--threads", threads)
        assert np.array_equal(full, np.load(tmp_path / "l.npy"))


def test_the_instruction_set_is_a_choice_without_effect(aned, demo_gguf, tmp_path):
    r = run(aned, "logits", "--isa", "nonsense", "a", "b", "c")
    assert r.returncode == 64
    here = r.stderr.decode().split("--isa takes ")[1].split(" on this machine")[0].split(", ")
    assert "scalar" in here
    for name in {"scalar", "avx2", "avxvnni", "avx512", "amx", "neon", "neon_dot", "neon_i8mm"} - set(here):
        for cmd in ("logits",), ("mil", "run"):
            r = run(aned, *cmd, "--isa", name, "a", "b", "c")
            assert r.returncode == 69 and r.stderr.startswith(b"unavailable: "), r.stderr
    out = tmp_path / "demo"
    assert run(aned, "convert", demo_gguf, "--out", out).returncode == 0
    np.save(tmp_path / "t.npy", np.arange(5, 75, dtype=np.int32))
    rows = []
    for name in here:
        r = run(aned, "logits", out, tmp_path / "t.npy", tmp_path / "l.npy", "--isa", name)
        assert r.returncode == 0, r.stderr
        rows.append((tmp_path / "l.npy").read_bytes())
    assert len(set(rows)) == 1


def test_the_machine(aned):
    o = json.loads(run(aned, "machine", "--json").stdout)
    assert o["object"] == "aned.machine" and o["backends"][:2] == ["cpu", "interpreter"]
    assert o["kernels"][-1] == "scalar" and o["cores"] == os.cpu_count() and o["page_bytes"] == os.sysconf("SC_PAGESIZE")
    assert o["system"] == os.uname().sysname and o["memory_bytes"] > 1 << 20
    plain = dict(line.split(None, 1) for line in run(aned, "machine").stdout.decode().splitlines())
    assert plain["kernels"].split() == o["kernels"] and plain["cores"].strip() == str(o["cores"])


def test_the_sandbox_tells_what_it_refuses(aned, tmp_path):
    """Each try works outside of the sandbox: so it is the sandbox that refuses it."""
    r = run(aned, "sandbox", tmp_path, "--json")
    o = json.loads(r.stdout)
    if o["by"] is None:
        assert r.returncode == 69 and o["right"] is False
        pytest.skip(f"no rules for files here: {o['reason']}")
    tries = {t["what"]: t["worked"] for t in o["tries"]}
    assert r.returncode == 0 and o["right"] is True
    assert tries == {"write_inside": True, "write_outside": False, "read_outside": False, "use_socket": False, "start_program": False}
    assert (tmp_path / "room" / "inside").exists() and not (tmp_path / "refused").exists()
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    assert run(aned, "sandbox", tmp_path / "in", "--outside", tmp_path / "out").returncode == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["outside", "socket"]
    assert run(aned, "sandbox", tmp_path).returncode == 73  # what is made there stays
    (tmp_path / "engine").mkdir()
    assert run(aned, "sandbox", "--engine", tmp_path / "engine").returncode == (0 if os.uname().sysname == "Darwin" else 69)


def test_a_package_is_timed(aned, demo_gguf, tmp_path):
    assert run(aned, "convert", demo_gguf, "--out", tmp_path / "b", "--context", "256").returncode == 0
    for package in (tmp_path / "b").glob("*.mlpackage"):
        o = json.loads(run(aned, "mil", "time", package, "--width", "3", "--count", "7", "--json").stdout)
        assert (o["object"], o["backend"], o["width"], o["predictions"]) == ("aned.mil.time", "cpu", 3, 7)
        assert 0 < o["least_us"] <= o["median_us"] and o["open_ms"] > 0
        r = run(aned, "mil", "time", package, "--width", "512", "--backend", "interpreter")
        assert r.returncode == 65 and b"width 512: the package takes 1 to 4" in r.stderr
        assert run(aned, "mil", "time", package, "--count", "2").stdout.startswith(b"width 1, 2 predictions: ")


def test_a_rejected_bundle_is_kept_and_named(aned, demo_gguf, tmp_path):
    def coarse(name, *more):
        return run(aned, "convert", demo_gguf, "--out", tmp_path / name, "--context", "256", "--calibrate", "off", "--quant-for", "*=int4",
                   *more)
    r = coarse("a")
    assert r.returncode == 65 and r.stderr.rstrip().endswith(b"--accept quality") and b"rejected: " in r.stderr
    assert run(aned, "quality", tmp_path / "a", demo_gguf).returncode == 65
    assert coarse("b", "--accept", "exactness").returncode == 65 and coarse("c", "--accept", "exactness,quality").returncode == 0
    r = run(aned, "reshard", tmp_path / "a", "--out", tmp_path / "d", "--context", "128", "--accept", "quality")
    assert r.returncode == 0, r.stderr
    for wrong, says in (("speed", b"no gate 'speed'"), ("quality,structure", b"cannot run"), ("residency", b"never rejects")):
        r = coarse("x", "--accept", wrong)
        assert r.returncode == 64 and says in r.stderr and not (tmp_path / "x").exists()


def test_same_input_same_bundle(aned, demo_gguf, tmp_path):
    for name in ("a", "b"):
        r = run(aned, "convert", demo_gguf, "--out", tmp_path / name, "--name", "same", "--context", "256")
        assert r.returncode == 0, r.stderr
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*") if p.is_file())
    assert len(files) > 5
    for f in files:
        assert (tmp_path / "a" / f).read_bytes() == (tmp_path / "b" / f).read_bytes(), f


def test_an_unknown_architecture_is_named(aned, tmp_path):
    import gguf
    p = tmp_path / "x.gguf"
    w = gguf.GGUFWriter(str(p), "mamba")
    w.add_block_count(1)
    w.add_tensor("token_embd.weight", np.zeros((8, 32), np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    r = run(aned, "convert", p, "--out", tmp_path / "out")
    assert r.returncode == 65
    assert b"mamba" in r.stderr
    assert not (tmp_path / "out").exists()
    assert run(aned, "tensor", p, "token_embd.weight", tmp_path / "t.npy").returncode == 0
    assert np.load(tmp_path / "t.npy").shape == (8, 32)


def test_anectl_without_a_daemon(anectl, tmp_path):
    r = run(anectl, "status", env={"ANED_SOCKET": str(tmp_path / "none.sock")})
    assert r.returncode == 69
    assert b"aned serve" in r.stderr


def test_api(aned):
    """Routes and fields as the daemon's tables have them; the file in proto/ is made of them."""
    def say(*args, code=0):
        r = subprocess.run([aned, "api", *args], capture_output=True, text=True)
        assert r.returncode == code, r.stderr
        return r.stdout
    file = TOP / "proto" / "api.json"
    doc = json.loads(file.read_text())
    listed = {tuple(x.split()[:2]) for x in say().splitlines()}
    assert listed == {(m.upper(), p) for p, methods in doc["paths"].items() for m in methods}
    assert say("--json", str(file)) == file.read_text()
    fields = say("/api/chat")
    assert "options.temperature (number, 0 to 2)\n    0 is greedy.\n" in fields and "messages (array)\n" in fields
    assert "max_tokens (integer, 0 to 1048576)" in say("/v1/messages")
    say("/health", code=66)
    say("--json", "/none", code=66)
    say("a", "b", code=64)


def test_anectl_api(anectl):
    """The same for people, without a daemon."""
    def say(*args, code=0):
        r = subprocess.run([anectl, "api", *args], capture_output=True, text=True, env={"ANED_SOCKET": "/none"})
        assert r.returncode == code, r.stderr
        return r.stderr if code else r.stdout
    doc = json.loads((TOP / "proto" / "api.json").read_text())
    lines = say().splitlines()
    assert [x for x in lines if not x.startswith(" ")] == [t["name"] for t in doc["tags"]]
    listed = [tuple(x.split()[:2]) for x in lines if x.startswith(" ")]
    assert sorted(listed) == sorted((m.upper(), p) for p, methods in doc["paths"].items() for m in methods)
    assert json.loads(say("--json")) == doc
    one = json.loads(say("--json", "/infill"))
    assert list(one["paths"]) == ["/infill"] and one["components"] == doc["components"]
    fields = say("/api/chat")
    assert fields.startswith("POST   /api/chat: ") and "  messages (array)\n" in fields
    assert "  options.temperature (number, from 0 to 2, default 0.8)\n      0 is greedy.\n" in fields
    assert "  input_prefix (string, required)\n" in say("/infill")
    assert "  tokens (array, required)\n" in say("/detokenize")  # described by hand
    assert "DELETE /aned/v1/models/{name}: " in say("/aned/v1/models/{name}")
    assert all(len(x) <= 80 for x in fields.splitlines() if x.startswith("      "))
    assert "there is no route /none" in say("/none", code=66)
    say("a", "b", code=64)
