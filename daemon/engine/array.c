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

static int64_t offset(const struct backend_array *a, const int64_t *idx)
{
    int64_t at = 0;
    for (int i = 0; i < a->rank; i++) {
        at += idx[i] * a->strides[i];
    }
    return at;
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

void array_copy(struct backend_array *to, const struct backend_array *from)
{
    int64_t idx[MIL_RANK_MAX] = {0};
    uint64_t n = array_count(from);
    must(to->rank == from->rank &&
         memcmp(to->dims, from->dims, (size_t)to->rank * sizeof(idx[0])) == 0);
    if (alike(to, from)) {
        memcpy(to->data, from->data, n * array_dtype_bytes(to->dtype));
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        put_one(to->dtype, to->data, offset(to, idx),
                get_one(from->dtype, from->data, offset(from, idx)));
        next_index(idx, to->dims, to->rank);
    }
}

/* One row of the innermost axis between an array and a dense one. */
static void move_row(const struct backend_array *a, int64_t at,
                     const struct tensor *t, size_t first, size_t n,
                     int64_t stride, bool in)
{
    size_t wa = array_dtype_bytes(a->dtype);
    size_t wt = array_dtype_bytes(t->dtype);
    char *x = (char *)a->data + at * (int64_t)wa;
    char *y = (char *)t->data + first * wt;
    bool same = a->dtype == t->dtype;
    if (same && stride == 1) {
        memcpy(in ? x : y, in ? y : x, n * wa);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        int64_t k = (int64_t)i * stride;
        if (same) { /* not through a float: integers stay exact */
            char *p = x + k * (int64_t)wa;
            char *q = y + i * wt;
            memcpy(in ? p : q, in ? q : p, wa);
        } else if (in) {
            put_one(a->dtype, x, k, get_one(t->dtype, y, (int64_t)i));
        } else {
            put_one(t->dtype, y, (int64_t)i, get_one(a->dtype, x, k));
        }
    }
}

static void move_all(const struct backend_array *a, const struct tensor *t,
                     bool in)
{
    int64_t idx[MIL_RANK_MAX] = {0};
    int last = a->rank - 1;
    size_t n = a->rank > 0 ? (size_t)a->dims[last] : 1;
    uint64_t rows = n > 0 ? array_count(a) / n : 0;
    must(t->rank == a->rank);
    for (uint64_t r = 0; r < rows; r++) {
        move_row(a, offset(a, idx), t, r * n, n,
                 last >= 0 ? a->strides[last] : 1, in);
        next_index(idx, a->dims, last);
    }
}

void array_from_dense(struct backend_array *a, const struct tensor *t)
{
    move_all(a, t, true);
}

void array_to_dense(const struct backend_array *a, struct tensor *t)
{
    move_all(a, t, false);
}

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
    size_t dim = (size_t)a->dims[3];
    char *at = bytes;
    must(a->rank == 4 && a->dims[0] == 1 && a->dtype == MIL_FP16);
    if (((int64_t)b + 1) * STATE_BLOCK > a->dims[2]) {
        return false;
    }
    for (int64_t h = 0; h < a->dims[1]; h++) {
        for (uint32_t i = 0; i < STATE_BLOCK; i++, at += dim * 2) {
            int64_t pos = (int64_t)b * STATE_BLOCK + i;
            const struct tensor row = {
                .dtype = MIL_FP16, .rank = 4, .data = at};
            move_row(a, h * a->strides[1] + pos * a->strides[2], &row, 0, dim,
                     a->strides[3], !save);
        }
    }
    return true;
}
