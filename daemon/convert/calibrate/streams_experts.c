/* streams_experts.c - what a layer's experts read, of all samples.
 *
 * Each expert has tokens of its own, from all chunks, so what experts read is
 * kept for all tokens, and an expert's are gathered into panels of at most a
 * chunk's tokens.
 */
#include <string.h>

#include "base/num.h"
#include "convert/calibrate/impl.h"
#include "convert/gemm.h"

struct streams_routed {
    uint32_t n_experts;  /* of the layer at hand */
    uint32_t tokens;     /* of all chunks */
    size_t stride;       /* of a panel: a chunk's tokens in whole lanes */
    float *in[SIDES];    /* chunk after chunk: (d_model, chunk_tokens) */
    float *gates;        /* the same: (n_experts, chunk_tokens) */
    float *panel[SIDES]; /* (d_model, stride) */
    float *by;           /* of a panel's tokens */
    uint32_t *columns;   /* of one expert */
};

static uint32_t most_experts(const struct decoder *d)
{
    uint32_t n = 0;
    for (uint32_t l = 0; l < d->n_layers; l++) {
        n = (uint32_t)num_max(n, d->layers[l].n_experts);
    }
    return n;
}

static size_t whole_lanes(size_t n)
{
    return (n + GEMM_LANES - 1) / GEMM_LANES * GEMM_LANES;
}

uint64_t streams_routed_bytes(const struct decoder *d, uint32_t sequences)
{
    uint64_t tokens = (uint64_t)sequences * CALIBRATE_TOKENS;
    uint64_t panel = whole_lanes(REFERENCE_TOKENS_MAX);
    uint32_t experts = most_experts(d);
    return experts == 0
               ? 0
               : sizeof(float) *
                     (tokens * (2 * (uint64_t)d->d_model + experts + 1) +
                      panel * (2 * (uint64_t)d->d_model + 1));
}

int streams_routed_open(struct streams *s, struct err *e)
{
    uint32_t experts = most_experts(s->d);
    size_t d = s->d->d_model;
    if (experts == 0) {
        return 0;
    }
    struct streams_routed *r = calloc(1, sizeof(*r));
    bool ok = r != NULL;
    s->routed = r;
    if (ok) {
        r->tokens = s->chunks * s->chunk_tokens;
        r->stride = whole_lanes(s->chunk_tokens);
        r->gates = malloc((size_t)experts * r->tokens * sizeof(*r->gates));
        r->by = malloc(r->stride * sizeof(*r->by));
        r->columns = malloc(r->tokens * sizeof(*r->columns));
        ok = r->gates != NULL && r->by != NULL && r->columns != NULL;
    }
    for (unsigned i = 0; ok && i < SIDES; i++) {
        r->in[i] = malloc(d * r->tokens * sizeof(float));
        r->panel[i] = malloc(d * r->stride * sizeof(float));
        ok = r->in[i] != NULL && r->panel[i] != NULL;
    }
    return ok ? 0
              : err_set(e, ERR_NOMEM, "no memory for what %u experts read",
                        experts);
}

void streams_routed_close(struct streams_routed *r)
{
    for (unsigned i = 0; r != NULL && i < SIDES; i++) {
        free(r->in[i]);
        free(r->panel[i]);
    }
    if (r != NULL) {
        free(r->gates);
        free(r->by);
        free(r->columns);
        free(r);
    }
}

/* --- routing --- */

static float *of_chunk(const struct streams *s, float *kept, uint32_t chunk,
                       size_t rows)
{
    return kept + (size_t)chunk * s->chunk_tokens * rows;
}

int streams_route(struct streams *s, uint32_t l, struct err *e)
{
    struct streams_routed *r = s->routed;
    r->n_experts = s->d->layers[l].n_experts;
    for (uint32_t c = 0; c < s->chunks; c++) {
        for (enum side side = 0; side < SIDES; side++) {
            struct reference *ref = s->sides[side].r;
            struct reference_panel gates = {0};
            RETERR(streams_load(s, side, c, e));
            RETERR(reference_route(ref, l, &gates, e));
            const struct reference_panel in =
                reference_input(ref, l, SLOT_EXPERT_GATE);
            streams_copy(s, &in, of_chunk(s, r->in[side], c, in.rows), true);
            if (side == QUANTISED) {
                streams_copy(s, &gates, of_chunk(s, r->gates, c, gates.rows),
                             true);
            }
        }
    }
    return 0;
}

/* --- panels --- */

/* Where token t of a row stands, from the row's place in its first chunk. */
static size_t place(const struct streams *s, size_t rows, size_t row,
                    uint32_t t)
{
    uint32_t n = s->chunk_tokens;
    return (size_t)(t / n) * n * rows + row * n + t % n;
}

/* n tokens of a side into its panel; by: what they are multiplied by, or NULL. */
static struct reference_panel gather(const struct streams *s, enum side side,
                                     const uint32_t *columns, uint32_t n,
                                     const float *by)
{
    const struct streams_routed *r = s->routed;
    size_t rows = s->d->d_model;
    struct reference_panel p = {r->panel[side], rows, whole_lanes(n), n};
    for (size_t i = 0; i < rows; i++) {
        float *to = p.x + i * p.stride;
        for (uint32_t k = 0; k < n; k++) {
            float v = r->in[side][place(s, rows, i, columns[k])];
            to[k] = by != NULL ? v * by[k] : v;
        }
        memset(to + n, 0, (p.stride - n) * sizeof(*to));
    }
    return p;
}

int streams_routed_all(struct streams *s, streams_fn *fn, void *ctx,
                       struct err *e)
{
    struct streams_routed *r = s->routed;
    for (uint32_t t = 0; t < r->tokens; t += s->chunk_tokens) {
        struct reference_panel in[SIDES];
        for (uint32_t k = 0; k < s->chunk_tokens; k++) {
            r->columns[k] = t + k;
        }
        for (enum side side = 0; side < SIDES; side++) {
            in[side] = gather(s, side, r->columns, s->chunk_tokens, NULL);
        }
        RETERR(fn(ctx, in, e));
    }
    return 0;
}

/* The tokens that have chosen an expert, in order. */
static uint32_t find(const struct streams *s, uint32_t index,
                     struct routed_count *ret)
{
    struct streams_routed *r = s->routed;
    *ret = (struct routed_count){.tokens = 0};
    for (uint32_t t = 0; t < r->tokens; t++) {
        double g = (double)r->gates[place(s, r->n_experts, index, t)];
        if (g > 0 || g < 0) {
            r->columns[ret->tokens++] = t;
            ret->squares += g * g;
        }
    }
    return ret->tokens;
}

int streams_expert(struct streams *s, uint32_t l, uint32_t index, bool last,
                   streams_fn *fn, void *ctx, struct routed_count *ret,
                   struct err *e)
{
    struct streams_routed *r = s->routed;
    uint32_t all = find(s, index, ret);
    for (uint32_t at = 0; at < all; at += s->chunk_tokens) {
        uint32_t n = (uint32_t)num_min(s->chunk_tokens, all - at);
        struct reference_panel in[SIDES];
        for (uint32_t k = 0; k < n; k++) {
            r->by[k] = r->gates[place(s, r->n_experts, index,
                                      r->columns[at + k])];
        }
        for (enum side side = 0; side < SIDES; side++) {
            in[side] = gather(s, side, r->columns + at, n,
                              last ? NULL : r->by);
            if (last) {
                const struct reference_panel x = in[side];
                RETERR(reference_expert(s->sides[side].r, l, index, &x, r->by,
                                        &in[side], e));
            }
        }
        RETERR(fn(ctx, in, e));
    }
    return 0;
}
