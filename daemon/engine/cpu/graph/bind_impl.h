/* bind_impl.h - shared by bind.c and bind_const.c. */
#pragma once

#include "engine/cpu/cpu.h"

struct binder {
    struct backend_model *m;
    int next; /* first free slot */
    struct raw {
        const struct mil_const *c;
        const struct mil_op *op; /* a constexpr operation */
        bool dense;              /* some reader wants it decoded */
    } * raw;
};

/* bind_const.c: every constant that b->raw knows of. Errors: MIL_INVALID,
 * NOMEM. */
CHECKED int bind_consts(struct binder *b, struct err *e);
