/* engine.c - a loaded model and its step loop.
 *
 *   tokens -> embed rows -> x ──shard 0──► x ──shard 1──► ... x ──heads──►
 * logits rope, masks ┘   states of the sequence ┘
 *
 * A chunk of n rows runs as T >= n columns, where T is the least that every
 * shard takes; the columns behind n repeat the last row and write nothing
 * (design 5.1, padding). Heads see only the rows whose logits are wanted.
 */
#include <string.h>
#include <time.h>

#include "base/num.h"
#include "engine/impl.h"

static uint64_t now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Time since *at into *bucket; *at moves on. */
static void spent(uint64_t *at, uint32_t *bucket)
{
    uint64_t now = now_us();
    *bucket += (uint32_t)(now - *at);
    *at = now;
}

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

static int map_embed(struct engine *g, struct err *e)
{
    const struct bundle *b = g->b;
    char path[sizeof(b->dir) + 256];
    if (!file_join(path, sizeof(path), b->dir, b->embed_file)) {
        return err_set(e, ERR_BUNDLE, "%s: the path is too long",
                       b->embed_file);
    }
    int rc = file_map(path, &g->embed, e);
    if (rc < 0) {
        return rc;
    }
    if (g->embed.n != (uint64_t)b->vocab * b->d_model * 2) {
        return err_set(e, ERR_BUNDLE, "%s holds %zu bytes, not %u rows of %u",
                       b->embed_file, g->embed.n, b->vocab, b->d_model);
    }
    g->weight_bytes = g->embed.n;
    return 0;
}

static void count_bytes(struct engine *g, const struct shard *s)
{
    /* functions of one package share its weights */
    g->weight_bytes += s->units[0].info.weight_bytes;
    g->state_bytes += s->units[0].info.state_bytes;
    for (size_t i = 0; i < s->n_past; i++) {
        g->state_bytes +=
            (uint64_t)s->past[i].heads * g->b->context * s->past[i].dim * 2;
    }
}

static int open_shards(struct engine *g, const struct engine_conf *conf,
                       struct err *e)
{
    const struct backend_conf bc = {.threads = conf->threads,
                                    .round_fp16 = conf->round_fp16};
    const struct bundle *b = g->b;
    uint32_t total = (uint32_t)(b->n_shards + b->n_heads_shards);
    g->shards = calloc(b->n_shards, sizeof(*g->shards));
    g->heads = calloc(b->n_heads_shards, sizeof(*g->heads));
    if (g->shards == NULL || g->heads == NULL) {
        return err_set(e, ERR_NOMEM, "shards");
    }
    for (uint32_t i = 0; i < total; i++) {
        int rc = 0;
        struct shard *s = NULL;
        if (i < b->n_shards) {
            s = &g->shards[g->n_shards++];
            rc = shard_open(s, g->be, &bc, b, &b->shards[i], e);
        } else {
            s = &g->heads[g->n_heads++];
            rc = head_open(s, g->be, &bc, b, &b->heads[i - b->n_shards], e);
        }
        if (rc < 0) {
            return rc;
        }
        count_bytes(g, s);
        if (conf->progress != NULL) {
            conf->progress(conf->ctx, i + 1, total);
        }
    }
    return 0;
}

static int make_scratch(struct engine *g, struct err *e)
{
    size_t n_in = 1;
    size_t n_out = 1;
    unsigned uses = 0;
    for (size_t i = 0; i < g->n_shards; i++) {
        const struct shard *s = &g->shards[i];
        uses |= shard_uses(s);
        n_out = n_out < s->n_past + 1 ? s->n_past + 1 : n_out;
        for (size_t k = 0; k < s->n_units; k++) {
            size_t n = s->units[k].info.n_in;
            n_in = n_in < n ? n : n_in;
        }
    }
    g->tin = calloc(n_in, sizeof(*g->tin));
    g->tout = calloc(n_out, sizeof(*g->tout));
    g->head_x = calloc((size_t)g->b->d_model * g->tops.max, sizeof(float));
    if (g->tin == NULL || g->tout == NULL || g->head_x == NULL) {
        return err_set(e, ERR_NOMEM, "engine");
    }
    int rc = sampler_new(g->b->vocab, &g->sampler, e);
    return rc < 0 ? rc : inputs_init(&g->in, g->b, g->layers.max, uses, e);
}

/* Rows of a chunk: fewer where the context makes masks large. */
static uint32_t rows_cap(const struct bundle *b)
{
    size_t cap = MASK_BYTES_MAX / sizeof(float) / b->context;
    return (uint32_t)num_max(1, num_min(cap, ENGINE_CHUNK_MAX));
}

int engine_open_with(const struct backend *be, const char *bundle_dir,
                     const struct engine_conf *conf, struct engine **ret,
                     struct err *e)
{
    int rc = 0;
    struct engine *g = calloc(1, sizeof(*g));
    if (g == NULL) {
        return err_set(e, ERR_NOMEM, "engine");
    }
    g->be = be;
    rc = bundle_open(bundle_dir, &g->b, e);
    if (rc < 0) {
        goto out;
    }
    rc = map_embed(g, e);
    if (rc < 0) {
        goto out;
    }
    rc = open_shards(g, conf, e);
    if (rc < 0) {
        goto out;
    }
    rc = widths_make(&g->layers, g->shards, g->n_shards, rows_cap(g->b), e);
    if (rc < 0) {
        goto out;
    }
    rc = widths_make(&g->tops, g->heads, g->n_heads, HEAD_ROWS_MAX, e);
    if (rc < 0) {
        goto out;
    }
    rc = make_scratch(g, e);
    if (rc < 0) {
        goto out;
    }
    *ret = g;
    g = NULL;
out:
    engine_close(g);
    return rc;
}

int engine_open(const char *bundle_dir, const struct engine_conf *conf,
                struct engine **ret, struct err *e)
{
    const char *name = conf->backend != NULL ? conf->backend : "cpu";
    const struct backend *be = backend_find(name);
    if (be == NULL) {
        return err_set(e, ERR_UNSUPPORTED, "no backend '%s' in this build",
                       name);
    }
    return engine_open_with(be, bundle_dir, conf, ret, e);
}

void engine_close(struct engine *g)
{
    if (g == NULL) {
        return;
    }
    for (size_t i = 0; i < g->n_shards; i++) {
        shard_close(&g->shards[i], g->be);
    }
    for (size_t i = 0; i < g->n_heads; i++) {
        shard_close(&g->heads[i], g->be);
    }
    inputs_fini(&g->in);
    sampler_free(g->sampler);
    file_unmap(&g->embed);
    bundle_close(g->b);
    free(g->shards);
    free(g->heads);
    free(g->tin);
    free(g->tout);
    free(g->head_x);
    free(g->logits);
    free(g);
}

void engine_ready(const struct engine *g, struct msg_ready *ret)
{
    *ret = (struct msg_ready){
        .t_max = g->layers.max,
        .batch_max = ENGINE_STEP_ROWS_MAX,
        .seqs_max = ENGINE_SEQS_MAX,
        .context = g->b->context,
        .vocab = g->b->vocab,
        .weight_bytes = g->weight_bytes,
        .state_bytes = g->state_bytes,
        .arith_version = g->be->arith_version,
    };
}

const struct bundle *engine_bundle(const struct engine *g)
{
    return g->b;
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
    const struct shard *sh = &g->shards[i];
    uint32_t t = g->in.t;
    const struct unit *u = shard_unit(sh, t);
    for (size_t k = 0; k < u->info.n_in; k++) {
        const char *name = u->info.in[k].name;
        if (u->roles[k] == ROLE_PAST) {
            const struct past_port *p = &sh->past[u->past[k]];
            g->tin[k] = (struct tensor){
                .name = name,
                .dtype = MIL_FP16,
                .rank = 4,
                .dims = {1, p->heads, g->b->context, p->dim},
                .data = s->past[i][u->past[k]]
            };
        } else {
            g->tin[k] = inputs_tensor(&g->in, u->roles[k], name);
        }
        if (u->roles[k] == ROLE_X) {
            g->tin[k].data = (void *)(uintptr_t)x;
        }
    }
    g->tout[0] = (struct tensor){.name = sh->out};
    for (size_t k = 0; k < sh->n_past; k++) {
        g->tout[k + 1] = (struct tensor){.name = sh->past[k].out};
    }
    int rc = g->be->predict(u->m, s->states[i], g->tin, u->info.n_in, g->tout,
                            sh->n_past + 1, e);
    if (rc < 0) {
        return err_prefix(e, "%s", sh->path);
    }
    rc = check_out(&g->tout[0], (uint64_t)g->b->d_model * t, sh->path, e);
    for (size_t k = 0; rc == 0 && k < sh->n_past; k++) {
        const struct past_port *p = &sh->past[k];
        rc = check_out(&g->tout[k + 1], (uint64_t)p->heads * t * p->dim,
                       sh->path, e);
        if (rc == 0) {
            seq_append(s, i, k, g->tout[k + 1].data, t, pos, n);
        }
    }
    *hidden = g->tout[0].data;
    return rc;
}

static int run_layers(struct engine_seq *s, const int32_t *tokens, uint32_t n,
                      uint32_t pos, const float **hidden,
                      struct engine_times *times, struct err *e)
{
    struct engine *g = s->g;
    uint64_t at = now_us();
    uint32_t t = g->layers.of[n];
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
    uint32_t w = g->tops.of[k];
    size_t d = g->b->d_model;
    for (size_t c = 0; c < d; c++) {
        for (uint32_t i = 0; i < w; i++) {
            uint32_t from = first + (i < k ? i : k - 1);
            g->head_x[c * w + i] = hidden[c * t + from];
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
            .data = g->head_x
        };
        struct tensor ret = {.name = sh->out};
        int rc = g->be->predict(u->m, NULL, &in, 1, &ret, 1, e);
        if (rc < 0) {
            return err_prefix(e, "%s", sh->path);
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

/* Where logits of the last `want` rows go: into g->logits one behind the other,
 * or through fn as they come. */
struct want {
    uint32_t rows;
    uint32_t done;
    engine_rows_fn *fn;
    void *ctx;
};

static int want_room(struct engine *g, uint32_t rows, struct err *e)
{
    size_t need = (size_t)rows * g->b->vocab;
    if (need <= g->logits_cap) {
        return 0;
    }
    free(g->logits);
    g->logits_cap = 0;
    g->logits = malloc(need * sizeof(float));
    if (g->logits == NULL) {
        return err_set(e, ERR_NOMEM, "logits of %u rows", rows);
    }
    g->logits_cap = need;
    return 0;
}

/* Columns [first, last) of a chunk of hidden (d_model, t). `row` is the first
 * one's number among all tokens given. */
static int give_rows(struct engine *g, struct want *w, const float *hidden,
                     uint32_t t, uint32_t first, uint32_t last, uint32_t row,
                     struct err *e)
{
    for (; first < last;) {
        uint32_t k = last - first < g->tops.max ? last - first : g->tops.max;
        size_t at = w->fn != NULL ? 0 : (size_t)w->done * g->b->vocab;
        int rc = run_heads(g, hidden, t, first, k, g->logits + at, e);
        if (rc == 0 && w->fn != NULL) {
            rc = w->fn(w->ctx, row, k, g->logits, e);
        }
        if (rc < 0) {
            return rc;
        }
        first += k;
        row += k;
        w->done += k;
    }
    return 0;
}

static int check_tokens(const struct engine_seq *s, const int32_t *tokens,
                        uint32_t n, struct err *e)
{
    const struct bundle *b = s->g->b;
    if (n == 0) {
        return err_set(e, ERR_INVALID, "no tokens");
    }
    if (n > b->context - s->n) {
        return err_set(e, ERR_CONTEXT, "%u tokens behind %u in a context of %u",
                       n, s->n, b->context);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= b->vocab) {
            return err_set(e, ERR_INVALID, "token %d of %u", tokens[i],
                           b->vocab);
        }
    }
    return 0;
}

static int run(struct engine_seq *s, const int32_t *tokens, uint32_t n,
               uint32_t chunk, struct want *w, struct engine_times *times,
               struct err *e)
{
    struct engine *g = s->g;
    struct engine_times mine = {0};
    times = times != NULL ? times : &mine;
    int rc = check_tokens(s, tokens, n, e);
    if (rc < 0) {
        return rc;
    }
    rc = seq_reserve(s, s->n + n, e);
    if (rc < 0) {
        return rc;
    }
    rc = want_room(g, w->fn != NULL ? g->tops.max : w->rows, e);
    if (rc < 0) {
        return rc;
    }
    chunk = chunk == 0 || chunk > g->layers.max ? g->layers.max : chunk;
    uint32_t k = 0;
    for (uint32_t done = 0; done < n; done += k) {
        const float *hidden = NULL;
        k = n - done < chunk ? n - done : chunk;
        rc = run_layers(s, tokens + done, k, s->n + done, &hidden, times, e);
        if (rc < 0) {
            return rc;
        }
        uint64_t at = now_us();
        uint32_t first = n - w->rows > done ? n - w->rows - done : 0;
        rc = give_rows(g, w, hidden, g->in.t, first, k, done + first, e);
        spent(&at, &times->us_head);
        if (rc < 0) {
            return rc;
        }
    }
    memcpy(s->tokens + s->n, tokens, n * sizeof(*tokens));
    s->n += n;
    return 0;
}

int engine_eval(struct engine_seq *s, const int32_t *tokens, uint32_t n,
                uint32_t chunk, int want_logits, const float **logits,
                struct engine_times *times, struct err *e)
{
    uint32_t rows = want_logits == 0 ? 0 : want_logits == 1 ? n > 0 : n;
    struct want w = {.rows = rows};
    int rc = run(s, tokens, n, chunk, &w, times, e);
    if (rc == 0 && logits != NULL) {
        *logits = rows > 0 ? s->g->logits : NULL;
    }
    return rc;
}

int engine_eval_rows(struct engine_seq *s, const int32_t *tokens, uint32_t n,
                     uint32_t chunk, engine_rows_fn *rows, void *ctx,
                     struct engine_times *times, struct err *e)
{
    struct want w = {.rows = n, .fn = rows, .ctx = ctx};
    return run(s, tokens, n, chunk, &w, times, e);
}

/* --- a row of a step --- */

/* Draw behind the last token, then behind each draft that was drawn. */
static int verify(struct engine_seq *s, const struct msg_row *row,
                  uint32_t n_drafts, struct msg_row_done *done, struct err *e)
{
    struct engine *g = s->g;
    uint32_t base = s->n - n_drafts;
    for (uint32_t j = 0;; j++) {
        struct msg_token *t = &done->tokens[done->n_tokens];
        int rc = sampler_draw(g->sampler, g->logits + (size_t)j * g->b->vocab,
                              &row->sampling, s->tokens, base + j,
                              row->out_index + j, t, e);
        if (rc < 0) {
            return rc;
        }
        done->n_tokens++;
        if (j == n_drafts || t->id != row->drafts[j]) {
            return 0;
        }
        done->n_accepted++;
    }
}

int engine_step(struct engine_seq *s, const struct msg_row *row,
                struct msg_row_done *ret, struct engine_times *times,
                struct err *e)
{
    int rc = 0;
    uint32_t before = s->n;
    struct msg_row_done done = {.seq = row->seq};
    if (row->position != before) {
        return err_set(e, ERR_CONFLICT, "position %u, the sequence has %u",
                       row->position, before);
    }
    uint32_t room = s->g->b->context - before;
    uint32_t drafts = 0;
    if (row->sample && row->n_tokens <= room) {
        room -= row->n_tokens;
        drafts = row->n_drafts < room ? row->n_drafts : room;
    }
    struct want w = {.rows = row->sample ? drafts + 1 : 0};
    int32_t *all = malloc(((size_t)row->n_tokens + drafts + 1) * sizeof(*all));
    if (all == NULL) {
        return err_set(e, ERR_NOMEM, "%u tokens", row->n_tokens);
    }
    if (row->n_tokens == 0) {
        rc = err_set(e, ERR_INVALID, "a row without tokens");
        goto out;
    }
    memcpy(all, row->tokens, row->n_tokens * sizeof(*all));
    memcpy(all + row->n_tokens, row->drafts, drafts * sizeof(*all));
    rc = run(s, all, row->n_tokens + drafts, 0, &w, times, e);
    if (rc < 0) {
        goto out;
    }
    if (row->sample) {
        uint64_t at = now_us();
        uint32_t us = 0;
        rc = verify(s, row, drafts, &done, e);
        spent(&at, times != NULL ? &times->us_sample : &us);
        if (rc < 0) {
            goto out;
        }
    }
    s->n = before + row->n_tokens + done.n_accepted;
    done.length = s->n;
    *ret = done;
out:
    s->n = rc < 0 ? before : s->n;
    free(all);
    return rc;
}
