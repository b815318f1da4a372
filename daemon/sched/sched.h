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
 * Rules, which the tests and the simulator name:
 *   (1) Who starts next: the lower class; inside a class the peer with fewest
 *       running streams, then the one served least; of one peer's streams the
 *       earlier deadline, then the one added first. At most conf.running run.
 *   (2) A step takes one row of every running stream that decodes, then rows
 *       of those that still compute their prompt: first who had none for
 *       conf.age_us, then by class, the peer served least, and age.
 *   (3) Prompt rows of a step stay under conf.chunk and under what fits, by the
 *       measured cost of a row: a step may take SCHED_SLOWER times as long as
 *       one without them when streams of another class than batch decode,
 *       SCHED_STEP_US when none does and always. SCHED_ROWS_MIN go on whatever
 *       they cost: neither kind starves the other.
 *   (4) A starting stream takes the sequence with the longest shared prefix:
 *       in place when it is warm and at most SCHED_TAIL tokens are lost by it
 *       (or no other place is left), else as a fork when SCHED_FORK_MIN tokens
 *       or more are shared, else a new one. The last prompt token is always
 *       computed: its row gives the first token.
 *   (5) When all conf.seqs are open, the warm one used least recently goes.
 *   (6) A removed stream gets no row any more, in whatever phase it was; nor
 *       does a paused one, or one whose deadline has passed.
 *   (7) When all places are taken, a stream takes that of a paused one, or of
 *       one of a higher class; who loses it waits again where it stood in the
 *       order, and its sequence stays warm.
 *   (8) A stream that has waited conf.age_us altogether is aged. The oldest of
 *       them gets the next free place and keeps it to its end, while less than
 *       a quarter of the places (but one) are kept so.
 *   (9) At most conf.queue streams more than may run are taken; more are
 *       refused. Who makes way for whom before that: admit.h.
 *  (10) Behind a decoding stream's token go drafts: what its request foretold
 *       or what followed the same words before (draft.h), whichever was right
 *       more often, else what follows there when a token or two are passed
 *       over. As many as pay by measured odds and costs (width.h); none for
 *       long when none is right, but for a trial now and then.
 *  (11) With conf.share_tokens, ended streams leave their texts to those of the
 *       same `share` (share.h), who draft from them where a prediction says
 *       nothing and their own text agrees with fewer tokens.
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

#define SCHED_STEP_US                                                      \
    250000u                   /* of a step with prompt rows: who comes now \
                                 waits so long, and a cancel */
#define SCHED_SLOWER     2.0  /* a step by prompt rows, when others decode */
#define SCHED_ROWS_MIN                                                      \
    16u /* prompt rows a step whatever they cost: drafts that pay take most of  \
           what a step may grow by; with four, 4000 tokens beside eight streams \
           of gemma took 5 to 22 s, with sixteen 6 to 8 */
#define SCHED_ROWS_FIRST 32u  /* while their cost is not known */
#define SCHED_FRESH      128u /* steps until a plain one is measured again */
#define SCHED_OFF        3u   /* tokens that differ until a text is left */
#define SCHED_FORK_MIN   16u  /* shared tokens that are worth a state copy */
#define SCHED_TAIL       32u  /* tokens a session may lose to another */
#define SCHED_AGE_US     10000000u /* conf.age_us by default */
#define SCHED_INDEX                                         \
    2048u /* tokens indexed for drafts in one step at most: \
             0.1 ms */

/* The lower goes first. */
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
    uint32_t max_draft; /* 0 = no drafts */
    uint32_t ngram_min; /* tokens that must have stood there before */
    uint32_t share_tokens; /* kept of who shares its ended texts; 0 = none */
    uint64_t age_us;       /* 0 = SCHED_AGE_US */
};

enum sched_phase { SCHED_OUT, SCHED_WAITING, SCHED_RUNNING };

struct sched_seq;
struct admit_req;

/* Who streams belong to, while there are any. */
struct sched_peer {
    uint64_t id;
    uint32_t streams, running;
    double served; /* rows; who comes anew begins at the least of the others */
};

struct sched_stream {
    /* set by the caller before sched_add, the rest zero */
    const int32_t *prompt;
    uint32_t n_prompt;          /* 1..context */
    bool reuse;                 /* may continue what is warm */
    bool compute_only;          /* the prompt, and no token after it */
    struct sched_stream *after; /* start when this one's prompt is computed */
    enum sched_class cls;
    uint64_t peer;             /* any number */
    uint64_t share;            /* whose texts it drafts from; 0 = its own */
    uint64_t deadline_us;      /* 0 = none */
    uint32_t max_new;          /* tokens wanted; 0 = not known */
    const int32_t *prediction; /* what the answer may look like */
    uint32_t n_prediction;
    struct admit_req *request; /* stays once this begins (admit.h); or NULL */
    /* kept by the scheduler */
    struct list link;
    enum sched_phase phase;
    bool paused;
    bool kept;       /* rule 8 */
    bool primed;     /* its prompt was computed once */
    uint64_t number; /* the order of sched_add */
    uint64_t added_us, started_us;
    uint64_t queued_us, waited_us; /* waiting since, and before that */
    uint64_t row_us;               /* its last row, or its start */
    uint64_t row_turn;             /* sched.turn then */
    uint64_t added_turn;           /* sched.turn when it was added */
    uint64_t first_turn; /* of its first row, counted from there: 1 is the
                            very next step; 0: none yet */
    uint32_t cached;               /* prompt tokens that were warm */
    int32_t *line; /* owned: the timeline of one that lost its place */
    uint32_t n_line;
    struct sched_peer *account;
    struct sched_seq *seq;
    /* tokens drawn; of them in the timeline already, accepted but not pushed */
    uint32_t n_new, ahead;
    uint32_t n_drafted, n_accepted;
    struct odds odds;
    uint32_t declined, trial_at; /* steps without a draft; when to try one */
    struct draft foretold;       /* index of the prediction */
    /* Where the next token is thought to stand in the prediction, and in the
     * timeline itself (0: nowhere); how many in a row were different. */
    uint32_t foretold_at, foretold_off;
    uint32_t source_at, source_off;
};

struct sched_seq {
    uint32_t id; /* the engine's number of it: the index in the table */
    bool used;   /* false: a free place */
    bool opened; /* the engine has it */
    bool failed; /* to be closed, not shared */
    bool held;   /* restore.h: no row yet, a file has some of it */
    bool in_step;
    int32_t *tokens; /* owned: the timeline */
    uint32_t n;      /* known tokens */
    uint32_t cap;
    uint32_t computed; /* <= n */
    uint64_t used_us;
    struct draft index;         /* of the timeline, for drafts */
    uint64_t told_to;           /* a `share` that has the first `told` tokens */
    uint32_t told;
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
    uint32_t n_drafts; /* behind the tokens, to be verified */
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
    uint32_t n_sampled; /* rows whose logits are looked at: decoding, drafts */
};

struct sched {
    struct sched_conf conf;
    struct list waiting, running;
    uint32_t n_waiting, n_running, n_deadlines;
    uint32_t class_waiting[SCHED_CLASSES];
    uint64_t number;
    struct sched_seq *seqs;   /* conf.seqs of them */
    struct sched_peer *peers; /* n_peers places */
    uint32_t n_peers;
    bool in_flight;       /* a step is out */
    uint64_t turn;        /* steps planned */
    uint32_t since_plain; /* steps since one without prompts and drafts */
    struct cost cost;
    struct odds odds;              /* of all streams */
    struct share share;            /* texts of those that ended */
    struct sched_stream restoring; /* owns what restore.h loads */
    /* Set after sched_init, or NULL: a sequence is about to lose what it has
     * computed, more than SCHED_TAIL tokens of it. */
    void (*on_loss)(void *ctx, const struct sched_seq *q);
    void *on_loss_ctx;
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
/* A paused stream gets no rows, and may lose its place. */
void sched_pause(struct sched_stream *x, bool paused, uint64_t now_us);
/* A token that was drawn for x, in their order: it becomes part of the
 * timeline, or is there already, being an accepted draft. Errors: CONTEXT (no
 * position is left for it). */
CHECKED int sched_push(struct sched *s, struct sched_stream *x, int32_t token);
/* A stream whose deadline has passed, in whatever phase; NULL when there is
 * none. The caller removes it. */
struct sched_stream *sched_expired(struct sched *s, uint64_t now_us);

/* Form the next step. NULL when a step is in flight or there is nothing to
 * do. A plan with rows puts it in flight: sched_done or sched_lost must follow.
 */
const struct sched_plan *sched_next(struct sched *s, uint64_t now_us);
/* Row i of the step in flight failed: its sequence is thrown away. */
void sched_row_failed(struct sched *s, size_t i);
/* Of row i's drafts the first n were right. They are in the timeline after
 * sched_done; their tokens and the one behind them are to be pushed. */
void sched_row_accepted(struct sched *s, size_t i, uint32_t n);
/* The step came back after `step_us` (0: not known). */
void sched_done(struct sched *s, uint64_t step_us, uint64_t now_us);
/* Who owns row i of the step that just came back; NULL when it left. */
struct sched_stream *sched_row_stream(struct sched *s, size_t i);
/* The whole prompt is computed, and everything after it. */
bool sched_settled(const struct sched_stream *x);
/* The engine is gone: warm sequences are forgotten, owned ones will be
 * computed again from their timelines, as far as no file has them. */
void sched_lost(struct sched *s);

uint32_t sched_warm(const struct sched *s); /* warm sequences */
