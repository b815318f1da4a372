/* fuse.c - groups of ops that the "cpu" backend replaces by fused forms.
 *
 *   masked write   write_state(slice_update(r0, r0 * (1 - sum w) + w new))
 *                  becomes store_rows(w, new)
 *   attention      softmax(q k^T [* c] + mask) v becomes attention(q, k, v,
 *                  mask), which looks at the visible positions only
 *                  (fuse_attention.c)
 *   experts        of a mixture in dense form: only the rows that chose one are
 *                  computed (fuse_experts.c), in programs that run as a whole
 *   state reads    become read_state_in_place where all readers take fp16
 *
 * They are recognised by structure, never by name. A fused form gives the same
 * bits as the plain ops (op_attention.h and op_state.c say why), but for
 * experts; fuse_chosen's do. Intermediate values must have no other reader. Ops that do not match
 * are not changed. */
#include "engine/cpu/graph/fuse_impl.h"

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
    return (fuse_all(f, n->in[2], false, 0) ||
            fuse_all(f, n->in[5], false, 1)) &&
           fuse_all(f, n->in[6], false, 1) &&
           fuse_all(f, n->in[4], true, 1) && fuse_all(f, n->in[7], true, 0);
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

/* Views of views that are followed: a hostile program may have a chain of them
 * that is longer than the stack is deep. */
#define VIEWS_MAX 16

/* Do all readers of slot, and of views of it, take fp16? *last is the last
 * node among them. */
static bool takes_half(const struct fuse *f, int slot, int depth, int *last)
{
    const struct backend_model *m = f->m;
    if (is_output(m, slot) || depth > VIEWS_MAX) {
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
                      (is_view(n) && k == 0 &&
                       takes_half(f, n->out[0], depth + 1, last));
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
        if (!is(n, "read_state") || !takes_half(f, n->out[0], 0, &last)) {
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

typedef int pass_fn(struct fuse *f, struct err *e);

static int run_passes(struct backend_model *m, pass_fn *const *passes,
                      size_t n, bool several, bool exact, struct err *e)
{
    struct fuse f;
    int rc = fuse_open(&f, m, e);
    if (rc < 0) {
        return rc;
    }
    f.several = several;
    f.exact = exact;
    for (size_t i = 0; i < n; i++) {
        count(&f);
        CHECK(passes[i](&f, e));
        CHECK(bind_drop_dead(m, e));
    }
out:
    fuse_close(&f);
    return rc;
}

int fuse_run(struct backend_model *m, struct err *e)
{
    static pass_fn *const passes[] = {fuse_stores, fuse_attention, fuse_reads};
    return run_passes(m, passes, countof(passes), false, false, e);
}

int fuse_whole(struct backend_model *m, bool several, struct err *e)
{
    static pass_fn *const passes[] = {fuse_experts};
    return run_passes(m, passes, countof(passes), several, false, e);
}

int fuse_chosen(struct backend_model *m, struct err *e)
{
    static pass_fn *const passes[] = {fuse_experts};
    return run_passes(m, passes, countof(passes), false, true, e);
}
