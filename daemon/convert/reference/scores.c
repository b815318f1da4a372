/* scores.c - a tile of QUERIES queries of one head: what they share, a key or a
 * value, is read once for all, and the tile is what vectors hold. A query alone
 * (a model that writes its own text) has vectors of keys, and sums of several
 * features side by side. Scores are sums over features, results are sums over
 * positions; both add up in that order, so a result does not depend on which
 * queries share its tile. What a query does not see counts 0 times: a value
 * that is not finite would still reach the others of its tile.
 */
#include <math.h>
#include <string.h>

#include "base/crew.h"
#include "base/fmath.h"
#include "base/isa.h"
#include "base/num.h"
#include "convert/reference/impl.h"

#define INLINE static inline __attribute__((always_inline))
#define ROWS   4u /* rows of a product side by side: they share its lanes */
#define CHAINS 8u /* sums side by side, where one would wait for itself */

/* No vector crosses a call that is not inlined. */
#pragma GCC diagnostic ignored "-Wpsabi"

#define LANES 4u
typedef double f64v __attribute__((vector_size(LANES * sizeof(double))));
typedef float f32v __attribute__((vector_size(LANES * sizeof(float))));

/* y[r] = sum over i < n of lanes[i] * x[i * along + r * across], for `rows`
 * rows. lanes: (n, width); y: (rows, width). */
struct products {
    const double *lanes;
    const float *x;
    size_t width; /* QUERIES, or 1 */
    size_t rows, n, along, across;
    double *y;
};

INLINE void tile_rows(const struct products *p, size_t first, size_t rows)
{
    const float *x = p->x + first * p->across;
    f64v a[ROWS][QUERIES / LANES] = {{{0}}};
    for (size_t i = 0; i < p->n; i++) {
        f64v lanes[QUERIES / LANES];
        memcpy(lanes, p->lanes + i * QUERIES, sizeof(lanes));
        for (size_t r = 0; r < rows; r++) {
            double v = (double)x[i * p->along + r * p->across];
            f64v b = {v, v, v, v};
            for (size_t j = 0; j < QUERIES / LANES; j++) {
                a[r][j] += lanes[j] * b;
            }
        }
    }
    memcpy(p->y + first * QUERIES, a, rows * sizeof(a[0]));
}

/* Of one query. */
INLINE void one_rows(const struct products *p, size_t first, size_t rows)
{
    const float *x = p->x + first * p->across;
    double a[CHAINS] = {0};
    for (size_t i = 0; i < p->n; i++) {
        for (size_t r = 0; r < rows; r++) {
            a[r] += p->lanes[i] * (double)x[i * p->along + r * p->across];
        }
    }
    memcpy(p->y + first, a, rows * sizeof(a[0]));
}

/* Of one query, ROWS vectors of rows that lie side by side. */
INLINE void one_vectors(const struct products *p, size_t first)
{
    const float *x = p->x + first;
    f64v a[ROWS] = {{0}};
    for (size_t i = 0; i < p->n; i++) {
        double lane = p->lanes[i];
        f64v b = {lane, lane, lane, lane};
        for (size_t j = 0; j < ROWS; j++) {
            f32v v;
            memcpy(&v, x + i * p->along + j * LANES, sizeof(v));
            a[j] += b * __builtin_convertvector(v, f64v);
        }
    }
    memcpy(p->y + first, a, sizeof(a));
}

INLINE void products(const struct products *p)
{
    size_t r = 0;
    if (p->width == QUERIES) {
        for (; r + ROWS <= p->rows; r += ROWS) {
            tile_rows(p, r, ROWS);
        }
        for (; r < p->rows; r++) {
            tile_rows(p, r, 1);
        }
        return;
    }
    for (; p->across == 1 && r + ROWS * LANES <= p->rows; r += ROWS * LANES) {
        one_vectors(p, r);
    }
    for (; r + CHAINS <= p->rows; r += CHAINS) {
        one_rows(p, r, CHAINS);
    }
    for (; r < p->rows; r++) {
        one_rows(p, r, 1);
    }
}

#if defined(ISA_FOR_V3)
ISA_FOR_V3 static void products_v3(const struct products *p)
{
    products(p);
}
#endif

static void run_products(const struct products *p)
{
#if defined(ISA_FOR_V3)
    if (isa_has(ISA_V3)) {
        products_v3(p);
        return;
    }
#endif
    products(p);
}

/* --- one tile --- */

struct tile {
    struct reference *r;
    struct scratch *s;
    size_t head;
    size_t column;  /* of its first query, in r->q */
    uint32_t n;     /* queries */
    uint32_t width; /* QUERIES, or 1: what the arrays have room for */
    uint32_t at;    /* position of the first */
    uint32_t first; /* position of the first key that any query sees */
    uint32_t end;   /* one after the last */
    uint32_t there; /* positions of the sequence that have keys */
    double sink;    /* a score more, if the layer has them */
    const float *k, *v; /* the head's rows of the queries' own sequence */
};

/* First position that a query at `at` sees. */
static uint32_t first_seen(const struct reference *r, uint32_t at)
{
    uint32_t window = r->d->kinds[r->layer->kind].window;
    if (r->layer->both_sides) {
        return window != 0 && at > window ? at - window : 0;
    }
    return window != 0 && at + 1 > window ? at + 1 - window : 0;
}

/* The last one; there: positions of the sequence. */
static uint32_t last_seen(const struct reference *r, uint32_t at,
                          uint32_t there)
{
    uint32_t window = r->d->kinds[r->layer->kind].window;
    if (!r->layer->both_sides) {
        return at;
    }
    return window == 0 ? there - 1
                       : (uint32_t)num_min(at + window, there - 1);
}

static double *score(const struct tile *t, uint32_t u, uint32_t j)
{
    return t->s->scores + (size_t)(u - t->first) * t->width + j;
}

/* Queries that are not there are 0. */
static void take_queries(const struct tile *t)
{
    const struct reference *r = t->r;
    const float *q = r->q + t->head * r->layer->d_head * r->stride + t->column;
    for (uint32_t i = 0; i < r->layer->d_head; i++) {
        for (uint32_t j = 0; j < t->width; j++) {
            t->s->queries[(size_t)i * t->width + j] =
                j < t->n ? (double)q[i * r->stride + j] : 0;
        }
    }
}

static double capped(double s, float cap)
{
    return cap > 0 ? (double)cap * fmath_tanh(s / (double)cap) : s;
}

/* Scale and cap the scores of query j, less their largest; minus infinity where
 * it does not see. The peak is that of the scores before a cap: they must fit
 * too. Returns the largest. */
static double finish_scores(const struct tile *t, uint32_t j)
{
    const struct layer *l = t->r->layer;
    double *peak = &t->r->head_peak[t->head];
    uint32_t last = last_seen(t->r, t->at + j, t->there);
    uint32_t from = first_seen(t->r, t->at + j);
    double top = l->sinks ? t->sink : -(double)INFINITY;
    for (uint32_t u = from; u <= last; u++) {
        double s = *score(t, u, j) * (double)l->score_scale;
        double a = fabs(s);
        if (!(a <= *peak)) {
            *peak = a;
        }
        s = capped(s, l->score_cap);
        *score(t, u, j) = s;
        top = s > top ? s : top;
    }
    for (uint32_t u = t->first; u < t->end; u++) {
        bool sees = u >= from && u <= last;
        *score(t, u, j) = sees ? *score(t, u, j) - top : -(double)INFINITY;
    }
    return top;
}

static void put_results(const struct tile *t, const double *y,
                        const double *sum)
{
    const struct reference *r = t->r;
    float *out =
        r->attn + t->head * r->layer->d_head * r->stride + t->column;
    for (uint32_t i = 0; i < r->layer->d_head; i++) {
        for (uint32_t j = 0; j < t->n; j++) {
            double a = y[(size_t)i * t->width + j];
            out[i * r->stride + j] = (float)(a / sum[j]);
        }
    }
}

static void run_tile(const struct tile *t)
{
    const struct layer *l = t->r->layer;
    size_t stride = t->r->keys->stride;
    uint32_t seen = t->end - t->first;
    double sum[QUERIES] = {0};
    take_queries(t);
    run_products(&(struct products){.lanes = t->s->queries,
                                    .x = t->k + t->first,
                                    .width = t->width,
                                    .rows = seen,
                                    .n = l->d_head,
                                    .along = stride,
                                    .across = 1,
                                    .y = t->s->scores});
    for (uint32_t j = 0; j < t->n; j++) {
        double top = finish_scores(t, j);
        sum[j] = l->sinks ? fmath_exp(t->sink - top) : 0;
    }
    fmath_exps(t->s->scores, (size_t)seen * t->width);
    for (uint32_t u = 0; u < seen; u++) {
        for (uint32_t j = 0; j < t->width; j++) {
            sum[j] += t->s->scores[(size_t)u * t->width + j];
        }
    }
    run_products(&(struct products){.lanes = t->s->scores,
                                    .x = t->v + t->first,
                                    .width = t->width,
                                    .rows = l->d_head,
                                    .n = seen,
                                    .along = 1,
                                    .across = stride,
                                    .y = t->s->queries});
    put_results(t, t->s->queries, sum);
}

/* --- all of them --- */

static void run_head(struct reference *r, size_t head, struct scratch *s)
{
    const struct layer *l = r->layer;
    const struct reference_keys *keys = r->keys;
    size_t kv = head / (l->n_heads / l->n_kv) * l->d_head * keys->stride;
    r->head_peak[head] = 0;
    for (uint32_t c = 0; c < r->n;) {
        uint32_t in = c % r->columns;
        size_t sequence = kv + (size_t)(c / r->columns) * keys->room;
        struct tile t = {.r = r,
                         .s = s,
                         .head = head,
                         .column = c,
                         .n = (uint32_t)num_min(QUERIES, r->columns - in),
                         .at = r->position + in,
                         .first = first_seen(r, r->position + in),
                         .k = keys->k[l->kv_from] + sequence,
                         .v = keys->v[l->kv_from] + sequence};
        t.width = t.n == 1 ? 1 : QUERIES;
        t.there = r->position + r->columns;
        t.end = last_seen(r, t.at + t.n - 1, t.there) + 1;
        t.sink = l->sinks ? (double)r->sinks[head] : 0;
        run_tile(&t);
        c += t.n;
    }
}

static void on_heads(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct reference *r = ctx;
    for (size_t h = begin; h < end; h++) {
        run_head(r, h, &r->scratch[worker]);
    }
}

void reference_scores(struct reference *r, uint32_t l)
{
    double top = 0;
    crew_run(r->threads, r->layer->n_heads, 1, on_heads, r);
    for (uint32_t h = 0; h < r->layer->n_heads; h++) {
        top = r->head_peak[h] <= top ? top : r->head_peak[h];
    }
    if (r->range != NULL) {
        range_add_peak(r->range, RANGE_SCORES, l, top);
    }
}
