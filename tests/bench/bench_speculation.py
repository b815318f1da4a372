#!/usr/bin/env python3
"""What drafts are worth: the same streams with speculation and without, in turns.

    ./dev bench speculation [--shape gemma|0.5b] [--tokens 128] [--rounds 3] [--peer llama.cpp|ik] [--json]
    ./dev bench speculation --plain [--shape gemma|0.5b] [--rounds 21]

gemma: greedy continuations of plain prompts (the shared data's six where they are there), of a code edit, of a JSON list and
of a quotation, drafted from the conversation itself. goal: 1.5 x overall. With --peer the same prompts go to the peer's
server with each kind of n-gram speculation it offers and without, its server started anew for every round, so that no answer
is drafted from an earlier run of itself.

0.5b (random weights, at temperature 1 with a seed: greedily they write one token for ever): code, JSON and quotations of
100, 400, 800 and 2000 tokens, drafted from a `prediction` in token ids: the answer itself, of which a seeded share is another
token. That share is sought for each prompt until accepted / (accepted + rejected) is the wanted one; what was reached in the
timed rounds is printed. goal: 2 x at an acceptance of 0.8 and more.

--plain: text that repeats nothing, at temperature 1 with fixed seeds. goal: never under 0.97 x.

Two daemons on the same bundle take turns, one with [speculation] max_draft = 0. Each text must be the same from both.
Printed for each prompt: drafts, how many were accepted, tokens a step, the share of steps that was saved (steps as the
daemon counts them), tokens a second without drafts, and the speed-up (tokens a second, first event to last, with drafts over
without; median of the rounds, and what the middle half of them lies between: two runs of one stream differ by some percent).
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from bench import BIN, Daemon, counters, machine, source  # noqa: E402
from conftest import SHARED, TOP  # noqa: E402

LENGTHS = (100, 400, 800, 2000)
TRIES, NEAR = 6, 0.03  # runs that seek the share of other tokens; of the wanted acceptance
CODE = """def total{0}(items):
    result = 0
    for item in items:
        if item.price > {0} and item.count > 0:
            result = result + item.price * item.count
    return result


def average{0}(items):
    result = 0
    for item in items:
        if item.price > {0} and item.count > 0:
            result = result + item.price
    return result / len(items)
"""
CODE_0 = CODE.replace("{0}", "")
ENTRY = '  {{"id": {0}, "name": "part {0}", "price": {1}, "in_stock": true}},\n'
JSON = "[\n" + "".join(ENTRY.format(i, 3 * i) for i in range(1, 9))
QUOTE = ("A daemon is a program that runs in the background and answers requests. It starts with the machine and stays until "
         "the machine is shut down. It keeps what it needs in memory, so that an answer comes at once.\n")
PLAIN = ["The capital of France is", "Once upon a time there was", "Water boils at a temperature of",
         "The best way to learn is"]
KINDS = {  # of any length: what entry i of the text is
    "code edit": CODE.format,
    "JSON": lambda i: ENTRY.format(i, 3 * i),
    "quoting": lambda i: f"{i}. {QUOTE}> {QUOTE}",
}


class Pair:
    """The daemon with drafts and the one without, on the same bundles."""

    def __init__(self, shape, context):
        aned = str(BIN / "daemon" / "aned")
        self.on, self.off = Daemon(aned), None
        try:
            job = self.on.convert(source(shape), "m", context=context)
            assert job["state"] == "done", job
            self.on.stop()
            self.off = Daemon(aned)
            self.off.stop()
            (self.off.home / "models").rmdir() if (self.off.home / "models").is_dir() else None
            (self.off.home / "models").symlink_to(self.on.home / "models")
            (self.off.home / "aned.conf").write_text("[speculation]\nmax_draft = 0\n")
            self.on.start()
            self.off.start()
        except BaseException:
            self.close()
            raise

    def close(self):
        self.on.close()
        if self.off is not None:
            self.off.close()


def run(d, body):
    """One stream: its text, tokens a second, prompt tokens, drafts, accepted ones, steps."""
    text, usage, times = "", {}, []
    before = counters(d)["aned_steps_total"]
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
    t = usage["completion_tokens_details"]
    accepted, rejected = t["accepted_prediction_tokens"], t["rejected_prediction_tokens"]
    assert usage["completion_tokens"] == body["max_tokens"], usage
    return {"text": text, "rate": (body["max_tokens"] - 1) / (times[-1] - times[0]), "prompt_tokens": usage["prompt_tokens"],
            "drafted": accepted + rejected, "accepted": accepted, "steps": counters(d)["aned_steps_total"] - before}


def request(prompt, tokens, **more):
    return {"model": "m", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}, **more}


def compare(pair, name, body, rounds, predictions):
    """A row for each of predictions (label -> token ids, or None): streams in turns, every second round backwards."""
    plain = run(pair.off, body)["text"]  # from here on the prompt is warm
    bodies = {k: dict(body, prediction={"type": "content", "content": p}) if p else body for k, p in predictions.items()}
    run(pair.on, body)
    sides = [(None, pair.off, body), *((k, pair.on, b) for k, b in bodies.items())]
    got = {k: [] for k, _, _ in sides}
    for i in range(rounds):
        for k, d, b in sides if i % 2 == 0 else reversed(sides):
            r = run(d, b)
            assert r["text"] == plain, f"{name}, {k}: another text: {r['text']!r}, not {plain!r}"
            got[k].append(r)
    return [row(name, k, got[None], got[k]) for k in predictions]


def row(name, label, off, on):
    last = on[-1]
    steps = statistics.median(r["steps"] for r in on)
    without = statistics.median(r["steps"] for r in off)
    drafted, accepted = sum(r["drafted"] for r in on), sum(r["accepted"] for r in on)
    rate = {k: statistics.median(r["rate"] for r in v) for k, v in (("off", off), ("on", on))}
    pairs = [a["rate"] / b["rate"] for a, b in zip(on, off)]
    quarters = statistics.quantiles(pairs, method="inclusive") if len(pairs) > 1 else pairs * 3
    return {"prompt": name, "prompt_tokens": last["prompt_tokens"], "wanted": label, "drafted": last["drafted"],
            "accepted": last["accepted"], "acceptance": round(accepted / drafted, 3) if drafted else None,
            "tokens_a_step": round(without / steps, 2), "steps_saved": round(1 - steps / without, 3),
            "rate_off": round(rate["off"], 1), "rate_on": round(rate["on"], 1), "text_equal": True,
            "rates": [[round(a["rate"], 2), round(b["rate"], 2)] for a, b in zip(on, off)],
            "speedup": round(statistics.median(pairs), 3), "quarters": [round(quarters[0], 3), round(quarters[2], 3)]}


# --- the model's own drafts ---

def reference_prompts():
    expected = SHARED / "data/models/gemma3-270m/expected.json"
    if not expected.exists():
        return [(f"plain {i + 1}", p) for i, p in enumerate(PLAIN)]
    cases = json.loads(expected.read_text())
    cases = cases if isinstance(cases, list) else cases.get("prompts") or cases.get("cases")
    return [(f"reference {i + 1}", c["prompt"] if "prompt" in c else c["text"]) for i, c in enumerate(cases)]


def repetitive_prompts():
    return reference_prompts() + [
        ("code edit", f"Original:\n{CODE_0}\nThe same with `result` renamed to `sum`:\n{CODE_0[:60].replace('result', 'sum')}"),
        ("JSON list", JSON),
        ("quotation", f"{QUOTE}\nThe text again, word by word:\n{QUOTE[:40]}")]


def chosen(prompts, args):
    return [p for p in prompts if any(w in p[0] for w in args.only)]


def bench_greedy(pair, args):
    rows = []
    for name, prompt in chosen(repetitive_prompts(), args):
        rows += compare(pair, name, request(prompt, args.tokens), args.rounds, {"own": None})
    return rows


# --- fixed acceptance ---

def exactly(d, kind, n):
    """Token ids of a text of this kind, n of them."""
    text, i, ids = "", 0, []
    with d.http() as c:
        while len(ids) < n:
            text += "".join(KINDS[kind](i + k) for k in range(8))
            i += 8
            ids = c.post("/tokenize", json={"model": "m", "content": text}).json()["tokens"]
    return ids[:n]


def sampled(prompt, tokens, **more):
    return request(prompt, tokens, temperature=1, seed=1, **more)


def answer_ids(d, prompt, tokens):
    """What follows, as token ids: a session has them."""
    with d.http(600) as c:
        s = "/aned/v1/sessions"
        x = c.post(s, json={"model": "m", "tokens": prompt}).json()["id"]
        r = c.post(f"{s}/{x}/generate", json={"max_tokens": tokens, "ignore_eos": True, "temperature": 1, "seed": 1})
        assert r.status_code == 200, r.text
        ids = c.get(f"{s}/{x}").json()["tokens"][len(prompt):]
        c.delete(f"{s}/{x}")
    assert len(ids) == tokens, (len(ids), tokens)
    return ids


def spoil(ids, share, vocab, seed=1):
    """ids with this share of them another token; a greater share has those of a smaller one too."""
    r = random.Random(seed)
    dice = [(r.random(), r.randrange(1, vocab)) for _ in ids]
    return [(x + other) % vocab if u < share else x for x, (u, other) in zip(ids, dice)]


def seek(pair, prompt, ids, vocab, wanted, share):
    """The share of other tokens, near `share`, with which so many drafts are accepted: of those after a wrong one none is."""
    low, high, best = 0.0, 1 - wanted, (2.0, 0.0)
    for _ in range(TRIES if wanted < 1 else 0):
        p = {"type": "content", "content": spoil(ids, share, vocab)}
        r = run(pair.on, sampled(prompt, len(ids), prediction=p))
        got = r["accepted"] / r["drafted"] if r["drafted"] else 0
        best = min(best, (abs(got - wanted), share))
        if best[0] <= NEAR:
            break
        low, high = (share, high) if got > wanted else (low, share)
        share = (low + high) / 2
    return best[1]


def bench_fixed(pair, args):
    with pair.on.http() as c:
        vocab = c.get("/v1/models").json()["data"][0]["meta"]["n_vocab"]
    shares, rows = {}, []
    for kind in KINDS:
        for n in args.lengths:
            prompt = exactly(pair.on, kind, n)
            ids = answer_ids(pair.off, prompt, args.tokens)
            for a in args.acceptance:
                shares[a] = seek(pair, prompt, ids, vocab, a, shares.get(a, (1 - a) / 2))
            predictions = {a: spoil(ids, shares[a], vocab) for a in args.acceptance}
            rows += compare(pair, kind, sampled(prompt, args.tokens), args.rounds, predictions)
    return rows


# --- nothing repeated ---

def bench_plain(pair, args):
    rows = []
    for i, (name, prompt) in enumerate(chosen(reference_prompts(), args)):
        body = request(prompt, args.tokens, temperature=1, seed=100 + i)
        rows += compare(pair, name, body, args.rounds, {"own": None})
    return rows


# --- the peer ---

def bench_peer(args):
    """The peer's rows: without speculation, then its speed-up by each kind it offers."""
    python = TOP / ".build" / f"venv-peer-{args.peer}" / "bin" / "python"
    command = [str(python), str(pathlib.Path(__file__).with_name("peer_server.py")), args.peer, str(source(args.shape)),
               "--context", str(args.context)]
    p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def ask(what=None):
        if what is not None:
            p.stdin.write(json.dumps(what) + "\n")
            p.stdin.flush()
        line = p.stdout.readline()
        return json.loads(line) if line else sys.exit(f"the peer ended: {' '.join(command)}")
    try:
        hello = ask()
        kinds = ["none", *hello["offers"]] if hello["offers"] else []
        prompts = chosen(repetitive_prompts(), args)
        got = {k: {name: [] for name, _ in prompts} for k in kinds}
        for i in range(args.rounds):
            for k in kinds if i % 2 == 0 else reversed(kinds):
                ask({"type": k})
                for name, prompt in prompts:
                    got[k][name].append(ask({"prompt": prompt, "tokens": args.tokens}))
        return hello, [peer_row(name, got) for name, _ in prompts] if kinds else []
    finally:
        p.stdin.close()
        p.wait(30)


def peer_row(name, got):
    off = got["none"][name]
    out = {"prompt": name, "rate_off": round(statistics.median(r["rate"] for r in off), 1), "kinds": {}}
    for k, v in got.items():
        if k != "none":
            on = v[name]
            drafted, accepted = sum(r["drafted"] for r in on), sum(r["accepted"] for r in on)
            out["kinds"][k] = {
                "acceptance": round(accepted / drafted, 3) if drafted else None, "drafted": on[-1]["drafted"],
                "text_equal": all(r["text"] == off[0]["text"] for r in on),
                "speedup": round(statistics.median(a["rate"] / b["rate"] for a, b in zip(on, off)), 3)}
    return out


# --- printing ---

def overall(speedups):
    """Of equal lengths of text."""
    return round(statistics.harmonic_mean(speedups), 3)


def goals(rows, args):
    """(what, the figure, whether it is met)"""
    all_ = [r["speedup"] for r in rows]
    if args.plain:
        return [("overall: >= 0.97 x", overall(all_), overall(all_) >= 0.97),
                ("each prompt: >= 0.97 x", min(all_), min(all_) >= 0.97)]
    if args.shape == "gemma":
        return [("overall: >= 1.5 x", overall(all_), overall(all_) >= 1.5)]
    good = [r["speedup"] for r in rows if r["wanted"] >= 0.8 or (r["acceptance"] or 0) >= 0.8]
    return [(f"acceptance >= 0.8, wanted or reached: >= 2 x, the least of {len(good)}", min(good, default=0),
             min(good, default=0) >= 2)]


def show(rows, args):
    print(f"{'prompt':14} {'tokens':>6} {'wanted':>6} {'drafted':>8} {'accepted':>9} {'share':>6} {'tokens/step':>12} "
          f"{'steps saved':>12} {'tok/s off':>10} {'speed-up':>9} {'half of pairs':>14} {'text':>6}")
    for r in rows:
        share = "-" if r["acceptance"] is None else f"{r['acceptance']:.2f}"
        print(f"{r['prompt']:14} {r['prompt_tokens']:6} {r['wanted']:>6} {r['drafted']:8} {r['accepted']:9} {share:>6} "
              f"{r['tokens_a_step']:12.2f} {r['steps_saved']:12.0%} {r['rate_off']:10.1f} {r['speedup']:9.2f} "
              f"{'{:.2f}-{:.2f}'.format(*r['quarters']):>14} {'equal':>6}")
    for what, figure, met in goals(rows, args):
        print(f"goal {what}: {figure:.2f}, {'met' if met else 'MISSED'}")


def show_peer(hello, peer, ours):
    if not peer:
        print(f"\n{hello['peer']} offers no n-gram speculation (looked at: {hello['looked']})")
        return
    kinds = list(peer[0]["kinds"])
    print(f"\n{hello['peer']}, the same prompts; speed-up over its own rate, share of accepted drafts in brackets")
    print(f"{'prompt':14} {'aned':>6} {'tok/s off':>10}" + "".join(f"{k:>18}" for k in kinds))
    for a, r in zip(ours, peer):
        cells = [f"{v['speedup']:.2f} ({'-' if v['acceptance'] is None else format(v['acceptance'], '.2f')})"
                 for v in r["kinds"].values()]
        print(f"{r['prompt']:14} {a['speedup']:6.2f} {r['rate_off']:10.1f}" + "".join(f"{c:>18}" for c in cells))
    all_ = {k: overall([r["kinds"][k]["speedup"] for r in peer]) for k in kinds}
    mine = overall([r["speedup"] for r in ours])
    print(f"{'all of them':14} {mine:6.2f} {'':10}" + "".join(f"{v:>18.2f}" for v in all_.values()))
    other = [(r["prompt"], k) for r in peer for k, v in r["kinds"].items() if not v["text_equal"]]
    print(f"the peer's texts with and without: {f'not equal: {other}' if other else 'equal'}")


def numbers(kind):
    return lambda s: [kind(x) for x in s.split(",")]


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--shape", default="gemma", choices=["gemma", "0.5b", "demo"])
    a.add_argument("--plain", action="store_true", help="text that repeats nothing")
    a.add_argument("--tokens", type=int, default=128)
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--context", type=int, default=4096)
    a.add_argument("--lengths", type=numbers(int), default=list(LENGTHS), help="of prompts, 0.5b; default 100,400,800,2000")
    a.add_argument("--acceptance", type=numbers(float), default=[0.5, 0.8, 0.9, 1.0], help="0.5b; default 0.5,0.8,0.9,1")
    a.add_argument("--only", type=numbers(str), default=[""], help="gemma, --plain: prompts whose names have one of these")
    a.add_argument("--peer", choices=["llama.cpp", "ik"], help="gemma: beside its own n-gram speculation")
    a.add_argument("--json", action="store_true")
    args = a.parse_args()
    bench = bench_plain if args.plain else bench_greedy if args.shape == "gemma" else bench_fixed
    pair = Pair(args.shape, args.context)
    try:
        rows = bench(pair, args)
    finally:
        pair.close()
    hello, peer = bench_peer(args) if args.peer and bench is bench_greedy else (None, [])
    if args.json:
        print(json.dumps({"machine": machine(), "shape": args.shape, "rows": rows, "goals": goals(rows, args),
                          "peer": hello, "peer_rows": peer}, indent=2))
        return
    print(f"{machine()}\n{args.shape}, {args.tokens} tokens, {args.rounds} rounds{', temperature 1' if args.plain else ''}")
    show(rows, args)
    if hello is not None:
        show_peer(hello, peer, rows)


if __name__ == "__main__":
    main()
