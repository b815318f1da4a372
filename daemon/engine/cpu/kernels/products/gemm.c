/* Tiles of R rows by C columns keep their accumulators in registers. One column
 * alone (decoding) takes four rows at a time: eight independent chains hide
 * the latency of the multiply-add, and the weights stream past once. Tile
 * shape changes the speed only: each (row, column) sum is the same chain of
 * operations in all of them. */
#include "engine/cpu/kernels/products/gemm.h"

#include "base/crew.h"

#define INLINE static inline __attribute__((always_inline))

#define PARALLEL_MIN 131072 /* multiply-adds that pay for waking a thread */
#define BLOCK_WORK   65536  /* multiply-adds in a block of rows */
#define TILE_R       4
#define TILE_C       4
#define AHEAD_BYTES  6144   /* of weights asked for before they are needed */
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

INLINE size_t element(enum weight_kind kind)
{
    return kind == WEIGHT_I8 ? 1 : kind == WEIGHT_F16 ? 2 : 4;
}

/* Rows next to each other are one stream to the memory, and are asked for as
 * one even where they are read side by side: short ones some kilobytes ahead,
 * long ones a whole group (of so many bytes) ahead, into the second cache. */
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

INLINE const void *row_at(enum weight_kind kind, const void *w, size_t at)
{
    return (const char *)w + at * element(kind);
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
    size_t size = element(kind);
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
            v8 p = load8(kind, row_at(kind, w, (size_t)r * ldw), i + off);
            for (int c = 0; c < C; c++) {
                a[r][c] = v8_fma(p, xs[c], a[r][c]);
            }
        }
    }
    for (int r = 0; i < k && r < R; r++) { /* x is zero behind k */
        const void *row = row_at(kind, w, (size_t)r * ldw);
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
    size_t size = element(kind);
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
            const void *row = row_at(kind, w, (size_t)r * ldw);
            a[r] = v8_fma(load8(kind, row, i), x0, a[r]);
            b[r] = v8_fma(load8(kind, row, i + 8), x1, b[r]);
        }
    }
    for (int r = 0; r < R; r++) {
        const void *row = row_at(kind, w, (size_t)r * ldw);
        if (i < k) { /* x is zero behind k */
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
        row_group(g, kind, 3, row_at(kind, w0, (r - begin) * g->ldw), r);
    }
    for (; g->cols < TILE_C && r + 4 <= end; r += 4) {
        row_group(g, kind, 4, row_at(kind, w0, (r - begin) * g->ldw), r);
    }
    for (; r < end; r++) {
        row_group(g, kind, 1, row_at(kind, w0, (r - begin) * g->ldw), r);
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

/* Many columns go by in blocks that stay in the second cache while all rows
 * of the block of rows pass them. */
INLINE void blocked_run(const struct gemm *g, enum weight_kind kind,
                        size_t begin, size_t end)
{
    const void *w = row_at(kind, g->w, begin * g->ldw);
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

static void block(void *ctx, size_t begin, size_t end, unsigned worker)
{
    const struct gemm *g = ctx;
    switch (g->kind) {
    case WEIGHT_I8:
        blocked_run(g, WEIGHT_I8, begin, end);
        break;
    case WEIGHT_F16:
        blocked_run(g, WEIGHT_F16, begin, end);
        break;
    case WEIGHT_F32:
        blocked_run(g, WEIGHT_F32, begin, end);
        break;
    case WEIGHT_I4: /* gemm_weight */
    case WEIGHT_LUT4:
    case WEIGHT_ROWS:
        decoded_run(g, begin, end, worker);
        break;
    }
}

void gemm_weight(struct gemm *g, const struct weight *w, size_t row0,
                 size_t rows)
{
    bool decode = w->kind == WEIGHT_I4 || w->kind == WEIGHT_LUT4;
    g->kind = decode ? WEIGHT_ROWS : w->kind;
    g->ldw = w->cols;
    g->k = w->cols;
    g->rows = rows;
    g->src = w;
    g->src_row = row0;
    if (g->kind != WEIGHT_ROWS) {
        g->w = row_at(w->kind, w->data, row0 * w->cols);
        g->scale = w->scale != NULL ? w->scale + row0 : NULL;
    }
}

void gemm_run(struct gemm *g)
{
    size_t work = g->k * g->cols;
    size_t grain = work > 0 ? BLOCK_WORK / work : g->rows;
    if (g->cols < TILE_C) {
        grain = (grain & ~(size_t)3) + 4;
    } else { /* groups of three, and some of them to a block of columns */
        size_t share =
            g->rows / (4 * (size_t)(g->threads > 0 ? g->threads : 1));
        grain = grain > 48 ? grain : 48;
        grain = (grain < share ? grain : share) / 12 * 12 + 12;
    }
    unsigned threads = work * g->rows < PARALLEL_MIN ? 1 : g->threads;
    crew_run(threads, g->rows, grain, block, g);
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
