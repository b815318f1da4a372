#!/usr/bin/env python3
"""How even the progress of a conversion is, and so how honest an ETA made of it.

    eta.py [--rows FILE] ANED MODEL.gguf [OPTIONS of aned convert]

Random weights fail the gate at four bits: --accept quality.

Runs the conversion on a terminal of its own and reads its progress line. Prints what each stage took and what was told, the most
memory in it (RssAnon + RssShmem, looked at with each line: what is no file's, so without the mapped source), and the
worst error of two ETAs after the first tenth, in percent of the whole time: what is behind by the fraction, and what anectl makes of
it (client/term.c: the recent speed). --rows writes each line's time, stage and fraction to a file. Figures mean something
on a machine that does nothing else.
"""
import os
import pathlib
import pty
import re
import subprocess
import sys
import tempfile
import time

LINE = re.compile(rb"([a-z]+) +\[[#.]*\] +(\d+) %")


def memory(pid):
    """Bytes now; 0 once the process is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return 1024 * sum(int(n) for n in re.findall(r"Rss(?:Anon|Shmem):\s*(\d+)", text))


def watch(command):
    """(seconds, stage, fraction, bytes) of each line, and the whole time."""
    ours, theirs = pty.openpty()
    began = time.monotonic()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    rows, text = [], b""
    while True:
        try:
            text = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        now = time.monotonic() - began, memory(child.pid)
        rows += [(now[0], m[1].decode(), int(m[2]) / 100, now[1]) for m in LINE.finditer(text)]
    os.close(ours)
    if child.wait() != 0:
        sys.exit(f"{command[0]} ended with {child.returncode}: {text.decode(errors='replace')}")
    return rows, time.monotonic() - began


def by_fraction(rows):
    return [(t, t / f) for t, _, f, _ in rows if f > 0]


def by_recent_speed(rows):
    """As eta_update does: a sample counts by how long it took, most of what is longer ago than a sixth of the time so far (and 10 s)
    is forgotten, and the first fraction above 0 is the beginning."""
    found, began, at, seen, rate = [], 0.0, 0.0, 0.0, 0.0
    for t, _, f, _ in rows:
        if seen <= 0:
            began, at, seen = t, t, f
            continue
        dt = t - at
        if dt >= 0.2 and f > seen:
            past = max(10, (t - began) / 6)
            keep = past / (past + dt) if rate > 0 else 0
            rate = keep * rate + (1 - keep) * (f - seen) / dt
            at, seen = t, f
        if rate > 0 and f >= 0.02 and t >= 1:
            found.append((t, t + max(0.0, (1 - f) / rate - (t - at))))
    return found


def main():
    args = sys.argv[1:]
    kept = args[1] if args[:1] == ["--rows"] and len(args) > 1 else None
    aned, model, *more = args[2 if kept else 0:] if len(args) > (3 if kept else 1) else sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="aned-eta-", dir=pathlib.Path(model).parent) as room:
        rows, whole = watch([aned, "convert", model, "--out", f"{room}/bundle", *more])
    if kept:
        pathlib.Path(kept).write_text("".join(f"{t:.2f} {stage} {f:.2f}\n" for t, stage, f, _ in rows))
    begins = {}
    most = {}
    for t, stage, f, now in rows:
        begins.setdefault(stage, (t, f))
        most[stage] = max(now, most.get(stage, 0))
    ends = [*list(begins.values())[1:], (whole, 1.0)]
    print(f"{'stage':<12} {'takes':>8} {'share':>7} {'told':>7} {'memory':>10}")
    for (stage, (t, f)), (end, to) in zip(begins.items(), ends):
        print(f"{stage:<12} {end - t:>6.2f} s {100 * (end - t) / whole:>5.0f} % {100 * (to - f):>5.0f} % {most[stage] / 2**20:>6.0f} MiB")
    for name, guesses in (("by the fraction", by_fraction(rows)), ("by the recent speed", by_recent_speed(rows))):
        late = [abs(guess - whole) / whole for t, guess in guesses if t >= whole / 10]
        print(f"worst error {name}: {100 * max(late):.0f} % of {whole:.1f} s" if late else f"{name}: too short to say")


if __name__ == "__main__":
    main()
