/* msg_tags.c - a text's tokens to an encoder, and its labels or its vector back;
 * see msg.h. */
#include <math.h>

#include "proto/msg_impl.h"

void msg_tags_put(struct buf *b, const struct msg_tags *m)
{
    must(m->n >= 1 && m->n <= TAGS_TOKENS_MAX);
    for (unsigned i = 0; i < MSG_TAGS_BIASES; i++) {
        buf_f32(b, m->biases[i]);
    }
    buf_u8(b, m->pool);
    buf_u32(b, m->n);
    for (uint32_t i = 0; i < m->n; i++) {
        buf_u32(b, (uint32_t)m->tokens[i]);
    }
}

int msg_tags_get(const void *p, size_t n, struct msg_tags *ret, struct err *e)
{
    struct cur c = cur_of(p, n);
    struct msg_tags m = {.n = 0};
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
    m.n = cur_u32(&c);
    if (m.n == 0 || m.n > TAGS_TOKENS_MAX ||
        msg_left(&c) != (size_t)m.n * sizeof(uint32_t)) {
        return msg_bad(e, "tags", "n");
    }
    int32_t *tokens = malloc(m.n * sizeof(*tokens));
    if (tokens == NULL) {
        return err_set(e, ERR_NOMEM, "%u tokens", m.n);
    }
    for (uint32_t i = 0; i < m.n; i++) {
        tokens[i] = msg_get_i32(&c);
    }
    m.tokens = tokens;
    *ret = m;
    return 0;
}

void msg_tags_fini(struct msg_tags *m)
{
    free((void *)(uintptr_t)m->tokens);
    m->tokens = NULL;
}

void msg_tags_done_put(struct buf *b, const struct msg_tags_done *m)
{
    buf_u32(b, m->n_vector);
    if (m->n_vector > 0) {
        must(m->n_vector <= EMBED_DIM_MAX && m->n == 0);
        for (uint32_t i = 0; i < m->n_vector; i++) {
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

static int get_vector(struct cur *c, uint32_t n, struct msg_tags_done *ret,
                      struct err *e)
{
    if (n > EMBED_DIM_MAX || msg_left(c) != (size_t)n * sizeof(float)) {
        return msg_bad(e, "tags_done", "n_vector");
    }
    float *v = malloc(n * sizeof(*v));
    if (v == NULL) {
        return err_set(e, ERR_NOMEM, "a vector of %u", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        v[i] = cur_f32(c);
        if (!isfinite(v[i])) {
            free(v);
            return msg_bad(e, "tags_done", "vector");
        }
    }
    *ret = (struct msg_tags_done){.n_vector = n, .vector = v};
    return 0;
}

int msg_tags_done_get(const void *p, size_t n, struct msg_tags_done *ret,
                      struct err *e)
{
    struct cur c = cur_of(p, n);
    uint32_t n_vector = cur_u32(&c);
    if (n_vector > 0) {
        return get_vector(&c, n_vector, ret, e);
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
