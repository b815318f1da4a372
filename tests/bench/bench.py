#!/usr/bin/env python3
"""Measure aned end to end: `./dev bench [MODEL ...] [--json] [--rounds N]`.

MODEL: demo (default), gemma (fetched by ./dev demo gemma), 0.5b (random weights in the shape of Qwen2.5-0.5B, made by
mkgguf.py). Printed for each: conversion time and the worker's own memory (RssAnon, without the mapped source), load
time, prefill and decode speed of one HTTP stream, and what the daemon adds to a token (wall time less the engine's own
step time). And once: start-up time, idle memory and idle CPU. Medians of --rounds runs; the machine is named.
"""
import argparse
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from conftest import BIN, TOP, Daemon  # noqa: E402

PROMPT = "Once upon a time there was a small daemon that lived on a Unix socket and kept every conversation warm. "


def machine():
    name = "unknown"
    if os.path.exists("/proc/cpuinfo"):
        m = re.search(r"model name\s*:\s*(.*)", open("/proc/cpuinfo").read())
        name = m.group(1) if m else name
    return f"{name}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"


def source(model, kind="q8_0"):
    """The model's file; of a shape one with random weights, of a `kind` that mkgguf.py knows."""
    models = TOP / ".build" / "models"
    if model == "demo":
        return sorted((TOP / "conf" / "demo").glob("*.gguf"))[0]
    if model == "gemma":
        p = models / "gemma-3-270m-q4_k_m.gguf"
        return p if p.exists() else sys.exit("gemma is not there: ./dev demo gemma fetches it")
    p = models / (f"{model}.gguf" if kind == "q8_0" else f"{model}-{kind}.gguf")
    if not p.exists():
        models.mkdir(parents=True, exist_ok=True)
        part = p.with_suffix(".part")
        # as llama-quantize has it: Q6_K takes rows of a multiple of 256
        head = ["--head", "q8_0" if model == "0.5b" else "q6_k"] if kind == "q4_0" else []
        subprocess.run([sys.executable, str(TOP / "tests/bench/mkgguf.py"), model, str(part), "--type", kind, *head], check=True)
        part.rename(p)
    return p


def convert(aned, src, out, context):
    """Seconds and peak RssAnon in MiB of `aned convert`."""
    t = time.monotonic()
    p = subprocess.Popen([aned, "convert", str(src), "--out", str(out), "--context", str(context)],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0
    while p.poll() is None:
        try:
            m = re.search(r"RssAnon:\s*(\d+)", open(f"/proc/{p.pid}/status").read())
            peak = max(peak, int(m.group(1)) if m else 0)
        except OSError:
            pass
        time.sleep(0.01)
    assert p.returncode == 0, "aned convert failed"
    return time.monotonic() - t, peak / 1024


def counters(d):
    with d.http() as c:
        return {k: float(v) for k, v in re.findall(r"^(aned_\w+)(?:\{\})? ([0-9.e+-]+)$", c.get("/metrics").text, re.M)}


def stream(d, model, prompt, n, seed=1):
    """One stream of n tokens: seconds to the first token, seconds after it, usage."""
    body = {"model": model, "prompt": prompt, "max_tokens": n, "ignore_eos": True, "temperature": 0, "stream": True,
            "seed": seed, "stream_options": {"include_usage": True}}
    first = usage = None
    with d.http() as c:
        c.get("/health")  # connected, and httpx has made what it makes once
        t = time.monotonic()
        with c.stream("POST", "/v1/completions", json=body) as r:
            if r.status_code != 200:
                sys.exit(r.read().decode())
            for line in r.iter_lines():
                if not line.startswith("data: {"):
                    continue
                e = json.loads(line[6:])
                if first is None and e["choices"]:
                    first = time.monotonic() - t
                usage = e.get("usage") or usage
            end = time.monotonic() - t
    return first, end - first, usage


def bench_start(aned, rounds):
    starts, rss = [], 0
    for _ in range(rounds):
        t = time.monotonic()
        d = Daemon(aned)
        starts.append(time.monotonic() - t)
        rss = d.rss_kib() / 1024
        d.close()
    return {"start_ms": round(1000 * statistics.median(starts), 1), "idle_rss_mib": round(rss, 1)}


def bench_model(aned, model, rounds, tokens, context):
    src = source(model)
    with tempfile.TemporaryDirectory() as tmp:
        runs = [convert(aned, src, f"{tmp}/b{i}", context) for i in range(1 if model == "0.5b" else 3)]
    d = Daemon(aned)
    try:
        job = d.convert(src, model, context=context)
        assert job["state"] == "done", job
        t = time.monotonic()
        with d.http() as c:
            r = c.post(f"/aned/v1/models/{model}/load")
            assert r.status_code < 300, r.text
            while c.get(f"/aned/v1/models/{model}").json()["state"] != "loaded":
                time.sleep(0.005)
        load = time.monotonic() - t
        stream(d, model, "warm up", 4)
        decode, prefill, overhead = [], [], []
        for i in range(rounds):
            a = counters(d)
            first, rest, usage = stream(d, model, f"{i} " + PROMPT * 4, tokens)
            wall = first + rest
            b = counters(d)
            new = usage["prompt_tokens"] - usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
            prefill.append(new / first)
            decode.append((usage["completion_tokens"] - 1) / rest)
            engine = b["aned_step_seconds_sum"] - a["aned_step_seconds_sum"]
            overhead.append(1e6 * (wall - engine) / usage["completion_tokens"])
        with d.http() as c:
            status = c.get(f"/aned/v1/models/{model}").json()
        time.sleep(0.5)
        rss = sum(int(re.search(r"VmRSS:\s*(\d+)", open(f"/proc/{p}/status").read()).group(1)) for p in d.engines())
        return {"model": model, "source_mib": round(src.stat().st_size / 2**20, 1),
                "context": context,
                "convert_s": round(statistics.median(r[0] for r in runs), 2),
                "convert_rss_anon_mib": round(max(r[1] for r in runs), 1), "load_s": round(load, 3),
                "engine_rss_mib": round(rss / 1024, 1), "bundle_mib": round(status.get("bytes", 0) / 2**20, 1),
                "prefill_tok_s": round(statistics.median(prefill), 1),
                "decode_tok_s": round(statistics.median(decode), 1),
                "daemon_us_per_token": round(statistics.median(overhead), 1)}
    finally:
        d.close()


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("models", nargs="*", default=["demo"])
    a.add_argument("--json", action="store_true")
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--tokens", type=int, default=64)
    a.add_argument("--context", type=int, default=1024)
    args = a.parse_args()
    aned = str(BIN / "daemon" / "aned")
    out = {"machine": machine(), **bench_start(aned, args.rounds), "models": []}
    for m in args.models:
        out["models"].append(bench_model(aned, m, args.rounds, args.tokens, args.context))
    if args.json:
        print(json.dumps(out, indent=2))
        return
    print(out["machine"])
    print(f"start-up {out['start_ms']} ms, idle RSS {out['idle_rss_mib']} MiB")
    for m in out["models"]:
        print(f"\n{m.pop('model')}")
        for k, v in m.items():
            print(f"  {k:22} {v}")


if __name__ == "__main__":
    main()
