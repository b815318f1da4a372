/* row_ops.h - short spellings of operations, for tests that build programs to
 * be compiled for rows. Everything is declared fp16; constants are noise. */
#pragma once

#include "cpu_pkg.h"

/* Weights of a product. */
enum { ROW_OPS_FP16, ROW_OPS_INT8, ROW_OPS_INT4, ROW_OPS_LUT4, ROW_OPS_LUT6 };

static inline bool row_ops_integer(int form)
{
    return form != ROW_OPS_FP16;
}

static inline struct mil_value *two(struct pkg *k, const char *op,
                                    struct mil_value *x, struct mil_value *y)
{
    return mil_op(k->p, k->f, op, op, "x", x, "y", y, NULL);
}

static inline struct mil_value *num(struct pkg *k, float v)
{
    return mil_f16(k->p, k->f, v);
}

static inline struct mil_value *one(struct pkg *k, const char *op,
                                    struct mil_value *x)
{
    if (strcmp(op, "gelu") == 0) {
        return mil_op(k->p, k->f, op, op, "x", x, "mode",
                      mil_str(k->p, k->f, "TANH_APPROXIMATION"), NULL);
    }
    if (strcmp(op, "rsqrt") == 0) {
        return mil_op(k->p, k->f, op, op, "x", x, "epsilon",
                      num(k, 1.0f / 1048576), NULL);
    }
    return mil_op(k->p, k->f, op, op, "x", x, NULL);
}

static inline struct mil_value *reshape(struct pkg *k, struct mil_value *x,
                                        size_t n, const int32_t *dims)
{
    return mil_op(k->p, k->f, "reshape", "reshape", "x", x, "shape",
                  mil_i32s(k->p, k->f, n, dims), NULL);
}

static inline struct mil_value *reshape4(struct pkg *k, struct mil_value *x,
                                         int32_t a, int32_t b, int32_t c)
{
    const int32_t dims[4] = {1, a, b, c};
    return reshape(k, x, 4, dims);
}

static inline struct mil_value *transpose(struct pkg *k, struct mil_value *x,
                                          int32_t a, int32_t b, int32_t c,
                                          int32_t d)
{
    const int32_t perm[4] = {a, b, c, d};
    return mil_op(k->p, k->f, "transpose", "transpose", "x", x, "perm",
                  mil_i32s(k->p, k->f, 4, perm), NULL);
}

/* [1, n * dim, T, 1] -> [1, n, T, dim] */
static inline struct mil_value *heads(struct pkg *k, struct mil_value *x,
                                      int32_t n, int32_t dim)
{
    return transpose(k, reshape4(k, x, n, dim, -1), 0, 1, 3, 2);
}

/* [1, n, T, dim] -> [1, n * dim, T, 1] */
static inline struct mil_value *unheads(struct pkg *k, struct mil_value *x,
                                        int32_t n, int32_t dim)
{
    return reshape4(k, transpose(k, x, 0, 1, 3, 2), n * dim, -1, 1);
}

static inline struct mil_value *reduce_over(struct pkg *k, const char *op,
                                            struct mil_value *x, size_t n,
                                            const int32_t *axes, bool keep)
{
    return mil_op(k->p, k->f, op, op, "x", x, "axes",
                  mil_i32s(k->p, k->f, n, axes), "keep_dims",
                  mil_bool(k->p, k->f, keep), NULL);
}

static inline struct mil_value *reduce(struct pkg *k, const char *op,
                                       struct mil_value *x, int32_t axis)
{
    return reduce_over(k, op, x, 1, &axis, true);
}

/* Elements [from, to) of an axis; all of the others. */
static inline struct mil_value *slice(struct pkg *k, struct mil_value *x,
                                      int axis, int32_t from, int32_t to)
{
    int32_t begin[MIL_RANK_MAX] = {0};
    int32_t end[MIL_RANK_MAX] = {0};
    int32_t stride[MIL_RANK_MAX];
    bool all[MIL_RANK_MAX];
    bool no[MIL_RANK_MAX] = {false};
    size_t n = (size_t)x->type.rank;
    for (size_t i = 0; i < n; i++) {
        stride[i] = 1;
        all[i] = (int)i != axis;
    }
    begin[axis] = from;
    end[axis] = to;
    return mil_op(k->p, k->f, "slice_by_index", "slice", "x", x, "begin",
                  mil_i32s(k->p, k->f, n, begin), "end",
                  mil_i32s(k->p, k->f, n, end), "stride",
                  mil_i32s(k->p, k->f, n, stride), "begin_mask",
                  mil_bools(k->p, k->f, n, all), "end_mask",
                  mil_bools(k->p, k->f, n, all), "squeeze_mask",
                  mil_bools(k->p, k->f, n, no), NULL);
}

static inline struct mil_value *softmax(struct pkg *k, struct mil_value *x,
                                        int32_t axis)
{
    return mil_op(k->p, k->f, "softmax", "softmax", "x", x, "axis",
                  mil_i32(k->p, k->f, axis), NULL);
}

static inline struct mil_value *matmul(struct pkg *k, struct mil_value *x,
                                       struct mil_value *y, bool tx, bool ty)
{
    return mil_op(k->p, k->f, "matmul", "matmul", "x", x, "y", y, "transpose_x",
                  mil_bool(k->p, k->f, tx), "transpose_y",
                  mil_bool(k->p, k->f, ty), NULL);
}

/* fp16 noise around `mid`, +- `amp`. */
static inline struct mil_value *noise(struct pkg *k, int rank,
                                      const int64_t *dims, float mid, float amp,
                                      uint32_t seed)
{
    struct mil_type t = {.dtype = MIL_FP16, .rank = rank};
    size_t n = 1;
    for (int i = 0; i < rank; i++) {
        t.dims[i] = dims[i];
        n *= (size_t)dims[i];
    }
    uint16_t *h = calloc(n, sizeof(*h));
    must(h != NULL);
    for (size_t i = 0; i < n; i++) {
        h[i] = half_from_float(mid + amp * pkg_noise(&seed));
    }
    struct mil_value *v = mil_const_op(k->p, k->f, "c", mil_imm(k->p, &t, h));
    free(h);
    return v;
}

static inline struct mil_value *noise4(struct pkg *k, int64_t a, int64_t b,
                                       int64_t c, float mid, float amp,
                                       uint32_t seed)
{
    const int64_t dims[4] = {1, a, b, c};
    return noise(k, 4, dims, mid, amp, seed);
}

/* Indices of noise into tables of noises, one for each half of the rows. */
static inline struct mil_value *table_matrix(struct pkg *k, int rank,
                                             int64_t rows, int64_t cols,
                                             int form, float scale,
                                             uint32_t seed)
{
    bool six = form == ROW_OPS_LUT6;
    int64_t entries = six ? 64 : 16;
    int64_t tables = rows % 2 == 0 ? 2 : 1;
    struct mil_type t = {
        .dtype = six ? MIL_UINT6 : MIL_UINT4,
        .rank = rank,
        .dims = {rows, cols, 1, 1}
    };
    struct mil_type lt = {
        .dtype = MIL_FP16, .rank = rank + 2, .dims = {tables, 1, 1, 1, 1, 1}
    };
    lt.dims[rank] = entries;
    size_t n = ((size_t)(rows * cols) * (six ? 6 : 4) + 7) / 8;
    uint8_t *q = calloc(n, 1);
    uint16_t lut[2 * 64];
    must(q != NULL);
    for (size_t i = 0; i < n; i++) {
        q[i] = (uint8_t)(int)(pkg_noise(&seed) * 127);
    }
    for (size_t i = 0; i < countof(lut); i++) {
        lut[i] = half_from_float(pkg_noise(&seed) * scale);
    }
    struct mil_value *v = mil_op(
        k->p, k->f, "constexpr_lut_to_dense", "w", "indices",
        mil_const_op(k->p, k->f, "indices", mil_imm(k->p, &t, q)), "lut",
        mil_const_op(k->p, k->f, "lut", mil_imm(k->p, &lt, lut)), NULL);
    free(q);
    return v;
}

/* A matrix with results about as large as its input. rank 4: of a 1x1 conv. */
static inline struct mil_value *matrix(struct pkg *k, int rank, int64_t rows,
                                       int64_t cols, int form, uint32_t seed)
{
    static const enum mil_dtype types[] = {MIL_FP16, MIL_INT8, MIL_INT4};
    static const float tops[] = {1, 127, 7};
    float scale = 1.7f / sqrtf((float)cols);
    if (form >= ROW_OPS_LUT4) {
        return table_matrix(k, rank, rows, cols, form, scale, seed);
    }
    struct mil_type t = {
        .dtype = types[form], .rank = rank, .dims = {rows, cols, 1, 1}
    };
    struct mil_type st = {
        .dtype = MIL_FP16, .rank = rank, .dims = {rows, 1, 1, 1}
    };
    size_t n = (size_t)(rows * cols);
    uint16_t *h = calloc(n + (size_t)rows, sizeof(*h));
    must(h != NULL);
    uint8_t *q = (uint8_t *)h; /* reused: fewer bytes */
    for (size_t i = 0; i < n; i++) {
        float v = pkg_noise(&seed) * tops[form];
        int whole = (int)v;
        if (form == ROW_OPS_FP16) {
            h[i] = half_from_float(v * scale);
        } else if (form == ROW_OPS_INT8) {
            q[i] = (uint8_t)whole;
        } else {
            unsigned nibble = (unsigned)whole & 15u;
            q[i / 2] =
                (uint8_t)(i % 2 == 0 ? nibble : q[i / 2] | (nibble << 4));
        }
    }
    const struct mil_const *c = mil_imm(k->p, &t, h);
    struct mil_value *v = NULL;
    if (form == ROW_OPS_FP16) {
        v = mil_const_op(k->p, k->f, "w", c);
    } else {
        for (size_t i = 0; i < (size_t)rows; i++) {
            h[i] = half_from_float(scale / tops[form] *
                                   (1.0f + 0.25f * pkg_noise(&seed)));
        }
        v = mil_dequant(k->p, k->f, "w", c, mil_imm(k->p, &st, h));
    }
    free(h);
    return v;
}

/* 1x1 conv of [1, cols, T, 1]. */
static inline struct mil_value *conv(struct pkg *k, struct mil_value *x,
                                     int64_t rows, int form, bool bias,
                                     uint32_t seed)
{
    int64_t cols = x->type.dims[1];
    struct mil_value *b = bias ? noise(k, 1, &rows, 0, 0.5f, seed ^ 77u) : NULL;
    return mil_conv1x1(k->p, k->f, "conv", x,
                       matrix(k, 4, rows, cols, form, seed), b);
}

/* linear of [.., cols]. */
static inline struct mil_value *dense(struct pkg *k, struct mil_value *x,
                                      int64_t rows, int form, uint32_t seed)
{
    int64_t cols = x->type.dims[x->type.rank - 1];
    return mil_op(k->p, k->f, "linear", "linear", "x", x, "weight",
                  matrix(k, 2, rows, cols, form, seed), "bias",
                  noise(k, 1, &rows, 0, 0.5f, seed ^ 77u), NULL);
}

/* An input whose unknown dimension (-1) is T. */
static inline struct mil_value *in4(struct pkg *k, const char *name, int64_t a,
                                    int64_t b, int64_t c)
{
    const int64_t dims[4] = {1, a, b, c};
    return mil_add_input(k->p, k->f, name, MIL_FP16, 4, dims, 1, 64);
}

/* The same of three dimensions: linear takes no more. */
static inline struct mil_value *in3(struct pkg *k, const char *name, int64_t a,
                                    int64_t b)
{
    const int64_t dims[3] = {1, a, b};
    return mil_add_input(k->p, k->f, name, MIL_FP16, 3, dims, 1, 64);
}

static inline void output(struct pkg *k, struct mil_value *v)
{
    mil_add_output(k->p, k->f, v);
}

/* The masked write: state * (1 - sum(mask)) + mask new. What to attend over:
 * *blend is the value that was written, the result a read after it. */
static inline struct mil_value *masked_write(struct pkg *k, const char *name,
                                             struct mil_value *mask,
                                             struct mil_value *new,
                                             struct mil_value **blend)
{
    const int64_t dims[4] = {1, new->type.dims[1], mask->type.dims[2],
                             new->type.dims[3]};
    struct mil_value *s = mil_add_state(k->p, k->f, name, 4, dims);
    struct mil_value *r0 = mil_state_read(k->p, k->f, "r0", s);
    struct mil_value *keep =
        two(k, "sub", num(k, 1), reduce(k, "reduce_sum", mask, -1));
    *blend = two(k, "add", two(k, "mul", r0, keep),
                 matmul(k, mask, new, false, false));
    return mil_state_write(k->p, k->f, "r1", s, r0, *blend);
}

/* q [1, heads, T, dim] over keys and values [1, kv, S, dim]; cap: 0, or scores
 * are cap * tanh(scores / cap). */
static inline struct mil_value *
attention_capped(struct pkg *k, struct mil_value *q, struct mil_value *keys,
                 struct mil_value *values, struct mil_value *mask, float scale,
                 float cap)
{
    int32_t n = (int32_t)q->type.dims[1];
    int32_t dim = (int32_t)q->type.dims[3];
    int32_t kv = (int32_t)keys->type.dims[1];
    int32_t positions = (int32_t)keys->type.dims[2];
    int32_t vdim = (int32_t)values->type.dims[3];
    struct mil_value *s =
        matmul(k, kv != n ? reshape4(k, q, kv, -1, dim) : q, keys, false, true);
    s = two(k, "mul", s, num(k, cap > 0 ? scale / cap : scale));
    s = cap > 0 ? two(k, "mul", one(k, "tanh", s), num(k, cap)) : s;
    s = kv != n ? reshape4(k, s, n, -1, positions) : s;
    s = softmax(k, two(k, "add", s, mask), -1);
    s = kv != n ? reshape4(k, s, kv, -1, positions) : s;
    s = matmul(k, s, values, false, false);
    return kv != n ? reshape4(k, s, n, -1, vdim) : s;
}

static inline struct mil_value *attention(struct pkg *k, struct mil_value *q,
                                          struct mil_value *keys,
                                          struct mil_value *values,
                                          struct mil_value *mask, float scale)
{
    return attention_capped(k, q, keys, values, mask, scale, 0);
}

/* --- shapes and what follows from them --- */

static inline struct mil_value *shape_of(struct pkg *k, struct mil_value *x)
{
    return mil_op(k->p, k->f, "shape", "shape", "x", x, NULL);
}

/* As fp16. */
static inline struct mil_value *number(struct pkg *k, struct mil_value *x)
{
    return mil_op(k->p, k->f, "cast", "cast", "x", x, "dtype",
                  mil_str(k->p, k->f, "fp16"), NULL);
}

static inline struct mil_value *gather(struct pkg *k, struct mil_value *x,
                                       struct mil_value *indices, int32_t axis)
{
    return mil_op(k->p, k->f, "gather", "gather", "x", x, "indices", indices,
                  "axis", mil_i32(k->p, k->f, axis), "batch_dims",
                  mil_i32(k->p, k->f, 0), "validate_indices",
                  mil_bool(k->p, k->f, false), NULL);
}

/* Dimension `at` of x, a scalar. */
static inline struct mil_value *dim_of(struct pkg *k, struct mil_value *x,
                                       int32_t at)
{
    return gather(k, shape_of(k, x), mil_i32(k->p, k->f, at), 0);
}

/* 0 .. end - 1 of a scalar. */
static inline struct mil_value *range_of(struct pkg *k, struct mil_value *end)
{
    return mil_op(k->p, k->f, "range_1d", "range", "start",
                  mil_i32(k->p, k->f, 0), "end", end, "step",
                  mil_i32(k->p, k->f, 1), NULL);
}

static inline struct mil_value *filled(struct pkg *k, struct mil_value *shape,
                                       float v)
{
    return mil_op(k->p, k->f, "fill", "fill", "shape", shape, "value",
                  num(k, v), NULL);
}

/* Say what inference cannot know: the dimensions of v, -1 for T. */
static inline struct mil_value *declared(struct mil_value *v,
                                         const int32_t *dims)
{
    for (int i = 0; i < v->type.rank; i++) {
        v->type.dims[i] = dims[i] < 0 ? MIL_UNKNOWN : dims[i];
    }
    return v;
}

/* Into a shape that is computed, and declared. */
static inline struct mil_value *reshaped(struct pkg *k, struct mil_value *x,
                                         struct mil_value *shape,
                                         const int32_t *dims)
{
    return declared(mil_op(k->p, k->f, "reshape", "reshape", "x", x, "shape",
                           shape, NULL),
                    dims);
}

static inline struct mil_value *tiled(struct pkg *k, struct mil_value *x,
                                      struct mil_value *reps,
                                      const int32_t *dims)
{
    return declared(
        mil_op(k->p, k->f, "tile", "tile", "x", x, "reps", reps, NULL), dims);
}
