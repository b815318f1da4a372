"""The same constrained answers, byte for byte, whatever the daemon does: drafts, other streams, a restart, a lost engine."""
import concurrent.futures
import os
import signal
import threading

import asking
from conftest import metric

SCHEMAS = 48  # seeded, and greedy
TOKENS = 120
FILL = "A daemon keeps small conversations warm. " * 8  # so that there is a prompt to save
LEVELS = (  # name, max_draft, streams at a time, how it begins
    ("no drafts, 8 streams", 0, 8, "cold"), ("drafts, 1 stream", 8, 1, "cold"), ("drafts, 8 streams", 8, 8, "cold"),
    ("drafts, warm after a restart", 8, 8, "restored"), ("no drafts, engine killed", 0, 8, "killed"),
    ("drafts, engine killed", 8, 8, "killed"))


def fields(i, greedy):
    return {"max_tokens": TOKENS, "seed": 500 + i, "temperature": 0 if greedy else 1,
            "prompt": f"{i}. {FILL} Write a value that keeps to the schema."}


def restart(d, drafts):
    d.stop()
    (d.home / "aned.conf").write_text(f"[speculation]\nmax_draft = {drafts}\n[cache]\ndisk_mib = 256\ndisk_tokens = 64\n")
    d.start()


class Killer:
    """Ends the engine once so many events have come."""

    def __init__(self, d, events):
        self.d, self.left, self.kills, self.lock = d, events, 0, threading.Lock()

    def event(self):
        with self.lock:
            self.left -= 1
            now = self.left == 0
        if now:
            for pid in self.d.engines():
                os.kill(pid, signal.SIGKILL)
                self.kills += 1


def stream(d, model, job, on_event=None, reuse=False):
    case, i, greedy = job
    return asking.ask(d, "completions", case.schema, model, on_event=on_event, cache_prompt=reuse, **fields(i, greedy))


def streams(d, model, jobs, at_once, on_event=None, reuse=False):
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda j: stream(d, model, j, on_event, reuse), jobs))


def killed(d, model, jobs, drafts, at_once):
    """Each lot of streams on a daemon of its own, with a clean record of crashes."""
    out, kills = [], 0
    for lo in range(0, len(jobs), 2 * at_once):
        restart(d, drafts)
        k = Killer(d, 25)
        out += streams(d, model, jobs[lo:lo + 2 * at_once], at_once, k.event)
        kills += k.kills
    return out, f"{kills} engines killed" if kills else None


def level(d, model, jobs, drafts, at_once, start):
    """Answers, and what shows that the start was what it is called; None: it was not."""
    if start == "killed":
        return killed(d, model, jobs, drafts, at_once)
    restart(d, drafts)
    if start == "cold":
        return streams(d, model, jobs, at_once), "cold"
    for job in jobs:
        stream(d, model, job, reuse=True)
    restart(d, drafts)
    got = streams(d, model, jobs, at_once, reuse=True)
    warm = metric(d, "cached_tokens_total")
    return got, f"{warm:.0f} tokens of prompts were warm" if warm else None


def run(d, model, todo, report):
    chosen = [c for c in todo if isinstance(c.schema, dict) and c.schema]
    chosen = chosen[::max(1, len(chosen) // SCHEMAS)][:SCHEMAS]
    jobs = [(c, i, greedy) for greedy in (False, True) for i, c in enumerate(chosen)]
    restart(d, 0)
    want = streams(d, model, jobs, 1)
    for name, drafts, at_once, start in LEVELS:
        got, shown = level(d, model, jobs, drafts, at_once, start)
        accepted = metric(d, "speculation_accepted_tokens_total")  # of the last daemon, where there were several
        if bool(accepted) != bool(drafts):
            report.bad(jobs[0][0], f"{name}: {accepted:.0f} drafts were accepted")
        equal = 0
        for job, a, b in zip(jobs, want, got):
            equal += a == b
            if a != b:
                report.bad(job[0], f"{name}, {'greedy' if job[2] else 'seeded'}: {b}, not", str(a))
        if shown is None:
            report.bad(jobs[0][0], f"{name}: that start was not shown")
        print(f"same ({name}): {equal} of {len(jobs)} answers of {len(chosen)} schemas; {shown}; "
              f"{accepted:.0f} drafts accepted")
