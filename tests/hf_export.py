"""A GGUF as a folder in the form of the transformers library: the same numbers under that library's names.

`write(source, folder)` makes config.json, safetensors and tokenizer.json of a tiny dense model. It knows the same things as
the reader that it tests (daemon/source/hf/), but goes the other way, and was written from llama.cpp's converter and the
library's classes. Only numpy and the gguf package are used.
"""
import json
import re
import struct

import gguf
import numpy as np

PAIRED = {"llama", "granite", "smollm3"}  # rows of q and k stand in pairs in GGUF
PLUS_ONE = {"gemma", "gemma2", "gemma3"}
SANDWICH = {"gemma2", "gemma3", "gemma4", "olmo2", "exaone4"}
TYPES = {"llama": ("llama", "Llama"), "qwen2": ("qwen2", "Qwen2"), "qwen3": ("qwen3", "Qwen3"), "phi3": ("phi3", "Phi3"),
         "hunyuan-dense": ("hunyuan_v1_dense", "HunYuanDenseV1"), "gemma": ("gemma", "Gemma"), "gemma2": ("gemma2", "Gemma2"),
         "gemma3": ("gemma3_text", "Gemma3"), "gemma4": ("gemma4_text", "Gemma4"), "granite": ("granite", "Granite"),
         "olmo2": ("olmo2", "Olmo2"), "smollm3": ("smollm3", "SmolLM3"), "glm4": ("glm4", "Glm4"),
         "exaone4": ("exaone4", "Exaone4"), "lfm2": ("lfm2", "Lfm2"), "lfm2moe": ("lfm2_moe", "Lfm2Moe")}
NAMES = {
    "token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight",
    "per_layer_token_embd.weight": "model.embed_tokens_per_layer.weight",
    "per_layer_model_proj.weight": "model.per_layer_model_projection.weight",
    "per_layer_proj_norm.weight": "model.per_layer_projection_norm.weight", "token_embd_norm.weight": "model.embedding_norm.weight",
}
LAYER = {
    "attn_norm.weight": "input_layernorm.weight", "attn_output": "self_attn.o_proj", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_qkv": "self_attn.qkv_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "inp_gate": "per_layer_input_gate", "proj": "per_layer_projection",
    "post_norm.weight": "post_per_layer_input_norm.weight", "layer_output_scale.weight": "layer_scalar",
}
OWN = {
    "hunyuan-dense": {"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"},
    "lfm2": {"attn_norm.weight": "operator_norm.weight", "ffn_norm.weight": "ffn_norm.weight", "attn_output": "self_attn.out_proj",
             "attn_q_norm": "self_attn.q_layernorm", "attn_k_norm": "self_attn.k_layernorm", "ffn_gate": "feed_forward.w1",
             "ffn_down": "feed_forward.w2", "ffn_up": "feed_forward.w3", "shortconv.conv": "conv.conv",
             "shortconv.in_proj": "conv.in_proj", "shortconv.out_proj": "conv.out_proj"},
    "phi3": {"ffn_up": "mlp.gate_up_proj"},
    "gemma4": {"ffn_gate_up_exps.weight": "experts.gate_up_proj", "ffn_down_exps.weight": "experts.down_proj",
               "ffn_gate_inp.weight": "router.proj.weight", "ffn_gate_inp.scale": "router.scale",
               "ffn_down_exps.scale": "router.per_expert_scale", "pre_ffw_norm_2.weight": "pre_feedforward_layernorm_2.weight",
               "post_ffw_norm_1.weight": "post_feedforward_layernorm_1.weight",
               "post_ffw_norm_2.weight": "post_feedforward_layernorm_2.weight"},
    "glm4": {"ffn_up": "mlp.gate_up_proj", "post_attention_norm.weight": "post_self_attn_layernorm.weight",
             "post_ffw_norm.weight": "post_mlp_layernorm.weight"},
}
OWN["lfm2moe"] = OWN["lfm2"] | {"ffn_gate_inp": "feed_forward.gate", "exp_probs_b.bias": "feed_forward.expert_bias"}
SINGLE = {"ffn_gate_exps": "w1", "ffn_down_exps": "w2", "ffn_up_exps": "w3"}  # lfm2_moe: a tensor for each expert


def number(f):
    """A float of a file as the shortest decimal that gives it."""
    return float(str(np.float32(f))) if isinstance(f, float) else f


class Model:
    def __init__(self, path):
        r = gguf.GGUFReader(str(path))
        self.keys = {k: f.contents() for k, f in r.fields.items()}
        self.arch = self.keys["general.architecture"]
        self.tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).reshape(
            [int(n) for n in t.shape[::-1]]) for t in r.tensors}

    def get(self, tail, default=None):
        return number(self.keys.get(f"{self.arch}.{tail}", default))

    def name(self, name):
        """None: no tensor of the library."""
        if name in NAMES:
            return NAMES[name]
        m = re.fullmatch(r"blk\.(\d+)\.(.*)", name)
        if m is None:
            return None
        tail = m[2]
        own = LAYER | OWN.get(self.arch, {})
        own.setdefault("ffn_norm.weight", "pre_feedforward_layernorm.weight" if self.arch in SANDWICH
                       else "post_attention_layernorm.weight")
        own.setdefault("post_attention_norm.weight", "post_attention_layernorm.weight")
        own.setdefault("post_ffw_norm.weight", "post_feedforward_layernorm.weight")
        stem, _, kind = tail.rpartition(".")
        return f"model.layers.{m[1]}." + (own[tail] if tail in own else f"{own[stem]}.{kind}")

    def value(self, name, a):
        tail = name.rpartition(".")[0].rpartition(".")[2]
        if tail in ("attn_q", "attn_k") and self.arch in PAIRED:
            heads = self.get("attention.head_count" if tail == "attn_q" else "attention.head_count_kv")
            a = a.reshape(heads, -1, 2, *a.shape[1:]).swapaxes(1, 2).reshape(a.shape)
        if name.endswith("shortconv.conv.weight"):
            a = a[:, None, :]
        if name.endswith("norm.weight") and self.arch in PLUS_ONE:
            a = a - np.float32(1)
        return a

    def weights(self):
        out = {}
        for k, v in self.tensors.items():
            stem = k.split(".")[2] if k.count(".") == 3 else ""
            if self.arch == "lfm2moe" and stem in SINGLE:
                layer = k.split(".")[1]
                out |= {f"model.layers.{layer}.feed_forward.experts.{i}.{SINGLE[stem]}.weight": w for i, w in enumerate(v)}
            else:
                out[self.name(k)] = self.value(k, v)
        out.pop(None, None)
        return out

    # --- config.json ---

    def rope(self):
        g = self.get
        out = {"rope_theta": g("rope.freq_base", 10000.0), "rope_type": "default"}
        if self.arch == "phi3":
            short, long = (self.tensors[f"rope_factors_{n}.weight"] for n in ("short", "long"))
            out |= {"rope_type": "longrope", "short_factor": [number(float(x)) for x in short],
                    "long_factor": [number(float(x)) for x in long]}
        if self.arch in ("phi3", "glm4"):
            out["partial_rotary_factor"] = g("rope.dimension_count") / self.head()
        return out

    def head(self):
        return self.get("attention.key_length", self.get("embedding_length") // self.get("attention.head_count"))

    def config(self):
        g, (kind, cls) = self.get, TYPES[self.arch]
        ff, kv = g("feed_forward_length"), g("attention.head_count_kv")
        c = {"architectures": [cls + "ForCausalLM"], "model_type": kind, "dtype": "float16", "num_hidden_layers": g("block_count"),
             "hidden_size": g("embedding_length"), "num_attention_heads": g("attention.head_count"), "num_key_value_heads": kv,
             "intermediate_size": ff, "max_position_embeddings": g("context_length"),
             "rms_norm_eps": g("attention.layer_norm_rms_epsilon"), "vocab_size": len(self.keys["tokenizer.ggml.tokens"]),
             "tie_word_embeddings": "output.weight" not in self.tensors,
             ("hidden_activation" if "gemma" in kind else "hidden_act"): "gelu_pytorch_tanh" if "gemma" in kind else "silu",
             "rope_parameters": self.rope()}
        if "attention.key_length" in " ".join(self.keys):
            c["head_dim"] = g("attention.key_length")
        return c | getattr(self, "more_" + self.arch.replace("-", "_"), dict)()

    def more_phi3(self):
        return {"original_max_position_embeddings": self.get("rope.scaling.original_context_length"),
                "sliding_window": self.get("attention.sliding_window")}

    def more_gemma2(self):
        g = self.get
        return {"query_pre_attn_scalar": self.head(), "sliding_window": g("attention.sliding_window"),
                "attn_logit_softcapping": g("attn_logit_softcapping"), "final_logit_softcapping": g("final_logit_softcapping")}

    def more_gemma3(self):
        g, r = self.get, self.rope()
        wide = g("embedding_length") // g("attention.head_count")  # 27B
        return {"query_pre_attn_scalar": wide if g("block_count") == 62 else self.head(),
                "sliding_window": g("attention.sliding_window"), "rope_parameters": {
                    "full_attention": r, "sliding_attention": r | {"rope_theta": 10000.0}}}

    def more_gemma4(self):
        g = self.get
        local = self.keys["gemma4.attention.sliding_window_pattern"]
        kinds = ["sliding_attention" if x else "full_attention" for x in local]
        freqs = self.tensors["rope_freqs.weight"]
        ff = np.broadcast_to(self.keys["gemma4.feed_forward_length"], len(kinds))
        kv = np.broadcast_to(self.keys["gemma4.attention.head_count_kv"], len(kinds))
        return {"num_key_value_heads": int(kv[local.index(True)]), "num_global_key_value_heads": int(kv[local.index(False)]),
                "layer_types": kinds, "head_dim": g("attention.key_length_swa"), "global_head_dim": g("attention.key_length"),
                "intermediate_size": int(ff[0]), "use_double_wide_mlp": bool(ff[-1] != ff[0]),
                "num_kv_shared_layers": g("attention.shared_kv_layers"), "sliding_window": g("attention.sliding_window"),
                "hidden_size_per_layer_input": g("embedding_length_per_layer_input"),
                "final_logit_softcapping": g("final_logit_softcapping"), "enable_moe_block": g("expert_count", 0) > 0,
                "num_experts": g("expert_count"), "top_k_experts": g("expert_used_count"),
                "moe_intermediate_size": g("expert_feed_forward_length"),
                "rope_parameters": {
                    "full_attention": {"rope_type": "proportional", "rope_theta": g("rope.freq_base"),
                                       "partial_rotary_factor": float((freqs == 1).sum() / len(freqs))},
                    "sliding_attention": {"rope_type": "default", "rope_theta": g("rope.freq_base_swa")}}}

    def more_granite(self):
        g = self.get
        return {"attention_multiplier": g("attention.scale"), "embedding_multiplier": g("embedding_scale"),
                "residual_multiplier": g("residual_scale"), "logits_scaling": g("logit_scale")}

    def more_lfm2(self):
        g, kv = self.get, self.get("attention.head_count_kv")
        return {"layer_types": ["full_attention" if n else "conv" for n in kv], "num_key_value_heads": max(kv),
                "conv_L_cache": g("shortconv.l_cache"), "conv_bias": False, "block_auto_adjust_ff_dim": False,
                "norm_eps": g("attention.layer_norm_rms_epsilon"), "rms_norm_eps": None}

    def more_lfm2moe(self):
        g = self.get
        more = self.more_lfm2()
        del more["block_auto_adjust_ff_dim"]
        return more | {"num_experts": g("expert_count"), "num_experts_per_tok": g("expert_used_count"),
                       "moe_intermediate_size": g("expert_feed_forward_length"), "norm_topk_prob": True,
                       "num_dense_layers": g("leading_dense_block_count"), "use_expert_bias": True, "routed_scaling_factor": 1.0}

    def tokenizer(self):
        tokens, types = self.keys["tokenizer.ggml.tokens"], self.keys["tokenizer.ggml.token_type"]
        return byte_level(tokens, types, self.keys.get("tokenizer.ggml.merges", []))


# --- files ---


def byte_level(tokens, types, merges):
    """tokenizer.json of a byte-level vocabulary that cuts as qwen2 does; its control tokens (type 3) are added ones."""
    words = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
             r"\s+(?!\S)|\s+")
    split = {"type": "Split", "pattern": {"Regex": words}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    added = [{"id": i, "content": s, "special": True, "normalized": False, "single_word": False, "lstrip": False,
              "rstrip": False} for i, (s, k) in enumerate(zip(tokens, types)) if k == 3]
    return {"version": "1.0", "added_tokens": added, "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]}, "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "ignore_merges": False, "byte_fallback": False,
                      "vocab": {s: i for i, (s, k) in enumerate(zip(tokens, types)) if k != 3}, "merges": merges}}


def pack(tensors):
    """safetensors bytes of {name: (dtype, array)}."""
    header, at, data = {}, 0, []
    for name, (kind, a) in tensors.items():
        raw = a.tobytes()
        header[name] = {"dtype": kind, "shape": list(a.shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        data.append(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data)


def halves(a):
    """F16 where that is exact, else F32."""
    h = a.astype(np.float16)
    return ("F16", h) if (h.astype(np.float32) == a).all() else ("F32", a.astype(np.float32))


def write(source, folder, shards=1, kind=halves, tokenizer=None, **config):
    """kind: array -> (dtype, array). Returns the model."""
    m = Model(source)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(m.config() | config))
    tokenizer = tokenizer if tokenizer is not None else m.tokenizer()
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    made = {k: kind(v) for k, v in m.weights().items()}
    names = sorted(made)
    if shards == 1:
        (folder / "model.safetensors").write_bytes(pack({k: made[k] for k in names}))
        return m
    index = {}
    for i in range(shards):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        (folder / file).write_bytes(pack({k: made[k] for k in names[i::shards]}))
        index |= {k: file for k in names[i::shards]}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return m
