/* row_check.c - does a program treat the positions along T one by one?
 *
 * In a program with a ranged T every value has at most one unknown dimension,
 * and that is T's axis. Running T = 1 for each row is the same program when no
 * operation moves anything along that axis. An operation passes when each of
 * its results has exactly one unknown dimension (so T was neither summed away
 * nor joined with itself), T's axis has one element in the plan of one row, and
 * its rule below holds. What is not in the table does not pass: such a program
 * runs as a whole, which is never wrong.
 *
 * A program with fixed shapes is a row of its own: everything passes. */
#include <string.h>

#include "engine/cpu/rows/row_make.h"

static int t_axis(const struct mil_type *t)
{
    int at = -1;
    for (int i = 0; t != NULL && i < t->rank; i++) {
        if (t->dims[i] == MIL_UNKNOWN) {
            at = at < 0 ? i : -2;
        }
    }
    return at;
}

int row_t_axis(const struct backend_model *m, int slot)
{
    return t_axis(m->slot_type[slot]);
}

/* Everything a rule may look at. */
struct look {
    const struct backend_model *m;
    const struct node *n;
    const struct mil_type *x, *o; /* types of operand 0 and result 0 */
    int t;                        /* T's axis in x; -1 none */
};

static const struct val *constant(const struct look *k, int arg)
{
    int slot = k->n->in[arg];
    const struct val *v = slot >= 0 ? &k->m->consts[slot] : NULL;
    return v != NULL && v->kind != VAL_NONE ? v : NULL;
}

static bool ok_always(const struct look *k)
{
    (void)k;
    return true;
}

/* Operand 1 is an axis, or a list of them, without T. */
static bool ok_axes(const struct look *k)
{
    const struct val *v = constant(k, 1);
    if (v == NULL || v->kind != VAL_I32) {
        return false;
    }
    for (size_t i = 0; i < v->n; i++) {
        int32_t a = v->i[i] < 0 ? v->i[i] + k->x->rank : v->i[i];
        if (a == k->t) {
            return false;
        }
    }
    return true;
}

static void around(const struct mil_type *t, int64_t *before, int64_t *after)
{
    int at = t_axis(t);
    *before = *after = 1;
    for (int i = 0; i < t->rank; i++) {
        if (i != at) {
            *(i < at ? before : after) *= t->dims[i];
        }
    }
}

/* T keeps its place between what is before and what is after it. */
static bool ok_reshape(const struct look *k)
{
    int64_t before[2];
    int64_t after[2];
    around(k->x, &before[0], &after[0]);
    around(k->o, &before[1], &after[1]);
    return before[0] == before[1] && after[0] == after[1];
}

/* A reshape that joins an axis with T after it, [g, T] -> [g T], or takes such
 * a joint axis apart: fine around attention, whose rows may be of any head. */
static bool joins_heads(const struct backend_model *m, const struct node *n)
{
    const struct mil_type *x = n->in[0] >= 0 ? m->slot_type[n->in[0]] : NULL;
    const struct mil_type *o = m->slot_type[n->out[0]];
    int64_t before[2];
    int64_t after[2];
    if (strcmp(n->def->type, "reshape") != 0 || t_axis(x) < 0 ||
        t_axis(o) < 0) {
        return false;
    }
    around(x, &before[0], &after[0]);
    around(o, &before[1], &after[1]);
    return after[0] == after[1] && before[0] > 0 && before[1] > 0 &&
           (before[0] % before[1] == 0 || before[1] % before[0] == 0);
}

/* The axis operand of concat, stack and split, wherever it stands. */
static bool axis_not_t(const struct look *k, int arg, int rank, int t)
{
    const struct val *v = constant(k, arg);
    if (v == NULL || v->kind != VAL_I32 || v->n != 1) {
        return false;
    }
    return (v->i[0] < 0 ? v->i[0] + rank : v->i[0]) != t;
}

static bool ok_join(const struct look *k)
{
    int axis = row_arg(k->n, "axis");
    for (int i = 0; i < k->n->n_list; i++) {
        int t = row_t_axis(k->m, k->n->list[i]);
        if (t != -1 && t != row_t_axis(k->m, k->n->list[0])) {
            return false;
        }
    }
    return axis >= 0 && axis_not_t(k, axis, k->o->rank, t_axis(k->o));
}

static bool ok_split(const struct look *k)
{
    int axis = row_arg(k->n, "axis");
    return axis >= 0 && axis_not_t(k, axis, k->x->rank, k->t);
}

static bool flag_at(const struct look *k, const char *name, int i)
{
    int arg = row_arg(k->n, name);
    const struct val *v = arg >= 0 ? constant(k, arg) : NULL;
    return v != NULL && v->kind == VAL_BOOL && (size_t)i < v->n && v->i[i] != 0;
}

static bool number_at(const struct look *k, const char *name, int i,
                      int32_t want, bool absent)
{
    int arg = row_arg(k->n, name);
    if (arg < 0 || k->n->in[arg] < 0) {
        return absent;
    }
    const struct val *v = constant(k, arg);
    return v != NULL && v->kind == VAL_I32 && (size_t)i < v->n &&
           v->i[i] == want;
}

/* All of T: from 0 to the end in steps of 1. */
static bool ok_slice(const struct look *k)
{
    bool from =
        number_at(k, "begin", k->t, 0, false) || flag_at(k, "begin_mask", k->t);
    return from && flag_at(k, "end_mask", k->t) &&
           !flag_at(k, "squeeze_mask", k->t) &&
           number_at(k, "stride", k->t, 1, true);
}

/* T itself may be named: only a call with T = 1 takes that. */
static bool ok_squeeze(const struct look *k)
{
    return t_axis(k->o) >= 0;
}

/* T is spatial and the kernel is 1 along it. */
static bool ok_conv(const struct look *k)
{
    const struct val *w = constant(k, 1);
    int at = k->t - 2;
    if (w == NULL || at < 0 || w->rank != k->x->rank || w->dims[k->t] != 1) {
        return false;
    }
    int pad = row_arg(k->n, "pad_type");
    const struct val *type = pad >= 0 ? constant(k, pad) : NULL;
    bool custom = type != NULL && type->kind == VAL_STR &&
                  strcmp(type->str, "custom") == 0;
    return number_at(k, "strides", at, 1, true) &&
           (!custom || (number_at(k, "pad", 2 * at, 0, true) &&
                        number_at(k, "pad", 2 * at + 1, 0, true)));
}

/* Means and variances are of the channels, axis 1. */
static bool ok_channels(const struct look *k)
{
    return k->t >= 2;
}

static bool ok_linear(const struct look *k)
{
    return k->t != k->x->rank - 1;
}

/* x[.., M, K] y[.., K, N]: K is not T on either side. */
static bool ok_matmul(const struct look *k)
{
    const struct mil_type *y = k->m->slot_type[k->n->in[1]];
    bool tx = flag_at(k, "transpose_x", 0);
    bool ty = flag_at(k, "transpose_y", 0);
    int t = t_axis(y);
    int kx = k->x->rank - (tx ? 2 : 1);
    int ky = y != NULL ? y->rank - (ty ? 1 : 2) : -1;
    return k->x->rank >= 2 && k->t != kx && (t < 0 || t != ky);
}

static const struct {
    const char *type;
    bool (*ok)(const struct look *k);
} rules[] = {
    {"softmax",           ok_axes    },
    {"layer_norm",        ok_axes    },
    {"reduce_sum",        ok_axes    },
    {"reduce_mean",       ok_axes    },
    {"reduce_max",        ok_axes    },
    {"reduce_min",        ok_axes    },
    {"reduce_sum_square", ok_axes    },
    {"reduce_l2_norm",    ok_axes    },
    {"reduce_argmax",     ok_axes    },
    {"transpose",         ok_always  },
    {"expand_dims",       ok_always  },
    {"squeeze",           ok_squeeze },
    {"identity",          ok_always  },
    {"reshape",           ok_reshape },
    {"concat",            ok_join    },
    {"stack",             ok_join    },
    {"split",             ok_split   },
    {"slice_by_index",    ok_slice   },
    {"batch_norm",        ok_channels},
    {"conv",              ok_conv    },
    {"linear",            ok_linear  },
    {"matmul",            ok_matmul  },
};

/* Every T stands where the result's does, counted from after: elsewhere it
 * would be spread over, or meet, another axis. */
static bool ok_elementwise(const struct look *k)
{
    int at = k->o->rank - t_axis(k->o);
    for (int i = 0; i < CPU_ARGS_MAX; i++) {
        int slot = k->n->in[i];
        const struct mil_type *x = slot >= 0 ? k->m->slot_type[slot] : NULL;
        int t = t_axis(x);
        if (t != -1 && (t < 0 || x->rank - t != at)) {
            return false;
        }
    }
    return true;
}

static bool rule_of(const struct look *k)
{
    if (row_is_elementwise(k->n)) {
        return ok_elementwise(k);
    }
    for (size_t i = 0; i < countof(rules); i++) {
        if (strcmp(rules[i].type, k->n->def->type) == 0) {
            return rules[i].ok(k);
        }
    }
    return false;
}

/* Does n keep the positions along T apart? */
static bool is_row_wise(const struct backend_model *m, const struct node *n)
{
    bool reads_t = false;
    struct look k = {.m = m, .n = n, .t = -1};
    for (int i = 0; i < CPU_ARGS_MAX; i++) {
        reads_t = reads_t || (n->in[i] >= 0 && row_t_axis(m, n->in[i]) != -1);
    }
    for (int i = 0; i < n->n_list; i++) {
        reads_t = reads_t || row_t_axis(m, n->list[i]) != -1;
    }
    if (!reads_t) {
        return true;
    }
    for (int i = 0; i < n->n_out; i++) {
        if (row_t_axis(m, n->out[i]) < 0) {
            return false;
        }
    }
    k.o = n->n_out > 0 ? m->slot_type[n->out[0]] : NULL;
    k.x = n->in[0] >= 0   ? m->slot_type[n->in[0]]
          : n->n_list > 0 ? m->slot_type[n->list[0]]
                          : NULL;
    if (k.x == NULL || k.o == NULL) {
        return k.o != NULL && row_is_elementwise(n) && ok_elementwise(&k);
    }
    k.t = t_axis(k.x);
    return rule_of(&k);
}

/* --- the whole program --- */

const char *row_check_ports(const struct backend_model *m)
{
    for (size_t k = 0; k < m->n_in; k++) {
        if (m->in[k].type.dtype != MIL_FP16 &&
            m->in[k].type.dtype != MIL_FP32) {
            return "an input is not floating point";
        }
        if (row_t_axis(m, m->in_slot[k]) == -2) {
            return "an input has several unknown dimensions";
        }
    }
    for (size_t k = 0; k < m->n_out; k++) {
        if (row_t_axis(m, m->out_slot[k]) == -2) {
            return "an output has several unknown dimensions";
        }
        if (m->has_t && row_t_axis(m, m->out_slot[k]) < 0) {
            return "an output does not depend on T";
        }
    }
    return m->n_in > 0 && m->n_out > 0 ? NULL : "no inputs or no outputs";
}

bool row_is_one(const struct row_program *p, int value)
{
    int t = row_t_axis(p->m, value);
    const struct val *v = row_val(p, value);
    return t == -1 || (t >= 0 && v->rank == p->m->slot_type[value]->rank &&
                       v->dims[t] == 1);
}

bool row_keeps_rows(const struct row_program *p, const struct node *n)
{
    bool ok = is_row_wise(p->m, n);
    for (int i = 0; ok && i < CPU_ARGS_MAX; i++) {
        ok = n->in[i] < 0 || row_is_one(p, n->in[i]);
    }
    for (int k = 0; ok && k < n->n_list; k++) {
        ok = row_is_one(p, n->list[k]);
    }
    for (int k = 0; ok && k < n->n_out; k++) {
        ok = row_is_one(p, n->out[k]);
    }
    return ok;
}

/* Heads that share keys are joined with T before attention and taken apart
 * after it. */
static bool is_grouping(const struct row_program *p, const struct row_op *op)
{
    size_t at = 0;
    const struct row_op *from = row_def(p, row_root(p, op->in[0], &at));
    bool ok = true;
    if (!joins_heads(p->m, row_node(p, op))) {
        return false;
    }
    if (from != NULL && from->kind == ROW_ATTEND) {
        return row_is_one(p, op->out[0]);
    }
    ok = row_is_one(p, op->in[0]);
    for (int i = 0; i < p->n_ops; i++) {
        for (int k = 0; k < p->ops[i].n_in && p->ops[i].kind != ROW_DEAD; k++) {
            ok = ok && (p->ops[i].in[k] != op->out[0] ||
                        p->ops[i].kind == ROW_ATTEND);
        }
    }
    return ok;
}

/* An integer that a float holds exactly: the place of a largest element. */
static bool small_index(const struct row_program *p, int slot)
{
    for (int i = 0; i < p->n_ops; i++) {
        const struct row_op *op = &p->ops[i];
        if (op->kind == ROW_STEP && op->n_out == 1 && op->out[0] == slot) {
            const char *type = row_node(p, op)->def->type;
            return p->plan->v[slot].kind == VAL_I32 &&
                   (strcmp(type, "reduce_argmax") == 0 ||
                    strcmp(type, "reduce_argmin") == 0) &&
                   p->v[op->in[0]].n <= 1u << 24;
        }
    }
    return false;
}

const char *row_check_ops(struct row_program *p)
{
    for (int i = 0; i < p->n_ops; i++) {
        const struct row_op *op = &p->ops[i];
        if ((op->kind == ROW_STORE || op->kind == ROW_ATTEND) &&
            p->v[op->in[0]].class != ROW_VALUE) {
            return "keys, values or a query are a mask";
        }
        if (op->kind != ROW_STEP && op->kind != ROW_VIEW) {
            continue;
        }
        const struct node *n = row_node(p, op);
        for (int k = 0; k < op->n_in; k++) {
            enum row_class c = p->v[op->in[k]].class;
            if (op->kind == ROW_STEP && c != ROW_VALUE) {
                return arena_printf(&p->arena, "%s %s reads a mask",
                                    n->def->type, n->name);
            }
        }
        if (n->state >= 0) {
            return arena_printf(&p->arena, "%s %s is not understood",
                                n->def->type, n->name);
        }
        if (p->m->has_t && !row_keeps_rows(p, n) &&
            !is_grouping(p, op)) {
            return arena_printf(&p->arena, "%s %s may mix rows", n->def->type,
                                n->name);
        }
    }
    for (size_t k = 0; k < p->m->n_out; k++) {
        const struct row_value *v = &p->v[p->m->out_slot[k]];
        if (v->class != ROW_VALUE || !row_is_one(p, p->m->out_slot[k]) ||
            (p->plan->v[p->m->out_slot[k]].kind != VAL_F32 &&
             !small_index(p, p->m->out_slot[k]))) {
            return "an output is not a number of each row";
        }
    }
    return NULL;
}
