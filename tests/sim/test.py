#!/usr/bin/env python3
"""A few hundred seeds of the simulator hold, and every mutant of the scheduler breaks one: test.py FOLDER SEEDS."""
import pathlib
import signal
import subprocess
import sys

import mutate

folder, seeds = pathlib.Path(sys.argv[1]), sys.argv[2]
bad = 0
for name in [None, *mutate.MUTANTS]:
    exe = folder / ("sim" if name is None else f"sim_mutant_{name}")
    r = subprocess.run([exe, "--seeds", seeds], capture_output=True, text=True)
    first = (r.stdout or r.stderr).splitlines()[0]
    # a must() of the scheduler's own is a find as well
    found = r.returncode == 1 or (r.returncode == -signal.SIGABRT and "must(" in r.stderr)
    wrong = r.returncode != 0 if name is None else not found
    bad += wrong
    print("not ok" if wrong else "ok", "-", name or "the scheduler", ":", first, f"(status {r.returncode})")
sys.exit(1 if bad else 0)
