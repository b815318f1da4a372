/* sched.h - what one loaded model computes next.
 *
 * Pure: no clock, no I/O, no threads; time is an argument (microseconds of any
 * monotonic clock). Units are tokens unless said.
 *
 * A stream is one choice of one request. A sequence is a timeline of tokens
 * whose first `computed` ones stand in the engine's state. A running stream
 * owns one sequence; when it leaves, the sequence stays warm for whoever
 * shares its beginning.
 *
 * Rules, which the tests name:
 *   (1) Streams start in the order they were added; at most conf.running run.
 *   (2) A step takes one row of every running stream that decodes, then rows
 *       of those that still compute their prompt, oldest first.
 *   (3) Prompt rows of a step stay under conf.chunk and under what fits
 *       SCHED_STEP_GOAL_US by the measured cost of a row, so that a decoding
 *       stream, and a cancel, wait no longer; neither kind starves the other.
 *       What a step costs without prompt rows, reading the weights above all,
 *       is measured apart: a few rows say little of what many will cost.
 *   (4) A starting stream takes the sequence with the longest shared prefix:
 *       in place when it is warm and at most SCHED_TAIL tokens are lost by it
 *       (or no other place is left), else as a fork when SCHED_FORK_MIN tokens
 *       or more are shared, else a new one. The last prompt token is always
 *       computed: its row gives the first token.
 *   (5) When all conf.seqs are open, the warm one used least recently goes.
 *   (6) A removed stream gets no row any more, in whatever phase it was.
 *
 * Ownership: the stream is embedded in the caller's object and stays alive
 * until sched_remove(). The prompt is borrowed until the stream runs.
 */
#pragma once

#include "base/err.h"
#include "base/list.h"
#include "proto/limits.h"

#define SCHED_STEP_GOAL_US 100000u /* of a step with prompt rows */
#define SCHED_ROWS_MIN     4u      /* prompt rows a step whatever they cost */
#define SCHED_ROWS_FIRST   32u     /* while their cost is not known */
#define SCHED_ROWS_KEPT    128.0 /* prompt rows that the measured cost follows */
#define SCHED_FORK_MIN     16u /* shared tokens that are worth a state copy */
#define SCHED_TAIL         32u /* tokens a session may lose to another */

struct sched_conf {
    uint32_t rows_seq;  /* of one sequence in a step: the engine's t_max */
    uint32_t rows_step; /* of all sequences in a step: batch_max */
    uint32_t chunk;     /* prompt rows of a step; 0 = rows_step */
    uint32_t seqs;      /* sequences open at once */
    uint32_t running;   /* streams */
    uint32_t queue;     /* streams waiting beyond those that may run */
    uint32_t context;   /* positions of a sequence */
};

enum sched_phase { SCHED_OUT, SCHED_WAITING, SCHED_RUNNING };

struct sched_seq;

struct sched_stream {
    /* set by the caller before sched_add */
    const int32_t *prompt;
    uint32_t n_prompt;          /* 1..context */
    bool reuse;                 /* may continue what is warm */
    bool compute_only;          /* the prompt, and no token after it */
    struct sched_stream *after; /* start when this one's prompt is computed */
    /* kept by the scheduler */
    struct list link;
    enum sched_phase phase;
    bool paused;
    uint64_t added_us, started_us;
    uint32_t cached; /* prompt tokens that were warm */
    struct sched_seq *seq;
};

struct sched_seq {
    uint32_t id; /* the engine's number of it: the index in the table */
    bool used;   /* false: a free place */
    bool opened; /* the engine has it */
    bool failed; /* to be closed, not shared */
    bool in_step;
    int32_t *tokens; /* owned: the timeline */
    uint32_t n;      /* known tokens */
    uint32_t cap;
    uint32_t computed; /* <= n */
    uint64_t used_us;
    struct sched_stream *owner; /* NULL: warm */
};

enum sched_op_kind {
    SCHED_OP_OPEN,
    SCHED_OP_FORK,     /* seq := first n tokens of from */
    SCHED_OP_TRUNCATE, /* keep the first n */
    SCHED_OP_CLOSE
};

struct sched_op {
    enum sched_op_kind kind;
    uint32_t seq, from, n;
};

struct sched_row {
    uint32_t seq;
    uint32_t position;
    uint32_t n;
    const int32_t *tokens; /* n, borrowed until the next call */
    bool sample;
    bool failed; /* set by the caller before sched_done */
};

/* What to send: ops in order, then one step with the rows (if any). */
struct sched_plan {
    size_t n_ops;
    struct sched_op ops[3 * ENGINE_SEQS_MAX];
    size_t n_rows;
    struct sched_row rows[STREAMS_MAX];
    uint32_t n_prefill; /* rows that are prompt */
};

struct sched {
    struct sched_conf conf;
    struct list waiting, running;
    uint32_t n_waiting, n_running;
    struct sched_seq *seqs; /* conf.seqs of them */
    bool in_flight;         /* a step is out */
    uint32_t turn;          /* steps planned */
    double us_base;         /* of a step without prompt rows; 0 = unknown */
    double us_prompt;       /* what prompt rows added to steps lately, */
    double n_prompt;        /* and how many they were; 0 = unknown */
    struct sched_plan plan; /* of the step in flight */
};

/* Values of c are cut to the limits of proto/limits.h and to at least 1. */
void sched_init(struct sched *s, const struct sched_conf *c);
void sched_fini(struct sched *s); /* zeroed is fine; streams must be gone */

/* Queue x. Errors: BUSY (queue full), CONTEXT (prompt longer than the
 * context), INVALID (no token); then x is untouched. */
CHECKED int sched_add(struct sched *s, struct sched_stream *x, uint64_t now_us);
/* x ends, by itself or cancelled; any phase, also OUT. */
void sched_remove(struct sched *s, struct sched_stream *x, uint64_t now_us);
/* A paused stream keeps its sequence and gets no rows. */
void sched_pause(struct sched_stream *x, bool paused);
/* The token that was drawn for x becomes part of its timeline.
 * Errors: CONTEXT (no position is left for it). */
CHECKED int sched_push(struct sched *s, struct sched_stream *x, int32_t token);

/* Form the next step. NULL when a step is in flight or there is nothing to
 * do. A plan with rows puts it in flight: sched_done or sched_lost must follow.
 */
const struct sched_plan *sched_next(struct sched *s, uint64_t now_us);
/* Row i of the step in flight failed: its sequence is thrown away. */
void sched_row_failed(struct sched *s, size_t i);
/* The step came back after `step_us` in the engine. */
void sched_done(struct sched *s, uint64_t step_us, uint64_t now_us);
/* Who owns row i of the step that just came back; NULL when it left. */
struct sched_stream *sched_row_stream(struct sched *s, size_t i);
/* The whole prompt is computed, and everything after it. */
bool sched_settled(const struct sched_stream *x);
/* The engine is gone: warm sequences are forgotten, owned ones will be
 * computed again from their timelines. */
void sched_lost(struct sched *s);

uint32_t sched_warm(const struct sched *s); /* warm sequences */
