/* port.c - see port.h. */
#include "engine/port.h"

#include <string.h>

const struct mil_feature *port_feature(const struct mil_feature *f, size_t n,
                                       const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(f[i].name, name) == 0) {
            return &f[i];
        }
    }
    return NULL;
}

/* Bounds of dimension i of an input; -1 above is unbounded. */
static void dim_range(const struct mil_feature *f, int i, int64_t *lo,
                      int64_t *hi)
{
    *lo = 1;
    *hi = -1;
    if (f == NULL) {
        return;
    }
    if (f->has_range) {
        *lo = f->lo[i];
        *hi = f->hi[i];
    } else if (f->n_shapes > 0) {
        *lo = f->shapes[i];
        *hi = f->shapes[i];
        for (size_t k = 1; k < f->n_shapes; k++) {
            int64_t d = f->shapes[k * (size_t)f->type.rank + (size_t)i];
            *lo = d < *lo ? d : *lo;
            *hi = d > *hi ? d : *hi;
        }
    }
}

/* The first dimension that is open; -1: all are fixed. */
static int open_dim(const struct mil_type *t)
{
    int i = 0;
    while (i < t->rank && t->dims[i] != MIL_UNKNOWN) {
        i++;
    }
    return i < t->rank ? i : -1;
}

struct backend_port port_input(const struct mil_value *v,
                               const struct mil_feature *f)
{
    struct backend_port p = {.name = v->name, .type = v->type};
    int i = open_dim(&v->type);
    if (i >= 0) {
        dim_range(f, i, &p.t_lo, &p.t_hi);
    }
    return p;
}

bool port_widths(const struct backend_port *in, size_t n, int64_t *t_min,
                 int64_t *t_max)
{
    bool flexible = false;
    *t_min = 1;
    *t_max = -1;
    for (size_t i = 0; i < n; i++) {
        if (open_dim(&in[i].type) < 0) {
            continue;
        }
        *t_min = in[i].t_lo > *t_min ? in[i].t_lo : *t_min;
        if (in[i].t_hi >= 0 && (*t_max < 0 || in[i].t_hi < *t_max)) {
            *t_max = in[i].t_hi;
        }
        flexible = true;
    }
    if (!flexible) {
        *t_max = 1;
    } else if (*t_max < 0) {
        *t_max = ENGINE_STEP_ROWS_MAX;
    }
    return flexible;
}

static bool is_enumerated(const struct mil_feature *f, int rank,
                          const int64_t *dims)
{
    for (size_t k = 0; k < f->n_shapes; k++) {
        if (memcmp(f->shapes + k * (size_t)f->type.rank, dims,
                   (size_t)rank * sizeof(*dims)) == 0) {
            return true;
        }
    }
    return false;
}

int port_check(const struct backend_port *p, const struct mil_feature *f,
               enum mil_dtype dtype, int rank, const int64_t *dims,
               struct err *e)
{
    if (dtype != MIL_FP32 && dtype != MIL_FP16 && dtype != MIL_INT32 &&
        dtype != MIL_BOOL) {
        return err_set(e, ERR_MIL_INPUT, "input %s: type %s is not taken",
                       p->name, mil_dtype_name(dtype));
    }
    if (rank != p->type.rank) {
        return err_set(e, ERR_MIL_INPUT, "input %s: rank %d, not %d", p->name,
                       rank, p->type.rank);
    }
    for (int k = 0; k < rank; k++) {
        int64_t lo = p->type.dims[k];
        int64_t hi = lo;
        if (lo == MIL_UNKNOWN) {
            dim_range(f, k, &lo, &hi);
        }
        if (dims[k] < lo || (hi >= 0 && dims[k] > hi)) {
            return err_set(e, ERR_MIL_INPUT,
                           "input %s: dimension %d is %lld, not within "
                           "%lld..%lld",
                           p->name, k, (long long)dims[k], (long long)lo,
                           (long long)hi);
        }
    }
    if (f != NULL && f->n_shapes > 0 && !f->has_range &&
        !is_enumerated(f, rank, dims)) {
        return err_set(e, ERR_MIL_INPUT,
                       "input %s: not one of the enumerated shapes", p->name);
    }
    return 0;
}

int port_default(const struct backend_port *p, const struct mil_feature *f,
                 uint64_t *n, struct err *e)
{
    if (f == NULL || !f->optional || !f->has_default ||
        !mil_type_count(&f->type, n) ||
        *n > MIL_TENSOR_BYTES_MAX / sizeof(float)) {
        return err_set(e, ERR_MIL_INPUT, "input %s is missing", p->name);
    }
    return 0;
}
