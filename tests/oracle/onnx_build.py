"""Small random decoders as ONNX bundles, and ONNX Runtime's logits of them: run by the Python that has onnx and onnxruntime.

    onnx_build.py FORM FOLDER     makes FOLDER with model.onnx, its data, configurations, a tokenizer, and expected.npz

The forms are those that onnxruntime-genai's builder and the usual quantisers write, one family each with its own weights.
"""
import json
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

from onnx_forms import FORMS, NONE

MS = "com.microsoft"
LAYERS, D, HEADS, KV, HEAD, FF, VOCAB, CONTEXT = 2, 64, 4, 2, 16, 96, 320, 128
WINDOW, EPS = 24, 1e-5


class Bundle:
    def __init__(self, form, options):
        self.o, self.rng = options, np.random.default_rng(sum(form.encode()))
        self.nodes, self.inits = [], []
        self.dtype = np.float16 if options.get("half") else np.float32
        self.elem = T.FLOAT16 if options.get("half") else T.FLOAT
        self.layers = options.get("layers", LAYERS)
        self.wide = options.get("wide_norms", False)  # in fp32, the rest in halves

    # --- pieces ---

    def init(self, name, array):
        self.inits.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def typed(self, name, kind, dims, packed):
        t = T(name=name, data_type=kind, dims=dims, raw_data=packed.tobytes())
        self.inits.append(t)
        return name

    def random(self, *shape, scale=None):
        x = self.rng.standard_normal(shape) * (scale if scale is not None else shape[-1] ** -0.5)
        return x.astype(self.dtype)

    def weight(self, name, *shape, scale=None):
        """Of a product or a table, by name: here random."""
        return self.random(*shape, scale=scale)

    def gamma(self, name, n):
        return self.init(name, (1 + 0.3 * self.rng.standard_normal(n)).astype(np.float32 if self.wide else self.dtype))

    def cast(self, x, out, to):
        return self.op("Cast", [x], out, to=to) if self.wide else x

    def norm(self, name, x, n):
        """A norm of its own; computed in fp32 it leaves the type to who reads it."""
        return self.op("SimplifiedLayerNormalization", [self.cast(x, f"{name}.wide", T.FLOAT), self.gamma(f"{name}.w", n)],
                       f"{name}.normed", epsilon=EPS, axis=-1, stash_type=1)

    def op(self, kind, inputs, out, n_out=1, domain="", **attrs):
        outs = [out] if isinstance(out, str) else out
        self.nodes.append(h.make_node(kind, inputs, outs, name=f"/{outs[0]}", domain=domain, **attrs))
        return outs[0]

    def ints(self, name, *values):
        if not any(n.output[0] == name for n in self.nodes):
            self.op("Constant", [], name, value=numpy_helper.from_array(np.array(values, np.int64), ""))
        return name

    # --- products ---

    def nbits(self, name, w, bits, block=32):
        """B, scales and zero points of a (N, K) matrix."""
        n, k = w.shape
        blocks = -(-k // block)
        padded = np.zeros((n, blocks * block), np.float32)
        padded[:, :k] = w
        padded = padded.reshape(n, blocks, block)
        top = (1 << bits) - 1
        lo, hi = padded.min(-1), padded.max(-1)
        scales = ((hi - lo) / top).astype(np.float32)
        zeros = np.clip(np.round(-lo / scales), 0, top).astype(np.uint8)
        if not self.o.get("zeros"):
            scales = (np.abs(padded).max(-1) / (top // 2)).astype(np.float32)
            zeros = np.full_like(zeros, 1 << (bits - 1))
        q = np.clip(np.round(padded / scales[..., None]) + zeros[..., None], 0, top).astype(np.uint8)
        if bits == 4:
            q = q[..., 0::2] | q[..., 1::2] << 4
        ins = [self.init(f"{name}_Q{bits}", q), self.init(f"{name}_scales", scales)]
        if self.o.get("zeros") == "float":
            ins.append(self.init(f"{name}_zero_points", zeros.astype(np.float32)))
        elif self.o.get("zeros"):
            odd = np.pad(zeros, ((0, 0), (0, blocks % 2))) if bits == 4 else zeros
            ins.append(self.init(f"{name}_zero_points", odd[:, 0::2] | odd[:, 1::2] << 4 if bits == 4 else odd))
        return ins

    def linear(self, name, x, n, k, bias=False, w=None):
        w = self.weight(name, n, k) if w is None else w
        form, out = self.o.get("weights", "plain"), f"{name}.out"
        if form.startswith("nbits"):
            bits = int(form[5:])
            self.op("MatMulNBits", [x, *self.nbits(name, w, bits)], out, domain=MS, K=k, N=n, bits=bits, block_size=32,
                    accuracy_level=1)
        elif form == "qdq":
            scale = (np.abs(w).max(-1) / 127).astype(np.float32)
            q = np.clip(np.round(w / scale[:, None]), -127, 127).astype(np.int8)
            self.op("DequantizeLinear", [self.init(f"{name}.q", q), self.init(f"{name}.s", scale)], f"{name}.dq", axis=0)
            self.op("Transpose", [f"{name}.dq"], f"{name}.t", perm=[1, 0])
            self.op("MatMul", [x, f"{name}.t"], out)
        elif form == "transposed":
            self.op("Transpose", [self.init(f"{name}.w", w)], f"{name}.t")
            self.op("MatMul", [x, f"{name}.t"], out)
        else:
            self.op("MatMul", [x, self.init(f"{name}.w", w.T)], out)
        if bias:
            b = self.init(f"{name}.bias", self.random(n, scale=0.2))
            out = self.op("Add", [out, b], f"{name}.biased")
        return out

    # --- the decoder ---

    def tables(self, name, base, factors=None):
        t = base ** (-np.arange(0, HEAD, 2, dtype=np.float32) / HEAD)
        t = (t / factors if factors is not None else t).astype(np.float32)
        angle = np.arange(CONTEXT, dtype=np.float32)[:, None] * t
        return (self.init(f"cos_{name}", np.cos(angle).astype(self.dtype)),
                self.init(f"sin_{name}", np.sin(angle).astype(self.dtype)))

    def lengths(self):
        self.ints("one", 1)
        self.op("ReduceSum", ["attention_mask", "one"], "sum", keepdims=0)
        self.op("Sub", ["sum", "one"], "less")
        self.op("Cast", ["less"], "seqlens_k", to=T.INT32)
        self.op("Shape", ["attention_mask"], "mask_shape")
        self.op("Constant", [], "index", value=numpy_helper.from_array(np.array(1, np.int64), ""))
        self.op("Gather", ["mask_shape", "index"], "total64", axis=0)
        self.op("Cast", ["total64"], "total", to=T.INT32)

    def head_norm(self, name, x, heads):
        self.op("Reshape", [x, self.ints("to_heads", 0, -1, HEAD)], f"{name}.heads")
        x = self.cast(self.norm(name, f"{name}.heads", HEAD), f"{name}.narrow", self.elem)
        return self.op("Reshape", [x, self.ints(f"to_{heads}", 0, -1, heads * HEAD)], f"{name}.back")

    def projections(self, p, x):
        o, q, kv = self.o, HEADS * HEAD, KV * HEAD
        if o.get("packed") or o.get("split"):
            x = self.linear(f"{p}.qkv", x, q + 2 * kv, D, bias=o.get("bias"))
            if o.get("packed"):
                return [x, "", ""]
            parts = [f"{p}.part{i}" for i in range(3)]
            self.op("Split", [x, self.ints("parts", q, kv, kv)], parts, axis=-1)
            return parts
        return [self.linear(f"{p}.{c}", x, n, D, bias=o.get("bias")) for c, n in zip("qkv", (q, kv, kv), strict=True)]

    def attention(self, p, i, x, tables, window):
        o, lanes = self.o, self.projections(p, x)
        rotary = not o.get("turn_first")
        if not rotary:
            for j in range(2):
                lanes[j] = self.op("RotaryEmbedding", [lanes[j], "position_ids", *tables], f"{p}.turned{j}", domain=MS,
                                   interleaved=0, num_heads=0, rotary_embedding_dim=0)
        if o.get("qk_norm"):
            lanes[0] = self.head_norm(f"{p}.q_norm", lanes[0], HEADS)
            lanes[1] = self.head_norm(f"{p}.k_norm", lanes[1], KV)
        extra = {"softcap": 20.0} if o.get("caps") else {}
        self.op("GroupQueryAttention",
                [*lanes, f"past.{i}.key", f"past.{i}.value", "seqlens_k", "total", *(tables if rotary else ("", ""))],
                [f"{p}.attn", f"present.{i}.key", f"present.{i}.value"], domain=MS, num_heads=HEADS, kv_num_heads=KV,
                scale=HEAD ** -0.5, local_window_size=window, do_rotary=int(rotary), rotary_interleaved=0, **extra)
        return self.linear(f"{p}.o", f"{p}.attn", D, HEADS * HEAD, bias=o.get("o_bias"))

    def mlp(self, p, x):
        if self.o.get("fused_mlp"):
            gate, up = f"{p}.gate", f"{p}.up"
            self.op("Split", [self.linear(f"{p}.gate_up", x, 2 * FF, D)], [gate, up], axis=-1, num_outputs=2)
        else:
            gate, up = self.linear(f"{p}.gate", x, FF, D), self.linear(f"{p}.up", x, FF, D)
        if self.o.get("gemma"):
            act = self.op("Gelu", [gate], f"{p}.act", approximate="tanh")
        else:
            self.op("Sigmoid", [gate], f"{p}.sigmoid")
            act = self.op("Mul", [gate, f"{p}.sigmoid"], f"{p}.act")
        return self.linear(f"{p}.down", self.op("Mul", [act, up], f"{p}.both"), D, FF)

    def post(self, name, x):
        if not self.o.get("gemma"):
            return x
        return self.norm(name, x, D)

    def add_norm(self, name, stream, x, last=False):
        out, total = f"{name}.out", f"{name}.sum"
        self.op("SkipSimplifiedLayerNormalization", [stream, x, self.gamma(f"{name}.w", D)],
                [out] if last else [out, "", "", total], domain=MS, epsilon=EPS)
        return self.cast(out, f"{name}.narrow", self.elem), total

    def embedding(self):
        w, form = self.weight("embed", VOCAB, D, scale=0.5), self.o.get("embed", "plain")
        if self.o.get("shared"):
            bits, block = self.o["shared"]
            padded, out = -(-D // block) * block, "embedded" if D % block == 0 else "padded"
            ins = self.nbits("lm_head", w, bits, block)
            self.op("Reshape", [ins[0], self.ints("table", VOCAB, padded * bits // 8)], "table_rows")
            self.op("GatherBlockQuantized", ["table_rows", "input_ids", *ins[1:]], out, domain=MS, bits=bits, block_size=block,
                    gather_axis=0, quantize_axis=1)
            if out == "padded":
                self.op("Slice", [out, self.ints("from", 0), self.ints("to", D), self.ints("last", -1)], "embedded")
            self.shared = ins
        elif form == "tied":
            self.tied = self.init("lm_head", w.T)
            self.op("Transpose", [self.tied], "table", perm=[1, 0])
            self.op("Gather", ["table", "input_ids"], "embedded")
        elif form == "plain":
            self.op("Gather", [self.init("embed", w), "input_ids"], "embedded")
        else:
            self.quantised_embedding(w, form)
        if self.o.get("gemma"):
            self.op("Mul", ["embedded", self.init("scale", np.array(D ** 0.5, self.dtype))], "scaled")
            return "scaled"
        return "embedded"

    def quantised_embedding(self, w, form, block=32):
        blocks = w.reshape(VOCAB, D // block, block)
        if form == "int4":
            scales, zeros = np.abs(blocks).max(-1) / 7, np.zeros(blocks.shape[:2])
            low, high = -7, 7
        else:
            scales, zeros = (blocks.max(-1) - blocks.min(-1)) / 15, np.round(-blocks.min(-1) / (np.ptp(blocks, -1) / 15))
            low, high = 0, 15
        scales = scales.astype(np.float32)
        q = np.clip(np.round(blocks / scales[..., None]) + zeros[..., None], low, high).astype(np.int8).astype(np.uint8) & 15
        flat = q.reshape(-1)
        packed = (flat[0::2] | flat[1::2] << 4).astype(np.uint8)
        z = np.clip(zeros, 0, 15).astype(np.uint8).reshape(-1)
        zp = (z[0::2] | z[1::2] << 4).astype(np.uint8)
        attrs = {"block_size": block, "gather_axis": 0, "quantize_axis": 1}
        if form == "uint8":
            ins = [self.init("embed", packed.reshape(VOCAB, D // 2)), "input_ids", self.init("embed_s", scales),
                   self.init("embed_z", zp.reshape(VOCAB, -1))]
            attrs["bits"] = 4
        else:
            kind = T.UINT4 if form == "uint4" else T.INT4
            ins = [self.typed("embed", kind, [VOCAB, D], packed), "input_ids", self.init("embed_s", scales)]
            ins += [self.typed("embed_z", kind, [VOCAB, D // block], zp)] if form == "uint4" else []
        self.op("GatherBlockQuantized", ins, "embedded", domain=MS, **attrs)

    def head(self, x):
        if self.o.get("shared"):
            bits, block = self.o["shared"]
            x = self.op("MatMulNBits", [x, *self.shared], "raw", domain=MS, K=D, N=VOCAB, bits=bits, block_size=block,
                        accuracy_level=1)
        elif self.o.get("weights") == "qdq":
            x = self.linear("lm_head", x, VOCAB, D)
        elif self.o.get("embed") == "tied":
            x = self.op("MatMul", [x, self.tied], "raw")
        else:
            x = self.op("MatMul", [x, self.init("lm_head", self.weight("lm_head", VOCAB, D).T)], "raw")
        if self.o.get("caps"):
            cap = self.init("cap", np.array(15, self.dtype))
            self.op("Div", [x, cap], "divided")
            self.op("Tanh", ["divided"], "squeezed")
            x = self.op("Mul", ["squeezed", cap], "capped")
        if self.o.get("half"):
            x = self.op("Cast", [x], "widened", to=T.FLOAT)
        self.nodes[-1].output[0] = "logits"

    def build(self):
        o = self.o
        factors = np.linspace(1, 8, HEAD // 2).astype(np.float32) if o.get("factors") else None
        base = o.get("base", 1e6 if o.get("gemma") and o.get("qk_norm") else 1e4)
        plain = self.tables("global", base, factors)
        local = self.tables("local", 1e4) if o.get("period") and o.get("qk_norm") else plain
        local = self.tables("local", o["local_base"]) if o.get("local_base") else local
        self.lengths()
        stream = self.cast(self.embedding(), "embedded.wide", T.FLOAT)
        x = self.op("SimplifiedLayerNormalization", [stream, self.gamma("norm0", D)], "norm0.out", epsilon=EPS, axis=-1,
                    stash_type=1)
        x = self.cast(x, "norm0.narrow", self.elem)
        for i in range(self.layers):
            p = f"layers.{i}"
            windowed = (i + 1) % o["period"] != 0 if o.get("period") else o.get("window", False)
            a = self.post(f"{p}.post", self.attention(p, i, x, local if o.get("period") and windowed else plain,
                                                      WINDOW if windowed else -1))
            x, stream = self.add_norm(f"{p}.norm2", stream, a)
            m = self.post(f"{p}.post_ffw", self.mlp(p, x))
            x, stream = self.add_norm(f"{p}.next", stream, m, last=i + 1 == self.layers)
        self.head(x)

    def states(self, i):
        """Of a layer: what comes in, what goes out, and its shape before the first token."""
        return [(f"past.{i}.{c}", f"present.{i}.{c}", [1, KV, 0, HEAD]) for c in ("key", "value")]

    def reference(self, folder):
        """What ONNX Runtime computes: a path, or bytes."""
        return str(folder / "model.onnx")

    def model(self):
        def port(name, kind, shape):
            return h.make_tensor_value_info(name, kind, shape)
        ins = [port("input_ids", T.INT64, ["batch", "sequence"]), port("attention_mask", T.INT64, ["batch", "total"])]
        ins += [port("position_ids", T.INT64, ["batch", "sequence"])] if self.o.get("turn_first") else []
        outs = [port("logits", T.FLOAT, ["batch", "sequence", VOCAB])]
        for past, present, shape in (s for i in range(self.layers) for s in self.states(i)):
            ins.append(port(past, self.elem, [n or "past" for n in shape]))
            outs.append(port(present, self.elem, [n or "total" for n in shape]))
        graph = h.make_graph(self.nodes, "decoder", ins, outs, self.inits)
        return h.make_model(graph, opset_imports=[h.make_opsetid("", 21), h.make_opsetid(MS, 1)], ir_version=10)


def config(form, b):
    o = b.o
    rope = {"rope_theta": 1e4, "rope_type": "llama3" if o.get("factors") else "default"}
    c = {"model_type": o.get("type", "llama"), "hidden_size": D, "intermediate_size": FF, "num_hidden_layers": b.layers,
         "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": HEAD, "vocab_size": VOCAB,
         "max_position_embeddings": CONTEXT, "rms_norm_eps": EPS, "eos_token_id": 258, "bos_token_id": 257}
    if form.startswith("gemma3"):
        rope = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}
    return {**c, "rope_parameters": rope}


def tokenizer():
    """Bytes, and nothing merged."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in visible]
    letters = {b: chr(b) for b in visible} | {b: chr(256 + i) for i, b in enumerate(others)}
    vocab = {letters[b]: b for b in range(256)}
    named = ["<pad>", "<bos>", "<eos>"] + [f"<extra{i}>" for i in range(VOCAB - 259)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    added = [{"id": 256 + i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, t in enumerate(named)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []}}


def expected(folder, b):
    n = 96
    plainly = onnxruntime.SessionOptions()  # or products of int8 weights become products of int8 activations
    plainly.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    s = onnxruntime.InferenceSession(b.reference(folder), plainly, providers=["CPUExecutionProvider"])
    tokens = np.random.default_rng(7).integers(0, 256, n)
    feed = {"input_ids": tokens[None], "attention_mask": np.ones((1, n), np.int64)}
    if b.o.get("turn_first"):
        feed["position_ids"] = np.arange(n)[None]
    for past, _, shape in (s for i in range(b.layers) for s in b.states(i)):
        feed[past] = np.zeros(shape, b.dtype)
    logits = s.run(["logits"], feed)[0][0].astype(np.float32)
    top = np.sort(logits, -1)
    np.savez(folder / "expected.npz", tokens=tokens.astype(np.int32), logits=logits, argmax=logits.argmax(-1),
             top2_gap=top[:, -1] - top[:, -2])


def save(model, folder):
    onnx.save_model(model, str(folder / "model.onnx"), save_as_external_data=True, location="model.onnx.data",
                    size_threshold=256)


def main(form, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    options = FORMS[form] if form in FORMS else NONE[form][0]
    if options.get("moe"):
        from onnx_mixture import Mixture  # which is made of this file
        b = Mixture(form, options)
    else:
        b = Bundle(form, options)
    b.build()
    model = b.model()
    save(model, folder)
    (folder / "config.json").write_text(json.dumps(config(form, b), indent=1))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<bos>", "eos_token": "<eos>",
                                                              "add_bos_token": False}))
    expected(folder, b)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
