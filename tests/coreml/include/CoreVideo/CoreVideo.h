/* The part of Apple's CoreVideo that the Core ML backend needs, proven by
 * tests/coreml/decl.
 */
#ifndef ANED_COREVIDEO_H
#define ANED_COREVIDEO_H

#include <CoreFoundation/CoreFoundation.h>
#include <IOSurface/IOSurface.h>

CF_ASSUME_NONNULL_BEGIN

typedef struct CF_BRIDGED_TYPE(id) __CVBuffer *CVBufferRef;
typedef CVBufferRef CVImageBufferRef;
typedef CVImageBufferRef CVPixelBufferRef;

typedef int32_t CVReturn;
enum {
    kCVReturnSuccess = 0,
    kCVReturnError = -6660,
    kCVReturnInvalidArgument = -6661,
    kCVReturnAllocationFailed = -6662,
    kCVReturnUnsupported = -6663,
    kCVReturnInvalidPixelFormat = -6680,
    kCVReturnInvalidSize = -6681,
    kCVReturnInvalidPixelBufferAttributes = -6682,
};

/* 'L00h': one channel of IEEE half precision. */
enum { kCVPixelFormatType_OneComponent16Half = 1278226536 };

typedef CF_OPTIONS(uint64_t, CVPixelBufferLockFlags) {
    kCVPixelBufferLock_ReadOnly = 0x00000001,
};

CF_EXPORT const
    CFStringRef kCVPixelBufferPixelFormatTypeKey API_AVAILABLE(macos(10.4));
CF_EXPORT const CFStringRef kCVPixelBufferWidthKey API_AVAILABLE(macos(10.4));
CF_EXPORT const CFStringRef kCVPixelBufferHeightKey API_AVAILABLE(macos(10.4));
CF_EXPORT const CFStringRef kCVPixelBufferBytesPerRowAlignmentKey
    API_AVAILABLE(macos(10.4));
CF_EXPORT const
    CFStringRef kCVPixelBufferIOSurfacePropertiesKey API_AVAILABLE(macos(10.6));

CVReturn CVPixelBufferCreate(
    CFAllocatorRef _Nullable allocator, size_t width, size_t height,
    OSType pixelFormatType, CFDictionaryRef _Nullable pixelBufferAttributes,
    CF_RETURNS_RETAINED CVPixelBufferRef _Nullable *_Nonnull pixelBufferOut)
    API_AVAILABLE(macos(10.4));
CVReturn CVPixelBufferCreateWithIOSurface(
    CFAllocatorRef _Nullable allocator, IOSurfaceRef surface,
    CFDictionaryRef _Nullable pixelBufferAttributes,
    CF_RETURNS_RETAINED CVPixelBufferRef _Nullable *_Nonnull pixelBufferOut)
    API_AVAILABLE(macos(10.6));

CVPixelBufferRef _Nullable CVPixelBufferRetain(
    CVPixelBufferRef _Nullable texture) API_AVAILABLE(macos(10.4));
void CVPixelBufferRelease(CVPixelBufferRef _Nullable texture)
    API_AVAILABLE(macos(10.4));

CVReturn CVPixelBufferLockBaseAddress(CVPixelBufferRef pixelBuffer,
                                      CVPixelBufferLockFlags lockFlags)
    API_AVAILABLE(macos(10.4));
CVReturn CVPixelBufferUnlockBaseAddress(CVPixelBufferRef pixelBuffer,
                                        CVPixelBufferLockFlags unlockFlags)
    API_AVAILABLE(macos(10.4));
size_t CVPixelBufferGetWidth(CVPixelBufferRef pixelBuffer)
    API_AVAILABLE(macos(10.4));
size_t CVPixelBufferGetHeight(CVPixelBufferRef pixelBuffer)
    API_AVAILABLE(macos(10.4));
OSType CVPixelBufferGetPixelFormatType(CVPixelBufferRef pixelBuffer)
    API_AVAILABLE(macos(10.4));
void *_Nullable CVPixelBufferGetBaseAddress(CVPixelBufferRef pixelBuffer)
    API_AVAILABLE(macos(10.4));
size_t CVPixelBufferGetBytesPerRow(CVPixelBufferRef pixelBuffer)
    API_AVAILABLE(macos(10.4));
size_t CVPixelBufferGetDataSize(CVPixelBufferRef pixelBuffer)
    API_AVAILABLE(macos(10.4));
IOSurfaceRef _Nullable CVPixelBufferGetIOSurface(
    CVPixelBufferRef _Nullable pixelBuffer) API_AVAILABLE(macos(10.6));

CF_ASSUME_NONNULL_END

#endif
