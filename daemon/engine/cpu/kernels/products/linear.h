/* linear.h - y = W x (+ b) for rows of activations: the product that takes most
 * of the time of decoding and prefill.
 *
 *   y[r][o] = scale[o] * xscale[r] * sum_k w[o][k] * q[r][k]   (+ bias[o])
 *
 * Integer weights (int8, int4) are read in place in the package. Activations
 * are rounded to 15 bits (|q| <= 16383) with one scale a row. Sums run
 * over blocks of LINEAR_BLOCK elements of k, inside which int32 is exact in any
 * order (1024 * 128 * 16383 < 2^31), and the blocks' sums are added as floats
 * in the order of k: a row's bits depend on that row alone, on every
 * instruction set, for any number of rows and threads.
 *
 * A row is *wide* when most of its values are below 1/256 of its peak (outlier
 * channels). Each value is then two such integers, x = s * (hi * 2^14 + lo):
 * this takes the time of two rows, and keeps the small channels. It depends on
 * the row's own values only. In other rows rounding changes a typical value by
 * at most some 0.3 %.
 *
 * Weights that are indices of 4 or 6 bits into tables for whole rows are such
 * integers too: entries of at most WEIGHT_TABLE_PEAK and a scale a row
 * (weight_table.c). They are looked up in registers (linear_look.h). The sums
 * of a block, which has LOOK_BLOCK elements then, do not fit in int32; they are
 * exact all the same, and rounded to floats once. Narrow tables have entries of
 * 8 bits: sets that multiply bytes do so for 32 rows whose tables all are
 * (linear_narrow.h), with the same sums.
 *
 * Weights of other kinds (fp16, fp32, other tables, sparse, ...) are multiplied
 * with fp32 activations in the canonical 16-lane reduction of gemm.h; those
 * that are not floats are decoded row by row.
 */
#pragma once

#include "engine/cpu/kernels/kernel.h"
#include "engine/cpu/weights/weight.h"

#define LINEAR_BLOCK 1024u
#define LOOK_BLOCK   2048u /* of tables: longer, as sums are wide anyway */

/* n rows of k activations, made ready once for all products that read them. */
struct linear_in;

/* For rows of k elements; linear_in_reserve or linear_in_set make the room. */
CHECKED int linear_in_new(size_t k, struct linear_in **ret, struct err *e);
void linear_in_free(struct linear_in *x); /* NULL is fine */
/* For rows of k elements from now on; the room that was made is kept. */
void linear_in_length(struct linear_in *x, size_t k);
/* Room for n rows, so that linear_in_set allocates nothing for as many. Memory
 * that was not used yet costs addresses only. Errors: NOMEM. */
CHECKED int linear_in_reserve(struct linear_in *in, const struct kernels *kn,
                              size_t n, bool integer, bool real,
                              unsigned threads, struct err *e);
/* Take rows x[r * ldx + i], r < n, i < k. integer and/or real say which forms
 * the coming products need (linear_wants_integer). NaN and infinity in a row
 * make its integer products NaN. threads: the most that linear_run will be
 * given for this input. Errors: NOMEM. */
CHECKED int linear_in_set(struct linear_in *in, const struct kernels *kn,
                          const float *x, size_t ldx, size_t n, bool integer,
                          bool real, unsigned threads, struct err *e);

/* Rows that fall into groups, each for products of its own. */
struct linear_rows {
    const float *x;
    size_t ldx;
    const uint32_t *row; /* row r of the input is x + row[r] * ldx; NULL: r */
    size_t n;
    const uint32_t *start; /* group i is rows [start[i], start[i + 1]); NULL:
                              one group of all */
    size_t groups;
};

/* As linear_in_set, but for groups. Errors: NOMEM. */
CHECKED int linear_in_take(struct linear_in *in, const struct kernels *kn,
                           const struct linear_rows *x, bool integer, bool real,
                           unsigned threads, struct err *e);

/* Does a product with w take the integer form of its input? */
bool linear_wants_integer(const struct weight *w);

/* One matrix of a set that shares its input, or has a group of its rows. Only
 * whole rows of w. */
struct linear_part {
    const struct weight *w; /* [rows][k] */
    const float *bias;      /* rows, or NULL */
    float *y;               /* y[r * ldy + o], r counted from the group's */
    size_t ldy;
    uint32_t group; /* parts of one group follow one another */
};

#define LINEAR_PARTS_MAX 32u

/* All parts with integer weights or tables in one parallel region, others in
 * one each. Never allocates. Errors: none (shapes are the caller's: must()). */
void linear_run(const struct linear_part *p, size_t n_parts,
                const struct linear_in *in, const struct kernels *kn,
                unsigned threads);

/* Bytes of weights, without scales and tables, that all calls of linear_run in
 * this process had to read: each part once a call. Any thread. */
uint64_t linear_bytes(void);
