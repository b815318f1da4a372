/* fake_array.h - arrays that hold their user to the letter of backend.h: rows
 * are padded with not-a-number, masks are fp16, and the data is at another
 * place after every lock, where nobody can have kept a pointer to. */
#pragma once

#include <string.h>

#include "../unit.h"
#include "base/half.h"
#include "engine/backend.h"
#include "engine/tensor.h"

enum { FAKE_PAD = 3 }; /* elements after the innermost dimension */
#define FAKE_HOLE 0x7e00 /* fp16 not-a-number */

static enum mil_dtype fake_dtype(const char *name)
{
    return strstr(name, "mask") != NULL || strstr(name, "_past") != NULL
               ? MIL_FP16
               : MIL_FP32;
}

static size_t fake_width(const struct backend_array *a)
{
    return a->dtype == MIL_FP16 ? 2 : 4;
}

/* Elements with their padding. */
static size_t fake_room(const struct backend_array *a)
{
    return (size_t)(a->dims[0] * a->strides[0]);
}

/* The next index in row-major order; false after the last. */
static bool fake_next(const struct backend_array *a, int64_t *idx)
{
    for (int i = a->rank; i-- > 0;) {
        if (++idx[i] < a->dims[i]) {
            return true;
        }
        idx[i] = 0;
    }
    return false;
}

static size_t fake_place(const struct backend_array *a, const int64_t *idx)
{
    int64_t at = 0;
    for (int i = 0; i < a->rank; i++) {
        at += idx[i] * a->strides[i];
    }
    return (size_t)at;
}

static void fake_hole(const struct backend_array *a, size_t i)
{
    if (a->dtype == MIL_FP16) {
        ((uint16_t *)a->own)[i] = FAKE_HOLE;
    } else {
        ((uint32_t *)a->own)[i] = 0x7fc00000;
    }
}

static void fake_lay_out(struct backend_array *a, enum mil_dtype dtype,
                         int rank, const int64_t *dims)
{
    int64_t n = 1;
    *a = (struct backend_array){.dtype = dtype, .rank = rank};
    for (int i = rank; i-- > 0; n *= dims[i] + (i == rank - 1 ? FAKE_PAD : 0)) {
        a->dims[i] = dims[i];
        a->strides[i] = n;
    }
    a->own = malloc(fake_room(a) * fake_width(a));
    assert_non_null(a->own);
    for (size_t i = 0; i < fake_room(a); i++) {
        fake_hole(a, i);
    }
}

static struct backend_array *fake_array(enum mil_dtype dtype, int rank,
                                        const int64_t *dims)
{
    struct backend_array *a = malloc(sizeof(*a));
    int64_t idx[MIL_RANK_MAX] = {0};
    assert_non_null(a);
    fake_lay_out(a, dtype, rank, dims);
    do {
        memset((char *)a->own + fake_place(a, idx) * fake_width(a), 0,
               fake_width(a));
    } while (fake_next(a, idx));
    return a;
}

static void fake_array_free(struct backend_array *a)
{
    if (a != NULL) {
        assert_null(a->data); /* nobody is in it */
        free(a->own);
        free(a);
    }
}

/* To another place. */
static int fake_lock(struct backend_array *a, bool write, struct err *e)
{
    size_t n = fake_room(a) * fake_width(a);
    void *to = malloc(n);
    (void)write;
    (void)e;
    assert_null(a->data);
    assert_non_null(to);
    memcpy(to, a->own, n);
    memset(a->own, 0xff, n);
    free(a->own);
    a->own = to;
    a->data = to;
    return 0;
}

/* The padding is nobody's. */
static void fake_unlock(struct backend_array *a, bool write)
{
    (void)write;
    assert_ptr_equal(a->data, a->own);
    for (size_t r = 0; r < fake_room(a) / (size_t)a->strides[a->rank - 2];
         r++) {
        for (size_t k = 0; k < FAKE_PAD; k++) {
            size_t i = r * (size_t)a->strides[a->rank - 2] +
                       (size_t)a->dims[a->rank - 1] + k;
            assert_true(a->dtype == MIL_FP16
                            ? ((uint16_t *)a->own)[i] == FAKE_HOLE
                            : ((uint32_t *)a->own)[i] == 0x7fc00000);
        }
    }
    a->data = NULL;
}

/* A dense copy; data is the caller's. */
static struct tensor fake_dense(const struct backend_array *a, const char *name)
{
    struct tensor t = {.name = name, .dtype = a->dtype, .rank = a->rank};
    int64_t idx[MIL_RANK_MAX] = {0};
    size_t n = 0;
    assert_null(a->data); /* not while it predicts */
    memcpy(t.dims, a->dims, sizeof(t.dims));
    t.data = malloc(fake_room(a) * fake_width(a));
    assert_non_null(t.data);
    do {
        memcpy((char *)t.data + n++ * fake_width(a),
               (char *)a->own + fake_place(a, idx) * fake_width(a),
               fake_width(a));
    } while (fake_next(a, idx));
    return t;
}

/* A result, in memory of its own every time. */
static void fake_result(struct backend_array *a, const int64_t dims[4],
                        const float *p)
{
    int64_t idx[MIL_RANK_MAX] = {0};
    free(a->own);
    fake_lay_out(a, MIL_FP32, 4, dims);
    do {
        ((float *)a->own)[fake_place(a, idx)] = *p++;
    } while (fake_next(a, idx));
}
