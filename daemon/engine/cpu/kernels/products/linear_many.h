/* linear_many.h - integer products with many columns, for the sets of x86; the
 * rest of linear_int.h.
 *
 * Of tables the lanes are split (linear_look.h) as seldom as the columns allow:
 * how large their values are says how many products fit (int_lane).
 *
 * A tile of MANY_ROWS rows is unpacked once to int16, pairs of neighbours in k
 * from all rows side by side, and then meets all columns: one pair of a column
 * broadcast, no sums across. A set that defines none of these uses int_few for
 * any number of columns; any other set defines
 *   MANY_VECS                 vectors of rows in a tile, VB / 4 rows each
 *   MANY_COLS                 columns in a tile
 *   vi_pair(q)                the pair at q in every lane
 *   vi_abs(a), vi_ones()      of int16
 *   vi_split8(b, odd)         vi_half8 of what is in a vector already
 *   vi_transpose(vi t[VB / 4])  of int32 lanes
 *   vi_floats(float *out, vi a, bool first)
 *   vi_floats_wide(float *out, vi high, vi low, bool first)
 *                             as vi_put_wide
 */
#pragma once

#define LANES     (VB / 4)
#define MANY_ROWS (MANY_VECS * LANES)

static_assert(MANY_ROWS <= LINEAR_MANY, "scratch");
static_assert(MANY_ROWS * LOOK_BLOCK * 2 <= LINEAR_TILE, "scratch");

INLINE void many_store(const vi t[LANES], int16_t *tile)
{
    for (int i = 0; i < LANES; i++) {
        vi_store(tile + (size_t)i * MANY_ROWS * 2, t[i]);
    }
}

/* VB elements of LANES rows: their pairs transposed into a tile, those of the
 * even ones and then those of the odd ones. Four neighbours of int8 are one
 * pair of each, so that they are transposed before they are taken apart. */
INLINE void many_group8(const char *p, size_t ldw, int16_t *tile)
{
    UNSET vi t[LANES];
    UNSET vi half[LANES];
    for (size_t r = 0; r < LANES; r++) {
        t[r] = vi_load((const int16_t *)(const void *)(p + r * ldw));
    }
    vi_transpose(t);
    for (int odd = 0; odd < 2; odd++) {
        for (size_t r = 0; r < LANES; r++) {
            half[r] = vi_split8(t[r], odd);
        }
        many_store(half, tile);
        tile += (size_t)LANES * MANY_ROWS * 2;
    }
}

/* The same of other kinds, with the rows' tables. */
INLINE void many_group(int kind, const struct lk_table *table, const char *p,
                       size_t ldw, int16_t *tile)
{
    UNSET vi half[2][LANES];
    for (size_t r = 0; r < LANES; r++) {
        UNSET vi w[2];
        if (kind == WEIGHT_I4) {
            w[0] = int_half(kind, p + r * ldw, 0);
            w[1] = int_half(kind, p + r * ldw, 1);
        } else {
            look_weights(kind, &table[r], p + r * ldw, w);
        }
        half[0][r] = w[0];
        half[1][r] = w[1];
    }
    for (int odd = 0; odd < 2; odd++) {
        vi_transpose(half[odd]);
        many_store(half[odd], tile);
        tile += (size_t)LANES * MANY_ROWS * 2;
    }
}

/* n elements from k on of MANY_ROWS rows from o on. */
INLINE void many_pack_of(const struct linear_job *j, int kind, size_t o,
                         size_t k, size_t n, int16_t *tile)
{
    UNSET char buf[LANES * VB];
    UNSET struct lk_table table[MANY_ROWS];
    const char *w = j->w + o * j->ldw + int_bytes(kind, k);
    if (look_has(kind)) {
        look_tables(kind, j, o, MANY_ROWS, table);
    }
    for (size_t i = 0; i < n; i += VB, tile += (size_t)VB * MANY_ROWS) {
        for (size_t v = 0; v < MANY_VECS; v++) {
            const char *p = w + v * LANES * j->ldw + int_bytes(kind, i);
            int16_t *t = tile + v * LANES * 2;
            size_t ld = j->ldw;
            if (i + VB > n) {
                memset(buf, 0, sizeof(buf));
                for (size_t r = 0; r < LANES; r++) {
                    memcpy(buf + r * VB, p + r * ld, int_bytes(kind, n - i));
                }
                p = buf;
                ld = VB;
            }
            if (kind == WEIGHT_I8) {
                many_group8(p, ld, t);
            } else {
                many_group(kind, table + v * LANES, p, ld, t);
            }
        }
    }
}

static __attribute__((noinline)) void many_pack(const struct linear_job *j,
                                                size_t o, size_t k, size_t n,
                                                int16_t *tile)
{
    if (j->kind == WEIGHT_I4) {
        many_pack_of(j, WEIGHT_I4, o, k, n, tile);
    } else if (j->kind == WEIGHT_LUT4) {
        many_pack_of(j, WEIGHT_LUT4, o, k, n, tile);
    } else if (j->kind == WEIGHT_LUT6) {
        many_pack_of(j, WEIGHT_LUT6, o, k, n, tile);
    } else {
        many_pack_of(j, WEIGHT_I8, o, k, n, tile);
    }
}

/* pairs of a tile times C columns: products added to a. */
INLINE void many_pairs(int C, const int16_t *tile, size_t pairs,
                       const int16_t *q, size_t ldq, vi a[MANY_COLS][MANY_VECS])
{
    UNSET vi w[MANY_VECS];
    for (size_t p = 0; p < pairs; p++, q += 2, tile += (size_t)MANY_ROWS * 2) {
        UNSET const int16_t *base[(MANY_COLS + 2) / 3];
        for (int c = 0; c < C; c += 3) {
            base[c / 3] = q + (size_t)c * ldq;
            HOLD(base[c / 3]);
        }
        for (int v = 0; v < MANY_VECS; v++) {
            w[v] = vi_load(tile + (size_t)v * LANES * 2);
        }
        for (int c = 0; c < C; c++) {
            vi x = vi_pair(base[c / 3] + (size_t)(c % 3) * ldq);
            for (int v = 0; v < MANY_VECS; v++) {
                a[c][v] = vi_dot(a[c][v], w[v], x);
            }
        }
    }
}

/* lane: pairs that a lane can add up; 0: all. */
INLINE void many_tile(int C, const int16_t *tile, size_t pairs, size_t lane,
                      const int16_t *q, size_t ldq, float *acc, bool first)
{
    UNSET vi a[MANY_COLS][MANY_VECS];
    UNSET vi high[MANY_COLS][MANY_VECS]; /* in memory */
    for (int c = 0; c < C; c++) {
        for (int v = 0; v < MANY_VECS; v++) {
            a[c][v] = vi_zero();
        }
    }
    if (lane == 0) {
        many_pairs(C, tile, pairs, q, ldq, a);
        for (int c = 0; c < C; c++) {
            for (int v = 0; v < MANY_VECS; v++) {
                vi_floats(acc + c * MANY_ROWS + v * LANES, a[c][v], first);
            }
        }
        return;
    }
    vi none = vi_zero();
    ORDER(none); /* else gcc makes the loop a memset, `rep stos` */
    for (int c = 0; c < C; c++) {
        for (int v = 0; v < MANY_VECS; v++) {
            high[c][v] = none;
        }
    }
    for (size_t p = 0; p < pairs; p += lane) {
        size_t n = pairs - p < lane ? pairs - p : lane;
        many_pairs(C, tile + p * MANY_ROWS * 2, n, q + p * 2, ldq, a);
        for (int c = 0; c < C; c++) {
            for (int v = 0; v < MANY_VECS; v++) {
                look_split(&a[c][v], &high[c][v]);
            }
        }
    }
    for (int c = 0; c < C; c++) {
        for (int v = 0; v < MANY_VECS; v++) {
            vi_floats_wide(acc + c * MANY_ROWS + v * LANES, high[c][v], a[c][v],
                           first);
        }
    }
}

/* --- how often the lanes of tables are split --- */

/* Sums of |q| of runs of LOOK_PRODUCTS elements, n <= LOOK_BLOCK in all;
 * n is a multiple. */
INLINE void lane_sums(const int16_t *q, size_t n, int32_t *sum)
{
    for (size_t i = 0; i < n; i += (size_t)4 * LOOK_PRODUCTS, sum += 4) {
        UNSET vi a[4];
        for (size_t r = 0; r < 4; r++) {
            a[r] = vi_zero();
            size_t at = i + r * LOOK_PRODUCTS;
            for (size_t v = 0; at < n && v < LOOK_PRODUCTS; v += VB / 2) {
                a[r] = vi_dot(a[r], vi_abs(vi_load(q + at + v)), vi_ones());
            }
        }
        _mm_storeu_si128((void *)sum, vi_across(a));
    }
}

/* Do the windows of `lane` runs stay below the bound? */
INLINE bool lane_fits(const int32_t *sum, size_t n, size_t lane)
{
    const int32_t most = (INT32_MAX - (1 << LOOK_SHIFT)) / WEIGHT_TABLE_PEAK;
    for (size_t i = 0; i < n; i += lane) {
        int32_t s = 0;
        for (size_t r = i; r < n && r < i + lane; r++) {
            s += sum[r];
        }
        if (s > most) {
            return false;
        }
    }
    return true;
}

static uint8_t int_lane(const int16_t *q, size_t k_pad)
{
    int32_t sum[LOOK_BLOCK / LOOK_PRODUCTS];
    size_t lane = LINEAR_LANE_MAX;
    for (size_t k = 0; k < k_pad; k += LOOK_BLOCK) {
        size_t n = k_pad - k < LOOK_BLOCK ? k_pad - k : LOOK_BLOCK;
        lane_sums(q + k, n, sum);
        while (lane > 1 && !lane_fits(sum, n / LOOK_PRODUCTS, lane)) {
            lane--;
        }
    }
    return (uint8_t)lane;
}

#define ASK_COLS 256 /* fewer make a burst of it that products wait for */

/* A block of n elements from k on of MANY_ROWS rows from o on. */
struct many_block {
    const struct linear_job *j;
    size_t o, k, n;
    bool wide; /* sums take more than an int32 */
    const int16_t *tile;
    float *acc;
};

/* Columns c .. c + C - 1. After the last block their results are finished while
 * the sums are at hand, and their way to memory passes beside the next
 * products; a wide row's second column stands elsewhere and is waited for. */
INLINE void many_some(const struct many_block *b, int C, size_t c)
{
    const struct linear_job *j = b->j;
    size_t pairs = (b->n + VB - 1) / VB * (VB / 2);
    size_t lane = b->wide ? LINEAR_LANE_MAX : 0;
    for (size_t i = c; b->wide && i < c + (size_t)C; i++) {
        lane = lane < j->lane[i] ? lane : j->lane[i];
    }
    many_tile(C, b->tile, pairs, lane * (LOOK_PRODUCTS / 2),
              j->q + c * j->ldq + b->k, j->ldq, b->acc + c * MANY_ROWS,
              b->k == 0);
    if (b->k + b->n == j->k && j->cols == j->n) {
        linear_finish(j, b->o, MANY_ROWS, c, c + (size_t)C, b->acc, MANY_ROWS);
    }
}

INLINE void many_columns(const struct many_block *b, struct asking *next)
{
    const size_t cols = b->j->cols;
    size_t lines = MANY_ROWS * next->lines * MANY_COLS / cols + 1;
    size_t c = 0;
    for (; c + MANY_COLS <= cols; c += MANY_COLS) {
        ask(next, lines);
        many_some(b, MANY_COLS, c);
    }
    for (; c + 3 <= cols; c += 3) {
        many_some(b, 3, c);
    }
    for (; c < cols; c++) {
        many_some(b, 1, c);
    }
}

static void int_many(const struct linear_job *j, size_t begin, size_t end,
                     void *scratch)
{
    const int kind = (int)j->kind;
    int16_t *tile = scratch;
    float *acc = (float *)(void *)((char *)scratch + LINEAR_TILE);
    size_t o = begin;
    for (; o + MANY_ROWS <= end; o += MANY_ROWS) {
        const char *w = j->w + o * j->ldw;
        for (size_t k = 0; k < j->k; k += int_block(kind)) {
            const size_t n = int_block_at(kind, j->k, k);
            struct asking next = {
                .rows = MANY_ROWS,
                .ldw = j->ldw,
                .lines = (int_bytes(kind, n) + 63) / 64,
            };
            if (k + n < j->k) {
                next.w = w + int_bytes(kind, k + n);
            } else if (o + 2 * MANY_ROWS <= end) {
                next.w = w + MANY_ROWS * j->ldw;
            }
            if (j->cols < ASK_COLS) {
                next.w = NULL;
            }
            many_pack(j, o, k, n, tile);
            const struct many_block b = {j, o, k, n, look_has(kind), tile, acc};
            many_columns(&b, &next);
        }
        if (j->cols > j->n) {
            linear_finish(j, o, MANY_ROWS, 0, j->n, acc, MANY_ROWS);
        }
    }
    int_few(j, o, end, scratch);
}
