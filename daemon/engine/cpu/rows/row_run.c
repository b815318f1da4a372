/* row_run.c - run a row program: op by op, all rows at once.
 *
 * Rows are independent in every op but STORE and ATTEND, so any of them may be
 * given to any thread; small work stays on the caller's. A plain step runs the
 * interpreter's kernels with the plan's values pointing at one row after the
 * other. */
#include <string.h>

#include "base/crew.h"
#include "base/fmath.h"
#include "engine/cpu/kernels/floats.h"
#include "engine/cpu/kernels/vmath.h"
#include "engine/cpu/ops/ops.h"
#include "engine/cpu/rows/row_make.h"

#define PARALLEL_MIN 32768 /* elements that pay for waking a thread */

struct run_rows {
    struct row_program *p;
    const struct backend_rows *in;
    const struct row_op *op; /* at hand */
};

static void each_row(struct run_rows *x, size_t work, crew_fn *fn)
{
    size_t n = x->in->n;
    unsigned threads = n * work < PARALLEL_MIN ? 1 : x->p->m->threads;
    size_t grain = (n + threads * 4 - 1) / (threads * 4);
    crew_run(threads, n, grain > 0 ? grain : 1, fn, x);
}

/* --- norm --- */

static void norm_group(const struct row_norm *f, float *o, const float *x,
                       size_t first)
{
    size_t n = f->width;
    float c2 = f->scale * f->scale;
    float sum = vmath_sum_square(x, n) * (c2 * f->mean) + f->eps;
    if (f->eps_peak > 0.0f) {
        float peak = f->floor;
        for (size_t i = 0; i < n; i++) {
            float a = fabsf(x[i]);
            peak = a > peak ? a : peak;
        }
        sum = fmath_fmaf(f->eps_peak, peak * peak, sum);
    }
    float s = f->gain * f->scale * (1.0f / sqrtf(sum));
    const float *w = f->w != NULL ? f->w + first % f->n_w : NULL;
    floats()->scale(o, x, s, w, n);
}

static void norm_rows(void *ctx, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    const struct run_rows *x = ctx;
    const struct row_norm *f = &x->op->norm;
    size_t n = x->p->v[x->op->in[0]].n;
    for (size_t r = begin; r < end; r++) {
        const float *from = row_of(x->p, x->op->in[0], r);
        float *to = row_of(x->p, x->op->out[0], r);
        for (size_t i = 0; i < n; i += f->width) {
            norm_group(f, to + i, from + i, i);
        }
    }
}

/* --- rope --- */

static void rope_rows(void *ctx, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    const struct run_rows *x = ctx;
    const struct row_rope *f = &x->op->rope;
    size_t n = x->p->v[x->op->in[0]].n;
    for (size_t r = begin; r < end; r++) {
        const float *from = row_of(x->p, x->op->in[0], r);
        const float *c = row_of(x->p, x->op->in[1], r);
        const float *s = row_of(x->p, x->op->in[2], r);
        float *to = row_of(x->p, x->op->out[0], r);
        for (size_t h = 0; h < n; h += f->dim) {
            floats()->rotate(to + h, from + h, c, s, f->half);
            for (size_t i = 2 * f->half; i < f->dim; i++) {
                to[h + i] = from[h + i];
            }
        }
    }
}

/* --- elementwise --- */

static void unary_row(const struct row_program *p, const struct row_op *op,
                      float *o, const float *x, size_t n)
{
    unary_floats(row_step(p, op), o, x, n);
}

static void unary_rows(void *ctx, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    const struct run_rows *x = ctx;
    size_t n = x->p->v[x->op->out[0]].n;
    for (size_t r = begin; r < end; r++) {
        float *o = row_of(x->p, x->op->out[0], r);
        unary_row(x->p, x->op, o, row_of(x->p, x->op->in[0], r), n);
        if (x->op->kind == ROW_GLU) {
            floats()->multiply(o, row_of(x->p, x->op->in[1], r), n);
        }
    }
}

static void binary_rows(void *ctx, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    const struct run_rows *x = ctx;
    const struct row_ew *f = &x->op->ew;
    size_t n = x->p->v[x->op->out[0]].n;
    for (size_t r = begin; r < end; r++) {
        const float *a[2];
        size_t step[2];
        int k = 0;
        for (int i = 0; i < 2; i++) {
            step[i] =
                f->fixed[i] != NULL && f->n_fixed[i] == 1 && n > 1 ? 0 : 1;
            a[i] = f->fixed[i] != NULL ? f->fixed[i]
                                       : row_of(x->p, x->op->in[k++], r);
        }
        binary_floats(f->sub, row_of(x->p, x->op->out[0], r), a[0], step[0],
                      a[1], step[1], n);
    }
}

/* --- products --- */

static int run_linear(struct run_rows *x, struct err *e)
{
    const struct row_program *p = x->p;
    const struct row_linear *f = &x->op->linear;
    struct linear_part part[ROW_PARTS_MAX];
    const struct row_at *from = &p->base[p->v[x->op->in[0]].root];
    const struct row_at *to = &p->base[p->v[x->op->out[0]].root];
    float *y = row_of(p, x->op->out[0], 0);
    linear_in_length(p->lin, f->w[0]->cols);
    int rc =
        linear_in_set(p->lin, p->kernels, row_of(p, x->op->in[0], 0), from->ld,
                      x->in->n, f->integer, f->real, p->m->threads, e);
    if (rc < 0) {
        return rc;
    }
    for (int i = 0; i < f->parts; i++) {
        part[i] = (struct linear_part){
            .w = f->w[i], .bias = f->bias[i], .y = y, .ldy = to->ld};
        y += f->w[i]->rows;
    }
    linear_run(part, (size_t)f->parts, p->lin, p->kernels, p->m->threads);
    return 0;
}

/* --- states --- */

static void run_store(struct run_rows *x)
{
    int value = x->op->in[0];
    for (size_t r = 0; r < x->in->n; r++) {
        if (x->in->write[r] != BACKEND_NO_WRITE) {
            kv_store(x->in->state[r]->kv, (size_t)x->op->store.state,
                     x->in->write[r], row_of(x->p, value, r));
        }
    }
}

static void run_attend(struct run_rows *x)
{
    const struct row_program *p = x->p;
    const struct row_attend *f = &x->op->attend;
    const struct attend a = {
        .rows = x->in->n,
        .heads = f->heads,
        .kv_heads = f->kv_heads,
        .dim = f->dim,
        .vdim = f->vdim,
        .k_state = (size_t)f->k_state,
        .v_state = (size_t)f->v_state,
        .q = row_of(p, x->op->in[0], 0),
        .ldq = p->base[p->v[x->op->in[0]].root].ld,
        .out = row_of(p, x->op->out[0], 0),
        .ldo = p->base[p->v[x->op->out[0]].root].ld,
        .table = p->tables,
        .lo = x->in->lo[f->mask],
        .hi = x->in->hi[f->mask],
        .tanh = f->tanh,
        .before = f->before,
        .divide = f->divide,
        .scale = f->scale,
        .scratch = p->scratch,
        .threads = p->m->threads,
    };
    attend_run(&a, p->kernels);
}

/* --- plain steps --- */

/* Point the plan's values at row r. */
static void point(const struct row_program *p, const struct row_op *op,
                  size_t r)
{
    for (int k = 0; k < op->n_in; k++) {
        p->plan->v[op->in[k]].f = row_of(p, op->in[k], r);
    }
    for (int k = 0; k < op->n_out; k++) {
        p->plan->v[op->out[k]].f = row_of(p, op->out[k], r);
    }
}

static int run_step(struct run_rows *x, struct err *e)
{
    for (size_t r = 0; r < x->in->n; r++) {
        point(x->p, x->op, r);
        RETERR(plan_step(x->p->plan, x->op->step, e));
    }
    return 0;
}

static int run_op(struct run_rows *x, struct err *e)
{
    const struct row_op *op = x->op;
    switch (op->kind) {
    case ROW_STEP:
        return run_step(x, e);
    case ROW_LINEAR:
        return run_linear(x, e);
    case ROW_NORM:
        each_row(x, x->p->v[op->in[0]].n, norm_rows);
        return 0;
    case ROW_ROPE:
        each_row(x, x->p->v[op->in[0]].n, rope_rows);
        return 0;
    case ROW_UNARY:
    case ROW_GLU:
        each_row(x, x->p->v[op->out[0]].n * 4, unary_rows);
        return 0;
    case ROW_BINARY:
        each_row(x, x->p->v[op->out[0]].n, binary_rows);
        return 0;
    case ROW_EXPERTS:
        return row_experts_run(x->p, op, x->in->n, e);
    case ROW_STORE:
        run_store(x);
        return 0;
    case ROW_ATTEND:
        run_attend(x);
        return 0;
    case ROW_TAIL:
        row_run_tail(x->p, x->in, op);
        return 0;
    case ROW_VIEW:
    case ROW_DEAD:
        return 0;
    }
    return 0;
}

/* Products are where the time goes. */
static bool called_off(const struct run_rows *x)
{
    bool product =
        x->op->kind == ROW_LINEAR || x->op->kind == ROW_EXPERTS;
    return product && x->in->go != NULL &&
           !x->in->go(x->in->go_ctx);
}

/* --- where things are in a run --- */

static const struct backend_row_out *wanted(const struct row_program *p,
                                            size_t k,
                                            const struct backend_row_out *out,
                                            size_t n_out)
{
    for (size_t i = 0; i < n_out; i++) {
        if (strcmp(out[i].name, p->m->out[k].name) == 0) {
            return &out[i];
        }
    }
    return NULL;
}

/* Where every root lies: our memory, an input of the caller's, or, for a value
 * that is an output as it is, the caller's place for it. */
static void set_bases(struct row_program *p, const struct backend_rows *in,
                      const struct backend_row_out *out, size_t n_out)
{
    const struct backend_model *m = p->m;
    for (int i = 0; i < p->n_values; i++) {
        p->base[i] =
            (struct row_at){p->memory + p->v[i].place * in->n, p->v[i].ld};
    }
    for (size_t k = 0; k < m->n_out; k++) {
        int slot = m->out_slot[k];
        const struct backend_row_out *o = wanted(p, k, out, n_out);
        if (o != NULL && p->v[slot].root == slot && p->v[slot].input < 0 &&
            row_val(p, slot)->kind == VAL_F32) {
            p->base[slot] = (struct row_at){o->p, o->ld};
        }
    }
    for (size_t k = 0; k < m->n_in; k++) {
        union {
            const float *c;
            float *p;
        } u = {.c = in->in[k].p}; /* inputs are only read */
        if (p->in_port[k].use == BACKEND_ROW_DATA) {
            p->base[m->in_slot[k]] = (struct row_at){u.p, in->in[k].ld};
        }
    }
}

/* Callers take floats, whatever the output is. */
static void floats_of_ints(const float *from, float *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int32_t v = 0;
        memcpy(&v, from + i, sizeof(v));
        to[i] = (float)v;
    }
}

/* Outputs that could not be written in place: views, inputs handed through,
 * one value under two names, integers. */
static void copy_outputs(const struct row_program *p,
                         const struct backend_row_out *out, size_t n_out,
                         size_t rows)
{
    for (size_t k = 0; k < p->m->n_out; k++) {
        int slot = p->m->out_slot[k];
        const struct backend_row_out *o = wanted(p, k, out, n_out);
        for (size_t r = 0; o != NULL && r < rows; r++) {
            const float *from = row_of(p, slot, r);
            if (row_val(p, slot)->kind == VAL_I32) {
                floats_of_ints(from, o->p + r * o->ld, p->v[slot].n);
            } else if (from != o->p + r * o->ld) {
                memcpy(o->p + r * o->ld, from, p->v[slot].n * sizeof(*from));
            }
        }
    }
}

static int reserve(struct row_program *p, const struct backend_rows *in,
                   struct err *e)
{
    for (size_t r = 0; p->pool != NULL && r < in->n; r++) {
        struct kv_table *t = in->state[r]->kv;
        p->tables[r] = t;
        if (in->write[r] != BACKEND_NO_WRITE) {
            int rc = kv_reserve(t, in->write[r], 1, e);
            if (rc < 0) {
                return rc;
            }
        }
    }
    return 0;
}

int row_run(struct row_program *p, const struct backend_rows *in,
            struct backend_row_out *out, size_t n_out, struct err *e)
{
    must(in->n > 0 && in->n <= p->rows_max);
    struct run_rows x = {.p = p, .in = in};
    RETERR(reserve(p, in, e));
    RETERR(row_tails_begin(p, in, e));
    set_bases(p, in, out, n_out);
    for (int i = 0; i < p->n_ops; i++) {
        x.op = &p->ops[i];
        if (called_off(&x)) {
            return err_set(e, ERR_CANCELLED, "called off");
        }
        RETERR(run_op(&x, e));
    }
    copy_outputs(p, out, n_out, in->n);
    return 0;
}
