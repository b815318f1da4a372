/* array.c - see array.h. Lines of fp32 and fp16 that are dense, which is nearly
 * all there is, are copied or converted whole; the rest goes one by one. */
#include "engine/array.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/num.h"

size_t array_dtype_bytes(enum mil_dtype t)
{
    static const struct {
        enum mil_dtype t;
        size_t n;
    } of[] = {
        {MIL_FP32,  4},
        {MIL_FP16,  2},
        {MIL_INT32, 4},
        {MIL_BOOL,  1},
    };
    for (size_t i = 0; i < countof(of); i++) {
        if (of[i].t == t) {
            return of[i].n;
        }
    }
    return 0;
}

uint64_t array_count(const struct backend_array *a)
{
    uint64_t n = 1;
    for (int i = 0; i < a->rank; i++) {
        if (a->dims[i] < 0 || !num_mul(n, (uint64_t)a->dims[i], &n)) {
            return 0;
        }
    }
    return n;
}

static char *place(const struct backend_array *a, struct array_line l,
                   int64_t *stride)
{
    int64_t at = 0;
    must(l.axis < a->rank);
    for (int i = 0; i < a->rank; i++) {
        int64_t n = i == l.axis ? (int64_t)l.n : 1;
        must(l.at[i] >= 0 && l.at[i] + n <= a->dims[i]);
        at += l.at[i] * a->strides[i];
    }
    *stride = a->strides[l.axis];
    return (char *)a->data + at * (int64_t)array_dtype_bytes(a->dtype);
}

/* Saturating, to nearest; NaN gives 0. */
static int32_t to_int(float f)
{
    if (f >= 2147483648.0F) {
        return INT32_MAX;
    }
    if (f < -2147483648.0F) {
        return INT32_MIN;
    }
    return isnan(f) ? 0 : (int32_t)rintf(f);
}

static void put_one(enum mil_dtype t, char *base, int64_t i, float v)
{
    if (t == MIL_FP32) {
        ((float *)(void *)base)[i] = v;
    } else if (t == MIL_FP16) {
        ((uint16_t *)(void *)base)[i] = half_from_float(v);
    } else if (t == MIL_INT32) {
        ((int32_t *)(void *)base)[i] = to_int(v);
    } else {
        base[i] = (char)(v < 0 || v > 0);
    }
}

static float get_one(enum mil_dtype t, const char *base, int64_t i)
{
    if (t == MIL_FP32) {
        return ((const float *)(const void *)base)[i];
    }
    if (t == MIL_FP16) {
        return half_to_float(((const uint16_t *)(const void *)base)[i]);
    }
    if (t == MIL_INT32) {
        return (float)((const int32_t *)(const void *)base)[i];
    }
    return base[i] != 0 ? 1.0F : 0.0F;
}

void array_put(struct backend_array *a, struct array_line l, const float *p,
               size_t step)
{
    int64_t stride = 0;
    char *base = place(a, l, &stride);
    if (stride == 1 && step == 1 && a->dtype == MIL_FP32) {
        memcpy(base, p, l.n * sizeof(*p));
    } else if (stride == 1 && step == 1 && a->dtype == MIL_FP16) {
        half_from_floats(p, (void *)base, l.n);
    } else {
        for (size_t i = 0; i < l.n; i++) {
            put_one(a->dtype, base, (int64_t)i * stride, p[i * step]);
        }
    }
}

void array_set(struct backend_array *a, struct array_line l, float v)
{
    int64_t stride = 0;
    char *base = place(a, l, &stride);
    for (size_t i = 0; i < l.n; i++) {
        put_one(a->dtype, base, (int64_t)i * stride, v);
    }
}

void array_get(const struct backend_array *a, struct array_line l, float *p,
               size_t step)
{
    int64_t stride = 0;
    const char *base = place(a, l, &stride);
    if (stride == 1 && step == 1 && a->dtype == MIL_FP32) {
        memcpy(p, base, l.n * sizeof(*p));
    } else if (stride == 1 && step == 1 && a->dtype == MIL_FP16) {
        half_to_floats((const void *)base, p, l.n);
    } else {
        for (size_t i = 0; i < l.n; i++) {
            p[i * step] = get_one(a->dtype, base, (int64_t)i * stride);
        }
    }
}

/* --- whole arrays --- */

/* The next index of the first n axes in row-major order. */
static void next_index(int64_t *idx, const int64_t *dims, int n)
{
    for (int i = n - 1; i >= 0; i--) {
        if (++idx[i] < dims[i]) {
            return;
        }
        idx[i] = 0;
    }
}

static char *element(const struct backend_array *a, const int64_t *idx)
{
    int64_t at = 0;
    for (int i = 0; i < a->rank; i++) {
        at += idx[i] * a->strides[i];
    }
    return (char *)a->data + at * (int64_t)array_dtype_bytes(a->dtype);
}

/* Dense in the same order: one copy will do. */
static bool alike(const struct backend_array *a, const struct backend_array *b)
{
    int64_t n = 1;
    bool same = a->dtype == b->dtype;
    for (int i = a->rank; same && i-- > 0; n *= a->dims[i]) {
        same = a->dims[i] == 1 || (a->strides[i] == n && b->strides[i] == n);
    }
    return same;
}

/* n elements of one type, `to` and `from` elements apart. Not through floats:
 * integers and not-a-numbers stay as they are. */
static void copy_same(enum mil_dtype t, char *a, int64_t to, const char *b,
                      int64_t from, int64_t n)
{
    size_t w = array_dtype_bytes(t);
    if (to == 1 && from == 1) {
        memcpy(a, b, (size_t)n * w);
    } else if (w == sizeof(uint16_t)) {
        for (int64_t i = 0; i < n; i++) {
            ((uint16_t *)(void *)a)[i * to] =
                ((const uint16_t *)(const void *)b)[i * from];
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            memcpy(a + i * to * (int64_t)w, b + i * from * (int64_t)w, w);
        }
    }
}

static void copy_line(const struct backend_array *to,
                      const struct backend_array *from, const int64_t *idx,
                      int axis)
{
    char *a = element(to, idx);
    const char *b = element(from, idx);
    int64_t sa = axis >= 0 ? to->strides[axis] : 1;
    int64_t sb = axis >= 0 ? from->strides[axis] : 1;
    int64_t n = axis >= 0 ? to->dims[axis] : 1;
    if (to->dtype == from->dtype) {
        copy_same(to->dtype, a, sa, b, sb, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        put_one(to->dtype, a, i * sa, get_one(from->dtype, b, i * sb));
    }
}

void array_copy(struct backend_array *to, const struct backend_array *from)
{
    int64_t idx[MIL_RANK_MAX] = {0};
    uint64_t n = array_count(from);
    int axis = to->rank - 1;
    must(to->rank == from->rank &&
         memcmp(to->dims, from->dims, (size_t)to->rank * sizeof(idx[0])) == 0);
    if (n == 0) {
        return;
    }
    if (alike(to, from)) {
        memcpy(to->data, from->data, n * array_dtype_bytes(to->dtype));
        return;
    }
    while (axis > 0 && to->dims[axis] == 1) { /* lines longer than one */
        axis--;
    }
    n /= axis >= 0 ? (uint64_t)to->dims[axis] : 1;
    for (uint64_t i = 0; i < n; i++) {
        copy_line(to, from, idx, axis);
        next_index(idx, to->dims, axis);
    }
}

void array_lay(struct backend_array *a)
{
    int64_t n = 1;
    for (int i = a->rank; i-- > 0; n *= a->dims[i]) {
        a->strides[i] = n;
    }
}

static struct backend_array dense_view(const struct tensor *t)
{
    struct backend_array a = {
        .dtype = t->dtype, .rank = t->rank, .data = t->data};
    memcpy(a.dims, t->dims, sizeof(a.dims));
    array_lay(&a);
    return a;
}

void array_from_dense(struct backend_array *a, const struct tensor *t)
{
    const struct backend_array d = dense_view(t);
    array_copy(a, &d);
}

void array_to_dense(const struct backend_array *a, struct tensor *t)
{
    struct backend_array d = dense_view(t);
    array_copy(&d, a);
}

/* --- blocks --- */

size_t array_block_bytes(const struct mil_type *t)
{
    uint64_t n = 0;
    if (t->dtype != MIL_FP16 || t->rank != 4 || t->dims[0] != 1 ||
        t->dims[2] < STATE_BLOCK || !mil_type_count(t, &n)) {
        return 0;
    }
    return (size_t)(n / (uint64_t)t->dims[2]) * STATE_BLOCK * sizeof(uint16_t);
}

bool array_block(struct backend_array *a, uint32_t b, void *bytes, bool save)
{
    int64_t pos = (int64_t)b * STATE_BLOCK;
    must(a->rank == 4 && a->dims[0] == 1 && a->dtype == MIL_FP16);
    if (pos + STATE_BLOCK > a->dims[2]) {
        return false;
    }
    struct backend_array part = *a;
    part.dims[2] = STATE_BLOCK;
    part.data = (uint16_t *)a->data + pos * a->strides[2];
    struct backend_array dense = part;
    dense.data = bytes;
    array_lay(&dense);
    array_copy(save ? &dense : &part, save ? &part : &dense);
    return true;
}
