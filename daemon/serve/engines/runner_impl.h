/* runner_impl.h - shared by runner.c (the engine's process), runner_step.c (its
 * steps) and runner_tags.c (texts for an encoder). */
#pragma once

#include "serve/engines/runner.h"

#define STEP_BIT      0x80000000u /* of a step's number: runner.c */
#define SAMPLING_ROWS STREAMS_MAX
#define OP_COUNTER    0x1fffffu /* of a sequence operation's number */

struct runner {
    struct runner_conf conf;
    struct runner_owner owner;
    char dir[1024];
    enum runner_state state;
    struct child *child;
    struct list turn;   /* in conf.turn: a step is wanted */
    struct list saying; /* streams whose on_said is to be called */
    struct list left;   /* then their on_left */
    struct list tags;   /* run_tags.link, oldest first */
    uint32_t tags_request; /* of the first ones, which were sent; 0: none is */
    struct run_tags *tags_sent[ENCODER_TEXTS_MAX]; /* NULL: it is gone */
    uint32_t n_tags_sent;
    bool tags_out; /* answers are handed out: nothing is sent */
    bool stopping;
    bool one_left;   /* runner_leave was called for the present row's stream */
    bool in_results; /* results are being handed out: no step is formed */
    bool ever_up;
    uint32_t counter;
    uint32_t step_request;
    uint64_t sent_us;
    double progress;
    bool warms; /* loading: widths are run once */
    uint32_t n_on_cpu, n_reopened; /* see runner_troubles */
    char why[NOTICE_PACKAGE_MAX + ERR_MSG_MAX + 2];
    struct msg_widths layers, heads; /* for the next engine */
    struct msg_ready ready;
    int load_rc; /* the error that the engine reported while loading */
    struct err load_error;
    struct sched sched;
    struct warm *warm;
    struct grammars grammars;
    struct msg_row *rows; /* SAMPLING_ROWS, scratch of one step */
    struct buf out;
};

static inline uint64_t now_us(void)
{
    return uv_hrtime() / 1000;
}

static inline struct run_stream *stream_of(struct sched_stream *s)
{
    return container_of(s, struct run_stream, s);
}

/* runner.c: no answer is expected of the engine: stop its deadline, unless it
 * is stopping. */
void runner_quiet(struct runner *r);

/* runner_size.c: set the sequences that may be open, and rule 13's budget, by
 * what the engine says of their memory. */
void runner_size(const struct runner *r, const struct msg_ready *m,
                 struct sched_conf *ret);

/* runner_tags.c */
void runner_on_tags_done(struct runner *r, const struct frame *f);
/* Was the error for a text? */
bool runner_tags_error(struct runner *r, uint32_t request, int code,
                       const char *msg);
void runner_tags_lost(struct runner *r); /* the engine is gone */
void runner_tags_fail(struct runner *r, int code, const char *msg);

/* runner_step.c: form and send the next step, if there is one to send. */
void runner_step(struct runner *r);
void runner_on_step_done(struct runner *r, const struct frame *f);
/* Hand out the results of the step that just ended. codes[i] (n_rows of them)
 * is 0 or row i's error; rows may be NULL when all failed. */
void runner_hand_out(struct runner *r, const struct msg_row_done *rows,
                     const int *codes, const char *msg, uint64_t us);
