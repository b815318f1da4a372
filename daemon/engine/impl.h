/* impl.h - what the files of the step loop share; private to engine/.
 *
 * engine.c   open, close, evaluate
 * step.c     a step: which rows run, drafts verified, tokens drawn
 * rows.c     evaluation where the backend runs rows of any sequences
 * columns.c  evaluation where it runs one sequence's T columns at a time
 * widths.c   which widths T those columns may have
 * sheet.c    the arrays of one width, in the backend's memory
 * unit.c     packages: opened functions, their ports checked against the bundle
 * past.c     the past arrays of a package that has no states
 * recurrent.c what short convolutions read of earlier positions
 * hand.c     keys and values that one shard gives and others take
 * experts.c  experts that are functions of their own, run where a row chose them
 * inputs.c   the numbers that inputs are made of
 * tables.c   rows by token: embeddings
 * pool.c     hidden states of a text, pooled into one vector
 * tops.c     heads that give tokens and not logits
 * constrain.c grammars that rows keep to
 * seq.c      sequences: tokens, states, past keys and values
 * recover.c  a package whose device fails: once more, opened anew, on the CPU
 * snapshot.c sequences to files and back
 */
#pragma once

#include <pthread.h>

#include "base/file.h"
#include "base/list.h"
#include "engine/cpu/backend_cpu.h"
#include "engine/engine.h"
#include "engine/sampler.h"
#include "engine/tails.h"
#include "model/grammar/mask.h"

struct binding;
struct chunk;
struct sheet;

/* What an input of a shard is. */
enum role {
    ROLE_X,
    ROLE_COS,
    ROLE_SIN,
    ROLE_MASK,
    ROLE_WRITE,
    ROLE_COS_LOCAL,
    ROLE_SIN_LOCAL,
    ROLE_MASK_LOCAL,
    ROLE_EMBED, /* the first shard's x */
    ROLE_PLE,   /* per-layer embeddings of all layers */
    ROLE_EXPERTS, /* what the experts of the layer before the first gave */
    ROLE_PAST, /* from here on, each shard has arrays of its own */
    ROLE_TAKE, /* of an earlier shard (bundle_port) */
    ROLE_TAIL, /* what a short convolution reads of earlier positions */
};

#define MASK_OFF         (-1e4F)
#define MASK_BYTES_MAX   MIB(64) /* of one mask; bounds T for long contexts */
#define LOGITS_BYTES_MAX MIB(64) /* of rows of logits made at once */

/* One function of one package, and what its inputs are. */
struct unit {
    struct backend_model *m; /* owned */
    struct backend_info info;
    uint32_t t_lo, t_hi; /* rows it takes */
    uint32_t fixed;      /* T of a package that has no range; 0 */
    enum role *roles;    /* info.n_in */
    uint32_t *nth;       /* info.n_in: index into shard->past for ROLE_PAST,
                            into shard->takes for ROLE_TAKE, into
                            shard->tails for ROLE_TAIL */
};

#define PAST_NOT_TAKEN UINT32_MAX

/* A past array of the stateless form: input NAME_past, and the new rows, an
 * output NAME_new or what is taken by that name. */
struct past_port {
    char *in;
    char *out;
    uint32_t take; /* index into shard->takes, or PAST_NOT_TAKEN */
    size_t input;              /* of the first unit */
    uint32_t heads, dim;       /* [1, heads, S, dim] */
    struct backend_array *any; /* zeros: bound until a sequence's own is */
};

/* A tail: input NAME_tail, and the new positions, output NAME_new. */
struct tail_in {
    char *in, *out;
    size_t input;              /* of the first unit */
    struct backend_array *any; /* bound; filled before each prediction */
};

struct shard {
    const char *path; /* borrowed from the bundle */
    const struct backend *be; /* the engine's, or the CPU's in its place */
    bool reopened;            /* after a failure */
    uint32_t sound;           /* predictions since then, up to a limit */
    size_t n_units;
    struct unit *units;      /* one, or one a T */
    const struct unit *rows; /* of units: the one that runs rows; NULL */
    size_t n_past;
    struct past_port *past;
    size_t n_tails;
    struct tail_in *tails;
    struct tail_port *tail_ports; /* the same ones, as tails.h has them */
    const char *out;   /* "hidden", "logits" or "top_id" */
    uint32_t out_rows; /* of the output: d_model, the vocabulary slice, or 1 */
    const char *value; /* "top_value", beside "top_id"; NULL */
    bool joins;        /* it takes ROLE_EXPERTS (bundle_joins) */
    uint32_t n_routed; /* it ends at a router (bundle_routes): experts of its last
                          layer; else 0 */
    /* Keys and values to later shards and from earlier ones (bundle_port). */
    size_t n_gives, n_takes;
    const struct bundle_port *gives, *takes; /* borrowed from the bundle */
    size_t hand;  /* of engine.handed: the first that it gives */
    size_t *from; /* n_takes: of engine.handed; hand_open's */
};

/* Keys or values on their way: [1, heads, T, dim] of the rows at hand. */
struct handed {
    size_t width; /* heads * dim: numbers of a row */
    float *rows;  /* rows.c: (max, ld) */
    size_t ld;
    const struct backend *be; /* columns.c: the result that holds them, valid */
    struct backend_array *a;  /* until its shard runs again */
};

/* --- hand.c --- */

/* Number what all shards give, and find what each takes. */
CHECKED int hand_open(struct engine *g, struct err *e);
void hand_close(struct engine *g); /* nothing opened is fine */
/* Columns: what shard i takes, into its inputs, before it runs; and what it
 * gives, checked, after it ran. Errors: those of backend.lock, MIL_SHAPE. */
CHECKED int hand_take(struct engine *g, size_t i, const struct binding *b,
                      struct err *e);
CHECKED int hand_give(struct engine *g, size_t i, const struct binding *b,
                      uint32_t t, struct err *e);

/* --- experts.c --- */

#define EXPERT_IN    "expert_in"
#define EXPERT_GATES "expert_gates"

/* An expert of a sparse layer: a shard of its own, with one result, y. */
struct expert {
    struct shard s; /* when open */
    bool open;
    uint64_t used; /* when it last was; the highest is the latest */
    bool on_cpu;   /* it failed: on the CPU backend from now on */
    bool reopened; /* after a failure, as shard.reopened */
    uint32_t sound;
};

/* Arrays are of rows, ld floats apart. */
struct experts {
    struct expert **of; /* n_layers, owned; NULL where a layer is not sparse */
    uint64_t clock;
    uint32_t most, n_open;
    struct expert *failed; /* with BACKEND, in the present call; NULL */
    uint32_t n_on_cpu;
    uint32_t rows; /* of a call, at most; 0: there are none */
    size_t ld, ld_gates;
    float *in, *gates; /* what a router gave */
    float *sum;        /* of experts times gates: ROLE_EXPERTS of the next shard */
    float *picked, *y; /* rows of one expert, and its results */
    uint32_t *pick;    /* rows: which they are */
};

/* Find them; one is opened, to see what a backend does with it. After the shards
 * were opened. Errors: those of shard_open. */
CHECKED int experts_open(struct engine *g, struct err *e);
/* Arrays for calls of so many rows. Errors: NOMEM. */
CHECKED int experts_room(struct engine *g, uint32_t rows, struct err *e);
void experts_close(struct engine *g); /* nothing opened is fine */
void experts_drop(struct engine *g, struct expert *x); /* is opened when needed */
/* Rows of one that was opened: those that it takes; 0: it does not run rows. */
uint32_t experts_rows_max(const struct engine *g);
/* Run what the n rows at experts.in chose, by experts.gates, and add it up in
 * experts.sum. In the order of the experts, so that a row's bits do not depend on
 * the others. Errors: those of the backend. */
CHECKED int experts_sum(struct engine *g, size_t shard, uint32_t n,
                        struct err *e);
/* The same of columns: from the results of shard i, to what the sheet's next
 * shard reads. Errors: also MIL_SHAPE. */
CHECKED int experts_columns(struct engine *g, size_t i, struct sheet *sheet,
                            struct chunk c, struct err *e);

/* --- tops.c --- */

enum { TOP_ID, TOP_VALUE, TOP_NUMBERS };

/* A slice's likeliest token, counted from the slice's first, into the row. */
void tops_merge(float *row, bool first, uint32_t vocab_first, float id,
                float value);
/* The row's token. Errors: INVALID (not finite), BUNDLE (no such token). */
CHECKED int tops_draw(const struct engine *g, const float *row,
                      struct msg_token *ret, struct err *e);
/* Can it be drawn from what the heads give? Errors: UNSUPPORTED. */
CHECKED int tops_check(const struct engine *g, const struct msg_sampling *s,
                       struct err *e);

/* --- tables.c --- */

struct tables {
    const struct bundle *b; /* borrowed */
    struct file_map embed;  /* (vocab, d_model) fp16 */
    struct file_map ple;    /* (vocab, ple_width) fp16; empty: none */
    size_t ple_width;       /* n_layers * d_ple */
    struct file_map positions; /* (context_train, d_model) fp16; empty: none */
};

CHECKED int tables_open(struct tables *t, const struct bundle *b,
                        struct err *e);
void tables_close(struct tables *t); /* zeroed is fine */
/* A token's row of x, d_model numbers, and of `ple`, ple_width. */
void tables_embed(const struct tables *t, int32_t token, float *out);
void tables_ple(const struct tables *t, int32_t token, float *out);
/* Adds what belongs to position i to a row of x, if there are positions. */
void tables_position(const struct tables *t, uint32_t i, float *x);

/* --- inputs.c --- */

/* By one list of factors: (context, half), filled up to `filled`. */
struct rope_table {
    uint32_t filled;
    double *freq;     /* half: radians a position */
    float *cos, *sin; /* by position */
};

/* cos and sin of one kind of layer. */
struct rope {
    uint32_t half;           /* 0: no shard reads this kind */
    double magnitude;        /* of cosine and sine, by either list */
    bool two;                /* else the second table is not made */
    struct rope_table of[2]; /* the list of short sequences, of long ones */
};

struct inputs {
    uint32_t d_model, context;
    float *row; /* scratch: d_model, or the width of `ple` */
    struct rope rope[2]; /* global, local */
    uint32_t window[2];  /* positions a row sees; 0: all */
};

/* uses: bit 1 << role for every role that some shard reads. */
CHECKED int inputs_init(struct inputs *in, const struct bundle *b,
                        unsigned uses, struct err *e);
void inputs_fini(struct inputs *in);
/* Rope numbers of one position, half of each; kind 0 is global, 1 local. */
void inputs_rope_row(struct inputs *in, size_t kind, bool long_list,
                     uint32_t pos, const float **cos, const float **sin);
/* The row at pos sees positions [*lo, *hi). */
void inputs_sight(const struct inputs *in, size_t kind, uint32_t pos,
                  uint32_t *lo, uint32_t *hi);

/* --- unit.c --- */

/* Open a shard's functions and check every port. */
CHECKED int shard_open(struct shard *s, const struct backend *be,
                       const struct backend_conf *conf, const struct bundle *b,
                       const struct bundle_shard *from, struct err *e);
/* Expert i of a sparse layer, with its functions. */
CHECKED int expert_open(struct shard *s, const struct backend *be,
                        const struct backend_conf *conf, const struct bundle *b,
                        uint32_t layer, uint32_t i, struct err *e);
CHECKED int head_open(struct shard *s, const struct backend *be,
                      const struct backend_conf *conf, const struct bundle *b,
                      const struct bundle_head *from, struct err *e);
void shard_close(struct shard *s); /* its past arrays' `any` too */
/* The unit that takes t rows; NULL. */
struct unit *shard_unit(const struct shard *s, uint32_t t);
unsigned shard_uses(const struct shard *s); /* see inputs_init */
/* The function whose state serves all of a package. */
const struct unit *shard_state_unit(const struct shard *s);

/* --- evaluation --- */

/* One sequence's part of an evaluation: the n tokens that stand after its
 * length in s->tokens, checked. Its length does not change here. */
struct eval {
    struct engine_seq *s;
    uint32_t n;
    uint32_t want;      /* logits are wanted of this many last rows */
    bool hidden;        /* not logits: hidden states, a row at a time */
    engine_rows_fn *fn; /* takes them in order; NULL: there is one eval, and all
                         * go to g->logits */
    void *ctx;
    struct err *e; /* of rc */
    /* kept by the evaluation; zero at first */
    int rc;
    uint32_t done;   /* rows run */
    bool alone;      /* gets a batch of its own */
    unsigned worker; /* that calls fn; fns of several evals run in parallel */
};

/* Make room for this many rows in g->logits. */
CHECKED int logits_room(struct engine *g, uint32_t rows, struct err *e);
uint64_t now_us(void);
/* Add the time since *at to *bucket, and set *at to now. */
void spent(uint64_t *at, uint32_t *bucket);

/* --- widths.c --- */

/* The widths that a row of shards runs as. */
struct widths {
    uint32_t max;
    uint32_t rows; /* that a chunk may have: max, or 1 */
    uint32_t like; /* its bits are those of this width; 0: of any */
    bool exact; /* a row's bits are the same wherever it runs */
    uint16_t of[ENGINE_CHUNK_MAX + 1]; /* rows -> T they run as; 0: too many */
};

struct widths_conf {
    uint32_t cap;  /* the widest */
    bool any;      /* whatever their bits */
    bool measured; /* which agree, and that a row's place in a chunk does not
                      matter (`aned probe`) */
};

/* Of n shards. Errors: BUNDLE (there is none). */
CHECKED int widths_make(struct widths *w, const struct shard *shards, size_t n,
                        const struct widths_conf *c, struct err *e);
/* From now on each row runs alone. */
void widths_alone(struct widths *w);
/* The i-th width that is used, ascending; 0 after the last. */
uint32_t widths_each(const struct widths *w, size_t i);
/* Of the widths up to `max`, those worth their arrays: at most
 * ENGINE_WIDTHS_MAX. */
bool widths_worth(uint32_t t, uint32_t max);

/* --- sheet.c --- */

/* The columns of a chunk: n rows from position pos on, then copies of the last
 * one that store nothing. */
struct chunk {
    uint32_t pos, n;
    uint32_t t; /* n <= t */
    bool long_list; /* engine_seq's */
};

/* A prediction of one shard: its own x, and the rest of the sheet's. */
struct binding {
    struct backend_array *x; /* owned; NULL: the sheet's */
    struct backend_io *io;   /* owned */
    size_t out, value;       /* which results are shard->out, ->value */
    size_t in, gates;        /* and of a router: expert_in, expert_gates */
    size_t *fresh; /* n_past: which result is NAME_new, if it is one */
    size_t *tails; /* n_tails: which result is NAME_new */
    size_t *gives; /* n_gives: which results are shard->gives */
    struct backend_array **takes; /* n_takes, owned */
};

/* Arrays in one backend's memory. */
struct side {
    const struct backend *be;
    struct backend_array *of[ROLE_PAST]; /* by role; NULL: nobody reads it */
    struct sight {
        uint32_t *lo, *hi; /* t: what row i of the mask shows; lo > hi: never
                              filled */
    } seen[2];             /* global, local */
    struct chunk written;  /* in the write mask; n = 0: nothing */
};

/* What predictions of width t read, made once; contents change from chunk to
 * chunk, and of the masks only what differs is written. */
struct sheet {
    uint32_t t;             /* 0: not made yet */
    struct side sides[2];   /* the engine's backend, and the CPU's once a shard
                               runs there */
    struct binding *shards; /* n_shards */
};

/* Layers: for every shard; heads: only x, which they share. */
CHECKED int sheet_init(struct sheet *s, struct engine *g, bool heads,
                       uint32_t t, struct err *e);
void sheet_fini(struct sheet *s, const struct engine *g, bool heads);
/* Before and after shard i is opened anew, maybe on another backend. */
void sheet_release(struct sheet *s, const struct shard *sh, size_t i);
CHECKED int sheet_bind(struct sheet *s, struct shard *sh, size_t i,
                       struct err *e);
/* Write everything but x. tokens: c.n. */
CHECKED int sheet_place(struct sheet *s, struct engine *g, struct chunk c,
                        const int32_t *tokens, struct err *e);

/* The rows of a chunk that past array k of the shard gets. */
struct backend_array *sheet_fresh(const struct binding *b,
                                  const struct past_port *p, size_t k);

/* An array, and whose memory it is. */
struct place {
    const struct backend *be;
    struct backend_array *a;
};
CHECKED int place_copy(struct place to, struct place from, struct err *e);

/* Begin and end access to an array's data; be: whose memory it is. */
CHECKED int array_begin(const struct backend *be, struct backend_array *a,
                        bool write, struct err *e);
void array_end(const struct backend *be, struct backend_array *a, bool write);

/* --- recurrent.c --- */

/* Before a prediction of shard i: its tails before position c.pos; and after it
 * what the chunk's rows added. Errors: those of backend.lock, MIL_SHAPE, NOMEM. */
CHECKED int tail_take(struct engine_seq *s, size_t i, struct chunk c,
                      struct err *e);
CHECKED int tail_give(struct engine_seq *s, size_t i, const struct binding *b,
                      struct chunk c, struct err *e);
/* Where rows run: whether the sequence can go on at position n. */
bool seq_can_cut(const struct engine_seq *s, uint32_t n);
/* Where columns run: the last position, n at most, at which it can; those after
 * it are computed again. */
uint32_t seq_reach(const struct engine_seq *s, uint32_t n);
/* See tails_mark; nothing happens in a model without recurrent layers. */
CHECKED int seq_mark(struct engine_seq *s, uint32_t n, bool hold,
                     struct err *e);

/* --- columns.c --- */

#define SHEETS_MAX ENGINE_WIDTHS_MAX /* widths_each gives no more */

struct columns {
    struct widths layers, tops;
    struct sheet layer_sheets[SHEETS_MAX], top_sheets[SHEETS_MAX];
    float *row; /* the most numbers of a row: d_model or a past array's */
};

CHECKED int columns_init(struct engine *g, struct err *e);
void columns_fini(struct engine *g);
/* Run every width once, so that none is slow later. Errors: those of the
 * backend, CANCELLED. */
CHECKED int columns_warm(struct engine *g, struct err *e);
/* The same for one shard (of the heads). */
/* Something begins that may take as long as a load: serve waits longer. */
void columns_tell(struct engine *g);
CHECKED int columns_warm_shard(struct engine *g, bool heads, size_t i,
                               struct err *e);
/* A result has the shape that its package declares. Errors: MIL_SHAPE. */
CHECKED int check_out(const struct backend_array *a, const int64_t want[4],
                      const struct shard *s, const char *name, struct err *e);
/* In chunks of at most `chunk` rows, 0 = all that fit. Sets v->rc. Positions
 * whose states were lost are computed again first. */
void columns_run(struct eval *v, uint32_t chunk, struct engine_times *times);

/* --- rows.c --- */

/* Consecutive rows of a batch that belong to one sequence. */
struct part {
    struct eval *v;
    uint32_t n;      /* rows */
    uint32_t wanted; /* logits are wanted of this many last ones */
    uint32_t hidden; /* or their hidden states */
};

/* Arrays of a batch; rows of x are ld floats apart. */
struct rows {
    uint32_t max;   /* rows of a batch; 0: the bundle runs as columns */
    uint32_t slice; /* rows of logits made at once */
    size_t ld, ld_rope[2];
    size_t ld_ple;
    float *x[2];                  /* (max, ld): input and output of a shard */
    float *x_embed, *ple;         /* (max, ld), (max, ld_ple); NULL: not read */
    float *cos[2], *sin[2];       /* (max, ld_rope): global, local */
    uint32_t *lo[2], *hi[2];      /* max */
    uint32_t *write;              /* max */
    struct backend_state **state; /* max */
    struct backend_row_in *in;    /* of the shard with most inputs */
    struct backend_row_out *out;  /* of the shard that gives most */
    const uint32_t **in_lo, **in_hi; /* the same */
    struct part *parts;              /* max */
    uint32_t n, n_parts;             /* of the present batch */
};

/* Sets max when every shard and head runs rows, else leaves it 0. */
CHECKED int rows_init(struct engine *g, struct err *e);
void rows_fini(struct rows *b);
/* Run n evals together, at most `chunk` rows at a time (0 = all that fit). Sets
 * each rc; when one fails, the other evals continue. */
void rows_run(struct engine *g, struct eval *v, size_t n, uint32_t chunk,
              struct engine_times *times);

/* --- recover.c --- */

/* A prediction of shard i (of the heads) failed twice with BACKEND, and *e says
 * why: open it anew, or on the CPU when that did not help before. What its
 * states held is lost; sequences compute it again (engine_seq.valid).
 * Errors: it cannot be opened on the CPU either. */
CHECKED int recover(struct engine *g, bool heads, size_t i, struct err *e);
/* It made a prediction. */
void recover_sound(struct shard *s);
/* The same of experts.failed, which becomes NULL. */
CHECKED int recover_expert(struct engine *g, struct err *e);
#define RECOVER_SOUND 1000u /* predictions after which it is opened anew again */

/* --- pool.c --- */

struct pool;
/* Rows, of the row's last ones, whose hidden states are wanted. */
uint32_t pool_wants(const struct msg_row *row);
/* Before a row with `pool`; then each wanted row's hidden state, d_model numbers,
 * in order (first: the text's first one); then after all of the row. When a row
 * fails, the sequence pools no more (pool_drop).
 * Errors: UNSUPPORTED (a head of another form), CONFLICT (rows before it were not
 * pooled), INVALID (not finite), those of mil_read. */
CHECKED int pool_begin(struct engine_seq *s, const struct msg_row *row,
                       struct err *e);
void pool_row(struct engine_seq *s, const float *hidden, bool first);
CHECKED int pool_end(struct engine_seq *s, const struct msg_row *row,
                     struct msg_row_done *done, struct err *e);
void pool_drop(struct engine_seq *s);
void pool_close(struct engine *g);

/* --- constrain.c --- */

/* A grammar that rows may name. */
struct constraint {
    struct list link; /* in engine.constraints */
    uint32_t id;
    int rc; /* why rows that name it fail, with e; 0: they do not */
    struct err e;
    pthread_mutex_t lock; /* of what follows, while rows draw */
    struct grammar *grammar;
    struct matcher *matcher;
    struct masker *masker;
};

/* A model's tokens as text. */
struct vocabulary {
    struct trie *trie; /* NULL: no grammar was asked for yet */
    struct tokenizer *tok;
};

/* Where a sequence's text stood in a grammar: tokens [from, n) were read. */
struct seq_match {
    struct constraint *of; /* NULL: nothing is known */
    uint32_t from, n;
    match_t at; /* held */
};

struct step;
/* Before the row's tokens are drawn; they follow s->tokens[0, s->n). Nothing
 * happens without a grammar. Errors: NOT_FOUND, INVALID (the text so far does not
 * match), those of the grammar. */
CHECKED int constrain_begin(struct step *st, struct err *e);
/* t was drawn behind n_history tokens from these logits: if it is not allowed,
 * draw another. On the thread that draws. Errors: INVALID, NOMEM. */
CHECKED int constrain_draw(struct step *st, float *logits,
                           const struct msg_sampling *p, size_t n_history,
                           uint32_t out_index, struct msg_token *t,
                           struct err *e);
/* The step has ended with rc, and the sequence has its new length. */
void constrain_end(struct step *st, int rc);
void constrain_forget(struct engine_seq *s);
void constrain_close(struct engine *g);

/* --- engine.c, step.c, seq.c --- */

/* One sequence's part of a step. */
struct step {
    struct engine_row *r;
    const struct eval *v;
    uint32_t drafts; /* that the context has room for */
    bool alone;      /* the row is run again without drafts */
    bool unsure;     /* by margin: it should be */
    /* With a grammar: where the text stands behind the last token drawn, and
     * before it; both held. moved: one was drawn. */
    struct constraint *constraint;
    match_t match, before;
    bool moved;
};

struct engine {
    const struct backend *be;
    struct bundle *b;
    struct tables tables;
    size_t n_shards, n_heads;
    struct shard *shards, *heads;
    size_t n_handed;
    struct handed *handed;
    bool recurrent; /* some layer is: sequences are cut where seq_can_cut says */
    struct inputs in;
    struct experts experts;
    struct columns columns; /* one of these two is in use */
    struct rows rows;
    uint32_t row_out;   /* numbers of a row of logits: the vocabulary, or
                           TOP_NUMBERS */
    float *tops;        /* two numbers of each row of a slice; or NULL */
    float *logits;      /* of the last evaluation */
    size_t logits_cap;  /* floats */
    struct {
        float *weight; /* d_model; NULL: not read yet */
        double eps;
    } norm; /* the final one: pool.c */
    struct eval *evals; /* ENGINE_SEQS_MAX: of a step */
    struct step *steps; /* the same */
    unsigned threads;
    engine_go_fn *go;   /* of engine_step_rows_if; else NULL */
    void *go_ctx;
    struct sampler **samplers; /* a thread: scratch */
    size_t draw_min;           /* logits that pay for a thread more */
    uint64_t weight_bytes;
    uint64_t state_bytes; /* that a sequence costs at most */
    char arith[ARITH_BYTES_MAX]; /* of all packages: backend_info.arith */
    struct list seqs;            /* engine_seq.link: the open ones */
    struct list constraints;     /* constraint.link */
    struct vocabulary vocabulary;
    struct engine_conf told;     /* engine_open's, for recover.c */
    char cache[PATH_BYTES_MAX];  /* of conf */
    float margin;                /* engine_conf.margin, when it is needed */
    struct cpu_conf cpu;         /* with conf: how packages are opened, also */
    struct backend_conf conf;    /* later */
    bool broken; /* a package could not be opened again: nothing runs */
    uint64_t n_reopened; /* packages: each lost what its states held */
    uint32_t n_events;   /* since engine_event took the last */
    struct engine_event events[ENGINE_EVENTS_MAX];
};

struct engine_seq {
    struct engine *g;
    struct list link;
    uint32_t n;
    uint32_t valid; /* positions that states and past arrays hold: n, but after
                       a loss; only where columns run */
    bool long_list; /* of the rotation's factors: bundle_short_max */
    int32_t *tokens;               /* context of them */
    struct backend_state **states; /* n_shards; NULL where a shard has none */
    struct backend_array ***past; /* n_shards, n_past: [1, heads, context,
                                     dim], fp16 for a backend that lets us
                                     choose */
    struct tails **tails; /* n_shards; NULL where a shard has none, or rows run */
    bool in_step;
    struct pool *pool; /* NULL: none */
    struct seq_match match;
};

/* backend_info.arith of all packages as one text. */
void engine_set_arith(struct engine *g);
/* What was measured about widths, into g->conf: before a package is opened. */
void engine_set_widths(struct engine *g, bool heads);
/* The states and past arrays of shard i, gone and made new. */
void seq_drop(struct engine_seq *s, size_t i);
CHECKED int seq_renew(struct engine_seq *s, size_t i, struct err *e);

/* Tokens that may follow the sequence while its list holds. */
uint32_t seq_room(const struct engine_seq *s);
/* Check tokens that are to follow the sequence. Errors: INVALID, CONTEXT,
 * CONFLICT (see seq_room). */
CHECKED int check_tokens(const struct engine_seq *s, const int32_t *tokens,
                         uint32_t n, struct err *e);
/* The first c.n rows of `fresh` [1, heads, t, dim] become positions c.pos and
 * on of past array i. Errors: those of backend.lock. */
CHECKED int seq_append(struct engine_seq *s, size_t shard, size_t i,
                       struct backend_array *fresh, struct chunk c,
                       struct err *e);
