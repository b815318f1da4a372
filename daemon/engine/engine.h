/* engine.h - a loaded model and its sequences: computes steps, without frames.
 * The engine role (role.c) and `aned logits` use it.
 *
 * A model is a bundle's layer shards and head shards on one backend. A sequence
 * is a timeline of tokens with the states of every shard. There is no text
 * here, only token ids. Thread: one.
 */
#pragma once

#include "engine/backend.h"
#include "model/bundle.h"
#include "proto/msg.h"

struct engine;
struct engine_seq;

/* What opening a model is doing: packages are made ready, then every width is
 * run once where the first time is slow. */
enum engine_stage { ENGINE_LOADS, ENGINE_WARMS };

struct engine_conf {
    const char *backend; /* NULL = "cpu" */
    unsigned threads;
    bool round_fp16; /* see cpu_conf, as isa */
    const char *isa; /* NULL: the best */
    /* cpu_conf's, of the interpreter: any T, mixtures of experts without what
     * nobody chose, no values kept, and a look at each result */
    bool any_width, chosen_experts, once;
    void (*tap)(void *ctx, const char *op, const float *v, size_t n);
    void *tap_ctx;
    /* 0: exact. Else the widths that a backend says have other bits are used
     * too, and a greedy token that drafts were verified with is drawn again,
     * alone, where the two best logits differ by less than this (design 7).
     * Then drafts, chunks and restarts may change tokens. */
    float margin;
    const char *cache; /* see backend_conf; NULL: none; copied */
    /* Which widths were measured to agree; a package runs as no other. n 0:
     * nothing is known. */
    struct msg_widths layers, heads;
    /* Experts that stay open at once (experts.c), where the backend has no lower
     * bound. 0: EXPERTS_OPEN_MAX. */
    uint32_t experts_max;
    /* Called after each package, and after each width of it; may be NULL. */
    void (*progress)(void *ctx, enum engine_stage stage, uint32_t done,
                     uint32_t total);
    void *ctx;
    struct backend_watch watch; /* opening may be cancelled */
};

CHECKED int engine_open(const char *bundle_dir, const struct engine_conf *conf,
                        struct engine **ret, struct err *e);
/* The same on a given backend, whatever conf->backend says. */
CHECKED int engine_open_with(const struct backend *be, const char *bundle_dir,
                             const struct engine_conf *conf,
                             struct engine **ret, struct err *e);
void engine_close(struct engine *g); /* NULL is fine */
void engine_ready(const struct engine *g, struct msg_ready *ret);
/* Whether drafts, chunks and restarts never change a token: always, but with a
 * margin on a backend whose bits depend on the width. */
bool engine_exact(const struct engine *g);
/* What the bits of this model's results depend on, beside its files and the
 * backend's name: backend_info.arith of its packages. */
const char *engine_arith(const struct engine *g);
const struct bundle *engine_bundle(const struct engine *g);

CHECKED int engine_seq_open(struct engine *g, struct engine_seq **ret,
                            struct err *e);
/* An empty sequence is to have n tokens when logits of it are used: when that
 * is more than bundle_short_max, it and its forks turn by the long list from
 * the first token on. Without this call by the short one. Errors: CONFLICT
 * (there are tokens by another list), CONTEXT. */
CHECKED int engine_seq_expect(struct engine_seq *s, uint32_t n, struct err *e);
void engine_seq_close(struct engine_seq *s); /* NULL is fine */
/* Give all memory of closed and cut sequences back to the system. Until then
 * some of it stays for new ones, in proportion to that of the others. */
void engine_trim(struct engine *g);
/* What happened to a package that runs on a device (recover.c). */
struct engine_event {
    bool on_cpu; /* it runs on the CPU backend from now on, and engine_arith is
                    another; else it was opened anew */
    char package[NOTICE_PACKAGE_MAX]; /* "layers_00_08.mlpackage"; cut */
    struct err why;
};

/* The next event that was not taken yet, oldest first; false: none. When more
 * than ENGINE_EVENTS_MAX wait, the newest are dropped. */
bool engine_event(struct engine *g, struct engine_event *ret);

/* A model with recurrent layers (msg_ready.recurrent) cannot go on at any
 * position: the last one, n at most, at which this sequence can be cut or
 * forked. n in every other model. */
uint32_t engine_seq_cut_at(const struct engine_seq *s, uint32_t n);
/* Make that so at its end: the last ENGINE_MARKS_MAX of them are kept. Nothing
 * happens in other models. Errors: NOMEM. */
CHECKED int engine_seq_keep(struct engine_seq *s, struct err *e);

/* A copy of the first n tokens of `from` (n <= its length). Errors: also
 * CONFLICT (engine_seq_cut_at), as the next. */
CHECKED int engine_seq_fork(const struct engine_seq *from, uint32_t n,
                            struct engine_seq **ret, struct err *e);
/* Keep the first n tokens; later positions are empty again. */
CHECKED int engine_seq_truncate(struct engine_seq *s, uint32_t n,
                                struct err *e);
uint32_t engine_seq_length(const struct engine_seq *s);
const int32_t *engine_seq_tokens(const struct engine_seq *s);

/* Add a grammar (text: as grammar_from_text takes it) that rows may name by its
 * id. When it fails, rows that name it fail with the same error, until it is
 * dropped. Errors: CONFLICT (the id is in use: nothing changes), those of
 * grammar_from_text, UNSUPPORTED (a model that cannot keep to one), NOMEM. */
CHECKED int engine_grammar(struct engine *g, uint32_t id, const char *text,
                           size_t n, struct err *e);
void engine_grammar_drop(struct engine *g, uint32_t id);

struct engine_times {
    uint32_t us_embed, us_masks, us_layers, us_head, us_sample;
    uint32_t us_wait; /* in engine_go_fn; not counted in the other times */
};

/* Run n tokens (any n; split into chunks of at most `chunk` rows, 0 = t_max)
 * after the sequence. want_logits 0: none; 1: of the last row; 2: of all rows.
 * *logits: (rows, vocab) fp32, owned by g until its next call. On failure the
 * sequence keeps its old length. times (may be NULL) is added to.
 * Errors: CONTEXT, CONFLICT (engine_seq_expect), INVALID (token id), backend
 * errors. */
CHECKED int engine_eval(struct engine_seq *s, const int32_t *tokens, uint32_t n,
                        uint32_t chunk, int want_logits, const float **logits,
                        struct engine_times *times, struct err *e);

/* Takes the logits of rows [first, first + n) of the given tokens: (n, vocab),
 * valid during the call; the callee may change them. When it returns an error,
 * the evaluation ends with that error. */
typedef int engine_rows_fn(void *ctx, uint32_t first, uint32_t n,
                           float *logits, struct err *e);

/* engine_eval with the logits of all rows. They are passed to `rows` a few at a
 * time, in order, so they are never in memory all at once. */
CHECKED int engine_eval_rows(struct engine_seq *s, const int32_t *tokens,
                             uint32_t n, uint32_t chunk, engine_rows_fn *rows,
                             void *ctx, struct engine_times *times,
                             struct err *e);

/* Run one msg_row: evaluate, verify drafts, sample, score (then *ret owns
 * memory: msg_row_done_fini). Drafts that do not fit the context, or the short
 * list, are left out. On failure the sequence keeps its old length and *ret is
 * untouched.
 * Errors: UNSUPPORTED (a model that gives no logits cannot score), CONFLICT
 * (position; a token of a text that another list is for), NOT_FOUND (grammar),
 * those of engine_eval and sampler_draw. */
CHECKED int engine_step(struct engine_seq *s, const struct msg_row *row,
                        struct msg_row_done *ret, struct engine_times *times,
                        struct err *e);

/* One sequence's part of a step that many share. */
struct engine_row {
    struct engine_seq *seq;
    const struct msg_row *row;
    struct msg_row_done *done; /* filled when rc is 0 */
    int rc;                    /* out: 0, or the error of this row alone */
    struct err err;
};

/* engine_step for several sequences at once (each at most once). Where the
 * backend runs rows, up to ENGINE_STEP_ROWS_MAX of them are multiplied with
 * each matrix together; else they run one after another. Each row's result is
 * exactly that of engine_step. When a row cannot run, its rc is set and its
 * sequence does not change; the other rows run. */
void engine_step_rows(struct engine *g, struct engine_row *rows, size_t n,
                      struct engine_times *times);

/* The same, but it can be cancelled: go(ctx, false) is called between shards
 * and between some operations (the backend chooses), and go(ctx, true) before
 * the heads. When a call returns false, no sequence changes, and rows that
 * could run get rc CANCELLED. The step may have at most engine_can_stop()
 * tokens and drafts; 0: it cannot be cancelled. */
typedef bool engine_go_fn(void *ctx, bool last);
uint32_t engine_can_stop(const struct engine *g);
void engine_step_rows_if(struct engine *g, struct engine_row *rows, size_t n,
                         engine_go_fn *go, void *ctx,
                         struct engine_times *times);

/* Main function of the engine role: reads frames on fd 3 until UNLOAD or end of
 * file. Returns the exit code. */
int engine_role(int argc, char **argv);
