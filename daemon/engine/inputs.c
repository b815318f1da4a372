/* inputs.c - the numbers that inputs are made of: rope rows, what a row sees.
 * Rope rows are computed once for each position and list of factors. Their
 * tables come from calloc: pages that no position has reached cost nothing.
 */
#include <string.h>

#include "base/fmath.h"
#include "engine/impl.h"

/* factors NULL: none. */
static int table_init(struct rope_table *t, const struct bundle_rope *conf,
                      const float *factors, uint32_t context, struct err *e)
{
    uint32_t half = conf->dim / 2;
    t->cos = calloc((size_t)context * half, sizeof(float));
    t->sin = calloc((size_t)context * half, sizeof(float));
    t->freq = calloc(half, sizeof(*t->freq));
    if (t->cos == NULL || t->sin == NULL || t->freq == NULL) {
        return err_set(e, ERR_NOMEM, "rope tables");
    }
    for (uint32_t i = 0; i < half; i++) {
        double f = (double)conf->scale *
                   fmath_pow((double)conf->base, -2.0 * i / (double)conf->dim);
        t->freq[i] = factors != NULL ? f / (double)factors[i] : f;
    }
    return 0;
}

static int rope_init(struct rope *r, const struct bundle_rope *conf,
                     const struct bundle *b, struct err *e)
{
    r->half = conf->dim / 2;
    r->magnitude = (double)conf->magnitude;
    r->two = conf->long_factors != NULL && bundle_short_max(b) < b->context;
    RETERR(table_init(&r->of[0], conf,
                      conf->n_factors > 0 ? conf->factors : NULL, b->context,
                      e));
    return r->two
               ? table_init(&r->of[1], conf, conf->long_factors, b->context, e)
               : 0;
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
            RETERR(rope_init(&in->rope[k], kinds[k], b, e));
        }
    }
    return 0;
}

void inputs_fini(struct inputs *in)
{
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < 2; i++) {
            free(in->rope[k].of[i].freq);
            free(in->rope[k].of[i].cos);
            free(in->rope[k].of[i].sin);
        }
    }
    free(in->row);
    *in = (struct inputs){0};
}

/* Angles in double; the tables of the reference frameworks are fp32 and lie
 * within their own rounding of these. */
static void table_fill(struct rope_table *t, const struct rope *r, uint32_t end)
{
    for (; t->filled < end; t->filled++) {
        for (uint32_t i = 0; i < r->half; i++) {
            double angle = (double)t->filled * t->freq[i];
            size_t at = (size_t)t->filled * r->half + i;
            double sine = 0;
            double cosine = 0;
            fmath_sincos(angle, &sine, &cosine);
            t->cos[at] = (float)(cosine * r->magnitude);
            t->sin[at] = (float)(sine * r->magnitude);
        }
    }
}

void inputs_rope_row(struct inputs *in, size_t kind, bool long_list,
                     uint32_t pos, const float **cos, const float **sin)
{
    struct rope *r = &in->rope[kind];
    struct rope_table *t = &r->of[long_list && r->two];
    size_t at = (size_t)pos * r->half;
    table_fill(t, r, pos + 1);
    *cos = t->cos + at;
    *sin = t->sin + at;
}

void inputs_sight(const struct inputs *in, size_t kind, uint32_t pos,
                  uint32_t *lo, uint32_t *hi)
{
    uint32_t window = in->window[kind];
    *hi = pos + 1; /* itself included */
    *lo = window > 0 && *hi > window ? *hi - window : 0;
}
