/* exact.c - the same bits for every chunk and batch, on the CPU backend. */
#include "base/hash.h"
#include "convert/quality/impl.h"

struct bits {
    struct ladder *r;
    uint64_t *of; /* a row */
    size_t vocab;
    uint32_t first, differ; /* row of the text; rows with other bits */
    bool compare;
};

static int on_bits(void *ctx, uint32_t first, uint32_t n, float *logits,
                   struct err *e)
{
    struct bits *b = ctx;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t h =
            hash_bulk(logits + (size_t)i * b->vocab, b->vocab * sizeof(float));
        uint64_t *at = &b->of[b->first + first + i];
        b->differ += b->compare && *at != h ? 1 : 0;
        *at = h;
    }
    return ladder_rows(b->r, n, e);
}

/* The text in chunks of several sizes, and its end row by row. */
static int run_chunks(struct ladder *r, struct engine_seq *s, struct bits *b,
                      struct err *e)
{
    static const uint32_t sizes[] = {0, 64, 7};
    r->row = (double)r->all / ((double)r->n * countof(sizes) + STEPS);
    for (size_t i = 0; i < countof(sizes); i++) {
        b->compare = i > 0;
        b->first = 0;
        RETERR(engine_seq_truncate(s, 0, e));
        RETERR(engine_eval_rows(s, r->tokens, r->n, sizes[i], on_bits, b, NULL,
                                e));
        if (b->differ > 0) {
            quality_fail(&r->q->exactness,
                         "chunks of %u rows: %u of %u positions have other "
                         "bits than in chunks of as many as fit",
                         sizes[i], b->differ, r->n);
            return 0;
        }
    }
    b->first = r->n - STEPS;
    RETERR(engine_seq_truncate(s, b->first, e));
    RETERR(engine_eval_rows(s, r->tokens + b->first, STEPS, 1, on_bits, b, NULL,
                            e));
    if (b->differ > 0) {
        quality_fail(&r->q->exactness,
                     "rows one by one: %u of %u positions have other bits",
                     b->differ, STEPS);
    } else {
        quality_pass(&r->q->exactness,
                     "%u positions: the same bits in chunks of any size", r->n);
    }
    return 0;
}

int rung_exactness(struct ladder *r, struct err *e)
{
    const struct engine_conf conf = {.backend = "cpu",
                                     .threads = r->conf->threads};
    struct engine *g = NULL;
    struct engine_seq *s = NULL;
    struct bits b = {.r = r, .vocab = r->d->vocab};
    int rc = 0;
    b.of = calloc(r->n, sizeof(*b.of));
    if (b.of == NULL) {
        return err_set(e, ERR_NOMEM, "no memory");
    }
    CHECK(engine_open(r->dir, &conf, &g, e));
    CHECK(engine_seq_open(g, &s, e));
    CHECK(engine_seq_expect(s, r->n, e));
    CHECK(run_chunks(r, s, &b, e));
out:
    engine_seq_close(s);
    engine_close(g);
    free(b.of);
    return rc;
}
