/* run.c - the layers of a run, and its memory. See impl.h for how activations
 * lie.
 *
 * Sums of norms, scores and softmax run in double: the gates compare with this.
 */
#include <string.h>

#include "base/crew.h"
#include "base/fmath.h"
#include "base/num.h"
#include "convert/gemm.h"
#include "convert/reference/impl.h"

/* --- feed-forward --- */

static float activate(enum layer_act act, float x)
{
    double v = (double)x;
    if (act == ACT_SILU) {
        return (float)(v / (1.0 + fmath_exp(-v)));
    }
    double u = 0.7978845608028654 * (v + 0.044715 * v * v * v);
    return (float)(0.5 * v * (1.0 + fmath_tanh(u)));
}

/* a = act(a) * b, b NULL: act(a) */
struct gate {
    const struct reference *r;
    float *a;
    const float *b;
};

static void on_rows(void *ctx, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    const struct gate *g = ctx;
    for (size_t row = begin; row < end; row++) {
        for (uint32_t t = 0; t < g->r->n; t++) {
            size_t at = row * g->r->stride + t;
            float v = activate(g->r->layer->act, g->a[at]);
            g->a[at] = g->b != NULL ? v * g->b[at] : v;
        }
    }
}

static void gate(struct reference *r, float *a, const float *b, size_t rows)
{
    struct gate g = {r, a, b};
    crew_run(r->threads, rows, 16, on_rows, &g);
}

static int feed_forward(struct reference *r, uint32_t l, struct err *e)
{
    const struct layer *y = r->layer;
    float *first = y->gated ? r->gate : r->up;
    if (y->gated) {
        RETERR(reference_project(r, l, SLOT_GATE, SLOT_GATE_BIAS, RANGE_GATE,
                                 r->h, r->gate, e));
    }
    RETERR(reference_project(r, l, SLOT_UP, SLOT_UP_BIAS, RANGE_UP, r->h, r->up,
                             e));
    gate(r, first, y->gated ? r->up : NULL, y->d_ff);
    reference_peak(r, RANGE_ACT_UP, l, first, y->d_ff);
    return reference_project(r, l, SLOT_DOWN, SLOT_DOWN_BIAS, RANGE_FFN_OUT,
                             first, r->y, e);
}

/* --- the stream --- */

/* r->h: what a block reads of the stream. */
static int enter(struct reference *r, uint32_t l, enum arch_slot slot,
                 enum range_kind norm_kind, enum range_kind raw_kind,
                 struct err *e)
{
    const struct decoder *d = r->d;
    if (!r->layer->pre_norm) {
        memcpy(r->h, r->x, d->d_model * r->stride * sizeof(*r->h));
        reference_peak(r, raw_kind, l, r->h, d->d_model);
        return 0;
    }
    const struct norm n = {.weight = arch_part(d, l, slot),
                           .plus_one = r->layer->gain_plus_one,
                           .d = d->d_model,
                           .groups = 1,
                           .stream = true,
                           .kind = norm_kind,
                           .layer = l};
    return reference_normalise(r, &n, r->x, r->h, e);
}

/* x += residual_scale * (post norm of) y */
static int join(struct reference *r, uint32_t l, enum arch_slot post,
                enum range_kind post_kind, enum range_kind kind, struct err *e)
{
    const struct decoder *d = r->d;
    const struct norm n = {.weight = arch_part(d, l, post),
                           .plus_one = r->layer->gain_plus_one,
                           .d = d->d_model,
                           .groups = 1,
                           .kind = post_kind,
                           .layer = l};
    if (r->layer->post_norm || post == SLOT_PLE_NORM) {
        RETERR(reference_normalise(r, &n, r->y, r->y, e));
    }
    float scale = post == SLOT_PLE_NORM ? 1 : r->layer->residual_scale;
    for (size_t i = 0; i < d->d_model * r->stride; i++) {
        r->x[i] += scale * r->y[i];
    }
    reference_peak(r, kind, l, r->x, d->d_model);
    return 0;
}

/* --- per-layer embeddings --- */

/* r->ple = (norm(W x0 / sqrt(d_model)) + row of the token * sqrt(d_ple))
 *          / sqrt(2) */
static int embed_layer(struct reference *r, uint32_t l, struct err *e)
{
    const struct decoder *d = r->d;
    const struct part *table = &d->global[SLOT_PLE_EMBD];
    float by = 1.0f / sqrtf((float)d->d_model);
    const struct norm n = {.weight = &d->global[SLOT_PLE_NORM_IN],
                           .plus_one = r->layer->gain_plus_one,
                           .d = d->d_ple,
                           .groups = 1,
                           .stream = true,
                           .kind = RANGE_PLE_IN,
                           .layer = l};
    float *row = malloc(table->cols * sizeof(*row));
    if (row == NULL) {
        return err_set(e, ERR_NOMEM, "no memory");
    }
    int rc = 0;
    CHECK(reference_project(r, l, SLOT_PLE_PROJ, SLOT_COUNT, RANGE_PLE_PROJ,
                            r->x0, r->ple, e));
    for (size_t i = 0; i < d->d_ple * r->stride; i++) {
        r->ple[i] *= by;
    }
    CHECK(reference_normalise(r, &n, r->ple, r->ple, e));
    for (uint32_t t = 0; t < r->n; t++) {
        CHECK(gguf_rows(table->t, (uint64_t)r->tokens[t], 1, row, e));
        for (uint32_t i = 0; i < d->d_ple; i++) {
            float *at = &r->ple[i * r->stride + t];
            float token =
                row[(size_t)l * d->d_ple + i] * sqrtf((float)d->d_ple);
            *at = (*at + token) * (float)M_SQRT1_2;
        }
    }
out:
    free(row);
    return rc;
}

static int per_layer(struct reference *r, uint32_t l, struct err *e)
{
    uint32_t p = r->layer->d_ple;
    RETERR(embed_layer(r, l, e));
    RETERR(reference_project(r, l, SLOT_PLE_GATE, SLOT_COUNT, RANGE_PLE_GATE,
                             r->x, r->gate, e));
    gate(r, r->gate, r->ple, p);
    reference_peak(r, RANGE_PLE, l, r->gate, p);
    RETERR(reference_project(r, l, SLOT_PLE_OUT, SLOT_COUNT, RANGE_PLE_OUT,
                             r->gate, r->y, e));
    return join(r, l, SLOT_PLE_NORM, RANGE_PLE_NORM, RANGE_RESIDUAL_PLE, e);
}

/* --- layers --- */

static int run_layer(struct reference *r, uint32_t l, struct err *e)
{
    const struct decoder *d = r->d;
    r->layer = &d->layers[l];
    RETERR(enter(r, l, SLOT_ATTN_NORM, RANGE_ATTN_NORM, RANGE_ATTN_IN, e));
    RETERR(reference_attention(r, l, e));
    RETERR(join(r, l, SLOT_POST_ATTN, RANGE_POST_ATTN, RANGE_RESIDUAL_MID, e));
    RETERR(enter(r, l, SLOT_FFN_NORM, RANGE_FFN_NORM, RANGE_FFN_IN, e));
    RETERR(feed_forward(r, l, e));
    RETERR(join(r, l, SLOT_POST_FFN, RANGE_POST_FFN, RANGE_RESIDUAL, e));
    if (r->layer->d_ple > 0) {
        RETERR(per_layer(r, l, e));
    }
    if (r->layer->out_scale != 1) {
        for (size_t i = 0; i < d->d_model * r->stride; i++) {
            r->x[i] *= r->layer->out_scale;
        }
        reference_peak(r, RANGE_OUT_SCALE, l, r->x, d->d_model);
    }
    return 0;
}

static int embed(struct reference *r, struct err *e)
{
    const struct decoder *d = r->d;
    float *row = malloc(d->d_model * sizeof(*row));
    if (row == NULL) {
        return err_set(e, ERR_NOMEM, "no memory");
    }
    int rc = 0;
    for (uint32_t t = 0; t < r->n; t++) {
        int32_t id = r->tokens[t];
        if (id < 0 || (uint32_t)id >= d->vocab) {
            rc = err_set(e, ERR_INVALID, "token %d of %u", id, d->vocab);
            goto out;
        }
        CHECK(gguf_rows(d->global[SLOT_EMBD].t, (uint64_t)id, 1, row, e));
        for (uint32_t i = 0; i < d->d_model; i++) {
            r->x[i * r->stride + t] = row[i] * d->embed_scale;
        }
    }
    reference_peak(r, RANGE_EMBEDDING, 0, r->x, d->d_model);
    if (r->x0 != NULL) {
        memcpy(r->x0, r->x, d->d_model * r->stride * sizeof(*r->x0));
    }
out:
    free(row);
    return rc;
}

static void finish_logits(const struct decoder *d, float *logits, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double v = (double)logits[i] * (double)d->logit_scale;
        double cap = (double)d->logit_cap;
        logits[i] = (float)(cap > 0 ? cap * fmath_tanh(v / cap) : v);
    }
}

static int head(struct reference *r, float *logits, struct err *e)
{
    const struct decoder *d = r->d;
    const struct norm n = {.weight = &d->global[SLOT_OUT_NORM],
                           .plus_one = d->layers[0].gain_plus_one,
                           .d = d->d_model,
                           .groups = 1,
                           .stream = true,
                           .kind = RANGE_OUT_NORM};
    RETERR(reference_normalise(r, &n, r->x, r->h, e));
    struct product p = {.r = r, .w = arch_head(d), .x = r->h, .logits = logits};
    for (size_t i = 0; i < r->n_scratch; i++) {
        r->scratch[i].peak = 0;
    }
    RETERR(reference_product(&p, e));
    double top = 0;
    for (size_t i = 0; i < r->n_scratch; i++) {
        top = r->scratch[i].peak <= top ? top : r->scratch[i].peak;
    }
    if (r->range != NULL) { /* the scale is in the norm's weight */
        range_add_peak(r->range, RANGE_LOGITS, 0,
                       top * fabs((double)d->logit_scale));
    }
    if (logits != NULL && (d->logit_scale != 1 || d->logit_cap > 0)) {
        finish_logits(d, logits, (size_t)r->n * d->vocab);
    }
    return 0;
}

/* --- memory --- */

static bool panel(const struct reference *r, size_t rows, float **ret)
{
    *ret = calloc(rows * r->stride, sizeof(float));
    return *ret != NULL;
}

/* The most rows of any layer's values. */
struct rows_most {
    size_t q, kv, ff, half, heads;
};

static struct rows_most most(const struct decoder *d)
{
    struct rows_most m = {0};
    for (uint32_t l = 0; l < d->n_layers; l++) {
        const struct layer *y = &d->layers[l];
        m.q = num_max(m.q, (size_t)y->n_heads * y->d_head);
        m.kv = num_max(m.kv, (size_t)y->n_kv * y->d_head);
        m.ff = num_max(m.ff, num_max(y->d_ff, y->d_ple));
        m.half = num_max(m.half, d->kinds[y->kind].rope_dim / 2);
        m.heads = num_max(m.heads, y->n_heads);
    }
    return m;
}

static bool is_read_later(const struct decoder *d, uint32_t l)
{
    for (uint32_t k = l + 1; k < d->n_layers; k++) {
        if (d->layers[k].kv_from == l) {
            return true;
        }
    }
    return false;
}

static bool init_keys(struct reference *r, size_t rows)
{
    const struct decoder *d = r->d;
    r->own_k = calloc(d->n_layers, sizeof(float *));
    r->own_v = calloc(d->n_layers, sizeof(float *));
    bool ok = r->own_k != NULL && r->own_v != NULL &&
              panel(r, rows, &r->common_k) && panel(r, rows, &r->common_v);
    for (uint32_t l = 0; ok && l < d->n_layers; l++) {
        if (is_read_later(d, l)) {
            ok = panel(r, rows, &r->own_k[l]) && panel(r, rows, &r->own_v[l]);
        } else {
            r->own_k[l] = r->common_k;
            r->own_v[l] = r->common_v;
        }
    }
    return ok;
}

static bool reference_init(struct reference *r)
{
    const struct decoder *d = r->d;
    struct rows_most m = most(d);
    uint64_t widest = num_max(num_max(d->d_model, m.ff), m.q);
    r->n_scratch = r->threads;
    r->scratch = calloc(r->n_scratch, sizeof(*r->scratch));
    r->head_peak = calloc(m.heads, sizeof(*r->head_peak));
    bool ok = r->scratch != NULL && r->head_peak != NULL &&
              panel(r, d->d_model, &r->x) && panel(r, d->d_model, &r->h) &&
              panel(r, d->d_model, &r->y) && panel(r, m.q, &r->q) &&
              panel(r, m.q, &r->attn) && init_keys(r, m.kv) &&
              panel(r, m.ff, &r->gate) && panel(r, m.ff, &r->up) &&
              panel(r, m.half, &r->cos) && panel(r, m.half, &r->sin);
    if (ok && d->d_ple > 0) {
        ok = panel(r, d->d_model, &r->x0) && panel(r, d->d_ple, &r->ple);
    }
    for (size_t i = 0; ok && i < r->n_scratch; i++) {
        /* every matrix's block: at most BLOCK_FLOATS, or 6 rows */
        size_t floats = (size_t)num_max(BLOCK_FLOATS, 6 * widest);
        r->scratch[i].rows = malloc(floats * sizeof(float));
        r->scratch[i].y = malloc(reference_block_rows(d->d_model) * r->stride *
                                 sizeof(float));
        ok = r->scratch[i].rows != NULL && r->scratch[i].y != NULL;
    }
    return ok;
}

static void fini_keys(struct reference *r)
{
    for (uint32_t l = 0; r->own_k != NULL && r->own_v != NULL &&
                         l < r->d->n_layers;
         l++) {
        if (r->own_k[l] != r->common_k) {
            free(r->own_k[l]);
            free(r->own_v[l]);
        }
    }
    free(r->own_k);
    free(r->own_v);
}

static void reference_fini(struct reference *r)
{
    for (size_t i = 0; r->scratch != NULL && i < r->n_scratch; i++) {
        free(r->scratch[i].rows);
        free(r->scratch[i].y);
    }
    fini_keys(r);
    float *all[] = {r->x,        r->h,        r->y,   r->q,  r->attn,
                    r->common_k, r->common_v, r->cos, r->up, r->gate,
                    r->sin,      r->x0,       r->ple};
    for (size_t i = 0; i < countof(all); i++) {
        free(all[i]);
    }
    free(r->scratch);
    free(r->head_peak);
}

/* --- runs --- */

static int begin(struct reference *r, struct err *e)
{
    r->stride = (r->n + GEMM_LANES - 1) / GEMM_LANES * GEMM_LANES;
    if (!reference_init(r)) {
        return err_set(e, ERR_NOMEM, "no memory for %u tokens", r->n);
    }
    if (r->range != NULL) {
        r->range->n_tokens = r->n;
    }
    return embed(r, e);
}

int reference_open(const struct decoder *d, const struct reference_conf *conf,
                   const int32_t *tokens, uint32_t n, struct reference **ret,
                   struct err *e)
{
    must(n >= 1 && n <= TOKENS);
    struct reference *r = malloc(sizeof(*r));
    if (r == NULL) {
        return err_set(e, ERR_NOMEM, "no memory for %u tokens", n);
    }
    *r = (struct reference){.d = d,
                            .threads = crew_threads(conf->threads),
                            .progress = conf->progress,
                            .range = conf->range,
                            .conf = conf,
                            .n = n,
                            .tokens = tokens};
    int rc = begin(r, e);
    if (rc < 0) {
        reference_close(r);
        return rc;
    }
    *ret = r;
    return 0;
}

void reference_close(struct reference *r)
{
    if (r != NULL) {
        reference_fini(r);
        free(r);
    }
}

float *reference_stream(struct reference *r, size_t *stride)
{
    *stride = r->stride;
    return r->x;
}

int reference_layers(struct reference *r, uint32_t first, uint32_t last,
                     struct err *e)
{
    for (uint32_t l = first; l < last; l++) {
        RETERR(run_layer(r, l, e));
        if (r->conf->layer != NULL) {
            r->conf->layer(r->conf->ctx, l, r->x, r->stride);
        }
    }
    return 0;
}

int reference_head(struct reference *r, float *logits, struct err *e)
{
    return head(r, logits, e);
}

int reference_run(const struct decoder *d, const struct reference_conf *conf,
                  const int32_t *tokens, uint32_t n, float *logits,
                  struct err *e)
{
    struct reference *r = NULL;
    RETERR(reference_open(d, conf, tokens, n, &r, e));
    int rc = reference_layers(r, 0, d->n_layers, e);
    rc = rc < 0 ? rc : reference_head(r, logits, e);
    reference_close(r);
    return rc;
}

uint64_t reference_layers_bytes(const struct decoder *d, uint32_t first,
                                uint32_t last)
{
    uint64_t n = 0;
    for (uint32_t l = first; l < last; l++) {
        for (unsigned s = SLOT_LAYER; s < SLOT_COUNT; s++) {
            const struct part *p = arch_part(d, l, (enum arch_slot)s);
            n += p->t != NULL && p->rows > 1 ? p->t->row_bytes * p->rows : 0;
        }
    }
    return n;
}

uint64_t reference_bytes(const struct decoder *d)
{
    const struct part *head = arch_head(d);
    return head->t->row_bytes * head->rows +
           reference_layers_bytes(d, 0, d->n_layers);
}
