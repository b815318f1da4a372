/* fake_rows.h - the fake of fake.h, which also runs rows of any sequences.
 *
 * The arithmetic is the same. A position that was never written, or was cut
 * off, reads as not-a-number, so does what stands after the numbers of a row:
 * rows, states, positions or windows that are mixed up show in the logits. What
 * can be checked at once is: rope rows, windows, the order of positions.
 */
#pragma once

#include <stdatomic.h>

#include "fake.h"

static struct {
    uint32_t max;      /* rows_max */
    bool columns;      /* the bundle has no function that runs rows */
    const char *wrong; /* a fault in the ports, or NULL */
    const struct backend_state *fail; /* a batch with a row of it fails */
    uint32_t calls, rows, widest;     /* of predict_rows on layers */
    uint32_t heads;                   /* rows of the first head */
    atomic_uint *begun; /* first layers, shared with who looks; NULL: nobody */
} fake_rows;

static void fake_rows_info(const struct backend_model *m,
                           struct backend_info *ret)
{
    static struct backend_row_port in[3][8];
    static struct backend_row_port out[2]; /* of the two heads' widths, 3 */
    size_t kind = m->kind == 'a' ? 0 : m->kind == 'b' ? 1 : 2;
    fake_info(m, ret);
    for (size_t i = 0; i < m->n_in; i++) {
        const char *name = m->in[i].name;
        enum backend_row_use use =
            strncmp(name, "attn_mask", 9) == 0   ? BACKEND_ROW_MASK
            : strcmp(name, "kv_write_mask") == 0 ? BACKEND_ROW_WRITE
                                                 : BACKEND_ROW_DATA;
        uint32_t width = use != BACKEND_ROW_DATA ? 0
                         : i == 0                ? FAKE_D
                                  : (uint32_t)m->in[i].type.dims[1];
        in[kind][i] = (struct backend_row_port){use, width};
    }
    const char *wrong = fake_rows.wrong != NULL ? fake_rows.wrong : "";
    if (strcmp(wrong, "width") == 0 && m->kind == 'b') {
        in[kind][1].width++;
    } else if (strcmp(wrong, "use") == 0 && m->kind == 'b') {
        in[kind][3].use = BACKEND_ROW_DATA;
    }
    out[kind == 2].width = m->rows + (strcmp(wrong, "out") == 0 ? 1U : 0U);
    ret->row_in = in[kind];
    ret->row_out = &out[kind == 2];
    /* of several functions, that of T = 1 */
    ret->rows_max = m->t <= 1 && !fake.host ? fake_rows.max : 0;
}

static int fake_rows_state_new(struct backend_model *m,
                               struct backend_state **ret, struct err *e)
{
    assert_true(m->t <= 1 || fake_rows.columns); /* which runs the rows */
    int rc = fake_state_new(m, ret, e);
    for (size_t i = 0; i < FAKE_S; i++) {
        (*ret)->held[i] = FAKE_HOLE;
    }
    return rc;
}

static void fake_rows_truncate(struct backend_state *s, uint32_t n)
{
    for (uint32_t i = n; i < FAKE_S; i++) {
        s->held[i] = FAKE_HOLE;
    }
}

static int fake_rows_fork(const struct backend_state *from, uint32_t n,
                          struct backend_state **ret, struct err *e)
{
    (void)e;
    *ret = calloc(1, sizeof(**ret));
    assert_non_null(*ret);
    **ret = *from;
    fake_rows_truncate(*ret, n);
    return 0;
}

/* A row's numbers of one input, as an array that fake_check_rope reads. */
static struct tensor fake_row(const struct backend_model *m,
                              const struct backend_rows *in, size_t r,
                              const char *name)
{
    for (size_t i = 0; i < m->n_in; i++) {
        if (strcmp(m->in[i].name, name) == 0) {
            const float *p = in->in[i].p + r * in->in[i].ld;
            return (struct tensor){.dtype = MIL_FP32,
                                   .data = (void *)(uintptr_t)p};
        }
    }
    fail_msg("no input %s", name);
    abort(); /* not reached */
}

static void fake_row_sight(const struct backend_model *m,
                           const struct backend_rows *in, size_t r,
                           const char *name, uint32_t lo, uint32_t hi)
{
    for (size_t i = 0; i < m->n_in; i++) {
        if (strcmp(m->in[i].name, name) == 0) {
            assert_int_equal(in->lo[i][r], lo);
            assert_int_equal(in->hi[i][r], hi);
        }
    }
}

static uint32_t fake_window(uint32_t pos)
{
    return pos + 1 > FAKE_WINDOW ? pos + 1 - FAKE_WINDOW : 0;
}

/* Everything but x is known from the position. */
static void fake_row_check(const struct backend_model *m,
                           const struct backend_rows *in, size_t r)
{
    uint32_t pos = in->write[r];
    assert_true(pos < FAKE_S);
    assert_non_null(in->state[r]);
    for (size_t q = r; q-- > 0;) { /* the last row of the same sequence */
        if (in->state[q] == in->state[r]) {
            assert_int_equal(in->write[q] + 1, pos);
            break;
        }
    }
    struct tensor t = fake_row(m, in, r, "rope_cos");
    fake_check_rope(&t, 0, FAKE_HALF, pos, FAKE_BASE, false);
    t = fake_row(m, in, r, "rope_sin");
    fake_check_rope(&t, 0, FAKE_HALF, pos, FAKE_BASE, true);
    fake_row_sight(m, in, r, "attn_mask", 0, pos + 1);
    if (m->kind == 'b') {
        t = fake_row(m, in, r, "rope_cos_local");
        fake_check_rope(&t, 0, 1, pos, FAKE_BASE_LOCAL, false);
        fake_row_sight(m, in, r, "attn_mask_local", fake_window(pos), pos + 1);
    }
}

static void fake_row_layer(const struct backend_model *m,
                           const struct backend_rows *in,
                           const struct backend_row_out *out)
{
    for (size_t r = 0; r < in->n; r++) {
        fake_row_check(m, in, r);
        in->state[r]->held[in->write[r]] =
            half_from_float(in->in[0].p[r * in->in[0].ld]);
    }
    for (size_t r = 0; r < in->n; r++) {
        const float *x = in->in[0].p + r * in->in[0].ld;
        float *y = out->p + r * out->ld;
        uint32_t pos = in->write[r];
        float sum = 0;
        for (uint32_t p = m->kind == 'b' ? fake_window(pos) : 0; p <= pos;
             p++) {
            sum += half_to_float(in->state[r]->held[p]) * (float)(p % 3 + 1);
        }
        for (size_t c = 0; c < out->ld; c++) {
            y[c] = c < FAKE_D ? x[c] + sum : NAN;
        }
        assert_false(fabsf(x[2] - x[0] - 1) > 0.01F); /* one token's numbers */
    }
}

static int fake_predict_rows(struct backend_model *m,
                             const struct backend_rows *in,
                             struct backend_row_out *out, size_t n_out,
                             struct err *e)
{
    if (fake_fails()) {
        return err_set(e, ERR_MIL_OP, "the fake fails");
    }
    assert_int_equal(n_out, 1);
    assert_string_equal(out->name, m->out[0].name);
    assert_true(in->n > 0 && in->n <= fake_rows.max);
    assert_true(in->in[0].ld >= FAKE_D && out->ld >= m->rows);
    if (m->kind == 'h') {
        for (size_t r = 0; r < in->n; r++) {
            for (uint32_t v = 0; v < m->rows; v++) {
                out->p[r * out->ld + v] = fake_logit(
                    in->in[0].p[r * in->in[0].ld], (m->rows == 6 ? 0 : 6) + v);
            }
        }
        fake_rows.heads += m->rows == 6 ? (uint32_t)in->n : 0;
        return 0;
    }
    for (size_t r = 0; r < in->n; r++) {
        if (in->state[r] == fake_rows.fail && fake_rows.fail != NULL) {
            return err_set(e, ERR_NOMEM, "no block is left");
        }
    }
    fake_row_layer(m, in, out);
    if (fake_rows.begun != NULL && m->kind == 'a') {
        (void)atomic_fetch_add(fake_rows.begun, 1);
    }
    fake_rows.calls++;
    fake_rows.rows += (uint32_t)in->n;
    fake_rows.widest =
        in->n > fake_rows.widest ? (uint32_t)in->n : fake_rows.widest;
    return 0;
}

static void fake_rows_trim(struct backend_model *m)
{
    (void)m;
}

static const struct backend_row_ops fake_row_ops = {
    .predict = fake_predict_rows,
    .fork = fake_rows_fork,
    .truncate = fake_rows_truncate,
    .trim = fake_rows_trim,
};

static const struct backend fake_rows_backend = {
    FAKE_BACKEND,
    .info = fake_rows_info,
    .state_new = fake_rows_state_new,
    .rows = &fake_row_ops,
};
