/* op_experts_bound.c - whether an expert gives zeros to rows that did not choose
 * it, in the dense form too.
 *
 * Its gate is zero there, so f is, unless what meets the gate is infinite or
 * NaN: then the dense form gives NaN, and whoever measures a package must see
 * that. No product is larger than the norm of the weight's row times that of x
 * (Cauchy and Schwarz), and the steps say how large their results are.
 */
#include "engine/cpu/ops/op_experts.h"

#include <math.h>
#include <string.h>

#include "base/crew.h"
#include "base/half.h"
#include "base/num.h"
#include "engine/cpu/kernels/vmath.h"
#include "engine/cpu/ops/ops.h"

#define SLACK      1.01f    /* what sums and roundings of fp32 may add */
#define HALF_REACH 64000.0f /* 65504, less what roundings to fp16 add */
#define REACH      1e30f    /* the same without rounding */

struct measuring {
    const struct step *s;
    const struct experts_form *f;
    float *scratch;
    size_t ld;
};

/* The larger one; NaN stays. */
static float larger(float a, float b)
{
    return isnan(a) || a > b ? a : b;
}

static void row_of(const struct val *v, size_t row, size_t k, float *out)
{
    if (v->kind == VAL_WEIGHT) {
        weight_row(v->w, row, out);
    } else if (v->kind == VAL_F16) {
        half_to_floats(v->h + row * k, out, k);
    } else {
        memcpy(out, v->f + row * k, k * sizeof(*out));
    }
}

/* The largest norm of rows [first, first + n). */
static float norm_of(const struct val *v, size_t first, size_t n, size_t k,
                     float *buf)
{
    float most = 0;
    for (size_t i = 0; i < n; i++) {
        row_of(v, first + i, k, buf);
        most = larger(sqrtf(vmath_sum_square(buf, k)), most);
    }
    return most;
}

static void measure(void *ctx, size_t begin, size_t end, unsigned worker)
{
    const struct measuring *m = ctx;
    const struct experts_form *f = m->f;
    float *buf = m->scratch + worker * m->ld;
    for (size_t e = begin; e < end; e++) {
        struct experts_peaks *p = &f->peaks[e];
        *p = (struct experts_peaks){.down = 0};
        for (int k = 0; k < f->n_products; k++) {
            const struct val *b = step_opt(m->s, EXPERTS_IN_BIAS + k);
            p->norm[k] = norm_of(step_in(m->s, EXPERTS_IN_PRODUCT + k),
                                 e * f->width, f->width, f->cols, buf);
            for (size_t i = 0; b != NULL && i < f->width; i++) {
                p->bias[k] = larger(fabsf(b->f[e * f->width + i]), p->bias[k]);
            }
        }
        p->down = norm_of(step_in(m->s, EXPERTS_IN_DOWN), e * f->out, f->out,
                          f->width, buf);
    }
}

void experts_measure(const struct step *s, unsigned threads, float *scratch)
{
    const struct experts_form *f = s->node->fused;
    struct measuring m = {.s = s, .f = f, .scratch = scratch};
    if (*f->measured) {
        return;
    }
    m.ld = num_max(f->cols, f->width);
    crew_run(threads, f->n, 1, measure, &m);
    *f->measured = true;
}

/* How large a step's result may be; b: of the registers. */
static float step_bound(const struct experts_step *t, const float *b)
{
    float x = t->in[0] < 0 ? fabsf(t->c) : b[t->in[0]];
    float y = !t->binary ? 0 : t->in[1] < 0 ? fabsf(t->c) : b[t->in[1]];
    if (!t->binary) {
        bool unit = t->def->sub == UN_SIGMOID || t->def->sub == UN_TANH;
        return unit ? 1 : x; /* silu, gelu and relu make nothing larger */
    }
    switch (t->def->sub) {
    case BIN_ADD:
    case BIN_SUB:
        return x + y;
    case BIN_MUL:
        return x * y;
    case BIN_MAX:
    case BIN_MIN:
        return larger(x, y);
    default: /* a quotient is bounded by its divisor alone */
        return t->in[1] < 0 && y > 0 ? x / y : INFINITY;
    }
}

bool experts_give_zero(const struct experts_form *f, size_t e, float x_norm,
                       bool round)
{
    float b[EXPERTS_REGISTERS] = {0}; /* of the gate: it is zero */
    const struct experts_peaks *p = &f->peaks[e];
    float reach = round ? HALF_REACH : REACH;
    bool ok = isfinite(p->down);
    for (int k = 0; k < f->n_products; k++) {
        b[k] = SLACK * (p->norm[k] * x_norm + p->bias[k]);
        ok = ok && b[k] <= reach;
    }
    for (int k = 0; ok && k < f->n_steps; k++) {
        b[EXPERTS_FIRST_STEP + k] = SLACK * step_bound(&f->steps[k], b);
        ok = b[EXPERTS_FIRST_STEP + k] <= reach;
    }
    return ok;
}
