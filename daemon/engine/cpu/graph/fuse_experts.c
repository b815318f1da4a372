/* fuse_experts.c - a mixture of experts in dense form
 * (convert/program_experts.c) in a program that runs as a whole: the sum over
 * the experts becomes "experts", which computes the rows that chose one, and
 * the count of better scores "rank", which has no table of all pairs.
 *
 *   reduce_sum over e of D_e f(P_e x, Q_e x, gates)
 *     from the sum up: reshape, a convolution with a group an expert, then
 *     operations on elements down to the products and the gates
 *   reduce_sum of select(other > own, 1, select(other >= own, lower index, 0))
 *
 * Programs of one position have a better form as rows (rows/row_experts.c),
 * where they run as such (fuse_whole's `several`).
 *
 * f must be zero where the gates are: they enter by a product, and after that
 * there are only products. Sums over the experts are taken in order, not in the
 * plain form's lanes, so these bits differ from the interpreter's; not so for
 * the interpreter itself (fuse_chosen), where "rank" is left alone: scores that
 * are no numbers make a table of NaN. */
#include "engine/cpu/graph/fuse_impl.h"
#include "engine/cpu/ops/op_experts.h"

#define SLOTS_MAX EXPERTS_REGISTERS

struct found {
    const struct fuse *f;
    struct experts_form form;
    int64_t t;                   /* of the input; MIL_UNKNOWN when it varies */
    int x, by, down, flat, out;  /* slots; -1: not known yet; flat: of D_e's
                                    results */
    int w[EXPERTS_PRODUCTS_MAX], bias[EXPERTS_PRODUCTS_MAX];
    int slot[SLOTS_MAX];         /* of each register */
    bool zero[SLOTS_MAX];        /* zero where the gate is */
    bool bad;                    /* more than there is room for */
};

/* --- shapes --- */

static bool is_shape(const struct fuse *f, int slot, int64_t a, int64_t b,
                     int64_t c, int64_t d)
{
    const struct mil_type *t = slot >= 0 ? type_of(f, slot) : NULL;
    return t != NULL && t->rank == 4 && t->dims[0] == a && t->dims[1] == b &&
           t->dims[2] == c && t->dims[3] == d;
}

/* Elements of all experts, in one of the two shapes that they have. */
static bool is_inner(const struct found *m, int slot)
{
    int64_t n = (int64_t)m->form.n;
    int64_t w = (int64_t)m->form.width;
    return is_shape(m->f, slot, 1, n * w, m->t, 1) ||
           is_shape(m->f, slot, 1, n, w, m->t);
}

static const struct val *constant(const struct fuse *f, int slot)
{
    const struct val *v = slot >= 0 ? &f->m->consts[slot] : NULL;
    return v != NULL && v->kind != VAL_NONE ? v : NULL;
}

static bool is_int(const struct fuse *f, int slot, int32_t absent, int32_t want)
{
    const struct val *v = constant(f, slot);
    if (v == NULL) {
        return slot < 0 && absent == want;
    }
    return v->kind == VAL_I32 && v->n == 1 && v->i[0] == want;
}

/* Operands of conv (optable.c). */
enum {
    CONV_X,
    CONV_W,
    CONV_BIAS,
    CONV_STRIDES,
    CONV_PAD_TYPE,
    CONV_GROUPS = 7,
};

/* A convolution of single positions: its weight's rows and columns. */
static bool is_pointwise(const struct fuse *f, const struct node *n,
                         int32_t groups, size_t *rows, size_t *cols)
{
    const struct val *w = is(n, "conv") ? constant(f, n->in[CONV_W]) : NULL;
    const struct val *pad =
        w != NULL ? constant(f, n->in[CONV_PAD_TYPE]) : NULL;
    if (pad == NULL || pad->kind != VAL_STR || strcmp(pad->str, "valid") != 0 ||
        w->rank != 4 || w->dims[2] != 1 || w->dims[3] != 1 ||
        !fuse_all(f, n->in[CONV_STRIDES], true, 1) ||
        !is_int(f, n->in[CONV_GROUPS], 1, groups)) {
        return false;
    }
    *rows = (size_t)w->dims[0];
    *cols = (size_t)w->dims[1];
    return true;
}

/* --- f --- */

static int reg_of(struct found *m, int slot, int depth);

static int known(const struct found *m, int slot)
{
    int last = EXPERTS_FIRST_STEP + m->form.n_steps;
    for (int r = 0; r < last; r++) {
        if (m->slot[r] == slot) {
            return r;
        }
    }
    return -1;
}

/* A product of x and all experts' rows. */
static int product_reg(struct found *m, const struct node *n)
{
    size_t rows = 0;
    size_t cols = 0;
    int i = m->form.n_products;
    const struct val *b = constant(m->f, n->in[CONV_BIAS]);
    if (i == EXPERTS_PRODUCTS_MAX ||
        !is_pointwise(m->f, n, 1, &rows, &cols) ||
        rows != m->form.n * m->form.width ||
        (m->x >= 0 && m->x != n->in[CONV_X]) ||
        (n->in[CONV_BIAS] >= 0 &&
         (b == NULL || b->kind != VAL_F32 || b->n != rows)) ||
        !is_shape(m->f, n->in[CONV_X], 1, (int64_t)cols, m->t, 1)) {
        return -1;
    }
    m->x = n->in[CONV_X];
    m->form.cols = cols;
    m->w[i] = n->in[CONV_W];
    m->bias[i] = n->in[CONV_BIAS];
    m->slot[i] = n->out[0];
    m->form.n_products++;
    return i;
}

/* The gates, spread over an expert's elements. */
static bool take_gates(struct found *m, int slot)
{
    if (!is_shape(m->f, slot, 1, (int64_t)m->form.n, 1, m->t) ||
        (m->by >= 0 && m->by != slot)) {
        return false;
    }
    m->by = slot;
    m->slot[EXPERTS_BY] = slot;
    m->zero[EXPERTS_BY] = true;
    return true;
}

static int step_reg(struct found *m, const struct node *n,
                    const struct experts_step *t, bool zero)
{
    int k = m->form.n_steps;
    if (k == EXPERTS_STEPS_MAX) {
        m->bad = true;
        return -1;
    }
    m->form.steps[k] = *t;
    m->slot[EXPERTS_FIRST_STEP + k] = n->out[0];
    m->zero[EXPERTS_FIRST_STEP + k] = zero;
    m->form.n_steps++;
    return EXPERTS_FIRST_STEP + k;
}

static int binary_reg(struct found *m, const struct node *n, int depth)
{
    struct experts_step t = {.def = n->def, .binary = true, .in = {-1, -1}};
    bool zero = false;
    for (int i = 0; i < 2; i++) {
        float c = 0;
        if (const_float1(m->f, n->in[i], &c)) {
            t.c = c;
            continue;
        }
        bool gates = is(n, "mul") && take_gates(m, n->in[i]);
        t.in[i] = gates ? EXPERTS_BY : reg_of(m, n->in[i], depth);
        if (t.in[i] < 0) {
            return -1;
        }
        zero = zero || (is(n, "mul") && m->zero[t.in[i]]);
    }
    bool elements = (t.in[0] >= 0 && t.in[0] != EXPERTS_BY) ||
                    (t.in[1] >= 0 && t.in[1] != EXPERTS_BY);
    return elements ? step_reg(m, n, &t, zero) : -1;
}

static bool is_arithmetic(const struct node *n)
{
    return n->def->prep == binary_prep && n->def->sub <= BIN_MIN;
}

/* Mode of a gelu: its second operand. */
static int gelu_mode(const struct found *m, const struct node *n)
{
    const struct val *v = constant(m->f, n->in[1]);
    if (v == NULL) {
        return n->in[1] < 0 ? 0 : -1;
    }
    return v->kind == VAL_STR ? unary_gelu_mode(v->str) : -1;
}

/* A unary operation that f may have; t->in is set later. */
static bool is_unary(const struct found *m, const struct node *n,
                     struct experts_step *t)
{
    *t = (struct experts_step){.def = n->def, .in = {-1, -1}};
    if (n->def->prep != unary_prep) {
        return false;
    }
    if (n->def->sub == UN_GELU) {
        t->gelu = gelu_mode(m, n);
        return t->gelu >= 0;
    }
    return n->def->sub == UN_SIGMOID || n->def->sub == UN_SILU ||
           n->def->sub == UN_TANH || n->def->sub == UN_RELU;
}

/* The register that holds slot's elements; -1: it is not part of f. */
static int reg_of(struct found *m, int slot, int depth)
{
    const struct node *n = def_of(m->f, slot);
    struct experts_step t;
    int r = known(m, slot);
    if (r >= 0) {
        return r;
    }
    if (n == NULL || depth == SLOTS_MAX || m->bad || !is_inner(m, slot)) {
        return -1;
    }
    if (is(n, "reshape")) {
        return is_inner(m, n->in[0]) ? reg_of(m, n->in[0], depth + 1) : -1;
    }
    if (is(n, "conv")) {
        return product_reg(m, n);
    }
    if (is_unary(m, n, &t)) {
        t.in[0] = reg_of(m, n->in[0], depth + 1);
        return t.in[0] >= 0 ? step_reg(m, n, &t, false) : -1;
    }
    return is_arithmetic(n) ? binary_reg(m, n, depth + 1) : -1;
}

/* --- the mixture --- */

/* The sum over axis 1 of [1, n, out, T], by a convolution of n groups. */
static bool match_down(struct found *m, const struct node *sum, int *act)
{
    const struct fuse *f = m->f;
    const struct mil_type *t = type_of(f, sum->in[0]);
    const struct node *flat = def_of(f, sum->in[0]);
    const struct node *conv =
        is(flat, "reshape") ? def_of(f, flat->in[0]) : NULL;
    size_t rows = 0;
    if (t == NULL || t->rank != 4 || t->dims[0] != 1 || t->dims[1] < 2 ||
        t->dims[2] < 1 || !is_int(f, sum->in[1], 0, 1) || conv == NULL ||
        type_of(f, sum->out[0]) == NULL ||
        t->dims[1] > INT32_MAX ||
        !is_pointwise(f, conv, (int32_t)t->dims[1], &rows, &m->form.width) ||
        conv->in[CONV_BIAS] >= 0) {
        return false;
    }
    m->form.n = (size_t)t->dims[1];
    m->form.out = (size_t)t->dims[2];
    m->form.type = type_of(f, sum->out[0]);
    m->t = t->dims[3];
    m->down = conv->in[CONV_W];
    m->flat = conv->out[0];
    m->out = sum->out[0];
    *act = conv->in[CONV_X];
    return !(f->several && m->t == 1) && rows == m->form.n * m->form.out &&
           is_shape(f, flat->in[0], 1, (int64_t)rows, m->t, 1);
}

static bool match(struct found *m, const struct node *sum)
{
    int act = -1;
    if (!is(sum, "reduce_sum") || !match_down(m, sum, &act)) {
        return false;
    }
    int r = reg_of(m, act, 0);
    int last = EXPERTS_FIRST_STEP + m->form.n_steps - 1;
    return !m->bad && m->form.n_steps > 0 && r == last && m->zero[r] &&
           m->form.n_products > 0 && m->by >= 0;
}

/* What an exact form knows beside: where it rounds, and room for its experts'
 * peaks. */
static bool make_exact(struct backend_model *m, const struct found *r,
                       struct experts_form *form)
{
    form->exact = true;
    for (int i = 0; i < EXPERTS_FIRST_STEP + form->n_steps; i++) {
        form->half[i] = r->slot[i] >= 0 && slot_is_fp16(m, r->slot[i]);
    }
    form->half_down = slot_is_fp16(m, r->flat);
    form->peaks = arena_array(&m->arena, form->n, sizeof(*form->peaks));
    form->measured = arena_array(&m->arena, 1, sizeof(*form->measured));
    return form->peaks != NULL && form->measured != NULL;
}

static int put(struct backend_model *m, int at, const struct found *r,
               bool exact, struct err *e)
{
    struct node *n = node_new(m, op_fused("experts"), m->nodes[at]->name, 1);
    struct experts_form *form = arena_alloc(&m->arena, sizeof(*form));
    if (n == NULL || form == NULL) {
        return err_set(e, ERR_NOMEM, "the program");
    }
    *form = r->form;
    if (exact && !make_exact(m, r, form)) {
        return err_set(e, ERR_NOMEM, "the program");
    }
    n->fused = form;
    n->in[EXPERTS_IN_X] = r->x;
    n->in[EXPERTS_IN_BY] = r->by;
    n->in[EXPERTS_IN_DOWN] = r->down;
    for (int k = 0; k < EXPERTS_PRODUCTS_MAX; k++) {
        n->in[EXPERTS_IN_PRODUCT + k] = r->w[k];
        n->in[EXPERTS_IN_BIAS + k] = r->bias[k];
    }
    n->out[0] = r->out;
    m->nodes[at] = n;
    return 0;
}

/* --- rank --- */

/* [1, n, 1, n]: one where the last index is lower. */
static bool is_lower(const struct fuse *f, int slot, int64_t n)
{
    const struct val *v = constant(f, slot);
    if (v == NULL || v->kind != VAL_F32 || v->rank != 4 || v->dims[0] != 1 ||
        v->dims[1] != n || v->dims[2] != 1 || v->dims[3] != n) {
        return false;
    }
    for (size_t i = 0; i < v->n; i++) {
        bool lower = i % (size_t)n < i / (size_t)n;
        if (v->f[i] != (lower ? 1.0f : 0.0f)) {
            return false;
        }
    }
    return true;
}

/* lower index + 0 * others */
static bool is_first(const struct fuse *f, int slot, int others, int64_t n)
{
    const struct node *add = def_of(f, slot);
    const struct node *mul = is(add, "add") ? def_of(f, add->in[1]) : NULL;
    float zero = 1;
    return is(mul, "mul") && mul->in[0] == others &&
           const_float1(f, mul->in[1], &zero) && zero == 0.0f &&
           is_lower(f, add->in[0], n);
}

static bool is_swapped(const struct fuse *f, int slot, int keys)
{
    static const int32_t perm[4] = {0, 3, 2, 1};
    const struct node *n = def_of(f, slot);
    const struct val *v = is(n, "transpose") ? constant(f, n->in[1]) : NULL;
    return v != NULL && v->kind == VAL_I32 && v->n == 4 &&
           memcmp(v->i, perm, sizeof(perm)) == 0 && n->in[0] == keys;
}

/* sum over the others of what is better than `keys`; its slot, or -1 */
static int match_rank(const struct fuse *f, const struct node *sum)
{
    const struct node *more =
        is(sum, "reduce_sum") ? def_of(f, sum->in[0]) : NULL;
    const struct node *above =
        is(more, "select") ? def_of(f, more->in[0]) : NULL;
    const struct node *same = above != NULL ? def_of(f, more->in[2]) : NULL;
    const struct node *ge = is(same, "select") ? def_of(f, same->in[0]) : NULL;
    float one = 0;
    float zero = 1;
    if (!is(above, "greater") || !is(ge, "greater_equal") ||
        above->in[0] != ge->in[0] || above->in[1] != ge->in[1] ||
        !const_float1(f, more->in[1], &one) || one != 1.0f ||
        !const_float1(f, same->in[2], &zero) || zero != 0.0f ||
        !is_int(f, sum->in[1], 0, 3) ||
        !const_bool(f, sum->in[2], false, true)) {
        return -1;
    }
    int keys = above->in[1];
    const struct mil_type *t = type_of(f, keys);
    bool fits = t != NULL && t->rank == 4 && t->dims[1] > 0 &&
                is_shape(f, keys, 1, t->dims[1], t->dims[2], 1) &&
                is_swapped(f, above->in[0], keys) &&
                is_first(f, same->in[1], above->in[0], t->dims[1]);
    return fits ? keys : -1;
}

int fuse_experts(struct fuse *f, struct err *e)
{
    struct backend_model *m = f->m;
    for (int i = 0; i < m->n_nodes; i++) {
        struct found r = {.f = f, .x = -1, .by = -1};
        memset(r.slot, 0xff, sizeof(r.slot));
        memset(r.w, 0xff, sizeof(r.w));
        memset(r.bias, 0xff, sizeof(r.bias));
        int keys = f->exact ? -1 : match_rank(f, m->nodes[i]);
        if (keys >= 0) {
            struct node *n =
                node_new(m, op_fused("rank"), m->nodes[i]->name, 1);
            if (n == NULL) {
                return err_set(e, ERR_NOMEM, "the program");
            }
            n->in[0] = keys;
            n->out[0] = m->nodes[i]->out[0];
            m->nodes[i] = n;
        } else if (match(&r, m->nodes[i])) {
            RETERR(put(m, i, &r, f->exact, e));
        }
    }
    return 0;
}
