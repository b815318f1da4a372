"""The arm64 build and the machines of qemu's that it runs on. run.py names them in the environment."""
import os
import pathlib
import subprocess

BUILD = pathlib.Path(os.environ.get("ANED_ARM64", "nowhere"))
SIGNED = BUILD.with_name("arm64-signed")  # char is signed, as on macOS
SYSROOT = os.environ.get("ANED_SYSROOT", "nowhere")

QUANTS = ("int8", "int4", "fp16")
CALIBRATED = "int4, calibrated"  # minutes under qemu
TEXT = b"Wie hei\xc3\x9ft der Daemon, der Modelle wandelt? \xe2\x80\x9caned\xe2\x80\x9d, said the caf\xc3\xa9's owner \xf0\x9f\x90\xb3. " * 3

SETS = {  # which kernels each machine has, best first
    "max": ["neon_i8mm", "neon_dot", "neon", "scalar"],
    "neoverse-n1": ["neon_dot", "neon", "scalar"],
    "cortex-a57": ["neon", "scalar"],  # ARMv8.0
}


def form(quant):
    """The options of a conversion."""
    return ["--quant", "int4"] if quant == CALIBRATED else ["--quant", quant, "--calibrate", "off"]


def start(exe, *args, cpu="max", preload=None, stdin=b""):
    """Run a program of the arm64 build to its end. preload: "pages" (as large as Apple's) or "fence" (behind every block)."""
    preload = ["-E", f"LD_PRELOAD={BUILD}/{preload}.so"] if preload else []
    command = ["qemu-aarch64", "-L", SYSROOT, "-cpu", cpu, *preload, exe, *args]
    return subprocess.run([str(c) for c in command], input=stdin, capture_output=True, timeout=900)


def done(r):
    """What it wrote; it went well."""
    assert r.returncode == 0, (r.args, r.returncode, r.stderr[-2000:])
    return r.stdout


def here(*args, stdin=b""):
    """Run a program of this machine."""
    return done(subprocess.run([str(a) for a in args], input=stdin, capture_output=True, timeout=900))


def files(bundle):
    return {str(p.relative_to(bundle)): p.read_bytes() for p in sorted(bundle.rglob("*")) if p.is_file()}
