/* width.h - how many drafts are worth their rows.
 *
 * A draft of a step is accepted only when all before it were; with odds p for
 * each, the k-th brings p^k tokens. A width is worth it when the step brings
 * more tokens a microsecond with it than without, by what steps of so many rows
 * were measured to cost.
 */
#pragma once

#include "proto/limits.h"
#include "sched/cost.h"

/* What a draft was found by: the better it fits, the likelier it is right. */
enum width_kind {
    WIDTH_SHORT,    /* a match of fewer than 4 tokens */
    WIDTH_MIDDLE,   /* 4..7 */
    WIDTH_LONG,     /* 8..15 */
    WIDTH_LONGER,   /* 16 and more */
    WIDTH_PREDICTED, /* the request's own prediction, so far right */
    WIDTH_RESUMED,  /* what was followed differed just now, and may go on */
    WIDTH_SHARED,   /* a match of fewer than 8 tokens in another's text */
    WIDTH_SHARED_LONG,
    WIDTH_KINDS
};

#define WIDTH_OWN    24.0  /* drafts that one stream's odds follow */
#define WIDTH_ALL    256.0 /* drafts that everybody's follow */
#define WIDTH_PRIOR  0.6   /* odds before anything was seen */
#define WIDTH_TRUST  3.0   /* drafts of everybody that weigh as one's own */
#define WIDTH_GAIN   1.02  /* of tokens a second, at least */
#define WIDTH_SLOWER 1.5   /* a step at most, by the drafts of other streams */
#define WIDTH_PROBE  16u   /* steps without a draft until one is tried, */
#define WIDTH_PROBES 256u  /* doubling up to this while none is accepted */
#define WIDTH_TRIED  2u    /* drafts of a trial */

/* Accepted and refused drafts, the older the less. */
struct odds {
    double hit[WIDTH_KINDS], miss[WIDTH_KINDS];
};

enum width_kind width_kind(uint32_t match);
/* `accepted` of `drafted` were right. keep: WIDTH_OWN or WIDTH_ALL. */
void odds_note(struct odds *o, enum width_kind kind, uint32_t drafted,
               uint32_t accepted, double keep);
double odds_of(const struct odds *own, const struct odds *all,
               enum width_kind kind);

/* A stream that could verify `max` drafts. */
struct width {
    double p;
    uint32_t max;
    uint32_t n; /* out */
};

/* Choose n for each of w, at most `room` together, in a step with `rows` others
 * whose logits are looked at (their own one included). Nothing measured: as if
 * a row cost little. shared: others are in the step and have nothing of it. */
void width_choose(struct width *w, size_t n, uint32_t rows, uint32_t room,
                  bool shared, const struct cost *c);
