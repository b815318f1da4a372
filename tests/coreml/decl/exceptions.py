"""Declarations of ours that only one source has, or on which the sources differ: the reason each. prove.py prints them, and
refuses one that nothing needs. The key is the declaration's name and the question (prove.py's words) that stays open."""

# Headers of which neither source knows anything: their functions and variables are symbols of libSystem, no more is proven.
SYMBOLS_ONLY = {
    "mac/os/log.h": "plain C of libSystem, not of a framework: PyObjC and objc2 leave it out, the wheel lacks the header",
    "mac/sandbox.h": "as mac/os/log.h",
}

_HAND = "objc2 has no such item: Rust code uses its Retained and CFRetained instead"
EXCEPTIONS = {
    ("CFTypeRef", "objc2"): "objc2 has a struct CFType without the C name; every function with a CFTypeRef is compared with it",
    ("CFRetain", "objc2"): _HAND,
    ("CFRelease", "objc2"): _HAND,
    ("CVPixelBufferRetain", "objc2"): _HAND,
    ("CVPixelBufferRelease", "objc2"): _HAND,
    ("NSZone", "objc2"): "objc2 declares it in its run-time crate; nobody looks into one",
    ("+[NSString stringWithFormat:]", "objc2"): "objc2 has no functions with a variable number of arguments",
    ("NSData.bytes", "objc2 type"): "objc2 says nullable by hand: an empty NSData has no bytes, although the header says nonnull",
    ("NSMutableData.mutableBytes", "objc2 type"): "as NSData.bytes",
    ("__dso_handle", "libSystem"): "the linker itself makes it",
}
