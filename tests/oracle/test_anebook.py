"""Packages that the public ane-book converter made, step by step with state (issue 3, item 5)."""
import numpy as np
import pytest

from oracle_tools import flat_cosine, load_steps, mil_numpy, mil_run, run, save_steps

MODELS = ["qwen2_ranged", "phi_ranged", "zaya_moe", "lfm2_conv"]
OUTPUTS = {"hidden", "new_conv_state", "ffn_normed", "routing"}
BAR = {"": 0.99999, "fp16": 0.9999}
LARGEST = 1e-3  # |difference| in fp32, of the largest |expected|


@pytest.fixture
def folder(shared):
    return shared / "data" / "coreml" / "anebook"


def read(folder, model):
    """(inputs, expected outputs) a step, and the states at the end."""
    inputs, outputs, final = [], [], {}
    z = np.load(folder / f"{model}_fp16.npz")
    for key in z.files:
        step, name = key.split(".", 1)
        if step == "final":
            final[name.replace(".", "_")] = z[key]
            continue
        k = int(step.removeprefix("step"))
        while len(inputs) <= k:
            inputs.append({})
            outputs.append({})
        (outputs if name in OUTPUTS else inputs)[k][name] = z[key]
    return inputs, outputs, final


def compare(got, want, bar):
    assert len(got) == len(want)
    least = 1.0
    for k, step in enumerate(want):
        for name, value in step.items():
            assert got[k][name].shape == value.shape, f"step {k} {name}"
            assert np.isfinite(got[k][name]).all(), f"step {k} {name}"
            c = flat_cosine(got[k][name], value)
            least = min(least, c)
            assert c >= bar, f"step {k} {name}: cosine {c:.7f}"
            off = np.abs(got[k][name].astype(np.float64) - value).max() / np.abs(value).max()
            assert off <= LARGEST or bar < BAR[""], f"step {k} {name}: {off:.2g} of the largest"
    return least


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize("rounding", ["", "fp16"], ids=["fp32", "round16"])
@pytest.mark.parametrize("model", MODELS)
def test_fp16(aned, folder, tmp_path, model, rounding, backend):
    inputs, outputs, final = read(folder, model)
    save_steps(tmp_path / "in", inputs)
    mode = ["--round", rounding] if rounding else []
    mil_run(aned, folder / f"{model}_fp16.mlpackage", tmp_path / "in", tmp_path / "out", "--backend", backend, *mode)
    least = compare(load_steps(tmp_path / "out"), outputs, BAR[rounding])
    print(f"{model} {rounding or 'fp32'} {backend}: least cosine {least:.9f}")
    for name, value in final.items():
        got = np.load(tmp_path / "out" / "state" / f"{name}.npy")
        assert got.shape == value.shape
        assert flat_cosine(got, value) >= BAR["fp16"], name  # states are fp16 in both modes


@pytest.mark.parametrize("rounding", ["", "fp16"], ids=["fp32", "round16"])
@pytest.mark.parametrize("model", MODELS)
def test_int8(aned, folder, tmp_path, model, rounding):
    """Against numpy on the package's own dequantised weights."""
    package = folder / f"{model}_int8.mlpackage"
    inputs, _, final = read(folder, model)
    save_steps(tmp_path / "in", inputs)
    mil_numpy(package, tmp_path / "in", tmp_path / "want")
    mode = ["--round", rounding] if rounding else []
    mil_run(aned, package, tmp_path / "in", tmp_path / "out", *mode)
    least = compare(load_steps(tmp_path / "out"), load_steps(tmp_path / "want"), BAR[rounding])
    print(f"{model} int8 {rounding or 'fp32'}: least cosine {least:.9f}")
    for name in final:
        a, b = (np.load(tmp_path / where / "state" / f"{name}.npy") for where in ("out", "want"))
        assert flat_cosine(a, b) >= BAR["fp16"], name


def test_fixed_t(aned, folder, tmp_path):
    """The T = 1 package is the ranged one, one row at a time; more rows are refused."""
    inputs, outputs, _ = read(folder, "qwen2_ranged")
    rows = []
    for step in inputs[:2]:
        for t in range(step["x"].shape[2]):
            rows.append({
                "x": step["x"][:, :, t : t + 1],
                "rope_cos": step["rope_cos"][t : t + 1],
                "rope_sin": step["rope_sin"][t : t + 1],
                "attn_mask": step["attn_mask"][:, :, t : t + 1],
                "kv_write_mask": step["kv_write_mask"][..., t : t + 1],
            })
    save_steps(tmp_path / "in", rows)
    mil_run(aned, folder / "qwen2_fixed1_fp16.mlpackage", tmp_path / "in", tmp_path / "out")
    got = np.concatenate([s["hidden"] for s in load_steps(tmp_path / "out")], axis=2)
    want = np.concatenate([s["hidden"] for s in outputs[:2]], axis=2)
    assert flat_cosine(got, want) >= BAR[""]
    assert np.abs(got - want).max() < 0.01


def test_outside_the_declared_range(aned, folder, tmp_path):
    inputs, _, _ = read(folder, "qwen2_ranged")
    save_steps(tmp_path / "in", inputs[:1])
    text = run(aned, "mil", "run", folder / "qwen2_fixed1_fp16.mlpackage", tmp_path / "in", tmp_path / "out", code=65)
    assert text.startswith("mil."), text
