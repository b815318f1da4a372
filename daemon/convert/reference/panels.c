/* panels.c - the memory of a run: its panels, and the keys and values that are
 * kept. */
#include "base/crew.h"
#include "base/num.h"
#include "convert/gemm.h"
#include "convert/reference/impl.h"

static size_t whole_lanes(size_t n)
{
    return (n + GEMM_LANES - 1) / GEMM_LANES * GEMM_LANES;
}

static bool panel(size_t rows, size_t stride, float **ret)
{
    *ret = calloc(rows * stride, sizeof(float));
    return *ret != NULL;
}

/* Rows of k, or of v, that a layer keeps. */
static size_t kept_rows(const struct decoder *d, uint32_t l, bool keys)
{
    const struct layer *y = &d->layers[l];
    if (y->mixer == MIXER_CONV) {
        return keys ? d->d_model : 0;
    }
    size_t kv = (size_t)y->n_kv * y->d_head;
    size_t u = (size_t)y->n_heads * y->d_head + kv;
    return y->mixer == MIXER_CCA && keys ? kv + u + kv / 2 : kv;
}

/* Rows of the stream: the residual's, and the router's where a later layer's
 * reads it. */
size_t reference_stream_rows(const struct decoder *d)
{
    size_t router = 0;
    for (uint32_t l = 0; l < d->n_layers; l++) {
        router = num_max(router, d->layers[l].d_router);
    }
    return d->d_model + router;
}

/* The most rows of any layer's values. */
struct rows_most {
    size_t q, kv, ff, half, heads, d_head, experts;
};

static struct rows_most most(const struct decoder *d)
{
    struct rows_most m = {0};
    for (uint32_t l = 0; l < d->n_layers; l++) {
        const struct layer *y = &d->layers[l];
        bool conv = y->mixer == MIXER_CONV;
        m.q = num_max(m.q, (size_t)y->n_heads * y->d_head);
        m.q = num_max(m.q, conv ? (size_t)3 * d->d_model : 0); /* [b; c; x] */
        m.kv = num_max(m.kv, kept_rows(d, l, true));
        m.ff = num_max(m.ff, num_max(y->d_ff, y->d_ple));
        m.ff = num_max(m.ff, y->d_expert);
        m.experts = num_max(m.experts, arch_classes(y));
        m.half = num_max(m.half, d->kinds[y->kind].rope_dim / 2);
        m.heads = num_max(m.heads, y->n_heads);
        m.d_head = num_max(m.d_head, y->d_head);
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

/* --- keys and values --- */

static bool keys_init(struct reference_keys *k, const struct decoder *d,
                      bool all)
{
    size_t rows = most(d).kv;
    k->k = calloc(d->n_layers, sizeof(*k->k));
    k->v = calloc(d->n_layers, sizeof(*k->v));
    bool ok = k->k != NULL && k->v != NULL;
    if (ok && !all) {
        ok = panel(rows, k->stride, &k->common_k) &&
             panel(rows, k->stride, &k->common_v);
    }
    for (uint32_t l = 0; ok && l < d->n_layers; l++) {
        if (d->layers[l].kv_from != l) {
            continue;
        }
        if (all || is_read_later(d, l)) {
            ok = panel(kept_rows(d, l, true), k->stride, &k->k[l]) &&
                 panel(num_max(kept_rows(d, l, false), 1), k->stride, &k->v[l]);
        } else {
            k->k[l] = k->common_k;
            k->v[l] = k->common_v;
        }
    }
    return ok;
}

int reference_keys_open(const struct decoder *d, uint32_t sequences,
                        uint32_t room, bool all, struct reference_keys **ret,
                        struct err *e)
{
    struct reference_keys *k = calloc(1, sizeof(*k));
    if (k != NULL) {
        *k = (struct reference_keys){.n_layers = d->n_layers, .room = room};
        k->stride = whole_lanes((size_t)sequences * room);
        if (keys_init(k, d, all)) {
            *ret = k;
            return 0;
        }
    }
    reference_keys_close(k);
    return err_set(e, ERR_NOMEM, "no memory for the keys of %u sequences",
                   sequences);
}

void reference_keys_close(struct reference_keys *k)
{
    if (k == NULL) {
        return;
    }
    for (uint32_t l = 0; k->k != NULL && k->v != NULL && l < k->n_layers; l++) {
        if (k->k[l] != k->common_k) {
            free(k->k[l]);
        }
        if (k->v[l] != k->common_v) {
            free(k->v[l]);
        }
    }
    free(k->k);
    free(k->v);
    free(k->common_k);
    free(k->common_v);
    free(k);
}

uint64_t reference_keys_bytes(const struct decoder *d, uint32_t sequences,
                              uint32_t room, bool all)
{
    uint64_t rows = all ? 0 : 2 * most(d).kv;
    for (uint32_t l = 0; l < d->n_layers; l++) {
        bool own = d->layers[l].kv_from == l && (all || is_read_later(d, l));
        rows += own ? kept_rows(d, l, true) + kept_rows(d, l, false) : 0;
    }
    return rows * whole_lanes((size_t)sequences * room) * sizeof(float);
}

/* --- panels --- */

static bool reference_init(struct reference *r)
{
    const struct decoder *d = r->d;
    struct rows_most m = most(d);
    uint64_t widest = num_max(num_max(d->d_model, m.ff), m.q);
    r->n_scratch = r->threads;
    r->scratch = calloc(r->n_scratch, sizeof(*r->scratch));
    r->head_peak = calloc(m.heads, sizeof(*r->head_peak));
    r->sinks = calloc(m.heads, sizeof(*r->sinks));
    const struct {
        size_t rows;
        float **to;
    } all[] = {
        {reference_stream_rows(d), &r->x},
        {d->d_model, &r->h   },
        {d->d_model, &r->y   },
        {m.q,        &r->q   },
        {m.q,        &r->attn},
        {m.kv,       &r->k   },
        {m.kv,       &r->v   },
        {m.ff,       &r->gate},
        {m.ff,       &r->up  },
        {m.half,     &r->cos },
        {m.half,     &r->sin },
    };
    bool ok = r->scratch != NULL && r->head_peak != NULL && r->sinks != NULL;
    for (size_t i = 0; ok && i < countof(all); i++) {
        ok = panel(all[i].rows, r->stride, all[i].to);
    }
    if (ok && d->d_ple > 0) {
        ok = panel(d->d_model, r->stride, &r->x0) &&
             panel(d->d_ple, r->stride, &r->ple);
    }
    if (ok && m.experts > 0) {
        ok = panel(m.experts, r->stride, &r->route) &&
             panel(m.experts, r->stride, &r->gates) &&
             panel(reference_stream_rows(d), r->stride, &r->picked) &&
             panel(reference_stream_rows(d), r->stride, &r->mixed);
    }
    for (size_t i = 0; ok && i < r->n_scratch; i++) {
        /* every matrix's block: at most BLOCK_FLOATS, or BLOCK_ROWS rows */
        size_t floats = (size_t)num_max(BLOCK_FLOATS, BLOCK_ROWS * widest);
        r->scratch[i].rows = malloc(floats * sizeof(float));
        r->scratch[i].y = malloc(reference_block_rows(d->d_model) * r->stride *
                                 sizeof(float));
        r->scratch[i].queries = malloc(m.d_head * QUERIES * sizeof(double));
        r->scratch[i].scores = malloc(TOKENS * QUERIES * sizeof(double));
        ok = r->scratch[i].rows != NULL && r->scratch[i].y != NULL &&
             r->scratch[i].queries != NULL && r->scratch[i].scores != NULL;
    }
    return ok;
}

int reference_open(const struct decoder *d, const struct reference_conf *conf,
                   uint32_t sequences, uint32_t columns, struct reference **ret,
                   struct err *e)
{
    must(sequences >= 1 && columns >= 1 &&
         columns <= REFERENCE_TOKENS_MAX / sequences);
    struct reference *r = calloc(1, sizeof(*r));
    if (r != NULL) {
        *r = (struct reference){.d = d,
                                .threads = crew_threads(conf->threads),
                                .progress = conf->progress,
                                .range = conf->range,
                                .conf = conf,
                                .n = sequences * columns,
                                .columns = columns};
        r->stride = whole_lanes(r->n);
        if (reference_init(r)) {
            *ret = r;
            return 0;
        }
    }
    reference_close(r);
    return err_set(e, ERR_NOMEM, "no memory for %u tokens",
                   sequences * columns);
}

void reference_at(struct reference *r, struct reference_keys *keys,
                  uint32_t position)
{
    must(position + r->columns <= keys->room && keys->room <= TOKENS);
    r->keys = keys;
    r->position = position;
}

float *reference_stream(const struct reference *r, size_t *ret_stride)
{
    *ret_stride = r->stride;
    return r->x;
}

void reference_close(struct reference *r)
{
    if (r == NULL) {
        return;
    }
    for (size_t i = 0; r->scratch != NULL && i < r->n_scratch; i++) {
        free(r->scratch[i].rows);
        free(r->scratch[i].y);
        free(r->scratch[i].queries);
        free(r->scratch[i].scores);
    }
    float *all[] = {r->x,     r->h,      r->y,    r->q,   r->attn, r->k,
                    r->v,     r->cos,    r->up,   r->gate, r->sin, r->x0,
                    r->route, r->gates,  r->mixed, r->ple, r->picked};
    for (size_t i = 0; i < countof(all); i++) {
        free(all[i]);
    }
    free(r->scratch);
    free(r->head_peak);
    free(r->sinks);
    free(r);
}

uint64_t reference_panel_bytes(const struct decoder *d, uint32_t tokens)
{
    struct rows_most m = most(d);
    uint64_t rows = 3 * (uint64_t)d->d_model +
                    2 * (m.q + m.kv + m.ff + m.half) +
                    (d->d_ple > 0 ? d->d_model + d->d_ple : 0) +
                    (m.experts > 0 ? 2 * (d->d_model + m.experts) : 0);
    return rows * whole_lanes(tokens) * sizeof(float);
}
