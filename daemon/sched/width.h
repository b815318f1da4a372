/* width.h - how many drafts a step should verify.
 *
 * A draft is accepted only when all drafts before it were. When each is right
 * with odds p, the k-th gives p^k tokens on average. The number of drafts is
 * the one with the most tokens a microsecond, by the measured time of steps
 * with so many rows (cost.h).
 */
#pragma once

#include "proto/limits.h"
#include "sched/cost.h"

/* How a draft was found: the longer the match, the likelier it is right. */
enum width_kind {
    WIDTH_SHORT,    /* a match of fewer than 4 tokens */
    WIDTH_MIDDLE,   /* 4..7 */
    WIDTH_LONG,     /* 8..15 */
    WIDTH_LONGER,   /* 16 and more */
    WIDTH_PREDICTED, /* the request's own prediction, right until now */
    WIDTH_RESUMED,  /* the source just differed, and may be right again */
    WIDTH_SHARED,   /* a match of fewer than 8 tokens in another text */
    WIDTH_SHARED_LONG, /* of 8 and more */
    WIDTH_FORCED,      /* a grammar allows no other text */
    WIDTH_KINDS
};

#define WIDTH_OWN    24.0  /* drafts that one stream's odds average over */
#define WIDTH_ALL    256.0 /* and the odds of all streams together */
#define WIDTH_PRIOR  0.6   /* odds before the first draft */
#define WIDTH_TRUST  3.0   /* weight of all streams' odds, in own drafts */
#define WIDTH_GAIN   1.02  /* drafts must give this factor of tokens a second */
#define WIDTH_SLOWER 1.5   /* factor by which drafts may slow a `shared` step */
#define WIDTH_PROBE  16u   /* steps without a draft until one is tried, */
#define WIDTH_PROBES 256u  /* doubling up to this while none is accepted */
#define WIDTH_TRIED  2u    /* drafts of a trial */

/* Accepted and refused drafts; older ones count less. */
struct odds {
    double hit[WIDTH_KINDS], miss[WIDTH_KINDS];
};

enum width_kind width_kind(uint32_t match);
/* `accepted` of `drafted` were right. keep: WIDTH_OWN or WIDTH_ALL. */
void odds_note(struct odds *o, enum width_kind kind, uint32_t drafted,
               uint32_t accepted, double keep);
double odds_of(const struct odds *own, const struct odds *all,
               enum width_kind kind);

/* A stream that could verify `max` drafts, each right with odds p. */
struct width {
    double p;
    uint32_t max;
    uint32_t n; /* result: how many it should verify */
};

/* Choose n for each of w, at most `room` together. `rows` is the number of
 * sampled rows that the step has without drafts. Before anything was measured,
 * a row is taken to cost little. shared: other streams are in the step, for
 * which drafts only cost time. */
void width_choose(struct width *w, size_t n, uint32_t rows, uint32_t room,
                  bool shared, const struct cost *c);
