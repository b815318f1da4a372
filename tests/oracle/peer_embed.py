#!/usr/bin/env python3
"""Vectors by llama.cpp: `peer_embed.py MODEL.gguf TEXTS.json OUT.json`. Runs in a Python that has xllamacpp. Each text has a run of
its own."""
import json
import sys

import xllamacpp as x


def main():
    model, texts, out = sys.argv[1:]
    p = x.CommonParams()
    p.model.path = model
    p.embedding, p.pooling_type = True, x.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    p.n_ctx = p.n_batch = p.n_ubatch = 512
    p.n_parallel, p.warmup = 1, False
    p.cpuparams.n_threads = 2
    server = x.Server(p)
    vectors = [server.handle_embeddings({"input": [t], "model": "m"})["data"][0]["embedding"] for t in json.load(open(texts))]
    json.dump(vectors, open(out, "w"))


main()
