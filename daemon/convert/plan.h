/* plan.h - divides layers and vocabulary rows among programs.
 *
 *   conf/ane-profiles.json --plan_profile--> what a chip takes and how fast
 *   struct decoder --plan_input.c--> bytes, states, channels of each layer
 *   both --plan_make--> which layers, which rows in which program
 *   all three --plan_predict, plan_bounds--> time of a step, and why not less
 *
 * A figure that nobody has published is not known: it limits nothing, and a
 * prediction that needs it is not made. Pure.
 */
#pragma once

#include "base/err.h"
#include "proto/json.h"
#include "proto/limits.h"

/* --- profiles (plan_profile.c) --- */

/* A figure, or the least and the most that reports give. */
struct plan_span {
    bool known;
    double least, most; /* equal when there is one figure */
};

/* What each member means stands in conf/ane-profiles.json, "figures". A limit
 * that is not known is the largest number. */
struct plan_profile {
    char name[32];
    bool chip; /* false: cpu, which no Neural Engine has to keep to */
    /* of one program */
    uint64_t program_bytes;
    uint32_t states, head_rows, channels, axis;
    /* of all together */
    uint32_t programs;
    struct plan_span resident_bytes;
    /* for predictions */
    uint32_t fold_bits; /* 0: none */
    struct plan_span gbytes_per_s, efficiency, boundary_ms, program_ms, kv_ms,
        rows_factor;
    uint32_t rows; /* 0: not known */
};

#define PLAN_PROFILES_MAX 32u

/* All of them, from the one that fits every chip to the newest; then cpu.
 * Errors:
 * INVALID (conf/ane-profiles.json is wrong; a figure needs a source). */
CHECKED int plan_profiles(struct plan_profile ret[PLAN_PROFILES_MAX], size_t *n,
                          struct err *e);
/* NULL is "law". Errors: INVALID naming the known ones. */
CHECKED int plan_profile(const char *name, struct plan_profile *ret,
                         struct err *e);
/* Its figures with their sources; a new root, the profile's name must be
 * known. */
struct json *plan_profile_json(const char *name);

/* --- what is to be divided (plan_input.c) --- */

struct plan_range {
    uint32_t first, last; /* [first, last) */
};

struct plan_layer {
    uint64_t elements;    /* of its matrices */
    uint64_t bytes;       /* weights as stored */
    uint64_t state_bytes; /* of one sequence */
    uint32_t states;      /* state tensors */
    uint32_t channels;    /* of its widest convolution */
    uint32_t kv_from;     /* layer whose states it reads; itself */
    uint64_t expert_bytes; /* of `bytes`: its experts' matrices */
    uint32_t experts, top; /* of them a token takes `top`; 0: none */
    uint64_t one_bytes;    /* an expert as a function of its own */
    uint64_t behind_bytes; /* of `bytes`: what stands behind the experts, which the
                              sparse form has in the next program */
};

#define PLAN_WIDTHS_MAX 16u

struct plan_input {
    uint32_t n_layers;
    struct plan_layer *layers; /* owned: plan_input_fini */
    uint32_t vocab, context;
    /* Why it is this long, static: "asked", "model" (its own), "default",
     * "memory"; NULL: not known. */
    const char *context_by;
    /* Layers with experts end their program at the router, and experts are
     * functions in packages of `group` (plan_grouping). */
    bool sparse;
    uint32_t group;
    uint64_t row_elements; /* of the head, and of the embeddings */
    uint64_t row_bytes;    /* a row of the head as stored */
    uint64_t head_bytes;   /* what every head has besides: the final norm */
    uint64_t file_bytes;   /* of the bundle beside its programs, about */
    unsigned bits;         /* of a weight; 16 where it never folds (palettes) */
    uint32_t n_widths;     /* numbers of rows a program is prepared for */
    uint32_t widths[PLAN_WIDTHS_MAX]; /* ascending */
    uint32_t n_head_widths; /* those that heads have: not the wide ones */
};

void plan_input_fini(struct plan_input *in); /* zeroed is fine */

/* --- the division (plan.c) --- */

struct plan {
    uint32_t n_shards;
    struct plan_range shards[SHARDS_MAX]; /* layers */
    uint32_t n_heads;
    struct plan_range heads[SHARDS_MAX]; /* vocabulary rows */
};

/* Experts of a package: `asked`, or 0 for the default that fits the profile's
 * programs. Errors: CONVERT (asked for more than a program may have), INVALID
 * (more functions than a package has). */
CHECKED int plan_grouping(const struct plan_profile *p, uint32_t asked,
                       struct plan_input *in, struct err *e);

/* The division whose step takes the least time by the profile, then the one of
 * fewest programs, then of the least bytes in copies of states, then the most
 * equal (least sum of squared bytes).
 * Errors: CONVERT, naming the limit, the profile and the layers that it
 * refuses. Bytes of all programs together refuse nothing here: see plan_fit. */
CHECKED int plan_make(const struct plan_profile *p, const struct plan_input *in,
                      struct plan *ret, struct err *e);

uint64_t plan_shard_bytes(const struct plan_input *in, struct plan_range r);
/* Of all layers, with the experts in the form that the plan has. */
uint64_t plan_layers_bytes(const struct plan_input *in);
/* Packages of experts. */
uint32_t plan_groups(const struct plan_input *in);
/* State tensors of the program, with its copies: layers that read the states of
 * a layer in an earlier program keep them a second time. */
uint32_t plan_shard_states(const struct plan_input *in, struct plan_range r);
/* Bytes of the copies, of one sequence; also where they are no states (kv =
 * host). */
uint64_t plan_shard_copies(const struct plan_input *in, struct plan_range r);
uint64_t plan_head_bytes(const struct plan_input *in, struct plan_range r);

/* Weights of all programs as the chip keeps them. States are not in the public
 * figures of what stays, and not in this. */
uint64_t plan_resident_bytes(const struct plan_profile *p,
                             const struct plan_input *in,
                             const struct plan *plan);

enum plan_fit {
    PLAN_UNKNOWN, /* the profile does not say */
    PLAN_FITS,
    PLAN_EDGE,    /* more than was seen to stay, less than where it ends */
    PLAN_TOO_BIG, /* some programs would be loaded again in each step */
};
enum plan_fit plan_fit(const struct plan_profile *p,
                       const struct plan_input *in, const struct plan *plan);

/* --- what it means (plan_time.c, plan_report.c) --- */

/* One step of `rows` rows. Not known where a figure is missing, or where not
 * all programs stay in memory. */
struct plan_time {
    uint32_t rows;
    bool known;
    double least_ms, most_ms;
};
struct plan_time plan_predict(const struct plan_profile *p,
                              const struct plan_input *in,
                              const struct plan *plan, uint32_t rows);

/* Experts. The dense form has a layer's experts in one program, which the
 * Neural Engine computes all of; the CPU backend reads those that a token
 * takes. In the sparse form the host runs a function of its own for each of
 * them, behind a program that ends at the router. */
struct plan_experts {
    uint32_t layers;       /* that have experts; 0: the rest is 0 */
    uint64_t bytes, taken; /* of experts: all, and those of one token */
    uint32_t runs;         /* predictions of a step in the sparse form */
    uint64_t functions;    /* of experts in the sparse form, by widths */
    bool loads; /* they and all other programs are no more than the profile's
                   `programs`: none is loaded while it serves */
};
struct plan_experts plan_experts(const struct plan_profile *p,
                                 const struct plan_input *in,
                                 const struct plan *plan);
/* A step of one row in each form, `plan` being of the one that `in` has. Not
 * known: as plan_predict, or no plan in that form. */
struct plan_forms {
    struct plan_time dense, sparse;
    /* Predictions of layers and experts in a step; 0: no plan in that form. */
    uint32_t dense_runs, sparse_runs;
};
struct plan_forms plan_forms(const struct plan_profile *p,
                             const struct plan_input *in,
                             const struct plan *plan);
/* Whether the figures say that the sparse form is faster: at worst it takes less
 * than the dense one does at best, and nothing is loaded while it serves. */
bool plan_wants_sparse(const struct plan_profile *p,
                       const struct plan_input *in, const struct plan *plan);

/* The limits without which there would be fewer programs, by name: of the
 * layers, and of the heads. "": one program. "A and B": only without both.
 * PLAN_BY_EXPERTS: no limit, but the sparse form. */
#define PLAN_BOUND_MAX  64
#define PLAN_BY_EXPERTS "experts"
struct plan_bounds {
    char layers[PLAN_BOUND_MAX], heads[PLAN_BOUND_MAX];
};
struct plan_bounds plan_bounds(const struct plan_profile *p,
                               const struct plan_input *in,
                               const struct plan *plan);

/* The first later profile that would make another division, or a step of
 * another time. false: none. */
CHECKED int plan_next(const struct plan_profile *p, const struct plan_input *in,
                      const struct plan *plan, bool *found,
                      struct plan_profile *ret, struct plan *ret_plan,
                      struct err *e);

/* Sentences for a person about what limits the plan and what is not known.
 * b is the caller's; lines end with a newline. Errors: as plan_next. */
CHECKED int plan_explain(const struct plan_profile *p,
                         const struct plan_input *in, const struct plan *plan,
                         struct buf *b, struct err *e);
/* Everything as an object, "aned.plan"; a new root. Errors: as plan_next. */
CHECKED int plan_json(const struct plan_profile *p, const struct plan_input *in,
                      const struct plan *plan, struct json **ret,
                      struct err *e);
