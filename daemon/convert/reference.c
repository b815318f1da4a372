/* reference.c - activations are feature-major panels (gemm.h): a column is a
 * token, so norms and rotations are loops over columns and every product is
 * rows of weights times the whole panel.
 *
 * Sums of norms, scores and softmax run in double: this is the yardstick.
 */
#include "convert/reference.h"

#include <math.h>
#include <string.h>

#include "base/crew.h"
#include "base/half.h"
#include "base/num.h"
#include "convert/gemm.h"
#include "convert/quant.h"

#define BLOCK_FLOATS (128u * 1024u)
#define TOKENS       REFERENCE_TOKENS_MAX
#define BATCH        64u /* blocks a worker between two looks at progress */

struct scratch { /* of one worker */
    float *rows; /* dequantised weights */
    float *y;    /* a block's products, when they are not kept */
    int rc;
    struct err err;
    double peak;
};

struct reference {
    const struct decoder *d;
    unsigned threads;
    struct progress *progress;
    struct range *range;
    uint32_t n;              /* tokens */
    size_t stride;           /* n rounded up to whole lanes */
    float *x, *h, *y;        /* (d_model, stride) */
    float *q, *attn;         /* (n_heads * d_head, stride) */
    float *k, *v;            /* (n_kv * d_head, stride) */
    float *gate, *up;        /* (d_ff, stride) */
    float *cos, *sin;        /* (rope_dim / 2, stride), of this layer */
    double *head_peak;       /* per head: scores */
    uint32_t window;         /* of this layer; 0 = all */
    struct scratch *scratch; /* per worker */
    size_t n_scratch;
};

/* --- products --- */

struct product {
    struct reference *r;
    const struct gguf_tensor *t;
    const float *x;
    float *y; /* (rows, stride); NULL: peaks, and logits when wanted */
    uint64_t block_rows;
    uint64_t first; /* block of this batch */
    float *logits;  /* (n, vocab) */
};

static uint64_t block_rows(uint64_t cols)
{
    return num_max(BLOCK_FLOATS / cols, 6); /* 6: one tile of gemm */
}

/* max |x| over the real columns; NaN when one is not a number. */
static double panel_peak(const struct reference *r, const float *x, size_t rows)
{
    double m = 0;
    for (size_t i = 0; i < rows; i++) {
        float p = quant_peak(x + i * r->stride, r->n);
        if (isnan(p)) {
            return (double)NAN;
        }
        m = (double)p > m ? (double)p : m;
    }
    return m;
}

static void run_block(struct product *p, size_t i, struct scratch *s)
{
    struct reference *r = p->r;
    uint64_t from = (p->first + i) * p->block_rows;
    uint64_t n = num_min(p->block_rows, p->t->rows - from);
    if (s->rc < 0) {
        return;
    }
    s->rc = gguf_rows(p->t, from, n, s->rows, &s->err);
    if (s->rc < 0) {
        return;
    }
    float *y = p->y != NULL ? p->y + from * r->stride : s->y;
    gemm_rows(s->rows, n, p->t->cols, p->x, r->stride, y);
    if (p->y != NULL) {
        return;
    }
    double peak = panel_peak(r, y, n);
    s->peak = isnan(peak) || peak > s->peak ? peak : s->peak;
    for (uint64_t j = 0; p->logits != NULL && j < n; j++) {
        for (uint32_t t = 0; t < r->n; t++) {
            p->logits[(size_t)t * p->t->rows + from + j] = y[j * r->stride + t];
        }
    }
}

static void on_blocks(void *ctx, size_t begin, size_t end, unsigned worker)
{
    struct product *p = ctx;
    for (size_t i = begin; i < end; i++) {
        run_block(p, i, &p->r->scratch[worker]);
    }
}

static int run_product(struct product *p, struct err *e)
{
    struct reference *r = p->r;
    p->block_rows = block_rows(p->t->cols);
    uint64_t blocks = (p->t->rows + p->block_rows - 1) / p->block_rows;
    uint64_t batch = (uint64_t)r->n_scratch * BATCH;
    for (p->first = 0; p->first < blocks; p->first += batch) {
        uint64_t n = num_min(batch, blocks - p->first);
        crew_run(r->threads, (size_t)n, 1, on_blocks, p);
        for (size_t i = 0; i < r->n_scratch; i++) {
            if (r->scratch[i].rc < 0) {
                return err_set(e, r->scratch[i].rc, "%s",
                               r->scratch[i].err.msg);
            }
        }
        uint64_t bytes = p->t->bytes / blocks * n;
        int rc = r->progress == NULL ? 0 : progress_add(r->progress, bytes, e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* y = t * x (+ bias) */
static int multiply(struct reference *r, const struct gguf_tensor *t,
                    const struct gguf_tensor *bias, const float *x, float *y,
                    struct err *e)
{
    struct product p = {.r = r, .t = t, .x = x, .y = y};
    int rc = run_product(&p, e);
    if (rc < 0 || bias == NULL) {
        return rc;
    }
    float *b = malloc(bias->cols * sizeof(*b));
    if (b == NULL) {
        return err_set(e, ERR_NOMEM, "%s: no memory", bias->name);
    }
    rc = gguf_rows(bias, 0, 1, b, e);
    for (size_t i = 0; rc == 0 && i < bias->cols; i++) {
        for (size_t t_ = 0; t_ < r->stride; t_++) {
            y[i * r->stride + t_] += b[i];
        }
    }
    free(b);
    return rc;
}

/* --- what is measured --- */

static void peak(struct reference *r, enum range_kind kind, uint32_t layer,
                 const float *x, size_t rows)
{
    if (r->range != NULL) {
        range_add_peak(r->range, kind, layer, panel_peak(r, x, rows));
    }
}

/* The x / sqrt(d) norm with fp16 after each step, beside the exact factor:
 * `exact` is 1 / rms per token. */
static float scale_error(const struct reference *r, const float *x, size_t d,
                         float alpha, const double *exact)
{
    float c = half_round(1.0f / sqrtf((float)d));
    float sum[TOKENS] = {0};
    float v[TOKENS];
    for (size_t i = 0; i < d; i++) {
        for (uint32_t t = 0; t < r->n; t++) {
            v[t] = x[i * r->stride + t] * alpha;
        }
        half_round_floats(v, r->n);
        for (uint32_t t = 0; t < r->n; t++) {
            v[t] *= c;
        }
        half_round_floats(v, r->n);
        for (uint32_t t = 0; t < r->n; t++) {
            v[t] *= v[t];
        }
        half_round_floats(v, r->n);
        for (uint32_t t = 0; t < r->n; t++) {
            sum[t] += v[t];
        }
    }
    float eps = norm_epsilon(NORM_SCALE, r->d->norm_eps, alpha);
    float worst = 0;
    for (uint32_t t = 0; t < r->n; t++) {
        float s = half_round(half_round(sum[t]) + eps);
        if (!(s > 0 && s < INFINITY)) {
            return INFINITY;
        }
        /* xs * rsqrt(s) * sqrt(d) against x * exact */
        double got = (double)(alpha * c) * sqrt((double)d) / sqrt((double)s);
        float error = (float)fabs(got / exact[t] - 1.0);
        worst = error > worst ? error : worst;
    }
    return worst;
}

/* y = x / rms(x) * weight, over `d` features. stream: x is stored times
 * alpha. kind: where its peak and error belong; probe false: already did. */
static void norm_panel(const struct reference *r, const float *x, size_t d,
                       const float *w, float *y, bool stream,
                       struct range_norm *probe)
{
    double exact[TOKENS];
    double sum[TOKENS] = {0};
    for (size_t i = 0; i < d; i++) {
        for (uint32_t t = 0; t < r->n; t++) {
            double v = (double)x[i * r->stride + t];
            sum[t] += v * v;
        }
    }
    for (uint32_t t = 0; t < r->n; t++) {
        exact[t] = 1.0 / sqrt(sum[t] / (double)d + (double)r->d->norm_eps);
    }
    for (unsigned a = 0; probe != NULL && a < RANGE_ALPHAS; a++) {
        float error = a == 0 || stream
                          ? scale_error(r, x, d, ldexpf(1, -(int)a), exact)
                          : probe->error[0];
        /* heads share a probe: the worst one counts, for alpha 1 only */
        probe->error[a] = error > probe->error[a] ? error : probe->error[a];
    }
    for (size_t i = 0; i < d; i++) {
        for (uint32_t t = 0; t < r->n; t++) {
            size_t at = i * r->stride + t;
            y[at] = (float)((double)x[at] * exact[t] * (double)w[i]);
        }
    }
}

/* `groups` norms of d features each, one weight. y may be x. */
static int normalise(struct reference *r, const struct gguf_tensor *t,
                     enum range_kind kind, uint32_t layer, const float *x,
                     size_t groups, bool stream, float *y, struct err *e)
{
    size_t d = t->cols;
    float *w = malloc(d * sizeof(*w));
    if (w == NULL) {
        return err_set(e, ERR_NOMEM, "%s: no memory", t->name);
    }
    int rc = gguf_rows(t, 0, 1, w, e);
    if (rc == 0) {
        struct range_norm *probe =
            r->range != NULL ? range_add_norm(r->range, kind, layer) : NULL;
        for (size_t g = 0; g < groups; g++) {
            size_t at = g * d * r->stride;
            norm_panel(r, x + at, d, w, y + at, stream, probe);
        }
        peak(r, kind, layer, y, groups * d);
    }
    free(w);
    return rc;
}

/* --- attention --- */

static void rope_tables(struct reference *r, bool local)
{
    const struct decoder *d = r->d;
    double base = (double)(local ? d->rope_base_local : d->rope_base);
    double scale = local ? 1.0 : (double)d->rope_scale;
    for (uint32_t i = 0; i < d->rope_dim / 2; i++) {
        double f = pow(base, -2.0 * i / d->rope_dim);
        f /= d->n_factors > 0 ? (double)d->factors[i] : 1.0;
        for (uint32_t t = 0; t < r->n; t++) {
            r->cos[i * r->stride + t] = (float)cos(t * scale * f);
            r->sin[i * r->stride + t] = (float)sin(t * scale * f);
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
            p[u] = exp(p[u] - top);
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
    int rc = multiply(r, arch_tensor(d, l, SLOT_Q),
                      arch_tensor(d, l, SLOT_Q_BIAS), r->h, r->q, e);
    if (rc == 0) {
        rc = multiply(r, arch_tensor(d, l, SLOT_K),
                      arch_tensor(d, l, SLOT_K_BIAS), r->h, r->k, e);
    }
    if (rc == 0) {
        rc = multiply(r, arch_tensor(d, l, SLOT_V),
                      arch_tensor(d, l, SLOT_V_BIAS), r->h, r->v, e);
    }
    if (rc < 0) {
        return rc;
    }
    peak(r, RANGE_Q, l, r->q, q_rows);
    peak(r, RANGE_K, l, r->k, kv_rows);
    peak(r, RANGE_V, l, r->v, kv_rows);
    if (arch_tensor(d, l, SLOT_Q_NORM) != NULL) {
        rc = normalise(r, arch_tensor(d, l, SLOT_Q_NORM), RANGE_Q_NORM, l, r->q,
                       d->n_heads, false, r->q, e);
    }
    if (rc == 0 && arch_tensor(d, l, SLOT_K_NORM) != NULL) {
        rc = normalise(r, arch_tensor(d, l, SLOT_K_NORM), RANGE_K_NORM, l, r->k,
                       d->n_kv, false, r->k, e);
    }
    if (rc < 0) {
        return rc;
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
    peak(r, RANGE_ATTN, l, r->attn, q_rows);
    rc = multiply(r, arch_tensor(d, l, SLOT_O), arch_tensor(d, l, SLOT_O_BIAS),
                  r->attn, r->y, e);
    peak(r, RANGE_ATTN_OUT, l, r->y, d->d_model);
    return rc;
}

/* --- layers --- */

static float activate(enum arch_act act, float x)
{
    double v = (double)x;
    if (act == ARCH_SILU) {
        return (float)(v / (1.0 + exp(-v)));
    }
    double u = 0.7978845608028654 * (v + 0.044715 * v * v * v);
    return (float)(0.5 * v * (1.0 + tanh(u)));
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
    int rc = multiply(r, arch_tensor(d, l, SLOT_GATE), NULL, r->h, r->gate, e);
    if (rc == 0) {
        rc = multiply(r, arch_tensor(d, l, SLOT_UP), NULL, r->h, r->up, e);
    }
    if (rc < 0) {
        return rc;
    }
    peak(r, RANGE_GATE, l, r->gate, d->d_ff);
    peak(r, RANGE_UP, l, r->up, d->d_ff);
    crew_run(r->threads, d->d_ff, 16, on_rows, r);
    peak(r, RANGE_ACT_UP, l, r->gate, d->d_ff);
    rc = multiply(r, arch_tensor(d, l, SLOT_DOWN), NULL, r->gate, r->y, e);
    peak(r, RANGE_FFN_OUT, l, r->y, d->d_model);
    return rc;
}

/* x += (post norm of) y */
static int join(struct reference *r, uint32_t l, enum arch_slot post,
                enum range_kind post_kind, enum range_kind kind, struct err *e)
{
    const struct gguf_tensor *t = arch_tensor(r->d, l, post);
    int rc = 0;
    if (t != NULL) {
        rc = normalise(r, t, post_kind, l, r->y, 1, false, r->y, e);
    }
    for (size_t i = 0; i < r->d->d_model * r->stride; i++) {
        r->x[i] += r->y[i];
    }
    peak(r, kind, l, r->x, r->d->d_model);
    return rc;
}

static int run_layer(struct reference *r, uint32_t l, struct err *e)
{
    const struct decoder *d = r->d;
    int rc = normalise(r, arch_tensor(d, l, SLOT_ATTN_NORM), RANGE_ATTN_NORM, l,
                       r->x, 1, true, r->h, e);
    if (rc == 0) {
        rc = attention(r, l, e);
    }
    if (rc == 0) {
        rc = join(r, l, SLOT_POST_ATTN, RANGE_POST_ATTN, RANGE_RESIDUAL_MID, e);
    }
    if (rc == 0) {
        rc = normalise(r, arch_tensor(d, l, SLOT_FFN_NORM), RANGE_FFN_NORM, l,
                       r->x, 1, true, r->h, e);
    }
    if (rc == 0) {
        rc = feed_forward(r, l, e);
    }
    if (rc == 0) {
        rc = join(r, l, SLOT_POST_FFN, RANGE_POST_FFN, RANGE_RESIDUAL, e);
    }
    return rc;
}

static int embed(struct reference *r, const int32_t *tokens, struct err *e)
{
    const struct decoder *d = r->d;
    float *row = malloc(d->d_model * sizeof(*row));
    if (row == NULL) {
        return err_set(e, ERR_NOMEM, "no memory");
    }
    int rc = 0;
    for (uint32_t t = 0; rc == 0 && t < r->n; t++) {
        if (tokens[t] < 0 || (uint32_t)tokens[t] >= d->vocab) {
            rc = err_set(e, ERR_INVALID, "token %d of %u", tokens[t], d->vocab);
            break;
        }
        rc = gguf_rows(d->global[SLOT_EMBD], (uint64_t)tokens[t], 1, row, e);
        for (uint32_t i = 0; rc == 0 && i < d->d_model; i++) {
            r->x[i * r->stride + t] = row[i] * d->embed_scale;
        }
    }
    free(row);
    if (rc == 0) {
        peak(r, RANGE_EMBEDDING, 0, r->x, d->d_model);
    }
    return rc;
}

static int head(struct reference *r, float *logits, struct err *e)
{
    const struct decoder *d = r->d;
    int rc = normalise(r, d->global[SLOT_OUT_NORM], RANGE_OUT_NORM, 0, r->x, 1,
                       true, r->h, e);
    if (rc < 0) {
        return rc;
    }
    struct product p = {.r = r, .t = arch_head(d), .x = r->h, .logits = logits};
    for (size_t i = 0; i < r->n_scratch; i++) {
        r->scratch[i].peak = 0;
    }
    rc = run_product(&p, e);
    double top = 0;
    for (size_t i = 0; i < r->n_scratch; i++) {
        top = r->scratch[i].peak <= top ? top : r->scratch[i].peak;
    }
    if (rc == 0 && r->range != NULL) {
        range_add_peak(r->range, RANGE_LOGITS, 0, top);
    }
    return rc;
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
        r->scratch[i].y =
            malloc(block_rows(d->d_model) * r->stride * sizeof(float));
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
    rc = embed(&r, tokens, e);
    for (uint32_t l = 0; rc == 0 && l < d->n_layers; l++) {
        rc = run_layer(&r, l, e);
    }
    if (rc == 0) {
        rc = head(&r, logits, e);
    }
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
