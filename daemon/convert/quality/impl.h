/* impl.h - shared by the files of quality.h: ladder.c (rung after rung),
 * files.c, run.c and exact.c (the rungs), compare.c (numbers against numbers),
 * bars.c, report.c, text.c. */
#pragma once

#include "convert/quality/quality.h"
#include "engine/encode.h"

/* Two likeliest tokens that differ by less (nats) are a tie that rounding may
 * decide. */
#define CLEAR 0.1

/* --- compare.c --- */

/* n columns of `rows` numbers, feature-major: a at [r * lda + t], b likewise,
 * b times `scale`. */
struct columns_pair {
    const float *a, *b;
    size_t lda, ldb, rows;
    float scale;
};
void compare_layer(const struct columns_pair *p, uint32_t n,
                   struct quality_layer *ret);

/* Adds position after position. */
struct logits_sum {
    struct quality_logits *to;
    float *kl, *cosine; /* of each position; may be NULL */
    double clear_same, top5, kl_sum, cosine_sum, error;
    size_t vocab;
    bool stream; /* numbers of the stream and no logits: their cosines and errors
                    alone */
};
void compare_begin(struct logits_sum *s, struct quality_logits *to,
                   size_t vocab);
/* want: the truth's logits of one position. */
void compare_logits(struct logits_sum *s, const float *want, const float *got);
void compare_end(struct logits_sum *s);

/* --- bars.c --- */

/* The verdict on a rung: "passed", or "failed" with its reason. */
void quality_fail(struct quality_result *r, const char *fmt, ...)
    PRINTF_LIKE(2, 3);
void quality_pass(struct quality_result *r, const char *fmt, ...)
    PRINTF_LIKE(2, 3);
/* Rung `program` by its numbers; shards say which program a layer is in. */
void judge_program(struct quality *q, const struct bundle *b);
/* Rungs `steps` and `chunks`: as in one prediction, but for rounding. */
void judge_same(struct quality_result *r, const struct quality_logits *l);

/* --- ladder.c --- */

#define STEPS  8u  /* last positions that run one by one */
#define CHUNKS 16u /* and in chunks */
#define WIDTH  4u  /* of the chunks: what packages declare */

struct ladder {
    const char *dir;
    const struct decoder *d;
    const struct quality_conf *conf;
    struct quality *q;
    struct bundle *b;
    struct engine *g;
    struct engine_seq *s;
    struct encoder *t; /* of an encoder, in place of g and s */
    size_t wide;       /* logits of a position: tokens, or labels */
    int32_t tokens[QUALITY_TOKENS];
    uint32_t n;
    float **want, **got; /* a layer: (d_model, n) */
    float *logits;       /* (n, wide) of the reference */
    float *last;         /* (CHUNKS, wide): the candidate's last rows */
    bool tapping;
    size_t shard; /* that is running */
    uint32_t pos; /* columns that ran before */
    uint32_t seen;      /* layers of rung `program` that were told of */
    uint64_t told, all; /* units of the present rung: told already, in all */
    double row;         /* units of a row that it gives */
    struct err stopped; /* told while a program ran: not wanted any more */
    struct logits_sum sum;
    const float *to; /* what the rows are compared with */
};

/* What rungs take, in quarters of the reference's work. Measured with the 0.5B
 * shape at int8 on two cores of Zen 3: the reference took 3.9 s, these 13.2,
 * 4.3 (chunks and rows alike) and 6.7. */
#define PARTS_PROGRAM 13u
#define PARTS_WIDTHS  4u
#define PARTS_EXACT   7u

/* Tell the progress while programs run: one prediction of a long context may
 * take minutes. A rung tells no more than r->all. What the caller answers is
 * heard when the rung ends, or gives rows. */
void ladder_tick(struct ladder *r, uint64_t units);
/* So many rows are there, each of r->row units. Errors: CANCELLED. */
CHECKED int ladder_rows(struct ladder *r, uint32_t rows, struct err *e);

/* --- files.c --- */

CHECKED int rung_weights(struct ladder *r, struct err *e);
/* A vocabulary that aned cannot tokenise: "not run". */
void rung_prompt(struct ladder *r);

/* --- run.c --- */

/* The packages, op by op, each result rounded to fp16; closed by the ladder. */
CHECKED int open_candidate(struct ladder *r, struct err *e);
CHECKED int rung_program(struct ladder *r, struct err *e);
/* Rungs `steps` and `chunks`. */
CHECKED int rung_widths(struct ladder *r, struct err *e);

/* --- exact.c --- */

CHECKED int rung_exactness(struct ladder *r, struct err *e);
