"""Encoders that give embeddings convert right: vectors of transformers (models/ARCH-vectors.npz, made by make_bert.py), the pass of
bert_tiny.py that is held to them, and each mistake planted in it."""
import json
import pathlib
import subprocess

import numpy as np
import pytest

from bert_tiny import Tiny
from oracle_tools import convert, logits, manifest, run

HERE = pathlib.Path(__file__).parent
ARCHS = ["bert", "nomic-bert"]
LENGTHS = [1, 2, 33, 300]
CLOSE = 0.9999  # of a row and of a vector, fp16
FP32 = 2e-4     # of a number, where nothing is rounded
INT8 = 0.998    # of a vector; 0.9994 was seen
PASS = {"bert": 1e-9, "nomic-bert": 1e-4}  # transformers turns by angles in fp32
MISTAKES = {"bert": ["rms", "norm bias", "causal", "tanh", "no types", "type 1", "no positions", "positions from 1", "no first norm"],
            "nomic-bert": ["rms", "norm bias", "causal", "no types", "type 1", "no first norm", "no rotation"]}


def cosine(a, b):
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


class Case:
    def __init__(self, arch, place):
        self.model, self.place = Tiny(arch), place
        self.source = self.model.write(place / "model.gguf")
        self.npz = dict(np.load(HERE / "models" / f"{arch}-vectors.npz"))
        self.made = {}

    def bundle(self, aned, quant="fp16", *args):
        key = "-".join([quant, *args])
        if key not in self.made:
            self.made[key] = self.place / key
            convert(aned, self.source, self.made[key], quant, *args)
        return self.made[key]


@pytest.fixture(scope="module", params=ARCHS)
def case(request, tmp_path_factory):
    return Case(request.param, tmp_path_factory.mktemp(request.param))


def test_pass(case):
    for n in LENGTHS:
        for how in ("mean", "cls", "last"):
            off = np.abs(case.model.vector(case.npz[f"tokens_{n}"], how) - case.npz[f"{how}_{n}"]).max()
            assert off < PASS[case.model.arch], (n, how)


def test_mistakes(case):
    """The bars find each of them, in the rows and in what is pooled."""
    tokens = case.npz["tokens_33"]
    want = case.model.hidden(tokens)
    for name in MISTAKES[case.model.arch]:
        wrong = case.model.hidden(tokens, name)
        assert np.abs(wrong - want).max() > 1.5 * FP32, name
        if name != "tanh":  # which differs by 5e-4 at most
            assert cosine(wrong, want).min() < CLOSE and cosine(wrong.mean(0), want.mean(0)) < CLOSE, name


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("shape", ["ranged", "functions"])
def test_vectors(aned, case, tmp_path, backend, shape):
    bundle = case.bundle(aned, "fp16", "--shape", shape)
    for n in LENGTHS:
        rows = logits(aned, bundle, case.npz[f"tokens_{n}"], tmp_path, "--backend", backend).astype(float)
        assert rows.shape == (n, case.model.d)
        assert np.abs(rows - case.model.hidden(case.npz[f"tokens_{n}"])).max() < FP32
        for how, v in (("mean", rows.mean(0)), ("cls", rows[0]), ("last", rows[-1])):
            assert np.abs(v - case.npz[f"{how}_{n}"]).max() < FP32, (n, how)


def test_rounded(aned, case, tmp_path):
    """As a device with fp16 computes it."""
    tokens = case.npz["tokens_300"]
    rows = logits(aned, case.bundle(aned), tokens, tmp_path, "--backend", "interpreter", "--round", "fp16")
    assert cosine(rows.astype(float), case.model.hidden(tokens)).min() > CLOSE


def test_int8(aned, case, tmp_path):
    for n in LENGTHS:
        rows = logits(aned, case.bundle(aned, "int8"), case.npz[f"tokens_{n}"], tmp_path).astype(float)
        assert cosine(rows.mean(0), case.npz[f"mean_{n}"]) > INT8


def test_the_same_bits(aned, case, tmp_path):
    """With any number of threads and any kernels."""
    for quant in ("fp16", "int8"):
        for n in (1, 33, 300):
            want = np.array(logits(aned, case.bundle(aned, quant), case.npz[f"tokens_{n}"], tmp_path, "--threads", "1"))
            for more in (["--threads", "2"], ["--threads", "5"], ["--isa", "scalar"]):
                got = logits(aned, case.bundle(aned, quant), case.npz[f"tokens_{n}"], tmp_path, *more)
                assert np.array_equal(got, want), (quant, n, more)


@pytest.mark.parametrize("norm, scale", [("max", "1"), ("max", "0.125"), ("scale", "1"), ("scale", "0.5")])
def test_norms_and_scales(aned, tmp_path, norm, scale):
    """What enters a norm may be scaled, and what leaves it is as before."""
    m = Tiny("bert", seed=3, eps=1e-3)
    convert(aned, m.write(tmp_path / "m.gguf"), tmp_path / "b", "fp16", "--norm", norm, "--residual-scale", scale)
    tokens = np.random.default_rng(8).integers(0, m.vocab, 70)
    rows = logits(aned, tmp_path / "b", tokens, tmp_path).astype(float)
    want = m.hidden(tokens)
    assert cosine(rows, want).min() > CLOSE
    assert np.abs(rows - want).max() < 0.02


def test_without_types_and_biases(aned, tmp_path):
    m = Tiny("bert", seed=5)
    for name in [n for n in m.w if n == "token_types.weight" or (n.startswith("blk") and "norm" not in n and n.endswith("bias"))]:
        m.w[name] = np.zeros_like(m.w[name])
    out = m.write(tmp_path / "m.gguf", tensors=lambda w: [w.pop(n) for n in list(w) if not w[n].any()])
    convert(aned, out, tmp_path / "b")
    tokens = np.arange(5, 60)
    assert cosine(logits(aned, tmp_path / "b", tokens, tmp_path).astype(float), m.hidden(tokens)).min() > CLOSE


def test_several_programs(aned, case, tmp_path):
    """Each profile divides; the first program alone has the norm of the embeddings."""
    m = Tiny(case.model.arch, layers=6, d=512, heads=8, ff=4096)
    convert(aned, m.write(tmp_path / "m.gguf"), tmp_path / "b", "fp16", "--profile", "law")
    b = manifest(tmp_path / "b")
    tokens = np.arange(5, 60)
    assert cosine(logits(aned, tmp_path / "b", tokens, tmp_path).astype(float), m.hidden(tokens)).min() > CLOSE
    assert b["shards"][0]["first"] == 0 and b["shards"][-1]["last"] == 6


def test_description(aned, case):
    b = manifest(case.bundle(aned))
    assert b["kind"] == "encoder" and "labels" not in b and b["heads"] == [] and b["pooling"] == "mean"
    assert b["context"] == 300 and b["rope"]["window"] == 0
    bert = case.model.arch == "bert"
    assert ("position_file" in b) == bert
    for y in b["layers"]:
        assert y["both_sides"] and y["sum_norm"] and not y["pre_norm"] and not y["post_norm"]
        assert y["rotates"] != bert and y["gated"] != bert and y["act"] == ("gelu_erf" if bert else "silu")
    text = run(aned, "plan", case.source, "--quant", "fp16")
    assert f"3 layers, {case.model.vocab} tokens, fp16, context 300" in text and " 1 row " not in text
    p = json.loads(run(aned, "plan", case.source, "--json"))
    assert p["heads"] == [] and p["architecture"] == case.model.arch


def test_not_divided_anew(aned, case, tmp_path):
    said = subprocess.run([aned, "reshard", case.bundle(aned), "--out", tmp_path / "c", "--profile", "cpu"], capture_output=True, text=True)
    assert said.returncode != 0 and "convert its source again" in said.stderr and not (tmp_path / "c").exists()


def test_texts_that_are_too_long(aned, case, tmp_path):
    np.save(tmp_path / "t.npy", np.zeros(301, np.int32))
    said = run(aned, "logits", case.bundle(aned), tmp_path / "t.npy", tmp_path / "o.npy", code=65)
    assert "301 tokens" in said and "300" in said


@pytest.mark.parametrize("shape, context", [("ranged", 2048), ("functions", 512)])
def test_what_is_read_at_once(aned, tmp_path, shape, context):
    m = Tiny("bert", layers=1, context=2500)
    convert(aned, m.write(tmp_path / "m.gguf"), tmp_path / "b", "fp16", "--shape", shape)
    assert manifest(tmp_path / "b")["context"] == context
    tokens = np.random.default_rng(2).integers(0, m.vocab, context)
    rows = logits(aned, tmp_path / "b", tokens, tmp_path).astype(float)
    assert cosine(rows, m.hidden(tokens)).min() > CLOSE


def refused(aned, source, tmp_path, *args):
    p = subprocess.run([aned, "convert", source, "--out", tmp_path / "b", *args], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                       timeout=60)
    assert p.returncode > 0 and not (tmp_path / "b").exists()
    return p.stderr


@pytest.mark.parametrize("args, word", [(("--kv", "host"), "kv"), (("--output", "argmax"), "argmax"),
                                        (("--calibrate", "on"), "calibrate"), (("--target-kl", "0.1"), "target")])
def test_options_refused(aned, case, tmp_path, args, word):
    said = refused(aned, case.source, tmp_path, *args)
    assert word in said and "encoder" in said


@pytest.mark.parametrize("key, value", [("attention.causal", True), ("pooling_type", 4), ("pooling_type", 9), ("attention.sliding_window", 8),
                                        ("attention.head_count_kv", 2), ("attention.layer_norm_epsilon", 3.0), ("attention.clamp_kqv", 8.0),
                                        ("expert_count", 8), ("moe_every_n_layers", 2)])
def test_keys_refused(aned, case, tmp_path, key, value):
    source = case.model.write(tmp_path / "m.gguf", more={key: value})
    said = refused(aned, source, tmp_path)
    assert key in said or (key.endswith("kv") and "key heads" in said), said


TENSORS = {
    "no norm": (lambda w: w.pop("token_embd_norm.weight"), "token_embd_norm.weight"),
    "no bias of a norm": (lambda w: w.pop("blk.2.layer_output_norm.bias"), "blk.2.layer_output_norm.bias"),
    "a classifier": (lambda w: w.update({"cls.weight": w["blk.0.attn_output.weight"]}), "cls.weight"),
    "norms of queries": (lambda w: w.update({"blk.0.attn_q_norm.weight": np.ones(64, np.float32)}), "attn_q_norm"),
    "types of another width": (lambda w: w.update({"token_types.weight": np.ones((2, 32), np.float32)}), "token_types.weight"),
    "many types": (lambda w: w.update({"token_types.weight": np.ones((17, 64), np.float32)}), "token_types.weight has 17"),
    "a head": (lambda w: w.update({"output.weight": w["token_embd.weight"]}), "output.weight"),
    "a layer more": (lambda w: w.update({"blk.3.attn_output.weight": w["blk.0.attn_output.weight"]}), "blk.3"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_refused(aned, case, tmp_path, name):
    change, word = TENSORS[name]
    assert word in refused(aned, case.model.write(tmp_path / "m.gguf", tensors=change), tmp_path)


@pytest.mark.parametrize("rows", [299, 301])
def test_positions_are_those_of_the_context(aned, tmp_path, rows):
    def change(w):
        w["position_embd.weight"] = np.zeros((rows, 64), np.float32)
    assert "position_embd.weight" in refused(aned, Tiny("bert").write(tmp_path / "m.gguf", tensors=change), tmp_path)


def test_values_beyond_fp16(aned, tmp_path):
    """A stream that grows too large is scaled; weights that cannot be stored are refused by name."""
    m = Tiny("bert", seed=2)
    for i in range(m.layers):
        for x in ("attn_output", "ffn_down"):
            m.w[f"blk.{i}.{x}.weight"] *= 2048
    convert(aned, m.write(tmp_path / "m.gguf"), tmp_path / "b")
    assert manifest(tmp_path / "b")["residual_scale"] < 1
    tokens = np.arange(5, 60)
    assert cosine(logits(aned, tmp_path / "b", tokens, tmp_path).astype(float), m.hidden(tokens)).min() > CLOSE
    m.w["blk.1.attn_output_norm.weight"][3] = 1e6
    (tmp_path / "c").mkdir()
    assert "layers.1." in refused(aned, m.write(tmp_path / "n.gguf"), tmp_path / "c")
