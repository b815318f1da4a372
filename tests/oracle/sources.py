"""Where decoder.py's weights come from: a GGUF, a folder of safetensors, or the packages that were made of it."""
import json
import pathlib
import struct

import gguf
import numpy as np

from decoder import PAIRS
from oracle_tools import coreml_python, run


class Source:
    """A GGUF. Each tensor is dequantised (fp32) when first used; `keep` holds it. Fused tensors are cut when a part of
    them is asked for, which takes the layers' sizes."""

    def __init__(self, path, layers=None, keep=True):
        reader = gguf.GGUFReader(str(path))
        self.fields = {f.name: f for f in reader.fields.values()}
        self.tensors = {t.name: t for t in reader.tensors}
        self.arch = self.key("general.architecture")
        self.layers = layers
        self.kept = {} if keep else None

    def key(self, name, default=None):
        if name not in self.fields:
            if default is None:
                raise KeyError(name)
            return default
        return self.fields[name].contents()

    def whole(self, name):
        t = self.tensors[name]
        w = gguf.quants.dequantize(t.data, t.tensor_type)
        return np.ascontiguousarray(w.reshape([int(d) for d in t.shape[::-1]]), dtype=np.float32)

    def read(self, name):
        _, _, tail = name.partition("blk.")
        index, _, part = tail.partition(".")
        stem, _, suffix = part.partition(".")
        qkv = ("attn_q", "attn_k", "attn_v")
        if f"blk.{index}.attn_qkv.{suffix}" in self.tensors and stem in qkv:
            layer = self.layers[int(index)]
            q, kv = layer["n_heads"] * layer["d_head"], layer["n_kv"] * layer["d_head"]
            return np.split(self.whole(f"blk.{index}.attn_qkv.{suffix}"), [q, q + kv])[qkv.index(stem)]
        up = f"blk.{index}.ffn_up.{suffix}"
        if stem in ("ffn_gate", "ffn_up") and up in self.tensors and f"blk.{index}.ffn_gate.{suffix}" not in self.tensors:
            return np.split(self.whole(up), 2)[stem == "ffn_up"]
        if name == "output_norm.weight" and name not in self.tensors:
            name = "token_embd_norm.weight"  # lfm2
        both = f"blk.{index}.ffn_gate_up_exps.{suffix}"
        if stem in ("ffn_gate_exps", "ffn_up_exps") and both in self.tensors:  # [gate; up] of each expert
            return np.split(self.whole(both), 2, axis=1)[stem == "ffn_up_exps"]
        return self.whole(name) if name in self.tensors else None

    def get(self, name):
        if self.kept is not None and name in self.kept:
            return self.kept[name]
        w = self.read(name)
        if self.kept is not None:
            self.kept[name] = w
        return w


def read_safetensors(path):
    """{name: fp32 array} of a file of F16 and F32."""
    raw = pathlib.Path(path).read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    kinds = {"F16": np.float16, "F32": np.float32}
    out = {}
    for name, t in json.loads(raw[8 : 8 + n]).items():
        if name != "__metadata__":
            begin, end = (8 + n + x for x in t["data_offsets"])
            out[name] = np.frombuffer(raw[begin:end], kinds[t["dtype"]]).reshape(t["shape"]).astype(np.float32)
    return out


class ZayaFolder:
    """A folder of ZAYA, its tensors under the names that decoder.py asks for."""

    GLOBALS = {"output_norm.weight": "norm.weight", "output.weight": "embed_tokens.weight"}
    LAYER = {
        "attn_norm.weight": "input_layernorm.weight", "ffn_norm.weight": "post_attention_layernorm.weight",
        "attn_q.weight": "self_attn.qkv_proj.q_proj.weight", "attn_k.weight": "self_attn.qkv_proj.k_proj.weight",
        "attn_v.weight": "self_attn.qkv_proj.v_proj_current.weight",
        "attn_v_before.weight": "self_attn.qkv_proj.v_proj_delayed.weight",
        "attn_output.weight": "self_attn.o_proj.weight", "cca_k_scale.weight": "self_attn.qk_norm.temp",
        "shortconv.conv.weight": "self_attn.qkv_proj.conv_qk_depthwise.weight",
        "cca_mix.weight": "self_attn.qkv_proj.conv_qk_grouped.weight",
        "ffn_gate_inp_down.weight": "mlp.gate.down_proj.weight", "ffn_gate_inp_1.weight": "mlp.gate.router_mlp.fc1.weight",
        "ffn_gate_inp_2.weight": "mlp.gate.router_mlp.fc2.weight", "ffn_gate_inp.weight": "mlp.gate.router_mlp.out_proj.weight",
        "exp_probs_b.bias": "mlp.gate.balancing_biases", "ffn_down_exps.weight": "mlp.experts.down_proj",
    }
    SCALES = ["hidden_states_bias", "hidden_states_scale", "residual_bias", "residual_scale"]
    ROWS = {  # rows of one array
        "cca_bias.weight": [f"self_attn.qkv_proj.conv_qk_{x}.bias" for x in ("depthwise", "grouped")],
        "join_attn.weight": ["post_attention_residual_scale." + x for x in SCALES],
        "join_ffn.weight": ["post_mlp_residual_scale." + x for x in SCALES],
        "ffn_gate_inp_vectors.weight": ["mlp.gate." + x for x in (
            "down_proj.bias", "router_states_scale", "router_mlp.norm.weight", "router_mlp.fc1.bias", "router_mlp.fc2.bias")],
    }

    def __init__(self, path, layers=None, keep=True):
        self.raw = {k.removeprefix("model."): v for k, v in read_safetensors(pathlib.Path(path) / "model.safetensors").items()}
        n = json.loads((pathlib.Path(path) / "config.json").read_text())["num_hidden_layers"]
        each = [*self.LAYER, *self.ROWS, "ffn_gate_exps.weight", "ffn_up_exps.weight"]
        self.tensors = ["token_embd.weight", *self.GLOBALS, *(f"blk.{i}.{x}" for i in range(n) for x in each)]

    def get(self, name):
        raw = self.raw
        if name == "token_embd.weight":
            return (raw["embed_tokens.weight"] + raw["input_hidden_states_bias"]) * raw["input_hidden_states_scale"]
        if name in self.GLOBALS:
            return raw[self.GLOBALS[name]]
        _, index, tail = name.split(".", 2)
        p = f"layers.{index}."
        if tail in self.ROWS:
            return np.stack([raw.get(p + x, np.zeros_like(raw[p + self.ROWS[tail][0]])) for x in self.ROWS[tail]])
        if tail in ("ffn_gate_exps.weight", "ffn_up_exps.weight"):  # [gate; up] of each expert
            return np.split(raw[p + "mlp.experts.gate_up_proj"], 2, axis=1)[tail == "ffn_up_exps.weight"]
        if tail not in self.LAYER:
            return None
        w = raw[p + self.LAYER[tail]]
        return w.reshape(w.shape[0], -1) if tail in ("shortconv.conv.weight", "cca_mix.weight") else w


def open_source(path, layers=None):
    return ZayaFolder(path, layers) if pathlib.Path(path).is_dir() else Source(path, layers)


READ_CONSTS = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from mil_numpy import Runner
out = {}
for package in sys.argv[3:]:  # in one process: coremltools takes seconds to import
    r = Runner(package)
    for op in r.function.operations:
        name = op.outputs[0].name
        if name.endswith("_weight") and (op.op_type == "const" or op.op_type.startswith("constexpr")):
            w = np.asarray(r.value({}, op.outputs[0]))
            if w.ndim == 4 and min(w.shape[:2]) > 1 and w.shape[2:] == (1, 1):
                out[f"{package}:{name}"] = w[:, :, 0, 0]
np.savez(sys.argv[2], **out)
"""


def read_matrices(packages, folder):
    """{package: {name: fp32}}: the matrices of each package, dequantised by coremltools."""
    script = pathlib.Path(folder) / "matrices.py"
    script.write_text(READ_CONSTS)
    run(coreml_python(), script, pathlib.Path(__file__).parent, script.with_suffix(".npz"), *packages)
    consts, out = np.load(script.with_suffix(".npz")), {}
    for key in consts.files:
        package, name = key.rsplit(":", 1)
        out.setdefault(package, {})[name] = consts[key].astype(np.float32)
    return out


# Names of weights in the programs, after "layers_N_", and in a GGUF.
MATRICES = {
    "q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down",
    "conv_in": "shortconv.in_proj", "conv_out": "shortconv.out_proj", "ple_gate": "inp_gate", "ple_out": "proj",
    "router": "ffn_gate_inp", "router_down": "ffn_gate_inp_down", "router_1": "ffn_gate_inp_1", "router_2": "ffn_gate_inp_2",
    "value_new": "attn_v_before",
}
# Kept as they are, like vectors.
TABLES = ("shortconv.conv.weight", *ZayaFolder.ROWS, "cca_mix.weight")
EXPERTS = {"expert_gate": "ffn_gate_exps", "expert_up": "ffn_up_exps", "expert_down": "ffn_down_exps"}


def unturn(w, d_head, dim):
    """Rows of each head from (i, i + dim / 2) back to pairs (2i, 2i + 1)."""
    order = np.arange(d_head)
    order[0:dim:2], order[1:dim:2] = np.arange(dim // 2), np.arange(dim // 2, dim)
    return w.reshape(-1, d_head, w.shape[1])[:, order].reshape(w.shape)


class Packages:
    """The matrices of a bundle as its packages hold them, dequantised by coremltools, and its embeddings; the vectors
    (norms, biases) are the source's."""

    def __init__(self, bundle, manifest, source, spec, matrices):
        """matrices: of read_matrices."""
        bundle, m = pathlib.Path(bundle), manifest
        self.source, self.found, self.groups = source, {}, {}
        for part in (*m["shards"], *m["heads"]):
            for name, w in matrices[str(bundle / part["path"])].items():
                self.place(part, name, w, m, spec)
        for name, parts in self.groups.items():
            rows = np.concatenate([parts[g] for g in range(len(parts))])
            n = spec["layers"][int(name.split(".")[1])]["n_experts"]
            self.found[name] = rows.reshape(n, len(rows) // n, -1)
        head = [self.found.pop(k) for k in sorted(k for k in self.found if isinstance(k, int))]
        self.found["output.weight"] = np.concatenate(head)
        self.found["token_embd.weight"] = self.rows(bundle / m["embed_file"], m["vocab"])
        if m["d_ple"]:
            self.found["per_layer_token_embd.weight"] = self.rows(bundle / m["ple_file"], m["vocab"])
            proj = [self.found.pop(f"ple_proj.{i}") for i in range(m["n_layers"])]
            self.found["per_layer_model_proj.weight"] = np.concatenate(proj)

    def rows(self, path, n):
        return np.fromfile(path, np.float16).reshape(n, -1).astype(np.float32)

    def place(self, part, name, w, m, spec):
        if "vocab_first" in part:
            assert name == "head_weight", name
            self.found[part["vocab_first"]] = w
            return
        _, index, what = name.removesuffix("_weight").split("_", 2)
        index = int(index) + part["first"]
        if what == "ple_proj":
            self.found[f"ple_proj.{index}"] = w
            return
        layer = spec["layers"][index]
        stem, _, group = what.rpartition("_")
        if stem in EXPERTS:  # groups of experts, in order
            self.groups.setdefault(f"blk.{index}.{EXPERTS[stem]}.weight", {})[int(group)] = w
            return
        if what in "qk" and layer["rotates"] and m["architecture"] in PAIRS:
            w = unturn(w, layer["d_head"], spec["rope_local" if layer["kind"] == "local" else "rope"]["dim"])
        self.found[f"blk.{index}.{MATRICES[what]}.weight"] = w

    def get(self, name):
        if name in self.found:
            return self.found[name]
        w = self.source.get(name)
        kept = name.split(".", 2)[-1] in TABLES
        assert w is None or w.ndim == 1 or kept, f"{name} is not in the packages"
        return w
