/* row_view.c - operations that at T = 1 move nothing: transpositions of axes
 * of one element, slices and splits of neighbouring elements. */
#include <string.h>

#include "engine/cpu/rows/row_make.h"

/* Axes with more than one element keep their order. */
static bool same_order(const struct val *x, const struct val *perm)
{
    int last = -1;
    if (perm->kind != VAL_I32 || perm->n != (size_t)x->rank) {
        return false;
    }
    for (int i = 0; i < x->rank; i++) {
        int from = perm->i[i] < 0 ? perm->i[i] + x->rank : perm->i[i];
        if (x->dims[from] == 1) {
            continue;
        }
        if (from < last) {
            return false;
        }
        last = from;
    }
    return true;
}

static size_t inner(const struct val *x, int axis)
{
    size_t n = 1;
    for (int i = axis + 1; i < x->rank; i++) {
        n *= (size_t)x->dims[i];
    }
    return n;
}

/* All axes before this one have one element. */
static bool is_outermost(const struct val *x, int axis)
{
    return x->n == (size_t)x->dims[axis] * inner(x, axis);
}

bool row_slice(const struct row_program *p, const struct node *n, int *axis,
               int64_t *begin)
{
    const struct val *x = row_val(p, n->in[0]);
    const struct val *o = row_val(p, n->out[0]);
    const struct val *b = row_val(p, n->in[1]);
    int stride = row_arg(n, "stride");
    int mask = row_arg(n, "begin_mask");
    const struct val *m = n->in[mask] >= 0 ? row_val(p, n->in[mask]) : NULL;
    *axis = -1;
    *begin = 0;
    if (x->rank != o->rank || !b->known || b->kind != VAL_I32 ||
        b->n != (size_t)x->rank) {
        return false;
    }
    for (int i = 0; i < x->rank; i++) {
        if (x->dims[i] == o->dims[i]) {
            continue;
        }
        if (*axis >= 0) {
            return false;
        }
        bool from0 = m != NULL && m->i[i] != 0;
        *axis = i;
        *begin = from0 ? 0 : b->i[i] < 0 ? b->i[i] + x->dims[i] : b->i[i];
    }
    if (n->in[stride] >= 0) {
        const struct val *s = row_val(p, n->in[stride]);
        for (size_t i = 0; i < s->n; i++) {
            if (s->kind != VAL_I32 || s->i[i] != 1) {
                return false;
            }
        }
    }
    return *axis < 0 ||
           (*begin >= 0 && *begin + o->dims[*axis] <= x->dims[*axis]);
}

static void try_slice(struct row_program *p, struct row_op *op)
{
    const struct node *n = row_node(p, op);
    int axis = -1;
    int64_t begin = 0;
    if (!row_slice(p, n, &axis, &begin)) {
        return;
    }
    const struct val *x = row_val(p, n->in[0]);
    if (axis < 0 || is_outermost(x, axis)) {
        op->kind = ROW_VIEW;
        op->at[0] = axis < 0 ? 0 : (size_t)begin * inner(x, axis);
    }
}

static void try_split(struct row_program *p, struct row_op *op)
{
    const struct node *n = row_node(p, op);
    const struct val *x = row_val(p, n->in[0]);
    const struct val *axis = row_val(p, n->in[1]);
    size_t at = 0;
    int a = axis->kind == VAL_I32 && axis->n == 1 ? axis->i[0] : -99;
    a = a < 0 ? a + x->rank : a;
    if (a < 0 || a >= x->rank || !is_outermost(x, a)) {
        return;
    }
    op->kind = ROW_VIEW;
    for (int k = 0; k < op->n_out; k++) {
        op->at[k] = at;
        at += p->v[op->out[k]].n;
    }
}

int row_pass_views(struct row_program *p, struct err *e)
{
    (void)e;
    for (int i = 0; i < p->n_ops; i++) {
        struct row_op *op = &p->ops[i];
        if (row_is(p, op, "transpose")) {
            const struct node *n = row_node(p, op);
            if (same_order(row_val(p, n->in[0]), row_val(p, n->in[1]))) {
                op->kind = ROW_VIEW;
                op->at[0] = 0;
            }
        } else if (row_is(p, op, "slice_by_index")) {
            try_slice(p, op);
        } else if (row_is(p, op, "split")) {
            try_split(p, op);
        }
        op->n_in = op->kind == ROW_VIEW ? 1 : op->n_in;
    }
    return 0;
}
