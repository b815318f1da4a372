/* msg.h - payloads of the engine protocol, and their codec.
 *
 * Encoders append to a buf. Decoders fill a struct whose pointers are malloc'ed
 * and owned by it (msg_*_fini) or, where said, borrow the payload; every count
 * is checked against proto/limits.h and the payload's length before anything
 * is allocated. Errors: ERR_FRAME naming message and field.
 */
#pragma once

#include "base/buf.h"
#include "proto/limits.h"
#include "proto/pooling.h"

/* Widths that were measured to give rows the same bits (`aned probe`): 1 ..
 * ENGINE_CHUNK_MAX, ascending. n 0: nothing was measured. */
struct msg_widths {
    uint32_t n;
    uint32_t of[ENGINE_WIDTHS_MAX];
};

/* FRAME_LOAD */
struct msg_load {
    const char *bundle;  /* folder (decoded: owned) */
    const char *backend; /* "cpu" | "interpreter" | "coreml" */
    const char *cache;   /* backend_conf.cache (decoded: owned); "": none */
    uint32_t threads;    /* 0 = the engine's choice */
    bool round_fp16;
    float margin;                    /* engine_conf.margin */
    struct msg_widths layers, heads; /* of all layer shards; of all heads */
};

/* FRAME_READY */
struct msg_ready {
    uint32_t t_max;     /* rows of one sequence a step takes */
    uint32_t batch_max; /* rows of all sequences in one step */
    uint32_t seqs_max;
    uint32_t context;   /* positions */
    uint32_t short_max; /* bundle_short_max: 1..context */
    uint32_t vocab;
    uint64_t weight_bytes;
    uint64_t state_bytes; /* that one sequence costs at most */
    /* Where sequences grow, else 0: n of them, with b blocks of STATE_BLOCK
     * positions in all, cost at most (n + 1) * base_bytes + b * block_bytes. */
    uint64_t base_bytes, block_bytes;
    bool exact;                  /* engine_exact */
    bool recurrent; /* sequences are cut at their end, at multiples of STATE_BLOCK
                       and at marks (msg_row.keep) only */
    char arith[ARITH_BYTES_MAX]; /* engine_arith */
    uint32_t load_ms;
};

/* How tokens are drawn (engine/sampler.h). All fields are set; the comments
 * give neutral values. */
struct msg_bias {
    int32_t id;
    float bias; /* added to the logit; minus infinity bans the token */
};

/* Samplers of a chain; msg_sampler_name has llama.cpp's names. */
enum msg_sampler {
    SAMPLER_PENALTIES,
    SAMPLER_DRY,
    SAMPLER_TOP_N_SIGMA,
    SAMPLER_TOP_K,
    SAMPLER_TYPICAL_P,
    SAMPLER_TOP_P,
    SAMPLER_MIN_P,
    SAMPLER_XTC,
    SAMPLER_TEMPERATURE,
    SAMPLER_KINDS,
};

struct msg_sampling {
    float temperature;       /* 0 = greedy */
    uint32_t top_k;          /* 0 = off */
    float top_p;             /* 1 = off */
    float min_p;             /* 0 = off */
    float repeat_penalty;    /* 1 = off */
    uint32_t repeat_last_n;  /* tokens looked back; 0 = off, UINT32_MAX = all */
    float presence_penalty;  /* 0 = off */
    float frequency_penalty; /* 0 = off */
    float dynatemp_range;    /* 0 = off */
    float dynatemp_exponent;
    float typical_p;       /* 1 = off */
    float top_n_sigma;     /* 0 or less = off */
    float xtc_probability; /* 0 = off */
    float xtc_threshold;   /* above 0.5 = off */
    float dry_multiplier;  /* 0 = off */
    float dry_base;        /* below 1 = off */
    uint32_t dry_allowed_length;
    uint32_t dry_last_n; /* tokens looked back, as repeat_last_n */
    uint32_t mirostat;   /* 0 = off, 1, 2 */
    float mirostat_tau, mirostat_eta;
    float mu; /* mirostat's number before this row's first draw */
    uint64_t seed;
    uint32_t choice;   /* index of the choice, for n > 1 */
    uint32_t logprobs; /* how many alternatives, besides the token itself */
    bool no_logprob;   /* the token's own logprob is not wanted either: it is 0,
                          which saves a pass over the vocabulary */
    uint32_t n_chain;  /* 0: the default order */
    uint8_t chain[SAMPLERS_MAX]; /* enum msg_sampler; others are off */
    uint32_t n_bias;             /* up to ENGINE_BIAS_MAX */
    struct msg_bias *bias;       /* NULL: none; owned when decoded */
    uint32_t n_breaks;           /* numbers in breaks, up to DRY_BREAKS_MAX */
    int32_t *breaks; /* groups (msg_breaker_next); NULL: none; owned when
                        decoded */
};

void msg_sampling_init(struct msg_sampling *s); /* greedy, everything off */
const char *msg_sampler_name(enum msg_sampler k);
/* The samplers that apply, in order (enum msg_sampler); returns how many. With
 * mirostat it is the temperature alone, as in llama.cpp. */
uint32_t msg_sampling_order(const struct msg_sampling *s, const uint8_t **ret);
/* Whether a sampler is in the order, and its numbers ask for something. */
bool msg_sampling_uses(const struct msg_sampling *s, enum msg_sampler k);
/* Whether its numbers ask for something. */
bool msg_sampling_asks(const struct msg_sampling *s, enum msg_sampler k);
/* mirostat's first number; 0 without it. */
float msg_sampling_mu(const struct msg_sampling *s);
/* The likeliest token is taken in place of a random one. */
bool msg_sampling_greedy(const struct msg_sampling *s);

/* Sequences that end a repetition (dry): each of the heads, followed by all of
 * the tail. In msg_sampling.breaks a group is the numbers n_tail, the tail,
 * n_heads, the heads. */
struct msg_breaker {
    uint32_t n_tail;  /* up to DRY_TAIL_MAX */
    uint32_t n_heads; /* at least 1 */
    const int32_t *tail;
    const int32_t *heads; /* ascending */
};
/* Read the group at number *at, and go on to the next. False: there is none, or
 * (*at is not n_breaks) the numbers are no group. */
bool msg_breaker_next(const struct msg_sampling *s, uint32_t *at,
                      struct msg_breaker *ret);
/* Whether a token is one of the heads. */
bool msg_breaker_has(const struct msg_breaker *g, int32_t id);

/* The first thing it asks for that needs more than each row's likeliest token
 * ("temperature", ...: static); NULL: nothing. A seed alone asks for nothing.
 */
const char *msg_sampling_beyond_top(const struct msg_sampling *s);
#define MSG_ONLY_TOP "this model gives only its likeliest token"

/* FRAME_SEQ_OPEN: a new empty sequence; FRAME_SEQ_CLOSE: drop it;
 * FRAME_SEQ_TRUNCATE: keep the first n tokens; FRAME_SEQ_FORK: `seq` becomes a
 * copy of the first n tokens of `from`. Answer: OK or ERROR. */
struct msg_seq {
    uint32_t seq;  /* chosen by serve, unique while open */
    uint32_t from; /* fork */
    uint32_t n;    /* truncate, fork; open: engine_seq_expect */
};

/* FRAME_GRAMMAR: from now on rows may name this grammar by its id. Answer: OK,
 * also where the text is no grammar: then the rows fail that name it.
 * FRAME_GRAMMAR_DROP: no row will name it any more. Answer: OK. */
struct msg_grammar {
    uint32_t id;      /* chosen by serve, unique, not 0 */
    const char *text; /* as grammar_from_text takes it; decoded: borrowed */
    size_t n;
};

/* One sequence's part of a step: `n_tokens` tokens from `position` on (which
 * must be the sequence's length). When `sample`, a token is drawn after the
 * last row; drafts follow the last token and are verified: accepted drafts
 * extend the sequence. When `score`, the log-probability of the token behind
 * each row is wanted, with sampling.logprobs alternatives; the rows of a step
 * that are scored have ENGINE_SCORES_MAX tokens at most. */
struct msg_row {
    uint32_t seq;
    uint32_t position;
    uint32_t n_tokens;
    int32_t *tokens; /* owned when decoded */
    uint32_t n_drafts;
    int32_t drafts[ENGINE_DRAFTS_MAX];
    bool sample;
    bool keep; /* mark the place in front of the last token: see tails.h */
    bool score;
    uint8_t pool;       /* enum pooling: the rows are pooled; then nothing is
                           drawn and nothing scored */
    bool give;          /* with pool: the vector is wanted; these rows are the
                           text's last */
    int32_t after;      /* score: the token behind the last row; -1: not known,
                           then that row has no score */
    uint32_t out_index; /* output tokens drawn before: the random counter */
    uint32_t n_prompt;  /* tokens of the sequence that are prompt: a grammar
                           is about those behind (penalties count all) */
    uint32_t grammar;   /* its id; 0: none */
    struct msg_sampling sampling;
};

/* Scores that the row asks for. */
static inline uint32_t msg_row_scores(const struct msg_row *r)
{
    return !r->score         ? 0
           : r->after >= 0   ? r->n_tokens
           : r->n_tokens > 0 ? r->n_tokens - 1
                             : 0;
}

/* FRAME_STEP */
struct msg_step {
    uint32_t n_rows; /* sequences */
    struct msg_row *rows;
};

struct msg_logprob {
    int32_t id;
    float logprob; /* of the raw model distribution, natural log */
};

struct msg_token {
    int32_t id;
    float logprob;
    uint32_t n_top;
    struct msg_logprob top[ENGINE_LOGPROBS_MAX];
};

/* One sequence's result: tokens drawn by this step (accepted drafts, then the
 * sampled one); 0 when nothing was sampled. */
struct msg_row_done {
    uint32_t seq;
    int32_t error; /* 0, or an err_code: this sequence only */
    uint32_t n_tokens;
    struct msg_token tokens[ENGINE_DRAFTS_MAX + 1];
    uint32_t n_accepted;
    uint32_t length; /* of the sequence now */
    float mu;        /* msg_sampling.mu behind the last token drawn */
    /* With a grammar: tokens of which the next ones are likely to be, since no
     * other text can follow: drafts. */
    uint32_t n_forced;
    int32_t forced[ENGINE_DRAFTS_MAX];
    uint32_t n_scores;        /* msg_row_scores: a token behind each row */
    struct msg_token *scores; /* owned; NULL: none */
    uint32_t n_vector;        /* of a row that gives: d_model, finite */
    float *vector;            /* owned; NULL: none */
};

/* Set r to "nothing drawn". `tokens` (3 KiB) is not cleared: n_tokens says how
 * many of them are set. */
static inline void msg_row_done_init(struct msg_row_done *r, uint32_t seq)
{
    r->seq = seq;
    r->error = 0;
    r->n_tokens = 0;
    r->n_accepted = 0;
    r->length = 0;
    r->mu = 0;
    r->n_forced = 0;
    r->n_scores = 0;
    r->scores = NULL;
    r->n_vector = 0;
    r->vector = NULL;
}

/* Room for n scores, which are not set. False: memory is out. */
CHECKED bool msg_row_done_room(struct msg_row_done *r, uint32_t n);
/* The same for a vector, 1 .. EMBED_DIM_MAX numbers. */
CHECKED bool msg_row_done_vector(struct msg_row_done *r, uint32_t n);
void msg_row_done_fini(struct msg_row_done *r); /* its scores, its vector */

/* FRAME_STEP_DONE; times in microseconds */
struct msg_step_done {
    uint32_t us_embed, us_masks, us_layers, us_head, us_sample, us_total;
    uint32_t n_rows;
    struct msg_row_done *rows; /* owned when decoded */
};

/* FRAME_STATE_SAVE: save the present positions [from, to) of `seq` to the one
 * file of parts; there are no tokens. FRAME_STATE_LOAD: make `seq` a new
 * sequence of these tokens, with the positions that the files of parts hold;
 * the parts have no gaps. Answer: STATE_DONE, some steps later, or ERROR.
 * Bounds are multiples of STATE_BLOCK. */
struct msg_state_part {
    uint32_t from, to;
    const char *path; /* decoded: owned */
};

struct msg_state {
    uint32_t seq;
    uint32_t n_whole; /* load: engine_seq_expect */
    uint32_t n_tokens;
    int32_t *tokens; /* owned when decoded */
    uint32_t n_parts;
    struct msg_state_part parts[STATE_PARTS_MAX];
};

/* FRAME_TAGS: read a text with an encoder: its labels; or with `pool` texts: their
 * vectors. Answer: PROGRESS*, TAGS_DONE or ERROR. */
#define MSG_TAGS_BIASES 6u /* model/tags.h */
struct msg_tags_text {
    const int32_t *tokens; /* decoded: each begins where the one before ends */
    uint32_t n;
};
struct msg_tags {
    float biases[MSG_TAGS_BIASES];
    uint8_t pool; /* enum pooling; POOL_NONE: labels are wanted */
    uint32_t n_texts; /* 1 .. ENCODER_TEXTS_MAX; labels: 1 */
    struct msg_tags_text texts[ENCODER_TEXTS_MAX]; /* in all 1 .. TAGS_TOKENS_MAX
                                                      tokens, none without */
    int32_t *own; /* decoded: of all texts, owned */
};
void msg_tags_put(struct buf *b, const struct msg_tags *m);
CHECKED int msg_tags_get(const void *p, size_t n, struct msg_tags *ret,
                         struct err *e);
void msg_tags_fini(struct msg_tags *m);

/* FRAME_TAGS_DONE: of each token, or one vector of each text */
struct msg_tags_done {
    uint32_t n_vector; /* 0: labels; else n is 0. At most EMBED_DIM_MAX */
    uint32_t n_texts;  /* of vectors: as in msg_tags */
    float *vector;     /* (n_texts, n_vector); owned when decoded */
    uint32_t n;
    uint16_t *labels; /* below MODEL_LABELS_MAX; owned when decoded */
    float *probs;     /* 0..1; the same */
};
void msg_tags_done_put(struct buf *b, const struct msg_tags_done *m);
CHECKED int msg_tags_done_get(const void *p, size_t n,
                              struct msg_tags_done *ret, struct err *e);
void msg_tags_done_fini(struct msg_tags_done *m); /* zeroed is fine */

/* FRAME_STATE_DONE */
struct msg_state_done {
    uint32_t seq;
    uint32_t n;     /* load: the sequence's length now; save: `to` */
    uint32_t bad;   /* load: which file ended it early, from 1; else 0 */
    uint64_t bytes; /* read or written */
};

/* FRAME_NOTICE: a package failed on its device, and runs again. */
struct msg_notice {
    bool on_cpu; /* on the CPU backend from now on; else opened anew */
    char package[NOTICE_PACKAGE_MAX]; /* "layers_00_08.mlpackage" */
    char arith[ARITH_BYTES_MAX];      /* of the model now: engine_arith */
    char why[ERR_MSG_MAX];
};

/* FRAME_PROGRESS of an engine */
struct msg_progress {
    bool warms; /* widths are run once; else packages are opened */
    uint32_t done, total;
};

/* FRAME_ERROR */
struct msg_error {
    int32_t code; /* enum err_code */
    char msg[ERR_MSG_MAX];
};

bool msg_widths_ok(const struct msg_widths *w); /* as the comment there says */
void msg_load_put(struct buf *b, const struct msg_load *m);
CHECKED int msg_load_get(const void *p, size_t n, struct msg_load *ret,
                         struct err *e);
void msg_load_fini(struct msg_load *m);
void msg_ready_put(struct buf *b, const struct msg_ready *m);
CHECKED int msg_ready_get(const void *p, size_t n, struct msg_ready *ret,
                          struct err *e);
void msg_seq_put(struct buf *b, const struct msg_seq *m);
CHECKED int msg_seq_get(const void *p, size_t n, struct msg_seq *ret,
                        struct err *e);
void msg_grammar_put(struct buf *b, const struct msg_grammar *m);
CHECKED int msg_grammar_get(const void *p, size_t n, struct msg_grammar *ret,
                            struct err *e);
void msg_step_put(struct buf *b, const struct msg_step *m);
CHECKED int msg_step_get(const void *p, size_t n, struct msg_step *ret,
                         struct err *e);
void msg_step_fini(struct msg_step *m);
void msg_step_done_put(struct buf *b, const struct msg_step_done *m);
CHECKED int msg_step_done_get(const void *p, size_t n,
                              struct msg_step_done *ret, struct err *e);
void msg_step_done_fini(struct msg_step_done *m);
void msg_state_put(struct buf *b, const struct msg_state *m);
CHECKED int msg_state_get(const void *p, size_t n, struct msg_state *ret,
                          struct err *e);
void msg_state_fini(struct msg_state *m);
void msg_state_done_put(struct buf *b, const struct msg_state_done *m);
CHECKED int msg_state_done_get(const void *p, size_t n,
                               struct msg_state_done *ret, struct err *e);
void msg_notice_put(struct buf *b, const struct msg_notice *m);
CHECKED int msg_notice_get(const void *p, size_t n, struct msg_notice *ret,
                           struct err *e);
void msg_progress_put(struct buf *b, const struct msg_progress *m);
CHECKED int msg_progress_get(const void *p, size_t n, struct msg_progress *ret,
                             struct err *e);
void msg_error_put(struct buf *b, const struct err *err);
CHECKED int msg_error_get(const void *p, size_t n, struct msg_error *ret,
                          struct err *e);
