/* linear.c - which thread computes which rows of products.
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
#include "engine/cpu/kernels/products/linear_in.h"

#define UNIT         LINEAR_MANY /* rows that are not split further */
#define PARALLEL_MIN 131072      /* multiply-adds that pay for a thread */

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

/* What columns are packed for. */
struct packing {
    const struct linear_in *in;
    const struct kernels *kn;
    const struct group *g;
    enum pack_order order;
};

static void pack_columns(void *ctx, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    const struct packing *s = ctx;
    const struct linear_in *in = s->in;
    for (size_t i = begin; i < end; i++) {
        const size_t c = i * PACK_COLS;
        s->kn->pack(s->order, column(in, 2 * s->g->first + c), in->ldq,
                    num_min(s->g->cols - c, PACK_COLS), padded(in, s->kn),
                    in->pack[s->order] + (s->g->pack + i) * pack_bytes(in->k));
    }
}

/* The packs that products with w read, made at the first need; NULL: it reads
 * columns. */
static const int8_t *group_packed(const struct linear_in *in, struct group *g,
                                  const struct kernels *kn,
                                  const struct weight *w, unsigned threads)
{
    if (group_packs(g, kn) == 0) {
        return NULL;
    }
    struct packing s = {in, kn, g, kn->pack_order((int)w->kind)};
    if (!g->packed[s.order]) {
        unsigned use = g->cols * in->k < ROUND_MIN ? 1 : threads;
        crew_run(use, group_packs(g, kn), rounding_grain(in) / PACK_COLS + 1,
                 pack_columns, &s);
        g->packed[s.order] = true;
    }
    return in->pack[s.order] + g->pack * pack_bytes(in->k);
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
                     const struct linear_in *in, const int8_t *packed)
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
        .narrow = w->narrow,
        .bias = p->bias,
        .y = p->y,
        .ldy = p->ldy,
        .n = g->n,
        .cols = g->cols,
        .q = column(in, 2 * g->first),
        .ldq = in->ldq,
        .packed = packed,
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
    bool owned[OWN_FORMS]; /* linear_job's, of */
    const int16_t *whose;  /* these columns */
};

static void job_run(const struct piece *p, const struct linear_job *j,
                    size_t begin, size_t end, const char *then, struct hand *h)
{
    struct linear_job mine = *j;
    mine.then = then;
    for (int i = 0; i < OWN_FORMS; i++) {
        h->owned[i] = h->owned[i] && h->whose == j->q;
    }
    h->whose = j->q;
    mine.owned = h->owned;
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
        struct group *g = &in->group[parts[i].group];
        if (linear_wants_integer(w) && g->n > 0) {
            job_init(&in->job[p.n_jobs++], &parts[i], in,
                     group_packed(in, g, kn, w, threads));
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
