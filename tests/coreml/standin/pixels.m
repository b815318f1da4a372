/* pixels.m - CVPixelBuffer and IOSurface: memory that is there only while it is
 * locked.
 */
#include <string.h>

#import "standin.h"

#define ROW_ALIGN 64 /* bytes */

/* What an IOSurface is, and what a CVPixelBuffer has. */
struct surface {
    pthread_mutex_t lock; /* of what is below */
    void *p;
    size_t width, height, row, bytes;
    OSType format;
    int readers, writers;  /* locks from outside */
    int opened, opened_rw; /* by arrays and predictions */
    enum pixels_use use;
};

struct pixels {
    id surface; /* StandinSurface, owned */
    bool is_surface;
};

@interface StandinSurface : NSObject
@end
@interface StandinPixels : NSObject
@end

static struct surface *surface_of(IOSurfaceRef s)
{
    return si_data((id)s);
}

static struct surface *surface_in(CVPixelBufferRef p)
{
    struct pixels *x = si_data((id)p);
    return si_data(x->surface);
}

/* Called with the lock held. */
static void protect(struct surface *s)
{
    enum pages_access access = PAGES_NONE;
    if (s->writers + s->opened_rw > 0) {
        access = PAGES_WRITE;
    } else if (s->readers + s->opened > 0) {
        access = PAGES_READ;
    }
    si_pages_protect(s->p, access);
}

@implementation StandinSurface

STANDIN_CLASS(COUNT_SURFACE, struct surface)

- (void)dealloc
{
    struct surface *s = si_data(self);
    si_count_add(COUNT_SURFACE, -1);
    si_count_add(COUNT_PIXEL_BYTES, -(int64_t)s->bytes);
    si_pages_free(s->p);
    (void)pthread_mutex_destroy(&s->lock);
    [super dealloc];
}

@end

@implementation StandinPixels

STANDIN_CLASS(COUNT_PIXELS, struct pixels)

- (void)dealloc
{
    struct pixels *x = si_data(self);
    si_count_add(COUNT_PIXELS, -1);
    [x->surface release];
    [super dealloc];
}

@end

/* nil: a size that cannot be. */
static StandinSurface *surface_new(size_t width, size_t height, size_t row,
                                   OSType format)
{
    size_t bytes = 0;
    if (width == 0 || height == 0 ||
        __builtin_mul_overflow(row, height, &bytes) ||
        bytes > MIL_TENSOR_BYTES_MAX) {
        return nil;
    }
    StandinSurface *o = [[StandinSurface alloc] init];
    struct surface *s = si_data(o);
    must(pthread_mutex_init(&s->lock, NULL) == 0);
    s->width = width;
    s->height = height;
    s->row = row;
    s->format = format;
    s->bytes = bytes;
    s->p = si_pages_new(bytes, RULE_PIXELS_UNLOCKED);
    memset(s->p, 0xff, bytes); /* NaN until somebody sets it */
    si_pages_protect(s->p, PAGES_NONE);
    si_count_add(COUNT_PIXEL_BYTES, (int64_t)bytes);
    return o;
}

/* --- locks --- */

static void check_lock(const struct surface *s, bool write, const char *how)
{
    if (s->use == PIXELS_BACKING) {
        si_rule_broken(RULE_BACKING_TOUCHED, "%s", how);
    }
    if (s->use == PIXELS_INPUT && write) {
        si_rule_broken(RULE_INPUT_CHANGED, "%s", how);
    }
}

static void lock(struct surface *s, bool read_only, const char *how)
{
    (void)pthread_mutex_lock(&s->lock);
    check_lock(s, !read_only, how);
    *(read_only ? &s->readers : &s->writers) += 1;
    protect(s);
    (void)pthread_mutex_unlock(&s->lock);
}

static void unlock(struct surface *s, bool read_only, const char *how)
{
    (void)pthread_mutex_lock(&s->lock);
    int *n = read_only ? &s->readers : &s->writers;
    if (*n == 0) {
        si_rule_broken(RULE_PIXELS_UNLOCK, "%s", how);
    }
    *n -= 1;
    protect(s);
    (void)pthread_mutex_unlock(&s->lock);
}

void *si_pixels_open(CVPixelBufferRef p, bool write)
{
    struct surface *s = surface_in(p);
    (void)pthread_mutex_lock(&s->lock);
    *(write ? &s->opened_rw : &s->opened) += 1;
    protect(s);
    (void)pthread_mutex_unlock(&s->lock);
    return s->p;
}

void si_pixels_close(CVPixelBufferRef p, bool write)
{
    struct surface *s = surface_in(p);
    (void)pthread_mutex_lock(&s->lock);
    *(write ? &s->opened_rw : &s->opened) -= 1;
    protect(s);
    (void)pthread_mutex_unlock(&s->lock);
}

void si_pixels_set_use(CVPixelBufferRef p, enum pixels_use use)
{
    struct surface *s = surface_in(p);
    (void)pthread_mutex_lock(&s->lock);
    s->use = use;
    (void)pthread_mutex_unlock(&s->lock);
}

bool si_pixels_locked(CVPixelBufferRef p)
{
    struct surface *s = surface_in(p);
    (void)pthread_mutex_lock(&s->lock);
    bool locked = s->readers + s->writers > 0;
    (void)pthread_mutex_unlock(&s->lock);
    return locked;
}

/* --- CoreVideo --- */

const CFStringRef kCVPixelBufferPixelFormatTypeKey =
    (CFStringRef) @"PixelFormatType";
const CFStringRef kCVPixelBufferWidthKey = (CFStringRef) @"Width";
const CFStringRef kCVPixelBufferHeightKey = (CFStringRef) @"Height";
const CFStringRef kCVPixelBufferBytesPerRowAlignmentKey =
    (CFStringRef) @"BytesPerRowAlignment";
const CFStringRef kCVPixelBufferIOSurfacePropertiesKey =
    (CFStringRef) @"IOSurfaceProperties";

static CVPixelBufferRef pixels_new(StandinSurface *surface, bool is_surface)
{
    StandinPixels *o = [[StandinPixels alloc] init];
    struct pixels *x = si_data(o);
    x->surface = surface;
    x->is_surface = is_surface;
    return (CVPixelBufferRef)o;
}

CVReturn CVPixelBufferCreate(CFAllocatorRef allocator, size_t width,
                             size_t height, OSType pixelFormatType,
                             CFDictionaryRef pixelBufferAttributes,
                             CVPixelBufferRef *pixelBufferOut)
{
    (void)allocator;
    NSDictionary *d = (NSDictionary *)pixelBufferAttributes;
    if (pixelFormatType != kCVPixelFormatType_OneComponent16Half) {
        return kCVReturnInvalidPixelFormat;
    }
    NSNumber *wanted =
        [d objectForKey:(NSString *)kCVPixelBufferBytesPerRowAlignmentKey];
    size_t align = wanted != nil ? [wanted unsignedLongValue] : ROW_ALIGN;
    if (align == 0 || (align & (align - 1)) != 0 || width > SIZE_MAX / 4 ||
        align > 1u << 20) {
        return kCVReturnInvalidPixelBufferAttributes;
    }
    align = align < ROW_ALIGN ? ROW_ALIGN : align;
    size_t row = (width * 2 + align - 1) / align * align;
    StandinSurface *s = surface_new(width, height, row, pixelFormatType);
    if (s == nil) {
        return kCVReturnInvalidSize;
    }
    id surface =
        [d objectForKey:(NSString *)kCVPixelBufferIOSurfacePropertiesKey];
    *pixelBufferOut = pixels_new(s, surface != nil);
    return kCVReturnSuccess;
}

CVReturn CVPixelBufferCreateWithIOSurface(CFAllocatorRef allocator,
                                          IOSurfaceRef surface,
                                          CFDictionaryRef attributes,
                                          CVPixelBufferRef *pixelBufferOut)
{
    (void)allocator;
    (void)attributes;
    if (surface_of(surface)->format != kCVPixelFormatType_OneComponent16Half) {
        return kCVReturnInvalidPixelFormat;
    }
    *pixelBufferOut = pixels_new([(id)surface retain], true);
    return kCVReturnSuccess;
}

CVPixelBufferRef CVPixelBufferRetain(CVPixelBufferRef texture)
{
    return (CVPixelBufferRef)[(id)texture retain];
}

void CVPixelBufferRelease(CVPixelBufferRef texture)
{
    [(id)texture release];
}

CVReturn CVPixelBufferLockBaseAddress(CVPixelBufferRef pixelBuffer,
                                      CVPixelBufferLockFlags lockFlags)
{
    lock(surface_in(pixelBuffer), (lockFlags & kCVPixelBufferLock_ReadOnly),
         "CVPixelBufferLockBaseAddress");
    return kCVReturnSuccess;
}

CVReturn CVPixelBufferUnlockBaseAddress(CVPixelBufferRef pixelBuffer,
                                        CVPixelBufferLockFlags unlockFlags)
{
    unlock(surface_in(pixelBuffer), (unlockFlags & kCVPixelBufferLock_ReadOnly),
           "CVPixelBufferUnlockBaseAddress");
    return kCVReturnSuccess;
}

size_t CVPixelBufferGetWidth(CVPixelBufferRef pixelBuffer)
{
    return surface_in(pixelBuffer)->width;
}

size_t CVPixelBufferGetHeight(CVPixelBufferRef pixelBuffer)
{
    return surface_in(pixelBuffer)->height;
}

OSType CVPixelBufferGetPixelFormatType(CVPixelBufferRef pixelBuffer)
{
    return surface_in(pixelBuffer)->format;
}

void *CVPixelBufferGetBaseAddress(CVPixelBufferRef pixelBuffer)
{
    return surface_in(pixelBuffer)->p;
}

size_t CVPixelBufferGetBytesPerRow(CVPixelBufferRef pixelBuffer)
{
    return surface_in(pixelBuffer)->row;
}

size_t CVPixelBufferGetDataSize(CVPixelBufferRef pixelBuffer)
{
    return surface_in(pixelBuffer)->bytes;
}

IOSurfaceRef CVPixelBufferGetIOSurface(CVPixelBufferRef pixelBuffer)
{
    struct pixels *x = si_data((id)pixelBuffer);
    return x != NULL && x->is_surface ? (IOSurfaceRef)x->surface : NULL;
}

/* --- IOSurface --- */

const CFStringRef kIOSurfaceAllocSize = (CFStringRef) @"IOSurfaceAllocSize";
const CFStringRef kIOSurfaceWidth = (CFStringRef) @"IOSurfaceWidth";
const CFStringRef kIOSurfaceHeight = (CFStringRef) @"IOSurfaceHeight";
const CFStringRef kIOSurfaceBytesPerRow = (CFStringRef) @"IOSurfaceBytesPerRow";
const CFStringRef kIOSurfaceBytesPerElement =
    (CFStringRef) @"IOSurfaceBytesPerElement";
const CFStringRef kIOSurfacePixelFormat = (CFStringRef) @"IOSurfacePixelFormat";

static size_t number(CFDictionaryRef d, CFStringRef key, size_t otherwise)
{
    NSNumber *n = [(NSDictionary *)d objectForKey:(NSString *)key];
    return n != nil ? [n unsignedLongValue] : otherwise;
}

IOSurfaceRef IOSurfaceCreate(CFDictionaryRef properties)
{
    size_t width = number(properties, kIOSurfaceWidth, 0);
    size_t height = number(properties, kIOSurfaceHeight, 0);
    size_t element = number(properties, kIOSurfaceBytesPerElement, 1);
    size_t row = 0;
    if (__builtin_mul_overflow(width, element, &row)) {
        return NULL;
    }
    size_t wanted = number(properties, kIOSurfaceBytesPerRow,
                           IOSurfaceAlignProperty(kIOSurfaceBytesPerRow, row));
    if (wanted < row || wanted % ROW_ALIGN != 0) {
        return NULL;
    }
    OSType format = (OSType)number(properties, kIOSurfacePixelFormat, 0);
    return (IOSurfaceRef)surface_new(width, height, wanted, format);
}

kern_return_t IOSurfaceLock(IOSurfaceRef buffer, IOSurfaceLockOptions options,
                            uint32_t *seed)
{
    lock(surface_of(buffer), (options & kIOSurfaceLockReadOnly),
         "IOSurfaceLock");
    if (seed != NULL) {
        *seed = 0;
    }
    return 0;
}

kern_return_t IOSurfaceUnlock(IOSurfaceRef buffer, IOSurfaceLockOptions options,
                              uint32_t *seed)
{
    unlock(surface_of(buffer), (options & kIOSurfaceLockReadOnly),
           "IOSurfaceUnlock");
    if (seed != NULL) {
        *seed = 0;
    }
    return 0;
}

size_t IOSurfaceGetAllocSize(IOSurfaceRef buffer)
{
    return surface_of(buffer)->bytes;
}

size_t IOSurfaceGetWidth(IOSurfaceRef buffer)
{
    return surface_of(buffer)->width;
}

size_t IOSurfaceGetHeight(IOSurfaceRef buffer)
{
    return surface_of(buffer)->height;
}

size_t IOSurfaceGetBytesPerRow(IOSurfaceRef buffer)
{
    return surface_of(buffer)->row;
}

void *IOSurfaceGetBaseAddress(IOSurfaceRef buffer)
{
    return surface_of(buffer)->p;
}

size_t IOSurfaceAlignProperty(CFStringRef property, size_t value)
{
    (void)property;
    return (value + ROW_ALIGN - 1) / ROW_ALIGN * ROW_ALIGN;
}
