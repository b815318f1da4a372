/* The part of Apple's IOSurface that the Core ML backend needs, proven by
 * tests/coreml/decl.
 */
#ifndef ANED_IOSURFACE_H
#define ANED_IOSURFACE_H

#include <CoreFoundation/CoreFoundation.h>
#ifdef __APPLE__
#include <mach/kern_return.h>
#else
typedef int kern_return_t;
#endif

CF_ASSUME_NONNULL_BEGIN

typedef struct CF_BRIDGED_TYPE(id) __IOSurface *IOSurfaceRef;

typedef CF_OPTIONS(uint32_t, IOSurfaceLockOptions) {
    kIOSurfaceLockReadOnly = 0x00000001,
    kIOSurfaceLockAvoidSync = 0x00000002,
};

CF_EXPORT const CFStringRef kIOSurfaceAllocSize API_AVAILABLE(macos(10.6));
CF_EXPORT const CFStringRef kIOSurfaceWidth API_AVAILABLE(macos(10.6));
CF_EXPORT const CFStringRef kIOSurfaceHeight API_AVAILABLE(macos(10.6));
CF_EXPORT const CFStringRef kIOSurfaceBytesPerRow API_AVAILABLE(macos(10.6));
CF_EXPORT const
    CFStringRef kIOSurfaceBytesPerElement API_AVAILABLE(macos(10.6));
CF_EXPORT const CFStringRef kIOSurfacePixelFormat API_AVAILABLE(macos(10.6));

IOSurfaceRef _Nullable IOSurfaceCreate(CFDictionaryRef properties)
    CF_RETURNS_RETAINED API_AVAILABLE(macos(10.6));
kern_return_t IOSurfaceLock(IOSurfaceRef buffer, IOSurfaceLockOptions options,
                            uint32_t *_Nullable seed)
    API_AVAILABLE(macos(10.6));
kern_return_t IOSurfaceUnlock(IOSurfaceRef buffer, IOSurfaceLockOptions options,
                              uint32_t *_Nullable seed)
    API_AVAILABLE(macos(10.6));
size_t IOSurfaceGetAllocSize(IOSurfaceRef buffer) API_AVAILABLE(macos(10.6));
size_t IOSurfaceGetWidth(IOSurfaceRef buffer) API_AVAILABLE(macos(10.6));
size_t IOSurfaceGetHeight(IOSurfaceRef buffer) API_AVAILABLE(macos(10.6));
size_t IOSurfaceGetBytesPerRow(IOSurfaceRef buffer) API_AVAILABLE(macos(10.6));
void *IOSurfaceGetBaseAddress(IOSurfaceRef buffer) API_AVAILABLE(macos(10.6));
size_t IOSurfaceAlignProperty(CFStringRef property, size_t value)
    API_AVAILABLE(macos(10.6));

CF_ASSUME_NONNULL_END

#endif
