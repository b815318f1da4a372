/* runner.h - an engine as the rest of serve sees it: one child process with one
 * model, its scheduler, and the loop that sends the scheduler's steps to it.
 *
 *   DOWN --runner_start--> LOADING --READY--> UP --exit--> DOWN
 *                              +-----error, exit-----------^
 *
 * One step is in flight at a time. After an exit the scheduler keeps the
 * streams' timelines; after the next runner_start the engine computes them
 * again, and the streams continue.
 *
 * Thread: the loop thread. runner_add, runner_remove and runner_start call no
 * callback.
 */
#pragma once

#include "proto/msg.h"
#include "sched/sched.h"
#include "sched/shed.h"
#include "serve/child.h"
#include "serve/engines/grammars.h"
#include "serve/engines/warm.h"
#include "serve/stats.h"

enum runner_state { RUNNER_DOWN, RUNNER_LOADING, RUNNER_UP };

struct run_stream; /* one choice; embedded in the object of its owner */

struct run_events {
    /* A token was drawn for x. Inside this call the owner calls runner_push,
     * runner_leave or runner_remove. When a step draws several tokens for x,
     * on_token is called for each, also after x was paused, until x leaves. The
     * engine waits during this call, so do here only what the next step depends
     * on; do the rest in on_said and on_left. */
    void (*on_token)(struct run_stream *x, const struct msg_token *t);
    /* Called after the next step was sent. x->said holds all tokens that
     * on_token got for x in the last one, x->scores what it says of the prompt.
     * Not called for a stream that its owner removed. */
    void (*on_said)(struct run_stream *x);
    /* After runner_leave: called when on_said has run for all streams and their
     * bytes were flushed. To end an answer takes longer than the tokens of
     * other streams should wait. */
    void (*on_left)(struct run_stream *x);
    /* The prompt of a compute_only stream is computed; x->vector is there if it
     * pools. The owner removes x, and may add others. */
    void (*on_computed)(struct run_stream *x);
    /* A step ended after x's deadline. The owner removes x. The owner needs a
     * timer as well: steps are long, and the engine may be gone. */
    void (*on_expired)(struct run_stream *x);
    /* x cannot continue. The owner removes x. */
    void (*on_fail)(struct run_stream *x, int code, const char *msg);
};

struct run_stream {
    struct sched_stream s;
    const struct run_events *events;
    const struct msg_sampling *sampling; /* borrowed while in the runner */
    uint32_t choice;                     /* its index; random numbers use it */
    uint32_t grammar; /* runner_grammar's; 0: none */
    /* counted by the runner: tokens drawn, drafts verified, drafts accepted */
    uint32_t n_out, n_drafted, n_accepted;
    float mu; /* msg_sampling.mu of the next draw; the owner sets the first */
    /* tokens that on_token got in this step, until on_said returns */
    const struct msg_token *said;
    uint32_t n_said;
    /* s.score: log-probabilities of the next tokens of the prompt, as long as
     * `said`; there already in on_token and on_computed */
    const struct msg_token *scores;
    uint32_t n_scores;
    enum pooling pool;   /* of s.pool */
    const float *vector; /* in on_computed, of a stream that pools */
    uint32_t n_vector;
    bool on_cpu;        /* a token was drawn while a package ran on the CPU */
    bool leaving;       /* runner_leave: on_left is to be called */
    struct list saying; /* in a list of the runner: on_said, then on_left */
};

struct runner_conf {
    uv_loop_t *loop;
    struct list *turn; /* see runner_turn; NULL: runner_kick works at once */
    struct stats *stats;
    const char *program; /* NULL: aned itself */
    const char *backend; /* borrowed until the process ends */
    const char *prepared; /* backend_conf.cache; outlives the runner */
    float margin;         /* engine_conf.margin */
    uint32_t threads, chunk, streams, queue, sessions, max_draft, ngram_min;
    uint32_t share_tokens;   /* sched.h, rule 11 */
    uint32_t step_ms;        /* deadline of a step; 0: ENGINE_STEP_MS */
    uint64_t state_bytes;    /* budget of all sequences */
    struct cache *cache;     /* saved states; NULL: none */
    const char *fingerprint; /* of the model; outlives the runner */
    uint32_t cache_tokens;   /* [cache] disk_tokens */
};

struct runner;

struct runner_owner {
    void *ctx;
    void (*on_up)(void *ctx);
    /* The child ended. rc: 0 after runner_stop; an error it reported while
     * loading; ERR_ENGINE_LOST when it died. Streams are still there. */
    void (*on_down)(void *ctx, int rc, const struct err *e);
    void (*on_progress)(void *ctx); /* of loading; may be NULL */
    /* Write now what the streams' on_said has queued; may be NULL. */
    void (*flush)(void *ctx);
};

/* Both structs are copied; dir (the bundle) too. */
struct runner *runner_new(const struct runner_conf *c, const char *dir,
                          const struct runner_owner *o);
void runner_free(struct runner *r); /* DOWN and without streams; NULL is fine */

/* Take what of c may change while it runs: max_draft, step_ms, cache_tokens. */
void runner_set_conf(struct runner *r, const struct runner_conf *c);
/* Take all of c, for the next engine; what the last one left is forgotten.
 * Only while it is DOWN and without streams: otherwise false, and nothing
 * changes. */
CHECKED bool runner_renew(struct runner *r, const struct runner_conf *c);

/* What was measured about widths, for the next engine; empty at first. */
void runner_set_widths(struct runner *r, const struct msg_widths *layers,
                       const struct msg_widths *heads);
/* DOWN -> LOADING. Errors: UNAVAILABLE. */
CHECKED int runner_start(struct runner *r, struct err *e);
/* Save no more states: the model is being deleted. */
void runner_discard(struct runner *r);
/* Ask the engine to end; on_down follows with rc 0. Streams must be gone. */
void runner_stop(struct runner *r);
enum runner_state runner_state(const struct runner *r);
double runner_progress(const struct runner *r); /* of loading, 0..1 */
/* What went wrong with packages since the engine was started. */
struct runner_troubles {
    uint32_t on_cpu;   /* packages that run on the CPU backend in place of the
                          device */
    uint32_t reopened; /* times that one was opened anew */
    const char *why;   /* the last; "" when there was none; borrowed */
};
void runner_troubles(const struct runner *r, struct runner_troubles *ret);
/* Loading: packages are open, and every width is run once. */
bool runner_warms(const struct runner *r);
/* Whether a backend is a device of the system's, which may compile a package
 * for minutes and is measured before it is used. */
bool runner_device(const char *backend);
const struct msg_ready *runner_ready(const struct runner *r); /* last one */
int runner_pid(const struct runner *r);                       /* 0 when down */
const struct sched *runner_sched(const struct runner *r);
/* What all its sequences may cost at most; after it was up once. */
uint64_t runner_state_bytes(const struct runner *r);

/* The id of a grammar for run_stream.grammar (text: model/grammar, copied).
 * Release it when the stream is gone. Errors: NOMEM, TOO_BIG. */
CHECKED int runner_grammar(struct runner *r, const char *text, size_t n,
                           uint32_t *ret, struct err *e);
void runner_grammar_release(struct runner *r, uint32_t id);

/* Call before runner_add for a prompt that may use saved states. Returns 1 when
 * they are being loaded: x->fn will be called. Returns 0 when there are none:
 * call runner_add at once. */
CHECKED int runner_want(struct runner *r, struct warm_wait *x);
/* Errors: as sched_add. State must have been UP once. */
CHECKED int runner_add(struct runner *r, struct run_stream *x);
/* Call after the last runner_add of a request. When this turn of the loop ends,
 * a step is formed, unless one is in flight. So requests that arrive together
 * start together. */
void runner_kick(struct runner *r);
/* Call when a turn of the loop ends: forms the steps of the runners in the
 * list. */
void runner_turn(struct list *turn);
/* Add a token to x's timeline. Errors: as sched_push. */
CHECKED int runner_push(struct runner *r, struct run_stream *x, int32_t token);
/* Call in on_token when x needs no more tokens: its place is free for the next
 * step. x must stay alive until on_left, or until it is removed. */
void runner_leave(struct runner *r, struct run_stream *x);
void runner_remove(struct runner *r, struct run_stream *x);
void runner_pause(struct runner *r, struct run_stream *x, bool paused);
/* Close all warm sequences. Returns how many. */
uint32_t runner_shed(struct runner *r);
/* Close the warm sequences that hold `gone` and little else: sched_forget. */
void runner_forget(struct runner *r, struct sched_line gone,
                   const struct sched_line *others, size_t n_others);
/* A text that an encoder reads; embedded in the object of its owner. */
struct run_tags {
    struct list link;
    const int32_t *tokens; /* n of them, borrowed until `done` or remove */
    uint32_t n;            /* 1 .. TAGS_TOKENS_MAX */
    float biases[MSG_TAGS_BIASES];
    enum pooling pool; /* POOL_NONE: labels are wanted; else a vector */
    bool alone;        /* the runner's: it is sent without others */
    /* It is out of the runner. rc 0: m has each token's label and how likely that
     * is (labels may be beyond the model's), or one vector; valid during the
     * call. Else m is NULL. */
    void (*done)(struct run_tags *x, int rc, const char *msg,
                 const struct msg_tags_done *m);
};
/* The runner has been up. Nothing is sent yet. Errors: BUSY (TAGS_QUEUE_MAX
 * wait). */
CHECKED int runner_tags_add(struct runner *r, struct run_tags *x);
/* Send the texts that wait, unless some are with the engine. `done` is not called
 * from inside. */
void runner_tags_kick(struct runner *r);
void runner_tags_remove(struct runner *r, struct run_tags *x);

/* Call on_fail for every stream, after the fn of prompts that still wait in
 * runner_want. */
void runner_fail_all(struct runner *r, int code, const char *msg);
