/* role_tags.c - the engine role with an encoder: a text's tokens in, the labels
 * of its likeliest path or its vector out, with PROGRESS after each window so that serve sees
 * that a long text goes on. Any frame that arrives meanwhile ends it: serve
 * sends no other before it has the answer but CANCEL and UNLOAD. */
#include <string.h>

#include "base/log.h"
#include "engine/role_impl.h"
#include "proto/msg.h"

int role_tags_load(struct role *r, const struct msg_load *m,
                   const struct engine_conf *conf, struct msg_ready *ret,
                   struct err *e)
{
    RETERR(encoder_open(m->bundle, conf, &r->t, e));
    const struct bundle *b = encoder_bundle(r->t);
    if (bundle_kind(b) == BUNDLE_TAGGER) {
        RETERR(tags_open(b->labels, b->n_labels, &r->tags, e));
    }
    *ret = (struct msg_ready){
        .t_max = ENGINE_CHUNK_MAX,
        .batch_max = ENGINE_STEP_ROWS_MAX,
        .seqs_max = 1,
        .context = b->context,
        .short_max = b->context,
        .vocab = b->vocab,
        .weight_bytes = b->total_bytes,
        .exact = true,
    };
    (void)snprintf(ret->arith, sizeof(ret->arith), "%s", encoder_arith(r->t));
    return 0;
}

void role_tags_close(struct role *r)
{
    tags_close(r->tags);
    encoder_close(r->t);
    r->tags = NULL;
    r->t = NULL;
}

/* A text that is being read. */
struct reading {
    struct role *r;
    struct tags_path *p;
    uint32_t n;
};

static int on_rows(void *ctx, uint32_t first, uint32_t n, const float *logits,
                   struct err *e)
{
    struct reading *x = ctx;
    RETERR(tags_add(x->p, logits, n, e));
    if (first + n < x->n) {
        const struct msg_progress m = {.done = first + n, .total = x->n};
        msg_progress_put(&x->r->out, &m);
        role_answer(x->r, FRAME_PROGRESS);
    }
    return 0;
}

static bool still_wanted(void *ctx)
{
    struct reading *x = ctx;
    return role_quiet(x->r);
}

static int read_vectors(struct role *r, const struct msg_tags *m,
                        struct msg_tags_done *done, struct err *e)
{
    struct reading x = {.r = r};
    uint32_t len[ENCODER_TEXTS_MAX];
    const struct encoder_texts t = {.tokens = m->own,
                                    .len = len,
                                    .n = m->n_texts,
                                    .pool = (enum pooling)m->pool,
                                    .go = still_wanted,
                                    .ctx = &x};
    uint32_t n = encoder_bundle(r->t)->d_model;
    if (n > EMBED_DIM_MAX) {
        return err_set(e, ERR_UNSUPPORTED,
                       "no embeddings: %u numbers a token, at most %u are sent",
                       n, EMBED_DIM_MAX);
    }
    for (uint32_t k = 0; k < m->n_texts; k++) {
        len[k] = m->texts[k].n;
    }
    done->vector = calloc((size_t)n * m->n_texts, sizeof(*done->vector));
    if (done->vector == NULL) {
        return err_set(e, ERR_NOMEM, "vectors of %u", n);
    }
    done->n_vector = n;
    done->n_texts = m->n_texts;
    return encoder_vectors(r->t, &t, done->vector, e);
}

static int read_labels(struct role *r, const struct msg_tags *m,
                       struct msg_tags_done *done, struct err *e)
{
    const struct msg_tags_text *text = &m->texts[0];
    if (r->tags == NULL) {
        return bundle_want_kind(encoder_bundle(r->t), BUNDLE_TAGGER, e);
    }
    done->n = text->n;
    done->labels = calloc(text->n, sizeof(*done->labels));
    done->probs = calloc(text->n, sizeof(*done->probs));
    if (done->labels == NULL || done->probs == NULL) {
        return err_set(e, ERR_NOMEM, "%u tokens", text->n);
    }
    struct reading x = {.r = r, .n = text->n};
    const struct encoder_run run = {.tokens = text->tokens,
                                    .n = text->n,
                                    .fn = on_rows,
                                    .go = still_wanted,
                                    .ctx = &x};
    int rc = 0;
    CHECK(tags_begin(r->tags, text->n, m->biases, &x.p, e));
    CHECK(encoder_run(r->t, &run, e));
    tags_end(x.p, done->labels, done->probs);
out:
    tags_free(x.p);
    return rc;
}

int role_on_tags(struct role *r, const struct frame *f, struct err *e)
{
    struct msg_tags m = {0};
    struct msg_tags_done done = {0};
    uint32_t request = r->request; /* a frame may be looked at meanwhile */
    if (r->t == NULL) {
        return err_set(e, ERR_CONFLICT, "no encoder is loaded");
    }
    RETERR(msg_tags_get(f->payload, f->n, &m, e));
    int rc = m.pool != POOL_NONE ? read_vectors(r, &m, &done, e)
                                 : read_labels(r, &m, &done, e);
    r->request = request;
    if (rc == 0) {
        msg_tags_done_put(&r->out, &done);
        role_answer(r, FRAME_TAGS_DONE);
    }
    msg_tags_done_fini(&done);
    msg_tags_fini(&m);
    return rc;
}
