/* The part of Apple's CoreFoundation that the Core ML backend needs, proven by
 * tests/coreml/decl. Also what Apple's headers and GNUstep's runtime differ in:
 * availability, noescape, enums of a fixed width.
 */
#ifndef ANED_COREFOUNDATION_H
#define ANED_COREFOUNDATION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __APPLE__
#include <MacTypes.h>
#include <os/availability.h>
#else
#define API_AVAILABLE(...)
#define API_DEPRECATED(...)
#define API_TO_BE_DEPRECATED 100000
typedef unsigned char Boolean;
typedef unsigned int OSType;
#endif

#define CF_EXPORT extern
#define CF_NOESCAPE __attribute__((noescape))
#define CF_ENUM(type, name)                                                    \
    enum __attribute__((enum_extensibility(open))) name : type name;           \
    enum name : type
#define CF_OPTIONS(type, name)                                                 \
    enum __attribute__((flag_enum, enum_extensibility(open))) name             \
        : type name;                                                           \
    enum name : type
#define CF_RETURNS_RETAINED __attribute__((cf_returns_retained))
#define CF_CONSUMED __attribute__((cf_consumed))
#define CF_BRIDGED_TYPE(type) __attribute__((objc_bridge(type)))
#define CF_ASSUME_NONNULL_BEGIN _Pragma("clang assume_nonnull begin")
#define CF_ASSUME_NONNULL_END _Pragma("clang assume_nonnull end")

CF_ASSUME_NONNULL_BEGIN

typedef const void *CFTypeRef;
typedef long CFIndex;
typedef unsigned long CFHashCode;
typedef const struct CF_BRIDGED_TYPE(id) __CFAllocator *CFAllocatorRef;
typedef const struct CF_BRIDGED_TYPE(NSString) __CFString *CFStringRef;
typedef const struct CF_BRIDGED_TYPE(NSDictionary) __CFDictionary *CFDictionaryRef;
typedef const struct CF_BRIDGED_TYPE(NSNumber) __CFNumber *CFNumberRef;

CF_EXPORT const CFAllocatorRef _Null_unspecified kCFAllocatorDefault;

CFTypeRef CFRetain(CFTypeRef cf);
void CFRelease(CFTypeRef cf);

typedef const void *_Null_unspecified (*CFDictionaryRetainCallBack)(
    CFAllocatorRef _Null_unspecified allocator,
    const void *_Null_unspecified value);
typedef void (*CFDictionaryReleaseCallBack)(
    CFAllocatorRef _Null_unspecified allocator,
    const void *_Null_unspecified value);
typedef CFStringRef _Null_unspecified (*CFDictionaryCopyDescriptionCallBack)(
    const void *_Null_unspecified value);
typedef Boolean (*CFDictionaryEqualCallBack)(
    const void *_Null_unspecified value1, const void *_Null_unspecified value2);
typedef CFHashCode (*CFDictionaryHashCallBack)(
    const void *_Null_unspecified value);
typedef struct {
    CFIndex version;
    CFDictionaryRetainCallBack _Null_unspecified retain;
    CFDictionaryReleaseCallBack _Null_unspecified release;
    CFDictionaryCopyDescriptionCallBack _Null_unspecified copyDescription;
    CFDictionaryEqualCallBack _Null_unspecified equal;
    CFDictionaryHashCallBack _Null_unspecified hash;
} CFDictionaryKeyCallBacks;
typedef struct {
    CFIndex version;
    CFDictionaryRetainCallBack _Null_unspecified retain;
    CFDictionaryReleaseCallBack _Null_unspecified release;
    CFDictionaryCopyDescriptionCallBack _Null_unspecified copyDescription;
    CFDictionaryEqualCallBack _Null_unspecified equal;
} CFDictionaryValueCallBacks;
CF_EXPORT const CFDictionaryKeyCallBacks kCFTypeDictionaryKeyCallBacks;
CF_EXPORT const CFDictionaryValueCallBacks kCFTypeDictionaryValueCallBacks;

CFDictionaryRef _Nullable CFDictionaryCreate(
    CFAllocatorRef _Nullable allocator,
    const void *_Nullable *_Nullable keys,
    const void *_Nullable *_Nullable values, CFIndex numValues,
    const CFDictionaryKeyCallBacks *_Nullable keyCallBacks,
    const CFDictionaryValueCallBacks *_Nullable valueCallBacks)
    CF_RETURNS_RETAINED;

CF_ASSUME_NONNULL_END

#endif
