#!/usr/bin/env python3
"""A peer under the clock: `peer.py llama.cpp|ik MODEL.gguf --threads N`; commands and answers are those of cpu.c.

Runs in a venv that holds the peer's Python package and calls its C library: llama_decode alone is timed. bench_cpu.py
starts it and takes turns with it.
"""
import argparse
import ctypes as c
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import statistics
import sys
import time

BASE = 16  # tokens a sequence holds before a short workload
SEQS_MAX = 8
BATCH = 512
STEPS_MAX = 4096
STEPS_MIN = 3


class Batch(c.Structure):
    """llama_batch; the last three are read by older libraries only, and only where pointers are NULL."""
    _fields_ = [("n_tokens", c.c_int32), ("token", c.POINTER(c.c_int32)), ("embd", c.c_void_p),
                ("pos", c.POINTER(c.c_int32)), ("n_seq_id", c.POINTER(c.c_int32)),
                ("seq_id", c.POINTER(c.POINTER(c.c_int32))), ("logits", c.POINTER(c.c_int8))]


class OldBatch(c.Structure):
    _fields_ = [*Batch._fields_, ("all_pos_0", c.c_int32), ("all_pos_1", c.c_int32), ("all_seq_id", c.c_int32)]


def make_batch(kind, rows):
    """rows: (token, position, sequences, wants logits). Keeps what it points to."""
    n = len(rows)
    token, pos, seqs, want = zip(*rows)
    b = kind(n_tokens=n, token=(c.c_int32 * n)(*token), embd=None, pos=(c.c_int32 * n)(*pos),
             n_seq_id=(c.c_int32 * n)(*map(len, seqs)), logits=(c.c_int8 * n)(*want))
    b.kept = [(c.c_int32 * len(s))(*s) for s in seqs]
    b.seq_id = (c.POINTER(c.c_int32) * n)(*[c.cast(s, c.POINTER(c.c_int32)) for s in b.kept])
    return b


# --- llama.cpp: built from the source distribution of xllamacpp, or the library inside that package ---
# Layouts of include/llama.h in the source distribution of the version that ./dev installs.

class ModelParams(c.Structure):
    _fields_ = [("devices", c.c_void_p), ("tensor_buft_overrides", c.c_void_p), ("n_gpu_layers", c.c_int32),
                ("split_mode", c.c_int), ("load_mode", c.c_int), ("lazy_mode", c.c_int), ("main_gpu", c.c_int32),
                ("tensor_split", c.c_void_p), ("progress", c.c_void_p), ("progress_data", c.c_void_p),
                ("kv_overrides", c.c_void_p), ("vocab_only", c.c_bool), ("check_tensors", c.c_bool),
                ("use_extra_bufts", c.c_bool), ("no_host", c.c_bool), ("no_alloc", c.c_bool), ("load_mtp", c.c_bool)]


class ContextParams(c.Structure):
    _fields_ = [(n, c.c_uint32) for n in ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_rs_seq", "n_outputs_max",
                                          "n_outputs_max_per_seq")]
    _fields_ += [(n, c.c_int32) for n in ("n_threads", "n_threads_batch", "ctx_type", "rope_scaling_type",
                                          "pooling_type", "attention_type", "flash_attn_type")]
    _fields_ += [(n, c.c_float) for n in ("rope_freq_base", "rope_freq_scale", "yarn_ext_factor", "yarn_attn_factor",
                                          "yarn_beta_fast", "yarn_beta_slow")]
    _fields_ += [("yarn_orig_ctx", c.c_uint32), ("defrag_thold", c.c_float), ("cb_eval", c.c_void_p),
                 ("cb_eval_data", c.c_void_p), ("type_k", c.c_int), ("type_v", c.c_int), ("moe_cache_size", c.c_size_t),
                 ("abort", c.c_void_p), ("abort_data", c.c_void_p)]
    _fields_ += [(n, c.c_bool) for n in ("embeddings", "offload_kqv", "no_perf", "op_offload", "swa_full",
                                         "kv_unified")]
    _fields_ += [("samplers", c.c_void_p), ("n_samplers", c.c_size_t), ("ctx_other", c.c_void_p)]


class LlamaCpp:
    package, Batch, shares_base = "xllamacpp", Batch, False
    goes_on = False  # a state that cannot be cut: steps are not undone, the next is at the next position

    def __init__(self, threads):
        spec = importlib.util.find_spec("xllamacpp")
        self.library = (os.environ.get("LLAMA_CPP_LIB_PATH")
                        or str(next(pathlib.Path(spec.origin).parent.glob("xllamacpp*.so"))))
        self.lib = c.CDLL(self.library)
        self.threads = threads
        for name, res, args in (
                ("llama_model_default_params", ModelParams, []), ("llama_context_default_params", ContextParams, []),
                ("llama_model_load_from_file", c.c_void_p, [c.c_char_p, ModelParams]),
                ("llama_init_from_model", c.c_void_p, [c.c_void_p, ContextParams]),
                ("llama_get_memory", c.c_void_p, [c.c_void_p]),
                ("llama_memory_seq_rm", c.c_bool, [c.c_void_p, c.c_int32, c.c_int32, c.c_int32]),
                ("llama_model_get_vocab", c.c_void_p, [c.c_void_p]), ("llama_vocab_n_tokens", c.c_int32, [c.c_void_p]),
                ("llama_decode", c.c_int32, [c.c_void_p, Batch]), ("llama_synchronize", None, [c.c_void_p]),
                ("llama_model_is_recurrent", c.c_bool, [c.c_void_p]), ("llama_model_is_hybrid", c.c_bool, [c.c_void_p]),
                ("llama_print_system_info", c.c_char_p, []), ("llama_backend_init", None, [])):
            f = getattr(self.lib, name)
            f.restype, f.argtypes = res, args
        p = self.lib.llama_context_default_params()
        m = self.lib.llama_model_default_params()
        seen = (p.n_batch, p.n_ubatch, p.n_seq_max, p.rope_scaling_type, p.flash_attn_type, p.type_k, p.type_v,
                p.offload_kqv, p.op_offload, p.kv_unified, p.n_samplers, m.vocab_only, m.use_extra_bufts, m.no_alloc)
        if seen != (2048, 512, 1, -1, -1, 1, 1, True, True, False, 0, False, True, False):
            raise SystemExit(f"peer.py does not know this version's structures: {seen}")
        self.settings = "as it comes"

    def load(self, path):
        self.lib.llama_backend_init()
        p = self.lib.llama_model_default_params()
        p.n_gpu_layers = 0
        self.model = self.lib.llama_model_load_from_file(path.encode(), p)
        if not self.model:
            raise SystemExit("llama.cpp does not load the model")
        self.goes_on = self.lib.llama_model_is_recurrent(self.model) or self.lib.llama_model_is_hybrid(self.model)
        return self.lib.llama_vocab_n_tokens(self.lib.llama_model_get_vocab(self.model))

    def context(self, n_ctx, n_seq):
        p = self.lib.llama_context_default_params()
        p.n_ctx, p.n_seq_max, p.n_batch, p.n_ubatch = n_ctx * n_seq, n_seq, BATCH, BATCH
        p.n_threads = p.n_threads_batch = self.threads
        ctx = self.lib.llama_init_from_model(self.model, p)
        if not ctx:
            raise SystemExit("llama.cpp makes no context")
        return ctx

    def keep(self, ctx, seq, n):
        """Only the first n tokens of a sequence."""
        if not self.lib.llama_memory_seq_rm(self.lib.llama_get_memory(ctx), seq, n, -1):
            raise SystemExit("llama.cpp does not forget")


# --- ik_llama.cpp: its package has the layouts ---

class Ik:
    package, Batch = "ik-llama-cpp-python", OldBatch
    # Its attention leaves out a block of keys whose first one the last row does not see, which is wrong for rows of
    # several sequences and ends in an assertion. Sequences with a common beginning never come to that.
    shares_base, goes_on = True, False

    def __init__(self, threads):
        from ik_llama_cpp import _ctypes_api as api
        self.api, self.lib, self.threads = api, api._lib, threads
        self.lib.llama_decode.argtypes = [c.c_void_p, OldBatch]
        self.lib.llama_kv_cache_seq_rm.argtypes = [c.c_void_p, c.c_int32, c.c_int32, c.c_int32]
        self.lib.llama_kv_cache_seq_rm.restype = c.c_bool
        self.lib.llama_synchronize.argtypes = [c.c_void_p]
        self.lib.llama_print_system_info.restype = c.c_char_p
        p, m = api.llama_context_default_params(), api.llama_model_default_params()
        seen = (p.n_ctx, p.n_batch, p.n_ubatch, p.rope_scaling_type, p.type_k, p.type_v, p.offload_kqv, p.flash_attn,
                p.fused_up_gate, p.graph_reuse, p.min_experts, m.use_mmap, m.repack_tensors, m.use_thp)
        if seen != (512, 2048, 512, -1, 1, 1, True, True, True, True, -1, True, False, False):
            raise SystemExit(f"peer.py does not know this version's structures: {seen}")
        self.settings, self.library = "-rtr 1 -thp 1", self.lib._name

    def load(self, path):
        self.api.llama_backend_init()
        p = self.api.llama_model_default_params()
        p.n_gpu_layers, p.repack_tensors, p.use_thp = 0, True, True
        self.model = self.api.llama_model_load_from_file(path.encode(), p)
        if not self.model:
            raise SystemExit("ik_llama.cpp does not load the model")
        return self.api.llama_vocab_n_tokens(self.api.llama_model_get_vocab(self.model))

    def context(self, n_ctx, n_seq):
        p = self.api.llama_context_default_params()
        p.n_ctx, p.n_seq_max, p.n_batch, p.n_ubatch = n_ctx * n_seq, n_seq, BATCH, BATCH
        p.n_threads = p.n_threads_batch = self.threads
        ctx = self.api.llama_init_from_model(self.model, p)
        if not ctx:
            raise SystemExit("ik_llama.cpp makes no context")
        return ctx

    def keep(self, ctx, seq, n):
        if not self.lib.llama_kv_cache_seq_rm(ctx, seq, n, -1):
            raise SystemExit("ik_llama.cpp does not forget")


# --- workloads, as in cpu.c ---

class Clock:
    """Of this process and of all, in processor seconds."""

    def __init__(self):
        self.wall, self.mine, self.busy, self.stolen = time.monotonic(), time.process_time(), 0.0, 0.0
        tick = os.sysconf("SC_CLK_TCK")
        try:
            with open("/proc/stat") as f:
                v = [int(x) / tick for x in f.readline().split()[1:9]]
            self.busy, self.stolen = v[0] + v[1] + v[2] + v[5] + v[6], v[7]
        except OSError:
            self.busy = self.mine

    def others(self):
        now = Clock()
        wall = now.wall - self.wall
        return {"others": max(0, now.busy - self.busy - (now.mine - self.mine)) / wall,
                "stolen": (now.stolen - self.stolen) / wall}


class Bench:
    def __init__(self, peer, path):
        self.peer, self.contexts, self.filled = peer, {}, {}
        at = time.monotonic()
        vocab = peer.load(path)
        self.tokens = [(i * 7919 + 13) % vocab for i in range(4096)]
        ctx = self.ctx("short", 256, 1)
        self.open_ms = 1e3 * (time.monotonic() - at)
        self.decode(ctx, [(self.tokens[0], 0, (0,), 1)])
        self.first_ms = 1e3 * (time.monotonic() - at)
        peer.keep(ctx, 0, 0)

    def hello(self):
        info = self.peer.lib.llama_print_system_info().decode()
        return {"peer": self.peer.package, "version": importlib.metadata.version(self.peer.package),
                "settings": self.peer.settings, "library": self.peer.library, "threads": self.peer.threads,
                "system_info": " ".join(info.split()), "open_ms": self.open_ms, "first_token_ms": self.first_ms}

    def ctx(self, name, n_ctx, n_seq):
        """One context a purpose: what one holds is not in another's way."""
        if name not in self.contexts:
            self.contexts[name] = self.peer.context(n_ctx, n_seq)
        return self.contexts[name]

    def decode(self, ctx, rows):
        """Milliseconds of one llama_decode."""
        batch = make_batch(self.peer.Batch, rows)
        at = time.perf_counter()
        rc = self.peer.lib.llama_decode(ctx, batch)
        self.peer.lib.llama_synchronize(ctx)
        ms = 1e3 * (time.perf_counter() - at)
        if rc != 0:
            raise SystemExit(f"llama_decode: {rc}")
        return ms

    def fill(self, ctx, seqs, n):
        """The first n tokens into empty sequences."""
        for s in seqs:
            self.peer.keep(ctx, s, 0)
        for group in [seqs] if self.peer.shares_base else [(s,) for s in seqs]:
            for at in range(0, n, BATCH):
                self.decode(ctx, [(self.tokens[i], i, group, 0) for i in range(at, min(n, at + BATCH))])

    def work(self, name, n):
        """A function that does one step and undoes it, and returns its milliseconds."""
        at = {"prefill": 0, "depth": n}.get(name, BASE)
        many = name == "sequences"
        n_seq = SEQS_MAX if many else 1
        purpose, room = {"prefill": ("fill", 1024), "depth": ("deep", 2048), "sequences": ("many", 256)}.get(
            name, ("short", 256))
        ctx = self.ctx(purpose, room, n_seq)
        if self.filled.get(ctx) != at:
            self.fill(ctx, tuple(range(n_seq)), at)
            self.filled[ctx] = at
        seqs = range(n) if many else range(1)
        if name in ("verify", "prefill"):
            rows = [(self.tokens[at + i], at + i, (0,), int(name == "verify" or i == n - 1)) for i in range(n)]
        else:
            rows = [(self.tokens[at + s], at, (s,), 1) for s in seqs]
        if self.peer.goes_on and name != "prefill":
            return self.onward(ctx, rows, tuple(range(n_seq)), at, room)

        def once():
            ms = self.decode(ctx, rows)
            for s in seqs:
                self.peer.keep(ctx, s, at)
            return ms
        return once

    def onward(self, ctx, rows, seqs, at, room):
        """Steps of the same tokens at positions that go on; from the beginning when the room ends."""
        moved, wide = 0, max(p for _, p, _, _ in rows) - at + 1
        self.fill(ctx, seqs, at)
        self.filled.pop(ctx, None)  # whoever comes next fills it

        def once():
            nonlocal moved
            if at + moved + wide > room:
                self.fill(ctx, seqs, at)
                moved = 0
            ms = self.decode(ctx, [(t, p + moved, s, w) for t, p, s, w in rows])
            moved += wide
            return ms
        return once

    def run(self, name, n, seconds):
        once = self.work(name, n)
        once()
        from_, ms = Clock(), []
        while len(ms) < STEPS_MAX and (len(ms) < STEPS_MIN or time.monotonic() - from_.wall < seconds):
            ms.append(once())
        return {"ms": statistics.median(ms), "ms_min": min(ms), "ms_max": max(ms), "steps": len(ms), **from_.others()}


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("kind", choices=["llama.cpp", "ik"])
    a.add_argument("model")
    a.add_argument("--threads", type=int, default=os.cpu_count())
    args = a.parse_args()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the library prints is not an answer
    bench = Bench({"llama.cpp": LlamaCpp, "ik": Ik}[args.kind](args.threads), args.model)
    print(json.dumps(bench.hello()), file=answers)
    for line in sys.stdin:
        name, n, seconds = line.split()
        print(json.dumps(bench.run(name, int(n), float(seconds))), file=answers)
    answers.flush()
    os._exit(0)  # its threads and buffers end with the process


if __name__ == "__main__":
    main()
