/* bench.h - how fast a model answers, as its clients see it: `anectl bench`.
 *
 * A round is two requests, each of N prompts that no one asked before: the
 * first answers all of them at once (cold), the second asks the same again and
 * stops after a token (warm). Everything is measured here, between the request
 * and its events; the daemon's own times are not used.
 */
#pragma once

#include "client/client.h"
#include "proto/json.h"
#include "proto/limits.h"

/* What a round has measured. */
enum {
    BENCH_PREFILL, /* tokens a second of all prompts, to the last's first text
                    */
    BENCH_DECODE,  /* tokens a second of one stream, after its first */
    BENCH_ALL,     /* of all streams together */
    BENCH_COLD,    /* milliseconds to the first text of a stream */
    BENCH_WARM,    /* the same, of a prompt that is warm */
    BENCH_FIGURES
};

struct bench {
    struct client *c;
    const char *model; /* borrowed */
    uint32_t prompt, tokens, streams, rounds;
    uint64_t salt;    /* of the next prompt's words */
    struct buf words; /* token ids (int32_t) that prompts are made of */
    double load_s;    /* until the model was there */
    double n_cached;  /* of the prompts' tokens in the warm requests */
    double *of[BENCH_FIGURES]; /* owned; `rounds` each */
    struct bar bar;
};

/* Look at the model and load it; values of 0 are set to what suits it. Errors:
 * as ask(), INVALID (its context is too short for them). */
CHECKED int bench_open(struct bench *b, struct err *e);
void bench_close(struct bench *b);
/* Measure all rounds. Errors: as ask(), HTTP. */
CHECKED int bench_run(struct bench *b, struct err *e);
/* Of the n values, which are sorted by it. */
double bench_median(double *v, size_t n);
