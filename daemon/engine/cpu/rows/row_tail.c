/* row_tail.c - short convolutions over tails, in a program run as rows.
 *
 *   concat(input that has no T, u) along T ── conv, one group a channel
 *   (── conv, a group some neighbouring channels)
 *
 * whose kernels reach over the input and one position more is the sum, for each
 * channel, over the row's own u and those of the positions before it, which the
 * state of the row's sequence keeps (engine/tails.h). Of rows of one sequence in
 * one run, later ones read the earlier ones' u, rounded as it will be kept: a
 * row's numbers do not depend on what runs beside it.
 *
 * With the second convolution the first gives as many values a channel as that
 * one has taps. Those of a group lie together, row by row, in the order of its
 * weights: they are the columns of one product for each group (gemm.h, whose
 * bits depend on the row alone).
 */
#include <string.h>

#include "base/crew.h"
#include "base/half.h"
#include "base/num.h"
#include "engine/cpu/graph/plan.h"
#include "engine/cpu/kernels/floats.h"
#include "engine/cpu/kernels/products/gemm.h"
#include "engine/cpu/rows/row_make.h"

#define PARALLEL_MIN 16384 /* channels of rows that pay for waking a thread */
#define PRODUCTS_MIN 131072 /* multiply-adds that do */
#define BLOCK_WORK   32768  /* multiply-adds in a block of channels */
#define BLOCK_ROWS   12u    /* of which a block is a multiple: tiles of 3, 4 */

/* --- compile --- */

/* The one op that reads a value; NULL. */
static struct row_op *reader(const struct row_program *p, int value)
{
    struct row_op *found = NULL;
    for (int i = 0; i < p->n_ops && p->uses[value] == 1; i++) {
        struct row_op *op = &p->ops[i];
        for (int k = 0; op->kind != ROW_DEAD && k < op->n_in; k++) {
            found = op->in[k] == value ? op : found;
        }
    }
    return found;
}

static bool ones(const struct row_program *p, const struct node *n,
                 const char *name)
{
    int arg = row_arg(n, name);
    if (arg < 0 || n->in[arg] < 0) {
        return true;
    }
    const struct val *v = &p->m->consts[n->in[arg]];
    bool all = v->kind == VAL_I32;
    for (size_t i = 0; all && i < v->n; i++) {
        all = v->i[i] == 1;
    }
    return all;
}

static bool is_valid_pad(const struct row_program *p, const struct node *n)
{
    int arg = row_arg(n, "pad_type");
    const struct val *v =
        arg >= 0 && n->in[arg] >= 0 ? &p->m->consts[n->in[arg]] : NULL;
    return v == NULL || (v->kind == VAL_STR && strcmp(v->str, "valid") == 0);
}

static const struct val *operand(const struct row_program *p,
                                 const struct node *n, const char *name)
{
    int arg = row_arg(n, name);
    return arg >= 0 && n->in[arg] >= 0 ? &p->m->consts[n->in[arg]] : NULL;
}

/* The weights [channels, channels / groups, taps, 1] of a conv of step 1 without
 * padding of x [1, channels, ., 1]; groups 0: any. NULL: it is no such conv. */
static const struct val *along_t(const struct row_program *p,
                                 const struct node *n, int64_t channels,
                                 int64_t groups)
{
    const struct val *w = operand(p, n, "weight");
    const struct val *g = operand(p, n, "groups");
    const struct val *b = operand(p, n, "bias");
    if (w == NULL || g == NULL || g->kind != VAL_I32 || g->n != 1 ||
        (groups > 0 && g->i[0] != groups) || g->i[0] < 1 ||
        channels % g->i[0] != 0 || w->rank != 4 || w->dims[0] != channels ||
        w->dims[1] != channels / g->i[0] || w->dims[3] != 1 ||
        (b != NULL && (b->kind != VAL_F32 || b->n != (size_t)channels))) {
        return NULL;
    }
    bool plain = ones(p, n, "strides") && ones(p, n, "dilations") &&
                 is_valid_pad(p, n);
    return plain ? w : NULL;
}

/* Taps as (taps, channels) fp32, of the program's arena; NULL. */
static float *take_taps(struct row_program *p, const struct val *w)
{
    size_t channels = (size_t)w->dims[0];
    size_t taps = (size_t)w->dims[2];
    float *out = arena_array(&p->arena, channels * taps, sizeof(*out));
    float row[MODEL_CONV_MAX];
    for (size_t c = 0; out != NULL && c < channels; c++) {
        if (w->kind == VAL_WEIGHT) {
            weight_row(w->w, c, row);
        } else if (w->kind == VAL_F16) {
            half_to_floats(w->h + c * taps, row, taps);
        } else {
            memcpy(row, w->f + c * taps, taps * sizeof(*row));
        }
        for (size_t j = 0; j < taps; j++) {
            out[j * channels + c] = row[j];
        }
    }
    return out;
}

/* A concat of an input that has no T with what is to be kept. */
static bool is_join(const struct row_program *p, const struct row_op *op)
{
    const struct node *n = row_node(p, op);
    if (!row_is(p, op, "concat") || n->n_list != 2 || op->n_in != 2) {
        return false;
    }
    const struct val *tail = row_val(p, n->list[0]);
    const struct val *u = row_val(p, n->list[1]);
    const struct row_value *v = &p->v[n->list[0]];
    int axis = row_arg(n, "axis");
    const struct val *a = axis >= 0 ? &p->m->consts[n->in[axis]] : NULL;
    return v->input >= 0 && p->uses[n->list[0]] == 1 &&
           row_t_axis(p->m, n->list[0]) == -1 && a != NULL &&
           a->kind == VAL_I32 && a->i[0] == 2 && tail->rank == 4 &&
           u->rank == 4 && tail->dims[0] == 1 && tail->dims[3] == 1 &&
           u->n == (size_t)u->dims[1] && tail->dims[1] == u->dims[1] &&
           tail->dims[2] > 0 && tail->dims[2] < (int64_t)MODEL_CONV_MAX &&
           (!p->m->has_t || row_t_axis(p->m, n->list[1]) == 2);
}

static const float *bias_of(const struct row_program *p, const struct node *n)
{
    const struct val *b = operand(p, n, "bias");
    return b != NULL ? b->f : NULL;
}

/* The second convolution, if `first` feeds one: fp16, read where it lies. */
static struct row_op *second(const struct row_program *p,
                             const struct row_op *first, int64_t channels,
                             struct row_tail *f)
{
    struct row_op *op = reader(p, first->out[0]);
    const struct val *w = op != NULL && row_is(p, op, "conv")
                              ? along_t(p, row_node(p, op), channels, 0)
                              : NULL;
    if (w == NULL || w->dims[2] < 2) {
        return NULL;
    }
    f->mix = w->kind == VAL_F16 ? w->h
             : w->kind == VAL_WEIGHT && w->w->kind == WEIGHT_F16
                 ? w->w->data
                 : NULL;
    f->mix_taps = (uint32_t)w->dims[2];
    f->group = (uint32_t)w->dims[1];
    f->mix_bias = bias_of(p, row_node(p, op));
    return f->mix != NULL ? op : NULL;
}

/* join and what reads it become one op, if they are what they should be. */
static int make_tail(struct row_program *p, struct row_op *join, struct err *e)
{
    const struct node *n = row_node(p, join);
    int tail = n->list[0];
    int u = n->list[1];
    int64_t channels = row_val(p, u)->dims[1];
    int64_t len = row_val(p, tail)->dims[2];
    struct row_tail f = {.port = p->n_tails, .mix_taps = 1};
    struct row_op *conv = reader(p, join->out[0]);
    const struct val *w =
        conv != NULL && row_is(p, conv, "conv")
            ? along_t(p, row_node(p, conv), channels, channels)
            : NULL;
    if (w == NULL) {
        return 0;
    }
    int64_t taps = w->dims[2];
    struct row_op *last = taps == len + 1 ? conv : second(p, conv, channels, &f);
    if (last == NULL || taps + f.mix_taps - 2 != len) {
        return 0;
    }
    f.bias = bias_of(p, row_node(p, conv));
    f.n_taps = (uint32_t)taps;
    f.taps = take_taps(p, w);
    if (f.taps == NULL) {
        return err_set(e, ERR_NOMEM, "the program");
    }
    conv->kind = last == conv ? conv->kind : ROW_DEAD;
    last->kind = ROW_TAIL;
    last->n_in = 1;
    last->in[0] = u;
    last->tail = f;
    p->tails[p->n_tails++] = (struct tail_port){.width = (uint32_t)channels,
                                                .len = (uint32_t)len};
    p->v[tail].class = ROW_PAST;
    join->kind = ROW_DEAD;
    return 0;
}

int row_tails(struct row_program *p, struct err *e)
{
    p->tails = arena_array(&p->arena, p->m->n_in + 1, sizeof(*p->tails));
    if (p->tails == NULL) {
        return err_set(e, ERR_NOMEM, "the program");
    }
    for (int i = 0; i < p->n_ops; i++) {
        if (is_join(p, &p->ops[i])) {
            RETERR(make_tail(p, &p->ops[i], e));
        }
    }
    return 0;
}

/* --- run --- */

struct tail_run {
    const struct row_program *p;
    const struct backend_rows *in;
    const struct row_op *op;
};

/* y[i] += taps[i] * u[i] */
static void add(float *y, const float *taps, const float *u, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] += taps[i] * u[i];
    }
}

/* u of the position `before` row r's, into out; false: there is none. */
static bool earlier(const struct tail_run *x, size_t r, uint32_t before,
                    float *out)
{
    const struct row_tail *f = &x->op->tail;
    size_t width = x->p->tails[f->port].width;
    uint32_t position = x->in->write[r];
    if (before > position) {
        return false;
    }
    uint32_t left = before; /* back through the rows of this run */
    size_t at = r;
    while (left > 0 && x->p->before[at] >= 0) {
        at = (size_t)x->p->before[at];
        left--;
    }
    if (left == 0) {
        memcpy(out, row_of(x->p, x->op->in[0], at), width * sizeof(*out));
        half_round_floats(out, width);
        return true;
    }
    tails_get(x->in->state[r]->tails, f->port, position - before,
              x->in->write[at], out);
    return true;
}

/* Elements of a column of the second convolution's products. */
static size_t column_of(const struct row_tail *f)
{
    return gemm_pad((size_t)f->group * f->mix_taps);
}

/* The column of row r that group `g` reads. */
static float *each_of(const struct tail_run *x, size_t g, size_t r)
{
    return x->p->tail_each + (g * x->in->n + r) * column_of(&x->op->tail);
}

/* Row r's values y (mix_taps, width) into the columns. */
static void spread(const struct tail_run *x, size_t r, const float *y)
{
    const struct row_tail *f = &x->op->tail;
    size_t n = x->p->tails[f->port].width;
    for (size_t first = 0; first < n; first += f->group) {
        float *to = each_of(x, first / f->group, r);
        size_t at = 0;
        for (size_t c = first; c < first + f->group; c++) {
            for (size_t j = 0; j < f->mix_taps; j++) {
                to[at++] = y[j * n + c];
            }
        }
        while (at < column_of(f)) {
            to[at++] = 0;
        }
    }
}

/* The first convolution: at the row's position, and with a second one at those
 * before it that it reads. */
static void on_rows(void *ctx, size_t begin, size_t end, unsigned worker)
{
    const struct tail_run *x = ctx;
    const struct row_tail *f = &x->op->tail;
    const struct tail_port *port = &x->p->tails[f->port];
    float *u = x->p->tail_scratch + worker * x->p->tail_width;
    size_t n = port->width;
    for (size_t r = begin; r < end; r++) {
        float *y = f->mix != NULL ? u + n : row_of(x->p, x->op->out[0], r);
        for (size_t i = 0; i < n * f->mix_taps; i++) {
            y[i] = f->bias != NULL ? f->bias[i % n] : 0;
        }
        for (uint32_t at = 0; at <= port->len; at++) { /* the oldest first */
            bool own = at == port->len;
            if (own) {
                memcpy(u, row_of(x->p, x->op->in[0], r), n * sizeof(*u));
                half_round_floats(u, n);
            } else if (!earlier(x, r, port->len - at, u)) {
                continue;
            }
            for (uint32_t j = 0; j < f->mix_taps; j++) { /* tap at - j of it */
                if (at >= j && at - j < f->n_taps) {
                    add(y + j * n, f->taps + (at - j) * n, u, n);
                }
            }
        }
        if (f->mix != NULL) {
            spread(x, r, y);
        }
    }
}

/* The second convolution: some channels of all rows. */
static void on_channels(void *ctx, size_t begin, size_t end, unsigned worker)
{
    const struct tail_run *x = ctx;
    const struct row_tail *f = &x->op->tail;
    size_t k = (size_t)f->group * f->mix_taps;
    int out = x->op->out[0];
    while (begin < end) {
        size_t group = begin / f->group;
        size_t to = num_min(end, (group + 1) * f->group);
        const struct gemm g = {
            .kind = WEIGHT_F16,
            .w = f->mix + begin * k,
            .ldw = k,
            .rows = to - begin,
            .cols = x->in->n,
            .k = k,
            .x = each_of(x, group, 0),
            .bias = f->mix_bias != NULL ? f->mix_bias + begin : NULL,
            .y = row_of(x->p, out, 0) + begin,
            .ldr = 1,
            .ldc = x->p->base[x->p->v[out].root].ld,
        };
        floats()->gemm(&g, 0, g.rows, worker);
        begin = to;
    }
}

static void run_second(struct tail_run *x)
{
    const struct row_tail *f = &x->op->tail;
    size_t width = x->p->tails[f->port].width;
    size_t work = /* of a channel */
        (size_t)f->group * f->mix_taps * num_max(x->in->n, 1);
    bool some = work * width >= PRODUCTS_MIN;
    size_t grain = (BLOCK_WORK / work / BLOCK_ROWS + 1) * BLOCK_ROWS;
    crew_run(some ? x->p->m->threads : 1, width, some ? grain : width,
             on_channels, x);
}

void row_run_tail(const struct row_program *p, const struct backend_rows *in,
                  const struct row_op *op)
{
    struct tail_run x = {.p = p, .in = in, .op = op};
    size_t width = p->tails[op->tail.port].width;
    bool some = in->n * width >= PARALLEL_MIN;
    crew_run(some ? p->m->threads : 1, in->n, 1, on_rows, &x);
    if (op->tail.mix != NULL) {
        run_second(&x);
    }
    for (size_t r = 0; r < in->n; r++) {
        tails_put(in->state[r]->tails, op->tail.port, in->write[r],
                  row_of(p, op->in[0], r));
    }
}

int row_tails_open(struct row_program *p, struct err *e)
{
    size_t each = 0;
    if (p->n_tails == 0) {
        return 0;
    }
    for (int i = 0; i < p->n_ops; i++) {
        const struct row_tail *f = &p->ops[i].tail;
        if (p->ops[i].kind != ROW_TAIL) {
            continue;
        }
        size_t width = p->tails[f->port].width;
        bool two = f->mix != NULL;
        p->tail_width = num_max(p->tail_width,
                                two ? width * (1 + f->mix_taps) : width);
        each = num_max(each, two ? width / f->group * column_of(f) : 0);
    }
    p->before = calloc(p->rows_max, sizeof(*p->before));
    p->tail_scratch =
        malloc(p->tail_width * p->m->threads * sizeof(*p->tail_scratch));
    /* addresses: a run of n rows touches the first of them */
    p->tail_each = malloc((p->rows_max * each + 1) * sizeof(*p->tail_each));
    return p->before != NULL && p->tail_scratch != NULL && p->tail_each != NULL
               ? 0
               : err_set(e, ERR_NOMEM, "tails of %zu rows", p->rows_max);
}

int row_tails_begin(struct row_program *p, const struct backend_rows *in,
                    struct err *e)
{
    for (size_t r = 0; p->n_tails > 0 && r < in->n; r++) {
        if (in->write[r] == BACKEND_NO_WRITE) {
            return err_set(e, ERR_MIL_INPUT,
                           "row %zu has no position, which its tail needs", r);
        }
        RETERR(tails_reserve(in->state[r]->tails, in->write[r], 1, e));
        p->before[r] = -1;
        for (size_t k = r; k > 0 && p->before[r] < 0; k--) {
            bool same = in->state[k - 1] == in->state[r];
            if (same && in->write[k - 1] + 1 == in->write[r]) {
                p->before[r] = (int)k - 1;
            }
        }
    }
    return 0;
}
