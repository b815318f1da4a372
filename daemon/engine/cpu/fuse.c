/* fuse.c - what the "cpu" backend recognises before it runs a program.
 *
 *   masked write   write_state(slice_update(r0, r0 * (1 - sum w) + w new))
 *                  becomes store_rows(w, new)
 *   attention      softmax(q k^T [* c] + mask) v becomes attention(q, k, v,
 *                  mask), which looks at the visible positions only
 *   state reads    whose readers all take fp16 become read_state_in_place
 *
 * Recognition is by structure, never by name, and exact: what the fused form
 * computes has the bits of the plain one (attention.h, op_state.c say why).
 * Intermediate values must have no other reader. Everything that does not
 * match stays as it is. */
#include <string.h>

#include "engine/cpu/attention.h"
#include "engine/cpu/bind.h"
#include "engine/cpu/fuse.h"
#include "engine/cpu/ops.h"

static void count(struct fuse *f)
{
    const struct backend_model *m = f->m;
    for (int i = 0; i < m->n_slots; i++) {
        f->def[i] = -1;
        f->uses[i] = 0;
    }
    for (int i = 0; i < m->n_nodes; i++) {
        const struct node *n = m->nodes[i];
        for (int k = 0; k < CPU_ARGS_MAX; k++) {
            if (n->in[k] >= 0) {
                f->uses[n->in[k]]++;
            }
        }
        for (int k = 0; k < n->n_list; k++) {
            f->uses[n->list[k]]++;
        }
        for (int k = 0; k < n->n_out; k++) {
            f->def[n->out[k]] = i;
        }
    }
    for (size_t k = 0; k < m->n_out; k++) {
        f->uses[m->out_slot[k]]++;
    }
}

static bool is(const struct node *n, const char *type)
{
    return n != NULL && strcmp(n->def->type, type) == 0;
}

static const struct node *def_of(const struct fuse *f, int slot)
{
    return slot >= 0 && f->def[slot] >= 0 ? f->m->nodes[f->def[slot]] : NULL;
}

/* --- constants --- */

static bool const_float1(const struct fuse *f, int slot, float *ret)
{
    const struct val *v = slot >= 0 ? &f->m->consts[slot] : NULL;
    if (v == NULL || v->kind != VAL_F32 || v->n != 1) {
        return false;
    }
    *ret = v->f[0];
    return true;
}

static bool const_bool(const struct fuse *f, int slot, bool absent, bool want)
{
    const struct val *v = slot >= 0 ? &f->m->consts[slot] : NULL;
    if (v == NULL) {
        return absent == want;
    }
    return v->kind == VAL_BOOL && v->n == 1 && (v->i[0] != 0) == want;
}

/* A constant vector of which every element is `want`; absent is `absent`. */
static bool const_all(const struct fuse *f, int slot, bool absent, int32_t want)
{
    const struct val *v = slot >= 0 ? &f->m->consts[slot] : NULL;
    if (v == NULL) {
        return absent;
    }
    bool all = v->kind == VAL_I32 || v->kind == VAL_BOOL;
    for (size_t i = 0; all && i < v->n; i++) {
        all = v->i[i] == want;
    }
    return all;
}

static const struct mil_type *type_of(const struct fuse *f, int slot)
{
    return f->m->slot_type[slot];
}

/* The last axis, as a scalar or a vector of one. */
static bool is_last_axis(const struct fuse *f, int slot, int rank)
{
    const struct val *v = slot >= 0 ? &f->m->consts[slot] : NULL;
    return v != NULL && v->kind == VAL_I32 && v->n == 1 &&
           (v->i[0] == -1 || v->i[0] == rank - 1);
}

/* --- masked write --- */

/* A read of the state with no write to it between the read and node `at`. */
static bool is_read_of(const struct fuse *f, int slot, int state, int at)
{
    const struct node *n = def_of(f, slot);
    if (!is(n, "read_state") || n->state != state) {
        return false;
    }
    for (int i = f->def[slot] + 1; i < at; i++) {
        const struct node *w = f->m->nodes[i];
        if (w->state == state && w->n_out == 0) {
            return false;
        }
    }
    return true;
}

/* keep = 1 - reduce_sum(mask, last axis, keep_dims) */
static bool match_keep(const struct fuse *f, int slot, int *mask)
{
    const struct node *sub = def_of(f, slot);
    float one = 0.0f;
    if (!is(sub, "sub") || !const_float1(f, sub->in[0], &one) || one != 1.0f) {
        return false;
    }
    const struct node *sum = def_of(f, sub->in[1]);
    if (!is(sum, "reduce_sum") || !const_bool(f, sum->in[2], false, true) ||
        type_of(f, sum->in[0]) == NULL ||
        !is_last_axis(f, sum->in[1], type_of(f, sum->in[0])->rank)) {
        return false;
    }
    *mask = sum->in[0];
    return slot_is_fp16(f->m, slot) && slot_is_fp16(f->m, sub->in[1]);
}

/* kept = state * keep, put = matmul(mask, new) */
static bool match_blend(const struct fuse *f, int kept, int put, int at,
                        struct fuse_store *r)
{
    const struct node *mul = def_of(f, kept);
    const struct node *mm = def_of(f, put);
    int mask = -1;
    if (!is(mul, "mul") || !is(mm, "matmul") ||
        !const_bool(f, mm->in[2], false, false) ||
        !const_bool(f, mm->in[3], false, false) || !slot_is_fp16(f->m, kept) ||
        !slot_is_fp16(f->m, put)) {
        return false;
    }
    for (int k = 0; k < 2; k++) {
        if (is_read_of(f, mul->in[k], r->state, at) &&
            match_keep(f, mul->in[1 - k], &mask) && mask == mm->in[0]) {
            r->mask = mask;
            r->new = mm->in[1];
            return true;
        }
    }
    return false;
}

/* All of the state is replaced: begin 0 or masked, end masked, stride 1. */
static bool is_full_update(const struct fuse *f, const struct node *n)
{
    return (const_all(f, n->in[2], false, 0) ||
            const_all(f, n->in[5], false, 1)) &&
           const_all(f, n->in[6], false, 1) &&
           const_all(f, n->in[4], true, 1) && const_all(f, n->in[7], true, 0);
}

/* [1, heads, S, D] <- mask [1, 1, S, T], new [1, heads, T, D] */
static bool store_fits(const struct fuse *f, const struct fuse_store *r)
{
    const struct mil_type *s = f->m->state[r->state].type;
    const struct mil_type *w = type_of(f, r->mask);
    const struct mil_type *n = type_of(f, r->new);
    return w != NULL && n != NULL && s->rank == 4 && w->rank == 4 &&
           n->rank == 4 && s->dims[0] == 1 && w->dims[0] == 1 &&
           w->dims[1] == 1 && n->dims[0] == 1 && w->dims[2] == s->dims[2] &&
           n->dims[1] == s->dims[1] && n->dims[3] == s->dims[3] &&
           f->m->consts[r->new].kind == VAL_NONE;
}

bool fuse_match_store(const struct fuse *f, int at, struct fuse_store *r)
{
    const struct node *write = f->m->nodes[at];
    int data = write->in[1];
    const struct node *n = def_of(f, data);
    *r = (struct fuse_store){write->state, -1, -1, -1, -1, true};
    if (!is(write, "write_state")) {
        return false;
    }
    if (is(n, "slice_update")) {
        if (!slot_is_fp16(f->m, data) || !is_full_update(f, n)) {
            return false;
        }
        r->alone = f->uses[data] == 1;
        r->update = data;
        data = n->in[1];
        n = def_of(f, data);
    }
    if (!is(n, "add") || !slot_is_fp16(f->m, data)) {
        return false;
    }
    r->blend = data;
    r->alone = r->alone && f->uses[data] == 1;
    return (match_blend(f, n->in[0], n->in[1], at, r) ||
            match_blend(f, n->in[1], n->in[0], at, r)) &&
           store_fits(f, r);
}

static int fuse_stores(struct fuse *f, struct err *e)
{
    for (int i = 0; i < f->m->n_nodes; i++) {
        struct fuse_store r;
        if (!fuse_match_store(f, i, &r) || !r.alone) {
            continue;
        }
        struct node *n =
            node_new(f->m, op_fused("store_rows"), f->m->nodes[i]->name, 0);
        if (n == NULL) {
            return err_set(e, ERR_NOMEM, "the program");
        }
        n->state = r.state;
        n->in[0] = r.mask;
        n->in[1] = r.new;
        f->m->nodes[i] = n;
    }
    return 0;
}

/* --- attention --- */

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
    if (is(n, "cast") || is(n, "expand_dims") || is(n, "reshape")) {
        return is_given(f, n->in[0]);
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

static int unknowns(const struct mil_type *t)
{
    int n = 0;
    for (int i = 0; i < t->rank; i++) {
        n += t->dims[i] == MIL_UNKNOWN;
    }
    return n;
}

/* One operation above the softmax; *slot goes on to its operand. False when
 * it does not belong. */
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
        if (!is_given(f, n->in[m]) || unknowns(type_of(f, *slot)) > 1) {
            return false;
        }
        r->mask = n->in[m];
        r->form.space = type_of(f, *slot);
        r->form.ops[k].op = ATTENTION_ADD_MASK;
        *slot = n->in[1 - m];
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
    while (n != NULL && !is(n, "matmul")) {
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
        if (is(n, "matmul")) {
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

static int fuse_attention(struct fuse *f, struct err *e)
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

/* --- state reads --- */

static bool is_view(const struct node *n)
{
    return is(n, "reshape") || is(n, "expand_dims") || is(n, "squeeze") ||
           is(n, "identity");
}

static bool is_output(const struct backend_model *m, int slot)
{
    for (size_t k = 0; k < m->n_out; k++) {
        if (m->out_slot[k] == slot) {
            return true;
        }
    }
    return false;
}

/* Do all readers of slot, and of views of it, take fp16? *last is the last
 * node among them. */
static bool takes_half(const struct fuse *f, int slot, int *last)
{
    const struct backend_model *m = f->m;
    if (is_output(m, slot)) {
        return false;
    }
    for (int i = f->def[slot] + 1; i < m->n_nodes; i++) {
        const struct node *n = m->nodes[i];
        for (int k = 0; k < n->n_list; k++) {
            if (n->list[k] == slot) {
                return false;
            }
        }
        for (int k = 0; k < CPU_ARGS_MAX; k++) {
            if (n->in[k] != slot) {
                continue;
            }
            bool ok = (is(n, "attention") && (k == 1 || k == 2)) ||
                      (is(n, "matmul") && k == 1) ||
                      (is_view(n) && k == 0 && takes_half(f, n->out[0], last));
            if (!ok) {
                return false;
            }
            *last = i > *last ? i : *last;
        }
    }
    return true;
}

static int fuse_reads(struct fuse *f, struct err *e)
{
    struct backend_model *m = f->m;
    for (int i = 0; i < m->n_nodes; i++) {
        struct node *n = m->nodes[i];
        int last = i;
        if (!is(n, "read_state") || !takes_half(f, n->out[0], &last)) {
            continue;
        }
        bool clean = true; /* not written before the last reader */
        for (int k = i + 1; k < last; k++) {
            clean = clean && !(m->nodes[k]->state == n->state &&
                               m->nodes[k]->n_out == 0);
        }
        if (!clean) {
            continue;
        }
        struct node *r =
            node_new(m, op_fused("read_state_in_place"), n->name, 1);
        if (r == NULL) {
            return err_set(e, ERR_NOMEM, "the program");
        }
        r->state = n->state;
        r->in[0] = n->in[0];
        r->out[0] = n->out[0];
        m->nodes[i] = r;
    }
    return 0;
}

int fuse_open(struct fuse *f, struct backend_model *m, struct err *e)
{
    size_t slots = (size_t)m->n_slots + 1;
    *f = (struct fuse){.m = m};
    f->def = calloc(slots, sizeof(*f->def));
    f->uses = calloc(slots, sizeof(*f->uses));
    if (f->def == NULL || f->uses == NULL) {
        fuse_close(f);
        return err_set(e, ERR_NOMEM, "the program");
    }
    count(f);
    return 0;
}

void fuse_close(struct fuse *f)
{
    free(f->def);
    free(f->uses);
    *f = (struct fuse){0};
}

int fuse_run(struct backend_model *m, struct err *e)
{
    static int (*const passes[])(struct fuse *, struct err *) = {
        fuse_stores, fuse_attention, fuse_reads};
    struct fuse f;
    int rc = fuse_open(&f, m, e);
    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; i < countof(passes) && rc == 0; i++) {
        count(&f);
        rc = passes[i](&f, e);
        if (rc == 0) {
            rc = bind_drop_dead(m, e);
        }
    }
    fuse_close(&f);
    return rc;
}
