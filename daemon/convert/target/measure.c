/* measure.c - what a matrix in another form does to the logits.
 *
 * The stream before each layer is kept from one run over the source. A matrix
 * then costs the layers from its own on, and the head: from the last matrix to
 * the first, because a kept run allows just that (reference.h).
 * One form of each matrix is run, the smallest, where the effect is largest.
 * The error of a form turns into KL by the square: the others' KL is that one's
 * by the ratio of their squared errors of weights. */
#include <math.h>
#include <string.h>

#include "base/crew.h"
#include "base/fmath.h"
#include "base/num.h"
#include "convert/reference/walk.h"
#include "convert/target/impl.h"

#define NONE_KL 1e9 /* of logits that are no numbers */

/* --- KL --- */

struct compare {
    struct target_truth *want;
    const float *got;
    double kl[REFERENCE_TOKENS_MAX];
};

/* log of the sum of exp. */
static double log_sum(const float *x, size_t n)
{
    double top = -(double)INFINITY;
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        top = (double)x[i] > top ? (double)x[i] : top;
    }
    for (size_t i = 0; i < n; i++) {
        sum += fmath_exp((double)x[i] - top);
    }
    return top + fmath_log(sum);
}

/* Whether the token after position t is the model's own. */
static bool counts(const struct target_truth *w, size_t t)
{
    return t % w->columns + 1 >= w->given;
}

static void on_truth(void *ctx, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct target_truth *w = ctx;
    for (size_t t = begin; t < end; t++) {
        if (counts(w, t)) {
            w->log_sum[t] = log_sum(w->logits + t * w->vocab, w->vocab);
        }
    }
}

static void truth_init(struct target_truth *w, const float *logits,
                       const struct target_text *text, uint32_t sequences,
                       size_t vocab, unsigned threads)
{
    *w = (struct target_truth){.logits = logits,
                               .n = sequences * text->columns,
                               .columns = text->columns,
                               .given = text->given,
                               .vocab = vocab,
                               .threads = threads};
    must(w->n <= REFERENCE_TOKENS_MAX);
    crew_run(threads, w->n, 1, on_truth, w);
}

static void on_positions(void *ctx, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct compare *c = ctx;
    size_t vocab = c->want->vocab;
    for (size_t t = begin; t < end; t++) {
        const float *a = c->want->logits + t * vocab;
        const float *b = c->got + t * vocab;
        if (!counts(c->want, t)) {
            continue;
        }
        double za = c->want->log_sum[t];
        double zb = log_sum(b, vocab);
        double sum = 0;
        for (size_t i = 0; i < vocab; i++) {
            double p = (double)a[i] - za;
            sum += fmath_exp(p) * (p - ((double)b[i] - zb));
        }
        c->kl[t] = !(sum < NONE_KL) ? NONE_KL : sum < 0 ? 0 : sum;
    }
}

static uint32_t counted(const struct target_truth *w)
{
    uint32_t n = 0;
    for (uint32_t t = 0; t < w->n; t++) {
        n += counts(w, t) ? 1 : 0;
    }
    return n;
}

/* The mean over positions. Each position is summed by one thread. */
static double mean_kl(struct target_truth *want, const float *got)
{
    struct compare c = {.want = want, .got = got};
    double sum = 0;
    crew_run(want->threads, want->n, 1, on_positions, &c);
    for (uint32_t t = 0; t < want->n; t++) {
        sum += c.kl[t];
    }
    return sum / counted(want);
}

/* Sequences whose logits, the source's and another's, stay within the limit of
 * a gate's arrays. */
static uint32_t fitting(const struct decoder *d, const struct target_text *text,
                        uint32_t most)
{
    uint64_t one = 2 * sizeof(float) * (uint64_t)text->columns * d->vocab;
    most = (uint32_t)num_min(most, text->sequences);
    return (uint32_t)num_max(num_min(QUALITY_BYTES_MAX / one, most), 1);
}

static int logits_new(const struct decoder *d, uint32_t n, float **ret,
                      struct err *e)
{
    *ret = malloc((size_t)n * d->vocab * sizeof(**ret));
    return *ret != NULL
               ? 0
               : err_set(e, ERR_NOMEM, "the logits of %u positions", n);
}

/* --- one matrix at a time --- */

struct runs {
    const struct decoder *d;
    const struct target_conf *conf;
    struct target *t;
    struct target_place *places;
    struct reference *r;
    struct reference_keys *keys;
    uint32_t sequences;
    size_t floats; /* of a stream */
    float *kept;   /* n_layers + 1 streams: before each layer, and the last */
    float *want, *got;
    struct target_truth truth;
};

static int runs_open(struct runs *r, const struct reference_conf *conf,
                     struct err *e)
{
    size_t stride = 0;
    const struct target_text *text = &r->conf->text;
    uint32_t n = r->sequences * text->columns;
    RETERR(reference_open(r->d, conf, r->sequences, text->columns, &r->r, e));
    RETERR(reference_keys_open(r->d, r->sequences, text->columns, false,
                               &r->keys, e));
    reference_at(r->r, r->keys, 0);
    RETERR(reference_embed(r->r, text->tokens, e));
    float *x = reference_stream(r->r, &stride);
    r->floats = reference_stream_rows(r->d) * stride;
    r->kept = malloc((r->d->n_layers + 1) * r->floats * sizeof(float));
    if (r->kept == NULL) {
        return err_set(e, ERR_NOMEM, "the streams of %u layers",
                       r->d->n_layers);
    }
    RETERR(logits_new(r->d, n, &r->want, e));
    RETERR(logits_new(r->d, n, &r->got, e));
    memcpy(r->kept, x, r->floats * sizeof(float));
    for (uint32_t l = 0; l < r->d->n_layers; l++) {
        RETERR(reference_layers(r->r, l, l + 1, e));
        memcpy(r->kept + (l + 1) * r->floats, x, r->floats * sizeof(float));
    }
    RETERR(reference_head(r->r, r->want, e));
    truth_init(&r->truth, r->want, text, r->sequences, r->d->vocab,
               r->conf->weights->threads);
    return 0;
}

/* Matrix i alone in its form f. */
static int run_one(struct runs *r, uint32_t i, unsigned f, struct err *e)
{
    struct target_place *p = &r->places[i];
    struct target_cost *c = &r->t->matrices[i].costs[f];
    size_t stride = 0;
    float *x = reference_stream(r->r, &stride);
    memcpy(x, r->kept + p->first * r->floats, r->floats * sizeof(float));
    p->now = (int)f;
    int rc = reference_layers(r->r, p->first, r->d->n_layers, e);
    rc = rc < 0 ? rc : reference_head(r->r, r->got, e);
    p->now = -1;
    if (rc == 0) {
        c->kl = mean_kl(&r->truth, r->got);
        c->measured = true;
    }
    return rc;
}

static int run_matrix(struct runs *r, uint32_t i, struct err *e)
{
    struct target_matrix *m = &r->t->matrices[i];
    const double *error = r->places[i].error;
    for (unsigned f = 0; f < m->n_costs; f++) {
        struct target_cost *c = &m->costs[f];
        if (c->spec.kind == QUANT_FP16) {
            c->kl = 0;
        } else if (f == 0 || r->conf->every_form || !(error[0] > 0)) {
            RETERR(run_one(r, i, f, e));
        } else {
            c->kl = m->costs[0].kl * (error[f] / error[0]);
        }
    }
    return 0;
}

/* Bytes that run_matrix reads, for the progress. */
static uint64_t work_of(const struct runs *r, uint32_t i)
{
    const struct part *head = arch_head(r->d);
    const struct target_matrix *m = &r->t->matrices[i];
    uint64_t n =
        head->t->row_bytes * head->rows +
        reference_layers_bytes(r->d, r->places[i].first, r->d->n_layers);
    return m->costs[0].spec.kind == QUANT_FP16 ? 0
           : r->conf->every_form               ? n * (m->n_costs - !m->kept)
                                               : n;
}

static int run_all(struct runs *r, const struct reference_conf *conf,
                   struct err *e)
{
    uint64_t work = reference_bytes(r->d);
    for (uint32_t i = 0; i < r->t->n_matrices; i++) {
        work += work_of(r, i);
    }
    if (conf->progress != NULL) {
        RETERR(progress_stage(conf->progress, "choosing", work, e));
    }
    RETERR(runs_open(r, conf, e));
    for (uint32_t l = r->d->n_layers + 1; l-- > 0;) {
        for (uint32_t i = 0; i < r->t->n_matrices; i++) {
            if (r->places[i].first == l) {
                RETERR(run_matrix(r, i, e));
            }
        }
    }
    return 0;
}

int target_measure(const struct decoder *d, const struct target_conf *conf,
                   struct target *t, struct target_place *places, struct err *e)
{
    struct target_values v = {t, places};
    const struct reference_conf ref = {.threads = conf->weights->threads,
                                       .progress = conf->weights->progress,
                                       .rows = target_rows,
                                       .ctx = &v};
    struct runs r = {.d = d, .conf = conf, .t = t, .places = places};
    r.sequences = fitting(d, &conf->text, TARGET_FEW);
    int rc = run_all(&r, &ref, e);
    reference_keys_close(r.keys);
    reference_close(r.r);
    free(r.kept);
    free(r.want);
    free(r.got);
    return rc;
}

/* --- all of them --- */

static int run_text(const struct target_check *c,
                    const struct reference_conf *conf, float *logits,
                    struct err *e)
{
    const struct target_text *text = &c->conf->text;
    struct reference *r = NULL;
    struct reference_keys *k = NULL;
    int rc = 0;
    CHECK(reference_open(c->d, conf, c->sequences, text->columns, &r, e));
    CHECK(reference_keys_open(c->d, c->sequences, text->columns, false, &k, e));
    reference_at(r, k, 0);
    CHECK(reference_embed(r, text->tokens, e));
    CHECK(reference_layers(r, 0, c->d->n_layers, e));
    CHECK(reference_head(r, logits, e));
out:
    reference_keys_close(k);
    reference_close(r);
    return rc;
}

int target_check_open(struct target_check *c, struct err *e)
{
    const struct target_text *text = &c->conf->text;
    const struct weights *w = c->conf->weights;
    const struct reference_conf source = {.threads = w->threads,
                                          .progress = w->progress};
    c->sequences = fitting(c->d, text, text->sequences);
    uint32_t n = c->sequences * text->columns;
    RETERR(logits_new(c->d, n, &c->want, e));
    RETERR(logits_new(c->d, n, &c->got, e));
    RETERR(run_text(c, &source, c->want, e));
    truth_init(&c->truth, c->want, text, c->sequences, c->d->vocab, w->threads);
    c->positions = counted(&c->truth);
    return 0;
}

void target_check_close(struct target_check *c)
{
    free(c->want);
    free(c->got);
    c->want = NULL;
    c->got = NULL;
}

int target_check_run(struct target_check *c, const struct target *t,
                     bool kept_only, double *ret, struct err *e)
{
    for (uint32_t i = 0; i < t->n_matrices; i++) {
        const struct target_matrix *m = &t->matrices[i];
        c->places[i].now = m->kept || !kept_only ? (int)m->chosen : -1;
    }
    struct target_values v = {t, c->places};
    const struct reference_conf conf = {.threads = c->conf->weights->threads,
                                        .progress = c->conf->weights->progress,
                                        .rows = target_rows,
                                        .ctx = &v};
    int rc = run_text(c, &conf, c->got, e);
    for (uint32_t i = 0; i < t->n_matrices; i++) {
        c->places[i].now = -1;
    }
    if (rc == 0) {
        *ret = mean_kl(&c->truth, c->got);
    }
    return rc;
}

int target_verify(const struct decoder *d, const struct target_conf *conf,
                  int (*rows)(void *ctx, const struct gguf_tensor *t,
                              uint64_t first, uint64_t n, float *out,
                              struct err *e),
                  void *ctx, double *ret, struct err *e)
{
    const struct reference_conf other = {.threads = conf->weights->threads,
                                         .progress = conf->weights->progress,
                                         .rows = rows,
                                         .ctx = ctx};
    struct target_check c = {.d = d, .conf = conf};
    int rc = 0;
    CHECK(target_check_open(&c, e));
    CHECK(run_text(&c, &other, c.got, e));
    *ret = mean_kl(&c.truth, c.got);
out:
    target_check_close(&c);
    return rc;
}
