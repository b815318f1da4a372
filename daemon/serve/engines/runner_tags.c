/* runner_tags.c - texts for an encoder, oldest first: one whose labels are wanted
 * alone, of those whose vectors are wanted as many as one run reads. What was sent
 * when an engine died is sent again to the next one.
 *
 * What the engine says of several texts might be about one of them, so those
 * texts are then sent one by one: nobody's answer depends on another's text.
 */
#include <string.h>

#include "base/log.h"
#include "base/num.h"
#include "serve/engines/runner_impl.h"

/* With this bit pair a request is no step, load, state or operation. */
#define TAGS_REQUEST 0xc0000000u
#define TAGS_COUNTER 0x0fffffffu

static struct run_tags *first(const struct runner *r)
{
    return list_empty(&r->tags)
               ? NULL
               : container_of(r->tags.next, struct run_tags, link);
}

/* Of a run that a text shares. */
static uint64_t rows_of(const struct run_tags *x)
{
    uint64_t n = x->n;
    return (n + ENCODER_PACK_ALIGN - 1) / ENCODER_PACK_ALIGN *
           ENCODER_PACK_ALIGN;
}

/* The texts that go together become those that are sent. */
static void choose(struct runner *r, struct msg_tags *m)
{
    const struct run_tags *head = first(r);
    uint32_t rows = 0;
    memcpy(m->biases, head->biases, sizeof(m->biases));
    m->pool = (uint8_t)head->pool;
    r->n_tags_sent = 0;
    LIST_EACH(l, &r->tags) {
        struct run_tags *x = container_of(l, struct run_tags, link);
        bool joins = x->pool != POOL_NONE && x->pool == head->pool &&
                     !head->alone && !x->alone &&
                     m->n_texts < ENCODER_TEXTS_MAX &&
                     rows_of(x) <= ENCODER_PACK_ROWS - rows;
        if (x != head && !joins) {
            break;
        }
        m->texts[m->n_texts++] =
            (struct msg_tags_text){.tokens = x->tokens, .n = x->n};
        r->tags_sent[r->n_tags_sent++] = x;
        rows = (uint32_t)num_min(rows + rows_of(x), ENCODER_PACK_ROWS);
    }
}

void runner_tags_kick(struct runner *r)
{
    struct msg_tags m = {.n_texts = 0};
    if (first(r) == NULL || r->state != RUNNER_UP || r->stopping ||
        r->tags_request != 0 || r->tags_out) {
        return;
    }
    choose(r, &m);
    buf_clear(&r->out);
    msg_tags_put(&r->out, &m);
    must(buf_ok(&r->out)); /* TAGS_TOKENS_MAX is far below the limit */
    r->tags_request = TAGS_REQUEST | (r->counter++ & TAGS_COUNTER);
    r->sent_us = now_us();
    child_send(r->child, FRAME_TAGS, r->tags_request, r->out.p, r->out.n);
    child_deadline(r->child, r->conf.step_ms);
}

/* Of the kind that was asked for. */
static bool is_answer(const struct runner *r, const struct msg_tags_done *m)
{
    const struct run_tags *x = r->tags_sent[0];
    return r->n_tags_sent > 1 || (x != NULL && x->pool != POOL_NONE)
               ? m->n_vector > 0 && m->n_texts == r->n_tags_sent
               : x == NULL || m->n == x->n;
}

/* Text k of those that were sent has its part of m, or none: NULL. */
static void hand_out(struct runner *r, uint32_t k, int rc, const char *msg,
                     const struct msg_tags_done *m)
{
    struct run_tags *x = r->tags_sent[k];
    if (x == NULL) {
        return;
    }
    r->tags_sent[k] = NULL;
    list_del(&x->link);
    if (m == NULL || m->n_vector == 0) {
        x->done(x, rc, msg, m);
        return;
    }
    const struct msg_tags_done one = {
        .n_vector = m->n_vector,
        .n_texts = 1,
        .vector = m->vector + (size_t)k * m->n_vector};
    x->done(x, rc, msg, &one);
}

/* The answer came, m, or there is none: NULL. */
static void answer(struct runner *r, int rc, const char *msg,
                   const struct msg_tags_done *m)
{
    r->tags_request = 0;
    runner_quiet(r);
    if (m != NULL && !is_answer(r, m)) {
        child_kill(r->child, ERR_FRAME);
        return;
    }
    r->tags_out = true; /* `done` may add more, and remove others */
    for (uint32_t k = 0; k < r->n_tags_sent; k++) {
        struct run_tags *x = r->tags_sent[k];
        if (rc != 0 && r->n_tags_sent > 1 && x != NULL) {
            x->alone = true;
        } else {
            hand_out(r, k, rc, msg, m);
        }
    }
    r->tags_out = false;
    r->n_tags_sent = 0;
    runner_tags_kick(r);
}

void runner_on_tags_done(struct runner *r, const struct frame *f)
{
    struct msg_tags_done m = {0};
    struct err e = {0};
    if (f->request != r->tags_request ||
        msg_tags_done_get(f->payload, f->n, &m, &e) != 0) {
        child_kill(r->child, ERR_FRAME);
        return;
    }
    hist_add_us(&r->conf.stats->step, now_us() - r->sent_us);
    answer(r, 0, NULL, &m);
    msg_tags_done_fini(&m);
}

bool runner_tags_error(struct runner *r, uint32_t request, int code,
                       const char *msg)
{
    if (r->tags_request == 0 || request != r->tags_request) {
        return false;
    }
    answer(r, code, msg, NULL);
    return true;
}

void runner_tags_lost(struct runner *r)
{
    r->tags_request = 0;
    r->n_tags_sent = 0;
}

void runner_tags_fail(struct runner *r, int code, const char *msg)
{
    for (uint32_t k = 0; k < r->n_tags_sent; k++) {
        r->tags_sent[k] = NULL;
    }
    for (struct run_tags *x = first(r); x != NULL; x = first(r)) {
        list_del(&x->link);
        x->done(x, code, msg, NULL);
    }
}

int runner_tags_add(struct runner *r, struct run_tags *x)
{
    size_t n = 0;
    LIST_EACH(l, &r->tags) {
        n++;
    }
    if (n >= TAGS_QUEUE_MAX) {
        return ERR_BUSY;
    }
    list_push(&r->tags, &x->link);
    return 0;
}

/* Where nobody waits for any text of the engine's, it may stop. */
void runner_tags_remove(struct runner *r, struct run_tags *x)
{
    uint32_t left = 0;
    bool sent = false;
    for (uint32_t k = 0; k < r->n_tags_sent; k++) {
        sent = sent || r->tags_sent[k] == x;
        r->tags_sent[k] = r->tags_sent[k] == x ? NULL : r->tags_sent[k];
        left += r->tags_sent[k] != NULL;
    }
    list_del(&x->link);
    if (sent && left == 0 && r->tags_request != 0) {
        child_send(r->child, FRAME_CANCEL, r->tags_request, NULL, 0);
    }
}
