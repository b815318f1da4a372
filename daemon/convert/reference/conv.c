/* conv.c - a short convolution: one sum a channel over its own position and the
 * few before it (model/layer.h).
 */
#include "base/crew.h"
#include "convert/reference/impl.h"

struct conv {
    struct reference *r;
    const float *taps; /* (d_model, n) */
    uint32_t n;
    const float *u; /* of all positions: reference_keys.k of the layer */
};

/* r->attn = c * y of some channels; the sums are in double. */
static void on_channels(void *ctx, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    const struct conv *v = ctx;
    const struct reference *r = v->r;
    size_t d = r->d->d_model;
    for (size_t i = begin; i < end; i++) {
        const float *w = v->taps + i * v->n;
        const float *c = r->q + (d + i) * r->stride;
        for (uint32_t t = 0; t < r->n; t++) {
            uint32_t position = r->position + t % r->columns;
            const float *u = v->u + i * r->keys->stride +
                             (size_t)(t / r->columns) * r->keys->room;
            double sum = 0;
            for (uint32_t j = 0; j < v->n; j++) {
                uint32_t before = v->n - 1 - j;
                if (before <= position) {
                    sum += (double)w[j] * (double)u[position - before];
                }
            }
            r->attn[i * r->stride + t] = (float)(sum * (double)c[t]);
        }
    }
}

/* r->k = b * x of [b; c; x] in r->q. */
static void multiply(struct reference *r)
{
    size_t n = r->d->d_model * r->stride;
    const float *x = r->q + 2 * n;
    for (size_t i = 0; i < n; i++) {
        r->k[i] = r->q[i] * x[i];
    }
}

int reference_conv(struct reference *r, uint32_t l, struct err *e)
{
    const struct part *taps = arch_part(r->d, l, SLOT_CONV);
    size_t d = r->d->d_model;
    float *w = malloc(taps->rows * taps->cols * sizeof(*w));
    if (w == NULL) {
        return err_set(e, ERR_NOMEM, "no memory");
    }
    struct conv v = {.r = r, .taps = w, .n = r->layer->conv_len};
    int rc = 0;
    CHECK(gguf_rows(taps->t, 0, taps->rows, w, e));
    CHECK(reference_project(r, l, SLOT_CONV_IN, SLOT_COUNT, RANGE_CONV_IN, r->h,
                            r->q, e));
    multiply(r);
    reference_peak(r, RANGE_CONV_U, l, r->k, d);
    reference_keep(r, r->k, d, r->keys->k[l]);
    v.u = r->keys->k[l];
    crew_run(r->threads, d, 16, on_channels, &v);
    reference_peak(r, RANGE_CONV, l, r->attn, d);
out:
    free(w);
    return rc;
}
