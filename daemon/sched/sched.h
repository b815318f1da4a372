/* sched.h - what one loaded model computes next.
 *
 * Pure: no clock, no I/O, no threads; time is an argument (microseconds of any
 * monotonic clock). Units are tokens unless said.
 *
 * A stream is one choice of one request. A sequence is a timeline of tokens
 * whose first `computed` ones stand in the engine's state. A running stream
 * owns one sequence; when it leaves, the sequence stays warm for the next that
 * shares its beginning.
 *
 * Rules (tests and the simulator cite their numbers):
 *   (1) Which waiting stream starts next: the one of the lowest class; within a
 *       class, of the peer with the fewest running streams, then of the peer
 *       served least; of one peer's streams, the one with the earlier deadline,
 *       then the one added first. At most conf.running streams run.
 *   (2) A step takes one row of every running stream that decodes, then prompt
 *       rows of the other streams: first of those that had none for
 *       conf.age_us, then in the order of class, of the peer served least, and
 *       of age.
 *   (3) Prompt rows of a step are limited by conf.chunk and by their measured
 *       cost. While streams of a class other than batch decode, a step may take
 *       SCHED_SLOWER times as long as one without prompt rows; it never takes
 *       longer than SCHED_STEP_US. SCHED_ROWS_MIN prompt rows are taken
 *       whatever they cost, so that neither kind starves the other.
 *   (4) A starting stream takes the sequence with which it shares the longest
 *       prefix. It takes it in place when that is warm and loses at most
 *       SCHED_TAIL tokens (or no other place is left), as a fork when they
 *       share SCHED_FORK_MIN tokens or more; else it gets a new sequence. The
 *       last prompt token is always computed: its row gives the first token.
 *   (5) When all conf.seqs sequences are open, the warm one used least recently
 *       is closed.
 *   (6) A stream that was removed gets no more rows, in whatever phase it was;
 *       nor does a paused one, nor one whose deadline has passed.
 *   (7) When all places are taken, a stream may take the place of a paused one,
 *       or of one of a higher class. The one that loses its place waits again
 *       where it stood in the order, and its sequence stays warm.
 *   (8) A stream that has waited conf.age_us in all is aged. The oldest aged
 *       stream gets the next free place and keeps it to its end, as long as
 *       less than a quarter of the places (but at least one) are kept this way.
 *   (9) At most conf.queue streams wait beyond those that may run; more are
 *       refused. admit.h says which request is refused first.
 *  (10) A decoding stream's row may carry drafts after its token: the tokens
 *       that must come next by its grammar, else those that its prediction has
 *       there, or that followed the same words earlier in its text (draft.h),
 *       from whichever source was right more often. The
 *       number of drafts is what pays by measured odds and costs (width.h);
 *       when drafts are never right there are none, except for a rare trial.
 *  (11) With conf.share_tokens, streams leave their texts, when they end, to
 *       later streams of the same `share` (share.h). Those draft from them
 *       where no prediction applies and their own text matches fewer tokens.
 *  (12) All positions of a timeline of more than conf.short_max tokens turn by
 *       the long list of factors, those of any other by the short one. So what
 *       was computed by one list is never shared with a stream whose timeline
 *       is for the other. When a timeline grows past conf.short_max, its
 *       sequence is opened anew and all of it is computed again, like a prompt;
 *       drafts never cross this border.
 *  (13) With conf.positions, the open sequences never take more positions than
 *       that in all. A sequence takes conf.overhead, and on top of it its room,
 *       in whole blocks of conf.block: a warm one what it has, a running one
 *       what it has and a part of what it may still draw (room.c), more as it
 *       grows. Where room is missing, warm sequences are closed as in rule 5,
 *       but never the one that the stream takes or forks. If that does not do,
 *       a stream that starts may take the room of others by rule 7, or waits,
 *       and none that is after it in the order takes the room meanwhile. One
 *       that runs and grows takes the room of those that come after it: paused
 *       ones, then those that rule 8 does not keep, then those of a higher
 *       class, then those that started last. If there are none it loses its own
 *       place. So the first of all keeps its place, and can fill the context.
 *
 *  (14) A stream that scores computes every row of its prompt but the last one
 *       once with logits, which say how likely the next token was. So it takes
 *       no warm sequence, or only the part that it has scored itself. A scored
 *       row costs what a decoding one does; a step has ENGINE_SCORES_MAX of
 *       them at most.
 *
 *  (15) With conf.cut_at, a sequence cannot be cut anywhere (the model has
 *       recurrent layers): only at its end, at multiples of conf.cut_at and at
 *       marks. Rule 4 then counts shared tokens up to such a place. The row that
 *       completes a prompt leaves a mark in front of its last token, where the
 *       next choice and the next turn most often part from it; the last
 *       ENGINE_MARKS_MAX marks of a sequence stay.
 *
 *  (16) A stream that pools computes its prompt and draws nothing. What it needs
 *       of each row is nowhere but in the step that computes it: so it takes no
 *       warm sequence, begins anew when it has lost its place, and its sequence
 *       is closed when it leaves, neither saved nor shared. So texts that are
 *       embedded take the place of at most as many warm sequences as of them run
 *       at once. Its rows are prompt rows: rules 2 and 3 are for it too.
 *
 * Ownership: the stream is embedded in the caller's object and stays alive
 * until sched_remove(). The prompt is borrowed until the stream runs, the
 * prediction until it is removed.
 */
#pragma once

#include "base/err.h"
#include "base/list.h"
#include "proto/limits.h"
#include "sched/cost.h"
#include "sched/draft.h"
#include "sched/share.h"
#include "sched/width.h"

/* Longest step with prompt rows: a new request, or a cancel, waits so long. */
#define SCHED_STEP_US    250000u
#define SCHED_SLOWER     2.0  /* see rule 3 */
/* See rule 3. Drafts that pay take most of the time by which a step may grow:
 * with 4 rows a prompt of 4000 tokens took 5 to 22 s beside eight streams of
 * gemma, with 16 rows 6 to 8 s. */
#define SCHED_ROWS_MIN   16u
#define SCHED_ROWS_FIRST 32u  /* prompt rows a step until the cost is known */
#define SCHED_FRESH      128u /* steps until a plain step is measured again */
#define SCHED_OFF        3u   /* differing tokens in a row until a draft source
                                 is given up */
#define SCHED_FORK_MIN   16u  /* shared tokens that make a fork worth it */
#define SCHED_TAIL       32u  /* tokens a sequence may lose to a new stream */
#define SCHED_AGE_US     10000000u /* conf.age_us by default */
#define SCHED_BLOCK      64u       /* conf.block by default */
#define SCHED_ROOM       4u  /* blocks a stream gets for what it draws, */
#define SCHED_ROOM_MOST  32u /* and never more than these at once */
#define SCHED_INDEX      2048u /* tokens indexed for drafts in a step: 0.1 ms */

/* A lower class goes before a higher one. */
enum sched_class {
    SCHED_CLASS_INTERACTIVE,
    SCHED_CLASS_CHAT,
    SCHED_CLASS_BATCH,
    SCHED_CLASSES
};

struct sched_conf {
    uint32_t rows_seq;  /* of one sequence in a step: the engine's t_max */
    uint32_t rows_step; /* of all sequences in a step: batch_max */
    uint32_t chunk;     /* prompt rows of a step; 0 = rows_step */
    uint32_t seqs;      /* sequences open at once */
    uint32_t running;   /* streams */
    uint32_t queue;     /* streams waiting beyond those that may run */
    uint32_t context;   /* positions of a sequence */
    uint32_t short_max; /* rule 12; 0 = context: there is one list */
    uint32_t cut_at;    /* rule 15; 0 = anywhere */
    uint32_t max_draft; /* 0 = no drafts */
    uint32_t ngram_min; /* last tokens that must match for a draft (draft.h) */
    uint32_t share_tokens; /* rule 11: tokens kept of ended texts; 0 = none */
    uint64_t age_us;       /* 0 = SCHED_AGE_US */
    /* Rule 13: of all sequences, 0 = any number; at least what one of a full
     * context takes. Then what one takes beside its room, and the unit of room
     * (0 = SCHED_BLOCK). */
    uint64_t positions;
    uint32_t overhead, block;
};

enum sched_phase { SCHED_OUT, SCHED_WAITING, SCHED_RUNNING };

struct sched_seq;
struct admit_req;

/* A client that has streams here now. */
struct sched_peer {
    uint64_t id;
    uint32_t streams, running;
    double served; /* rows; a new peer begins at the smallest of the others' */
};

struct sched_stream {
    /* set by the caller before sched_add, the rest zero */
    const int32_t *prompt;
    uint32_t n_prompt;          /* 1..context */
    bool reuse;                 /* may take or fork a warm sequence */
    bool compute_only;          /* compute the prompt, draw no token */
    bool score;                 /* rule 14 */
    bool pool;                  /* rule 16; with compute_only */
    struct sched_stream *after; /* do not start before its prompt is computed */
    enum sched_class cls;
    uint64_t peer;             /* any number */
    uint64_t share;            /* rule 11; 0: drafts from its own text only */
    uint64_t deadline_us;      /* 0 = none */
    uint32_t max_new;          /* tokens wanted; 0 = not known */
    const int32_t *prediction; /* what the answer may look like */
    uint32_t n_prediction;
    struct admit_req *request; /* notified at its start (admit.h); or NULL */
    /* kept by the scheduler */
    struct list link;
    enum sched_phase phase;
    bool paused;
    bool kept;       /* rule 8 */
    bool primed;     /* its prompt was computed once */
    uint64_t number; /* the order of sched_add */
    uint64_t start;  /* the order of the last starts */
    uint64_t added_us, started_us;
    uint64_t queued_us, waited_us; /* start of this wait; length of earlier */
    uint64_t row_us;               /* time of its last row, or of its start */
    uint64_t row_turn;             /* sched.turn at that time */
    uint64_t added_turn;           /* sched.turn when it was added */
    uint64_t first_turn; /* steps from added_turn to its first row: 1 is the
                            very next step; 0: no row yet */
    uint32_t cached;               /* prompt tokens that were warm */
    uint32_t n_scored;             /* rule 14: rows, from the first one on */
    int32_t *line; /* owned: its timeline, after it lost its place */
    uint32_t n_line;
    struct sched_peer *account;
    struct sched_seq *seq;
    /* tokens drawn; tokens in the timeline that were accepted but not yet
     * pushed */
    uint32_t n_new, ahead;
    uint32_t n_drafted, n_accepted;
    uint32_t n_again; /* tokens computed again by rule 12 */
    struct odds odds;
    uint32_t declined, trial_at; /* steps without a draft; when to try one */
    struct draft predicted;       /* index of the prediction */
    /* Where the next token is expected in the prediction, and in the timeline
     * itself (0: nowhere); how many tokens in a row were different. */
    uint32_t predicted_at, predicted_off;
    uint32_t source_at, source_off;
    /* What comes next by its grammar: drafts of its next row. */
    uint32_t n_forced;
    int32_t forced[ENGINE_DRAFTS_MAX];
};

struct sched_seq {
    uint32_t id; /* its number in the engine: the index in the table */
    bool used;   /* false: a free place */
    bool opened; /* the engine has it */
    bool failed; /* is closed next, never shared */
    bool pooled; /* rule 16: nor saved */
    bool held;   /* restore.h: gets no row before its file is loaded */
    bool in_step;
    bool long_list; /* rule 12: how it is computed */
    struct sched_stream *owner; /* NULL: warm; all loops over places ask */
    int32_t *tokens;            /* owned: the timeline */
    uint32_t n;      /* known tokens */
    uint32_t cap;
    uint32_t computed; /* <= n */
    uint32_t top;      /* the engine has no position at or after it */
    uint32_t room;     /* rule 13: top never comes to more */
    uint32_t n_marks; /* rule 15, the last one first */
    uint32_t marks[ENGINE_MARKS_MAX];
    uint64_t used_us;
    struct draft index;         /* of the timeline, for drafts */
    uint64_t told_to;           /* the `share` that got its first tokens, */
    uint32_t told;              /* and how many it got */
};

enum sched_op_kind {
    SCHED_OP_OPEN,     /* empty; it will have n tokens before one is drawn */
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
    bool score;        /* rule 14: all of its rows, */
    int32_t after;     /* for this token behind the last one */
    bool give;         /* rule 16: its text ends with these tokens */
    bool keep;         /* rule 15: a mark in front of the last of its tokens */
    uint32_t n_drafts; /* after the tokens, to be verified */
    int32_t drafts[ENGINE_DRAFTS_MAX];
    enum width_kind kind;
    bool failed; /* set by the caller before sched_done */
    uint32_t accepted;
};

/* What to send: ops in order, then one step with the rows (if any). */
struct sched_plan {
    size_t n_ops;
    struct sched_op ops[3 * ENGINE_SEQS_MAX];
    size_t n_rows;
    struct sched_row rows[STREAMS_MAX];
    uint32_t n_prefill; /* rows that are prompt */
    uint32_t n_sampled; /* rows whose logits are needed: decoding, drafts, and
                           scored ones */
    uint32_t n_scored;  /* those of rule 14 */
};

struct sched {
    struct sched_conf conf;
    struct list waiting, running;
    uint32_t n_waiting, n_running, n_deadlines;
    uint32_t class_waiting[SCHED_CLASSES];
    uint64_t number, starts;
    struct sched_seq *seqs;   /* conf.seqs of them */
    struct sched_peer *peers; /* n_peers places */
    uint32_t n_peers;
    bool in_flight;       /* a step was planned and has not ended */
    uint64_t turn;        /* steps planned */
    uint32_t since_plain; /* steps since one without prompts and drafts */
    struct cost cost;
    struct odds odds;              /* of all streams */
    struct share share;            /* texts of streams that ended */
    struct sched_stream restoring; /* owns sequences that restore.h loads */
    /* Set after sched_init, or NULL: called when a sequence is about to lose
     * more than SCHED_TAIL computed tokens. */
    void (*on_loss)(void *ctx, const struct sched_seq *q);
    void *on_loss_ctx;
    struct sched_plan plan; /* of the step in flight */
};

/* Rule 14: rows of x's prompt are still to be scored. */
static inline bool sched_scores(const struct sched_stream *x)
{
    return x->score && x->n_scored + 1 < x->n_prompt;
}

/* Rule 12: a timeline of n tokens is for the long list. */
static inline bool sched_long(const struct sched *s, uint32_t n)
{
    return n > s->conf.short_max;
}

/* Values of c are clamped to 1 and to the limits of proto/limits.h. */
void sched_init(struct sched *s, const struct sched_conf *c);
void sched_fini(struct sched *s); /* zeroed is fine; streams must be gone */
/* Change conf.max_draft, from the next step on. Whether texts are shared (rule
 * 11) was decided at the start. */
void sched_set_drafts(struct sched *s, uint32_t max_draft);

/* Queue x. Errors: BUSY (queue full), CONTEXT (prompt longer than the
 * context), INVALID (no token); then x is untouched. */
CHECKED int sched_add(struct sched *s, struct sched_stream *x, uint64_t now_us);
/* Take x out, at its end or because it was cancelled. In any phase; nothing
 * happens when it is OUT. */
void sched_remove(struct sched *s, struct sched_stream *x, uint64_t now_us);
/* A paused stream gets no rows, and may lose its place. */
void sched_pause(struct sched_stream *x, bool paused, uint64_t now_us);
/* Add a token that was drawn for x to its timeline; call it for each, in order
 * (an accepted draft is there already). Errors: CONTEXT (no position left). */
CHECKED int sched_push(struct sched *s, struct sched_stream *x, int32_t token);
/* What follows x's last token by its grammar, at most ENGINE_DRAFTS_MAX tokens,
 * until its next row; after sched_push. */
void sched_forced(struct sched_stream *x, const int32_t *tokens, uint32_t n);
/* Some stream whose deadline has passed, in any phase; NULL: none. The caller
 * removes it. */
struct sched_stream *sched_expired(struct sched *s, uint64_t now_us);

/* Form the next step. NULL when a step is in flight or there is nothing to
 * do. After a plan with rows the step is in flight: call sched_done or
 * sched_lost. */
const struct sched_plan *sched_next(struct sched *s, uint64_t now_us);
/* Row i of the step in flight failed: its sequence will be closed. */
void sched_row_failed(struct sched *s, size_t i);
/* The first n drafts of row i were right. They are in the timeline after
 * sched_done; push their tokens and then the one drawn after them. */
void sched_row_accepted(struct sched *s, size_t i, uint32_t n);
/* The step in flight has ended and took `step_us` (0: not known). */
void sched_done(struct sched *s, uint64_t step_us, uint64_t now_us);
/* The owner of row i of the step that just ended; NULL when it left. */
struct sched_stream *sched_row_stream(struct sched *s, size_t i);
/* Whether the whole prompt is computed, and everything after it. */
bool sched_settled(const struct sched_stream *x);
/* The engine is gone: warm sequences are forgotten; owned ones are computed
 * again from their timelines, except for what files hold of them. */
void sched_lost(struct sched *s);

uint32_t sched_warm(const struct sched *s); /* warm sequences */
/* Positions that the open sequences take (rule 13). */
uint64_t sched_positions(const struct sched *s);
