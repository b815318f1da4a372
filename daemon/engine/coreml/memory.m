/* memory.m - arrays that Core ML reads and writes in place.
 *
 * Halves lie in a pixel buffer on an IOSurface, which the Neural Engine maps
 * as it is: its width is the last dimension, its height the product of the
 * others, each row padded. What a pixel buffer cannot hold lies in whole pages.
 *
 * A pixel buffer is touched only between lock and unlock: an array whose
 * memory was asked for in another way (dataPointer) stays locked, and Core ML
 * then copies.
 */
#include <string.h>
#include <unistd.h>

#include "engine/array.h"
#import "engine/coreml/coreml.h"
#include "engine/port.h"

/* Above it a surface may be refused, and a width of 1 would waste 64 bytes for
 * each of very many elements. */
#define PIXELS_MAX 16384

/* --- types and shapes --- */

static const struct {
    enum mil_dtype mil;
    MLMultiArrayDataType coreml;
} types[] = {
    {MIL_FP16,  MLMultiArrayDataTypeFloat16},
    {MIL_FP32,  MLMultiArrayDataTypeFloat32},
    {MIL_INT32, MLMultiArrayDataTypeInt32  },
};

enum mil_dtype memory_dtype(MLMultiArrayDataType t)
{
    for (size_t i = 0; i < countof(types); i++) {
        if (types[i].coreml == t) {
            return types[i].mil;
        }
    }
    return MIL_NONE;
}

static MLMultiArrayDataType coreml_dtype(enum mil_dtype t)
{
    size_t i = 0;
    while (types[i].mil != t) { /* ports_match has looked */
        i++;
        must(i < countof(types));
    }
    return types[i].coreml;
}

static NSArray *numbers(const int64_t *v, int n)
{
    NSMutableArray *a = [NSMutableArray arrayWithCapacity:(NSUInteger)n];
    for (int i = 0; i < n; i++) {
        [a addObject:[NSNumber numberWithLongLong:v[i]]];
    }
    return a;
}

/* False: more numbers than any rank, or one below `least`. */
static bool take_numbers(NSArray<NSNumber *> *a, int64_t *ret, int64_t least)
{
    NSUInteger n = [a count];
    for (NSUInteger i = 0; i < n && n <= MIL_RANK_MAX; i++) {
        ret[i] = [[a objectAtIndex:i] longLongValue];
        if (ret[i] < least) {
            return false;
        }
    }
    return n <= MIL_RANK_MAX;
}

int memory_describe(MLMultiArray *array, void *bytes, struct backend_array *ret,
                    struct err *e)
{
    return memory_describe_as(array, bytes, [array strides], ret, e);
}

int memory_describe_as(MLMultiArray *array, void *bytes,
                       NSArray<NSNumber *> *strides, struct backend_array *ret,
                       struct err *e)
{
    NSArray<NSNumber *> *shape = [array shape];
    *ret = (struct backend_array){.dtype = memory_dtype([array dataType]),
                                  .rank = (int)[shape count],
                                  .data = bytes};
    return ret->dtype != MIL_NONE && [strides count] == [shape count] &&
                   take_numbers(shape, ret->dims, 1) &&
                   take_numbers(strides, ret->strides, 0)
               ? 0
               : err_set(e, ERR_MIL_SHAPE,
                         "Core ML gave an array that aned does not read");
}

/* --- make --- */

static bool pixels_fit(enum mil_dtype dtype, int rank, const int64_t *dims)
{
    int64_t height = 1;
    for (int i = 0; i + 1 < rank; i++) {
        if (dims[i] > PIXELS_MAX / height) {
            return false;
        }
        height *= dims[i];
    }
    return dtype == MIL_FP16 && rank > 0 && dims[rank - 1] <= PIXELS_MAX;
}

/* nil: there is no such surface. Owned. */
static MLMultiArray *pixels_array(int rank, const int64_t *dims)
{
    CVPixelBufferRef p = NULL;
    size_t height = 1;
    NSDictionary *on_surface = [NSDictionary
        dictionaryWithObject:[NSDictionary dictionary]
                      forKey:(NSString *)kCVPixelBufferIOSurfacePropertiesKey];
    for (int i = 0; i + 1 < rank; i++) {
        height *= (size_t)dims[i];
    }
    if (CVPixelBufferCreate(kCFAllocatorDefault, (size_t)dims[rank - 1], height,
                            kCVPixelFormatType_OneComponent16Half,
                            (CFDictionaryRef)on_surface,
                            &p) != kCVReturnSuccess) {
        return nil;
    }
    MLMultiArray *a = nil;
    @try {
        a = [[MLMultiArray alloc] initWithPixelBuffer:p
                                                shape:numbers(dims, rank)];
    } @catch (NSException *x) {
        a = nil; /* plain memory will do */
    }
    CVPixelBufferRelease(p); /* the array has it */
    return a;
}

/* nil, and no x->plain: no memory. nil, and x->plain: *error says why; whether
 * the memory is freed then is not said, so it leaks. Owned. */
static MLMultiArray *plain_array(struct memory *x, enum mil_dtype dtype,
                                 int rank, const int64_t *dims, NSError **error)
{
    struct backend_array a = {.rank = rank};
    memcpy(a.dims, dims, (size_t)rank * sizeof(*dims));
    uint64_t n = array_count(&a);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = n <= MIL_TENSOR_BYTES_MAX / sizeof(float)
                       ? (size_t)n * array_dtype_bytes(dtype)
                       : 0;
    bytes = (bytes + page - 1) / page * page;
    if (bytes == 0 || posix_memalign(&x->plain, page, bytes) != 0) {
        x->plain = NULL;
        return nil;
    }
    array_lay(&a);
    memset(x->plain, 0, bytes);
    return [[MLMultiArray alloc] initWithDataPointer:x->plain
                                               shape:numbers(dims, rank)
                                            dataType:coreml_dtype(dtype)
                                             strides:numbers(a.strides, rank)
                                         deallocator:^(void *p) {
                                           free(p);
                                         }
                                               error:error];
}

static int pixels_clear(CVPixelBufferRef p, struct err *e)
{
    if (CVPixelBufferLockBaseAddress(p, 0) != kCVReturnSuccess) {
        return err_set(e, ERR_BACKEND, "a pixel buffer could not be locked");
    }
    memset(CVPixelBufferGetBaseAddress(p), 0,
           CVPixelBufferGetBytesPerRow(p) * CVPixelBufferGetHeight(p));
    (void)CVPixelBufferUnlockBaseAddress(p, 0);
    return 0;
}

static int make(struct memory *x, struct backend_array *a, enum mil_dtype dtype,
                int rank, const int64_t *dims, struct err *e)
{
    NSError *error = nil;
    if (pixels_fit(dtype, rank, dims)) {
        x->array = pixels_array(rank, dims);
        x->pixels = x->array != nil ? [x->array pixelBuffer] : NULL;
    }
    if (x->pixels == NULL) {
        [x->array release];
        x->array = nil;
    }
    if (x->pixels != NULL) {
        RETERR(pixels_clear(x->pixels, e));
    } else {
        x->array = plain_array(x, dtype, rank, dims, &error);
    }
    if (x->array == nil) {
        return x->plain != NULL ? coreml_error(e, error, "making an array")
                                : err_set(e, ERR_NOMEM, "an array");
    }
    x->value = [[MLFeatureValue featureValueWithMultiArray:x->array] retain];
    return memory_describe(x->array, NULL, a, e);
}

int memory_new(struct memory *x, struct backend_array *a, enum mil_dtype dtype,
               int rank, const int64_t *dims, struct err *e)
{
    int rc = 0;
    *x = (struct memory){0};
    @try {
        rc = make(x, a, dtype, rank, dims, e);
    } @catch (NSException *raised) {
        rc = coreml_raised(e, raised, "making an array");
    }
    if (rc < 0) {
        memory_drop(x);
    }
    return rc;
}

int memory_of_result(struct memory *x, struct backend_array *a,
                     MLMultiArray *array, struct err *e)
{
    RETERR(memory_describe(array, NULL, a, e));
    x->array = [array retain];
    x->pixels = [array pixelBuffer];
    x->plain = x->pixels == NULL ? [array dataPointer] : NULL;
    x->result = true;
    return 0;
}

void memory_drop(struct memory *x)
{
    [x->value release];
    [x->array release];
    *x = (struct memory){0};
}

/* --- for the engine --- */

struct array {
    struct backend_array a;
    struct memory x;
};

static int new_array(struct backend_model *m, size_t i, int rank,
                     const int64_t *dims, struct backend_array **ret,
                     struct err *e)
{
    enum mil_dtype dtype = m->in[i].type.dtype;
    RETERR(port_check(&m->in[i], m->features[i], dtype, rank, dims, e));
    struct array *o = calloc(1, sizeof(*o));
    if (o == NULL) {
        return err_set(e, ERR_NOMEM, "input %s", m->in[i].name);
    }
    int rc = memory_new(&o->x, &o->a, dtype, rank, dims, e);
    if (rc < 0) {
        free(o);
        return err_prefix(e, rc, "input %s", m->in[i].name);
    }
    o->a.own = &o->x;
    *ret = &o->a;
    return 0;
}

int coreml_array_new(struct backend_model *m, size_t i, enum mil_dtype dtype,
                     int rank, const int64_t *dims, struct backend_array **ret,
                     struct err *e)
{
    (void)dtype; /* the port's it is */
    @autoreleasepool {
        return new_array(m, i, rank, dims, ret, e);
    }
}

void coreml_array_free(struct backend_array *a)
{
    if (a == NULL) {
        return;
    }
    struct array *o = container_of(a, struct array, a);
    @autoreleasepool {
        memory_drop(&o->x);
    }
    free(o);
}

int coreml_lock(struct backend_array *a, bool write, struct err *e)
{
    struct memory *x = a->own;
    if (write && x->result) {
        return err_set(e, ERR_BACKEND, "Core ML's results are read only");
    }
    if (x->pixels == NULL) {
        a->data = x->plain;
        return 0;
    }
    CVPixelBufferLockFlags how = write ? 0 : kCVPixelBufferLock_ReadOnly;
    CVReturn rc = CVPixelBufferLockBaseAddress(x->pixels, how);
    if (rc != kCVReturnSuccess) {
        return err_set(e, ERR_BACKEND, "a pixel buffer could not be locked: %d",
                       (int)rc);
    }
    a->data = CVPixelBufferGetBaseAddress(x->pixels);
    return 0;
}

void coreml_unlock(struct backend_array *a, bool write)
{
    struct memory *x = a->own;
    if (x->pixels != NULL) {
        CVPixelBufferLockFlags how = write ? 0 : kCVPixelBufferLock_ReadOnly;
        (void)CVPixelBufferUnlockBaseAddress(x->pixels, how);
    }
    a->data = NULL;
}
