"""The sandbox of a Mac's children: what the rules of daemon/base/seatbelt.c allow, read as the language is described."""
import subprocess

import net as nets
import pytest
import sbpl

ROOM, CACHES, TEMPORARY = "/Users/u/aned/staging", "/Users/u/Library/Caches", "/private/var/folders/a/b"
SOURCE = "/Users/u/Downloads/phi"  # of a manifest that is imported; of a GGUF it is ROOM
PARAMETERS = {"ROOM": ROOM, "SOURCE": SOURCE, "CACHES": CACHES, "TEMPORARY": TEMPORARY}
# operation, what it is done to, whether the converter and the engine may
RIGHTS = [
    ("file-read-data", "/etc/passwd", False, True),
    ("file-read-data", "/Users/u/.ssh/id_ed25519", False, True),
    ("file-read-data", ROOM + "/j1/a.bin", True, True),
    ("file-read-data", SOURCE + "/ane/layer.mlpackage/Manifest.json", True, True),
    ("file-write-data", SOURCE + "/meta.json", False, False),
    ("file-write-unlink", SOURCE + "/meta.json", False, False),
    ("file-read-data", SOURCE + "-not/meta.json", False, True),
    ("file-read-data", "/dev/urandom", True, True),
    ("file-read-metadata", "/Users", True, True),
    ("file-write-create", ROOM + "/j1/a.bin", True, True),
    ("file-write-create", ROOM + "-not/a.bin", False, False),
    ("file-write-unlink", "/Users/u/aned/models/m/bundle.json", False, False),
    ("file-write-create", "/Users/u/.zshrc", False, False),
    ("file-write-create", CACHES + "/dev.aned.daemon/e5", False, True),
    ("file-write-create", TEMPORARY + "/T/x", False, True),
    ("file-write-data", "/dev/null", False, True),
    ("network-outbound", "1.2.3.4:80", False, False),
    ("network-bind", ROOM + "/socket", False, False),
    ("process-exec", "/bin/sh", False, False),
    ("process-fork", None, False, False),
    ("signal", "self", True, True),
    ("signal", "others", False, True),
    ("sysctl-read", "hw.perflevel0.physicalcpu", True, True),
    ("mach-lookup", "com.apple.logd", True, True),
    ("mach-lookup", "com.apple.appleneuralengine", False, True),
    ("iokit-open", "H11ANEInDirectPathClient", False, True),
]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """The two profiles, as the program has them."""
    folder = tmp_path_factory.mktemp("seatbelt")
    folder.joinpath("show.c").write_text(
        '#include "base/seatbelt.h"\nint main(int argc, char **argv) {\n(void)argv;\n'
        "(void)puts(seatbelt_profile(argc > 1 ? SEATBELT_ENGINE : SEATBELT_CONVERT));\nreturn 0; }\n")
    subprocess.run(["clang", "-std=c11", "-D_GNU_SOURCE", f"-I{nets.TOP}/daemon", f"-I{nets.TOP}", folder / "show.c",
                    nets.TOP / "daemon/base/seatbelt.c", nets.TOP / "daemon/base/err.c", "-o", folder / "show"], check=True)
    return [subprocess.run([folder / "show", *more], check=True, capture_output=True, text=True).stdout
            for more in ([], ["engine"])]


def holes(text, column):
    """The rows of RIGHTS that a profile does not keep."""
    profile = sbpl.Profile(text, PARAMETERS)
    return [row[:2] for row in RIGHTS if profile.allows(*row[:2]) != row[column]]


def test_converter(texts):
    assert holes(texts[0], 2) == []


def test_engine(texts):
    assert holes(texts[1], 3) == []


@pytest.mark.parametrize("old, new", [
    ("(deny default)", "(allow default)"),
    ("(subpath (param \"ROOM\"))", "(subpath \"/Users\")"),
    ("(allow signal (target self))", "(allow signal)"),
    ("(allow file-read* (subpath (param \"SOURCE\")))", "(allow file-read* file-write* (subpath (param \"SOURCE\")))"),
    ("(allow file-read* (subpath (param \"SOURCE\")))", ""),
    ("com.apple.logd", "com.apple.securityd"),
])
def test_fault_of_the_converters(texts, old, new):
    assert texts[0].count(old) == 1
    assert holes(texts[0].replace(old, new), 2) != []


@pytest.mark.parametrize("old, new", [
    ("(deny network*)\n", ""),
    ("(deny process-fork)\n", ""),
    ("(deny file-write*)\n", ""),
    ("(deny file-write*)\n", "(deny file-read*)\n"),
    ("(allow default)\n", "(deny default)\n"),
])
def test_fault_of_the_engines(texts, old, new):
    assert texts[1].count(old) == 1
    assert holes(texts[1].replace(old, new), 3) != []


def test_the_last_rule_decides(texts):
    last = texts[1].replace("(deny file-write*)\n", "") + "(deny file-write*)\n"
    assert ("file-write-create", ROOM + "/j1/a.bin") in holes(last, 3)


@pytest.mark.parametrize("old, new", [("network*", "networks*"), ("(deny network*)", "(deny network*"), ("subpath", "subpaths"),
                                      ("ROOM", "ROM")])
def test_what_macos_would_refuse(texts, old, new):
    with pytest.raises((ValueError, KeyError)):
        sbpl.Profile(texts[1].replace(old, new, 1), PARAMETERS)
