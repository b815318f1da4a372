/* warm.h - one engine's sequences to disk and back: what the scheduler holds,
 * what the cache knows, and the frames between them and the engine.
 *
 * Saved: what a sequence is about to lose; all warm ones when nothing was asked
 * for WARM_IDLE_MS, and before the engine goes. Loaded: for a prompt of which
 * files hold cache_tokens more than any open sequence does.
 * Thread: the loop thread.
 */
#pragma once

#include <uv.h>

#include "proto/frame.h"
#include "sched/sched.h"
#include "serve/engines/cache.h"

#define WARM_IDLE_MS  2000u
#define WARM_SAVES    4u /* saves at once, unless a sequence is about to go */
#define WARM_REQUEST  0x20000000u /* request numbers of our frames */
#define WARM_FLUSH_MS 15000u      /* for the saves before an engine goes */

struct warm_conf {
    uv_loop_t *loop;
    struct cache *cache; /* NULL: nothing is kept, every call is harmless */
    const char *fingerprint, *backend; /* outlive the warm */
    uint32_t gain_min;                 /* positions worth a load */
    struct sched *sched;
    void *ctx;
    void (*send)(void *ctx, enum frame_type type, uint32_t request,
                 const struct buf *b);
    void (*flushed)(void *ctx); /* after warm_flush; not from inside it */
};

/* A prompt that waits for its positions; embedded in who waits. */
struct warm_wait {
    struct list link;
    bool waits;
    const int32_t *tokens; /* borrowed while it waits */
    uint32_t n;
    void (*fn)(struct warm_wait *x); /* go on now; from the loop */
};

struct warm;

struct warm *warm_new(const struct warm_conf *c);
void warm_free(struct warm *w); /* down and without waiters; NULL is fine */
/* The engine is there, the scheduler too. */
void warm_up(struct warm *w, const struct msg_ready *r);
/* The engine is gone, the scheduler does not know it yet. Waiters wait for the
 * next one, */
void warm_down(struct warm *w);
/* or go on, when there will be none. */
void warm_release(struct warm *w);
/* 1: x->fn will be called; 0: there is nothing to wait for. Then warm_next. */
CHECKED int warm_want(struct warm *w, struct warm_wait *x);
void warm_unwant(struct warm_wait *x); /* x may be idle */
/* No step is out: begin the load that is next. */
void warm_next(struct warm *w);
/* And there is nothing to compute either: paused streams have all places. The
 * first prompt in line goes on without its load. */
void warm_stalled(struct warm *w);
/* Of a frame with WARM_REQUEST: STATE_DONE, or ERROR (m NULL). */
void warm_answer(struct warm *w, uint32_t request,
                 const struct msg_state_done *m);
/* Streams came or went. */
void warm_touch(struct warm *w);
/* The model goes, or its backend cannot: nothing is saved any more. */
void warm_discard(struct warm *w);
/* Save what is warm. true: flushed() will be called; false: nothing to do. */
CHECKED bool warm_flush(struct warm *w);
