/* weight_table.c - constexpr_lut_to_dense, and its tables as integers.
 *
 * A package's meaning is its palette, fp16 values of any kind. Products want
 * integers, whose sums are exact (linear.h): entries of 13 bits, times a scale
 * for each table. The relative error that this adds to W x, for rows of 1536
 * weights, k-means palettes and activations with Student's t (5):
 *
 *   weights          form   k-means | 8 bits 12 bits 13 bits 16 bits
 *   normal           lut4   1.1e-01 | 6.1e-3  3.8e-4  1.9e-4  2.4e-5
 *   normal           lut6   3.8e-02 | 6.8e-3  4.5e-4  2.2e-4  2.6e-5
 *   Laplace          lut4   1.4e-01 | 9.0e-3  5.8e-4  2.8e-4  3.4e-5
 *   Student's t (4)  lut6   1.0e-01 | 2.5e-2  1.5e-3  7.3e-4  9.2e-5
 *   one of 40 sigma  lut4   7.6e-02 | 6.4e-2  4.0e-3  2.0e-3  2.5e-4
 *
 * Beside it: activations rounded to 15 bits 1.2e-4, to fp16 2.1e-4, the palette
 * itself to fp16 1.4e-4; "k-means" is what the palette costs. 8 bits are too
 * few for 64 entries. 16 bits would take every product twice: with 15 bits of
 * the activation they fill an int32 at once, and a prompt, bound by products,
 * would take nearly twice int8's time. 13 bits leave room for 32 products in an
 * int32, usually for 100 to 130, and are held like int8 (CASE_INT in
 * tests/unit/engine/row_case.h). An entry is off by at most 1 / 8190 of the
 * palette's largest.
 *
 * The converter makes palettes of 16 entries from small integers times a scale
 * (convert/quant/palette.c). Such a table is *narrow*: it has its entries
 * exactly, as integers of at most WEIGHT_NARROW_PEAK, and a set that multiplies
 * bytes is faster with it. A scale is then what all entries have in common. */
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "engine/cpu/weights/weight_impl.h"

/* The shape of a table: CoreML8's lut has rank K + 2, the old one rank 1. */
static int table_shape(const struct mil_op *op, struct weight *w,
                       struct mil_type *lt, struct err *e)
{
    const struct mil_const *shape = mil_op_const(op, "shape");
    if (shape != NULL) { /* up to CoreML7: a bit stream and its shape */
        size_t n = 0;
        if (lt->rank != 1 ||
            !mil_const_ints(shape, w->type.dims, MIL_RANK_MAX, &n)) {
            return err_set(e, ERR_MIL_INVALID, "%s: shape", op->type);
        }
        w->type.rank = (int)n;
        w->lut_size = (size_t)lt->dims[0];
        w->vector = 1;
        for (size_t i = 0; i < n; i++) {
            lt->dims[i] = 1;
        }
        lt->rank = (int)n;
        return 0;
    }
    if (lt->rank != w->raw->type.rank + 2) {
        return err_set(e, ERR_MIL_INVALID, "%s: rank of lut", op->type);
    }
    w->type = w->raw->type;
    w->lut_size = (size_t)lt->dims[lt->rank - 2];
    w->vector = (size_t)lt->dims[lt->rank - 1];
    lt->rank -= 2;
    if (w->vector > 1) {
        int64_t axis = 0;
        size_t n = 0;
        const struct mil_const *c = mil_op_const(op, "vector_axis");
        if (c == NULL || !mil_const_ints(c, &axis, 1, &n) || n != 1) {
            return err_set(e, ERR_MIL_INVALID, "%s: vector_axis", op->type);
        }
        axis = axis < 0 ? axis + w->type.rank : axis;
        if (axis < 0 || axis >= w->type.rank) {
            return err_set(e, ERR_MIL_INVALID, "%s: vector_axis", op->type);
        }
        w->vector_axis = (int)axis;
    }
    return 0;
}

/* The old form's indices are a byte array holding a bit stream. */
static const struct mil_const *
as_bits(struct arena *a, const struct mil_const *c, const struct weight *w)
{
    static const struct {
        size_t size;
        enum mil_dtype t;
    } by_size[] = {
        {2,   MIL_UINT1},
        {4,   MIL_UINT2},
        {8,   MIL_UINT3},
        {16,  MIL_UINT4},
        {64,  MIL_UINT6},
        {256, MIL_UINT8}
    };
    struct mil_const *r = arena_alloc(a, sizeof(*r));
    uint64_t n = 0;
    if (r == NULL || !mil_type_count(&w->type, &n)) {
        return NULL;
    }
    *r = *c;
    for (size_t i = 0; i < countof(by_size); i++) {
        if (by_size[i].size == w->lut_size) {
            r->type = w->type;
            r->type.dtype = by_size[i].t;
            unsigned bits = mil_dtype_bits(r->type.dtype);
            return (n * bits + 7) / 8 <= c->bytes ? r : NULL;
        }
    }
    return NULL;
}

/* Every index has an entry. All that the type can say often have: then the
 * indices, most of the package, are not read when it is opened. */
static int check_indices(const struct mil_op *op, const struct weight *w,
                         struct err *e)
{
    const struct mil_const *c = w->raw;
    unsigned bits = mil_dtype_bits(c->type.dtype);
    uint64_t n = 0;
    if (!mil_type_count(&c->type, &n)) {
        return err_set(e, ERR_MIL_INVALID, "%s: indices", op->type);
    }
    bool sign = c->type.dtype >= MIL_INT8 && c->type.dtype <= MIL_INT4;
    if (!sign && bits <= 8 && w->lut_size >= (size_t)1 << bits) {
        return 0;
    }
    for (uint64_t i = 0; i < n; i++) {
        int64_t x = const_int(c, i);
        if (x < 0 || (uint64_t)x >= w->lut_size) {
            return err_set(e, ERR_MIL_INVALID, "%s: an index outside the lut",
                           op->type);
        }
    }
    return 0;
}

int weight_of_lut(struct arena *a, const struct mil_op *op, int depth,
                  struct weight *w, struct err *e)
{
    w->raw = weight_const(op, "indices", e);
    if (w->raw == NULL) {
        return ERR_MIL_INVALID;
    }
    struct mil_type lt = {0};
    RETERR(weight_floats(a, op, "lut", depth, &w->lut, &lt, e));
    if (w->lut == NULL || lt.rank < 1) {
        return err_set(e, ERR_MIL_INVALID, "%s: lut is absent", op->type);
    }
    bool old = mil_op_const(op, "shape") != NULL;
    RETERR(table_shape(op, w, &lt, e));
    RETERR(weight_set_grid(w, &lt, lt.rank, "lut", e));
    w->type.dtype = lt.dtype;
    if (old) {
        w->raw = as_bits(a, w->raw, w);
        if (w->raw == NULL) {
            return err_set(e, ERR_MIL_INVALID, "%s: indices do not fit",
                           op->type);
        }
    }
    RETERR(check_indices(op, w, e));
    if (w->vector > 1) { /* weight_set_grid ran on the indices' shape */
        w->type.dims[w->vector_axis] *= (int64_t)w->vector;
    }
    return 0;
}

/* --- integer tables --- */

/* WEIGHT_LUT4 or WEIGHT_LUT6 when w is of that form: no cell of a table cuts a
 * row, and rows begin at a byte; else WEIGHT_ROWS. */
static enum weight_kind table_kind(const struct weight *w)
{
    enum mil_dtype t = w->raw->type.dtype;
    enum weight_kind kind = t == MIL_UINT4 && w->cols % 2 == 0   ? WEIGHT_LUT4
                            : t == MIL_UINT6 && w->cols % 4 == 0 ? WEIGHT_LUT6
                                                                 : WEIGHT_ROWS;
    if (w->vector != 1 || w->lut_size != weight_entries(kind)) {
        return WEIGHT_ROWS;
    }
    for (int i = 1; i < w->type.rank; i++) {
        if (w->grid[i] != 1) {
            return WEIGHT_ROWS;
        }
    }
    return kind;
}

/* |x| * 2^24, which is a whole number if x is one of fp16; 0 if it is none. */
static uint64_t half_units(float x)
{
    const double units = fabs((double)x) * 0x1p+24;
    const bool whole = units < 0x1p+40 && units == floor(units);
    return whole ? (uint64_t)units : 0;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b > 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* n entries as small integers times *scale, exactly: the table is narrow. False:
 * there are no such. Any fp16 table of the integers k * scale is found. */
static bool table_narrow(const float *lut, size_t n, int16_t *out, float *scale)
{
    uint64_t unit = 0;
    uint64_t peak = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t v = half_units(lut[i]);
        if (v == 0 && lut[i] != 0) {
            return false;
        }
        unit = common_divisor(unit, v);
        peak = num_max(peak, v);
    }
    unit = unit > 0 ? unit : 1;
    *scale = (float)((double)unit * 0x1p-24);
    if (peak / unit > WEIGHT_NARROW_PEAK ||
        (double)*scale != (double)unit * 0x1p-24) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const int16_t v = (int16_t)(half_units(lut[i]) / unit);
        out[i] = (int16_t)(lut[i] < 0 ? -v : v);
    }
    return true;
}

/* n entries as integers times *scale. False: one is NaN or infinite. */
static bool table_round(const float *lut, size_t n, int16_t *out, float *scale)
{
    float peak = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(lut[i])) {
            return false;
        }
        float a = fabsf(lut[i]);
        peak = a > peak ? a : peak;
    }
    double mul = peak > 0 ? WEIGHT_TABLE_PEAK / (double)peak : 0;
    for (size_t i = 0; i < n; i++) {
        out[i] = (int16_t)lrint((double)lut[i] * mul);
    }
    *scale = peak / WEIGHT_TABLE_PEAK;
    return true;
}

int weight_prefer_table(struct arena *a, struct weight *w, struct err *e)
{
    if (w->kind != WEIGHT_ROWS || w->lut == NULL ||
        table_kind(w) == WEIGHT_ROWS) {
        return 0;
    }
    size_t tables = w->type.rank > 0 ? (size_t)w->grid[0] : 1;
    size_t share = w->rows / tables; /* rows of one */
    int16_t *table = arena_array(a, tables * w->lut_size, sizeof(*table));
    float *scale = arena_array(a, w->rows, sizeof(*scale));
    uint8_t *narrow = arena_array(a, tables, sizeof(*narrow));
    if (table == NULL || scale == NULL || narrow == NULL) {
        return err_set(e, ERR_NOMEM, "constants");
    }
    for (size_t t = 0; t < tables; t++) {
        const float *lut = w->lut + t * w->lut_size;
        int16_t *to = table + t * w->lut_size;
        float s = 0;
        narrow[t] = table_narrow(lut, w->lut_size, to, &s) ? 1 : 0;
        if (narrow[t] == 0 && !table_round(lut, w->lut_size, to, &s)) {
            return 0; /* decoded row by row */
        }
        for (size_t r = 0; r < share; r++) {
            scale[t * share + r] = s;
        }
    }
    w->data = w->raw->data;
    w->table = table;
    w->scale = scale;
    w->kind = table_kind(w);
    w->narrow = w->kind == WEIGHT_LUT4 ? narrow : NULL;
    return 0;
}
