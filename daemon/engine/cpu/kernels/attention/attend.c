/* Positions are cut into spans of 256 by absolute position. For each span that
 * a row sees, a head computes three results: the largest score m, the sum l of
 * p = exp(score - m), and the vector o = sum p v. The results of the spans are
 * combined in order:
 *
 *   M = max m,  w = exp(m - M),  out = (sum w o) / (sum w l)
 *
 * So no sum is longer than a span plus the number of spans, scores never
 * leave the first cache, and spans can be worked on by different threads.
 * Inside a span: scores are chains over the dimension, p is summed over 16
 * lanes of positions, o is a chain over positions. None of this depends on
 * other rows, or on the block in which a position is kept.
 *
 * Work is cut into tiles of up to 8 columns; a column is one query head of one
 * row. The columns of a tile share a key/value head, so where they are rows of
 * one sequence, a block is converted once for all of them. When there are too
 * few tiles for the threads (decoding), tiles are split into their spans.
 *
 * A position outside [lo, hi) is never multiplied into o, not even with a
 * weight of zero: the value stored there may be infinite. So where the columns
 * of a tile see different parts of a block, the parts that only some see are
 * computed row by row, and the common part for all columns together. */
#include "engine/cpu/kernels/attention/attend.h"

#include <string.h>

#include "base/crew.h"
#include "engine/cpu/kernels/kernel_impl.h"
#include "engine/cpu/kernels/vmath.h"

#define COLS         8u
#define SPAN         256u   /* a multiple of KV_BLOCK */
#define SPAN_UNITS   4u     /* tiles a thread below which spans are split */
#define PARALLEL_MIN 131072 /* multiply-adds */

/* Columns that run together: query heads first_head .. + heads of each of
 * `rows` rows, whose table is the same. */
struct tile {
    size_t row, rows;
    size_t col; /* the first one's place in the parts */
    uint32_t kv_head, first_head, heads;
};

/* What a span gives, its part: o[COLS][ldo], m[COLS], l[COLS]. */
struct job {
    const struct attend *a;
    const struct kernels *kn;
    uint32_t group;        /* query heads of a key/value head */
    size_t tile_rows;      /* rows of a tile, at most */
    size_t row_tiles;      /* of all rows */
    size_t head_tiles;     /* of a group */
    size_t tiles;          /* of everything */
    uint32_t first, spans; /* that any row sees */
    size_t ldo;            /* of a part */
    size_t part;           /* floats of a part */
    size_t worker;         /* floats of a worker's queries and scores */
    float *parts;          /* of workers, or (split) of tiles: [spans][part] */
};

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* --- scratch --- */

/* A worker's own: queries and scores of a tile. */
static size_t worker_floats(uint32_t dim)
{
    return COLS * kv_pad(dim) + (size_t)COLS * SPAN;
}

static size_t part_floats(uint32_t vdim)
{
    return COLS * kv_pad(vdim) + 2 * (size_t)COLS;
}

static size_t spans_of(uint32_t positions)
{
    return (positions + (size_t)SPAN - 1) / SPAN;
}

size_t attend_scratch(uint32_t positions, uint32_t heads, uint32_t kv_heads,
                      uint32_t dim, uint32_t vdim, unsigned threads)
{
    (void)heads;
    (void)kv_heads;
    return threads * worker_floats(dim) + (size_t)threads * SPAN_UNITS *
                                              spans_of(positions) *
                                              part_floats(vdim);
}

/* --- one span of a tile --- */

struct stretch {
    const struct job *j;
    const struct tile *t;
    const float *q;  /* [cols][kv_pad(dim)] */
    float *p;        /* [cols][SPAN] */
    float *o;        /* [cols][ldo] */
    uint32_t base;   /* position */
    uint32_t first;  /* block of the span that any row sees */
    uint32_t block_end; /* after the last block that any row sees */
    uint32_t end;    /* after the last position that any row sees */
};

/* What row r of a tile sees of [from, to). */
static void visible(const struct stretch *s, size_t r, uint32_t from,
                    uint32_t to, uint32_t *lo, uint32_t *hi)
{
    const struct attend *a = s->j->a;
    *lo = max_u32(a->lo[s->t->row + r], from);
    *hi = min_u32(a->hi[s->t->row + r], to);
}

/* The plane that is read after that of `block`: the next one, else the other
 * state's first, or the next span's. A tile after another one of the same
 * sequence finds everything in the cache. */
static void ahead(const struct stretch *s, uint32_t block, bool keys,
                  struct attend_product *m)
{
    const struct attend *a = s->j->a;
    const struct tile *t = s->t;
    const struct kv_table *table = a->table[t->row];
    if (t->row > 0 && a->table[t->row - 1] == table) {
        return;
    }
    block++;
    if (block >= s->block_end || block % (SPAN / KV_BLOCK) == 0) {
        if (!keys && block >= s->block_end) {
            return;
        }
        block = keys ? s->first : block;
        keys = !keys;
    }
    uint32_t filled = min_u32(s->end - block * KV_BLOCK, KV_BLOCK);
    m->ahead =
        kv_plane(table, keys ? a->k_state : a->v_state, block, t->kv_head);
    m->ahead_bytes = (keys ? a->dim * (size_t)KV_BLOCK
                           : kv_pad(a->vdim) * (size_t)filled) *
                     sizeof(uint16_t);
}

/* The scores of all columns over what any row sees of a block. */
static void block_scores(const struct stretch *s, uint32_t block)
{
    const struct attend *a = s->j->a;
    const struct tile *t = s->t;
    uint32_t from = block * KV_BLOCK;
    uint32_t min = from + KV_BLOCK;
    uint32_t max = from;
    for (size_t r = 0; r < t->rows; r++) {
        uint32_t lo = 0;
        uint32_t hi = 0;
        visible(s, r, from, from + KV_BLOCK, &lo, &hi);
        min = lo < hi ? min_u32(min, lo) : min;
        max = lo < hi ? max_u32(max, hi) : max;
    }
    if (min >= max) {
        return;
    }
    size_t at = (min - from) & ~15u; /* whole lanes */
    struct attend_product m = {
        .x = s->q,
        .ldx = kv_pad(a->dim),
        .cols = t->rows * t->heads,
        .k = a->dim,
        .w = kv_plane(a->table[t->row], a->k_state, block, t->kv_head) + at,
        .ldw = KV_BLOCK,
        .n = ((max - from + 15) & ~15u) - at,
        .y = s->p + (from - s->base) + at,
        .ldy = SPAN,
    };
    ahead(s, block, true, &m);
    s->j->kn->attend_product(&m);
}

/* o += p v over positions [lo, hi) of a block, for `rows` rows from r on. */
static void values(const struct stretch *s, const uint16_t *plane, size_t r,
                   size_t rows, uint32_t lo, uint32_t hi)
{
    if (lo >= hi) {
        return;
    }
    size_t first = r * s->t->heads;
    size_t ldw = kv_pad(s->j->a->vdim);
    struct attend_product m = {
        .x = s->p + first * SPAN + (lo - s->base),
        .ldx = SPAN,
        .cols = rows * s->t->heads,
        .k = hi - lo,
        .w = plane + (lo % KV_BLOCK) * ldw,
        .ldw = ldw,
        .n = ldw,
        .y = s->o + first * s->j->ldo,
        .ldy = s->j->ldo,
        .add = true,
    };
    ahead(s, lo / KV_BLOCK, false, &m);
    s->j->kn->attend_product(&m);
}

static void block_values(const struct stretch *s, uint32_t block)
{
    const struct attend *a = s->j->a;
    const struct tile *t = s->t;
    const uint16_t *plane =
        kv_plane(a->table[t->row], a->v_state, block, t->kv_head);
    uint32_t from = block * KV_BLOCK;
    uint32_t to = from + KV_BLOCK;
    uint32_t lo[COLS];
    uint32_t hi[COLS];
    uint32_t all_lo = from; /* what every row sees */
    uint32_t all_hi = to;
    for (size_t r = 0; r < t->rows; r++) {
        visible(s, r, from, to, &lo[r], &hi[r]);
        all_lo = max_u32(all_lo, lo[r]);
        all_hi = min_u32(all_hi, hi[r]);
    }
    if (all_lo >= all_hi) {
        for (size_t r = 0; r < t->rows; r++) {
            values(s, plane, r, 1, lo[r], hi[r]);
        }
        return;
    }
    for (size_t r = 0; r < t->rows; r++) {
        values(s, plane, r, 1, lo[r], all_lo);
    }
    values(s, plane, 0, t->rows, all_lo, all_hi);
    for (size_t r = 0; r < t->rows; r++) {
        values(s, plane, r, 1, all_hi, hi[r]);
    }
}

/* Scores [begin, end) of a span, and their neighbours in whole lanes, which
 * attend_weigh passes over. */
static void cap(const struct attend *a, float *x, uint32_t begin, uint32_t end)
{
    uint32_t from = begin & ~15u;
    uint32_t to = (end + 15) & ~15u;
    for (uint32_t i = from; i < to; i++) {
        x[i] *= a->before;
    }
    vmath_tanh(x + from, x + from, to - from);
}

static void span_run(const struct job *j, const struct tile *t, uint32_t span,
                     const float *q, float *p, float *part)
{
    const struct attend *a = j->a;
    struct stretch s = {.j = j,
                        .t = t,
                        .q = q,
                        .p = p,
                        .o = part + t->col * j->ldo,
                        .base = span * SPAN};
    float *m = part + COLS * j->ldo + t->col;
    float *l = m + COLS;
    uint32_t min = UINT32_MAX;
    uint32_t max = 0;
    for (size_t r = 0; r < t->rows; r++) {
        min = min_u32(min, a->lo[t->row + r]);
        max = max_u32(max, a->hi[t->row + r]);
    }
    uint32_t end = min_u32(max, s.base + SPAN);
    s.first = max_u32(min, s.base) / KV_BLOCK;
    s.block_end = max / KV_BLOCK + (max % KV_BLOCK != 0 ? 1 : 0);
    s.end = max;
    for (uint32_t b = s.first; b * KV_BLOCK < end; b++) {
        block_scores(&s, b);
    }
    for (size_t c = 0; c < t->rows * t->heads; c++) {
        uint32_t lo = 0;
        uint32_t hi = 0;
        visible(&s, c / t->heads, s.base, s.base + SPAN, &lo, &hi);
        if (lo < hi) {
            if (a->tanh) {
                cap(a, p + c * SPAN, lo - s.base, hi - s.base);
            }
            j->kn->attend_weigh(p + c * SPAN, lo - s.base, hi - s.base,
                                a->divide, a->scale, &m[c], &l[c]);
        }
    }
    memset(s.o, 0, t->rows * t->heads * j->ldo * sizeof(*part));
    for (uint32_t b = s.first; b * KV_BLOCK < end; b++) {
        block_values(&s, b);
    }
}

/* --- tiles --- */

static void tile_queries(const struct attend *a, const struct tile *t, float *q)
{
    for (size_t r = 0; r < t->rows; r++) {
        for (size_t h = 0; h < t->heads; h++, q += kv_pad(a->dim)) {
            memcpy(q,
                   a->q + (t->row + r) * a->ldq +
                       (t->first_head + h) * (size_t)a->dim,
                   a->dim * sizeof(*q));
        }
    }
}

/* One column: the spans' parts, the first one's at `part`, put together. */
static void column_finish(const struct job *j, float *part, size_t c, size_t n,
                          float *out)
{
    const struct attend_spans s = {.n = n,
                                   .step = j->part,
                                   .o = part + c * j->ldo,
                                   .width = j->ldo,
                                   .m = part + COLS * j->ldo + c,
                                   .l = part + COLS * j->ldo + COLS + c};
    j->kn->attend_join(&s);
    memcpy(out, s.o, j->a->vdim * sizeof(*out));
}

static void tile_finish(const struct job *j, const struct tile *t, float *parts)
{
    const struct attend *a = j->a;
    for (size_t c = 0; c < t->rows * t->heads; c++) {
        size_t row = t->row + c / t->heads;
        uint32_t from = a->lo[row] / SPAN;
        uint32_t last = (a->hi[row] - 1) / SPAN;
        column_finish(j, parts + (from - j->first) * j->part, t->col + c,
                      last - from + 1,
                      a->out + row * a->ldo +
                          (t->first_head + c % t->heads) * (size_t)a->vdim);
    }
}

/* The next stretch of tile i whose rows have one table, after *t, which has 0
 * rows at first. */
static bool tile_next(const struct job *j, size_t i, struct tile *t)
{
    const struct attend *a = j->a;
    size_t begin = i % j->row_tiles * j->tile_rows;
    size_t end = min_size(begin + j->tile_rows, a->rows);
    uint32_t ht = (uint32_t)(i / j->row_tiles % j->head_tiles);
    t->kv_head = (uint32_t)(i / j->row_tiles / j->head_tiles);
    t->first_head = t->kv_head * j->group + ht * COLS;
    t->heads = min_u32(j->group - ht * COLS, COLS);
    t->row = t->rows == 0 ? begin : t->row + t->rows;
    t->col = (t->row - begin) * t->heads;
    if (t->row == end) {
        return false;
    }
    t->rows = 1;
    while (t->row + t->rows < end &&
           a->table[t->row + t->rows] == a->table[t->row]) {
        t->rows++;
    }
    return true;
}

/* Items are tiles. */
static void run_tiles(void *ctx, size_t begin, size_t end, unsigned worker)
{
    const struct job *j = ctx;
    const struct attend *a = j->a;
    float *q = a->scratch + worker * j->worker;
    float *parts = j->parts + worker * j->spans * j->part;
    for (size_t i = begin; i < end; i++) {
        struct tile t = {0};
        while (tile_next(j, i, &t)) {
            tile_queries(a, &t, q);
            for (uint32_t k = 0; k < j->spans; k++) {
                span_run(j, &t, j->first + k, q, q + COLS * kv_pad(a->dim),
                         parts + k * j->part);
            }
            tile_finish(j, &t, parts);
        }
    }
}

/* Items are spans of tiles. */
static void run_spans(void *ctx, size_t begin, size_t end, unsigned worker)
{
    const struct job *j = ctx;
    const struct attend *a = j->a;
    float *q = a->scratch + worker * j->worker;
    for (size_t i = begin; i < end; i++) {
        struct tile t = {0};
        while (tile_next(j, i / j->spans, &t)) {
            tile_queries(a, &t, q);
            span_run(j, &t, j->first + (uint32_t)(i % j->spans), q,
                     q + COLS * kv_pad(a->dim), j->parts + i * j->part);
        }
    }
}

/* Checks the call; returns its multiply-adds. */
static uint64_t measure(const struct attend *a, uint32_t *lo, uint32_t *hi)
{
    uint64_t seen = 0;
    *lo = UINT32_MAX;
    *hi = 0;
    for (size_t r = 0; r < a->rows; r++) {
        const struct kv_shape *k = kv_table_shape(a->table[r], a->k_state);
        const struct kv_shape *v = kv_table_shape(a->table[r], a->v_state);
        must(k->key && k->heads == a->kv_heads && k->dim == a->dim);
        must(!v->key && v->heads == a->kv_heads && v->dim == a->vdim);
        must(a->lo[r] < a->hi[r] && a->hi[r] <= k->positions &&
             a->hi[r] <= v->positions);
        seen += a->hi[r] - a->lo[r];
        *lo = min_u32(*lo, a->lo[r]);
        *hi = max_u32(*hi, a->hi[r]);
    }
    return seen * a->heads * (a->dim + a->vdim);
}

void attend_run(const struct attend *a, const struct kernels *kn)
{
    uint32_t lo = 0;
    uint32_t hi = 0;
    if (a->rows == 0) {
        return;
    }
    must(a->kv_heads > 0 && a->heads % a->kv_heads == 0 && a->threads > 0);
    uint64_t work = measure(a, &lo, &hi);
    struct job j = {
        .a = a,
        .kn = kn,
        .group = a->heads / a->kv_heads,
        .first = lo / SPAN,
        .spans = (hi - 1) / SPAN - lo / SPAN + 1,
        .ldo = kv_pad(a->vdim),
        .part = part_floats(a->vdim),
        .worker = worker_floats(a->dim),
        .parts = a->scratch + a->threads * worker_floats(a->dim),
    };
    j.tile_rows = COLS / min_u32(j.group, COLS);
    j.row_tiles = (a->rows + j.tile_rows - 1) / j.tile_rows;
    j.head_tiles = (j.group + COLS - 1) / COLS;
    j.tiles = j.row_tiles * j.head_tiles * a->kv_heads;
    unsigned threads = work < PARALLEL_MIN ? 1 : a->threads;
    if (j.tiles % threads == 0 || j.tiles >= (size_t)threads * SPAN_UNITS) {
        crew_run(threads, j.tiles, 1, run_tiles, &j);
        return;
    }
    crew_run(threads, j.tiles * j.spans, 1, run_spans, &j);
    for (size_t i = 0; i < j.tiles; i++) {
        struct tile t = {0};
        while (tile_next(&j, i, &t)) {
            tile_finish(&j, &t, j.parts + i * j.spans * j.part);
        }
    }
}
