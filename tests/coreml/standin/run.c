/* run.c - see run.h. */
#include "run.h"

#include <stdatomic.h>
#include <string.h>

#include "engine/backend.h"

struct run_model {
    atomic_int users;
    struct backend_model *m;
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
    struct backend_conf conf = {.threads = threads, .round_fp16 = !fp32};
    struct backend_model *m = NULL;
    RETERR(b->open(pkg, function, &conf, &m, e));
    struct backend_info info;
    b->info(m, &info);
    *ret = calloc(1, sizeof(**ret));
    must(*ret != NULL);
    (*ret)->m = m;
    (*ret)->in_cap = info.n_in;
    (*ret)->out_cap = info.n_out;
    (*ret)->in = calloc(info.n_in + 1, sizeof(*(*ret)->in));
    (*ret)->out = calloc(info.n_out + 1, sizeof(*(*ret)->out));
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
    RETERR(b->predict(m->m, s != NULL ? s->s : NULL, m->in, n_in, m->out, n_out,
                      e));
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

/* The interpreter's states are flat: what it lends is the state itself. */
static int lent(struct run_state *s, const char *name, size_t n, uint16_t **ret,
                struct err *e)
{
    struct tensor t;
    RETERR(b->state_get(s->s, name, &t, e));
    size_t have = 1;
    for (int i = 0; i < t.rank; i++) {
        have *= (size_t)t.dims[i];
    }
    must(t.dtype == MIL_FP16 && have == n);
    *ret = t.data;
    return 0;
}

int si_run_state_read(struct run_state *s, const char *name, uint16_t *out,
                      size_t n, struct err *e)
{
    uint16_t *p = NULL;
    RETERR(lent(s, name, n, &p, e));
    memcpy(out, p, n * sizeof(*p));
    return 0;
}

int si_run_state_write(struct run_state *s, const char *name,
                       const uint16_t *in, size_t n, struct err *e)
{
    uint16_t *p = NULL;
    RETERR(lent(s, name, n, &p, e));
    memcpy(p, in, n * sizeof(*p));
    return 0;
}
