/* row_pass.c - the list of passes, and the short ones.
 *
 * Each pass looks at ops and may replace some by a special form; row_count runs
 * after each pass. Any pass may be left out: the ops that it would have
 * replaced then run as plain steps. */
#include <string.h>

#include "engine/cpu/ops/ops.h"
#include "engine/cpu/rows/row_make.h"

const struct row_pass row_passes[] = {
    {"views",       row_pass_views      },
    {"norm",        row_pass_norm       },
    {"rope",        row_pass_rope       },
    {"linear",      row_pass_linear     },
    {"elementwise", row_pass_elementwise},
    {"glu",         row_pass_glu        },
    {"experts",     row_pass_experts    },
    {"heads",       row_pass_heads      },
    {"share",       row_pass_share      },
    {"dead",        row_pass_dead       },
    {NULL,          NULL                },
};

/* --- dead --- */

int row_pass_dead(struct row_program *p, struct err *e)
{
    bool *live = calloc((size_t)p->n_values + 1, sizeof(*live));
    if (live == NULL) {
        return err_set(e, ERR_NOMEM, "the program");
    }
    for (size_t k = 0; k < p->m->n_out; k++) {
        live[p->m->out_slot[k]] = true;
    }
    /* views may stand after their readers (share): twice finds all */
    for (int turn = 0; turn < 2; turn++) {
        for (int i = p->n_ops - 1; i >= 0; i--) {
            const struct row_op *op = &p->ops[i];
            bool want = op->kind == ROW_STORE;
            for (int k = 0; k < op->n_out; k++) {
                want = want || live[op->out[k]];
            }
            for (int k = 0; want && op->kind != ROW_DEAD && k < op->n_in; k++) {
                live[op->in[k]] = true;
            }
        }
    }
    for (int i = 0; i < p->n_ops; i++) {
        struct row_op *op = &p->ops[i];
        bool want = op->kind == ROW_STORE;
        for (int k = 0; k < op->n_out; k++) {
            want = want || live[op->out[k]];
        }
        op->kind = want ? op->kind : ROW_DEAD;
    }
    free(live);
    row_count(p);
    return 0;
}

/* --- linear: a 1x1 conv, or linear, with constant weights --- */

static bool ones_behind(const struct val *w)
{
    for (int i = 2; i < w->rank; i++) {
        if (w->dims[i] != 1) {
            return false;
        }
    }
    return true;
}

/* A convolution that sees its padding. */
static bool is_padded(const struct row_program *p, const struct node *n)
{
    int type = row_arg(n, "pad_type");
    int pad = row_arg(n, "pad");
    if (type < 0 || n->in[type] < 0 || n->in[pad] < 0) {
        return false;
    }
    const struct val *t = &p->m->consts[n->in[type]];
    const struct val *v = &p->m->consts[n->in[pad]];
    bool zero = v->kind == VAL_I32;
    for (size_t i = 0; zero && i < v->n; i++) {
        zero = v->i[i] == 0;
    }
    return !zero && (t->kind != VAL_STR || strcmp(t->str, "custom") == 0);
}

bool row_is_product(const struct row_program *p, const struct node *n)
{
    const struct val *w = row_val(p, n->in[1]);
    return w->rank >= 2 && ones_behind(w) && !is_padded(p, n);
}

static bool match_linear(const struct row_program *p, const struct row_op *op,
                         struct row_linear *f)
{
    const struct node *n = row_node(p, op);
    const struct val *w = row_val(p, n->in[1]);
    size_t count = 0;
    if (op->n_in != 1 || op->in[0] != n->in[0] || w->w == NULL ||
        !row_is_product(p, n) || w->w->cols != p->v[n->in[0]].n ||
        w->w->rows != p->v[op->out[0]].n ||
        row_val(p, n->in[0])->kind != VAL_F32) {
        return false;
    }
    *f = (struct row_linear){.parts = 1, .w = {w->w}};
    if (n->in[2] >= 0) {
        f->bias[0] = row_fixed(p, n->in[2], &count);
    }
    return n->in[2] < 0 || (f->bias[0] != NULL && count == w->w->rows);
}

int row_pass_linear(struct row_program *p, struct err *e)
{
    (void)e;
    for (int i = 0; i < p->n_ops; i++) {
        struct row_op *op = &p->ops[i];
        struct row_linear f;
        if ((row_is(p, op, "conv") || row_is(p, op, "linear")) &&
            match_linear(p, op, &f)) {
            op->kind = ROW_LINEAR;
            op->linear = f;
        }
    }
    return 0;
}

/* --- elementwise --- */

static bool floats(const struct row_program *p, const struct row_op *op)
{
    for (int k = 0; k < op->n_in; k++) {
        if (row_val(p, op->in[k])->kind != VAL_F32) {
            return false;
        }
    }
    return row_val(p, op->out[0])->kind == VAL_F32;
}

static bool match_binary(const struct row_program *p, const struct row_op *op,
                         struct row_ew *f)
{
    const struct node *n = row_node(p, op);
    const struct val *o = row_val(p, op->out[0]);
    if (n->def->sub > BIN_MOD) {
        return false;
    }
    *f = (struct row_ew){.sub = n->def->sub};
    for (int k = 0; k < 2; k++) {
        const struct val *v = row_val(p, n->in[k]);
        f->fixed[k] = row_fixed(p, n->in[k], &f->n_fixed[k]);
        if (f->fixed[k] != NULL
                ? f->n_fixed[k] != 1 && f->n_fixed[k] != o->n
                : p->v[n->in[k]].class != ROW_VALUE || v->n != o->n) {
            return false;
        }
    }
    return op->n_in > 0;
}

int row_pass_elementwise(struct row_program *p, struct err *e)
{
    (void)e;
    for (int i = 0; i < p->n_ops; i++) {
        struct row_op *op = &p->ops[i];
        struct row_ew f;
        const struct node *n = row_node(p, op);
        if (op->kind != ROW_STEP || n == NULL || op->n_out != 1 ||
            !floats(p, op)) {
            continue;
        }
        if (n->def->run == binary_run && match_binary(p, op, &f)) {
            op->kind = ROW_BINARY;
            op->ew = f;
        } else if (n->def->run == unary_run && op->n_in == 1) {
            op->kind = ROW_UNARY;
            op->ew = (struct row_ew){.sub = n->def->sub};
        }
    }
    return 0;
}

/* --- glu: f(a) * b --- */

/* The unary op after operand k of a product, when it has no other reader. */
static int unary_of(const struct row_program *p, const struct row_op *op, int k)
{
    size_t at = 0;
    int root = row_root(p, op->in[k], &at);
    const struct row_op *f = row_def(p, root);
    return f != NULL && f->kind == ROW_UNARY && at == 0 &&
                   p->v[root].n == p->v[op->in[k]].n && p->uses[root] == 1 &&
                   p->uses[op->in[k]] == 1
               ? p->def[root]
               : -1;
}

int row_pass_glu(struct row_program *p, struct err *e)
{
    for (int i = 0; i < p->n_ops; i++) {
        struct row_op *op = &p->ops[i];
        if (op->kind != ROW_BINARY || op->ew.sub != BIN_MUL || op->n_in != 2) {
            continue;
        }
        for (int k = 0; k < 2; k++) {
            int f = unary_of(p, op, k);
            if (f < 0) {
                continue;
            }
            int other = op->in[1 - k];
            op->kind = ROW_GLU;
            op->step = p->ops[f].step;
            op->in[0] = p->ops[f].in[0];
            op->in[1] = other;
            op->ew.sub = p->ops[f].ew.sub;
            break;
        }
    }
    return row_pass_dead(p, e);
}

/* --- heads: attention written head by head becomes one --- */

static struct row_op *attend_of(const struct row_program *p, int value)
{
    size_t at = 0;
    int root = row_root(p, value, &at);
    struct row_op *op = row_def(p, root);
    return op != NULL && op->kind == ROW_ATTEND && at == 0 &&
                   p->v[root].n == p->v[value].n
               ? op
               : NULL;
}

/* Whether b continues a: the next heads of the same states and query. */
static bool goes_on(const struct row_program *p, const struct row_attend *all,
                    int q, size_t q_at, const struct row_op *b)
{
    const struct row_attend *x = &b->attend;
    size_t at = 0;
    return row_root(p, b->in[0], &at) == q && at == q_at &&
           x->k_state == all->k_state && x->v_state == all->v_state &&
           x->mask == all->mask && x->scale == all->scale &&
           x->divide == all->divide && x->tanh == all->tanh &&
           x->before == all->before && x->dim == all->dim &&
           x->vdim == all->vdim &&
           x->kv_first == all->kv_first + all->kv_heads &&
           (uint64_t)x->heads * all->kv_heads ==
               (uint64_t)all->heads * x->kv_heads;
}

static bool match_heads(const struct row_program *p, const struct row_op *op,
                        struct row_attend *all, int *q)
{
    size_t at = 0;
    if (op->n_in != row_node(p, op)->n_list) {
        return false;
    }
    for (int k = 0; k < op->n_in; k++) {
        const struct row_op *a = attend_of(p, op->in[k]);
        if (a == NULL || p->uses[op->in[k]] != 1) {
            return false;
        }
        if (k == 0) {
            *all = a->attend;
            *q = row_root(p, a->in[0], &at);
        } else if (goes_on(p, all, *q, at, a)) {
            all->heads += a->attend.heads;
            all->kv_heads += a->attend.kv_heads;
        } else {
            return false;
        }
        at += p->v[a->in[0]].n;
    }
    /* the query is all of what the heads were cut from */
    return op->n_in > 1 && p->v[*q].n == at;
}

int row_pass_heads(struct row_program *p, struct err *e)
{
    for (int i = 0; i < p->n_ops; i++) {
        struct row_op *op = &p->ops[i];
        struct row_attend all;
        int q = -1;
        if (!row_is(p, op, "concat") || !match_heads(p, op, &all, &q)) {
            continue;
        }
        const struct node *n = row_node(p, op);
        const struct val *axis = row_val(p, n->in[row_arg(n, "axis")]);
        const struct val *o = row_val(p, op->out[0]);
        int a = axis->i[0] < 0 ? axis->i[0] + o->rank : axis->i[0];
        size_t outer = 1;
        for (int k = 0; k < a; k++) {
            outer *= (size_t)o->dims[k];
        }
        if (outer == 1) {
            op->kind = ROW_ATTEND;
            op->n_in = 1;
            op->in[0] = q;
            op->attend = all;
        }
    }
    return row_pass_dead(p, e);
}

/* --- share: products of one input become one product --- */

/* Op b becomes the view that says what the parts of `all` are. */
static bool make_view(struct row_program *p, struct row_op *b, int all,
                      const struct row_op *a)
{
    int *out = arena_array(&p->arena, ROW_PARTS_MAX, sizeof(*out));
    size_t *at = arena_array(&p->arena, ROW_PARTS_MAX, sizeof(*at));
    if (out == NULL || at == NULL) {
        return false;
    }
    out[0] = a->out[0];
    out[1] = b->out[0];
    at[1] = p->v[all].n;
    b->kind = ROW_VIEW;
    b->name = a->name;
    b->step = -1;
    b->n_in = 1;
    b->in[0] = all;
    b->n_out = 2;
    b->out = out;
    b->at = at;
    return true;
}

/* Join op j's matrix to op i's. Their results are then pieces of one value; the
 * first op that joins becomes the view that says so. */
static bool join(struct row_program *p, int i, int j, int *view)
{
    struct row_op *a = &p->ops[i];
    struct row_op *b = &p->ops[j];
    const struct row_linear one = b->linear;
    int out = b->out[0];
    if (a->linear.parts + one.parts > ROW_PARTS_MAX) {
        return false;
    }
    if (*view < 0) {
        int all = row_value_new(p, a->name, p->v[a->out[0]].n);
        if (all < 0 || !make_view(p, b, all, a)) {
            return false;
        }
        a->out[0] = all;
        *view = j;
    } else {
        struct row_op *v = &p->ops[*view];
        v->out[v->n_out] = out;
        v->at[v->n_out++] = p->v[a->out[0]].n;
        b->kind = ROW_DEAD;
    }
    p->v[a->out[0]].n += p->v[out].n;
    a->linear.w[a->linear.parts] = one.w[0];
    a->linear.bias[a->linear.parts++] = one.bias[0];
    return true;
}

static bool is_output(const struct row_program *p, int value)
{
    for (size_t k = 0; k < p->m->n_out; k++) {
        if (p->m->out_slot[k] == value) {
            return true;
        }
    }
    return false;
}

int row_pass_share(struct row_program *p, struct err *e)
{
    (void)e;
    for (int i = 0; i < p->n_ops; i++) {
        int view = -1;
        if (p->ops[i].kind != ROW_LINEAR || is_output(p, p->ops[i].out[0])) {
            continue;
        }
        for (int j = i + 1; j < p->n_ops; j++) {
            const struct row_op *b = &p->ops[j];
            if (b->kind == ROW_LINEAR && b->linear.parts == 1 &&
                !is_output(p, b->out[0]) &&
                row_same(p, p->ops[i].in[0], b->in[0]) &&
                linear_wants_integer(b->linear.w[0]) ==
                    linear_wants_integer(p->ops[i].linear.w[0]) &&
                !join(p, i, j, &view)) {
                break;
            }
        }
        row_count(p);
    }
    return 0;
}
