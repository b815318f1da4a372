"""What the oracle tests share: running `aned` on files, and the random models."""
import dataclasses
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

TOP = pathlib.Path(os.environ.get("ANED_TOP", pathlib.Path(__file__).parents[2]))
sys.path.insert(0, str(TOP / "tests" / "bench"))

import mkgguf  # noqa: E402

def run(*args, code=0, timeout=1200):
    """Run a command; its exit code must be `code`. Returns stderr on failure codes, stdout else."""
    r = subprocess.run([str(a) for a in args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
    shown = " ".join(str(a) for a in args)
    assert r.returncode == code, f"{shown}\nexit {r.returncode}, wanted {code}\n{r.stdout[-2000:]}\n{r.stderr[-4000:]}"
    return r.stderr if code else r.stdout


def convert(aned, source, out, quant="fp16", *args, code=0):
    """quant "kl0.05" is --target-kl 0.05. Gates may fail: the tests judge what was made themselves."""
    form = ["--target-kl", quant[2:]] if quant.startswith("kl") else ["--quant", quant]
    text = run(aned, "convert", source, "--out", out, *form, "--accept", "quality,exactness", *args, code=code)
    assert pathlib.Path(out).exists() == (code == 0), "a bundle exists exactly when the conversion succeeded"
    return text


def logits(aned, bundle, tokens, folder, *args):
    """[n, vocab] fp32, mapped from a file in `folder` that the caller may delete."""
    np.save(folder / "tokens.npy", np.asarray(tokens, np.int32))
    out = folder / "logits.npy"
    run(aned, "logits", bundle, folder / "tokens.npy", out, *args)
    y = np.load(out, mmap_mode="r")
    assert y.dtype == np.float32 and y.shape[0] == len(tokens)
    return y


def mil_run(aned, package, source, out, *args):
    run(aned, "mil", "run", package, source, out, *args)


def save_steps(folder, steps):
    """steps: a list of {name: array} -> folder/stepK/NAME.npy"""
    for k, step in enumerate(steps):
        (folder / f"step{k}").mkdir(parents=True, exist_ok=True)
        for name, a in step.items():
            np.save(folder / f"step{k}" / f"{name}.npy", a)


def load_steps(folder):
    out = []
    while (folder / f"step{len(out)}").is_dir():
        out.append({p.stem: np.load(p) for p in (folder / f"step{len(out)}").glob("*.npy")})
    return out


def flat_cosine(a, b):
    a, b = np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def packages(bundle):
    return sorted(pathlib.Path(bundle).glob("*.mlpackage"))


def manifest(bundle):
    return json.loads((pathlib.Path(bundle) / "bundle.json").read_text())


def coreml_python():
    """A Python that has coremltools, or skip: it lives in a venv of its own."""
    if importlib.util.find_spec("coremltools"):
        return sys.executable
    p = TOP / ".build" / "venv-oracle" / "bin" / "python"
    if not p.exists():
        pytest.skip("coremltools: not installed (.build/venv-oracle)")
    return str(p)


def mil_numpy(package, source, out):
    run(coreml_python(), pathlib.Path(__file__).with_name("mil_numpy.py"), package, source, out)


def random_model(folder, name, qtype="f16", **changes):
    """A random GGUF of mkgguf's shape `name`; returns its path."""
    path = folder / f"{name}.gguf"
    mkgguf.write(path, dataclasses.replace(mkgguf.SHAPES[name], **changes), qtype, seed=7)
    return path


def shard_steps(d_model, context, rope, widths, seed=0, window=0):
    """Inputs of consecutive predictions of a layer shard as the contract has them (design 5.1).

    rope: {"": (rope_dim, base)} and "_local" likewise. widths: T of each step.
    """
    rng = np.random.default_rng(seed)
    steps, pos = [], 0
    for t in widths:
        at = np.arange(pos, pos + t)
        step = {"x": rng.standard_normal((1, d_model, t, 1)).astype(np.float16)}
        for suffix, (dim, base) in rope.items():
            angle = np.outer(at, base ** (-np.arange(0, dim, 2) / dim))
            step["rope_cos" + suffix] = np.cos(angle).astype(np.float16)
            step["rope_sin" + suffix] = np.sin(angle).astype(np.float16)
            seen = np.arange(context)[None, :] <= at[:, None]
            if suffix == "_local" and window:
                seen &= np.arange(context)[None, :] > at[:, None] - window
            step["attn_mask" + suffix] = np.where(seen, 0, -1e4).astype(np.float16)[None, None]
        write = np.zeros((1, 1, context, t), np.float16)
        write[0, 0, at, np.arange(t)] = 1
        step["kv_write_mask"] = write
        steps.append(step)
        pos += t
    return steps
