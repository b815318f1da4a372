#!/usr/bin/env python3
"""What a long prompt does to those who are being answered, and what is left of a conversation after a restart.

    ./dev bench latency [--shape gemma] [--streams 8] [--prompt 4000] [--rounds 3] [--json]

stall: `streams` chat streams run; then a request with a prompt of `prompt` tokens arrives. Printed are the median and the
99th percentile of the time between two events of the others, from its arrival until its first token, all streams and
rounds together, and the same before it came; drafts that were right come with their step and count as one event with it,
else most gaps would be none. goal: p99 <= 2.5 x median.
warm: the time to the first token of that prompt computed cold; and after the daemon was stopped and started anew, the
model loaded, the page cache warm. goal: 20 x shorter. Medians over the rounds; every round has a prompt of its own.
"""
import argparse
import json
import pathlib
import statistics
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from bench import BIN, Daemon, machine, source  # noqa: E402

WORDS = ("time people year way day thing man world life hand part child eye woman place work week case point company "
         "number group problem fact water room mother area money story month lot right study book word business issue").split()

TOGETHER = 0.0005  # seconds: a step of gemma takes ten times as long


def text(seed, n):
    """About n tokens of plain words, different for every seed."""
    x = seed * 2654435761 + 1
    out = []
    for _ in range(n):
        x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(WORDS[(x >> 40) % len(WORDS)])
    return " ".join(out)


def events(d, body, times, stop=None):
    """Times of the events of one stream; what usage it had."""
    usage = {}
    with d.http(600) as c, c.stream("POST", "/v1/completions", json=body) as r:
        if r.status_code != 200:
            raise RuntimeError(f"{r.status_code} {r.read()[:300]}")
        for line in r.iter_lines():
            if line.startswith("data: {"):
                times.append(time.monotonic())
                usage = json.loads(line[6:]).get("usage") or usage
            if stop is not None and stop.is_set():
                break
    return usage


def request(prompt, n, **more):
    return {"model": "m", "prompt": prompt, "max_tokens": n, "ignore_eos": True, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}, **more}


def fit(d, seed, n):
    """A text of n tokens, as near as words allow."""
    words = n
    with d.http() as c:
        for _ in range(4):
            r = c.post("/tokenize", json={"model": "m", "content": text(seed, words)})
            assert r.status_code == 200, r.text
            words = max(1, words * n // len(r.json()["tokens"]))
    return text(seed, words)


def arrivals(times):
    """Without the tokens that came with the one before."""
    out = times[:1]
    for t in times[1:]:
        if t - out[-1] > TOGETHER:
            out.append(t)
    return out


def percentile(v, p):
    v = sorted(v)
    return v[min(len(v) - 1, int(len(v) * p))]


def stall(d, args, round_):
    """(gaps before the prompt came, gaps while it was computed, its seconds to the first token), gaps in ms."""
    stop = threading.Event()
    times = [[] for _ in range(args.streams)]
    threads = [threading.Thread(target=events, args=(d, request(text(100 + i, 8), args.context - 64), times[i], stop))
               for i in range(args.streams)]
    for t in threads:
        t.start()
    while min(len(x) for x in times) < 20:
        time.sleep(0.05)
    mine = []
    came = time.monotonic()
    events(d, request(fit(d, 7000 + round_, args.prompt), 1, cache_prompt=False), mine)
    first = mine[0]
    stop.set()
    for t in threads:
        t.join()
    before, during = [], []
    for x in map(arrivals, times):
        for a, b in zip(x[5:], x[6:]):
            if b < came:
                before.append((b - a) * 1000)
            elif a > came and b < first:
                during.append((b - a) * 1000)
    return before, during, first - came


def first_token(d, prompt):
    times = []
    began = time.monotonic()
    usage = events(d, request(prompt, 2), times)
    return times[0] - began, (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)


def warm(d, args, round_):
    """Seconds to the first token: cold, and after a restart; cached tokens there."""
    prompt = fit(d, 9000 + round_, args.prompt)
    cold, _ = first_token(d, prompt)
    d.stop()
    d.start()
    with d.http() as c:
        r = c.post("/aned/v1/models/m/load")
        assert r.status_code in (200, 202), r.text
    first_token(d, text(1, 4))  # it is loaded
    again, cached = first_token(d, prompt)
    return cold, again, cached


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--shape", default="gemma", choices=["0.5b", "gemma", "demo"])
    a.add_argument("--streams", type=int, default=8)
    a.add_argument("--prompt", type=int, default=4000)
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--context", type=int, default=8192)
    a.add_argument("--only", choices=["stall", "warm"])
    a.add_argument("--json", action="store_true")
    args = a.parse_args()
    d = Daemon(str(BIN / "daemon" / "aned"))
    out = {"machine": machine(), "shape": args.shape, "streams": args.streams, "prompt": args.prompt, "rounds": args.rounds}
    try:
        (d.home / "aned.conf").write_text("[cache]\ndisk_mib = 4096\n")
        d.stop()
        d.start()
        job = d.convert(source(args.shape), "m", context=args.context)
        assert job["state"] == "done", job
        first_token(d, text(0, 4))
        if args.only != "warm":
            rounds = [stall(d, args, i) for i in range(args.rounds)]
            gaps = {k: [g for r in rounds for g in r[i]] for i, k in enumerate(("before", "during"))}
            for k, v in gaps.items():
                out[k] = {"n": len(v), "median_ms": round(statistics.median(v), 2), "p99_ms": round(percentile(v, 0.99), 2)}
                out[k]["p99_over_median"] = round(out[k]["p99_ms"] / out[k]["median_ms"], 2)
            out["first_token_s"] = round(statistics.median(r[2] for r in rounds), 2)
        if args.only != "stall":
            rounds = [warm(d, args, i) for i in range(args.rounds)]
            out["warm"] = {"cold_ms": round(statistics.median(r[0] for r in rounds) * 1000, 1),
                           "restarted_ms": round(statistics.median(r[1] for r in rounds) * 1000, 1),
                           "cached_tokens": min(r[2] for r in rounds),
                           "ratio": round(statistics.median(r[0] / r[1] for r in rounds), 1)}
    finally:
        d.close()
    if args.json:
        print(json.dumps(out, indent=2))
        return
    print(f"{out['machine']}\n{args.shape}, {args.rounds} rounds, a prompt of {args.prompt} tokens")
    for k in ("before", "during"):
        if k in out:
            print(f"{args.streams} streams {k:7} the prompt: {out[k]['n']} gaps, median {out[k]['median_ms']} ms, "
                  f"p99 {out[k]['p99_ms']} ms = {out[k]['p99_over_median']} x")
    if "first_token_s" in out:
        print(f"the prompt's first token came after {out['first_token_s']} s")
    if "warm" in out:
        w = out["warm"]
        print(f"first token cold {w['cold_ms']} ms, after a restart {w['restarted_ms']} ms: {w['ratio']} x shorter, "
              f"{w['cached_tokens']} tokens from disk")


if __name__ == "__main__":
    main()
