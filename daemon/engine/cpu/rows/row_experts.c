/* row_experts.c - a mixture of experts: only the rows of experts whose gate is
 * not zero are read.
 *
 *   sum over e of D_e (f(G_e x) * (g_e * (U_e x)))
 *
 * is recognised in the dense form (convert/program_experts.c): G and U are one
 * product each of all experts, D a convolution with a group an expert, and the
 * sum is taken over the experts. The gates may come from anywhere: what is
 * multiplied by zero adds zero, so it need not be computed, whatever chose.
 *
 * Rows of a run are grouped by expert; each expert multiplies its rows, and
 * results are added experts in order, so a row's bits depend on that row alone.
 * As many experts as there is room for are computed together, in two products:
 * gate and up of all, then down of all. So threads divide the weights of all of
 * them, and stream from one expert's into the next one's.
 */
#include <string.h>

#include "base/crew.h"
#include "base/num.h"
#include "engine/cpu/kernels/floats.h"
#include "engine/cpu/ops/ops.h"
#include "engine/cpu/rows/row_make.h"

#define PARALLEL_MIN 8192 /* activations that pay for waking a thread */

/* --- a part of a weight --- */

/* Can `rows` neighbours, from a multiple of `rows` on, be a weight? */
static bool can_cut(const struct weight *w, size_t rows)
{
    bool table = weight_entries(w->kind) > 0;
    return w->kind != WEIGHT_ROWS &&
           (!table || (w->block[0] > 0 && rows % (size_t)w->block[0] == 0));
}

static struct weight cut(const struct weight *w, size_t first, size_t rows)
{
    struct weight r = *w;
    r.rows = rows;
    r.type.dims[0] = (int64_t)rows;
    r.data = (const char *)w->data + first * weight_row_bytes(w);
    if (w->scale != NULL) {
        r.scale = w->scale + first;
    }
    if (w->table != NULL) {
        const size_t table = first / (size_t)w->block[0];
        r.table = w->table + table * weight_entries(w->kind);
        r.narrow = w->narrow != NULL ? w->narrow + table : NULL;
    }
    return r;
}

/* --- recognition --- */

/* The product with a weight that makes a value, alone and without a bias. */
static const struct weight *weight_of(const struct row_program *p, int value,
                                      int *from)
{
    size_t at = 0;
    int root = row_root(p, value, &at);
    const struct row_op *op = row_def(p, root);
    if (op == NULL || op->kind != ROW_LINEAR || at != 0 ||
        p->v[root].n != p->v[value].n || op->linear.parts != 1 ||
        op->linear.bias[0] != NULL) {
        return NULL;
    }
    *from = op->in[0];
    return op->linear.w[0];
}

/* reduce_sum over the one axis of n, which has `width` neighbours each. */
static bool sums_over(const struct row_program *p, const struct row_op *op,
                      size_t n, size_t width)
{
    const struct val *x = row_val(p, op->in[0]);
    const struct val *o = row_val(p, op->out[0]);
    if (op->n_in != 1 || x->n != n * width || o->n != width ||
        x->rank != o->rank) {
        return false;
    }
    size_t after = 1;
    int i = x->rank - 1;
    for (; i >= 0 && after < width; i--) {
        after *= (size_t)x->dims[i];
        if (o->dims[i] != x->dims[i]) {
            return false;
        }
    }
    for (; i >= 0 && x->dims[i] == 1; i--) {
    }
    return after == width && i >= 0 && (size_t)x->dims[i] == n &&
           o->dims[i] == 1;
}

/* Does element k of `by` meet the `width` neighbours from k * width on? */
static bool spreads(const struct val *by, const struct val *x, size_t width)
{
    size_t after = 1;
    int i = x->rank - 1;
    if (by->rank != x->rank) {
        return false;
    }
    for (; i >= 0 && after < width; i--) {
        after *= (size_t)x->dims[i];
        if (by->dims[i] != 1) {
            return false;
        }
    }
    for (; i >= 0; i--) {
        if (by->dims[i] != x->dims[i]) {
            return false;
        }
    }
    return after == width;
}

static bool weights_fit(const struct row_experts *f, size_t d)
{
    const struct weight *g = f->w[EXPERTS_GATE];
    const struct weight *u = f->w[EXPERTS_UP];
    const struct weight *w = f->w[EXPERTS_DOWN];
    return g->rows == f->n * f->width && u->rows == g->rows &&
           u->cols == g->cols && w->rows == f->n * d && w->cols == f->width &&
           linear_wants_integer(g) == linear_wants_integer(u) &&
           can_cut(g, f->width) && can_cut(u, f->width) && can_cut(w, d);
}

/* (U x) times each expert's gate: U, and what the gates and x are. */
static const struct weight *match_up(const struct row_program *p, int value,
                                     const struct row_experts *f, int *x,
                                     int *by)
{
    const struct row_op *mul = row_maker(p, value, "mul");
    const struct weight *w = NULL;
    for (int k = 0; w == NULL && mul != NULL && mul->n_in == 2 && k < 2; k++) {
        *by = mul->in[1 - k];
        if (p->v[*by].n == f->n && p->v[mul->in[k]].n == f->n * f->width &&
            spreads(row_val(p, *by), row_val(p, mul->out[0]), f->width)) {
            w = weight_of(p, mul->in[k], x);
        }
    }
    return w;
}

/* act(G x) * (U x * gates) */
static bool match_inner(const struct row_program *p, int value,
                        struct row_experts *f, int *x, int *by, int *step)
{
    size_t at = 0;
    int other = -1;
    int root = row_root(p, value, &at);
    const struct row_op *glu = row_def(p, root);
    if (glu == NULL || glu->kind != ROW_GLU || at != 0 ||
        p->v[root].n != p->v[value].n) {
        return false;
    }
    f->w[EXPERTS_GATE] = weight_of(p, glu->in[0], x);
    f->w[EXPERTS_UP] = match_up(p, glu->in[1], f, &other, by);
    *step = glu->step;
    return f->w[EXPERTS_GATE] != NULL && f->w[EXPERTS_UP] != NULL &&
           row_same(p, *x, other);
}

/* The number of groups of a convolution that row_pass_linear left, which is
 * otherwise a product; 0: it is none. */
static size_t groups_of(const struct row_program *p, const struct row_op *op)
{
    const struct node *n = row_node(p, op);
    const struct val *w = row_val(p, n->in[1]);
    int arg = row_arg(n, "groups");
    const struct val *g = arg >= 0 && n->in[arg] >= 0
                              ? &p->m->consts[n->in[arg]]
                              : NULL;
    bool plain = op->n_in == 1 && op->in[0] == n->in[0] && w->w != NULL &&
                 row_is_product(p, n) && n->in[2] < 0 && g != NULL &&
                 g->kind == VAL_I32 && g->n == 1 && g->i[0] > 1;
    return plain && row_val(p, n->in[0])->kind == VAL_F32 ? (size_t)g->i[0] : 0;
}

static bool match_experts(const struct row_program *p, const struct row_op *op,
                          struct row_experts *f, int *x, int *by, int *step)
{
    const struct row_op *conv = row_maker(p, op->in[0], "conv");
    size_t groups = conv != NULL ? groups_of(p, conv) : 0;
    if (groups == 0) {
        return false;
    }
    size_t d = p->v[op->out[0]].n;
    *f = (struct row_experts){.n = groups};
    f->w[EXPERTS_DOWN] = row_val(p, row_node(p, conv)->in[1])->w;
    f->width = f->w[EXPERTS_DOWN]->cols;
    return sums_over(p, op, groups, d) &&
           match_inner(p, conv->in[0], f, x, by, step) && weights_fit(f, d);
}

int row_pass_experts(struct row_program *p, struct err *e)
{
    for (int i = 0; i < p->n_ops; i++) {
        struct row_op *op = &p->ops[i];
        struct row_experts f;
        int x = -1;
        int by = -1;
        int step = -1;
        if (row_is(p, op, "reduce_sum") &&
            match_experts(p, op, &f, &x, &by, &step)) {
            op->kind = ROW_EXPERTS;
            op->step = step;
            op->n_in = 2;
            op->in[0] = x;
            op->in[1] = by;
            op->experts = f;
        }
    }
    return row_pass_dead(p, e);
}

/* --- memory --- */

size_t row_experts_inputs(const struct row_experts *f)
{
    return num_max(f->w[EXPERTS_GATE]->cols, f->width);
}

size_t row_experts_floats(const struct row_experts *f)
{
    return f->w[EXPERTS_DOWN]->rows / f->n + 3 * f->width;
}

/* Entries that are computed together, at most. One expert's always fit. */
static size_t entries_most(const struct row_program *p,
                           const struct row_experts *f)
{
    return num_max(p->rows_max, f->n);
}

static int reserve(struct row_program *p, const struct weight *w, size_t n,
                   struct err *e)
{
    bool integer = linear_wants_integer(w);
    linear_in_length(p->lin, w->cols);
    return linear_in_reserve(p->lin, p->kernels, n, integer, !integer,
                             p->m->threads, e);
}

int row_experts_open(struct row_program *p, struct err *e)
{
    size_t most = 0;
    size_t entries = 0;
    for (int i = 0; i < p->n_ops; i++) {
        if (p->ops[i].kind == ROW_EXPERTS) {
            const struct row_experts *f = &p->ops[i].experts;
            size_t n = entries_most(p, f);
            for (size_t k = 0; k < EXPERTS_MATRICES; k++) {
                RETERR(reserve(p, f->w[k], n, e));
            }
            most = num_max(most, row_experts_floats(f) * n);
            entries = num_max(entries, n);
        }
    }
    if (most == 0) {
        return 0;
    }
    p->picked = calloc(entries, sizeof(*p->picked));
    p->mixing =
        aligned_alloc(64, (most * sizeof(float) + 63) & ~(size_t)63);
    return p->picked != NULL && p->mixing != NULL
               ? 0
               : err_set(e, ERR_NOMEM, "experts of %zu rows", p->rows_max);
}

/* --- running --- */

#define TOGETHER (LINEAR_PARTS_MAX / 2) /* experts: two products each */

/* A run of an operation. An entry is a row together with an expert it chose;
 * those of one expert follow one another, rows in order. */
struct mix {
    const struct row_program *p;
    const struct row_op *op;
    const struct row_experts *f;
    size_t d, out;          /* elements of the input and of the result */
    float *gate, *up, *act; /* (entries, width) */
    float *y;               /* (entries, out) */
    uint32_t *row;          /* of each entry */
    size_t n;               /* experts that are computed together */
    uint32_t expert[TOGETHER];
    uint32_t start[TOGETHER + 1]; /* their entries */
};

static struct mix mix_of(const struct row_program *p, const struct row_op *op)
{
    const struct row_experts *f = &op->experts;
    size_t entries = entries_most(p, f);
    struct mix m = {.p = p,
                    .op = op,
                    .f = f,
                    .d = p->v[op->in[0]].n,
                    .out = p->v[op->out[0]].n,
                    .row = p->picked};
    m.gate = p->mixing;
    m.up = m.gate + entries * f->width;
    m.act = m.up + entries * f->width;
    m.y = m.act + entries * f->width;
    return m;
}

static float gate_of(const struct mix *m, size_t row, size_t expert)
{
    return row_of(m->p, m->op->in[1], row)[expert];
}

/* Experts from `next` on that some row chose, as many as there is room for.
 * Returns the one after the last that was looked at. */
static uint32_t pick(struct mix *m, uint32_t next, size_t rows)
{
    size_t room = entries_most(m->p, m->f);
    m->n = 0;
    m->start[0] = 0;
    for (; next < m->f->n && m->n < TOGETHER; next++) {
        size_t end = m->start[m->n];
        for (size_t r = 0; r < rows; r++) {
            if (gate_of(m, r, next) == 0.0f) {
                continue;
            }
            if (end == room) {
                return next; /* its first ones are found again */
            }
            m->row[end++] = (uint32_t)r;
        }
        if (end > m->start[m->n]) {
            m->expert[m->n++] = next;
            m->start[m->n] = (uint32_t)end;
        }
    }
    return next;
}

static size_t expert_of(const struct mix *m, size_t entry)
{
    size_t i = 0;
    while (entry >= m->start[i + 1]) {
        i++;
    }
    return m->expert[i];
}

/* act = f(gate) * (up * g) */
static void activate(void *ctx, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    const struct mix *m = ctx;
    size_t n = m->f->width;
    for (size_t i = begin; i < end; i++) {
        float g = gate_of(m, m->row[i], expert_of(m, i));
        float *a = m->act + i * n;
        float *up = m->up + i * n;
        floats()->scale(up, up, g, NULL, n);
        unary_floats(row_step(m->p, m->op), a, m->gate + i * n, n);
        floats()->multiply(a, up, n);
    }
}

/* Call fn for `items`, on more threads where there are `floats` enough. */
static void spread(struct mix *m, size_t items, size_t floats, crew_fn *fn)
{
    unsigned threads = floats < PARALLEL_MIN ? 1 : m->p->m->threads;
    size_t grain = (items + threads * 4 - 1) / (threads * 4);
    crew_run(threads, items, grain > 0 ? grain : 1, fn, m);
}

static int set_input(const struct mix *m, const struct weight *w,
                     const struct linear_rows *rows, struct err *e)
{
    const struct row_program *p = m->p;
    bool integer = linear_wants_integer(w);
    linear_in_length(p->lin, w->cols);
    return linear_in_take(p->lin, p->kernels, rows, integer, !integer,
                          p->m->threads, e);
}

/* gate and up of all entries. */
static int run_inner(const struct mix *m, struct err *e)
{
    struct weight w[LINEAR_PARTS_MAX];
    struct linear_part part[LINEAR_PARTS_MAX];
    size_t width = m->f->width;
    const struct row_at *x = &m->p->base[m->p->v[m->op->in[0]].root];
    const struct linear_rows rows = {.x = row_of(m->p, m->op->in[0], 0),
                                     .ldx = x->ld,
                                     .row = m->row,
                                     .n = m->start[m->n],
                                     .start = m->start,
                                     .groups = m->n};
    RETERR(set_input(m, m->f->w[EXPERTS_GATE], &rows, e));
    for (size_t i = 0; i < 2 * m->n; i++) {
        bool up = i % 2 == 1;
        float *y = (up ? m->up : m->gate) + m->start[i / 2] * width;
        w[i] = cut(m->f->w[up ? EXPERTS_UP : EXPERTS_GATE],
                   m->expert[i / 2] * width, width);
        part[i] = (struct linear_part){
            .w = &w[i], .y = y, .ldy = width, .group = (uint32_t)(i / 2)};
    }
    linear_run(part, 2 * m->n, m->p->lin, m->p->kernels, m->p->m->threads);
    return 0;
}

static int run_down(const struct mix *m, struct err *e)
{
    struct weight w[TOGETHER];
    struct linear_part part[TOGETHER];
    const struct linear_rows rows = {.x = m->act,
                                     .ldx = m->f->width,
                                     .n = m->start[m->n],
                                     .start = m->start,
                                     .groups = m->n};
    RETERR(set_input(m, m->f->w[EXPERTS_DOWN], &rows, e));
    for (size_t i = 0; i < m->n; i++) {
        w[i] = cut(m->f->w[EXPERTS_DOWN], m->expert[i] * m->out, m->out);
        part[i] = (struct linear_part){.w = &w[i],
                                       .y = m->y + m->start[i] * m->out,
                                       .ldy = m->out,
                                       .group = (uint32_t)i};
    }
    linear_run(part, m->n, m->p->lin, m->p->kernels, m->p->m->threads);
    return 0;
}

/* Elements [begin, end) of all entries, added to their rows. */
static void add_up(void *ctx, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    const struct mix *m = ctx;
    for (size_t i = 0; i < m->start[m->n]; i++) {
        float *to = row_of(m->p, m->op->out[0], m->row[i]);
        floats()->add_scaled(to + begin, 1.0f, m->y + i * m->out + begin,
                             end - begin);
    }
}

int row_experts_run(const struct row_program *p, const struct row_op *op,
                    size_t rows, struct err *e)
{
    struct mix m = mix_of(p, op);
    for (size_t r = 0; r < rows; r++) {
        memset(row_of(p, op->out[0], r), 0, m.out * sizeof(float));
    }
    for (uint32_t next = 0; next < m.f->n;) {
        next = pick(&m, next, rows);
        size_t n = m.start[m.n];
        if (n > 0) {
            RETERR(run_inner(&m, e));
            spread(&m, n, n * m.f->width, activate);
            RETERR(run_down(&m, e));
            spread(&m, m.out, n * m.out, add_up);
        }
    }
    return 0;
}
