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


def check(aned, model, bundle, folder, n, chunks=(1, 4)):
    tokens = some_tokens(model, n)
    want = model.logits(tokens)
    seen = []
    for chunk in chunks:
        place = folder / f"chunk{chunk}"
        place.mkdir()
        got = logits(aned, bundle, tokens, place, "--chunk", chunk)
        assert got.shape == want.shape
        assert np.isfinite(got).all()
        c = np.concatenate([cosine(want[i : i + 64], got[i : i + 64]) for i in range(0, n, 64)])
        print(f"chunk {chunk}: least cosine {c.min():.8f} at {c.argmin()}, "
              f"largest difference {max(np.abs(w - g).max() for w, g in zip(want, got)):.2g}")
        assert c.min() >= COSINE, f"position {c.argmin()}"
        seen.append(got)
    for other in seen[1:]:  # design 7: the chunk a row came in never changes it
        assert np.array_equal(seen[0], other)
    shutil.rmtree(folder)


def check_file(aned, source, folder):
    convert(aned, source, folder / "bundle", "fp16")
    check(aned, Model(source), folder / "bundle", folder, POSITIONS)


@pytest.mark.parametrize("name", SHARED_MODELS)
def test_shared_models(aned, shared, tmp_path, name):
    check_file(aned, shared / "data" / "models" / f"{name}.gguf", tmp_path)


@pytest.mark.parametrize("qtype", ["f16", "q8_0"])
@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen2", "tiny-gemma"])
def test_random_models(aned, tmp_path, name, qtype):
    """tiny-gemma's window is 32: half of the positions look past it."""
    check_file(aned, random_model(tmp_path, name, qtype), tmp_path)


def test_scale_of_27b(aned, tmp_path):
    """gemma3 of 62 layers scales its scores by 1/sqrt(d_model / n_heads)."""
    check_file(aned, random_model(tmp_path, "deep-gemma", "f16"), tmp_path)


def test_gemma(aned, gemma_model, gemma_bundle, tmp_path):
    check(aned, gemma_model, gemma_bundle("fp16"), tmp_path, POSITIONS)


@pytest.mark.slow
def test_gemma_past_its_window(aned, gemma_model, gemma_bundle, tmp_path):
    """Windows of 512: from position 512 on, local and global layers see different keys."""
    check(aned, gemma_model, gemma_bundle("fp16"), tmp_path, 600, chunks=(1, 4))
