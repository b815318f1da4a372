#!/usr/bin/env python3
"""What the daemon costs: tokens a second of HTTP streams against those of the engine alone.

    ./dev bench http [--shape 0.5b] [--streams 1,4] [--rounds 5] [--tokens 64] [--json]

Both sides take turns on the same bundle: the engine in a process of its own (as in `./dev bench cpu`: one token for each of
N sequences a step, behind as many others as the streams have on their average, nothing drawn; the mean of the steps, as a
rate is one), then N streams of the daemon at once, from the moment when each has its first token until one of them ends. The
client (streams.c) counts events and parses nothing, because it shares the cores. Printed are medians over the rounds;
`ratio` is the median of the rounds' own ratios.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

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


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--shape", default="0.5b", choices=["0.5b", "1.5b", "phi4-mini", "gemma", "demo"])
    a.add_argument("--streams", default="1,4")
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--tokens", type=int, default=64)
    a.add_argument("--context", type=int, default=1024)
    a.add_argument("--drafts", type=int, default=0, help="[speculation] max_draft of the daemon (default 0: the engine alone has none)")
    a.add_argument("--json", action="store_true")
    args = a.parse_args()
    counts = [int(x) for x in args.streams.split(",")]
    src = source(args.shape)
    bundle = cached_bundle(src, f"{args.shape}-http", args.context, "int8", False)
    log = TOP / ".build" / "bench" / "http.log"
    d = Daemon(str(BIN / "daemon" / "aned"))
    d.stop()
    (d.home / "aned.conf").write_text(f"[speculation]\nmax_draft = {args.drafts}\n")
    d.start()
    side = None
    rows = {n: [] for n in counts}
    try:
        job = d.convert(src, "m", context=args.context)
        assert job["state"] == "done", job
        http_round(d.sock, "m", 1, 8, 99)  # loads the model
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
    finally:
        if side is not None:
            side.close()
        d.close()
    out = {"machine": machine(), "shape": args.shape, "rounds": args.rounds, "streams": []}
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


if __name__ == "__main__":
    main()
