/* infer.c - checks operands against a signature; shared code of the infer
 * functions. */
#include <stdarg.h>
#include <string.h>

#include "mil/sig.h"

/* --- operands --- */

static const struct mil_const *attr(const struct infer *i, const char *name)
{
    for (size_t k = 0; k < i->op->n_attrs; k++) {
        if (strcmp(i->op->attrs[k].name, name) == 0) {
            return i->op->attrs[k].val;
        }
    }
    return NULL;
}

size_t in_count(const struct infer *i, const char *name)
{
    if (i->sig->attrs) {
        return attr(i, name) != NULL;
    }
    const struct mil_arg *a = mil_op_arg(i->op, name);
    return a != NULL ? a->n : 0;
}

bool in_has(const struct infer *i, const char *name)
{
    return in_count(i, name) > 0;
}

const struct mil_type *in_type_at(const struct infer *i, const char *name,
                                  size_t k)
{
    if (i->sig->attrs) {
        return &attr(i, name)->type;
    }
    const struct mil_binding *b = &mil_op_arg(i->op, name)->b[k];
    return b->imm != NULL ? &b->imm->type : &b->value->type;
}

const struct mil_type *in_type(const struct infer *i, const char *name)
{
    return in_type_at(i, name, 0);
}

const struct mil_const *in_const(const struct infer *i, const char *name)
{
    return in_has(i, name) ? mil_op_const(i->op, name) : NULL;
}

const struct mil_const *in_const_at(const struct infer *i, const char *name,
                                    size_t k)
{
    const struct mil_binding *b = &mil_op_arg(i->op, name)->b[k];
    return b->imm != NULL ? b->imm : mil_value_const(b->value);
}

int in_fail(struct infer *i, int code, const char *name, const char *fmt, ...)
{
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return err_set(i->e, code, "operand %s: %s", name, text);
}

int in_ints(struct infer *i, const char *name, size_t n, int64_t *ret)
{
    size_t got = 0;
    if (n > MIL_RANK_MAX * 2) {
        return in_fail(i, ERR_MIL_SHAPE, name, "%zu elements", n);
    }
    if (!in_has(i, name)) {
        return 0;
    }
    if (!mil_const_ints(in_const(i, name), ret, n, &got) || got != n) {
        return in_fail(i, ERR_MIL_INVALID, name,
                       "must be %zu constant integers", n);
    }
    return 0;
}

int in_bools(struct infer *i, const char *name, size_t n, bool *ret)
{
    size_t got = 0;
    if (!in_has(i, name)) {
        return 0;
    }
    if (!mil_const_bools(in_const(i, name), ret, n, &got) || got != n) {
        return in_fail(i, ERR_MIL_INVALID, name,
                       "must be %zu constant booleans", n);
    }
    return 0;
}

int in_int(struct infer *i, const char *name, int64_t *ret)
{
    return in_ints(i, name, 1, ret);
}

int in_bool(struct infer *i, const char *name, bool *ret)
{
    return in_bools(i, name, 1, ret);
}

int in_str(struct infer *i, const char *name, const char **ret)
{
    if (!in_has(i, name)) {
        return 0;
    }
    const char *s = mil_const_str(in_const(i, name));
    if (s == NULL) {
        return in_fail(i, ERR_MIL_INVALID, name, "must be a constant string");
    }
    *ret = s;
    return 0;
}

static int fix_axis(struct infer *i, const char *name, int64_t axis, int rank,
                    int *ret)
{
    if (axis < -rank || axis >= rank) {
        return in_fail(i, ERR_MIL_SHAPE, name, "%lld is outside rank %d",
                       (long long)axis, rank);
    }
    *ret = (int)(axis < 0 ? axis + rank : axis);
    return 0;
}

int in_axis(struct infer *i, const char *name, int64_t def, int rank, int *ret)
{
    int64_t axis = def;
    int rc = in_int(i, name, &axis);
    return rc < 0 ? rc : fix_axis(i, name, axis, rank, ret);
}

int in_length(struct infer *i, const char *name, int64_t *ret)
{
    const struct mil_type *t = in_type(i, name);
    if (t->rank != 1) {
        return in_fail(i, ERR_MIL_SHAPE, name, "has rank %d, not 1", t->rank);
    }
    *ret = t->dims[0];
    return 0;
}

int in_vector(struct infer *i, const char *name, int64_t rank, int64_t *ret,
              bool *known)
{
    int64_t n = 0;
    RETERR(in_length(i, name, &n));
    if (n >= 0 && n != rank) {
        return in_fail(i, ERR_MIL_SHAPE, name, "%lld elements for rank %lld",
                       (long long)n, (long long)rank);
    }
    *known = in_const(i, name) != NULL;
    return *known ? in_ints(i, name, (size_t)rank, ret) : 0;
}

int in_axes(struct infer *i, const char *name, int rank, bool set[MIL_RANK_MAX],
            size_t *ret_n)
{
    int64_t axes[MIL_RANK_MAX];
    int64_t n = 0;
    memset(set, 0, MIL_RANK_MAX * sizeof(*set));
    if (!in_has(i, name)) {
        for (int k = 0; k < rank; k++) {
            set[k] = true;
        }
        *ret_n = (size_t)rank;
        return 0;
    }
    RETERR(in_length(i, name, &n));
    if (n < 0 || n > rank) {
        return in_fail(i, ERR_MIL_SHAPE, name, "%lld axes of rank %d",
                       (long long)n, rank);
    }
    RETERR(in_ints(i, name, (size_t)n, axes));
    for (int64_t k = 0; k < n; k++) {
        int axis = 0;
        RETERR(fix_axis(i, name, axes[k], rank, &axis));
        if (set[axis]) {
            return in_fail(i, ERR_MIL_SHAPE, name, "axis %d twice", axis);
        }
        set[axis] = true;
    }
    *ret_n = (size_t)n;
    return 0;
}

/* --- dimensions --- */

bool dim_unify(int64_t a, int64_t b, int64_t *ret)
{
    if (a != b && a >= 0 && b >= 0) {
        return false;
    }
    *ret = a >= 0 ? a : b;
    return true;
}

bool dims_broadcast(int *rank, int64_t *dims, int b_rank, const int64_t *b)
{
    int64_t r[MIL_RANK_MAX];
    int n = *rank > b_rank ? *rank : b_rank;
    for (int k = 0; k < n; k++) {
        int ka = k - (n - *rank);
        int kb = k - (n - b_rank);
        int64_t x = ka >= 0 ? dims[ka] : 1;
        int64_t y = kb >= 0 ? b[kb] : 1;
        if (x == 1) {
            r[k] = y;
        } else if (y == 1) {
            r[k] = x;
        } else if (!dim_unify(x, y, &r[k])) {
            return false;
        }
    }
    *rank = n;
    memcpy(dims, r, (size_t)n * sizeof(*dims));
    return true;
}

bool mil_type_agrees(const struct mil_type *a, const struct mil_type *b)
{
    int64_t d = 0;
    if (a->dtype != b->dtype || a->state != b->state || a->rank != b->rank) {
        return false;
    }
    for (int k = 0; k < a->rank; k++) {
        if (!dim_unify(a->dims[k], b->dims[k], &d)) {
            return false;
        }
    }
    return true;
}

int in_same_dims(struct infer *i, const char *name, int rank,
                 const int64_t *dims)
{
    const struct mil_type *t = in_type(i, name);
    struct mil_type want = {.dtype = t->dtype, .rank = rank};
    memcpy(want.dims, dims, (size_t)rank * sizeof(*dims));
    if (mil_type_agrees(t, &want)) {
        return 0;
    }
    char have_text[160];
    char want_text[160];
    mil_type_print(t, have_text, sizeof(have_text));
    mil_type_print(&want, want_text, sizeof(want_text));
    return in_fail(i, ERR_MIL_SHAPE, name, "is %s, must be %s", have_text,
                   want_text);
}

int out_type(struct infer *i, enum mil_dtype t, int rank, const int64_t *dims)
{
    if (i->n < i->cap) {
        struct mil_type *o = &i->out[i->n];
        *o = (struct mil_type){.dtype = t, .rank = rank};
        memcpy(o->dims, dims, (size_t)rank * sizeof(*dims));
    }
    i->n++;
    return 0;
}

int out_like(struct infer *i, const char *name)
{
    const struct mil_type *t = in_type(i, name);
    return out_type(i, t->dtype, t->rank, t->dims);
}

/* --- signatures --- */

static bool is_constant(const struct mil_binding *b)
{
    if (b->imm != NULL) {
        return true;
    }
    const struct mil_op *def = b->value->def;
    return def != NULL && (strcmp(def->type, "const") == 0 ||
                           strncmp(def->type, "constexpr_", 10) == 0);
}

/* Only the data movement ops of spec 8 and later, and constants, know them. */
#define SMALL_INTS                                        \
    ((uint64_t)1 << MIL_INT8 | (uint64_t)1 << MIL_UINT8 | \
     (uint64_t)1 << MIL_INT16 | (uint64_t)1 << MIL_UINT16)

static int check_type(struct infer *i, const struct sig_operand *o,
                      const struct mil_type *t, enum mil_dtype vars[128])
{
    uint64_t bit = (uint64_t)1 << t->dtype;
    bool state = (o->flags & SIG_STATE) != 0;
    if (t->state != state) {
        return in_fail(i, ERR_MIL_INVALID, o->name,
                       state ? "must be a state"
                             : "a state can only be read or written");
    }
    if (t->dtype == MIL_NONE || (o->dtypes & bit) == 0 ||
        (i->spec < 8 && (bit & SMALL_INTS) != 0 &&
         strncmp(i->op->type, "constexpr_", 10) != 0)) {
        return in_fail(i, ERR_MIL_INVALID, o->name, "dtype %s is not for %s",
                       mil_dtype_name(t->dtype), i->op->type);
    }
    char var = o->var == 'U' && i->spec < 8 ? 'T' : o->var;
    if (var == 0) {
        return 0;
    }
    if (vars[(int)var] == MIL_NONE) {
        vars[(int)var] = t->dtype;
    }
    if (vars[(int)var] != t->dtype) {
        return in_fail(i, ERR_MIL_INVALID, o->name, "dtype %s beside %s",
                       mil_dtype_name(t->dtype),
                       mil_dtype_name(vars[(int)var]));
    }
    return 0;
}

static int check_operand(struct infer *i, const struct sig_operand *o,
                         enum mil_dtype vars[128])
{
    size_t n = in_count(i, o->name);
    if (n == 0) {
        return (o->flags & SIG_NEED) == 0
                   ? 0
                   : in_fail(i, ERR_MIL_INVALID, o->name, "is missing");
    }
    if (o->since > i->spec) {
        return in_fail(i, ERR_MIL_INVALID, o->name, "is not in %s",
                       mil_opset(i->spec));
    }
    if (n != 1 && (o->flags & SIG_TUPLE) == 0) {
        return in_fail(i, ERR_MIL_INVALID, o->name, "has %zu bindings", n);
    }
    const struct mil_arg *a = mil_op_arg(i->op, o->name);
    for (size_t k = 0; k < n; k++) {
        if ((o->flags & SIG_STATE) != 0 && a->b[k].value == NULL) {
            return in_fail(i, ERR_MIL_INVALID, o->name, "must be a state");
        }
        if ((o->flags & SIG_CONST) != 0 && !i->sig->attrs &&
            !is_constant(&a->b[k])) {
            return in_fail(i, ERR_MIL_INVALID, o->name, "must be constant");
        }
        int rc = check_type(i, o, in_type_at(i, o->name, k), vars);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int check_operands(struct infer *i)
{
    enum mil_dtype vars[128] = {MIL_NONE};
    for (size_t k = 0; k < i->op->n_args; k++) {
        const char *name = i->op->args[k].name;
        const struct sig_operand *o = i->sig->operands;
        while (o->name != NULL && strcmp(o->name, name) != 0) {
            o++;
        }
        if (o->name == NULL || i->sig->attrs) {
            return in_fail(i, ERR_MIL_INVALID, name, "%s has no such operand",
                           i->op->type);
        }
    }
    for (const struct sig_operand *o = i->sig->operands; o->name != NULL; o++) {
        int rc = check_operand(i, o, vars);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* A const has no operands; its type is its value's. */
static int const_type(struct infer *i)
{
    const struct mil_const *val = attr(i, "val");
    if (i->op->n_args > 0 || val == NULL || val->type.dtype == MIL_NONE) {
        return err_set(i->e, ERR_MIL_INVALID, "attribute val: %s",
                       val == NULL ? "is missing" : "is no tensor");
    }
    return out_type(i, val->type.dtype, val->type.rank, val->type.dims);
}

int mil_infer(const struct mil_op *op, int spec, struct mil_type *out,
              size_t cap, size_t *ret_n, struct err *e)
{
    static const struct sig_operand nothing[] = {{0}};
    static const struct sig const_sig = {
        .op = "const", .attrs = true, .infer = const_type, .operands = nothing};
    bool known = true;
    const struct sig *sig = strcmp(op->type, "const") == 0
                                ? &const_sig
                                : sig_find(op->type, spec, &known);
    if (sig == NULL) {
        return err_set(e, ERR_MIL_OP,
                       known ? "operation %s is not in %s"
                             : "operation %s is unknown (%s)",
                       op->type, mil_opset(spec));
    }
    if (op->n_blocks != (size_t)sig->n_blocks) {
        return err_set(e, ERR_MIL_INVALID, "%s has %d blocks, not %zu",
                       op->type, sig->n_blocks, op->n_blocks);
    }
    struct infer i = {
        .op = op, .sig = sig, .spec = spec, .out = out, .cap = cap, .e = e};
    RETERR(check_operands(&i));
    RETERR(sig->infer(&i));
    *ret_n = i.n;
    return 0;
}
