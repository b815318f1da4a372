/* run.c - the layers of a run, block by block. See impl.h for how activations
 * lie.
 *
 * Sums of norms, scores and softmax run in double: the gates compare with this.
 */
#include <string.h>

#include "base/crew.h"
#include "base/fmath.h"
#include "convert/reference/impl.h"

/* --- feed-forward --- */

static double clamped(double g, double u)
{
    double limit = (double)ACT_LIMIT;
    g = g < limit ? g : limit;
    u = u < -limit ? -limit : u > limit ? limit : u;
    return g / (1.0 + fmath_exp(-(double)ACT_SLOPE * g)) * (u + 1);
}

static float activate(enum layer_act act, float x)
{
    double v = (double)x;
    if (act == ACT_SILU) {
        return (float)(v / (1.0 + fmath_exp(-v)));
    }
    if (act == ACT_GELU_ERF) {
        float erf = fmath_erff((float)(v * M_SQRT1_2));
        return (float)(0.5 * v * (1.0 + (double)erf));
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
            if (g->r->layer->act == ACT_CLAMPED) {
                g->a[at] = (float)clamped((double)g->a[at], (double)g->b[at]);
                continue;
            }
            float v = activate(g->r->layer->act, g->a[at]);
            g->a[at] = g->b != NULL ? v * g->b[at] : v;
        }
    }
}

void reference_activate(struct reference *r, float *a, const float *b,
                        size_t rows)
{
    struct gate g = {r, a, b};
    crew_run(r->threads, rows, 16, on_rows, &g);
}

/* Where a feed-forward's values stand before its last product. */
static float *inner(const struct reference *r)
{
    return r->layer->gated ? r->gate : r->up;
}

static int feed_forward(struct reference *r, uint32_t l, struct err *e)
{
    const struct layer *y = r->layer;
    float *first = inner(r);
    if (y->d_ff == 0) {
        return 0; /* experts alone: reference_join_experts */
    }
    if (y->gated) {
        RETERR(reference_project(r, l, SLOT_GATE, SLOT_GATE_BIAS, RANGE_GATE,
                                 r->h, r->gate, e));
    }
    RETERR(reference_project(r, l, SLOT_UP, SLOT_UP_BIAS, RANGE_UP, r->h, r->up,
                             e));
    reference_activate(r, first, y->gated ? r->up : NULL, y->d_ff);
    reference_peak(r, RANGE_ACT_UP, l, first, y->d_ff);
    return 0;
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

/* x = (y + a) * b + (x + c) * d */
static int join_affine(struct reference *r, uint32_t l, enum arch_slot slot,
                       struct err *e)
{
    const struct part *p = arch_part(r->d, l, slot);
    size_t n = r->d->d_model;
    float *v = malloc(4 * n * sizeof(*v));
    if (v == NULL) {
        return err_set(e, ERR_NOMEM, "no memory");
    }
    int rc = gguf_rows(p->t, p->first, 4, v, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        for (uint32_t t = 0; t < r->n; t++) {
            size_t at = i * r->stride + t;
            r->x[at] = (r->y[at] + v[i]) * v[n + i] +
                       (r->x[at] + v[2 * n + i]) * v[3 * n + i];
        }
    }
    free(v);
    return rc;
}

/* x = LayerNorm of x + residual_scale * y */
static int join_norm(struct reference *r, uint32_t l, enum arch_slot post,
                     enum range_kind post_kind, enum range_kind kind,
                     struct err *e)
{
    const struct decoder *d = r->d;
    const enum arch_slot bias = post == SLOT_POST_ATTN ? SLOT_POST_ATTN_BIAS
                                                       : SLOT_POST_FFN_BIAS;
    const struct norm n = {.weight = arch_part(d, l, post),
                           .bias = arch_part(d, l, bias),
                           .centred = true,
                           .d = d->d_model,
                           .groups = 1,
                           .stream = true,
                           .kind = post_kind,
                           .layer = l};
    for (size_t i = 0; i < d->d_model * r->stride; i++) {
        r->x[i] += r->layer->residual_scale * r->y[i];
    }
    reference_peak(r, kind, l, r->x, d->d_model);
    return reference_normalise(r, &n, r->x, r->x, e);
}

/* x += residual_scale * (post norm of) y */
static int join(struct reference *r, uint32_t l, enum arch_slot post,
                enum range_kind post_kind, enum range_kind kind, struct err *e)
{
    const struct decoder *d = r->d;
    if (r->layer->sum_norm) {
        return join_norm(r, l, post, post_kind, kind, e);
    }
    const struct norm n = {.weight = arch_part(d, l, post),
                           .plus_one = r->layer->gain_plus_one,
                           .d = d->d_model,
                           .groups = 1,
                           .kind = post_kind,
                           .layer = l};
    if (r->layer->post_norm || post == SLOT_PLE_NORM) {
        RETERR(reference_normalise(r, &n, r->y, r->y, e));
    }
    if (r->layer->affine_join && post != SLOT_PLE_NORM) {
        RETERR(join_affine(r, l,
                           post == SLOT_POST_ATTN ? SLOT_JOIN_ATTN
                                                  : SLOT_JOIN_FFN,
                           e));
        reference_peak(r, kind, l, r->x, d->d_model);
        return 0;
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
    reference_activate(r, r->gate, r->ple, p);
    reference_peak(r, RANGE_PLE, l, r->gate, p);
    return 0;
}

/* --- layers --- */

/* In forward order; a layer without per-layer embeddings has two blocks. */
static const enum reference_block order[] = {REFERENCE_ATTENTION, REFERENCE_FFN,
                                             REFERENCE_PLE};

bool reference_has(const struct decoder *d, uint32_t l,
                   enum reference_block block)
{
    return block != REFERENCE_PLE || d->layers[l].d_ple > 0;
}

int reference_enter(struct reference *r, uint32_t l, enum reference_block block,
                    struct err *e)
{
    r->layer = &r->d->layers[l];
    switch (block) {
    case REFERENCE_ATTENTION:
        return enter(r, l, SLOT_ATTN_NORM, RANGE_ATTN_NORM, RANGE_ATTN_IN, e);
    case REFERENCE_FFN:
        return enter(r, l, SLOT_FFN_NORM, RANGE_FFN_NORM, RANGE_FFN_IN, e);
    case REFERENCE_PLE: /* it reads the stream and the embeddings themselves */
        break;
    }
    return 0;
}

int reference_open_block(struct reference *r, uint32_t l,
                         enum reference_block block, struct err *e)
{
    RETERR(reference_enter(r, l, block, e));
    switch (block) {
    case REFERENCE_ATTENTION:
        return r->layer->mixer == MIXER_CONV ? reference_conv(r, l, e)
                                             : reference_attention(r, l, e);
    case REFERENCE_FFN:
        return feed_forward(r, l, e);
    case REFERENCE_PLE:
        break;
    }
    return per_layer(r, l, e);
}

static int scale_out(struct reference *r, uint32_t l)
{
    for (size_t i = 0; i < r->d->d_model * r->stride; i++) {
        r->x[i] *= r->layer->out_scale;
    }
    reference_peak(r, RANGE_OUT_SCALE, l, r->x, r->d->d_model);
    return 0;
}

int reference_close_block(struct reference *r, uint32_t l,
                          enum reference_block block, struct err *e)
{
    static const struct {
        enum arch_slot slot, bias, post;
        enum range_kind out, norm, stream;
    } of[] = {
        [REFERENCE_ATTENTION] = {SLOT_O,       SLOT_O_BIAS,    SLOT_POST_ATTN,
                                 RANGE_ATTN_OUT, RANGE_POST_ATTN,
                                 RANGE_RESIDUAL_MID                                 },
        [REFERENCE_FFN] = {SLOT_DOWN,    SLOT_DOWN_BIAS, SLOT_POST_FFN,
                                 RANGE_FFN_OUT,  RANGE_POST_FFN,  RANGE_RESIDUAL    },
        [REFERENCE_PLE] = {SLOT_PLE_OUT, SLOT_COUNT,     SLOT_PLE_NORM,
                                 RANGE_PLE_OUT,  RANGE_PLE_NORM,  RANGE_RESIDUAL_PLE},
    };
    r->layer = &r->d->layers[l];
    bool conv = block == REFERENCE_ATTENTION && r->layer->mixer == MIXER_CONV;
    enum arch_slot slot = conv ? SLOT_CONV_OUT : of[block].slot;
    const struct reference_panel in = reference_input(r, l, slot);
    if (in.rows > 0) { /* there may be experts alone */
        RETERR(reference_project(r, l, slot, conv ? SLOT_COUNT : of[block].bias,
                                 of[block].out, in.x, r->y, e));
    }
    if (block == REFERENCE_FFN && r->layer->n_experts > 0) {
        RETERR(reference_join_experts(r, l, e));
    }
    RETERR(join(r, l, of[block].post, of[block].norm, of[block].stream, e));
    bool last = block == REFERENCE_PLE ||
                (block == REFERENCE_FFN && r->layer->d_ple == 0);
    return last && r->layer->out_scale != 1 ? scale_out(r, l) : 0;
}

struct reference_panel reference_input(struct reference *r, uint32_t l,
                                       enum arch_slot slot)
{
    r->layer = &r->d->layers[l];
    const struct layer *y = r->layer;
    const struct {
        enum arch_slot slot;
        float *x;
        size_t rows;
    } of[] = {
        {SLOT_O,        r->attn,  (size_t)y->n_heads * y->d_head},
        {SLOT_CONV_OUT, r->attn,  r->d->d_model                 },
        {SLOT_DOWN,     inner(r), y->d_ff                       },
        {SLOT_PLE_PROJ, r->x0,    r->d->d_model                 },
        {SLOT_PLE_GATE, r->x,     r->d->d_model                 },
        {SLOT_PLE_OUT,  r->gate,  y->d_ple                      },
    };
    for (size_t i = 0; i < countof(of); i++) {
        if (of[i].slot == slot) {
            return (struct reference_panel){of[i].x, of[i].rows, r->stride,
                                            r->n};
        }
    }
    /* what a norm gave */
    return (struct reference_panel){r->h, r->d->d_model, r->stride, r->n};
}

static int run_layer(struct reference *r, uint32_t l, struct err *e)
{
    for (size_t i = 0; i < countof(order); i++) {
        if (reference_has(r->d, l, order[i])) {
            RETERR(reference_open_block(r, l, order[i], e));
            RETERR(reference_close_block(r, l, order[i], e));
        }
    }
    return 0;
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

static void finish_logits(const struct decoder *d, float *logits, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double v = (double)logits[i] * (double)d->logit_scale;
        double cap = (double)d->logit_cap;
        logits[i] = (float)(cap > 0 ? cap * fmath_tanh(v / cap) : v);
    }
}

/* An encoder's labels may have one. */
static int add_out_bias(const struct reference *r, float *logits,
                        struct err *e)
{
    const struct part *p = &r->d->global[SLOT_OUT_BIAS];
    float bias[MODEL_LABELS_MAX];
    if (p->t == NULL) {
        return 0;
    }
    must(p->cols <= MODEL_LABELS_MAX);
    RETERR(arch_vector(p, bias, e));
    for (size_t i = 0; i < (size_t)r->n * p->cols; i++) {
        logits[i] += bias[i % p->cols];
    }
    return 0;
}

int reference_enter_head(struct reference *r, struct err *e)
{
    const struct decoder *d = r->d;
    const struct norm n = {.weight = &d->global[SLOT_OUT_NORM],
                           .plus_one = d->layers[0].gain_plus_one,
                           .d = d->d_model,
                           .groups = 1,
                           .stream = true,
                           .kind = RANGE_OUT_NORM};
    return reference_normalise(r, &n, r->x, r->h, e);
}

/* The stream itself, a token a row. */
static void give_stream(const struct reference *r, float *out)
{
    size_t d = r->d->d_model;
    for (size_t i = 0; i < d; i++) {
        for (uint32_t t = 0; t < r->n; t++) {
            out[t * d + i] = r->x[i * r->stride + t];
        }
    }
}

int reference_head(struct reference *r, float *logits, struct err *e)
{
    const struct decoder *d = r->d;
    if (arch_embeds(d)) {
        if (logits != NULL) {
            give_stream(r, logits);
        }
        return 0;
    }
    RETERR(reference_enter_head(r, e));
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
        finish_logits(d, logits, (size_t)r->n * arch_outputs(d));
    }
    return logits != NULL ? add_out_bias(r, logits, e) : 0;
}

int reference_run(const struct decoder *d, const struct reference_conf *conf,
                  const int32_t *tokens, uint32_t n, float *logits,
                  struct err *e)
{
    struct reference *r = NULL;
    struct reference_keys *k = NULL;
    int rc = 0;
    CHECK(reference_open(d, conf, 1, n, &r, e));
    CHECK(reference_keys_open(d, 1, n, false, &k, e));
    reference_at(r, k, 0);
    if (r->range != NULL) {
        r->range->n_tokens = n;
    }
    CHECK(reference_embed(r, tokens, e));
    CHECK(reference_layers(r, 0, d->n_layers, e));
    CHECK(reference_head(r, logits, e));
out:
    reference_keys_close(k);
    reference_close(r);
    return rc;
}

uint64_t reference_layers_bytes(const struct decoder *d, uint32_t first,
                                uint32_t last)
{
    uint64_t n = 0;
    for (uint32_t l = first; l < last; l++) {
        for (unsigned s = SLOT_LAYER; s < SLOT_COUNT; s++) {
            const struct part *p = arch_matrix(d, l, (enum arch_slot)s);
            n += p != NULL ? p->t->row_bytes * p->rows : 0;
        }
    }
    return n;
}

uint64_t reference_bytes(const struct decoder *d)
{
    const struct part *head = arch_head(d);
    uint64_t rows = arch_head_rows(d) > 0 ? head->rows : 0;
    return head->t->row_bytes * rows +
           reference_layers_bytes(d, 0, d->n_layers);
}
