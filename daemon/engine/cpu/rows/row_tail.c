/* row_tail.c - short convolutions over tails, in a program run as rows.
 *
 *   concat(input that has no T, u) along T ── conv, one group a channel, its
 *   kernel as long as the input and one more along T
 *
 * is the sum, for each channel, over the row's own u and those of the positions
 * before it, which the state of the row's sequence keeps (engine/tails.h). Of
 * rows of one sequence in one run, later ones read the earlier ones' u, rounded
 * as it will be kept: a row's numbers do not depend on what runs beside it.
 */
#include <string.h>

#include "base/crew.h"
#include "base/half.h"
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

/* The conv of x [1, c, n, 1] by taps [c, 1, n, 1], one group a channel. */
static bool is_depthwise(const struct row_program *p, const struct node *n,
                         int64_t channels, int64_t taps)
{
    const struct val *w = &p->m->consts[n->in[row_arg(n, "weight")]];
    int groups = row_arg(n, "groups");
    int bias = row_arg(n, "bias");
    const struct val *g =
        groups >= 0 && n->in[groups] >= 0 ? &p->m->consts[n->in[groups]] : NULL;
    return g != NULL && g->kind == VAL_I32 && g->n == 1 && g->i[0] == channels &&
           n->in[bias] < 0 && w->rank == 4 && w->dims[0] == channels &&
           w->dims[1] == 1 && w->dims[2] == taps && w->dims[3] == 1 &&
           ones(p, n, "strides") && ones(p, n, "dilations") &&
           is_valid_pad(p, n);
}

/* Taps as (len + 1, channels) fp32, of the program's arena; NULL. */
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

/* A value that is an output of the program is kept by whoever runs it: here it
 * may have no other use of its length. */
static int make_tail(struct row_program *p, struct row_op *join, struct err *e)
{
    const struct node *n = row_node(p, join);
    int tail = n->list[0];
    int u = n->list[1];
    int64_t channels = row_val(p, u)->dims[1];
    int64_t len = row_val(p, tail)->dims[2];
    struct row_op *conv = reader(p, join->out[0]);
    if (!row_is(p, conv, "conv") ||
        !is_depthwise(p, row_node(p, conv), channels, len + 1)) {
        return 0;
    }
    const struct node *c = row_node(p, conv);
    const float *taps =
        take_taps(p, &p->m->consts[c->in[row_arg(c, "weight")]]);
    if (taps == NULL) {
        return err_set(e, ERR_NOMEM, "the program");
    }
    conv->kind = ROW_TAIL;
    conv->n_in = 1;
    conv->in[0] = u;
    conv->tail = (struct row_tail){.port = p->n_tails, .taps = taps};
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

/* y += taps * u, channel by channel. */
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

static void on_rows(void *ctx, size_t begin, size_t end, unsigned worker)
{
    const struct tail_run *x = ctx;
    const struct row_tail *f = &x->op->tail;
    const struct tail_port *port = &x->p->tails[f->port];
    float *u = x->p->tail_scratch + worker * x->p->tail_width;
    size_t n = port->width;
    for (size_t r = begin; r < end; r++) {
        float *y = row_of(x->p, x->op->out[0], r);
        memcpy(u, row_of(x->p, x->op->in[0], r), n * sizeof(*u));
        half_round_floats(u, n);
        memset(y, 0, n * sizeof(*y));
        for (uint32_t j = 0; j < port->len; j++) {
            float *of = u + n;
            if (earlier(x, r, port->len - j, of)) {
                add(y, f->taps + j * n, of, n);
            }
        }
        add(y, f->taps + port->len * n, u, n);
    }
}

void row_run_tail(const struct row_program *p, const struct backend_rows *in,
                  const struct row_op *op)
{
    struct tail_run x = {.p = p, .in = in, .op = op};
    size_t work = in->n * p->tails[op->tail.port].width;
    crew_run(work < PARALLEL_MIN ? 1 : p->m->threads, in->n, 1, on_rows, &x);
    for (size_t r = 0; r < in->n; r++) {
        tails_put(in->state[r]->tails, op->tail.port, in->write[r],
                  row_of(p, op->in[0], r));
    }
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
