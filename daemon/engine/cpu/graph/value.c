#include <string.h>

#include "base/half.h"
#include "base/num.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/graph/plan.h"

void *step_alloc(struct step *s, size_t n)
{
    must(n <= STEP_ALLOC_MAX);
    static _Alignas(64) char nothing[STEP_ALLOC_MAX];
    void *p = plan_alloc(s->plan, n);
    return p != NULL ? p : nothing;
}

void *step_data(struct step *s, size_t n)
{
    return plan_alloc(s->plan, n);
}

int val_set(struct val *o, enum val_kind kind, int rank, const int64_t *dims,
            struct err *e)
{
    uint64_t n = 1;
    if (rank < 0 || rank > (int)MIL_RANK_MAX) {
        return err_set(e, ERR_MIL_SHAPE, "rank %d", rank);
    }
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0) {
            return err_set(e, ERR_MIL_SHAPE, "a negative dimension");
        }
        if (!num_mul(n, (uint64_t)dims[i], &n) ||
            n > MIL_TENSOR_BYTES_MAX / sizeof(float)) {
            return err_set(e, ERR_TOO_BIG, "a value of more than 2^34 bytes");
        }
    }
    o->kind = kind;
    o->rank = rank;
    memmove(o->dims, dims, (size_t)rank * sizeof(*dims));
    o->n = (size_t)n;
    return 0;
}

int val_like(struct val *o, enum val_kind kind, const struct val *x,
             struct err *e)
{
    return val_set(o, kind, x->rank, x->dims, e);
}

bool val_is_float(const struct val *v)
{
    return v->kind == VAL_F32;
}

/* Operand whose data prep wants; NULL result with rc 0 is "absent". */
static int known(struct step *s, int arg, const struct val **ret)
{
    const struct val *v = step_opt(s, arg);
    *ret = v;
    return v != NULL && !v->known ? CPU_UNKNOWN : 0;
}

static int bad_operand(const struct step *s, int arg, struct err *e)
{
    const char *name = s->node->def->args[arg];
    return err_set(e, ERR_MIL_INVALID, "operand %s is not acceptable",
                   name + strspn(name, "?*%"));
}

int step_ints(struct step *s, int arg, size_t cap, int64_t *ret, size_t *ret_n,
              struct err *e)
{
    const struct val *v = NULL;
    int rc = known(s, arg, &v);
    if (rc < 0 || v == NULL) {
        return rc;
    }
    if ((v->kind != VAL_I32 && v->kind != VAL_BOOL) || v->rank > 1 ||
        v->n > cap) {
        return bad_operand(s, arg, e);
    }
    for (size_t i = 0; i < v->n; i++) {
        ret[i] = v->i[i];
    }
    *ret_n = v->n;
    return 0;
}

int step_int(struct step *s, int arg, int64_t *ret, struct err *e)
{
    int64_t x = 0;
    size_t n = 0;
    if (step_opt(s, arg) == NULL) {
        return 0;
    }
    int rc = step_ints(s, arg, 1, &x, &n, e);
    if (rc < 0) {
        return rc;
    }
    if (n != 1) {
        return bad_operand(s, arg, e);
    }
    *ret = x;
    return 0;
}

int step_bool(struct step *s, int arg, bool *ret, struct err *e)
{
    int64_t x = *ret ? 1 : 0;
    int rc = step_int(s, arg, &x, e);
    if (rc == 0) {
        *ret = x != 0;
    }
    return rc;
}

int step_float(struct step *s, int arg, float *ret, struct err *e)
{
    const struct val *v = NULL;
    int rc = known(s, arg, &v);
    if (rc < 0 || v == NULL) {
        return rc;
    }
    if (v->n != 1 || (v->kind != VAL_F32 && v->kind != VAL_I32)) {
        return bad_operand(s, arg, e);
    }
    *ret = v->kind == VAL_F32 ? v->f[0] : (float)v->i[0];
    return 0;
}

const char *step_str(const struct step *s, int arg)
{
    const struct val *v = step_opt(s, arg);
    return v != NULL && v->kind == VAL_STR ? v->str : "";
}

int step_axis(struct step *s, int arg, int rank, int64_t *axis, struct err *e)
{
    int rc = step_int(s, arg, axis, e);
    if (rc < 0) {
        return rc;
    }
    if (*axis < 0) {
        *axis += rank;
    }
    if (*axis < 0 || *axis >= rank) {
        return err_set(e, ERR_MIL_SHAPE, "an axis outside rank %d", rank);
    }
    return 0;
}

int step_axes(struct step *s, int arg, int rank, bool *set, struct err *e)
{
    int64_t a[MIL_RANK_MAX];
    size_t n = 0;
    if (step_opt(s, arg) == NULL) {
        for (int i = 0; i < rank; i++) {
            set[i] = true;
        }
        return 0;
    }
    int rc = step_ints(s, arg, MIL_RANK_MAX, a, &n, e);
    if (rc < 0) {
        return rc;
    }
    for (int i = 0; i < rank; i++) {
        set[i] = false;
    }
    for (size_t i = 0; i < n; i++) {
        int64_t x = a[i] < 0 ? a[i] + rank : a[i];
        if (x < 0 || x >= rank || set[x]) {
            return err_set(e, ERR_MIL_SHAPE,
                           "an axis outside rank %d or given twice", rank);
        }
        set[x] = true;
    }
    return 0;
}

void val_strides(const struct val *v, int64_t *strides)
{
    int64_t n = 1;
    for (int i = v->rank - 1; i >= 0; i--) {
        strides[i] = n;
        n *= v->dims[i];
    }
}

int val_broadcast(const struct val *a, const struct val *b, int *rank,
                  int64_t *dims, struct err *e)
{
    int r = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 0; i < r; i++) {
        int ia = a->rank - r + i;
        int ib = b->rank - r + i;
        int64_t da = ia < 0 ? 1 : a->dims[ia];
        int64_t db = ib < 0 ? 1 : b->dims[ib];
        if (da != db && da != 1 && db != 1) {
            char pa[96];
            char pb[96];
            return err_set(e, ERR_MIL_SHAPE, "%s and %s do not broadcast",
                           val_shape_print(a, pa, sizeof(pa)),
                           val_shape_print(b, pb, sizeof(pb)));
        }
        dims[i] = da == 1 ? db : da;
    }
    *rank = r;
    return 0;
}

const char *val_shape_print(const struct val *v, char *out, size_t size)
{
    size_t at = 0;
    (void)snprintf(out, size, "[");
    for (int i = 0; i < v->rank; i++) {
        at = strlen(out);
        (void)snprintf(out + at, size - at, "%s%lld", i > 0 ? "," : "",
                       (long long)v->dims[i]);
    }
    at = strlen(out);
    (void)snprintf(out + at, size - at, "]");
    return out;
}

struct axis3 val_axis3(const struct val *v, int64_t axis)
{
    struct axis3 r = {1, 1, 1};
    for (int i = 0; i < v->rank; i++) {
        size_t d = (size_t)v->dims[i];
        if (i < axis) {
            r.outer *= d;
        } else if (i == axis) {
            r.n = d;
        } else {
            r.inner *= d;
        }
    }
    return r;
}

void axes_add(struct axes *w, size_t dim, size_t stride)
{
    if (dim == 1) {
        return;
    }
    if (w->n > 0 && w->strides[w->n - 1] == stride * dim) {
        w->dims[w->n - 1] *= dim;
        w->strides[w->n - 1] = stride;
        return;
    }
    w->dims[w->n] = dim;
    w->strides[w->n] = stride;
    w->n++;
}
