"""ONNX bundles convert right, and what is none is refused by name.

ONNX Runtime's logits judge it: of the bundles that onnxruntime-genai's builder made (shared data), and of random ones in
every form of weights that is read (onnx_build.py). What rows decode to is held, bit for bit, to numpy over the
initialisers.
"""
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

import onnx_forms
from decoder import cosine, kl
from oracle_tools import TOP, convert, logits, run
from test_families import CLEAR, COSINE, LARGEST, MEAN_KL, faults
from test_safetensors import same_bundle

BUNDLES = ["qwen3-a", "hunyuan-a", "phi3-a", "lfm2-a"]
REFUSED = {  # folder or file: error, and what its text must say
    "genai-tiny-random-llama-fp32-nodata": ("not_found", "model.onnx.data"),
    "genai-tiny-random-gpt2-fp32": ("unsupported", "version 11"),
    "genai-tiny-graph-capture-gqa": ("onnx.not_understood", "'residual' (Add)"),
    "genai-tiny-random-lfm2": ("onnx.not_understood", "two outputs"),
    "genai-pipeline-cpu.ortpackage": ("invalid", "no *.onnx"),
    "genai-synthetic-paged": ("onnx.not_understood", "two outputs"),
    "misc/mnist.onnx": ("unsupported", "version 7"),
    "misc/optimum-model.onnx": ("unsupported", "version 11"),
    "migraphx-ops/matmulnbits_mm_test.onnx": ("onnx.not_understood", "no constants"),
}


@pytest.fixture(scope="session")
def onnx_python():
    p = pathlib.Path(os.environ.get("ANED_ONNX_PYTHON", TOP / ".build" / "venv-onnx" / "bin" / "python"))
    if not p.exists():
        pytest.skip("onnx and onnxruntime: not installed (.build/venv-onnx)")
    return p


def script(python, name, *args):
    r = subprocess.run([python, TOP / "tests" / "oracle" / name, *args], capture_output=True, text=True, timeout=300)
    assert r.returncode == 0, r.stderr[-2000:]


def folder_of(shared, name):
    folder = shared / "data" / "onnx" / name
    if not folder.exists():
        pytest.skip(f"{folder} is not there")
    return folder


def has_family(aned, name):
    listed = run(aned, "convert", "--help").partition("\nArchitectures:\n")[2].replace(",", " ").split()
    return name.split("-")[0] in {a.split("-")[0] for a in listed}


@pytest.mark.parametrize("name", BUNDLES)
def test_bundle(aned, shared, tmp_path, name):
    """Of the quantised weights, in fp16: under the bars of a family."""
    folder = folder_of(shared, name)
    if not has_family(aned, name):
        pytest.skip(f"{name}: its family is not converted yet")
    z = dict(np.load(folder / "expected.npz"))
    z["routed"] = np.ones(len(z["tokens"]) + len(z["greedy"]), bool)  # of experts there are none
    convert(aned, folder, tmp_path / "bundle")
    for backend in ("cpu", "interpreter"):
        got = np.array(logits(aned, tmp_path / "bundle", np.concatenate([z["tokens"], z["greedy"]]), tmp_path, "--backend",
                              backend))
        off = np.abs(got[z["logits_pos"]] - z["logits"]).max() / np.abs(z["logits"]).max()
        print(f"{name} {backend}: largest {100 * off:.2f} %")
        assert faults(z, got) == [], backend


def test_older_builder(aned, shared, tmp_path):
    """Halves, a mask as a tensor, a rotation whose base no configuration says; ONNX Runtime computed in halves."""
    folder = folder_of(shared, "genai-tiny-random-llama-fp16")
    convert(aned, folder, tmp_path / "bundle")
    for text in json.loads((folder / "expected_ort_1_30.json").read_text()):
        tokens = text["prompt"] + text["generated"]
        got = np.array(logits(aned, tmp_path / "bundle", tokens, tmp_path))[len(text["prompt"]) - 1 :]
        for row, step in zip(got, text["steps"], strict=False):
            ids, want = (np.array(x) for x in zip(*step["top8"], strict=True))
            assert np.abs(row[ids.astype(int)] - want).max() <= LARGEST * np.abs(want).max()
            assert np.abs(row[:16] - step["logits_first16"]).max() <= LARGEST * np.abs(want).max()
            assert want[0] - want[1] < 0.002 or row.argmax() == step["argmax"]


@pytest.mark.parametrize("name", BUNDLES)
def test_rows(aned, shared, onnx_python, tmp_path, name):
    """Every tensor, bit for bit."""
    folder = folder_of(shared, name)
    script(onnx_python, "onnx_rows.py", folder, tmp_path / "rows.npz")
    want = dict(np.load(tmp_path / "rows.npz"))
    if name.startswith("phi3"):
        for i in range(3):
            want[f"blk.{i}.ffn_up.weight"] = np.concatenate([want.pop(f"blk.{i}.ffn_gate.weight"),
                                                             want[f"blk.{i}.ffn_up.weight"]])
    if name.startswith("lfm2"):
        want["token_embd_norm.weight"] = want.pop("output_norm.weight")
    found = {t["name"] for t in json.loads(run(aned, "inspect", folder, "--json"))["tensors"]}
    assert found - {"rope_factors_short.weight", "rope_factors_long.weight"} == set(want)
    for tensor, rows in want.items():
        run(aned, "tensor", folder, tensor, tmp_path / "t.npy")
        got = np.load(tmp_path / "t.npy")
        assert np.array_equal(got.view(np.uint32), rows.astype(np.float32).view(np.uint32)), tensor


@pytest.mark.parametrize("form", onnx_forms.FORMS)
def test_form(aned, onnx_python, tmp_path, form):
    folder = tmp_path / form
    script(onnx_python, "onnx_build.py", form, folder)
    z = np.load(folder / "expected.npz")
    convert(aned, folder, tmp_path / "bundle")
    got, want = np.array(logits(aned, tmp_path / "bundle", z["tokens"], tmp_path)), z["logits"]
    off = np.abs(got - want).max() / np.abs(want).max()
    print(f"{form}: largest {100 * off:.2f} %, cosine {cosine(want, got).min():.6f}")
    assert off <= LARGEST and cosine(want, got).min() >= COSINE and kl(want, got).mean() <= MEAN_KL
    assert not ((got.argmax(-1) != z["argmax"]) & (z["top2_gap"] > CLEAR)).any()


@pytest.mark.parametrize("form", onnx_forms.NONE)
def test_no_family(aned, onnx_python, tmp_path, form):
    """What no family's numbers can say is refused, and not lost."""
    script(onnx_python, "onnx_build.py", form, tmp_path / form)
    r = subprocess.run([aned, "convert", tmp_path / form, "--out", tmp_path / "bundle"], capture_output=True, text=True, timeout=60)
    assert r.returncode == 65 and r.stderr.startswith("onnx.not_understood: ") and onnx_forms.NONE[form][1] in r.stderr, r.stderr


@pytest.mark.parametrize("family", ["qwen3", "mistral"])
def test_same_from_every_form(aned, shared, onnx_python, tmp_path, family):
    """One model as GGUF, safetensors and ONNX: one bundle, byte by byte."""
    folder = shared / "data" / "families" / family / "a"
    if not (folder / "model.safetensors").exists():
        pytest.skip(f"{folder} is not there")
    script(onnx_python, "onnx_export.py", folder, tmp_path / "onnx")
    for source, place in ((folder / "model.gguf", "one"), (folder, "two")):
        (tmp_path / place).mkdir()
        same_bundle(aned, source, tmp_path / "onnx", tmp_path / place)


@pytest.mark.parametrize("name", BUNDLES)
def test_inspect(aned, shared, name):
    """All nodes are understood, and the sum of operations is the graph."""
    found = json.loads(run(aned, "inspect", folder_of(shared, name), "--json"))
    assert found["sound"] and "not_understood" not in found
    operations = found["graph"]["operations"]
    assert all(o["nodes"] == o["understood"] for o in operations)
    assert sum(o["nodes"] for o in operations) == found["graph"]["nodes"]
    assert [f["file"] for f in found["graph"]["external_files"]] == ["model.onnx.data"]
    assert found["architecture"].split("-")[0] == name.split("-")[0]


@pytest.mark.parametrize("name", REFUSED)
def test_refused(aned, shared, name):
    folder, (code, says) = folder_of(shared, name), REFUSED[name]
    for command in (["inspect", folder], ["convert", folder, "--out", "/nowhere/bundle", "--dry-run"]):
        r = subprocess.run([aned, *command], capture_output=True, text=True, timeout=60)
        assert r.returncode in (65, 66), r.stderr
        assert r.stderr.startswith(f"{code}: ") and says in r.stderr, r.stderr


def test_what_is_left_is_shown(aned, shared):
    """The nodes that were not understood, with the error."""
    r = subprocess.run([aned, "inspect", folder_of(shared, "genai-tiny-graph-capture-gqa"), "--json"], capture_output=True,
                       text=True, timeout=60)
    found = json.loads(r.stdout)
    assert not found["sound"]
    assert "GroupQueryAttention" in {n["operation"] for n in found["not_understood"]}
    assert found["nodes_not_understood"] == len(found["not_understood"])
