"""Models in the form of the transformers library become the same bundles as their GGUFs, with the same tokens.

Two sources of folders: those of the shared data, which the library wrote; and GGUFs turned into folders by hf_export.py.
Tokens are held to the `tokenizers` and `sentencepiece` packages, which read the same files.
"""
import json
import pathlib
import shutil
import sys

import gguf
import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import hf_export  # noqa: E402
import mkgguf  # noqa: E402
from families import BY_NAME  # noqa: E402
from gguf_copy import copy  # noqa: E402
from oracle_tools import convert, manifest, run  # noqa: E402
from sources import ZayaFolder, read_safetensors  # noqa: E402
from test_tokenizers import PRES, TEXTS, Pieces, ask, pairs, reference, texts  # noqa: E402

SHARED = ["gemma2", "gemma4", "gemma4-e", "granite", "hunyuan-dense", "lfm2", "lfm2moe", "mistral", "olmo2", "phi3", "privacy-filter",
          "qwen3", "smollm3"]
OF_ITS_OWN = {"gemma2"}  # the shared folder's model.safetensors has other weights than its model.gguf
MORE = ["tiny-llama", "tiny-qwen2", "tiny-gemma", "deep-gemma"]  # of mkgguf.py
ASIDE = ("bundle.json", "tokenizer.gguf")  # names, digests and metadata differ


@pytest.fixture(scope="session")
def model(shared, tmp_path_factory):
    made = {}

    def get(name):
        """The GGUF of a family or a shape."""
        if name in BY_NAME:
            return BY_NAME[name].source(shared)
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name) / "model.gguf"
            mkgguf.write(made[name], mkgguf.SHAPES[name], "f16", 1)
        return made[name]
    return get


def files(bundle):
    return {str(p.relative_to(bundle)): p.read_bytes() for p in sorted(bundle.rglob("*")) if p.is_file() and p.name not in ASIDE}


def keys(aned, source):
    found = json.loads(run(aned, "inspect", "--json", source))
    return {k["key"]: k.get("value", k.get("count")) for k in found["keys"]}, found


def same_bundle(aned, a, b, place, quant="fp16"):
    convert(aned, a, place / "a", quant)
    convert(aned, b, place / "b", quant)
    x, y = files(place / "a"), files(place / "b")
    assert x.keys() == y.keys()
    assert [k for k in x if x[k] != y[k]] == []
    one, other = manifest(place / "a"), manifest(place / "b")
    aside = {"name", "model", "source", "files", "golden", "fingerprint", "margin", "total_bytes", "peaks", "calibration"}
    assert {k for k in one.keys() | other.keys() if one.get(k) != other.get(k)} <= aside, "of the manifest"


# --- what the library wrote ---


@pytest.mark.parametrize("family", SHARED)
def test_numbers_of_a_folder(aned, shared, family):
    folder = shared / "data" / "families" / family / "a"
    (got, found), (want, _) = keys(aned, folder), keys(aned, folder / "model.gguf")
    assert found["kind"] == "safetensors"
    arch = want["general.architecture"]
    numbers = {k for k in want.keys() | got.keys() if k.startswith(arch + ".")}
    assert {k: got.get(k) for k in numbers} == {k: want.get(k) for k in numbers}
    # small tokenizers do not cut as those of their families, whose names the GGUFs have; they say nothing of BOS
    aside = {"tokenizer.ggml.pre", "tokenizer.ggml.scores"} | ({"tokenizer.ggml.add_bos_token"} if "gemma4" in family else set())
    tokens = {k for k in want if k.startswith("tokenizer.")} - aside
    assert {k: got.get(k) for k in tokens} == {k: want[k] for k in tokens}


@pytest.mark.parametrize("family", [f for f in SHARED if f not in OF_ITS_OWN])
def test_folder_and_gguf_are_one_bundle(aned, shared, tmp_path, family):
    folder = shared / "data" / "families" / family / "a"
    same_bundle(aned, folder, folder / "model.gguf", tmp_path)


# --- experts ---


def weights_of(path):
    """{name: (dtype, bytes as an array of its shape)} of F16 tensors."""
    raw = path.read_bytes()
    n = int.from_bytes(raw[:8], "little")
    out = {}
    for name, t in json.loads(raw[8:8 + n]).items():
        if name != "__metadata__":
            assert t["dtype"] == "F16"
            a, b = t["data_offsets"]
            out[name] = ("F16", np.frombuffer(raw[8 + n + a:8 + n + b], np.float16).reshape(t["shape"]))
    return out


def changed(shared, family, place, weights=lambda w: None, **config):
    """A folder like the shared one, with other weights and numbers; None: without the number."""
    shutil.copytree(shared / "data" / "families" / family / "a", place, ignore=shutil.ignore_patterns("*.npz", "*.gguf"))
    w = weights_of(place / "model.safetensors")
    weights(w)
    (place / "model.safetensors").write_bytes(hf_export.pack(w))
    c = json.loads((place / "config.json").read_text()) | config
    (place / "config.json").write_text(json.dumps({k: v for k, v in c.items() if v is not None}))
    return place


ONE = "model.layers.2.feed_forward.experts.3.w2.weight"
PAIR = "model.layers.1.mlp.experts.gate_up_proj"
ODD_EXPERTS = {
    "absent": ("lfm2moe", lambda w: w.pop(ONE), {}, ONE + " is missing"),
    "ninth": ("lfm2moe", lambda w: w.update({ONE.replace("s.3.", "s.8.", 1): w[ONE]}), {}, "experts.8.w2.weight has no place"),
    "fourth matrix": ("lfm2moe", lambda w: w.update({ONE.replace("w2", "w4"): w[ONE]}), {}, "experts.3.w4.weight has no place"),
    "of layer 4": ("lfm2moe", lambda w: w.update({ONE.replace("layers.2", "layers.4"): w[ONE]}), {}, "layers.4"),
    "turned": ("lfm2moe", lambda w: w.update({ONE: ("F16", w[ONE][1].T.copy())}), {}, "another expert's 64 x 24"),
    "flat": ("lfm2moe", lambda w: w.update({ONE: ("F16", w[ONE][1].reshape(-1))}), {}, ONE + " has 1 dimensions"),
    "sums": ("lfm2moe", lambda w: None, {"norm_topk_prob": False}, "norm_topk_prob"),
    "bias": ("lfm2moe", lambda w: None, {"use_expert_bias": False}, "use_expert_bias"),
    "scale": ("lfm2moe", lambda w: None, {"routed_scaling_factor": 2.5}, "routed_scaling_factor"),
    "none": ("lfm2moe", lambda w: None, {"num_experts": 0}, "num_experts"),
    "top": ("gemma4", lambda w: None, {"top_k_experts": None}, "top_k_experts"),
    "dense": ("gemma4", lambda w: None, {"enable_moe_block": False}, "ffn_"),
    "slope": ("privacy-filter", lambda w: None, {"swiglu_alpha": 1.5}, "swiglu_alpha 1.5"),
    "limit": ("privacy-filter", lambda w: None, {"swiglu_limit": 8}, "swiglu_limit 8"),
    "labels": ("privacy-filter", lambda w: None, {"id2label": {"0": "O", "2": "S-x"}}, "id2label has no '1'"),
    "no labels": ("privacy-filter", lambda w: None, {"id2label": None}, "id2label"),
    "odd": ("privacy-filter", lambda w: w.update({PAIR: ("F16", w[PAIR][1][..., :47].copy())}), {}, PAIR),
    "rank": ("privacy-filter", lambda w: w.update({PAIR: ("F16", w[PAIR][1][0])}), {}, PAIR + ": 2 dimensions"),
    "one expert less": ("privacy-filter", lambda w: w.update({PAIR: ("F16", w[PAIR][1][:7].copy())}), {}, "ffn_gate_exps"),
}


@pytest.mark.parametrize("what", ODD_EXPERTS)
def test_odd_experts_are_named(aned, shared, tmp_path, what):
    family, weights, config, said = ODD_EXPERTS[what]
    folder = changed(shared, family, tmp_path / "hf", weights, **config)
    got = run(aned, "convert", folder, "--out", tmp_path / "b", code=65)
    assert said in got, got


class Theirs:
    def __init__(self, path):
        tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers package is not installed")
        self.t = tokenizers.Tokenizer.from_file(str(path))

    def encode(self, text):
        return self.t.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.t.decode(ids, skip_special_tokens=False)


def check_tokens(aned, folder, theirs, n=60):
    for text in texts(n):
        got = [int(i) for i in ask(aned, "tokenize", folder, text.encode()).split()]
        want = theirs.encode(text)
        assert got == want, f"{text!r}\n  aned {got}\n  want {want}"


@pytest.mark.parametrize("family", [*SHARED, "zaya"])
def test_tokens_of_a_folder(aned, shared, family):
    folder = shared / "data" / "families" / family / "a"
    file = folder / "tokenizer.json"
    check_tokens(aned, folder, Theirs(file) if file.exists() else Pieces(folder / "tokenizer.model"))


def test_zaya_and_a_gguf_are_one_bundle(aned, shared, tmp_path):
    """No exporter writes this GGUF: it has the converter's own names, and what ZayaFolder makes of the folder's tensors."""
    folder = shared / "data" / "families" / "zaya" / "a"
    found = json.loads(run(aned, "inspect", "--json", folder))["keys"]
    kinds = {"u32": gguf.GGUFValueType.UINT32, "f32": gguf.GGUFValueType.FLOAT32}
    w = gguf.GGUFWriter(str(tmp_path / "m.gguf"), "zaya")
    for k in found:
        if k["key"].startswith("zaya."):
            w.add_key_value(k["key"], k["value"], kinds[k["kind"]])
    source = ZayaFolder(folder)
    for name in source.tensors:
        w.add_tensor(name, np.ascontiguousarray(source.get(name), np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    same_bundle(aned, folder, tmp_path / "m.gguf", tmp_path)


def first_zaya(folder, out):
    """The folder in the form of ZAYA's first release: half layers, other names, experts one by one, and its own config.json."""
    c = json.loads((folder / "config.json").read_text())
    rope = c.pop("rope_parameters")["hybrid"]
    last = c["num_hidden_layers"] - 1
    for key in ("layer_types", "hidden_act", "transformers_version", "tie_word_embeddings"):
        c.pop(key)
    c |= {"num_hidden_layers": 2 * (last + 1), "ffn_hidden_size": 2 * c.pop("moe_intermediate_size"), "norm_epsilon": c.pop("rms_norm_eps"),
          "zaya_mlp_expansion": c.pop("router_hidden_size"), "moe_router_topk": c.pop("num_experts_per_tok"),
          "rope_theta": rope["rope_theta"], "partial_rotary_factor": rope["partial_rotary_factor"], "rope_scaling": False,
          "num_query_groups": c["num_key_value_heads"], "kv_channels": c["head_dim"], "activation_func": "swiglu", "cca": True,
          "normalization": "RMSNorm", "gated_linear_unit": True, "add_bias_linear": False, "scale_residual_merge": True,
          "zaya_use_eda": True, "zaya_use_mod": True, "clamp_temp": False, "residual_in_fp32": True, "fused_add_norm": False}
    attention = {"input_layernorm": "input_norm", "self_attn.qkv_proj.q_proj": "self_attn.qkv.linear_q",
                 "self_attn.qkv_proj.k_proj": "self_attn.qkv.linear_k", "self_attn.qkv_proj.v_proj_current": "self_attn.qkv.val_proj1",
                 "self_attn.qkv_proj.v_proj_delayed": "self_attn.qkv.val_proj2", "self_attn.qk_norm.temp": "self_attn.qkv.temp",
                 "self_attn.qkv_proj.conv_qk_depthwise": "self_attn.qkv.conv_qk.0", "self_attn.o_proj": "self_attn.o_proj",
                 "self_attn.qkv_proj.conv_qk_grouped": "self_attn.qkv.conv_qk.1"}
    mixture = {"post_attention_layernorm": "input_norm", "post_attention_residual_scale": "res_scale",
               "mlp.gate.router_mlp.norm": "zaya_block.router.rmsnorm_eda", "mlp.gate.router_mlp.fc1": "zaya_block.router.router_mlp.0",
               "mlp.gate.router_mlp.fc2": "zaya_block.router.router_mlp.2",
               "mlp.gate.router_mlp.out_proj": "zaya_block.router.router_mlp.4", "mlp.gate": "zaya_block.router"}
    plain = {"model.norm.weight": "model.final_norm.weight", "model.embed_tokens.weight": "model.embed_tokens.weight",
             "model.input_hidden_states_bias": "model.layers.0.res_scale.hidden_states_bias",
             "model.input_hidden_states_scale": "model.layers.0.res_scale.hidden_states_scale"}
    made = {}
    for name, a in read_safetensors(folder / "model.safetensors").items():
        if name in plain:
            made[plain[name]] = a
            continue
        _, _, layer, tail = name.split(".", 3)
        layer = int(layer)
        for half, table in ((2 * layer, attention), (2 * layer + 1, mixture)):
            for old, new in table.items():
                if tail == old or tail.startswith(old + "."):
                    made.setdefault(f"model.layers.{half}.{new}{tail[len(old):]}", a)
                    break
        if tail.startswith("post_mlp_residual_scale."):
            place = "model." if layer == last else f"model.layers.{2 * layer + 2}."
            made[place + "res_scale." + tail.split(".")[1]] = a
        if tail.startswith("mlp.experts."):
            fc = "linear_fc1" if "gate_up" in tail else "linear_fc2"
            for x, m in enumerate(a):
                made[f"model.layers.{2 * layer + 1}.zaya_block.experts.local_experts.{x}.{fc}.weight"] = m
    shutil.copytree(folder, out, ignore=lambda _, names: [n for n in names if n.startswith(("config", "model."))])
    (out / "config.json").write_text(json.dumps(c))
    (out / "model.safetensors").write_bytes(hf_export.pack({n: ("F32", a) for n, a in made.items()}))


def test_zaya_of_the_first_release(aned, shared, tmp_path):
    """Another config.json, other names: the same bundle."""
    folder = shared / "data" / "families" / "zaya" / "a"
    first_zaya(folder, tmp_path / "first")
    same_bundle(aned, folder, tmp_path / "first", tmp_path)


# --- what a GGUF becomes ---


@pytest.mark.parametrize("name", [*(name for name, row in BY_NAME.items() if row.gguf), *MORE])
def test_export_is_the_same_bundle(aned, model, tmp_path, name):
    source = model(name)
    if name == "exaone4":  # its divisors are no form of config.json's
        pytest.skip("rope_freqs of our own")
    hf_export.write(source, tmp_path / "hf", shards=2 if name in ("qwen3", "tiny-gemma") else 1)
    same_bundle(aned, tmp_path / "hf", source, tmp_path)


@pytest.mark.parametrize("quant", ["int8", "lut4"])
def test_quantised(aned, model, tmp_path, quant):
    hf_export.write(model("tiny-llama"), tmp_path / "hf")
    same_bundle(aned, tmp_path / "hf", model("tiny-llama"), tmp_path, quant)


def bf16(a):
    bits = np.ascontiguousarray(a, np.float32).view(np.uint32)
    assert (bits & 0xFFFF == 0).all()
    return "BF16", (bits >> 16).astype(np.uint16)


def test_other_types(aned, model, tmp_path):
    """F32, BF16 and F8 of values that all of them hold are one bundle."""
    m = hf_export.Model(model("tiny-llama"))
    draw = np.random.default_rng(3)
    codes = {n: draw.integers(0, 256, a.shape).astype(np.uint8) for n, a in m.weights().items()}
    for c in codes.values():
        c[(c & 0x7F) > 0x30] = 0x28  # at most a quarter: nothing overflows
    exp, man = (np.arange(256) >> 3 & 15).astype(int), np.arange(256) & 7
    table = np.where(exp > 0, (1 + man / 8) * 2.0 ** (exp - 7), man * 2.0**-9) * np.where(np.arange(256) & 128, -1, 1)
    values = {n: table[c].astype(np.float32) for n, c in codes.items()}
    forms = {"F32": lambda n: ("F32", values[n]), "BF16": lambda n: bf16(values[n]), "F8": lambda n: ("F8_E4M3", codes[n])}
    made = {}
    for form, of in forms.items():
        hf_export.write(model("tiny-llama"), tmp_path / form)
        (tmp_path / form / "model.safetensors").write_bytes(hf_export.pack({n: of(n) for n in values}))
        convert(aned, tmp_path / form, tmp_path / f"{form}.bundle")
        made[form] = files(tmp_path / f"{form}.bundle")
    assert made["F32"] == made["BF16"] == made["F8"]


E4M3 = [(1 if b < 128 else -1) * ((1 + (b & 7) / 8) * 2.0 ** ((b >> 3 & 15) - 7) if b >> 3 & 15 else (b & 7) * 2.0**-9)
        for b in range(256)]


@pytest.mark.parametrize("block", [[32, 16], None])
def test_f8_with_scales(aned, model, tmp_path, block):
    """As quant_method fp8 has them, in blocks that do not divide the matrix, or one for all of it."""
    m = hf_export.Model(model("tiny-llama"))
    draw = np.random.default_rng(5)
    plain, scaled = {}, {}
    for name, a in m.weights().items():
        if "proj" not in name or a.ndim != 2:
            plain[name] = scaled[name] = ("F32", a.astype(np.float32))
            continue
        rows, cols = block or a.shape
        codes = draw.integers(0, 256, a.shape).astype(np.uint8)
        codes[(codes & 0x7F) > 0x38] = 0x30
        s = draw.uniform(0.01, 0.2, (-(-a.shape[0] // rows), -(-a.shape[1] // cols))).astype(np.float32)
        each = np.repeat(np.repeat(s, rows, 0), cols, 1)[: a.shape[0], : a.shape[1]]
        plain[name] = ("F32", np.array(E4M3, np.float32)[codes] * each)
        scaled[name] = ("F8_E4M3", codes)
        scaled[name + "_scale_inv"] = ("F32", s if block else s.reshape(()))
    config = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "modules_to_not_convert": ["lm_head"]}
    config |= {"weight_block_size": block} if block else {}
    for form, tensors, more in (("plain", plain, {}), ("scaled", scaled, {"quantization_config": config})):
        hf_export.write(model("tiny-llama"), tmp_path / form, **more)
        (tmp_path / form / "model.safetensors").write_bytes(hf_export.pack(tensors))
    same_bundle(aned, tmp_path / "plain", tmp_path / "scaled", tmp_path)
    name = next(n for n in scaled if n.endswith("_scale_inv"))
    for change, says in (({name: None}, "no scales"), ({name: ("F32", np.ones((3, 3), np.float32))}, "scales"),
                         ({name: ("I8", np.ones(scaled[name][1].shape, np.int8))}, "I8")):
        tensors = {k: v for k, v in (scaled | change).items() if v is not None}
        (tmp_path / "scaled" / "model.safetensors").write_bytes(hf_export.pack(tensors))
        said = run(aned, "inspect", tmp_path / "scaled", code=65)
        assert says in said and name.removesuffix("_scale_inv") in said, said


def test_one_file_by_name(aned, model, tmp_path):
    """A file beside its config.json; another one in the folder is left alone."""
    hf_export.write(model("tiny-llama"), tmp_path / "hf")
    (tmp_path / "hf" / "model.safetensors").rename(tmp_path / "hf" / "mine.safetensors")
    (tmp_path / "hf" / "other.safetensors").write_bytes(b"nothing")
    same_bundle(aned, tmp_path / "hf" / "mine.safetensors", model("tiny-llama"), tmp_path)
    assert "several" in run(aned, "inspect", tmp_path / "hf", code=65)


def test_the_text_of_a_model_that_sees(aned, model, tmp_path):
    """Numbers in text_config, tensors under another prefix, an image tower that is left alone."""
    m = hf_export.write(model("tiny-gemma"), tmp_path / "hf")
    c = m.config() | {"architectures": None}
    sees = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": c, "vision_config": {"x": 1},
            "image_token_index": 9, "mm_tokens_per_image": 256, "tie_word_embeddings": True}
    (tmp_path / "hf" / "config.json").write_text(json.dumps(sees))
    tower = {"vision_tower.x": ("I64", np.zeros(3, np.int64)), "multi_modal_projector.y": ("F32", np.zeros((2, 2), np.float32))}
    for prefix, old in (("language_model.", ""), ("model.language_model.", "model.")):
        named = {prefix + k.removeprefix(old): hf_export.halves(v) for k, v in m.weights().items()}
        (tmp_path / "hf" / "model.safetensors").write_bytes(hf_export.pack(named | tower))
        (tmp_path / prefix).mkdir()
        same_bundle(aned, tmp_path / "hf", model("tiny-gemma"), tmp_path / prefix)


ROPES = {
    "linear": ({"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}, {"type": "linear", "factor": 4.0}),
    "yarn": ({"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "original_max_position_embeddings": 64},
             {"type": "yarn", "factor": 4.0, "original_context_length": 64}),
}


@pytest.mark.parametrize("kind", ROPES)
def test_rotations(aned, model, tmp_path, kind):
    config, wanted = ROPES[kind]
    hf_export.write(model("tiny-llama"), tmp_path / "hf", rope_parameters=config)
    kinds = {str: gguf.GGUFValueType.STRING, float: gguf.GGUFValueType.FLOAT32, int: gguf.GGUFValueType.UINT32}
    more = {f"llama.rope.scaling.{k}": (v, kinds[type(v)], None) for k, v in wanted.items()}
    copy(model("tiny-llama"), tmp_path / "m.gguf", lambda found: {**found, **more})
    same_bundle(aned, tmp_path / "hf", tmp_path / "m.gguf", tmp_path)


# --- what is refused, by name ---

ODD = {
    "hidden_act": "relu", "architectures": ["LlamaForSequenceClassification"], "quantization_config": {"bits": 4},
    "num_local_experts": 8, "a_new_trick": 1, "model_type": "martian", "head_dim": "big", "num_hidden_layers": 0,
    "rope_parameters": {"rope_type": "spiral", "rope_theta": 1e4}, "rope_scaling": {"type": "yarn", "factor": 4, "mscale": 2},
    "layer_types": ["chunked_attention"] * 3, "partial_rotary_factor": 0.5, "attn_logit_softcapping": 30.0,
}


@pytest.mark.parametrize("key", ODD)
def test_odd_configs_are_named(aned, model, tmp_path, key):
    config = {"rope_parameters": None} if key in ("rope_scaling", "partial_rotary_factor") else {}
    hf_export.write(model("tiny-llama"), tmp_path / "hf", **(config | {key: ODD[key]}))
    said = run(aned, "inspect", tmp_path / "hf", code=65)
    names = {"rope_parameters": "spiral", "rope_scaling": "mscale", "partial_rotary_factor": "partial", "hidden_act": "relu",
             "architectures": "LlamaForSequenceClassification", "model_type": "martian", "layer_types": "chunked_attention"}
    assert names.get(key, key) in said, said


def edit(folder, change):
    path = folder / "tokenizer.json"
    t = json.loads(path.read_text())
    change(t)
    path.write_text(json.dumps(t))


ODD_TOKENIZERS = {
    "NFKC": lambda t: t.update(normalizer={"type": "NFKC"}),
    "Metaspace": lambda t: t.update(pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "Metaspace"}, {
        "type": "ByteLevel", "add_prefix_space": False}]}),
    "nonsense": lambda t: t["pre_tokenizer"]["pretokenizers"][0]["pattern"].update(Regex="nonsense"),
    "add_prefix_space": lambda t: t["pre_tokenizer"]["pretokenizers"][1].update(add_prefix_space=True),
    "Unigram": lambda t: t["model"].update(type="Unigram"),
    "WordPiece": lambda t: t["model"].update(type="WordPiece"),
    "end_of_word_suffix": lambda t: t["model"].update(end_of_word_suffix="</w>"),
    "BertProcessing": lambda t: t.update(post_processor={"type": "BertProcessing"}),
    "CTC": lambda t: t.update(decoder={"type": "CTC"}),
    "single_word": lambda t: t["added_tokens"][0].update(single_word=True),
    "two texts": lambda t: t["model"]["vocab"].update(two=5),
    "id": lambda t: t["model"]["vocab"].update(far=1 << 40),
    "merge": lambda t: t["model"].update(merges=["abc"]),
    "ignore_merges": lambda t: t["model"].update(ignore_merges=True),
}


@pytest.mark.parametrize("what", ODD_TOKENIZERS)
def test_odd_tokenizers_are_named(aned, model, tmp_path, what):
    hf_export.write(model("tiny-llama"), tmp_path / "hf")
    edit(tmp_path / "hf", ODD_TOKENIZERS[what])
    said = run(aned, "inspect", tmp_path / "hf", code=65)
    assert what in said and "tokenizer" in said, said


# --- tokenizers ---


@pytest.mark.parametrize("pre", [p for p in PRES if p != "jais-2"])
def test_pre_tokenizer_of_a_file(aned, model, tmp_path, pre):
    """Every pattern that aned has, in a tokenizer.json as the package writes it."""
    tokens, merges = pairs()
    theirs = reference(*PRES[pre], tokens, merges)
    hf_export.write(model("tiny-llama"), tmp_path / "hf", tokenizer=json.loads(theirs.to_str()), vocab_size=len(tokens))
    for text in texts(20):
        got = [int(i) for i in ask(aned, "tokenize", tmp_path / "hf", text.encode()).split()]
        assert got == theirs.encode(text, add_special_tokens=False).ids, f"{text!r}"


def with_tokenizer(model, place, path, name="tokenizer.json"):
    hf_export.write(model("tiny-llama"), place, vocab_size=None)
    (place / "tokenizer.json").unlink()
    shutil.copy(path, place / name)
    return place


def test_byte_fallback(aned, model, shared, tmp_path):
    """BPE of characters, with a space in front."""
    kinds = shared / "data" / "tokenizers"
    folder = with_tokenizer(model, tmp_path / "hf", kinds / "hf" / "llama2.tokenizer.json")
    assert "a merge" in run(aned, "inspect", folder, code=65)

    def mend(t):  # this copy has spaces for no-break spaces
        m = t["model"]
        m["vocab"] = {k.replace(" ", "\u00a0"): v for k, v in m["vocab"].items()}
        odd = {"   ": "\u00a0 \u00a0", "     ": "\u00a0\u00a0 \u00a0\u00a0", "\u2581  ": "\u2581 \u00a0"}
        m["merges"] = [odd.get(x, x) for x in m["merges"]]
    edit(folder, mend)
    check_tokens(aned, folder, Theirs(folder / "tokenizer.json"), 30)
    for text in TEXTS:
        ids = Theirs(folder / "tokenizer.json").encode(text)
        back = ask(aned, "detokenize", folder, " ".join(map(str, ids)).encode()).decode()
        assert back == Theirs(folder / "tokenizer.json").decode(ids)


@pytest.mark.parametrize("name", ["llama2.tokenizer.model", "mistral.tokenizer.model.v1", "mistral.model.v2", "mistral.model.v3"])
def test_sentencepiece(aned, model, shared, tmp_path, name):
    path = shared / "data" / "tokenizers" / "spm" / name
    check_tokens(aned, with_tokenizer(model, tmp_path / "hf", path, "tokenizer.model"), Pieces(path), 30)


def test_special_tokens(aned, model, tmp_path):
    hf_export.write(model("tiny-llama"), tmp_path / "hf", eos_token_id=[511, 510], bos_token_id=509)
    edit(tmp_path / "hf", lambda t: (t["added_tokens"][1].update(rstrip=True), t.update(post_processor={
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|endoftext|>"}}, {"Sequence": {"id": "A"}}]})))
    config = {"bos_token": "<|endoftext|>", "eos_token": {"content": "<|im_end|>"}, "chat_template": "of the config"}
    (tmp_path / "hf" / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "hf" / "chat_template.jinja").write_text("of the file")
    got, _ = keys(aned, tmp_path / "hf")
    assert [got["tokenizer." + k] for k in ("ggml.bos_token_id", "ggml.eos_token_id", "ggml.eot_token_id", "ggml.add_bos_token",
                                            "chat_template", "aned.strip_right")] == [509, 511, 510, True, "of the file", 1]
    ids = ask(aned, "tokenize", tmp_path / "hf", TEXTS[6].encode()).split()
    assert ids == ask(aned, "tokenize", model("tiny-llama"), TEXTS[6].encode()).split()
    said = subprocess_ids(aned, tmp_path / "hf", "<|im_start|>  a")
    assert said[0] == 510 and len(said) == 2, "the spaces behind it are gone"


def subprocess_ids(aned, folder, text):
    import subprocess
    out = subprocess.run([aned, "tokenize", folder, "--special"], input=text.encode(), capture_output=True, check=True).stdout
    return [int(i) for i in out.split()]
