/* row_rope.c - rotary position embedding.
 *
 *     concat(lo * cos - hi * sin, hi * cos + lo * sin [, rest])
 *
 * where lo, hi (and rest) are neighbouring pieces of the last axis of one
 * value, and cos and sin are numbers of the row, half as many as a head. */
#include <string.h>

#include "engine/cpu/rows/row_make.h"

/* A piece [at, at + n) of the last axis of x. */
struct piece {
    int x;
    int64_t at, n;
};

/* One slice or split; false: value is none. */
static bool cut_of(const struct row_program *p, int value, struct piece *r)
{
    const struct row_op *op = row_def(p, value);
    const struct node *n = op != NULL ? row_node(p, op) : NULL;
    if (n == NULL || (op->kind != ROW_STEP && op->kind != ROW_VIEW)) {
        return false;
    }
    const struct val *o = row_val(p, value);
    r->x = n->in[0];
    r->n = o->rank > 0 ? o->dims[o->rank - 1] : 0;
    r->at = 0;
    if (strcmp(n->def->type, "split") == 0) {
        const struct val *axis = row_val(p, n->in[1]);
        const struct val *x = row_val(p, r->x);
        if (axis->kind != VAL_I32 || axis->n != 1 ||
            (axis->i[0] != -1 && axis->i[0] != x->rank - 1)) {
            return false;
        }
        for (int k = 0; k < op->n_out && op->out[k] != value; k++) {
            const struct val *before = row_val(p, op->out[k]);
            r->at += before->dims[before->rank - 1];
        }
        return true;
    }
    int axis = -1;
    return strcmp(n->def->type, "slice_by_index") == 0 &&
           row_slice(p, n, &axis, &r->at) && axis == o->rank - 1;
}

/* The same through slices of slices. */
static bool piece_of(const struct row_program *p, int value, struct piece *r)
{
    struct piece up;
    if (!cut_of(p, value, r)) {
        return false;
    }
    while (cut_of(p, r->x, &up)) {
        r->x = up.x;
        r->at += up.at;
    }
    return true;
}

/* value = a * b, in either order: the factors. */
static bool product(const struct row_program *p, int value, int *a, int *b)
{
    const struct row_op *op = row_maker(p, value, "mul");
    if (op == NULL || op->n_in != 2) {
        return false;
    }
    *a = op->in[0];
    *b = op->in[1];
    return true;
}

/* value = piece * angle: is `lo` one factor? Then *angle is the other. */
static bool piece_times(const struct row_program *p, int value, int piece,
                        int *angle)
{
    int a = -1;
    int b = -1;
    if (!product(p, value, &a, &b)) {
        return false;
    }
    *angle = row_same(p, a, piece) ? b : a;
    return row_same(p, a, piece) || row_same(p, b, piece);
}

/* One number for each element of a half, the same ones for every head. */
static bool is_angle(const struct row_program *p, int value, int64_t half)
{
    const struct val *v = row_val(p, value);
    return v->rank > 0 && v->dims[v->rank - 1] == half && v->n == (size_t)half;
}

struct rope_match {
    int x, cos, sin;
    int64_t half;
};

/* first = lo cos - hi sin, second = hi cos + lo sin. */
static bool match_pair(const struct row_program *p, int first, int second,
                       struct rope_match *r)
{
    const struct row_op *sub = row_maker(p, first, "sub");
    const struct row_op *add = row_maker(p, second, "add");
    if (sub == NULL || add == NULL || sub->n_in != 2 || add->n_in != 2) {
        return false;
    }
    int f[2][2];
    if (!product(p, sub->in[0], &f[0][0], &f[0][1]) ||
        !product(p, sub->in[1], &f[1][0], &f[1][1])) {
        return false;
    }
    for (int i = 0; i < 4; i++) { /* which factor is the piece */
        int lo = f[0][i & 1];
        int hi = f[1][i >> 1];
        int c = f[0][1 - (i & 1)];
        int s = f[1][1 - (i >> 1)];
        struct piece pl;
        struct piece ph;
        int c2 = -1;
        int s2 = -1;
        if (!piece_of(p, lo, &pl) || !piece_of(p, hi, &ph) || pl.x != ph.x ||
            pl.at != 0 || ph.at != pl.n || ph.n != pl.n) {
            continue;
        }
        for (int k = 0; k < 2; k++) {
            if (piece_times(p, add->in[k], hi, &c2) &&
                piece_times(p, add->in[1 - k], lo, &s2) && row_same(p, c, c2) &&
                row_same(p, s, s2) && is_angle(p, c, pl.n) &&
                is_angle(p, c2, pl.n) && is_angle(p, s, pl.n) &&
                is_angle(p, s2, pl.n)) {
                *r = (struct rope_match){pl.x, c, s, pl.n};
                return true;
            }
        }
    }
    return false;
}

static bool match_rope(const struct row_program *p, const struct row_op *op,
                       struct rope_match *r)
{
    const struct node *n = row_node(p, op);
    const struct val *o = row_val(p, op->out[0]);
    const struct val *axis = row_val(p, n->in[row_arg(n, "axis")]);
    int inter = n->in[row_arg(n, "interleave")];
    if ((op->n_in != 2 && op->n_in != 3) || op->n_in != n->n_list ||
        axis->kind != VAL_I32 || axis->n != 1 ||
        (axis->i[0] != -1 && axis->i[0] != o->rank - 1) ||
        (inter >= 0 && row_val(p, inter)->i[0] != 0) ||
        !match_pair(p, op->in[0], op->in[1], r)) {
        return false;
    }
    const struct val *x = row_val(p, r->x);
    if (op->n_in == 3) { /* the rest of the head passes through */
        struct piece rest;
        if (!piece_of(p, op->in[2], &rest) || rest.x != r->x ||
            rest.at != 2 * r->half) {
            return false;
        }
    }
    return x->n == o->n && x->dims[x->rank - 1] == o->dims[o->rank - 1];
}

int row_pass_rope(struct row_program *p, struct err *e)
{
    for (int i = 0; i < p->n_ops; i++) {
        struct row_op *op = &p->ops[i];
        struct rope_match r;
        if (!row_is(p, op, "concat") || !match_rope(p, op, &r)) {
            continue;
        }
        const struct val *x = row_val(p, r.x);
        op->kind = ROW_ROPE;
        op->n_in = 3;
        op->in[0] = r.x;
        op->in[1] = r.cos;
        op->in[2] = r.sin;
        op->rope = (struct row_rope){.dim = (size_t)x->dims[x->rank - 1],
                                     .half = (size_t)r.half};
        row_count(p);
    }
    return row_pass_dead(p, e);
}
