#include "engine/dense.h"

#include <string.h>

#include "engine/array.h"

static void drop_io(struct dense *d)
{
    d->be->unbind(d->io);
    d->io = NULL;
    for (size_t i = 0; i < d->info.n_in; i++) {
        d->be->array_free(d->in[i]);
        d->in[i] = NULL;
    }
}

int dense_init(struct dense *d, const struct backend *be,
               struct backend_model *m, struct err *e)
{
    *d = (struct dense){.be = be, .m = m};
    be->info(m, &d->info);
    d->in = calloc(d->info.n_in + 1, sizeof(struct backend_array *));
    d->out = calloc(d->info.n_out + 1, sizeof(void *));
    if (d->in == NULL || d->out == NULL) {
        dense_fini(d);
        return err_set(e, ERR_NOMEM, "arrays");
    }
    return 0;
}

void dense_fini(struct dense *d)
{
    if (d->in != NULL) {
        drop_io(d);
    }
    for (size_t i = 0; d->out != NULL && i < d->info.n_out; i++) {
        free(d->out[i]);
    }
    free(d->in);
    free(d->out);
    free(d->sink);
    *d = (struct dense){0};
}

static const struct tensor *find(const struct tensor *t, size_t n,
                                 const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (t[i].name != NULL && strcmp(t[i].name, name) == 0) {
            return &t[i];
        }
    }
    return NULL;
}

static int lock(const struct dense *d, struct backend_array *a, bool write,
                struct err *e)
{
    return d->be->lock != NULL ? d->be->lock(a, write, e) : 0;
}

static void unlock(const struct dense *d, struct backend_array *a, bool write)
{
    if (d->be->unlock != NULL) {
        d->be->unlock(a, write);
    }
}

static int take(struct dense *d, const struct tensor *in, size_t n_in,
                struct err *e)
{
    drop_io(d);
    for (size_t i = 0; i < d->info.n_in; i++) {
        const struct tensor *t = find(in, n_in, d->info.in[i].name);
        if (t == NULL) {
            continue; /* bind says whether it may be left out */
        }
        RETERR(d->be->array_new(d->m, i, t->dtype, t->rank, t->dims,
                                &d->in[i], e));
        RETERR(lock(d, d->in[i], true, e));
        array_from_dense(d->in[i], t);
        unlock(d, d->in[i], true);
    }
    return d->be->bind(d->m, d->in, &d->io, e);
}

/* A dense copy of a to *memory, which grows. */
static int copy(const struct backend_array *a, struct tensor *t, void **memory,
                struct err *e)
{
    size_t n = array_count(a);
    void *p = realloc(*memory, (n + 1) * array_dtype_bytes(t->dtype));
    if (p == NULL) {
        return err_set(e, ERR_NOMEM, "%s", t->name);
    }
    *memory = p;
    t->rank = a->rank;
    memcpy(t->dims, a->dims, sizeof(t->dims));
    t->data = p;
    array_to_dense(a, t);
    return 0;
}

static int give(struct dense *d, struct tensor *out, struct err *e)
{
    for (size_t k = 0; k < d->info.n_out; k++) {
        if (strcmp(d->info.out[k].name, out->name) == 0) {
            struct backend_array *a = &d->io->out[k];
            out->dtype = MIL_FP32;
            RETERR(lock(d, a, false, e));
            int rc = copy(a, out, &d->out[k], e);
            unlock(d, a, false);
            return rc;
        }
    }
    return err_set(e, ERR_MIL_INPUT, "no output %s", out->name);
}

int dense_predict(struct dense *d, struct backend_state *s,
                  const struct tensor *in, size_t n_in, struct tensor *out,
                  size_t n_out, struct err *e)
{
    RETERR(take(d, in, n_in, e));
    RETERR(d->be->predict(d->io, s, e));
    for (size_t i = 0; i < n_out; i++) {
        RETERR(give(d, &out[i], e));
    }
    return 0;
}

struct copied {
    struct dense *d;
    struct tensor *t;
};

static int copy_state(void *ctx, struct backend_array *a, struct err *e)
{
    const struct copied *c = ctx;
    c->t->dtype = a->dtype;
    return copy(a, c->t, &c->d->sink, e);
}

int dense_state(struct dense *d, struct backend_state *s, const char *name,
                struct tensor *ret, struct err *e)
{
    struct copied c = {d, ret};
    *ret = (struct tensor){.name = name};
    return d->be->state_with(s, name, copy_state, &c, e);
}
