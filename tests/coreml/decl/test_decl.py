"""Our headers are Apple's declarations; what they compile links; daemon's Objective-C is clean."""
import pathlib
import re
import subprocess

import ctype
import exceptions
import fetch
import frameworks
import lint
import objc2
import ours
import prove
import pytest


def test_every_declaration_is_proven(proof_of):
    proof = proof_of(ours.INCLUDE)
    for name, question in sorted(proof.used):
        print(f"not proven: {name}: {question}: {exceptions.EXCEPTIONS[name, question]}")
    for header, reason in exceptions.SYMBOLS_ONLY.items():
        print(f"not proven: {header}: all but the symbols: {reason}")
    print(f"{len(proof.headers.decls)} declarations, {proof.checked} questions")
    assert "\n".join(map(str, proof.findings)) == ""


def test_half_the_proof_without_objc2(wheel, metadata, system):
    """Where cargo brings nothing; exceptions of objc2's questions are not asked for then."""
    proof = prove.Proof(ours.read(ours.INCLUDE, wheel), metadata, None, system)
    proof.run()
    assert "\n".join(map(str, proof.findings)) == ""


def test_the_sample_uses_every_class(wheel):
    text = lint.SAMPLE.read_text()
    classes = [d.name for d in ours.read(ours.INCLUDE, wheel).decls if isinstance(d, ours.Container) and not d.protocol]
    assert len(classes) > 40
    assert [name for name in classes if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize("file", lint.sources(), ids=lambda f: f.name)
def test_lint(sdk, file):
    assert lint.check(sdk, file) == ""


def test_the_sample_itself(sdk):
    """Also when daemon has files: the sample has what they may not use."""
    assert lint.check(sdk, lint.SAMPLE) == ""


def test_the_sample_links(linked_sdk, tmp_path):
    made = tmp_path / "sample"
    assert lint.link(linked_sdk, lint.SAMPLE, made) == ""
    data = made.read_bytes()
    assert data.startswith(b"\xcf\xfa\xed\xfe\x0c\x00\x00\x01"), "not a Mach-O file for arm64"
    for name in lint.LIBRARIES:
        assert f"/{name}.framework/Versions/".encode() in data
    assert b"/usr/lib/libobjc.A.dylib" in data


PLAIN_C = """
#include <os/log.h>
#include <sandbox.h>
int main(int argc, char **argv)
{
    os_log_t log = os_log_create("dev.aned.daemon", "engine");
    os_log_with_type(log, OS_LOG_TYPE_ERROR, "%{public}s: %d", argv[0], argc);
    os_log_with_type(OS_LOG_DEFAULT, OS_LOG_TYPE_INFO, "plain");
    char *why = 0;
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wdeprecated-declarations"
    int rc = sandbox_init("(version 1)", 0, &why);
    sandbox_free_error(why);
#pragma clang diagnostic pop
    return rc;
}
"""


@pytest.mark.parametrize("suffix", ["c", "m"])
def test_log_and_sandbox_compile_and_link(linked_sdk, tmp_path, suffix):
    file = tmp_path / f"plain.{suffix}"
    file.write_text(PLAIN_C)
    assert lint.link(linked_sdk, file, tmp_path / "plain") == ""


GNUSTEP = pathlib.Path("/usr/include/GNUstep")
ON_LINUX = ["-fblocks", "-fobjc-runtime=gcc", "-fobjc-exceptions", "-fexceptions", "-D_NATIVE_OBJC_EXCEPTIONS", "-DGNUSTEP",
            "-DGNUSTEP_BASE_LIBRARY=1", "-DGNU_RUNTIME=1", "-DGNUSTEP_RUNTIME=1", "-fconstant-string-class=NSConstantString"]


@pytest.mark.skipif(not GNUSTEP.is_dir(), reason="no GNUstep here: the package libgnustep-base-dev")
def test_the_same_headers_with_gnusteps_foundation(tmp_path):
    """The stand-in and the backend are built on Linux with these headers, unmodified, and GNUstep's Foundation."""
    shim = tmp_path / "objc"
    shim.mkdir()
    (shim / "blocks_runtime.h").write_text("#include <Block.h>\n")
    file = tmp_path / "all.m"
    file.write_text("#import <CoreML/CoreML.h>\nint main(void) { return MLComputeUnitsCPUOnly; }\n")
    gcc = subprocess.run(["gcc", "-print-file-name=include"], capture_output=True, text=True, check=True).stdout.strip()
    folders = [w for folder in (tmp_path, GNUSTEP, gcc) for w in ("-isystem", folder)]
    assert lint.run(["clang", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", *ON_LINUX, *folders, f"-I{ours.INCLUDE}", file]) == ""


def test_symbols_without_a_header_are_clangs_own(wheel):
    assert frameworks.prove_emitted(wheel.parent / "zig") == []


def test_other_sources_than_the_pinned_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "SOURCES", tmp_path)
    with pytest.raises(fetch.Missing):
        fetch.source("pyobjc")
    (tmp_path / "pyobjc").mkdir()
    (tmp_path / "pyobjc/arm64-27.fwinfo").write_text("{}")
    with pytest.raises(fetch.Changed):
        fetch.source("pyobjc")


@pytest.mark.parametrize("text, wanted", [
    ("void (^)(MLModel * _Nullable, NSError * _Nullable)", "void (^)(MLModel * nullable, NSError * nullable)"),
    ("NSDictionary<NSString *,NSArray<id<P>> *> *", "NSDictionary<NSString *, NSArray<id<P>> *> *"),
    ("ObjectType  _Nonnull const *", "const ObjectType nonnull *"),
    ("unsigned long long", "unsigned long long"),
    ("void (*)(const void * _Nullable)", "void (*)(const void * nullable)"),
    ("NSString *const", "NSString * const"),
])
def test_c_types(text, wanted):
    assert str(ctype.parse(text)) == wanted


@pytest.mark.parametrize("text, wanted", [
    ("&NSString", "NSString * nonnull"),
    ("Option<&ProtocolObject<dyn MLFeatureProvider>>", "id<MLFeatureProvider> nullable"),
    ("Retained<NSArray<NSNumber>>", "NSArray<NSNumber *> * nonnull"),
    ("Result<Retained<Self>, Retained<NSError>>", "instancetype nullable"),
    ("NonNull<*mut CVPixelBuffer>", "CVPixelBufferRef nullable * nonnull"),
    ("&block2::DynBlock<dyn Fn(NonNull<c_void>, NSInteger) + '_>", "void (^ nonnull noescape)(c_void * nonnull, NSInteger)"),
    ("&block2::DynBlock<dyn Fn(*mut MLModel, *mut NSError)>", "void (^ nonnull)(MLModel * nullable, NSError * nullable)"),
    ("*const c_char", "const c_char * nullable"),
])
def test_rust_types(text, wanted):
    assert str(objc2.Reader(text, {"CVPixelBuffer"}, set()).type()) == wanted


@pytest.mark.parametrize("selector, wanted", [("newState", "new"), ("newsletter", "none"), ("initWithShape:", "init"),
                                               ("initialize", "none"), ("copy", "copy"), ("mutableCopyWithZone:", "mutableCopy"),
                                               ("_newThing:", "new"), ("state", "none")])
def test_method_families(selector, wanted):
    assert ours.family(selector) == wanted
