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

#define CF_EXPORT   extern
#define CF_NOESCAPE __attribute__((noescape))
#define CF_ENUM(type, name)                                          \
    enum __attribute__((enum_extensibility(open))) name : type name; \
    enum name : type
#define CF_OPTIONS(type, name)                                \
    enum __attribute__((flag_enum, enum_extensibility(open))) \
    name : type name;                                         \
    enum name : type
#define CF_RETURNS_RETAINED     __attribute__((cf_returns_retained))
#define CF_BRIDGED_TYPE(type)   __attribute__((objc_bridge(type)))
#define CF_ASSUME_NONNULL_BEGIN _Pragma("clang assume_nonnull begin")
#define CF_ASSUME_NONNULL_END   _Pragma("clang assume_nonnull end")

CF_ASSUME_NONNULL_BEGIN

typedef const void *CFTypeRef;
typedef const struct CF_BRIDGED_TYPE(id) __CFAllocator *CFAllocatorRef;
typedef const struct CF_BRIDGED_TYPE(NSString) __CFString *CFStringRef;
typedef const struct CF_BRIDGED_TYPE(NSDictionary)
    __CFDictionary *CFDictionaryRef;

CF_EXPORT const CFAllocatorRef _Null_unspecified kCFAllocatorDefault;

CFTypeRef CFRetain(CFTypeRef cf);
void CFRelease(CFTypeRef cf);

CF_ASSUME_NONNULL_END

#endif
