"""Bundles of onnxruntime-genai's own builder (int4, accuracy level 1), made here: aned writes what ONNX Runtime writes with them.

As long as ONNX Runtime's best token is clearly before its second; where it is not, both may go on with another.
"""
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from conftest import TOP

sys.path.insert(0, str(TOP / "tests" / "oracle"))

from oracle_tools import convert, logits  # noqa: E402

HERE = pathlib.Path(__file__).parent
PYTHON = pathlib.Path(os.environ.get("ANED_BUILDER_PYTHON", TOP / ".build" / "venv-builder" / "bin" / "python"))
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="onnxruntime-genai is not installed: ./dev test onnx-builder")
CLEAR = 0.02
FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "lfm2", "lfm2moe"]


def make(out, *args):
    r = subprocess.run([PYTHON, HERE / "make.py", args[0], out, *args[1:]], capture_output=True, text=True, timeout=1500,
                       env=os.environ | {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""})
    assert r.returncode == 0, r.stderr[-4000:]
    return dict(np.load(out / "greedy.npz"))


def compared(aned, bundle, folder, z):
    """How many tokens were the same, of all prompts; and of how many texts the whole."""
    same = whole = 0
    for i, first in enumerate(z["prompts"]):
        ids, gaps = z[f"ids{i}"], z[f"gaps{i}"]
        ours = np.array(logits(aned, bundle, ids[:-1], folder))[first - 1 :].argmax(-1)
        close = np.flatnonzero(gaps < CLEAR)
        n = int(close[0]) if len(close) else len(gaps)
        assert list(ours[:n]) == list(ids[first : first + n]), f"prompt {i}: {ours[:n]} and not {ids[first:first + n]}"
        same, whole = same + n, whole + (n == len(gaps))
    return same, whole


def check(aned, folder, z, least):
    convert(aned, folder / "onnx", folder / "bundle")
    same, whole = compared(aned, folder / "bundle", folder, z)
    print(f"{folder.name}: {same} tokens the same, {whole} of {len(z['prompts'])} texts to their end")
    assert same >= least, "too few clear choices to mean anything"


@pytest.mark.parametrize("family", FAMILIES)
def test_family(aned, tmp_path, family):
    check(aned, tmp_path, make(tmp_path, family), 40)


def test_trained(aned, demo_gguf, tmp_path):
    """A trained model, small as it is: the demo's GGUF, dequantised, and again in four bits."""
    check(aned, tmp_path, make(tmp_path, "demo", demo_gguf), 40)
