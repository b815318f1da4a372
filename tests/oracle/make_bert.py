#!/usr/bin/env python3
"""models/ARCH-vectors.npz for bert and nomic-bert: what transformers' BertModel and NomicBertModel give for the weights of
bert_tiny.Tiny(ARCH), in float64. Runs in a Python that has torch, transformers, gguf and numpy."""
import pathlib
import sys

import numpy as np
import torch
from transformers import BertConfig, BertModel, NomicBertConfig, NomicBertModel

HERE = pathlib.Path(__file__).parent
sys.path.append(str(HERE.parent))

from bert_tiny import Tiny  # noqa: E402

LENGTHS = [1, 2, 33, 300]


def state_of(m):
    return {k: torch.tensor(np.asarray(a)).double() for k, a in m.named("", "").items()}


def models():
    m = Tiny("bert")
    shape = {"vocab_size": m.vocab, "hidden_size": m.d, "num_hidden_layers": m.layers, "num_attention_heads": m.heads,
             "intermediate_size": m.ff, "max_position_embeddings": m.context, "layer_norm_eps": m.eps}
    yield m, BertModel(BertConfig(**shape, hidden_act="gelu"), add_pooling_layer=False), state_of(m)
    m = Tiny("nomic-bert")
    rope = {"rope_theta": m.base, "rope_type": "default"}
    yield m, NomicBertModel(NomicBertConfig(**shape, rope_parameters=rope), add_pooling_layer=False), state_of(m)


def main():
    for m, model, state in models():
        model = model.double().eval()
        missing, extra = model.load_state_dict(state, strict=False)
        assert not extra and all("ids" in k for k in missing), (missing, extra)
        out = {}
        with torch.no_grad():
            for n in LENGTHS:
                tokens = np.random.default_rng(n).integers(0, m.vocab, n)
                h = model(input_ids=torch.tensor(tokens)[None]).last_hidden_state[0].numpy()
                off = np.abs(h - m.hidden(tokens)).max()
                print(f"{m.arch}, {n} tokens: our own pass is off by {off:.2g} at most")
                out |= {f"tokens_{n}": tokens.astype(np.int32), f"mean_{n}": h.mean(0), f"cls_{n}": h[0], f"last_{n}": h[-1]}
        np.savez_compressed(HERE / "models" / f"{m.arch}-vectors.npz", **out)


main()
