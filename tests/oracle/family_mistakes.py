"""Mistakes that implementations of these families make, planted in decoder.py's description.

The names are those of each model's mistakes.json. A mistake is a change of the data that describes the decoder (or
of the weights): nothing of the pass itself has to know it.
"""
import copy
import math

KNOWN = {}


def mistake(f):
    KNOWN[f.__name__.replace("window_plus_1", "window+1")] = f
    return f


def each(spec, **fields):
    for layer in spec["layers"]:
        layer.update(fields)


@mistake
def rope_other(spec):
    """Pairs (i, i + half) for (2i, 2i + 1), or the other way round."""
    spec["pairs"] = not spec["pairs"]


@mistake
def no_qknorm(spec):
    each(spec, qk_norm="none")


@mistake
def qknorm_order(spec):
    for layer in spec["layers"]:
        layer["qk_norm_last"] = not layer["qk_norm_last"]


@mistake
def per_head_norm(spec):
    """A norm of each head in place of one of all."""
    each(spec, qk_norm="head")


@mistake
def full_rope(spec):
    """All of a head rotated, not the first part; there are no factors for so many frequencies."""
    spec["rope"].update(dim=spec["layers"][0]["d_head"], factors=[], long_factors=[])


@mistake
def conv_order(spec):
    """Its three parts in another order."""
    spec["conv_order"] = (1, 0, 2)


@mistake
def conv_flip(spec):
    """The newest tap first."""
    spec["conv_flip"] = True


@mistake
def no_longrope(spec):
    spec["rope"].update(factors=[], long_factors=[], magnitude=1.0)


@mistake
def longrope_swap(spec):
    rope = spec["rope"]
    rope["factors"], rope["long_factors"] = rope["long_factors"], rope["factors"]


@mistake
def no_factors(spec):
    spec["rope"].update(factors=[])


@mistake
def no_yarn(spec):
    spec["rope"].update(factors=[], magnitude=1.0)


@mistake
def no_mscale(spec):
    spec["rope"]["magnitude"] = 1.0


@mistake
def rope_partial_std(spec):
    """The rotated pairs of gemma4's global layers as a plain partial rotation: frequencies over the rotated part."""
    rope = spec["rope"]
    turning = sum(f < 1e10 for f in rope["factors"])
    rope.update(dim=2 * turning, factors=[])


@mistake
def gate_up_swap(spec):
    spec["gate_up_swap"] = True


@mistake
def no_embscale(spec):
    spec["embed_scale"] = 1.0


@mistake
def no_attnscale(spec):
    no_unit_scale(spec)


@mistake
def no_unit_scale(spec):
    """1 / sqrt(key_length) in place of the model's own; key_length is that of global layers."""
    d_head = max(layer["d_head"] for layer in spec["layers"])
    each(spec, score_scale=1 / math.sqrt(d_head))


@mistake
def scale_by_width(spec):
    """1 / sqrt(d_model / n_heads): wrong where heads are wider."""
    each(spec, score_scale=(spec["d_model"] / spec["layers"][0]["n_heads"]) ** -0.5)


@mistake
def no_resscale(spec):
    each(spec, residual_scale=1.0)


@mistake
def no_logitscale(spec):
    spec["logit_scale"] = 1.0


@mistake
def no_attncap(spec):
    each(spec, score_cap=0.0)


@mistake
def no_finalcap(spec):
    spec["logit_cap"] = 0.0


@mistake
def no_window(spec):
    if spec["rope_local"]:
        spec["rope_local"]["window"] = 0


@mistake
def window_plus_1(spec):
    spec["rope_local"]["window"] += 1


@mistake
def pattern_shift(spec):
    for layer in spec["layers"]:
        layer["kind"] = "global" if layer["kind"] == "local" else "local"


@mistake
def no_postnorm(spec):
    each(spec, post_norm=False)


@mistake
def gain_plus_one(spec):
    """1 + weight, as the original files of Gemma mean it; a GGUF's weights have that 1."""
    each(spec, gain_plus_one=True)


@mistake
def no_bias(spec):
    spec["no_bias"] = True


@mistake
def no_vnorm(spec):
    each(spec, v_norm=False)


@mistake
def no_layerscalar(spec):
    each(spec, out_scale=1.0)


@mistake
def no_nope(spec):
    each(spec, rotates=True)


@mistake
def gelu_erf(spec):
    each(spec, act="gelu_erf")


@mistake
def act_silu(spec):
    each(spec, act="silu")


@mistake
def no_norm_topk(spec):
    """Each chosen expert's share of all, not of the chosen."""
    each(spec, no_norm_topk=True)


@mistake
def no_expbias(spec):
    each(spec, no_expbias=True)


@mistake
def bias_in_weight(spec):
    """The bias chooses, and weighs too."""
    each(spec, bias_in_weight=True)


@mistake
def softmax_router(spec):
    """The chosen experts weigh as in a softmax."""
    each(spec, softmax_router=True)


@mistake
def no_expscale(spec):
    each(spec, no_expert_scale=True)


@mistake
def router_from_norm(spec):
    """The router reads what the dense feed-forward reads."""
    each(spec, router_reads="ffn_norm")


@mistake
def conv_zero_mid(spec):
    """Zeros before the second convolution too, in place of what the first makes of zeros."""
    each(spec, conv_zero_mid=True)


@mistake
def no_qk_residual(spec):
    each(spec, no_qk_residual=True)


@mistake
def no_v_delay(spec):
    each(spec, no_v_delay=True)


@mistake
def bias_after_scale(spec):
    each(spec, bias_after_scale=True)


@mistake
def no_eda(spec):
    """Each layer's router on its own."""
    each(spec, no_eda=True)


@mistake
def router_silu(spec):
    each(spec, router_act="silu")


@mistake
def bias_in_softmax(spec):
    each(spec, bias_in_softmax=True)


@mistake
def no_skip(spec):
    """The best expert where the best class is none."""
    each(spec, no_skip=True)


@mistake
def weight_one(spec):
    """The chosen expert as it is."""
    each(spec, weight_one=True)


@mistake
def soft_moe(spec):
    """All experts, by their shares, the bias among the scores."""
    each(spec, soft_moe=True, bias_in_softmax=True)


class Swapped:
    """Weights whose gate and up have changed places: the experts', where a model has them."""

    def __init__(self, weights):
        self.weights = weights
        self.tail = "_exps" if weights.get("blk.0.ffn_down_exps.weight") is not None else ""

    def get(self, name):
        gate, up = "ffn_gate" + self.tail, "ffn_up" + self.tail
        parts = name.split(".")
        return self.weights.get(".".join({gate: up, up: gate}.get(p, p) for p in parts))


class Unbiased:
    """Weights without any bias."""

    def __init__(self, weights):
        self.weights = weights

    def get(self, name):
        return None if name.endswith(".bias") else self.weights.get(name)


CHANGED_WEIGHTS = {"gate_up_swap": Swapped, "no_bias": Unbiased}


def plant(name, spec, weights):
    """The description and the weights with that mistake."""
    wrong = copy.deepcopy(spec)
    KNOWN[name](wrong)
    for key, change in CHANGED_WEIGHTS.items():
        weights = change(weights) if wrong.pop(key, False) else weights
    return wrong, weights
