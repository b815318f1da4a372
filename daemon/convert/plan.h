/* plan.h - divides layers and vocabulary rows among programs.
 *
 * The limits come from a profile (conf/ane-profiles.json, compiled in). Within
 * them the plan has as few programs as possible, of sizes as equal as whole
 * layers allow. The time of a step is bytes / bandwidth + programs * boundary
 * (the profile has both figures, for people to read), so the fewest programs
 * are the fastest. Pure.
 */
#pragma once

#include "base/err.h"
#include "proto/limits.h"

struct plan_profile {
    char name[32];
    uint64_t program_bytes;  /* weights of one program */
    uint32_t states;         /* state tensors of one program */
    uint32_t head_rows;      /* vocabulary rows of one head */
    uint32_t axis;           /* cap of a spatial axis: the context */
};

struct plan_range {
    uint32_t first, last; /* [first, last) */
};

struct plan {
    uint32_t n_shards;
    struct plan_range shards[SHARDS_MAX]; /* layers */
    uint32_t n_heads;
    struct plan_range heads[SHARDS_MAX]; /* vocabulary rows */
};

/* NULL is "law". Errors: INVALID naming the known ones. */
CHECKED int plan_profile(const char *name, struct plan_profile *ret,
                         struct err *e);

struct plan_input {
    uint32_t n_layers, vocab, context;
    uint64_t layer_bytes; /* weights of one layer as stored */
    uint64_t row_bytes;   /* one row of the head as stored */
    bool states;          /* kv = state: two state tensors a layer */
};

/* Errors: CONVERT (a layer, the context or the vocabulary fits no plan). */
CHECKED int plan_make(const struct plan_profile *p, const struct plan_input *in,
                      struct plan *ret, struct err *e);
