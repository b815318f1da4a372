#!/usr/bin/env python3
"""Conversions of models of real shapes, with random weights: time, memory, bytes, the plan for each chip, predicted residency.

    ./dev bench shapes [--shape NAME ...] [--type q8_0|q4_0] [--quant Q] [--profile P ...] [--layers N] [--threads N] [--keep] [--json]

Each model is written as a GGUF below .build/shapes, converted there, and removed; with --keep the GGUF stays for the next run.
Memory: the most of RssAnon + RssShmem, looked at fifty times a second: what is no file's, so without the mapped source.
Residency is that of the bundle made (its programs are divided for `law`, or for `cpu` where a layer is larger than law's
programs), judged for each chip; the plan is each chip's own, or why it has none. Models with experts take much disk: --layers N
makes the first N layers, each as wide as it is.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

import mkzaya
import mixtures
from mkgguf import Shape, cut, tensor_list, write

TOP = pathlib.Path(__file__).parents[2]
BIN = pathlib.Path(os.environ.get("ANED_BIN", TOP / ".build" / "release"))
ANED = BIN / "daemon" / "aned"
FOLDER = TOP / ".build" / "shapes"
ZAYA = "zaya1-8b"  # a folder of safetensors: no exporter writes GGUFs of it
PROFILES = [p["name"] for p in json.loads((TOP / "conf" / "ane-profiles.json").read_text())["profiles"]]


def llama3(n, base, factor=32.0, low=1.0, high=4.0, original=8192):
    """The divisors of frequencies that Llama 3.2's files carry, by the published formula."""
    turn = 2 * np.pi * base ** (np.arange(0, n, 2) / n)  # positions of a whole turn
    smooth = np.clip((original / turn - low) / (high - low), 0, 1)
    return 1 / ((1 - smooth) / factor + smooth)


# Published configurations; of Hy-MT and Phi also the public ane-book manifests. Parameters: --json counts them.
SHAPES = {
    "qwen3-1.7b": Shape("qwen3", 28, 2048, 16, 8, 128, 6144, 151936, rope_base=1e6, context=40960, qk_norm=True),
    "phi4-mini-3.8b": Shape(
        "phi3", 32, 3072, 24, 8, 128, 8192, 200064, rope_dim=96, eps=1e-5, context=131072, fused=True,
        tables={"rope_factors_long.weight": np.linspace(1, 48, 48), "rope_factors_short.weight": np.ones(48)},
        keys={"rope.scaling.original_context_length": 4096, "rope.scaling.attn_factor": 1.190238}),
    "hymt-1.8b": Shape("hunyuan-dense", 32, 2048, 16, 4, 128, 6144, 120818, rope_base=11158840.0, eps=1e-5, context=262144,
                       qk_norm=True),
    "llama3.2-1b": Shape("llama", 16, 2048, 32, 8, 64, 8192, 128256, rope_base=5e5, eps=1e-5, context=131072,
                         tables={"rope_freqs.weight": llama3(64, 5e5)}),
} | mixtures.shapes(Shape)


def shape_of(name, layers):
    if name == ZAYA:
        return dataclasses.replace(mkzaya.SHAPES["8b"], vocab=262272, layers=layers or mkzaya.SHAPES["8b"].layers)
    return cut(SHAPES[name], layers)


def parameters(shape):
    if isinstance(shape, mkzaya.Shape):
        return sum(int(np.prod(dims)) for _, (dims, *_) in mkzaya.tensors(shape))
    return sum(int(np.prod(dims)) for _, dims, kind in tensor_list(shape) if kind != "table")


def source(name, qtype, layers):
    """The GGUF, or zaya's folder, made once; written under another name first, so that what stands there is whole."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / (f"{name}-{qtype}" + (f"-{layers}" if layers else ""))
    if not path.exists():
        part = path.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        shape = shape_of(name, layers)
        if isinstance(shape, mkzaya.Shape):
            mkzaya.write(part, shape, seed=1)
        else:
            write(part, shape, qtype, seed=1)
        part.rename(path)
    return path


def bytes_of(path):
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file()) if path.is_dir() else path.stat().st_size


def remove(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()


class Watch(threading.Thread):
    """The most memory of a process that is no file's; bytes."""

    def __init__(self, pid):
        super().__init__()
        self.status, self.over = pathlib.Path(f"/proc/{pid}/status"), threading.Event()
        self.most, self.when = 0, 0.0

    def run(self):
        while not self.over.wait(0.02):
            try:
                text = self.status.read_text()
            except OSError:
                return
            now = 1024 * sum(int(n) for n in re.findall(r"Rss(?:Anon|Shmem):\s*(\d+)", text))
            if now > self.most:
                self.most, self.when = now, time.monotonic()


def convert(path, out, args):
    command = [ANED, "convert", path, "--out", out, "--quant", args.quant, "--accept", "quality,exactness"]
    command += ["--threads", args.threads] if args.threads else []
    if plan(path, "law", args.quant).get("refused"):
        command += ["--profile", "cpu", "--context", 4096]
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as log:
        p = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        w = Watch(p.pid)
        w.start()
        _, state, use = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(state)
        wall = time.monotonic() - began
        w.over.set()
        w.join()
        log.seek(0)
        text = log.read()
    if p.returncode:
        raise SystemExit(f"{path.name}: aned convert: exit {p.returncode}\n{text}")
    gates = dict(re.findall(r"^  (\w+) +(passed|warned|failed|not run)", text, re.M))
    return {"wall_s": wall, "cpu_s": use.ru_utime + use.ru_stime, "memory": w.most, "memory_after_s": w.when - began,
            "gates": gates, "said": text}


def ask(*args, refused=False):
    """What it prints; where it may refuse, the error's text."""
    r = subprocess.run([str(ANED), *map(str, args), "--json"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if r.returncode and not refused:
        raise SystemExit(f"aned {' '.join(map(str, args))}: exit {r.returncode}\n{r.stderr}")
    return r.stderr.strip() if r.returncode else json.loads(r.stdout)


def plan(path, profile, quant):
    j = ask("plan", path, "--profile", profile, "--quant", quant, refused=True)
    if isinstance(j, str):
        return {"refused": j}
    return {"experts": j.get("experts"),
            "layers": [s["last"] - s["first"] for s in j["layers"]], "heads": len(j["heads"]), "resident": j["resident"],
            "resident_bytes": j["resident_bytes"], "tokens_per_s": j["steps"][0]["tokens_per_s"], "limited_by": j["limited_by"]}


def residency(bundle, profile):
    j = ask("residency", bundle, "--profile", profile)
    plans = [f["function"]["plan"] for f in j["functions"]]
    total = sum(p["operations"] for p in plans)
    return {"operations": total, "on": sum(p["on_neural_engine"] for p in plans), "unknown": sum(p["unknown"] for p in plans),
            "verdict": j["summary"]["verdict"], "reasons": j["summary"]["reasons"]}


def measure(name, args):
    path = source(name, args.type, args.layers)
    work = pathlib.Path(tempfile.mkdtemp(prefix="bundle-", dir=FOLDER))
    try:
        found = {"shape": name, "parameters": parameters(shape_of(name, args.layers)), "source_bytes": bytes_of(path)}
        found |= convert(path, work / "b", args)
        found["bundle_bytes"] = sum(p.stat().st_size for p in work.rglob("*") if p.is_file())
        found["plans"] = {p: plan(path, p, args.quant) for p in args.profile}
        found["residency"] = {p: residency(work / "b", p) for p in args.profile}
    finally:
        shutil.rmtree(work)
        if not args.keep:
            remove(path)
    return found


def row(*cells):
    print("| " + " | ".join(str(c) for c in cells) + " |")


def groups(sizes):
    """[8, 8, 7] -> "2 x 8 + 7": neighbours of one size together."""
    out = []
    for n in sizes:
        if out and out[-1][1] == n:
            out[-1][0] += 1
        else:
            out.append([1, n])
    return " + ".join(f"{k} x {n}" if k > 1 else str(n) for k, n in out)


def show(found, args):
    gb = 1e9
    print(f"source {args.type}, quant {args.quant}, {args.threads or os.cpu_count()} threads\n")
    row("shape", "parameters", "source GB", "convert s", "CPU s", "memory MiB (after s)", "bundle GB", "gates")
    row(*["---"] * 8)
    for f in found:
        gates = ", ".join(f"{k} {v}" for k, v in f["gates"].items() if v != "passed") or "all passed"
        row(f["shape"], f"{f['parameters'] / 1e9:.2f} G", f"{f['source_bytes'] / gb:.2f}", f"{f['wall_s']:.1f}", f"{f['cpu_s']:.1f}",
            f"{f['memory'] / 2**20:.0f} ({f['memory_after_s']:.0f})", f"{f['bundle_bytes'] / gb:.2f}", gates)
    print()
    row("shape", "profile", "layers a program", "heads", "resident GB", "predicted tok/s", "limited by",
        "on the Neural Engine, as divided for law")
    row(*["---"] * 8)
    for f in found:
        for name in args.profile:
            p, r = f["plans"][name], f["residency"][name]
            if "refused" in p:
                row(f["shape"], name, "none: " + p["refused"].split(". ")[0], *["-"] * 5)
                continue
            limits = ", ".join(sorted({str(v) for v in p["limited_by"].values() if v})) or "-"
            speed = "{:.0f} to {:.0f}".format(*p["tokens_per_s"]) if p["tokens_per_s"] else "not known"
            why = f": {r['reasons'][0]}" if r["reasons"] else ""
            row(f["shape"], name, groups(p["layers"]), p["heads"], f"{p['resident_bytes'] / gb:.2f} {p['resident']}",
                speed, limits, f"{r['on']} of {r['operations']}, {r['verdict']}{why}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shape", nargs="+", choices=[*SHAPES, ZAYA], default=[n for n, s in SHAPES.items() if not s.experts],
                   help="default: those without experts")
    p.add_argument("--type", choices=["q8_0", "q4_0"], default="q8_0", help="of the source's matrices")
    p.add_argument("--quant", default="int8")
    p.add_argument("--profile", nargs="+", choices=PROFILES, default=PROFILES)
    p.add_argument("--layers", type=int, help="only the first N")
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--keep", action="store_true", help="leave the GGUFs in .build/shapes")
    p.add_argument("--json", action="store_true")
    args = p.parse_args()
    found = []
    for name in args.shape:
        found.append(measure(name, args))
        print(f"{name}: {found[-1]['wall_s']:.1f} s", file=sys.stderr)
    if args.json:
        print(json.dumps(found, indent=1))
    else:
        show(found, args)


if __name__ == "__main__":
    main()
