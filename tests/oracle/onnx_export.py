"""A folder of the transformers library as an ONNX bundle of halves: run by the Python that has onnx.

    onnx_export.py FOLDER OUT     OUT gets model.onnx and its data, and FOLDER's configuration and tokenizer
"""
import json
import pathlib
import shutil
import struct
import sys

import numpy as np

import onnx_build

PARTS = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
         "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}
WHOLE = {"embed": "model.embed_tokens.weight", "lm_head": "lm_head.weight", "norm0": "model.layers.0.input_layernorm.weight"}


def tensors(path):
    raw = path.read_bytes()
    (n,) = struct.unpack("<Q", raw[:8])
    found = {}
    for name, t in json.loads(raw[8 : 8 + n]).items():
        if name != "__metadata__":
            assert t["dtype"] == "F16", name
            a, b = t["data_offsets"]
            found[name] = np.frombuffer(raw[8 + n + a : 8 + n + b], np.float16).reshape(t["shape"])
    return found


class Export(onnx_build.Bundle):
    def __init__(self, found, options):
        super().__init__("export", options)
        self.found = found

    def named(self, name):
        if name in WHOLE:
            tied = name == "lm_head" and WHOLE[name] not in self.found
            return self.found[WHOLE["embed" if tied else name]]
        _, i, part = name.removesuffix(".w").split(".", 2)
        layer = f"model.layers.{i}"
        if part in PARTS:
            return self.found[f"{layer}.{PARTS[part]}.weight"]
        if part in ("q_norm", "k_norm"):
            return self.found[f"{layer}.self_attn.{part}.weight"]
        if part == "norm2":
            return self.found[f"{layer}.post_attention_layernorm.weight"]
        assert part == "next", name
        after = f"model.layers.{int(i) + 1}.input_layernorm.weight"
        return self.found[after if after in self.found else "model.norm.weight"]

    def weight(self, name, *shape, scale=None):
        w = self.named(name)
        assert w.shape == shape, name
        return w

    def gamma(self, name, n):
        return self.init(f"{name}.gamma", self.named(name))


def main(folder, out):
    folder, out = pathlib.Path(folder), pathlib.Path(out)
    c = json.loads((folder / "config.json").read_text())
    b = onnx_build
    b.D, b.FF, b.VOCAB, b.CONTEXT = c["hidden_size"], c["intermediate_size"], c["vocab_size"], c["max_position_embeddings"]
    b.HEADS, b.KV, b.HEAD, b.EPS = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], c["rms_norm_eps"]
    assert c["rope_parameters"]["rope_type"] == "default"
    x = Export(tensors(folder / "model.safetensors"),
               {"half": True, "layers": c["num_hidden_layers"], "base": c["rope_parameters"]["rope_theta"],
                "qk_norm": c["model_type"] == "qwen3"})
    x.build()
    out.mkdir(parents=True)
    b.save(x.model(), out)
    for p in folder.iterdir():
        if p.name in ("config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model"):
            shutil.copy(p, out / p.name)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
