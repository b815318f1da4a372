#!/usr/bin/env python3
"""What the daemon adds to the engine: to a token, and to the first one.

    ./dev bench overhead [--models demo,gemma] [--streams 1,16] [--rounds 7] [--json]
    ./dev bench overhead --against /some/checkout/.build/release [--pin]

Drafts are off; the client (streams.c) counts events and parses nothing; the answers are streamed. Medians over the rounds:

per token     `serve us`: CPU time of the serve process, all its threads, over a token of `--tokens` a stream, requests and all
              (/proc/PID/task/*/schedstat: nanoseconds). goal: 50, held against this one: it is the daemon's and nobody
              else's. The caches it finds cold after an engine's step are in it, and the kernel's work to wake others
              `added us`: what a token waits for the daemon: wall time of all streams less the engine's own (the sum of its
              steps, aned_step_seconds), over the tokens. The client's time is in it, and waking three processes on
              the same cores; what serve and the client do while a step runs lengthens the step instead, and is not
first token   a prompt of 16 tokens, one token asked for, nothing warm. `http ms`: from sending the requests to the event of
              the last stream that gets one (with others' ends, where those come before it); `engine ms`: the sum of the
              steps that took, `steps` of them; `added ms`: the difference, round by round. goal: 1. So a request that
              has to wait for a step of the others is not charged with that step, nor with what serve does during it,
              only with the time when the engine stands still or has answered. The prompts are sent one after the other,
              as fast as one client can; what they cost alone is one step of all of them, which `steps` near 1 shows
              `serve us`: CPU time of the serve process for a request

--against: the daemon of another build takes turns with this one, each with its own package, for the same client. Compared
(paired.py) are tokens a second, the time to the first token, and the serve process's CPU time for both; not what was `added`,
which is a small difference of large numbers and may be negative. Exit code 1: this build is slower in one of them.

--pin: serve and the client get the first processor, engines the others. Without it the kernel's scheduler places the three
anew in every round, and with two processors one stream's token costs serve 13 or 18 us by where it wakes: that difference
hides smaller ones between two builds.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import paired
from bench import BIN, Daemon, counters, machine, source

PROMPT_TOKENS = 16
CONTEXT = 1024


def cpu_us(pid):
    """CPU time of all threads of a process."""
    ns = 0
    for t in pathlib.Path(f"/proc/{pid}/task").iterdir():
        ns += int((t / "schedstat").read_text().split()[0])
    return ns / 1000


def pin(d):
    """Serve on the first processor, the engines it has started on the others."""
    cpus = sorted(os.sched_getaffinity(0))
    engines = [int(c) for t in pathlib.Path(f"/proc/{d.proc.pid}/task").iterdir() for c in (t / "children").read_text().split()]
    for pid, where in [(d.proc.pid, cpus[:1])] + [(e, cpus[1:]) for e in engines]:
        for t in pathlib.Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(t.name), where)
    d.client_cpus = cpus[:1]


def prompt_of(d, n):
    """A text of exactly n tokens for the model, its begin mark included."""
    words = "the daemon keeps every small conversation warm and answers at once when a stream comes back a i o".split()
    text = ""
    with d.http() as c:
        while True:
            for w in words:
                r = c.post("/v1/completions", json={"model": "m", "prompt": f"{text} {w}".strip(), "max_tokens": 1})
                assert r.status_code == 200, r.text
                have = r.json()["usage"]["prompt_tokens"]
                if have <= n:
                    text = f"{text} {w}".strip()
                if have == n:
                    return text
            assert have < n + 2, f"no text of {n} tokens found"


def streams(d, count, tokens, salt, prompt=None):
    """What bench_streams measured, and what serve and the engine spent meanwhile."""
    before, cpu = counters(d), cpu_us(d.proc.pid)
    argv = [str(BIN / "tests/bench/bench_streams"), str(d.sock), "m", str(count), str(tokens), str(salt)]
    cpus = getattr(d, "client_cpus", None)
    r = subprocess.run(argv + ([prompt] if prompt else []), stdout=subprocess.PIPE, text=True,
                       preexec_fn=(lambda: os.sched_setaffinity(0, cpus)) if cpus else None)
    if r.returncode != 0:
        sys.exit("bench_streams failed")
    cpu = cpu_us(d.proc.pid) - cpu
    after = counters(d)
    out = json.loads(r.stdout)
    out["serve_us"] = cpu
    for k in ("step_seconds_sum", "steps_total", "output_tokens_total"):
        out[k] = after[f"aned_{k}"] - before[f"aned_{k}"]
    assert out["output_tokens_total"] == count * tokens, out
    return out


def per_token(d, count, tokens, round_):
    r = streams(d, count, tokens, f"{round_}")
    n = count * tokens
    return {"serve_us": r["serve_us"] / n, "added_us": (1e3 * r["wall_ms"] - 1e6 * r["step_seconds_sum"]) / n,
            "tok_s": 1e3 * n / r["wall_ms"], "step_ms": 1e3 * r["step_seconds_sum"] / r["steps_total"]}


def first_token(d, count, prompt, round_):
    r = streams(d, count, 1, f"{round_}", prompt)
    engine = 1e3 * r["step_seconds_sum"]
    return {"http_ms": r["ttft_ms"], "engine_ms": engine, "added_ms": r["ttft_ms"] - engine, "serve_us": r["serve_us"] / count,
            "steps": r["steps_total"]}


def start(build, model):
    """A daemon of that build with the model as `m`."""
    d = Daemon(str(build / "daemon" / "aned"))
    try:
        d.stop()
        (d.home / "aned.conf").write_text("[speculation]\nmax_draft = 0\n[cache]\ndisk_mib = 0\n")
        d.start()
        job = d.convert(source(model), "m", context=CONTEXT)
        assert job["state"] == "done", job
    except BaseException:
        d.close()
        raise
    return d


def tokens_of(model, args):
    return args.tokens if model == "demo" else args.tokens // 4


JUDGED = (("token", "tok_s", "tok/s", True), ("token", "serve_us", "us", False), ("first", "http_ms", "ms", False),
          ("first", "serve_us", "us", False))


def against(model, args):
    """Rows of paired.py; of first tokens a round's median."""
    sides, rows = {}, []
    try:
        for name, build in (("new", BIN), ("old", args.against)):
            sides[name] = start(build, model)
        prompt = prompt_of(sides["new"], PROMPT_TOKENS)
        for d in sides.values() if args.pin else ():
            prompt_of(d, PROMPT_TOKENS)  # its engine runs
            pin(d)
        for count in (int(x) for x in args.streams.split(",")):
            got = {"old": [], "new": []}
            for d in sides.values():
                first_token(d, count, prompt, 99)
            for i in range(args.rounds):
                for name in ("old", "new") if i % 2 == 0 else ("new", "old"):
                    token = per_token(sides[name], count, tokens_of(model, args), i)
                    first = [first_token(sides[name], count, prompt, i) for _ in range(5)]
                    got[name].append({"token": token, "first": {k: statistics.median(f[k] for f in first) for k in first[0]}})
                print(f"\r{model} {count} round {i + 1} ", end="", file=sys.stderr, flush=True)
            rows += [paired.judge(f"{model} {count} {part} {key}", unit, *([x[part][key] for x in got[k]] for k in ("old", "new")),
                                  more_is_better=more) for part, key, unit, more in JUDGED]
    finally:
        for d in sides.values():
            d.close()
    print("\r", end="", file=sys.stderr)
    return rows


def measure(model, args):
    d = start(BIN, model)
    out = []
    try:
        prompt = prompt_of(d, PROMPT_TOKENS)
        for count in (int(x) for x in args.streams.split(",")):
            first_token(d, count, prompt, 99)  # once to get warm: the scheduler learns what a step costs
            token, first = [], []
            tokens = tokens_of(model, args)
            for i in range(args.rounds):
                token.append(per_token(d, count, tokens, i))
                for k in range(5):
                    time.sleep(0.02)
                    first.append(first_token(d, count, prompt, i))
            row = {"model": model, "streams": count, "tokens": tokens}
            row["token"] = {k: statistics.median(x[k] for x in token) for k in token[0]}
            row["first"] = {k: statistics.median(x[k] for x in first) for k in first[0]}
            row["first"]["n"] = len(first)
            out.append(row)
    finally:
        d.close()
    return out


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--models", default="demo,gemma")
    a.add_argument("--streams", default="1,16")
    a.add_argument("--against", type=pathlib.Path, metavar="DIR", help="take turns with the build in this folder")
    a.add_argument("--pin", action="store_true", help="with --against: serve and the client on one processor, engines on others")
    a.add_argument("--rounds", type=int, help="default 7, with --against 15")
    a.add_argument("--tokens", type=int, default=512, help="of a stream of the demo model; a quarter of it for others")
    a.add_argument("--json", action="store_true")
    args = a.parse_args()
    args.rounds = args.rounds or (15 if args.against else 7)
    if args.against:
        rows = [row for m in args.models.split(",") for row in against(m, args)]
        sys.exit(paired.show(f"{args.rounds} rounds, drafts off", rows, args.json))
    out = {"machine": machine(), "rounds": args.rounds,
           "rows": [row for m in args.models.split(",") for row in measure(m, args)]}
    if args.json:
        print(json.dumps(out, indent=2))
        return
    print(f"{out['machine']}; {args.rounds} rounds, drafts off")
    print(f"\n{'per token':12}{'streams':>8}{'tokens':>8}{'tok/s':>9}{'step ms':>9}{'serve us':>10}{'added us':>10}")
    for r in out["rows"]:
        t = r["token"]
        print(f"{r['model']:12}{r['streams']:8}{r['tokens']:8}{t['tok_s']:9.0f}{t['step_ms']:9.2f}{t['serve_us']:10.1f}"
              f"{t['added_us']:10.1f}")
    print(f"\n{'first token':12}{'streams':>8}{'samples':>8}{'steps':>7}{'http ms':>9}{'engine ms':>11}{'added ms':>10}{'serve us':>10}")
    for r in out["rows"]:
        f = r["first"]
        print(f"{r['model']:12}{r['streams']:8}{f['n']:8}{f['steps']:7.0f}{f['http_ms']:9.2f}{f['engine_ms']:11.2f}{f['added_ms']:10.2f}"
              f"{f['serve_us']:10.0f}")


if __name__ == "__main__":
    main()
