/* array.m - MLMultiArray. */
#include <string.h>

#include "base/half.h"
#import "standin.h"

#define ROW_ALIGN 64 /* bytes; what the Neural Engine pads rows to */
#define MORE      24 /* elements between rows that a handler gets */

size_t si_array_element(MLMultiArrayDataType t)
{
    return t == MLMultiArrayDataTypeFloat16   ? 2
           : t == MLMultiArrayDataTypeFloat32 ? 4
           : t == MLMultiArrayDataTypeInt32   ? 4
           : t == MLMultiArrayDataTypeDouble  ? 8
                                              : 0;
}

MLMultiArrayDataType si_array_dtype(enum mil_dtype t)
{
    return t == MIL_FP16    ? MLMultiArrayDataTypeFloat16
           : t == MIL_INT32 ? MLMultiArrayDataTypeInt32
           : t == MIL_FP64  ? MLMultiArrayDataTypeDouble
                            : MLMultiArrayDataTypeFloat32;
}

/* --- shapes --- */

/* Row-major strides, rows padded or not. */
static void make_strides(struct array *a, bool padded)
{
    int64_t n = 1;
    for (int i = a->rank - 1; i >= 0; i--) {
        a->strides[i] = n;
        n *= a->dims[i];
        if (padded && i == a->rank - 1) {
            int64_t align = ROW_ALIGN / (int64_t)si_array_element(a->dtype);
            n = (n + align - 1) / align * align;
        }
    }
}

/* Set count and bytes from dims and strides. */
static void measure(struct array *a)
{
    a->count = 1;
    int64_t last = 0;
    for (int i = 0; i < a->rank; i++) {
        a->count *= (size_t)a->dims[i];
        last += (a->dims[i] - 1) * a->strides[i];
    }
    a->bytes =
        a->count == 0 ? 0 : ((size_t)last + 1) * si_array_element(a->dtype);
}

/* Take shape and type. False: not what an array can have. */
static bool take(struct array *a, NSArray *shape, MLMultiArrayDataType dtype)
{
    a->dtype = dtype;
    a->rank = si_ints(shape, a->dims);
    uint64_t n = si_array_element(dtype);
    for (int i = 0; i < a->rank; i++) {
        if (__builtin_mul_overflow(n, (uint64_t)a->dims[i], &n) ||
            n > MIL_TENSOR_BYTES_MAX) {
            return false;
        }
    }
    return a->rank > 0 && n > 0;
}

static bool take_strides(struct array *a, NSArray *strides)
{
    if (si_ints(strides, a->strides) != a->rank) {
        return false;
    }
    measure(a);
    return a->bytes <= MIL_TENSOR_BYTES_MAX;
}

/* --- memory --- */

/* Memory that nobody has set shows: NaN, or -1. */
static void make_own(struct array *a)
{
    a->kind = ARRAY_OWN;
    a->p = malloc(a->bytes);
    must(a->p != NULL);
    memset(a->p, 0xff, a->bytes);
    si_count_add(COUNT_ARRAY_BYTES, (int64_t)a->bytes);
}

static void check_alive(const struct array *a)
{
    if (a->dead) {
        si_rule_broken(RULE_STATE_HANDLER, "its array is used after it");
    }
}

/* Somebody outside touches the array. */
static void check_touch(struct array *a, bool write, const char *how)
{
    check_alive(a);
    int use = atomic_load_explicit(&a->use, memory_order_relaxed);
    if (use == PIXELS_BACKING) {
        si_rule_broken(RULE_BACKING_TOUCHED, "%s", how);
    }
    if (use == PIXELS_INPUT && write) {
        si_rule_broken(RULE_INPUT_CHANGED, "%s", how);
    }
}

static void *map(struct array *a, bool write)
{
    return a->kind == ARRAY_PIXELS ? si_pixels_open(a->pixels, write) : a->p;
}

static void unmap(struct array *a, bool write)
{
    if (a->kind == ARRAY_PIXELS) {
        si_pixels_close(a->pixels, write);
    }
}

/* Copy rows between the array and dense memory. */
static void copy(struct array *a, void *p, char *dense, bool to_dense)
{
    size_t size = si_array_element(a->dtype);
    int last = a->rank - 1;
    size_t n = (size_t)a->dims[last];
    int64_t idx[MIL_RANK_MAX] = {0};
    for (size_t row = 0; row < a->count / n; row++) {
        int64_t at = 0;
        for (int i = 0; i < last; i++) {
            at += idx[i] * a->strides[i];
        }
        char *q = (char *)p + (size_t)at * size;
        size_t step = (size_t)a->strides[last] * size;
        for (size_t k = 0; k < n; k += step == size ? n : 1) {
            size_t bytes = step == size ? n * size : size;
            memcpy(to_dense ? dense + (row * n + k) * size : q + k * step,
                   to_dense ? q + k * step : dense + (row * n + k) * size,
                   bytes);
        }
        for (int i = last - 1; i >= 0 && ++idx[i] == a->dims[i]; i--) {
            idx[i] = 0;
        }
    }
}

void si_array_gather(MLMultiArray *m, void *dense)
{
    struct array *a = array_of(m);
    copy(a, map(a, false), dense, true);
    unmap(a, false);
}

void si_array_scatter(MLMultiArray *m, const void *dense)
{
    struct array *a = array_of(m);
    copy(a, map(a, true), (char *)(uintptr_t)dense, false); /* only read */
    unmap(a, true);
}

void si_array_begin(MLMultiArray *m, enum pixels_use use)
{
    struct array *a = array_of(m);
    check_alive(a);
    if (a->kind == ARRAY_PIXELS) {
        si_pixels_set_use(a->pixels, use);
    }
    atomic_store_explicit(&a->use, (int)use, memory_order_relaxed);
    a->was_input = a->was_input || use == PIXELS_INPUT;
}

void si_array_end(MLMultiArray *m)
{
    struct array *a = array_of(m);
    atomic_store_explicit(&a->use, PIXELS_IDLE, memory_order_relaxed);
    if (a->kind == ARRAY_PIXELS) {
        si_pixels_set_use(a->pixels, PIXELS_IDLE);
    }
}

void si_array_kill(MLMultiArray *m)
{
    struct array *a = array_of(m);
    a->dead = true;
    si_pages_retire(a->p);
    a->p = NULL;
}

MLMultiArray *si_array_paged(enum array_kind kind, MLMultiArrayDataType dtype,
                             const int64_t *dims, int rank, bool padded)
{
    MLMultiArray *m = [[[MLMultiArray alloc] init] autorelease];
    struct array *a = array_of(m);
    a->kind = kind;
    a->dtype = dtype;
    a->rank = rank;
    memcpy(a->dims, dims, (size_t)rank * sizeof(*dims));
    make_strides(a, padded);
    measure(a);
    a->p = si_pages_new(a->bytes, kind == ARRAY_RESULT ? RULE_RESULT_READ_ONLY
                                                       : RULE_STATE_HANDLER);
    si_count_add(COUNT_ARRAY_BYTES, (int64_t)a->bytes);
    return m;
}

/* --- the class --- */

@implementation MLMultiArray

STANDIN_CLASS(COUNT_ARRAY, struct array)

- (void)dealloc
{
    struct array *a = array_of(self);
    si_count_add(COUNT_ARRAY, -1);
    if (a->locked) {
        (void)CVPixelBufferUnlockBaseAddress(a->pixels, 0);
    }
    CVPixelBufferRelease(a->pixels);
    if (a->kind != ARRAY_PIXELS && a->kind != ARRAY_BORROWED) {
        si_count_add(COUNT_ARRAY_BYTES, -(int64_t)a->bytes);
    }
    if (a->kind == ARRAY_OWN) {
        free(a->p);
    } else if (a->kind == ARRAY_RESULT || a->kind == ARRAY_STATE) {
        si_pages_free(a->p);
    } else if (a->deallocator != NULL) {
        a->deallocator(a->p);
        Block_release(a->deallocator);
    }
    [super dealloc];
}

- (instancetype)initWithShape:(NSArray<NSNumber *> *)shape
                     dataType:(MLMultiArrayDataType)dataType
                        error:(NSError **)error
{
    self = [super init];
    struct array *a = array_of(self);
    if (!take(a, shape, dataType)) {
        a->bytes = 0;
        [self release];
        return si_fail(error,
                       si_error(MLModelErrorGeneric,
                                @"Failed to allocate a MultiArray of shape %@",
                                [shape componentsJoinedByString:@" x "]));
    }
    make_strides(a, false);
    measure(a);
    make_own(a);
    return self;
}

- (instancetype)initWithShape:(NSArray<NSNumber *> *)shape
                     dataType:(MLMultiArrayDataType)dataType
                      strides:(NSArray<NSNumber *> *)strides
{
    self = [super init];
    struct array *a = array_of(self);
    if (!take(a, shape, dataType) || !take_strides(a, strides)) {
        a->bytes = 0;
        [self release];
        [NSException raise:NSInvalidArgumentException
                    format:@"no MultiArray has this shape and these strides"];
    }
    make_own(a);
    return self;
}

- (instancetype)initWithDataPointer:(void *)dataPointer
                              shape:(NSArray<NSNumber *> *)shape
                           dataType:(MLMultiArrayDataType)dataType
                            strides:(NSArray<NSNumber *> *)strides
                        deallocator:(void (^)(void *bytes))deallocator
                              error:(NSError **)error
{
    self = [super init];
    struct array *a = array_of(self);
    a->kind = ARRAY_BORROWED;
    if (dataPointer == NULL || !take(a, shape, dataType) ||
        !take_strides(a, strides)) {
        [self release];
        return si_fail(error, si_error(MLModelErrorGeneric,
                                       @"Shape and strides of a MultiArray "
                                       @"do not fit"));
    }
    a->p = dataPointer;
    a->deallocator = deallocator != NULL ? Block_copy(deallocator) : NULL;
    return self;
}

- (instancetype)initWithPixelBuffer:(CVPixelBufferRef)pixelBuffer
                              shape:(NSArray<NSNumber *> *)shape
{
    self = [super init];
    struct array *a = array_of(self);
    a->kind = ARRAY_PIXELS;
    bool fits = take(a, shape, MLMultiArrayDataTypeFloat16) &&
                CVPixelBufferGetPixelFormatType(pixelBuffer) ==
                    kCVPixelFormatType_OneComponent16Half;
    if (fits) {
        size_t width = (size_t)a->dims[a->rank - 1];
        make_strides(a, false);
        measure(a);
        fits = width == CVPixelBufferGetWidth(pixelBuffer) &&
               a->count / width == CVPixelBufferGetHeight(pixelBuffer);
    }
    if (!fits) {
        [self release];
        [NSException raise:NSInvalidArgumentException
                    format:@"the pixel buffer does not fit shape %@",
                           [shape componentsJoinedByString:@" x "]];
    }
    int64_t row = (int64_t)(CVPixelBufferGetBytesPerRow(pixelBuffer) / 2);
    for (int i = a->rank - 2; i >= 0; i--) {
        a->strides[i] = row;
        row *= a->dims[i];
    }
    measure(a);
    a->pixels = CVPixelBufferRetain(pixelBuffer);
    return self;
}

- (MLMultiArrayDataType)dataType
{
    return array_of(self)->dtype;
}

- (NSArray<NSNumber *> *)shape
{
    struct array *a = array_of(self);
    check_alive(a);
    return si_numbers(a->dims, a->rank);
}

- (NSArray<NSNumber *> *)strides
{
    struct array *a = array_of(self);
    check_alive(a);
    return si_numbers(a->strides, a->rank);
}

- (NSInteger)count
{
    return (NSInteger)array_of(self)->count;
}

- (CVPixelBufferRef)pixelBuffer
{
    return array_of(self)->pixels;
}

/* It cannot know when the pointer is used for the last time, so it locks a
 * pixel buffer for as long as the array lives. */
- (void *)dataPointer
{
    struct array *a = array_of(self);
    check_touch(a, false, "dataPointer");
    if (a->kind == ARRAY_PIXELS && !a->locked) {
        (void)CVPixelBufferLockBaseAddress(a->pixels, 0);
        a->locked = true;
    }
    return a->kind == ARRAY_PIXELS ? CVPixelBufferGetBaseAddress(a->pixels)
                                   : a->p;
}

- (void)getBytesWithHandler:(void(CF_NOESCAPE ^)(const void *bytes,
                                                 NSInteger size))handler
{
    struct array *a = array_of(self);
    check_touch(a, false, "getBytesWithHandler");
    @try {
        handler(map(a, false), (NSInteger)a->bytes);
    } @finally {
        unmap(a, false);
    }
}

/* The bytes that the handler gets may be laid out otherwise than `strides` says
 * (Apple's reference): a state's are, in longer rows with NaN between them. */
static void in_other_rows(struct array *a,
                          void(CF_NOESCAPE ^ handler)(void *bytes,
                                                      NSInteger size,
                                                      NSArray<NSNumber *> *))
{
    struct array b = {.dtype = a->dtype, .rank = a->rank};
    size_t size = si_array_element(a->dtype);
    int64_t n = 1;
    memcpy(b.dims, a->dims, sizeof(b.dims));
    for (int i = b.rank; i-- > 0;) {
        b.strides[i] = n;
        n *= b.dims[i];
        n += i == b.rank - 1 ? MORE : 0;
    }
    measure(&b);
    char *dense = malloc(a->count * size + 1);
    b.p = malloc(b.bytes + 1);
    must(dense != NULL && b.p != NULL);
    memset(b.p, 0xff, b.bytes);
    copy(a, a->p, dense, true);
    copy(&b, b.p, dense, false);
    @try {
        handler(b.p, (NSInteger)b.bytes, si_numbers(b.strides, b.rank));
    } @finally {
        copy(&b, b.p, dense, true);
        copy(a, a->p, dense, false);
        free(b.p);
        free(dense);
    }
}

- (void)getMutableBytesWithHandler:
    (void(CF_NOESCAPE ^)(void *bytes, NSInteger size,
                         NSArray<NSNumber *> *strides))handler
{
    struct array *a = array_of(self);
    check_touch(a, true, "getMutableBytesWithHandler");
    if (a->kind == ARRAY_STATE) {
        in_other_rows(a, handler);
        return;
    }
    @try {
        handler(map(a, true), (NSInteger)a->bytes, [self strides]);
    } @finally {
        unmap(a, true);
    }
}

static double element(const struct array *a, const void *p)
{
    uint16_t h = 0;
    float f = 0;
    int32_t i = 0;
    double d = 0;
    if (a->dtype == MLMultiArrayDataTypeFloat16) {
        memcpy(&h, p, sizeof(h));
        d = (double)half_to_float(h);
    } else if (a->dtype == MLMultiArrayDataTypeFloat32) {
        memcpy(&f, p, sizeof(f));
        d = (double)f;
    } else if (a->dtype == MLMultiArrayDataTypeInt32) {
        memcpy(&i, p, sizeof(i));
        d = (double)i;
    } else {
        memcpy(&d, p, sizeof(d));
    }
    return d;
}

static void set_element(const struct array *a, void *p, double v)
{
    float f = (float)v;
    uint16_t h = half_from_float(f);
    if (a->dtype == MLMultiArrayDataTypeFloat16) {
        memcpy(p, &h, sizeof(h));
    } else if (a->dtype == MLMultiArrayDataTypeFloat32) {
        memcpy(p, &f, sizeof(f));
    } else if (a->dtype == MLMultiArrayDataTypeInt32) {
        int32_t i = (int32_t)v;
        memcpy(p, &i, sizeof(i));
    } else {
        memcpy(p, &v, sizeof(v));
    }
}

- (NSNumber *)objectAtIndexedSubscript:(NSInteger)idx
{
    struct array *a = array_of(self);
    const char *p = [self dataPointer];
    if (idx < 0 || (size_t)idx >= a->count) {
        [NSException raise:NSRangeException
                    format:@"no element %ld", (long)idx];
    }
    int64_t at = 0;
    int64_t rest = idx;
    for (int i = a->rank - 1; i >= 0; i--) {
        at += rest % a->dims[i] * a->strides[i];
        rest /= a->dims[i];
    }
    size_t size = si_array_element(a->dtype);
    return [NSNumber numberWithDouble:element(a, p + (size_t)at * size)];
}

- (void)transferToMultiArray:(MLMultiArray *)destinationMultiArray
{
    struct array *from = array_of(self);
    struct array *to = array_of(destinationMultiArray);
    check_touch(from, false, "transferToMultiArray");
    check_touch(to, true, "transferToMultiArray");
    if (from->rank != to->rank ||
        memcmp(from->dims, to->dims, (size_t)to->rank * sizeof(*to->dims))) {
        [NSException raise:NSInvalidArgumentException
                    format:@"MultiArrays of shapes %@ and %@",
                           si_shape_text(from->dims, from->rank),
                           si_shape_text(to->dims, to->rank)];
    }
    size_t in_size = si_array_element(from->dtype);
    size_t out_size = si_array_element(to->dtype);
    char *in = malloc(from->count * in_size);
    char *out = malloc(from->count * out_size);
    must(in != NULL && out != NULL);
    si_array_gather(self, in);
    for (size_t i = 0; i < from->count; i++) {
        set_element(to, out + i * out_size, element(from, in + i * in_size));
    }
    si_array_scatter(destinationMultiArray, out);
    free(in);
    free(out);
}

@end
