/* row_twin.c - see row_twin.h. */
#include "row_twin.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool no(struct twin *t, const char *what, const char *more)
{
    (void)snprintf(t->why, sizeof(t->why), "%s: %s", what, more);
    return false;
}

static bool begins(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

static void *room(size_t n, size_t size)
{
    void *p = calloc(n + 1, size);
    must(p != NULL);
    return p;
}

static const struct backend *second(const struct twin *t)
{
    return t->nudged ? &backend_interpreter : &backend_cpu;
}

/* --- shapes --- */

static int t_axis(const struct backend_port *p)
{
    for (int i = 0; i < p->type.rank; i++) {
        if (p->type.dims[i] == MIL_UNKNOWN) {
            return i;
        }
    }
    return -1;
}

static void around(const struct backend_port *p, size_t *outer, size_t *inner)
{
    int at = t_axis(p);
    *outer = *inner = 1;
    for (int i = 0; i < p->type.rank; i++) {
        if (i != at) {
            *(i < at ? outer : inner) *= (size_t)p->type.dims[i];
        }
    }
}

static size_t width(const struct backend_port *p)
{
    size_t outer = 0;
    size_t inner = 0;
    around(p, &outer, &inner);
    return outer * inner;
}

/* --- inputs --- */

static uint32_t mix(uint32_t h)
{
    h ^= h >> 16;
    h *= 0x7feb352du;
    h ^= h >> 15;
    h *= 0x846ca68bu;
    return h ^ (h >> 16);
}

static uint32_t first_seen(const struct twin *t, const char *name, uint32_t pos)
{
    return begins(name, "window") && pos + 1 > t->window ? pos + 1 - t->window
                                                         : 0;
}

static float beside(float x, uint32_t h)
{
    return nextafterf(x, (h & 1) != 0 ? 2.0f : -2.0f);
}

/* One row of an input. */
static void fill(const struct twin *t, size_t input, int seq, uint32_t pos,
                 float *out, size_t n)
{
    const char *name = t->info.in[input].name;
    uint32_t lo = first_seen(t, name, pos);
    bool mask = begins(name, "mask") || begins(name, "window");
    uint32_t h = mix(t->seed ^ mix((uint32_t)input * 7u + (uint32_t)seq) ^
                     mix(pos * 2654435761u));
    for (size_t i = 0; i < n; i++) {
        if (mask) {
            out[i] = i >= lo && i <= pos ? 0.0f : -1e4f;
        } else if (begins(name, "write")) {
            out[i] = i == pos ? 1.0f : 0.0f;
        } else {
            out[i] = (float)(mix(h + (uint32_t)i) >> 8) / 8388608.0f - 1.0f;
        }
    }
}

/* n rows of a sequence from `pos` on, as tensors. */
static struct tensor *make_inputs(const struct twin *t, bool nudged, int seq,
                                  uint32_t pos, uint32_t n)
{
    struct tensor *in = room(t->info.n_in, sizeof(*in));
    for (size_t k = 0; k < t->info.n_in; k++) {
        const struct backend_port *p = &t->info.in[k];
        size_t outer = 0;
        size_t inner = 0;
        around(p, &outer, &inner);
        float *row = room(outer * inner, sizeof(*row));
        float *all = room(outer * inner * n, sizeof(*all));
        for (uint32_t r = 0; r < n; r++) {
            fill(t, k, seq, pos + r, row, outer * inner);
            for (size_t i = 0; nudged && i < outer * inner; i++) {
                bool noise = fabsf(row[i]) > 0 && fabsf(row[i]) < 1;
                row[i] = noise ? beside(row[i], mix(pos + r + (uint32_t)i))
                               : row[i];
            }
            for (size_t o = 0; o < outer; o++) {
                memcpy(all + (o * n + r) * inner, row + o * inner,
                       inner * sizeof(*row));
            }
        }
        free(row);
        in[k] = (struct tensor){.name = p->name,
                                .dtype = MIL_FP32,
                                .rank = p->type.rank,
                                .data = all};
        for (int i = 0; i < p->type.rank; i++) {
            in[k].dims[i] =
                p->type.dims[i] == MIL_UNKNOWN ? n : p->type.dims[i];
        }
    }
    return in;
}

static void drop_inputs(const struct twin *t, struct tensor *in)
{
    for (size_t k = 0; k < t->info.n_in; k++) {
        free(in[k].data);
    }
    free(in);
}

/* All outputs of one prediction; NULL and why. */
static struct tensor *predict(struct twin *t, bool rows, int seq, uint32_t pos,
                              uint32_t n)
{
    struct err e = {0};
    const struct backend *b = rows ? second(t) : &backend_interpreter;
    struct twin_seq *s = &t->seq[seq];
    struct tensor *in = make_inputs(t, rows && t->nudged, seq, pos, n);
    struct tensor *out = room(t->info.n_out, sizeof(*out));
    for (size_t k = 0; k < t->info.n_out; k++) {
        out[k].name = t->info.out[k].name;
    }
    int rc = plain_predict(b, rows ? t->rows : t->ref, rows ? s->rows : s->ref, in,
                        t->info.n_in, out, t->info.n_out, &e);
    drop_inputs(t, in);
    if (rc < 0) {
        (void)no(t, rows ? "compiled" : "interpreter", e.msg);
        free(out);
        return NULL;
    }
    return out;
}

/* --- comparison --- */

static bool close_to(struct twin *t, const char *what, const float *want,
                     const float *got, size_t n, uint32_t pos)
{
    float top = TWIN_LEAST;
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        top = fabsf(want[i]) > top ? fabsf(want[i]) : top;
    }
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)want[i] - (double)got[i]) / (double)top;
        if (!(d <= worst)) { /* a NaN too */
            worst = d;
            at = i;
        }
    }
    t->worst = worst <= t->worst ? t->worst : worst;
    if (worst <= (double)t->bound) {
        return true;
    }
    (void)snprintf(t->why, sizeof(t->why),
                   "%s, row %u, element %zu of %zu: %.9g, not %.9g (the row's "
                   "largest is %g: error %.3g)",
                   what, pos, at, n, (double)got[at], (double)want[at],
                   (double)top, worst);
    return false;
}

/* Row r of n of an output. */
static void take_row(const struct backend_port *p, const struct tensor *x,
                     size_t r, size_t n, float *out)
{
    size_t outer = 0;
    size_t inner = 0;
    around(p, &outer, &inner);
    for (size_t o = 0; o < outer; o++) {
        memcpy(out + o * inner, (const float *)x->data + (o * n + r) * inner,
               inner * sizeof(*out));
    }
}

/* --- runs --- */

bool twin_reference(struct twin *t, int seq, uint32_t n)
{
    struct twin_seq *s = &t->seq[seq];
    if (s->n_ref + n > TWIN_ROWS) {
        return no(t, "twin", "too many rows");
    }
    struct tensor *out = predict(t, false, seq, s->n_ref, n);
    for (size_t k = 0; out != NULL && k < t->info.n_out; k++) {
        const struct backend_port *p = &t->info.out[k];
        for (uint32_t r = 0; r < n; r++) {
            take_row(p, &out[k], r, n, s->want[k] + (s->n_ref + r) * width(p));
        }
    }
    s->n_ref += n;
    free(out);
    return out != NULL;
}

bool twin_predict(struct twin *t, int seq, uint32_t n)
{
    struct twin_seq *s = &t->seq[seq];
    struct tensor *out = predict(t, true, seq, s->n_rows, n);
    bool ok = out != NULL;
    for (size_t k = 0; ok && k < t->info.n_out; k++) {
        const struct backend_port *p = &t->info.out[k];
        size_t w = width(p);
        float *row = room(w, sizeof(*row));
        for (uint32_t r = 0; ok && r < n; r++) {
            uint32_t pos = s->n_rows + r;
            take_row(p, &out[k], r, n, row);
            ok = close_to(t, p->name, s->want[k] + pos * w, row, w, pos);
        }
        free(row);
    }
    s->n_rows += n;
    free(out);
    return ok;
}

static bool same_shape(const struct tensor *a, const struct tensor *b,
                       size_t *n)
{
    *n = 1;
    for (int i = 0; i < a->rank; i++) {
        *n *= (size_t)a->dims[i];
    }
    return a->rank == b->rank &&
           memcmp(a->dims, b->dims, (size_t)a->rank * sizeof(*a->dims)) == 0;
}

bool twin_whole(struct twin *t, int seq, uint32_t n)
{
    struct twin_seq *s = &t->seq[seq];
    struct tensor *a = predict(t, false, seq, s->n_ref, n);
    struct tensor *b = a != NULL ? predict(t, true, seq, s->n_rows, n) : NULL;
    bool ok = b != NULL;
    for (size_t k = 0; ok && k < t->info.n_out; k++) {
        size_t all = 0;
        ok = same_shape(&a[k], &b[k], &all)
                 ? close_to(t, a[k].name, a[k].data, b[k].data, all, s->n_ref)
                 : no(t, a[k].name, "another shape");
    }
    s->n_ref += n;
    s->n_rows += n;
    free(a);
    free(b);
    return ok;
}

/* What predict_rows takes, and its memory. */
struct rows_call {
    struct backend_rows rows;
    struct backend_row_in in[16];
    struct backend_row_out out[16];
    float *data[16];
    uint32_t *lo[16], *hi[16];
    const uint32_t *clo[16], *chi[16];
    struct backend_state *state[ENGINE_STEP_ROWS_MAX];
    uint32_t write[ENGINE_STEP_ROWS_MAX], pos[ENGINE_STEP_ROWS_MAX];
};

static void set_call(struct twin *t, struct rows_call *c, const uint8_t *which)
{
    size_t n = c->rows.n;
    for (size_t r = 0; r < n; r++) {
        c->pos[r] = c->write[r] = t->seq[which[r]].n_rows++;
        c->state[r] = t->seq[which[r]].rows;
    }
    for (size_t k = 0; k < t->info.n_in; k++) {
        size_t w = width(&t->info.in[k]);
        size_t ld = w + 3; /* not a multiple of anything */
        c->data[k] = room(n * ld, sizeof(float));
        c->lo[k] = room(n, sizeof(uint32_t));
        c->hi[k] = room(n, sizeof(uint32_t));
        for (size_t r = 0; r < n; r++) {
            fill(t, k, which[r], c->pos[r], c->data[k] + r * ld, w);
            c->lo[k][r] = first_seen(t, t->info.in[k].name, c->pos[r]);
            c->hi[k][r] = c->pos[r] + 1;
        }
        c->in[k] = (struct backend_row_in){
            t->info.row_in[k].use == BACKEND_ROW_DATA ? c->data[k] : NULL, ld};
        c->clo[k] = c->lo[k];
        c->chi[k] = c->hi[k];
    }
    for (size_t k = 0; k < t->info.n_out; k++) {
        size_t ld = width(&t->info.out[k]) + 5;
        c->out[k] = (struct backend_row_out){t->info.out[k].name,
                                             room(n * ld, sizeof(float)), ld};
    }
    c->rows.in = c->in;
    c->rows.state = t->info.n_states > 0 ? c->state : NULL;
    c->rows.write = c->write;
    c->rows.lo = c->clo;
    c->rows.hi = c->chi;
}

static bool goes_on(void *ctx)
{
    uint32_t *left = ctx;
    return (*left)-- > 0;
}

/* The rows called off at some product, every third time: it leaves no trace. */
static bool call_off(struct twin *t, struct rows_call *c)
{
    struct err e = {0};
    uint32_t left = t->calls++ / 3 % 7;
    if (t->calls % 3 != 0) {
        return true;
    }
    c->rows.go = goes_on;
    c->rows.go_ctx = &left;
    int rc =
        backend_cpu.rows->predict(t->rows, &c->rows, c->out, t->info.n_out, &e);
    c->rows.go = NULL;
    t->called_off += rc == ERR_CANCELLED;
    return rc == 0 || rc == ERR_CANCELLED || no(t, "called off", e.msg);
}

bool twin_rows(struct twin *t, uint32_t n, const uint8_t *which)
{
    struct err e = {0};
    must(n > 0 && n <= ENGINE_STEP_ROWS_MAX && t->info.n_in <= 16 &&
         t->info.n_out <= 16);
    struct rows_call *c = room(1, sizeof(*c));
    c->rows.n = n;
    set_call(t, c, which);
    bool ok = call_off(t, c);
    int rc =
        backend_cpu.rows->predict(t->rows, &c->rows, c->out, t->info.n_out, &e);
    ok = ok && (rc == 0 || no(t, "predict_rows", e.msg));
    for (size_t k = 0; ok && k < t->info.n_out; k++) {
        size_t w = width(&t->info.out[k]);
        for (size_t r = 0; ok && r < n; r++) {
            ok = close_to(t, t->info.out[k].name,
                          t->seq[which[r]].want[k] + c->pos[r] * w,
                          c->out[k].p + r * c->out[k].ld, w, c->pos[r]);
        }
    }
    for (size_t k = 0; k < t->info.n_in; k++) {
        free(c->data[k]);
        free(c->lo[k]);
        free(c->hi[k]);
    }
    for (size_t k = 0; k < t->info.n_out; k++) {
        free(c->out[k].p);
    }
    free(c);
    return ok;
}

/* --- open and close --- */

bool twin_open(struct twin *t, const char *path,
               const struct backend_conf *conf)
{
    struct err e = {0};
    struct backend_conf ref = {.threads = 1};
    int rc = backend_interpreter.open(path, NULL, &ref, &t->ref, &e);
    if (rc == 0) {
        rc = second(t)->open(path, NULL, t->nudged ? &ref : conf, &t->rows, &e);
    }
    if (rc < 0) {
        return no(t, "open", e.msg);
    }
    second(t)->info(t->rows, &t->info);
    backend_interpreter.info(t->ref, &t->ref_info);
    for (size_t k = 0; k < t->info.n_in; k++) {
        t->has_t = t->has_t || t_axis(&t->info.in[k]) >= 0;
    }
    for (int i = 0; i < TWIN_SEQS; i++) {
        struct twin_seq *s = &t->seq[i];
        if (t->info.n_states > 0 &&
            (second(t)->state_new(t->rows, &s->rows, &e) < 0 ||
             backend_interpreter.state_new(t->ref, &s->ref, &e) < 0)) {
            return no(t, "state", e.msg);
        }
        s->want = room(t->info.n_out, sizeof(*s->want));
        for (size_t k = 0; t->info.rows_max > 0 && k < t->info.n_out; k++) {
            s->want[k] =
                room(TWIN_ROWS * width(&t->info.out[k]), sizeof(float));
        }
    }
    return true;
}

void twin_close(struct twin *t)
{
    for (int i = 0; i < TWIN_SEQS; i++) {
        struct twin_seq *s = &t->seq[i];
        second(t)->state_free(s->rows);
        backend_interpreter.state_free(s->ref);
        for (size_t k = 0; s->want != NULL && k < t->info.n_out; k++) {
            free(s->want[k]);
        }
        free(s->want);
    }
    second(t)->close(t->rows);
    backend_interpreter.close(t->ref);
    t->rows = t->ref = NULL;
}
