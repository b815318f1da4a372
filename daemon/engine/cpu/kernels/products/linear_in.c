/* linear_in.c - the input of products: rows as integers, as they are, or both,
 * in groups. A row that turns out wide gets its second column behind those of
 * its group's rows. */
#include "engine/cpu/kernels/products/linear_in.h"

#include "base/crew.h"
#include "base/num.h"
#include "engine/cpu/kernels/products/gemm.h"

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
    for (int o = 0; o < PACK_ORDERS; o++) {
        free(in->pack[o]);
    }
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

/* Elements from column to column: an odd number of cache lines, so that the
 * columns of a tile do not meet in the same sets of the first cache. */
static size_t column_stride(size_t k_pad)
{
    size_t lines = (k_pad * sizeof(int16_t) + 63) / 64;
    return (lines | 1) * 32;
}

static const float *source(const struct rounding *s, size_t r)
{
    const struct linear_rows *x = s->rows;
    return x->x + (x->row != NULL ? x->row[r] : r) * x->ldx;
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

/* Places for the packs of all groups, which linear_run makes. */
static void place_packs(struct linear_in *in, const struct kernels *kn)
{
    size_t n = 0;
    for (size_t i = 0; i < in->n_groups; i++) {
        in->group[i].pack = n;
        n += group_packs(&in->group[i], kn);
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
        own += num_min(2 * n, kn->narrow_cols) * narrow_stride(in->k) *
               sizeof(*in->q);
        row = num_max(row, linear_scratch(2 * n) + own);
        RETERR(grow(&in->q, &in->cap_q, 2 * n * ldq, sizeof(*in->q), e));
        RETERR(grow(&in->lane, &in->cap_lane, 2 * n, sizeof(*in->lane), e));
    }
    for (int o = 0; integer && kn->pack != NULL && o < PACK_ORDERS; o++) {
        /* all rows wide, at worst in groups of the fewest columns */
        size_t packs = 2 * n / num_min(kn->many, PACK_COLS) + 1;
        size_t bytes = packs * pack_bytes(in->k);
        RETERR(grow(&in->pack[o], &in->cap_pack[o], bytes, 1, e));
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
    place_packs(in, kn);
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
