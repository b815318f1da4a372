/* random_program.h - programs made up from a seed, run compiled and by the
 * interpreter.
 *
 * A program is some rounds of operations on a pool of values ([1, C, T, 1] and
 * [1, heads, T, dim]): products in every form of weights, norms and rotations
 * in every spelling, elementwise operations with constants of any broadcast,
 * pieces, joints and turns, attention over masked writes, what looks at shapes,
 * many operands at once; now and then one that mixes rows or depends on how
 * many there are. It is run over several steps, in random chunks, and when it
 * compiled to rows also with three sequences mixed in one call. */
#pragma once

#include "base/err.h"

struct random_result {
    bool rows;      /* it compiled to rows */
    bool mixes;     /* an operation was put in that mixes rows */
    int ops, plain; /* of what compiled to rows: all, and plain steps */
    int attends, norms, ropes, linears;
    unsigned called_off; /* runs */
    bool left_out; /* not all passes were run; then the counts are 0 */
    bool shaky; /* they differ, as the interpreter does from itself: random_run
                   is true */
    double worst;  /* the largest error, of the row's largest number */
    double bound;
    char why[640]; /* of a failure */
};

/* threads: of the compiled side. False: they differ, or one side fails. */
bool random_run(uint64_t seed, unsigned threads, struct random_result *ret);
