/* experts.c - experts of sparse layers: functions of their own, which run on the
 * rows that chose them.
 *
 *   shard (ends at a router) --expert_in, expert_gates--> rows by expert
 *     --each expert in turn--> y, times its gate, added up --> next shard's
 *     `experts`
 *
 * Experts go in the order of their numbers and a row's sum is of that row alone,
 * so its bits are the same in every batch and chunk. A gate of zero is one that
 * was not chosen: the choice was made in the program, exactly.
 *
 * An expert is opened when a row first chooses it. At most `most` stay open; the
 * one that was not used for longest makes way. Where a backend has so many models
 * at once (backend.models_max), all other programs count first. Nothing of a
 * sequence is in an expert: closing one loses nothing. One whose device fails twice
 * is opened anew, then on the CPU backend (recover.c).
 */
#include <string.h>

#include "base/num.h"
#include "engine/array.h"
#include "engine/impl.h"

#define ROW_ALIGN 16u /* floats: rows begin cache lines */

/* --- open, close --- */

/* Models that are open beside experts. */
static size_t others(const struct engine *g)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n_shards; i++) {
        n += g->shards[i].n_units;
    }
    for (size_t i = 0; i < g->n_heads; i++) {
        n += g->heads[i].n_units;
    }
    return n;
}

static uint32_t most_open(const struct engine *g, const struct shard *any)
{
    size_t most = g->told.experts_max > 0 ? g->told.experts_max
                                          : EXPERTS_OPEN_MAX;
    if (g->be->models_max > 0) {
        size_t taken = num_min(others(g), g->be->models_max);
        most = num_min(most, (g->be->models_max - taken) / any->n_units);
    }
    return (uint32_t)num_max(most, 1);
}

void experts_drop(struct engine *g, struct expert *x)
{
    shard_close(&x->s);
    x->open = false;
    g->experts.n_open--;
}

/* The one that was not used for longest. */
static void make_way(struct engine *g)
{
    struct expert *old = NULL;
    for (uint32_t l = 0; l < g->b->n_layers; l++) {
        struct expert *of = g->experts.of[l];
        for (uint32_t i = 0; of != NULL && i < g->b->layers[l].n_experts; i++) {
            if (of[i].open && (old == NULL || of[i].used < old->used)) {
                old = &of[i];
            }
        }
    }
    must(old != NULL);
    experts_drop(g, old);
}

static int take(struct engine *g, uint32_t layer, uint32_t i,
                struct expert **ret, struct err *e)
{
    struct experts *x = &g->experts;
    struct expert *one = &x->of[layer][i];
    one->used = ++x->clock;
    *ret = one;
    if (one->open) {
        return 0;
    }
    while (x->n_open >= x->most) {
        make_way(g);
    }
    if (g->rows.max == 0 && x->rows > 0) {
        columns_tell(g); /* it may take as long as a load */
    }
    engine_set_widths(g, false);
    x->n_open++;
    one->open = true;
    int rc = expert_open(&one->s, one->on_cpu ? &backend_cpu : g->be, &g->conf,
                         g->b, layer, i, e);
    if (rc < 0) {
        experts_drop(g, one);
    }
    return rc;
}

int experts_open(struct engine *g, struct err *e)
{
    struct experts *x = &g->experts;
    const struct bundle *b = g->b;
    struct expert *first = NULL;
    if (b->n_groups == 0) {
        return 0;
    }
    x->most = 1;
    x->of = calloc(b->n_layers, sizeof(struct expert *));
    if (x->of == NULL) {
        return err_set(e, ERR_NOMEM, "experts");
    }
    for (uint32_t l = 0; l < b->n_layers; l++) {
        const struct layer *y = &b->layers[l];
        if (!y->sparse) {
            continue;
        }
        x->of[l] = calloc(y->n_experts, sizeof(*x->of[l]));
        if (x->of[l] == NULL) {
            return err_set(e, ERR_NOMEM, "experts");
        }
        x->ld_gates = num_max(x->ld_gates, y->n_experts);
        if (first == NULL) {
            RETERR(take(g, l, 0, &first, e));
        }
    }
    must(first != NULL); /* the manifest was checked: a group has a layer */
    x->most = most_open(g, &first->s);
    for (size_t i = 0; i < b->n_groups; i++) {
        g->weight_bytes += b->groups[i].weight_bytes;
    }
    return 0;
}

uint32_t experts_rows_max(const struct engine *g)
{
    uint32_t most = UINT32_MAX; /* there are none */
    for (uint32_t l = 0; g->experts.of != NULL && l < g->b->n_layers; l++) {
        const struct expert *of = g->experts.of[l];
        for (uint32_t i = 0; of != NULL && i < g->b->layers[l].n_experts; i++) {
            const struct unit *u = of[i].open ? of[i].s.rows : NULL;
            uint32_t n = u != NULL ? u->info.rows_max : 0;
            most = of[i].open && n < most ? n : most;
        }
    }
    return most;
}

static float *make_rows(uint32_t rows, size_t width, size_t *ld)
{
    *ld = (width + ROW_ALIGN - 1) / ROW_ALIGN * ROW_ALIGN;
    return aligned_alloc(ROW_ALIGN * sizeof(float),
                         rows * *ld * sizeof(float));
}

int experts_room(struct engine *g, uint32_t rows, struct err *e)
{
    struct experts *x = &g->experts;
    size_t d = g->b->d_model;
    if (x->of == NULL) {
        return 0;
    }
    x->in = make_rows(rows, d, &x->ld);
    x->sum = make_rows(rows, d, &x->ld);
    x->picked = make_rows(rows, d, &x->ld);
    x->y = make_rows(rows, d, &x->ld);
    x->gates = make_rows(rows, x->ld_gates, &x->ld_gates);
    x->pick = calloc(rows, sizeof(*x->pick));
    x->rows = rows;
    return x->in != NULL && x->sum != NULL && x->picked != NULL &&
                   x->y != NULL && x->gates != NULL && x->pick != NULL
               ? 0
               : err_set(e, ERR_NOMEM, "rows of experts");
}

void experts_close(struct engine *g)
{
    struct experts *x = &g->experts;
    for (uint32_t l = 0; x->of != NULL && l < g->b->n_layers; l++) {
        struct expert *of = x->of[l];
        for (uint32_t i = 0; of != NULL && i < g->b->layers[l].n_experts; i++) {
            if (of[i].open) {
                experts_drop(g, &of[i]);
            }
        }
        free(of);
    }
    free(x->of);
    free(x->in);
    free(x->sum);
    free(x->picked);
    free(x->y);
    free(x->gates);
    free(x->pick);
    *x = (struct experts){.of = NULL};
}

/* --- one expert on the rows at x->picked --- */

/* Whether the step is still wanted. */
static bool wanted_yet(void *ctx)
{
    const struct engine *g = ctx;
    return g->go(g->go_ctx, false);
}

static int run_rows(struct engine *g, const struct expert *one, uint32_t k,
                    struct err *e)
{
    const struct experts *x = &g->experts;
    const struct backend_row_in in = {x->picked, x->ld};
    const uint32_t *none = NULL;
    struct backend_row_out out = {.name = one->s.out, .p = x->y, .ld = x->ld};
    if (one->s.rows == NULL) {
        return err_set(e, ERR_BUNDLE, "it does not run rows, and others do");
    }
    const struct backend_rows rows = {.n = k,
                                      .in = &in,
                                      .lo = &none,
                                      .hi = &none,
                                      .go = g->go != NULL ? wanted_yet : NULL,
                                      .go_ctx = g};
    return g->be->rows->predict(one->s.rows->m, &rows, &out, 1, e);
}

/* k rows from `first` on as the columns of one prediction; the columns behind
 * them repeat the last one. */
static int fill(struct engine *g, const struct backend *be,
                struct backend_array *a, uint32_t first, uint32_t k,
                struct err *e)
{
    const struct experts *x = &g->experts;
    RETERR(array_begin(be, a, true, e));
    for (uint32_t i = 0; i < a->dims[2]; i++) {
        const int64_t at[4] = {0, 0, i, 0};
        const float *row = x->picked + (first + (i < k ? i : k - 1)) * x->ld;
        array_put(a, (struct array_line){at, 1, g->b->d_model}, row, 1);
    }
    array_end(be, a, true);
    return 0;
}

static int read_rows(const struct backend *be, struct backend_array *a,
                     float *to, size_t ld, uint32_t k, size_t width,
                     struct err *e)
{
    RETERR(array_begin(be, a, false, e));
    for (uint32_t i = 0; i < k; i++) {
        const int64_t at[4] = {0, 0, i, 0};
        array_get(a, (struct array_line){at, 1, width}, to + i * ld, 1);
    }
    array_end(be, a, false);
    return 0;
}

/* Rows [first, first + k), at most t of them, at width t. A device may fail once
 * and not again. */
static int run_width(struct engine *g, struct expert *one, uint32_t first,
                     uint32_t k, uint32_t t, struct err *e)
{
    const struct experts *x = &g->experts;
    struct shard *s = &one->s;
    const struct unit *u = shard_unit(s, t);
    struct backend_array *a = NULL;
    struct backend_io *io = NULL;
    const int64_t dims[4] = {1, g->b->d_model, t, 1};
    int rc = 0;
    if (u == NULL) {
        return err_set(e, ERR_BUNDLE, "it does not run %u rows", t);
    }
    CHECK(s->be->array_new(u->m, 0, MIL_FP32, 4, dims, &a, e));
    CHECK(s->be->bind(u->m, &a, &io, e));
    CHECK(fill(g, s->be, a, first, k, e));
    rc = s->be->predict(io, NULL, e);
    rc = rc == ERR_BACKEND ? s->be->predict(io, NULL, e) : rc;
    if (rc < 0) {
        goto out;
    }
    one->sound += one->reopened && one->sound < RECOVER_SOUND;
    CHECK(check_out(&io->out[0], dims, s, s->out, e));
    CHECK(read_rows(s->be, &io->out[0], x->y + first * x->ld, x->ld, k,
                    g->b->d_model, e));
out:
    s->be->unbind(io);
    s->be->array_free(a);
    return rc;
}

/* In columns. Where bits depend on the width all rows have the same one: which
 * others agree was measured of programs of layers, not of experts. */
static int run_columns(struct engine *g, struct expert *one, uint32_t k,
                       struct err *e)
{
    const struct widths *w = &g->columns.layers;
    uint32_t same = w->like > 0 ? w->like : 0;
    for (uint32_t i = 0; i < k;) {
        uint32_t most = same > 0 ? same : w->max;
        uint32_t n = (uint32_t)num_min(k - i, most);
        RETERR(run_width(g, one, i, n, same > 0 ? same : w->of[n], e));
        i += n;
    }
    return 0;
}

/* --- all experts of a layer --- */

/* The rows that chose expert i, to the front. Returns how many. */
static uint32_t pick(struct experts *x, uint32_t i, uint32_t n, size_t d)
{
    uint32_t k = 0;
    for (uint32_t r = 0; r < n; r++) {
        if (x->gates[r * x->ld_gates + i] != 0) {
            memcpy(x->picked + k * x->ld, x->in + r * x->ld,
                   d * sizeof(*x->in));
            x->pick[k++] = r;
        }
    }
    return k;
}

static void add_up(struct experts *x, uint32_t i, uint32_t k, size_t d)
{
    for (uint32_t r = 0; r < k; r++) {
        float gate = x->gates[x->pick[r] * x->ld_gates + i];
        const float *y = x->y + r * x->ld;
        float *sum = x->sum + x->pick[r] * x->ld;
        for (size_t c = 0; c < d; c++) {
            sum[c] += gate * y[c];
        }
    }
}

int experts_sum(struct engine *g, size_t shard, uint32_t n, struct err *e)
{
    struct experts *x = &g->experts;
    uint32_t layer = g->b->shards[shard].last - 1;
    size_t d = g->b->d_model;
    must(n <= x->rows);
    memset(x->sum, 0, n * x->ld * sizeof(*x->sum));
    for (uint32_t i = 0; i < g->shards[shard].n_routed; i++) {
        struct expert *one = NULL;
        uint32_t k = pick(x, i, n, d);
        int rc = k > 0 ? take(g, layer, i, &one, e) : 0;
        if (rc == 0 && k > 0) {
            rc = g->rows.max > 0 ? run_rows(g, one, k, e)
                                 : run_columns(g, one, k, e);
        }
        if (rc < 0) {
            x->failed = rc == ERR_BACKEND ? one : NULL;
            return err_prefix(e, rc, "expert %u of layer %u", i, layer);
        }
        add_up(x, i, k, d);
    }
    return 0;
}

/* --- columns --- */

/* What the experts gave to all columns; those behind the n real ones repeat the
 * last of them. */
static int give_sum(struct engine *g, const struct side *side,
                    struct chunk c, struct err *e)
{
    const struct experts *x = &g->experts;
    struct backend_array *a = side->of[ROLE_EXPERTS];
    if (side->be == NULL || a == NULL) {
        return 0;
    }
    RETERR(array_begin(side->be, a, true, e));
    for (uint32_t i = 0; i < c.t; i++) {
        const int64_t at[4] = {0, 0, i, 0};
        array_put(a, (struct array_line){at, 1, g->b->d_model},
                  x->sum + (i < c.n ? i : c.n - 1) * x->ld, 1);
    }
    array_end(side->be, a, true);
    return 0;
}

int experts_columns(struct engine *g, size_t i, struct sheet *sheet,
                    struct chunk c, struct err *e)
{
    struct experts *x = &g->experts;
    struct shard *s = &g->shards[i];
    const struct binding *b = &sheet->shards[i];
    struct backend_array *in = &b->io->out[b->in];
    struct backend_array *gates = &b->io->out[b->gates];
    size_t d = g->b->d_model;
    const int64_t of_in[4] = {1, g->b->d_model, c.t, 1};
    const int64_t of_gates[4] = {1, s->n_routed, c.t, 1};
    RETERR(check_out(in, of_in, s, EXPERT_IN, e));
    RETERR(check_out(gates, of_gates, s, EXPERT_GATES, e));
    RETERR(read_rows(s->be, in, x->in, x->ld, c.n, d, e));
    RETERR(read_rows(s->be, gates, x->gates, x->ld_gates, c.n, s->n_routed, e));
    RETERR(experts_sum(g, i, c.n, e));
    for (size_t k = 0; k < countof(sheet->sides); k++) {
        RETERR(give_sum(g, &sheet->sides[k], c, e));
    }
    return 0;
}
