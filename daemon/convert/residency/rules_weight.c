/* rules_weight.c - conditions on how the weights of a product are stored. A
 * constexpr_* is no operation of its own; the one that reads it is judged. */
#include <string.h>

#include "convert/residency/rules.h"

/* Where a weight goes in, and the axis of it that is of output channels. */
struct place {
    const struct mil_op *made; /* the constexpr_*; NULL: none */
    int out;                   /* -1: not known */
};

/* x [.., M, K] @ y [.., K, N]: of x the rows are outputs, of y the columns. */
static int out_axis(const struct mil_op *op, const char *arg, int rank)
{
    if (look_is(op, "conv") || look_is(op, "linear")) {
        return strcmp(arg, "weight") == 0 ? 0 : -1;
    }
    if (look_is(op, "conv_transpose")) {
        return strcmp(arg, "weight") == 0 ? 1 : -1;
    }
    if (!look_is(op, "matmul") || rank < 2) {
        return -1;
    }
    bool x = strcmp(arg, "x") == 0;
    bool t = look_transposed(op, x ? "transpose_x" : "transpose_y");
    return x != t ? rank - 2 : rank - 1;
}

/* The first operand of the product that is made from stored weights. Those of
 * other operations (a bias, a table) are not told of. */
static struct place weight_of(const struct look *k)
{
    static const char *const args[] = {"weight", "y", "x"};
    struct place w = {.out = -1};
    if (!rule_word("conv conv_transpose linear matmul", k->op->type)) {
        return w;
    }
    for (size_t i = 0; i < countof(args); i++) {
        const struct mil_value *v = mil_op_value(k->op, args[i]);
        if (v != NULL && v->def != NULL &&
            strncmp(v->def->type, "constexpr_", 10) == 0) {
            w.made = v->def;
            w.out = out_axis(k->op, args[i], v->type.rank);
            return w;
        }
    }
    return w;
}

/* The type of a constexpr's operand, whichever way it is bound. */
static const struct mil_type *part(const struct mil_op *op, const char *arg)
{
    const struct mil_type *t = look_type(op, arg, 0);
    const struct mil_const *c = t == NULL ? mil_op_const(op, arg) : NULL;
    return c != NULL ? &c->type : t;
}

static void tell(struct look *k, const char *what, const struct mil_type *t)
{
    char text[64];
    mil_type_print(t, text, sizeof(text));
    look_detail(k, "%s %s", what, text);
}

/* More than one along an axis that is not of output channels, or groups of
 * these. rank: how many axes of `t` are the weight's. */
static bool blocked(const struct mil_type *t, const struct mil_type *whole,
                    int rank, int out, bool groups_do)
{
    for (int i = 0; i < rank && i < t->rank; i++) {
        bool all = i < whole->rank && t->dims[i] == whole->dims[i];
        if (t->dims[i] != 1 && (i != out || !(all || groups_do))) {
            return true;
        }
    }
    return false;
}

#define SCALED "constexpr_blockwise_shift_scale"
#define AFFINE "constexpr_affine_dequantize"
#define LUT    "constexpr_lut_to_dense"

bool holds_blocks(struct look *k)
{
    struct place w = weight_of(k);
    if (look_is(w.made, SCALED)) {
        const struct mil_type *scale = part(w.made, "scale");
        const struct mil_type *whole = &w.made->outputs[0]->type;
        if (scale != NULL && blocked(scale, whole, whole->rank, w.out, false)) {
            tell(k, "scales", scale);
            return true;
        }
    }
    if (look_is(w.made, AFFINE)) {
        const struct mil_type *scale = part(w.made, "scale");
        int64_t axis = 0;
        size_t n = 0;
        bool many = scale != NULL && scale->rank == 1 && scale->dims[0] != 1;
        if (many &&
            mil_const_ints(mil_op_const(w.made, "axis"), &axis, 1, &n)) {
            axis += axis < 0 ? w.made->outputs[0]->type.rank : 0;
            if (axis != w.out) {
                look_detail(k, "scales along axis %lld", (long long)axis);
                return true;
            }
        }
    }
    return false;
}

bool holds_int4(struct look *k)
{
    struct place w = weight_of(k);
    const struct mil_type *t =
        look_is(w.made, SCALED) ? part(w.made, "data") : NULL;
    return t != NULL && (t->dtype == MIL_INT4 || t->dtype == MIL_UINT4) &&
           k->l->chip < 5;
}

/* A palette, whether scales follow or not; NULL: none. */
static const struct mil_op *palette(const struct look *k)
{
    struct place w = weight_of(k);
    if (look_is(w.made, SCALED)) {
        const struct mil_value *v = mil_op_value(w.made, "data");
        w.made = v != NULL ? v->def : NULL;
    }
    return look_is(w.made, LUT) ? w.made : NULL;
}

/* lut: the weight's axes, then entries, then numbers of an entry. */
bool holds_lut_blocks(struct look *k)
{
    const struct mil_op *p = palette(k);
    const struct mil_type *lut = p != NULL ? part(p, "lut") : NULL;
    if (lut == NULL || lut->rank < 3 ||
        !blocked(lut, &p->outputs[0]->type, lut->rank - 2, weight_of(k).out,
                 true)) {
        return false;
    }
    tell(k, "palettes", lut);
    return true;
}

/* Entries in 8 bits: as they are, or with a scale of their own. */
bool holds_lut_int8(struct look *k)
{
    const struct mil_op *p = palette(k);
    const struct mil_type *lut = p != NULL ? part(p, "lut") : NULL;
    const struct mil_value *v = p != NULL ? mil_op_value(p, "lut") : NULL;
    if (v != NULL && look_is(v->def, SCALED)) {
        lut = part(v->def, "data");
    }
    return lut != NULL && (lut->dtype == MIL_INT8 || lut->dtype == MIL_UINT8);
}

bool holds_lut_scale(struct look *k)
{
    return look_is(weight_of(k).made, SCALED) && palette(k) != NULL;
}

/* A session's states and palettes in one program. */
bool holds_lut_state(struct look *k)
{
    return k->l->chip >= 5 && k->f->n_states > 0 && palette(k) != NULL;
}

bool holds_lut_other(struct look *k)
{
    const struct mil_op *p = palette(k);
    const struct mil_type *lut = p != NULL ? part(p, "lut") : NULL;
    if (lut == NULL || lut->rank < 1) {
        return false;
    }
    int64_t n = lut->dims[lut->rank >= 3 ? lut->rank - 2 : 0];
    bool single = lut->rank < 3 || lut->dims[lut->rank - 1] == 1;
    if (single && (n == 8 || n == 16 || n == 64)) {
        return false;
    }
    tell(k, "palettes", lut);
    return true;
}

bool holds_sparse(struct look *k)
{
    struct place w = weight_of(k);
    return w.made != NULL && strstr(w.made->type, "sparse") != NULL &&
           k->l->chip < 2;
}

bool holds_weight_other(struct look *k)
{
    struct place w = weight_of(k);
    if (w.made == NULL || look_is(w.made, AFFINE) || look_is(w.made, LUT) ||
        strstr(w.made->type, "sparse") != NULL) {
        return false;
    }
    const struct mil_type *t =
        look_is(w.made, SCALED) ? part(w.made, "data") : NULL;
    if (t != NULL &&
        (t->dtype == MIL_INT8 || t->dtype == MIL_UINT8 ||
         t->dtype == MIL_INT4 || t->dtype == MIL_UINT4 || palette(k) != NULL)) {
        return false;
    }
    look_detail(k, "%.40s", w.made->type);
    return true;
}
