#!/usr/bin/env python3
"""Bring what our declarations are proven against into .build/coreml/sources: PyObjC's metadata, from its source distributions by
pip, and objc2's crates, by cargo. Versions are pinned, and what was read once is known by its digest.

    fetch.py      fetches what is missing; exit 1 and the reason when it cannot

The wheel `ziglang`, with Apple's C headers and libSystem's symbols, is a package of the Python that runs this."""
import hashlib
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[3]
BUILD = TOP / ".build" / "coreml"
SOURCES = BUILD / "sources"
# package: its version, and the folders of its metadata that are read (pyobjc.FRAMEWORKS)
PYOBJC = {
    "pyobjc-framework-CoreML": ("12.2.2", ["raw"]),
    "pyobjc-framework-Cocoa": ("13.0", ["raw.Foundation", "raw.CoreFoundation"]),
    "pyobjc-framework-Quartz": ("13.0", ["raw.CoreVideo"]),
    "pyobjc-framework-IOSurface": ("12.2.2", ["raw"]),
}
OBJC2 = {name: "0.3.2" for name in ("objc2-core-ml", "objc2-foundation", "objc2-core-video", "objc2-io-surface",
                                   "objc2-core-foundation")} | {"objc2": "0.6.5"}
DIGESTS = {
    "pyobjc": "507aac642271fd5deae6f3b295f580afcfb1c8136a670dc1d0c9f339563af5e2",
    "objc2": "c55e8c6b91235c699dce37847b6226c348a52a6b36267973c60a0c5ab0ea4036",
}
OLDEST_CARGO = (1, 68)  # an older one reads only the index of old
FETCH_S = 600


class Missing(Exception):
    """Something cannot be had here; the text says what and why."""


class Changed(Exception):
    """Something is there and not what was pinned."""


def run(*command, **options) -> subprocess.CompletedProcess:
    try:
        return subprocess.run([str(c) for c in command], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=FETCH_S,
                              **options)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise Missing(f"{command[0]}: {e}") from None


def last_lines(done: subprocess.CompletedProcess) -> str:
    return " | ".join((done.stdout + done.stderr).strip().splitlines()[-3:])


def wheel() -> pathlib.Path:
    """The folder lib/ of the package ziglang."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None:
        raise Missing(f"{sys.executable} has no package ziglang; ./dev test coreml makes a Python that has it")
    return pathlib.Path(spec.origin).parent / "lib"


def digest(folder: pathlib.Path) -> str:
    """Of every file below `folder`, by name and content."""
    h = hashlib.sha256()
    for f in sorted(p for p in folder.rglob("*") if p.is_file()):
        h.update(f"{f.relative_to(folder)}\n".encode() + hashlib.sha256(f.read_bytes()).digest())
    return h.hexdigest()


def source(name: str) -> pathlib.Path:
    """The folder of "pyobjc" or "objc2", complete and the one that is known. Errors: Missing, Changed."""
    folder = SOURCES / name
    if not folder.is_dir():
        raise Missing(f"no {folder}; tests/coreml/decl/fetch.py brings it")
    found = digest(folder)
    if found != DIGESTS[name]:
        raise Changed(f"{folder} is not what was pinned: digest {found}; remove it to fetch it again")
    return folder


def fetch_pyobjc(out: pathlib.Path, work: pathlib.Path) -> None:
    """pip unpacks a source distribution, then asks it for its metadata, which fails off a Mac; with --no-clean the files stay."""
    for package, (version, folders) in PYOBJC.items():
        box = work / package
        box.mkdir()
        done = run(sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-binary", ":all:", "--no-clean",
                   "--no-deps", "--no-build-isolation", "-d", box / "archive", f"{package}=={version}",
                   env=os.environ | {"TMPDIR": str(box)})
        found = [p.parent for p in box.glob("*/*/PKG-INFO") if f"\nVersion: {version}\n" in p.read_text()]
        if len(found) != 1:
            raise Missing(f"pip brought no {package}=={version}: {last_lines(done)}")
        for folder in folders:
            name = folder.removeprefix("raw.") if "." in folder else package.removeprefix("pyobjc-framework-")
            (out / package / folder).mkdir(parents=True)
            for f in (found[0] / "metadata" / folder).glob("arm64-*.fwinfo"):
                shutil.copy(f, out / package / folder)
            shutil.copy(found[0] / "metadata" / f"{name}.fwinfo", out / package)


def cargo_version(cargo, env) -> tuple:
    found = re.match(r"cargo (\d+)\.(\d+)", run(cargo, "--version", env=env).stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def debian_cargo(work: pathlib.Path) -> tuple:
    """cargo out of Debian's package, unpacked and not installed: it comes without the compiler, which is ten times its size.
    Debian 12 has a newer one by the name of cargo-web."""
    for name in ("cargo-web", "cargo"):
        found = re.search(r"^Version: (\d+)\.(\d+)", run("apt-cache", "show", name).stdout, flags=re.M)
        if found and (int(found[1]), int(found[2])) >= OLDEST_CARGO:
            break
    else:
        raise Missing("no cargo, and apt knows none that is new enough (after apt-get update?)")
    plan = run("apt-get", "install", "-s", "--no-install-recommends", name).stdout
    wanted = [n for n in re.findall(r"^Inst (\S+)", plan, flags=re.M) if not re.search(r"rust|llvm|^(gcc|cpp|binutils)", n)]
    done = run("apt-get", "download", *{name, *wanted}, cwd=work)
    for deb in work.glob("*.deb"):
        run("dpkg", "-x", deb, work / "root")
    cargo = work / "root/usr/bin/cargo"
    if not cargo.exists():
        raise Missing(f"apt-get download {name}: {last_lines(done)}")
    libraries = ":".join(str(p) for folder in ("usr/lib", "lib") for p in (work / "root" / folder).glob("*-linux-gnu"))
    return cargo, os.environ | {"LD_LIBRARY_PATH": libraries}


def fetch_objc2(out: pathlib.Path, work: pathlib.Path) -> None:
    cargo, env = shutil.which("cargo"), dict(os.environ)
    if cargo is None or cargo_version(cargo, env) < OLDEST_CARGO:
        box = work / "cargo"
        box.mkdir()
        cargo, env = debian_cargo(box)
    manifest = ["[package]", 'name = "declarations"', 'version = "0.0.0"', 'edition = "2021"', "[lib]", 'path = "none.rs"',
                "[dependencies]",
                *(f'{name} = {{ version = "={version}", default-features = false }}' for name, version in OBJC2.items())]
    work.joinpath("Cargo.toml").write_text("\n".join(manifest) + "\n")
    work.joinpath("none.rs").touch()
    home = work / "home"  # nothing is written into the user's; what he set there holds
    home.mkdir()
    for config in ("config", "config.toml"):
        his = pathlib.Path(env.get("CARGO_HOME") or pathlib.Path.home() / ".cargo", config)
        if his.is_file():
            shutil.copy(his, home)
    done = run(cargo, "vendor", "vendor", cwd=work, env=env | {"CARGO_HOME": str(home)})
    for name in OBJC2:
        crate = work / "vendor" / name / "src"
        if not crate.is_dir():
            raise Missing(f"cargo brought no {name}: {last_lines(done)}")
        for f in (*crate.glob("*.rs"), *crate.glob("generated/*.rs"), *crate.glob("ffi/*.rs")):
            target = out / name / f.relative_to(crate.parent)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(f, target)


def fetch(name: str) -> None:
    """Fetches "pyobjc" or "objc2" unless it is there. Errors: Missing, Changed."""
    if (SOURCES / name).is_dir():
        source(name)
        return
    SOURCES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD) as scratch:
        work, out = pathlib.Path(scratch, "work"), pathlib.Path(scratch, "out")
        work.mkdir()
        {"pyobjc": fetch_pyobjc, "objc2": fetch_objc2}[name](out, work)
        found = digest(out)
        if found != DIGESTS[name]:
            raise Changed(f"{name} is not what was pinned: digest {found}")
        out.rename(SOURCES / name)


def main() -> int:
    reasons = []
    for name in DIGESTS:
        try:
            fetch(name)
        except (Missing, Changed) as e:
            reasons.append(f"fetch: {name}: {e}")
    print("\n".join(reasons), file=sys.stderr)
    return bool(reasons)


if __name__ == "__main__":
    sys.exit(main())
