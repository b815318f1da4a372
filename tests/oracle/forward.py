#!/usr/bin/env python3
"""A forward pass in numpy fp32 from a GGUF alone: the oracle of `aned logits`.

Nothing here is shared with the daemon: the `gguf` package reads and
dequantises, the rest is the textbook (decoder.py). Families: llama (interleaved
RoPE, as llama GGUFs are permuted for it), qwen2 (rotate-half RoPE, q/k/v biases)
and gemma3 (q/k norms, post norms, local and global layers). Of the others the
description is the bundle's, and independent logits judge it: test_families.py.

    forward.py MODEL.gguf 1,15043,3186 [OUT.npy]
"""
import sys

import numpy as np

from decoder import PAIRS, PLAIN_LAYER, PLAIN_ROPE, Decoder, cosine, kl, log_softmax  # noqa: F401 (measures: for users)
from sources import Source


def rope_of(source, d_head):
    """Of global layers; linear scaling, and llama 3's factors."""
    a = source.arch
    rope = dict(PLAIN_ROPE, dim=source.key(f"{a}.rope.dimension_count", d_head),
                base=source.key(f"{a}.rope.freq_base", 10000.0))
    if source.key(f"{a}.rope.scaling.type", "none") == "linear":
        rope["scale"] = 1 / source.key(f"{a}.rope.scaling.factor")
    if "rope_freqs.weight" in source.tensors:
        rope["factors"] = source.get("rope_freqs.weight")
    return rope


def describe(source):
    """decoder.py's description, from the metadata alone."""
    a = source.arch
    if a not in ("llama", "qwen2", "gemma3"):
        raise ValueError(f"no oracle for {a}")
    gemma = a == "gemma3"
    n_layers, d_model = source.key(f"{a}.block_count"), source.key(f"{a}.embedding_length")
    heads = source.key(f"{a}.attention.head_count")
    d_head = source.key(f"{a}.attention.key_length", d_model // heads)
    # query_pre_attn_scalar: 168 in gemma-3-27b, d_head in all others; in no key of a GGUF
    per_score = d_model // heads if gemma and n_layers == 62 else d_head
    layer = dict(PLAIN_LAYER, n_heads=heads, n_kv=source.key(f"{a}.attention.head_count_kv", heads), d_head=d_head,
                 score_scale=per_score**-0.5, post_norm=gemma, qk_norm="head" if gemma else "none",
                 act="gelu_tanh" if gemma else "silu")
    local = [gemma and (i + 1) % 6 != 0 for i in range(n_layers)]  # five local layers, then a global one
    rope = rope_of(source, d_head)
    return {
        "d_model": d_model, "norm_eps": source.key(f"{a}.attention.layer_norm_rms_epsilon"), "pairs": a in PAIRS,
        "embed_scale": d_model**0.5 if gemma else 1.0, "logit_scale": 1.0, "logit_cap": 0.0, "rope": rope,
        "rope_local": dict(PLAIN_ROPE, dim=rope["dim"], base=10000.0, window=source.key(f"{a}.attention.sliding_window", 0)),
        "layers": [dict(layer, kv_from=i, kind="local" if local[i] else "global") for i in range(n_layers)],
    }


class Model(Decoder):
    """A GGUF in fp32. Weights are dequantised when first used; `keep` holds them."""

    def __init__(self, path, keep=True):
        source = Source(path, keep=keep)
        super().__init__(describe(source), source, np.float32)
        self.get = source.key
        self.rope_dim, self.rope_base = self.spec["rope"]["dim"], self.spec["rope"]["base"]
        self.vocab = int(source.tensors["token_embd.weight"].shape[1])


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    tokens = [int(t) for t in sys.argv[2].split(",")]
    out = Model(sys.argv[1]).logits(tokens)
    if len(sys.argv) == 4:
        np.save(sys.argv[3], out)
    for pos, row in enumerate(out):
        best = np.argsort(-row)[:3]
        print(pos, tokens[pos], "->", " ".join(f"{i}:{row[i]:.4f}" for i in best))


if __name__ == "__main__":
    main()
