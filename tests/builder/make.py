"""Run by the Python that has onnxruntime-genai: a small model of the transformers library, what the public builder makes of it, and
what ONNX Runtime writes with that.

    make.py NAME OUT [GGUF]     OUT gets hf/ (the model), onnx/ (the bundle) and greedy.npz
"""
import json
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import tokenizers
import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import hf_export  # noqa: E402

PROMPTS = [[1, 17, 200, 33, 5], [1], [1, 250, 250, 9, 77, 123, 301, 2, 40]]
STEPS = 40
VOCAB = 640
SMALL = {"vocab_size": VOCAB, "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
GEMMA = {"head_dim": 32, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 16, "query_pre_attn_scalar": 32}
LFM2 = {"conv_L_cache": 3, "layer_types": ["conv", "full_attention", "conv", "full_attention"], "tie_word_embeddings": True}
MODELS = {  # class of the configuration, what it gets beside SMALL
    "llama": ("LlamaConfig", {"head_dim": 32, "tie_word_embeddings": False}),
    "mistral": ("MistralConfig", {"head_dim": 32, "tie_word_embeddings": False, "sliding_window": None}),
    "qwen2": ("Qwen2Config", {"tie_word_embeddings": False}),
    "qwen3": ("Qwen3Config", {"head_dim": 32, "tie_word_embeddings": True}),
    "phi3": ("Phi3Config", {"tie_word_embeddings": False, "sliding_window": None, "original_max_position_embeddings": 512}),
    "gemma2": ("Gemma2Config", GEMMA),
    "lfm2": ("Lfm2Config", LFM2 | {"block_auto_adjust_ff_dim": False}),
    "lfm2moe": ("Lfm2MoeConfig", LFM2 | {"num_dense_layers": 1, "num_experts": 8, "num_experts_per_tok": 2,
                                         "moe_intermediate_size": 64, "norm_topk_prob": True, "use_expert_bias": True}),
}


def spread(model):
    """Weights as of a trained model: rows that keep the size of what they read, a few that are louder, logits far apart."""
    draw = torch.Generator().manual_seed(3)
    norms_add_one = "Gemma" in type(model).__name__
    for name, p in model.named_parameters():
        x = torch.randn(p.shape, generator=draw)
        if p.dim() == 1:
            p.data = x * 0.1 + (0 if norms_add_one or name.endswith("bias") else 1)
            continue
        embeds = "embed" in name
        rows = torch.exp(0.3 * torch.randn((*p.shape[:-1], 1), generator=draw))
        p.data = x * rows * (0.25 if embeds else 3 if "lm_head" in name else 0.8) / (1 if embeds else p.shape[-1] ** 0.5)
    for name, b in model.named_buffers():
        if name.endswith("expert_bias"):
            b.copy_(0.1 * torch.randn(b.shape, generator=draw))
    model.tie_weights()


def random_model(name, out):
    config, more = MODELS[name]
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, config)(**SMALL | more))
    with torch.no_grad():
        spread(model)
    model.save_pretrained(out)


def byte_tokenizer(out):
    """Of nothing but bytes: what it does plays no part here."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    specials = ["<pad>", "<s>", "</s>"]
    t = tokenizers.Tokenizer(tokenizers.models.BPE({x: i for i, x in enumerate(specials + alphabet)}, []))
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = tokenizers.decoders.ByteLevel()
    t.add_special_tokens(specials)
    t.save(str(out / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    (out / "tokenizer_config.json").write_text(json.dumps(config))


def build(hf, out, *more):
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", hf, "-o", out, "-p", "int4", "-e", "cpu", "-c",
               out.parent / "cache", "--extra_options", "accuracy_level=1", *more]
    r = subprocess.run(command, capture_output=True, text=True)
    assert r.returncode == 0, r.stderr[-4000:]


def attributes(path):
    return {a.name for n in onnx.load(path, load_external_data=False).graph.node for a in n.attribute}


class Session:
    """All of a text in one run, from an empty state."""

    def __init__(self, path):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 2
        self.s = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        decoder = json.loads((path.parent / "genai_config.json").read_text())["model"]["decoder"]
        self.empty = (1, decoder["num_key_value_heads"], 0, decoder["head_size"])

    def states(self):
        kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
        for i in self.s.get_inputs():
            if i.name.startswith("past"):
                conv = [d if isinstance(d, int) else 1 for d in i.shape]
                yield i.name, np.zeros(conv if "conv" in i.name else self.empty, kinds[i.type])

    def logits(self, ids):
        n = len(ids)
        feed = {"input_ids": np.array([ids], np.int64), "attention_mask": np.ones((1, n), np.int64),
                "position_ids": np.arange(n, dtype=np.int64)[None]}
        names = {i.name for i in self.s.get_inputs()}
        feed = {k: v for k, v in feed.items() if k in names} | dict(self.states())
        return self.s.run(["logits"], feed)[0][0, -1].astype(np.float32)


def greedy(session):
    """Of each prompt: tokens, and how far the best was before the second when each was chosen."""
    texts, gaps = [], []
    for prompt in PROMPTS:
        ids, gap = list(prompt), []
        for _ in range(STEPS):
            y = session.logits(ids)
            two = np.sort(y)[-2:]
            ids.append(int(y.argmax()))
            gap.append(float(two[1] - two[0]))
        texts.append(ids)
        gaps.append(gap)
    return texts, gaps


def main():
    name, out = sys.argv[1], pathlib.Path(sys.argv[2])
    hf = out / "hf"
    hf.mkdir(parents=True)
    if len(sys.argv) > 3:
        hf_export.write(sys.argv[3], hf)
    else:
        random_model(name, hf)
    byte_tokenizer(hf)
    build(hf, out / "onnx")
    reference = out / "onnx"
    if "sliding_window_cache" in attributes(reference / "model.onnx"):
        reference = out / "whole"  # the same weights, and states that hold every position
        build(hf, reference, "windowed_kv_cache=false")
    texts, gaps = greedy(Session(reference / "model.onnx"))
    arrays = {f"ids{i}": np.array(t, np.int32) for i, t in enumerate(texts)} | {f"gaps{i}": np.array(g) for i, g in enumerate(gaps)}
    np.savez(out / "greedy.npz", prompts=np.array([len(p) for p in PROMPTS]), **arrays)


if __name__ == "__main__":
    main()
