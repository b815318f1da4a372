/* gemm_impl.h - the loops of gemm.h, part of the table of floats.h.
 *
 * Tiles of R rows by C columns keep their accumulators in registers. One column
 * alone (decoding) takes four rows at a time: eight independent chains hide
 * the latency of the multiply-add, and the weights stream past once. Tile
 * shape changes the speed only: each (row, column) sum is the same chain of
 * operations in all of them. */
#pragma once

#include "engine/cpu/kernels/products/gemm.h"
#include "engine/cpu/kernels/simd.h"

#define INLINE static inline __attribute__((always_inline))

#define TILE_R       4
#define TILE_C       GEMM_COLS
#define AHEAD_BYTES  6144   /* prefetch distance in the weights */
#define AHEAD_SHORT  8192   /* in a group of short rows */
#define X_BYTES      393216 /* of columns that stay in the second cache */

/* Accumulators are set before they are read; the build's zeroing of every
 * local would store them to memory first. */
#define UNSET __attribute__((uninitialized))

INLINE v8 load8(enum weight_kind kind, const void *row, size_t k)
{
    if (kind == WEIGHT_I8) {
        return v8_from_i8((const int8_t *)row + k);
    }
    if (kind == WEIGHT_F16) {
        return v8_from_f16((const uint16_t *)row + k);
    }
    return v8_load((const float *)row + k);
}

INLINE float load1(enum weight_kind kind, const void *row, size_t k)
{
    if (kind == WEIGHT_I8) {
        return (float)((const int8_t *)row)[k];
    }
    if (kind == WEIGHT_F16) {
        return half_to_float(((const uint16_t *)row)[k]);
    }
    return ((const float *)row)[k];
}

/* Neighbouring rows are one stream of memory, and are prefetched as one even
 * where they are read side by side: short rows some kilobytes ahead, long rows
 * a whole group (of so many bytes) ahead, into the second cache. */
INLINE const char *ahead_of(const void *w, size_t group)
{
    return (const char *)w + (group > AHEAD_SHORT ? group : AHEAD_BYTES);
}

INLINE void ask(const char *p, size_t n, size_t group)
{
    for (size_t j = 0; j < n; j += 64) {
        if (group > AHEAD_SHORT) {
            __builtin_prefetch(p + j, 0, 2);
        } else {
            __builtin_prefetch(p + j, 0, 3);
        }
    }
}

/* Lanes off .. off + 7 of R rows at w (ldw apart) times C columns at x (ldx
 * apart). Half of the lanes at a time, so that more rows and columns share the
 * registers; the second half finds the weights in the first cache. */
INLINE void half_tile(enum weight_kind kind, int R, int C, const void *w,
                      size_t ldw, const float *x, size_t ldx, size_t k,
                      size_t off, v8 acc[TILE_R][TILE_C])
{
    UNSET v8 a[TILE_R][TILE_C];
    UNSET v8 xs[TILE_C];
    size_t size = gemm_element(kind);
    size_t stride = off == 0 ? (size_t)R * 16 * size : 0;
    size_t group = (size_t)R * ldw * size;
    const char *ahead = ahead_of(w, group);
    size_t i = 0;
    for (int r = 0; r < R; r++) {
        for (int c = 0; c < C; c++) {
            a[r][c] = v8_zero();
        }
    }
    for (; i + 16 <= k; i += 16) {
        ask(ahead, stride, group);
        ahead += stride;
        for (int c = 0; c < C; c++) {
            xs[c] = v8_load(x + (size_t)c * ldx + i + off);
        }
        for (int r = 0; r < R; r++) {
            v8 p = load8(kind, gemm_row_at(kind, w, (size_t)r * ldw), i + off);
            for (int c = 0; c < C; c++) {
                a[r][c] = v8_fma(p, xs[c], a[r][c]);
            }
        }
    }
    for (int r = 0; i < k && r < R; r++) { /* x is zero after k */
        const void *row = gemm_row_at(kind, w, (size_t)r * ldw);
        float t[8] = {0};
        for (size_t j = i + off; j < k && j < i + off + 8; j++) {
            t[j - i - off] = load1(kind, row, j);
        }
        for (int c = 0; c < C; c++) {
            v8 xc = v8_load(x + (size_t)c * ldx + i + off);
            a[r][c] = v8_fma(v8_load(t), xc, a[r][c]);
        }
    }
    for (int r = 0; r < R; r++) {
        for (int c = 0; c < C; c++) {
            acc[r][c] = a[r][c];
        }
    }
}

INLINE void tile(enum weight_kind kind, int R, int C, const void *w, size_t ldw,
                 const float *x, size_t ldx, size_t k,
                 float out[TILE_R][TILE_C])
{
    UNSET v8 a[TILE_R][TILE_C];
    UNSET v8 b[TILE_R][TILE_C];
    half_tile(kind, R, C, w, ldw, x, ldx, k, 0, a);
    half_tile(kind, R, C, w, ldw, x, ldx, k, 8, b);
    for (int r = 0; r < R; r++) {
        for (int c = 0; c < C; c++) {
            out[r][c] = v16_sum(a[r][c], b[r][c]);
        }
    }
}

/* One column: all 16 lanes of R rows at once, the weights pass by once. */
INLINE void column(enum weight_kind kind, int R, const void *w, size_t ldw,
                   const float *x, size_t k, float out[TILE_R][TILE_C])
{
    UNSET v8 a[TILE_R];
    UNSET v8 b[TILE_R];
    size_t size = gemm_element(kind);
    size_t stride = (size_t)R * 16 * size;
    size_t group = (size_t)R * ldw * size;
    const char *ahead = ahead_of(w, group);
    size_t i = 0;
    for (int r = 0; r < R; r++) {
        a[r] = v8_zero();
        b[r] = v8_zero();
    }
    for (; i + 16 <= k; i += 16) {
        ask(ahead, stride, group);
        ahead += stride;
        v8 x0 = v8_load(x + i);
        v8 x1 = v8_load(x + i + 8);
        for (int r = 0; r < R; r++) {
            const void *row = gemm_row_at(kind, w, (size_t)r * ldw);
            a[r] = v8_fma(load8(kind, row, i), x0, a[r]);
            b[r] = v8_fma(load8(kind, row, i + 8), x1, b[r]);
        }
    }
    for (int r = 0; r < R; r++) {
        const void *row = gemm_row_at(kind, w, (size_t)r * ldw);
        if (i < k) { /* x is zero after k */
            float t[16] = {0};
            for (size_t j = i; j < k; j++) {
                t[j - i] = load1(kind, row, j);
            }
            a[r] = v8_fma(v8_load(t), v8_load(x + i), a[r]);
            b[r] = v8_fma(v8_load(t + 8), v8_load(x + i + 8), b[r]);
        }
        out[r][0] = v16_sum(a[r], b[r]);
    }
}

static void put(const struct gemm *g, size_t r, size_t c, int R, int C,
                float out[TILE_R][TILE_C])
{
    for (int i = 0; i < R; i++) {
        size_t at = r + (size_t)i;
        for (int j = 0; j < C; j++) {
            float v = out[i][j];
            if (g->kind == WEIGHT_I8) {
                v *= g->scale[at];
            }
            if (g->bias != NULL) {
                v += g->bias[at];
            }
            g->y[at * g->ldr + (c + (size_t)j) * g->ldc] = v;
        }
    }
}

#define TILE_CASE(R, C)                                              \
    do {                                                             \
        tile(kind, R, C, w, g->ldw, g->x + c * ldx, ldx, g->k, out); \
        put(g, r, c, R, C, out);                                     \
    } while (0)

/* R rows from r on, all columns, four at a time. */
INLINE void row_group(const struct gemm *g, enum weight_kind kind, int R,
                      const void *w, size_t r)
{
    UNSET float out[TILE_R][TILE_C];
    size_t ldx = gemm_pad(g->k);
    for (size_t c = 0; c < g->cols; c += TILE_C) {
        switch (g->cols - c) {
        case 1:
            column(kind, R, w, g->ldw, g->x + c * ldx, g->k, out);
            put(g, r, c, R, 1, out);
            break;
        case 2:
            TILE_CASE(R, 2);
            break;
        case 3:
            TILE_CASE(R, 3);
            break;
        default:
            TILE_CASE(R, 4);
            break;
        }
    }
}

/* Rows begin..end, whose first is at w0. Three rows of four columns fill the
 * registers, four rows of up to three. */
INLINE void rows_run(const struct gemm *g, enum weight_kind kind,
                     const void *w0, size_t begin, size_t end)
{
    size_t r = begin;
    for (; g->cols >= TILE_C && r + 3 <= end; r += 3) {
        row_group(g, kind, 3, gemm_row_at(kind, w0, (r - begin) * g->ldw), r);
    }
    for (; g->cols < TILE_C && r + 4 <= end; r += 4) {
        row_group(g, kind, 4, gemm_row_at(kind, w0, (r - begin) * g->ldw), r);
    }
    for (; r < end; r++) {
        row_group(g, kind, 1, gemm_row_at(kind, w0, (r - begin) * g->ldw), r);
    }
}

/* Many columns go by in blocks that stay in the second cache while all rows
 * of the block of rows pass them. w: row `begin`. */
INLINE void blocked_run(const struct gemm *g, enum weight_kind kind,
                        const void *w, size_t begin, size_t end)
{
    size_t ldx = gemm_pad(g->k);
    size_t step = X_BYTES / sizeof(float) / (ldx + 1);
    step = (step & ~(size_t)(TILE_C - 1)) + TILE_C;
    for (size_t c = 0; c < g->cols; c += step) {
        struct gemm part = *g;
        part.x += c * ldx;
        part.y += c * g->ldc;
        part.cols = g->cols - c < step ? g->cols - c : step;
        rows_run(&part, kind, w, begin, end);
    }
}

static void decoded_run(const struct gemm *g, size_t begin, size_t end,
                        unsigned worker)
{
    struct gemm part = *g;
    size_t most = g->buf_rows > 0 ? g->buf_rows : 1;
    part.ldw = gemm_pad(g->k);
    float *buf = g->rowbuf + worker * most * part.ldw;
    for (size_t r = begin; r < end; r += most) {
        size_t n = end - r < most ? end - r : most;
        for (size_t i = 0; i < n; i++) {
            weight_row(g->src, g->src_row + r + i, buf + i * part.ldw);
        }
        blocked_run(&part, WEIGHT_F32, buf, r, r + n);
    }
}

static void floats_gemm(const struct gemm *g, size_t begin, size_t end,
                        unsigned worker)
{
    bool there = g->w != NULL; /* else rows are decoded */
    const void *w =
        there ? gemm_row_at(g->kind, g->w, begin * g->ldw) : NULL;
    switch (g->kind) {
    case WEIGHT_I8:
        blocked_run(g, WEIGHT_I8, w, begin, end);
        break;
    case WEIGHT_F16:
        blocked_run(g, WEIGHT_F16, w, begin, end);
        break;
    case WEIGHT_F32:
        blocked_run(g, WEIGHT_F32, w, begin, end);
        break;
    case WEIGHT_I4: /* gemm_weight */
    case WEIGHT_LUT4:
    case WEIGHT_LUT6:
    case WEIGHT_ROWS:
        decoded_run(g, begin, end, worker);
        break;
    }
}

/* --- chains --- */

static inline v8 chain_load(const struct chain *c, size_t at)
{
    return c->half ? v8_from_f16((const uint16_t *)c->y + at)
                   : v8_load((const float *)c->y + at);
}

/* Columns [begin, end) in eights; the last, narrower one a lane at a time,
 * which is the same chain. */
static void floats_chain(const struct chain *c, size_t begin, size_t end)
{
    for (size_t b = begin; b < end; b++) {
        size_t n0 = b * 32;
        size_t w = c->n - n0 < 32 ? c->n - n0 : 32;
        for (size_t m = 0; m < c->m; m++) {
            const float *x = c->x + m * c->ldx;
            float *o = c->o + m * c->n + n0;
            size_t i = 0;
            for (; w == 32 && i < 32; i += 32) {
                v8 a[4] = {v8_zero(), v8_zero(), v8_zero(), v8_zero()};
                for (size_t k = 0; k < c->k; k++) {
                    v8 p = v8_set(x[k]);
                    size_t at = k * c->n + n0;
                    for (size_t j = 0; j < 4; j++) {
                        a[j] = v8_fma(p, chain_load(c, at + 8 * j), a[j]);
                    }
                }
                for (size_t j = 0; j < 4; j++) {
                    v8_store(o + 8 * j, a[j]);
                }
            }
            for (; i + 8 <= w; i += 8) {
                v8 a = v8_zero();
                for (size_t k = 0; k < c->k; k++) {
                    a = v8_fma(v8_set(x[k]), chain_load(c, k * c->n + n0 + i),
                               a);
                }
                v8_store(o + i, a);
            }
            for (; i < w; i++) {
                float a = 0.0f;
                for (size_t k = 0; k < c->k; k++) {
                    size_t at = k * c->n + n0 + i;
                    float y = c->half
                                  ? half_to_float(((const uint16_t *)c->y)[at])
                                  : ((const float *)c->y)[at];
                    a = fmath_fmaf(x[k], y, a);
                }
                o[i] = a;
            }
        }
    }
}
