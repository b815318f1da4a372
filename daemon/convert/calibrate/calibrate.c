/* calibrate.c - the driver: group after group of each layer, then the head;
 * experts.c has a layer's experts.
 *
 *   for each layer whose file is not there yet
 *       for each group of matrices that read the same
 *           sums over all samples of what they read on both sides
 *           importance -> palettes, feedback -> codes, into the file
 *           the quantised side goes on with those codes
 *       the file is published
 *
 * A layer whose file is there is only run through, with its codes: the streams
 * get the same bits as when it was made.
 */
#include "convert/calibrate/calibrate.h"

#include <errno.h>
#include <string.h>

#include "base/crew.h"
#include "convert/calibrate/impl.h"

#define PART        0.5 /* of the way towards the wanted products (facts: lut4) */
#define KEY_VERSION "calibration 3"

struct calibration {
    const struct decoder *d;
    struct calibrate_samples samples;
    struct codes *files; /* a layer, and the head */
};

/* --- the key --- */

static void add_text(struct sha256 *s, const char *t)
{
    sha256_add(s, t, strlen(t) + 1);
}

static void add_number(struct sha256 *s, uint64_t v)
{
    sha256_add(s, &v, sizeof(v));
}

static void add_forms(struct sha256 *s, const struct quant_choice *f)
{
    char text[QUANT_TEXT_MAX];
    quant_text(f->spec, text);
    add_text(s, text);
    add_number(s, f->n_rules);
    for (uint32_t i = 0; i < f->n_rules; i++) {
        quant_text(f->rules[i].spec, text);
        add_text(s, f->rules[i].pattern);
        add_text(s, text);
    }
    add_number(s, f->n_picks);
    for (uint32_t i = 0; i < f->n_picks; i++) {
        quant_text(f->picks[i].spec, text);
        add_text(s, f->picks[i].tensor);
        add_text(s, text);
    }
}

/* All that decides a byte of the files. */
static void make_key(struct run *r)
{
    const struct calibrate_conf *conf = r->conf;
    struct sha256 s;
    sha256_init(&s);
    add_text(&s, KEY_VERSION);
    add_text(&s, ANED_VERSION);
    add_text(&s, conf->source);
    add_text(&s, r->c->samples.text_sha256);
    add_number(&s, r->c->samples.sequences);
    add_number(&s, CALIBRATE_TOKENS);
    add_number(&s, CALIBRATE_SEED);
    add_forms(&s, conf->forms);
    for (size_t i = 0; i < conf->n_heads; i++) {
        add_number(&s, conf->heads[i].first);
        add_number(&s, conf->heads[i].last);
    }
    sha256_end(&s, r->key);
}

/* --- a group --- */

void group_close(struct run *r)
{
    feedback_close(r->feedback);
    hessian_close(r->h);
    shift_close(r->shift);
    free(r->importance);
    free(r->rows);
    r->rows = NULL;
    r->feedback = NULL;
    r->h = NULL;
    r->shift = NULL;
    r->importance = NULL;
}

/* one: the matrix whose rows the shift is summed for; NULL: it serves all. */
static int shift_begin(struct run *r, size_t cols, const struct part *one,
                       struct err *e)
{
    if (one == NULL) {
        return shift_open(cols, NULL, &r->shift, e);
    }
    r->rows = malloc((size_t)one->rows * cols * sizeof(*r->rows));
    if (r->rows == NULL) {
        return err_set(e, ERR_NOMEM, "no memory for the rows of %s",
                       one->t->name);
    }
    RETERR(gguf_rows(one->t, one->first, one->rows, r->rows, e));
    const struct shift_rows of = {r->rows, one->first, (size_t)one->rows};
    return shift_open(cols, &of, &r->shift, e);
}

int group_open(struct run *r, size_t cols, const struct part *one,
               struct err *e)
{
    r->importance = malloc(cols * sizeof(*r->importance));
    if (r->importance == NULL) {
        return err_set(e, ERR_NOMEM, "no memory for %zu inputs", cols);
    }
    RETERR(hessian_open(cols, &r->h, e));
    return shift_begin(r, cols, one, e);
}

int group_add(void *ctx, const struct reference_panel in[SIDES], struct err *e)
{
    struct run *r = ctx;
    const struct reference_panel *q = &in[QUANTISED];
    unsigned threads = r->weights.threads;
    must(q->rows == hessian_cols(r->h));
    RETERR(hessian_add(r->h, threads, q->x, q->stride, q->tokens, e));
    return shift_add(r->shift, threads, in[WANTED].x, q->x, q->stride,
                     q->tokens, e);
}

int group_feedback(struct run *r, struct err *e)
{
    hessian_importance(r->h, r->importance);
    RETERR(feedback_open(r->h, r->shift, PART, r->weights.threads, &r->feedback,
                         e));
    hessian_close(r->h);
    r->h = NULL;
    return 0;
}

static void give_inputs(void *ctx, const struct gguf_tensor *t,
                        struct weights_inputs *ret)
{
    struct run *r = ctx;
    (void)t; /* all matrices of a group read the same */
    *ret = (struct weights_inputs){r->importance, r->feedback};
}

static int advance(struct run *r, double cost, struct err *e)
{
    return r->conf->progress == NULL
               ? 0
               : progress_add(r->conf->progress, (uint64_t)cost, e);
}

void group_show(struct run *r, const struct codes *file, enum arch_slot slot)
{
    r->now.map = file->map;
    for (size_t i = 0; i < file->n; i++) {
        if (file->items[i].slot == slot) {
            r->now.items[r->now.n++] = file->items[i];
        }
    }
}

/* Codes of the group's matrices into the file of layer l. From then on r->now
 * shows them to the quantised side. */
static int encode_group(struct run *r, struct codes *file,
                        const struct group *g, struct err *e)
{
    for (size_t k = 0; k < countof(g->slots); k++) {
        if (g->slots[k] == SLOT_COUNT) {
            continue;
        }
        for (size_t i = 0; i < file->n; i++) {
            const struct item *it = &file->items[i];
            if (it->slot == g->slots[k]) {
                RETERR(codes_encode(file, it, 0, it->rows, &r->weights, e));
            }
        }
        group_show(r, file, g->slots[k]);
    }
    r->now.map = file->map;
    return 0;
}

static int quantise_group(struct run *r, uint32_t l, const struct group *g,
                          struct err *e)
{
    size_t cols = group_cols(r->d, r->conf->forms, l, g);
    int rc = 0;
    if (cols == 0 && !g->last) {
        return 0;
    }
    if (cols > 0) {
        CHECK(group_open(r, cols, group_one(r->d, r->conf->forms, l, g), e));
    }
    CHECK(streams_read(r->streams, l, g, cols > 0 ? group_add : NULL, r, e));
    if (cols > 0) {
        CHECK(group_feedback(r, e));
        CHECK(encode_group(r, &r->c->files[l], g, e));
    }
    if (g->last) {
        CHECK(streams_pass(r->streams, l, g, e));
    }
out:
    group_close(r);
    return rc;
}

/* --- layers --- */

/* Every item of the file stands in for the source's rows. */
static void show_all(struct run *r, const struct codes *file)
{
    r->now.map = file->map;
    r->now.n = file->n;
    memcpy(r->now.items, file->items, file->n * sizeof(*file->items));
}

static int run_through(struct run *r, uint32_t l, struct err *e)
{
    show_all(r, &r->c->files[l]);
    for (size_t i = 0; i < n_groups; i++) {
        const struct group *g = &groups[i];
        if (group_is(r->d, l, g) && g->last) {
            RETERR(streams_read(r->streams, l, g, NULL, NULL, e));
            RETERR(streams_pass(r->streams, l, g, e));
        }
        RETERR(advance(r, cost_group(r->d, r->conf->forms, l, g), e));
    }
    return advance(r, cost_experts(r->d, r->conf->forms, l), e);
}

/* Experts read the stream, so their codes are there before it passes them. */
static int quantise_experts(struct run *r, uint32_t l, const struct group *g,
                            struct err *e)
{
    if (g->block != REFERENCE_FFN || !g->last ||
        !group_has_experts(r->d, r->conf->forms, l)) {
        return 0;
    }
    RETERR(experts_quantise(r, &r->c->files[l], l, e));
    return advance(r, cost_experts(r->d, r->conf->forms, l), e);
}

static int quantise_layer(struct run *r, uint32_t l, struct err *e)
{
    struct codes *file = &r->c->files[l];
    r->now.n = 0;
    RETERR(codes_create(file, r->key, e));
    for (size_t i = 0; i < n_groups; i++) {
        RETERR(quantise_experts(r, l, &groups[i], e));
        if (group_is(r->d, l, &groups[i])) {
            RETERR(quantise_group(r, l, &groups[i], e));
        }
        RETERR(advance(r, cost_group(r->d, r->conf->forms, l, &groups[i]), e));
    }
    return codes_publish(file, r->conf->dir, e);
}

static int quantise_head(struct run *r, struct err *e)
{
    struct codes *file = &r->c->files[r->d->n_layers];
    int rc = 0;
    CHECK(codes_create(file, r->key, e));
    if (file->n > 0) {
        CHECK(group_open(r, (size_t)arch_head(r->d)->cols, NULL, e));
        CHECK(streams_head(r->streams, group_add, r, e));
        CHECK(group_feedback(r, e));
    }
    for (size_t i = 0; i < file->n; i++) {
        const struct item *it = &file->items[i];
        CHECK(codes_encode(file, it, 0, it->rows, &r->weights, e));
        CHECK(advance(r, cost_head(r->d, r->conf->forms) / (double)file->n, e));
    }
    CHECK(codes_publish(file, r->conf->dir, e));
out:
    group_close(r);
    return rc;
}

static int run_layers(struct run *r, struct err *e)
{
    uint32_t n = r->d->n_layers;
    bool there = false;
    for (uint32_t l = 0; l < n; l++) {
        RETERR(codes_find(&r->c->files[l], r->key, &there, e));
        RETERR(there ? run_through(r, l, e) : quantise_layer(r, l, e));
    }
    RETERR(codes_find(&r->c->files[n], r->key, &there, e));
    return there ? 0 : quantise_head(r, e);
}

/* --- all of it --- */

static int plan_files(struct run *r, struct err *e)
{
    uint32_t n = r->d->n_layers + 1;
    size_t most = 0;
    r->c->files = calloc(n, sizeof(*r->c->files));
    if (r->c->files == NULL) {
        return err_set(e, ERR_NOMEM, "no memory for %u layers", n);
    }
    for (uint32_t l = 0; l < n; l++) {
        r->c->files[l].fd = -1;
    }
    for (uint32_t l = 0; l < n; l++) {
        RETERR(codes_plan(&r->c->files[l], r->d, r->conf, l, e));
        most = r->c->files[l].n > most ? r->c->files[l].n : most;
    }
    r->now.items = calloc(most + 1, sizeof(*r->now.items));
    return r->now.items != NULL
               ? 0
               : err_set(e, ERR_NOMEM, "no memory for a layer's codes");
}

static void describe_samples(struct run *r)
{
    const struct calibrate_conf *conf = r->conf;
    struct calibrate_samples *s = &r->c->samples;
    s->tokens = CALIBRATE_TOKENS;
    s->seed = CALIBRATE_SEED;
    if (conf->text != NULL) {
        struct sha256 sum;
        uint8_t digest[SHA256_BYTES];
        sha256_init(&sum);
        sha256_add(&sum, conf->text, conf->text_bytes);
        sha256_end(&sum, digest);
        sha256_hex(digest, s->text_sha256);
    }
}

static int run_all(struct run *r, struct err *e)
{
    int32_t *tokens = NULL;
    uint32_t *n = &r->c->samples.sequences;
    uint32_t most = r->conf->sequences;
    int rc = 0;
    CHECK(calibrate_fit(r->d, r->conf->forms, n, e));
    *n = most == 0 || *n < most ? *n : most;
    describe_samples(r);
    make_key(r);
    CHECK(file_mkdirs(r->conf->dir, 0755, e));
    CHECK(plan_files(r, e));
    CHECK(samples_make(r->d, r->conf, r->key, &r->c->samples, &tokens, e));
    CHECK(streams_open(r->d, r->conf->threads, &r->c->samples, tokens, &r->now,
                       r->conf->forms, &r->streams, e));
    CHECK(run_layers(r, e));
out:
    streams_close(r->streams);
    free(r->now.items);
    free(tokens);
    return rc;
}

int calibrate_run(const struct decoder *d, const struct calibrate_conf *conf,
                  struct calibration **ret, struct err *e)
{
    struct calibration *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return err_set(e, ERR_NOMEM, "no memory for a calibration");
    }
    c->d = d;
    struct run r = {.d = d, .conf = conf, .c = c};
    r.weights = (struct weights){.threads = crew_threads(conf->threads),
                                 .choice = conf->forms,
                                 .inputs = give_inputs,
                                 .ctx = &r};
    int rc = run_all(&r, e);
    if (rc < 0) {
        calibration_close(c);
        return rc;
    }
    *ret = c;
    return 0;
}

void calibration_close(struct calibration *c)
{
    if (c == NULL) {
        return;
    }
    for (uint32_t l = 0; c->files != NULL && l <= c->d->n_layers; l++) {
        codes_close(&c->files[l]);
    }
    free(c->files);
    free(c);
}

const struct calibrate_samples *calibration_samples(const struct calibration *c)
{
    return &c->samples;
}

/* The item that has rows [first, first + rows) of p; NULL: none. */
static const struct item *item_of(const struct codes *f, const struct part *p,
                                  uint64_t first, uint64_t rows)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct item *it = &f->items[i];
        if (it->part.t == p->t && it->part.first == p->first &&
            it->from <= first && first + rows <= it->from + it->rows) {
            return it;
        }
    }
    return NULL;
}

bool calibration_codes(void *ctx, const struct part *p, uint64_t first,
                       uint64_t rows, struct weights_codes *ret)
{
    const struct calibration *c = ctx;
    for (uint32_t l = 0; l <= c->d->n_layers; l++) {
        const struct codes *f = &c->files[l];
        const struct item *i = item_of(f, p, first, rows);
        if (i != NULL) {
            return codes_slice(f, i, first - i->from, rows, ret);
        }
    }
    return false;
}

int calibration_rows(void *ctx, const struct gguf_tensor *t, uint64_t first,
                     uint64_t n, float *out, struct err *e)
{
    const struct calibration *c = ctx;
    RETERR(gguf_rows(t, first, n, out, e));
    for (uint32_t l = 0; l <= c->d->n_layers; l++) {
        const struct codes *f = &c->files[l];
        for (uint64_t row = first; row < first + n; row++) {
            uint64_t at = 0;
            const struct item *i = codes_item(f, t, row, &at);
            if (i != NULL) {
                codes_row(f, i, at, out + (size_t)((row - first) * t->cols));
            }
        }
    }
    return 0;
}
