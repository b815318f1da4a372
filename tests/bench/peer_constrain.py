#!/usr/bin/env python3
"""llama.cpp's constrained sampling under the clock: `peer_constrain.py MODEL.gguf --threads N [--gbnf SHIM.so]`; a line of JSON
in, one out. bench_constrain.py starts it, in the peer's venv, and takes turns with it.

    {"op": "gbnf", "schema": S}                   {"gbnf": text or null}       needs --gbnf
    {"op": "masks", "grammar": G, "tokens": [..]} {"cold": [us], "check": [us], "move": [us]}
    {"op": "stream", "grammar": G or null, "prompt": [..], "tokens": n, "seed": k}
                                                  {"tokens": n, "seconds": s, "sample": [us]}

Tokens are drawn as llama.cpp's common_sampler does: one from all; where the grammar does not allow it, one from those that it
allows. G: {"gbnf": text}, or {"schema": S} for llguidance, where the library has it. Microseconds are of this thread's
processor time, seconds of the clock, from the first token to the last.
"""
import argparse
import ctypes as c
import json
import math
import os
import sys
import time

from peer import LlamaCpp, make_batch

CONTEXT = 1024


class TokenData(c.Structure):
    _fields_ = [("id", c.c_int32), ("logit", c.c_float), ("p", c.c_float)]


class TokenArray(c.Structure):
    _fields_ = [("data", c.POINTER(TokenData)), ("size", c.c_size_t), ("selected", c.c_int64), ("sorted", c.c_bool)]


def us(since):
    return (time.thread_time_ns() - since) / 1e3


class Constrained:
    def __init__(self, path, threads):
        self.peer = LlamaCpp(threads)
        self.lib = self.peer.lib
        for name, res, args in (
                ("llama_sampler_init_grammar", c.c_void_p, [c.c_void_p, c.c_char_p, c.c_char_p]),
                ("llama_sampler_init_dist", c.c_void_p, [c.c_uint32]), ("llama_sampler_free", None, [c.c_void_p]),
                ("llama_sampler_chain_init", c.c_void_p, [c.c_bool]),
                ("llama_sampler_chain_add", None, [c.c_void_p, c.c_void_p]),
                ("llama_sampler_sample", c.c_int32, [c.c_void_p, c.c_void_p, c.c_int32]),
                ("llama_sampler_accept", None, [c.c_void_p, c.c_int32]),
                ("llama_sampler_apply", None, [c.c_void_p, c.POINTER(TokenArray)]),
                ("llama_vocab_is_eog", c.c_bool, [c.c_void_p, c.c_int32])):
            f = getattr(self.lib, name)
            f.restype, f.argtypes = res, args
        self.n = self.peer.load(path)
        self.vocab = self.lib.llama_model_get_vocab(self.peer.model)
        self.ctx = self.peer.context(CONTEXT, 1)
        self.fresh = (TokenData * self.n)(*[(i, 1.0, 0.0) for i in range(self.n)])
        self.all = (TokenData * self.n)()

    def grammar(self, g):
        if "gbnf" in g:
            s = self.lib.llama_sampler_init_grammar(self.vocab, g["gbnf"].encode(), b"root")
        else:
            make = self.lib._Z22llama_sampler_init_llgPK11llama_vocabPKcS3_  # a C++ function of its common library
            make.restype, make.argtypes = c.c_void_p, [c.c_void_p, c.c_char_p, c.c_char_p]
            s = make(self.vocab, b"lark", b"start: %json " + json.dumps(g["schema"]).encode())
        if not s:
            raise ValueError("it does not take the grammar")
        return s

    def allows(self, grammar, token):
        one = TokenData(token, 1.0, 0.0)
        array = TokenArray(c.pointer(one), 1, -1, False)
        self.lib.llama_sampler_apply(grammar, c.byref(array))
        return not math.isinf(one.logit)

    def masks(self, g, tokens):
        grammar = self.grammar(g)
        out = {"cold": [], "check": [], "move": []}
        for token in tokens:
            c.memmove(self.all, self.fresh, c.sizeof(self.all))
            array = TokenArray(self.all, self.n, -1, False)
            at = time.thread_time_ns()
            self.lib.llama_sampler_apply(grammar, c.byref(array))
            out["cold"].append(us(at))
            if math.isinf(self.all[token].logit):
                raise ValueError(f"token {token} is not allowed at place {len(out['cold'])}")
            at = time.thread_time_ns()
            self.allows(grammar, token)
            out["check"].append(us(at))
            at = time.thread_time_ns()
            self.lib.llama_sampler_accept(grammar, token)
            out["move"].append(us(at))
        self.lib.llama_sampler_free(grammar)
        return out

    def sampler(self, g, seed):
        """A function that draws a token; and what it leaves to be freed."""
        free = self.lib.llama_sampler_chain_init(True)
        self.lib.llama_sampler_chain_add(free, self.lib.llama_sampler_init_dist(seed))
        if g is None:
            return lambda: self.lib.llama_sampler_sample(free, self.ctx, -1), [free]
        kept = self.lib.llama_sampler_chain_init(True)
        grammar = self.grammar(g)
        self.lib.llama_sampler_chain_add(kept, grammar)  # which owns it
        self.lib.llama_sampler_chain_add(kept, self.lib.llama_sampler_init_dist(seed + 1))

        def draw():
            token = self.lib.llama_sampler_sample(free, self.ctx, -1)
            if self.allows(grammar, token):
                self.lib.llama_sampler_accept(grammar, token)
                return token
            return self.lib.llama_sampler_sample(kept, self.ctx, -1)  # accepts it too
        return draw, [free, kept]

    def stream(self, g, prompt, tokens, seed):
        draw, made = self.sampler(g, seed)
        self.peer.keep(self.ctx, 0, 0)
        self.decode([(t, i, (0,), int(i == len(prompt) - 1)) for i, t in enumerate(prompt)])
        at, cost, n, first, last = len(prompt), [], 0, None, None
        while n < tokens:
            began = time.thread_time_ns()
            token = draw()
            cost.append(us(began))
            if g is not None and self.lib.llama_vocab_is_eog(self.vocab, token):
                break
            n, last = n + 1, time.monotonic()
            first = first or last
            self.decode([(token, at, (0,), 1)])
            at += 1
        for s in made:
            self.lib.llama_sampler_free(s)
        return {"tokens": n, "seconds": last - first if n else 0, "sample": cost}

    def decode(self, rows):
        if self.lib.llama_decode(self.ctx, make_batch(self.peer.Batch, rows)) != 0:
            raise SystemExit("llama_decode")


def to_gbnf(shim, library):
    """schema -> GBNF by the package's own library, of which `shim` is loaded beside it."""
    c.CDLL(library, mode=c.RTLD_GLOBAL)
    f = c.CDLL(shim).schema_gbnf
    f.restype, f.argtypes = c.c_void_p, [c.c_char_p]

    def convert(schema):
        p = f(json.dumps(schema).encode())
        return c.string_at(p).decode() if p else None
    return convert


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("model")
    a.add_argument("--threads", type=int, default=os.cpu_count())
    a.add_argument("--gbnf", default="")
    args = a.parse_args()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the library prints is not an answer
    bench = Constrained(args.model, args.threads)
    gbnf = to_gbnf(args.gbnf, bench.peer.library) if args.gbnf else None
    for line in sys.stdin:
        r = json.loads(line)
        try:
            if r["op"] == "gbnf":
                out = {"gbnf": gbnf(r["schema"])}
            elif r["op"] == "masks":
                out = bench.masks(r["grammar"], r["tokens"])
            else:
                out = bench.stream(r["grammar"], r["prompt"], r["tokens"], r["seed"])
        except ValueError as e:
            out = {"error": str(e)}
        print(json.dumps(out), file=answers)
    answers.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
