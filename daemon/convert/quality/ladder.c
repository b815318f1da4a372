/* ladder.c - the rungs, from the ground up. When one fails, those above it do
 * not run: they would fail for its reason.
 *
 *   source --reference_run--> hidden of each layer, logits       (fp32)
 *   bundle --engine, interpreter, rounded--> tapped results, logits
 *
 * The interpreter takes any number of rows, so the text is one prediction of a
 * ranged program; programs of fixed rows run it in pieces.
 */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/half.h"
#include "base/hash.h"
#include "base/num.h"
#include "base/parse.h"
#include "convert/quality/impl.h"
#include "engine/engine.h"
#include "mil/mil.h"
#include "model/chat.h"
#include "model/tokenizer.h"

#define STEPS  8u  /* last positions that run one by one */
#define CHUNKS 16u /* and in chunks */
#define WIDTH  4u  /* of the chunks: what packages declare */

struct ladder {
    const char *dir;
    const struct decoder *d;
    const struct quality_conf *conf;
    struct quality *q;
    struct bundle *b;
    struct engine *g;
    struct engine_seq *s;
    int32_t tokens[QUALITY_TOKENS];
    uint32_t n;
    float **want, **got; /* a layer: (d_model, n) */
    float *logits;       /* (n, vocab) of the reference */
    float *last;         /* (CHUNKS, vocab): the candidate's last rows */
    bool tapping;
    size_t shard; /* that is running */
    uint32_t pos; /* columns that ran before */
    struct logits_sum sum;
    const float *to; /* what the rows are compared with */
};

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
                    ((uint64_t)r->d->vocab +
                     2 * (uint64_t)r->d->n_layers * r->d->d_model);
    uint64_t most = num_min(QUALITY_TOKENS, r->b->context);
    return (uint32_t)num_min(most, QUALITY_BYTES_MAX / each);
}

static int make_room(struct ladder *r, struct err *e)
{
    struct quality *q = r->q;
    size_t vocab = r->d->vocab;
    RETERR(layers_new(r, &r->want, e));
    RETERR(layers_new(r, &r->got, e));
    q->n_layers = r->d->n_layers;
    q->n_tokens = r->n;
    q->layers = calloc(q->n_layers, sizeof(*q->layers));
    q->kl = calloc(r->n, sizeof(*q->kl));
    q->cosine = calloc(r->n, sizeof(*q->cosine));
    r->logits = malloc((size_t)r->n * vocab * sizeof(float));
    r->last = calloc(CHUNKS * vocab, sizeof(float));
    return q->layers != NULL && q->kl != NULL && q->cosine != NULL &&
                   r->logits != NULL && r->last != NULL
               ? 0
               : err_set(e, ERR_NOMEM, "logits of %u positions", r->n);
}

static int worked(const struct ladder *r, unsigned parts, struct err *e)
{
    return r->conf->progress != NULL
               ? progress_add(r->conf->progress,
                              reference_bytes(r->d) / 4 * parts, e)
               : 0;
}

/* --- weights --- */

static bool is_finite(const struct mil_const *c)
{
    uint64_t n = 0;
    if (c->data == NULL || !mil_type_count(&c->type, &n)) {
        return true;
    }
    if (c->type.dtype == MIL_FP16) {
        const uint16_t *h = c->data;
        for (uint64_t i = 0; i < n; i++) {
            if ((h[i] & 0x7c00u) == 0x7c00u) {
                return false;
            }
        }
    } else if (c->type.dtype == MIL_FP32) {
        const float *f = c->data;
        for (uint64_t i = 0; i < n; i++) {
            if (!(fabsf(f[i]) < INFINITY)) {
                return false;
            }
        }
    }
    return true;
}

static bool op_is_finite(const struct mil_op *op)
{
    for (size_t i = 0; i < op->n_attrs; i++) {
        if (op->attrs[i].val != NULL && !is_finite(op->attrs[i].val)) {
            return false;
        }
    }
    return true;
}

static int check_package(struct ladder *r, const char *package, struct err *e)
{
    struct quality_result *w = &r->q->rungs[RUNG_WEIGHTS];
    char path[2048];
    struct mil_program *p = NULL;
    int rc = 0;
    if (!file_join(path, sizeof(path), r->dir, package)) {
        return err_set(e, ERR_INVALID, "%s: the path is too long", package);
    }
    CHECK(mil_read(path, &p, e));
    for (size_t f = 0; f < p->n_functions && w->verdict == NULL; f++) {
        const struct mil_block *b = p->functions[f]->body;
        for (size_t i = 0; i < b->n_ops && w->verdict == NULL; i++) {
            if (!op_is_finite(b->ops[i])) {
                quality_fail(w, "%s: %s holds what is not a number", package,
                             b->ops[i]->n_outputs > 0 ? b->ops[i]->outputs[0]->name : b->ops[i]->type);
            }
        }
    }
out:
    mil_free(p);
    return rc;
}

static int rung_weights(struct ladder *r, struct err *e)
{
    const struct bundle *b = r->b;
    struct quality_result *w = &r->q->rungs[RUNG_WEIGHTS];
    size_t n = b->n_shards + b->n_heads_shards;
    for (size_t i = 0; i < n && w->verdict == NULL; i++) {
        RETERR(check_package(r, i < b->n_shards ? b->shards[i].path
                                                : b->heads[i - b->n_shards].path,
                             e));
    }
    if (w->verdict == NULL) {
        quality_pass(w, "%zu packages", n);
    }
    return 0;
}

/* --- program --- */

static void on_layer(void *ctx, uint32_t l, const float *x, size_t stride)
{
    struct ladder *r = ctx;
    for (size_t i = 0; i < r->d->d_model; i++) {
        memcpy(r->want[l] + i * r->n, x + i * stride, r->n * sizeof(*x));
    }
}

/* "layers_3_residual" -> 3, when it is the stream after a layer. */
static bool is_stream(const char *op, uint64_t *layer)
{
    static const char *const tails[] = {"_residual", "_residual_ple",
                                        "_scaled"};
    if (strncmp(op, "layers_", 7) != 0) {
        return false;
    }
    const char *tail = parse_digits(op + 7, MODEL_LAYERS_MAX, layer);
    for (size_t i = 0; tail != NULL && i < countof(tails); i++) {
        if (strcmp(tail, tails[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Keep what a layer gave: (d_model, t) at v. */
static void on_result(void *ctx, const char *op, const float *v, size_t n)
{
    struct ladder *r = ctx;
    size_t d = r->d->d_model;
    uint64_t layer = 0;
    bool last = strcmp(op, "hidden") == 0;
    if (!r->tapping || n % d != 0 || (!last && !is_stream(op, &layer))) {
        return;
    }
    const struct bundle_shard *s = &r->b->shards[r->shard];
    layer = last ? s->last - 1u : s->first + layer;
    size_t t = n / d;
    size_t some = num_min(t, r->n - r->pos);
    for (size_t i = 0; layer < r->d->n_layers && i < d; i++) {
        memcpy(r->got[layer] + i * r->n + r->pos, v + i * t,
               some * sizeof(*v));
    }
    if (last && ++r->shard == r->b->n_shards) {
        r->shard = 0;
        r->pos += (uint32_t)some;
        r->tapping = r->pos < r->n;
    }
}

/* Rows of logits against r->to, whose first is row `first` of the text. */
static int on_rows(void *ctx, uint32_t first, uint32_t n, float *logits,
                   struct err *e)
{
    struct ladder *r = ctx;
    size_t vocab = r->d->vocab;
    (void)e;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = first + i;
        const float *got = logits + (size_t)i * vocab;
        compare_logits(&r->sum, r->to + (size_t)row * vocab, got);
        if (r->to == r->logits && row + CHUNKS >= r->n) {
            memcpy(r->last + (size_t)(row + CHUNKS - r->n) * vocab, got,
                   vocab * sizeof(*got));
        }
    }
    return 0;
}

static int open_candidate(struct ladder *r, struct err *e)
{
    const struct engine_conf conf = {.backend = "interpreter",
                                     .threads = r->conf->threads,
                                     .round_fp16 = true,
                                     .any_width = true,
                                     .tap = on_result,
                                     .tap_ctx = r};
    RETERR(engine_open(r->dir, &conf, &r->g, e));
    return engine_seq_open(r->g, &r->s, e);
}

static int rung_program(struct ladder *r, struct err *e)
{
    struct quality *q = r->q;
    compare_begin(&r->sum, &q->program, r->d->vocab);
    r->sum.kl = q->kl;
    r->sum.cosine = q->cosine;
    r->to = r->logits;
    r->tapping = true;
    RETERR(engine_eval_rows(r->s, r->tokens, r->n, 0, on_rows, r, NULL, e));
    r->tapping = false;
    compare_end(&r->sum);
    for (uint32_t l = 0; l < r->d->n_layers; l++) {
        const struct columns_pair p = {.a = r->want[l],
                                       .b = r->got[l],
                                       .lda = r->n,
                                       .ldb = r->n,
                                       .rows = r->d->d_model,
                                       .scale = 1.0f / r->b->residual_scale};
        compare_layer(&p, r->n, &q->layers[l]);
    }
    judge_program(q, r->b);
    return 0;
}

/* --- steps and chunks --- */

/* The last n positions again, in chunks of `width`, over the same states. */
static int again(struct ladder *r, uint32_t n, uint32_t width,
                 struct quality_logits *ret, struct err *e)
{
    uint32_t from = r->n - n;
    RETERR(engine_seq_truncate(r->s, from, e));
    compare_begin(&r->sum, ret, r->d->vocab);
    r->to = r->last + (size_t)(CHUNKS - n) * r->d->vocab;
    RETERR(engine_eval_rows(r->s, r->tokens + from, n, width, on_rows, r, NULL,
                            e));
    compare_end(&r->sum);
    return 0;
}

static int rung_widths(struct ladder *r, struct err *e)
{
    struct quality *q = r->q;
    RETERR(again(r, CHUNKS, WIDTH, &q->chunks, e));
    RETERR(again(r, STEPS, 1, &q->steps, e));
    judge_same(&q->rungs[RUNG_STEPS], &q->steps);
    judge_same(&q->rungs[RUNG_CHUNKS], &q->chunks);
    return 0;
}

/* --- prompt --- */

/* Text to ids and back. False: *w has the reason. */
static bool text_returns(const struct tokenizer *t, struct quality_result *w)
{
    int32_t *ids = NULL;
    size_t n = 0;
    struct buf b;
    struct err e = {0};
    buf_init(&b, MIB(1));
    bool ok = tokenizer_encode(t, quality_text, strlen(quality_text), false,
                               &ids, &n, &e) == 0;
    if (ok) {
        tokenizer_decode(t, ids, n, false, &b);
        ok = buf_ok(&b) && b.n == strlen(quality_text) &&
             memcmp(b.p, quality_text, b.n) == 0;
    }
    if (!ok) {
        quality_fail(w, "text of %zu bytes comes back from %zu ids as another",
                     strlen(quality_text), n);
    }
    free(ids);
    buf_fini(&b);
    return ok;
}

/* A template makes a prompt; having none is fine. */
static bool template_renders(const struct tokenizer *t,
                             struct quality_result *w)
{
    static const struct chat_message one = {"user", "Hello", 5};
    const char *tmpl = tokenizer_template(t);
    struct err e = {0};
    struct buf b;
    if (tmpl == NULL) {
        quality_pass(w, "text comes back; there is no chat template");
        return true;
    }
    buf_init(&b, MIB(1));
    int rc = chat_render_at(tmpl, "<bos>", "<eos>", &one, 1, true, 0, &b, &e);
    bool ok = rc == 0 && b.n > 0 && memmem(b.p, b.n, "Hello", 5) != NULL;
    if (ok) {
        quality_pass(w, "text comes back; the chat template gives a prompt");
    } else {
        quality_fail(w, "the chat template gives no prompt: %s",
                     rc < 0 ? e.msg : "the message is not in it");
    }
    buf_fini(&b);
    return ok;
}

static void rung_prompt(struct ladder *r)
{
    struct quality_result *w = &r->q->rungs[RUNG_PROMPT];
    struct tokenizer *t = NULL;
    char path[2048];
    struct err e = {0};
    if (!file_join(path, sizeof(path), r->dir, r->b->tokenizer_file) ||
        tokenizer_open(path, &t, &e) < 0) {
        w->verdict = "not run";
        (void)snprintf(w->detail, sizeof(w->detail), "no text: %.300s", e.msg);
        return;
    }
    if (text_returns(t, w)) {
        (void)template_renders(t, w);
    }
    tokenizer_close(t);
}

/* --- exactness --- */

struct bits {
    uint64_t *of; /* a row */
    size_t vocab;
    uint32_t first, differ; /* row of the text; rows with other bits */
    bool compare;
};

static int on_bits(void *ctx, uint32_t first, uint32_t n, float *logits,
                   struct err *e)
{
    struct bits *b = ctx;
    (void)e;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t h =
            hash_bulk(logits + (size_t)i * b->vocab, b->vocab * sizeof(float));
        uint64_t *at = &b->of[b->first + first + i];
        b->differ += b->compare && *at != h ? 1 : 0;
        *at = h;
    }
    return 0;
}

/* The text in chunks of several sizes, and its end row by row. */
static int run_chunks(struct ladder *r, struct engine_seq *s, struct bits *b,
                      struct err *e)
{
    static const uint32_t sizes[] = {0, 64, 7};
    for (size_t i = 0; i < countof(sizes); i++) {
        b->compare = i > 0;
        b->first = 0;
        RETERR(engine_seq_truncate(s, 0, e));
        RETERR(engine_eval_rows(s, r->tokens, r->n, sizes[i], on_bits, b, NULL,
                                e));
        if (b->differ > 0) {
            quality_fail(&r->q->exactness,
                         "chunks of %u rows: %u of %u positions have other "
                         "bits than in chunks of as many as fit",
                         sizes[i], b->differ, r->n);
            return 0;
        }
    }
    b->first = r->n - STEPS;
    RETERR(engine_seq_truncate(s, b->first, e));
    RETERR(engine_eval_rows(s, r->tokens + b->first, STEPS, 1, on_bits, b, NULL,
                            e));
    if (b->differ > 0) {
        quality_fail(&r->q->exactness,
                     "rows one by one: %u of %u positions have other bits",
                     b->differ, STEPS);
    } else {
        quality_pass(&r->q->exactness,
                     "%u positions: the same bits in chunks of any size", r->n);
    }
    return 0;
}

static int rung_exactness(struct ladder *r, struct err *e)
{
    const struct engine_conf conf = {.backend = "cpu",
                                     .threads = r->conf->threads};
    struct engine *g = NULL;
    struct engine_seq *s = NULL;
    struct bits b = {.vocab = r->d->vocab};
    int rc = 0;
    b.of = calloc(r->n, sizeof(*b.of));
    if (b.of == NULL) {
        return err_set(e, ERR_NOMEM, "no memory");
    }
    CHECK(engine_open(r->dir, &conf, &g, e));
    CHECK(engine_seq_open(g, &s, e));
    CHECK(run_chunks(r, s, &b, e));
out:
    engine_seq_close(s);
    engine_close(g);
    free(b.of);
    return rc;
}

/* --- all --- */

static bool passed(const struct quality *q, enum quality_rung rung)
{
    const char *v = q->rungs[rung].verdict;
    return v != NULL && strcmp(v, "passed") == 0;
}

/* A bundle that cannot run says why in the rung that it stopped. */
static int candidate(struct ladder *r, struct err *e)
{
    struct quality *q = r->q;
    struct err why = {0};
    int rc = rung_weights(r, &why);
    if (rc == 0 && passed(q, RUNG_WEIGHTS)) {
        rc = open_candidate(r, &why);
        rc = rc == 0 ? rung_program(r, &why) : rc;
        RETERR(worked(r, 8, e));
    }
    if (rc == 0 && passed(q, RUNG_PROGRAM)) {
        rc = rung_widths(r, &why);
        RETERR(worked(r, 2, e));
    }
    engine_seq_close(r->s);
    engine_close(r->g);
    r->s = NULL;
    r->g = NULL;
    drop_room(r); /* the rest runs another engine */
    if (rc == 0) {
        rung_prompt(r);
        rc = rung_exactness(r, &why);
        RETERR(worked(r, 2, e));
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

static int measure(struct ladder *r, struct err *e)
{
    char vocab[2048];
    const struct reference_conf ref = {.threads = r->conf->threads,
                                       .progress = r->conf->progress,
                                       .layer = on_layer,
                                       .ctx = r};
    RETERR(bundle_open(r->dir, &r->b, e));
    RETERR(quality_bars(r->b->quant, &r->q->bars, e));
    if (r->q->bars.target > 0 && r->b->target.kl > 0) {
        r->q->bars.kl = r->b->target.kl * r->q->bars.target;
    }
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
    engine_seq_close(r.s);
    engine_close(r.g);
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
    free(q->kl);
    free(q->cosine);
    *q = (struct quality){0};
}

/* The reference once, and what candidate() adds. */
uint64_t quality_work(const struct decoder *d)
{
    return reference_bytes(d) + reference_bytes(d) / 4 * 12;
}
