/* linear_impl.h - what linear.c hands to the inner loops of a set.
 *
 * A *column* is a row of activations as integers, or one of the two that a
 * wide row makes: row r is column r, and if lo[r] > 0 also column lo[r].
 */
#pragma once

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "base/half.h"
#include "engine/cpu/kernels/kernel_impl.h"
#include "engine/cpu/kernels/products/linear.h"

#define INLINE static inline __attribute__((always_inline))

/* Accumulators are set before they are read; the build's zeroing of every
 * local would store them to memory first. */
#define UNSET __attribute__((uninitialized))

/* Registers. gcc 12 starts all products of a tile at once and then runs out of
 * registers: ORDER (after each) keeps them in order. RELOAD makes it read again
 * what it read before. Neither is an instruction. */
#if defined(__x86_64__)
#define ORDER(v) __asm__ volatile("" : "+v"(v))
#else
#define ORDER(v) __asm__ volatile("" : "+w"(v))
#endif
#define RELOAD() __asm__ volatile("" ::: "memory")
/* A pointer whose origin gcc forgets: addresses are counted from it, as one
 * instruction can, rather than kept in a register (or on the stack) each. */
#define HOLD(p) __asm__("" : "+r"(p))

#define LINEAR_PEAK  16383.0f     /* of a rounded row */
#define LINEAR_SHIFT 14           /* of the high half of a wide row */
#define LINEAR_SMALL 64           /* |q| below it is a coarse rounding */
#define LINEAR_HIGH  16384.0f     /* 2^LINEAR_SHIFT */
#define LINEAR_WIDE  268419072.0f /* LINEAR_PEAK * LINEAR_HIGH */
#define LOOK_PRODUCTS   32           /* with a table that a lane can add up */
#define LINEAR_LANE_MAX 8u
#define LOOK_SHIFT      16           /* of the high half of a wide sum */
#define LINEAR_TILE  131072u      /* bytes of a packed tile of weights */
#define LINEAR_MANY     32u          /* rows in the largest tile */
#define LOOK_NARROW     (WEIGHT_ROWS + 1) /* a kind: WEIGHT_LUT4, all narrow */
#define NARROW_STEP     128u /* elements of a column that lie together */
#define NARROW_MORE     128  /* with it entries are unsigned bytes */

/* Where lines are prefetched to: the first cache; the second; the second, and
 * the first a little before they are used. */
enum ahead {
    TO_FIRST,
    TO_SECOND,
    TO_BOTH
};

/* One product: a weight and the columns. */
struct linear_job {
    enum weight_kind kind;
    const char *w; /* first row; NULL for WEIGHT_ROWS */
    size_t ldw;    /* bytes from row to row */
    const char *then; /* what is read after the rows; NULL: unknown */
    const struct weight *src;
    size_t rows, k;
    const float *scale; /* of the weight's rows */
    const int16_t
        *table; /* weight_entries() of them for every table_rows rows */
    size_t table_rows;
    const uint8_t *narrow; /* the weight's */
    const float *bias;  /* or NULL */
    float *y;           /* y[r * ldy + o] */
    size_t ldy;

    size_t n; /* rows of activations */
    size_t cols;
    const int16_t *q; /* column c at q + c * ldq */
    size_t ldq;
    const int8_t *packed; /* the same columns: kernels.pack's; NULL: none */
    const uint32_t *lo;
    const float *xscale;
    const uint8_t *lane; /* of each column, where cols is many: kernels.lane */
    size_t run;          /* of all columns: kernels.run; 0: not measured */
    bool *owned; /* OWN_FORMS: the thread has that in its scratch (look_run) */
    enum ahead ahead;    /* of weights (linear.c) */
};

/* Bytes of n elements; n is such that they are whole ones. */
INLINE size_t int_bytes(int kind, size_t n)
{
    return kind == WEIGHT_I8 ? n : kind == WEIGHT_LUT6 ? n / 4 * 3 : n / 2;
}

/* Elements of k whose sum is exact. */
INLINE size_t int_block(int kind)
{
    return kind == WEIGHT_I8 || kind == WEIGHT_I4 ? LINEAR_BLOCK : LOOK_BLOCK;
}

/* Those of the block at k. */
INLINE size_t int_block_at(int kind, size_t all, size_t k)
{
    return all - k < int_block(kind) ? all - k : int_block(kind);
}

/* Weights that are read next, `lines` of 64 bytes in each of `rows` rows: they
 * are prefetched to the second cache, a few lines at a time. */
struct asking {
    const char *w; /* NULL: there are none */
    size_t ldw, lines, rows;
    size_t at; /* lines prefetched */
};

INLINE void ask(struct asking *a, size_t n)
{
    for (; a->w != NULL && n > 0 && a->at < a->rows * a->lines; n--) {
        __builtin_prefetch(a->w + a->at / a->lines * a->ldw +
                               a->at % a->lines * 64,
                           0, 2);
        a->at++;
    }
}

/* What a thread makes of columns for itself. */
enum own_form {
    OWN_WORDS_FORM,  /* words in another order */
    OWN_NARROW_FORM, /* bytes, for LOOK_NARROW */
    OWN_SIX_FORM,    /* bytes, for WEIGHT_LUT6 (tiles/six_one.h) */
    OWN_FORMS
};

/* A column for LOOK_NARROW, q = 128 * high + low: for each NARROW_STEP elements
 * the high bytes of the even ones, those of the odd ones, then the low bytes
 * of both; behind all of them, for each block, 16 int32 that add up to minus
 * the sum of its elements. In units of int16: */
INLINE size_t narrow_words(size_t k)
{
    return (k + NARROW_STEP - 1) / NARROW_STEP * NARROW_STEP;
}

INLINE size_t narrow_stride(size_t k)
{
    return narrow_words(k) + (k + LOOK_BLOCK - 1) / LOOK_BLOCK * 32;
}

/* From the block at `at` to its sums. */
INLINE size_t narrow_less(size_t k, size_t at)
{
    return narrow_words(k) - at + at / LOOK_BLOCK * 32;
}

/* Have all rows of the unit at o narrow tables? Not if it is no whole unit. */
INLINE bool narrow_unit(const struct linear_job *j, size_t o)
{
    if (j->narrow == NULL || o + LINEAR_MANY > j->rows) {
        return false;
    }
    const size_t first = o / j->table_rows;
    const size_t last = (o + LINEAR_MANY - 1) / j->table_rows;
    return memchr(j->narrow + first, 0, last - first + 1) == NULL;
}

/* Where the units from o on end that are as the first one is. */
INLINE size_t narrow_stop(const struct linear_job *j, size_t o, size_t end,
                          bool *narrow)
{
    *narrow = narrow_unit(j, o);
    do {
        o += LINEAR_MANY;
    } while (o < end && narrow_unit(j, o) == *narrow);
    return o < end ? o : end;
}

/* Entries of a table of a kind, which may be LOOK_NARROW. */
INLINE size_t look_entries(int kind)
{
    return weight_entries(kind == LOOK_NARROW ? WEIGHT_LUT4
                                              : (enum weight_kind)kind);
}

/* The table of row o. */
INLINE const int16_t *linear_table(const struct linear_job *j, size_t o)
{
    return j->table + o / j->table_rows * weight_entries(j->kind);
}

/* Columns in whole groups of PACK_COLS. */
INLINE size_t linear_groups(size_t cols)
{
    return (cols + PACK_COLS - 1) / PACK_COLS;
}

/* Bytes of scratch that int_few and int_many want. */
static inline size_t linear_scratch(size_t cols)
{
    return LINEAR_TILE +
           linear_groups(cols) * PACK_COLS * LINEAR_MANY * sizeof(float);
}

/* How a row is rounded follows from its peak alone. */
struct linear_round {
    float pre;      /* power of two that keeps 1 / peak finite */
    float mul;      /* q = nearest(x * pre * mul) */
    float scale;    /* x is about q * scale */
    float wide_mul; /* the same for a wide row */
    float wide_scale;
};

/* peak: the bits of the largest |x|. False when it is not finite. */
INLINE bool linear_rounding(uint32_t peak, struct linear_round *ret)
{
    if (peak >= 0x7f800000u) {
        return false;
    }
    float p = half_float(peak);
    bool tiny = p < 0x1p-64f;
    float back = tiny ? 0x1p-100f : 1.0f;
    ret->pre = tiny ? 0x1p+100f : 1.0f;
    p *= ret->pre;
    ret->mul = p > 0 ? LINEAR_PEAK / p : 0.0f;
    ret->scale = p / LINEAR_PEAK * back;
    ret->wide_mul = p > 0 ? LINEAR_WIDE / p : 0.0f;
    ret->wide_scale = p / LINEAR_WIDE * back;
    return true;
}

/* Rows o .. o + n - 1 of the weight from the columns' sums, acc[c * ld + i],
 * for the rows [r, end) of activations. Nothing overlaps, and the compiler must
 * know it to use vectors. */
INLINE void linear_finish(const struct linear_job *j, size_t o, size_t n,
                          size_t r, size_t end, const float *acc, size_t ld)
{
    const float *restrict scale = j->scale + o;
    const float *restrict bias = j->bias != NULL ? j->bias + o : NULL;
    for (; r < end; r++) {
        const float *restrict a = acc + r * ld;
        const float *restrict b = acc + j->lo[r] * ld;
        float *restrict y = j->y + r * j->ldy + o;
        float s = j->xscale[r];
        if (j->lo[r] > 0) {
            for (size_t i = 0; i < n; i++) {
                y[i] = fmath_fmaf(a[i], LINEAR_HIGH, b[i]) * (scale[i] * s);
            }
        } else {
            for (size_t i = 0; i < n; i++) {
                y[i] = a[i] * (scale[i] * s);
            }
        }
        if (bias != NULL) {
            for (size_t i = 0; i < n; i++) {
                y[i] += bias[i];
            }
        }
    }
}
