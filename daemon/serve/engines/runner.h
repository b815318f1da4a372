/* runner.h - an engine as the rest of serve sees it: one child with one model,
 * its scheduler, and the step loop between them.
 *
 *   DOWN --runner_start--> LOADING --READY--> UP --exit--> DOWN
 *                              +-----error, exit-----------^
 *
 * One step is out at a time. After an exit the scheduler keeps the streams'
 * timelines; a new start computes them again and the streams go on.
 * Thread: the loop thread. No callback comes from inside runner_add,
 * runner_remove or runner_start.
 */
#pragma once

#include "proto/msg.h"
#include "sched/sched.h"
#include "serve/child.h"
#include "serve/stats.h"
#include "serve/engines/warm.h"

enum runner_state { RUNNER_DOWN, RUNNER_LOADING, RUNNER_UP };

struct run_stream; /* one choice; embedded in its owner */

struct run_events {
    /* A token was drawn for x. Before it returns, the owner says how x goes on:
     * runner_push, runner_leave or runner_remove. A step can draw several: they
     * come one after the other, also when x is paused in between, and end when
     * it leaves. The engine waits meanwhile: what need not be known for the
     * answer is done in on_said and on_left. */
    void (*on_token)(struct run_stream *x, const struct msg_token *t);
    /* x->said: all that on_token was given in this step, when the next one is
     * on its way. Not when x was removed, by its owner, who knows of them. */
    void (*on_said)(struct run_stream *x);
    /* After runner_leave, when every stream's on_said is over and flushed: the
     * end of one answer takes longer than a token of another should wait. */
    void (*on_left)(struct run_stream *x);
    /* compute_only: the prompt is done. The owner removes x. */
    void (*on_computed)(struct run_stream *x);
    /* x's deadline has passed at the end of a step. The owner removes x; it
     * also watches the clock, for steps are long and engines may be gone. */
    void (*on_expired)(struct run_stream *x);
    /* x cannot go on. The owner removes x. */
    void (*on_fail)(struct run_stream *x, int code, const char *msg);
};

struct run_stream {
    struct sched_stream s;
    const struct run_events *events;
    const struct msg_sampling *sampling; /* borrowed while in the runner */
    uint32_t choice;                     /* for the random numbers */
    /* kept here: tokens drawn so far, drafts verified, and of the tokens those
     * that were drafts */
    uint32_t n_out, n_drafted, n_accepted;
    /* tokens of the step at hand that on_token was given before this one, until
     * on_said is over */
    const struct msg_token *said;
    uint32_t n_said;
    bool leaving;       /* runner_leave: on_left is to be called */
    struct list saying; /* in a list of the runner's: on_said, then on_left */
};

struct runner_conf {
    uv_loop_t *loop;
    struct list *turn; /* runner_kick: see runner_turn. NULL: at once */
    struct stats *stats;
    const char *program; /* NULL: aned itself */
    const char *backend; /* borrowed, static life */
    uint32_t threads, chunk, streams, queue, sessions, max_draft, ngram_min;
    uint32_t share_tokens;   /* sched.h, rule 11 */
    uint32_t step_ms;        /* deadline of a step; 0: ENGINE_STEP_MS */
    uint64_t state_bytes;    /* budget of all sequences */
    struct cache *cache;     /* saved states; NULL: none */
    const char *fingerprint; /* of the model; outlives the runner */
    uint32_t cache_tokens;   /* positions worth a file */
};

struct runner;

struct runner_owner {
    void *ctx;
    void (*on_up)(void *ctx);
    /* The child ended. rc: 0 after runner_stop; an error it reported while
     * loading; ERR_ENGINE_LOST when it died. Streams are still there. */
    void (*on_down)(void *ctx, int rc, const struct err *e);
    void (*on_progress)(void *ctx); /* of loading; may be NULL */
    /* What streams were given to say goes out now; may be NULL. */
    void (*flush)(void *ctx);
};

/* Both structs are copied; dir (the bundle) too. */
struct runner *runner_new(const struct runner_conf *c, const char *dir,
                          const struct runner_owner *o);
void runner_free(struct runner *r); /* DOWN and without streams; NULL is fine */

/* DOWN -> LOADING. Errors: UNAVAILABLE. */
CHECKED int runner_start(struct runner *r, struct err *e);
/* Its model is deleted: states are not saved any more. */
void runner_discard(struct runner *r);
/* Ask the engine to leave; on_down follows with rc 0. Streams must be gone. */
void runner_stop(struct runner *r);
enum runner_state runner_state(const struct runner *r);
double runner_progress(const struct runner *r); /* of loading, 0..1 */
const struct msg_ready *runner_ready(const struct runner *r); /* last one */
int runner_pid(const struct runner *r);                       /* 0 when down */
const struct sched *runner_sched(const struct runner *r);

/* Before the runner_add of a prompt that may continue what is warm: 1: x->fn
 * will be called when what files hold of it is there; 0: go on at once. */
CHECKED int runner_want(struct runner *r, struct warm_wait *x);
/* Errors: as sched_add. State must have been UP once. */
CHECKED int runner_add(struct runner *r, struct run_stream *x);
/* After the last runner_add of a request: form a step if none is out, when this
 * turn of the loop ends, so that requests that come together start together. */
void runner_kick(struct runner *r);
/* The end of a turn: form the steps of the runners in the list. */
void runner_turn(struct list *turn);
CHECKED int runner_push(struct runner *r, struct run_stream *x, int32_t token);
/* From inside on_token, which gave x its last: its place is free for the next
 * step. x stays until on_left, or until it is removed before. */
void runner_leave(struct runner *r, struct run_stream *x);
void runner_remove(struct runner *r, struct run_stream *x);
void runner_pause(struct runner *r, struct run_stream *x, bool paused);
/* Close the warm sequences nobody uses; how many they are. */
uint32_t runner_shed(struct runner *r);
/* on_fail for every stream; who waits in runner_want goes on before. */
void runner_fail_all(struct runner *r, int code, const char *msg);
