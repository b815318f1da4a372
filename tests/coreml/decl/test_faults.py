"""The net holds: each fault planted in a copy of the headers, or in code, is reported, and as what it is."""
import re
import shutil

import exceptions
import lint
import ours
import pytest

ML, CV, CF = "CoreML/CoreML.h", "CoreVideo/CoreVideo.h", "CoreFoundation/CoreFoundation.h"
IO, NS, LOG = "IOSurface/IOSurface.h", "mac/Foundation/Foundation.h", "mac/os/log.h"

# what is wrong: (header, what stands there, however its lines break, what is planted, what the finding says)
HEADERS = {
    "selector": (ML, "- (MLState *)newState", "- (MLState *)newStates", r"-\[MLModel newStates\]: PyObjC: no such selector"),
    "selector part": (ML, "usingState:(MLState *)state options", "state:(MLState *)state options",
                      "objc2: no such selector"),
    "class for instance method": (ML, "+ (void)compileModelAtURL:", "- (void)compileModelAtURL:",
                                  r"-\[MLModel compileModelAtURL.*no such selector"),
    "enum value": (ML, "MLComputeUnitsCPUAndNeuralEngine = 3", "MLComputeUnitsCPUAndNeuralEngine = 4",
                   "MLComputeUnitsCPUAndNeuralEngine: PyObjC value: ours 4"),
    "enum constant": (ML, "MLFeatureTypeState = 8", "MLFeatureTypeBuffer = 8", "MLFeatureTypeBuffer: objc2: no such constant"),
    "enum width": (CV, "CF_OPTIONS(uint64_t, CVPixelBufferLockFlags)", "CF_OPTIONS(uint32_t, CVPixelBufferLockFlags)",
                   "CVPixelBufferLockFlags: objc2 width: ours unsigned int"),
    "integer width": (ML, "objectAtIndexedSubscript:(NSInteger)idx", "objectAtIndexedSubscript:(int)idx",
                      "argument 1: ours int, objc2 NSInteger"),
    "sign": (NS, "- (ObjectType)objectAtIndex:(NSUInteger)index", "- (ObjectType)objectAtIndex:(NSInteger)index",
             "argument 1: ours NSInteger, objc2 NSUInteger"),
    "type of a property": (ML, "NSArray<NSNumber *> *strides;", "NSArray<NSString *> *strides;",
                           r"MLMultiArray.strides: PyObjC type"),
    "block argument": (ML, "(void (^)(NSURL *_Nullable compiledModelURL,", "(void (^)(NSString *_Nullable compiledModelURL,",
                       "argument 2: ours void .*NSString"),
    "number of block arguments": (ML, "(const void *bytes, NSInteger size))handler",
                                  "(const void *bytes))handler", "getBytesWithHandler:.*PyObjC argument 1"),
    "nullability in a block": (ML, "MLComputePlan *_Nullable computePlan", "MLComputePlan *_Nonnull computePlan",
                               r"\+\[MLComputePlan .*argument 3: ours .*nonnull"),
    "const in a block": (ML, "const void *bytes,", "void *bytes,", "getBytesWithHandler:.*PyObjC argument 1"),
    "escaping block": (ML, "handler:(void(CF_NOESCAPE ^)(MLMultiArray *buffer))", "handler:(void (^)(MLMultiArray *buffer))",
                       "getMultiArrayForStateNamed:handler:.*objc2 argument 2"),
    "result nullability": (ML, "- (nullable id<MLFeatureProvider>) predictionFromFeatures:(id<MLFeatureProvider>)input",
                           "- (id<MLFeatureProvider>) predictionFromFeatures:(id<MLFeatureProvider>)input",
                           "objc2 result: ours id<MLFeatureProvider> nonnull, objc2 id<MLFeatureProvider> nullable"),
    "argument nullability": (ML, "deallocator:(void (^_Nullable)(void *bytes))", "deallocator:(void (^)(void *bytes))",
                             "objc2 argument 5: ours void .*nonnull"),
    "argument that may not be nil": (ML, "configuration:(MLModelConfiguration *)configuration error",
                                     "configuration:(nullable MLModelConfiguration *)configuration error",
                                     "objc2 argument 2: ours MLModelConfiguration .*nullable"),
    "property nullability": (ML, "@property(readwrite, nonatomic, copy, nullable) NSString *functionName",
                             "@property(readwrite, nonatomic, copy) NSString *functionName",
                             "functionName: objc2 type: ours NSString .*nonnull"),
    "no nullability": (CF, "CF_ASSUME_NONNULL_BEGIN typedef", "typedef", "missing a nullability type specifier"),
    "unspecified nullability": (NS, "NSString *NSStringFromClass", "NSString *_Null_unspecified NSStringFromClass",
                                "NSStringFromClass: objc2 result: ours NSString .*, objc2 NSString . nonnull"),
    "availability": (ML, "- (MLState *)newState API_AVAILABLE(macos(15.0))", "- (MLState *)newState API_AVAILABLE(macos(14.0))",
                     "newState.*introduced: ours 14.0, PyObjC 15.0"),
    "availability of a class": (ML, "API_AVAILABLE(macos(14.4)) @interface MLOptimizationHints", "@interface MLOptimizationHints",
                                "MLOptimizationHints: introduced: ours always, PyObjC 14.4"),
    "availability of a function": (ML, "MLAllComputeDevices(void) API_AVAILABLE(macos(14.0))", "MLAllComputeDevices(void)",
                                   "MLAllComputeDevices: introduced: ours always, PyObjC 14.0"),
    "deprecation": (ML, "macos(10.13, API_TO_BE_DEPRECATED)); @property(readonly, nonatomic) MLMultiArrayDataType",
                    "macos(10.13, 13.0)); @property(readonly, nonatomic) MLMultiArrayDataType",
                    "dataPointer: deprecated: ours 13.0"),
    "copy": (ML, "@property(readwrite, nonatomic, copy) NSDictionary<NSString *, id> *outputBackings",
             "@property(readwrite, nonatomic, strong) NSDictionary<NSString *, id> *outputBackings", "outputBackings: attributes"),
    "readonly": (ML, "@property(readwrite) MLComputeUnits computeUnits", "@property(readonly) MLComputeUnits computeUnits",
                 "computeUnits: objc2 setter"),
    "getter": (ML, "getter=isUndefined) BOOL undefined", "getter=undefined) BOOL undefined", "undefined: getter: ours undefined"),
    "ownership of a result": (ML, "- (MLState *)newState API", "- (MLState *)newState __attribute__((ns_returns_not_retained)) API",
                              "newState.*ownership: ours borrowed, objc2 family new"),
    "ownership of a CF result": (IO, "IOSurfaceCreate(CFDictionaryRef properties) CF_RETURNS_RETAINED",
                                 "IOSurfaceCreate(CFDictionaryRef properties) ", "IOSurfaceCreate: PyObjC ownership"),
    "ownership of what comes out": (CV, "CF_RETURNS_RETAINED CVPixelBufferRef", "CVPixelBufferRef",
                                    "CVPixelBufferCreate: ownership of what comes out"),
    "superclass": (NS, "@interface NSNumber : NSValue", "@interface NSNumber : NSObject", "NSNumber: superclass: ours NSObject"),
    "conformance": (ML, "@interface MLPredictionOptions : NSObject", "@interface MLPredictionOptions : NSObject <NSCopying>",
                    "MLPredictionOptions <NSCopying>: PyObjC: does not conform"),
    "subclassing": (ML, "__attribute__((objc_subclassing_restricted)) @interface MLState", "@interface MLState",
                    "MLState: subclassing"),
    "optional method": (ML, "- (nullable MLFeatureValue *)featureValueForName",
                        "@optional - (nullable MLFeatureValue *)featureValueForName", "featureValueForName:.*required: ours False"),
    "class": (ML, "@interface MLModelAsset : NSObject", "@interface MLModelBundle : NSObject",
              "MLModelBundle: PyObjC: no such class"),
    "width of a C argument": (CV, "size_t width,", "uint32_t width,", "CVPixelBufferCreate: objc2 argument 2: ours uint32_t"),
    "C result": (CV, "size_t CVPixelBufferGetBytesPerRow", "uint32_t CVPixelBufferGetBytesPerRow",
                 "CVPixelBufferGetBytesPerRow: PyObjC result: ours I"),
    "C argument nullability": (CV, "IOSurfaceRef surface, CFDictionaryRef _Nullable pixel",
                               "IOSurfaceRef surface, CFDictionaryRef pixel", "CVPixelBufferCreateWithIOSurface: objc2 argument 3"),
    "function": (CV, "CVPixelBufferGetDataSize(", "CVPixelBufferGetSize(", "CVPixelBufferGetSize: PyObjC: no such function"),
    "constant": (CV, "kCVPixelBufferIOSurfacePropertiesKey", "kCVPixelBufferIOSurfaceKey",
                 "kCVPixelBufferIOSurfaceKey: PyObjC: no such"),
    "typedef": (CV, "typedef int32_t CVReturn", "typedef int64_t CVReturn", "CVReturn: PyObjC type: ours int64_t"),
    "struct": (NS, "NSUInteger location; NSUInteger length;", "NSUInteger length; NSUInteger location;",
               "_NSRange: PyObjC fields"),
    "symbol of libSystem": (LOG, "void _os_log_impl(", "void _os_log_write(", "_os_log_write: libSystem: no such symbol"),
}


@pytest.mark.parametrize("fault", HEADERS)
def test_a_wrong_header_is_reported(proof_of, tmp_path, fault):
    header, old, new, wanted = HEADERS[fault]
    include = tmp_path / "include"
    shutil.copytree(ours.INCLUDE, include)
    text = (include / header).read_text()
    planted, found = re.subn(r"\s+".join(map(re.escape, old.split())), lambda _: new, text, count=1)
    assert found, f"{header} has no longer what the fault replaces: {old}"
    (include / header).write_text(planted)
    try:
        findings = "\n".join(map(str, proof_of(include).findings))
    except ValueError as e:  # clang itself refuses it
        findings = str(e)
    assert re.search(wanted, findings), findings or "nothing was found"


def test_an_exception_that_nothing_needs_is_reported(proof_of, monkeypatch):
    monkeypatch.setitem(exceptions.EXCEPTIONS, ("MLModel", "superclass"), "planted")
    assert any(f.name == "MLModel" and "nothing needs" in f.text for f in proof_of(ours.INCLUDE).findings)


NEWER = "@interface NSBundle (Newer)\n- (NSString *)newer API_AVAILABLE(macos(15.4));\n@end\n"

# what is wrong: (code, what clang says)
CODE = {
    "leak": ("void f(void) { MLModelConfiguration *c = [[MLModelConfiguration alloc] init]; c.computeUnits = MLComputeUnitsAll; }",
             "Potential leak of an object stored into 'c'"),
    "leak of a state": ("int f(MLModel *m) { MLState *s = [m newState]; return s != nil; }", "Potential leak of an object"),
    "leak of a surface": ("size_t f(CFDictionaryRef d) { IOSurfaceRef s = IOSurfaceCreate(d); "
                          "return s ? IOSurfaceGetAllocSize(s) : 0; }",
                          "Potential leak of an object stored into 's'"),
    "over-release": ("void f(const char *p) { NSString *s = [NSString stringWithUTF8String:p]; [s release]; }",
                     "Incorrect decrement of the reference count"),
    "double release": ("void f(MLModel *m) { MLState *s = [m newState]; [s release]; [s release]; }",
                       "Reference-counted object is used after it is released"),
    "use after release": ("NSInteger f(void) { NSError *e = [[NSError alloc] init]; [e release]; return e.code; }",
                          "Reference-counted object is used after it is released"),
    "dealloc without super": ("@interface P : NSObject\n@end\n@implementation P\n- (void)dealloc {}\n@end", "super dealloc"),
    "nil to nonnull": ("id f(NSURL *u) { NSError *e = nil; return [MLModel modelWithContentsOfURL:u configuration:nil error:&e]; }",
                       "null passed to a callee that requires a non-null argument"),
    "nullable to nonnull": ("id f(const char *p) { NSString *s = [NSString stringWithUTF8String:p]; "
                            "return [NSURL fileURLWithPath:s]; }",
                            "Nullable pointer is passed to a callee that requires a non-null"),
    "void * from an integer": ("id f(NSArray *s, NSInteger n) { return [[[MLMultiArray alloc] initWithDataPointer:n shape:s "
                               "dataType:MLMultiArrayDataTypeFloat16 strides:s deallocator:nil error:nil] autorelease]; }",
                               "incompatible integer to pointer conversion"),
    "void * loses const": ("id f(NSArray *s, const void *p) { return [[[MLMultiArray alloc] initWithDataPointer:p shape:s "
                           "dataType:MLMultiArrayDataTypeFloat16 strides:s deallocator:nil error:nil] autorelease]; }",
                           "discards qualifiers"),
    "block of another type": ("void f(MLMultiArray *a) { [a getBytesWithHandler:^(void *p, int n) { (void)p; (void)n; }]; }",
                              "incompatible block pointer types"),
    "selector": ("id f(MLModel *m) { return [m newStates]; }", "may not respond|not found"),
    "property": ("void f(MLModelConfiguration *c) { c.computeUnit = MLComputeUnitsAll; }", "property 'computeUnit' not found"),
    "readonly property": ("void f(MLModel *m, MLModelConfiguration *c) { m.configuration = c; }", "to readonly property"),
    "enum of another type": ("id f(NSArray *s) { return [[[MLMultiArray alloc] initWithShape:s dataType:MLFeatureTypeMultiArray "
                             "error:nil] autorelease]; }", "implicit conversion from enumeration type"),
    "retain of what is no NSObject": ("id f(id<MLFeatureProvider> p) { return [p retain]; }", "'-retain' not found"),
    "half a protocol": ("@interface P : NSObject <MLFeatureProvider>\n@end\n@implementation P\n"
                        "- (NSSet<NSString *> *)featureNames { return [NSSet set]; }\n@end", "featureValueForName:"),
    "newer selector without a guard": (NEWER + "NSString *f(NSBundle *b); NSString *f(NSBundle *b) { return [b newer]; }",
                                       "'newer' is only available on macOS 15.4 or newer"),
    "deprecated function": ("#include <sandbox.h>\nint f(char **e) { return sandbox_init(\"\", 0, e); }",
                            "'sandbox_init' is deprecated"),
    "format": ("NSString *f(NSInteger n) { return [NSString stringWithFormat:@\"%d\", n]; }",
               "NSInteger.*should not be used as format|format specifies type"),
    "subclass of a final class": ("@interface P : MLState\n@end", "cannot subclass a class that was declared"),
}
GUARDED = NEWER + """
NSString *f(NSBundle *b);
NSString *f(NSBundle *b)
{
    if (@available(macOS 15.4, *)) {
        return [b newer];
    }
    return @"";
}
"""


def written(tmp_path, code: str):
    file = tmp_path / "fault.m"
    file.write_text("#import <CoreML/CoreML.h>\n" + re.sub(r"^(\w[\w<> *]*\bf\([^{;]*\)) \{", r"\1; \1 {", code, flags=re.M) + "\n")
    return file


@pytest.mark.parametrize("fault", CODE)
def test_wrong_code_is_reported(sdk, tmp_path, fault):
    code, wanted = CODE[fault]
    said = lint.check(sdk, written(tmp_path, code))
    assert re.search(wanted, said), said or "nothing was found"


def test_a_guarded_newer_selector_is_good(sdk, tmp_path):
    assert lint.check(sdk, written(tmp_path, GUARDED)) == ""


def test_an_older_floor_would_be_reported(sdk):
    """The backend needs macOS 15; with a floor of 14 the sample's states are too new."""
    command = lint.compiler(sdk, "-fsyntax-only", "-target", "arm64-apple-macos14.0")
    assert "'newState' is only available on macOS 15.0 or newer" in lint.run([*command, lint.SAMPLE])


# what is wrong: (declaration and use of what no source knows, the symbol that is missing)
SYMBOLS = {
    "function": ("void MLModelPurge(void); int main(void) { MLModelPurge(); return 0; }", "_MLModelPurge"),
    "class": ("@interface MLModelCache : NSObject\n@end\nint main(void) { return [MLModelCache class] != nil; }",
              r"_OBJC_CLASS_\$_MLModelCache"),
    "constant": ("extern NSString *const MLModelCacheKey; int main(void) { return MLModelCacheKey != nil; }", "_MLModelCacheKey"),
    "run time": ("id objc_secret(id x); int main(void) { return objc_secret(nil) != nil; }", "_objc_secret"),
    "libSystem": ("int pipe2(int *, int); int main(void) { int fds[2]; return pipe2(fds, 0); }", "_pipe2"),
}


@pytest.mark.parametrize("fault", SYMBOLS)
def test_a_symbol_of_no_source_does_not_link(linked_sdk, tmp_path, fault):
    code, wanted = SYMBOLS[fault]
    said = lint.link(linked_sdk, written(tmp_path, code), tmp_path / "out")
    assert re.search(f"undefined symbol: {wanted}\\b", said), said or "it linked"


def test_a_symbol_newer_than_the_floor_does_not_link(linked_sdk, metadata, tmp_path):
    newer = next(name for name, entry in metadata.frameworks["CoreVideo"]["functions"].items()
                 if entry.get("introduced", "").split(".")[0] >= "26" and not entry.get("inline"))
    file = written(tmp_path, f"void {newer}(void); int main(void) {{ {newer}(); return 0; }}")
    said = lint.link(linked_sdk, file, tmp_path / "out")
    assert f"undefined symbol: _{newer}" in said
