/* engine.c - a loaded model, and evaluation.
 *
 *   tokens -> embed rows -> x -shard 0-> x -shard 1-> ... x -heads-> logits
 *                                ^            ^
 *             rope and masks; states of the sequences
 *
 * Where every shard and head of the bundle runs rows of any sequences, they do
 * so (rows.c); else one sequence's T columns at a time (columns.c).
 */
#include <string.h>
#include <time.h>

#include "base/crew.h"
#include "base/hash.h"
#include "base/num.h"
#include "engine/impl.h"

#define TOKENS_PAGE KIB(16) /* the last page of a sequence's tokens */
#define DRAW_MIN 65536 /* logits: some 15 us of work for the plainest draw */

/* --- open, close --- */

/* What a sequence costs at most: its tokens, states and past. */
static uint64_t seq_bytes(const struct engine *g)
{
    uint64_t n = (uint64_t)g->b->context * sizeof(int32_t);
    for (size_t k = 0; k < g->n_shards; k++) {
        const struct shard *s = &g->shards[k];
        const struct backend_info *info = &shard_state_unit(s)->info;
        n += info->state_bytes + (g->rows.max > 0 ? 0 : info->whole_bytes);
        for (size_t i = 0; i < s->n_past; i++) {
            n += (uint64_t)s->past[i].heads * g->b->context * s->past[i].dim *
                 2;
        }
        if (g->rows.max == 0) {
            n += tails_base_bytes(s->tail_ports, s->n_tails) +
                 (g->b->context / STATE_BLOCK + 1) *
                     tails_each_bytes(s->tail_ports, s->n_tails);
        }
    }
    return n;
}

/* What a sequence costs by its length, where all its states grow. */
static void growth(const struct engine *g, struct msg_ready *ret)
{
    uint64_t base = TOKENS_PAGE;
    uint64_t block = STATE_BLOCK * sizeof(int32_t);
    bool grows = g->rows.max > 0;
    for (size_t k = 0; k < g->n_shards; k++) {
        const struct shard *s = &g->shards[k];
        const struct backend_info *info = &shard_state_unit(s)->info;
        grows = grows && s->n_past == 0 &&
                (info->n_states == 0 || info->block_bytes > 0);
        base += info->base_bytes;
        block += info->block_bytes;
    }
    ret->base_bytes = grows ? base : 0;
    ret->block_bytes = grows ? block : 0;
}

/* States and past arrays of all shards, as a saved block has them. */
static int check_arrays(const struct engine *g, struct err *e)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n_shards; i++) {
        n += g->shards[i].n_past + g->shards[i].n_tails +
             g->shards[i].units[0].info.n_states;
    }
    return n <= STATE_ARRAYS_MAX
               ? 0
               : err_set(e, ERR_BUNDLE,
                         "%zu states and past arrays, at most %u are known", n,
                         STATE_ARRAYS_MAX);
}

void engine_set_widths(struct engine *g, bool heads)
{
    const struct msg_widths *w = heads ? &g->told.heads : &g->told.layers;
    bool any = w->n == 0 || g->told.margin > 0;
    g->conf.exact_widths = any ? NULL : w->of;
    g->conf.n_exact_widths = any ? 0 : w->n;
}

static int open_shards(struct engine *g, const struct engine_conf *conf,
                       struct err *e)
{
    g->cpu =
        (struct cpu_conf){.round_fp16 = conf->round_fp16,
                          .isa = conf->isa,
                          .any_width = conf->any_width,
                          .chosen_experts = conf->chosen_experts,
                          .once = conf->once,
                          .tap = conf->tap,
                          .tap_ctx = conf->tap_ctx};
    g->conf = (struct backend_conf){.threads = conf->threads,
                                    .watch = conf->watch,
                                    .cache = g->told.cache,
                                    .cpu = &g->cpu};
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
        engine_set_widths(g, i >= b->n_shards);
        if (i < b->n_shards) {
            s = &g->shards[g->n_shards++];
            rc = shard_open(s, g->be, &g->conf, b, &b->shards[i], e);
        } else {
            s = &g->heads[g->n_heads++];
            rc = head_open(s, g->be, &g->conf, b, &b->heads[i - b->n_shards], e);
        }
        if (rc < 0) {
            return rc;
        }
        /* functions of one package share its weights */
        g->weight_bytes += s->units[0].info.weight_bytes;
        if (conf->progress != NULL) {
            conf->progress(conf->ctx, ENGINE_LOADS, i + 1, total);
        }
    }
    for (size_t i = 0; i < g->n_shards; i++) {
        g->recurrent = g->recurrent || g->shards[i].n_tails > 0;
    }
    return 0;
}

static const struct shard *any_shard(const struct engine *g, size_t i)
{
    return i < g->n_shards ? &g->shards[i] : &g->heads[i - g->n_shards];
}

/* One text where all packages have the same, else a hash of all. */
void engine_set_arith(struct engine *g)
{
    const char *first = g->shards[0].units[0].info.arith;
    struct sha256 h;
    uint8_t digest[SHA256_BYTES];
    char hex[SHA256_HEX];
    bool same = true;
    sha256_init(&h);
    for (size_t i = 0; i < g->n_shards + g->n_heads; i++) {
        const struct shard *s = any_shard(g, i);
        const char *arith = s->units[0].info.arith;
        same = same && s->be == g->be && strcmp(arith, first) == 0;
        sha256_add(&h, s->be->name, strlen(s->be->name) + 1);
        sha256_add(&h, arith, strlen(arith) + 1);
    }
    if (g->experts.n_on_cpu > 0) { /* which they are is not kept */
        same = false;
        sha256_add(&h, &g->experts.n_on_cpu, sizeof(g->experts.n_on_cpu));
    }
    sha256_end(&h, digest);
    sha256_hex(digest, hex);
    char widths[32] = "";
    if (!engine_exact(g)) {
        (void)snprintf(widths, sizeof(widths), ", widths mixed");
    } else if (g->rows.max == 0 && g->columns.layers.like > 0) {
        (void)snprintf(widths, sizeof(widths), ", as width %u",
                       g->columns.layers.like);
    }
    (void)snprintf(g->arith, sizeof(g->arith), "%.*s%.*s%s",
                   (int)(sizeof(g->arith) - sizeof(widths)),
                   same ? first : "mixed ", same ? 0 : 16, hex, widths);
}

static int make_scratch(struct engine *g, struct err *e)
{
    g->evals = calloc(ENGINE_SEQS_MAX, sizeof(*g->evals));
    g->steps = calloc(ENGINE_SEQS_MAX, sizeof(*g->steps));
    if (g->evals == NULL || g->steps == NULL) {
        return err_set(e, ERR_NOMEM, "engine");
    }
    g->samplers = calloc(g->threads, sizeof(*g->samplers));
    if (g->samplers == NULL) {
        return err_set(e, ERR_NOMEM, "engine");
    }
    for (unsigned i = 0; i < g->threads; i++) {
        RETERR(sampler_new(g->b->vocab, &g->samplers[i], e));
    }
    RETERR(rows_init(g, e));
    return g->rows.max == 0 ? columns_init(g, e) : 0;
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
    crew_ref();
    g->be = be;
    g->told = *conf;
    if (conf->cache != NULL) {
        (void)snprintf(g->cache, sizeof(g->cache), "%s", conf->cache);
        g->told.cache = g->cache;
    }
    g->threads = crew_threads(conf->threads);
    g->draw_min = DRAW_MIN;
    list_init(&g->seqs);
    list_init(&g->constraints);
    rc = bundle_open(bundle_dir, &g->b, e);
    if (rc < 0) {
        goto out;
    }
    rc = bundle_want_kind(g->b, BUNDLE_DECODER, e);
    if (rc < 0) {
        goto out;
    }
    rc = tables_open(&g->tables, g->b, e);
    if (rc < 0) {
        goto out;
    }
    g->row_out = g->b->argmax ? TOP_NUMBERS : g->b->vocab;
    if (g->b->argmax) { /* no lead to hold against it: only agreeing widths */
        g->told.margin = 0;
    }
    g->weight_bytes = g->tables.embed.n + g->tables.ple.n;
    rc = open_shards(g, conf, e);
    if (rc < 0) {
        goto out;
    }
    rc = experts_open(g, e);
    if (rc < 0) {
        goto out;
    }
    rc = hand_open(g, e);
    if (rc < 0) {
        goto out;
    }
    rc = check_arrays(g, e);
    if (rc < 0) {
        goto out;
    }
    rc = make_scratch(g, e);
    if (rc < 0) {
        goto out;
    }
    engine_set_arith(g);
    rc = g->rows.max == 0 ? columns_warm(g, e) : 0;
    if (rc < 0) {
        goto out;
    }
    g->state_bytes = seq_bytes(g);
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
    experts_close(g);
    columns_fini(g);
    constrain_close(g);
    pool_close(g);
    for (size_t i = 0; i < g->n_shards; i++) {
        shard_close(&g->shards[i]);
    }
    for (size_t i = 0; i < g->n_heads; i++) {
        shard_close(&g->heads[i]);
    }
    hand_close(g);
    rows_fini(&g->rows);
    inputs_fini(&g->in);
    for (unsigned i = 0; g->samplers != NULL && i < g->threads; i++) {
        sampler_free(g->samplers[i]);
    }
    free(g->samplers);
    crew_unref();
    tables_close(&g->tables);
    bundle_close(g->b);
    free(g->shards);
    free(g->heads);
    free(g->evals);
    free(g->steps);
    free(g->logits);
    free(g->tops);
    free(g);
}

void engine_ready(const struct engine *g, struct msg_ready *ret)
{
    bool rows = g->rows.max > 0;
    *ret = (struct msg_ready){
        .t_max = rows ? g->rows.max : g->columns.layers.rows,
        .batch_max = rows ? g->rows.max : ENGINE_STEP_ROWS_MAX,
        .seqs_max = ENGINE_SEQS_MAX,
        .context = g->b->context,
        .short_max = bundle_short_max(g->b),
        .vocab = g->b->vocab,
        .weight_bytes = g->weight_bytes,
        .state_bytes = g->state_bytes,
    };
    growth(g, ret);
    ret->exact = engine_exact(g);
    ret->recurrent = g->recurrent;
    memcpy(ret->arith, g->arith, sizeof(ret->arith));
}

bool engine_exact(const struct engine *g)
{
    return g->rows.max > 0 ||
           (g->columns.layers.exact && g->columns.tops.exact);
}

const char *engine_arith(const struct engine *g)
{
    return g->arith;
}

bool engine_event(struct engine *g, struct engine_event *ret)
{
    if (g->n_events == 0) {
        return false;
    }
    *ret = g->events[0];
    g->n_events--;
    memmove(g->events, g->events + 1, g->n_events * sizeof(g->events[0]));
    return true;
}

const struct bundle *engine_bundle(const struct engine *g)
{
    return g->b;
}

/* --- evaluation --- */

uint64_t now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

void spent(uint64_t *at, uint32_t *bucket)
{
    uint64_t now = now_us();
    *bucket += (uint32_t)(now - *at);
    *at = now;
}

int logits_room(struct engine *g, uint32_t rows, struct err *e)
{
    size_t need = (size_t)rows * g->row_out;
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

int check_tokens(const struct engine_seq *s, const int32_t *tokens, uint32_t n,
                 struct err *e)
{
    const struct bundle *b = s->g->b;
    if (n == 0) {
        return err_set(e, ERR_INVALID, "no tokens");
    }
    if (n > b->context - s->n) {
        return err_set(e, ERR_CONTEXT, "%u tokens after %u in a context of %u",
                       n, s->n, b->context);
    }
    if (n > seq_room(s)) {
        return err_set(e, ERR_CONFLICT,
                       "%u tokens after %u: beyond %u all are computed again, "
                       "by the long list",
                       n, s->n, bundle_short_max(b));
    }
    for (uint32_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= b->vocab) {
            return err_set(e, ERR_INVALID, "token %d of %u", tokens[i],
                           b->vocab);
        }
    }
    return 0;
}

static int run(struct eval *v, const int32_t *tokens, uint32_t chunk,
               struct engine_times *times, struct err *e)
{
    struct engine_seq *s = v->s;
    struct engine_times mine = {0};
    times = times != NULL ? times : &mine;
    if (v->want > 0 && s->g->b->argmax) {
        return err_set(e, ERR_UNSUPPORTED, MSG_ONLY_TOP ": no logits");
    }
    RETERR(check_tokens(s, tokens, v->n, e));
    memmove(s->tokens + s->n, tokens, v->n * sizeof(*tokens));
    v->e = e;
    if (s->g->rows.max > 0) {
        rows_run(s->g, v, 1, chunk, times);
    } else {
        columns_run(v, chunk, times);
    }
    s->n += v->rc == 0 ? v->n : 0;
    return v->rc;
}

int engine_eval(struct engine_seq *s, const int32_t *tokens, uint32_t n,
                uint32_t chunk, int want_logits, const float **logits,
                struct engine_times *times, struct err *e)
{
    uint32_t rows = want_logits == 0 ? 0 : want_logits == 1 ? n > 0 : n;
    struct eval v = {.s = s, .n = n, .want = rows};
    RETERR(run(&v, tokens, chunk, times, e));
    if (logits != NULL) {
        *logits = rows > 0 ? s->g->logits : NULL;
    }
    return 0;
}

int engine_eval_rows(struct engine_seq *s, const int32_t *tokens, uint32_t n,
                     uint32_t chunk, engine_rows_fn *rows, void *ctx,
                     struct engine_times *times, struct err *e)
{
    struct eval v = {.s = s, .n = n, .want = n, .fn = rows, .ctx = ctx};
    return run(&v, tokens, chunk, times, e);
}
