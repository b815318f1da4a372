/* call_whole.c - answers that are not streamed: their limits, and how they are
 * written.
 *
 *   whole_hold ... -> whole_reply -> [text thread, when large] -> sent
 *
 * Text and log-probabilities are kept in their final form, escaped, so that the
 * answer is made by copying. At the limit of one answer it ends as with
 * max_tokens: a repeated request would end there again. The limit of all
 * answers together is temporary: this answer is dropped, and the client gets an
 * error that lets it try again (NOTES 48). */
#include "api/call_impl.h"

#define WHOLE_HERE_MAX MIB(1) /* copied on the loop: 1 ms */

void whole_release(struct call *c)
{
    for (uint32_t i = 0; i < c->n_choices; i++) {
        buf_fini(&c->choices[i].text);
        reply_release(&c->choices[i]);
        probs_fini(&c->choices[i].probs);
    }
    for (uint32_t k = 0; c->gens != NULL && k < c->n_gens; k++) {
        probs_fini(&c->gens[k].prompt);
    }
    buf_fini(&c->whole);
    buf_fini(&c->tail);
    c->srv->answer_bytes -= c->held;
    c->held = 0;
}

enum gen_more whole_hold(struct call *c, size_t n)
{
    c->held += n;
    c->srv->answer_bytes += n;
    c->full = c->full || c->held > ANSWER_BYTES_MAX;
    if (c->srv->answer_bytes > ANSWERS_BYTES_MAX) {
        c->refused = ERR_BUSY;
        c->srv->stats.refused_busy++;
        whole_release(c);
    }
    return c->full || c->refused != 0 ? GEN_ENOUGH : GEN_GO;
}

/* The choices, after what stands before them. Any thread. */
static void write_choices(struct work *w)
{
    struct call *c = container_of(w, struct call, work);
    struct buf *b = &c->whole;
    if (c->refused != 0) {
        return; /* what it held was given back */
    }
    for (uint32_t i = 0; i < c->n_choices; i++) {
        struct call_choice *x = &c->choices[i];
        c->d->choice(c, b, i);
        if (!buf_ok(&x->text) || !reply_ok(x) || !probs_ok(&x->probs)) {
            c->refused = ERR_TOO_BIG;
        }
        reply_release(x);
        buf_fini(&x->text); /* what is written is not held twice */
        probs_fini(&x->probs);
    }
    buf_put(b, c->tail.p, c->tail.n);
    if (!buf_ok(b)) {
        c->refused = ERR_TOO_BIG;
    }
}

static void send_whole(struct call *c)
{
    if (c->refused == 0) {
        http_reply_take(c->r, 200, NULL, &c->whole);
        return;
    }
    http_reply_error(c->r, c->refused,
                     c->refused == ERR_BUSY
                         ? "too many large answers are being made"
                         : "the answer is over the limit");
}

static void on_written(struct work *w)
{
    struct call *c = container_of(w, struct call, work);
    c->writing = false;
    if (c->r != NULL) {
        send_whole(c);
    }
    call_free(c);
}

bool whole_reply(struct call *c)
{
    buf_init(&c->whole, HTTP_REPLY_MAX - KIB(4));
    (void)buf_grow(&c->whole, HTTP_HEAD_ROOM);
    c->d->head(c, &c->whole);
    buf_init(&c->tail, HTTP_REPLY_MAX / 4);
    c->d->tail(c, &c->tail);
    must(buf_ok(&c->whole) && buf_ok(&c->tail)); /* ours */
    c->work.run = write_choices;
    c->work.done = on_written;
    c->writing = c->held > WHOLE_HERE_MAX && c->refused == 0 &&
                 workq_put(c->srv->text, &c->work) == 0;
    if (!c->writing) {
        write_choices(&c->work);
        send_whole(c);
    }
    return c->writing;
}

bool whole_stop(struct call *c)
{
    if (c->writing && !workq_cancel(c->srv->text, &c->work)) {
        c->r = NULL; /* on_written frees it */
        return false;
    }
    return true;
}
