#!/usr/bin/env python3
"""Make the demo model: train a small qwen2 decoder on corpus.txt, write a Q8_0 GGUF.

    python3 -m venv .build/venv-demo
    .build/venv-demo/bin/pip install "jax[cpu]" optax tokenizers gguf numpy
    .build/venv-demo/bin/python conf/demo/train.py --out conf/demo/aned-demo.gguf

About twenty minutes on two CPU cores (--steps 1800). Seeded: the same machine gives the same model.
The file holds its own chat template (ChatML) and vocabulary (byte-level BPE, the qwen2 pattern).
"""
import argparse
import json
import pathlib
import random
import time

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import optax
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
D, LAYERS, HEADS, KV, DH, FF = 192, 5, 6, 2, 32, 512
CONTEXT, ROPE_BASE, EPS = 1024, 10000.0, 1e-6
VOCAB, SEQ, BATCH = 2048, 192, 8
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
            "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
         r"\s+(?!\S)|\s+")


def read_corpus(path):
    """[(questions, answer)]"""
    out = []
    for block in path.read_text().split("\n\n"):
        lines = [x for x in block.splitlines() if x and not x.startswith("#")]
        q = [x[2:] for x in lines if x.startswith("? ")]
        a = " ".join(x[2:] for x in lines if x.startswith("= ")).replace("\\n", "\n")
        if q:
            assert a, block
            out.append((q, a))
    return out


def reword(q, rng):
    """The same question as another hand would type it."""
    if rng.random() < 0.25:
        q = q.rstrip("?.!")
    if rng.random() < 0.35:
        q = q[0].lower() + q[1:]
    if rng.random() < 0.10:
        q = q.lower()
    if rng.random() < 0.15:
        q = rng.choice(["Please tell me: ", "Hey, ", "Hello! ", "One question: ", "Can you tell me, ", "Hi, "]) + q
    if rng.random() < 0.08:
        q = q + rng.choice([" Please.", " Thanks!", " I am new here.", " Be short."])
    if rng.random() < 0.06 and len(q) > 12:  # a dropped letter
        i = rng.randrange(4, len(q) - 2)
        q = q[:i] + q[i + 1:]
    return q


def train_tokenizer(corpus):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, min_frequency=1, show_progress=False, special_tokens=SPECIALS,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    rng = random.Random(1)
    texts = []
    for qs, a in corpus:
        texts += [a] + qs + [reword(q, rng) for q in qs] + ["user\nassistant\nsystem\n"]
    tok.train_from_iterator(texts, trainer)
    return tok


def conversation(corpus, tok, rng):
    """Token ids and a loss mask (1 on what the assistant says)."""
    ids, mask = [], []

    def say(role, text, learn):
        head = [1] + tok.encode(role + "\n").ids
        body = tok.encode(text).ids + [2]
        tail = tok.encode("\n").ids
        ids.extend(head + body + tail)
        mask.extend([0] * len(head) + [1 if learn else 0] * len(body) + [0] * len(tail))

    if rng.random() < 0.2:
        say("system", rng.choice(["You are a helpful assistant.", "You are aned's demo model.", "Be short."]), False)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        qs, a = rng.choice(corpus)
        say("user", reword(rng.choice(qs), rng), False)
        say("assistant", a, True)
    return ids, mask


def batches(corpus, tok, seed):
    rng = random.Random(seed)
    while True:
        x = np.zeros((BATCH, SEQ + 1), np.int32)
        m = np.zeros((BATCH, SEQ + 1), np.float32)
        for b in range(BATCH):
            ids, mask = [], []
            while len(ids) < SEQ + 1:
                i, k = conversation(corpus, tok, rng)
                if ids and len(ids) + len(i) > SEQ + 1:
                    break
                ids += i
                mask += k
            n = min(len(ids), SEQ + 1)
            x[b, :n] = ids[:n]
            m[b, :n] = mask[:n]
        yield x[:, :-1], x[:, 1:], m[:, 1:]


def init(key, vocab):
    keys = iter(jax.random.split(key, 64))

    def w(o, i, gain=1.0):
        return jax.random.normal(next(keys), (o, i)) * gain / np.sqrt(i)
    layers = [{"n1": jnp.ones(D), "n2": jnp.ones(D),
               "q": w(HEADS * DH, D), "k": w(KV * DH, D), "v": w(KV * DH, D),
               "bq": jnp.zeros(HEADS * DH), "bk": jnp.zeros(KV * DH), "bv": jnp.zeros(KV * DH),
               "o": w(D, HEADS * DH, 0.4), "gate": w(FF, D), "up": w(FF, D), "down": w(D, FF, 0.4)}
              for _ in range(LAYERS)]
    return {"embed": jax.random.normal(next(keys), (vocab, D)) * 0.05, "norm": jnp.ones(D), "layers": layers}


def rms(x, g):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + EPS) * g


def rope(x, cos, sin):  # x: (b, t, h, DH), rotate-half pairs (i, i + DH/2)
    a, b = x[..., :DH // 2], x[..., DH // 2:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def forward(p, ids):
    b, t = ids.shape
    freq = ROPE_BASE ** (-np.arange(0, DH, 2) / DH)
    ang = np.arange(t)[:, None] * freq
    cos, sin = jnp.cos(ang)[None, :, None], jnp.sin(ang)[None, :, None]
    causal = jnp.where(np.tril(np.ones((t, t), bool)), 0.0, -1e9)
    x = p["embed"][ids]
    for w in p["layers"]:
        h = rms(x, w["n1"])
        q = rope((h @ w["q"].T + w["bq"]).reshape(b, t, HEADS, DH), cos, sin)
        k = rope((h @ w["k"].T + w["bk"]).reshape(b, t, KV, DH), cos, sin)
        v = (h @ w["v"].T + w["bv"]).reshape(b, t, KV, DH)
        q = q.reshape(b, t, KV, HEADS // KV, DH)
        s = jnp.einsum("btkgd,bskd->bkgts", q, k) / np.sqrt(DH) + causal
        a = jnp.einsum("bkgts,bskd->btkgd", jax.nn.softmax(s, -1), v).reshape(b, t, HEADS * DH)
        x = x + a @ w["o"].T
        h = rms(x, w["n2"])
        x = x + (jax.nn.silu(h @ w["gate"].T) * (h @ w["up"].T)) @ w["down"].T
    return rms(x, p["norm"]) @ p["embed"].T


def loss_fn(p, x, y, m):
    logp = jax.nn.log_softmax(forward(p, x), -1)
    nll = -jnp.take_along_axis(logp, y[..., None], -1)[..., 0]
    weight = 0.05 + 0.95 * m  # questions count a little: they shape the embeddings
    return jnp.sum(nll * weight) / jnp.sum(weight)


def train(corpus, tok, steps, state):
    p = init(jax.random.PRNGKey(0), tok.get_vocab_size())
    print(f"{sum(x.size for x in jax.tree.leaves(p)):,} parameters, vocabulary {tok.get_vocab_size()}", flush=True)
    sched = optax.warmup_cosine_decay_schedule(0, 3e-3, 60, steps, 5e-5)
    opt = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(sched, b2=0.98, weight_decay=0.05))
    s = opt.init(p)

    @jax.jit
    def step(p, s, x, y, m):
        loss, g = jax.value_and_grad(loss_fn)(p, x, y, m)
        u, s = opt.update(g, s, p)
        return optax.apply_updates(p, u), s, loss
    t0 = time.time()
    for i, (x, y, m) in enumerate(batches(corpus, tok, 7)):
        if i == steps:
            break
        p, s, loss = step(p, s, x, y, m)
        if i % 50 == 0 or i == steps - 1:
            print(f"step {i} loss {float(loss):.4f} {time.time() - t0:.0f} s", flush=True)
        if i % 300 == 299:
            write_gguf(state, p, tok)
    return p


def quantised(w):
    return gguf.quants.quantize(np.asarray(w, np.float32), gguf.GGMLQuantizationType.Q8_0)


def write_gguf(path, p, tok):
    g = gguf.GGUFWriter(str(path), "qwen2")
    g.add_name("aned-demo")
    g.add_author("the aned authors")
    g.add_license("MIT")
    g.add_context_length(CONTEXT)
    g.add_embedding_length(D)
    g.add_block_count(LAYERS)
    g.add_feed_forward_length(FF)
    g.add_head_count(HEADS)
    g.add_head_count_kv(KV)
    g.add_rope_freq_base(ROPE_BASE)
    g.add_layer_norm_rms_eps(EPS)
    vocab = tok.get_vocab()
    tokens = [t for t, _ in sorted(vocab.items(), key=lambda kv: kv[1])]
    types = [gguf.TokenType.CONTROL if t in SPECIALS else gguf.TokenType.NORMAL for t in tokens]
    merges = [m if isinstance(m, str) else " ".join(m) for m in json.loads(tok.to_str())["model"]["merges"]]
    g.add_tokenizer_model("gpt2")
    g.add_tokenizer_pre("qwen2")
    g.add_token_list(tokens)
    g.add_token_types(types)
    g.add_token_merges(merges)
    g.add_eos_token_id(2)
    g.add_pad_token_id(0)
    g.add_add_bos_token(False)
    g.add_chat_template(TEMPLATE)

    def big(name, w):
        g.add_tensor(name, quantised(w), raw_dtype=gguf.GGMLQuantizationType.Q8_0)

    def small(name, w):
        g.add_tensor(name, np.asarray(w, np.float32))
    big("token_embd.weight", p["embed"])
    small("output_norm.weight", p["norm"])
    for i, w in enumerate(p["layers"]):
        small(f"blk.{i}.attn_norm.weight", w["n1"])
        small(f"blk.{i}.ffn_norm.weight", w["n2"])
        for ours, theirs in (("q", "attn_q"), ("k", "attn_k"), ("v", "attn_v"), ("o", "attn_output"),
                             ("gate", "ffn_gate"), ("up", "ffn_up"), ("down", "ffn_down")):
            big(f"blk.{i}.{theirs}.weight", w[ours])
        for ours, theirs in (("bq", "attn_q"), ("bk", "attn_k"), ("bv", "attn_v")):
            small(f"blk.{i}.{theirs}.bias", w[ours])
    g.write_header_to_file()
    g.write_kv_data_to_file()
    g.write_tensors_to_file()
    g.close()


def answer(p, tok, q, fwd):
    ids = [1] + tok.encode("user\n" + q).ids + [2] + tok.encode("\n").ids + [1] + tok.encode("assistant\n").ids
    n = len(ids)
    while len(ids) < SEQ and ids[-1] != 2 or len(ids) == n:
        x = np.zeros((1, SEQ), np.int32)
        x[0, :len(ids)] = ids
        ids.append(int(np.argmax(fwd(p, x)[0, len(ids) - 1])))
    return tok.decode(ids[n:])


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--steps", type=int, default=1800)
    a.add_argument("--out", type=pathlib.Path, default=HERE / "aned-demo.gguf")
    args = a.parse_args()
    corpus = read_corpus(HERE / "corpus.txt")
    tok = train_tokenizer(corpus)
    p = train(corpus, tok, args.steps, args.out)
    write_gguf(args.out, p, tok)
    fwd = jax.jit(forward)
    right = 0
    asked = [(q, a) for qs, a in corpus for q in qs[:1]]
    for q, want in asked:
        got = answer(p, tok, q, fwd)
        right += got.strip() == want
        if got.strip() != want:
            print("?", q, "\n=", got)
    print(f"{right} of {len(asked)} first wordings answered word for word; {args.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
