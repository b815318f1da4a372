/* row_norm.c - RMSNorm in the forms that converters write.
 *
 *     s = rsqrt(mean(u^2) + eps)          y = u * s [* w]
 *
 * with u = x, u = x * c (squares then fit fp16), or u = x / max(max |x|, floor)
 * and eps = (sqrt(eps) / max)^2; the mean may be a sum times a constant. fp32
 * needs none of the scaling: the form is recognised and computed plainly. */
#include "engine/cpu/rows/row_make.h"

struct norm_match {
    struct row_norm f;
    int x, u;
    int floor;   /* of the peak form: max(max |x|, floor); -1 */
    size_t peak; /* elements that have one peak */
};

/* Spread over big, does element k of small meet a group of neighbours, those
 * from k * (big->n / small->n) on? */
static bool spreads(const struct val *small, const struct val *big)
{
    size_t n = 1;
    int i = small->rank - 1;
    int j = big->rank - 1;
    for (; j >= 0 && n * small->n < big->n; i--, j--) {
        if (i >= 0 && small->dims[i] != 1) {
            return false;
        }
        n *= (size_t)big->dims[j];
    }
    for (; i >= 0 && j >= 0; i--, j--) {
        if (small->dims[i] != big->dims[j]) {
            return false;
        }
    }
    return n * small->n == big->n;
}

/* The constant factor of mul(value, c); *other is the rest. */
static bool times_const(const struct row_program *p, int value, int *other,
                        float *c)
{
    const struct row_op *op = row_maker(p, value, "mul");
    if (op == NULL) {
        return false;
    }
    const struct node *n = row_node(p, op);
    for (int k = 0; k < 2; k++) {
        if (row_fixed1(p, n->in[k], c)) {
            *other = n->in[1 - k];
            return true;
        }
    }
    return false;
}

/* u^2 in any spelling. */
static bool is_square(const struct row_program *p, int value, int u)
{
    float two = 0.0f;
    const struct row_op *op = row_maker(p, value, "mul");
    if (op != NULL) {
        return op->n_in == 2 && row_same(p, op->in[0], u) &&
               row_same(p, op->in[1], u);
    }
    op = row_maker(p, value, "pow");
    if (op != NULL) {
        return op->n_in == 1 && row_same(p, op->in[0], u) &&
               row_fixed1(p, row_node(p, op)->in[1], &two) && two == 2.0f;
    }
    op = row_maker(p, value, "square");
    return op != NULL && row_same(p, op->in[0], u);
}

/* The groups of a reduction are neighbouring elements. */
static bool is_inner(const struct row_program *p, const struct row_op *op)
{
    const struct val *x = row_val(p, row_node(p, op)->in[0]);
    const struct val *o = row_val(p, op->out[0]);
    size_t n = 1;
    for (int i = x->rank - 1; i >= 0 && o->n * n < x->n; i--) {
        if (x->rank != o->rank || (o->dims[i] != 1 && x->dims[i] != 1)) {
            return false;
        }
        n *= (size_t)x->dims[i];
    }
    return x->rank == o->rank && o->n * n == x->n;
}

/* mean(u^2), perhaps as a sum times a constant. */
static bool match_mean(const struct row_program *p, int value,
                       struct norm_match *r)
{
    float c = 1.0f;
    int inner = value;
    const struct row_op *op = row_maker(p, value, "reduce_mean");
    bool mean = op != NULL;
    if (op == NULL && times_const(p, value, &inner, &c)) {
        op = row_maker(p, inner, "reduce_sum");
    }
    if (op == NULL) {
        op = row_maker(p, inner, "reduce_sum");
    }
    if (op == NULL) {
        op = row_maker(p, inner, "reduce_sum_square");
    }
    if (op == NULL || !is_inner(p, op) || op->n_in < 1) {
        return false;
    }
    r->f.width = p->v[op->in[0]].n / p->v[op->out[0]].n;
    r->f.mean = mean ? 1.0f / (float)r->f.width : c;
    return row_is(p, op, "reduce_sum_square") ? row_same(p, op->in[0], r->u)
                                              : is_square(p, op->in[0], r->u);
}

/* (sqrt eps / max)^2 */
static bool match_eps_peak(const struct row_program *p, int value,
                           struct norm_match *r)
{
    float root = 0.0f;
    const struct row_op *op = row_maker(p, value, "mul");
    if (r->floor < 0 || op == NULL || op->n_in != 2 ||
        !row_same(p, op->in[0], op->in[1])) {
        return false;
    }
    const struct row_op *div = row_maker(p, op->in[0], "real_div");
    if (div == NULL || div->n_in != 1 ||
        !row_fixed1(p, row_node(p, div)->in[0], &root) ||
        !row_same(p, div->in[0], r->floor)) {
        return false;
    }
    r->f.eps = root * root;
    return true;
}

/* The operand of rsqrt. */
static bool match_sum(const struct row_program *p, int value,
                      struct norm_match *r)
{
    const struct row_op *op = row_maker(p, value, "add");
    float eps = 0.0f;
    if (op == NULL) {
        return match_mean(p, value, r);
    }
    const struct node *n = row_node(p, op);
    for (int k = 0; k < 2; k++) {
        if (!match_mean(p, n->in[k], r)) {
            continue;
        }
        if (row_fixed1(p, n->in[1 - k], &eps)) {
            *(r->floor < 0 ? &r->f.eps : &r->f.eps_peak) += eps;
            return true;
        }
        return match_eps_peak(p, n->in[1 - k], r);
    }
    return false;
}

/* x / max(max |x|, floor) */
static bool match_peak(const struct row_program *p, struct norm_match *r)
{
    const struct row_op *div = row_maker(p, r->u, "real_div");
    if (div == NULL || div->n_in != 2) {
        return false;
    }
    const struct row_op *top = row_maker(p, div->in[1], "maximum");
    if (top == NULL || top->n_in != 1) {
        return false;
    }
    const struct node *n = row_node(p, top);
    if (!row_fixed1(p, n->in[0], &r->f.floor) &&
        !row_fixed1(p, n->in[1], &r->f.floor)) {
        return false;
    }
    const struct row_op *max = row_maker(p, top->in[0], "reduce_max");
    const struct row_op *abs = max != NULL && is_inner(p, max)
                                   ? row_maker(p, max->in[0], "abs")
                                   : NULL;
    if (abs == NULL || !row_same(p, abs->in[0], div->in[0]) ||
        p->v[div->in[0]].n != p->v[r->u].n ||
        !spreads(row_val(p, div->in[1]), row_val(p, div->out[0]))) {
        return false;
    }
    r->peak = p->v[r->u].n / p->v[div->in[1]].n;
    r->x = div->in[0];
    r->floor = div->in[1];
    return true;
}

/* Does operand k, a number for each mean that was taken, meet the elements it
 * was taken of? */
static bool is_per_group(const struct row_program *p, const struct row_op *op,
                         int k, const struct norm_match *r)
{
    return p->v[op->in[k]].n * r->f.width == p->v[op->out[0]].n &&
           spreads(row_val(p, op->in[k]), row_val(p, op->out[0])) &&
           (r->floor < 0 || r->peak == r->f.width);
}

/* y = u * rsqrt(...) */
static bool match_norm(const struct row_program *p, const struct row_op *op,
                       struct norm_match *r)
{
    for (int k = 0; k < 2 && op->n_in == 2; k++) {
        const struct row_op *root = row_maker(p, op->in[1 - k], "rsqrt");
        float eps = 0.0f;
        int other = -1;
        *r = (struct norm_match){.u = op->in[k], .x = op->in[k], .floor = -1};
        r->f.scale = r->f.gain = 1.0f;
        if (root == NULL || p->v[op->in[k]].n != p->v[op->out[0]].n) {
            continue;
        }
        int arg = row_node(p, root)->in[1];
        if (arg >= 0 && !row_fixed1(p, arg, &eps)) {
            continue;
        }
        if (!match_peak(p, r) && times_const(p, r->u, &other, &r->f.scale)) {
            r->x = other;
        }
        *(r->floor < 0 ? &r->f.eps : &r->f.eps_peak) = eps;
        if (match_sum(p, root->in[0], r) && is_per_group(p, op, 1 - k, r)) {
            return true;
        }
    }
    return false;
}

/* The one op that reads a value; NULL. */
static struct row_op *only_reader(struct row_program *p, int value)
{
    for (int i = p->def[value] + 1; p->uses[value] == 1 && i < p->n_ops; i++) {
        for (int k = 0; k < p->ops[i].n_in && p->ops[i].kind != ROW_DEAD; k++) {
            if (p->ops[i].in[k] == value) {
                return &p->ops[i];
            }
        }
    }
    return NULL;
}

/* Weights that are multiplied after: returns the op that is now the last. */
static struct row_op *take_weights(struct row_program *p, struct row_op *op,
                                   struct row_norm *f)
{
    for (;;) {
        struct row_op *next = only_reader(p, op->out[0]);
        if (!row_is(p, next, "mul") || next->n_in != 1) {
            return op;
        }
        const struct node *n = row_node(p, next);
        int fixed = n->in[0] == op->out[0] ? n->in[1] : n->in[0];
        const struct val *w = row_val(p, fixed);
        size_t count = 0;
        const float *data = row_fixed(p, fixed, &count);
        if (data == NULL || p->v[next->out[0]].n != p->v[op->out[0]].n) {
            return op;
        }
        if (count == 1) {
            f->gain *= data[0];
        } else if (f->w == NULL && count % f->width == 0 &&
                   row_repeats(w, row_val(p, op->out[0]))) {
            f->w = data;
            f->n_w = count;
        } else {
            return op;
        }
        op->kind = ROW_DEAD;
        op = next;
    }
}

int row_pass_norm(struct row_program *p, struct err *e)
{
    (void)e;
    for (int i = 0; i < p->n_ops; i++) {
        struct row_op *op = &p->ops[i];
        struct norm_match r;
        if (!row_is(p, op, "mul") || !match_norm(p, op, &r) ||
            p->v[r.x].n % r.f.width != 0) {
            continue;
        }
        op = take_weights(p, op, &r.f);
        op->kind = ROW_NORM;
        op->n_in = 1;
        op->in[0] = r.x;
        op->norm = r.f;
        row_count(p);
    }
    return row_pass_dead(p, e);
}
