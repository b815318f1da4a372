"""aned for arm64 macOS, compiled against Apple's own libc headers and linked as Mach-O files (net.py, sdk.py)."""
import fnmatch
import re

import checks
import macho
import net as nets
import pytest
import sdk

# Which files no target of macOS has, and why.
ELSEWHERE = {
    "daemon/engine/cpu/kernels/sets/kernel_a[mv]x*.c": "instructions of x86",
    "tests/arm64/*.c": "LD_PRELOAD, under qemu",
    "tests/fault/seam.c": "takes the place of libc's functions by name",
    "tests/unit/api/test_body.c": "-Wl,--wrap of GNU's linkers",
    "tests/unit/api/test_responses_events.c": "-Wl,--wrap of GNU's linkers",
    "tests/unit/engine/test_memory.c": "-Wl,--wrap of GNU's linkers",
    "tests/unit/serve/watch_calls.c": "LD_PRELOAD",
}
PROGRAMS = {"aned": ("daemon/aned", "dev.aned.daemon"), "anectl": ("client/anectl", "dev.aned.anectl")}


def test_everything_compiles_and_links(net):
    """Every C file of daemon, client, proto and tests, with the project's warnings as errors; every program, every unit test."""
    assert not net.failures, "\n".join(net.failures)[:8000]
    assert not [t for t in net.targets if not net.output(t).exists()]


def test_no_file_is_left_out(net):
    """What macOS does not build is named above; a file that meson forgot is not."""
    left = [f for f in nets.sources(nets.TOP) if f not in net.commands()]
    assert [f for f in left if not any(fnmatch.fnmatch(f, p) for p in ELSEWHERE)] == []
    assert [p for p in ELSEWHERE if not fnmatch.filter(left, p)] == [], "named for nothing"


def test_warnings_are_on(net):
    """Meson keeps the flags that the compiler knows. A compiler that refused them all would see nothing."""
    text = nets.TOP.joinpath("meson.build").read_text()
    asked = set(re.findall(r"'(-W[\w=-]+)'", text))
    used = set(net.commands()["daemon/main.c"])
    gcc = {"-Wcast-align=strict", "-Wlogical-op", "-Wduplicated-cond", "-Wjump-misses-init"}
    assert len(asked) > 30 and asked - used <= gcc
    assert {"-Werror", "-Wunguarded-availability", "-Wextra", "-Wpedantic"} <= used


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_whole_mach_o(net, name):
    assert checks.machine(net.output(name)) == checks.MAC_PROGRAM
    m = macho.MachO(net.output(name))
    # every undefined symbol has its library (macOS looks nowhere else), and none loads what it does not name
    assert m.imports and not [s for s, library in m.imports.items() if not isinstance(library, str)]
    known = {f"/usr/local/lib/lib{lib}.dylib" for lib, _ in sdk.LIBRARIES.values()}
    known |= {f"/usr/lib/lib{lib}.dylib" for lib in ("System.B", "objc.A", *sdk.SYSTEM)}
    known |= {f"/System/Library/Frameworks/{f}.framework/Versions/{v}/{f}" for f, v in sdk.frameworks.FRAMEWORKS.items()}
    assert set(m.dylibs) <= known


@pytest.mark.parametrize("name", PROGRAMS)
def test_info_plist(net, name):
    version = re.search(r"version: '([\d.]+)'", nets.TOP.joinpath("meson.build").read_text()).group(1)
    plist = checks.info_plist(net.output(name))
    assert plist["CFBundleIdentifier"] == PROGRAMS[name][1]
    assert plist["CFBundleName"] == plist["CFBundleExecutable"] == name
    assert plist["CFBundleVersion"] == plist["CFBundleShortVersionString"] == version
    assert plist["LSMinimumSystemVersion"] == sdk.FLOOR


def test_stack_frames(net):
    """macOS gives every thread but the first 512 KiB."""
    rows = net.stack_usage()
    assert len(rows) > 2000, "clang wrote no stack usage"
    assert checks.large_frames(rows) == []
