/* deadline.c - see deadline.h. */
#include "serve/gen/deadline.h"

#include "serve/server.h"

struct deadline {
    uv_timer_t timer;
    uint64_t at_us;
    void (*fn)(void *ctx);
    void *ctx;
};

static void on_timer(uv_timer_t *t);

/* A timer counts from when the loop last looked at the clock, and in whole
 * milliseconds: it may come early. */
static void arm(struct deadline *d, uint64_t now_us)
{
    uint64_t ms = (d->at_us - now_us + 999) / 1000;
    must(uv_timer_start(&d->timer, on_timer, ms, 0) == 0);
}

static void on_timer(uv_timer_t *t)
{
    struct deadline *d = container_of(t, struct deadline, timer);
    uint64_t now = server_now_us();
    if (now < d->at_us) {
        arm(d, now);
    } else {
        d->fn(d->ctx);
    }
}

struct deadline *deadline_new(uv_loop_t *loop, uint64_t at_us,
                              void (*fn)(void *ctx), void *ctx)
{
    struct deadline *d = calloc(1, sizeof(*d));
    uint64_t now = server_now_us();
    must(d != NULL);
    must(uv_timer_init(loop, &d->timer) == 0);
    d->at_us = at_us > now ? at_us : now;
    d->fn = fn;
    d->ctx = ctx;
    arm(d, now);
    return d;
}

static void on_closed(uv_handle_t *h)
{
    free(container_of((uv_timer_t *)h, struct deadline, timer));
}

void deadline_free(struct deadline *d)
{
    if (d != NULL) {
        uv_close((uv_handle_t *)&d->timer, on_closed);
    }
}
