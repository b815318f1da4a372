/* bars.c - what a quantisation must hold, and the verdicts. */

#include <stdarg.h>
#include <string.h>

#include "base/num.h"
#include "convert/quality/impl.h"
#include "quality_bars.h"

/* One prediction, single steps and chunks compute the same with the same
 * rounding; only the order of a sum may differ. */
#define SAME_KL     1e-3
#define SAME_COSINE 0.9999

static int read_bars(const struct json *j, struct quality_bars *b,
                     struct err *e)
{
    const char *reason = NULL;
    RETERR(json_want_str(j, "reason", true, &reason, e));
    (void)snprintf(b->reason, sizeof(b->reason), "%s", reason);
    RETERR(json_want_num(j, "cosine", true, -1, 1, &b->cosine, e));
    RETERR(json_want_num(j, "kl", true, 0, 1e3, &b->kl, e));
    RETERR(json_want_num(j, "target", false, 1, 2, &b->target, e));
    return json_want_num(j, "argmax", true, 0, 1, &b->argmax, e);
}

/* The weaker of b and what holds for every model with experts. */
static int weaken(const struct json *j, struct quality_bars *b, struct err *e)
{
    double cosine = 0;
    double kl = 0;
    double argmax = 0;
    RETERR(json_want_num(j, "cosine", true, -1, 1, &cosine, e));
    RETERR(json_want_num(j, "kl", true, 0, 1e3, &kl, e));
    RETERR(json_want_num(j, "argmax", true, 0, 1, &argmax, e));
    b->cosine = cosine < b->cosine ? cosine : b->cosine;
    b->kl = kl > b->kl ? kl : b->kl;
    b->argmax = argmax < b->argmax ? argmax : b->argmax;
    return 0;
}

int quality_bars(const char *quant, bool experts, struct quality_bars *ret,
                 struct err *e)
{
    struct json *root = NULL;
    struct quality_bars b = {0};
    bool found = false;
    size_t kind = strcspn(quant, ":"); /* "lut6:8" is a lut6 */
    int rc = json_parse(bars_json, sizeof(bars_json) - 1, &root, e);
    if (rc < 0) {
        return err_prefix(e, rc, "conf/quality.json");
    }
    (void)snprintf(b.quant, sizeof(b.quant), "%s", quant);
    for (const struct json *j = json_first(json_get(root, "bars"));
         j != NULL && !found; j = json_next(j)) {
        const char *n = json_str(json_get(j, "quant"));
        found = n != NULL && strlen(n) == kind && memcmp(n, quant, kind) == 0;
        rc = found ? read_bars(j, &b, e) : 0;
    }
    if (rc == 0 && experts) {
        rc = weaken(json_get(root, "experts"), &b, e);
    }
    json_free(root);
    if (rc == 0 && !found) {
        rc = err_set(e, ERR_INVALID, "no quality bars for quant '%.32s'",
                     quant);
    }
    *ret = rc == 0 ? b : *ret;
    return rc < 0 ? err_prefix(e, rc, "conf/quality.json") : 0;
}

void quality_fail(struct quality_result *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    r->verdict = "failed";
    (void)vsnprintf(r->detail, sizeof(r->detail), fmt, ap);
    va_end(ap);
}

void quality_pass(struct quality_result *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    r->verdict = "passed";
    (void)vsnprintf(r->detail, sizeof(r->detail), fmt, ap);
    va_end(ap);
}

static const char *program_of(const struct bundle *b, uint32_t layer)
{
    for (size_t i = 0; i < b->n_shards; i++) {
        if (layer < b->shards[i].last) {
            return b->shards[i].path;
        }
    }
    return "?";
}

void judge_program(struct quality *q, const struct bundle *b)
{
    struct quality_result *r = &q->rungs[RUNG_PROGRAM];
    const struct quality_logits *l = &q->program;
    double least = 1;
    for (uint32_t i = 0; i < q->n_layers; i++) {
        double c = q->layers[i].cosine_mean;
        if (!(c >= q->bars.cosine)) {
            quality_fail(r,
                         "layer %u of %s: cosine %.4f to the reference, at "
                         "least %.4g",
                         i, program_of(b, i), c, q->bars.cosine);
            return;
        }
        least = c < least ? c : least;
    }
    const struct bundle_target *t = &b->target;
    if (bundle_kind(b) == BUNDLE_EMBEDDER) { /* the last layer is the result */
        quality_pass(r, "mean cosine %.5f of what is pooled, least of a layer "
                        "%.4f",
                     l->cosine_mean, least);
        return;
    }
    if (t->kl > 0 && !(t->reached_kl <= t->kl * q->bars.target)) {
        quality_fail(r,
                     "on what the model writes: KL %.4f when it was converted, "
                     "%.4g was asked for",
                     t->reached_kl, t->kl);
    } else if (!(l->kl_mean <= q->bars.kl)) {
        quality_fail(r, "logits: mean KL %.4f, at most %.4g", l->kl_mean,
                     q->bars.kl);
    } else if (!(l->argmax >= q->bars.argmax)) {
        quality_fail(r,
                     "logits: the likeliest token agrees in %.3f of %u clear "
                     "positions, at least %.4g",
                     l->argmax, l->n_clear, q->bars.argmax);
    } else {
        quality_pass(r, "mean KL %.4f, argmax %.3f of %u, least cosine of a "
                        "layer %.4f",
                     l->kl_mean, l->argmax, l->n_clear, least);
    }
}

void judge_same(struct quality_result *r, const struct quality_logits *l)
{
    if (!(l->kl_mean <= SAME_KL) || !(l->cosine_min >= SAME_COSINE)) {
        quality_fail(r,
                     "%u positions: mean KL %.2g and cosine %.6f to the same "
                     "text in one prediction",
                     l->n, l->kl_mean, l->cosine_min);
    } else {
        quality_pass(r, "%u positions: mean KL %.2g", l->n, l->kl_mean);
    }
}
