/* tags.c - the quality of an encoder: its labels' logits of the text in one
 * window, op by op with every result rounded to fp16, against the reference. */
#include "base/file.h"
#include "convert/quality/impl.h"
#include "engine/encode.h"

struct tags {
    const float *want; /* (n, labels) */
    size_t labels;
    struct logits_sum sum;
};

static int on_rows(void *ctx, uint32_t first, uint32_t n, const float *logits,
                   struct err *e)
{
    struct tags *t = ctx;
    (void)e;
    for (uint32_t i = 0; i < n; i++) {
        compare_logits(&t->sum, t->want + (first + i) * t->labels,
                       logits + i * t->labels);
    }
    return 0;
}

/* What the bundle gives, and the bars that it is held against. */
static int candidate(const char *dir, const struct quality_conf *conf,
                     const int32_t *tokens, uint32_t n, struct tags *t,
                     struct quality_bars *bars, struct err *e)
{
    struct encoder *g = NULL;
    const struct engine_conf c = {.backend = "interpreter",
                                  .threads = conf->threads,
                                  .round_fp16 = true};
    const struct encoder_run run = {
        .tokens = tokens, .n = n, .fn = on_rows, .ctx = t};
    int rc = 0;
    CHECK(encoder_open(dir, &c, &g, e));
    CHECK(quality_bars(encoder_bundle(g)->quant,
                       encoder_bundle(g)->layers[0].n_experts > 0, bars, e));
    CHECK(encoder_run(g, &run, e));
out:
    encoder_close(g);
    return rc;
}

static void judge(const struct quality_logits *l,
                  const struct quality_bars *bars, struct quality_result *ret)
{
    if (!(l->kl_mean <= bars->kl)) { /* NaN too */
        quality_fail(ret, "the labels' KL is %.3g nats, at most %.3g: %s",
                     l->kl_mean, bars->kl, bars->reason);
    } else if (!(l->argmax >= bars->argmax)) {
        quality_fail(ret, "%.1f %% of clear labels are the reference's, at "
                          "least %.1f: %s",
                     l->argmax * 100, bars->argmax * 100, bars->reason);
    } else {
        quality_pass(ret, "labels of %u tokens: KL %.3g nats, %.1f %% of %u "
                          "clear ones the same",
                     l->n, l->kl_mean, l->argmax * 100, l->n_clear);
    }
}

int quality_tags(const char *dir, const struct decoder *d,
                 const struct quality_conf *conf, struct quality_result *ret,
                 struct err *e)
{
    int32_t tokens[QUALITY_TOKENS] = {0};
    char vocab[2048];
    struct quality_logits l = {0};
    struct quality_bars bars = {0};
    struct tags t = {.labels = d->n_labels};
    if (!file_join(vocab, sizeof(vocab), dir, "tokenizer.gguf")) {
        return err_set(e, ERR_INVALID, "the path of the bundle is too long");
    }
    uint32_t n = quality_tokens(d->source, vocab, d->vocab, tokens,
                                QUALITY_TOKENS, NULL);
    float *want = malloc((size_t)n * d->n_labels * sizeof(*want));
    if (want == NULL) {
        return err_set(e, ERR_NOMEM, "no memory for the labels' logits");
    }
    const struct reference_conf rc_conf = {.threads = conf->threads,
                                           .progress = conf->progress};
    int rc = 0;
    CHECK(reference_run(d, &rc_conf, tokens, n, want, e));
    t.want = want;
    compare_begin(&t.sum, &l, d->n_labels);
    rc = candidate(dir, conf, tokens, n, &t, &bars, e);
    if (rc == ERR_CANCELLED || rc == ERR_NOMEM) {
        goto out;
    }
    if (rc < 0) { /* whatever the bundle is like, that is the result */
        quality_fail(ret, "%.300s", e->msg);
        rc = 0;
        goto out;
    }
    compare_end(&t.sum);
    judge(&l, &bars, ret);
out:
    free(want);
    return rc;
}
