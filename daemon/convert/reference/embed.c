/* embed.c - what enters the first layer: embeddings, and of an encoder what
 * belongs to the position, and the norm of the sum. */
#include <string.h>

#include "convert/reference/impl.h"

/* Column t: the token's row, and at its position the position's and type 0's.
 * row: d_model floats of scratch. */
static int put_token(struct reference *r, uint32_t t, float *row,
                     struct err *e)
{
    const struct decoder *d = r->d;
    const struct part *positions = &d->global[SLOT_POSITIONS];
    const struct part *types = &d->global[SLOT_TYPES];
    const uint32_t at = r->position + t % r->columns;
    RETERR(gguf_rows(d->global[SLOT_EMBD].t, (uint64_t)r->tokens[t], 1, row,
                     e));
    for (uint32_t i = 0; i < d->d_model; i++) {
        r->x[i * r->stride + t] = row[i] * d->embed_scale;
    }
    const struct {
        const struct part *p;
        uint64_t row;
    } more[] = {
        {positions, at},
        {types,     0 },
    };
    for (size_t k = 0; k < countof(more); k++) {
        if (more[k].p->t == NULL) {
            continue;
        }
        if (more[k].row >= more[k].p->rows) {
            return err_set(e, ERR_INVALID, "position %u of %u", at,
                           d->context_train);
        }
        RETERR(gguf_rows(more[k].p->t, more[k].row, 1, row, e));
        for (uint32_t i = 0; i < d->d_model; i++) {
            r->x[i * r->stride + t] += row[i];
        }
    }
    return 0;
}

static int norm_of_sum(struct reference *r, struct err *e)
{
    const struct norm n = {.weight = &r->d->global[SLOT_EMBD_NORM],
                           .bias = &r->d->global[SLOT_EMBD_NORM_BIAS],
                           .centred = true,
                           .d = r->d->d_model,
                           .groups = 1,
                           .stream = true,
                           .kind = RANGE_EMBEDDING_NORM};
    return reference_normalise(r, &n, r->x, r->x, e);
}

int reference_embed(struct reference *r, const int32_t *tokens, struct err *e)
{
    const struct decoder *d = r->d;
    float *row = malloc(d->d_model * sizeof(*row));
    if (row == NULL) {
        return err_set(e, ERR_NOMEM, "no memory");
    }
    int rc = 0;
    r->tokens = tokens;
    for (uint32_t t = 0; t < r->n; t++) {
        int32_t id = r->tokens[t];
        if (id < 0 || (uint32_t)id >= d->vocab) {
            rc = err_set(e, ERR_INVALID, "token %d of %u", id, d->vocab);
            goto out;
        }
        CHECK(put_token(r, t, row, e));
    }
    reference_peak(r, RANGE_EMBEDDING, 0, r->x, d->d_model);
    if (d->global[SLOT_EMBD_NORM].t != NULL) {
        CHECK(norm_of_sum(r, e));
    }
    if (r->x0 != NULL) {
        memcpy(r->x0, r->x, d->d_model * r->stride * sizeof(*r->x0));
    }
out:
    free(row);
    return rc;
}
