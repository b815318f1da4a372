/* The part of Apple's Foundation that the Core ML backend needs, for the macOS
 * target only (Linux has GNUstep's). Proven by tests/coreml/decl; NSObject
 * itself is Apple's own header.
 */
#ifndef ANED_FOUNDATION_H
#define ANED_FOUNDATION_H

#include <CoreFoundation/CoreFoundation.h>
#import <objc/NSObject.h>

#define NS_ASSUME_NONNULL_BEGIN  CF_ASSUME_NONNULL_BEGIN
#define NS_ASSUME_NONNULL_END    CF_ASSUME_NONNULL_END
#define NS_ENUM(type, name)      CF_ENUM(type, name)
#define NS_OPTIONS(type, name)   CF_OPTIONS(type, name)
#define NS_NOESCAPE              CF_NOESCAPE
#define NS_FORMAT_FUNCTION(f, a) __attribute__((format(__NSString__, f, a)))

NS_ASSUME_NONNULL_BEGIN

@class NSArray<ObjectType>, NSData, NSDictionary<KeyType, ObjectType>, NSError;
@class NSNumber, NSSet<ObjectType>, NSString, NSURL;
typedef struct _NSZone NSZone;
typedef struct _NSRange {
    NSUInteger location;
    NSUInteger length;
} NSRange;

@protocol NSCopying
- (id)copyWithZone:(nullable NSZone *)zone;
@end

@protocol NSMutableCopying
- (id)mutableCopyWithZone:(nullable NSZone *)zone;
@end

/* What the compiler makes of for-in. */
typedef struct {
    unsigned long state;
    id __unsafe_unretained _Nullable *_Nullable itemsPtr;
    unsigned long *_Nullable mutationsPtr;
    unsigned long extra[5];
} NSFastEnumerationState;

@protocol NSFastEnumeration
- (NSUInteger)
    countByEnumeratingWithState:(NSFastEnumerationState *)state
                        objects:
                            (id __unsafe_unretained _Nullable[_Nonnull])buffer
                          count:(NSUInteger)len;
@end

/* Strings, numbers. */

@interface NSString : NSObject <NSCopying, NSMutableCopying>
@property(readonly) NSUInteger length;
@property(readonly, nullable) const char *UTF8String;
@property(readonly) NSInteger integerValue API_AVAILABLE(macos(10.5));
@property(readonly, copy) NSString *lastPathComponent;
@property(readonly, copy) NSString *pathExtension;
@property(readonly, copy) NSString *stringByDeletingLastPathComponent;
@property(readonly, copy) NSString *stringByDeletingPathExtension;
@property(readonly) const char *fileSystemRepresentation;
+ (nullable instancetype)stringWithUTF8String:
    (const char *)nullTerminatedCString;
- (nullable instancetype)initWithUTF8String:(const char *)nullTerminatedCString;
+ (instancetype)stringWithFormat:(NSString *)format,
                                 ... NS_FORMAT_FUNCTION(1, 2);
- (BOOL)isEqualToString:(NSString *)aString;
- (BOOL)hasPrefix:(NSString *)str;
- (BOOL)hasSuffix:(NSString *)str;
- (BOOL)containsString:(NSString *)str API_AVAILABLE(macos(10.10));
- (NSRange)rangeOfString:(NSString *)searchString;
- (NSString *)substringFromIndex:(NSUInteger)from;
- (NSString *)substringToIndex:(NSUInteger)to;
- (NSString *)stringByAppendingString:(NSString *)aString;
- (NSString *)stringByAppendingPathComponent:(NSString *)str;
- (NSArray<NSString *> *)componentsSeparatedByString:(NSString *)separator;
@end

@interface NSValue : NSObject <NSCopying>
@property(readonly) NSRange rangeValue;
+ (NSValue *)valueWithRange:(NSRange)range;
@property(readonly, nullable) void *pointerValue;
+ (NSValue *)valueWithPointer:(nullable const void *)pointer;
@end

/* numberWith...: what the compiler makes of @1 and @(x). */
@interface NSNumber : NSValue
@property(readonly) int intValue;
@property(readonly) unsigned int unsignedIntValue;
@property(readonly) long longValue;
@property(readonly) unsigned long unsignedLongValue;
@property(readonly) long long longLongValue;
@property(readonly) unsigned long long unsignedLongLongValue;
@property(readonly) float floatValue;
@property(readonly) double doubleValue;
@property(readonly) BOOL boolValue;
@property(readonly) NSInteger integerValue API_AVAILABLE(macos(10.5));
@property(readonly) NSUInteger unsignedIntegerValue API_AVAILABLE(macos(10.5));
+ (NSNumber *)numberWithChar:(char)value;
+ (NSNumber *)numberWithUnsignedChar:(unsigned char)value;
+ (NSNumber *)numberWithShort:(short)value;
+ (NSNumber *)numberWithUnsignedShort:(unsigned short)value;
+ (NSNumber *)numberWithInt:(int)value;
+ (NSNumber *)numberWithUnsignedInt:(unsigned int)value;
+ (NSNumber *)numberWithLong:(long)value;
+ (NSNumber *)numberWithUnsignedLong:(unsigned long)value;
+ (NSNumber *)numberWithLongLong:(long long)value;
+ (NSNumber *)numberWithUnsignedLongLong:(unsigned long long)value;
+ (NSNumber *)numberWithFloat:(float)value;
+ (NSNumber *)numberWithDouble:(double)value;
+ (NSNumber *)numberWithBool:(BOOL)value;
+ (NSNumber *)numberWithInteger:(NSInteger)value API_AVAILABLE(macos(10.5));
+ (NSNumber *)numberWithUnsignedInteger:(NSUInteger)value
    API_AVAILABLE(macos(10.5));
- (BOOL)isEqualToNumber:(NSNumber *)number;
@end

/* Collections. The subscripts and the forms with count: are what the compiler
 * makes of a[i], d[k], @[] and @{}. */

@interface NSArray<__covariant ObjectType>
    : NSObject <NSCopying, NSMutableCopying, NSFastEnumeration>
@property(readonly) NSUInteger count;
@property(nullable, nonatomic, readonly)
    ObjectType firstObject API_AVAILABLE(macos(10.6));
@property(nullable, nonatomic, readonly) ObjectType lastObject;
+ (instancetype)array;
+ (instancetype)arrayWithObject:(ObjectType)anObject;
+ (instancetype)arrayWithObjects:(const ObjectType _Nonnull[_Nonnull])objects
                           count:(NSUInteger)cnt;
- (instancetype)initWithObjects:(const ObjectType _Nonnull[_Nullable])objects
                          count:(NSUInteger)cnt;
- (ObjectType)objectAtIndex:(NSUInteger)index;
- (ObjectType)objectAtIndexedSubscript:(NSUInteger)idx
    API_AVAILABLE(macos(10.8));
- (BOOL)containsObject:(ObjectType)anObject;
- (BOOL)isEqualToArray:(NSArray<ObjectType> *)otherArray;
- (void)enumerateObjectsUsingBlock:
    (void(NS_NOESCAPE ^)(ObjectType obj, NSUInteger idx, BOOL *stop))block
    API_AVAILABLE(macos(10.6));
@end

@interface NSMutableArray<ObjectType> : NSArray <ObjectType>
+ (instancetype)arrayWithCapacity:(NSUInteger)numItems;
- (instancetype)initWithCapacity:(NSUInteger)numItems;
- (void)addObject:(ObjectType)anObject;
- (void)insertObject:(ObjectType)anObject atIndex:(NSUInteger)index;
- (void)replaceObjectAtIndex:(NSUInteger)index withObject:(ObjectType)anObject;
- (void)setObject:(ObjectType)obj
    atIndexedSubscript:(NSUInteger)idx API_AVAILABLE(macos(10.8));
- (void)removeObjectAtIndex:(NSUInteger)index;
- (void)removeLastObject;
- (void)removeAllObjects;
@end

@interface NSDictionary<__covariant KeyType, __covariant ObjectType>
    : NSObject <NSCopying, NSMutableCopying, NSFastEnumeration>
@property(readonly) NSUInteger count;
@property(readonly, copy) NSArray<KeyType> *allKeys;
@property(readonly, copy) NSArray<ObjectType> *allValues;
+ (instancetype)dictionary;
+ (instancetype)dictionaryWithObject:(ObjectType)object
                              forKey:(id<NSCopying>)key;
+ (instancetype)
    dictionaryWithObjects:(const ObjectType _Nonnull[_Nullable])objects
                  forKeys:(const id<NSCopying> _Nonnull[_Nullable])keys
                    count:(NSUInteger)cnt;
- (instancetype)initWithObjects:(const ObjectType _Nonnull[_Nullable])objects
                        forKeys:(const id<NSCopying> _Nonnull[_Nullable])keys
                          count:(NSUInteger)cnt;
- (nullable ObjectType)objectForKey:(KeyType)aKey;
- (nullable ObjectType)objectForKeyedSubscript:(KeyType)key
    API_AVAILABLE(macos(10.8));
- (void)enumerateKeysAndObjectsUsingBlock:
    (void(NS_NOESCAPE ^)(KeyType key, ObjectType obj, BOOL *stop))block
    API_AVAILABLE(macos(10.6));
@end

@interface NSMutableDictionary<KeyType, ObjectType>
    : NSDictionary <KeyType, ObjectType>
+ (instancetype)dictionaryWithCapacity:(NSUInteger)numItems;
- (instancetype)initWithCapacity:(NSUInteger)numItems;
- (void)setObject:(ObjectType)anObject forKey:(id<NSCopying>)aKey;
- (void)setObject:(nullable ObjectType)obj
    forKeyedSubscript:(id<NSCopying>)key API_AVAILABLE(macos(10.8));
- (void)removeObjectForKey:(KeyType)aKey;
- (void)removeAllObjects;
@end

@interface NSSet<__covariant ObjectType>
    : NSObject <NSCopying, NSMutableCopying, NSFastEnumeration>
@property(readonly) NSUInteger count;
@property(readonly, copy) NSArray<ObjectType> *allObjects;
+ (instancetype)set;
+ (instancetype)setWithObject:(ObjectType)object;
+ (instancetype)setWithArray:(NSArray<ObjectType> *)array;
- (instancetype)initWithArray:(NSArray<ObjectType> *)array;
- (instancetype)initWithObjects:(const ObjectType _Nonnull[_Nullable])objects
                          count:(NSUInteger)cnt;
- (BOOL)containsObject:(ObjectType)anObject;
@end

@interface NSData : NSObject <NSCopying, NSMutableCopying>
@property(readonly) NSUInteger length;
@property(readonly) const void *bytes;
+ (instancetype)dataWithBytes:(nullable const void *)bytes
                       length:(NSUInteger)length;
- (instancetype)initWithBytes:(nullable const void *)bytes
                       length:(NSUInteger)length;
- (instancetype)initWithBytesNoCopy:(void *)bytes
                             length:(NSUInteger)length
                       freeWhenDone:(BOOL)b;
@end

@interface NSMutableData : NSData
@property(readonly) void *mutableBytes;
+ (nullable instancetype)dataWithLength:(NSUInteger)length;
- (nullable instancetype)initWithLength:(NSUInteger)length;
@end

/* Errors, exceptions, pools. */

typedef NSString *NSErrorDomain;
typedef NSString *NSErrorUserInfoKey;
typedef NSString *NSExceptionName;
CF_EXPORT NSErrorDomain const NSCocoaErrorDomain;
CF_EXPORT NSErrorDomain const NSPOSIXErrorDomain;
CF_EXPORT NSErrorUserInfoKey const NSUnderlyingErrorKey;
CF_EXPORT NSErrorUserInfoKey const NSLocalizedDescriptionKey;
CF_EXPORT NSExceptionName const NSGenericException;
CF_EXPORT NSExceptionName const NSInvalidArgumentException;
CF_EXPORT NSExceptionName const NSRangeException;

@interface NSError : NSObject <NSCopying>
@property(readonly, copy) NSErrorDomain domain;
@property(readonly) NSInteger code;
@property(readonly, copy) NSDictionary<NSErrorUserInfoKey, id> *userInfo;
@property(readonly, copy) NSString *localizedDescription;
@property(readonly, copy, nullable) NSString *localizedFailureReason;
+ (instancetype)
    errorWithDomain:(NSErrorDomain)domain
               code:(NSInteger)code
           userInfo:(nullable NSDictionary<NSErrorUserInfoKey, id> *)dict;
@end

@interface NSException : NSObject <NSCopying>
@property(readonly, copy) NSExceptionName name;
@property(readonly, copy, nullable) NSString *reason;
+ (NSException *)exceptionWithName:(NSExceptionName)name
                            reason:(nullable NSString *)reason
                          userInfo:(nullable NSDictionary *)userInfo;
- (void)raise;
@end

@interface NSAutoreleasePool : NSObject
- (void)drain;
@end

/* Files. */

@interface NSURL : NSObject <NSCopying>
@property(readonly, copy, nullable) NSString *path;
@property(readonly)
    const char *fileSystemRepresentation API_AVAILABLE(macos(10.9));
@property(readonly, getter=isFileURL) BOOL fileURL;
@property(readonly, copy, nullable)
    NSString *lastPathComponent API_AVAILABLE(macos(10.6));
@property(readonly, copy, nullable)
    NSString *pathExtension API_AVAILABLE(macos(10.6));
@property(readonly, copy, nullable)
    NSURL *URLByDeletingLastPathComponent API_AVAILABLE(macos(10.6));
+ (NSURL *)fileURLWithPath:(NSString *)path;
+ (NSURL *)fileURLWithPath:(NSString *)path
               isDirectory:(BOOL)isDir API_AVAILABLE(macos(10.5));
- (nullable NSURL *)URLByAppendingPathComponent:(NSString *)pathComponent
    API_AVAILABLE(macos(10.6));
- (nullable NSURL *)URLByAppendingPathComponent:(NSString *)pathComponent
                                    isDirectory:(BOOL)isDirectory
    API_AVAILABLE(macos(10.7));
@end

typedef NSString *NSFileAttributeKey;

@interface NSFileManager : NSObject
@property(class, readonly, strong) NSFileManager *defaultManager;
@property(readonly, copy) NSURL *temporaryDirectory API_AVAILABLE(macos(10.12));
- (BOOL)createDirectoryAtURL:(NSURL *)url
    withIntermediateDirectories:(BOOL)createIntermediates
                     attributes:
                         (nullable NSDictionary<NSFileAttributeKey, id> *)
                             attributes
                          error:(NSError *_Nullable *_Nullable)error
    API_AVAILABLE(macos(10.7));
- (BOOL)createDirectoryAtPath:(NSString *)path
    withIntermediateDirectories:(BOOL)createIntermediates
                     attributes:
                         (nullable NSDictionary<NSFileAttributeKey, id> *)
                             attributes
                          error:(NSError *_Nullable *_Nullable)error
    API_AVAILABLE(macos(10.5));
- (nullable NSArray<NSString *> *)
    contentsOfDirectoryAtPath:(NSString *)path
                        error:(NSError *_Nullable *_Nullable)error
    API_AVAILABLE(macos(10.5));
- (BOOL)copyItemAtPath:(NSString *)srcPath
                toPath:(NSString *)dstPath
                 error:(NSError *_Nullable *_Nullable)error
    API_AVAILABLE(macos(10.5));
- (BOOL)moveItemAtPath:(NSString *)srcPath
                toPath:(NSString *)dstPath
                 error:(NSError *_Nullable *_Nullable)error
    API_AVAILABLE(macos(10.5));
- (BOOL)removeItemAtPath:(NSString *)path
                   error:(NSError *_Nullable *_Nullable)error
    API_AVAILABLE(macos(10.5));
- (BOOL)moveItemAtURL:(NSURL *)srcURL
                toURL:(NSURL *)dstURL
                error:(NSError *_Nullable *_Nullable)error
    API_AVAILABLE(macos(10.6));
- (BOOL)removeItemAtURL:(NSURL *)URL
                  error:(NSError *_Nullable *_Nullable)error
    API_AVAILABLE(macos(10.6));
- (BOOL)fileExistsAtPath:(NSString *)path;
- (BOOL)fileExistsAtPath:(NSString *)path
             isDirectory:(nullable BOOL *)isDirectory;
- (NSString *)stringWithFileSystemRepresentation:(const char *)str
                                          length:(NSUInteger)len;
@end

/* The process. */

@interface NSBundle : NSObject
@property(class, readonly, strong) NSBundle *mainBundle;
@property(readonly, copy, nullable) NSString *bundleIdentifier;
@property(readonly, copy) NSString *bundlePath;
@property(readonly, copy, nullable) NSString *executablePath;
@property(readonly, copy, nullable)
    NSDictionary<NSString *, id> *infoDictionary;
@end

typedef struct {
    NSInteger majorVersion;
    NSInteger minorVersion;
    NSInteger patchVersion;
} NSOperatingSystemVersion;

typedef NS_OPTIONS(uint64_t, NSActivityOptions) {
    NSActivityIdleDisplaySleepDisabled = 1ULL << 40,
    NSActivityIdleSystemSleepDisabled = 1ULL << 20,
    NSActivitySuddenTerminationDisabled = 1ULL << 14,
    NSActivityAutomaticTerminationDisabled = 1ULL << 15,
    NSActivityUserInitiated = 0x00FFFFFFULL,
    NSActivityUserInitiatedAllowingIdleSystemSleep = 0x00EFFFFFULL,
    NSActivityBackground = 0x000000FFULL,
    NSActivityLatencyCritical = 0xFF00000000ULL,
};

typedef NS_ENUM(NSInteger, NSProcessInfoThermalState) {
    NSProcessInfoThermalStateNominal,
    NSProcessInfoThermalStateFair,
    NSProcessInfoThermalStateSerious,
    NSProcessInfoThermalStateCritical,
};

@interface NSProcessInfo : NSObject
@property(class, readonly, strong) NSProcessInfo *processInfo;
@property(readonly, copy) NSString *operatingSystemVersionString;
@property(readonly)
    NSOperatingSystemVersion operatingSystemVersion API_AVAILABLE(macos(10.10));
@property(readonly) unsigned long long physicalMemory API_AVAILABLE(macos(10.5))
    ;
@property(readonly)
    NSProcessInfoThermalState thermalState API_AVAILABLE(macos(10.10.3));
@property(readonly, getter=isLowPowerModeEnabled)
    BOOL lowPowerModeEnabled API_AVAILABLE(macos(12.0));
- (BOOL)isOperatingSystemAtLeastVersion:(NSOperatingSystemVersion)version
    API_AVAILABLE(macos(10.10));
- (id<NSObject>)beginActivityWithOptions:(NSActivityOptions)options
                                  reason:(NSString *)reason
    API_AVAILABLE(macos(10.9));
- (void)endActivity:(id<NSObject>)activity API_AVAILABLE(macos(10.9));
@end

CF_EXPORT NSString *NSStringFromClass(Class aClass);

NS_ASSUME_NONNULL_END

#endif
