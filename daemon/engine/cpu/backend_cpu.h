/* backend_cpu.h - the two CPU backends, and what only they have: kernels to
 * choose from, rounding, passes that can be looked at one by one. */
#pragma once

#include "engine/backend.h"

struct cpu_conf {
    bool round_fp16; /* round each operation's result to fp16 */
    const char *isa; /* instruction set of the kernels ("scalar", "avx2", ...);
                      * NULL: the best this machine has */
    /* The last pass to run (cpu_pass); NULL: all passes. The operations that
     * later passes would replace then run as they are. */
    const char *after;
    /* Any T that the arithmetic takes: the declared range is Core ML's. */
    bool any_width;
    /* Called with the result of each operation that has a name and floats, of a
     * program that runs op by op; may be NULL. v: as the result is shaped. */
    void (*tap)(void *ctx, const char *op, const float *v, size_t n);
    void *tap_ctx;
    /* Of the interpreter: of a mixture of experts only what rows have chosen is
     * computed, and experts whose values could leave the range; bits are those
     * of op by op. `tap` sees their sum alone. */
    bool chosen_experts;
    /* A plan is freed behind its prediction, the results are copied: for a text
     * that is read once by many programs, whose values would stay otherwise. */
    bool once;
    bool whole; /* never as rows: other functions of the package cannot, and
                 * their bits would be others */
};

extern const struct backend backend_interpreter; /* op by op */
extern const struct backend backend_cpu; /* the same kernels and fast paths */

/* The i-th instruction set that there are kernels for on this machine, best
 * first; NULL after the last. */
const char *cpu_isa(size_t i);
/* The i-th pass over a program that runs as rows; NULL after the last. */
const char *cpu_pass(size_t i);
/* The compiled program of a model of one of these backends, as text. */
void cpu_dump(const struct backend_model *m, struct buf *out);
