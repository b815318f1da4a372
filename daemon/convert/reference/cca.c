/* cca.c - queries and keys that are mixed along positions (model/layer.h,
 * MIXER_CCA). Positions before the first one have u = 0, once: what the
 * depthwise convolution makes of them is its bias.
 */
#include <string.h>

#include "base/crew.h"
#include "convert/reference/impl.h"

struct mixing {
    struct reference *r;
    const float *taps;  /* (channels, conv_len) */
    const float *mix;   /* (channels, d_head * mix_len) */
    const float *bias;  /* of the depthwise convolution, then of the other */
    const float *u;     /* of these columns: (channels, stride) */
    const float *past;  /* of all positions: (channels, keys' stride) */
};

/* What the depthwise convolution gives of a channel at a position, which may be
 * before the first one. */
static double depthwise(const struct mixing *m, size_t channel,
                        const float *past, int64_t position)
{
    uint32_t n = m->r->layer->conv_len;
    double sum = (double)m->bias[channel];
    for (uint32_t j = 0; j < n; j++) {
        int64_t at = position - (int64_t)(n - 1) + (int64_t)j;
        if (at >= 0) {
            sum += (double)m->taps[channel * n + j] * (double)past[at];
        }
    }
    return sum;
}

/* Half of a channel's u and of what its heads share. */
static double shared(const struct mixing *m, size_t channel, uint32_t t)
{
    const struct layer *y = m->r->layer;
    size_t dh = y->d_head;
    size_t head = channel / dh;
    size_t of = channel % dh;
    size_t group = y->n_heads / y->n_kv;
    size_t stride = m->r->stride;
    if (head < y->n_heads) {
        size_t key = (y->n_heads + head / group) * dh + of;
        return ((double)m->u[channel * stride + t] +
                (double)m->u[key * stride + t]) / 2;
    }
    double sum = 0;
    for (size_t i = 0; i < group; i++) {
        size_t q = ((head - y->n_heads) * group + i) * dh + of;
        sum += (double)m->u[q * stride + t];
    }
    return (sum / (double)group + (double)m->u[channel * stride + t]) / 2;
}

/* All channels of some heads: of queries, then of keys. */
static void on_heads(void *ctx, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    const struct mixing *m = ctx;
    const struct reference *r = m->r;
    const struct layer *y = r->layer;
    size_t dh = y->d_head;
    size_t n = y->mix_len;
    size_t all = (size_t)(y->n_heads + y->n_kv) * dh;
    for (size_t row = begin * dh; row < end * dh; row++) {
        size_t first = row / dh * dh;
        float *to = row < y->n_heads * dh
                        ? r->q + row * r->stride
                        : r->k + (row - y->n_heads * dh) * r->stride;
        for (uint32_t t = 0; t < r->n; t++) {
            int64_t position = r->position + t % r->columns;
            double sum = (double)m->bias[all + row] + shared(m, row, t);
            for (size_t i = 0; i < dh; i++) {
                const float *past = m->past + (first + i) * r->keys->stride +
                                    (size_t)(t / r->columns) * r->keys->room;
                for (size_t j = 0; j < n; j++) {
                    sum += (double)m->mix[(row * dh + i) * n + j] *
                           depthwise(m, first + i, past,
                                     position - (int64_t)(n - 1 - j));
                }
            }
            to[t] = (float)sum;
        }
    }
}

/* The second half of the values: what V_BEFORE made of the position before. */
static void take_before(struct reference *r, const float *past)
{
    size_t half = (size_t)r->layer->n_kv * r->layer->d_head / 2;
    for (size_t i = 0; i < half; i++) {
        float *v = r->v + (half + i) * r->stride;
        for (uint32_t t = 0; t < r->n; t++) {
            const float *of = past + i * r->keys->stride +
                              (size_t)(t / r->columns) * r->keys->room;
            uint32_t position = r->position + t % r->columns;
            v[t] = position > 0 ? of[position - 1] : 0;
        }
    }
}

/* factor: n_kv of them. */
static int finish(struct reference *r, uint32_t l, float *factor,
                  struct err *e)
{
    static const struct part none;
    const struct layer *y = r->layer;
    const struct norm q = {.weight = &none, .d = y->d_head, .bare = true,
                           .groups = y->n_heads, .kind = RANGE_Q_NORM,
                           .layer = l};
    struct norm k = q;
    k.groups = y->n_kv;
    k.kind = RANGE_K_NORM;
    reference_peak(r, RANGE_Q_MIX, l, r->q, (size_t)y->n_heads * y->d_head);
    reference_peak(r, RANGE_K_MIX, l, r->k, (size_t)y->n_kv * y->d_head);
    RETERR(reference_normalise(r, &q, r->q, r->q, e));
    RETERR(reference_normalise(r, &k, r->k, r->k, e));
    RETERR(arch_vector(arch_part(r->d, l, SLOT_K_SCALE), factor, e));
    for (size_t i = 0; i < (size_t)y->n_kv * y->d_head; i++) {
        for (uint32_t t = 0; t < r->n; t++) {
            r->k[i * r->stride + t] *= factor[i / y->d_head];
        }
    }
    return 0;
}

/* The tables of a layer as floats, one after the other. */
static int read_tables(const struct reference *r, uint32_t l, float *out,
                       struct mixing *m, struct err *e)
{
    static const enum arch_slot slots[] = {SLOT_CONV, SLOT_MIX, SLOT_MIX_BIAS};
    const float **to[] = {&m->taps, &m->mix, &m->bias};
    for (size_t i = 0; i < countof(slots); i++) {
        const struct part *p = arch_part(r->d, l, slots[i]);
        RETERR(gguf_rows(p->t, p->first, p->rows, out, e));
        *to[i] = out;
        out += p->rows * p->cols;
    }
    return 0;
}

static size_t table_floats(const struct reference *r, uint32_t l)
{
    size_t n = 0;
    const enum arch_slot slots[] = {SLOT_CONV, SLOT_MIX, SLOT_MIX_BIAS};
    for (size_t i = 0; i < countof(slots); i++) {
        const struct part *p = arch_part(r->d, l, slots[i]);
        n += (size_t)(p->rows * p->cols);
    }
    return n;
}

int reference_cca(struct reference *r, uint32_t l, struct err *e)
{
    const struct layer *y = r->layer;
    size_t q = (size_t)y->n_heads * y->d_head;
    size_t kv = (size_t)y->n_kv * y->d_head;
    float *u = r->k + kv * r->stride;
    float *before = u + (q + kv) * r->stride;
    float *past = r->keys->k[l] + kv * r->keys->stride;
    struct mixing m = {.r = r, .u = u, .past = past};
    size_t n_tables = table_floats(r, l);
    float *tables = malloc((n_tables + y->n_kv) * sizeof(*tables));
    if (tables == NULL) {
        return err_set(e, ERR_NOMEM, "no memory");
    }
    int rc = 0;
    CHECK(read_tables(r, l, tables, &m, e));
    CHECK(reference_project(r, l, SLOT_Q, SLOT_COUNT, RANGE_Q, r->h, r->q, e));
    CHECK(reference_project(r, l, SLOT_K, SLOT_COUNT, RANGE_K, r->h, r->k, e));
    CHECK(reference_project(r, l, SLOT_V, SLOT_COUNT, RANGE_V, r->h, r->v, e));
    CHECK(reference_project(r, l, SLOT_V_BEFORE, SLOT_COUNT, RANGE_V, r->h,
                            before, e));
    memcpy(u, r->q, q * r->stride * sizeof(*u));
    memcpy(u + q * r->stride, r->k, kv * r->stride * sizeof(*u));
    reference_keep(r, u, q + kv + kv / 2, past);
    crew_run(r->threads, y->n_heads + y->n_kv, 1, on_heads, &m);
    take_before(r, past + (q + kv) * r->keys->stride);
    rc = finish(r, l, tables + n_tables, e);
out:
    free(tables);
    return rc;
}
