/* gen.h - generations: options, requests, the stream on the screen. */
#pragma once

#include "client/client.h"
#include "proto/json.h"
#include "proto/limits.h"

/* The first options of every command that generates. */
enum {
    GEN_MAX_TOKENS,
    GEN_TEMPERATURE,
    GEN_TOP_P,
    GEN_TOP_K,
    GEN_MIN_P,
    GEN_REPEAT,
    GEN_SEED,
    GEN_STOP,
    GEN_STATS,
    GEN_OPTS
};

#define GEN_OPT_ROWS                                                           \
    [GEN_MAX_TOKENS] =                                                         \
        {"max-tokens",     'n', OPT_INT, "N", "stop after so many tokens", 0,  \
         MODEL_CONTEXT_MAX},                                                   \
    [GEN_TEMPERATURE] = {"temperature",                                        \
                         't',                                                  \
                         OPT_NUM,                                              \
                         "T",                                                  \
                         "0 always takes the likeliest token",                 \
                         0,                                                    \
                         2},                                                   \
    [GEN_TOP_P] = {"top-p",                                                    \
                   0,                                                          \
                   OPT_NUM,                                                    \
                   "P",                                                        \
                   "draw from the likeliest, P together",                      \
                   0,                                                          \
                   1},                                                         \
    [GEN_TOP_K] =                                                              \
        {"top-k",        0, OPT_INT, "K", "draw from the K likeliest", 0,      \
         MODEL_VOCAB_MAX},                                                     \
    [GEN_MIN_P] = {"min-p",                                                    \
                   0,                                                          \
                   OPT_NUM,                                                    \
                   "P",                                                        \
                   "draw from those at least P of the likeliest",              \
                   0,                                                          \
                   1},                                                         \
    [GEN_REPEAT] = {"repeat-penalty",       0,    OPT_NUM, "R",                \
                    "above 1 repeats less", 0.01, 10},                         \
    [GEN_SEED] = {"seed",                                                      \
                  's',                                                         \
                  OPT_INT,                                                     \
                  "N",                                                         \
                  "the same seed gives the same answer",                       \
                  0,                                                           \
                  9007199254740991},                                           \
    [GEN_STOP] =                                                               \
        {"stop", 0, OPT_LIST, "TEXT", "end before this text; may be repeated", \
         0,      0},                                                           \
    [GEN_STATS] = {                                                            \
        "stats", 0, OPT_FLAG, NULL, "tell tokens and speed on stderr", 0, 0}

struct gen_stats {
    double first_s, total_s; /* to the first text, to the end */
    double prompt_tokens, tokens;
    char finish[24]; /* "stop", "length", ... */
};

/* A request with the options of `a`: {"model", options ...}; without a model
 * when that is NULL. */
struct json *gen_request(const char *model, const struct args *a);
/* POST body, which it frees, to path as a stream. The text is printed on stdout
 * as it arrives, and appended to *answer (may be NULL). Errors: as ask(). */
CHECKED int gen_stream(struct client *c, const char *path, struct json *body,
                       struct buf *answer, struct gen_stats *st, struct err *e);
void gen_print_stats(const struct client *c, const struct gen_stats *st);
/* After gen_stream returned rc: print the line's end, then the error or, with
 * --stats, the statistics. Returns the exit code. */
int gen_end(const struct client *c, const struct args *a, int rc,
            const struct gen_stats *st, const struct err *e);
/* All of standard input, or the positional arguments from `first` on joined by
 * spaces; "-" is standard input. Errors: TOO_BIG, INVALID (a NUL byte), IO. */
CHECKED int gen_prompt(const struct args *a, int first, struct buf *ret,
                       struct err *e);
