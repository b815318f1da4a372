"""The whole tree, configured by meson for arm64 macOS with Debian's clang and lld, and single files of it compiled again.

Meson decides which files macOS builds, with which flags; nothing here repeats that."""
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import sdk

TOP = sdk.TOP
ROOMS = ("daemon", "client", "proto")


class Net:
    def __init__(self, out: pathlib.Path):
        self.build_dir = out / "macos-net"
        self.sdk = sdk.make(out / "macos-sdk")
        self._configure(out / "macos-sdk/cross.ini")
        info = self._meson("introspect", "--targets", self.build_dir)
        self.targets = {t["name"]: t for t in json.loads(info) if t["type"] in ("executable", "static library")}
        self.failures = []  # ninja's FAILED blocks
        self._commands = None

    def _meson(self, *args):
        meson = pathlib.Path(sys.prefix, "bin", "meson")
        done = subprocess.run([str(a) for a in (meson, *args)], cwd=TOP, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"meson {args[0]}:\n{done.stdout[-4000:]}{done.stderr}")
        return done.stdout

    def _configure(self, cross):
        """Once for each cross file, and each compiler."""
        version = subprocess.run(["clang", "--version"], capture_output=True, text=True, check=True).stdout
        key, stamp = cross.read_text() + version, self.build_dir / ".cross"
        if stamp.exists() and stamp.read_text() == key:
            return
        shutil.rmtree(self.build_dir, ignore_errors=True)
        # hardly optimised: what is wanted is that it compiles and links
        self._meson("setup", self.build_dir, TOP, "--cross-file", cross, "-Dbuildtype=plain", "-Dwerror=true")
        stamp.write_text(key)

    def output(self, target) -> pathlib.Path:
        return pathlib.Path(self.targets[target]["filename"][0])

    def build(self):
        """Every program and library, also those that are only built when asked for; `failures` says what did not compile or
        link."""
        files = [str(self.output(t).relative_to(self.build_dir)) for t in self.targets]
        done = subprocess.run(["ninja", "-k0", "-C", str(self.build_dir), *files], capture_output=True, text=True)
        blocks = re.split(r"^(?=FAILED: |\[\d+/\d+\] )", re.sub("\x1b\\[[0-9;]*[mK]", "", done.stdout), flags=re.M)
        self.failures = [b for b in blocks if b.startswith("FAILED: ")]
        if done.returncode != 0 and not self.failures:
            self.failures = [done.stdout[-4000:] + done.stderr]

    def commands(self) -> dict:
        """File of the project: one command that compiles it (argv); files that meson makes are named from the build folder."""
        if self._commands is None:
            self._commands = {}
            for entry in json.loads(self.build_dir.joinpath("compile_commands.json").read_text()):
                path = pathlib.Path(entry["directory"], entry["file"]).resolve()
                name = str(path.relative_to(TOP)) if path.is_relative_to(TOP) else str(path)
                self._commands.setdefault(name, shlex.split(entry["command"]))
        return self._commands

    def compile(self, like: str, source: pathlib.Path, output: pathlib.Path, *more):
        """Compile `source` as the project's file `like` is compiled. Returns (exit code, messages)."""
        argv = list(self.commands()[like])
        for option, value in (("-MQ", None), ("-MF", None), ("-o", str(output))):
            at = argv.index(option)
            argv[at:at + 2] = [] if value is None else [option, value]
        argv.remove("-MD")
        argv[-1] = str(source)
        done = subprocess.run([*argv, *more], cwd=self.build_dir, capture_output=True, text=True)
        return done.returncode, re.sub("\x1b\\[[0-9;]*[mK]", "", done.stderr)

    def link(self, target: str, replaced: dict, output: pathlib.Path):
        """Link a program again with other object files: `replaced` maps a suffix of an object's name to a file, or to None.
        Returns (exit code, messages)."""
        name = str(self.output(target).relative_to(self.build_dir))
        last = subprocess.run(["ninja", "-C", str(self.build_dir), "-t", "commands", "-s", name],
                              capture_output=True, text=True, check=True).stdout.strip().splitlines()[-1]
        argv = []
        for word in shlex.split(last):
            new = [file for suffix, file in replaced.items() if word.endswith(suffix)]
            argv += [word] if not new else [str(f) for f in new if f is not None]
        argv[argv.index("-o") + 1] = str(output)
        done = subprocess.run(argv, cwd=self.build_dir, capture_output=True, text=True)
        return done.returncode, done.stderr

    def stack_usage(self) -> list:
        """(bytes, file:line of the function) of daemon, client and proto, as clang counted them."""
        rows = []
        for usage in self.build_dir.rglob("*.su"):
            if usage.relative_to(self.build_dir).parts[0] in ROOMS:
                rows += read_usage(usage)
        return rows


def read_usage(path: pathlib.Path) -> list:
    """What -fstack-usage wrote: `file:line:function<tab>bytes<tab>static|dynamic`."""
    rows = (line.split("\t") for line in path.read_text().splitlines())
    return [(int(row[1]), row[0].replace("../", "")) for row in rows]


def sources(top: pathlib.Path) -> list:
    """Every file of the project that a C compiler reads, but tests/coreml: a stand-in for Core ML, which Linux runs."""
    found = (p.relative_to(top) for room in (*ROOMS, "tests") for kind in ("*.c", "*.m") for p in top.joinpath(room).rglob(kind))
    return sorted(str(p) for p in found if p.parts[:2] != ("tests", "coreml"))
