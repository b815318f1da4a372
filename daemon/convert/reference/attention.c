/* attention.c - what queries, keys and values are before scores.c: their norms,
 * and the rotation where the source has its pairs.
 */
#include <string.h>

#include "base/fmath.h"
#include "convert/reference/impl.h"

static void rope_tables(struct reference *r)
{
    const struct arch_kind *k = &r->d->kinds[r->layer->kind];
    const float *factors =
        k->long_factors != NULL && r->keys->room > k->original ? k->long_factors
                                                               : k->factors;
    for (uint32_t i = 0; i < k->rope_dim / 2; i++) {
        double f = fmath_pow((double)k->base, -2.0 * i / k->rope_dim);
        f /= k->n_factors > 0 ? (double)factors[i] : 1.0;
        float *to_cos = r->cos + i * r->stride;
        float *to_sin = r->sin + i * r->stride;
        for (uint32_t t = 0; t < r->columns; t++) {
            double sine = 0;
            double cosine = 0;
            fmath_sincos((r->position + t) * (double)k->scale * f, &sine,
                         &cosine);
            to_cos[t] = (float)(cosine * (double)k->magnitude);
            to_sin[t] = (float)(sine * (double)k->magnitude);
        }
        for (uint32_t t = r->columns; t < r->n; t++) { /* more sequences */
            to_cos[t] = to_cos[t - r->columns];
            to_sin[t] = to_sin[t - r->columns];
        }
    }
}

/* In place, on the pairs where the source has them. */
static void rotate(const struct reference *r, float *x, uint32_t heads)
{
    bool pairs = r->d->arch->pairs;
    uint32_t half = r->d->kinds[r->layer->kind].rope_dim / 2;
    for (uint32_t h = 0; h < heads; h++) {
        float *head = x + (size_t)h * r->layer->d_head * r->stride;
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

/* --- queries, keys, values --- */

/* The norm of queries or keys, if there is one, of n heads. */
static int norm_heads(struct reference *r, uint32_t l, enum arch_slot slot,
                      enum range_kind kind, uint32_t n, float *x, struct err *e)
{
    const struct layer *y = r->layer;
    bool full = y->qk_norm == QK_NORM_FULL;
    const struct norm norm = {.weight = arch_part(r->d, l, slot),
                              .plus_one = y->gain_plus_one,
                              .d = full ? (size_t)n * y->d_head : y->d_head,
                              .groups = full ? 1 : n,
                              .kind = kind,
                              .layer = l};
    return y->qk_norm == QK_NORM_NONE
               ? 0
               : reference_normalise(r, &norm, x, x, e);
}

static int finish_heads(struct reference *r, uint32_t l, enum arch_slot slot,
                        enum range_kind kind, uint32_t n, float *x,
                        struct err *e)
{
    if (!r->layer->qk_norm_last) {
        RETERR(norm_heads(r, l, slot, kind, n, x, e));
    }
    if (r->layer->rotates) {
        rotate(r, x, n);
    }
    return r->layer->qk_norm_last ? norm_heads(r, l, slot, kind, n, x, e) : 0;
}

void reference_keep(const struct reference *r, const float *x, size_t rows,
                    float *to)
{
    const struct reference_keys *keys = r->keys;
    for (size_t i = 0; i < rows; i++) {
        for (uint32_t t = 0; t < r->n; t += r->columns) {
            size_t at = (size_t)(t / r->columns) * keys->room + r->position;
            memcpy(to + i * keys->stride + at, x + i * r->stride + t,
                   r->columns * sizeof(*x));
        }
    }
}

/* This layer's own keys and values. */
static int make_keys(struct reference *r, uint32_t l, struct err *e)
{
    static const struct part none;
    const struct layer *y = r->layer;
    size_t rows = (size_t)y->n_kv * y->d_head;
    RETERR(reference_project(r, l, SLOT_K, SLOT_K_BIAS, RANGE_K, r->h, r->k,
                             e));
    if (y->v_is_k) {
        memcpy(r->v, r->k, rows * r->stride * sizeof(*r->v));
    } else {
        RETERR(reference_project(r, l, SLOT_V, SLOT_V_BIAS, RANGE_V, r->h, r->v,
                                 e));
    }
    if (y->v_norm) {
        const struct norm norm = {.weight = &none,
                                  .d = y->d_head,
                                  .groups = y->n_kv,
                                  .kind = RANGE_V_NORM,
                                  .layer = l};
        RETERR(reference_normalise(r, &norm, r->v, r->v, e));
    }
    RETERR(finish_heads(r, l, SLOT_K_NORM, RANGE_K_NORM, y->n_kv, r->k, e));
    reference_keep(r, r->k, rows, r->keys->k[l]);
    reference_keep(r, r->v, rows, r->keys->v[l]);
    return 0;
}

int reference_attention(struct reference *r, uint32_t l, struct err *e)
{
    const struct layer *y = r->layer;
    rope_tables(r);
    if (y->mixer == MIXER_CCA) {
        RETERR(reference_cca(r, l, e));
        rotate(r, r->q, y->n_heads);
        rotate(r, r->k, y->n_kv);
        reference_keep(r, r->k, (size_t)y->n_kv * y->d_head, r->keys->k[l]);
        reference_keep(r, r->v, (size_t)y->n_kv * y->d_head, r->keys->v[l]);
        reference_scores(r, l);
        reference_peak(r, RANGE_ATTN, l, r->attn,
                       (size_t)y->n_heads * y->d_head);
        return 0;
    }
    RETERR(reference_project(r, l, SLOT_Q, SLOT_Q_BIAS, RANGE_Q, r->h, r->q,
                             e));
    RETERR(finish_heads(r, l, SLOT_Q_NORM, RANGE_Q_NORM, y->n_heads, r->q, e));
    if (y->kv_from == l) {
        RETERR(make_keys(r, l, e));
    }
    if (y->sinks) {
        RETERR(arch_vector(arch_part(r->d, l, SLOT_SINKS), r->sinks, e));
    }
    reference_scores(r, l);
    reference_peak(r, RANGE_ATTN, l, r->attn, (size_t)y->n_heads * y->d_head);
    return 0;
}
