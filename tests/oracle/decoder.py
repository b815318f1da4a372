"""A forward pass in numpy over a decoder that is described as data.

The description is what a bundle.json of format 2 holds: `layers`, one object a layer, `rope` and `rope_local`, and a
few numbers of the whole model. forward.py makes the same from a GGUF's metadata, without the daemon. Weights come by
their GGUF names, in the order of the GGUF's rows.

Nothing here is shared with the daemon. A layer computes

    h = norm(x) or x; q, k, v = W h + b; norms and rotation; softmax of the scores; o
    x += residual_scale * (norm of o, or o), and the same around the feed-forward
    per-layer embeddings, the layer's output scale
"""
import copy
import math
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from families import PAIRS  # noqa: E402


def rms_norm(x, weight, eps):
    """The sum in float64 whatever x is. weight None: a norm without one."""
    scale = np.sqrt(np.mean(x.astype(np.float64) ** 2, axis=-1, keepdims=True) + eps)
    y = (x / scale).astype(x.dtype)
    return y if weight is None else y * weight


def silu(x):
    with np.errstate(over="ignore"):  # exp of a large -x is inf, 1/inf is 0
        return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(x.dtype.type(math.sqrt(2 / math.pi)) * (x + 0.044715 * x**3)))


def gelu_erf(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))).astype(x.dtype)


# Of a logit of a tiny model, float64 with gelu_halves against llama.cpp: a value beside the border of two halves may fall to
# the other side in fp32, and then its gelu is off by half a unit (seen: 0.0014).
HALVES = 2e-3


def gelu_halves(x):
    """gelu_tanh as llama.cpp has it: a table from fp16 to fp16."""
    return gelu_tanh(x.astype(np.float16).astype(np.float32)).astype(np.float16).astype(x.dtype)


ACTS = {"silu": silu, "gelu_tanh": gelu_tanh, "gelu_erf": gelu_erf, "gelu_halves": gelu_halves}
PLAIN_LAYER = {
    "kind": "global", "rotates": True, "pre_norm": True, "post_norm": False, "gain_plus_one": False, "qk_norm": "none",
    "qk_norm_last": False, "v_norm": False, "v_is_k": False, "score_cap": 0.0, "act": "silu", "gated": True,
    "residual_scale": 1.0, "d_ple": 0, "out_scale": 1.0,
}
PLAIN_ROPE = {"scale": 1.0, "window": 0, "magnitude": 1.0, "original": 0, "factors": [], "long_factors": []}


def soft_cap(x, cap):
    return cap * np.tanh(x / cap) if cap > 0 else x


class Decoder:
    """spec: d_model, norm_eps, embed_scale, logit_scale, logit_cap, layers, rope, rope_local, and `pairs`.

    weights: get(name) -> array in numpy's order (a projection is (out, in)), or None where the model has none.
    round_at: {place: function}; what rounding at that place alone costs. Places: "k", "v", "x" (the stream).
    """

    def __init__(self, spec, weights, dtype=np.float64, round_at=None):
        self.spec = spec
        self.weights = weights
        self.dtype = dtype
        self.round_at = round_at or {}
        self.router_states = {}  # of each layer's router network
        self.routes = {}  # {layer: (chosen experts [n, top], margin [n])}, of the last run

    def find(self, name):
        w = self.weights.get(name)
        return None if w is None else w.astype(self.dtype, copy=False)

    def weight(self, name):
        w = self.find(name)
        if w is None:
            raise KeyError(name)
        return w

    def rounded(self, place, x):
        return self.round_at[place](x).astype(x.dtype) if place in self.round_at else x

    def linear(self, name, x):
        y = x @ self.weight(name + ".weight").T
        b = self.find(name + ".bias")
        return y if b is None else y + b

    def norm(self, layer, name, x):
        w = self.weight(name + ".weight")
        return rms_norm(x, 1 + w if layer["gain_plus_one"] else w, self.spec["norm_eps"])

    def rope_of(self, layer):
        return self.spec["rope_local" if layer["kind"] == "local" else "rope"]

    # --- rotation ---

    def angles(self, rope, n):
        """cos, sin: (n, dim / 2). One list of factors holds for the whole sequence, by its length."""
        freq = float(rope["base"]) ** (-np.arange(0, rope["dim"], 2, dtype=np.float64) / rope["dim"])
        beyond = len(rope["long_factors"]) > 0 and n > rope["original"]
        factors = rope["long_factors"] if beyond else rope["factors"]
        if len(factors):
            freq = freq / np.asarray(factors, np.float64)
        a = np.outer(np.arange(n) * rope["scale"], freq)
        return (np.cos(a) * rope["magnitude"]).astype(self.dtype), (np.sin(a) * rope["magnitude"]).astype(self.dtype)

    def rotate(self, x, cos, sin):
        """x: (n, heads, d_head); elements from dim on stay."""
        c, s = cos[:, None, :], sin[:, None, :]
        half = cos.shape[1]
        first, second = slice(0, half), slice(half, 2 * half)
        if self.spec["pairs"]:
            first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
        out = x.copy()
        out[..., first] = x[..., first] * c - x[..., second] * s
        out[..., second] = x[..., second] * c + x[..., first] * s
        return out

    # --- attention ---

    def finish(self, layer, name, x, heads):
        """(n, heads * d_head) as heads, normed and rotated as the layer says."""
        n, eps = len(x), self.spec["norm_eps"]
        kind = layer["qk_norm"]
        w = None if kind == "none" else self.weight(name + "_norm.weight")
        if kind == "full":
            x = rms_norm(x, w, eps)
        x = x.reshape(n, heads, layer["d_head"])
        if kind == "head":  # its weight is one head's, or each head has its own part of it
            w = w.reshape(-1, layer["d_head"])
        if kind == "head" and not layer["qk_norm_last"]:
            x = rms_norm(x, w, eps)
        if layer["rotates"]:
            x = self.rotate(x, *self.angles(self.rope_of(layer), n))
        if kind == "head" and layer["qk_norm_last"]:
            x = rms_norm(x, w, eps)
        return x

    def make_keys(self, layer, p, h):
        raw = self.linear(p + "attn_k", h)
        v = raw if layer["v_is_k"] else self.linear(p + "attn_v", h)
        v = v.reshape(len(h), layer["n_kv"], layer["d_head"])
        if layer["v_norm"]:
            v = rms_norm(v, None, self.spec["norm_eps"])
        k = self.finish(layer, p + "attn_k", raw, layer["n_kv"])
        return self.rounded("k", k), self.rounded("v", v)

    def attention(self, index, h, kept):
        """kept: {layer: (k, v)}, filled here."""
        layer, p = self.spec["layers"][index], f"blk.{index}."
        n, heads = len(h), layer["n_heads"]
        if layer.get("mixer") == "cca":
            q, kept[index] = self.mixed_heads(layer, p, h)
        else:
            q = self.finish(layer, p + "attn_q", self.linear(p + "attn_q", h), heads)
        if layer["kv_from"] == index and index not in kept:
            kept[index] = self.make_keys(layer, p, h)
        k, v = kept[layer["kv_from"]]
        i, j = np.arange(n)[:, None], np.arange(n)[None, :]
        window = self.rope_of(layer)["window"]
        hidden = (j > i) | (i - j >= window if window else False)
        out = np.empty((n, heads, layer["d_head"]), self.dtype)
        group = heads // layer["n_kv"]
        for head in range(heads):
            scores = q[:, head] @ k[:, head // group].T * self.dtype(layer["score_scale"])
            scores = soft_cap(scores, self.dtype(layer["score_cap"]))
            scores[hidden] = -np.inf
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            scores /= scores.sum(axis=-1, keepdims=True)
            out[:, head] = scores @ v[:, head // group]
        return self.linear(p + "attn_output", out.reshape(n, -1))

    def convolution(self, layer, p, h):
        """y[t] = sum over j of taps[:, j] * u[t - (n - 1) + j], u = b * x; what is before the first position is 0."""
        parts = np.split(self.linear(p + "shortconv.in_proj", h), 3, axis=-1)
        b, c, x = (parts[i] for i in self.spec.get("conv_order", (0, 1, 2)))
        taps = self.weight(p + "shortconv.conv.weight")
        taps = taps[:, ::-1] if self.spec.get("conv_flip") else taps
        assert taps.shape[1] == layer["conv_len"]
        u = np.concatenate([np.zeros((taps.shape[1] - 1, x.shape[1]), self.dtype), b * x])
        y = sum(taps[:, j] * u[j:j + len(h)] for j in range(taps.shape[1]))
        return self.linear(p + "shortconv.out_proj", c * y)

    def along(self, layer, p, u):
        """u through a filter a channel, then one a head whose channels it mixes. Positions before the first are 0, once."""
        n, (width, first), dh = len(u), self.weight(p + "shortconv.conv.weight").shape, layer["d_head"]
        taps, bias = self.weight(p + "shortconv.conv.weight"), self.weight(p + "cca_bias.weight")
        mix = self.weight(p + "cca_mix.weight").reshape(width // dh, dh, dh, -1)  # (head, out, in, tap)
        second = mix.shape[3]
        assert (first, second) == (layer["conv_len"], layer["mix_len"])
        at_once = not layer.get("conv_zero_mid")
        u = np.concatenate([np.zeros((first - 1 + (second - 1) * at_once, width), self.dtype), u])
        x = sum(taps[:, j] * u[j : j + len(u) - first + 1] for j in range(first)) + bias[0]
        if not at_once:
            x = np.concatenate([np.zeros((second - 1, width), self.dtype), x])
        x = x.reshape(len(x), width // dh, dh)
        y = sum(np.einsum("ngi,goi->ngo", x[j : j + n], mix[..., j]) for j in range(second))
        return y.reshape(n, width) + bias[1]

    def mixed_heads(self, layer, p, h):
        """CCA's q and (k, v): both mixed along positions and with each other, each of length sqrt(d_head)."""
        n, kv, dh = len(h), layer["n_kv"], layer["d_head"]
        q0, k0 = self.linear(p + "attn_q", h), self.linear(p + "attn_k", h)
        q, k = np.split(self.along(layer, p, np.concatenate([q0, k0], axis=-1)), [q0.shape[1]], axis=-1)
        q, k = q.reshape(n, -1, dh), k.reshape(n, kv, dh)
        if not layer.get("no_qk_residual"):
            shared = (q0.reshape(n, kv, -1, dh) + k0.reshape(n, kv, 1, dh)) / 2
            q, k = q + shared.reshape(q.shape), k + shared.mean(axis=2)
        q = rms_norm(q, None, 0)
        k = rms_norm(k, None, 0) * self.weight(p + "cca_k_scale.weight")[:, None]
        if layer["rotates"]:
            q, k = (self.rotate(x, *self.angles(self.rope_of(layer), n)) for x in (q, k))
        before = self.linear(p + "attn_v_before", h)
        if not layer.get("no_v_delay"):
            before = np.concatenate([np.zeros_like(before[:1]), before[:-1]])
        v = np.concatenate([self.linear(p + "attn_v", h), before], axis=-1).reshape(n, kv, dh)
        return q, (self.rounded("k", k), self.rounded("v", v))

    # --- the rest of a layer ---

    def feed_forward(self, layer, p, h):
        act = ACTS[layer["act"]]
        up = self.linear(p + "ffn_up", h)
        a = act(self.linear(p + "ffn_gate", h)) * up if layer["gated"] else act(up)
        return self.linear(p + "ffn_down", a)

    def network(self, index, h):
        """The scores of a router that is a network; it goes on from what that of the layer before had."""
        layer, p = self.spec["layers"][index], f"blk.{index}."
        bias, scale, norm, *inner = self.weight(p + "ffn_gate_inp_vectors.weight")
        r = self.linear(p + "ffn_gate_inp_down", h) + bias
        if index > 0 and not layer.get("no_eda"):
            r = r + self.router_states[index - 1] * scale
        self.router_states[index] = r
        r = rms_norm(r, norm, self.spec["norm_eps"])
        for i, b in enumerate(inner):
            r = ACTS[layer.get("router_act", "gelu_erf")](self.linear(p + f"ffn_gate_inp_{i + 1}", r) + b)
        return self.linear(p + "ffn_gate_inp", r)

    def route_one(self, index, h):
        """One class of all, by the softmax with a bias; the last class stands for no expert."""
        layer, p = self.spec["layers"][index], f"blk.{index}."
        bias = self.weight(p + "exp_probs_b.bias")
        scores = self.network(index, h) + (bias if layer.get("bias_in_softmax") else 0)
        share = np.exp(scores - scores.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        keys = share if layer.get("bias_in_softmax") else share + bias
        if layer.get("no_skip"):
            keys = keys[:, :-1]
        order = np.argsort(-keys, axis=-1, kind="stable")  # of equal ones the first
        best = np.take_along_axis(keys, order, axis=-1)
        self.routes[index] = (order[:, :1], best[:, 0] - best[:, 1])
        chosen = np.arange(share.shape[1]) == order[:, :1]
        gates = np.where(chosen | bool(layer.get("soft_moe")), 1 if layer.get("weight_one") else share, 0)
        return gates[:, :-1].astype(self.dtype)

    def route(self, index, x, h):
        """What each expert is multiplied by, [n, experts]; zero where it was not chosen."""
        layer, p = self.spec["layers"][index], f"blk.{index}."
        if layer["router"] == "network":
            return self.route_one(index, h)
        if layer.get("expert_branch") and layer.get("router_reads") is None:  # the stream itself, in a norm of its own
            h = rms_norm(x, self.weight(p + "ffn_gate_inp.scale"), self.spec["norm_eps"])
            h = h / self.dtype(math.sqrt(self.spec["d_model"]))
        elif layer.get("expert_branch"):
            h = self.norm(layer, p + layer["router_reads"], x)
        scores = h @ self.weight(p + "ffn_gate_inp.weight").T
        sigmoid = layer["router"] == "sigmoid_bias"
        of_all = np.exp(scores - scores.max(-1, keepdims=True))
        of_all /= of_all.sum(-1, keepdims=True)
        share = 1 / (1 + np.exp(-scores)) if sigmoid else of_all
        keys = share + self.weight(p + "exp_probs_b.bias") if sigmoid and not layer.get("no_expbias") else share
        share = of_all if layer.get("softmax_router") else share
        order = np.argsort(-keys, axis=-1, kind="stable")  # of equal ones the first
        top = layer["n_top"]
        chosen = np.zeros(keys.shape, bool)
        np.put_along_axis(chosen, order[:, :top], True, axis=-1)
        best = np.take_along_axis(keys, order, axis=-1)
        margin = best[:, top - 1] - best[:, top] if top < layer["n_experts"] else np.full(len(x), np.inf)
        self.routes[index] = (order[:, :top], margin)
        gates = np.where(chosen, keys if layer.get("bias_in_weight") else share, 0)
        if not layer.get("no_norm_topk"):
            gates = gates / (gates.sum(-1, keepdims=True) + self.dtype(1e-6 if sigmoid else 0))
        scale = self.find(p + "ffn_down_exps.scale")
        return gates if scale is None or layer.get("no_expert_scale") else gates * scale

    def experts(self, index, x, h):
        """x: the stream; h: what the dense feed-forward reads. An expert computes the rows that chose it."""
        layer, p = self.spec["layers"][index], f"blk.{index}."
        gates = self.route(index, x, h)
        h = self.norm(layer, p + "pre_ffw_norm_2", x) if layer.get("expert_branch") else h
        gate, up, down = (self.weight(p + f"ffn_{k}_exps.weight") for k in ("gate", "up", "down"))
        y = np.zeros_like(x)
        for e in range(layer["n_experts"]):
            rows = np.flatnonzero(gates[:, e])
            a = ACTS[layer["act"]](h[rows] @ gate[e].T) * (h[rows] @ up[e].T)
            y[rows] += (a @ down[e].T) * gates[rows, e, None]
        return y

    def mixed(self, index, x, h):
        """The feed-forward of a layer with experts."""
        layer, p = self.spec["layers"][index], f"blk.{index}."
        y = self.experts(index, x, h)
        if not layer.get("expert_branch"):
            return y
        dense = self.norm(layer, p + "post_ffw_norm_1", self.feed_forward(layer, p, h))
        return dense + self.norm(layer, p + "post_ffw_norm_2", y)

    def per_layer(self, index, x, x0, tokens):
        """What the layer's own embedding of each token adds."""
        layer, p, width = self.spec["layers"][index], f"blk.{index}.", self.spec["layers"][index]["d_ple"]
        mine = slice(index * width, (index + 1) * width)
        a = x0 @ self.weight("per_layer_model_proj.weight")[mine].T / self.dtype(math.sqrt(self.spec["d_model"]))
        a = self.norm(layer, "per_layer_proj_norm", a)
        own = self.weight("per_layer_token_embd.weight")[tokens, mine] * self.dtype(math.sqrt(width))
        e = (a + own) / self.dtype(math.sqrt(2))
        g = ACTS[layer["act"]](x @ self.weight(p + "inp_gate.weight").T) * e
        return self.norm(layer, p + "post_norm", g @ self.weight(p + "proj.weight").T)

    def join(self, layer, name, x, y):
        """The stream x with what a block gave."""
        if not layer.get("affine_join"):
            return x + self.dtype(layer["residual_scale"]) * y
        a, b, c, d = self.weight(name + ".weight")
        if layer.get("bias_after_scale"):
            return y * b + a + x * d + c
        return (y + a) * b + (x + c) * d

    def layer(self, index, x, x0, tokens, kept):
        layer, p = self.spec["layers"][index], f"blk.{index}."
        h = self.norm(layer, p + "attn_norm", x) if layer["pre_norm"] else x
        conv = layer.get("mixer") == "conv"
        y = self.convolution(layer, p, h) if conv else self.attention(index, h, kept)
        y = self.norm(layer, p + "post_attention_norm", y) if layer["post_norm"] else y
        x = self.rounded("x", self.join(layer, p + "join_attn", x, y))
        h = self.norm(layer, p + "ffn_norm", x) if layer["pre_norm"] else x
        y = self.mixed(index, x, h) if layer.get("n_experts") else self.feed_forward(layer, p, h)
        y = self.norm(layer, p + "post_ffw_norm", y) if layer["post_norm"] else y
        x = self.rounded("x", self.join(layer, p + "join_ffn", x, y))
        if layer["d_ple"]:
            x = self.rounded("x", x + self.per_layer(index, x, x0, tokens))
        return self.rounded("x", x * self.dtype(layer["out_scale"]))

    def hidden(self, tokens):
        """(n, d_model) after the last layer."""
        tokens = np.asarray(tokens)
        x = self.rounded("x", self.weight("token_embd.weight")[tokens] * self.dtype(self.spec["embed_scale"]))
        x0, kept = x, {}
        for index in range(len(self.spec["layers"])):
            x = self.layer(index, x, x0, tokens, kept)
        return x

    def logits(self, tokens, rows=None):
        """(n, vocab); rows selects positions (a slice or indices)."""
        x = self.hidden(tokens)
        x = x if rows is None else x[rows]
        x = self.norm(self.spec["layers"][0], "output_norm", x)
        head = self.find("output.weight")
        y = x @ (self.weight("token_embd.weight") if head is None else head).T
        return soft_cap(y * self.dtype(self.spec["logit_scale"]), self.dtype(self.spec["logit_cap"]))


def spec_of_bundle(manifest):
    """The description in a bundle.json of format 2; a copy, to be changed at will."""
    m = copy.deepcopy(manifest)
    assert m["format"] == 2, m["format"]
    keys = ("d_model", "norm_eps", "embed_scale", "logit_scale", "logit_cap", "layers", "rope")
    spec = {k: m[k] for k in keys}
    spec["rope_local"] = m.get("rope_local")
    spec["pairs"] = m["architecture"] in PAIRS
    return spec


def with_peers_gelu(spec):
    """The description with llama.cpp's gelu in place of gelu_tanh."""
    return {**spec, "layers": [{**layer, "act": layer["act"].replace("gelu_tanh", "gelu_halves")} for layer in spec["layers"]]}


# --- measures ---


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
