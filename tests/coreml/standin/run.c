/* run.c - see run.h. */
#include "run.h"

#include <stdatomic.h>
#include <string.h>

#include "engine/array.h"
#include "engine/cpu/backend_cpu.h"
#include "engine/dense.h"

struct run_model {
    atomic_int users;
    struct backend_model *m;
    struct dense dense;
    struct tensor *in, *out; /* of a call */
    size_t in_cap, out_cap;
};

struct run_state {
    struct run_model *m; /* a user of it */
    struct backend_state *s;
};

static const struct backend *const b = &backend_interpreter;

int si_run_open(const char *pkg, const char *function, bool fp32,
                unsigned threads, struct run_model **ret, struct err *e)
{
    const struct cpu_conf cpu = {.round_fp16 = !fp32};
    const struct backend_conf conf = {.threads = threads, .cpu = &cpu};
    struct backend_model *m = NULL;
    RETERR(b->open(pkg, function, &conf, &m, e));
    *ret = calloc(1, sizeof(**ret));
    must(*ret != NULL);
    (*ret)->m = m;
    must(dense_init(&(*ret)->dense, b, m, e) == 0);
    (*ret)->in_cap = (*ret)->dense.info.n_in;
    (*ret)->out_cap = (*ret)->dense.info.n_out;
    (*ret)->in = calloc((*ret)->in_cap + 1, sizeof(*(*ret)->in));
    (*ret)->out = calloc((*ret)->out_cap + 1, sizeof(*(*ret)->out));
    must((*ret)->in != NULL && (*ret)->out != NULL);
    atomic_init(&(*ret)->users, 1);
    return 0;
}

struct run_model *si_run_ref(struct run_model *m)
{
    (void)atomic_fetch_add(&m->users, 1);
    return m;
}

void si_run_unref(struct run_model *m)
{
    if (m == NULL || atomic_fetch_sub(&m->users, 1) > 1) {
        return;
    }
    dense_fini(&m->dense);
    b->close(m->m);
    free(m->in);
    free(m->out);
    free(m);
}

static struct tensor tensor_of(const struct run_array *a)
{
    struct tensor t = {
        .name = a->name, .dtype = a->dtype, .rank = a->rank, .data = a->data};
    memcpy(t.dims, a->dims, sizeof(t.dims));
    return t;
}

int si_run_predict(struct run_model *m, struct run_state *s,
                   const struct run_array *in, size_t n_in,
                   struct run_array *out, size_t n_out, struct err *e)
{
    must(n_in <= m->in_cap && n_out <= m->out_cap);
    for (size_t i = 0; i < n_in; i++) {
        m->in[i] = tensor_of(&in[i]);
    }
    for (size_t i = 0; i < n_out; i++) {
        m->out[i] = (struct tensor){.name = out[i].name};
    }
    RETERR(dense_predict(&m->dense, s != NULL ? s->s : NULL, m->in, n_in,
                         m->out, n_out, e));
    for (size_t i = 0; i < n_out; i++) {
        out[i].dtype = m->out[i].dtype;
        out[i].rank = m->out[i].rank;
        memcpy(out[i].dims, m->out[i].dims, sizeof(out[i].dims));
        out[i].data = m->out[i].data;
    }
    return 0;
}

int si_run_state_new(struct run_model *m, struct run_state **ret, struct err *e)
{
    struct backend_state *s = NULL;
    RETERR(b->state_new(m->m, &s, e));
    *ret = calloc(1, sizeof(**ret));
    must(*ret != NULL);
    (*ret)->m = si_run_ref(m);
    (*ret)->s = s;
    return 0;
}

void si_run_state_free(struct run_state *s)
{
    if (s != NULL) {
        b->state_free(s->s);
        si_run_unref(s->m);
        free(s);
    }
}

struct moved {
    uint16_t *p;
    size_t n;
    bool in;
};

static int move(void *ctx, struct backend_array *a, struct err *e)
{
    const struct moved *v = ctx;
    struct tensor t = {.dtype = MIL_FP16, .rank = a->rank, .data = v->p};
    (void)e;
    must(a->dtype == MIL_FP16 && array_count(a) == v->n);
    memcpy(t.dims, a->dims, sizeof(t.dims));
    if (v->in) {
        array_from_dense(a, &t);
    } else {
        array_to_dense(a, &t);
    }
    return 0;
}

int si_run_state_read(struct run_state *s, const char *name, uint16_t *out,
                      size_t n, struct err *e)
{
    struct moved v = {out, n, false};
    return b->state_with(s->s, name, move, &v, e);
}

int si_run_state_write(struct run_state *s, const char *name,
                       const uint16_t *in, size_t n, struct err *e)
{
    struct moved v = {(uint16_t *)(uintptr_t)in, n, true}; /* only read */
    return b->state_with(s->s, name, move, &v, e);
}
