/* target.c - measure, choose, see what the choice does, choose again. */
#include "convert/target/target.h"

#include <math.h>
#include <string.h>

#include "convert/target/impl.h"

/* Whole runs until the choice is as near as it gets. KLs of single matrices do
 * not quite add up; what a run shows corrects their sum, and two or three runs
 * are enough. */
#define ROUNDS 6u
/* A choice whose KL is this near to what was asked for is not improved. */
#define NEAR 0.97

struct chooser {
    const struct target_conf *conf;
    struct target *t;
    struct target_check check;
    double base;         /* KL of what is kept alone */
    double limit;        /* for the sum of KLs, in this round */
    uint8_t *best;       /* owned: `chosen` of the smallest choice that holds */
    struct target found; /* its figures; no arrays */
};

/* --- what cannot be --- */

static uint64_t least_bytes(struct target *t)
{
    (void)target_by_bytes(t, 0, false);
    return t->bytes;
}

static int refuse_bytes(const struct target_conf *conf, uint64_t least,
                        struct err *e)
{
    return err_set(e, ERR_CONVERT,
                   "the matrices cannot be %.3f MB: with the smallest form "
                   "of each they have %.3f MB, and what --quant-for and "
                   "--head-quant say is kept",
                   (double)conf->bytes / 1e6, (double)least / 1e6);
}

/* The kept matrix that costs most is what a person can change. */
static int refuse_kl(const struct chooser *c, struct err *e)
{
    const struct target_matrix *worst = NULL;
    char form[QUANT_TEXT_MAX] = "";
    for (uint32_t i = 0; i < c->t->n_matrices; i++) {
        const struct target_matrix *m = &c->t->matrices[i];
        if (m->kept && (worst == NULL || m->costs[0].kl > worst->costs[0].kl)) {
            worst = m;
        }
    }
    must(worst != NULL); /* the head */
    quant_text(worst->costs[0].spec, form);
    return err_set(e, ERR_CONVERT,
                   "KL %g cannot be reached: what is not to be chosen has "
                   "%.6f alone, most of it %s as %s; give that more bits "
                   "(--head-quant, --quant-for), or a larger --target-kl",
                   c->conf->kl, c->base, worst->tensor, form);
}

/* --- rounds --- */

static int run_choice(struct chooser *c, struct err *e)
{
    struct target *t = c->t;
    double plain = target_sum(t, false);
    double left = target_sum(t, true);
    RETERR(target_check_run(&c->check, t, false, &t->measured, e));
    t->positions = c->check.positions;
    t->rounds++;
    t->expected = t->measured;
    if (c->conf->feedback && plain > 0) {
        t->expected *= left / plain;
    }
    return 0;
}

static void keep_choice(struct chooser *c)
{
    for (uint32_t i = 0; i < c->t->n_matrices; i++) {
        c->best[i] = (uint8_t)c->t->matrices[i].chosen;
    }
    c->found = *c->t;
}

static bool is_kept_choice(const struct chooser *c)
{
    for (uint32_t i = 0; i < c->t->n_matrices; i++) {
        if (c->best[i] != c->t->matrices[i].chosen) {
            return false;
        }
    }
    return true;
}

static void take_choice(struct chooser *c)
{
    struct target *t = c->t;
    for (uint32_t i = 0; i < t->n_matrices; i++) {
        t->matrices[i].chosen = c->best[i];
    }
    t->bytes = c->found.bytes;
    t->sum = c->found.sum;
    t->measured = c->found.measured;
    t->expected = c->found.expected;
    t->positions = c->found.positions;
}

/* Every matrix that may be chosen in its best form: it holds when anything
 * does. */
static int begin_kl(struct chooser *c, struct err *e)
{
    RETERR(target_check_run(&c->check, c->t, true, &c->base, e));
    if (!(c->base <= c->conf->kl)) {
        return refuse_kl(c, e);
    }
    (void)target_by_kl(c->t, 0, c->conf->feedback);
    RETERR(run_choice(c, e));
    if (!(c->t->expected <= c->conf->kl)) {
        return refuse_kl(c, e);
    }
    keep_choice(c);
    return 0;
}

static int choose_kl(struct chooser *c, struct err *e)
{
    double want = c->conf->kl;
    RETERR(begin_kl(c, e));
    c->limit = want;
    while (c->t->rounds < ROUNDS) {
        (void)target_by_kl(c->t, c->limit, c->conf->feedback);
        if (is_kept_choice(c)) {
            break;
        }
        RETERR(run_choice(c, e));
        bool holds = c->t->expected <= want;
        if (holds && c->t->bytes < c->found.bytes) {
            keep_choice(c);
        }
        if (holds && c->t->expected >= NEAR * want) {
            break;
        }
        double sum = target_sum(c->t, c->conf->feedback);
        double ratio = c->t->expected > 0 ? sum / c->t->expected : 1;
        c->limit = want * ratio * (holds ? 0.995 : 0.985);
    }
    take_choice(c);
    return 0;
}

static int choose(struct chooser *c, const struct decoder *d,
                  struct target_place *places, struct err *e)
{
    const struct target_conf *conf = c->conf;
    struct progress *progress = conf->weights->progress;
    if (progress != NULL) {
        RETERR(progress_stage(
            progress, "choosing",
            reference_bytes(d) * (conf->bytes > 0 ? 2 : ROUNDS + 2), e));
    }
    c->check = (struct target_check){.d = d, .conf = conf, .places = places};
    RETERR(target_check_open(&c->check, e));
    if (conf->bytes == 0) {
        return choose_kl(c, e);
    }
    (void)target_by_bytes(c->t, conf->bytes, conf->feedback);
    return run_choice(c, e);
}

/* --- all of it --- */

/* Bytes of the source that target_params reads. */
static uint64_t params_work(const struct decoder *d, const struct target *t)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < t->n_matrices; i++) {
        const struct gguf_tensor *g =
            gguf_tensor(d->source, t->matrices[i].tensor);
        n += g != NULL ? g->bytes * t->matrices[i].n_costs : 0;
    }
    return n;
}

int target_choose(const struct decoder *d, const struct target_conf *conf,
                  struct target *t, struct err *e)
{
    struct target_place *places = NULL;
    struct weights w = *conf->weights;
    struct chooser c = {.conf = conf, .t = t};
    int rc = 0;
    const struct target_text *text = &conf->text;
    must(text->columns > 0 && text->given > 0 && text->sequences > 0 &&
         text->sequences * text->columns <= REFERENCE_TOKENS_MAX);
    uint64_t least = least_bytes(t);
    if (conf->bytes > 0 && least > conf->bytes) {
        return refuse_bytes(conf, least, e);
    }
    RETERR(target_places(d, t, &places, e));
    c.best = calloc(t->n_matrices, sizeof(*c.best));
    if (c.best == NULL) {
        rc = err_set(e, ERR_NOMEM, "a choice of %u matrices", t->n_matrices);
        goto out;
    }
    if (w.progress != NULL) {
        CHECK(progress_stage(w.progress, "choosing", params_work(d, t), e));
    }
    CHECK(target_params(t, places, &w, e));
    CHECK(target_measure(d, conf, t, places, e));
    CHECK(choose(&c, d, places, e));
    target_pick(t);
out:
    target_check_close(&c.check);
    target_places_free(places, t->n_matrices);
    free(c.best);
    return rc;
}
