#!/usr/bin/env python3
"""A folder that clang takes for a macOS SDK, made on Linux: Apple's own libc headers and libSystem.tbd out of the PyPI wheel
`ziglang` (SDK 15.1), and single headers and lists of symbols of the libraries that this machine's packages bring.

    sdk.py OUT      makes OUT/MacOSX.sdk, OUT/pkgconfig and OUT/cross.ini, meson's cross file for arm64 macOS

The libraries are not macOS's: a .tbd says which symbols a library has, and the packages' are the same functions. What is linked
with them is a whole Mach-O file, but nothing that runs.

    SDK/usr/include                 Apple's headers (a link into the wheel)
    SDK/usr/lib                     libSystem.tbd, and its other names
    SDK/usr/local                   headers and .tbd of the libraries that Homebrew has on a Mac; what the wheel lacks
    SDK/System/Library/Frameworks   Core ML and what goes with it (tests/coreml/decl/frameworks.py)
"""
import pathlib
import shutil
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(TOP / "tests/coreml/decl"))

import fetch  # noqa: E402
import frameworks  # noqa: E402

FLOOR = "15.0"  # the oldest macOS that aned runs on
SDK_VERSION = "15.1"  # of ziglang 0.14.1; a later wheel declares functions that the floor lacks
TARGET = f"arm64-apple-macos{FLOOR}"

# pkg-config's name: the library, and its entries of /usr/include
LIBRARIES = {
    "libuv": ("uv", ["uv.h", "uv"]),
    "libcjson": ("cjson", ["cjson"]),
    "sqlite3": ("sqlite3", ["sqlite3.h"]),
    "libprotobuf-c": ("protobuf-c", ["protobuf-c"]),
    "libpcre2-8": ("pcre2-8", ["pcre2.h"]),
    "libutf8proc": ("utf8proc", ["utf8proc.h"]),
    "inih": ("inih", ["ini.h"]),
    "libllhttp": ("llhttp", ["llhttp.h"]),
    "cmocka": ("cmocka", ["cmocka.h"]),
}
SYSTEM = {"edit": ["histedit.h"]}  # libraries that macOS itself has, without a .pc file


def run(*command) -> str:
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout


def wheel() -> pathlib.Path:
    """The folder of the package ziglang in the Python that runs this. Errors: fetch.Missing."""
    return fetch.wheel().parent


def write(path: pathlib.Path, text: str) -> None:
    """A file that stays as old as it is when nothing changes: ninja links again what is older."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def link(name: pathlib.Path, target: pathlib.Path) -> None:
    name.parent.mkdir(parents=True, exist_ok=True)
    name.unlink(missing_ok=True)
    name.symlink_to(target)


def shared_object(library: str) -> pathlib.Path:
    """What -lLIBRARY means to this machine's compiler."""
    found = pathlib.Path(run("cc", f"-print-file-name=lib{library}.so").strip())
    if not found.is_absolute():
        sys.exit(f"sdk: no lib{library}.so: ./dev install brings the packages")
    return found


def exported(library: str) -> list:
    """The functions and objects of a shared library of this machine, as macOS's linker spells them."""
    rows = (line.split() for line in run("nm", "-D", "--defined-only", shared_object(library)).splitlines())
    return sorted({"_" + row[2].split("@")[0] for row in rows if len(row) == 3 and row[1] in "TWVDBRi"})


def tbd(install_name: str, symbols: list) -> str:
    """A text-based stub: what a dynamic library of macOS exports."""
    names = ",\n                       ".join(symbols)
    return (f"--- !tapi-tbd\ntbd-version: 4\ntargets: [ arm64-macos ]\ninstall-name: '{install_name}'\n"
            f"exports:\n  - targets: [ arm64-macos ]\n    symbols:         [ {names} ]\n...\n")


def make_system(sdk: pathlib.Path) -> None:
    """Apple's part: headers, libSystem and the names under which a linker asks for it."""
    link(sdk / "usr/include", wheel() / "lib/libc/include/any-macos-any")
    for name in ("System", "System.B", "c", "m", "pthread", "dl"):
        link(sdk / f"usr/lib/lib{name}.tbd", wheel() / "lib/libc/darwin/libSystem.tbd")
    write(sdk / "SDKSettings.json", f'{{"CanonicalName": "macosx{SDK_VERSION}", "Version": "{SDK_VERSION}", '
                                    f'"MaximumDeploymentTarget": "{SDK_VERSION}.99"}}\n')


def make_frameworks(sdk: pathlib.Path) -> None:
    """Declarations for what is compiled; lists of symbols once there is Objective-C to link. Errors: fetch.Missing."""
    frameworks.write_headers(sdk)
    if next(TOP.joinpath("daemon").rglob("*.m"), None) is not None:
        for source in ("pyobjc", "objc2"):
            fetch.fetch(source)
        frameworks.write_symbols(sdk)


def make_library(sdk: pathlib.Path, place: str, name: str, headers: list) -> None:
    """A library of this machine: its headers one by one, since /usr/include holds Linux's too."""
    for header in headers:
        here = pathlib.Path("/usr/include", header)
        if not here.exists():
            sys.exit(f"sdk: no {here}: ./dev install brings the packages")
        link(sdk / "usr/local/include" / header, here)
    write(sdk / place / f"lib{name}.tbd", tbd(f"/{place}/lib{name}.dylib", exported(name)))


def make_pkgconfig(folder: pathlib.Path, sdk: pathlib.Path) -> None:
    for name, (library, _) in LIBRARIES.items():
        version = run("pkg-config", "--modversion", name).strip()
        write(folder / f"{name}.pc", f"Name: {name}\nDescription: of this machine, for macOS\nVersion: {version}\n"
                                     f"Libs: -L{sdk}/usr/local/lib -l{library}\n")


def cross_file(compiler: list, archiver: list, pkgconfig: pathlib.Path, c_args: list, link_args: list = (), more: str = "") -> str:
    """Meson's description of a Mac, for `compiler`; `more` are lines of [binaries]."""
    def quoted(words):
        return "[" + ", ".join(f"'{w}'" for w in words) + "]"
    return f"""[binaries]
c = {quoted(compiler)}
objc = {quoted(compiler)}
ar = {quoted(archiver)}
ranlib = 'true'
strip = 'true'
pkg-config = '{shutil.which("pkg-config")}'
{more}
[properties]
pkg_config_libdir = '{pkgconfig}'
needs_exe_wrapper = true

[built-in options]
c_args = {quoted(c_args)}
objc_args = {quoted(c_args)}
c_link_args = {quoted(link_args)}
objc_link_args = {quoted(link_args)}

[host_machine]
system = 'darwin'
subsystem = 'macos'
kernel = 'xnu'
cpu_family = 'aarch64'
cpu = 'arm64'
endian = 'little'
"""


def make(out: pathlib.Path) -> pathlib.Path:
    """Make everything below `out`; returns the SDK's folder. Errors: fetch.Missing."""
    sdk, pkgconfig = out / "MacOSX.sdk", out / "pkgconfig"
    make_system(sdk)
    make_frameworks(sdk)
    for name, headers in LIBRARIES.values():
        make_library(sdk, "usr/local/lib", name, headers)
    for name, headers in SYSTEM.items():
        make_library(sdk, "usr/lib", name, headers)
    make_pkgconfig(pkgconfig, sdk)
    # GNU ar makes no table of symbols of Mach-O files: the wheel's does
    write(out / "cross.ini", cross_file(["clang", "-target", TARGET, "-isysroot", str(sdk)], [str(wheel() / "zig"), "ar"],
                                        pkgconfig, ["-Wunguarded-availability", "-fstack-usage"],
                                        more="c_ld = 'lld'\nobjc_ld = 'lld'\n"))
    return sdk


if __name__ == "__main__":
    print(make(pathlib.Path(sys.argv[1]).resolve()))
