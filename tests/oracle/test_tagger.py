"""The Privacy Filter converts right: logits of transformers (expected.npz), a pass of our own (tagger.py) that is held to
them, each mistake planted in it, and paths through the labels."""
import json
import subprocess

import gguf
import numpy as np
import pytest

from decoder import kl
from gguf_copy import copy
from oracle_tools import convert, logits, manifest, run
from tagger import Weights, spans, tag_logits, viterbi

PASS = 5e-4  # of a logit: float64 against another's fp32
FP32 = 2e-3  # the CPU backend's, whose weights are exact in fp16
ROUTED = 0.002  # an expert that is chosen by less may be another in fp16
MEAN_KL, CLEAR, SAME = 5e-3, 0.1, 0.98  # of results rounded to fp16: transformers in fp16 has 0.0011 and 1.0


class Tiny:
    def __init__(self, aned, folder, place):
        self.source, self.bundle = folder / "model.gguf", place / "fp16"
        self.npz = dict(np.load(folder / "expected.npz"))
        self.mistakes = json.loads((folder / "mistakes.json").read_text())["mistakes"]
        convert(aned, self.source, self.bundle, "fp16")
        self.tokens = self.npz["tokens"]
        self.weights = Weights(self.source)
        self.routed = (self.npz["route_margin"] > ROUTED).all(0)


@pytest.fixture(scope="module")
def tiny(aned, shared, tmp_path_factory):
    folder = shared / "data" / "families" / "privacy-filter" / "a"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    return Tiny(aned, folder, tmp_path_factory.mktemp("tagger"))


def off(a, b):
    return float(np.abs(a - b).max())


def refused(aned, source, tmp_path, *args):
    """What convert says when it refuses."""
    p = subprocess.run([aned, "convert", source, "--out", tmp_path / "b", *args], stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, timeout=60)
    assert p.returncode not in (0, 64) or "encoder" in p.stderr, p.stderr
    assert p.returncode > 0 and not (tmp_path / "b").exists()
    return p.stderr


def test_pass(tiny):
    assert off(tag_logits(tiny.weights, tiny.tokens), tiny.npz["logits"]) < PASS


def test_mistakes(tiny):
    """Each is found by the bound that the daemon is held to, and is the one that mistakes.json means."""
    for name, m in tiny.mistakes.items():
        wrong = tag_logits(tiny.weights, tiny.tokens, name)
        assert off(wrong, tiny.npz["logits"]) > FP32, name
        assert abs(off(wrong, tiny.npz["logits"]) - m["max_abs"]) < 0.02 * m["max_abs"] + 1e-3, name


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("shape", ["ranged", "functions"])
def test_logits(aned, tiny, tmp_path, backend, shape):
    bundle = tiny.bundle
    if shape == "functions":
        bundle = tmp_path / "functions"
        convert(aned, tiny.source, bundle, "fp16", "--shape", "functions")
        assert [f["t"] for f in manifest(bundle)["shards"][0]["functions"]] == [128, 256, 512]
    got = logits(aned, bundle, tiny.tokens, tmp_path, "--backend", backend)
    assert off(got, tiny.npz["logits"]) < FP32


def test_rounded(aned, tiny, tmp_path):
    got = logits(aned, tiny.bundle, tiny.tokens, tmp_path, "--backend", "interpreter", "--round", "fp16")
    want = tiny.npz["logits"]
    assert kl(want, got)[tiny.routed].mean() < MEAN_KL
    clear = np.diff(np.sort(want, -1)[:, -2:])[:, 0] > CLEAR
    same = got.argmax(-1) == want.argmax(-1)
    assert same[tiny.routed & clear].mean() >= SAME


def test_paths(aned, tiny, tmp_path):
    np.save(tmp_path / "tokens.npy", tiny.tokens.astype(np.int32))
    for name, biases in (("viterbi", np.zeros(6)), ("viterbi_biased", tiny.npz["viterbi_biases"])):
        out = tmp_path / f"{name}.npy"
        run(aned, "logits", tiny.bundle, tmp_path / "tokens.npy", out, "--tags", "--tag-biases",
            ",".join(repr(float(b)) for b in biases))
        assert np.array_equal(np.load(out), tiny.npz[name])
        assert np.array_equal(viterbi(tiny.weights.labels, tiny.npz["logits"], biases), tiny.npz[name])
    assert len(spans(tiny.weights.labels, tiny.npz["viterbi"])) > 10


@pytest.mark.parametrize("n", [1, 2, 31, 33, 700, 4096, 9001])
def test_windows(aned, tiny, tmp_path, n):
    """Windows of any length give what one window does; a text beyond the longest is what the float64 pass says."""
    tokens = np.random.default_rng(n).integers(0, 318, n).astype(np.int32)
    whole = np.array(logits(aned, tiny.bundle, tokens, tmp_path))
    assert whole.shape == (n, 33)
    assert off(logits(aned, tiny.bundle, tokens, tmp_path, "--chunk", "160"), whole) < 1e-4
    if n <= 700:
        assert (np.abs(whole - tag_logits(tiny.weights, tokens)).max(-1) < FP32).mean() > 0.9
    if n > 4096:  # the rows around a seam, from a text that begins before what they depend on
        near = tag_logits(tiny.weights, tokens[3950:4250])[50:250]
        assert (np.abs(whole[4000:4200] - near).max(-1) < FP32).mean() > 0.9


@pytest.mark.parametrize("shape, said", [("ranged", "windows of 4096 with 384 on each side: as the whole text"),
                                         ("functions", "windows of 512 with 128 on each side: approximate at the seams")])
def test_seams(aned, tiny, tmp_path, shape, said):
    """With the real model's window of 128, three layers reach 384: too far for functions of 512 rows. The gates say so."""
    name = "openai-privacy-filter.attention.sliding_window"
    copy(tiny.source, tmp_path / "m.gguf", lambda found: {**found, name: (128, *found[name][1:])})
    text = run(aned, "convert", tmp_path / "m.gguf", "--out", tmp_path / "b", "--quant", "fp16", "--shape", shape, "--accept", "quality")
    assert said in text
    tokens = np.random.default_rng(5).integers(0, 318, 1500).astype(np.int32)
    got = logits(aned, tmp_path / "b", tokens, tmp_path)
    want = tag_logits(Weights(tmp_path / "m.gguf"), tokens)
    near = np.abs(got - want).max(-1) < FP32
    assert near[:128 if shape == "functions" else None].mean() > 0.9  # those see all that they depend on
    if shape == "ranged":
        windows = logits(aned, tmp_path / "b", tokens, tmp_path, "--chunk", "1024")
        assert np.array_equal(windows, got)
    else:
        assert near[128:].mean() < 0.8  # approximate


def test_plan(aned, tiny):
    text = run(aned, "plan", tiny.source, "--quant", "fp16", "--shape", "functions")
    assert "3 layers, 33 labels, fp16, context 4096" in text and " 1 row " not in text and "  512 rows" in text
    p = json.loads(run(aned, "plan", tiny.source, "--json"))
    assert p["labels"] == 33 and p["architecture"] == "openai-privacy-filter" and len(p["heads"]) == 1


def test_description(tiny):
    m = manifest(tiny.bundle)
    assert m["kind"] == "encoder" and m["labels"] == tiny.weights.labels
    assert all(y["both_sides"] and y["sinks"] and y["act"] == "clamped" for y in m["layers"])
    assert m["rope"]["window"] == 8


@pytest.mark.parametrize("args, word", [
    (("--context", "128"), "context"), (("--kv", "host"), "kv"), (("--output", "argmax"), "argmax"),
    (("--calibrate", "on"), "calibrate"), (("--target-kl", "0.1"), "target"), (("--shape", "functions:48"), "multiples")])
def test_options_refused(aned, tiny, tmp_path, args, word):
    said = refused(aned, tiny.source, tmp_path, *args)
    assert word in said and "encoder" in said


@pytest.mark.parametrize("key, value", [("pooling_type", 1), ("attention.causal", True), ("swiglu_limit", 9.0),
                                        ("embedding_length_out", 7), ("rope.scaling.yarn_truncate", 3)])
def test_keys_refused(aned, tiny, tmp_path, key, value):
    name = f"openai-privacy-filter.{key}"

    kind = {bool: gguf.GGUFValueType.BOOL, int: gguf.GGUFValueType.UINT32, float: gguf.GGUFValueType.FLOAT32}[type(value)]
    copy(tiny.source, tmp_path / "m.gguf", lambda found: {**found, name: (value, kind, None)})
    assert name in refused(aned, tmp_path / "m.gguf", tmp_path)
