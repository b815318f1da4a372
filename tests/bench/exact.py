#!/usr/bin/env python3
"""Does anything change a stream? `./dev bench exact [--model demo|stories|gemma2|lfm2|zaya|longrope|gemma] [--cells N] [--seed S] [--json]`

Every cell of

  greedy | seeded           temperature 0, or 1 with a seed
  drafts 0, 2 .. 8          [speculation] max_draft
  sessions 1, 4, 16         streams at the same time, each with a prompt of its own
  chunk 1, 7, 64, 512       [engine] prefill_chunk
  threads 1, 2              [engine] threads
  cold                      nothing warm
  forked                    another conversation with the same beginning is warm, and continued
  restored                  the same prompts were computed before the daemon was started anew
  killed                    the engine is killed (SIGKILL) while the streams run

asks a daemon for the streams and compares them, byte by byte, with those of one daemon without drafts, one thread and one
stream at a time, where nothing was warm. Without --cells: the full product (1536 cells); with it, that many, chosen so that
every pair of levels occurs. Printed is the matrix: cells that were identical of those that ran, by start and drafts, by
chunk and sessions; how many drafts were accepted; and how many prompt tokens came from warm state. Exit code 1: a
difference, or a start that was not what it should be (nothing forked, restored or killed).
"""
import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from conftest import BIN, SHARED, TOP, Daemon  # noqa: E402
from gguf_copy import with_original  # noqa: E402

import mkzaya  # noqa: E402

AXES = {
    "sampling": ["greedy", "seeded"],
    "drafts": [0, 2, 3, 4, 5, 6, 7, 8],
    "sessions": [1, 4, 16],
    "chunk": [1, 7, 64, 512],
    "threads": [1, 2],
    "start": ["cold", "forked", "restored", "killed"],
}
CONFIG = ("drafts", "chunk", "threads")  # these need a daemon of their own

# model -> source, context, characters of a prompt, tokens of a stream. Prompts repeat themselves, so that there is
# something to draft; gemma's are longer than its window of 512 tokens,
# those of the tiny gemma2 (soft caps) than its 32. lfm2 has short convolutions, whose states are cut at few places; so have zaya's
# (mkzaya.py makes it). longrope is the tiny phi3 with LONGROPE as its original
# context.
MODELS = {
    "demo": (TOP / "conf/demo/aned-demo.gguf", 1024, 420, 24),
    "stories": (SHARED / "data/models/derived/stories260K.F32.gguf", 128, 150, 24),
    "gemma2": (SHARED / "data/families/gemma2/a/model.gguf", 512, 300, 24),
    "lfm2": (SHARED / "data/families/lfm2/a/model.gguf", 512, 300, 24),
    "zaya": (None, 512, 300, 24),
    "longrope": (SHARED / "data/families/phi3/a/model.gguf", 512, 300, 24),
    "gemma": (TOP / ".build/models/gemma-3-270m-q4_k_m.gguf", 1024, 2300, 24),
}
FEW = {"lfm2": (30, 60, 90), "zaya": (30, 60, 90)}  # of random weights: it draws only these, so that its text repeats itself
LONGROPE = 201  # tokens; prompts have 193 to 202: most grow past it at once, some begin beyond it
WORDS = "the daemon keeps every small conversation warm and answers once when a stream of tokens comes back".split()


def prompt(i, chars):
    """Prompt i: a sentence of its own, then one that all share, again and again with small changes."""
    r = random.Random(1000 + i)
    shared = " ".join(random.Random(7).choices(WORDS, k=12))
    out = f"{i} " + " ".join(r.choices(WORDS, k=6)) + ". "
    while len(out) < chars:
        out += f"{shared} {r.choice(WORDS)}. "
    return out[:chars]


def body(args, model, i, sampling, n, reuse, stream=False):
    b = {"model": model, "prompt": prompt(i, args.chars), "max_tokens": n, "ignore_eos": True, "cache_prompt": reuse,
         "stream": stream, "seed": 40 + i, "temperature": 0 if sampling == "greedy" else 1}
    if args.model in FEW:
        b["logit_bias"] = {str(token): 60 for token in FEW[args.model]}
    if stream:
        b["stream_options"] = {"include_usage": True}
    return b


def generate(d, b):
    """(text, usage) of one stream."""
    text, usage = "", {}
    with d.http(600) as c, c.stream("POST", "/v1/completions", json=b) as r:
        if r.status_code != 200:
            raise RuntimeError(f"{r.status_code} {r.read()[:300]}")
        for line in r.iter_lines():
            if line.startswith("data: {"):
                e = json.loads(line[6:])
                if "error" in e:
                    raise RuntimeError(line)
                text += "".join(x["text"] for x in e["choices"])
                usage = e.get("usage") or usage
    return text, usage


def kill_engine(d, after):
    time.sleep(after)
    pids = d.engines()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return len(pids)


def cells(args):
    product = [dict(zip(AXES, c)) for c in itertools.product(*AXES.values())]
    if not args.cells:
        return product
    r = random.Random(args.seed)
    left = {((a, x), (b, y)) for a, b in itertools.combinations(AXES, 2) for x in AXES[a] for y in AXES[b]}
    out = []
    while len(out) < args.cells:
        best = max(r.sample(product, 200), key=lambda c: sum(p in left for p in itertools.combinations(c.items(), 2)))
        left -= set(itertools.combinations(best.items(), 2))
        out.append(best)
    if left:
        print(f"{len(left)} pairs of levels are not covered: more --cells", file=sys.stderr)
    return out


class Run:
    def __init__(self, args):
        self.args = args
        self.source, self.context, args.chars, args.tokens = MODELS[args.model]
        self.d = Daemon(str(BIN / "daemon" / "aned"))
        if args.model == "longrope":
            self.source = with_original(self.source, self.d.dir / "longrope.gguf", LONGROPE)
        if args.model == "zaya":
            self.source = mkzaya.write(self.d.dir / "zaya")
        job = self.d.convert(self.source, "m", context=self.context)
        assert job["state"] == "done", job
        self.want = {}
        self.accepted = self.rejected = self.warm = self.kills = 0
        self.solo_s = 0

    def restart(self, drafts=0, chunk=0, threads=1, disk=0):
        """The daemon anew with other settings, on the same home."""
        self.d.stop()
        calm = self.d.dir / "calm"  # what is warm stays so, whatever else this machine does
        calm.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
        (self.d.home / "aned.conf").write_text(
            f"[engine]\nthreads = {threads}\nprefill_chunk = {chunk}\n[speculation]\nmax_draft = {drafts}\n"
            f"[cache]\ndisk_mib = {disk}\ndisk_tokens = 64\n[limits]\npressure_file = {calm}\n")
        self.d.start()

    def reference(self):
        self.restart()
        for sampling in AXES["sampling"]:
            for i in range(max(AXES["sessions"])):
                b = body(self.args, "m", i, sampling, self.args.tokens, False)
                with self.d.http(600) as c:
                    t = time.monotonic()
                    r = c.post("/v1/completions", json=b)
                    assert r.status_code == 200, r.text
                    self.solo_s = time.monotonic() - t
                    self.want[sampling, i] = r.json()["choices"][0]["text"]

    def streams(self, cell, reuse):
        n = cell["sessions"]
        with concurrent.futures.ThreadPoolExecutor(n + 1) as pool:
            jobs = [pool.submit(generate, self.d, body(self.args, "m", i, cell["sampling"], self.args.tokens, reuse, True))
                    for i in range(n)]
            if cell["start"] == "killed":
                kills = pool.submit(kill_engine, self.d, self.solo_s * random.Random(str(cell)).uniform(0.1, 0.9))
            got = [j.result() for j in jobs]
            if cell["start"] == "killed":
                self.kills += kills.result()
        return got

    def begin(self, cell):
        """What must have happened before the cell's streams."""
        n = cell["sessions"]
        if cell["start"] == "killed":  # with a clean record of crashes, and an engine to kill
            self.restart(*(cell[k] for k in CONFIG))
            generate(self.d, dict(body(self.args, "m", 99, "greedy", 1, False, True), prompt="x"))
        if cell["start"] == "forked":
            for i in range(n):
                generate(self.d, body(self.args, "m", i, "greedy", 2, True, True))
        if cell["start"] == "restored":
            self.restart(*(cell[k] for k in CONFIG), disk=1024)
            for i in range(n):
                generate(self.d, body(self.args, "m", i, "greedy", 2, True, True))
            self.restart(*(cell[k] for k in CONFIG), disk=1024)

    def cell(self, cell):
        """None, or what is wrong."""
        self.begin(cell)
        warm = cell["start"] in ("forked", "restored")
        got = self.streams(cell, warm)
        cached = 0
        for i, (text, usage) in enumerate(got):
            details = usage.get("completion_tokens_details") or {}
            self.accepted += details.get("accepted_prediction_tokens", 0)
            self.rejected += details.get("rejected_prediction_tokens", 0)
            cached += (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            if text != self.want[cell["sampling"], i]:
                return f"stream {i}: {text!r} instead of {self.want[cell['sampling'], i]!r}"
        self.warm += cached
        if warm and cached == 0:
            return "nothing was warm"
        if not warm and cell["start"] == "cold" and cached > 0:
            return f"{cached} tokens were warm"
        return None


def table(done, rows, cols):
    print(f"\n{rows + ' / ' + cols:20}" + "".join(f"{str(c):>10}" for c in AXES[cols]))
    for r in AXES[rows]:
        line = f"{str(r):20}"
        for c in AXES[cols]:
            these = [ok for cell, ok in done if cell[rows] == r and cell[cols] == c]
            line += f"{f'{sum(these)}/{len(these)}':>10}"
        print(line)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--model", default="demo", choices=list(MODELS))
    a.add_argument("--cells", type=int, default=0)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--json", action="store_true")
    args = a.parse_args()
    source = MODELS[args.model][0]
    if source is not None and not source.exists():
        sys.exit(f"exact: no {source.name} here")
    began = time.monotonic()
    todo = sorted(cells(args), key=lambda c: tuple(c[k] for k in CONFIG) + (AXES["start"].index(c["start"]),))
    run = Run(args)
    done = []
    config = None
    try:
        run.reference()
        for i, cell in enumerate(todo):
            if config != tuple(cell[k] for k in CONFIG) or done and done[-1][0]["start"] == "restored":
                config = tuple(cell[k] for k in CONFIG)
                run.restart(*config)
            if sys.stderr.isatty():
                print(f"\rcell {i + 1} of {len(todo)}", end="", file=sys.stderr)
            wrong = run.cell(cell)
            if wrong:
                print(f"{cell}: {wrong}", file=sys.stderr)
            done.append((cell, wrong is None))
    finally:
        run.d.close()
    good = sum(ok for _, ok in done)
    missing = [what for what, n in (("drafts accepted", run.accepted), ("warm tokens", run.warm), ("engines killed", run.kills))
               if n == 0]
    summary = {"model": args.model, "cells": len(done), "identical": good, "drafts_accepted": run.accepted,
               "drafts_rejected": run.rejected, "warm_tokens": run.warm, "engines_killed": run.kills,
               "seconds": round(time.monotonic() - began, 1)}
    if args.json:
        print(json.dumps(summary))
    else:
        table(done, "start", "drafts")
        table(done, "chunk", "sessions")
        table(done, "sampling", "threads")
        print(f"\n{args.model}: {len(done)} cells, {good} identical; drafts accepted {run.accepted}, rejected {run.rejected}; "
              f"{run.warm} prompt tokens were warm; {run.kills} engines killed; {summary['seconds']} s")
    if missing:
        print(f"no {', no '.join(missing)}: that part was not shown", file=sys.stderr)
    sys.exit(good != len(done) or bool(missing))


if __name__ == "__main__":
    main()
