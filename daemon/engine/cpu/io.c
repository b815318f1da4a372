/* io.c - a prediction's arrays: dense, in the layout that programs read. The
 * results stay where the plan computed them. */
#include <string.h>

#include "engine/cpu/graph/plan.h"
#include "engine/cpu/rows/row.h"
#include "engine/port.h"
#include "proto/limits.h"

#define ARRAY_ALIGN 64 /* a cache line */

/* --- arrays --- */

static size_t dtype_bytes(enum mil_dtype t)
{
    return t == MIL_FP16 ? 2 : t == MIL_BOOL ? 1 : 4;
}

/* backend_info.wide_masks: [1, 1, T, T] where [1, 1, 1, T] is declared. */
static bool is_wide(const struct mil_type *t, int rank, const int64_t *dims)
{
    return rank == 4 && t->rank == 4 && t->dims[0] == 1 && t->dims[1] == 1 &&
           t->dims[2] == 1 && dims[2] == dims[3];
}

static int check_input(const struct backend_model *m, size_t i,
                       enum mil_dtype dtype, int rank, const int64_t *dims,
                       struct err *e)
{
    int64_t narrow[MIL_RANK_MAX];
    if (is_wide(&m->in[i].type, rank, dims)) {
        memcpy(narrow, dims, (size_t)rank * sizeof(*dims));
        narrow[2] = 1;
        dims = narrow;
    }
    return port_check(&m->in[i], m->features[i], dtype, rank, dims, e);
}

/* Strides of a dense array; returns its elements, 0 when they are more than
 * any value may have. */
static uint64_t lay_dense(struct backend_array *a)
{
    uint64_t n = 1;
    for (int k = a->rank; k-- > 0;) {
        a->strides[k] = (int64_t)n;
        n = a->dims[k] > 0 ? n : 1; /* an empty array has strides too */
        if (a->dims[k] > 0 &&
            (uint64_t)a->dims[k] > MIL_TENSOR_BYTES_MAX / sizeof(float) / n) {
            return 0;
        }
        n *= a->dims[k] > 0 ? (uint64_t)a->dims[k] : 1;
    }
    return n;
}

int cpu_array_new(struct backend_model *m, size_t i, enum mil_dtype dtype,
                  int rank, const int64_t *dims, struct backend_array **ret,
                  struct err *e)
{
    RETERR(check_input(m, i, dtype, rank, dims, e));
    struct backend_array *a = calloc(1, sizeof(*a));
    if (a == NULL) {
        return err_set(e, ERR_NOMEM, "input %s", m->in[i].name);
    }
    a->dtype = dtype;
    a->rank = rank;
    memcpy(a->dims, dims, (size_t)rank * sizeof(*dims));
    uint64_t n = lay_dense(a);
    size_t bytes = (size_t)n * dtype_bytes(dtype);
    bytes = (bytes + ARRAY_ALIGN - 1) / ARRAY_ALIGN * ARRAY_ALIGN;
    /* calloc: pages that are never written cost no memory */
    a->own = n > 0 ? calloc(1, bytes + ARRAY_ALIGN) : NULL;
    if (a->own == NULL) {
        free(a);
        return err_set(e, ERR_NOMEM, "input %s", m->in[i].name);
    }
    uintptr_t at = (uintptr_t)a->own + ARRAY_ALIGN - 1;
    a->data = (char *)a->own + (at / ARRAY_ALIGN * ARRAY_ALIGN -
                                (uintptr_t)a->own);
    *ret = a;
    return 0;
}

void cpu_array_free(struct backend_array *a)
{
    if (a != NULL) {
        free(a->own);
        free(a);
    }
}

/* --- bindings --- */

/* A binding, and the inputs as the graph takes them. */
struct cpu_io {
    struct backend_io io;
    struct tensor *t; /* n_in */
};

static struct cpu_io *own_io(struct backend_io *io)
{
    return io->own;
}

static struct tensor as_tensor(const char *name, const struct backend_array *a)
{
    struct tensor t = {
        .name = name, .dtype = a->dtype, .rank = a->rank, .data = a->data};
    memcpy(t.dims, a->dims, sizeof(t.dims));
    return t;
}

/* What stands for an optional input that is not given: its default value in
 * its default shape. Errors: MIL_INPUT, NOMEM. */
static int take_default(struct backend_model *m, size_t i, struct tensor *ret,
                        struct err *e)
{
    const struct mil_feature *f = m->features[i];
    struct tensor *t = &m->in_default[i];
    uint64_t n = 0;
    RETERR(port_default(&m->in[i], f, &n, e));
    if (t->data == NULL) {
        float *data = arena_array(&m->arena, (size_t)n + 1, sizeof(*data));
        if (data == NULL) {
            return err_set(e, ERR_NOMEM, "input %s", m->in[i].name);
        }
        for (uint64_t k = 0; k < n; k++) {
            data[k] = (float)f->default_value;
        }
        *t = (struct tensor){.name = m->in[i].name,
                             .dtype = MIL_FP32,
                             .rank = f->type.rank,
                             .data = data};
        memcpy(t->dims, f->type.dims, sizeof(t->dims));
    }
    *ret = *t;
    return check_input(m, i, t->dtype, t->rank, t->dims, e);
}

void cpu_unbind(struct backend_io *io)
{
    if (io == NULL) {
        return;
    }
    struct cpu_io *c = own_io(io);
    free(io->in);
    free(io->out);
    free(c->t);
    free(c);
}

int cpu_bind(struct backend_model *m, struct backend_array *const *in,
             struct backend_io **ret, struct err *e)
{
    int rc = 0;
    struct cpu_io *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        return err_set(e, ERR_NOMEM, "a binding");
    }
    struct backend_io *io = &c->io;
    *io = (struct backend_io){
        .m = m, .n_in = m->n_in, .n_out = m->n_out, .own = c};
    io->in = calloc(m->n_in + 1, sizeof(struct backend_array *));
    io->out = calloc(m->n_out + 1, sizeof(*io->out));
    c->t = calloc(m->n_in + 1, sizeof(*c->t));
    if (io->in == NULL || io->out == NULL || c->t == NULL) {
        rc = err_set(e, ERR_NOMEM, "a binding");
        goto out;
    }
    for (size_t i = 0; i < m->n_in; i++) {
        if (in[i] == NULL) {
            CHECK(take_default(m, i, &c->t[i], e));
            continue;
        }
        CHECK(check_input(m, i, in[i]->dtype, in[i]->rank, in[i]->dims, e));
        io->in[i] = in[i];
        c->t[i] = as_tensor(m->in[i].name, in[i]);
    }
    *ret = io;
    io = NULL; /* given away */
out:
    cpu_unbind(io);
    return rc;
}

void cpu_rebind(struct backend_io *io, size_t i, struct backend_array *a)
{
    struct tensor *t = &own_io(io)->t[i]; /* the old array may be gone */
    must(i < io->n_in && t->dtype == a->dtype &&
         memcmp(t->dims, a->dims, sizeof(a->dims)) == 0);
    io->in[i] = a;
    t->data = a->data;
}

/* --- prediction --- */

/* Result i where the graph left it, integers and bools as floats; a copy where
 * the plan goes (cpu_conf.once). */
static int give_output(struct backend_model *m, const struct val *v, size_t i,
                       struct tensor *out, struct err *e)
{
    const struct val *o = &v[m->out_slot[i]];
    out->dtype = MIL_FP32;
    out->rank = o->rank;
    memcpy(out->dims, o->dims, (size_t)o->rank * sizeof(*o->dims));
    out->data = o->p;
    if (o->kind != VAL_F32 || m->once) {
        float *f = realloc(m->out_buf[i], (o->n + 1) * sizeof(float));
        if (f == NULL) {
            return err_set(e, ERR_NOMEM, "output %s", m->out[i].name);
        }
        for (size_t k = 0; k < o->n; k++) {
            f[k] = o->kind == VAL_F32 ? o->f[k] : (float)o->i[k];
        }
        m->out_buf[i] = f;
        out->data = f;
    }
    return 0;
}

static int predict_whole(struct backend_model *m, struct backend_state *s,
                         struct tensor *out, struct err *e)
{
    const struct val *v = NULL;
    if (s != NULL) {
        RETERR(cpu_state_flatten(s, e));
    }
    RETERR(plan_run(m, s, m->in_now, &v, e));
    if (s != NULL) {
        RETERR(cpu_state_unflatten(s, e));
    }
    for (size_t i = 0; i < m->n_out; i++) {
        RETERR(give_output(m, v, i, &out[i], e));
    }
    if (m->once) {
        plan_drop_all(m);
    }
    return 0;
}

static int predict(struct backend_model *m, struct backend_state *s,
                   struct tensor *out, struct err *e)
{
    if (m->rows != NULL && (s == NULL || cpu_state_fits(s, m, true))) {
        int rc = row_predict(m->rows, s, out, e);
        if (rc <= 0) {
            return rc;
        }
    }
    return predict_whole(m, s, out, e);
}

int cpu_predict(struct backend_io *io, struct backend_state *s, struct err *e)
{
    struct backend_model *m = io->m;
    if (m->n_states > 0 && s == NULL) {
        return err_set(e, ERR_MIL_INPUT, "the function needs a state");
    }
    if (s != NULL && !cpu_state_fits(s, m, false)) {
        return err_set(e, ERR_MIL_INPUT, "a state of another model");
    }
    for (size_t i = 0; i < m->n_in; i++) {
        m->in_now[i] = &own_io(io)->t[i];
    }
    RETERR(predict(m, s, m->out_now, e));
    for (size_t i = 0; i < m->n_out; i++) {
        const struct tensor *t = &m->out_now[i];
        io->out[i] = (struct backend_array){
            .dtype = t->dtype, .rank = t->rank, .data = t->data};
        memcpy(io->out[i].dims, t->dims, sizeof(t->dims));
        (void)lay_dense(&io->out[i]);
    }
    return 0;
}
