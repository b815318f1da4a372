#!/usr/bin/env python3
"""What sessions leave behind: the engine's own memory while sessions come and go.

    ./dev bench memory [--model gemma|demo] [--tokens 4000] [--sessions 64] [--json]

A session of --tokens is made, one token is generated after it, and it is deleted: what the engine holds then (RssAnon) is the
base. So are --sessions more, one after the other, each of another text. The verdict (exit code 1): each stands at least
--least-mib above the base while it lives, and after each the engine comes back to the base and at most --more-mib; a
minute is waited for it, as a state may just be written to disk. The daemon has its own defaults.
"""
import argparse
import json
import pathlib
import random
import re
import sys
import time

from bench import BIN, Daemon, machine, source

LIMIT_S = 60


def engine(d, name):
    with d.http() as c:
        return c.get(f"/aned/v1/models/{name}").json()["engine"]


def anon_mib(pid):
    """Memory of a process that is no file's."""
    return int(re.search(r"RssAnon:\s*(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1)) / 1024


def settles(pid, at_most):
    """RssAnon when it is at most that, or has not come to it; MiB."""
    end = time.monotonic() + LIMIT_S
    while anon_mib(pid) > at_most and time.monotonic() < end:
        time.sleep(0.02)
    return anon_mib(pid)


def make(d, name, n_tokens, salt, vocab=500):
    """A session of so many tokens, all of them computed; its id."""
    draw = random.Random(salt)
    tokens = [draw.randrange(5, vocab) for _ in range(n_tokens)]
    with d.http(600) as c:
        r = c.post("/aned/v1/sessions", json={"model": name, "tokens": tokens})
        assert r.status_code == 201, r.text
        s = r.json()["id"]
        r = c.post(f"/aned/v1/sessions/{s}/generate", json={"max_tokens": 1})
        assert r.status_code == 200, r.text
    return s


def delete(d, session):
    with d.http() as c:
        assert c.delete(f"/aned/v1/sessions/{session}").status_code == 200


def one(d, name, n_tokens, salt, at_most):
    """RssAnon in MiB with a session, and when it is deleted."""
    s = make(d, name, n_tokens, salt)
    pid = engine(d, name)["pid"]
    alive = anon_mib(pid)
    delete(d, s)
    return alive, settles(pid, at_most(alive))


def run(d, name, n_tokens, sessions, least_mib, more_mib, tell=lambda _: None):
    """Figures and what is wrong with them."""
    _, base = one(d, name, n_tokens, 0, lambda alive: alive - least_mib)
    rows = []
    for i in range(sessions):
        rows.append(one(d, name, n_tokens, i + 1, lambda _: base + more_mib))
        tell(i + 1)
    wrong = [f"session {i + 1} stood {a - base:.1f} MiB above the base" for i, (a, _) in enumerate(rows) if a < base + least_mib]
    wrong += [f"after session {i + 1} {b - base:.1f} MiB above the base" for i, (_, b) in enumerate(rows) if b > base + more_mib]
    return {"base_mib": base, "alive_mib": [a for a, _ in rows], "after_mib": [b for _, b in rows], "wrong": wrong}


def main():
    a = argparse.ArgumentParser(prog="./dev bench memory", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--model", default="gemma", choices=["gemma", "demo"])
    a.add_argument("--tokens", type=int, help="of a session (default 4000; demo: 1000)")
    a.add_argument("--sessions", type=int, default=64)
    a.add_argument("--least-mib", type=float, help="a living session's own memory at least (default 60; demo: 0.5)")
    a.add_argument("--more-mib", type=float, default=32, help="above the base at most when it is gone (default 32)")
    a.add_argument("--json", action="store_true")
    args = a.parse_args()
    tokens = args.tokens or (4000 if args.model == "gemma" else 1000)
    least = args.least_mib if args.least_mib is not None else 60 if args.model == "gemma" else 0.5
    d = Daemon(str(BIN / "daemon" / "aned"))
    try:
        job = d.convert(source(args.model), "m", context=-(-(tokens + 16) // 64) * 64)
        assert job["state"] == "done", job
        r = run(d, "m", tokens, args.sessions, least, args.more_mib,
                lambda n: print(f"\rsession {n}", end="", file=sys.stderr, flush=True))
        r["promised_mib"] = engine(d, "m")["state_bytes"] / 2**20
    finally:
        d.close()
    print("\r", end="", file=sys.stderr)
    if args.json:
        print(json.dumps({"machine": machine(), "model": args.model, "tokens": tokens, **r}, indent=2))
    else:
        print(machine())
        print(f"{args.model}, {args.sessions} sessions of {tokens} tokens; RssAnon of the engine in MiB")
        print(f"base {r['base_mib']:.1f}; a state is promised with {r['promised_mib']:.1f}")
        for k in ("alive", "after"):
            v = [x - r["base_mib"] for x in r[f"{k}_mib"]]
            print(f"{k} above the base: least {min(v):.1f}, most {max(v):.1f}, last {v[-1]:.1f}")
        print("\n".join(r["wrong"]) or "holds")
    sys.exit(1 if r["wrong"] else 0)


if __name__ == "__main__":
    main()
