/* plan.h - what is prepared for one set of input shapes. plan_run makes a plan
 * when it first sees these shapes; later runs allocate nothing and work out no
 * shapes. */
#pragma once

#include "engine/cpu/cpu.h"

struct plan {
    struct backend_model *m;
    struct arena arena;
    bool failed;  /* memory ran out in step_alloc */
    bool dynamic; /* shapes depend on data: made anew for every run */
    int64_t *key; /* dims of all inputs, one after the other; in the arena */
    struct val *v;
    int n_steps;
    struct step *steps;
    char *buffer; /* of intermediate values, reused by liveness */
    size_t buffer_bytes;
    size_t scratch;

    /* Rows of a write mask that are not zero, found once a run (op_state.c) */
    const struct val *touched_by;
    uint64_t touched_serial;
    uint32_t *touched;
    size_t n_touched, touched_cap;
};

/* Zeroed memory, freed with p; NULL, and p->failed is set, when memory is out.
 */
void *plan_alloc(struct plan *p, size_t n);

/* Make p->buffer, with a place for every value that has no memory of its own.
 * Errors: NOMEM. */
CHECKED int plan_place(struct plan *p, struct err *e);

/* n elements of an input as floats. */
void plan_floats(const struct tensor *t, size_t n, float *out);

/* Run a block of cond or while_loop: its operations are planned and computed in
 * turn, in p's arena as it is now. p is dynamic. Errors: those of plan_run. */
CHECKED int plan_block(struct plan *p, const struct sub_block *b,
                       struct backend_state *st, struct err *e);

/* Write the dims of all inputs to key, plan_key_size(m) bytes. */
void plan_key(const struct backend_model *m, const struct tensor *const *in,
              int64_t *key);
size_t plan_key_size(const struct backend_model *m);

/* Make a plan of m's fused nodes, or of its plain ones. A dynamic model's plan
 * is run while it is made. Errors: CPU_UNKNOWN (shapes depend on data, and m is
 * not marked dynamic), those of plan_run. */
CHECKED int plan_new(struct backend_model *m, bool plain,
                     struct backend_state *st, const struct tensor *const *in,
                     struct plan **ret, struct err *e);

/* --- plan_cache.c --- */

/* m's plan for these shapes, kept or new. It is valid until the next plan_trim
 * after a plan_find of other shapes. Errors: those of plan_run. */
CHECKED int plan_find(struct backend_model *m, struct backend_state *st,
                      const struct tensor *const *in, struct plan **ret,
                      struct err *e);
void plan_trim(struct backend_model *m); /* to the bound, after a prediction */
void plan_drop_all(struct backend_model *m);
size_t plan_bytes(const struct plan *p); /* what it holds */

/* A plan for these shapes alone, outside the model's cache. CPU_UNKNOWN: its
 * shapes depend on data. Errors: those of plan_run. */
CHECKED int plan_for(struct backend_model *m, const struct tensor *const *in,
                     struct plan **ret, struct err *e);
/* Run step i of p on whatever its values point to (row_run.c), without states.
 */
CHECKED int plan_step(struct plan *p, int i, struct err *e);
