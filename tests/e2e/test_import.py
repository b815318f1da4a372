"""Core ML packages with an ane-book manifest become a model: on files, and as a job of the daemon."""
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import anebook
from conftest import TOP, Daemon, until

sys.path.insert(0, str(TOP / "tests" / "bench"))
import mkgguf  # noqa: E402


def run(*args, code=0):
    r = subprocess.run([str(a) for a in args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert r.returncode == code, f"{args}\nexit {r.returncode}, wanted {code}\n{r.stdout}\n{r.stderr}"
    return r.stderr if code else r.stdout


@pytest.fixture(scope="module")
def source(aned, tmp_path_factory):
    """A model of ours as ane-book's converters would leave it, and the bundle that it was taken from."""
    folder = tmp_path_factory.mktemp("import")
    mkgguf.write(folder / "t.gguf", mkgguf.SHAPES["tiny-llama"], "f16")
    run(aned, "convert", folder / "t.gguf", "--out", folder / "bundle", "--residual-scale", "1")
    anebook.of_bundle(folder / "bundle", folder / "ab")
    return folder


@pytest.fixture
def copy(source, tmp_path):
    """(the manifest's path, its content): may be changed"""
    shutil.copytree(source / "ab", tmp_path / "ab")
    path = tmp_path / "ab" / "tiny_runtime_meta.json"
    return path, json.loads(path.read_text())


def logits(aned, bundle, folder):
    np.save(folder / "tokens.npy", np.arange(3, 60, dtype=np.int32))
    run(aned, "logits", bundle, folder / "tokens.npy", folder / "logits.npy")
    return np.load(folder / "logits.npy")


@pytest.mark.parametrize("how", ["--copy", "--link"])
def test_what_is_imported_computes_the_same(aned, source, tmp_path, how):
    """Our own packages in another's manifest: every bit of every logit."""
    meta = source / "ab" / "tiny_runtime_meta.json"
    text = run(aned, "import", meta, "--out", tmp_path / "b", "--tokenizer", source / "t.gguf", how)
    for line in ("structure  passed: 2 packages", "range      not run", "quality    not run", "exactness  passed"):
        assert line in text
    assert np.array_equal(logits(aned, tmp_path / "b", tmp_path), logits(aned, source / "bundle", tmp_path))
    told = json.loads((tmp_path / "b" / "bundle.json").read_text())
    ours = json.loads((source / "bundle" / "bundle.json").read_text())
    for key in ("n_layers", "d_model", "d_ff", "vocab", "context", "quant", "kv", "shape"):
        assert told[key] == ours[key], key
    assert (told["architecture"], told["name"]) == ("Tiny", "tiny")
    links = os.stat(tmp_path / "b" / "embed.bin").st_nlink
    assert links == (2 if how == "--link" else 1)


def drop(m, key):
    del m[key]


def put(key, value):
    return lambda m: m.__setitem__(key, value)


def put_in(what, i, key, value):
    return lambda m: m[what][i].__setitem__(key, value)


# A change of the manifest: the error's name, and words of its text.
BAD = {
    "unknown key": (put("attn_scale", 2), "unsupported", "'attn_scale' is not understood"),
    "unknown key of a layer": (put_in("layers", 0, "kind", "moe"), "unsupported", "layers[0]: the key 'kind'"),
    "another version": (put("artifacts_version", 2), "unsupported", "artifacts_version 2"),
    "no d_ff": (lambda m: drop(m, "d_ff"), "convert.source", "--set d_ff=NUMBER"),
    "no eps": (lambda m: drop(m, "rms_norm_eps"), "convert.source", "--set rms_norm_eps=NUMBER"),
    "no rope base": (put("rope_freq_base", None), "convert.source", "--set rope_freq_base=NUMBER"),
    "text for a number": (put("d_model", "64"), "invalid", "d_model"),
    "fraction": (put("d_model", 64.5), "invalid", "d_model"),
    "no dimension": (put("d_model", 0), "invalid", "d_model"),
    "heads that do not share": (put("n_kv_heads", 3), "convert.source", "n_heads 4 is no multiple"),
    "odd rope": (put("rope_dim", 31), "convert.source", "rope_dim 31"),
    "wide rope": (put("rope_dim", 64), "convert.source", "rope_dim 64"),
    "other rope": (put("rope_dim", 16), "convert.source", "rope_cos has shape"),
    "eos": (put("eos_token_id", 512), "convert.source", "eos_token_id 512"),
    "other context": (put("max_seq_len", 128), "convert.source", "attn_mask has shape fp16[1,1,1,256]"),
    "other width": (put("d_model", 32), "convert.source", "ane/tiny_token_embd_fp16.bin has 65536 bytes"),
    "other kv heads": (put("n_kv_heads", 4), "convert.source", "layers_0_k_state has shape"),
    "absolute path": (put_in("layers", 0, "path", "/etc/x.mlpackage"), "convert.source", "is absolute"),
    "path out": (put_in("layers", 0, "path", "../x.mlpackage"), "convert.source", "below the manifest's folder"),
    "embed out": (put("embed_bin", "ane/../../t.gguf"), "convert.source", "embed_bin"),
    "no embed": (put("embed_bin", "none.bin"), "not_found", "none.bin"),
    "no package": (put_in("layers", 0, "path", "ane/none.mlmodelc"), "convert.source", "ane/none.mlpackage is not there"),
    "not a package": (put_in("layers", 0, "path", "ane/x.bin"), "convert.source", "no .mlpackage"),
    "a gap": (put_in("layers", 0, "start", 1), "convert.source", "do not follow 0"),
    "short": (put_in("layers", 0, "end", 2), "convert.source", "layers end at 2 of 3"),
    "too few layers": (lambda m: m.update(n_layers=2, layers=[m["layers"][0] | {"end": 2}]), "convert.source",
                       "states for 2 layers"),
    "too many layers": (lambda m: m.update(n_layers=4, layers=[m["layers"][0] | {"end": 4}]), "convert.source",
                        "no state layers_3_k_state"),
    "twice": (lambda m: m.update(n_layers=6, layers=[m["layers"][0], m["layers"][0] | {"start": 3, "end": 6}]),
              "convert.source", "listed twice"),
    "no layers": (put("layers", []), "convert.source", "layers is not a list"),
    "no heads": (lambda m: drop(m, "lm_head_shards"), "convert.source", "lm_head_shards is not a list"),
    "short head": (put_in("lm_head_shards", 0, "vocab_end", 500), "convert.source", "ids end at 500 of 512"),
    "wrong head": (put_in("lm_head_shards", 0, "mlmodelc", "ane/tiny_layer0_3_q8.mlmodelc"), "convert.source",
                   "listed twice"),
    "two paths": (put_in("layers", 0, "mlmodelc", "ane/y.mlmodelc"), "convert.source", "mlmodelc beside path"),
    "smaller vocabulary": (lambda m: m.update(vocab_size=256, lm_head_shards=[m["lm_head_shards"][0] | {"vocab_end": 256}]),
                           "convert.source", "it is of another model"),
}


@pytest.mark.parametrize("change", BAD)
def test_a_bad_manifest_is_told(aned, source, copy, tmp_path, change):
    meta, m = copy
    edit, name, words = BAD[change]
    edit(m)
    anebook.write(meta, m)
    code = 66 if name == "not_found" else 65
    text = run(aned, "import", meta, "--out", tmp_path / "b", "--tokenizer", source / "t.gguf", code=code)
    assert text.startswith(f"{name}: ") and words in text, text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ab"], "nothing is left"


def test_a_number_that_lacks_is_set(aned, source, copy, tmp_path):
    meta, m = copy
    for key in ("d_ff", "rms_norm_eps"):
        drop(m, key)
    anebook.write(meta, m)
    sets = ["--set", "d_ff=160", "--set", "rms_norm_eps=1e-5"]
    run(aned, "import", meta, "--out", tmp_path / "b", "--tokenizer", source / "bundle", *sets)
    assert json.loads((tmp_path / "b" / "bundle.json").read_text())["d_ff"] == 160
    for wrong, words in (("d_model=64", "the manifest has d_model"), ("zoom=1", "no such number 'zoom'"),
                         ("d_ff", "KEY=NUMBER"), ("d_ff=x", "KEY=NUMBER")):
        text = run(aned, "import", meta, "--out", tmp_path / "c", "--tokenizer", source / "bundle", "--set", wrong, code=65)
        assert text.startswith("invalid: ") and words in text, text


def test_a_vocabulary_is_needed(aned, source, tmp_path):
    meta = source / "ab" / "tiny_runtime_meta.json"
    assert "--tokenizer FILE.gguf" in run(aned, "import", meta, "--out", tmp_path / "b", code=65)
    other = anebook.vocabulary(tmp_path / "v.gguf", 600)
    text = run(aned, "import", meta, "--out", tmp_path / "b", "--tokenizer", other, code=65)
    assert "600 tokens" in text and "another model" in text


def test_links_that_lead_out_are_refused(aned, source, copy, tmp_path):
    meta, m = copy
    ane = meta.parent / "ane"
    for where in (ane / "tiny_layer0_3_q8.mlpackage", ane / "tiny_layer0_3_q8.mlpackage" / "Manifest.json",
                  ane / "tiny_token_embd_fp16.bin"):
        away = tmp_path / "away"
        where.rename(away)
        where.symlink_to(away)
        text = run(aned, "import", meta, "--out", tmp_path / "b", "--tokenizer", source / "t.gguf", code=65)
        assert "leads out of the manifest's folder" in text or "only files and folders" in text, text
        where.unlink()
        away.rename(where)
    inside = ane / "elsewhere.bin"  # one that stays inside is followed
    (ane / "tiny_token_embd_fp16.bin").rename(inside)
    (ane / "tiny_token_embd_fp16.bin").symlink_to("elsewhere.bin")
    run(aned, "import", meta, "--out", tmp_path / "b", "--tokenizer", source / "t.gguf")


def test_a_table_that_is_no_fp16(aned, source, copy, tmp_path):
    meta, m = copy
    table = meta.parent / m["embed_bin"]
    table.write_bytes(b"\xff" * table.stat().st_size)
    text = run(aned, "import", meta, "--out", tmp_path / "b", "--tokenizer", source / "t.gguf", code=65)
    assert "not finite" in text


def test_as_a_job(aned, anectl, source, tmp_path):
    meta = source / "ab" / "tiny_runtime_meta.json"
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    d = Daemon(aned, home=home)
    try:
        here = [anectl, "--socket", d.sock]
        assert "tiny" in run(*here, "import", meta, "--tokenizer", source / "t.gguf")
        run(*here, "convert", source / "t.gguf", "--name", "own")
        with d.http() as c:
            models = {m["name"]: m for m in c.get("/aned/v1/models").json()["models"]}
            assert models["tiny"]["state"] == "ready" and models["tiny"]["architecture"] == "Tiny"
            gates = {g["name"]: g["verdict"] for g in models["tiny"]["gates"]}
            assert (gates["quality"], gates["exactness"]) == ("not run", "passed")
            ask = {"prompt": "the ", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
            texts = [c.post("/v1/completions", json=ask | {"model": m}).json()["choices"][0]["text"] for m in ("tiny", "own")]
            assert texts[0] == texts[1] and texts[0]
            for wrong, param in (({"kind": "move"}, "kind"), ({"quant": "int8"}, "quant"), ({"context": 64}, "context"),
                                 ({"tokenizer": "x.gguf"}, "tokenizer"), ({"tokenizer": None}, "tokenizer"),
                                 ({"set": "d_ff=1"}, "set"), ({"set": [1]}, "set"), ({"kind": None}, "tokenizer")):
                r = c.post("/aned/v1/jobs", json={"kind": "import", "source": str(meta), "name": "n",
                                                  "tokenizer": str(source / "t.gguf")} | wrong)
                assert r.status_code == 400 and r.json()["error"]["param"] == param, (wrong, r.text)
        bad = anebook.write(tmp_path / "bad_runtime_meta.json", json.loads(meta.read_text()))  # no packages below it
        r = subprocess.run([*map(str, here), "import", str(bad), "--tokenizer", str(source / "t.gguf")],
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        assert r.returncode == 65 and "is not there" in r.stderr + r.stdout, r
        until(lambda: not list((home / "staging").iterdir()))
        assert not (home / "models" / "bad").exists()
    finally:
        assert d.close() == 0
