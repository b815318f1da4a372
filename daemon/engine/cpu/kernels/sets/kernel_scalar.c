/* kernel_scalar.c - the "scalar" set: plain C, the reference for the other
 * sets.
 *
 * It does not use the templates, so that a mistake in them is not repeated
 * here. Columns hold their elements in natural order. */
#include "engine/cpu/kernels/attention/attend_impl.h"
#include "engine/cpu/kernels/products/linear_impl.h"
#include "engine/cpu/kernels/simd.h"

static uint32_t peak_of(const float *x, size_t k)
{
    uint32_t peak = 0;
    for (size_t i = 0; i < k; i++) {
        uint32_t b = half_bits(x[i]) & 0x7fffffffu;
        peak = b > peak ? b : peak;
    }
    return peak;
}

static bool round_row(const float *x, size_t k, size_t k_pad, int16_t *q,
                      float *scale)
{
    struct linear_round f;
    if (!linear_rounding(peak_of(x, k), &f)) {
        memset(q, 0, k_pad * sizeof(*q));
        *scale = NAN;
        return false;
    }
    size_t some = 0;
    size_t small = 0;
    for (size_t i = 0; i < k; i++) {
        q[i] = (int16_t)rintf(x[i] * f.pre * f.mul);
        some += x[i] != 0;
        small += x[i] != 0 && q[i] > -LINEAR_SMALL && q[i] < LINEAR_SMALL;
    }
    memset(q + k, 0, (k_pad - k) * sizeof(*q));
    bool coarse = small > some / 2;
    *scale = coarse ? f.wide_scale : f.scale;
    return coarse;
}

static void split_row(const float *x, size_t k, size_t k_pad, int16_t *hi,
                      int16_t *lo)
{
    struct linear_round f;
    must(linear_rounding(peak_of(x, k), &f));
    for (size_t i = 0; i < k; i++) {
        int32_t v = (int32_t)rintf(x[i] * f.pre * f.wide_mul);
        int32_t h = (v + (1 << (LINEAR_SHIFT - 1))) >> LINEAR_SHIFT;
        hi[i] = (int16_t)h;
        lo[i] = (int16_t)(v - h * (1 << LINEAR_SHIFT));
    }
    memset(hi + k, 0, (k_pad - k) * sizeof(*hi));
    memset(lo + k, 0, (k_pad - k) * sizeof(*lo));
}

/* Element k of row o. */
static int32_t element(const struct linear_job *j, size_t o, size_t k)
{
    const uint8_t *row = (const uint8_t *)j->w + o * j->ldw;
    uint32_t u = 0;
    if (j->kind == WEIGHT_I8) {
        return ((const int8_t *)row)[k];
    }
    if (j->kind == WEIGHT_LUT6) { /* four in three bytes */
        row += k / 4 * 3;
        u = row[0] | (uint32_t)row[1] << 8 | (uint32_t)row[2] << 16;
        return linear_table(j, o)[u >> (k % 4 * 6) & 63];
    }
    u = row[k / 2] >> (k % 2 * 4) & 15;
    return j->kind == WEIGHT_LUT4 ? linear_table(j, o)[u]
                                  : (int32_t)(u ^ 8) - 8;
}

static void int_rows(const struct linear_job *j, size_t begin, size_t end,
                     void *scratch)
{
    float *acc = scratch;
    for (size_t o = begin; o < end; o++) {
        for (size_t c = 0; c < j->cols; c++) {
            const int16_t *q = j->q + c * j->ldq;
            acc[c] = 0;
            for (size_t k = 0; k < j->k;) {
                int64_t sum = 0;
                size_t stop = k + int_block((int)j->kind);
                for (; k < j->k && k < stop; k++) {
                    sum += element(j, o, k) * q[k];
                }
                acc[c] += (float)sum;
            }
        }
        linear_finish(j, o, 1, 0, j->n, acc, 1);
    }
}

const struct kernels kernels_scalar = {
    .name = "scalar",
    .k_step = 1,
    .round_row = round_row,
    .split_row = split_row,
    .int_few = int_rows,
    .int_many = int_rows,
    .attend_product = attend_product,
    .attend_weigh = attend_weigh,
    .attend_join = attend_join,
};
