/* warm.h - saves sequences of one engine to disk and loads them again. It takes
 * sequences from the scheduler, plans files with the cache (cache.h), and sends
 * the engine the frames to write and read them.
 *
 * A sequence is saved when it is about to lose what it has computed. All warm
 * sequences are saved when there was no work for WARM_IDLE_MS, and before the
 * engine ends. A state is loaded for a prompt when files hold at least gain_min
 * more of its tokens than any open sequence does.
 *
 * Thread: the loop thread.
 */
#pragma once

#include <uv.h>

#include "proto/frame.h"
#include "sched/sched.h"
#include "serve/engines/cache.h"

#define WARM_IDLE_MS  2000u
#define WARM_SAVES    4u /* at once; more only for what is about to be lost */
#define WARM_REQUEST  0x20000000u /* in request numbers of these frames */
#define WARM_FLUSH_MS 15000u      /* for the saves before an engine goes */

struct warm_conf {
    uv_loop_t *loop;
    struct cache *cache; /* NULL: nothing is kept; calls do nothing */
    const char *fingerprint, *backend; /* must outlive the struct warm */
    uint32_t gain_min;                 /* positions that make a load worth it */
    struct sched *sched;
    void *ctx;
    void (*send)(void *ctx, enum frame_type type, uint32_t request,
                 const struct buf *b);
    void (*flushed)(void *ctx); /* the saves of warm_flush have ended; never
                                   called from inside it */
};

/* A prompt that waits for its state; embedded in its owner. */
struct warm_wait {
    struct list link;
    bool waits;
    const int32_t *tokens; /* borrowed while it waits */
    uint32_t n;
    void (*fn)(struct warm_wait *x); /* the wait has ended; from the loop */
};

struct warm;

struct warm *warm_new(const struct warm_conf *c);
void warm_free(struct warm *w); /* down and without waiters; NULL is fine */
void warm_set_gain(struct warm *w, uint32_t gain_min); /* conf.gain_min */
/* Whether prompts wait. */
bool warm_waits(const struct warm *w);
/* The engine is up, and the scheduler is ready. */
void warm_up(struct warm *w, const struct msg_ready *r);
/* The engine is gone; call before sched_lost. Prompts that wait now wait for
 * the next engine. */
void warm_down(struct warm *w);
/* There will be no next engine: all waits end. */
void warm_release(struct warm *w);
/* 1: x->fn will be called; call warm_next. 0: there is nothing to wait for. */
CHECKED int warm_want(struct warm *w, struct warm_wait *x);
void warm_unwant(struct warm_wait *x); /* x may be idle */
/* Begin the next load, if there is one and no step is in flight. */
void warm_next(struct warm *w);
/* Call when there is nothing to compute because paused streams have all places:
 * the first prompt in line stops waiting and continues without its load. */
void warm_stalled(struct warm *w);
/* The engine answered a frame with WARM_REQUEST: STATE_DONE, or ERROR (m NULL).
 */
void warm_answer(struct warm *w, uint32_t request,
                 const struct msg_state_done *m);
/* Call after streams were added or removed. */
void warm_touch(struct warm *w);
/* The model's arithmetic changed: states saved from now on are of another kind,
 * and those of before are found again when it changes back. */
void warm_arith(struct warm *w, const char *arith);
/* Save nothing any more: the model is being deleted, or its backend cannot
 * save states. */
void warm_discard(struct warm *w);
/* Save all warm sequences. True: flushed() will be called; false: there is
 * nothing to save. */
CHECKED bool warm_flush(struct warm *w);
