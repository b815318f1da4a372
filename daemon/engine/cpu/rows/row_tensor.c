/* row_tensor.c - a prediction given as tensors, run as rows.
 *
 * T's axis becomes rows, a mask becomes the range of positions that each row
 * sees, the write mask becomes positions. A mask must be 0 over one range and
 * "hidden" elsewhere; with any other mask the program runs as a whole, on a
 * flat copy of the states. More rows than a run takes are several runs, where
 * nothing but values goes in: a row's bits are the same in each. */
#include <string.h>

#include "base/num.h"
#include "engine/cpu/ops/op_attention.h"
#include "engine/cpu/rows/row_make.h"

struct taken {
    struct backend_rows rows;
    struct backend_row_in *in;
    float **data; /* of each input: [rows][width], masks [rows][S] */
    uint32_t *write;
    uint32_t **lo, **hi;
    struct backend_state **state;
};

/* Elements before and after T's axis, and T. */
static void around(const struct tensor *t, int axis, size_t *outer, size_t *n,
                   size_t *inner)
{
    *outer = *n = *inner = 1;
    for (int i = 0; i < t->rank; i++) {
        size_t d = (size_t)t->dims[i];
        *(axis < 0 || i > axis ? inner : i < axis ? outer : n) *= d;
    }
}

/* [outer][n][inner] -> [n][outer * inner] */
static void to_rows(const float *x, size_t outer, size_t n, size_t inner,
                    float *out)
{
    for (size_t o = 0; o < outer; o++) {
        for (size_t r = 0; r < n; r++) {
            memcpy(out + (r * outer + o) * inner, x + (o * n + r) * inner,
                   inner * sizeof(*x));
        }
    }
}

static void from_rows(const float *x, size_t outer, size_t n, size_t inner,
                      float *out)
{
    for (size_t o = 0; o < outer; o++) {
        for (size_t r = 0; r < n; r++) {
            memcpy(out + (o * n + r) * inner, x + (r * outer + o) * inner,
                   inner * sizeof(*x));
        }
    }
}

/* False: not one visible stretch. */
static bool stretch(const float *m, size_t n, uint32_t *lo, uint32_t *hi)
{
    size_t a = 0;
    while (a < n && m[a] <= ATTENTION_MASK) {
        a++;
    }
    size_t b = a;
    while (b < n && m[b] == 0.0f) {
        b++;
    }
    *lo = (uint32_t)a;
    *hi = (uint32_t)b;
    while (b < n && m[b] <= ATTENTION_MASK) {
        b++;
    }
    return b == n && *lo < *hi;
}

/* False: not a single 1 and zeros, nor all zeros. */
static bool position(const float *m, size_t n, uint32_t *at)
{
    *at = BACKEND_NO_WRITE;
    for (size_t i = 0; i < n; i++) {
        if (m[i] == 0.0f) {
            continue;
        }
        if (m[i] != 1.0f || *at != BACKEND_NO_WRITE) {
            return false;
        }
        *at = (uint32_t)i;
    }
    return true;
}

static void drop(const struct row_program *p, struct taken *t)
{
    for (size_t k = 0; k < p->m->n_in; k++) {
        free(t->data != NULL ? t->data[k] : NULL);
        free(t->lo != NULL ? t->lo[k] : NULL);
        free(t->hi != NULL ? t->hi[k] : NULL);
    }
    free(t->in);
    free(t->data);
    free(t->write);
    free(t->lo);
    free(t->hi);
    free(t->state);
}

static bool take_room(const struct row_program *p, struct taken *t)
{
    size_t n = p->m->n_in;
    t->in = calloc(n, sizeof(*t->in));
    t->data = calloc(n, sizeof(*t->data));
    t->lo = calloc(n, sizeof(*t->lo));
    t->hi = calloc(n, sizeof(*t->hi));
    t->write = calloc(t->rows.n, sizeof(*t->write));
    t->state = calloc(t->rows.n, sizeof(*t->state));
    bool ok = t->in != NULL && t->data != NULL && t->lo != NULL &&
              t->hi != NULL && t->write != NULL && t->state != NULL;
    for (size_t k = 0; ok && k < n; k++) {
        size_t width = p->v[p->m->in_slot[k]].n;
        t->data[k] = calloc(t->rows.n * width + 1, sizeof(float));
        t->lo[k] = calloc(t->rows.n, sizeof(uint32_t));
        t->hi[k] = calloc(t->rows.n, sizeof(uint32_t));
        ok = t->data[k] != NULL && t->lo[k] != NULL && t->hi[k] != NULL;
    }
    for (size_t r = 0; ok && r < t->rows.n; r++) {
        t->write[r] = BACKEND_NO_WRITE;
    }
    return ok;
}

/* 1: it can be said in rows; 0: it cannot. */
static int take_input(const struct row_program *p, size_t k,
                      const struct tensor *x, struct taken *t, struct err *e)
{
    size_t outer = 0;
    size_t n = 0;
    size_t inner = 0;
    around(x, p->t_axis_in[k], &outer, &n, &inner);
    size_t width = outer * inner;
    if (n != t->rows.n || width != p->v[p->m->in_slot[k]].n) {
        return 0;
    }
    float *tmp = calloc(width * n + 1, sizeof(*tmp));
    if (tmp == NULL) {
        return err_set(e, ERR_NOMEM, "input %s", x->name);
    }
    plan_floats(x, width * n, tmp);
    to_rows(tmp, outer, n, inner, t->data[k]);
    free(tmp);
    t->in[k] = (struct backend_row_in){t->data[k], width};
    bool ok = true;
    uint32_t next = 0; /* positions in order: none is written twice */
    for (size_t r = 0; ok && r < n; r++) {
        const float *row = t->data[k] + r * width;
        if (p->in_port[k].use == BACKEND_ROW_MASK) {
            ok = stretch(row, width, &t->lo[k][r], &t->hi[k][r]);
        } else if (p->in_port[k].use == BACKEND_ROW_WRITE) {
            ok = position(row, width, &t->write[r]) &&
                 (t->write[r] == BACKEND_NO_WRITE || t->write[r] >= next);
            next = t->write[r] != BACKEND_NO_WRITE ? t->write[r] + 1 : next;
        }
    }
    return ok ? 1 : 0;
}

static int give(struct row_program *p, size_t k, const struct taken *t,
                const float *rows, struct tensor *out, struct err *e)
{
    const struct val *o = row_val(p, p->m->out_slot[k]);
    size_t outer = 0;
    size_t n = 0;
    size_t inner = 0;
    out->dtype = MIL_FP32;
    out->rank = o->rank;
    memcpy(out->dims, o->dims, (size_t)o->rank * sizeof(*o->dims));
    if (p->t_axis_out[k] >= 0) {
        out->dims[p->t_axis_out[k]] = (int64_t)t->rows.n;
    }
    around(out, p->t_axis_out[k], &outer, &n, &inner);
    float *f = realloc(p->m->out_buf[k], (outer * n * inner + 1) * sizeof(*f));
    if (f == NULL) {
        return err_set(e, ERR_NOMEM, "output %s", p->m->out[k].name);
    }
    p->m->out_buf[k] = f;
    from_rows(rows, outer, n, inner, f);
    out->data = f;
    if (o->kind == VAL_I32) {
        out->dtype = MIL_INT32;
        for (size_t i = 0; i < outer * n * inner; i++) {
            int32_t v = (int32_t)f[i];
            memcpy(f + i, &v, sizeof(v));
        }
    }
    return 0;
}

/* Rows of values alone: they may be run in any order, and some at a time. */
static bool values_only(const struct row_program *p)
{
    bool only = p->m->n_states == 0 && p->n_tails == 0;
    for (size_t k = 0; k < p->m->n_in; k++) {
        only = only && p->in_port[k].use == BACKEND_ROW_DATA;
    }
    return only;
}

/* All rows, p->rows_max at most at a time; o: the results of all. */
static int run_all(struct row_program *p, struct taken *t,
                   struct backend_row_out *o, struct err *e)
{
    const struct backend_model *m = p->m;
    struct backend_rows some = t->rows;
    struct backend_row_out *out = calloc(m->n_out + 1, sizeof(*out));
    int rc = out != NULL ? 0 : err_set(e, ERR_NOMEM, "outputs");
    for (size_t at = 0; at < t->rows.n && rc == 0; at += some.n) {
        some.n = num_min(t->rows.n - at, p->rows_max);
        for (size_t k = 0; k < m->n_in; k++) {
            t->in[k].p = t->data[k] + at * t->in[k].ld;
        }
        for (size_t i = 0; i < m->n_out; i++) {
            out[i] = o[i];
            out[i].p += at * o[i].ld;
        }
        rc = row_run(p, &some, out, m->n_out, e);
    }
    free(out);
    return rc;
}

static int run(struct row_program *p, struct taken *t, struct tensor *out,
               struct err *e)
{
    const struct backend_model *m = p->m;
    struct backend_row_out *o = calloc(m->n_out + 1, sizeof(*o));
    int rc = 0;
    if (o == NULL) {
        return err_set(e, ERR_NOMEM, "outputs");
    }
    for (size_t i = 0; i < m->n_out; i++) {
        size_t width = p->out_port[i].width;
        o[i] = (struct backend_row_out){
            m->out[i].name, calloc(t->rows.n * width + 1, sizeof(float)),
            width};
        if (o[i].p == NULL) {
            rc = err_set(e, ERR_NOMEM, "outputs");
            goto out;
        }
    }
    CHECK(run_all(p, t, o, e));
    for (size_t i = 0; i < m->n_out; i++) {
        CHECK(give(p, i, t, o[i].p, &out[i], e));
    }
out:
    for (size_t i = 0; i < m->n_out; i++) {
        free(o[i].p);
    }
    free(o);
    return rc;
}

int row_predict(struct row_program *p, struct backend_state *s,
                struct tensor *out, struct err *e)
{
    const struct backend_model *m = p->m;
    struct taken t = {.rows = {.n = 1}};
    int rc = 1;
    for (size_t k = 0; k < m->n_in; k++) {
        int axis = p->t_axis_in[k];
        t.rows.n = axis >= 0 ? (size_t)m->in_now[k]->dims[axis] : t.rows.n;
    }
    if (t.rows.n < 1 || p->n_tails > 0 ||
        (t.rows.n > p->rows_max && !values_only(p))) {
        return 1; /* a tail that is given is not the state's */
    }
    if (!take_room(p, &t)) {
        rc = err_set(e, ERR_NOMEM, "inputs");
        goto out;
    }
    for (size_t r = 0; r < t.rows.n; r++) {
        t.state[r] = s;
    }
    for (size_t k = 0; k < m->n_in && rc == 1; k++) {
        rc = take_input(p, k, m->in_now[k], &t, e);
    }
    if (rc != 1) {
        rc = rc == 0 ? 1 : rc;
        goto out;
    }
    t.rows.in = t.in;
    t.rows.state = t.state;
    t.rows.write = t.write;
    t.rows.lo = (const uint32_t *const *)t.lo;
    t.rows.hi = (const uint32_t *const *)t.hi;
    rc = run(p, &t, out, e);
out:
    drop(p, &t);
    return rc;
}
