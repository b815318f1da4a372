/* row_state.c - states and the masks over them, in a program run as rows.
 *
 * A slot may be a state as it is after this run's store: a read after the
 * write, or the blended value that was written (packages of coremltools attend
 * over that), whole or some of its heads. Attention over such slots becomes
 * ATTEND. All rows are stored before any attends (a row never sees a later
 * position), so a state must have one store only, and it must come before the
 * attention that reads the state. */
#include <math.h>
#include <string.h>

#include "engine/cpu/graph/fuse.h"
#include "engine/cpu/ops/op_attention.h"
#include "engine/cpu/rows/row_make.h"

/* What a slot has of a state: heads [first, first + n), state -1: nothing. */
struct kv_ref {
    int state;
    uint32_t first, n;
    bool old; /* read before the store */
};

struct states {
    struct row_program *p;
    struct fuse f;
    struct kv_ref *ref; /* by slot */
    int *store;         /* by state: op; -1 */
};

static const struct mil_type *type_of(const struct states *s, int state)
{
    return s->p->m->state[state].type;
}

static struct kv_ref whole(const struct states *s, int state, bool old)
{
    const struct mil_type *t = type_of(s, state);
    return (struct kv_ref){state, 0, t->rank == 4 ? (uint32_t)t->dims[1] : 0,
                           old};
}

/* A mask is an input as it came, or a view of all of it. Marks the input. */
static bool mark_mask(struct row_program *p, int slot, enum row_class class,
                      int64_t positions, int *input)
{
    size_t at = 0;
    int root = row_root(p, slot, &at);
    struct row_value *v = &p->v[root];
    if (v->input < 0 || at != 0 || v->n != (size_t)positions ||
        p->v[slot].n != v->n || (v->class != ROW_VALUE && v->class != class)) {
        return false;
    }
    v->class = class;
    *input = v->input;
    return true;
}

/* --- stores --- */

static bool make_store(struct states *s, int at, int state, int mask, int new)
{
    struct row_program *p = s->p;
    const struct mil_type *t = type_of(s, state);
    struct row_op *op = &p->ops[at];
    int input = -1;
    if (t->rank != 4 || t->dims[0] != 1 || s->store[state] >= 0 ||
        p->v[new].class != ROW_VALUE ||
        p->v[new].n != (size_t)(t->dims[1] * t->dims[3]) ||
        !mark_mask(p, mask, ROW_WRITE, t->dims[2], &input)) {
        return false;
    }
    op->kind = ROW_STORE;
    op->name = p->m->state[state].name;
    op->n_in = 1;
    op->in[0] = new;
    op->n_out = 0;
    op->store = (struct row_store){state};
    s->store[state] = at;
    return true;
}

static bool find_stores(struct states *s)
{
    struct row_program *p = s->p;
    for (int i = 0; i < p->n_ops; i++) {
        struct row_op *op = &p->ops[i];
        const struct node *n = row_node(p, op);
        struct fuse_store r;
        bool ok = true;
        if (row_is(p, op, "store_rows")) {
            ok = make_store(s, i, n->state, n->in[0], n->in[1]);
        } else if (row_is(p, op, "write_state")) {
            ok = fuse_match_store(&s->f, op->step, &r) &&
                 make_store(s, i, r.state, r.mask, r.new);
            if (ok) {
                s->ref[r.blend] = whole(s, r.state, false);
                if (r.update >= 0) {
                    s->ref[r.update] = whole(s, r.state, false);
                }
            }
        }
        if (!ok) {
            return false;
        }
    }
    return true;
}

/* --- references --- */

/* Heads cut out of a reference [1, heads, S, D]. */
static void slice_ref(struct states *s, const struct row_op *op)
{
    const struct node *n = row_node(s->p, op);
    const struct val *x = &s->p->plan->v[n->in[0]];
    const struct val *o = &s->p->plan->v[n->out[0]];
    const struct val *begin = &s->p->m->consts[n->in[1]];
    struct kv_ref r = s->ref[n->in[0]];
    if (x->rank != 4 || o->rank != 4 || begin->kind != VAL_I32 ||
        begin->n != 4 || o->dims[0] != x->dims[0] || o->dims[2] != x->dims[2] ||
        o->dims[3] != x->dims[3] || x->dims[1] != r.n) {
        return;
    }
    int mask = -1;
    for (int i = 0; n->def->args[i] != NULL && i < CPU_ARGS_MAX; i++) {
        mask = strcmp(n->def->args[i], "?begin_mask") == 0 ? n->in[i] : mask;
    }
    const struct val *m = mask >= 0 ? &s->p->m->consts[mask] : NULL;
    bool from0 = m != NULL && m->kind == VAL_BOOL && m->n == 4 && m->i[1] != 0;
    int64_t at = from0             ? 0
                 : begin->i[1] < 0 ? begin->i[1] + x->dims[1]
                                   : begin->i[1];
    for (int i = 0; n->def->args[i] != NULL && i < CPU_ARGS_MAX; i++) {
        if (strcmp(n->def->args[i], "?stride") == 0 && n->in[i] >= 0) {
            const struct val *st = &s->p->m->consts[n->in[i]];
            if (st->kind != VAL_I32 || st->n != 4 || st->i[1] != 1) {
                return;
            }
        }
    }
    if (at >= 0 && at + o->dims[1] <= x->dims[1]) {
        r.first += (uint32_t)at;
        r.n = (uint32_t)o->dims[1];
        s->ref[n->out[0]] = r;
    }
}

/* A view of whole heads: positions and elements stay the last two axes. */
static void view_ref(struct states *s, const struct row_op *op, int k)
{
    const struct val *x = row_val(s->p, op->in[0]);
    const struct val *o = row_val(s->p, op->out[k]);
    struct kv_ref r = s->ref[op->in[0]];
    if (x->rank < 2 || o->rank < 2 ||
        x->dims[x->rank - 1] != o->dims[o->rank - 1] ||
        x->dims[x->rank - 2] != o->dims[o->rank - 2]) {
        return;
    }
    size_t head = (size_t)(x->dims[x->rank - 1] * x->dims[x->rank - 2]);
    if (head > 0 && op->at[k] % head == 0) {
        r.first += (uint32_t)(op->at[k] / head);
        r.n = (uint32_t)(o->n / head);
        s->ref[op->out[k]] = r;
    }
}

static void find_refs(struct states *s)
{
    const struct row_program *p = s->p;
    for (int i = 0; i < p->n_ops; i++) {
        const struct row_op *op = &p->ops[i];
        const struct node *n = row_node(p, op);
        if (op->kind != ROW_STEP && op->kind != ROW_VIEW) {
            continue;
        }
        if (row_is(p, op, "read_state") ||
            row_is(p, op, "read_state_in_place")) {
            s->ref[n->out[0]] = whole(
                s, n->state, s->store[n->state] < 0 || s->store[n->state] > i);
        } else if (op->n_in > 0 && s->ref[op->in[0]].state >= 0) {
            for (int k = 0; op->kind == ROW_VIEW && k < op->n_out; k++) {
                view_ref(s, op, k);
            }
            if (row_is(p, op, "slice_by_index")) {
                slice_ref(s, op);
            }
        }
    }
}

/* --- attention --- */

/* Which matrix of k's a batch entry of q meets; -1: q is spread over k. */
static int64_t batch_of(const struct val *q, const struct val *k, int64_t b)
{
    int64_t at = 0;
    int64_t stride = 1;
    for (int i = q->rank - 3; i >= 0; i--) {
        int64_t idx = b % q->dims[i];
        int j = i - (q->rank - k->rank);
        b /= q->dims[i];
        int64_t d = j >= 0 ? k->dims[j] : 1;
        if (d != 1 && d != q->dims[i]) {
            return -1;
        }
        at += d == 1 ? 0 : idx * stride;
        stride *= d;
    }
    return at;
}

/* Every query head h of q meets key head h / group. */
static bool heads_fit(const struct val *q, const struct val *k, bool tx,
                      uint32_t heads, uint32_t kv_heads)
{
    int64_t rows = q->dims[q->rank - (tx ? 1 : 2)];
    if (kv_heads == 0 || heads % kv_heads != 0 || (tx && rows != 1) ||
        k->rank > q->rank) {
        return false;
    }
    for (uint32_t h = 0; h < heads; h++) {
        if (batch_of(q, k, h / rows) != h / (heads / kv_heads)) {
            return false;
        }
    }
    return true;
}

/* What happens between the products must be one scale and the mask, or the
 * same around a tanh. */
static bool take_form(const struct attention_form *f, struct row_attend *a)
{
    bool masked = false;
    a->scale = 1.0f;
    for (int i = 0; i < f->n; i++) {
        const struct attention_step *st = &f->ops[i];
        if (st->op == ATTENTION_ADD_MASK) {
            masked = true;
        } else if (st->op == ATTENTION_TANH) {
            if (masked || a->tanh || a->divide) {
                return false;
            }
            a->tanh = true;
            a->before = a->scale;
            a->scale = 1.0f;
        } else if (st->op != ATTENTION_CAST) {
            if (masked || a->scale != 1.0f) {
                return false;
            }
            a->scale = st->c;
            a->divide = st->op == ATTENTION_DIV;
        }
    }
    return masked;
}

static bool attend_shapes(struct states *s, int at, const struct node *n,
                          bool tx, struct row_attend *a)
{
    const struct row_program *p = s->p;
    const struct val *q = &p->plan->v[n->in[0]];
    const struct val *k = &p->plan->v[n->in[1]];
    const struct val *v = &p->plan->v[n->in[2]];
    struct kv_ref rk = s->ref[n->in[1]];
    struct kv_ref rv = s->ref[n->in[2]];
    if (rk.state < 0 || rv.state < 0 || rk.old || rv.old || rk.n != rv.n ||
        rk.first != rv.first || s->store[rk.state] < 0 ||
        s->store[rv.state] < 0 || s->store[rk.state] > at ||
        s->store[rv.state] > at || k->rank < 2 || v->rank < 2 || q->rank < 2 ||
        rk.state == rv.state || p->v[n->in[0]].class != ROW_VALUE ||
        k->dims[k->rank - 2] != v->dims[v->rank - 2]) {
        return false;
    }
    a->k_state = rk.state;
    a->v_state = rv.state;
    a->kv_first = rk.first;
    a->kv_heads = rk.n;
    a->dim = (uint32_t)k->dims[k->rank - 1];
    a->vdim = (uint32_t)v->dims[v->rank - 1];
    a->heads = a->dim > 0 ? (uint32_t)(q->n / a->dim) : 0;
    return a->heads > 0 && heads_fit(q, k, tx, a->heads, a->kv_heads) &&
           heads_fit(q, v, tx, a->heads, a->kv_heads);
}

/* The row of the scores that a row of the query makes is the one that the
 * mask's row is added to: T is at the same place in all three. */
static bool rows_meet(const struct states *s, const struct node *n,
                      const struct attention_form *f)
{
    const struct backend_model *m = s->p->m;
    const struct mil_type *q = m->slot_type[n->in[0]];
    const struct mil_type *mask = m->slot_type[n->in[3]];
    const struct mil_type *scores =
        f != NULL && f->space != NULL ? f->space : q;
    int64_t after[2] = {1, 1}; /* heads after T, of q and of the scores */
    if (!m->has_t) {
        return true;
    }
    if (q == NULL || mask == NULL) {
        return false;
    }
    int tq = row_t_axis(m, n->in[0]);
    int tm = row_t_axis(m, n->in[3]);
    int ts = scores->rank - (mask->rank - tm);
    if (tq < 0 || tm < 0 || ts < 0 || scores->dims[ts] != MIL_UNKNOWN) {
        return false;
    }
    if ((tq == q->rank - 1) != (f != NULL && f->tx)) {
        return false;
    }
    for (int i = tq + 1; i < q->rank - 1; i++) {
        after[0] *= q->dims[i];
    }
    for (int i = ts + 1; i < scores->rank - 1; i++) {
        after[1] *= scores->dims[i];
    }
    return after[0] == after[1];
}

static bool make_attend(struct states *s, int at)
{
    struct row_program *p = s->p;
    struct row_op *op = &p->ops[at];
    const struct node *n = row_node(p, op);
    struct row_attend a = {.mask = -1};
    bool sdpa = !row_is(p, op, "attention");
    const struct attention_form *f = sdpa ? NULL : n->fused;
    if (n->in[3] < 0 || !rows_meet(s, n, f) ||
        !attend_shapes(s, at, n, !sdpa && f->tx, &a)) {
        return false;
    }
    a.scale = 1.0f / sqrtf((float)a.dim);
    if ((f != NULL && !take_form(f, &a)) ||
        !mark_mask(p, n->in[3], ROW_MASK, type_of(s, a.k_state)->dims[2],
                   &a.mask)) {
        return false;
    }
    op->kind = ROW_ATTEND;
    op->n_in = 1;
    op->in[0] = n->in[0];
    op->n_out = 1;
    op->out[0] = n->out[0];
    op->attend = a;
    return true;
}

static bool set_shapes(struct states *s)
{
    struct row_program *p = s->p;
    for (size_t i = 0; i < p->m->n_states; i++) {
        const struct mil_type *t = p->m->state[i].type;
        if (s->store[i] < 0 || t->rank != 4) {
            return false;
        }
        p->shapes[i] = (struct kv_shape){.heads = (uint32_t)t->dims[1],
                                         .dim = (uint32_t)t->dims[3],
                                         .positions = (uint32_t)t->dims[2]};
    }
    for (int i = 0; i < p->n_ops; i++) {
        if (p->ops[i].kind == ROW_ATTEND) {
            p->shapes[p->ops[i].attend.k_state].key = true;
        }
    }
    for (int i = 0; i < p->n_ops; i++) {
        if (p->ops[i].kind == ROW_ATTEND &&
            p->shapes[p->ops[i].attend.v_state].key) {
            return false; /* keys here and values there */
        }
    }
    return true;
}

static bool states_fit(const struct backend_model *m)
{
    bool ok = true;
    for (size_t i = 0; i < m->n_states; i++) {
        const struct mil_type *t = m->state[i].type;
        ok = ok && (t->rank != 4 || kv_dims_fit(t->dims));
    }
    return ok;
}

static void spread_classes(struct row_program *p)
{
    for (int i = 0; i < p->n_ops; i++) {
        const struct row_op *op = &p->ops[i];
        if (op->kind == ROW_VIEW && (p->v[op->in[0]].class == ROW_MASK ||
                                     p->v[op->in[0]].class == ROW_WRITE)) {
            p->v[op->out[0]].class = p->v[op->in[0]].class;
        }
    }
}

int row_states(struct row_program *p, const char **why, struct err *e)
{
    struct states s = {.p = p};
    if (!states_fit(p->m)) {
        *why = "a state is too large for blocks of positions";
        return 0;
    }
    int rc = fuse_open(&s.f, p->m, e);
    if (rc < 0) {
        return rc;
    }
    s.ref = calloc((size_t)p->cap_values + 1, sizeof(*s.ref));
    s.store = calloc(p->m->n_states + 1, sizeof(int));
    if (s.ref == NULL || s.store == NULL) {
        rc = err_set(e, ERR_NOMEM, "the program");
        goto out;
    }
    for (int i = 0; i < p->cap_values; i++) {
        s.ref[i].state = -1;
    }
    for (size_t i = 0; i < p->m->n_states; i++) {
        s.store[i] = -1;
    }
    if (!find_stores(&s)) {
        *why = "a state is written in a form of its own";
        goto out;
    }
    find_refs(&s);
    for (int i = 0; i < p->n_ops && *why == NULL; i++) {
        bool attention =
            row_is(p, &p->ops[i], "attention") ||
            (row_is(p, &p->ops[i], "scaled_dot_product_attention") &&
             s.ref[row_node(p, &p->ops[i])->in[1]].state >= 0);
        if (attention && !make_attend(&s, i)) {
            *why = "an attention is not over states and one mask";
        }
    }
    if (*why == NULL && !set_shapes(&s)) {
        *why = "a state is never written, or read in two ways";
    }
    spread_classes(p);
out:
    free(s.ref);
    free(s.store);
    fuse_close(&s.f);
    return rc;
}
