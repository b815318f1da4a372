/* weight_row.c - rows of a weight as floats.
 *
 * Along a row the cells of a compressed constant's grid come in runs of equal
 * length, so a row is decoded run by run.
 */
#include <string.h>

#include "base/half.h"
#include "engine/cpu/kernels/floats.h"
#include "engine/cpu/weights/weight_impl.h"

/* n elements of packed integers or floats from element `at` on. */
static void raw_run(const struct mil_const *c, uint64_t at, size_t n,
                    float *out)
{
    const uint8_t *u = c->data;
    if (c->type.dtype == MIL_INT8) {
        const int8_t *p = (const int8_t *)u + at;
        for (size_t i = 0; i < n; i++) {
            out[i] = (float)p[i];
        }
    } else if (c->type.dtype == MIL_UINT8) {
        for (size_t i = 0; i < n; i++) {
            out[i] = (float)u[at + i];
        }
    } else if (c->type.dtype == MIL_INT4) {
        for (size_t i = 0; i < n; i++) {
            int v = (u[(at + i) / 2] >> ((at + i) % 2 * 4)) & 15;
            out[i] = (float)((v ^ 8) - 8);
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            out[i] = const_float(c, at + i);
        }
    }
}

/* Grid cell of column `col` (row-major below the first axis) of a row. */
static size_t cell_of(const struct weight *w, size_t row, size_t col)
{
    size_t cell = 0;
    size_t left = w->cols;
    for (int i = 0; i < w->type.rank; i++) {
        size_t at = row;
        if (i > 0) {
            left /= (size_t)w->type.dims[i];
            at = col / left;
            col %= left;
        }
        cell = cell * (size_t)w->grid[i] + at / (size_t)w->block[i];
    }
    return cell;
}

/* Columns in a row of cells that share one cell. */
static size_t run_length(const struct weight *w)
{
    size_t n = 1;
    for (int i = w->type.rank - 1; i > 0; i--) {
        if (w->grid[i] != 1) {
            return n * (size_t)w->block[i];
        }
        n *= (size_t)w->type.dims[i];
    }
    return n;
}

/* Elements that are a part of a vector of the table. */
static void vector_row(const struct weight *w, size_t row, float *out)
{
    int64_t idx[MIL_RANK_MAX];
    for (size_t col = 0; col < w->cols; col++) {
        size_t rest = row * w->cols + col;
        for (int i = w->type.rank - 1; i >= 0; i--) {
            idx[i] = (int64_t)(rest % (size_t)w->type.dims[i]);
            rest /= (size_t)w->type.dims[i];
        }
        int64_t part = idx[w->vector_axis] % (int64_t)w->vector;
        idx[w->vector_axis] /= (int64_t)w->vector;
        size_t at = 0;
        size_t cell = 0;
        for (int i = 0; i < w->type.rank; i++) {
            at = at * (size_t)w->raw->type.dims[i] + (size_t)idx[i];
            cell = cell * (size_t)w->grid[i] + (size_t)(idx[i] / w->block[i]);
        }
        size_t entry = cell * w->lut_size + (size_t)const_int(w->raw, at);
        out[col] = w->lut[entry * w->vector + (size_t)part];
    }
}

/* n indices of four bits from element `at` on, through a table of 16. */
static void table16_run(const uint8_t *u, const float *lut, uint64_t at,
                        size_t n, float *out)
{
    if (at % 2 == 0) {
        floats()->look_up(out, u + at / 2, lut, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t k = at + i;
        out[i] = lut[(u[k / 2] >> (k % 2 * 4)) & 15];
    }
}

static void lut_run(const struct weight *w, const float *lut, uint64_t at,
                    size_t n, float *out)
{
    if (w->raw->type.dtype == MIL_UINT4 && w->lut_size == 16) {
        table16_run(w->raw->data, lut, at, n, out);
        return;
    }
    if (w->raw->type.dtype == MIL_UINT8) {
        const uint8_t *u = (const uint8_t *)w->raw->data + at;
        for (size_t i = 0; i < n; i++) {
            out[i] = lut[u[i]];
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        out[i] = lut[const_int(w->raw, at + i)];
    }
}

static void rows_row(const struct weight *w, size_t row, float *out)
{
    if (w->lut != NULL && w->vector > 1) {
        vector_row(w, row, out);
        return;
    }
    size_t run = run_length(w);
    for (size_t col = 0; col < w->cols; col += run) {
        uint64_t at = (uint64_t)row * w->cols + col;
        float *o = out + col;
        if (w->lut != NULL) {
            const float *lut = w->lut + cell_of(w, row, col) * w->lut_size;
            lut_run(w, lut, at, run, o);
            continue;
        }
        raw_run(w->raw, at, run, o);
        if (w->scales == NULL) {
            continue;
        }
        size_t cell = cell_of(w, row, col);
        float scale = w->scales[cell];
        float offset = w->offsets != NULL ? w->offsets[cell] : 0.0f;
        for (size_t i = 0; i < run; i++) {
            o[i] = (o[i] - offset) * scale;
        }
    }
}

void weight_row(const struct weight *w, size_t row, float *out)
{
    size_t at = row * w->cols;
    switch (w->kind) {
    case WEIGHT_F32:
        memcpy(out, (const float *)w->data + at, w->cols * sizeof(float));
        break;
    case WEIGHT_F16:
        half_to_floats((const uint16_t *)w->data + at, out, w->cols);
        break;
    case WEIGHT_I8: {
        const int8_t *p = (const int8_t *)w->data + at;
        for (size_t i = 0; i < w->cols; i++) {
            out[i] = (float)p[i] * w->scale[row];
        }
        break;
    }
    case WEIGHT_I4:
    case WEIGHT_LUT4:
    case WEIGHT_LUT6:
    case WEIGHT_ROWS:
        rows_row(w, row, out);
        break;
    }
    if (w->round && w->lut == NULL) { /* a table's entries are rounded */
        half_round_floats(out, w->cols);
    }
}
