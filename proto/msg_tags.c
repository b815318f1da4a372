/* msg_tags.c - texts' tokens to an encoder, and labels or vectors back;
 * see msg.h. */
#include <math.h>

#include "proto/msg_impl.h"

void msg_tags_put(struct buf *b, const struct msg_tags *m)
{
    uint64_t all = 0;
    must(m->n_texts >= 1 && m->n_texts <= ENCODER_TEXTS_MAX);
    for (unsigned i = 0; i < MSG_TAGS_BIASES; i++) {
        buf_f32(b, m->biases[i]);
    }
    buf_u8(b, m->pool);
    buf_u32(b, m->n_texts);
    for (uint32_t k = 0; k < m->n_texts; k++) {
        must(m->texts[k].n >= 1);
        all += m->texts[k].n;
        buf_u32(b, m->texts[k].n);
    }
    must(all <= TAGS_TOKENS_MAX);
    for (uint32_t k = 0; k < m->n_texts; k++) {
        for (uint32_t i = 0; i < m->texts[k].n; i++) {
            buf_u32(b, (uint32_t)m->texts[k].tokens[i]);
        }
    }
}

/* Lengths of texts; *ret_all: their sum. */
static int get_lengths(struct cur *c, struct msg_tags *m, uint32_t *ret_all,
                       struct err *e)
{
    uint32_t all = 0;
    uint32_t most = m->pool == POOL_NONE ? 1 : ENCODER_TEXTS_MAX;
    m->n_texts = cur_u32(c);
    if (m->n_texts == 0 || m->n_texts > most) {
        return msg_bad(e, "tags", "n_texts");
    }
    for (uint32_t k = 0; k < m->n_texts; k++) {
        m->texts[k].n = cur_u32(c);
        if (m->texts[k].n == 0 || m->texts[k].n > TAGS_TOKENS_MAX - all) {
            return msg_bad(e, "tags", "n");
        }
        all += m->texts[k].n;
    }
    *ret_all = all;
    return msg_left(c) == (size_t)all * sizeof(uint32_t)
               ? 0
               : msg_bad(e, "tags", "tokens");
}

int msg_tags_get(const void *p, size_t n, struct msg_tags *ret, struct err *e)
{
    struct cur c = cur_of(p, n);
    struct msg_tags m = {.n_texts = 0};
    uint32_t all = 0;
    for (unsigned i = 0; i < MSG_TAGS_BIASES; i++) {
        m.biases[i] = cur_f32(&c);
        if (!isfinite(m.biases[i])) {
            return msg_bad(e, "tags", "biases");
        }
    }
    m.pool = cur_u8(&c);
    if (m.pool >= POOLINGS) {
        return msg_bad(e, "tags", "pool");
    }
    RETERR(get_lengths(&c, &m, &all, e));
    m.own = malloc(all * sizeof(*m.own));
    if (m.own == NULL) {
        return err_set(e, ERR_NOMEM, "%u tokens", all);
    }
    for (uint32_t i = 0; i < all; i++) {
        m.own[i] = msg_get_i32(&c);
    }
    m.texts[0].tokens = m.own;
    for (uint32_t k = 1; k < m.n_texts; k++) {
        m.texts[k].tokens = m.texts[k - 1].tokens + m.texts[k - 1].n;
    }
    *ret = m;
    return 0;
}

void msg_tags_fini(struct msg_tags *m)
{
    free(m->own);
    m->own = NULL;
}

void msg_tags_done_put(struct buf *b, const struct msg_tags_done *m)
{
    buf_u32(b, m->n_vector);
    if (m->n_vector > 0) {
        must(m->n_vector <= EMBED_DIM_MAX && m->n == 0 && m->n_texts >= 1 &&
             m->n_texts <= ENCODER_TEXTS_MAX);
        buf_u32(b, m->n_texts);
        for (uint32_t i = 0; i < m->n_texts * m->n_vector; i++) {
            buf_f32(b, m->vector[i]);
        }
        return;
    }
    must(m->n >= 1 && m->n <= TAGS_TOKENS_MAX);
    buf_u32(b, m->n);
    for (uint32_t i = 0; i < m->n; i++) {
        buf_u16(b, m->labels[i]);
    }
    for (uint32_t i = 0; i < m->n; i++) {
        buf_f32(b, m->probs[i]);
    }
}

static int get_vectors(struct cur *c, uint32_t n, struct msg_tags_done *ret,
                       struct err *e)
{
    uint32_t texts = cur_u32(c);
    size_t all = (size_t)texts * n;
    if (n > EMBED_DIM_MAX || texts == 0 || texts > ENCODER_TEXTS_MAX ||
        msg_left(c) != all * sizeof(float)) {
        return msg_bad(e, "tags_done", "n_vector");
    }
    float *v = malloc(all * sizeof(*v));
    if (v == NULL) {
        return err_set(e, ERR_NOMEM, "vectors of %u", n);
    }
    for (size_t i = 0; i < all; i++) {
        v[i] = cur_f32(c);
        if (!isfinite(v[i])) {
            free(v);
            return msg_bad(e, "tags_done", "vector");
        }
    }
    *ret = (struct msg_tags_done){
        .n_vector = n, .n_texts = texts, .vector = v};
    return 0;
}

int msg_tags_done_get(const void *p, size_t n, struct msg_tags_done *ret,
                      struct err *e)
{
    struct cur c = cur_of(p, n);
    uint32_t n_vector = cur_u32(&c);
    if (n_vector > 0) {
        return get_vectors(&c, n_vector, ret, e);
    }
    struct msg_tags_done m = {.n = cur_u32(&c)};
    size_t each = sizeof(*m.labels) + sizeof(*m.probs);
    if (m.n == 0 || m.n > TAGS_TOKENS_MAX ||
        msg_left(&c) != (size_t)m.n * each) {
        return msg_bad(e, "tags_done", "n");
    }
    m.labels = malloc(m.n * sizeof(*m.labels));
    m.probs = malloc(m.n * sizeof(*m.probs));
    int rc = m.labels == NULL || m.probs == NULL
                 ? err_set(e, ERR_NOMEM, "%u labels", m.n)
                 : 0;
    for (uint32_t i = 0; rc == 0 && i < m.n; i++) {
        m.labels[i] = cur_u16(&c);
        if (m.labels[i] >= MODEL_LABELS_MAX) {
            rc = msg_bad(e, "tags_done", "label");
        }
    }
    for (uint32_t i = 0; rc == 0 && i < m.n; i++) {
        m.probs[i] = cur_f32(&c);
        if (!(m.probs[i] >= 0 && m.probs[i] <= 1)) { /* NaN too */
            rc = msg_bad(e, "tags_done", "prob");
        }
    }
    if (rc < 0) {
        msg_tags_done_fini(&m);
        return rc;
    }
    *ret = m;
    return 0;
}

void msg_tags_done_fini(struct msg_tags_done *m)
{
    free(m->vector);
    free(m->labels);
    free(m->probs);
    *m = (struct msg_tags_done){.n = 0};
}
