/* Operations that make or repeat elements: tile, pad, fill, ranges. */
#include <math.h>
#include <string.h>

#include "engine/cpu/ops/ops.h"

/* The scalar v, of any 4-byte type, or what stands for it when absent. */
static int32_t bits_or(const struct val *v, int32_t absent)
{
    return v != NULL ? v->i[0] : absent;
}

/* --- tile(x, reps) --- */

int tile_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    int64_t dims[MIL_RANK_MAX];
    size_t n = 0;
    RETERR(step_ints(s, 1, MIL_RANK_MAX, dims, &n, e));
    if (n != (size_t)x->rank || !val_is_plain(x)) {
        return err_set(e, ERR_MIL_SHAPE, "reps does not fit");
    }
    for (size_t i = 0; i < n; i++) {
        if (dims[i] < 0 ||
            __builtin_mul_overflow(dims[i], x->dims[i], &dims[i])) {
            return err_set(e, ERR_MIL_SHAPE, "reps does not fit");
        }
    }
    return val_set(step_out(s, 0), x->kind, x->rank, dims, e);
}

/* Element of x under element k of a result whose axes repeat x's, shifted by
 * `before`; -1 when it lies outside and `clamp` is not set. */
static int64_t source(const struct val *o, const struct val *x, size_t k,
                      const int64_t *before, int mode)
{
    int64_t at = 0;
    int64_t stride = 1;
    for (int i = o->rank - 1; i >= 0; i--) {
        int64_t d = x->dims[i];
        int64_t c = (int64_t)(k % (size_t)o->dims[i]) - before[i];
        k /= (size_t)o->dims[i];
        if (c < 0 || c >= d) {
            if (mode == 0 || d == 0) {
                return -1;
            }
            if (mode == 1) { /* reflect, without the edge */
                int64_t period = d > 1 ? 2 * (d - 1) : 1;
                c = ((c % period) + period) % period;
                c = c < d ? c : period - c;
            } else {
                c = c < 0 ? 0 : d - 1;
            }
        }
        at += c * stride;
        stride *= d;
    }
    return at;
}

int tile_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    (void)e;
    const struct val *x = step_in(s, 0);
    struct val *o = step_out(s, 0);
    for (size_t k = 0; k < o->n; k++) {
        size_t at = 0;
        size_t stride = 1;
        size_t rest = k;
        for (int i = o->rank - 1; i >= 0; i--) {
            size_t d = (size_t)x->dims[i];
            at += rest % (size_t)o->dims[i] % d * stride;
            rest /= (size_t)o->dims[i];
            stride *= d;
        }
        o->i[k] = x->i[at];
    }
    return 0;
}

/* --- pad(x, pad, mode, constant_val) --- */

struct pad_params {
    int64_t before[MIL_RANK_MAX];
    int mode; /* 0 constant, 1 reflect, 2 replicate */
};

int pad_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    struct pad_params *u = step_alloc(s, sizeof(*u));
    int64_t pad[2 * MIL_RANK_MAX];
    int64_t dims[MIL_RANK_MAX];
    size_t n = 0;
    s->u = u;
    RETERR(step_ints(s, 1, countof(pad), pad, &n, e));
    const char *mode = step_str(s, 2);
    u->mode = strcmp(mode, "reflect") == 0     ? 1
              : strcmp(mode, "replicate") == 0 ? 2
                                               : 0;
    if (n % 2 != 0 || n / 2 > (size_t)x->rank || !val_is_plain(x) ||
        (u->mode == 0 && mode[0] != '\0' && strcmp(mode, "constant") != 0)) {
        return err_set(e, ERR_MIL_SHAPE, "pad or mode does not fit");
    }
    memcpy(dims, x->dims, sizeof(dims));
    for (size_t i = 0; i < n / 2; i++) { /* the last n / 2 axes */
        size_t axis = (size_t)x->rank - n / 2 + i;
        u->before[axis] = pad[2 * i];
        dims[axis] += pad[2 * i] + pad[2 * i + 1];
    }
    return val_set(step_out(s, 0), x->kind, x->rank, dims, e);
}

int pad_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    (void)e;
    const struct pad_params *u = s->u;
    const struct val *x = step_in(s, 0);
    const struct val *c = step_opt(s, 3);
    struct val *o = step_out(s, 0);
    for (size_t k = 0; k < o->n; k++) {
        int64_t at = source(o, x, k, u->before, u->mode);
        o->i[k] = at >= 0 ? x->i[at] : bits_or(c, 0);
    }
    return 0;
}

/* --- fill(shape, value), fill_like(ref_tensor, value) --- */

int fill_prep(struct step *s, struct err *e)
{
    const struct val *v = step_opt(s, 1);
    int64_t dims[MIL_RANK_MAX];
    size_t n = 0;
    RETERR(step_ints(s, 0, MIL_RANK_MAX, dims, &n, e));
    if (v != NULL && (!val_is_plain(v) || v->n != 1)) {
        return err_set(e, ERR_MIL_SHAPE, "value is not a scalar");
    }
    return val_set(step_out(s, 0), v != NULL ? v->kind : VAL_F32, (int)n, dims,
                   e);
}

int fill_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    (void)e;
    const struct val *v = step_opt(s, 1);
    struct val *o = step_out(s, 0);
    int32_t x = bits_or(v, 0);
    for (size_t k = 0; k < o->n; k++) {
        o->i[k] = x;
    }
    return 0;
}

int fill_like_prep(struct step *s, struct err *e)
{
    const struct val *v = step_opt(s, 1);
    if (v != NULL && (!val_is_plain(v) || v->n != 1)) {
        return err_set(e, ERR_MIL_SHAPE, "value is not a scalar");
    }
    return val_like(step_out(s, 0), v != NULL ? v->kind : VAL_F32,
                    step_in(s, 0), e);
}

int fill_like_run(const struct step *s, const struct run *r, struct err *e)
{
    return fill_run(s, r, e);
}

/* --- range_1d(start, end, step) --- */

int range_prep(struct step *s, struct err *e)
{
    double v[3] = {0};
    enum val_kind kind = step_in(s, 1)->kind;
    for (int i = 0; i < 3; i++) {
        const struct val *x = step_in(s, i);
        if (!x->known) {
            return CPU_UNKNOWN;
        }
        if (x->n != 1 || x->kind != kind ||
            (kind != VAL_F32 && kind != VAL_I32)) {
            return err_set(e, ERR_MIL_INVALID, "not three numbers");
        }
        v[i] = kind == VAL_F32 ? (double)x->f[0] : (double)x->i[0];
    }
    double n = ceil((v[1] - v[0]) / v[2]);
    if (!(n <= 2147483647.0) || v[2] == 0.0) {
        return err_set(e, ERR_MIL_SHAPE, "a range without end");
    }
    int64_t len = n > 0 ? (int64_t)n : 0;
    return val_set(step_out(s, 0), kind, 1, &len, e);
}

int range_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    (void)e;
    const struct val *start = step_in(s, 0);
    const struct val *by = step_in(s, 2);
    struct val *o = step_out(s, 0);
    for (size_t k = 0; k < o->n; k++) {
        if (o->kind == VAL_F32) {
            o->f[k] = start->f[0] + (float)k * by->f[0];
        } else {
            uint32_t w =
                (uint32_t)start->i[0] + (uint32_t)k * (uint32_t)by->i[0];
            o->i[k] = (int32_t)w;
        }
    }
    return 0;
}

/* --- one_hot(indices, one_hot_vector_size, axis, on_value, off_value) --- */

int one_hot_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    const struct val *on = step_opt(s, 3);
    struct axis3 *u = step_alloc(s, sizeof(*u));
    int64_t size = 0;
    int64_t axis = -1;
    int64_t dims[MIL_RANK_MAX];
    s->u = u;
    RETERR(step_int(s, 1, &size, e));
    if (x->rank >= (int)MIL_RANK_MAX || x->kind != VAL_I32) {
        return err_set(e, ERR_MIL_SHAPE, "indices");
    }
    RETERR(step_axis(s, 2, x->rank + 1, &axis, e));
    for (int i = 0, from = 0; i <= x->rank; i++) {
        dims[i] = i == axis ? size : x->dims[from++];
    }
    RETERR(val_set(step_out(s, 0), on != NULL ? on->kind : VAL_I32, x->rank + 1,
                   dims, e));
    *u = val_axis3(step_out(s, 0), axis);
    return 0;
}

int one_hot_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    (void)e;
    const struct axis3 *u = s->u;
    const struct val *x = step_in(s, 0);
    struct val *o = step_out(s, 0);
    int32_t on = bits_or(step_opt(s, 3), 1);
    int32_t off = bits_or(step_opt(s, 4), 0);
    for (size_t k = 0; k < o->n; k++) {
        size_t c = k / u->inner % u->n;
        size_t at = k / (u->inner * u->n) * u->inner + k % u->inner;
        o->i[k] = x->i[at] == (int32_t)c ? on : off;
    }
    return 0;
}

/* --- band_part(x, lower, upper) --- */

struct band_params {
    int64_t lower, upper;
};

int band_part_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    struct band_params *u = step_alloc(s, sizeof(*u));
    u->lower = -1;
    u->upper = -1;
    s->u = u;
    RETERR(step_int(s, 1, &u->lower, e));
    RETERR(step_int(s, 2, &u->upper, e));
    if (x->rank < 2) {
        return err_set(e, ERR_MIL_SHAPE, "x is not a matrix");
    }
    return val_like(step_out(s, 0), x->kind, x, e);
}

int band_part_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    (void)e;
    const struct band_params *u = s->u;
    const struct val *x = step_in(s, 0);
    struct val *o = step_out(s, 0);
    int64_t cols = x->dims[x->rank - 1];
    int64_t rows = x->dims[x->rank - 2];
    for (size_t k = 0; k < o->n; k++) {
        int64_t j = (int64_t)k % cols;
        int64_t i = (int64_t)k / cols % rows;
        bool in = (u->lower < 0 || i - j <= u->lower) &&
                  (u->upper < 0 || j - i <= u->upper);
        o->i[k] = in ? x->i[k] : 0;
    }
    return 0;
}

/* --- reverse(x, axes) --- */

int reverse_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    bool *set = step_alloc(s, MIL_RANK_MAX * sizeof(*set));
    s->u = set;
    int rc = step_axes(s, 1, x->rank, set, e);
    return rc < 0 ? rc : val_like(step_out(s, 0), x->kind, x, e);
}

int reverse_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    (void)e;
    const bool *set = s->u;
    const struct val *x = step_in(s, 0);
    struct val *o = step_out(s, 0);
    for (size_t k = 0; k < o->n; k++) {
        size_t at = 0;
        size_t stride = 1;
        size_t rest = k;
        for (int i = o->rank - 1; i >= 0; i--) {
            size_t d = (size_t)o->dims[i];
            size_t c = rest % d;
            at += (set[i] ? d - 1 - c : c) * stride;
            rest /= d;
            stride *= d;
        }
        o->i[k] = x->i[at];
    }
    return 0;
}

/* --- non_zero(x): how many there are, only data tell --- */

int non_zero_prep(struct step *s, struct err *e)
{
    const struct val *x = step_in(s, 0);
    int64_t dims[2] = {0, x->rank};
    if (!val_is_plain(x)) {
        return err_set(e, ERR_MIL_INVALID, "not a tensor");
    }
    if (!x->known) {
        return CPU_UNKNOWN;
    }
    for (size_t k = 0; k < x->n; k++) {
        dims[0] += x->kind == VAL_F32 ? x->f[k] != 0.0f : x->i[k] != 0;
    }
    return val_set(step_out(s, 0), VAL_I32, 2, dims, e);
}

int non_zero_run(const struct step *s, const struct run *r, struct err *e)
{
    (void)r;
    (void)e;
    const struct val *x = step_in(s, 0);
    int32_t *o = step_out(s, 0)->i;
    for (size_t k = 0; k < x->n; k++) {
        if (x->kind == VAL_F32 ? x->f[k] == 0.0f : x->i[k] == 0) {
            continue;
        }
        size_t rest = k;
        for (int i = x->rank - 1; i >= 0; i--) {
            o[i] = (int32_t)(rest % (size_t)x->dims[i]);
            rest /= (size_t)x->dims[i];
        }
        o += x->rank;
    }
    return 0;
}
