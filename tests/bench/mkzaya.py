#!/usr/bin/env python3
"""A ZAYA model with random weights, in the form of the transformers library: no exporter writes GGUFs of it.

    mkzaya.py FOLDER [--shape tiny|8b] [--seed N] [--layers N] [--vocab N]

Same arguments, same files. Tensors are made and written one at a time, in F16.
"""
import argparse
import dataclasses
import json
import pathlib
import struct
import sys
import zlib

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).parent))

from hf_export import byte_level  # noqa: E402
from mkgguf import vocabulary  # noqa: E402


@dataclasses.dataclass
class Shape:
    layers: int
    d: int
    heads: int
    kv: int
    d_head: int
    experts: int
    ff: int
    router: int
    vocab: int
    context: int
    time0: int = 2
    time1: int = 2
    eps: float = 1e-5


SHAPES = {
    "tiny": Shape(3, 64, 4, 2, 16, 6, 24, 24, 512, 512),
    "8b": Shape(40, 2048, 8, 2, 128, 16, 2048, 256, 32768, 32768),
}


def config(s):
    return {
        "architectures": ["ZayaForCausalLM"], "model_type": "zaya", "dtype": "float16", "hidden_act": "silu",
        "num_hidden_layers": s.layers, "hidden_size": s.d, "num_attention_heads": s.heads, "num_key_value_heads": s.kv,
        "head_dim": s.d_head, "moe_intermediate_size": s.ff, "num_experts": s.experts, "num_experts_per_tok": 1,
        "router_hidden_size": s.router, "cca_time0": s.time0, "cca_time1": s.time1, "rms_norm_eps": s.eps,
        "vocab_size": s.vocab, "max_position_embeddings": s.context, "tie_word_embeddings": True,
        "rope_parameters": {"hybrid": {"partial_rotary_factor": 0.5, "rope_theta": 5e6, "rope_type": "default"}},
    }


def near(shape, centre, spread):
    return shape, centre, spread


def matrix(*shape):
    """Outputs spread as inputs do."""
    return near(shape, 0, shape[-1] ** -0.5)


def tensors(s):
    """name -> (shape, centre, standard deviation)."""
    yield "embed_tokens.weight", near((s.vocab, s.d), 0, 3 * s.d**-0.5)  # logits of spread 3: the head is tied
    yield "input_hidden_states_bias", near((s.d,), 0, 0.1)
    yield "input_hidden_states_scale", near((s.d,), s.d**0.5 / 3, 0.1)
    yield "norm.weight", near((s.d,), 1, 0.1)
    for i in range(s.layers):
        yield from ((f"layers.{i}.{name}", of) for name, of in layer(s, i))


def layer(s, index):
    q, kv = s.heads * s.d_head, s.kv * s.d_head
    p = "self_attn.qkv_proj."
    yield "input_layernorm.weight", near((s.d,), 1, 0.1)
    yield "post_attention_layernorm.weight", near((s.d,), 1, 0.1)
    yield p + "q_proj.weight", matrix(q, s.d)
    yield p + "k_proj.weight", matrix(kv, s.d)
    yield p + "v_proj_current.weight", matrix(kv // 2, s.d)
    yield p + "v_proj_delayed.weight", matrix(kv // 2, s.d)
    yield p + "conv_qk_depthwise.weight", near((q + kv, 1, s.time0), 0, s.time0**-0.5)
    yield p + "conv_qk_depthwise.bias", near((q + kv,), 0, 0.1)
    yield p + "conv_qk_grouped.weight", near((q + kv, s.d_head, s.time1), 0, (s.d_head * s.time1) ** -0.5)
    yield p + "conv_qk_grouped.bias", near((q + kv,), 0, 0.1)
    yield "self_attn.qk_norm.temp", near((s.kv,), 1, 0.1)
    yield "self_attn.o_proj.weight", matrix(s.d, q)
    for at in ("post_attention_residual_scale.", "post_mlp_residual_scale."):
        for side in ("hidden_states", "residual"):
            yield f"{at}{side}_bias", near((s.d,), 0, 0.1)
            yield f"{at}{side}_scale", near((s.d,), 1, 0.1)
    yield from router(s, index)
    yield "mlp.experts.gate_up_proj", matrix(s.experts, 2 * s.ff, s.d)
    yield "mlp.experts.down_proj", matrix(s.experts, s.d, s.ff)


def router(s, index):
    g, r = "mlp.gate.", s.router
    yield g + "down_proj.weight", matrix(r, s.d)
    yield g + "down_proj.bias", near((r,), 0, 0.1)
    if index > 0:
        yield g + "router_states_scale", near((r,), 0.5, 0.1)
    yield g + "router_mlp.norm.weight", near((r,), 1, 0.1)
    for fc in ("fc1", "fc2"):
        yield f"{g}router_mlp.{fc}.weight", near((r, r), 0, 2 * r**-0.5)
        yield f"{g}router_mlp.{fc}.bias", near((r,), 0, 0.1)
    yield g + "router_mlp.out_proj.weight", near((s.experts + 1, r), 0, 2 * r**-0.5)
    yield g + "balancing_biases", near((s.experts + 1,), 0, 0.2)


def values(seed, name, shape, centre, spread):
    """Uniform, in parts of a matrix where there are many."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    for part in range(shape[0]) if len(shape) == 3 else [slice(None)]:
        a = rng.random(shape[1:] if len(shape) == 3 else shape, dtype=np.float32)
        yield ((a - 0.5) * (2 * 3**0.5 * spread) + centre).astype(np.float16)


def write(folder, s=SHAPES["tiny"], seed=1):
    """Returns the folder."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(s)))
    tokens, types, merges = vocabulary(s.vocab)
    (folder / "tokenizer.json").write_text(json.dumps(byte_level(tokens, types, merges)))
    named = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    header, at, all_of = {}, 0, dict(tensors(s))
    for name, (shape, *_) in all_of.items():
        n = 2 * int(np.prod(shape, dtype=np.int64))
        header["model." + name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name, (shape, centre, spread) in all_of.items():
            for part in values(seed, name, shape, centre, spread):
                f.write(part.tobytes())
    return folder


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("--shape", default="tiny", choices=SHAPES)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--layers", type=int, help="instead of the shape's own")
    p.add_argument("--vocab", type=int, help="instead of the shape's own")
    a = p.parse_args()
    s = SHAPES[a.shape]
    write(a.folder, dataclasses.replace(s, layers=a.layers or s.layers, vocab=a.vocab or s.vocab), a.seed)


if __name__ == "__main__":
    main()
