"""`aned logits` against the numpy forward pass, fp16 weights (issue 3, item 7)."""
import shutil

import numpy as np
import pytest

from forward import Model, cosine
from oracle_tools import convert, logits, random_model

COSINE = 0.9999
POSITIONS = 64
SHARED_MODELS = [
    "derived/stories260K.F32",
    "derived/stories260K.F16",
    "derived/stories260K.BF16",
    "derived/stories260K.Q4_K_M",
    "llama-2-tiny-random",
]


def some_tokens(model, n, seed=3):
    """Ids of the whole vocabulary, after the BOS that llama and gemma expect."""
    tokens = np.random.default_rng(seed).integers(0, model.vocab, n)
    tokens[0] = model.get("tokenizer.ggml.bos_token_id", int(tokens[0]))
    return tokens


def check(aned, source, folder, n, *args, chunks=(1, 4)):
    model = Model(source)
    tokens = some_tokens(model, n)
    bundle = folder / "bundle"
    convert(aned, source, bundle, "fp16", *args)
    want = model.logits(tokens)
    seen = []
    for chunk in chunks:
        place = folder / f"chunk{chunk}"
        place.mkdir()
        got = logits(aned, bundle, tokens, place, "--chunk", chunk)
        assert got.shape == want.shape
        assert np.isfinite(got).all()
        c = cosine(want, got)
        print(f"{source.name} chunk {chunk}: least cosine {c.min():.8f} at {c.argmin()}, "
              f"largest difference {np.abs(want - got).max():.2g}")
        assert c.min() >= COSINE, f"position {c.argmin()}"
        seen.append(got)
    for other in seen[1:]:  # design 7: the chunk a row came in never changes it
        assert np.array_equal(seen[0], other)
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", SHARED_MODELS)
def test_shared_models(aned, shared, tmp_path, name):
    check(aned, shared / "data" / "models" / f"{name}.gguf", tmp_path, POSITIONS)


@pytest.mark.parametrize("qtype", ["f16", "q8_0"])
@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen2", "tiny-gemma"])
def test_random_models(aned, tmp_path, name, qtype):
    """tiny-gemma's window is 32: half of the positions look past it."""
    check(aned, random_model(tmp_path, name, qtype), tmp_path, POSITIONS)


def test_gemma(aned, gemma, tmp_path):
    check(aned, gemma, tmp_path, POSITIONS, "--context", 1024, chunks=(1, 4))


@pytest.mark.slow
def test_gemma_past_its_window(aned, gemma, tmp_path):
    check(aned, gemma, tmp_path, 600, "--context", 1024, chunks=(4,))
