/* weight.h - constants that stay where they are.
 *
 * A weight is a constant of a package, plain or compressed, whose rows are
 * decoded inside the kernel that reads them: no fp32 copy of a model is ever
 * made. Row i is everything below index i of the first axis.
 */
#pragma once

#include "mil/mil.h"

#define WEIGHT_NEST                                          \
    8 /* constexpr operations that feed constexpr operations \
       */

#define WEIGHT_TABLE_PEAK  4095 /* of |entry| of an integer table */
#define WEIGHT_NARROW_PEAK 127  /* of one that is narrow */

enum weight_kind {
    WEIGHT_F32,  /* plain fp32 rows */
    WEIGHT_F16,  /* plain fp16 rows */
    WEIGHT_I8,   /* int8 times one scale a row, no offset */
    WEIGHT_I4,   /* the same of int4, an even number in a row; all that
                    WEIGHT_ROWS has is set too */
    WEIGHT_LUT4, /* indices of 4 bits, an even number in a row, into tables of
                    16 integers for whole rows; the same of WEIGHT_ROWS */
    WEIGHT_LUT6, /* the same of 6 bits, four times any number in a row, and 64
                  */
    WEIGHT_ROWS, /* anything else: weight_row */
};

struct weight {
    enum weight_kind kind;
    bool round;           /* decoded values are rounded to fp16 */
    struct mil_type type; /* of the decoded constant */
    size_t rows, cols;
    const void *data;   /* rows * cols elements of the kind's type */
    const float *scale; /* of integers and of integer tables: one a row */
    const int16_t *table; /* WEIGHT_LUT4, WEIGHT_LUT6: lut_size entries for
                             every block[0] rows, at most WEIGHT_TABLE_PEAK */
    const uint8_t *narrow; /* WEIGHT_LUT4, of each table: is it narrow? NULL:
                              none is */

    /* WEIGHT_ROWS */
    const struct mil_const *raw; /* data, or the indices of a table */
    const float *lut;            /* NULL: scale * (data - offset) */
    size_t lut_size, vector;     /* entries, elements of one */
    int vector_axis;
    const float *scales, *offsets; /* offsets NULL: none */
    int64_t block[MIL_RANK_MAX];   /* elements that share a scale or a table */
    int64_t grid[MIL_RANK_MAX];    /* shape of scales, or of the tables */
};

/* Describe c, or the compressed constant made by op, in arena memory. round:
 * decoded values of a compressed fp16 constant are rounded to fp16.
 * Errors: MIL_OP, MIL_INVALID, MIL_BLOB, NOMEM. */
CHECKED int weight_of_const(struct arena *a, const struct mil_const *c,
                            const struct weight **ret, struct err *e);
CHECKED int weight_of_op(struct arena *a, const struct mil_op *op, bool round,
                         const struct weight **ret, struct err *e);
bool weight_is_op(const char *type);

/* Entries of the kind's integer tables; 0: it has none. */
static inline size_t weight_entries(enum weight_kind kind)
{
    return kind == WEIGHT_LUT4 ? 16 : kind == WEIGHT_LUT6 ? 64 : 0;
}

/* Bytes of a row of data; of WEIGHT_ROWS about as many as elements. */
static inline size_t weight_row_bytes(const struct weight *w)
{
    switch (w->kind) {
    case WEIGHT_F32:
        return 4 * w->cols;
    case WEIGHT_F16:
        return 2 * w->cols;
    case WEIGHT_I4:
    case WEIGHT_LUT4:
        return w->cols / 2;
    case WEIGHT_LUT6:
        return w->cols / 4 * 3;
    case WEIGHT_I8:
    case WEIGHT_ROWS:
        break;
    }
    return w->cols;
}

/* Decode cols elements of one row. */
void weight_row(const struct weight *w, size_t row, float *out);

/* Element i of packed data as float / as int; sub-byte types are LSB first. */
float const_float(const struct mil_const *c, uint64_t i);
int64_t const_int(const struct mil_const *c, uint64_t i);
/* Decode a whole float or integer constant; out has its element count. */
CHECKED int const_floats(const struct mil_const *c, float *out, struct err *e);
