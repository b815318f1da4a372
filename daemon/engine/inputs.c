/* inputs.c - the input arrays of a chunk of rows.
 *
 * With a context of thousands of positions the masks are by far the largest
 * inputs, and little in them changes from one step to the next: they are kept,
 * and only the differences are written. Rope rows are computed once for each
 * position and read in place. Tables come from malloc: pages that no position
 * has reached cost nothing.
 */
#include <string.h>

#include "base/fmath.h"
#include "base/half.h"
#include "engine/impl.h"

static int rope_init(struct rope *r, const struct bundle_rope *conf,
                     uint32_t context, uint32_t t_max, struct err *e)
{
    r->conf = conf;
    r->half = conf->dim / 2;
    r->cos = calloc((size_t)context * r->half, sizeof(float));
    r->sin = calloc((size_t)context * r->half, sizeof(float));
    r->pad_cos = calloc((size_t)t_max * r->half, sizeof(float));
    r->pad_sin = calloc((size_t)t_max * r->half, sizeof(float));
    r->freq = calloc(r->half, sizeof(*r->freq));
    if (r->cos == NULL || r->sin == NULL || r->pad_cos == NULL ||
        r->pad_sin == NULL || r->freq == NULL) {
        return err_set(e, ERR_NOMEM, "rope tables");
    }
    for (uint32_t i = 0; i < r->half; i++) {
        double f = (double)conf->scale *
                   fmath_pow((double)conf->base, -2.0 * i / (double)conf->dim);
        r->freq[i] = conf->n_factors > 0 ? f / (double)conf->factors[i] : f;
    }
    return 0;
}

static int mask_init(struct mask *m, uint32_t context, uint32_t t_max,
                     struct err *e)
{
    m->p = malloc((size_t)t_max * context * sizeof(float));
    m->lo = calloc(t_max, sizeof(*m->lo));
    m->hi = calloc(t_max, sizeof(*m->hi));
    if (m->p == NULL || m->lo == NULL || m->hi == NULL) {
        return err_set(e, ERR_NOMEM, "attention mask");
    }
    for (uint32_t t = 0; t < t_max; t++) {
        m->lo[t] = UINT32_MAX; /* never filled */
    }
    return 0;
}

int inputs_init(struct inputs *in, const struct bundle *b, uint32_t t_max,
                unsigned uses, struct err *e)
{
    *in = (struct inputs){
        .d_model = b->d_model, .context = b->context, .t_max = t_max};
    in->row = calloc(b->d_model, sizeof(float));
    in->x = calloc((size_t)b->d_model * t_max, sizeof(float));
    if (in->row == NULL || in->x == NULL) {
        return err_set(e, ERR_NOMEM, "inputs");
    }
    const struct bundle_rope *kinds[2] = {&b->rope, &b->rope_local};
    static const enum role cos_of[2] = {ROLE_COS, ROLE_COS_LOCAL};
    static const enum role sin_of[2] = {ROLE_SIN, ROLE_SIN_LOCAL};
    static const enum role mask_of[2] = {ROLE_MASK, ROLE_MASK_LOCAL};
    for (size_t k = 0; k < 2; k++) {
        in->mask[k].window = kinds[k]->present ? kinds[k]->window : 0;
        if ((uses & (1U << cos_of[k] | 1U << sin_of[k])) != 0) {
            int rc = rope_init(&in->rope[k], kinds[k], b->context, t_max, e);
            if (rc < 0) {
                return rc;
            }
        }
        if ((uses & 1U << mask_of[k]) != 0) {
            int rc = mask_init(&in->mask[k], b->context, t_max, e);
            if (rc < 0) {
                return rc;
            }
        }
    }
    if ((uses & 1U << ROLE_WRITE) != 0) {
        in->write = calloc((size_t)b->context * t_max, sizeof(float));
        in->ones = calloc(t_max, sizeof(*in->ones));
        if (in->write == NULL || in->ones == NULL) {
            return err_set(e, ERR_NOMEM, "write mask");
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
        free(in->rope[k].pad_cos);
        free(in->rope[k].pad_sin);
        free(in->mask[k].p);
        free(in->mask[k].lo);
        free(in->mask[k].hi);
    }
    free(in->row);
    free(in->x);
    free(in->write);
    free(in->ones);
    *in = (struct inputs){0};
}

void inputs_embed_row(const struct inputs *in, const uint8_t *embed,
                      float embed_scale, float residual_scale, int32_t token,
                      float *out)
{
    size_t d = in->d_model;
    /* the file is mapped at a page and rows have 2-byte elements */
    const void *at = embed + (size_t)token * d * 2;
    half_to_floats(at, out, d);
    for (size_t c = 0; c < d; c++) {
        out[c] = out[c] * embed_scale * residual_scale;
    }
}

void inputs_embed(struct inputs *in, const uint8_t *embed, float embed_scale,
                  float residual_scale, const int32_t *tokens, uint32_t n,
                  uint32_t t)
{
    size_t d = in->d_model;
    must(n > 0 && n <= t && t <= in->t_max);
    for (uint32_t i = 0; i < t; i++) {
        if (i < n) { /* a padding row repeats the last real one */
            inputs_embed_row(in, embed, embed_scale, residual_scale, tokens[i],
                             in->row);
        }
        for (size_t c = 0; c < d; c++) {
            in->x[c * t + i] = in->row[c];
        }
    }
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
            r->cos[at] = (float)cosine;
            r->sin[at] = (float)sine;
        }
    }
}

void inputs_rope_row(struct inputs *in, size_t kind, uint32_t pos, float *cos,
                     float *sin)
{
    struct rope *r = &in->rope[kind];
    size_t at = (size_t)pos * r->half;
    rope_fill(r, pos + 1);
    memcpy(cos, r->cos + at, r->half * sizeof(*cos));
    memcpy(sin, r->sin + at, r->half * sizeof(*sin));
}

static void rope_place(struct inputs *in, size_t kind, uint32_t pos, uint32_t n,
                       uint32_t t)
{
    struct rope *r = &in->rope[kind];
    if (r->conf == NULL) {
        return;
    }
    rope_fill(r, pos + n);
    in->cos[kind] = r->cos + (size_t)pos * r->half;
    in->sin[kind] = r->sin + (size_t)pos * r->half;
    if (n == t) {
        return;
    }
    size_t row = r->half * sizeof(float);
    for (uint32_t i = 0; i < t; i++) {
        size_t from = (size_t)(i < n ? i : n - 1) * r->half;
        memcpy(r->pad_cos + (size_t)i * r->half, in->cos[kind] + from, row);
        memcpy(r->pad_sin + (size_t)i * r->half, in->sin[kind] + from, row);
    }
    in->cos[kind] = r->pad_cos;
    in->sin[kind] = r->pad_sin;
}

static void set(float *row, uint32_t from, uint32_t to, float v)
{
    for (uint32_t i = from; i < to; i++) {
        row[i] = v;
    }
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t most(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Row t shows [lo, hi) from now on. */
static void mask_row(struct mask *m, uint32_t context, uint32_t t, uint32_t lo,
                     uint32_t hi)
{
    float *row = m->p + (size_t)t * context;
    if (m->lo[t] > m->hi[t]) {
        set(row, 0, context, MASK_OFF);
        m->lo[t] = m->hi[t] = lo;
    }
    uint32_t lo0 = m->lo[t];
    uint32_t hi0 = m->hi[t];
    set(row, lo0, least(hi0, lo), MASK_OFF);
    set(row, most(lo0, hi), hi0, MASK_OFF);
    set(row, lo, least(hi, lo0), 0);
    set(row, most(lo, hi0), hi, 0);
    m->lo[t] = lo;
    m->hi[t] = hi;
}

void inputs_sight(const struct inputs *in, size_t kind, uint32_t pos,
                  uint32_t *lo, uint32_t *hi)
{
    uint32_t window = in->mask[kind].window;
    *hi = pos + 1; /* itself included */
    *lo = window > 0 && *hi > window ? *hi - window : 0;
}

static void mask_place(struct inputs *in, size_t kind, uint32_t pos, uint32_t n,
                       uint32_t t)
{
    struct mask *m = &in->mask[kind];
    for (uint32_t i = 0; m->p != NULL && i < t; i++) {
        uint32_t lo = 0;
        uint32_t hi = 0;
        inputs_sight(in, kind, pos + least(i, n - 1), &lo, &hi);
        mask_row(m, in->context, i, lo, hi);
    }
}

static void write_place(struct inputs *in, uint32_t pos, uint32_t n, uint32_t t)
{
    if (in->write == NULL) {
        return;
    }
    for (uint32_t i = 0; i < in->n_ones; i++) {
        in->write[in->ones[i]] = 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        in->ones[i] = (size_t)(pos + i) * t + i;
        in->write[in->ones[i]] = 1;
    }
    in->n_ones = n;
}

void inputs_place(struct inputs *in, uint32_t pos, uint32_t n, uint32_t t)
{
    must(n > 0 && n <= t && t <= in->t_max && pos + n <= in->context);
    in->t = t;
    for (size_t k = 0; k < 2; k++) {
        rope_place(in, k, pos, n, t);
        mask_place(in, k, pos, n, t);
    }
    write_place(in, pos, n, t);
}

static struct tensor array(const char *name, int rank, int64_t a, int64_t b,
                           int64_t c, int64_t d, const float *p)
{
    return (struct tensor){
        .name = name,
        .dtype = MIL_FP32,
        .rank = rank,
        .dims = {a, b, c, d},
 /* a backend does not write to its inputs */
        .data = (void *)(uintptr_t)p
    };
}

struct tensor inputs_tensor(const struct inputs *in, enum role role,
                            const char *name)
{
    int64_t t = in->t;
    int64_t s = in->context;
    switch (role) {
    case ROLE_X:
        return array(name, 4, 1, in->d_model, t, 1, in->x);
    case ROLE_COS:
        return array(name, 2, t, in->rope[0].half, 0, 0, in->cos[0]);
    case ROLE_SIN:
        return array(name, 2, t, in->rope[0].half, 0, 0, in->sin[0]);
    case ROLE_MASK:
        return array(name, 4, 1, 1, t, s, in->mask[0].p);
    case ROLE_WRITE:
        return array(name, 4, 1, 1, s, t, in->write);
    case ROLE_COS_LOCAL:
        return array(name, 2, t, in->rope[1].half, 0, 0, in->cos[1]);
    case ROLE_SIN_LOCAL:
        return array(name, 2, t, in->rope[1].half, 0, 0, in->sin[1]);
    case ROLE_MASK_LOCAL:
        return array(name, 4, 1, 1, t, s, in->mask[1].p);
    case ROLE_PAST:
        break;
    }
    must(role != ROLE_PAST);
    return (struct tensor){0};
}
