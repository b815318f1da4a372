#!/usr/bin/env python3
"""A GGUF with random weights in the shape of a real model, for speed and for tests.

    mkgguf.py SHAPE OUT.gguf [--type q8_0|q4_0|f16|f32] [--head q6_k] [--seed N] [--layers N] [--vocab N]

The vocabulary is a usable byte-level BPE of the wanted size: 256 bytes, then
merges that spell ever longer texts of common letters, then the ChatML tokens.
Same arguments, same file. Tensors are made and written one at a time.
"""
import argparse
import dataclasses
import zlib

import gguf
import numpy as np

import mixtures

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclasses.dataclass
class Shape:
    arch: str
    layers: int
    d: int
    heads: int
    kv: int
    d_head: int
    ff: int
    vocab: int
    tied: bool = True
    bias: bool = False
    rope_dim: int = 0  # 0: d_head
    rope_base: float = 10000.0
    eps: float = 1e-6
    context: int = 32768
    window: int = 0
    qk_norm: bool = False  # of each head
    fused: bool = False  # phi3's attn_qkv, and ffn_up with the gate's rows in front
    fused_up: bool = False  # only the latter
    pre_norm: bool = True  # before each block
    post_norm: bool = False  # of what each block adds
    experts: int = 0
    top: int = 0  # how many of them a token takes
    d_expert: int = 0
    tables: dict = dataclasses.field(default_factory=dict)  # 1-D tensors by name: their numbers
    keys: dict = dataclasses.field(default_factory=dict)  # more of the family, behind "ARCH."; or instead of what the shape says


SHAPES = {
    "0.5b": Shape("qwen2", 24, 896, 14, 2, 64, 4864, 151936, bias=True, rope_base=1e6),
    "1.5b": Shape("qwen2", 28, 1536, 12, 2, 128, 8960, 151936, bias=True, rope_base=1e6),
    "phi4-mini": Shape("llama", 32, 3072, 24, 8, 128, 8192, 200064, eps=1e-5, context=131072),
    "gemma": Shape("gemma3", 18, 640, 4, 1, 256, 2048, 262144, rope_base=1e6, window=512),
    "tiny-llama": Shape("llama", 3, 64, 4, 2, 32, 160, 512, tied=False, eps=1e-5, context=256),
    "tiny-qwen2": Shape("qwen2", 3, 128, 4, 2, 32, 256, 640, bias=True, rope_base=1e6, context=256),
    "tiny-wide": Shape("llama", 2, 1120, 10, 2, 112, 3232, 512, eps=1e-5, context=256),
    "tiny-gemma": Shape("gemma3", 7, 96, 4, 1, 64, 192, 512, rope_base=1e6, context=256, window=32),
    # 62 layers: 27B, whose scores are scaled by d / heads
    "deep-gemma": Shape("gemma3", 62, 96, 4, 1, 64, 64, 512, rope_base=1e6, context=256, window=32),
}
SHAPES |= mixtures.shapes(Shape)


def byte_alphabet():
    """Byte -> the printable character GPT-2's byte-level BPE writes for it."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {b: chr(b) for b in keep}
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + len(table) - len(keep))
    return table


def vocabulary(size):
    """Tokens and merges: every text of n common letters before those of n + 1."""
    common = b" etaoinshrdlcumwfgypbvkjxqz\nETAOINSHR.,'\"-0123456789"
    order = [*common, *(b for b in range(256) if b not in common)]
    alphabet = byte_alphabet()
    tokens = [alphabet[b] for b in range(256)]
    wanted = size - len(SPECIALS)
    if wanted < 256:
        raise SystemExit(f"a vocabulary of {size} does not hold 256 bytes and {len(SPECIALS)} special tokens")
    letters = [alphabet[b] for b in order]
    merges, left = [], 0
    queue = list(letters)
    while len(tokens) < wanted:
        for right in letters[: len(common)]:
            if len(tokens) == wanted:
                break
            tokens.append(queue[left] + right)
            queue.append(queue[left] + right)
            merges.append(f"{queue[left]} {right}")
        left += 1
    types = [1] * len(tokens) + [3] * len(SPECIALS)
    return tokens + SPECIALS, types, merges


def tensor_list(s):
    """name -> (shape in numpy's order, kind)."""
    for name, numbers in s.tables.items():
        yield name, (len(numbers),), "table"
    yield "token_embd.weight", (s.vocab, s.d), "matrix"
    if not s.tied:
        yield "output.weight", (s.vocab, s.d), "matrix"
    yield from mixtures.ENDS.get(s.arch, lambda s: [("output_norm.weight", (s.d,), "norm")])(s)
    for layer in range(s.layers):
        yield from mixtures.LAYERS.get(s.arch, layer_tensors)(s, layer, f"blk.{layer}.")


def layer_tensors(s, _, p):
    q, kv = s.heads * s.d_head, s.kv * s.d_head
    post_norm, qk_norm = (field or s.arch == "gemma3" for field in (s.post_norm, s.qk_norm))
    if s.pre_norm:
        yield p + "attn_norm.weight", (s.d,), "norm"
    if s.fused:
        yield p + "attn_qkv.weight", (q + 2 * kv, s.d), "matrix"
    for name, rows in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
        if not s.fused:
            yield p + name + ".weight", (rows, s.d), "matrix"
        if s.bias:
            yield p + name + ".bias", (rows,), "bias"
    yield p + "attn_output.weight", (s.d, q), "matrix"
    if s.pre_norm:
        yield p + "ffn_norm.weight", (s.d,), "norm"
    if s.fused or s.fused_up:
        yield p + "ffn_up.weight", (2 * s.ff, s.d), "matrix"
    else:
        yield p + "ffn_gate.weight", (s.ff, s.d), "matrix"
        yield p + "ffn_up.weight", (s.ff, s.d), "matrix"
    yield p + "ffn_down.weight", (s.d, s.ff), "matrix"
    if qk_norm:
        yield p + "attn_q_norm.weight", (s.d_head,), "norm"
        yield p + "attn_k_norm.weight", (s.d_head,), "norm"
    if post_norm:
        yield p + "post_attention_norm.weight", (s.d,), "norm"
        yield p + "post_ffw_norm.weight", (s.d,), "norm"


def random_small(rng, shape, qtype, top):
    """Q4_0 and Q6_K: random values of all their bits, every block of one scale."""
    rows, cols = shape
    items, size = gguf.GGML_QUANT_SIZES[qtype]
    blocks = np.frombuffer(rng.bytes(rows * cols // items * size), np.uint8).reshape(rows, cols // items, size).copy()
    if qtype == gguf.GGMLQuantizationType.Q4_0:
        blocks[..., :2] = np.array([top / 8], np.float16).view(np.uint8)
    else:  # 16 scales of 8 bits before the block's own
        blocks[..., -18:-2] = 64
        blocks[..., -2:] = np.array([top / 32 / 64], np.float16).view(np.uint8)
    return blocks.reshape(rows, -1)


def random_matrix(rng, shape, qtype, spread):
    """Uniform weights of standard deviation `spread`, straight in the file's type."""
    if len(shape) == 3:  # experts, one after the other: together they may be a gigabyte
        first = random_matrix(rng, shape[1:], qtype, spread)
        all_of = np.empty((shape[0], *first.shape), first.dtype)
        all_of[0] = first
        for i in range(1, shape[0]):
            all_of[i] = random_matrix(rng, shape[1:], qtype, spread)
        return all_of
    rows, cols = shape
    top = spread * 3**0.5
    if qtype in (gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q6_K):
        return random_small(rng, shape, qtype, top)
    if qtype == gguf.GGMLQuantizationType.Q8_0:
        blocks = np.empty((rows, cols // 32, 34), np.uint8)
        blocks[..., :2] = np.array([top / 127], np.float16).view(np.uint8)
        values = np.frombuffer(rng.bytes(rows * cols), np.int8).reshape(rows, cols // 32, 32)
        blocks[..., 2:] = np.maximum(values, -127).view(np.uint8)
        return blocks.reshape(rows, -1)
    if qtype == gguf.GGMLQuantizationType.Q4_0:
        blocks = np.empty((rows, cols // 32, 18), np.uint8)
        blocks[..., :2] = np.array([top / 8], np.float16).view(np.uint8)
        blocks[..., 2:] = np.frombuffer(rng.bytes(rows * cols // 2), np.uint8).reshape(rows, cols // 32, 16)
        return blocks.reshape(rows, -1)
    w = rng.random(shape, dtype=np.float32)
    w -= 0.5
    w *= 2 * top
    return w.astype(np.float16) if qtype == gguf.GGMLQuantizationType.F16 else w


def make_tensor(seed, name, shape, kind, qtype):
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    if kind in ("matrix", "real"):
        # logits of spread 3, projections that keep the spread of their input
        spread = (3 if name in ("token_embd.weight", "output.weight") else 1) / shape[-1] ** 0.5
        return random_matrix(rng, shape, qtype, spread)
    centre = 1 if kind == "norm" else 0
    return (centre + 0.1 * rng.standard_normal(shape)).astype(np.float32)


def shape_keys(w, s):
    keys = {
        "block_count": s.layers, "context_length": s.context, "embedding_length": s.d, "feed_forward_length": s.ff,
        "attention.head_count": s.heads, "attention.head_count_kv": s.kv, "attention.key_length": s.d_head,
        "attention.value_length": s.d_head, "attention.layer_norm_rms_epsilon": s.eps, "rope.freq_base": s.rope_base,
        "rope.dimension_count": s.rope_dim or s.d_head, "vocab_size": s.vocab}
    if s.window:
        keys["attention.sliding_window"] = s.window
    if s.experts:
        keys |= {"expert_count": s.experts, "expert_used_count": s.top, "expert_feed_forward_length": s.d_expert}
    add = {bool: w.add_bool, int: w.add_uint32, float: w.add_float32, str: w.add_string, list: w.add_array}
    for key, v in (keys | s.keys).items():
        add[type(v)](f"{s.arch}.{key}", v)


def vocabulary_keys(w, tokens, types, merges, template=CHATML):
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges(merges)
    w.add_eos_token_id(tokens.index("<|im_end|>"))
    w.add_pad_token_id(tokens.index("<|endoftext|>"))
    w.add_add_bos_token(False)
    w.add_chat_template(template)


def cut(s, layers=None, vocab=None):
    """The same with fewer layers, or another vocabulary; lists of a number a layer become as long."""
    layers = layers or s.layers
    keys = {k: v[:layers] if isinstance(v, list) and len(v) == s.layers else v for k, v in s.keys.items()}
    return dataclasses.replace(s, layers=layers, vocab=vocab or s.vocab, keys=keys)


def file_type(name, what, kind, head):
    if what != "matrix":
        return gguf.GGMLQuantizationType.F32
    return head if name in ("token_embd.weight", "output.weight") else kind


def write(path, shape, qtype="q8_0", seed=0, weights=None, head=None):
    """The whole file; qtype is that of the matrices, head that of the embedding and the head (as qtype if None), the rest is
    F32. weights: name -> fp32 array, used in place of random numbers (then no type may be a quantised one)."""
    weights = weights or {}
    kind = gguf.GGMLQuantizationType[qtype.upper()]
    head = gguf.GGMLQuantizationType[(head or qtype).upper()]
    w = gguf.GGUFWriter(str(path), shape.arch)
    w.add_name(f"random {shape.arch}")
    shape_keys(w, shape)
    vocabulary_keys(w, *vocabulary(shape.vocab))
    tensors = list(tensor_list(shape))
    weights = {**weights, **shape.tables}
    for name, dims, what in tensors:
        t = file_type(name, what, kind, head)
        items, size = gguf.GGML_QUANT_SIZES[t]
        n_bytes = int(np.prod(dims, dtype=np.int64)) // items * size
        w.add_tensor_info(name, dims, np.dtype(np.float32), n_bytes, raw_dtype=t)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    for name, dims, what in tensors:
        if name in weights:
            given = np.asarray(weights[name]).reshape(dims)
            half = file_type(name, what, kind, head) == gguf.GGMLQuantizationType.F16
            w.write_tensor_data(np.ascontiguousarray(given, np.float16 if half else np.float32))
        else:
            w.write_tensor_data(make_tensor(seed, name, dims, what, file_type(name, what, kind, head)))
    w.close()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("shape", choices=SHAPES)
    p.add_argument("out")
    p.add_argument("--type", default="q8_0", choices=["q8_0", "q4_0", "f16", "f32"])
    p.add_argument("--head", choices=["q8_0", "q6_k", "q4_0"], help="type of the embedding and the head (default: --type)")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--layers", type=int, help="instead of the shape's own")
    p.add_argument("--vocab", type=int, help="instead of the shape's own")
    a = p.parse_args()
    s = SHAPES[a.shape]
    write(a.out, cut(s, a.layers, a.vocab), a.type, a.seed, head=a.head)


if __name__ == "__main__":
    main()
