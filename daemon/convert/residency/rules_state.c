/* rules_state.c - conditions on states and how they are written. */
#include <string.h>

#include "convert/residency/rules.h"

#define WIDTH     32
#define STEPS_MAX 64u /* operations followed back from a position */
#define VIEW_OPS  "reshape transpose squeeze expand_dims"

/* What made the operand; NULL: an input or a constant. */
static const struct mil_op *maker(const struct mil_op *op, const char *arg)
{
    const struct mil_value *v = mil_op_value(op, arg);
    return v != NULL ? v->def : NULL;
}

/* The state that the operation reads, or changes what was read of. */
static const struct mil_value *state_of(const struct mil_op *op)
{
    if (look_is(op, "slice_update")) {
        op = maker(op, "x");
    }
    return look_is(op, "read_state") || look_is(op, "write_state")
               ? mil_op_value(op, "input")
               : NULL;
}

bool holds_state_type(struct look *k)
{
    const struct mil_value *s = state_of(k->op);
    if (s == NULL || s->type.dtype == MIL_FP16) {
        return false;
    }
    look_detail(k, "%.40s is %s", s->name, mil_dtype_name(s->type.dtype));
    return true;
}

bool holds_state_width(struct look *k)
{
    const struct mil_value *s = state_of(k->op);
    if (s == NULL || s->type.rank < 1) {
        return false;
    }
    int64_t w = s->type.dims[s->type.rank - 1];
    if (w == MIL_UNKNOWN || w % WIDTH == 0) {
        return false;
    }
    look_detail(k, "%.40s is %lld wide", s->name, (long long)w);
    return true;
}

/* What is written was viewed otherwise after it was changed, or before. */
bool holds_state_view(struct look *k)
{
    const struct mil_op *from =
        maker(k->op, look_is(k->op, "write_state") ? "data" : "x");
    if (from == NULL || !rule_word(VIEW_OPS, from->type)) {
        return false;
    }
    if (look_is(k->op,
                "slice_update")) { /* of a state, else it is another rule's */
        const struct mil_op *read = maker(from, "x");
        if (!look_is(read, "read_state")) {
            return false;
        }
    }
    look_detail(k, "a %.20s before it", from->type);
    return true;
}

bool holds_state_reread(struct look *k)
{
    const struct mil_value *s = mil_op_value(k->op, "input");
    const struct mil_value *data = mil_op_value(k->op, "data");
    if (s == NULL || data == NULL || (k->uses[data->id] & USE_OTHER) == 0 ||
        k->reads[s->id] > k->at + 1) {
        return false;
    }
    look_detail(k, "%.40s", s->name);
    return true;
}

bool holds_alone(struct look *k)
{
    const struct mil_op *read = maker(k->op, "x");
    bool written = k->op->n_outputs > 0 &&
                   (k->uses[k->op->outputs[0]->id] & USE_STATE) != 0;
    if (look_is(read, "read_state") && written) {
        return false;
    }
    look_detail(k, look_is(read, "read_state") ? "it is not written"
                                               : "x is not of a state");
    return true;
}

/* --- where a position comes from --- */

struct origin {
    bool shape;  /* from the shape of something */
    bool tensor; /* from an input of several numbers, or from a computation
                  * that is too long to follow */
    bool scalar; /* from an input of one number */
};

static void origin_of_value(const struct mil_value *v, struct origin *o)
{
    uint64_t n = 0;
    if (mil_type_count(&v->type, &n) && n == 1) {
        o->scalar = true;
    } else {
        o->tensor = true;
    }
}

/* Follows the operand back to inputs, each operation once or more, STEPS_MAX in
 * all. */
static struct origin origin(const struct mil_op *op, const char *arg)
{
    struct origin o = {0};
    const struct mil_op *stack[STEPS_MAX];
    const struct mil_value *first = mil_op_value(op, arg);
    size_t n = 0;
    size_t steps = 0;
    if (first == NULL || mil_value_const(first) != NULL) {
        return o;
    }
    if (first->def == NULL) {
        origin_of_value(first, &o);
        return o;
    }
    stack[n++] = first->def;
    while (n > 0 && steps++ < STEPS_MAX) {
        const struct mil_op *at = stack[--n];
        o.shape = o.shape || look_is(at, "shape");
        for (size_t i = 0; !look_is(at, "shape") && i < at->n_args; i++) {
            for (size_t j = 0; j < at->args[i].n; j++) {
                const struct mil_value *v = at->args[i].b[j].value;
                if (v == NULL) {
                    continue;
                }
                if (v->def == NULL) {
                    origin_of_value(v, &o);
                } else if (n < STEPS_MAX && !look_is_const(v->def)) {
                    stack[n++] = v->def;
                } else {
                    o.tensor = o.tensor || !look_is_const(v->def);
                }
            }
        }
    }
    o.tensor = o.tensor || n > 0;
    return o;
}

static struct origin bounds(const struct mil_op *op)
{
    struct origin a = origin(op, "begin");
    struct origin b = origin(op, "end");
    return (struct origin){.shape = a.shape || b.shape,
                           .tensor = a.tensor || b.tensor,
                           .scalar = a.scalar || b.scalar};
}

bool holds_begin_ranged(struct look *k)
{
    return bounds(k->op).shape;
}

bool holds_begin_tensor(struct look *k)
{
    return bounds(k->op).tensor;
}

bool holds_begin_scalar(struct look *k)
{
    return bounds(k->op).scalar;
}
