"""The weights of an onnxruntime-genai bundle as floats, by the names that its builder gives: run by the Python that has onnx.

    onnx_rows.py FOLDER OUT.npz     names are those that aned converts them under

Nothing here looks at the graph's structure, which is what aned goes by.
"""
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import numpy_helper

LAYER = {
    "input_layernorm.weight": "attn_norm.weight", "operator_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight", "ffn_layernorm.weight": "ffn_norm.weight",
    "attn.q_norm.layernorm.weight": "attn_q_norm.weight", "attn.k_norm.layernorm.weight": "attn_k_norm.weight",
    "attn.qkv_proj": "attn_qkv.weight", "attn.o_proj": "attn_output.weight", "mlp.gate_proj": "ffn_gate.weight",
    "mlp.up_proj": "ffn_up.weight", "mlp.down_proj": "ffn_down.weight", "conv.conv.weight": "shortconv.conv.weight",
    "conv.in_proj": "shortconv.in_proj.weight", "conv.out_proj": "shortconv.out_proj.weight",
}


def nibbles(raw):
    return np.stack([raw & 15, raw >> 4], -1).reshape(*raw.shape[:-1], -1)


def blocks(found, name, k):
    """MatMulNBits of 4 bits in blocks of 32."""
    q, s = nibbles(found[f"{name}.MatMul.weight_Q4"]).astype(np.int32), found[f"{name}.MatMul.weight_scales"]
    z = np.full(s.shape, 8, np.int32)
    if f"{name}.MatMul.weight_zero_points" in found:
        z = nibbles(found[f"{name}.MatMul.weight_zero_points"])[:, : s.shape[1]].astype(np.int32)
    w = (q - z[..., None]).astype(np.float32) * s[..., None]
    return w.reshape(len(w), -1)[:, :k]


def main(folder, out):
    model = onnx.load(str(pathlib.Path(folder) / "model.onnx"))
    found = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer if t.data_type not in (T.INT4, T.UINT4)}
    width = {n.input[1].split(".MatMul.weight")[0]: next(a.i for a in n.attribute if a.name == "K")
             for n in model.graph.node if n.op_type == "MatMulNBits"}
    rows = {}
    for name in [*found, *width]:
        if not name.startswith("model.layers.") or ".MatMul.weight" in name:
            continue
        _, _, layer, tail = name.split(".", 3)
        if tail == "final_norm_layernorm.weight":
            rows["output_norm.weight"] = found[name]
        else:
            rows[f"blk.{layer}.{LAYER[tail]}"] = blocks(found, name, width[name]) if name in width else np.squeeze(found[name])
    rows["output.weight"] = blocks(found, "lm_head", width["lm_head"])
    embedding(model, found, rows)
    np.savez(out, **rows)


def embedding(model, found, rows):
    """A matrix, the output matrix shared, or INT4 in blocks of 32 with two numbers a byte."""
    if "model.embed_tokens.weight" in found:
        rows["token_embd.weight"] = found["model.embed_tokens.weight"]
        return
    for t in model.graph.initializer:
        if t.name == "model.embed_tokens.weight_Q4":
            assert t.data_type == T.INT4
            q = nibbles(np.frombuffer(t.raw_data, np.uint8)).astype(np.int32)
            q = ((q ^ 8) - 8).reshape(t.dims[0], -1, 32).astype(np.float32)
            rows["token_embd.weight"] = (q * found["model.embed_tokens.weight_scales"][..., None]).reshape(*t.dims)
            return
    rows["token_embd.weight"] = rows.pop("output.weight")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
