/* columns.c - evaluation of one sequence at a time: its rows are the T columns
 * of a prediction, with whole masks. For the interpreter, rounding, Core ML,
 * the stateless form, and programs that are not row-wise.
 *
 * A chunk of n rows runs as T >= n columns, where T is the smallest width that
 * may be used (widths.c). The columns after n repeat the last row and store
 * nothing. Heads get only the rows whose logits are wanted.
 *
 *   tokens -> x of shard 0 | predict | hidden -copy-> x of shard 1 | ... |
 *   hidden, wanted columns -copy-> x of the heads | predict | logits
 */
#include <string.h>

#include "base/num.h"
#include "engine/array.h"
#include "engine/impl.h"

/* --- open, close --- */

/* Rows of a chunk: fewer where the context makes masks large. */
static uint32_t rows_cap(const struct bundle *b)
{
    size_t cap = MASK_BYTES_MAX / sizeof(float) / b->context;
    return (uint32_t)num_max(1, num_min(cap, ENGINE_CHUNK_MAX));
}

int columns_init(struct engine *g, struct err *e)
{
    struct columns *c = &g->columns;
    size_t row = g->b->d_model;
    unsigned uses = 0;
    struct widths_conf wc = {.cap = rows_cap(g->b),
                             .any = g->told.margin > 0,
                             .measured = g->told.layers.n > 0};
    RETERR(widths_make(&c->layers, g->shards, g->n_shards, &wc, e));
    wc.cap = ENGINE_HEAD_ROWS_MAX;
    RETERR(widths_make(&c->tops, g->heads, g->n_heads, &wc, e));
    g->margin = engine_exact(g) ? 0 : g->told.margin;
    for (size_t i = 0; i < g->n_shards; i++) {
        uses |= shard_uses(&g->shards[i]);
        for (size_t k = 0; k < g->shards[i].n_past; k++) {
            row = num_max(row, g->shards[i].past[k].dim);
        }
        for (size_t k = 0; k < g->shards[i].n_tails; k++) {
            row = num_max(row, g->shards[i].tail_ports[k].width);
        }
    }
    c->row = calloc(row, sizeof(*c->row));
    if (c->row == NULL) {
        return err_set(e, ERR_NOMEM, "engine");
    }
    RETERR(experts_room(g, c->layers.max, e));
    return inputs_init(&g->in, g->b, uses, e);
}

void columns_fini(struct engine *g)
{
    struct columns *c = &g->columns;
    for (size_t i = 0; i < SHEETS_MAX; i++) {
        if (c->layer_sheets[i].t > 0) {
            sheet_fini(&c->layer_sheets[i], g, false);
        }
        if (c->top_sheets[i].t > 0) {
            sheet_fini(&c->top_sheets[i], g, true);
        }
    }
    free(c->row);
    *c = (struct columns){0};
}

/* The sheet of width t, which is made at its first use. */
static int sheet_of(struct engine *g, bool heads, uint32_t t,
                    struct sheet **ret, struct err *e)
{
    struct sheet *all =
        heads ? g->columns.top_sheets : g->columns.layer_sheets;
    size_t i = 0;
    while (i < SHEETS_MAX && all[i].t != 0 && all[i].t != t) {
        i++;
    }
    must(i < SHEETS_MAX); /* there are no more widths */
    if (all[i].t == 0) {
        RETERR(sheet_init(&all[i], g, heads, t, e));
    }
    *ret = &all[i];
    return 0;
}

/* --- warm --- */

static size_t widths_count(const struct widths *w)
{
    size_t n = 0;
    while (widths_each(w, n) > 0) {
        n++;
    }
    return n;
}

/* How far warming is. */
struct warming {
    struct engine *g;
    uint32_t done, total;
};

static void tell(struct warming *w)
{
    const struct engine_conf *c = &w->g->told;
    if (c->progress != NULL) {
        c->progress(c->ctx, ENGINE_WARMS, w->done, w->total);
    }
}

static int warm_shard(struct warming *w, bool heads, size_t i, struct err *e)
{
    struct engine *g = w->g;
    const struct shard *s = heads ? &g->heads[i] : &g->shards[i];
    const struct widths *all = heads ? &g->columns.tops : &g->columns.layers;
    for (size_t k = 0; s->be->warm != NULL && widths_each(all, k) > 0; k++) {
        struct sheet *sheet = NULL;
        uint32_t t = widths_each(all, k);
        RETERR(sheet_of(g, heads, t, &sheet, e));
        int rc = s->be->warm(shard_unit(s, t)->m, t, &g->told.watch, e);
        if (rc < 0) {
            return err_prefix(e, rc, "%s", s->path);
        }
        w->done++;
        tell(w);
    }
    return 0;
}

int columns_warm(struct engine *g, struct err *e)
{
    const struct columns *c = &g->columns;
    struct warming w = {
        .g = g,
        .total = (uint32_t)(widths_count(&c->layers) * g->n_shards +
                            widths_count(&c->tops) * g->n_heads)};
    for (size_t i = 0; i < g->n_shards + g->n_heads; i++) {
        bool heads = i >= g->n_shards;
        RETERR(warm_shard(&w, heads, heads ? i - g->n_shards : i, e));
    }
    return 0;
}

void columns_tell(struct engine *g)
{
    struct warming w = {.g = g, .total = 1};
    tell(&w);
}

int columns_warm_shard(struct engine *g, bool heads, size_t i, struct err *e)
{
    const struct columns *c = &g->columns;
    struct warming w = {
        .g = g,
        .total = (uint32_t)widths_count(heads ? &c->tops : &c->layers)};
    tell(&w); /* it begins: serve waits longer */
    return warm_shard(&w, heads, i, e);
}

/* --- layers --- */

/* A package may declare one shape and compute another. */
int check_out(const struct backend_array *a, const int64_t want[4],
              const struct shard *s, const char *name, struct err *e)
{
    bool fits = a->rank == 4;
    for (int i = 0; fits && i < 4; i++) {
        fits = a->dims[i] == want[i];
    }
    return fits ? 0
                : err_set(e, ERR_MIL_SHAPE,
                          "%s: output %s is not [%lld, %lld, %lld, %lld]",
                          s->path, name, (long long)want[0],
                          (long long)want[1], (long long)want[2],
                          (long long)want[3]);
}

/* A device may fail once and not again. */
static int predict(struct shard *s, struct backend_io *io,
                   struct backend_state *state, struct err *e)
{
    int rc = s->be->predict(io, state, e);
    if (rc == ERR_BACKEND) {
        rc = s->be->predict(io, state, e);
    }
    if (rc < 0) {
        return err_prefix(e, rc, "%s", s->path);
    }
    return 0;
}

/* One shard on the chunk at hand, whose x is filled. */
static int run_shard(struct engine_seq *s, struct sheet *sheet, size_t i,
                     struct chunk c, struct err *e)
{
    struct engine *g = s->g;
    struct shard *sh = &g->shards[i];
    const struct binding *b = &sheet->shards[i];
    const struct unit *u = shard_unit(sh, sheet->t);
    for (size_t k = 0; sh->n_past > 0 && k < u->info.n_in; k++) {
        if (u->roles[k] == ROLE_PAST) {
            sh->be->rebind(b->io, k, s->past[i][u->nth[k]]);
        }
    }
    RETERR(hand_take(g, i, b, e));
    RETERR(tail_take(s, i, c, e));
    RETERR(predict(sh, b->io, s->states[i], e));
    if (c.pos >= s->n) {
        recover_sound(sh);
    }
    const int64_t hidden[4] = {1, g->b->d_model, sheet->t, 1};
    RETERR(check_out(&b->io->out[b->out], hidden, sh, sh->out, e));
    RETERR(hand_give(g, i, b, sheet->t, e));
    for (size_t k = 0; k < sh->n_past; k++) {
        const struct past_port *p = &sh->past[k];
        const int64_t fresh[4] = {1, p->heads, sheet->t, p->dim};
        struct backend_array *a = sheet_fresh(b, p, k);
        RETERR(check_out(a, fresh, sh, p->out, e));
        RETERR(seq_append(s, i, k, a, c, e));
    }
    RETERR(tail_give(s, i, b, c, e));
    return sh->n_routed > 0 ? experts_columns(g, i, sheet, c, e) : 0;
}

/* x of the first shard: the tokens' embeddings, one a column. */
static int embed(struct engine *g, struct place x, const int32_t *tokens,
                 struct chunk c, struct err *e)
{
    RETERR(array_begin(x.be, x.a, true, e));
    for (uint32_t i = 0; i < c.t; i++) {
        const int64_t at[4] = {0, 0, i, 0};
        if (i < c.n) { /* a padding column repeats the last real one */
            tables_embed(&g->tables, tokens[i], g->in.row);
        }
        array_put(x.a, (struct array_line){at, 1, g->b->d_model}, g->in.row,
                  1);
    }
    array_end(x.be, x.a, true);
    return 0;
}

/* *at: the shard that ran last, also when it failed. */
static int run_layers(struct engine_seq *s, struct chunk c, size_t *at,
                      struct place *hidden, struct engine_times *times,
                      struct err *e)
{
    struct engine *g = s->g;
    uint64_t now = now_us();
    struct sheet *sheet = NULL;
    *at = 0;
    RETERR(sheet_of(g, false, c.t, &sheet, e));
    RETERR(embed(g, (struct place){g->shards[0].be, sheet->shards[0].x},
                 s->tokens + c.pos, c, e));
    spent(&now, &times->us_embed);
    RETERR(sheet_place(sheet, g, c, s->tokens + c.pos, e));
    spent(&now, &times->us_masks);
    for (size_t i = 0; i < g->n_shards; i++) {
        const struct binding *b = &sheet->shards[i];
        *at = i;
        if (i > 0) {
            RETERR(place_copy((struct place){g->shards[i].be, b->x}, *hidden,
                              e));
        }
        RETERR(run_shard(s, sheet, i, c, e));
        *hidden = (struct place){g->shards[i].be, &b->io->out[b->out]};
    }
    spent(&now, &times->us_layers);
    return 0;
}

/* --- heads --- */

/* Columns [first, first + k) of hidden to x [1, d_model, t, 1], then copies of
 * the last one. */
static int pick(struct engine *g, struct place x, struct place hidden,
                uint32_t first, uint32_t k, struct err *e)
{
    RETERR(array_begin(hidden.be, hidden.a, false, e));
    int rc = array_begin(x.be, x.a, true, e);
    for (uint32_t i = 0; rc == 0 && i < x.a->dims[2]; i++) {
        const int64_t from[4] = {0, 0, first + (i < k ? i : k - 1), 0};
        const int64_t to[4] = {0, 0, i, 0};
        size_t d = g->b->d_model;
        array_get(hidden.a, (struct array_line){from, 1, d}, g->columns.row, 1);
        array_put(x.a, (struct array_line){to, 1, d}, g->columns.row, 1);
    }
    if (rc == 0) {
        array_end(x.be, x.a, true);
    }
    array_end(hidden.be, hidden.a, false);
    return rc;
}

/* Numbers of k columns of a head's result, one after the other at `out`, rows
 * `ld` apart. */
static int take_columns(struct shard *sh, struct backend_array *y,
                        const char *name, uint32_t k, float *out, size_t ld,
                        struct err *e)
{
    const int64_t want[4] = {1, sh->out_rows, y->dims[2], 1};
    RETERR(check_out(y, want, sh, name, e));
    RETERR(array_begin(sh->be, y, false, e));
    for (uint32_t i = 0; i < k; i++) {
        const int64_t at[4] = {0, 0, i, 0};
        array_get(y, (struct array_line){at, 1, sh->out_rows}, out + i * ld,
                  1);
    }
    array_end(sh->be, y, false);
    return 0;
}

/* One head's slice of the logits of k columns. */
static int run_head(struct engine *g, const struct sheet *sheet, size_t h,
                    uint32_t k, float *out, struct err *e)
{
    struct shard *sh = &g->heads[h];
    const struct binding *b = &sheet->shards[h];
    struct backend_array *y = &b->io->out[b->out];
    uint32_t first = g->b->heads[h].vocab_first;
    RETERR(predict(sh, b->io, NULL, e));
    recover_sound(sh);
    if (y->rank != 4 || y->dims[2] != sheet->t) {
        return err_set(e, ERR_MIL_SHAPE, "%s: output %s is not of %u columns",
                       sh->path, sh->out, sheet->t);
    }
    if (!g->b->argmax) {
        return take_columns(sh, y, sh->out, k, out + first, g->b->vocab, e);
    }
    float tops[ENGINE_HEAD_ROWS_MAX][TOP_NUMBERS];
    RETERR(take_columns(sh, y, sh->out, k, &tops[0][TOP_ID], TOP_NUMBERS, e));
    RETERR(take_columns(sh, &b->io->out[b->value], sh->value, k,
                        &tops[0][TOP_VALUE], TOP_NUMBERS, e));
    for (uint32_t i = 0; i < k; i++) {
        tops_merge(out + (size_t)i * TOP_NUMBERS, h == 0, first,
                   tops[i][TOP_ID], tops[i][TOP_VALUE]);
    }
    return 0;
}

/* Logits of k <= tops.max columns of hidden, from column `first`, into out (k,
 * row_out). A head has no state, so what failed is just run again. */
static int run_heads(struct engine *g, struct place hidden, uint32_t first,
                     uint32_t k, float *out, struct err *e)
{
    struct sheet *sheet = NULL;
    RETERR(sheet_of(g, true, g->columns.tops.of[k], &sheet, e));
    for (size_t h = 0; h < g->n_heads; h++) {
        int rc = 0;
        do {
            struct place x = {g->heads[h].be, sheet->shards[h].x};
            RETERR(pick(g, x, hidden, first, k, e));
            rc = run_head(g, sheet, h, k, out, e);
        } while (rc == ERR_BACKEND && recover(g, true, h, e) == 0);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* --- evaluation --- */

/* Columns [first, last) of a chunk of hidden, one by one. */
static int give_hidden(struct eval *v, struct place hidden, uint32_t first,
                       uint32_t last, uint32_t row, struct err *e)
{
    struct engine *g = v->s->g;
    int rc = 0;
    RETERR(array_begin(hidden.be, hidden.a, false, e));
    for (uint32_t i = first; i < last && rc == 0; i++, row++) {
        const int64_t at[4] = {0, 0, i, 0};
        array_get(hidden.a, (struct array_line){at, 1, g->b->d_model},
                  g->columns.row, 1);
        rc = v->fn(v->ctx, row, 1, g->columns.row, e);
    }
    array_end(hidden.be, hidden.a, false);
    return rc;
}

/* Columns [first, last) of a chunk of hidden. `row` is the first one's number
 * among the rows of v. */
static int give(struct eval *v, struct place hidden, uint32_t first,
                uint32_t last, uint32_t row, struct engine_times *times,
                struct err *e)
{
    struct engine *g = v->s->g;
    uint32_t max = g->columns.tops.max;
    uint64_t at = now_us();
    if (v->hidden) {
        return give_hidden(v, hidden, first, last, row, e);
    }
    while (first < last) {
        uint32_t k = (uint32_t)num_min(last - first, max);
        size_t to = v->fn != NULL ? 0 : row - (v->n - v->want);
        float *logits = g->logits + to * g->row_out;
        int rc = run_heads(g, hidden, first, k, logits, e);
        spent(&at, &times->us_head);
        if (rc == 0 && v->fn != NULL) {
            rc = v->fn(v->ctx, row, k, logits, e);
            spent(&at, &times->us_sample);
        }
        if (rc < 0) {
            return rc;
        }
        first += k;
        row += k;
    }
    return 0;
}

/* The next chunk: of positions that were lost, or of v's rows. A package that
 * failed is in order again when this returns 0, but the chunk may not have
 * run. */
static int run_chunk(struct eval *v, uint32_t chunk, struct engine_times *times)
{
    struct engine_seq *s = v->s;
    struct engine *g = s->g;
    uint32_t at = s->n + v->done;
    bool lost = s->valid < at;
    uint32_t left = lost ? at - s->valid : v->n - v->done;
    uint32_t most = g->columns.layers.rows; /* fewer after a recover() */
    uint32_t k = (uint32_t)num_min(left, chunk < most ? chunk : most);
    struct chunk c = {.pos = lost ? s->valid : at,
                      .n = k,
                      .t = g->columns.layers.of[k],
                      .long_list = s->long_list};
    struct place hidden = {0};
    size_t shard = 0;
    int rc = run_layers(s, c, &shard, &hidden, times, v->e);
    if (rc == ERR_BACKEND) {
        return g->experts.failed != NULL ? recover_expert(g, v->e)
                                         : recover(g, false, shard, v->e);
    }
    if (rc < 0 || lost) {
        s->valid += rc == 0 ? k : 0;
        return rc;
    }
    uint32_t skip = v->n - v->want; /* rows without logits */
    uint32_t first = skip > v->done ? skip - v->done : 0;
    s->valid = at + k;
    rc = give(v, hidden, first, k, v->done + first, times, v->e);
    v->done += k;
    return rc;
}

void columns_run(struct eval *v, uint32_t chunk, struct engine_times *times)
{
    struct engine_seq *s = v->s;
    struct engine *g = s->g;
    uint32_t max = g->columns.layers.rows;
    chunk = chunk == 0 || chunk > max ? max : chunk;
    v->rc = g->broken ? err_set(v->e, ERR_BACKEND,
                                "a package of the model could not be opened "
                                "again after it failed; load the model anew")
                      : 0;
    if (v->rc == 0 && v->want > 0 && !v->hidden) {
        v->rc = logits_room(
            g, v->fn != NULL ? g->columns.tops.max : v->want, v->e);
    }
    s->valid = s->valid < s->n ? s->valid : s->n; /* cut, or drafts refused */
    if (v->rc == 0 && s->valid == s->n && v->n > ENGINE_DRAFTS_MAX) {
        v->rc = seq_mark(s, s->n, true, v->e);
    }
    while (v->rc == 0 && v->done < v->n) {
        v->rc = run_chunk(v, chunk, times);
    }
}
