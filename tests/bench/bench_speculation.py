#!/usr/bin/env python3
"""What drafts are worth: the same streams with speculation and without, in turns.

    ./dev bench speculation [--shape gemma|0.5b] [--tokens 128] [--rounds 3] [--json]

gemma: greedy continuations of plain prompts (the shared data's six where they are there), of a code edit, of a JSON list and
of a quotation, drafted from the conversation itself. 0.5b (random weights, whose text repeats nothing): prompts of 100, 400,
800 and 2000 tokens, drafted from OpenAI's `prediction`: the stream itself with so many of its words changed that a fixed
share of the drafts is accepted.

Two daemons on the same bundle take turns, one with [speculation] max_draft = 0. Each text must be the same from both.
Printed for each prompt: the share of drafts that was accepted, tokens a step, and the speed-up (tokens a second, first
event to last, with drafts over without; median of the rounds).
"""
import argparse
import json
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from bench import BIN, Daemon, machine, source  # noqa: E402
from bench_latency import fit  # noqa: E402
from conftest import SHARED  # noqa: E402

CODE = """def total(items):
    result = 0
    for item in items:
        if item.price > 0 and item.count > 0:
            result = result + item.price * item.count
    return result


def average(items):
    result = 0
    for item in items:
        if item.price > 0 and item.count > 0:
            result = result + item.price
    return result / len(items)
"""
JSON = "[\n" + "".join(f'  {{"id": {i}, "name": "part {i}", "price": {3 * i}, "in_stock": true}},\n' for i in range(1, 9))
QUOTE = ("A daemon is a program that runs in the background and answers requests. It starts with the machine and stays until "
         "the machine is shut down. It keeps what it needs in memory, so that an answer comes at once.\n")
PLAIN = ["The capital of France is", "Once upon a time there was", "Water boils at a temperature of", "The best way to learn is"]


def prompts(shape, d):
    """(name, prompt, share of accepted drafts or None)"""
    if shape == "0.5b":
        return [(f"{n} tokens, {a}", fit(d, n, n), a) for n in (100, 400, 800, 2000) for a in (0.5, 0.8, 0.9, 1.0)]
    out = []
    expected = SHARED / "data/models/gemma3-270m/expected.json"
    if expected.exists():
        cases = json.loads(expected.read_text())
        cases = cases if isinstance(cases, list) else cases.get("prompts") or cases.get("cases")
        out = [(f"reference {i + 1}", c["prompt"] if "prompt" in c else c["text"], None) for i, c in enumerate(cases)]
    else:
        out = [(f"plain {i + 1}", p, None) for i, p in enumerate(PLAIN)]
    return out + [
        ("code edit", f"Original:\n{CODE}\nThe same with `result` renamed to `sum`:\n{CODE[:60].replace('result', 'sum')}", None),
        ("JSON list", JSON, None),
        ("quotation", f"{QUOTE}\nThe text again, word by word:\n{QUOTE[:40]}", None)]


def run(d, prompt, tokens, prediction=None):
    """(text, tokens a second, drafted, accepted)"""
    body = {"model": "m", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0, "stream": True,
            "cache_prompt": True, "stream_options": {"include_usage": True}}
    if prediction:
        body["prediction"] = {"type": "content", "content": prediction}
    text, usage, times = "", {}, []
    with d.http(600) as c, c.stream("POST", "/v1/completions", json=body) as r:
        if r.status_code != 200:
            sys.exit(f"{r.status_code} {r.read()[:300]}")
        for line in r.iter_lines():
            if line.startswith("data: {"):
                e = json.loads(line[6:])
                usage = e.get("usage") or usage
                if e["choices"]:
                    times.append(time.monotonic())
                    text += e["choices"][0]["text"]
    t = usage.get("completion_tokens_details") or {}
    accepted, rejected = t.get("accepted_prediction_tokens", 0), t.get("rejected_prediction_tokens", 0)
    return text, (tokens - 1) / (times[-1] - times[0]), accepted + rejected, accepted


def spoil(text, keep):
    """The text with every n-th word another one, so that about `keep` of the drafts are right."""
    if keep >= 1:
        return text
    words = text.split(" ")
    every = max(2, round(1 / (1 - keep)))
    return " ".join("qx" if i % every == every - 1 else w for i, w in enumerate(words))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--shape", default="gemma", choices=["gemma", "0.5b", "demo"])
    a.add_argument("--tokens", type=int, default=128)
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--context", type=int, default=4096)
    a.add_argument("--json", action="store_true")
    args = a.parse_args()
    aned = str(BIN / "daemon" / "aned")
    on = Daemon(aned)
    off = None
    rows = []
    try:
        job = on.convert(source(args.shape), "m", context=args.context)
        assert job["state"] == "done", job
        on.stop()
        off = Daemon(aned)
        off.stop()
        (off.home / "models").rmdir() if (off.home / "models").is_dir() and not any((off.home / "models").iterdir()) else None
        (off.home / "models").symlink_to(on.home / "models")
        (off.home / "aned.conf").write_text("[speculation]\nmax_draft = 0\n")
        on.start()
        off.start()
        for name, prompt, share in prompts(args.shape, on):
            plain = run(off, prompt, args.tokens)[0]  # also: both prompts are warm from here on
            predicted = spoil(plain, share) if share else None
            run(on, prompt, args.tokens, predicted)
            ratios, last = [], None
            for _ in range(args.rounds):
                slow = run(off, prompt, args.tokens)
                last = run(on, prompt, args.tokens, predicted)
                assert slow[0] == plain and last[0] == plain, f"{name}: another text: {last[0]!r}, not {plain!r}"
                ratios.append(last[1] / slow[1])
            rows.append({"prompt": name, "drafted": last[2], "accepted": last[3],
                         "acceptance": round(last[3] / last[2], 3) if last[2] else None,
                         "tokens_a_step": round(args.tokens / (args.tokens - last[3]), 2),
                         "speedup": round(statistics.median(ratios), 2)})
    finally:
        on.close()
        if off is not None:
            off.close()
    all_ = statistics.harmonic_mean(r["speedup"] for r in rows)
    if args.json:
        print(json.dumps({"machine": machine(), "shape": args.shape, "rows": rows, "overall": round(all_, 2)}, indent=2))
        return
    print(f"{machine()}\n{args.shape}, {args.tokens} tokens, {args.rounds} rounds")
    print(f"{'prompt':22} {'drafted':>8} {'accepted':>9} {'share':>6} {'tokens a step':>14} {'speed-up':>9}")
    for r in rows:
        print(f"{r['prompt']:22} {r['drafted']:8} {r['accepted']:9} {r['acceptance'] if r['acceptance'] is not None else '-':>6} "
              f"{r['tokens_a_step']:14} {r['speedup']:9}")
    print(f"{'all of them':22} {'':40} {all_:9.2f}  (equal lengths of text)")


if __name__ == "__main__":
    main()
