/* plan.h - everything one set of input shapes needs. Made by plan_run when
 * these shapes are seen first, then only run: no allocation, no shape work. */
#pragma once

#include "engine/cpu/cpu.h"

struct plan {
    struct backend_model *m;
    struct arena arena;
    bool failed;  /* memory ran out in step_alloc */
    bool dynamic; /* shapes depend on data: made anew for every run */
    int64_t *key; /* dims of all inputs, one after the other */
    struct val *v;
    int n_steps;
    struct step *steps;
    char *buffer; /* what intermediate values live in, reused by liveness */
    size_t scratch;

    /* Rows of a write mask that are not zero, found once a run (op_state.c) */
    const struct val *touched_by;
    uint64_t touched_serial;
    uint32_t *touched;
    size_t n_touched, touched_cap;
};

/* Zeroed memory that lives as long as p; NULL, and p->failed, when memory is
 * out. */
void *plan_alloc(struct plan *p, size_t n);
