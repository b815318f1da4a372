/* kernel_impl.h - the table of inner loops of one instruction set.
 *
 * kernel_NAME.c is compiled with the flags of its set (meson.build) and fills
 * one table; nothing else is compiled with them, so nothing else can run an
 * instruction the machine lacks. A kernel_NAME.c includes the loops of each
 * topic as a template (linear_int.h, linear_round.h, ...) after the few vector
 * operations these are written in; float helpers of every set are simd.h's
 * (the scalar set is built with SIMD_FORCE_SCALAR, the same bits).
 */
#pragma once

#include "engine/cpu/kernels/kernel.h"

/* Before a loop over the sums of a tile. gcc must unroll it early, or it keeps
 * the sums in memory; clang does well without the pragma, and badly with it. */
#if defined(__clang__)
#define UNROLL
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define PACK_COLS 8u /* columns that are packed together */

enum pack_order {
    PACK_PLAIN, /* in the order of k */
    PACK_PAIRS, /* of each PACK_PAIR the even elements, then the odd ones */
    PACK_ORDERS
};

#define PACK_PAIR 128u

/* Bytes of a pack of columns of k elements. */
static inline size_t pack_bytes(size_t k)
{
    return (k + PACK_PAIR - 1) / PACK_PAIR * PACK_PAIR * PACK_COLS *
           sizeof(int16_t);
}

struct linear_job;
struct attend_product;
struct attend_spans;

struct kernels {
    const char *name;

    /* --- products (linear_impl.h) --- */

    /* Round k values to integers in the order in which this set's products
     * read them, zeros up to k_pad. True: the row is wide, and wants split_row
     * in its place; *scale is then that of the two columns. NaN and infinity:
     * *scale is NaN. */
    size_t k_step; /* k_pad is k rounded up to a multiple */
    bool (*round_row)(const float *x, size_t k, size_t k_pad, int16_t *q,
                      float *scale);
    void (*split_row)(const float *x, size_t k, size_t k_pad, int16_t *hi,
                      int16_t *lo);
    /* Rows [begin, end) of integers or of tables with every column; the second
     * is the better one for many columns. scratch: linear_scratch(). */
    void (*int_few)(const struct linear_job *j, size_t begin, size_t end,
                    void *scratch);
    void (*int_many)(const struct linear_job *j, size_t begin, size_t end,
                     void *scratch);
    size_t many; /* columns from which int_many is */
    /* What int_many wants to know of every column, or NULL: how many runs of
     * LOOK_PRODUCTS elements, counted from each LOOK_BLOCK on, an int32 can
     * add up, times entries of a table; one at least. */
    uint8_t (*lane)(const int16_t *q, size_t k_pad);
    /* The same of int_few, or NULL: how many elements, counted from each
     * LOOK_BLOCK on, it can add up before it splits lanes; all columns of a
     * product have the least of theirs. What is not measured is split as often
     * as any column needs. */
    size_t (*run)(const int16_t *q, size_t k_pad);
    /* Columns that int_many reads in packs of PACK_COLS, pack_bytes(k) each, or
     * NULL: it reads them one by one. cols: that there are, others are zeros.
     * Kinds of weights with the same pack_order share packs. */
    void (*pack)(enum pack_order order, const int16_t *q, size_t ldq,
                 size_t cols, size_t k_pad, int8_t *to);
    enum pack_order (*pack_order)(int kind);
    size_t own_words; /* products with tables want as many bytes as so many
                         columns have, or all, besides linear_scratch() */
    size_t narrow_cols; /* columns up to which int_few multiplies narrow tables
                           as bytes, with a narrow_stride each behind own_words;
                           0: they are tables as others are */

    /* --- attention (attend_impl.h) --- */

    void (*attend_product)(const struct attend_product *m);
    void (*attend_weigh)(float *x, size_t begin, size_t end, bool divide,
                         float scale, float *ret_max, float *ret_sum);
    void (*attend_join)(const struct attend_spans *s);
};

#if defined(__x86_64__)
extern const struct kernels kernels_avx2;
#if defined(HAVE_AVXVNNI) /* the compiler knows it */
extern const struct kernels kernels_avxvnni;
#endif
extern const struct kernels kernels_avx512;
#if defined(HAVE_AMX)
extern const struct kernels kernels_amx;
#endif
#elif defined(__aarch64__)
extern const struct kernels kernels_neon;
#if defined(HAVE_NEON_DOT)
extern const struct kernels kernels_neon_dot;
#endif
#if defined(HAVE_NEON_I8MM)
extern const struct kernels kernels_neon_i8mm;
#endif
#endif
extern const struct kernels kernels_scalar;
