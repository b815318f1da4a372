"""What the converter writes, seen by others (issue 3, item 6): coremltools accepts every package, a numpy
evaluation of it and our backends agree, and our qwen2 shard computes what the ane-book one does."""
import pathlib
import shutil

import numpy as np
import pytest

from forward import Model
from oracle_tools import (convert, coreml_python, flat_cosine, load_steps, manifest, mil_numpy, mil_run, mkgguf, packages,
                          random_model, run, save_steps, shard_steps)

FORMS = [
    ("tiny-llama", "fp16", []),
    ("tiny-llama", "int8", ["--norm", "max"]),
    ("tiny-qwen2", "int8", []),
    ("tiny-qwen2", "fp16", ["--residual-scale", "0.25"]),
    ("tiny-gemma", "int8", []),
    ("tiny-gemma", "fp16", ["--norm", "max"]),
    ("tiny-llama", "lut4", []),
    ("tiny-qwen2", "lut6:8", ["--head-quant", "lut6"]),
    ("tiny-gemma", "lut4:4", ["--quant-for", "*ffn_down*=int4", "--quant-for", "blk.1.*=int8-tensor"]),
]


VERIFY = """
import runpy, sys
tool, *found = sys.argv[1:]
for package in found:  # in one process: coremltools takes a second to import
    sys.argv = [tool, package]
    runpy.run_path(tool, run_name="__main__")
"""


def verify(shared, found, folder):
    """On copies: coremltools writes Manifest.json anew when it opens a package."""
    copies = [shutil.copytree(p, folder / "copies" / p.name) for p in found]
    text = run(coreml_python(), "-c", VERIFY, shared / "tools" / "verify_mlpackage.py", *copies)
    assert text.count(" blob refs OK") == len(copies), text
    shutil.rmtree(folder / "copies")


@pytest.mark.parametrize("model,quant,args", FORMS, ids=lambda v: "".join(v) if isinstance(v, list) else v)
def test_emitted_packages(aned, shared, tmp_path, model, quant, args):
    convert(aned, random_model(tmp_path, model), tmp_path / "bundle", quant, *args)
    found = packages(tmp_path / "bundle")
    assert len(found) >= 2, "at least one layer shard and one head"
    verify(shared, found, tmp_path)
    for package in found:
        run(aned, "inspect", package)
    run(aned, "inspect", tmp_path / "bundle")


def test_real_packages(shared, gemma_bundle, tmp_path):
    verify(shared, packages(gemma_bundle("int8")), tmp_path)


def test_same_input_same_package(aned, tmp_path):
    source = random_model(tmp_path, "tiny-qwen2")
    for name in ("a", "b"):
        convert(aned, source, tmp_path / name, "int8")
    for a in packages(tmp_path / "a"):
        for f in (p for p in a.rglob("*") if p.is_file()):
            other = tmp_path / "b" / f.relative_to(tmp_path / "a")
            assert f.read_bytes() == other.read_bytes(), f.name


@pytest.mark.parametrize("quant", ["fp16", "int8", "lut4", "lut6"])
@pytest.mark.parametrize("model", ["tiny-llama", "tiny-qwen2", "tiny-gemma"])
def test_shards_in_numpy(aned, tmp_path, model, quant):
    """One layer shard with state and one head, run by both backends and by numpy."""
    source = random_model(tmp_path, model)
    convert(aned, source, tmp_path / "bundle", quant, "--context", 64)
    shape, m = mkgguf.SHAPES[model], Model(source)
    found = packages(tmp_path / "bundle")
    layers = next(p for p in found if p.name.startswith("layers"))
    head = next(p for p in found if p.name.startswith("head"))
    rope = {"": (m.rope_dim, m.rope_base)}
    if shape.arch == "gemma3":
        rope["_local"] = (m.rope_dim, 10000.0)
    steps = shard_steps(shape.d, 64, rope, [4, 4, 1, 1, 3, 2, 4, 4, 4, 4, 4, 1], window=shape.window)
    heads = [{"x": s["x"]} for s in steps[:3]]
    for package, inputs in ((layers, steps), (head, heads)):
        place = tmp_path / package.stem
        save_steps(place / "in", inputs)
        mil_numpy(package, place / "in", place / "want")
        want = load_steps(place / "want")
        for backend in ("interpreter", "cpu"):
            mil_run(aned, package, place / "in", place / backend, "--backend", backend)
            got = load_steps(place / backend)
            for k, step in enumerate(want):
                for name, value in step.items():
                    assert got[k][name].shape == value.shape
                    c = flat_cosine(got[k][name], value)
                    assert c >= 0.99999, f"{package.name} {backend} step {k} {name}: {c:.7f}"


# --- our qwen2 shard and the ane-book one on the same weights ---

READ_WEIGHTS = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from mil_numpy import Runner
r = Runner(sys.argv[2])
found = {o.outputs[0].name: o.outputs[0].val for o in r.function.operations if o.op_type == 'const'}
np.savez(sys.argv[3], **{k: v for k, v in found.items() if isinstance(v, np.ndarray) and k.startswith('layers_')})
"""


def anebook_weights(shared, folder):
    """{GGUF name: fp32} of the two layers of qwen2_ranged_fp16."""
    script = folder / "weights.py"
    script.write_text(READ_WEIGHTS)
    here = pathlib.Path(__file__).parent
    run(coreml_python(), script, here, shared / "data/coreml/anebook/qwen2_ranged_fp16.mlpackage", folder / "w.npz")
    z = {k: v.astype(np.float32) for k, v in np.load(folder / "w.npz").items()}
    out = {}
    for layer in range(2):
        a, b = f"layers_{layer}_", f"blk.{layer}."
        for part, rows in (("weight", z[a + "qkv_weight"][:, :, 0, 0]), ("bias", z[a + "qkv_bias"])):
            for name, piece in zip(("attn_q", "attn_k", "attn_v"), np.split(rows, [192, 256])):
                out[f"{b}{name}.{part}"] = piece
        gate, up = np.split(z[a + "gate_up_weight"][:, :, 0, 0], 2)
        out[b + "ffn_gate.weight"], out[b + "ffn_up.weight"] = gate, up
        out[b + "ffn_down.weight"] = z[a + "down_weight"][:, :, 0, 0]
        out[b + "attn_output.weight"] = z[a + "out_weight_promoted_to_fp16"][:, :, 0, 0]
        out[b + "attn_norm.weight"] = z[a + "attn_norm_w_promoted_to_fp16"].ravel()
        out[b + "ffn_norm.weight"] = z[a + "ffn_norm_w_promoted_to_fp16"].ravel()
    return out


def test_same_function_as_anebook(aned, shared, tmp_path):
    # its epsilon of 2^-24 stands after a division of x by sqrt(d)
    shape = mkgguf.Shape("qwen2", 2, 192, 6, 2, 32, 448, 512, bias=True, rope_base=1e6, eps=192 * 2.0**-24, context=96)
    source = tmp_path / "anebook.gguf"
    mkgguf.write(source, shape, "f16", weights=anebook_weights(shared, tmp_path))
    convert(aned, source, tmp_path / "bundle", "fp16", "--context", "96", "--residual-scale", "1")
    assert manifest(tmp_path / "bundle")["context"] == 96
    ours = [p for p in packages(tmp_path / "bundle") if p.name.startswith("layers")]
    assert len(ours) == 1, "two small layers belong in one shard"
    z = np.load(shared / "data/coreml/anebook/qwen2_ranged_fp16.npz")
    steps = [{} for _ in range(sum(k.endswith(".x") for k in z.files))]
    for key in z.files:
        step, name = key.split(".", 1)
        if step != "final" and name != "hidden":
            steps[int(step.removeprefix("step"))][name] = z[key]
    save_steps(tmp_path / "in", steps)
    mil_run(aned, ours[0], tmp_path / "in", tmp_path / "ours")
    mil_run(aned, shared / "data/coreml/anebook/qwen2_ranged_fp16.mlpackage", tmp_path / "in", tmp_path / "theirs")
    worst = 0.0
    for a, b in zip(load_steps(tmp_path / "ours"), load_steps(tmp_path / "theirs"), strict=True):
        scale = max(1.0, float(np.abs(b["hidden"]).max()))
        worst = max(worst, float(np.abs(a["hidden"] - b["hidden"]).max()) / scale)
    print(f"ours against ane-book's: largest difference {worst:.2g} of the largest value")
    assert worst <= 1e-3
