/* ladder.c - the rungs, from the ground up. When one fails, those above it do
 * not run: they would fail for its reason.
 *
 *   source --reference_run--> hidden of each layer, logits       (fp32)
 *   bundle --engine, interpreter, rounded--> tapped results, logits
 *
 * The interpreter takes any number of rows, so the text is one prediction of a
 * ranged program; programs of fixed rows run it in pieces. The rungs
 * themselves: files.c, run.c, exact.c.
 */
#include <string.h>

#include "base/file.h"
#include "base/num.h"
#include "convert/quality/impl.h"

/* --- memory --- */

static int layers_new(const struct ladder *r, float ***ret, struct err *e)
{
    size_t n = (size_t)r->d->d_model * r->n;
    *ret = calloc(r->d->n_layers, sizeof(float *));
    bool ok = *ret != NULL;
    for (uint32_t l = 0; ok && l < r->d->n_layers; l++) {
        (*ret)[l] = calloc(n, sizeof(float));
        ok = (*ret)[l] != NULL;
    }
    return ok ? 0 : err_set(e, ERR_NOMEM, "the layers of %u positions", r->n);
}

static void layers_free(const struct ladder *r, float ***v)
{
    for (uint32_t l = 0; *v != NULL && l < r->d->n_layers; l++) {
        free((*v)[l]);
    }
    free(*v);
    *v = NULL;
}

static void drop_room(struct ladder *r)
{
    layers_free(r, &r->want);
    layers_free(r, &r->got);
    free(r->logits);
    free(r->last);
    r->logits = NULL;
    r->last = NULL;
}

/* Positions whose arrays stay within the limit. */
static uint32_t positions(const struct ladder *r)
{
    uint64_t each = sizeof(float) *
                    ((uint64_t)r->wide +
                     2 * (uint64_t)r->d->n_layers * r->d->d_model);
    uint64_t most = num_min(QUALITY_TOKENS, r->b->context);
    return (uint32_t)num_min(most, QUALITY_BYTES_MAX / each);
}

static int make_room(struct ladder *r, struct err *e)
{
    struct quality *q = r->q;
    RETERR(layers_new(r, &r->want, e));
    RETERR(layers_new(r, &r->got, e));
    q->n_layers = r->d->n_layers;
    q->n_tokens = r->n;
    q->layers = calloc(q->n_layers, sizeof(*q->layers));
    q->n_shards = r->b->n_shards;
    q->shards = calloc(q->n_shards, sizeof(*q->shards));
    q->kl = calloc(r->n, sizeof(*q->kl));
    q->cosine = calloc(r->n, sizeof(*q->cosine));
    r->logits = malloc((size_t)r->n * r->wide * sizeof(float));
    r->last = calloc(CHUNKS * r->wide, sizeof(float));
    for (size_t i = 0; q->shards != NULL && i < q->n_shards; i++) {
        const struct bundle_shard *s = &r->b->shards[i];
        (void)snprintf(q->shards[i].package, sizeof(q->shards[i].package), "%s",
                       s->path);
        q->shards[i].first = s->first;
        q->shards[i].last = s->last;
    }
    return q->layers != NULL && q->shards != NULL && q->kl != NULL &&
                   q->cosine != NULL && r->logits != NULL && r->last != NULL
               ? 0
               : err_set(e, ERR_NOMEM, "logits of %u positions", r->n);
}

void ladder_tick(struct ladder *r, uint64_t units)
{
    units = num_min(units, r->all - r->told);
    if (r->conf->progress != NULL && r->stopped.code == 0) {
        (void)!progress_add(r->conf->progress, units, &r->stopped);
        r->told += units;
    }
}

static void begin(struct ladder *r, unsigned parts)
{
    r->all = reference_bytes(r->d) / 4 * parts;
    r->told = 0;
}

/* What the caller answered. */
static int wanted(const struct ladder *r, struct err *e)
{
    return r->stopped.code == 0
               ? 0
               : err_set(e, r->stopped.code, "%s", r->stopped.msg);
}

int ladder_rows(struct ladder *r, uint32_t rows, struct err *e)
{
    ladder_tick(r, (uint64_t)(rows * r->row));
    return wanted(r, e);
}

/* A rung has ended. */
static int worked(struct ladder *r, struct err *e)
{
    ladder_tick(r, r->all);
    return wanted(r, e);
}

/* --- all --- */

static bool passed(const struct quality *q, enum quality_rung rung)
{
    const char *v = q->rungs[rung].verdict;
    return v != NULL && strcmp(v, "passed") == 0;
}

static void close_candidate(struct ladder *r)
{
    engine_seq_close(r->s);
    engine_close(r->g);
    encoder_close(r->t);
    r->s = NULL;
    r->g = NULL;
    r->t = NULL;
}

/* A bundle that cannot run says why in the rung that it stopped. */
static int candidate(struct ladder *r, struct err *e)
{
    struct quality *q = r->q;
    struct err why = {0};
    int rc = rung_weights(r, &why);
    if (rc == 0 && passed(q, RUNG_WEIGHTS)) {
        begin(r, PARTS_PROGRAM);
        rc = open_candidate(r, &why);
        rc = rc == 0 ? rung_program(r, &why) : rc;
        RETERR(worked(r, e));
    }
    if (rc == 0 && passed(q, RUNG_PROGRAM)) {
        begin(r, PARTS_WIDTHS);
        rc = rung_widths(r, &why);
        RETERR(worked(r, e));
    }
    close_candidate(r);
    drop_room(r); /* the rest runs another engine */
    if (rc == 0) {
        begin(r, PARTS_EXACT);
        rung_prompt(r);
        rc = r->b->encoder ? 0 : rung_exactness(r, &why);
        RETERR(worked(r, e));
    }
    if (rc == ERR_NOMEM) {
        *e = why;
        return rc;
    }
    if (rc < 0) {
        quality_fail(&q->all, "%s: %.300s", err_name(rc), why.msg);
    }
    return 0;
}

static void judge_all(struct quality *q)
{
    for (unsigned i = 0; i < RUNGS; i++) {
        struct quality_result *w = &q->rungs[i];
        if (w->verdict == NULL) {
            w->verdict = "not run";
        } else if (strcmp(w->verdict, "failed") == 0 &&
                   q->all.verdict == NULL) {
            quality_fail(&q->all, "%s: %.200s",
                         quality_rung_name((enum quality_rung)i), w->detail);
        }
    }
    if (q->exactness.verdict == NULL) {
        q->exactness.verdict = "not run";
    }
    if (q->all.verdict == NULL) {
        quality_pass(&q->all, "%.200s", q->rungs[RUNG_PROGRAM].detail);
    }
}

static void on_layer(void *ctx, uint32_t l, const float *x, size_t stride)
{
    struct ladder *r = ctx;
    for (size_t i = 0; i < r->d->d_model; i++) {
        memcpy(r->want[l] + i * r->n, x + i * stride, r->n * sizeof(*x));
    }
}

static bool has_experts(const struct bundle *b)
{
    uint32_t l = 0;
    while (l < b->n_layers && b->layers[l].n_experts == 0) {
        l++;
    }
    return l < b->n_layers;
}

static int measure(struct ladder *r, struct err *e)
{
    char vocab[2048];
    const struct reference_conf ref = {.threads = r->conf->threads,
                                       .progress = r->conf->progress,
                                       .layer = on_layer,
                                       .ctx = r};
    RETERR(bundle_open(r->dir, &r->b, e));
    r->wide = bundle_outputs(r->b);
    RETERR(quality_bars(r->b->quant, has_experts(r->b), &r->q->bars, e));
    if (!file_join(vocab, sizeof(vocab), r->dir, r->b->tokenizer_file)) {
        return err_set(e, ERR_INVALID, "the path is too long");
    }
    uint32_t most = positions(r);
    r->n = quality_tokens(r->d->source, vocab, r->d->vocab, r->tokens, most,
                          NULL);
    if (r->n < 2 * CHUNKS) {
        r->q->all.verdict = "not run";
        (void)snprintf(r->q->all.detail, sizeof(r->q->all.detail),
                       "%u positions are too few to measure", r->n);
        judge_all(r->q);
        return 0;
    }
    RETERR(make_room(r, e));
    RETERR(reference_run(r->d, &ref, r->tokens, r->n, r->logits, e));
    RETERR(candidate(r, e));
    judge_all(r->q);
    return 0;
}

int quality_measure(const char *dir, const struct decoder *d,
                    const struct quality_conf *conf, struct quality *ret,
                    struct err *e)
{
    struct ladder r = {.dir = dir, .d = d, .conf = conf, .q = ret};
    *ret = (struct quality){0};
    int rc = measure(&r, e);
    close_candidate(&r);
    drop_room(&r);
    bundle_close(r.b);
    if (rc < 0) {
        quality_fini(ret);
    }
    return rc;
}

void quality_fini(struct quality *q)
{
    free(q->layers);
    free(q->shards);
    free(q->kl);
    free(q->cosine);
    *q = (struct quality){0};
}

/* The reference once, and what candidate() adds. */
uint64_t quality_work(const struct decoder *d)
{
    return reference_bytes(d) + reference_bytes(d) / 4 *
                                    (PARTS_PROGRAM + PARTS_WIDTHS + PARTS_EXACT);
}
