/* linear_many.h - integer products with many columns, for the sets of x86; the
 * rest of linear_int.h.
 *
 * A tile of MANY_ROWS rows is unpacked once to int16, pairs of neighbours in k
 * from all rows side by side, and then meets all columns: one pair of a column
 * broadcast, no sums across. A set that defines none of these uses int_few for
 * any number of columns; any other set defines
 *   MANY_VECS                 vectors of rows in a tile, VB / 4 rows each
 *   MANY_COLS                 columns in a tile
 *   vi_pair(q)                the pair at q in every lane
 *   vi_split8(b, odd)         vi_half8 of what is in a vector already
 *   vi_transpose(vi t[VB / 4])  of int32 lanes
 *   vi_store, vi_floats(float *out, vi a, bool first)
 */
#pragma once

#define LANES     (VB / 4)
#define MANY_ROWS (MANY_VECS * LANES)

static_assert(MANY_ROWS <= LINEAR_MANY, "scratch");
static_assert(MANY_ROWS * LINEAR_BLOCK * 2 <= LINEAR_TILE, "scratch");

INLINE void many_store(const vi t[LANES], int16_t *tile)
{
    for (int i = 0; i < LANES; i++) {
        vi_store(tile + (size_t)i * MANY_ROWS * 2, t[i]);
    }
}

/* VB elements of LANES rows: their pairs transposed into a tile, those of the
 * even ones and then those of the odd ones. Four neighbours of int8 are one
 * pair of each, so that they are transposed before they are taken apart. */
INLINE void many_group(bool i4, const char *p, size_t ldw, int16_t *tile)
{
    UNSET vi t[LANES];
    UNSET vi half[LANES];
    for (size_t r = 0; r < LANES && !i4; r++) {
        t[r] = vi_load((const int16_t *)(const void *)(p + r * ldw));
    }
    if (!i4) {
        vi_transpose(t);
    }
    for (int odd = 0; odd < 2; odd++) {
        for (size_t r = 0; r < LANES; r++) {
            half[r] = i4 ? int_half(true, p + r * ldw, odd)
                         : vi_split8(t[r], odd);
        }
        if (i4) {
            vi_transpose(half);
        }
        many_store(half, tile);
        tile += (size_t)LANES * MANY_ROWS * 2;
    }
}

static __attribute__((noinline)) void
many_pack(bool i4, const char *w, size_t ldw, size_t n, int16_t *tile)
{
    UNSET char buf[LANES * VB];
    for (size_t i = 0; i < n; i += VB, tile += (size_t)VB * MANY_ROWS) {
        for (size_t v = 0; v < MANY_VECS; v++) {
            const char *p = w + v * LANES * ldw + int_bytes(i4, i);
            int16_t *t = tile + v * LANES * 2;
            size_t ld = ldw;
            if (i + VB > n) {
                memset(buf, 0, sizeof(buf));
                for (size_t r = 0; r < LANES; r++) {
                    memcpy(buf + r * VB, p + r * ldw, int_bytes(i4, n - i));
                }
                p = buf;
                ld = VB;
            }
            if (i4) {
                many_group(true, p, ld, t);
            } else {
                many_group(false, p, ld, t);
            }
        }
    }
}

/* pairs of a tile times C columns. */
INLINE void many_tile(int C, const int16_t *tile, size_t pairs,
                      const int16_t *q, size_t ldq, float *acc, bool first)
{
    UNSET vi a[MANY_COLS][MANY_VECS];
    UNSET vi w[MANY_VECS];
    for (int c = 0; c < C; c++) {
        for (int v = 0; v < MANY_VECS; v++) {
            a[c][v] = vi_zero();
        }
    }
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
    for (int c = 0; c < C; c++) {
        for (int v = 0; v < MANY_VECS; v++) {
            vi_floats(acc + c * MANY_ROWS + v * LANES, a[c][v], first);
        }
    }
}

/* The prefetch of the block of weights that is packed next: a few lines with
 * every tile of columns, into the second cache. */
#define ASK_COLS 256 /* for fewer it is a burst that products wait for */

struct many_ahead {
    const char *w; /* NULL: there is none */
    size_t ldw, lines; /* of 64 bytes in a row */
    size_t at;         /* lines prefetched */
};

INLINE void many_ask(struct many_ahead *a, size_t lines)
{
    for (; a->w != NULL && lines > 0 && a->at < MANY_ROWS * a->lines; lines--) {
        __builtin_prefetch(a->w + a->at / a->lines * a->ldw +
                               a->at % a->lines * 64,
                           0, 2);
        a->at++;
    }
}

/* A block of n elements from k on of MANY_ROWS rows from o on. */
struct many_block {
    const struct linear_job *j;
    size_t o, k, n;
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
    many_tile(C, b->tile, pairs, j->q + c * j->ldq + b->k, j->ldq,
              b->acc + c * MANY_ROWS, b->k == 0);
    if (b->k + b->n == j->k && j->cols == j->n) {
        linear_finish(j, b->o, MANY_ROWS, c, c + (size_t)C, b->acc, MANY_ROWS);
    }
}

INLINE void many_columns(const struct many_block *b, struct many_ahead *ahead)
{
    const size_t cols = b->j->cols;
    size_t ask = MANY_ROWS * ahead->lines * MANY_COLS / cols + 1;
    size_t c = 0;
    for (; c + MANY_COLS <= cols; c += MANY_COLS) {
        many_ask(ahead, ask);
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
    bool i4 = j->kind == WEIGHT_I4;
    int16_t *tile = scratch;
    float *acc = (float *)(void *)((char *)scratch + LINEAR_TILE);
    size_t o = begin;
    for (; o + MANY_ROWS <= end; o += MANY_ROWS) {
        const char *w = j->w + o * j->ldw;
        for (size_t k = 0; k < j->k; k += LINEAR_BLOCK) {
            size_t n = j->k - k < LINEAR_BLOCK ? j->k - k : LINEAR_BLOCK;
            struct many_ahead ahead = {
                .ldw = j->ldw,
                .lines = (int_bytes(i4, n) + 63) / 64,
            };
            if (k + n < j->k) {
                ahead.w = w + int_bytes(i4, k + n);
            } else if (o + 2 * MANY_ROWS <= end) {
                ahead.w = w + MANY_ROWS * j->ldw;
            }
            if (j->cols < ASK_COLS) {
                ahead.w = NULL;
            }
            many_pack(i4, w + int_bytes(i4, k), j->ldw, n, tile);
            const struct many_block b = {j, o, k, n, tile, acc};
            many_columns(&b, &ahead);
        }
        if (j->cols > j->n) {
            linear_finish(j, o, MANY_ROWS, 0, j->n, acc, MANY_ROWS);
        }
    }
    int_few(j, o, end, scratch);
}
