"""Shapes of models with experts, for mkgguf.py: numbers as published (LFM2.5-8B-A1B, Gemma-4-26B-A4B, the Privacy Filter), and which
tensors their layers have. Kinds of tensors: "matrix" (in the file's own type, with three axes for experts), "real" (a matrix that
stays F32: routers, convolutions), "norm" and "bias"."""
import numpy as np


def lfm2moe(s, layer, p):
    kv = s.keys["attention.head_count_kv"][layer] * s.d_head
    yield p + "attn_norm.weight", (s.d,), "norm"
    if kv == 0:
        yield p + "shortconv.conv.weight", (s.d, s.keys["shortconv.l_cache"]), "real"
        yield p + "shortconv.in_proj.weight", (3 * s.d, s.d), "matrix"
        yield p + "shortconv.out_proj.weight", (s.d, s.d), "matrix"
    else:
        yield from attention(s, p, s.heads * s.d_head, kv)
        yield from head_norms(p, s.d_head)
    yield p + "ffn_norm.weight", (s.d,), "norm"
    if layer < s.keys["leading_dense_block_count"]:
        yield from dense(s, p)
    else:
        yield p + "exp_probs_b.bias", (s.experts,), "bias"
        yield from router(s, p)
        yield from experts(s, p)


def gemma4(s, layer, p):
    local = s.keys["attention.sliding_window_pattern"][layer]
    d_head = s.keys["attention.key_length_swa"] if local else s.d_head
    kv = s.keys["attention.head_count_kv"][layer] * d_head
    for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_ffw_norm_1", "post_ffw_norm_2",
                 "pre_ffw_norm_2"):
        yield f"{p}{name}.weight", (s.d,), "norm"
    # full layers of this model take the keys for values
    yield from attention(s, p, s.heads * d_head, kv, values=local)
    yield from head_norms(p, d_head)
    yield from dense(s, p)
    yield from router(s, p)
    yield p + "ffn_gate_inp.scale", (s.d,), "norm"
    yield p + "ffn_gate_up_exps.weight", (s.experts, 2 * s.d_expert, s.d), "matrix"
    yield p + "ffn_down_exps.weight", (s.experts, s.d, s.d_expert), "matrix"
    yield p + "ffn_down_exps.scale", (s.experts,), "norm"
    yield p + "layer_output_scale.weight", (1,), "norm"


def privacy_filter(s, layer, p):
    yield p + "attn_norm.weight", (s.d,), "norm"
    yield p + "post_attention_norm.weight", (s.d,), "norm"
    yield p + "attn_sinks.weight", (s.heads,), "bias"
    q, kv = s.heads * s.d_head, s.kv * s.d_head
    yield from attention(s, p, q, kv)
    for name, n in (("q", q), ("k", kv), ("v", kv), ("output", s.d)):
        yield f"{p}attn_{name}.bias", (n,), "bias"
    yield from router(s, p)
    yield p + "ffn_gate_inp.bias", (s.experts,), "bias"
    yield from experts(s, p)
    for name, n in (("gate", s.d_expert), ("up", s.d_expert), ("down", s.d)):
        yield f"{p}ffn_{name}_exps.bias", (s.experts, n), "bias"


def attention(s, p, q, kv, values=True):
    yield p + "attn_q.weight", (q, s.d), "matrix"
    yield p + "attn_k.weight", (kv, s.d), "matrix"
    if values:
        yield p + "attn_v.weight", (kv, s.d), "matrix"
    yield p + "attn_output.weight", (s.d, q), "matrix"


def head_norms(p, d_head):
    yield p + "attn_q_norm.weight", (d_head,), "norm"
    yield p + "attn_k_norm.weight", (d_head,), "norm"


def dense(s, p):
    yield p + "ffn_gate.weight", (s.ff, s.d), "matrix"
    yield p + "ffn_up.weight", (s.ff, s.d), "matrix"
    yield p + "ffn_down.weight", (s.d, s.ff), "matrix"


def router(s, p):
    yield p + "ffn_gate_inp.weight", (s.experts, s.d), "real"


def experts(s, p):
    yield p + "ffn_gate_exps.weight", (s.experts, s.d_expert, s.d), "matrix"
    yield p + "ffn_up_exps.weight", (s.experts, s.d_expert, s.d), "matrix"
    yield p + "ffn_down_exps.weight", (s.experts, s.d, s.d_expert), "matrix"


LAYERS = {"lfm2moe": lfm2moe, "gemma4": gemma4, "openai-privacy-filter": privacy_filter}
# beside the embedding: the norm of lfm2moe has another name, the tagger has a head of its own
ENDS = {
    "lfm2moe": lambda s: [("token_embd_norm.weight", (s.d,), "norm")],
    "openai-privacy-filter": lambda s: [("output_norm.weight", (s.d,), "norm"), ("cls.output.weight", (33, s.d), "matrix"),
                                        ("cls.output.bias", (33,), "bias")],
}
CLASSES = ("account_number", "private_address", "private_date", "private_email", "private_person", "private_phone",
           "private_url", "secret")


def shapes(shape):
    """name -> a Shape of mkgguf.py, which is given."""
    def lfm2(n_dense, attends, layers=24):
        return shape("lfm2moe", layers, 2048, 32, 8, 64, 7168, 65536, rope_base=5e6, eps=1e-5, context=128000, experts=32, top=4,
                     d_expert=1792,
                     keys={"attention.head_count_kv": [8 if i in attends else 0 for i in range(layers)],
                           "leading_dense_block_count": n_dense, "expert_gating_func": 2, "shortconv.l_cache": 3})
    full = [i % 6 == 5 for i in range(30)]
    # half of what turns in full layers: 1e30 stands for "not at all"
    turns = np.repeat([1.0, 1e30], [64, 192])
    return {
        "lfm2.5-8b-a1b": lfm2(2, {2, 6, 10, 14, 18, 21}),
        "gemma4-26b-a4b": shape(
            "gemma4", 30, 2816, 16, 8, 512, 2112, 262144, rope_base=1e6, context=262144, window=1024, experts=128, top=8, d_expert=704,
            tables={"rope_freqs.weight": turns},
            keys={"attention.head_count_kv": [2 if f else 8 for f in full], "rope.freq_base_swa": 10000.0,
                  "attention.key_length_swa": 256, "attention.value_length_swa": 256, "rope.dimension_count_swa": 256,
                  "attention.sliding_window_pattern": [not f for f in full], "attention.shared_kv_layers": 0,
                  "embedding_length_per_layer_input": 0, "final_logit_softcapping": 30.0}),
        "privacy-filter": shape(
            "openai-privacy-filter", 8, 640, 14, 2, 64, 640, 200064, rope_base=150000.0, eps=1e-5, context=4096, window=128,
            experts=128, top=4, d_expert=640,
            keys={"pooling_type": 5, "embedding_length_out": 33, "rope.scaling.type": "yarn", "rope.scaling.factor": 32.0,
                  "rope.scaling.original_context_length": 4096, "rope.scaling.yarn_beta_fast": 32.0,
                  "rope.scaling.yarn_beta_slow": 1.0, "rope.scaling.yarn_truncate": False,
                  "classifier.output_labels": ["O"] + [f"{k}-{c}" for c in CLASSES for k in "BIES"]}),
    }
