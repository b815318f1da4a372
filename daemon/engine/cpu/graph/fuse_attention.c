/* fuse_attention.c - softmax(q k^T [* c] + mask) v, as fuse.c says; with
 * soft-capped scores, c * tanh(q k^T * b), too.
 *
 * It is found from the softmax: up from its operand to the product of queries
 * and keys, down from its result to the product with the values. */
#include "engine/cpu/graph/fuse_impl.h"
#include "engine/cpu/ops/op_attention.h"

struct attention_match {
    struct attention_form form;
    int q, k, v, mask;
    int scores;  /* slot of q k^T */
    int product; /* node of the second matmul */
};

/* A value that is given, not computed from the scores. */
static bool is_given(const struct fuse *f, int slot)
{
    const struct node *n = def_of(f, slot);
    while (is(n, "cast") || is(n, "expand_dims") || is(n, "reshape")) {
        slot = n->in[0];
        n = def_of(f, slot);
    }
    return n == NULL && f->m->consts[slot].kind == VAL_NONE;
}

/* A reshape that leaves the last axis alone. */
static bool keeps_rows(const struct fuse *f, const struct node *n)
{
    const struct mil_type *a = type_of(f, n->in[0]);
    const struct mil_type *b = type_of(f, n->out[0]);
    return is(n, "reshape") && a != NULL && b != NULL && a->rank > 0 &&
           b->rank > 0 && a->dims[a->rank - 1] != MIL_UNKNOWN &&
           a->dims[a->rank - 1] == b->dims[b->rank - 1];
}

/* Axes of the scores' rows that only the inputs tell. The last axis is keys: no
 * reshape between the products changes it (keeps_rows). */
static int unknowns(const struct mil_type *t)
{
    int n = 0;
    for (int i = 0; i + 1 < t->rank; i++) {
        n += t->dims[i] == MIL_UNKNOWN;
    }
    return n;
}

/* A product of floats. */
static bool is_product(const struct node *n)
{
    return is(n, "matmul") && n->def->run == matmul_run;
}

/* Does the mask say something of every position? */
static bool is_mask(const struct mil_type *mask, const struct mil_type *scores)
{
    return mask != NULL && scores != NULL && mask->rank > 0 &&
           scores->rank > 0 &&
           mask->dims[mask->rank - 1] == scores->dims[scores->rank - 1];
}

/* One operation above the softmax; *slot moves to its operand. False when it is
 * not part of attention. */
static bool match_above(const struct fuse *f, struct attention_match *r,
                        int *slot)
{
    const struct node *n = def_of(f, *slot);
    int k = r->form.n;
    bool fp16 = slot_is_fp16(f->m, *slot);
    float c = 0.0f;
    if (k == ATTENTION_OPS) {
        return false;
    }
    if (keeps_rows(f, n)) {
        *slot = n->in[0];
        return true;
    }
    if (is(n, "cast")) {
        r->form.ops[k].op = ATTENTION_CAST;
        *slot = n->in[0];
    } else if (is(n, "add") && r->mask < 0) {
        int m = is_given(f, n->in[1]) ? 1 : 0;
        if (!is_given(f, n->in[m]) || unknowns(type_of(f, *slot)) > 1 ||
            !is_mask(type_of(f, n->in[m]), type_of(f, *slot))) {
            return false;
        }
        r->mask = n->in[m];
        r->form.space = type_of(f, *slot);
        r->form.ops[k].op = ATTENTION_ADD_MASK;
        *slot = n->in[1 - m];
    } else if (is(n, "tanh") && r->mask >= 0) {
        r->form.ops[k].op = ATTENTION_TANH;
        *slot = n->in[0];
    } else if (is(n, "mul") && r->mask >= 0) {
        int m = const_float1(f, n->in[1], &c) ? 1 : 0;
        if (!const_float1(f, n->in[m], &c)) {
            return false;
        }
        r->form.ops[k].op = ATTENTION_MUL;
        *slot = n->in[1 - m];
    } else if (is(n, "real_div") && r->mask >= 0 &&
               const_float1(f, n->in[1], &c)) {
        r->form.ops[k].op = ATTENTION_DIV;
        *slot = n->in[0];
    } else {
        return false;
    }
    r->form.ops[k].c = c;
    r->form.ops[k].fp16 = fp16;
    r->form.n = k + 1;
    return true;
}

/* From the softmax's operand up to q k^T; the operations come out in reverse
 * and are turned. */
static bool match_scores(const struct fuse *f, struct attention_match *r,
                         int slot)
{
    const struct node *n = def_of(f, slot);
    while (n != NULL && !is_product(n)) {
        if (f->uses[slot] != 1 || !match_above(f, r, &slot)) {
            return false;
        }
        n = def_of(f, slot);
    }
    if (n == NULL || f->uses[slot] != 1 || r->mask < 0 ||
        !const_bool(f, n->in[3], false, true)) {
        return false;
    }
    for (int i = 0, j = r->form.n - 1; i < j; i++, j--) {
        struct attention_step t = r->form.ops[i];
        r->form.ops[i] = r->form.ops[j];
        r->form.ops[j] = t;
    }
    r->form.tx = const_bool(f, n->in[2], false, true);
    if (!r->form.tx && !const_bool(f, n->in[2], false, false)) {
        return false;
    }
    r->form.scores_fp16 = slot_is_fp16(f->m, slot);
    r->scores = slot;
    r->q = n->in[0];
    r->k = n->in[1];
    return true;
}

/* The one node that reads slot. */
static int reader_of(const struct fuse *f, int slot)
{
    for (int i = f->def[slot] + 1; f->uses[slot] == 1 && i < f->m->n_nodes;
         i++) {
        const struct node *n = f->m->nodes[i];
        for (int k = 0; k < CPU_ARGS_MAX; k++) {
            if (n->in[k] == slot) {
                return i;
            }
        }
    }
    return -1;
}

/* From the softmax's result down to the product with the values. */
static bool match_product(const struct fuse *f, struct attention_match *r,
                          int slot)
{
    r->form.probs_fp16 = slot_is_fp16(f->m, slot);
    for (;;) {
        int at = reader_of(f, slot);
        if (at < 0) {
            return false;
        }
        const struct node *n = f->m->nodes[at];
        if (is_product(n)) {
            r->v = n->in[1];
            r->product = at;
            const struct mil_type *a = type_of(f, slot);
            const struct mil_type *b = type_of(f, r->scores);
            return n->in[0] == slot && n->in[1] != slot &&
                   const_bool(f, n->in[2], false, false) &&
                   const_bool(f, n->in[3], false, false) && a != NULL &&
                   b != NULL && unknowns(a) <= 1 && a->rank == b->rank &&
                   memcmp(a->dims, b->dims,
                          (size_t)a->rank * sizeof(*a->dims)) == 0;
        }
        if (is(n, "cast")) {
            r->form.probs_fp16 =
                r->form.probs_fp16 || slot_is_fp16(f->m, n->out[0]);
        } else if (!keeps_rows(f, n)) {
            return false;
        }
        slot = n->out[0];
    }
}

static bool match_attention(const struct fuse *f, int at,
                            struct attention_match *r)
{
    const struct node *softmax = f->m->nodes[at];
    const struct mil_type *t = type_of(f, softmax->in[0]);
    return t != NULL && is_last_axis(f, softmax->in[1], t->rank) &&
           match_scores(f, r, softmax->in[0]) &&
           match_product(f, r, softmax->out[0]) &&
           f->m->consts[r->q].kind == VAL_NONE &&
           f->m->consts[r->k].kind == VAL_NONE &&
           f->m->consts[r->v].kind == VAL_NONE && type_of(f, r->q)->rank >= 2 &&
           type_of(f, r->k)->rank >= 2 && type_of(f, r->v)->rank >= 2;
}

int fuse_attention(struct fuse *f, struct err *e)
{
    struct backend_model *m = f->m;
    for (int i = 0; i < m->n_nodes; i++) {
        struct attention_match r;
        memset(&r, 0, sizeof(r));
        r.mask = -1;
        r.form.hidden = ATTENTION_MASK;
        if (!is(m->nodes[i], "softmax") || !match_attention(f, i, &r)) {
            continue;
        }
        const struct node *product = m->nodes[r.product];
        struct node *n = node_new(m, op_fused("attention"), product->name, 1);
        struct attention_form *form = arena_alloc(&m->arena, sizeof(*form));
        if (n == NULL || form == NULL) {
            return err_set(e, ERR_NOMEM, "the program");
        }
        *form = r.form;
        n->fused = form;
        n->in[0] = r.q;
        n->in[1] = r.k;
        n->in[2] = r.v;
        n->in[3] = r.mask;
        n->out[0] = product->out[0];
        m->nodes[r.product] = n;
    }
    return 0;
}
