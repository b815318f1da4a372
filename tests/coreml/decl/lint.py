#!/usr/bin/env python3
"""Objective-C for macOS, looked at without a Mac: each .m of daemon/ is compiled for arm64 macOS (no code is made) with the
project's warnings, then read by clang's analyzer, which follows retain and release. Every warning is an error.

    lint.py [FILE...]      FILE: other files instead of daemon's; without any .m there, sample.m

Needs clang (Debian 12's 14 and 13's 19 will do) and the wheel ziglang: Apple's C headers."""
import pathlib
import re
import subprocess
import sys
import tempfile

import fetch
import frameworks
import ours

HERE = pathlib.Path(__file__).resolve().parent
SAMPLE = HERE / "sample.m"
LIBRARIES = ("CoreML", "Foundation", "CoreFoundation", "CoreVideo", "IOSurface")
ANALYZER = ["--analyze", "-Xanalyzer", "-analyzer-output=text", "-Xanalyzer", "-analyzer-checker=osx,nullability",
            "-Xclang", "-analyzer-werror"]


def sdk() -> pathlib.Path:
    """Apple's headers and ours in one folder. Errors: fetch.Missing."""
    out = fetch.BUILD / "sdk"
    frameworks.write_headers(out)
    return out


def warnings() -> list:
    """The flags of meson.build; clang ignores what it does not know."""
    found = re.findall(r"'(-W[^']+)'", (fetch.TOP / "meson.build").read_text())
    return ["-Wall", "-Wextra", "-Wpedantic", *found, "-Wunguarded-availability", "-Wno-unknown-warning-option", "-Werror"]


def compiler(folder: pathlib.Path, *flags) -> list:
    """A command that lacks only its file; without reference counting by the compiler, which Linux has not."""
    return ["clang", "-target", ours.TARGET, "-isysroot", str(folder), "-std=c11", "-fblocks", "-fno-objc-arc", f"-I{fetch.TOP}",
            f"-I{fetch.TOP / 'daemon'}", *warnings(), *flags]


def run(command: list) -> str:
    """What `command` says when it fails, or ""."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return (done.stdout + done.stderr).strip() or f"{command[0]} exits with {done.returncode}" if done.returncode else ""


def check(folder: pathlib.Path, file: pathlib.Path) -> str:
    """The compiler's findings in `file`, or else the analyzer's, or ""."""
    return run([*compiler(folder, "-fsyntax-only"), file]) or run([*compiler(folder, *ANALYZER), file])


def linker() -> str:
    """ld64.lld of clang's own version: a .tbd is a matter of versions, too."""
    version = subprocess.run(["clang", "--version"], capture_output=True, text=True, check=True).stdout
    return "ld64.lld-" + re.search(r"version (\d+)", version)[1]


def link(folder: pathlib.Path, file: pathlib.Path, out: pathlib.Path) -> str:
    """Compiles and links `file` to the Mach-O executable `out`; what fails, or "". Wants frameworks.write_symbols()."""
    with tempfile.TemporaryDirectory() as box:
        made = pathlib.Path(box, "made.o")
        wanted = [w for name in LIBRARIES for w in ("-framework", name)]
        return run([*compiler(folder, "-O1", "-c", "-o", made), file]) or run(
            [linker(), "-arch", "arm64", "-platform_version", "macos", "15.0", "15.1", "-syslibroot", folder, made, "-o", out,
             *wanted, "-lobjc", "-lSystem"])


def sources() -> list:
    """The .m files of daemon, or the sample as long as there is none."""
    return sorted((fetch.TOP / "daemon").rglob("*.m")) or [SAMPLE]


def main() -> int:
    try:
        folder = sdk()
    except fetch.Missing as e:
        sys.exit(f"lint: {e}")
    findings = 0
    for file in [pathlib.Path(a) for a in sys.argv[1:]] or sources():
        said = check(folder, file)
        print(f"{file}: {said or 'ok'}")
        findings += bool(said)
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
