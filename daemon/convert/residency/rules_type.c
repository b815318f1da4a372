/* rules_type.c - conditions on types, sizes and operands. */
#include <string.h>

#include "convert/residency/rules.h"

#define RANK_CAP     5
#define CHANNELS_CAP 65536 /* of every generation */

/* --- operands --- */

static const struct mil_type *binding_type(const struct mil_binding *b)
{
    return b->value != NULL ? &b->value->type
           : b->imm != NULL ? &b->imm->type
                            : NULL;
}

const struct mil_type *look_type(const struct mil_op *op, const char *arg,
                                 size_t k)
{
    const struct mil_arg *a = mil_op_arg(op, arg);
    return a != NULL && k < a->n ? binding_type(&a->b[k]) : NULL;
}

bool look_is_const(const struct mil_op *op)
{
    return strcmp(op->type, "const") == 0 ||
           strncmp(op->type, "constexpr_", 10) == 0;
}

static bool is_const(const struct mil_binding *b)
{
    return b->value == NULL ||
           (b->value->def != NULL && look_is_const(b->value->def));
}

bool look_at_run_time(const struct mil_op *op, const char *arg)
{
    const struct mil_arg *a = mil_op_arg(op, arg);
    for (size_t i = 0; a != NULL && i < a->n; i++) {
        if (!is_const(&a->b[i])) {
            return true;
        }
    }
    return false;
}

bool look_is(const struct mil_op *op, const char *type)
{
    return op != NULL && strcmp(op->type, type) == 0;
}

bool look_transposed(const struct mil_op *op, const char *arg)
{
    bool yes = false;
    size_t n = 0;
    return mil_const_bools(mil_op_const(op, arg), &yes, 1, &n) && n == 1 && yes;
}

/* Calls fn for each type that goes in while the program runs, or comes out,
 * until it returns true. */
static bool any_type(struct look *k,
                     bool (*fn)(struct look *k, const struct mil_type *t))
{
    const struct mil_op *op = k->op;
    for (size_t i = 0; i < op->n_outputs; i++) {
        if (fn(k, &op->outputs[i]->type)) {
            return true;
        }
    }
    for (size_t i = 0; i < op->n_args; i++) {
        for (size_t j = 0; j < op->args[i].n; j++) {
            const struct mil_binding *b = &op->args[i].b[j];
            const struct mil_type *t = binding_type(b);
            if (t != NULL && !is_const(b) && fn(k, t)) {
                return true;
            }
        }
    }
    return false;
}

static void tell_type(struct look *k, const struct mil_type *t)
{
    mil_type_print(t, k->detail, sizeof(k->detail));
}

/* --- types --- */

/* The CPU's: coremltools writes fp32 constants (an epsilon) into fp16 programs,
 * so constants do not count. */
static bool wide(struct look *k, const struct mil_type *t)
{
    if (t->dtype != MIL_FP32 && t->dtype != MIL_FP64 && t->dtype != MIL_BF16) {
        return false;
    }
    tell_type(k, t);
    return true;
}

bool holds_fp32(struct look *k)
{
    return any_type(k, wide);
}

static bool is_integer(const struct mil_type *t)
{
    return t->dtype >= MIL_INT8; /* proto numbers: all of these */
}

static bool result_is_integer(struct look *k, bool many)
{
    for (size_t i = 0; i < k->op->n_outputs; i++) {
        const struct mil_type *t = &k->op->outputs[i]->type;
        uint64_t n = 0;
        bool one = mil_type_count(t, &n) && n == 1;
        if (is_integer(t) && one != many) {
            tell_type(k, t);
            return true;
        }
    }
    return false;
}

/* Not of those whose result is nothing else, which have rules of their own. */
bool holds_integers(struct look *k)
{
    bool own = rule_word("reduce_argmax reduce_argmin quantize", k->op->type) ||
               (look_is(k->op, "cast") && k->l->chip >= 2);
    return !own && result_is_integer(k, true);
}

bool holds_integer(struct look *k)
{
    return result_is_integer(k, false);
}

static bool deep(struct look *k, const struct mil_type *t)
{
    if (t->rank <= RANK_CAP) {
        return false;
    }
    tell_type(k, t);
    return true;
}

bool holds_rank(struct look *k)
{
    return any_type(k, deep);
}

/* [N, C, ...]: axis 1 is of channels. Of two axes and of one, the last is. */
static int channel_axis(int rank)
{
    return rank >= 3 ? 1 : rank - 1;
}

static bool longer(struct look *k, const struct mil_type *t)
{
    for (int i = 0; i < t->rank; i++) {
        int64_t cap = i == channel_axis(t->rank) ? CHANNELS_CAP : k->l->axis;
        if (t->dims[i] > cap) {
            char text[48];
            mil_type_print(t, text, sizeof(text));
            look_detail(k, "axis %d of %s, cap %lld", i, text, (long long)cap);
            return true;
        }
    }
    return false;
}

bool holds_axis(struct look *k)
{
    return any_type(k, longer);
}

/* --- products --- */

bool holds_contraction(struct look *k)
{
    bool mm = look_is(k->op, "matmul");
    const struct mil_type *t = look_type(k->op, mm ? "x" : "weight", 0);
    int axis = mm && t != NULL
                   ? t->rank - (look_transposed(k->op, "transpose_x") ? 2 : 1)
                   : 1;
    if (t == NULL || axis < 0 || axis >= t->rank ||
        t->dims[axis] <= (int64_t)k->l->axis) {
        return false;
    }
    look_detail(k, "%lld, cap %u", (long long)t->dims[axis], k->l->axis);
    return true;
}

bool holds_rows(struct look *k)
{
    const struct mil_type *t = look_type(k->op, "weight", 0);
    if (t == NULL || t->rank < 1 || t->dims[0] <= (int64_t)k->l->head_rows) {
        return false;
    }
    look_detail(k, "%lld, profile %s has %u", (long long)t->dims[0],
                k->l->profile, k->l->head_rows);
    return true;
}

bool holds_kernel(struct look *k)
{
    const struct mil_type *t = look_type(k->op, "weight", 0);
    int64_t cap = k->l->chip < 2 ? 13 : 15;
    if (t == NULL || t->rank < 3 || t->dims[t->rank - 1] <= cap) {
        return false;
    }
    look_detail(k, "%lld, cap %lld", (long long)t->dims[t->rank - 1],
                (long long)cap);
    return true;
}

static bool any_int(const struct mil_op *op, const char *arg, struct look *k,
                    bool (*bad)(int64_t v))
{
    int64_t v[MIL_RANK_MAX * 2];
    size_t n = 0;
    if (!mil_const_ints(mil_op_const(op, arg), v, countof(v), &n)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (bad(v[i])) {
            look_detail(k, "%lld", (long long)v[i]);
            return true;
        }
    }
    return false;
}

static bool hangs(int64_t stride)
{
    return stride == 5 || stride == 7;
}

bool holds_stride(struct look *k)
{
    return any_int(k->op, "strides", k, hangs);
}

static bool unproven(int64_t reps)
{
    return reps != 1 && reps != 2 && reps != 3 && reps != 4 && reps != 8;
}

bool holds_reps(struct look *k)
{
    return any_int(k->op, "reps", k, unproven);
}

bool holds_pad(struct look *k)
{
    const char *mode = mil_const_str(mil_op_const(k->op, "mode"));
    if (mode == NULL || strcmp(mode, "constant") == 0) {
        return false;
    }
    look_detail(k, "%.32s", mode);
    return true;
}

/* --- forms --- */

bool holds_nested(struct look *k)
{
    return k->depth > 0;
}

bool holds_old_chip(struct look *k)
{
    return k->l->chip < 2;
}

/* Operands that say a shape. */
bool holds_dynamic(struct look *k)
{
    static const struct {
        const char *ops, *arg;
    } shapes[] = {
        {"reshape fill",   "shape"},
        {"tile",           "reps" },
        {"pad",            "pad"  },
        {"shape range_1d", NULL   },
    };
    for (size_t i = 0; i < countof(shapes); i++) {
        if (rule_word(shapes[i].ops, k->op->type) &&
            (shapes[i].arg == NULL || look_at_run_time(k->op, shapes[i].arg))) {
            look_detail(k, "%s", shapes[i].arg != NULL ? shapes[i].arg : "");
            return true;
        }
    }
    return false;
}

bool holds_slice(struct look *k)
{
    static const char *const args[] = {"begin", "end", "size", "stride"};
    for (size_t i = 0; i < countof(args); i++) {
        if (look_at_run_time(k->op, args[i])) {
            look_detail(k, "%s", args[i]);
            return true;
        }
    }
    return false;
}

/* Keys [.., S, d]. */
bool holds_attention(struct look *k)
{
    const struct mil_type *q = look_type(k->op, "query", 0);
    const struct mil_type *t = look_type(k->op, "key", 0);
    if (q == NULL || t == NULL || t->rank < 2 || q->rank < 2) {
        return false;
    }
    int64_t s = t->dims[t->rank - 2];
    int64_t d = t->dims[t->rank - 1];
    int64_t rows = q->dims[q->rank - 2];
    if (d == 64 && s >= 496 && s <= 2048 && (rows < 512 || s < 512)) {
        return false;
    }
    look_detail(k, "heads of %lld, %lld keys", (long long)d, (long long)s);
    return true;
}
