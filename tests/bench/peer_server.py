#!/usr/bin/env python3
"""A peer's own n-gram speculation: `peer_server.py llama.cpp|ik MODEL.gguf --threads N --context N`.

Runs in a venv that holds the peer's Python package. The first answer says what the peer offers and where that was looked
for. Then a line {"type": NAME or "none"} starts its server anew, with nothing learned from earlier texts, and a line
{"prompt": TEXT, "tokens": N} continues a text greedily. bench_speculation.py starts it.
"""
import argparse
import importlib.metadata
import json
import os
import sys

NGRAM = "COMMON_SPECULATIVE_TYPE_NGRAM_"


class LlamaCpp:
    """llama-server as the package xllamacpp has it: called in this process, listening on loopback only."""
    package = "xllamacpp"
    looked = "xllamacpp.common_speculative_type and CommonParams.speculative"

    def __init__(self, args):
        import xllamacpp
        self.x, self.args, self.server = xllamacpp, args, None
        types = getattr(xllamacpp, "common_speculative_type", None)
        able = types is not None and hasattr(xllamacpp.CommonParams(), "speculative")
        self.types = {f"ngram-{n.removeprefix(NGRAM).lower().replace('_', '-')}": getattr(types, n)
                      for n in sorted(dir(types)) if able and n.startswith(NGRAM)}

    def start(self, kind):
        self.server = None
        p = self.x.CommonParams()
        p.model.path, p.n_ctx, p.n_parallel, p.n_gpu_layers = self.args.model, self.args.context, 1, 0
        p.cpuparams.n_threads = p.cpuparams_batch.n_threads = self.args.threads
        p.hostnames, p.port, p.fit_params, p.verbosity = ["127.0.0.1"], 0, False, 0
        if kind != "none":
            p.speculative.types = [self.types[kind]]
        self.server = self.x.Server(p)

    def complete(self, prompt, tokens):
        r = self.server.handle_completions({"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True})
        r = json.loads(r) if isinstance(r, (str, bytes)) else r
        t = r["timings"]
        return {"text": r["choices"][0]["text"], "rate": t["predicted_per_second"], "drafted": t.get("draft_n", 0),
                "accepted": t.get("draft_n_accepted", 0)}


class Ik:
    package = "ik-llama-cpp-python"
    looked = "names with ngram, lookup or specul in ik_llama_cpp and the library it calls; it brings no server"

    def __init__(self, _args):
        import ik_llama_cpp
        from ik_llama_cpp import _ctypes_api as api
        names = {*dir(ik_llama_cpp), *dir(api), *dir(getattr(ik_llama_cpp, "Llama", None))}
        self.types = {n: n for n in sorted(names) if any(w in n.lower() for w in ("ngram", "lookup", "specul"))}


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("kind", choices=["llama.cpp", "ik"])
    a.add_argument("model")
    a.add_argument("--threads", type=int, default=os.cpu_count())
    a.add_argument("--context", type=int, default=4096)
    args = a.parse_args()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the library prints is not an answer
    peer = {"llama.cpp": LlamaCpp, "ik": Ik}[args.kind](args)
    print(json.dumps({"peer": f"{args.kind} ({peer.package} {importlib.metadata.version(peer.package)})",
                      "offers": list(peer.types), "looked": peer.looked}), file=answers)
    for line in sys.stdin:
        j = json.loads(line)
        if "type" in j:
            peer.start(j["type"])
        print(json.dumps({} if "type" in j else peer.complete(j["prompt"], j["tokens"])), file=answers)
    answers.flush()
    os._exit(0)  # its threads and buffers end with the process


if __name__ == "__main__":
    main()
