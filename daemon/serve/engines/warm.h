/* warm.h - one engine's sequences to disk and back: what the scheduler holds,
 * what the cache knows, and the frames between them and the engine.
 *
 * A sequence is saved when it is about to lose what it has computed. All warm
 * ones are saved when there was no work for WARM_IDLE_MS, and before the engine
 * ends. A state is loaded for a prompt when files hold at least gain_min more
 * of its tokens than any open sequence does.
 * Thread: the loop thread.
 */
#pragma once

#include <uv.h>

#include "proto/frame.h"
#include "sched/sched.h"
#include "serve/engines/cache.h"

#define WARM_IDLE_MS  2000u
#define WARM_SAVES    4u /* at once; more only for what is about to be lost */
#define WARM_REQUEST  0x20000000u /* request numbers of our frames */
#define WARM_FLUSH_MS 15000u      /* for the saves before an engine goes */

struct warm_conf {
    uv_loop_t *loop;
    struct cache *cache; /* NULL: nothing is kept, every call is harmless */
    const char *fingerprint, *backend; /* outlive the warm */
    uint32_t gain_min;                 /* positions that make a load worth it */
    struct sched *sched;
    void *ctx;
    void (*send)(void *ctx, enum frame_type type, uint32_t request,
                 const struct buf *b);
    void (*flushed)(void *ctx); /* after warm_flush; not from inside it */
};

/* A prompt that waits for its state; embedded in its owner. */
struct warm_wait {
    struct list link;
    bool waits;
    const int32_t *tokens; /* borrowed while it waits */
    uint32_t n;
    void (*fn)(struct warm_wait *x); /* the wait is over; from the loop */
};

struct warm;

struct warm *warm_new(const struct warm_conf *c);
void warm_free(struct warm *w); /* down and without waiters; NULL is fine */
/* The engine is up, and the scheduler is ready. */
void warm_up(struct warm *w, const struct msg_ready *r);
/* The engine is gone; call before sched_lost. Prompts that wait go on waiting
 * for the next engine. */
void warm_down(struct warm *w);
/* There will be no next engine: all prompts that wait go on. */
void warm_release(struct warm *w);
/* 1: x->fn will be called, call warm_next; 0: there is nothing to wait for. */
CHECKED int warm_want(struct warm *w, struct warm_wait *x);
void warm_unwant(struct warm_wait *x); /* x may be idle */
/* Begin the next load, if no step is out and there is one to do. */
void warm_next(struct warm *w);
/* There is nothing to compute, and paused streams have all places: the first
 * prompt in line goes on without its load. */
void warm_stalled(struct warm *w);
/* The engine answered a frame with WARM_REQUEST: STATE_DONE, or ERROR (m NULL).
 */
void warm_answer(struct warm *w, uint32_t request,
                 const struct msg_state_done *m);
/* Call when streams came or went. */
void warm_touch(struct warm *w);
/* Save nothing any more: the model is being deleted, or its backend cannot. */
void warm_discard(struct warm *w);
/* Save what is warm. true: flushed() will be called; false: nothing to do. */
CHECKED bool warm_flush(struct warm *w);
