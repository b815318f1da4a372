#!/usr/bin/env python3
"""Write what a linker needs of Apple's frameworks, and a place where clang finds our headers as frameworks:

    frameworks.py OUT

OUT/System/Library/Frameworks/NAME.framework/NAME.tbd, .../Headers (a link to ../include/NAME), OUT/usr/lib/libobjc.tbd; where
OUT has them not yet, usr/include and usr/lib/libSystem.tbd of the wheel, so that OUT is a whole SDK to clang and ld64.lld. A .tbd
is the list of a library's symbols. Here are those only that PyObjC's metadata or objc2 knows and that macOS 15.0 had: another
one, or a newer one, is an undefined symbol. No framework hands on another's symbols: what links names CoreFoundation and libobjc
itself, as it may on a Mac, too."""
import os
import pathlib
import re
import shutil
import sys

import fetch
import ours
import pyobjc

FLOOR = (15, 0)
# The letter of the version that is current; part of the install name
FRAMEWORKS = {"CoreML": "A", "Foundation": "C", "CoreFoundation": "A", "CoreVideo": "A", "IOSurface": "A"}
# Symbols that no header declares: clang itself writes references to them. prove_emitted() finds each in a clang.
EMITTED = {
    "CoreFoundation": ["__CFConstantStringClassReference", "__NSArray0__", "__NSDictionary0__"],
    "libobjc": ["OBJC_EHTYPE_id", "__objc_personality_v0", "_objc_empty_cache", "objc_alloc_init", "objc_ehtype_vtable",
                "objc_msgSendSuper2", "objc_setProperty_atomic", "objc_setProperty_atomic_copy", "objc_setProperty_nonatomic",
                "objc_setProperty_nonatomic_copy"],
}


def newer(entry: dict) -> bool:
    version = pyobjc.version(entry.get("introduced"))
    return bool(version) and tuple(int(n) for n in version.split(".")) > FLOOR


def symbols(metadata: pyobjc.PyObjC, framework: str) -> tuple:
    """(functions and constants, classes) of a framework, by their names in C."""
    definitions = metadata.frameworks[framework]
    plain = [name for kind in ("functions", "externs") for name, entry in definitions[kind].items()
             if not newer(entry) and not entry.get("inline")]
    classes = []
    for name, entry in definitions["classes"].items():
        since = metadata.since(name, False)
        if name != "NSObject" and not newer({"introduced": since}):  # NSObject is libobjc's
            classes.append(name)
    return plain + EMITTED.get(framework, []), classes


def runtime(objc2: pathlib.Path, headers: pathlib.Path) -> list:
    """The functions of libobjc: those that Apple's own headers declare or objc2's crate does."""
    names = set()
    for f in sorted((objc2 / "objc2/src/ffi").glob("*.rs")):
        text = re.sub(r"^\s*//.*$", "", f.read_text(), flags=re.M)
        names |= set(re.findall(r"\bfn (_?(?:objc|object|class|sel|method|protocol|property|ivar|imp)_\w+)\s*[(<]", text))
    for f in sorted((headers / "objc").glob("*.h")):
        names |= set(re.findall(r"\b((?:objc|object|class|sel|method|protocol|property|ivar|imp)_\w+)\s*\(", f.read_text()))
    return sorted(names | set(EMITTED["libobjc"]))


def prove_emitted(zig: pathlib.Path) -> list:
    """Those names of EMITTED that are not in `zig`, a file that holds a whole clang."""
    text = zig.read_bytes()
    return [name for names in EMITTED.values() for name in names if name.encode() not in text]


def tbd(install_name: str, plain: list, classes: list) -> str:
    text = ["--- !tapi-tbd", "tbd-version: 4", "targets: [ arm64-macos ]", f"install-name: '{install_name}'", "exports:",
            "  - targets: [ arm64-macos ]"]
    for key, names in (("symbols", ["_" + name for name in sorted(set(plain))]), ("objc-classes", sorted(set(classes)))):
        if names:
            text.append(f"    {key}: [ " + ",\n      ".join(names) + " ]")
    return "\n".join([*text, "...", ""])


def headers_of(framework: str) -> pathlib.Path:
    shared = ours.INCLUDE / framework
    return shared if shared.is_dir() else ours.INCLUDE / "mac" / framework


def link(name: pathlib.Path, target: pathlib.Path) -> None:
    name.parent.mkdir(parents=True, exist_ok=True)
    if name.is_dir() and not name.is_symlink():  # an earlier version's
        shutil.rmtree(name)
    name.unlink(missing_ok=True)
    name.symlink_to(os.path.relpath(target, name.parent.resolve()))


def write_headers(out: pathlib.Path) -> None:
    """Makes of `out` what clang takes for an SDK. Errors: fetch.Missing without the wheel."""
    wheel = fetch.wheel()
    for framework in FRAMEWORKS:
        link(out / f"System/Library/Frameworks/{framework}.framework/Headers", headers_of(framework))
    for name in ("os", "sandbox.h"):  # what the wheel lacks; clang looks here first
        link(out / "usr/local/include" / name, ours.INCLUDE / "mac" / name)
    for name, target in (("usr/include", "libc/include/any-macos-any"), ("usr/lib/libSystem.tbd", "libc/darwin/libSystem.tbd")):
        if not (out / name).exists():
            link(out / name, wheel / target)


def write_symbols(out: pathlib.Path) -> None:
    """Errors: fetch.Missing and Changed; ValueError when clang does not know an EMITTED name."""
    metadata, wheel = pyobjc.PyObjC(fetch.source("pyobjc")), fetch.wheel()
    functions = runtime(fetch.source("objc2"), wheel / "libc/include/any-macos-any")
    unknown = prove_emitted(wheel.parent / "zig")
    if unknown:
        raise ValueError(f"no clang writes references to {', '.join(unknown)}")
    for framework, version in FRAMEWORKS.items():
        folder = out / "System/Library/Frameworks" / f"{framework}.framework"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"/System/Library/Frameworks/{framework}.framework/Versions/{version}/{framework}"
        (folder / f"{framework}.tbd").write_text(tbd(name, *symbols(metadata, framework)))
    library = out / "usr/lib/libobjc.tbd"
    library.parent.mkdir(parents=True, exist_ok=True)
    library.write_text(tbd("/usr/lib/libobjc.A.dylib", functions, ["NSObject"]))


if __name__ == "__main__":
    try:
        write_headers(pathlib.Path(sys.argv[1]))
        write_symbols(pathlib.Path(sys.argv[1]))
    except (fetch.Missing, fetch.Changed, ValueError) as e:
        sys.exit(f"frameworks: {e}")
