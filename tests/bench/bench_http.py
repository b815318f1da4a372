#!/usr/bin/env python3
"""What the daemon costs: tokens a second of HTTP streams against those of the engine alone.

    ./dev bench http [--shape 0.5b] [--streams 1,4] [--rounds 5] [--tokens 64] [--json]
    ./dev bench http --against /some/checkout/.build/release

Both sides take turns on the same bundle: the engine in a process of its own (as in `./dev bench cpu`: one token for each of
N sequences a step, after as many others as the streams have on their average, nothing drawn; the mean of the steps, as a
rate is one), then N streams of the daemon at once, from the moment when each has its first token until one of them ends. The
client (streams.c) counts events and parses nothing, because it shares the cores. Printed are medians over the rounds;
`ratio` is the median of the rounds' own ratios.

--against: the daemon of another build takes turns with this one, each with its own package, for the same client (paired.py
tells how they are compared). Exit code 1: this one is slower.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

import paired
from bench import BIN, Daemon, counters, machine, source
from bench_cpu import Side, TOP, cached_bundle


def http_round(sock, model, streams, tokens, salt):
    """Tokens a second of `streams` streams together, and the longest time to a first one in ms."""
    r = subprocess.run([str(BIN / "tests/bench/bench_streams"), str(sock), model, str(streams), str(tokens), str(salt)],
                       stdout=subprocess.PIPE, text=True)
    if r.returncode != 0:
        sys.exit("bench_streams failed")
    out = json.loads(r.stdout)
    return out["tok_s"], out["ttft_ms"]


def start(build, src, args):
    """A daemon of that build with the model as `m`, loaded."""
    d = Daemon(str(build / "daemon" / "aned"))
    try:
        d.stop()
        (d.home / "aned.conf").write_text(f"[speculation]\nmax_draft = {args.drafts}\n")
        d.start()
        job = d.convert(src, "m", context=args.context)
        assert job["state"] == "done", job
        http_round(d.sock, "m", 1, 8, 99)
    except BaseException:
        d.close()
        raise
    return d


def against(args, src, counts):
    """Rows of paired.py."""
    sides, got = {}, {n: {"old": [], "new": []} for n in counts}
    try:
        for name, build in (("new", BIN), ("old", args.against)):
            sides[name] = start(build, src, args)
        for i in range(args.rounds):
            for n in counts:
                for name in ("old", "new") if i % 2 == 0 else ("new", "old"):
                    got[n][name].append(http_round(sides[name].sock, "m", n, args.tokens, 300 + i))
                    time.sleep(0.05)
            print(f"\rround {i + 1}", end="", file=sys.stderr, flush=True)
    finally:
        for d in sides.values():
            d.close()
    print("\r", end="", file=sys.stderr)
    rows = []
    for n, g in got.items():
        rate, first = ({k: [x[i] for x in v] for k, v in g.items()} for i in (0, 1))
        rows.append(paired.judge(f"{n} streams", "tok/s", rate["old"], rate["new"]))
        rows.append(paired.judge(f"{n} streams, first token", "ms", first["old"], first["new"], more_is_better=False))
    return rows


def loop_of(d):
    """What the daemon's loop kept others waiting for, on the wall (serve/meter.h), and its own CPU time, in ms."""
    with d.http() as c:
        text = c.get("/metrics").text
    buckets = [(float(le), int(n)) for le, n in re.findall(r'^aned_loop_lag_seconds_bucket\{le="([^"]+)"\} (\d+)$', text, re.M)]
    turns = buckets[-1][1]
    return {"turns": turns,
            "lag_p999_ms": next(le for le, n in buckets if n >= 0.999 * turns) * 1000,
            "lag_max_ms": next(le for le, n in buckets if n == turns) * 1000,
            "cpu_max_ms": round(counters(d)["aned_loop_cpu_max_seconds"] * 1000, 2)}


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--shape", default="0.5b", choices=["0.5b", "1.5b", "phi4-mini", "gemma", "demo"])
    a.add_argument("--streams", default="1,4")
    a.add_argument("--against", type=pathlib.Path, metavar="DIR", help="take turns with the build in this folder")
    a.add_argument("--rounds", type=int, help="default 5, with --against 15")
    a.add_argument("--tokens", type=int, default=64)
    a.add_argument("--context", type=int, default=1024)
    a.add_argument("--drafts", type=int, default=0, help="[speculation] max_draft of the daemon (default 0: the engine alone has none)")
    a.add_argument("--json", action="store_true")
    args = a.parse_args()
    counts = [int(x) for x in args.streams.split(",")]
    args.rounds = args.rounds or (15 if args.against else 5)
    src = source(args.shape)
    if args.against:
        sys.exit(paired.show(f"{args.shape}, {args.rounds} rounds of {args.tokens} tokens", against(args, src, counts), args.json))
    bundle = cached_bundle(src, f"{args.shape}-http", args.context, "int8", False)
    log = TOP / ".build" / "bench" / "http.log"
    d = start(BIN, src, args)
    side = None
    rows = {n: [] for n in counts}
    try:
        base = int(counters(d)["aned_prompt_tokens_total"]) + args.tokens // 2
        side = Side("aned", [str(BIN / "tests/bench/bench_cpu"), str(bundle), "--threads", str(os.cpu_count()),
                             "--base", str(base)], log)
        for i in range(args.rounds):
            for n in counts:
                alone = side.ask(f"sequences {n} 1" if n > 1 else "decode 1 1")
                time.sleep(0.05)
                rate, ttft = http_round(d.sock, "m", n, args.tokens, 300 + i)
                time.sleep(0.05)
                rows[n].append({"engine": n * 1000 / alone["ms_mean"], "http": rate, "ttft_ms": ttft,
                                "others": alone["others"]})
        loop = loop_of(d)
    finally:
        if side is not None:
            side.close()
        d.close()
    out = {"machine": machine(), "shape": args.shape, "rounds": args.rounds, "loop": loop, "streams": []}
    for n, r in rows.items():
        med = {k: round(statistics.median(x[k] for x in r), 2) for k in r[0]}
        med["ratio"] = round(statistics.median(x["http"] / x["engine"] for x in r), 3)
        out["streams"].append({"streams": n, **med})
    if args.json:
        print(json.dumps(out, indent=2))
        return
    print(f"{out['machine']}\n{args.shape}, {args.rounds} rounds of {args.tokens} tokens")
    print(f"{'streams':>8} {'engine tok/s':>13} {'http tok/s':>11} {'ratio':>6} {'first token ms':>15}")
    for s in out["streams"]:
        print(f"{s['streams']:8} {s['engine']:13.1f} {s['http']:11.1f} {s['ratio']:6.3f} {s['ttft_ms']:15.1f}")
    print(f"the loop: of {loop['turns']} turns 99.9 % up to {loop['lag_p999_ms']:g} ms on the wall, all up to {loop['lag_max_ms']:g}; "
          f"most CPU between two polls {loop['cpu_max_ms']} ms")


if __name__ == "__main__":
    main()
