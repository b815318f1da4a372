/* eval.h - how likely a model finds given texts: `anectl eval`.
 *
 * All goes through the API: texts become token ids by POST /tokenize, and
 * /v1/completions with echo and logprobs says how likely each of them was. The
 * scoring is that of EleutherAI's lm-evaluation-harness, so that figures can be
 * compared: eval_text.c (perplexity), eval_choice.c (multiple choice).
 */
#pragma once

#include "client/client.h"
#include "proto/json.h"
#include "proto/limits.h"

#define EVAL_WINDOW 2048 /* by default, where the model's context has them */

struct eval {
    struct client *c;
    const char *model; /* borrowed */
    uint32_t window;   /* tokens of a request, with the one that may be drawn */
    uint32_t stride;   /* tokens that a window predicts; perplexity only */
    uint32_t limit;    /* texts or questions; 0: all */
    bool bos;       /* questions begin with BOS where the vocabulary says so */
    int32_t prefix; /* what the first token of a text comes after: BOS, or EOS
                       where there is no BOS */
    struct bar bar;
    struct json *samples; /* each text's or question's own figures; NULL: not
                             wanted; borrowed */
};

/* Ask what is to be known of v->model, and set window (0: the default) and
 * stride (0: the whole window). Errors: as ask(), INVALID (they do not fit). */
CHECKED int eval_open(struct eval *v, struct err *e);

/* Append the ids of n bytes of text to ids (int32_t each). Control tokens'
 * texts are those tokens. Errors: as ask(). */
CHECKED int eval_tokenize(struct eval *v, const char *text, size_t n, bool bos,
                          struct buf *ids, struct err *e);

/* Token ids; how likely are those from `from` (>= 1) on, after those before? */
struct eval_part {
    const int32_t *ids;
    size_t n, from;
    double sum;  /* out: log-probability, natural log */
    bool greedy; /* out: each is the likeliest one */
};
/* n <= PROMPTS_MAX parts in one request. Errors: as ask(), HTTP (it answers
 * something else). */
CHECKED int eval_score(struct eval *v, struct eval_part *parts, size_t n,
                       struct err *e);

/* One line on a terminal. */
void eval_progress(struct eval *v, double fraction);

/* A file's lines one after the other; empty ones are left out. */
struct eval_lines {
    struct buf b;
    size_t at;
    size_t number; /* of the last line, from 1 */
};
CHECKED int eval_lines_open(struct eval_lines *l, const char *path,
                            struct err *e);
/* False: there are no more. The line is borrowed and has no line end. */
bool eval_lines_next(struct eval_lines *l, const char **ret, size_t *ret_n);
/* How much of the file was read, 0 to 1. */
double eval_lines_read(const struct eval_lines *l);
void eval_lines_close(struct eval_lines *l); /* zeroed is fine */

/* Figures of the whole file into o, which --json prints. Errors: those above,
 * JSON, INVALID (with the line's number). */
CHECKED int eval_text(struct eval *v, const char *path, struct json *o,
                      struct err *e);
CHECKED int eval_choice(struct eval *v, const char *path, struct json *o,
                        struct err *e);

/* Words of a text: pieces between white space, as Python's re.split(r"\s+")
 * counts them, also empty ones at the ends. */
size_t eval_words(const char *text, size_t n);
