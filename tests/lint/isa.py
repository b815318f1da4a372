#!/usr/bin/env python3
"""Fail when code that runs on every machine holds an instruction that not every machine has.

The build is for the plainest x86-64 (base/isa.h). What is compiled for more are the
libraries named --better (an instruction set's own) and functions whose name ends in _v3
or _sha, which are entered after isa_has(). Anywhere else an instruction in AVX's
encoding (its name begins with v), a register wider than 128 bits, or one of
SSE4's, BMI's and their like would end the daemon on an older machine with SIGILL.

usage: isa.py --better LIBRARY... --plain LIBRARY...   the former must show such instructions
"""
import re
import shutil
import subprocess
import sys

FUNCTION = re.compile(r"^[0-9a-f]+ <([^>]+)>:$")
BETTER = re.compile(
    r"\t(v[a-z0-9]+|andn|bextr|bls\w+|bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx|lzcnt|movbe|"
    r"popcnt|crc32|pshufb|palignr|pblendw|ptest|sha(1|256)\w+)[lqw]?\s")
NOT_AVX = {"verr", "verw", "vmcall"}
GUARDED = re.compile(r"_(v3|sha)(\.\w+)*$")  # compilers add .part.0 and the like


def better_in(library: str) -> dict:
    """Functions with such instructions, and one of each."""
    out = subprocess.run(["objdump", "-d", "--no-show-raw-insn", library],
                         capture_output=True, text=True, check=True).stdout
    found, name = {}, "?"
    for line in out.splitlines():
        m = FUNCTION.match(line)
        if m:
            name = m.group(1)
        elif name not in found:
            m = BETTER.search(line + " ")
            if (m and m.group(1) not in NOT_AVX) or "%ymm" in line or "%zmm" in line:
                found[name] = line.split("\t")[-1].strip()
    return found


def main(args: list) -> int:
    if shutil.which("objdump") is None:
        print("no objdump here: nothing is checked")
        return 77
    cut = args.index("--plain")
    bad = []
    for lib in args[1:cut]:
        if not better_in(lib):
            bad.append(f"{lib}: is said to be for a better machine, and is not")
    for lib in args[cut + 1:]:
        bad += [f"{lib}: {name}: {insn}" for name, insn in sorted(better_in(lib).items())
                if not GUARDED.search(name)]
    print("\n".join(bad) or "only what is looked at before holds better instructions")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
