/* Tiles of R rows by C columns keep R * C * 2 accumulators in registers. One
 * column alone (decoding) takes four rows at a time: eight independent chains
 * hide the latency of the multiply-add, and the weights stream past once.
 * Tile shape changes the speed only: each (row, column) sum is the same chain
 * of operations in all of them. */
#include "engine/cpu/gemm.h"

#include "engine/cpu/pool.h"

#define INLINE static inline __attribute__((always_inline))

#define PARALLEL_MIN 131072 /* multiply-adds that pay for waking a thread */
#define BLOCK_WORK   65536  /* multiply-adds in a block of rows */
#define TILE_R       4
#define TILE_C       4

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

INLINE const void *row_at(enum weight_kind kind, const void *w, size_t at)
{
    size_t size = kind == WEIGHT_I8 ? 1 : kind == WEIGHT_F16 ? 2 : 4;
    return (const char *)w + at * size;
}

/* R rows at w (ldw apart) times C columns at x (ldx apart). */
INLINE void tile(enum weight_kind kind, int R, int C, const void *w, size_t ldw,
                 const float *x, size_t ldx, size_t k,
                 float out[TILE_R][TILE_C])
{
    v8 a[TILE_R][TILE_C];
    v8 b[TILE_R][TILE_C];
    const void *row[TILE_R];
    for (int r = 0; r < R; r++) {
        row[r] = row_at(kind, w, (size_t)r * ldw);
        for (int c = 0; c < C; c++) {
            a[r][c] = v8_zero();
            b[r][c] = v8_zero();
        }
    }
    size_t i = 0;
    for (; i + 16 <= k; i += 16) {
        for (int r = 0; r < R; r++) {
            v8 p = load8(kind, row[r], i);
            v8 q = load8(kind, row[r], i + 8);
            for (int c = 0; c < C; c++) {
                const float *xc = x + (size_t)c * ldx + i;
                a[r][c] = v8_fma(p, v8_load(xc), a[r][c]);
                b[r][c] = v8_fma(q, v8_load(xc + 8), b[r][c]);
            }
        }
    }
    for (int r = 0; i < k && r < R; r++) { /* x is zero behind k */
        float t[16] = {0};
        for (size_t j = i; j < k; j++) {
            t[j - i] = load1(kind, row[r], j);
        }
        for (int c = 0; c < C; c++) {
            const float *xc = x + (size_t)c * ldx + i;
            a[r][c] = v8_fma(v8_load(t), v8_load(xc), a[r][c]);
            b[r][c] = v8_fma(v8_load(t + 8), v8_load(xc + 8), b[r][c]);
        }
    }
    for (int r = 0; r < R; r++) {
        for (int c = 0; c < C; c++) {
            out[r][c] = v16_sum(a[r][c], b[r][c]);
        }
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

#define TILE_CASE(R, C)                                               \
    do {                                                              \
        float out_[TILE_R][TILE_C];                                   \
        tile(kind, R, C, w, g->ldw, g->x + c * ldx, ldx, g->k, out_); \
        put(g, r, c, R, C, out_);                                     \
    } while (0)

/* Rows begin..end, whose first is at w, all columns. */
INLINE void rows_run(const struct gemm *g, enum weight_kind kind,
                     const void *w0, size_t begin, size_t end)
{
    size_t ldx = gemm_pad(g->k);
    size_t r = begin;
    while (r < end) {
        const void *w = row_at(kind, w0, (r - begin) * g->ldw);
        size_t nr = end - r;
        size_t step = g->cols == 1 ? 4 : g->cols < 4 ? 2 : 1;
        step = nr < step ? 1 : step;
        for (size_t c = 0; c < g->cols;) {
            size_t nc = g->cols - c;
            if (step == 4) {
                TILE_CASE(4, 1);
                c += 1;
            } else if (step == 2 && nc >= 3) {
                TILE_CASE(2, 3);
                c += 3;
            } else if (step == 2 && nc >= 2) {
                TILE_CASE(2, 2);
                c += 2;
            } else if (step == 2) {
                TILE_CASE(2, 1);
                c += 1;
            } else if (nc >= 4) {
                TILE_CASE(1, 4);
                c += 4;
            } else if (nc >= 2) {
                TILE_CASE(1, 2);
                c += 2;
            } else {
                TILE_CASE(1, 1);
                c += 1;
            }
        }
        r += step;
    }
}

static void decoded_run(const struct gemm *g, size_t begin, size_t end,
                        unsigned worker)
{
    float *buf = g->rowbuf + worker * gemm_pad(g->k);
    for (size_t r = begin; r < end; r++) {
        weight_row(g->src, g->src_row + r, buf);
        rows_run(g, WEIGHT_F32, buf, r, r + 1);
    }
}

static void block(void *ctx, size_t begin, size_t end, unsigned worker)
{
    const struct gemm *g = ctx;
    const void *w = row_at(g->kind, g->w, begin * g->ldw);
    switch (g->kind) {
    case WEIGHT_I8:
        rows_run(g, WEIGHT_I8, w, begin, end);
        break;
    case WEIGHT_F16:
        rows_run(g, WEIGHT_F16, w, begin, end);
        break;
    case WEIGHT_F32:
        rows_run(g, WEIGHT_F32, w, begin, end);
        break;
    case WEIGHT_ROWS:
        decoded_run(g, begin, end, worker);
        break;
    }
}

void gemm_weight(struct gemm *g, const struct weight *w, size_t row0,
                 size_t rows)
{
    g->kind = w->kind;
    g->ldw = w->cols;
    g->k = w->cols;
    g->rows = rows;
    g->src = w;
    g->src_row = row0;
    if (w->kind != WEIGHT_ROWS) {
        g->w = row_at(w->kind, w->data, row0 * w->cols);
        g->scale = w->scale != NULL ? w->scale + row0 : NULL;
    }
}

void gemm_run(struct gemm *g)
{
    size_t work = g->k * g->cols;
    size_t grain = work > 0 ? BLOCK_WORK / work : g->rows;
    grain = (grain & ~(size_t)3) + 4;
    unsigned threads = work * g->rows < PARALLEL_MIN ? 1 : g->threads;
    pool_run(threads, g->rows, grain, block, g);
}

void gemm_pack(float *out, const float *x, size_t cols, size_t k, size_t sc,
               size_t sk)
{
    size_t ld = gemm_pad(k);
    for (size_t c = 0; c < cols; c++) {
        float *o = out + c * ld;
        const float *from = x + c * sc;
        if (sk == 1) {
            memcpy(o, from, k * sizeof(float));
        } else {
            for (size_t i = 0; i < k; i++) {
                o[i] = from[i * sk];
            }
        }
        for (size_t i = k; i < ld; i++) {
            o[i] = 0.0f;
        }
    }
}
