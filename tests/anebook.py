"""Manifests in the ane-book form, and models to go with them."""
import json
import pathlib
import shutil

import gguf

NUMBERS = {  # ours -> theirs
    "d_model": "d_model", "n_heads": "n_heads", "n_kv_heads": "n_kv_heads", "d_head": "d_head", "d_ff": "d_ff",
    "vocab": "vocab_size", "n_layers": "n_layers", "context": "max_seq_len", "norm_eps": "rms_norm_eps",
}


def manifest(family, embed, layers, heads, **numbers):
    """layers, heads: [(first, last, path)]"""
    return {
        "artifacts_version": 1, "model_family": family, "gguf": "models/x.gguf", **numbers, "tie_word_embeddings": True,
        "embed_bin": embed, "layers": [{"start": a, "end": b, "path": p} for a, b, p in layers],
        "lm_head_shards": [{"shard_idx": i, "vocab_start": a, "vocab_end": b, "mlmodelc": p}
                           for i, (a, b, p) in enumerate(heads)],
    }


def of_bundle(bundle, folder, name="tiny"):
    """The files of one of our own bundles, as ane-book's converters lay them out; returns the manifest's path.

    Its manifest names compiled models, as theirs do, and the packages stand beside those names.
    """
    bundle, folder = pathlib.Path(bundle), pathlib.Path(folder)
    b = json.loads((bundle / "bundle.json").read_text())
    assert b["embed_scale"] == b["residual_scale"] == 1, "their runtime scales nothing"
    (folder / "ane" / "lm_head").mkdir(parents=True)
    shutil.copy(bundle / "embed.bin", folder / "ane" / f"{name}_token_embd_fp16.bin")
    layers, heads = [], []
    for s in b["shards"]:
        to = f"ane/{name}_layer{s['first']}_{s['last']}_q8"
        shutil.copytree(bundle / s["path"], folder / f"{to}.mlpackage")
        layers.append((s["first"], s["last"], f"{to}.mlmodelc"))
    for i, s in enumerate(b["heads"]):
        to = f"ane/lm_head/{name}LMHead_s{i}_q8"
        shutil.copytree(bundle / s["path"], folder / f"{to}.mlpackage")
        heads.append((s["vocab_first"], s["vocab_last"], f"{to}.mlmodelc"))
    numbers = {theirs: b[ours] for ours, theirs in NUMBERS.items()}
    numbers |= {"rope_dim": b["rope"]["dim"], "rope_freq_base": b["rope"]["base"], "quant_bits": 8}
    m = manifest("Tiny", f"ane/{name}_token_embd_fp16.bin", layers, heads, **numbers)
    return write(folder / f"{name}_runtime_meta.json", m)


def write(path, m):
    path.write_text(json.dumps(m, indent=2) + "\n")
    return path


def vocabulary(path, n):
    """A vocabulary-only GGUF of n tokens, enough to be served."""
    w = gguf.GGUFWriter(str(path), "llama")
    w.add_tokenizer_model("llama")
    w.add_token_list(["<unk>", "<s>", "</s>"] + [f"\u2581w{i}" for i in range(n - 3)])
    w.add_token_scores([0.0] * n)
    w.add_token_types([2, 3, 3] + [1] * (n - 3))
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()
    return path
