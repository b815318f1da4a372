"""Tiny encoders that give embeddings, of seeded random weights: as GGUF files in llama.cpp's names, and their forward pass in
float64, written after the papers and the forward passes of transformers."""
import json
import math
import pathlib
import struct

import gguf
import numpy as np

WORDS = "the daemon runs a model on neural engine and keeps what it computed texts vectors near far red blue".split()
LETTERS = [*"abcdefghijklmnopqrstuvwxyz0123456789.,;:!?-()'"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# As llama.cpp's converter writes them: what begins a word has a mark, what goes on has none.
VOCAB = SPECIAL + ["\u2581" + x for x in LETTERS + [w for w in WORDS if len(w) > 1]] + LETTERS + ["s", "ing", "ed"][1:]
POOLING = {"none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}

erf = np.vectorize(math.erf, otypes=[float])


class Tiny:
    """arch: bert or nomic-bert. Every number is exact in fp16."""

    def __init__(self, arch="bert", seed=0, layers=3, d=64, heads=4, ff=160, context=300, eps=1e-12, base=1000.0):
        self.arch, self.layers, self.d, self.heads, self.ff = arch, layers, d, heads, ff
        self.context, self.eps, self.base, self.vocab = context, eps, base, len(VOCAB)
        self.gated = arch == "nomic-bert"
        rng = np.random.default_rng(seed)

        def draw(*shape, by=1.0):
            return (rng.standard_normal(shape) * by).astype(np.float16).astype(np.float32)

        def norm(name, w):
            w[f"{name}.weight"] = (1 + draw(d, by=0.2)).astype(np.float16).astype(np.float32)
            w[f"{name}.bias"] = draw(d, by=0.2)
        self.w = w = {"token_embd.weight": draw(self.vocab, d), "token_types.weight": draw(2, d, by=0.5)}
        norm("token_embd_norm", w)
        if not self.gated:
            w["position_embd.weight"] = draw(context, d, by=0.5)
        for i in range(layers):
            p = f"blk.{i}."
            if self.gated:
                w[p + "attn_qkv.weight"] = draw(3 * d, d, by=1.5 * d**-0.5)
            for x in () if self.gated else "qkv":
                w[f"{p}attn_{x}.weight"], w[f"{p}attn_{x}.bias"] = draw(d, d, by=1.5 * d**-0.5), draw(d, by=0.3)
            w[p + "attn_output.weight"] = draw(d, d, by=2 * d**-0.5)
            w[p + "ffn_up.weight"], w[p + "ffn_down.weight"] = draw(ff, d, by=d**-0.5), draw(d, ff, by=2 * ff**-0.5)
            if self.gated:
                w[p + "ffn_gate.weight"] = draw(ff, d, by=d**-0.5)
            else:
                w[p + "attn_output.bias"], w[p + "ffn_up.bias"], w[p + "ffn_down.bias"] = draw(d, by=0.3), draw(ff, by=0.3), draw(d, by=0.3)
            norm(p + "attn_output_norm", w)
            norm(p + "layer_output_norm", w)

    # --- the pass ---

    def normed(self, x, name, mistake=""):
        x = x - (0 if mistake == "rms" else x.mean(-1, keepdims=True))
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + self.eps)
        return x * self.w[f"{name}.weight"] + (0 if mistake == "norm bias" else self.w[f"{name}.bias"])

    def times(self, x, name):
        return x @ self.w[f"{name}.weight"].astype(float).T + self.w.get(f"{name}.bias", 0)

    def turned(self, x):
        half = x.shape[-1] // 2
        angle = np.arange(len(x))[:, None, None] * self.base ** (-np.arange(half) / half)
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)

    def attention(self, x, p, mistake):
        n = len(x)
        if self.gated:
            q, k, v = np.split(self.times(x, p + "attn_qkv"), 3, -1)
        else:
            q, k, v = (self.times(x, f"{p}attn_{y}") for y in "qkv")
        q, k, v = (y.reshape(n, self.heads, -1) for y in (q, k, v))
        if self.gated and mistake != "no rotation":
            q, k = self.turned(q), self.turned(k)
        s = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(self.d // self.heads)
        if mistake == "causal":
            s = np.where(np.tri(n, dtype=bool), s, -np.inf)
        s = np.exp(s - s.max(-1, keepdims=True))
        s /= s.sum(-1, keepdims=True)
        return self.times(np.einsum("hij,jhd->ihd", s, v).reshape(n, -1), p + "attn_output")

    def feed(self, x, p, mistake):
        if self.gated:
            g = self.times(x, p + "ffn_gate")
            return self.times(g / (1 + np.exp(-g)) * self.times(x, p + "ffn_up"), p + "ffn_down")
        u = self.times(x, p + "ffn_up")
        tanh = 0.5 * u * (1 + np.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))
        return self.times(tanh if mistake == "tanh" else 0.5 * u * (1 + erf(u / math.sqrt(2))), p + "ffn_down")

    def hidden(self, tokens, mistake=""):
        """(tokens, d): what the last layer gives."""
        x = self.w["token_embd.weight"][tokens].astype(float)
        if mistake != "no types":
            x = x + self.w["token_types.weight"][1 if mistake == "type 1" else 0]
        if not self.gated and mistake != "no positions":
            x = x + self.w["position_embd.weight"][np.arange(len(tokens)) + (mistake == "positions from 1")]
        x = x if mistake == "no first norm" else self.normed(x, "token_embd_norm", mistake)
        for i in range(self.layers):
            p = f"blk.{i}."
            x = self.normed(x + self.attention(x, p, mistake), p + "attn_output_norm", mistake)
            x = self.normed(x + self.feed(x, p, mistake), p + "layer_output_norm", mistake)
        return x

    def vector(self, tokens, how="mean"):
        h = self.hidden(tokens)
        return {"mean": h.mean(0), "cls": h[0], "last": h[-1]}[how]

    # --- the files ---

    def write(self, path, pooling="mean", more=None, tensors=None, dtype=np.float16):
        """more: keys behind "ARCH.", added or replaced; tensors: changes the dict of arrays."""
        g = gguf.GGUFWriter(str(path), self.arch)
        keys = {"block_count": self.layers, "context_length": self.context, "embedding_length": self.d, "feed_forward_length": self.ff,
                "attention.head_count": self.heads, "attention.layer_norm_epsilon": self.eps, "attention.causal": False}
        if pooling is not None:
            keys["pooling_type"] = POOLING[pooling]
        if self.gated:
            keys["rope.freq_base"] = self.base
        for k, v in {**keys, **(more or {})}.items():
            put = {bool: g.add_bool, int: g.add_uint32, float: g.add_float32}[type(v)]
            put(f"{self.arch}.{k}", v)
        g.add_tokenizer_model("bert")
        g.add_token_list(VOCAB)
        g.add_token_types([gguf.TokenType.CONTROL if x in SPECIAL else gguf.TokenType.NORMAL for x in VOCAB])
        g.add_token_type_count(2)
        for name, of in (("bos", "[CLS]"), ("sep", "[SEP]"), ("unk", "[UNK]"), ("pad", "[PAD]"), ("mask", "[MASK]")):
            getattr(g, f"add_{name}_token_id")(VOCAB.index(of))
        w = dict(self.w)
        if tensors is not None:
            tensors(w)
        for name, a in w.items():
            g.add_tensor(name, a.astype(dtype) if a.ndim > 1 else a)
        g.write_header_to_file()
        g.write_kv_data_to_file()
        g.write_tensors_to_file()
        g.close()
        return path

    def folder(self, place, form="", prefix="", pooling="mean"):
        """The same as a folder of sentence-transformers. form of nomic-bert: "first", as its first release has it, or the library's;
        of bert: "old", with LayerNorm.gamma. prefix: in front of names, as a model with a head has it."""
        place = pathlib.Path(place)
        (place / "1_Pooling").mkdir(parents=True)
        (place / "config.json").write_text(json.dumps(self.config(form)))
        words = [x if x in SPECIAL else x[1:] if x.startswith("\u2581") else "##" + x for x in VOCAB]
        (place / "vocab.txt").write_text("\n".join(words) + "\n")
        module = "sentence_transformers.models."
        (place / "modules.json").write_text(json.dumps([
            {"idx": 0, "name": "0", "path": "", "type": module + "Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": module + "Pooling"}]))
        (place / "1_Pooling" / "config.json").write_text(json.dumps({
            "word_embedding_dimension": self.d, "pooling_mode_cls_token": pooling == "cls", "pooling_mode_mean_tokens": pooling == "mean"}))
        head, data = {}, b""
        for name, a in self.named(form, prefix).items():
            raw = np.ascontiguousarray(a, np.float16 if a.ndim > 1 else np.float32).tobytes()
            head[name] = {"dtype": "F16" if a.ndim > 1 else "F32", "shape": list(a.shape), "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
        text = json.dumps(head).encode()
        (place / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
        return place

    def config(self, form):
        if form == "first":
            return {"architectures": ["NomicBertModel"], "model_type": "nomic_bert", "n_embd": self.d, "n_layer": self.layers,
                    "n_head": self.heads, "n_inner": self.ff, "n_positions": 8192, "max_trained_positions": self.context,
                    "layer_norm_epsilon": self.eps, "rotary_emb_base": self.base, "rotary_emb_fraction": 1.0, "causal": False,
                    "rotary_emb_interleaved": False, "rotary_scaling_factor": None, "prenorm": False, "qkv_proj_bias": False,
                    "activation_function": "swiglu", "vocab_size": self.vocab, "type_vocab_size": 2}
        more = {"rope_parameters": {"rope_theta": self.base, "rope_type": "default"}} if self.gated else {"position_embedding_type": "absolute"}
        return {"architectures": ["NomicBertModel" if self.gated else "BertModel"], "model_type": "nomic_bert" if self.gated else "bert",
                "hidden_size": self.d, "num_hidden_layers": self.layers, "num_attention_heads": self.heads, "intermediate_size": self.ff,
                "max_position_embeddings": self.context, "layer_norm_eps": self.eps, "hidden_act": "silu" if self.gated else "gelu",
                "vocab_size": self.vocab, "type_vocab_size": 2, **more}

    def named(self, form, prefix):
        """Tensors under the library's names."""
        names = {"": BERT, "old": BERT, "first": FIRST}[form] if not (self.gated and form == "") else NOMIC
        layers = {"first": "encoder.layers"}.get(form, "layers" if self.gated else "encoder.layer")
        norm = {"weight": "gamma", "bias": "beta"} if form == "old" else {}
        out = {}
        for name, a in self.w.items():
            *layer, what, kind = name.split(".")
            split = what == "attn_qkv" and form != "first"
            for x, part in zip(["attn_q", "attn_k", "attn_v"], np.split(a, 3)) if split else [(what, a)]:
                at = [layers, layer[1], names[x]] if layer else [names[x]]
                out[prefix + ".".join([*at, norm.get(kind, kind) if "norm" in x else kind])] = part
        return out


EMBEDS = {"token_embd": "embeddings.word_embeddings", "position_embd": "embeddings.position_embeddings",
          "token_types": "embeddings.token_type_embeddings", "token_embd_norm": "embeddings.LayerNorm"}
BERT = EMBEDS | {"attn_q": "attention.self.query", "attn_k": "attention.self.key", "attn_v": "attention.self.value",
                 "attn_output": "attention.output.dense", "attn_output_norm": "attention.output.LayerNorm",
                 "ffn_up": "intermediate.dense", "ffn_down": "output.dense", "layer_output_norm": "output.LayerNorm"}
NOMIC = EMBEDS | {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
                  "attn_output": "self_attn.o_proj", "attn_output_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
                  "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "layer_output_norm": "post_mlp_layernorm"}
FIRST = EMBEDS | {"token_embd_norm": "emb_ln", "attn_qkv": "attn.Wqkv", "attn_output": "attn.out_proj", "attn_output_norm": "norm1",
                  "ffn_up": "mlp.fc11", "ffn_gate": "mlp.fc12", "ffn_down": "mlp.fc2", "layer_output_norm": "norm2"}
