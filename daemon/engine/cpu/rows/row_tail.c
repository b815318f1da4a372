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
 * one has taps; they lie together, in the order of its weights.
 */
#include <string.h>

#include "base/crew.h"
#include "base/half.h"
#include "base/num.h"
#include "engine/cpu/graph/plan.h"
#include "engine/cpu/rows/row_make.h"

#define PARALLEL_MIN 16384 /* channels of rows that pay for waking a thread */

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

/* y[i * step] += taps[i] * u[i] */
static void add(float *y, size_t step, const float *taps, const float *u,
                size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i * step] += taps[i] * u[i];
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

/* Where the first convolution's values of row r go. */
static float *each_of(const struct tail_run *x, size_t r)
{
    const struct row_tail *f = &x->op->tail;
    size_t n = x->p->tails[f->port].width;
    return f->mix == NULL ? row_of(x->p, x->op->out[0], r)
                          : x->p->tail_each + r * n * f->mix_taps;
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
    size_t step = f->mix_taps;
    for (size_t r = begin; r < end; r++) {
        float *y = each_of(x, r);
        for (size_t i = 0; i < n * step; i++) {
            y[i] = f->bias != NULL ? f->bias[i / step] : 0;
        }
        for (uint32_t at = 0; at <= port->len; at++) { /* the oldest first */
            bool own = at == port->len;
            if (own) {
                memcpy(u, row_of(x->p, x->op->in[0], r), n * sizeof(*u));
                half_round_floats(u, n);
            } else if (!earlier(x, r, port->len - at, u)) {
                continue;
            }
            for (uint32_t j = 0; j < step; j++) { /* tap at - j of value j */
                if (at >= j && at - j < f->n_taps) {
                    add(y + j, step, f->taps + (at - j) * n, u, n);
                }
            }
        }
    }
}

#define LANES 8u

static float dot(const float *a, const float *b, size_t n)
{
    float sum[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (size_t k = 0; k < LANES; k++) {
            sum[k] += a[i + k] * b[i + k];
        }
    }
    for (size_t k = 0; i + k < n; k++) {
        sum[k] += a[i + k] * b[i + k];
    }
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) +
           ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

/* The second convolution: some channels of all rows. */
static void on_channels(void *ctx, size_t begin, size_t end, unsigned worker)
{
    const struct tail_run *x = ctx;
    const struct row_tail *f = &x->op->tail;
    size_t n = (size_t)f->group * f->mix_taps;
    float *w = x->p->tail_scratch + worker * x->p->tail_width;
    for (size_t c = begin; c < end; c++) {
        size_t first = c / f->group * n;
        half_to_floats(f->mix + c * n, w, n);
        for (size_t r = 0; r < x->in->n; r++) {
            row_of(x->p, x->op->out[0], r)[c] =
                dot(w, each_of(x, r) + first, n) +
                (f->mix_bias != NULL ? f->mix_bias[c] : 0);
        }
    }
}

void row_run_tail(const struct row_program *p, const struct backend_rows *in,
                  const struct row_op *op)
{
    struct tail_run x = {.p = p, .in = in, .op = op};
    size_t width = p->tails[op->tail.port].width;
    bool some = in->n * width >= PARALLEL_MIN;
    crew_run(some ? p->m->threads : 1, in->n, 1, on_rows, &x);
    if (op->tail.mix != NULL) {
        crew_run(p->m->threads, width, 16, on_channels, &x);
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
        p->tail_width = num_max(p->tail_width,
                                num_max(width, (size_t)f->group * f->mix_taps));
        each = num_max(each, f->mix != NULL ? width * f->mix_taps : 0);
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
