/* States: fp16 arrays of a sequence, read and written in program order. */
#include <string.h>

#include "base/half.h"
#include "engine/cpu/graph/plan.h"
#include "engine/cpu/kernels/floats.h"
#include "engine/cpu/kernels/vmath.h"
#include "engine/cpu/ops/ops.h"

#define PIECE 64u /* elements of a row that are worked on at a time */

static const struct state_def *state_of(const struct step *s)
{
    return &s->plan->m->state[s->node->state];
}

/* sub 1: the consumers take fp16 in place (fuse.c). */
int read_state_prep(struct step *s, struct err *e)
{
    const struct state_def *d = state_of(s);
    return val_set(step_out(s, 0), s->node->def->sub == 1 ? VAL_F16 : VAL_F32,
                   d->type->rank, d->type->dims, e);
}

int read_state_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)e;
    struct val *o = step_out(s, 0);
    const uint16_t *from = r->st->data[s->node->state];
    if (o->kind == VAL_F16) {
        o->h = from;
    } else {
        half_to_floats(from, o->f, o->n);
    }
    return 0;
}

int write_state_prep(struct step *s, struct err *e)
{
    const struct val *v = step_in(s, 1);
    const struct state_def *d = state_of(s);
    if (v->kind != VAL_F32 || v->n != d->n) {
        return err_set(e, ERR_MIL_SHAPE, "data does not fit state %s", d->name);
    }
    return 0;
}

int write_state_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)e;
    const struct val *v = step_in(s, 1);
    half_from_floats(v->f, r->st->data[s->node->state], v->n);
    return 0;
}

/* --- store_rows(mask, new): fuse.c's form of the masked write ---
 *
 * state[h, s, d] = state * (1 - sum_t mask[s, t]) + sum_t mask[s, t] new[h, t,
 * d]
 *
 * Rows that no column of the mask touches do not change (times 1 plus 0), so
 * only the other rows are computed, with the operations of the plain form.
 */

struct store_params {
    size_t heads, s, d, t;
};

int store_rows_prep(struct step *s, struct err *e)
{
    const struct val *mask = step_in(s, 0);
    const struct val *new = step_in(s, 1);
    const struct mil_type *st = state_of(s)->type;
    struct store_params *u = step_alloc(s, sizeof(*u));
    s->u = u;
    u->t = mask->rank > 0 ? (size_t)mask->dims[mask->rank - 1] : 0;
    u->s = (size_t)st->dims[st->rank - 2];
    u->d = (size_t)st->dims[st->rank - 1];
    u->heads = state_of(s)->n / (u->s * u->d);
    if (mask->kind != VAL_F32 || new->kind != VAL_F32 || new->rank < 2 ||
        mask->n != u->s * u->t || new->n != u->heads * u->t * u->d ||
        (size_t) new->dims[new->rank - 2] != u->t) {
        return err_set(e, ERR_MIL_SHAPE, "the written rows do not fit %s",
                       state_of(s)->name);
    }
    return 0;
}

static float maybe_round(bool round, float v)
{
    return round ? half_round(v) : v;
}

static void round_some(bool round, float *x, size_t n)
{
    if (round) {
        half_round_floats(x, n);
    }
}

/* All layers of a shard share one mask: look through it once a run. */
static int find_touched(const struct step *s, uint64_t serial, struct err *e)
{
    const struct store_params *u = s->u;
    const struct val *mask = step_in(s, 0);
    struct plan *p = s->plan;
    if (p->touched_by == mask && p->touched_serial == serial) {
        return 0;
    }
    if (p->touched_cap < u->s) {
        uint32_t *more = realloc(p->touched, u->s * sizeof(*more));
        if (more == NULL) {
            return err_set(e, ERR_NOMEM, "a mask");
        }
        p->touched = more;
        p->touched_cap = u->s;
    }
    p->n_touched = 0;
    for (size_t row = 0; row < u->s; row++) {
        const float *w = mask->f + row * u->t;
        for (size_t t = 0; t < u->t; t++) {
            if (w[t] != 0.0f) {
                p->touched[p->n_touched++] = (uint32_t)row;
                break;
            }
        }
    }
    p->touched_by = mask;
    p->touched_serial = serial;
    return 0;
}

static void store_row(const struct store_params *u, const struct step *s,
                      const struct run *r, size_t row)
{
    const float *w = step_in(s, 0)->f + row * u->t;
    const float *new = step_in(s, 1)->f;
    bool round = r->round;
    float sum = maybe_round(round, vmath_sum(w, u->t));
    float keep = maybe_round(round, 1.0f - sum);
    for (size_t h = 0; h < u->heads; h++) {
        uint16_t *to = r->st->data[s->node->state] + (h * u->s + row) * u->d;
        const float *from = new + h * u->t * u->d;
        for (size_t d = 0; d < u->d; d += PIECE) {
            float a[PIECE] = {0};
            float old[PIECE];
            size_t n = u->d - d < PIECE ? u->d - d : PIECE;
            for (size_t t = 0; t < u->t; t++) {
                floats()->add_scaled(a, w[t], from + t * u->d + d, n);
            }
            half_to_floats(to + d, old, n);
            floats()->scale(old, old, keep, NULL, n);
            round_some(round, a, n);
            round_some(round, old, n);
            for (size_t i = 0; i < n; i++) {
                a[i] = old[i] + a[i];
            }
            round_some(round, a, n);
            half_from_floats(a, to + d, n);
        }
    }
}

int store_rows_run(const struct step *s, const struct run *r, struct err *e)
{
    const struct plan *p = s->plan;
    RETERR(find_touched(s, r->serial, e));
    for (size_t i = 0; i < p->n_touched; i++) {
        store_row(s->u, s, r, p->touched[i]);
    }
    return 0;
}
