#!/usr/bin/env python3
"""A day in small: two hours of editors and chats in ten minutes.

    ./dev bench day [--model gemma|demo|stories] [--seed S] [--hours 2] [--minutes 10] [--json]

A seeded generator (traffic.py) makes the traffic: completions typed in bursts and given up when the next key comes, on text
that grows and is edited; chats with think time, answers asked for again and turns taken back; batches as `flex`; sessions by
name; clients that leave, vanish, do not read, lose their connection and take the stream up again; stretches in which nobody
is there. A daemon with small budgets answers it, --hours of it in --minutes (the engine is not faster for it). Then the
daemon is started anew without drafts and without saved states, and each request is asked for alone with nothing warm.

Printed, and a verdict (exit code 1 with what was wrong):
  streams    every answer that ended is equal to its solo run, text and reason; what a client had when it left is its beginning
  RSS, fds   of serve at rest after the day at most what they were in its first quarter and a tolerance; the engine's own
             memory never over what is counted for it (aned_memory_used_bytes), and at rest at most what it was in the
             first half and a tolerance
  disk       saved states never over disk_mib; all else below the home grows by a bounded log of events
  writes     written in any stretch of t seconds: at most half of write_mib_per_hour and t hours' part of that half, by
             /metrics; the kernel's count for the engine agrees; and in any hour of the day (as compressed) at most the whole
  log        no error, no engine lost
What has to occur in such a day is counted (clients of every kind, warm tokens, accepted drafts, files evicted, saves refused
by the budget); if one did not, the day did not show what it is for, and that is wrong too.
"""
import argparse
import asyncio
import collections
import json
import pathlib
import re
import statistics
import sys
import time
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import player  # noqa: E402
import traffic  # noqa: E402
from bench import machine  # noqa: E402
from conftest import BIN, SHARED, TOP, Daemon  # noqa: E402

MIB = 1 << 20
STALL_S, RESUME_S = 4, 20  # stall_ms of a day in minutes; less of one in seconds
SERVE_MIB, FDS, ENGINE_PART, REST_MIB = 8, 4, 0.1, 8  # tolerances; ENGINE_PART: of what is counted for its states
PLAN_S = 10  # between the plan of a save and its end
MUST = ("reads", "leaves", "loses", "rests", "vanishes", "cut short", "cached tokens", "accepted drafts", "taken up", "stalled",
        "states saved", "states loaded", "evicted", "refused by the budget")


class Size(NamedTuple):
    """How large what is asked is, for a model's context. Characters, tokens, words."""
    prefix: int     # characters before the cursor
    complete: int   # tokens of a completion
    answer: tuple   # tokens of a chat's answer
    words: tuple    # of what a person says
    turns: int
    long: int       # tokens of an answer that nobody reads for a while
    choices: int    # of it: all together more than waits in a connection and its socket
    history: int    # characters a chat remembers


class Model(NamedTuple):
    source: pathlib.Path
    context: int
    size: Size
    disk_mib: int
    write_mib: int  # an hour
    state_mib: int
    sessions: int   # few: what was said is on disk after a while


MODELS = {
    "gemma": Model(TOP / ".build/models/gemma-3-270m-q4_k_m.gguf", 2048,
                   Size(480, 24, (24, 120), (8, 40), 7, 300, 4, 2400), 256, 960, 1024, 10),
    "demo": Model(TOP / "conf/demo/aned-demo.gguf", 1024, Size(400, 16, (8, 40), (6, 30), 6, 300, 4, 1600), 1, 8, 64, 5),
    "stories": Model(SHARED / "data/models/derived/stories260K.F32.gguf", 128,
                     Size(90, 8, (4, 16), (2, 4), 3, 60, 16, 60), 1, 8, 64, 5),
}


def proc(pid, name, pattern):
    """A number out of a file of /proc; 0: the process is gone."""
    try:
        m = re.search(pattern, pathlib.Path(f"/proc/{pid}/{name}").read_text(), re.M)
    except OSError:
        m = None
    return int(m.group(1)) if m else 0


def bytes_below(folder):
    total = 0
    for p in folder.rglob("*"):
        try:
            total += p.stat().st_size if p.is_file() else 0
        except OSError:
            pass  # removed meanwhile
    return total


class Watch:
    """Looks at a daemon again and again."""

    def __init__(self, d):
        self.d = d
        self.samples = []

    async def metrics(self):
        status, text = await player.call(str(self.d.sock), "GET", "/metrics")
        assert status == 200
        return {k: float(v) for k, v in re.findall(r"^aned_(\w+) (\S+)$", text, re.M)}

    async def look(self):
        d = self.d
        m = await self.metrics()
        engines = d.engines()
        states = min(bytes_below(d.home / "cache" / "states") for _ in range(2))  # one may be removed while its follower is seen
        self.samples.append({
            "at": time.monotonic(), "serve_mib": d.rss_kib() / 1024, "fds": d.fds(), "children": len(engines),
            "engine_mib": sum(proc(p, "status", r"^RssAnon:\s*(\d+)") for p in engines) / 1024,
            "engine_rss_mib": sum(proc(p, "status", r"^VmRSS:\s*(\d+)") for p in engines) / 1024,
            "engine_wrote": sum(proc(p, "io", r"^write_bytes: (\d+)") for p in engines),
            "states": states, "rest": bytes_below(d.home) - states, "written": m["states_written_bytes_total"],
            "promised_mib": m["memory_used_bytes"] / MIB, "running": m["streams_running"], "queued": m["queue_depth"],
            "connections": m["http_connections_open"], "saves": m["states_saves_total"]})
        return self.samples[-1]

    async def keep_looking(self, every_s):
        while True:
            await self.look()
            await asyncio.sleep(every_s)

    async def until_rest(self, seconds):
        """Nothing runs, waits or is saved any more."""
        end = time.monotonic() + seconds
        quiet = []
        while time.monotonic() < end:
            s = await self.look()
            quiet = [*quiet, s] if s["running"] + s["queued"] == 0 and s["connections"] == 1 else []
            if len(quiet) > 3 and quiet[-1]["saves"] == quiet[-4]["saves"]:
                return True
            await asyncio.sleep(0.5)
        return False


# --- the verdict ---

def over_budget(samples, budget):
    """Bytes by which the bucket's law was broken in the worst stretch; at most 0: it held."""
    half = budget / 2
    worst, least = -half, None
    for s in samples:
        own = s["written"] - half * s["at"] / 3600
        least = own if least is None else min(least, own)
        worst = max(worst, own - least - half * (1 + PLAN_S / 3600))
    return worst


def most_in(samples, seconds):
    """Most bytes written in any stretch of so many seconds."""
    most, first = 0, 0
    for i, s in enumerate(samples):
        while s["at"] - samples[first]["at"] > seconds:
            first += 1
        most = max(most, s["written"] - samples[first]["written"])
    return most


def judge_resources(samples, model, weights_mib, factor):
    """What is wrong with the samples of a day; the last was taken at rest."""
    wrong = []
    last, n = samples[-1], len(samples)

    def check(ok, text):
        if not ok:
            wrong.append(text)
    quarter, half = samples[:max(1, n // 4)], samples[:max(1, n // 2)]
    level = max(s["serve_mib"] for s in quarter)
    check(last["serve_mib"] <= level + SERVE_MIB, f"serve has {last['serve_mib']:.1f} MiB, had {level:.1f}")
    level = max(s["fds"] for s in quarter)
    check(last["fds"] <= min(s["fds"] for s in quarter) + FDS, f"serve has {last['fds']} fds, had {level} at most")
    check(last["children"] == 1, f"{last['children']} children")
    for s in samples:
        own = s["promised_mib"] - weights_mib
        if s["engine_mib"] > own:
            check(False, f"the engine has {s['engine_mib']:.1f} MiB of its own, {own:.1f} are counted")
            break
    level = max(s["engine_mib"] for s in half)
    part = ENGINE_PART * model.state_mib
    check(last["engine_mib"] <= level + part, f"the engine has {last['engine_mib']:.1f} MiB, had {level:.1f}")
    most = max(s["states"] for s in samples)
    check(most <= model.disk_mib * MIB, f"states take {most} bytes of {model.disk_mib} MiB")
    more = last["rest"] - samples[0]["rest"]
    check(more <= REST_MIB * MIB, f"the rest of the home has grown by {more} bytes")
    over = over_budget(samples, model.write_mib * MIB)
    check(over <= 0, f"{over:.0f} bytes more were written than the budget gives")
    hour = most_in(samples, 3600 / factor)
    check(hour <= model.write_mib * MIB, f"{hour:.0f} bytes were written in an hour of the day")
    real, told = last["engine_wrote"] - samples[0]["engine_wrote"], last["written"] - samples[0]["written"]
    check(real <= 1.05 * told + MIB, f"the engine wrote {real} bytes, /metrics tells of {told:.0f}")
    return wrong


def judge_stream(got, alone):
    """None, or how a stream differs from its solo run."""
    for i, text in got.texts.items():
        want = alone.texts.get(i, "")
        if got.done and (text, got.reasons.get(i)) != (want, alone.reasons.get(i)) or not want.startswith(text):
            return f"{got.path}, a client that {got.does}, choice {i}: {text[-200:]!r} instead of {want[-200:]!r}"
    return None


def judge_log(text):
    """Lines of the log that should not be there."""
    lost = [x for x in text.splitlines() if " engine_exit " in x and "status=0 signal=0 reason=none" not in x]
    return lost + [x for x in text.splitlines() if re.match(r"\S+Z error ", x)]


# --- the day ---

class Run:
    def __init__(self, args):
        self.args, self.model = args, MODELS[args.model]
        self.factor = args.hours * 60 / args.minutes
        self.stall_s = min(STALL_S, args.minutes * 10)
        self.d = Daemon(str(BIN / "daemon" / "aned"))

    def settings(self, drafts, disk):
        m = self.model
        self.d.stop()
        (self.d.home / "aned.conf").write_text(
            f"[http]\nstall_ms = {self.stall_s * 1000:.0f}\nresume_s = {RESUME_S}\nkeepalive_ms = 500\n"
            f"[speculation]\nmax_draft = {drafts}\n[limits]\nqueue = 256\n"
            f"[cache]\nsessions = {m.sessions}\nstate_mib = {m.state_mib}\ndisk_mib = {disk}\n"
            f"write_mib_per_hour = {m.write_mib}\ndisk_tokens = 64\n")
        self.d.start()

    async def first(self):
        """The model loaded. Can it chat?"""
        body = {"model": "m", "max_tokens": 1}
        status, text = await player.call(str(self.d.sock), "POST", "/v1/completions", {**body, "prompt": "x"})
        assert status == 200, text
        status, _ = await player.call(str(self.d.sock), "POST", "/v1/chat/completions",
                                      {**body, "messages": [{"role": "user", "content": "x"}]})
        return status == 200

    async def day(self):
        has_chat = await self.first()
        events = traffic.day(self.args.seed, self.args.hours * 3600, self.model.size)
        p = player.Player(self.d.sock, "m", has_chat, self.model.size.history, self.factor, self.stall_s)
        w = Watch(self.d)
        await w.look()
        looking = asyncio.create_task(w.keep_looking(min(1, self.args.minutes / 10)))
        await p.run(events, 120)
        looking.cancel()
        if not await w.until_rest(RESUME_S + self.stall_s + 30):
            p.wrong.append(f"no rest: {w.samples[-1]}")
        return events, p, w, await w.metrics()

    async def alone(self, all_got):
        """Every request alone; what is wrong."""
        groups = collections.defaultdict(list)
        for g in all_got:
            groups[g.path + json.dumps(g.body, sort_keys=True)].append(g)
        wrong, differ = [], 0
        for n, same in enumerate(groups.values()):
            if sys.stderr.isatty():
                print(f"\ralone {n + 1} of {len(groups)}", end="", file=sys.stderr)
            whole = same[0].body["max_tokens"]
            # of a stream that was left no more is needed, unless many tokens had no text of their own
            for most in (whole if any(g.done for g in same) else max(g.events for g in same) + 16, whole):
                run = await player.solo(str(self.d.sock), same[0], most)
                bad = [x for x in (judge_stream(g, run) for g in same) if x]
                if not bad or most >= whole:
                    break
            wrong += bad
            differ += len(bad)
        return len(groups), differ, wrong

    def count(self, p, metrics):
        c = collections.Counter(g.does for g in p.got)
        c["vanishes"] = p.vanished
        c["cut short"] = sum(not g.done for g in p.got)
        c["taken up"] = sum(g.does == "loses" and g.done for g in p.got)
        c["cached tokens"] = sum((g.usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0) for g in p.got)
        for name, key in (("accepted drafts", "speculation_accepted_tokens_total"), ("stalled", "http_streams_stalled_total"),
                          ("states saved", "states_saves_total"), ("states loaded", "states_loads_total"),
                          ("evicted", "states_evicted_total"), ("refused by the budget", "states_refused_budget_total")):
            c[name] = int(metrics[key])
        return c

    def play(self):
        """The whole of it; a dict of figures, among them `wrong`."""
        began = time.monotonic()
        job = self.d.convert(self.model.source, "m", context=self.model.context)
        assert job["state"] == "done", job
        self.settings(8, self.model.disk_mib)
        with self.d.http() as c:
            weights_mib = c.get("/aned/v1/models/m").json().get("bytes", 0) / MIB
        events, p, w, metrics = asyncio.run(self.day())
        took = time.monotonic() - began
        self.settings(0, 0)
        distinct, differ, wrong = asyncio.run(self.alone(p.got))
        code = self.d.stop()
        counts = self.count(p, metrics)
        wrong = p.wrong + wrong + judge_resources(w.samples, self.model, weights_mib, self.factor)
        wrong += judge_log(self.d.log.read_text())
        wrong += [f"the daemon ended with {code}"] if code != 0 else []
        must = [k for k in MUST if k != "states loaded" or self.model.context > 256]  # of two blocks none is worth a load
        wrong += [f"no {k}: that part was not shown" for k in must if counts[k] == 0]
        return {"machine": machine(), "model": self.args.model, "seed": self.args.seed, "hours": self.args.hours,
                "minutes": self.args.minutes, "events": len(events), "answers": len(p.got), "distinct": distinct,
                "different": differ, "refused_503": p.refused, "late_ms": round(1e3 * p.late_s, 1), "counts": dict(counts),
                "tokens": {k: int(metrics[f"{k}_tokens_total"]) for k in ("prompt", "cached", "output")},
                "resources": summary(w.samples, self.model, self.factor), "day_s": round(took, 1),
                "seconds": round(time.monotonic() - began, 1), "wrong": wrong}


def summary(samples, model, factor):
    n = len(samples)
    out = {}
    for k in ("serve_mib", "engine_mib", "engine_rss_mib", "fds", "children", "states", "rest", "running", "queued"):
        v = [s[k] for s in samples]
        out[k] = {"first": v[0], "quarter": max(v[:max(1, n // 4)]), "median": statistics.median(v), "most": max(v),
                  "rest": v[-1]}
    out["promised_mib"] = samples[-1]["promised_mib"]
    out["written_mib"] = (samples[-1]["written"] - samples[0]["written"]) / MIB
    out["hour_mib"] = most_in(samples, 3600 / factor) / MIB
    out["below_budget_mib"] = -over_budget(samples, model.write_mib * MIB) / MIB
    return out


def print_text(r, model):
    print(f"{r['machine']}\n{r['model']}, seed {r['seed']}: {r['hours']} hours in {r['minutes']} minutes, "
          f"{r['events']} events, {r['answers']} answers; latest {r['late_ms']} ms after its time; {r['refused_503']} refused "
          "and asked again")
    print(", ".join(f"{k} {n}" for k, n in r["counts"].items()))
    print(f"tokens: {r['tokens']['prompt']} of prompts, {r['tokens']['cached']} of them warm, {r['tokens']['output']} drawn\n")
    print(f"{'':22}{'first':>10}{'quarter':>10}{'median':>10}{'most':>10}{'at rest':>10}")
    names = {"serve_mib": "serve RSS MiB", "engine_mib": "engine's own MiB", "engine_rss_mib": "engine RSS MiB", "fds": "fds",
             "children": "children", "states": "saved states MiB", "rest": "rest of home MiB", "running": "streams running",
             "queued": "streams waiting"}
    for k, name in names.items():
        unit = MIB if k in ("states", "rest") else 1
        print(f"{name:22}" + "".join(f"{v / unit:10.1f}" for v in r["resources"][k].values()))
    s = r["resources"]
    print(f"\ncounted for the engine {s['promised_mib']:.0f} MiB; states on disk at most {model.disk_mib} MiB; written "
          f"{s['written_mib']:.1f} MiB, most in an hour of the day {s['hour_mib']:.1f} of {model.write_mib}, nearest to the "
          f"bucket's law {s['below_budget_mib']:.1f} MiB below it")
    print(f"{r['answers'] - r['different']} of {r['answers']} answers equal to their solo runs ({r['distinct']} distinct "
          f"requests); {r['seconds']} s, {r['day_s']} of them for the day")


def run(args):
    r = Run(args)
    try:
        return r.play()
    except (OSError, player.Lost):
        if r.d.proc.poll() is not None:
            sys.exit(f"day: the daemon ended with {r.d.proc.returncode}\n" + r.d.log.read_text()[-2000:])
        raise
    finally:
        r.d.close()


def main(argv=None):
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--model", default="gemma", choices=list(MODELS))
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--hours", type=float, default=2, help="of the day")
    a.add_argument("--minutes", type=float, default=10, help="in which they pass")
    a.add_argument("--json", action="store_true")
    args = a.parse_args(argv)
    if not MODELS[args.model].source.exists():
        sys.exit(f"day: no {MODELS[args.model].source.name} here")
    r = run(args)
    if args.json:
        print(json.dumps(r, indent=2))
    else:
        print_text(r, MODELS[args.model])
    for x in r["wrong"]:
        print(f"wrong: {x}", file=sys.stderr)
    sys.exit(bool(r["wrong"]))


if __name__ == "__main__":
    main()
