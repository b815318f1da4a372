/* runner_tags.c - texts for an encoder: one after the other, oldest first. A text
 * that was sent when its engine died is sent again to the next one. */
#include <string.h>

#include "base/log.h"
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

void runner_tags_step(struct runner *r)
{
    struct run_tags *x = first(r);
    if (x == NULL || r->state != RUNNER_UP || r->stopping ||
        r->tags_request != 0) {
        return;
    }
    struct msg_tags m = {
        .pool = (uint8_t)x->pool, .n = x->n, .tokens = x->tokens};
    memcpy(m.biases, x->biases, sizeof(m.biases));
    buf_clear(&r->out);
    msg_tags_put(&r->out, &m);
    must(buf_ok(&r->out)); /* TAGS_TOKENS_MAX is far below the limit */
    r->tags_request = TAGS_REQUEST | (r->counter++ & TAGS_COUNTER);
    r->sent_us = now_us();
    child_send(r->child, FRAME_TAGS, r->tags_request, r->out.p, r->out.n);
    child_deadline(r->child, r->conf.step_ms);
}

/* Of the kind that was asked for. */
static bool is_answer(const struct run_tags *x, const struct msg_tags_done *m)
{
    return x->pool != POOL_NONE ? m->n_vector > 0 : m->n == x->n;
}

/* Its answer came, m, or it has none: NULL. */
static void answer(struct runner *r, int rc, const char *msg,
                   const struct msg_tags_done *m)
{
    struct run_tags *x = r->tags_left ? NULL : first(r);
    r->tags_request = 0;
    r->tags_left = false;
    runner_quiet(r);
    if (x != NULL && m != NULL && !is_answer(x, m)) {
        child_kill(r->child, ERR_FRAME);
        return;
    }
    if (x != NULL) {
        list_del(&x->link);
        x->done(x, rc, msg, m);
    }
    runner_tags_step(r);
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
    r->tags_left = false;
}

void runner_tags_fail(struct runner *r, int code, const char *msg)
{
    if (r->tags_request != 0) {
        r->tags_left = true;
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
    runner_tags_step(r);
    return 0;
}

void runner_tags_remove(struct runner *r, struct run_tags *x)
{
    bool sent = r->tags_request != 0 && !r->tags_left && first(r) == x;
    list_del(&x->link);
    if (sent) { /* its answer is for nobody */
        r->tags_left = true;
        child_send(r->child, FRAME_CANCEL, r->tags_request, NULL, 0);
    }
}
