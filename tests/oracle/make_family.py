#!/usr/bin/env python3
"""A tiny model of a family, with logits that llama.cpp computes: `make_family.py NAME...`, of rows of families.py.

Writes models/NAME: model.gguf (matrices F16, vectors F32, all exact in fp16), expected.npz and mistakes.json, in the form
of the shared families. Runs in a Python that has xllamacpp (of the version in bench.sh), gguf, numpy and pytest.
llama.cpp gets a copy with F32 matrices, because it rounds activations to the type of the weights, and F32 keys and values.

Where it computes gelu, which it takes from a table of halves, its logits are too rough to judge by. There `logits` is our
float64 pass (decoder.py) over the row's description with gelu in full precision, and `peer_logits` what llama.cpp says:
with that table in gelu's place, the same pass must give just them.
"""
import ctypes as c
import json
import os
import pathlib
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "bench")]

import family_mistakes  # noqa: E402
import mkgguf  # noqa: E402
from decoder import HALVES, PLAIN_LAYER, PLAIN_ROPE, Decoder, cosine, with_peers_gelu  # noqa: E402
from families import BY_NAME  # noqa: E402
from peer import LlamaCpp, make_batch  # noqa: E402
from sources import Source  # noqa: E402

TEXT, GREEDY, EVERY = 96, 24, 4  # tokens given, tokens that follow, and of how many positions one's logits are kept
AGREE = 5e-3
# So much larger than in a plain random model, so that attention is not flat, and what a block adds is not lost in the stream:
LOUDER = {"attn_q": 1.5, "attn_k": 1.5, "attn_output": 6, "ffn_down": 4, "attn_q_norm": 1.5, "attn_k_norm": 1.5,
          "post_attention_norm": 3, "post_ffw_norm": 3}
# Of so many seeds the first is taken that has a gap between the two best of each greedy step that rounding does not decide,
# and of whose logits rounding keys, values and the stream to fp16 takes at most a tenth of what test_families.py allows:
SEEDS, GREEDY_GAP, CONDITION = 16, 0.05, 1e-5


class F32(LlamaCpp):
    """llama.cpp with keys and values in F32 and attention in plain steps."""

    def __init__(self, path):
        super().__init__(threads=1)
        self.lib.llama_get_logits_ith.restype = c.POINTER(c.c_float)
        self.lib.llama_get_logits_ith.argtypes = [c.c_void_p, c.c_int32]
        self.vocab = self.load(str(path))
        p = self.lib.llama_context_default_params()
        p.n_ctx = p.n_batch = p.n_ubatch = 256
        p.n_threads = p.n_threads_batch = 1
        p.type_k = p.type_v = 0
        p.flash_attn_type = 0
        self.ctx = self.lib.llama_init_from_model(self.model, p)

    def logits(self, tokens):
        """(n, vocab)"""
        self.keep(self.ctx, 0, 0)
        batch = make_batch(self.Batch, [(int(t), i, (0,), 1) for i, t in enumerate(tokens)])
        if self.lib.llama_decode(self.ctx, batch) != 0:
            raise SystemExit("llama_decode failed")
        rows = [np.ctypeslib.as_array(self.lib.llama_get_logits_ith(self.ctx, i), (self.vocab,)) for i in range(len(tokens))]
        return np.array(rows, np.float32)


def weights_of(row, seed):
    """{name: array}, each number exact in fp16."""
    found = {}
    for name, dims, what in mkgguf.tensor_list(row.shape):
        if what == "table":
            continue
        w = mkgguf.make_tensor(seed, name, dims, what, mkgguf.gguf.GGMLQuantizationType.F32)
        w = w if what == "bias" else w * LOUDER.get(name.split(".")[-2], 1)
        found[name] = w.astype(np.float16).astype(np.float32)
    return found


def describe(row):
    """decoder.py's description of a row."""
    s = row.shape
    layer = dict(PLAIN_LAYER, n_heads=s.heads, n_kv=s.kv, d_head=s.d_head, d_ff=s.ff, score_scale=s.d_head**-0.5,
                 pre_norm=s.pre_norm, post_norm=s.post_norm, qk_norm="head" if s.qk_norm else "none", **row.layer)
    rope = dict(PLAIN_ROPE, dim=s.rope_dim or s.d_head, base=s.rope_base, factors=s.tables.get("rope_freqs.weight", []))
    return {"d_model": s.d, "norm_eps": float(np.float32(s.eps)), "pairs": row.pairs, "embed_scale": row.embed_scale,
            "logit_scale": 1.0, "logit_cap": 0.0, "rope": rope, "rope_local": None,
            "layers": [dict(layer, kv_from=i) for i in range(s.layers)]}


def follow(logits, tokens):
    """The greedy continuation, and the gap of the two best at each step."""
    path, gaps = list(tokens), []
    for _ in range(GREEDY):
        last = np.sort(logits(path)[-1])
        gaps.append(float(last[-1] - last[-2]))
        path.append(int(logits(path)[-1].argmax()))
    return np.array(path[len(tokens):], np.int32), np.array(gaps, np.float32)


def agree(what, a, b, bound=AGREE):
    off = float(np.abs(a - b).max())
    print(f"  {what}: largest difference {off:.2g} (largest logit {np.abs(b).max():.3g})")
    if not off <= bound:
        raise SystemExit(f"{what}: they do not agree")


def expected(row, peer, own, spec, source):
    """What expected.npz holds, or None where rounding decides too much; `own`: float64 logits of tokens."""
    tokens = np.random.default_rng(1).integers(0, row.shape.vocab, TEXT).astype(np.int32)
    at = np.arange(0, TEXT, EVERY)
    said, more = peer.logits(tokens), {}
    judge = peer.logits
    if spec["layers"][0]["act"] == "gelu_tanh":
        agree("float64 with llama.cpp's gelu", Decoder(with_peers_gelu(spec), source).logits(tokens), said, HALVES)
        print(f"  float64 with gelu in full: {np.abs(own(tokens) - said).max():.2g} from llama.cpp's")
        judge, more = own, {"peer_logits": said[at]}
    else:
        agree("float64", own(tokens), said)
    all_logits = judge(tokens).astype(np.float32)
    greedy, gaps = follow(judge, tokens)
    halves = Decoder(spec, source, round_at=dict.fromkeys("kvx", lambda x: x.astype(np.float16))).logits(tokens)
    cost = 1 - cosine(own(tokens), halves).min()
    print(f"  least greedy gap {gaps.min():.3f}; fp16 costs {cost:.2g} of a cosine")
    if gaps.min() < GREEDY_GAP or cost > CONDITION:
        return None
    best = np.sort(all_logits, axis=-1)
    return dict(more, tokens=tokens, logits_pos=at, logits=all_logits[at], argmax=all_logits.argmax(-1).astype(np.int32),
                top2_gap=best[:, -1] - best[:, -2], greedy=greedy, greedy_gap=gaps)


def costs(row, own, tokens, spec, source):
    """What each of the row's mistakes does to the logits."""
    right, found = own(tokens), {}
    for name in row.mistakes:
        wrong = Decoder(*family_mistakes.plant(name, spec, source)).logits(tokens)
        found[name] = {"cos_mean": round(float(cosine(right, wrong).mean()), 4),
                       "argmax": round(float((right.argmax(-1) == wrong.argmax(-1)).mean()), 3),
                       "max_abs": round(float(np.abs(right - wrong).max()), 3)}
        print(f"  {name}: {found[name]}")
    return found


def make(row, seed):
    """False: nothing was made of this seed."""
    folder = HERE / "models" / row.name
    folder.mkdir(parents=True, exist_ok=True)
    weights, spec = weights_of(row, seed), describe(row)
    mkgguf.write(folder / "model.gguf", row.shape, "f16", weights=weights)
    source = Source(folder / "model.gguf", spec["layers"])
    with tempfile.TemporaryDirectory() as place:
        mkgguf.write(pathlib.Path(place) / "f32.gguf", row.shape, "f32", weights=weights)
        peer = F32(pathlib.Path(place) / "f32.gguf")
        found = expected(row, peer, Decoder(spec, source).logits, spec, source)
    if found is None:
        return False
    np.savez_compressed(folder / "expected.npz", **found)
    figures = costs(row, Decoder(spec, source).logits, found["tokens"], spec, source)
    (folder / "mistakes.json").write_text(json.dumps({"mistakes": figures}, indent=1) + "\n")
    print(f"{folder}: {sum(p.stat().st_size for p in folder.iterdir())} bytes")
    return True


def main():
    if len(sys.argv) < 2 or any(n not in BY_NAME or BY_NAME[n].shape is None for n in sys.argv[1:]):
        sys.exit(__doc__)
    for name in sys.argv[1:]:
        print(name)
        next(seed for seed in range(SEEDS) if make(BY_NAME[name], seed))
    sys.stdout.flush()
    os._exit(0)  # llama.cpp's threads and buffers end with the process


if __name__ == "__main__":
    main()
