#!/usr/bin/env python3
"""The suite arm64: aned is built for arm64 Linux with Debian's clang and libraries, and runs under qemu.

usage: run.py arm64|arm64-smoke OUT PACKAGE...   OUT is .build; the packages are unpacked for clang and qemu (sysroot)

Results are JUnit files in OUT/results. Where something is missing (this is no x86-64 Debian, the packages cannot be
fetched) one test is skipped and tells what.
"""
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[1]
TOOLS = ("apt-get", "clang", "ld.lld", "aarch64-linux-gnu-ar", "aarch64-linux-gnu-objdump", "qemu-aarch64", "meson", "ninja")

# Unit tests that say nothing under qemu, and why.
LEFT_OUT = {
    "gen jobs models probe_run probing runner session verify voc": "start programs of their machine, which this one's kernel does not run",
    "sim sweep": "scripts that do",
    "service": "asks whether a program was found, and qemu's posix_spawn does not tell",
    "lossless": "a hundred thousand draws of a sampler that the unit test sampler compares already",
    "memory": "resident bytes, which are qemu's",
}
SMOKE = ["linear", "weight", "half", "floats", "files", "slab"]
PAGES = ["files", "slab", "kv", "crew", "engine", "steps", "convert"]  # what maps memory, with pages of 16 KiB (pages.c)
FENCE = ["linear", "attend", "floats", "weight"]  # what reads rows, with nothing behind a block (fence.c)


def say(text):
    print(text, file=sys.stderr, flush=True)


class Suite:
    def __init__(self, level, out, packages):
        self.full = level == "arm64"
        self.out = out.resolve()
        self.packages = packages
        self.build = self.out / "arm64"
        self.signed = self.out / "arm64-signed"
        self.sysroot = self.out / "arm64-sysroot"
        self.cross = self.out / "arm64.cross"
        self.failed = []

    def lacks(self):
        """Why this machine cannot run the suite, or None."""
        if platform.system() != "Linux" or platform.machine() != "x86_64":
            return "arm64 under qemu is compared with x86-64 Linux: this machine is neither"
        missing = [t for t in TOOLS if shutil.which(t) is None]
        if missing:
            return "not installed: " + " ".join(missing)
        r = subprocess.run([HERE / "sysroot", self.sysroot, *self.packages], capture_output=True, text=True)
        if r.returncode != 0:
            return "no arm64 packages: " + (r.stderr.strip() or "sysroot failed").splitlines()[-1]
        if r.stdout:
            say("arm64: " + r.stdout.strip())
        return None

    def skipped(self, reason):
        suite = ET.Element("testsuite", name="arm64")
        ET.SubElement(ET.SubElement(suite, "testcase", classname="arm64", name="build"), "skipped", message=reason)
        ET.ElementTree(suite).write(self.out / "results" / "arm64.xml")
        say("arm64: skipped: " + reason)

    def qemu(self, *options):
        return " ".join(["qemu-aarch64", "-L", str(self.sysroot), *options])

    def write_cross_file(self):
        """For meson. A new one makes new build folders."""
        lib = self.sysroot / "usr/lib/aarch64-linux-gnu"
        text = f"""[binaries]
c = ['clang', '--target=aarch64-linux-gnu', '--sysroot={self.sysroot}']
ar = 'aarch64-linux-gnu-ar'
strip = 'aarch64-linux-gnu-strip'
objdump = 'aarch64-linux-gnu-objdump'
pkgconfig = 'pkg-config'
pkg-config = 'pkg-config'
exe_wrapper = ['qemu-aarch64', '-L', '{self.sysroot}']
[properties]
pkg_config_libdir = '{lib}/pkgconfig:{self.sysroot}/usr/share/pkgconfig'
sys_root = '{self.sysroot}'
needs_exe_wrapper = true
[built-in options]
c_link_args = ['-fuse-ld=lld']
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
"""
        if not self.cross.exists() or self.cross.read_text() != text:
            shutil.rmtree(self.build, ignore_errors=True)
            shutil.rmtree(self.signed, ignore_errors=True)
            self.cross.write_text(text)

    def step(self, name, log, *args, **more):
        """Run a command, its output in OUT/log; what went wrong is shown, and remembered by this name."""
        with open(self.out / log, "wb") as f:
            ok = subprocess.run([str(a) for a in args], stdout=f, stderr=subprocess.STDOUT, **more).returncode == 0
        if not ok:
            say("\n".join((self.out / log).read_text(errors="replace").splitlines()[-30:]))
            self.failed.append(name)
        return ok

    def make(self, build, targets, *options):
        """Configure the build folder once and build targets in it."""
        name = build.name
        return ((build / "build.ninja").exists() or self.step(
            name + " setup", name + ".setup.log", "meson", "setup", build, TOP, "--cross-file", self.cross, "-Dbuildtype=release",
            *options)) and self.step(name + " build", name + ".build.log", "ninja", "-C", build, *targets)

    def make_preload(self, name):
        """A library that changes what programs see of their machine, NAME.c here."""
        return self.step(name + ".c", f"arm64.{name}.log", "clang", "--target=aarch64-linux-gnu", f"--sysroot={self.sysroot}",
                         "-fuse-ld=lld", "-O1", "-fno-builtin", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
                         HERE / (name + ".c"), "-o", self.build / (name + ".so"))

    def preload(self, name):
        return "-E", f"LD_PRELOAD={self.build}/{name}.so"

    def unit_names(self):
        r = subprocess.run(["meson", "test", "--list", "--suite", "unit"], cwd=self.build, capture_output=True, text=True)
        left_out = {n for names in LEFT_OUT for n in names.split()}
        names = [line.split(" / ")[1] for line in r.stdout.splitlines() if " / " in line]
        assert left_out < set(names), f"LEFT_OUT names tests that do not exist: {left_out - set(names)}"
        return [n for n in names if n not in left_out]

    def meson_test(self, name, names, *options):
        """Unit tests on one machine of qemu's."""
        name = "arm64-" + name
        say(f"   {name}: {len(names)} programs")
        logs = self.build / "meson-logs"
        for old in logs.glob(name + "*"):
            old.unlink()
        env = dict(os.environ, ANED_RUN=self.qemu(*options))
        self.step(name, f"results/{name}.log", "meson", "test", "--no-stdsplit", "--logbase", name, "--print-errorlogs",
                  "-t", "30", "--num-processes", str(os.cpu_count()), *names, cwd=self.build, env=env)
        junit = logs / f"{name}.junit.xml"
        if junit.exists():
            shutil.copy(junit, self.out / "results" / f"{name}.xml")

    def python_tests(self):
        env = dict(os.environ, ANED_BIN=str(self.out / "release"), ANED_TOP=str(TOP), ANED_ARM64=str(self.build),
                   ANED_SYSROOT=str(self.sysroot))
        if self.step("arm64", "results/arm64.log", sys.executable, "-m", "pytest", "-q", "--rootdir", TOP, "-rs",
                     f"--junitxml={self.out}/results/arm64.xml", *(["--slow"] if self.full else ["-m", "not slow"]), HERE,
                     env=env):
            say((self.out / "results/arm64.log").read_text().splitlines()[-1])

    def run(self):
        reason = self.lacks()
        if reason is not None:
            self.skipped(reason)
            return 0
        self.write_cross_file()
        programs = ["daemon/aned", "client/anectl", *["tests/test_" + n for n in SMOKE]]
        # Loops have their own options (meson.build); of the rest the smoke asks what an arm64 compiler makes of it.
        options = [] if self.full else ["-Doptimization=1"]
        if self.make(self.build, programs, *options) and self.make_preload("pages") and self.make_preload("fence"):
            units = SMOKE
            if self.full:
                units = self.unit_names()
                self.make(self.signed, ["daemon/aned", "tests/test_linear"], "-Dc_args=-fsigned-char")
            self.meson_test("unit", [*units, "isa", "libm"], "-cpu", "max")
            if self.full:
                self.meson_test("n1", ["linear", "attend"], "-cpu", "neoverse-n1")
                self.meson_test("a57", ["linear", "attend"], "-cpu", "cortex-a57")
                self.meson_test("pages", PAGES, *self.preload("pages"))
                self.meson_test("fence", FENCE, *self.preload("fence"))
            self.python_tests()
        if self.failed:
            say("arm64: failed: " + ", ".join(self.failed))
        return bool(self.failed)


if __name__ == "__main__":
    sys.exit(Suite(sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]).run())
