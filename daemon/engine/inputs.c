/* inputs.c - the numbers that inputs are made of: rope rows, what a row sees. Rope rows are computed once for each position. Their tables come
 * from calloc: pages that no position has reached cost nothing.
 */
#include <string.h>

#include "base/fmath.h"
#include "engine/impl.h"

static int rope_init(struct rope *r, const struct bundle_rope *conf,
                     uint32_t context, struct err *e)
{
    r->half = conf->dim / 2;
    r->cos = calloc((size_t)context * r->half, sizeof(float));
    r->sin = calloc((size_t)context * r->half, sizeof(float));
    r->freq = calloc(r->half, sizeof(*r->freq));
    if (r->cos == NULL || r->sin == NULL || r->freq == NULL) {
        return err_set(e, ERR_NOMEM, "rope tables");
    }
    r->magnitude = (double)conf->magnitude;
    for (uint32_t i = 0; i < r->half; i++) {
        double f = (double)conf->scale *
                   fmath_pow((double)conf->base, -2.0 * i / (double)conf->dim);
        r->freq[i] = conf->n_factors > 0 ? f / (double)conf->factors[i] : f;
    }
    return 0;
}

int inputs_init(struct inputs *in, const struct bundle *b, unsigned uses,
                struct err *e)
{
    *in = (struct inputs){.d_model = b->d_model, .context = b->context};
    size_t ple = (size_t)b->n_layers * b->d_ple;
    in->row = calloc(ple > b->d_model ? ple : b->d_model, sizeof(float));
    if (in->row == NULL) {
        return err_set(e, ERR_NOMEM, "inputs");
    }
    const struct bundle_rope *kinds[2] = {&b->rope, &b->rope_local};
    static const enum role cos_of[2] = {ROLE_COS, ROLE_COS_LOCAL};
    static const enum role sin_of[2] = {ROLE_SIN, ROLE_SIN_LOCAL};
    for (size_t k = 0; k < 2; k++) {
        in->window[k] = kinds[k]->present ? kinds[k]->window : 0;
        if ((uses & (1U << cos_of[k] | 1U << sin_of[k])) != 0) {
            RETERR(rope_init(&in->rope[k], kinds[k], b->context, e));
        }
    }
    return 0;
}

void inputs_fini(struct inputs *in)
{
    for (size_t k = 0; k < 2; k++) {
        free(in->rope[k].freq);
        free(in->rope[k].cos);
        free(in->rope[k].sin);
    }
    free(in->row);
    *in = (struct inputs){0};
}

/* Angles in double; the tables of the reference frameworks are fp32 and lie
 * within their own rounding of these. */
static void rope_fill(struct rope *r, uint32_t end)
{
    for (; r->filled < end; r->filled++) {
        for (uint32_t i = 0; i < r->half; i++) {
            double angle = (double)r->filled * r->freq[i];
            size_t at = (size_t)r->filled * r->half + i;
            double sine = 0;
            double cosine = 0;
            fmath_sincos(angle, &sine, &cosine);
            r->cos[at] = (float)(cosine * r->magnitude);
            r->sin[at] = (float)(sine * r->magnitude);
        }
    }
}

void inputs_rope_row(struct inputs *in, size_t kind, uint32_t pos,
                     const float **cos, const float **sin)
{
    struct rope *r = &in->rope[kind];
    size_t at = (size_t)pos * r->half;
    rope_fill(r, pos + 1);
    *cos = r->cos + at;
    *sin = r->sin + at;
}

void inputs_sight(const struct inputs *in, size_t kind, uint32_t pos,
                  uint32_t *lo, uint32_t *hi)
{
    uint32_t window = in->window[kind];
    *hi = pos + 1; /* itself included */
    *lo = window > 0 && *hi > window ? *hi - window : 0;
}
