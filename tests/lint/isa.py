#!/usr/bin/env python3
"""Fail when code that runs on every machine holds an instruction that not every machine has.

The build is for the plainest x86-64 and arm64 (base/isa.h). What is compiled for more are the
libraries named --better (an instruction set's own) and functions whose name ends in _v3
or _sha, which are entered after isa_has(). Anywhere else an instruction of a later processor would
end the daemon on an older one with SIGILL: on x86-64 one in AVX's encoding (its name begins with v),
a register wider than 128 bits, or one of SSE4's, BMI's and their like; on arm64 one that is no part of
ARMv8.0: products of bytes, arithmetic in fp16 and bf16, atomics in one instruction, SVE, ciphers.

usage: isa.py [--objdump PROGRAM] --better LIBRARY... --plain LIBRARY...
The former must show such instructions.
"""
import re
import shutil
import subprocess
import sys

FUNCTION = re.compile(r"^[0-9a-f]+ <([^>]+)>:$")
GUARDED = re.compile(r"_(v3|sha)(\.\w+)*$")  # compilers add .part.0 and the like

X86 = re.compile(
    r"(?!(verr|verw|vmcall)[lqw]?\s)"
    r"(v[a-z0-9]+|andn|bextr|bls\w+|bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx|lzcnt|movbe|"
    r"popcnt|crc32|pshufb|palignr|pblendw|ptest|sha(1|256)\w+)[lqw]?\s|.*%[yz]mm")
ARM = re.compile(
    r"(([su]|us|su|bf)dot|(s|u|us|bf)mmla|bfcvt\w*|bfml\w+|fml[as]l2?|sqrdml[as]h|fcmla|fcadd|fjcvtzs|frint(32|64)[xz]|"
    r"(ld|st)(add|clr|eor|set|[su]max|[su]min)a?l?[bh]?|swpp?a?l?[bh]?|casp?a?l?[bh]?|"  # LSE
    r"ldapu?r\w*|stlur\w*|cfinv|setf(8|16)|rmif|axflag|xaflag|crc32\w+|"
    r"aes\w+|sha\d\w+|sm[34]\w+|eor3|bcax|rax1|xar|reta[ab]|bl?ra[ab]z?|ldra[ab]|cpy[fpme]\w+|"
    r"\.inst)\s|"  # what objdump does not know
    r"pmull2?\s+v\d+\.1q|"
    r"(?!fcvt[ln]?2?\s)([fsu]cvt|f)\w+\s.*\b(v\d+\.[48]h|h\d+)|"  # fp16 is only converted
    r".*\b(z\d+\.[bhsdq]|p\d+[./])")  # SVE


def better_in(library: str, objdump: str) -> dict:
    """Functions with such instructions, and one of each."""
    out = subprocess.run([objdump, "-d", "--no-show-raw-insn", library],
                         capture_output=True, text=True, check=True).stdout
    better = ARM if "aarch64" in out else X86
    found, name = {}, "?"
    for line in out.splitlines():
        m = FUNCTION.match(line)
        if m:
            name = m.group(1)
        elif name not in found and "\t" in line:
            insn = line.split("\t", 1)[1]
            if better.match(insn + " "):
                found[name] = insn.replace("\t", " ").strip()
    return found


def main(args: list) -> int:
    objdump = args[1] if args[0] == "--objdump" else shutil.which("objdump")
    if objdump is None:
        print("no objdump here: nothing is checked")
        return 77
    cut = args.index("--plain")
    bad = []
    for lib in args[args.index("--better") + 1:cut]:
        if not better_in(lib, objdump):
            bad.append(f"{lib}: is said to be for a better machine, and is not")
    for lib in args[cut + 1:]:
        bad += [f"{lib}: {name}: {insn}" for name, insn in sorted(better_in(lib, objdump).items())
                if not GUARDED.search(name)]
    print("\n".join(bad) or "only what is looked at before holds better instructions")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
