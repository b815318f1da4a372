/* linear.c - the input of products, and which thread computes which rows.
 *
 * All parts of a call form one list of units, 32 rows of a part each. Threads
 * take pieces of it. The first pieces are large: most of the list is divided
 * almost statically, so each thread streams through a range of its own. Pieces
 * get smaller towards the end, to even out what other processes took from a
 * core. A thread takes its next piece before it reads the last unit of the
 * present one, and prefetches the beginning of the next piece while it reads
 * that unit: its memory requests never stop between pieces.
 */
#include "engine/cpu/kernels/products/linear.h"

#include <stdatomic.h>

#include "base/crew.h"
#include "base/isa.h"
#include "base/memory.h"
#include "base/num.h"
#include "engine/cpu/kernels/products/gemm.h"
#include "engine/cpu/kernels/products/linear_impl.h"

#define UNIT         LINEAR_MANY /* rows that are not split further */
#define PARALLEL_MIN 131072      /* multiply-adds that pay for a thread */
#define ROUND_MIN    16384       /* elements to round that do */

/* Rows [first, first + n) of the input. Their columns begin at 2 * first, where
 * there is room if all of them are wide: row r is column first + r. */
struct group {
    size_t first, n, cols;
    size_t run; /* linear_job's, while linear_run runs */
};

struct linear_in {
    size_t k, n;
    unsigned threads; /* that the scratch is for */
    bool integer, real;

    size_t n_groups, cap_groups;
    struct group *group;
    struct linear_job *job; /* LINEAR_PARTS_MAX, linear_run's: as its own they
                               would be cleared at each call */
    size_t cap_q, ldq;
    int16_t *q;
    size_t cap_lane;
    uint8_t *lane; /* linear_run's, where many columns meet a table */
    size_t cap_rows;
    uint32_t *of; /* each row's group */
    uint32_t *lo; /* counted from its group's first column */
    float *xscale;
    bool *wide;
    size_t cap_x, ldx;
    float *x;
    size_t cap_scratch, scratch_size;
    char *scratch;
};

/* What linear_in_set's workers share. */
struct rounding {
    struct linear_in *in;
    const struct kernels *kn;
    const struct linear_rows *rows;
};

int linear_in_new(size_t k, struct linear_in **ret, struct err *e)
{
    struct linear_in *in = calloc(1, sizeof(*in));
    if (in != NULL) {
        in->job = calloc(LINEAR_PARTS_MAX, sizeof(*in->job));
    }
    if (in == NULL || in->job == NULL) {
        free(in);
        return err_set(e, ERR_NOMEM, "a product's input");
    }
    in->k = k;
    *ret = in;
    return 0;
}

void linear_in_length(struct linear_in *in, size_t k)
{
    in->k = k;
}

void linear_in_free(struct linear_in *in)
{
    if (in == NULL) {
        return;
    }
    free(in->q);
    free(in->lane);
    free(in->group);
    free(in->job);
    free(in->of);
    free(in->lo);
    free(in->xscale);
    free(in->wide);
    free(in->x);
    free(in->scratch);
    free(in);
}

/* Have n elements of size bytes at *p, aligned to 64; what was there is gone.
 */
static int grow(void *p, size_t *cap, size_t n, size_t size, struct err *e)
{
    if (n <= *cap) {
        return 0;
    }
    if (n > SIZE_MAX / 2 / size) {
        return err_set(e, ERR_NOMEM, "a product's input");
    }
    void *fresh = aligned_alloc(64, (n * size + 63) & ~(size_t)63);
    if (fresh == NULL) {
        return err_set(e, ERR_NOMEM, "a product's input");
    }
    void **old = p;
    free(*old);
    *old = fresh;
    *cap = n;
    return 0;
}

static int grow_rows(struct linear_in *in, size_t n, struct err *e)
{
    if (n <= in->cap_rows) {
        return 0;
    }
    size_t cap[4] = {0, 0, 0, 0};
    RETERR(grow(&in->of, &cap[3], n, sizeof(*in->of), e));
    RETERR(grow(&in->lo, &cap[0], n, sizeof(*in->lo), e));
    RETERR(grow(&in->xscale, &cap[1], n, sizeof(*in->xscale), e));
    RETERR(grow(&in->wide, &cap[2], n, sizeof(*in->wide), e));
    in->cap_rows = n;
    return 0;
}

static size_t padded(const struct linear_in *in, const struct kernels *kn)
{
    return (in->k + kn->k_step - 1) / kn->k_step * kn->k_step;
}

/* Elements from column to column: an odd number of cache lines, so that the
 * columns of a tile do not meet in the same sets of the first cache. */
static size_t column_stride(size_t k_pad)
{
    size_t lines = (k_pad * sizeof(int16_t) + 63) / 64;
    return (lines | 1) * 32;
}

/* Rows that are worth waking a thread for. */
static size_t rounding_grain(const struct linear_in *in)
{
    return ROUND_MIN / 2 / (in->k + 1) + 1;
}

static const float *source(const struct rounding *s, size_t r)
{
    const struct linear_rows *x = s->rows;
    return x->x + (x->row != NULL ? x->row[r] : r) * x->ldx;
}

static int16_t *column(const struct linear_in *in, size_t c)
{
    return in->q + c * in->ldq;
}

static void round_rows(void *ctx, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    const struct rounding *s = ctx;
    struct linear_in *in = s->in;
    size_t k_pad = padded(in, s->kn);
    for (size_t r = begin; r < end; r++) {
        const float *x = source(s, r);
        if (in->integer) {
            size_t c = in->group[in->of[r]].first + r;
            in->wide[r] = s->kn->round_row(x, in->k, k_pad, column(in, c),
                                           &in->xscale[r]);
        }
        if (in->real) {
            float *o = in->x + r * in->ldx;
            memcpy(o, x, in->k * sizeof(*o));
            memset(o + in->k, 0, (in->ldx - in->k) * sizeof(*o));
        }
    }
}

/* Rows that turned out wide get their second column. */
static void split_rows(void *ctx, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    const struct rounding *s = ctx;
    struct linear_in *in = s->in;
    size_t k_pad = padded(in, s->kn);
    for (size_t r = begin; r < end; r++) {
        if (in->wide[r]) {
            size_t first = in->group[in->of[r]].first;
            s->kn->split_row(source(s, r), in->k, k_pad, column(in, first + r),
                             column(in, 2 * first + in->lo[r]));
        }
    }
}

int linear_in_reserve(struct linear_in *in, const struct kernels *kn, size_t n,
                      bool integer, bool real, unsigned threads, struct err *e)
{
    must(n < UINT32_MAX / 2);
    size_t ldq = column_stride(padded(in, kn));
    size_t ld = gemm_pad(in->k);
    size_t row = real ? ld * sizeof(float) : 0; /* a decoded one */
    RETERR(grow_rows(in, n, e));
    RETERR(grow(&in->group, &in->cap_groups, n, sizeof(*in->group), e));
    if (integer) {
        size_t own = num_min(2 * n, kn->own_words) * ldq * sizeof(*in->q);
        row = num_max(row, linear_scratch(2 * n) + own);
        RETERR(grow(&in->q, &in->cap_q, 2 * n * ldq, sizeof(*in->q), e));
        RETERR(grow(&in->lane, &in->cap_lane, 2 * n, sizeof(*in->lane), e));
    }
    if (real) {
        RETERR(grow(&in->x, &in->cap_x, n * ld, sizeof(*in->x), e));
    }
    in->scratch_size = (row + 63) & ~(size_t)63;
    return grow(&in->scratch, &in->cap_scratch, threads * in->scratch_size, 1,
                e);
}

/* Which rows make which group. */
static int divide(struct linear_in *in, const struct linear_rows *x,
                  struct err *e)
{
    in->n_groups = x->start != NULL ? x->groups : 1;
    RETERR(grow(&in->group, &in->cap_groups, in->n_groups, sizeof(*in->group),
                e));
    for (size_t i = 0; i < in->n_groups; i++) {
        size_t first = x->start != NULL ? x->start[i] : 0;
        size_t end = x->start != NULL ? x->start[i + 1] : x->n;
        must(first <= end && end <= x->n);
        in->group[i] =
            (struct group){.first = first, .n = end - first, .cols = end - first};
        for (size_t r = first; r < end; r++) {
            in->of[r] = (uint32_t)i;
        }
    }
    return 0;
}

/* Places for the second columns; how many there are. */
static size_t place_wide(struct linear_in *in)
{
    size_t n = 0;
    for (size_t r = 0; r < in->n; r++) {
        in->lo[r] =
            in->wide[r] ? (uint32_t)in->group[in->of[r]].cols++ : 0;
        n += in->wide[r] ? 1 : 0;
    }
    return n;
}

int linear_in_take(struct linear_in *in, const struct kernels *kn,
                   const struct linear_rows *x, bool integer, bool real,
                   unsigned threads, struct err *e)
{
    threads = threads > 0 ? threads : 1;
    RETERR(linear_in_reserve(in, kn, x->n, integer, real, threads, e));
    in->n = x->n;
    in->threads = threads;
    in->integer = integer;
    in->real = real;
    in->ldq = column_stride(padded(in, kn));
    in->ldx = gemm_pad(in->k);
    RETERR(divide(in, x, e));
    struct rounding s = {.in = in, .kn = kn, .rows = x};
    size_t grain = rounding_grain(in);
    unsigned use = in->n * in->k < ROUND_MIN ? 1 : threads;
    crew_run(use, in->n, grain, round_rows, &s);
    if (integer && place_wide(in) > 0) {
        crew_run(use, in->n, grain, split_rows, &s);
    }
    return 0;
}

int linear_in_set(struct linear_in *in, const struct kernels *kn,
                  const float *x, size_t ldx, size_t n, bool integer, bool real,
                  unsigned threads, struct err *e)
{
    const struct linear_rows rows = {.x = x, .ldx = ldx, .n = n};
    return linear_in_take(in, kn, &rows, integer, real, threads, e);
}

bool linear_wants_integer(const struct weight *w)
{
    return w->kind == WEIGHT_I8 || w->kind == WEIGHT_I4 ||
           weight_entries(w->kind) > 0;
}

/* --- the products --- */

struct piece {
    const struct linear_in *in;
    const struct kernels *kn;
    size_t n_jobs; /* of in->job */
    size_t units;
    unsigned threads;
    size_t measured; /* measure_columns: the first of them */
    atomic_size_t next;
};

/* Of products with tables: kernels.run of a group's columns. A single one takes
 * no notice of it. */
static size_t columns_run(const struct linear_in *in, const struct group *g,
                          const struct kernels *kn)
{
    size_t least = 0;
    for (size_t c = 0; kn->run != NULL && g->cols > 1 && c < g->cols; c++) {
        size_t run = kn->run(column(in, 2 * g->first + c), padded(in, kn));
        least = c == 0 || run < least ? run : least;
    }
    return least;
}

static void measure_columns(void *ctx, size_t begin, size_t end,
                            unsigned worker)
{
    (void)worker;
    const struct piece *p = ctx;
    const struct linear_in *in = p->in;
    for (size_t c = begin; c < end; c++) {
        in->lane[p->measured + c] =
            p->kn->lane(column(in, p->measured + c), padded(in, p->kn));
    }
}

/* What products with tables want to know of a group's columns, few or many. */
static void group_for_tables(struct piece *p, struct group *g, unsigned threads)
{
    const struct linear_in *in = p->in;
    if (g->cols < p->kn->many) {
        g->run = columns_run(in, g, p->kn);
        return;
    }
    g->run = 0;
    if (p->kn->lane != NULL) {
        unsigned use = g->cols * in->k < ROUND_MIN ? 1 : threads;
        p->measured = 2 * g->first;
        crew_run(use, g->cols, rounding_grain(in), measure_columns, p);
    }
}

/* Integers of 8 or 4 bits never pay for it. */
static void columns_for_tables(struct piece *p, const struct linear_part *parts,
                               size_t n_parts, unsigned threads)
{
    const struct linear_in *in = p->in;
    for (size_t i = 0; i < n_parts; i++) {
        struct group *g = &in->group[parts[i].group];
        bool table = weight_entries(parts[i].w->kind) > 0;
        bool done = i > 0 && parts[i - 1].group == parts[i].group &&
                    weight_entries(parts[i - 1].w->kind) > 0;
        if (table && !done && g->n > 0) {
            group_for_tables(p, g, threads);
        }
    }
}

/* Columns of an eighth of the first cache stay there whatever passes by (Zen 4:
 * of 32 KiB up to 4 KiB; from 7 KiB on palettes of 64 gained 5 % when weights
 * went to the second cache first, from 9.5 KiB on everything did). */
static bool leave_cache(const struct linear_in *in, const struct group *g)
{
    return g->cols * in->k * sizeof(*in->q) > machine_first_cache() / 8;
}

/* Where weights are prefetched to. Intel's second cache waits for three times
 * as many lines as the first (48 and 16 in Sapphire Rapids), and a single column
 * waits for little else: kernels.c reads int8 with 34 GB/s by both caches on
 * two cores, 27 by the first alone, palettes of 16 with 28 and 25. On Zen 4 it
 * is palettes that gain (of 16: 37 and 33, of 64: 39 and 37), int8 loses (36
 * and 38). */
static enum ahead ahead_of(const struct linear_in *in, const struct group *g,
                           const struct weight *w)
{
    const bool palette = weight_entries(w->kind) > 0;
    if (g->cols == 1 && isa_has(ISA_INTEL)) {
        return TO_BOTH;
    }
    if (leave_cache(in, g)) {
        return TO_SECOND;
    }
    return g->cols == 1 && palette && isa_has(ISA_AVX512) ? TO_BOTH : TO_FIRST;
}

static void job_init(struct linear_job *j, const struct linear_part *p,
                     const struct linear_in *in)
{
    const struct weight *w = p->w;
    const struct group *g = &in->group[p->group];
    must(w->cols == in->k);
    *j = (struct linear_job){
        .kind = w->kind,
        .w = w->data,
        .ldw = w->kind == WEIGHT_I8     ? w->cols
               : w->kind == WEIGHT_LUT6 ? w->cols / 4 * 3
                                        : w->cols / 2,
        .src = w,
        .rows = w->rows,
        .k = in->k,
        .scale = w->scale,
        .table = w->table,
        .table_rows = (size_t)w->block[0],
        .bias = p->bias,
        .y = p->y,
        .ldy = p->ldy,
        .n = g->n,
        .cols = g->cols,
        .q = column(in, 2 * g->first),
        .ldq = in->ldq,
        .lo = in->lo + g->first,
        .xscale = in->xscale + g->first,
        .lane = in->lane + 2 * g->first,
        .run = weight_entries(w->kind) > 0 ? g->run : 0,
        .ahead = ahead_of(in, g, w),
    };
}

static size_t job_units(const struct linear_job *j)
{
    return (j->rows + UNIT - 1) / UNIT;
}

/* The weights of a unit of the list; NULL after the last. */
static const char *unit_at(const struct piece *p, size_t unit)
{
    for (size_t i = 0; i < p->n_jobs; i++) {
        const struct linear_job *j = &p->in->job[i];
        if (unit < job_units(j)) {
            return j->w + unit * UNIT * j->ldw;
        }
        unit -= job_units(j);
    }
    return NULL;
}

/* A thread's. */
struct hand {
    char *scratch;
    bool owned;          /* linear_job's, of */
    const int16_t *whose; /* these columns */
};

static void job_run(const struct piece *p, const struct linear_job *j,
                    size_t begin, size_t end, const char *then, struct hand *h)
{
    struct linear_job mine = *j;
    mine.then = then;
    h->owned = h->owned && h->whose == j->q;
    h->whose = j->q;
    mine.owned = &h->owned;
    end = end < j->rows ? end : j->rows;
    if (j->cols >= p->kn->many) {
        p->kn->int_many(&mine, begin, end, h->scratch);
    } else {
        p->kn->int_few(&mine, begin, end, h->scratch);
    }
}

/* Compute units [begin, end) of the list; the thread continues with `then`. */
static void units_run(const struct piece *p, size_t begin, size_t end,
                      size_t then, struct hand *h)
{
    size_t first = 0; /* unit of job i */
    for (size_t i = 0; i < p->n_jobs && begin < end; i++) {
        const struct linear_job *j = &p->in->job[i];
        size_t stop = first + job_units(j);
        if (begin < stop) {
            stop = stop < end ? stop : end;
            job_run(p, j, (begin - first) * UNIT, (stop - first) * UNIT,
                    unit_at(p, stop < end ? stop : then), h);
            begin = stop;
        }
        first += job_units(j);
    }
}

/* A piece's first unit and their number; 0: nothing is left. */
static size_t take(struct piece *p, size_t *at)
{
    *at = atomic_load(&p->next);
    size_t n = 0;
    do {
        if (*at >= p->units) {
            *at = p->units;
            return 0;
        }
        n = (p->units - *at) * 7 / (8 * p->threads);
        n = n > 0 ? n : 1;
    } while (!atomic_compare_exchange_weak(&p->next, at, *at + n));
    return n;
}

static void worker_run(void *ctx, size_t begin, size_t end, unsigned worker)
{
    (void)begin;
    (void)end;
    struct piece *p = ctx;
    struct hand h = {.scratch = p->in->scratch + worker * p->in->scratch_size};
    size_t at = 0;
    for (size_t n = take(p, &at); n > 0;) {
        size_t last = at + n - 1;
        units_run(p, at, last, last, &h);
        n = take(p, &at);
        units_run(p, last, last + 1, at, &h);
    }
}

/* Other kinds: the reduction of gemm.h, whose y is [rows][cols]. */
static void real_run(const struct linear_part *p, const struct linear_in *in,
                     unsigned threads)
{
    const struct group *of = &in->group[p->group];
    struct gemm g = {.cols = of->n,
                     .x = in->x + of->first * in->ldx,
                     .bias = p->bias,
                     .y = p->y,
                     .ldr = 1,
                     .ldc = p->ldy,
                     .rowbuf = (float *)(void *)in->scratch,
                     .threads = threads};
    gemm_weight(&g, p->w, 0, p->w->rows);
    gemm_run(&g);
}

static _Atomic uint64_t bytes_read;

uint64_t linear_bytes(void)
{
    return atomic_load(&bytes_read);
}

void linear_run(const struct linear_part *parts, size_t n_parts,
                const struct linear_in *in, const struct kernels *kn,
                unsigned threads)
{
    must(n_parts <= LINEAR_PARTS_MAX && threads <= in->threads);
    struct piece p = {.in = in, .kn = kn};
    size_t work = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < n_parts; i++) {
        bytes += weight_row_bytes(parts[i].w) * parts[i].w->rows;
    }
    atomic_fetch_add(&bytes_read, bytes);
    for (size_t i = 0; i < n_parts; i++) {
        bool integer = linear_wants_integer(parts[i].w);
        must(integer ? in->integer : in->real);
        must(parts[i].group < in->n_groups);
        if (!integer) {
            real_run(&parts[i], in, threads);
        }
    }
    columns_for_tables(&p, parts, n_parts, threads);
    for (size_t i = 0; i < n_parts; i++) {
        const struct weight *w = parts[i].w;
        const struct group *g = &in->group[parts[i].group];
        if (linear_wants_integer(w) && g->n > 0) {
            job_init(&in->job[p.n_jobs++], &parts[i], in);
            p.units += (w->rows + UNIT - 1) / UNIT;
            work += w->rows * in->k * g->cols;
        }
    }
    if (p.units == 0) {
        return;
    }
    p.threads = work < PARALLEL_MIN || threads == 0 ? 1 : threads;
    if (p.threads == 1) {
        struct hand h = {.scratch = in->scratch};
        units_run(&p, 0, p.units, p.units, &h);
        return;
    }
    crew_run(p.threads, p.threads, 1, worker_run, &p);
}
