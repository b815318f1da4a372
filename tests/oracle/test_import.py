"""What the public converter made, imported and run by the engine's own step code (issue 16, item 8).

The recorded steps have hidden states, not tokens. So the embedding's row of id p is `x` at position p, and the heads
give the hidden state back as logits: a step of ids p, p + 1 ... is the recorded step.
"""
import os
import pathlib
import shutil

import numpy as np
import pytest

import anebook
from oracle_tools import TOP, coreml_python, flat_cosine, load_steps, mil_numpy, run, save_steps
from test_anebook import BAR, read

BIN = pathlib.Path(os.environ.get("ANED_BIN", TOP / ".build" / "release"))
ERROR_MAX = 0.0072  # what the same module in torch's fp16 differs by (INDEX.md of the data)
SLICES = 2
SHAPES = {  # what the manifests of these models say
    "phi_ranged": dict(d_model=128, n_heads=4, n_kv_heads=2, d_head=32, rope_dim=24, d_ff=320, max_seq_len=64,
                       rope_freq_base=10000.0),
    "qwen2_ranged": dict(d_model=192, n_heads=6, n_kv_heads=2, d_head=32, d_ff=448, max_seq_len=96, rope_freq_base=1e6),
}


@pytest.fixture(params=[(m, q) for m in SHAPES for q in ("fp16", "int8")], ids="-".join)
def model(request, shared, tmp_path):
    """(package, inputs, fp32 outputs, final states, manifest)"""
    name, quant = request.param
    data = shared / "data" / "coreml" / "anebook"
    inputs, outputs, final = read(data, name)
    d = SHAPES[name]["d_model"]
    folder = tmp_path / "ane-book"
    folder.mkdir()
    package = shutil.copytree(data / f"{name}_{quant}.mlpackage", folder / f"{name}_{quant}.mlpackage")
    run(coreml_python(), pathlib.Path(__file__).with_name("head_build.py"), folder, d, SLICES)
    x = np.concatenate([s["x"][0, :, :, 0].T for s in inputs])
    table = np.zeros((d, d), np.float16)
    table[: len(x)] = x
    table.tofile(folder / "embd_fp16.bin")
    m = anebook.manifest(name, "embd_fp16.bin", [(0, 2, f"{package.name[:-len('.mlpackage')]}.mlmodelc")],
                         [(k * d // SLICES, (k + 1) * d // SLICES, f"head_{k}.mlmodelc") for k in range(SLICES)],
                         vocab_size=d, n_layers=2, rms_norm_eps=1e-6, **SHAPES[name])
    return package, inputs, outputs, final, anebook.write(folder / "x_runtime_meta.json", m)


def test_steps(aned, model, tmp_path):
    package, inputs, outputs, final, meta = model
    widths = [s["x"].shape[2] for s in inputs]
    d = inputs[0]["x"].shape[1]
    text = run(aned, "import", meta, "--out", tmp_path / "bundle", "--tokenizer",
               anebook.vocabulary(tmp_path / "v.gguf", d))
    assert "structure  passed: 3 packages" in text and "exactness  passed" in text
    np.save(tmp_path / "tokens.npy", np.arange(sum(widths), dtype=np.int32))
    (tmp_path / "out").mkdir()
    run(BIN / "tests" / "oracle" / "engine_steps", tmp_path / "bundle", tmp_path / "tokens.npy",
        ",".join(map(str, widths)), tmp_path / "out")
    if package.name.endswith("int8.mlpackage"):  # the truth is then the package's own dequantised weights
        save_steps(tmp_path / "in", inputs)
        mil_numpy(package, tmp_path / "in", tmp_path / "want")
        outputs = load_steps(tmp_path / "want")
        final = {name: np.load(tmp_path / "want" / "state" / f"{name}.npy") for name in final}
    least, most = 1.0, 0.0
    for k, want in enumerate(outputs):
        got, want = np.load(tmp_path / "out" / f"step{k}.npy"), want["hidden"][0, :, :, 0].T
        assert got.shape == want.shape
        least, most = min(least, flat_cosine(got, want)), max(most, float(np.abs(got - want).max()))
    print(f"{package.name}: {len(outputs)} steps, least cosine {least:.9f}, largest difference {most:.5f}")
    assert least >= BAR[""] and most <= ERROR_MAX
    for name, want in final.items():
        got = np.load(tmp_path / "out" / f"{name}.npy")
        assert got.shape == want.shape
        assert flat_cosine(got, want) >= BAR["fp16"], name
