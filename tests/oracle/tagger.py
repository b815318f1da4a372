"""The Privacy Filter's forward pass in float64, and its decode, by their definitions: nothing is shared with the daemon.

`plant` names one of the mistakes that implementations make (mistakes.json of the tiny model).
"""
import math

import gguf
import numpy as np

LIMIT, SLOPE = 7.0, 1.702


class Weights:
    """Tensors and keys of a GGUF in the layout of a third-party runner."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.t = {t.name: np.asarray(t.data, np.float64).reshape([int(n) for n in reversed(t.shape)])
                  for t in reader.tensors}
        self.keys = {k.removeprefix("openai-privacy-filter."): f.contents() for k, f in reader.fields.items()}
        self.labels = self.keys["classifier.output_labels"]

    def __getitem__(self, name):
        return self.t[name]

    def linear(self, name, x):
        return x @ self[name + ".weight"].T + self[name + ".bias"]


def rms(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def angles(keys, n, plant):
    dim, base = keys["attention.key_length"], keys["rope.freq_base"]
    freq = base ** (-np.arange(0, dim, 2) / dim)
    factor, length = keys["rope.scaling.factor"], keys["rope.scaling.original_context_length"]

    def index(turns):
        return dim * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(base))
    lo, hi = index(keys["rope.scaling.yarn_beta_fast"]), index(keys["rope.scaling.yarn_beta_slow"])
    if plant == "truncate":
        lo, hi = math.floor(lo), math.ceil(hi)
    lo, hi = max(lo, 0), min(hi, dim - 1)
    ramp = np.clip((np.arange(dim // 2) - lo) / (hi - lo), 0, 1)
    magnitude = 0.1 * math.log(factor) + 1
    if plant != "no_yarn":
        freq = freq / factor * ramp + freq * (1 - ramp)
    if plant in ("no_yarn", "no_mscale"):
        magnitude = 1
    a = np.outer(np.arange(n), freq)
    return np.cos(a) * magnitude, np.sin(a) * magnitude


def rotate(x, cos, sin, plant):
    half = x.shape[-1] // 2
    a, b = slice(0, None, 2), slice(1, None, 2)
    if plant == "rope_other":
        a, b = slice(0, half), slice(half, None)
    out = x.copy()
    out[..., a] = x[..., a] * cos[:, None] - x[..., b] * sin[:, None]
    out[..., b] = x[..., b] * cos[:, None] + x[..., a] * sin[:, None]
    return out


def attention(w, p, h, plant):
    keys, n = w.keys, len(h)
    heads, kv, dim = keys["attention.head_count"], keys["attention.head_count_kv"], keys["attention.key_length"]
    cos, sin = angles(keys, n, plant)
    q = rotate(w.linear(p + "attn_q", h).reshape(n, heads, dim), cos, sin, plant)
    k = rotate(w.linear(p + "attn_k", h).reshape(n, kv, dim), cos, sin, plant)
    v = w.linear(p + "attn_v", h).reshape(n, kv, dim)
    far = np.abs(np.arange(n)[:, None] - np.arange(n)[None])
    window = keys["attention.sliding_window"] - (plant == "window-1")
    hidden = far > (n if plant == "no_window" else window)
    if plant == "causal":
        hidden |= np.arange(n)[None] > np.arange(n)[:, None]
    out = np.empty((n, heads, dim))
    for i in range(heads):
        s = q[:, i] @ k[:, i * kv // heads].T / math.sqrt(dim)
        s[hidden] = -np.inf
        sink = w[p + "attn_sinks.weight"][i] * (1 / math.log(2) if plant == "sinks_log2" else 1)
        top = np.maximum(s.max(-1, keepdims=True), sink)
        s = np.exp(s - top)
        total = s.sum(-1, keepdims=True) + (0 if plant == "no_sinks" else np.exp(sink - top))
        out[:, i] = s / total @ v[:, i * kv // heads]
    return w.linear(p + "attn_output", out.reshape(n, -1))


def activate(g, u, plant):
    if plant == "plain_swiglu":
        return g / (1 + np.exp(-g)) * u
    if plant != "no_clamp":
        g, u = np.minimum(g, LIMIT), np.clip(u, -LIMIT, LIMIT)
    return g / (1 + np.exp(-SLOPE * g)) * (u + (plant != "no_up1"))


def expert(w, p, e, h, plant):
    g, u = (h @ w[p + f"ffn_{k}_exps.weight"][e].T + w[p + f"ffn_{k}_exps.bias"][e] for k in ("gate", "up"))
    if plant == "interleaved":
        both = np.concatenate([g, u], -1)
        g, u = both[:, ::2], both[:, 1::2]
    return activate(g, u, plant) @ w[p + "ffn_down_exps.weight"][e].T + w[p + "ffn_down_exps.bias"][e]


def mixture(w, p, h, plant):
    scores, top = w.linear(p + "ffn_gate_inp", h), w.keys["expert_used_count"]
    order = np.argsort(-scores, axis=-1, kind="stable")[:, :top]
    of = np.take_along_axis(scores, order, -1)
    weight = np.exp(of - of.max(-1, keepdims=True))
    total = weight.sum(-1, keepdims=True)
    if plant == "softmax_all":
        total = np.exp(scores - of.max(-1, keepdims=True)).sum(-1, keepdims=True)
    weight = weight / total / (top if plant == "div_k" else 1)
    y = np.zeros_like(h)
    for e in range(w.keys["expert_count"]):
        rows, place = np.nonzero(order == e)
        y[rows] += weight[rows, place, None] * expert(w, p, e, h[rows], plant)
    return y


def tag_logits(w, tokens, plant=None):
    """(n, labels)."""
    eps = w.keys["attention.layer_norm_rms_epsilon"]
    x = w["token_embd.weight"][tokens]
    for layer in range(w.keys["block_count"]):
        p = f"blk.{layer}."
        x = x + attention(w, p, rms(x, w[p + "attn_norm.weight"], eps), plant)
        x = x + mixture(w, p, rms(x, w[p + "post_attention_norm.weight"], eps), plant)
    return w.linear("cls.output", rms(x, w["output_norm.weight"], eps))


# --- decode ---

BIASES = ("background_stay", "background_to_start", "inside_to_continue", "inside_to_end", "end_to_background", "end_to_start")


def step(labels, a, b, biases):
    """What going from label a to b adds; None: it is not well formed."""
    (pa, _, ca), (pb, _, cb) = (labels[i].partition("-") for i in (a, b))
    if pa in "BI":
        return biases[2 if pb == "I" else 3] if pb in "IE" and ca == cb else None
    if pb in "IE":
        return None
    return biases[(0 if pb == "O" else 1) + (0 if pa == "O" else 4)]


def viterbi(labels, logits, biases=(0,) * 6):
    """The labels' indices."""
    z = logits.astype(np.float64)
    z = z - z.max(-1, keepdims=True)
    z -= np.log(np.exp(z).sum(-1, keepdims=True))
    n = len(labels)
    steps = np.full((n, n), -np.inf)
    for a in range(n):
        for b in range(n):
            add = step(labels, a, b, biases)
            steps[a, b] = -np.inf if add is None else add
    begins = np.array([0.0 if x[0] in "OBS" else -np.inf for x in labels])
    ends = np.array([0.0 if x[0] in "OES" else -np.inf for x in labels])
    score, before = begins + z[0], []
    for row in z[1:]:
        all_ = score[:, None] + steps
        before.append(all_.argmax(0))
        score = all_.max(0) + row
    path = [int((score + ends).argmax())]
    for b in reversed(before):
        path.append(int(b[path[-1]]))
    return np.array(path[::-1])


def spans(labels, path):
    """[(class, first, last)): of a well-formed path."""
    found, first = [], 0
    for i, label in enumerate(path):
        place, _, name = labels[label].partition("-")
        if place in "BS":
            first = i
        if place in "ES":
            found.append((name, first, i + 1))
    return found
