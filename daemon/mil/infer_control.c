/* infer_control.c - cond and while_loop. The reader has checked SSA in their
 * blocks, and the blocks' operations are validated like those of the body. Here
 * the types of values that enter and leave a block are checked. */
#include <string.h>

#include "mil/sig.h"

/* Same dtype and rank; dims that differ become unknown where `loose`. */
static bool meet(const struct mil_type *a, const struct mil_type *b, bool loose,
                 struct mil_type *ret)
{
    struct mil_type t = *a;
    if (a->dtype != b->dtype || a->rank != b->rank || a->state || b->state) {
        return false;
    }
    for (int k = 0; k < a->rank; k++) {
        if (a->dims[k] != b->dims[k]) {
            if (!loose && a->dims[k] >= 0 && b->dims[k] >= 0) {
                return false;
            }
            t.dims[k] = MIL_UNKNOWN;
        }
    }
    *ret = t;
    return true;
}

static int fail_types(struct infer *i, const char *what, size_t k,
                      const struct mil_type *a, const struct mil_type *b)
{
    char at[160];
    char bt[160];
    mil_type_print(a, at, sizeof(at));
    mil_type_print(b, bt, sizeof(bt));
    return err_set(i->e, ERR_MIL_SHAPE, "%s %zu: %s and %s", what, k, at, bt);
}

/* Either block's outputs are the operation's. */
int infer_cond(struct infer *i)
{
    const struct mil_block *yes = i->op->blocks[0];
    const struct mil_block *no = i->op->blocks[1];
    if (in_type(i, "pred")->rank != 0) {
        return in_fail(i, ERR_MIL_SHAPE, "pred", "must be a scalar");
    }
    if (yes->n_inputs != 0 || no->n_inputs != 0 ||
        yes->n_outputs != no->n_outputs) {
        return err_set(i->e, ERR_MIL_INVALID,
                       "blocks with %zu and %zu inputs, %zu and %zu outputs",
                       yes->n_inputs, no->n_inputs, yes->n_outputs,
                       no->n_outputs);
    }
    for (size_t k = 0; k < yes->n_outputs; k++) {
        const struct mil_type *a = &yes->outputs[k]->type;
        const struct mil_type *b = &no->outputs[k]->type;
        struct mil_type t;
        if (!meet(a, b, false, &t)) {
            return fail_types(i, "output", k, a, b);
        }
        (void)out_type(i, t.dtype, t.rank, t.dims);
    }
    return 0;
}

/* A loop variable goes into both blocks and comes out of the second one. A
 * dimension may change from round to round; then it is unknown outside. */
int infer_while(struct infer *i)
{
    const struct mil_block *test = i->op->blocks[0];
    const struct mil_block *body = i->op->blocks[1];
    size_t n = in_count(i, "loop_vars");
    if (test->n_inputs != n || body->n_inputs != n || body->n_outputs != n ||
        test->n_outputs != 1) {
        return err_set(i->e, ERR_MIL_INVALID,
                       "%zu loop_vars, blocks with %zu and %zu inputs, %zu and "
                       "%zu outputs",
                       n, test->n_inputs, body->n_inputs, test->n_outputs,
                       body->n_outputs);
    }
    const struct mil_type *go = &test->outputs[0]->type;
    if (go->dtype != MIL_BOOL || go->rank != 0) {
        return err_set(i->e, ERR_MIL_SHAPE,
                       "the first block's output is not a bool");
    }
    for (size_t k = 0; k < n; k++) {
        const struct mil_type *v = in_type_at(i, "loop_vars", k);
        const struct mil_type *const rest[] = {&test->inputs[k]->type,
                                               &body->inputs[k]->type,
                                               &body->outputs[k]->type};
        struct mil_type t = *v;
        for (size_t j = 0; j < countof(rest); j++) {
            if (!meet(&t, rest[j], true, &t)) {
                return fail_types(i, "loop variable", k, v, rest[j]);
            }
        }
        (void)out_type(i, t.dtype, t.rank, t.dims);
    }
    return 0;
}
