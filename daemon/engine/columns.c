/* columns.c - evaluation of one sequence at a time: its rows are the T columns
 * of a prediction, with whole masks. For the interpreter, rounding, Core ML,
 * the stateless form, and programs that are not row-wise.
 *
 * A chunk of n rows runs as T >= n columns, where T is the smallest that every
 * shard takes. The columns after n repeat the last row and store nothing. Heads
 * get only the rows whose logits are wanted.
 */
#include <string.h>

#include "base/num.h"
#include "engine/impl.h"

/* --- open, close --- */

static int widths_make(struct widths *w, const struct shard *shards, size_t n,
                       uint32_t cap, struct err *e)
{
    *w = (struct widths){0};
    for (uint32_t t = cap; t > 0; t--) {
        bool all = true;
        for (size_t i = 0; all && i < n; i++) {
            all = shard_unit(&shards[i], t) != NULL;
        }
        w->max = all && w->max == 0 ? t : w->max;
        w->of[t] = all ? (uint16_t)t : t < cap ? w->of[t + 1] : 0;
    }
    return w->max > 0
               ? 0
               : err_set(e, ERR_BUNDLE, "no number of rows runs in all shards");
}

/* Rows of a chunk: fewer where the context makes masks large. */
static uint32_t rows_cap(const struct bundle *b)
{
    size_t cap = MASK_BYTES_MAX / sizeof(float) / b->context;
    return (uint32_t)num_max(1, num_min(cap, ENGINE_CHUNK_MAX));
}

int columns_init(struct engine *g, struct err *e)
{
    struct columns *c = &g->columns;
    size_t n_in = 1;
    size_t n_out = 1;
    unsigned uses = 0;
    RETERR(widths_make(&c->layers, g->shards, g->n_shards, rows_cap(g->b), e));
    RETERR(widths_make(&c->tops, g->heads, g->n_heads, HEAD_ROWS_MAX, e));
    for (size_t i = 0; i < g->n_shards; i++) {
        const struct shard *s = &g->shards[i];
        uses |= shard_uses(s);
        n_out = num_max(n_out, s->n_past + 1);
        for (size_t k = 0; k < s->n_units; k++) {
            n_in = num_max(n_in, s->units[k].info.n_in);
        }
    }
    c->tin = calloc(n_in, sizeof(*c->tin));
    c->tout = calloc(n_out, sizeof(*c->tout));
    c->head_x = calloc((size_t)g->b->d_model * c->tops.max, sizeof(float));
    if (c->tin == NULL || c->tout == NULL || c->head_x == NULL) {
        return err_set(e, ERR_NOMEM, "engine");
    }
    return inputs_init(&g->in, g->b, c->layers.max, uses, e);
}

void columns_fini(struct columns *c)
{
    free(c->tin);
    free(c->tout);
    free(c->head_x);
    *c = (struct columns){0};
}

/* --- layers --- */

/* A package may declare one shape and compute another. */
static int check_out(const struct tensor *out, uint64_t want, const char *path,
                     struct err *e)
{
    uint64_t n = out->dtype == MIL_FP32 && out->data != NULL ? 1 : 0;
    for (int i = 0; i < out->rank && n <= want; i++) {
        n *= out->dims[i] > 0 ? (uint64_t)out->dims[i] : 0;
    }
    return n == want
               ? 0
               : err_set(e, ERR_MIL_SHAPE, "%s: output %s is not %llu numbers",
                         path, out->name, (unsigned long long)want);
}

/* One shard on the chunk at hand; x and *hidden are (d_model, t). */
static int run_shard(struct engine_seq *s, size_t i, const float *x,
                     uint32_t pos, uint32_t n, const float **hidden,
                     struct err *e)
{
    struct engine *g = s->g;
    struct columns *c = &g->columns;
    const struct shard *sh = &g->shards[i];
    uint32_t t = g->in.t;
    const struct unit *u = shard_unit(sh, t);
    for (size_t k = 0; k < u->info.n_in; k++) {
        const char *name = u->info.in[k].name;
        if (u->roles[k] == ROLE_PAST) {
            const struct past_port *p = &sh->past[u->past[k]];
            c->tin[k] = (struct tensor){
                .name = name,
                .dtype = MIL_FP16,
                .rank = 4,
                .dims = {1, p->heads, g->b->context, p->dim},
                .data = s->past[i][u->past[k]]
            };
        } else {
            c->tin[k] = inputs_tensor(&g->in, u->roles[k], name);
        }
        if (u->roles[k] == ROLE_X) {
            c->tin[k].data = (void *)(uintptr_t)x;
        }
    }
    c->tout[0] = (struct tensor){.name = sh->out};
    for (size_t k = 0; k < sh->n_past; k++) {
        c->tout[k + 1] = (struct tensor){.name = sh->past[k].out};
    }
    int rc = g->be->predict(u->m, s->states[i], c->tin, u->info.n_in, c->tout,
                            sh->n_past + 1, e);
    if (rc < 0) {
        return err_prefix(e, rc, "%s", sh->path);
    }
    RETERR(check_out(&c->tout[0], (uint64_t)g->b->d_model * t, sh->path, e));
    for (size_t k = 0; k < sh->n_past; k++) {
        const struct past_port *p = &sh->past[k];
        RETERR(check_out(&c->tout[k + 1], (uint64_t)p->heads * t * p->dim,
                         sh->path, e));
        seq_append(s, i, k, c->tout[k + 1].data, t, pos, n);
    }
    *hidden = c->tout[0].data;
    return 0;
}

static int run_layers(struct engine_seq *s, const int32_t *tokens, uint32_t n,
                      uint32_t pos, const float **hidden,
                      struct engine_times *times, struct err *e)
{
    struct engine *g = s->g;
    uint64_t at = now_us();
    uint32_t t = g->columns.layers.of[n];
    inputs_embed(&g->in, g->embed.p, g->b->embed_scale, g->b->residual_scale,
                 tokens, n, t);
    spent(&at, &times->us_embed);
    inputs_place(&g->in, pos, n, t);
    spent(&at, &times->us_masks);
    const float *x = g->in.x;
    for (size_t i = 0; i < g->n_shards; i++) {
        int rc = run_shard(s, i, x, pos, n, &x, e);
        if (rc < 0) {
            return rc;
        }
    }
    spent(&at, &times->us_layers);
    *hidden = x;
    return 0;
}

/* --- heads --- */

/* Logits of k <= tops.max columns of hidden (d_model, t), from column `first`,
 * into out (k, vocab). */
static int run_heads(struct engine *g, const float *hidden, uint32_t t,
                     uint32_t first, uint32_t k, float *out, struct err *e)
{
    uint32_t w = g->columns.tops.of[k];
    size_t d = g->b->d_model;
    for (size_t c = 0; c < d; c++) {
        for (uint32_t i = 0; i < w; i++) {
            uint32_t from = first + (i < k ? i : k - 1);
            g->columns.head_x[c * w + i] = hidden[c * t + from];
        }
    }
    for (size_t h = 0; h < g->n_heads; h++) {
        const struct shard *sh = &g->heads[h];
        const struct unit *u = shard_unit(sh, w);
        struct tensor in = {
            .name = u->info.in[0].name,
            .dtype = MIL_FP32,
            .rank = 4,
            .dims = {1, (int64_t)d, w, 1},
            .data = g->columns.head_x
        };
        struct tensor ret = {.name = sh->out};
        int rc = g->be->predict(u->m, NULL, &in, 1, &ret, 1, e);
        if (rc < 0) {
            return err_prefix(e, rc, "%s", sh->path);
        }
        rc = check_out(&ret, (uint64_t)sh->out_rows * w, sh->path, e);
        if (rc < 0) {
            return rc;
        }
        const float *y = ret.data;
        float *to = out + g->b->heads[h].vocab_first;
        for (uint32_t i = 0; i < k; i++) {
            for (size_t v = 0; v < sh->out_rows; v++) {
                to[(size_t)i * g->b->vocab + v] = y[v * w + i];
            }
        }
    }
    return 0;
}

/* --- evaluation --- */

/* Columns [first, last) of a chunk of hidden (d_model, t). `row` is the first
 * one's number among the rows of v. */
static int give(struct eval *v, const float *hidden, uint32_t t, uint32_t first,
                uint32_t last, uint32_t row, struct engine_times *times,
                struct err *e)
{
    struct engine *g = v->s->g;
    uint32_t max = g->columns.tops.max;
    uint64_t at = now_us();
    while (first < last) {
        uint32_t k = (uint32_t)num_min(last - first, max);
        size_t to = v->fn != NULL ? 0 : row - (v->n - v->want);
        float *logits = g->logits + to * g->b->vocab;
        int rc = run_heads(g, hidden, t, first, k, logits, e);
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

void columns_run(struct eval *v, uint32_t chunk, struct engine_times *times)
{
    struct engine_seq *s = v->s;
    struct engine *g = s->g;
    uint32_t max = g->columns.layers.max;
    chunk = chunk == 0 || chunk > max ? max : chunk;
    v->rc = v->want == 0
                ? 0
                : logits_room(g, v->fn != NULL ? g->columns.tops.max : v->want,
                              v->e);
    while (v->rc == 0 && v->done < v->n) {
        const float *hidden = NULL;
        uint32_t k = (uint32_t)num_min(v->n - v->done, chunk);
        uint32_t pos = s->n + v->done;
        v->rc = run_layers(s, s->tokens + pos, k, pos, &hidden, times, v->e);
        if (v->rc < 0) {
            return;
        }
        uint32_t skip = v->n - v->want; /* rows without logits */
        uint32_t first = skip > v->done ? skip - v->done : 0;
        v->rc =
            give(v, hidden, g->in.t, first, k, v->done + first, times, v->e);
        v->done += k;
    }
}
