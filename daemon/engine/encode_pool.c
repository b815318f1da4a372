/* encode_pool.c - the vector of a text: what an encoder's last layer gives of its
 * rows, added in double in their order. */
#include <math.h>

#include "engine/encode.h"

struct pooled {
    const struct encoder_text *text;
    uint32_t wide; /* numbers of a row */
    double *sum;
};

static int on_rows(void *ctx, uint32_t first, uint32_t n, const float *rows,
                   struct err *e)
{
    const struct pooled *p = ctx;
    enum pooling kind = p->text->pool;
    (void)e;
    for (uint32_t i = 0; i < n; i++) {
        const float *row = rows + (size_t)i * p->wide;
        bool last = first + i + 1 == p->text->n;
        if ((kind == POOL_CLS && first + i > 0) ||
            (kind == POOL_LAST && !last)) {
            continue;
        }
        for (uint32_t k = 0; k < p->wide; k++) {
            p->sum[k] += (double)row[k];
        }
    }
    return 0;
}

static bool go_on(void *ctx)
{
    const struct pooled *p = ctx;
    return p->text->go == NULL || p->text->go(p->text->ctx);
}

int encoder_vector(struct encoder *g, const struct encoder_text *t, float *out,
                   struct err *e)
{
    const struct bundle *b = encoder_bundle(g);
    uint32_t wide = bundle_outputs(b);
    struct pooled p = {.text = t, .wide = wide};
    const struct encoder_run run = {.tokens = t->tokens,
                                    .n = t->n,
                                    .fn = on_rows,
                                    .go = go_on,
                                    .ctx = &p};
    if (bundle_kind(b) != BUNDLE_EMBEDDER) {
        return bundle_want_kind(b, BUNDLE_EMBEDDER, e);
    }
    double by = t->pool == POOL_MEAN ? t->n : 1;
    int rc = 0;
    p.sum = calloc(wide, sizeof(*p.sum));
    if (p.sum == NULL) {
        return err_set(e, ERR_NOMEM, "a vector");
    }
    CHECK(encoder_run(g, &run, e));
    for (uint32_t k = 0; k < wide; k++) {
        out[k] = (float)(p.sum[k] / by);
        if (!isfinite(out[k])) {
            rc = err_set(e, ERR_INVALID, "a hidden state is not finite");
            goto out;
        }
    }
out:
    free(p.sum);
    return rc;
}
