#!/usr/bin/env python3
"""Fail when an object that computes calls a function of libm whose result is not exact.

The bits of a step, of a drawn token and of a converted model are promised to be the
same on every machine; libm's exp, sin, pow and their like differ between systems,
versions and even processors. base/fmath.h has ours. Of libm only what IEEE 754 or C
defines to the last bit may be called:

  sqrt fma                            rounded once, by IEEE 754
  floor ceil trunc rint nearbyint     exact: the result is a float (the rounding mode
  round lrint lround ...              is never changed)
  fmod remainder modf                 exact
  ldexp scalbn frexp logb ilogb       a change of the exponent
  fabs copysign nextafter             bits

Not fmin and fmax: which zero they give is left open.

usage: libm.py BAIT LIBRARY...   BAIT is a library that breaks the rule: it must be found
"""
import shutil
import subprocess
import sys

INEXACT = """
acos asin atan atan2 cos sin tan sincos acosh asinh atanh cosh sinh tanh cospi sinpi
exp exp2 exp10 expm1 log log10 log1p log2 pow cbrt hypot erf erfc lgamma tgamma gamma
j0 j1 jn y0 y1 yn fmin fmax fdim
""".split()
BANNED = {name + suffix for name in INEXACT for suffix in ("", "f", "l")}


def imports(library: str) -> set:
    nm = shutil.which("nm") or shutil.which("llvm-nm")
    if nm is None:
        print("no nm here: nothing is checked")
        sys.exit(77)
    out = subprocess.run([nm, "-u", library], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1].split("@")[0] for line in out.splitlines() if line.strip()}
    if sys.platform == "darwin":
        names = {n.removeprefix("_") for n in names}
    return {n.removeprefix("__").removesuffix("_finite") for n in names}


def main(bait: str, *libraries: str) -> int:
    if not imports(bait) & BANNED:
        print(f"{bait}: what breaks the rule on purpose was not found")
        return 1
    bad = [f"{lib}: calls {name}" for lib in libraries for name in sorted(imports(lib) & BANNED)]
    print("\n".join(bad) or f"{len(libraries)} libraries: no inexact function of libm")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
