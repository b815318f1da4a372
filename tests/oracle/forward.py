#!/usr/bin/env python3
"""A forward pass in numpy fp32 from a GGUF alone: the oracle of `aned logits`.

Nothing here is shared with the daemon: the `gguf` package reads and
dequantises, the rest is the textbook. Families: llama (interleaved RoPE, as
llama GGUFs are permuted for it), qwen2 (rotate-half RoPE, q/k/v biases) and
gemma3 (q/k norms, post norms, local and global layers).

    forward.py MODEL.gguf 1,15043,3186 [OUT.npy]
"""
import sys

import gguf
import numpy as np


def rms_norm(x, weight, eps):
    scale = np.sqrt(np.mean(x.astype(np.float64) ** 2, axis=-1, keepdims=True) + eps)
    return (x / scale).astype(np.float32) * weight


def silu(x):
    with np.errstate(over="ignore"):  # exp of a large -x is inf, 1/inf is 0
        return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + 0.044715 * x**3)))


class Model:
    """Weights are dequantised when first used; `keep` holds them as fp32."""

    def __init__(self, path, keep=True):
        reader = gguf.GGUFReader(str(path))
        self.fields = {f.name: f for f in reader.fields.values()}
        self.tensors = {t.name: t for t in reader.tensors}
        self.keep = {} if keep else None
        self.override = {}  # name -> fp32 array used in place of the file's
        self.arch = self.get("general.architecture")
        if self.arch not in ("llama", "qwen2", "gemma3"):
            raise ValueError(f"no oracle for {self.arch}")
        a = self.arch
        self.n_layers = self.get(f"{a}.block_count")
        self.d_model = self.get(f"{a}.embedding_length")
        self.n_heads = self.get(f"{a}.attention.head_count")
        self.n_kv = self.get(f"{a}.attention.head_count_kv", self.n_heads)
        self.d_head = self.get(f"{a}.attention.key_length", self.d_model // self.n_heads)
        self.eps = self.get(f"{a}.attention.layer_norm_rms_epsilon")
        self.rope_dim = self.get(f"{a}.rope.dimension_count", self.d_head)
        self.rope_base = self.get(f"{a}.rope.freq_base", 10000.0)
        self.context = self.get(f"{a}.context_length")
        self.window = self.get(f"{a}.attention.sliding_window", 0)
        # query_pre_attn_scalar: 168 in gemma-3-27b, d_head in all others; in no key of a GGUF
        wide = self.arch == "gemma3" and self.n_layers == 62
        self.per_score = self.d_model // self.n_heads if wide else self.d_head
        self.rope_scale = 1.0
        if self.get(f"{a}.rope.scaling.type", "none") == "linear":
            self.rope_scale = 1 / self.get(f"{a}.rope.scaling.factor")
        self.vocab = int(self.tensors["token_embd.weight"].shape[1])

    def get(self, key, default=None):
        if key not in self.fields:
            if default is None:
                raise KeyError(key)
            return default
        return self.fields[key].contents()

    def has(self, name):
        return name in self.tensors

    def weight(self, name):
        """fp32 in numpy's order: a projection is (out, in)."""
        if name in self.override:
            return self.override[name]
        if self.keep is not None and name in self.keep:
            return self.keep[name]
        t = self.tensors[name]
        w = gguf.quants.dequantize(t.data, t.tensor_type)
        w = np.ascontiguousarray(w.reshape([int(d) for d in t.shape[::-1]]), dtype=np.float32)
        if self.keep is not None:
            self.keep[name] = w
        return w

    def linear(self, name, x):
        y = x @ self.weight(name + ".weight").T
        if self.has(name + ".bias"):
            y = y + self.weight(name + ".bias")
        return y

    def is_local(self, layer):
        """gemma3: five local layers, then a global one."""
        return self.arch == "gemma3" and (layer + 1) % 6 != 0

    def angles(self, positions, local):
        base = 10000.0 if local else self.rope_base
        freq = base ** (-np.arange(0, self.rope_dim, 2, dtype=np.float64) / self.rope_dim)
        if self.has("rope_freqs.weight"):
            freq = freq / self.weight("rope_freqs.weight")
        scale = 1.0 if local else self.rope_scale
        a = np.outer(positions * scale, freq)
        return np.cos(a).astype(np.float32), np.sin(a).astype(np.float32)

    def rope(self, x, cos, sin):
        """x: (n, heads, d_head); cos, sin: (n, rope_dim / 2)."""
        c, s = cos[:, None, :], sin[:, None, :]
        out = x.copy()
        half = self.rope_dim // 2
        if self.arch == "llama":
            a, b = x[..., 0 : self.rope_dim : 2], x[..., 1 : self.rope_dim : 2]
            out[..., 0 : self.rope_dim : 2] = a * c - b * s
            out[..., 1 : self.rope_dim : 2] = a * s + b * c
        else:
            a, b = x[..., :half], x[..., half : self.rope_dim]
            out[..., :half] = a * c - b * s
            out[..., half : self.rope_dim] = b * c + a * s
        return out

    def attention(self, layer, h):
        p = f"blk.{layer}."
        n = h.shape[0]
        local = self.is_local(layer)
        q = self.linear(p + "attn_q", h).reshape(n, self.n_heads, self.d_head)
        k = self.linear(p + "attn_k", h).reshape(n, self.n_kv, self.d_head)
        v = self.linear(p + "attn_v", h).reshape(n, self.n_kv, self.d_head)
        if self.has(p + "attn_q_norm.weight"):
            q = rms_norm(q, self.weight(p + "attn_q_norm.weight"), self.eps)
            k = rms_norm(k, self.weight(p + "attn_k_norm.weight"), self.eps)
        cos, sin = self.angles(np.arange(n), local)
        q, k = self.rope(q, cos, sin), self.rope(k, cos, sin)
        i, j = np.arange(n)[:, None], np.arange(n)[None, :]
        hidden = j > i
        if local:
            hidden = hidden | (i - j >= self.window)
        out = np.empty((n, self.n_heads, self.d_head), np.float32)
        group = self.n_heads // self.n_kv
        for head in range(self.n_heads):
            scores = q[:, head] @ k[:, head // group].T / np.float32(np.sqrt(self.per_score))
            scores[hidden] = -np.inf
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            scores /= scores.sum(axis=-1, keepdims=True)
            out[:, head] = scores @ v[:, head // group]
        return self.linear(p + "attn_output", out.reshape(n, -1))

    def feed_forward(self, layer, h):
        p = f"blk.{layer}."
        act = gelu_tanh if self.arch == "gemma3" else silu
        return self.linear(p + "ffn_down", act(self.linear(p + "ffn_gate", h)) * self.linear(p + "ffn_up", h))

    def hidden(self, tokens, watch=None):
        """(n, d_model) after the last layer. watch(name, array) sees residuals."""
        tokens = np.asarray(tokens)
        gemma = self.arch == "gemma3"
        x = self.weight("token_embd.weight")[tokens]
        if gemma:
            x = x * np.float32(np.sqrt(self.d_model))
        for layer in range(self.n_layers):
            p = f"blk.{layer}."
            y = self.attention(layer, rms_norm(x, self.weight(p + "attn_norm.weight"), self.eps))
            if gemma:
                y = rms_norm(y, self.weight(p + "post_attention_norm.weight"), self.eps)
            x = x + y
            y = self.feed_forward(layer, rms_norm(x, self.weight(p + "ffn_norm.weight"), self.eps))
            if gemma:
                y = rms_norm(y, self.weight(p + "post_ffw_norm.weight"), self.eps)
            x = x + y
            if watch is not None:
                watch(f"layers.{layer}.residual", x)
        return x

    def logits(self, tokens, rows=None):
        """(n, vocab) fp32; rows selects positions (a slice or indices)."""
        x = self.hidden(tokens)
        if rows is not None:
            x = x[rows]
        x = rms_norm(x, self.weight("output_norm.weight"), self.eps)
        name = "output.weight" if self.has("output.weight") else "token_embd.weight"
        return x @ self.weight(name).T


def log_softmax(logits):
    """float64, because differences of large numbers are taken next."""
    z = logits.astype(np.float64)
    z -= z.max(axis=-1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


def kl(reference, other):
    """Per row: how far `other` is from `reference`, in nats."""
    p, q = log_softmax(reference), log_softmax(other)
    return (np.exp(p) * (p - q)).sum(axis=-1)


def cosine(a, b):
    """Per row."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return (a * b).sum(-1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))


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
