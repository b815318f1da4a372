/* probe_margin.c - how much a width moves what is drawn: by how much the lead
 * of the likeliest token over the next changes from one width to another. A
 * lead larger than that is the same token at any width. */
#include <string.h>

#include "base/num.h"
#include "engine/probe/probe_impl.h"

/* The two likeliest tokens of each row at the first width, and the least and
 * the largest lead of the first at any. */
struct leads {
    uint32_t n;
    bool begun;
    int32_t first[PROBE_MARGIN_ROWS], second[PROBE_MARGIN_ROWS];
    double lo[PROBE_MARGIN_ROWS], hi[PROBE_MARGIN_ROWS];
};

static void find_two(const float *logits, uint32_t vocab, int32_t *first,
                     int32_t *second)
{
    *first = 0;
    *second = -1;
    for (uint32_t i = 1; i < vocab; i++) {
        if (logits[i] > logits[*first]) {
            *second = *first;
            *first = (int32_t)i;
        } else if (*second < 0 || logits[i] > logits[*second]) {
            *second = (int32_t)i;
        }
    }
}

static void take(struct leads *x, uint32_t row, const float *logits,
                 uint32_t vocab)
{
    if (!x->begun) {
        find_two(logits, vocab, &x->first[row], &x->second[row]);
    }
    if (x->second[row] < 0) {
        return; /* a vocabulary of one */
    }
    double lead =
        (double)logits[x->first[row]] - (double)logits[x->second[row]];
    x->lo[row] = !x->begun || lead < x->lo[row] ? lead : x->lo[row];
    x->hi[row] = !x->begun || lead > x->hi[row] ? lead : x->hi[row];
}

/* Whole chunks of t rows, as many as hold x->n. */
static int run_width(struct engine *g, const int32_t *tokens, uint32_t t,
                     struct leads *x, struct err *e)
{
    struct engine_seq *s = NULL;
    const float *logits = NULL;
    int rc = 0;
    CHECK(engine_seq_open(g, &s, e));
    for (uint32_t at = 0; at < x->n; at += t) {
        CHECK(engine_eval(s, tokens + at, t, t, 2, &logits, NULL, e));
        for (uint32_t i = 0; i < t && at + i < x->n; i++) {
            take(x, at + i, logits + (size_t)i * g->b->vocab, g->b->vocab);
        }
    }
    x->begun = true;
out:
    engine_seq_close(s);
    return rc;
}

static int run_widths(struct engine *g, const struct probe_conf *c,
                      const struct msg_widths *widths, struct leads *x,
                      struct err *e)
{
    int32_t tokens[PROBE_MARGIN_ROWS + ENGINE_CHUNK_MAX];
    for (size_t i = 0; i < countof(tokens); i++) {
        float v = probe_number(PROBE_MARGIN_ROWS, i); /* -1 .. 1 */
        tokens[i] = (int32_t)((v + 1) / 2 * (float)(g->b->vocab - 1));
    }
    for (uint32_t i = 0; i < widths->n; i++) {
        uint32_t t = widths->of[i];
        const struct probe_place place = {PROBE_MARGIN, "", "", t};
        if ((x->n + t - 1) / t * t > bundle_short_max(g->b)) {
            continue; /* the context, or the short list, does not reach */
        }
        int rc = c->at(c->ctx, &place, i, widths->n);
        if (rc != 0) {
            return err_set(e, rc, "%s", err_text(rc));
        }
        RETERR(run_width(g, tokens, t, x, e));
    }
    return 0;
}

int probe_margin(const char *bundle_dir, const struct probe_conf *conf,
                 const struct msg_widths *layers,
                 const struct msg_widths *heads, double *ret, struct err *e)
{
    const struct probe_place open = {PROBE_MARGIN, "", "", 0};
    const struct engine_conf ec = {.threads = conf->conf.threads,
                                   .cache = conf->conf.cache,
                                   .watch = conf->conf.watch,
                                   .layers = *layers,
                                   .heads = *heads};
    struct leads x = {0};
    struct engine *g = NULL;
    int rc = conf->at(conf->ctx, &open, 0, layers->n);
    if (rc != 0) {
        return err_set(e, rc, "%s", err_text(rc));
    }
    CHECK(engine_open_with(conf->be, bundle_dir, &ec, &g, e));
    x.n = (uint32_t)num_min(PROBE_MARGIN_ROWS, bundle_short_max(g->b));
    CHECK(run_widths(g, conf, layers, &x, e));
    *ret = 0;
    for (uint32_t i = 0; i < x.n && x.begun; i++) {
        double d = x.hi[i] - x.lo[i];
        *ret = d > *ret ? d : *ret;
    }
out:
    engine_close(g);
    return rc;
}
