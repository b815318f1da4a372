"""Faults planted in copies of the project's files: a net that does not report them is blind.

Each is put at the end of a real file, which is then compiled as meson compiles that file; the same copy without the fault must
pass, so that it is the fault that is reported."""
import re
import xml.parsers.expat

import checks
import macho
import net as nets
import pytest

HOST = "daemon/http/listen.c"  # any file of ours that macOS compiles

# What is planted, and what clang says to it.
COMPILE = {
    "a header of Linux": ("#include <sys/prctl.h>", "'sys/prctl.h' file not found"),
    "a constant of Linux": (
        "int fault(void);\nint fault(void) { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); }",
        "'SOCK_CLOEXEC'"),
    "Linux's pthread_setname_np": (
        "#include <pthread.h>\nvoid fault(void);\nvoid fault(void) { (void)pthread_setname_np(pthread_self(), \"x\"); }",
        "too many arguments"),
    "a function that the SDK lacks": (  # pipe2 came after 15
        "int fault(int fd[2]);\nint fault(int fd[2]) { return pipe2(fd, 0); }", "'pipe2'"),
    "a function newer than the floor": (
        "__attribute__((availability(macos, introduced=15.4))) int newer(void);\n"
        "int fault(void);\nint fault(void) { return newer(); }",
        "'newer' is only available on macOS 15.4 or newer"),
    "a narrowing of a size": (
        "int fault(size_t n);\nint fault(size_t n) { return n; }", "implicit conversion"),
    "a function without a prototype": ("int fault(void) { return 0; }", "no previous prototype"),
    "a file offset of 64 bits by Linux's name": (
        "off64_t fault(void);\noff64_t fault(void) { return 0; }", "'off64_t'"),
}


def planted(folder, host, text):
    copy = folder / "copy.c"
    copy.write_text(nets.TOP.joinpath(host).read_text() + "\n" + text + "\n")
    return copy


@pytest.mark.parametrize("fault", COMPILE)
def test_compile(net, tmp_path, fault):
    text, message = COMPILE[fault]
    rc, said = net.compile(HOST, planted(tmp_path, HOST, ""), tmp_path / "copy.o")
    assert (rc, said) == (0, "")
    rc, said = net.compile(HOST, planted(tmp_path, HOST, text), tmp_path / "copy.o")
    assert rc != 0 and message in said


def test_availability_of_apples_headers(net, tmp_path):
    """The marks in Apple's headers count: the same call passes at the floor, and not one version below it."""
    text = ("#include <os/lock.h>\nvoid fault(os_unfair_lock_t l);\n"
            "void fault(os_unfair_lock_t l) { os_unfair_lock_lock_with_flags(l, OS_UNFAIR_LOCK_FLAG_NONE); }")
    copy = planted(tmp_path, HOST, text)
    assert net.compile(HOST, copy, tmp_path / "copy.o") == (0, "")
    rc, said = net.compile(HOST, copy, tmp_path / "copy.o", "-target", "arm64-apple-macos14.0")
    assert rc != 0 and "is only available on macOS 15.0 or newer" in said


MAIN = {"aned": "daemon/main.c", "anectl": "client/main.c"}


@pytest.mark.parametrize("name", MAIN)
@pytest.mark.parametrize("call, symbol", [
    ("int no_such_function(void);\nint fault(void);\nint fault(void) { return no_such_function(); }", "no_such_function"),
    ("int accept4(int, void *, void *, int);\nint fault(void);\nint fault(void) { return accept4(0, 0, 0, 0); }", "accept4"),
], ids=["nobody's", "Linux's"])
def test_undefined_symbol(net, tmp_path, name, call, symbol):
    """Nothing defines it, neither we nor a library of macOS, though Linux may."""
    for text, fine in (("", True), (call, False)):
        rc, said = net.compile(MAIN[name], planted(tmp_path, MAIN[name], text), tmp_path / "main.o")
        assert (rc, said) == (0, "")
        rc, said = net.link(name, {".p/main.c.o": tmp_path / "main.o"}, tmp_path / name)
        assert (rc == 0) == fine
    assert re.search(f"undefined symbol: _?{symbol}$", said, re.M)


@pytest.mark.parametrize("name", MAIN)
def test_no_info_plist(net, tmp_path, name):
    assert net.link(name, {".p/info_plist.c.o": None}, tmp_path / name)[0] == 0
    with pytest.raises(KeyError):
        checks.info_plist(tmp_path / name)


def test_broken_info_plist(net, tmp_path):
    """One that ends in a NUL, as a C string does, is no XML."""
    source = nets.TOP.joinpath("daemon/base/info_plist.h").read_text()
    with_nul = source.replace("sizeof(INFO_PLIST_XML(id, name)) - 1", "sizeof(INFO_PLIST_XML(id, name))")
    assert with_nul != source
    for text, fine in ((source, True), (with_nul, False)):
        tmp_path.joinpath("base").mkdir(exist_ok=True)
        tmp_path.joinpath("base/info_plist.h").write_text(text)  # found before the project's
        copy = planted(tmp_path, "daemon/info_plist.c", "")
        assert net.compile("daemon/info_plist.c", copy, tmp_path / "plist.o") == (0, "")
        assert net.link("aned", {".p/info_plist.c.o": tmp_path / "plist.o"}, tmp_path / "aned")[0] == 0
        if fine:
            assert checks.info_plist(tmp_path / "aned")["CFBundleIdentifier"] == "dev.aned.daemon"
        else:
            with pytest.raises(xml.parsers.expat.ExpatError):
                checks.info_plist(tmp_path / "aned")


def test_large_frame(net, tmp_path):
    text = ("void use(char *);\nvoid fault(void);\n"
            "void fault(void) { char block[%d]; use(block); }\nvoid use(char *p) { p[0] = 0; }")
    for size, fine in ((checks.FRAME_MAX - 1024, True), (checks.FRAME_MAX + 1, False)):
        assert net.compile(HOST, planted(tmp_path, HOST, text % size), tmp_path / "copy.o", "-fstack-usage") == (0, "")
        large = checks.large_frames(nets.read_usage(tmp_path / "copy.su"))
        assert (large == []) == fine and all("fault" in row for row in large)


def test_no_mach_o():
    """What this machine runs is not what the reader takes."""
    with pytest.raises(ValueError):
        macho.MachO("/bin/sh")
