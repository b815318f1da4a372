/* reference.c - attention and layers of a run, and its memory. See
 * reference_impl.h for how activations lie.
 *
 * Sums of norms, scores and softmax run in double: the gates compare with this.
 */
#include <string.h>

#include "base/crew.h"
#include "base/fmath.h"
#include "base/num.h"
#include "convert/gemm.h"
#include "convert/reference_impl.h"

/* --- attention --- */

static void rope_tables(struct reference *r, bool local)
{
    const struct decoder *d = r->d;
    double base = (double)(local ? d->rope_base_local : d->rope_base);
    double scale = local ? 1.0 : (double)d->rope_scale;
    for (uint32_t i = 0; i < d->rope_dim / 2; i++) {
        double f = fmath_pow(base, -2.0 * i / d->rope_dim);
        f /= d->n_factors > 0 ? (double)d->factors[i] : 1.0;
        for (uint32_t t = 0; t < r->n; t++) {
            double sine = 0;
            double cosine = 0;
            fmath_sincos(t * scale * f, &sine, &cosine);
            r->cos[i * r->stride + t] = (float)cosine;
            r->sin[i * r->stride + t] = (float)sine;
        }
    }
}

/* In place, on the pairs where the source has them. */
static void rotate(const struct reference *r, float *x, uint32_t heads)
{
    const struct decoder *d = r->d;
    bool pairs = d->arch->rope_interleaved;
    uint32_t half = d->rope_dim / 2;
    for (uint32_t h = 0; h < heads; h++) {
        float *head = x + (size_t)h * d->d_head * r->stride;
        for (uint32_t i = 0; i < half; i++) {
            float *a = head + (pairs ? 2 * i : i) * r->stride;
            float *b = head + (pairs ? 2 * i + 1 : i + half) * r->stride;
            const float *c = r->cos + i * r->stride;
            const float *s = r->sin + i * r->stride;
            for (uint32_t t = 0; t < r->n; t++) {
                float x0 = a[t];
                float x1 = b[t];
                a[t] = x0 * c[t] - x1 * s[t];
                b[t] = x1 * c[t] + x0 * s[t];
            }
        }
    }
}

/* One head: scores of every token, softmax, values. */
static void run_head(struct reference *r, size_t h)
{
    const struct decoder *d = r->d;
    size_t kv = h / (d->n_heads / d->n_kv);
    const float *q = r->q + h * d->d_head * r->stride;
    const float *k = r->k + kv * d->d_head * r->stride;
    const float *v = r->v + kv * d->d_head * r->stride;
    float *out = r->attn + h * d->d_head * r->stride;
    r->head_peak[h] = 0;
    for (uint32_t t = 0; t < r->n; t++) {
        double p[TOKENS];
        double top = -(double)INFINITY;
        uint32_t from =
            r->window != 0 && t + 1 > r->window ? t + 1 - r->window : 0;
        for (uint32_t u = from; u <= t; u++) {
            double s = 0;
            for (uint32_t i = 0; i < d->d_head; i++) {
                s +=
                    (double)q[i * r->stride + t] * (double)k[i * r->stride + u];
            }
            p[u] = s * (double)d->score_scale;
            top = p[u] > top ? p[u] : top;
            double a = fabs(p[u]);
            if (!(a <= r->head_peak[h])) {
                r->head_peak[h] = a;
            }
        }
        double sum = 0;
        for (uint32_t u = from; u <= t; u++) {
            p[u] = fmath_exp(p[u] - top);
            sum += p[u];
        }
        for (uint32_t i = 0; i < d->d_head; i++) {
            double a = 0;
            for (uint32_t u = from; u <= t; u++) {
                a += p[u] * (double)v[i * r->stride + u];
            }
            out[i * r->stride + t] = (float)(a / sum);
        }
    }
}

static void on_heads(void *ctx, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    for (size_t h = begin; h < end; h++) {
        run_head(ctx, h);
    }
}

static int attention(struct reference *r, uint32_t l, struct err *e)
{
    const struct decoder *d = r->d;
    size_t q_rows = (size_t)d->n_heads * d->d_head;
    size_t kv_rows = (size_t)d->n_kv * d->d_head;
    RETERR(reference_multiply(r, arch_tensor(d, l, SLOT_Q),
                              arch_tensor(d, l, SLOT_Q_BIAS), r->h, r->q, e));
    RETERR(reference_multiply(r, arch_tensor(d, l, SLOT_K),
                              arch_tensor(d, l, SLOT_K_BIAS), r->h, r->k, e));
    RETERR(reference_multiply(r, arch_tensor(d, l, SLOT_V),
                              arch_tensor(d, l, SLOT_V_BIAS), r->h, r->v, e));
    reference_peak(r, RANGE_Q, l, r->q, q_rows);
    reference_peak(r, RANGE_K, l, r->k, kv_rows);
    reference_peak(r, RANGE_V, l, r->v, kv_rows);
    if (arch_tensor(d, l, SLOT_Q_NORM) != NULL) {
        RETERR(
            reference_normalise(r, arch_tensor(d, l, SLOT_Q_NORM), RANGE_Q_NORM,
                                l, r->q, d->n_heads, false, r->q, e));
    }
    if (arch_tensor(d, l, SLOT_K_NORM) != NULL) {
        RETERR(
            reference_normalise(r, arch_tensor(d, l, SLOT_K_NORM), RANGE_K_NORM,
                                l, r->k, d->n_kv, false, r->k, e));
    }
    bool local = arch_local(d, l);
    rope_tables(r, local);
    rotate(r, r->q, d->n_heads);
    rotate(r, r->k, d->n_kv);
    r->window = local || d->local_every == 0 ? d->window : 0;
    crew_run(r->threads, d->n_heads, 1, on_heads, r);
    double top = 0;
    for (uint32_t h = 0; h < d->n_heads; h++) {
        top = r->head_peak[h] <= top ? top : r->head_peak[h];
    }
    if (r->range != NULL) {
        range_add_peak(r->range, RANGE_SCORES, l, top);
    }
    reference_peak(r, RANGE_ATTN, l, r->attn, q_rows);
    RETERR(reference_multiply(r, arch_tensor(d, l, SLOT_O),
                              arch_tensor(d, l, SLOT_O_BIAS), r->attn, r->y,
                              e));
    reference_peak(r, RANGE_ATTN_OUT, l, r->y, d->d_model);
    return 0;
}

/* --- layers --- */

static float activate(enum arch_act act, float x)
{
    double v = (double)x;
    if (act == ARCH_SILU) {
        return (float)(v / (1.0 + fmath_exp(-v)));
    }
    double u = 0.7978845608028654 * (v + 0.044715 * v * v * v);
    return (float)(0.5 * v * (1.0 + fmath_tanh(u)));
}

static void on_rows(void *ctx, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    struct reference *r = ctx;
    for (size_t row = begin; row < end; row++) {
        for (uint32_t t = 0; t < r->n; t++) {
            size_t at = row * r->stride + t;
            r->gate[at] = activate(r->d->arch->act, r->gate[at]) * r->up[at];
        }
    }
}

static int feed_forward(struct reference *r, uint32_t l, struct err *e)
{
    const struct decoder *d = r->d;
    RETERR(reference_multiply(r, arch_tensor(d, l, SLOT_GATE), NULL, r->h,
                              r->gate, e));
    RETERR(reference_multiply(r, arch_tensor(d, l, SLOT_UP), NULL, r->h, r->up,
                              e));
    reference_peak(r, RANGE_GATE, l, r->gate, d->d_ff);
    reference_peak(r, RANGE_UP, l, r->up, d->d_ff);
    crew_run(r->threads, d->d_ff, 16, on_rows, r);
    reference_peak(r, RANGE_ACT_UP, l, r->gate, d->d_ff);
    RETERR(reference_multiply(r, arch_tensor(d, l, SLOT_DOWN), NULL, r->gate,
                              r->y, e));
    reference_peak(r, RANGE_FFN_OUT, l, r->y, d->d_model);
    return 0;
}

/* x += (post norm of) y */
static int join(struct reference *r, uint32_t l, enum arch_slot post,
                enum range_kind post_kind, enum range_kind kind, struct err *e)
{
    const struct gguf_tensor *t = arch_tensor(r->d, l, post);
    int rc = 0;
    if (t != NULL) {
        rc = reference_normalise(r, t, post_kind, l, r->y, 1, false, r->y, e);
    }
    for (size_t i = 0; i < r->d->d_model * r->stride; i++) {
        r->x[i] += r->y[i];
    }
    reference_peak(r, kind, l, r->x, r->d->d_model);
    return rc;
}

static int run_layer(struct reference *r, uint32_t l, struct err *e)
{
    const struct decoder *d = r->d;
    RETERR(reference_normalise(r, arch_tensor(d, l, SLOT_ATTN_NORM),
                               RANGE_ATTN_NORM, l, r->x, 1, true, r->h, e));
    RETERR(attention(r, l, e));
    RETERR(join(r, l, SLOT_POST_ATTN, RANGE_POST_ATTN, RANGE_RESIDUAL_MID, e));
    RETERR(reference_normalise(r, arch_tensor(d, l, SLOT_FFN_NORM),
                               RANGE_FFN_NORM, l, r->x, 1, true, r->h, e));
    RETERR(feed_forward(r, l, e));
    return join(r, l, SLOT_POST_FFN, RANGE_POST_FFN, RANGE_RESIDUAL, e);
}

static int embed(struct reference *r, const int32_t *tokens, struct err *e)
{
    const struct decoder *d = r->d;
    float *row = malloc(d->d_model * sizeof(*row));
    if (row == NULL) {
        return err_set(e, ERR_NOMEM, "no memory");
    }
    int rc = 0;
    for (uint32_t t = 0; t < r->n; t++) {
        if (tokens[t] < 0 || (uint32_t)tokens[t] >= d->vocab) {
            rc = err_set(e, ERR_INVALID, "token %d of %u", tokens[t], d->vocab);
            goto out;
        }
        CHECK(gguf_rows(d->global[SLOT_EMBD], (uint64_t)tokens[t], 1, row, e));
        for (uint32_t i = 0; i < d->d_model; i++) {
            r->x[i * r->stride + t] = row[i] * d->embed_scale;
        }
    }
    reference_peak(r, RANGE_EMBEDDING, 0, r->x, d->d_model);
out:
    free(row);
    return rc;
}

static int head(struct reference *r, float *logits, struct err *e)
{
    const struct decoder *d = r->d;
    RETERR(reference_normalise(r, d->global[SLOT_OUT_NORM], RANGE_OUT_NORM, 0,
                               r->x, 1, true, r->h, e));
    struct product p = {.r = r, .t = arch_head(d), .x = r->h, .logits = logits};
    for (size_t i = 0; i < r->n_scratch; i++) {
        r->scratch[i].peak = 0;
    }
    RETERR(reference_product(&p, e));
    double top = 0;
    for (size_t i = 0; i < r->n_scratch; i++) {
        top = r->scratch[i].peak <= top ? top : r->scratch[i].peak;
    }
    if (r->range != NULL) {
        range_add_peak(r->range, RANGE_LOGITS, 0, top);
    }
    return 0;
}

/* --- memory --- */

static bool panel(const struct reference *r, size_t rows, float **ret)
{
    *ret = calloc(rows * r->stride, sizeof(float));
    return *ret != NULL;
}

static bool reference_init(struct reference *r)
{
    const struct decoder *d = r->d;
    size_t q = (size_t)d->n_heads * d->d_head;
    size_t kv = (size_t)d->n_kv * d->d_head;
    size_t half = d->rope_dim / 2;
    uint64_t widest = num_max(num_max(d->d_model, d->d_ff), q);
    r->n_scratch = r->threads;
    r->scratch = calloc(r->n_scratch, sizeof(*r->scratch));
    r->head_peak = calloc(d->n_heads, sizeof(*r->head_peak));
    bool ok = r->scratch != NULL && r->head_peak != NULL &&
              panel(r, d->d_model, &r->x) && panel(r, d->d_model, &r->h) &&
              panel(r, d->d_model, &r->y) && panel(r, q, &r->q) &&
              panel(r, q, &r->attn) && panel(r, kv, &r->k) &&
              panel(r, kv, &r->v) && panel(r, d->d_ff, &r->gate) &&
              panel(r, d->d_ff, &r->up) && panel(r, half, &r->cos) &&
              panel(r, half, &r->sin);
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

static void reference_fini(struct reference *r)
{
    for (size_t i = 0; r->scratch != NULL && i < r->n_scratch; i++) {
        free(r->scratch[i].rows);
        free(r->scratch[i].y);
    }
    float *all[] = {r->x, r->h,    r->y,  r->q,   r->attn, r->k,
                    r->v, r->gate, r->up, r->cos, r->sin};
    for (size_t i = 0; i < countof(all); i++) {
        free(all[i]);
    }
    free(r->scratch);
    free(r->head_peak);
}

int reference_run(const struct decoder *d, unsigned threads,
                  const int32_t *tokens, uint32_t n, struct progress *progress,
                  struct range *range, float *logits, struct err *e)
{
    must(n >= 1 && n <= TOKENS);
    struct reference r = {.d = d,
                          .threads = crew_threads(threads),
                          .progress = progress,
                          .range = range,
                          .n = n};
    r.stride = (n + GEMM_LANES - 1) / GEMM_LANES * GEMM_LANES;
    int rc = 0;
    if (!reference_init(&r)) {
        rc = err_set(e, ERR_NOMEM, "no memory for %u tokens", n);
        goto out;
    }
    if (range != NULL) {
        range->n_tokens = n;
    }
    CHECK(embed(&r, tokens, e));
    for (uint32_t l = 0; l < d->n_layers; l++) {
        CHECK(run_layer(&r, l, e));
    }
    CHECK(head(&r, logits, e));
out:
    reference_fini(&r);
    return rc;
}

uint64_t reference_bytes(const struct decoder *d)
{
    uint64_t n = arch_head(d)->bytes;
    for (uint32_t l = 0; l < d->n_layers; l++) {
        for (unsigned s = SLOT_Q; s <= SLOT_DOWN; s++) {
            const struct gguf_tensor *t = arch_tensor(d, l, (enum arch_slot)s);
            n += t != NULL ? t->bytes : 0;
        }
    }
    return n;
}
