#!/usr/bin/env python3
"""What it costs that answers keep to a schema.

    ./dev bench constrain [--shape gemma|0.5b|demo] [--rounds 3] [--tokens 64] [--peer llama.cpp] [--only NAME] [--json]

Masks: for each schema an answer of ours, token by token: processor time of one thread for the mask, the first time (cold) and
again; for checking one token that was drawn, which every token costs; for a draw from all, and for one more draw from the mask,
which comes on top where the first was not allowed (tests/bench/constrain.c). With --peer the same tokens through llama.cpp's
grammar of the same schema (GBNF, by its own converter), and through llguidance, which its package also has. Goals at 151,936
tokens: 50 us in the median, 1 ms at worst. The vocabulary of 0.5b is made up (tests/bench/mkgguf.py): every pair of letters is a
token, which few real ones have.

Rates: tokens a second from the first to the last, temperature 1, seeded, one stream, one thread: without a schema, with one and no
drafts, with one and drafts of what must come next; and the peer's without and with one. Rounds take turns; medians.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "constrain"))
import asking  # noqa: E402
import schemas  # noqa: E402
from bench import BIN, Daemon, machine, source  # noqa: E402
from conftest import TOP  # noqa: E402

NAMES = ("pydantic Person", "pydantic Moments", "pydantic Reasoning", "pydantic Owner", "strict Customer", "strict Texts",
         "object any", "enum long", "long text", "tree", "json of json", "format email", "format uri", "string",
         'number {"minimum": -90, "maximum": 90}')
RATES = ("pydantic Person", "pydantic Moments", "strict Texts", "object any")
PROMPT = asking.PROMPT
FEW = 8  # requests that may be put together to get the wanted tokens


class Program:
    """A program that answers a line of JSON with one."""

    def __init__(self, *argv, **env):
        self.p = subprocess.Popen([str(x) for x in argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  text=True, env=dict(os.environ, **env))

    def ask(self, what):
        self.p.stdin.write(json.dumps(what) + "\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        return json.loads(line) if line else sys.exit(f"it ended: {self.p.args}")

    def close(self):
        self.p.stdin.close()
        self.p.wait(60)


class Peers:
    """llama.cpp built for this machine, with GBNF; its package's own library, with llguidance, which also converts schemas."""

    def __init__(self, path):
        python = TOP / ".build/venv-peer-llama.cpp/bin/python"
        native = next((TOP / ".build/peer-llama.cpp").glob("build/**/libllama.so"), None)
        argv = (python, pathlib.Path(__file__).with_name("peer_constrain.py"), path, "--threads", 1)
        self.llguidance = Program(*argv, "--gbnf", TOP / ".build/peer-gbnf.so")
        self.gbnf = Program(*argv, **({"LLAMA_CPP_LIB_PATH": str(native)} if native else {}))

    def grammars(self, schema):
        """(program, its grammar) by name."""
        text = self.llguidance.ask({"op": "gbnf", "schema": schema})["gbnf"]
        out = {"llguidance": (self.llguidance, {"schema": schema})}
        return {"GBNF": (self.gbnf, {"gbnf": text}), **out} if text else out

    def close(self):
        self.gbnf.close()
        self.llguidance.close()


def daemons(shape):
    """A daemon without drafts and one with, on the same bundle."""
    out = [Daemon(str(BIN / "daemon/aned")), Daemon(str(BIN / "daemon/aned"))]
    job = out[0].convert(source(shape), "m", context=1024)
    assert job["state"] == "done", job
    for d, drafts in zip(out, (0, 8)):
        d.stop()
        (d.home / "aned.conf").write_text(f"[engine]\nthreads = 1\n[speculation]\nmax_draft = {drafts}\n")
    if (out[1].home / "models").is_dir():
        (out[1].home / "models").rmdir()
    (out[1].home / "models").symlink_to(out[0].home / "models")
    for d in out:
        d.start()
    return out


# --- masks ---

def summary(us):
    us = sorted(us)
    return {"n": len(us), "median": us[len(us) // 2], "p99": us[min(len(us) - 1, len(us) * 99 // 100)], "most": us[-1]}


def text_of(d, schema, bias):
    text, _ = asking.ask(d, "completions", schema, "m", max_tokens=80, temperature=1, seed=3, logit_bias=bias)
    return text


def masks(d, ours, peers, todo, rounds):
    bias = asking.closers(d, "m")
    rows, total = [], {}
    for name, schema in todo.items():
        text = text_of(d, schema, bias)
        row, runs = {"schema": name}, [ours.ask({"schema": schema, "text": text}) for _ in range(rounds)]
        if "error" in runs[0]:
            sys.exit(f"{name}: {runs[0]['error']}: {text!r}")
        for part in ("cold", "again", "check", "draw", "masked"):  # of each place the median of the rounds
            us = [statistics.median(x) for x in zip(*(r[part] for r in runs))]
            row[part] = summary(us)
            total.setdefault(part, []).extend(us)
        for kind, (program, grammar) in (peers.grammars(schema) if peers else {}).items():
            got = program.ask({"op": "masks", "grammar": grammar, "tokens": runs[0]["tokens"]})
            row[kind] = {"error": got["error"]} if "error" in got else summary(got["cold"])
            if "error" not in got:
                total.setdefault(kind, []).extend(got["cold"])
                total.setdefault(f"{kind} check", []).extend(a + b for a, b in zip(got["check"], got["move"]))
        rows.append(row)
        print_masks(row)
    return rows, {k: summary(v) for k, v in total.items()}


def print_masks(row):
    line = f"{row['schema'][:28]:28} {row['cold']['n']:4} tokens: mask {row['cold']['median']:6.1f} us ({row['cold']['most']:6.0f} at " \
           f"most), again {row['again']['median']:4.1f}, check {row['check']['median']:4.1f}"
    for kind in ("GBNF", "llguidance"):
        if kind in row:
            x = row[kind]
            line += f" | {kind} " + (x["error"] if "error" in x else f"{x['median']:8.1f} ({x['most']:8.0f})")
    print(line, flush=True)


# --- rates ---

def our_rate(d, schema, tokens, seed):
    """Tokens a second of so many tokens, of one answer or of several."""
    n = seconds = 0
    for i in range(FEW):
        body = {"model": "m", "prompt": PROMPT, "max_tokens": tokens, "temperature": 1, "seed": seed + i, "stream": True,
                "stream_options": {"include_usage": True}, **({"json_schema": schema} if schema else {"ignore_eos": True})}
        times, usage = [], {}
        with d.http(300) as c, c.stream("POST", "/v1/completions", json=body) as r:
            for line in asking.lines(r):
                if line.startswith(b"data: {"):
                    e = json.loads(line[6:])
                    usage = e.get("usage") or usage
                    if e["choices"] and e["choices"][0]["text"]:
                        times.append(time.monotonic())
        if len(times) > 1:
            n += usage["completion_tokens"] - 1
            seconds += times[-1] - times[0]
        if n >= tokens - 1:
            break
    return n / seconds if seconds else 0


def peer_rate(program, grammar, prompt, tokens, seed):
    n = seconds = 0
    for i in range(FEW):
        got = program.ask({"op": "stream", "grammar": grammar, "prompt": prompt, "tokens": tokens, "seed": seed + i})
        if "error" in got:
            return 0
        n += max(0, got["tokens"] - 1)
        seconds += got["seconds"]
        if n >= tokens - 1:
            break
    return n / seconds if seconds else 0


def rates(pair, peers, todo, args):
    off, on = pair
    with off.http() as c:
        prompt = c.post("/tokenize", json={"model": "m", "content": PROMPT, "add_special": True}).json()["tokens"]
    rows = []
    for name, schema in todo.items():
        sides = {"free": lambda s: our_rate(off, None, args.tokens, s),
                 "kept": lambda s, k=schema: our_rate(off, k, args.tokens, s),
                 "kept, drafts": lambda s, k=schema: our_rate(on, k, args.tokens, s)}
        for kind, (program, grammar) in (peers.grammars(schema) if peers else {}).items():
            sides[f"{kind} free"] = lambda s, p=program: peer_rate(p, None, prompt, args.tokens, s)
            sides[kind] = lambda s, p=program, g=grammar: peer_rate(p, g, prompt, args.tokens, s)
        got = {k: [] for k in sides}
        for i in range(args.rounds):
            for k in sides if i % 2 == 0 else reversed(sides):
                got[k].append(sides[k](100 * i))
        row = {"schema": name, **{k: statistics.median(v) for k, v in got.items()}}
        row["x"] = statistics.median(a / b for a, b in zip(got["kept"], got["free"]))
        rows.append(row)
        line = f"{name[:28]:28} free {row['free']:6.1f}/s, kept {row['kept']:6.1f} (x {row['x']:.2f}), with drafts {row['kept, drafts']:6.1f}"
        for kind in ("GBNF", "llguidance"):
            if kind in row:
                line += f" | {kind}: free {row[kind + ' free']:6.1f}, kept {row[kind]:6.1f}"
        print(line, flush=True)
    return rows


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--shape", default="gemma", choices=["gemma", "0.5b", "demo"])
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--tokens", type=int, default=64)
    a.add_argument("--peer", choices=["llama.cpp"])
    a.add_argument("--only", choices=["masks", "rates"])
    a.add_argument("--json", action="store_true")
    args = a.parse_args()
    every = schemas.ours()
    pair = daemons(args.shape)
    path = source(args.shape)
    peers = Peers(path) if args.peer else None
    ours = Program(BIN / "tests/bench/bench_constrain", path)
    out = {"machine": machine(), "shape": args.shape}
    try:
        print(f"{machine()}; {path.name}")
        if args.only != "rates":
            out["masks"], out["total"] = masks(pair[0], ours, peers, {n: every[n] for n in NAMES}, args.rounds)
            for k, x in out["total"].items():
                print(f"{k:17} {x['n']:5} tokens: median {x['median']:9.1f} us, p99 {x['p99']:9.1f}, worst {x['most']:9.1f}")
        if args.only != "masks":
            out["rates"] = rates(pair, peers, {n: every[n] for n in RATES}, args)
    finally:
        for x in (*pair, ours, *([peers] if peers else [])):
            x.close()
    if args.json:
        print(json.dumps(out))


if __name__ == "__main__":
    main()
