/* run.c - the rungs that run the packages op by op: the text in one prediction,
 * then its end in chunks and row by row. */
#include <string.h>

#include "base/num.h"
#include "base/parse.h"
#include "convert/quality/impl.h"

/* --- program --- */

/* "layers_3_residual" -> 3, when it is the stream after a layer; "before_residual"
 * -> -1, where the shard begins with what comes behind a layer's experts. */
static bool is_stream(const char *op, int64_t *ret)
{
    static const char *const tails[] = {"_residual", "_residual_ple",
                                        "_scaled"};
    uint64_t layer = 0;
    const char *tail = strncmp(op, "before_", 7) == 0 ? op + 6
                       : strncmp(op, "layers_", 7) == 0
                           ? parse_digits(op + 7, MODEL_LAYERS_MAX, &layer)
                           : NULL;
    *ret = tail == op + 6 ? -1 : (int64_t)layer;
    for (size_t i = 0; tail != NULL && i < countof(tails); i++) {
        if (strcmp(tail, tails[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Of a run, what its layers take: by the bytes of their weights. */
static double layers_share(const struct ladder *r)
{
    return (double)reference_layers_bytes(r->d, 0, r->d->n_layers) /
           (double)reference_bytes(r->d);
}

/* Keep what a layer gave: (d_model, t) at v. */
static void on_result(void *ctx, const char *op, const float *v, size_t n)
{
    struct ladder *r = ctx;
    size_t d = r->d->d_model;
    int64_t at = 0;
    bool last = strcmp(op, "hidden") == 0;
    ladder_tick(r, 0);
    if (!r->tapping || n % d != 0 || (!last && !is_stream(op, &at))) {
        return;
    }
    const struct bundle_shard *s = &r->b->shards[r->shard];
    if (last && bundle_routes(r->b, s)) { /* the layer has not ended */
        r->shard++;
        return;
    }
    uint64_t layer = last ? s->last - 1u : (uint64_t)((int64_t)s->first + at);
    if (layer == r->seen) {
        r->seen++;
        ladder_tick(r, (uint64_t)(layers_share(r) * (double)r->all /
                                  r->d->n_layers));
    }
    size_t t = n / d;
    size_t some = num_min(t, r->n - r->pos);
    for (size_t i = 0; layer < r->d->n_layers && i < d; i++) {
        memcpy(r->got[layer] + i * r->n + r->pos, v + i * t, some * sizeof(*v));
    }
    if (last && ++r->shard == r->b->n_shards) {
        r->shard = 0;
        r->pos += (uint32_t)some;
        r->tapping = r->pos < r->n;
    }
}

/* Rows of logits against r->to, whose first is row `first` of the text. */
static int on_labels(void *ctx, uint32_t first, uint32_t n,
                     const float *logits, struct err *e)
{
    struct ladder *r = ctx;
    size_t wide = r->wide;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = first + i;
        const float *got = logits + (size_t)i * wide;
        compare_logits(&r->sum, r->to + (size_t)row * wide, got);
        if (r->to == r->logits && row + CHUNKS >= r->n) {
            memcpy(r->last + (size_t)(row + CHUNKS - r->n) * wide, got,
                   wide * sizeof(*got));
        }
    }
    return ladder_rows(r, n, e);
}

static int on_rows(void *ctx, uint32_t first, uint32_t n, float *logits,
                   struct err *e)
{
    return on_labels(ctx, first, n, logits, e);
}

int open_candidate(struct ladder *r, struct err *e)
{
    const struct engine_conf conf = {.backend = "interpreter",
                                     .threads = r->conf->threads,
                                     .round_fp16 = true,
                                     .any_width = true,
                                     .chosen_experts = true,
                                     .once = true,
                                     .tap = on_result,
                                     .tap_ctx = r};
    if (r->b->encoder) {
        return encoder_open(r->dir, &conf, &r->t, e);
    }
    RETERR(engine_open(r->dir, &conf, &r->g, e));
    RETERR(engine_seq_open(r->g, &r->s, e));
    return engine_seq_expect(r->s, r->n, e);
}

static int run_text(struct ladder *r, struct err *e)
{
    const struct encoder_run run = {
        .tokens = r->tokens, .n = r->n, .fn = on_labels, .ctx = r};
    return r->t != NULL ? encoder_run(r->t, &run, e)
                        : engine_eval_rows(r->s, r->tokens, r->n, 0, on_rows, r,
                                           NULL, e);
}

int rung_program(struct ladder *r, struct err *e)
{
    struct quality *q = r->q;
    compare_begin(&r->sum, &q->program, r->wide);
    r->sum.stream = bundle_kind(r->b) == BUNDLE_EMBEDDER;
    r->sum.kl = q->kl;
    r->sum.cosine = q->cosine;
    r->to = r->logits;
    r->row = (1 - layers_share(r)) * (double)r->all / r->n;
    r->tapping = true;
    RETERR(run_text(r, e));
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
    r->row = (double)r->all / 2 / n;
    RETERR(engine_eval_rows(r->s, r->tokens + from, n, width, on_rows, r, NULL,
                            e));
    compare_end(&r->sum);
    return 0;
}

static void not_run(struct quality_result *r, const char *why)
{
    r->verdict = "not run";
    (void)snprintf(r->detail, sizeof(r->detail), "%s", why);
}

/* Of an encoder: how longer texts are read. */
static void tell_windows(struct ladder *r)
{
    char text[160];
    if (bundle_kind(r->b) == BUNDLE_EMBEDDER) {
        not_run(&r->q->exactness, "an encoder writes no tokens; a text is read "
                                  "at once");
        return;
    }
    struct encoder_plan p = encoder_plan(r->t, TAGS_TOKENS_MAX);
    (void)snprintf(text, sizeof(text),
                   "an encoder writes no tokens; longer texts in windows of %u "
                   "with %u on each side: %s",
                   p.rows, p.side,
                   p.exact ? "as the whole text"
                           : "approximate at the seams, its layers reach "
                             "farther");
    not_run(&r->q->exactness, text);
}

int rung_widths(struct ladder *r, struct err *e)
{
    struct quality *q = r->q;
    if (r->t != NULL) {
        not_run(&q->rungs[RUNG_STEPS], "an encoder reads a text at once");
        not_run(&q->rungs[RUNG_CHUNKS], "an encoder reads a text at once");
        tell_windows(r);
        return 0;
    }
    RETERR(again(r, CHUNKS, WIDTH, &q->chunks, e));
    RETERR(again(r, STEPS, 1, &q->steps, e));
    judge_same(&q->rungs[RUNG_STEPS], &q->steps);
    judge_same(&q->rungs[RUNG_CHUNKS], &q->chunks);
    return 0;
}
