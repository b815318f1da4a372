/* streams.c - both sides' streams, of all samples, a few sequences at a time.
 *
 * What is kept for all tokens is a side's stream, and of the quantised side
 * what the last product of the block at hand reads, until that product has its
 * codes. The wanted side needs no codes and passes the block at once. All else
 * has the panels of a chunk.
 */
#include <string.h>

#include "base/half.h"
#include "base/num.h"
#include "convert/calibrate/impl.h"

#define CHUNK_SEQUENCES (REFERENCE_TOKENS_MAX / CALIBRATE_TOKENS)

static uint32_t chunk_sequences(uint32_t sequences)
{
    uint32_t n = CHUNK_SEQUENCES;
    while (sequences % n != 0) {
        n--;
    }
    return n;
}

/* Rows of the widest input of a block's last product. */
static size_t inner_rows(const struct decoder *d)
{
    size_t n = 0;
    for (uint32_t l = 0; l < d->n_layers; l++) {
        const struct layer *y = &d->layers[l];
        n = num_max(n, (size_t)y->n_heads * y->d_head);
        n = num_max(n, y->mixer == MIXER_CONV ? d->d_model : 0);
        n = num_max(n, num_max(y->d_ff, y->d_ple));
    }
    return n;
}

/* A row as the package will have it, or as the source has it. */
static int quantised_row(const struct streams *s, const struct gguf_tensor *t,
                         uint64_t row, float *out, struct err *e)
{
    uint64_t at = 0;
    const struct item *i = codes_item(s->quantised, t, row, &at);
    if (i != NULL) {
        codes_row(s->quantised, i, at, out);
        return 0;
    }
    RETERR(gguf_rows(t, row, 1, out, e));
    if (quant_choice_for(s->forms, t->name).kind == QUANT_FP16) {
        half_round_floats(out, t->cols);
    }
    return 0;
}

static int on_rows(void *ctx, const struct gguf_tensor *t, uint64_t first,
                   uint64_t n, float *out, struct err *e)
{
    for (uint64_t i = 0; i < n; i++) {
        RETERR(quantised_row(ctx, t, first + i, out + i * t->cols, e));
    }
    return 0;
}

/* --- one chunk --- */

static const int32_t *chunk_tokens(const struct streams *s, uint32_t chunk)
{
    return s->tokens + (size_t)chunk * s->chunk_tokens;
}

void streams_copy(const struct streams *s, const struct reference_panel *p,
                  float *kept, bool keep)
{
    size_t n = s->chunk_tokens;
    for (size_t i = 0; i < p->rows; i++) {
        float *a = p->x + i * p->stride;
        float *b = kept + i * n;
        memcpy(keep ? b : a, keep ? a : b, n * sizeof(float));
    }
}

static float *kept_stream(const struct streams *s, enum side side,
                          uint32_t chunk)
{
    return s->sides[side].x + (size_t)chunk * s->chunk_tokens *
           reference_stream_rows(s->d);
}

static float *kept_inner(const struct streams *s, uint32_t chunk, size_t rows)
{
    return s->inner + (size_t)chunk * s->chunk_tokens * rows;
}

static struct reference_panel stream_panel(const struct streams *s,
                                           enum side side)
{
    struct reference_panel p = {.rows = reference_stream_rows(s->d),
                                .tokens = s->chunk_tokens};
    p.x = reference_stream(s->sides[side].r, &p.stride);
    return p;
}

int streams_load(struct streams *s, enum side side, uint32_t chunk,
                 struct err *e)
{
    struct side_state *y = &s->sides[side];
    reference_at(y->r, y->keys[chunk], 0);
    if (s->d->d_ple > 0) { /* layers read the embeddings too */
        RETERR(reference_embed(y->r, chunk_tokens(s, chunk), e));
    }
    const struct reference_panel p = stream_panel(s, side);
    streams_copy(s, &p, kept_stream(s, side, chunk), false);
    return 0;
}

static void save(struct streams *s, enum side side, uint32_t chunk)
{
    const struct reference_panel p = stream_panel(s, side);
    streams_copy(s, &p, kept_stream(s, side, chunk), true);
}

/* --- memory --- */

static int side_open(struct streams *s, enum side side, unsigned threads,
                     uint32_t sequences, struct err *e)
{
    struct side_state *y = &s->sides[side];
    y->conf =
        (struct reference_conf){.threads = threads,
                                .rows = side == QUANTISED ? on_rows : NULL,
                                .ctx = s};
    size_t n = (size_t)s->chunks * s->chunk_tokens *
               reference_stream_rows(s->d);
    y->keys = calloc(s->chunks, sizeof(*y->keys));
    y->x = malloc(n * sizeof(*y->x));
    if (y->keys == NULL || y->x == NULL) {
        return err_set(e, ERR_NOMEM, "no memory for %zu values", n);
    }
    RETERR(
        reference_open(s->d, &y->conf, sequences, CALIBRATE_TOKENS, &y->r, e));
    for (uint32_t c = 0; c < s->chunks; c++) {
        RETERR(reference_keys_open(s->d, sequences, CALIBRATE_TOKENS, false,
                                   &y->keys[c], e));
        reference_at(y->r, y->keys[c], 0);
        RETERR(reference_embed(y->r, chunk_tokens(s, c), e));
        save(s, side, c);
    }
    return 0;
}

int streams_open(const struct decoder *d, unsigned threads,
                 const struct calibrate_samples *samples, const int32_t *tokens,
                 const struct codes *quantised,
                 const struct quant_choice *forms, struct streams **ret,
                 struct err *e)
{
    uint32_t sequences = chunk_sequences(samples->sequences);
    struct streams *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return err_set(e, ERR_NOMEM, "no memory for the samples");
    }
    *s = (struct streams){.d = d,
                          .quantised = quantised,
                          .forms = forms,
                          .tokens = tokens,
                          .chunks = samples->sequences / sequences,
                          .chunk_tokens = sequences * CALIBRATE_TOKENS};
    int rc = 0;
    s->inner = malloc((size_t)s->chunks * s->chunk_tokens * inner_rows(d) *
                      sizeof(*s->inner));
    if (s->inner == NULL) {
        rc = err_set(e, ERR_NOMEM, "no memory for the samples");
    }
    for (enum side side = 0; rc == 0 && side < SIDES; side++) {
        rc = side_open(s, side, threads, sequences, e);
    }
    rc = rc < 0 ? rc : streams_routed_open(s, e);
    if (rc < 0) {
        streams_close(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void streams_close(struct streams *s)
{
    for (unsigned side = 0; s != NULL && side < SIDES; side++) {
        struct side_state *y = &s->sides[side];
        for (uint32_t c = 0; y->keys != NULL && c < s->chunks; c++) {
            reference_keys_close(y->keys[c]);
        }
        free(y->keys);
        free(y->x);
        reference_close(y->r);
    }
    if (s != NULL) {
        streams_routed_close(s->routed);
        free(s->inner);
        free(s);
    }
}

uint64_t streams_bytes(const struct decoder *d, uint32_t sequences)
{
    uint64_t tokens = (uint64_t)sequences * CALIBRATE_TOKENS;
    uint64_t all =
        tokens * sizeof(float) *
            (2 * (uint64_t)reference_stream_rows(d) + inner_rows(d));
    uint64_t keys = reference_keys_bytes(d, 1, CALIBRATE_TOKENS, false);
    return all + 2 * reference_panel_bytes(d, REFERENCE_TOKENS_MAX) +
           2 * keys * sequences + streams_routed_bytes(d, sequences);
}

/* --- groups --- */

static int read_chunk(struct streams *s, uint32_t l, const struct group *g,
                      uint32_t chunk, struct reference_panel in[SIDES],
                      struct err *e)
{
    for (enum side side = 0; side < SIDES; side++) {
        struct reference *r = s->sides[side].r;
        RETERR(streams_load(s, side, chunk, e));
        RETERR(g->last ? reference_open_block(r, l, g->block, e)
                       : reference_enter(r, l, g->block, e));
        in[side] = reference_input(r, l, g->slots[0]);
    }
    return 0;
}

int streams_read(struct streams *s, uint32_t l, const struct group *g,
                 streams_fn *fn, void *ctx, struct err *e)
{
    for (uint32_t c = 0; c < s->chunks; c++) {
        struct reference_panel in[SIDES];
        RETERR(read_chunk(s, l, g, c, in, e));
        if (fn != NULL) {
            RETERR(fn(ctx, in, e));
        }
        if (g->last) {
            streams_copy(s, &in[QUANTISED],
                         kept_inner(s, c, in[QUANTISED].rows), true);
            RETERR(reference_close_block(s->sides[WANTED].r, l, g->block, e));
            save(s, WANTED, c);
        }
    }
    return 0;
}

int streams_pass(struct streams *s, uint32_t l, const struct group *g,
                 struct err *e)
{
    struct reference *r = s->sides[QUANTISED].r;
    for (uint32_t c = 0; c < s->chunks; c++) {
        RETERR(streams_load(s, QUANTISED, c, e));
        const struct reference_panel in = reference_input(r, l, g->slots[0]);
        streams_copy(s, &in, kept_inner(s, c, in.rows), false);
        RETERR(reference_close_block(r, l, g->block, e));
        save(s, QUANTISED, c);
    }
    return 0;
}

int streams_head(struct streams *s, streams_fn *fn, void *ctx, struct err *e)
{
    for (uint32_t c = 0; c < s->chunks; c++) {
        struct reference_panel in[SIDES];
        for (enum side side = 0; side < SIDES; side++) {
            RETERR(streams_load(s, side, c, e));
            RETERR(reference_enter_head(s->sides[side].r, e));
            in[side] = reference_input(s->sides[side].r, 0, SLOT_OUTPUT);
        }
        RETERR(fn(ctx, in, e));
    }
    return 0;
}
