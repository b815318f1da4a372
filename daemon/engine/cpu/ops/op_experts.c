/* op_experts.c - see op_experts.h; and "rank", the place of each expert's score
 * among those of its row, without the table of all pairs. */
#include "engine/cpu/ops/op_experts.h"

#include <math.h>
#include <string.h>

#include "base/crew.h"
#include "base/half.h"
#include "base/num.h"
#include "engine/cpu/kernels/floats.h"
#include "engine/cpu/kernels/products/gemm.h"
#include "engine/cpu/kernels/vmath.h"
#include "engine/cpu/ops/ops.h"

#define CHUNK        128  /* rows of an expert that are computed at a time */
#define PARALLEL_MIN 8192 /* elements that pay for waking a thread */
#define LANES        16   /* of reduce_sum: element i is in lane i % LANES */

/* Scratch, in floats from its beginning. */
struct experts_params {
    const struct experts_form *form;
    size_t rows, ldx, lda; /* positions; padded columns of x and of f */
    size_t x, y;           /* (rows, ldx), (rows, lanes, out): rows, not
                              channels */
    size_t lanes;          /* of the sums over experts; 1: they are in order */
    size_t cols, reg, act, part, rowbuf, list;
};

/* --- the mixture --- */

static size_t place(size_t *at, size_t n)
{
    size_t first = *at;
    *at += (n + 15) & ~(size_t)15;
    return first;
}

static int experts_shapes(struct step *s, const struct experts_form *f,
                          int64_t dims[MIL_RANK_MAX], struct err *e)
{
    const struct val *x = step_in(s, EXPERTS_IN_X);
    const struct val *by = step_in(s, EXPERTS_IN_BY);
    if (x->kind != VAL_F32 || by->kind != VAL_F32 || x->rank != 4 ||
        x->dims[0] != 1 || x->dims[3] != 1 || (size_t)x->dims[1] != f->cols ||
        by->n != f->n * (size_t)x->dims[2]) {
        return err_set(e, ERR_MIL_SHAPE, "x and the gates do not fit");
    }
    for (int i = 0; i < f->type->rank; i++) {
        dims[i] = f->type->dims[i] == MIL_UNKNOWN ? x->dims[2]
                                                  : f->type->dims[i];
    }
    return 0;
}

int experts_prep(struct step *s, struct err *e)
{
    struct experts_params *u = step_alloc(s, sizeof(*u));
    const struct experts_form *f = s->node->fused;
    int64_t dims[MIL_RANK_MAX];
    size_t at = 0;
    s->u = u;
    u->form = f;
    RETERR(experts_shapes(s, f, dims, e));
    u->rows = (size_t)step_in(s, EXPERTS_IN_X)->dims[2];
    u->ldx = gemm_pad(f->cols);
    u->lda = gemm_pad(f->width);
    size_t regs = (size_t)(EXPERTS_FIRST_STEP + f->n_steps);
    u->x = place(&at, u->rows * u->ldx);
    u->lanes = f->exact ? num_min(f->n, LANES) : 1;
    u->y = place(&at, u->rows * u->lanes * f->out);
    u->cols = place(&at, CHUNK * u->ldx);
    u->reg = place(&at, regs * CHUNK * f->width);
    u->act = place(&at, CHUNK * u->lda);
    u->part = place(&at, CHUNK * f->out);
    u->rowbuf = place(
        &at, s->plan_threads * GEMM_DECODED * num_max(u->ldx, u->lda));
    u->list = place(&at, u->rows);
    s->scratch = at * sizeof(float);
    return val_set(step_out(s, 0), VAL_F32, f->type->rank, dims, e);
}

/* A run, and the rows of one expert that are at hand. */
struct mixing {
    const struct step *s;
    const struct experts_params *u;
    const struct experts_form *f;
    float *at; /* scratch */
    unsigned threads;
    bool round; /* results declared fp16 */
    size_t expert;
    const uint32_t *row;
    size_t n;
};

static float *reg_of(const struct mixing *m, int reg)
{
    return m->at + m->u->reg + (size_t)reg * CHUNK * m->f->width;
}

/* Element 0 of operand i of a step for the entry at hand; *by is how far apart
 * elements are. */
static const float *operand(const struct mixing *m,
                            const struct experts_step *t, int i, size_t entry,
                            size_t *by)
{
    int reg = t->in[i];
    *by = reg >= 0 && reg != EXPERTS_BY ? 1 : 0;
    if (reg < 0) {
        return &t->c;
    }
    if (reg == EXPERTS_BY) {
        return step_in(m->s, EXPERTS_IN_BY)->f + m->expert * m->u->rows +
               m->row[entry];
    }
    return reg_of(m, reg) + entry * m->f->width;
}

/* As each operation's result is, when it stands alone. */
static void round_to(const struct mixing *m, bool half, float *x, size_t n)
{
    if (m->round && half) {
        half_round_floats(x, n);
    }
}

/* f of entries [begin, end), as columns of the last product. */
static void steps(void *ctx, size_t begin, size_t end, unsigned worker)
{
    (void)worker;
    const struct mixing *m = ctx;
    size_t w = m->f->width;
    for (size_t i = begin; i < end; i++) {
        float *o = NULL;
        for (int k = 0; k < m->f->n_steps; k++) {
            const struct experts_step *t = &m->f->steps[k];
            size_t sa = 0;
            size_t sb = 0;
            const float *a = operand(m, t, 0, i, &sa);
            o = reg_of(m, EXPERTS_FIRST_STEP + k) + i * w;
            if (t->binary) {
                const float *b = operand(m, t, 1, i, &sb);
                binary_floats(t->def->sub, o, a, sa, b, sb, w);
            } else {
                unary_plain(t->def->sub, t->gelu, o, a, w);
            }
            round_to(m, m->f->half[EXPERTS_FIRST_STEP + k], o, w);
        }
        gemm_pack(m->at + m->u->act + i * m->u->lda, o, 1, w, w, 1);
    }
}

/* Rows first.. of operand arg times n columns. */
static void product(const struct mixing *m, int arg, const float *bias,
                    size_t first, size_t rows, const float *x, size_t k,
                    float *y)
{
    struct gemm g = {.rowbuf = m->at + m->u->rowbuf,
                     .buf_rows = GEMM_DECODED,
                     .cols = m->n,
                     .x = x,
                     .bias = bias,
                     .y = y,
                     .ldr = 1,
                     .ldc = rows,
                     .threads = m->threads};
    gemm_operand(&g, step_in(m->s, arg), first, rows, k);
    gemm_run(&g);
}

/* What m->expert gives for the rows at hand, added to theirs. */
static void add_rows(struct mixing *m)
{
    const struct experts_form *f = m->f;
    const struct experts_params *u = m->u;
    float *cols = m->at + u->cols;
    float *part = m->at + u->part;
    size_t first = m->expert * f->width;
    for (size_t i = 0; i < m->n; i++) {
        memcpy(cols + i * u->ldx, m->at + u->x + m->row[i] * u->ldx,
               u->ldx * sizeof(*cols));
    }
    for (int k = 0; k < f->n_products; k++) {
        const struct val *b = step_opt(m->s, EXPERTS_IN_BIAS + k);
        product(m, EXPERTS_IN_PRODUCT + k, b != NULL ? b->f + first : NULL,
                first, f->width, cols, f->cols, reg_of(m, k));
        round_to(m, f->half[k], reg_of(m, k), m->n * f->width);
    }
    unsigned threads = m->n * f->width < PARALLEL_MIN ? 1 : m->threads;
    crew_run(threads, m->n, (m->n + threads - 1) / threads, steps, m);
    product(m, EXPERTS_IN_DOWN, NULL, m->expert * f->out, f->out,
            m->at + u->act, f->width, part);
    round_to(m, f->half_down, part, m->n * f->out);
    size_t lane = m->expert % u->lanes;
    for (size_t i = 0; i < m->n; i++) {
        size_t to = (m->row[i] * u->lanes + lane) * f->out;
        floats()->add_scaled(m->at + u->y + to, 1.0f, part + i * f->out,
                             f->out);
    }
}

/* The largest L2 norm of a row of x. */
static float x_norm(const struct mixing *m)
{
    float most = 0;
    for (size_t t = 0; t < m->u->rows; t++) {
        float v = sqrtf(
            vmath_sum_square(m->at + m->u->x + t * m->u->ldx, m->f->cols));
        most = isnan(most) || v <= most ? most : v; /* NaN stays */
    }
    return most;
}

/* The sums of all rows, channel after channel. */
static void put_sums(const struct mixing *m, float *o)
{
    const struct experts_params *u = m->u;
    const float *y = m->at + u->y;
    for (size_t t = 0; t < u->rows; t++) {
        for (size_t i = 0; i < m->f->out; i++) {
            float lane[LANES];
            for (size_t k = 0; k < u->lanes; k++) {
                lane[k] = y[(t * u->lanes + k) * m->f->out + i];
            }
            o[i * u->rows + t] =
                u->lanes == 1 ? lane[0] : vmath_sum(lane, u->lanes);
        }
    }
}

int experts_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)e;
    const struct experts_params *u = s->u;
    const struct experts_form *f = u->form;
    const float *by = step_in(s, EXPERTS_IN_BY)->f;
    struct mixing m = {.s = s,
                       .u = u,
                       .f = f,
                       .at = r->scratch,
                       .threads = r->threads,
                       .round = r->round};
    uint32_t *list = (uint32_t *)(void *)(m.at + u->list);
    gemm_pack(m.at + u->x, step_in(s, EXPERTS_IN_X)->f, u->rows, f->cols, 1,
              u->rows);
    memset(m.at + u->y, 0, u->rows * u->lanes * f->out * sizeof(float));
    if (f->exact) {
        experts_measure(s, r->threads, m.at + u->rowbuf);
    }
    float most = f->exact ? x_norm(&m) : 0;
    for (; m.expert < f->n; m.expert++) {
        size_t n = 0;
        bool all = f->exact && !experts_give_zero(f, m.expert, most, m.round);
        for (size_t t = 0; t < u->rows; t++) {
            list[n] = (uint32_t)t;
            n += all || by[m.expert * u->rows + t] != 0.0f ? 1 : 0;
        }
        for (size_t at = 0; at < n; at += m.n) {
            m.row = list + at;
            m.n = num_min(n - at, CHUNK);
            add_rows(&m);
        }
    }
    put_sums(&m, step_out(s, 0)->f);
    return 0;
}

/* --- rank --- */

int rank_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    if (x->kind != VAL_F32 || x->rank != 4 || x->dims[0] != 1 ||
        x->dims[3] != 1) {
        return err_set(e, ERR_MIL_SHAPE, "the scores do not fit");
    }
    s->scratch = s->plan_threads * (size_t)x->dims[1] * sizeof(float);
    return val_like(step_out(s, 0), VAL_F32, x, e);
}

struct ranking {
    const struct step *s;
    float *scratch;
};

/* How many of n scores are above number i, or equal with a lower index. */
static int rank_of(const float *k, size_t n, size_t i)
{
    float own = k[i];
    int count = 0;
    for (size_t j = 0; j < i; j++) {
        count += k[j] >= own ? 1 : 0;
    }
    for (size_t j = i + 1; j < n; j++) {
        count += k[j] > own ? 1 : 0;
    }
    return count;
}

static void rank_rows(void *ctx, size_t begin, size_t end, unsigned worker)
{
    const struct ranking *r = ctx;
    const struct val *x = step_in(r->s, 0);
    float *o = step_out(r->s, 0)->f;
    size_t n = (size_t)x->dims[1];
    size_t rows = (size_t)x->dims[2];
    float *k = r->scratch + worker * n;
    for (size_t t = begin; t < end; t++) {
        for (size_t i = 0; i < n; i++) {
            k[i] = x->f[i * rows + t];
        }
        for (size_t i = 0; i < n; i++) {
            o[i * rows + t] = (float)rank_of(k, n, i);
        }
    }
}

int rank_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)e;
    const struct val *x = step_in(s, 0);
    struct ranking k = {.s = s, .scratch = r->scratch};
    size_t rows = (size_t)x->dims[2];
    unsigned threads =
        x->n * (size_t)x->dims[1] < PARALLEL_MIN ? 1 : r->threads;
    crew_run(threads, rows, rows / threads / 4 + 1, rank_rows, &k);
    return 0;
}
