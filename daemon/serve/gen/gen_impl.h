/* gen_impl.h - shared by gen.c (from the request to its streams),
 * gen_encode.c (its prompt) and gen_token.c (the tokens that are drawn for them). */
#pragma once

#include "serve/gen/gen.h"

#define GEN_MAGIC 0x2e4e4547u

struct gen_choice {
    struct run_stream run;
    struct gen *gen;
    struct text_stream text;
    bool leaving, ended;
    bool enough; /* the sink wants no more */
    bool lined;  /* a line has ended in its text */
    enum gen_finish why; /* leaving */
    uint64_t last_us; /* its last token */
};

/* Of one request: what its gens point to. */
struct gen_memory {
    struct arena arena;
    uint32_t refs;
};

struct gen {
    uint32_t magic;
    struct server *srv;
    struct model *model;
    struct voc *voc;
    const struct gen_sink *sink;
    void *ctx;
    struct gen_memory *mem;
    struct gen_req req;
    struct text_work work;
    struct model_wait wait;
    struct warm_wait states; /* for saved states of the prompt */
    uint64_t deadline_us;
    struct deadline *deadline; /* NULL: none */
    struct admit_req seat;     /* in the queue for the model */
    uint32_t grammar;          /* runner_grammar's; 0: none */
    bool asked;                /* runner_want was called: only once */
    bool seated;               /* the seat is taken */
    bool admitted;             /* counted in the model */
    bool encoding;             /* the text thread has work */
    bool encoded, up, queued, over, paused;
    uint32_t n_ended;
    struct gen_usage usage;
    struct buf piece;
    struct gen_choice *choices; /* req.n, from gen_start on */
};

/* gen.c: end g: call on_done and free g. */
void gen_done(struct gen *g, int rc, const struct err *e);

/* gen_encode.c */
/* Positions of a sequence; until the engine is up, those of the bundle. */
uint32_t gen_context(const struct gen *g);
/* Put g's prompt into the queue of the text thread, which calls `done` on the
 * loop thread. Errors: BUSY, NOMEM. */
CHECKED int gen_encode(struct gen *g, void (*done)(struct text_work *w),
                       struct err *e);

/* gen_token.c */
extern const struct run_events gen_run_events; /* of every choice */
/* The deadline has passed: what g has, in whatever phase, is the answer. */
void gen_late(void *ctx);
