/* validate.c - finds what Core ML's loader would refuse: operations and their
 * types, states, names. The description: validate_description.c.
 *
 * The reader has already checked the form (facts 3): versions, SSA, sizes,
 * blobs. The meaning is checked here (facts 3.9, 5, 5.6, 11.2).
 */
#include <string.h>

#include "mil/sig.h"

/* --- operations --- */

static bool is_compressed(const struct mil_op *op)
{
    return strcmp(op->type, "const") == 0 ||
           strncmp(op->type, "constexpr_", 10) == 0;
}

static int check_output(const struct mil_op *op, size_t k,
                        const struct mil_type *want, struct err *e)
{
    const struct mil_value *v = op->outputs[k];
    if (!mil_type_agrees(&v->type, want)) {
        char have_text[160];
        char want_text[160];
        mil_type_print(&v->type, have_text, sizeof(have_text));
        mil_type_print(want, want_text, sizeof(want_text));
        return err_set(e, ERR_MIL_SHAPE,
                       "output %s: declared %s, inference gives %s", v->name,
                       have_text, want_text);
    }
    if (v->type.rank > MIL_RUNTIME_RANK_MAX && !is_compressed(op)) {
        return err_set(e, ERR_MIL_SHAPE, "output %s: rank %d is above %d",
                       v->name, v->type.rank, MIL_RUNTIME_RANK_MAX);
    }
    return 0;
}

static int check_types(const struct mil_op *op, int spec, struct err *e)
{
    size_t n = 0;
    struct mil_type *types = calloc(op->n_outputs + 1, sizeof(*types));
    if (types == NULL) {
        return err_set(e, ERR_NOMEM, "%zu outputs", op->n_outputs);
    }
    int rc = 0;
    CHECK(mil_infer(op, spec, types, op->n_outputs, &n, e));
    if (n != op->n_outputs) {
        rc = err_set(e, ERR_MIL_INVALID, "outputs: declares %zu, has %zu",
                     op->n_outputs, n);
        goto out;
    }
    for (size_t k = 0; k < n; k++) {
        CHECK(check_output(op, k, &types[k], e));
    }
out:
    free(types);
    return rc;
}

static const struct mil_const *name_attr(const struct mil_op *op)
{
    for (size_t k = 0; k < op->n_attrs; k++) {
        if (strcmp(op->attrs[k].name, "name") == 0) {
            return op->attrs[k].val;
        }
    }
    return NULL;
}

static int check_op(const struct mil_op *op, int spec, struct err *e)
{
    const struct mil_const *name = name_attr(op);
    if (name != NULL && mil_const_str(name) == NULL) {
        return err_set(e, ERR_MIL_INVALID, "attribute name: is no string");
    }
    for (size_t k = 0; k < op->n_outputs; k++) {
        const char *s = op->outputs[k]->name;
        if (!mil_name_ok(s) || mil_name_reserved(s)) {
            return err_set(e, ERR_MIL_INVALID, "output %s: a reserved word", s);
        }
    }
    return check_types(op, spec, e);
}

/* --- states --- */

/* Several states load only when each write is a slice_update, with all its
 * operands, of that state's own read (facts 11.2). */
static int check_update(const struct mil_op *write, struct err *e)
{
    static const char *const given[] = {"stride", "begin_mask", "end_mask",
                                        "squeeze_mask"};
    const struct mil_value *state = mil_op_value(write, "input");
    const struct mil_value *data = mil_op_value(write, "data");
    const struct mil_op *u = data != NULL ? data->def : NULL;
    if (u == NULL || strcmp(u->type, "slice_update") != 0) {
        return err_set(e, ERR_MIL_INVALID,
                       "operand data: must be a slice_update of %s's read",
                       state->name);
    }
    const struct mil_value *x = mil_op_value(u, "x");
    const struct mil_op *read = x != NULL ? x->def : NULL;
    if (read == NULL || strcmp(read->type, "read_state") != 0 ||
        mil_op_value(read, "input") != state) {
        return err_set(e, ERR_MIL_INVALID,
                       "operand data: %s does not update a read of %s",
                       data->name, state->name);
    }
    for (size_t k = 0; k < countof(given); k++) {
        if (mil_op_arg(u, given[k]) == NULL) {
            return err_set(e, ERR_MIL_INVALID,
                           "operand data: %s has no operand %s", data->name,
                           given[k]);
        }
    }
    return 0;
}

/* The loader crashes on an output that is the very value written. */
static int check_not_output(const struct mil_block *b,
                            const struct mil_op *write, struct err *e)
{
    const struct mil_value *data = mil_op_value(write, "data");
    for (size_t k = 0; k < b->n_outputs; k++) {
        if (data != NULL && b->outputs[k] == data) {
            return err_set(e, ERR_MIL_INVALID,
                           "operand data: %s is an output of the function too",
                           data->name);
        }
    }
    return 0;
}

static int prefix_op(struct err *e, int rc, const struct mil_op *op)
{
    const struct mil_const *name = name_attr(op);
    const char *s =
        op->n_outputs > 0 ? op->outputs[0]->name : mil_const_str(name);
    return err_prefix(e, rc, "op %s (%s)", s != NULL ? s : "?", op->type);
}

/* A read or a write of a state; used by value id. */
static int check_state_op(const struct mil_function *f, const struct mil_op *op,
                          size_t states, bool *used, struct err *e)
{
    bool write = strcmp(op->type, "write_state") == 0;
    const struct mil_value *s = write || strcmp(op->type, "read_state") == 0
                                    ? mil_op_value(op, "input")
                                    : NULL;
    if (s == NULL) {
        return 0;
    }
    used[s->id] = true;
    if (!write) {
        return 0;
    }
    RETERR(check_not_output(f->body, op, e));
    return states > 1 ? check_update(op, e) : 0;
}

/* The reads and writes of a block and of those inside it. */
static int check_state_ops(const struct mil_function *f,
                           const struct mil_block *b, size_t states, bool *used,
                           struct err *e)
{
    for (size_t i = 0; i < b->n_ops; i++) {
        const struct mil_op *op = b->ops[i];
        int rc = check_state_op(f, op, states, used, e);
        if (rc < 0) {
            return prefix_op(e, rc, op);
        }
        for (size_t k = 0; k < op->n_blocks; k++) {
            RETERR(check_state_ops(f, op->blocks[k], states, used, e));
        }
    }
    return 0;
}

static int check_states(const struct mil_function *f, struct err *e)
{
    size_t states = 0;
    for (size_t i = 0; i < f->n_inputs; i++) {
        states += f->inputs[i]->type.state;
    }
    if (states == 0) {
        return 0;
    }
    bool *used = calloc(f->n_values, sizeof(*used)); /* by value id */
    if (used == NULL) {
        return err_set(e, ERR_NOMEM, "%u values", (unsigned)f->n_values);
    }
    int rc = 0;
    CHECK(check_state_ops(f, f->body, states, used, e));
    for (size_t i = 0; i < f->n_inputs; i++) {
        if (f->inputs[i]->type.state && !used[f->inputs[i]->id]) {
            rc = err_set(e, ERR_MIL_INVALID, "state %s is never used",
                         f->inputs[i]->name);
            goto out;
        }
    }
out:
    free(used);
    return rc;
}

/* --- functions --- */

static int check_ops(const struct mil_block *b, int spec, struct err *e);

/* Check inner blocks before the operation that has them: its types depend on
 * theirs. */
static int check_nested(const struct mil_op *op, int spec, struct err *e)
{
    for (size_t k = 0; k < op->n_blocks; k++) {
        RETERR(check_ops(op->blocks[k], spec, e));
    }
    return check_op(op, spec, e);
}

static int check_ops(const struct mil_block *b, int spec, struct err *e)
{
    for (size_t i = 0; i < b->n_inputs; i++) {
        const char *s = b->inputs[i]->name;
        if (!mil_name_ok(s) || mil_name_reserved(s)) {
            return err_set(e, ERR_MIL_INVALID,
                           "block input %s: a reserved word", s);
        }
    }
    for (size_t i = 0; i < b->n_ops; i++) {
        int rc = check_nested(b->ops[i], spec, e);
        if (rc < 0) {
            return prefix_op(e, rc, b->ops[i]);
        }
    }
    return 0;
}

static int check_function(const struct mil_program *p,
                          const struct mil_function *f, struct err *e)
{
    if (strcmp(f->opset, mil_opset(p->spec_version)) != 0) {
        return err_set(e, ERR_MIL_INVALID,
                       "opset %s, specification version %d is %s", f->opset,
                       p->spec_version, mil_opset(p->spec_version));
    }
    if (f->body->n_inputs > 0) {
        return err_set(e, ERR_MIL_INVALID, "its block has inputs");
    }
    RETERR(validate_description(p, f, e));
    RETERR(check_ops(f->body, p->spec_version, e));
    return check_states(f, e);
}

int mil_validate(const struct mil_program *p, struct err *e)
{
    if (mil_opset(p->spec_version) == NULL || p->n_functions == 0) {
        return err_set(e, ERR_MIL_INVALID,
                       "specification version %d with %zu functions",
                       p->spec_version, p->n_functions);
    }
    if (p->multi && p->spec_version < 9) {
        return err_set(e, ERR_MIL_INVALID,
                       "description: functions need specification version 9");
    }
    for (size_t i = 0; i < p->n_functions; i++) {
        int rc = check_function(p, p->functions[i], e);
        if (rc < 0) {
            return err_prefix(e, rc, "function %s", p->functions[i]->name);
        }
    }
    return 0;
}
