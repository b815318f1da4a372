/* program_ops.c - operations and norms as the programs need them: one call an
 * operation, named after its layer. */
#include <string.h>

#include "convert/program_impl.h"

/* "layers_3_what", or "before_what" of the layer before the first; a result that
 * leaves the program has the contract's name alone. Valid until the next call. */
const char *draw_named(struct ctx *c, const char *what)
{
    if (c->l != NULL && c->l->sparse && !c->joins &&
        (strcmp(what, EXPERT_IN) == 0 || strcmp(what, EXPERT_GATES) == 0)) {
        return what;
    }
    if (c->joins) {
        (void)snprintf(c->name, sizeof(c->name), "before_%s", what);
    } else {
        (void)snprintf(c->name, sizeof(c->name), "layers_%u_%s", c->layer,
                       what);
    }
    return c->name;
}

struct mil_value *draw_binary(struct ctx *c, const char *op, const char *what,
                              struct mil_value *x, struct mil_value *y)
{
    return mil_op(c->p, c->f, op, draw_named(c, what), "x", x, "y", y, NULL);
}

struct mil_value *draw_unary(struct ctx *c, const char *op, const char *what,
                             struct mil_value *x)
{
    return mil_op(c->p, c->f, op, draw_named(c, what), "x", x, NULL);
}

struct mil_value *draw_f16(struct ctx *c, float v)
{
    return mil_f16(c->p, c->f, v);
}

struct mil_value *draw_reduce(struct ctx *c, const char *op, const char *what,
                              struct mil_value *x, int32_t axis)
{
    struct mil_value *axes = mil_i32s(c->p, c->f, 1, &axis);
    struct mil_value *keep = mil_bool(c->p, c->f, true);
    return mil_op(c->p, c->f, op, draw_named(c, what), "x", x, "axes", axes,
                  "keep_dims", keep, NULL);
}

struct mil_value *draw_reshape(struct ctx *c, const char *what,
                               struct mil_value *x, int32_t a, int32_t b,
                               int32_t d)
{
    int32_t shape[4] = {1, a, b, d};
    return mil_op(c->p, c->f, "reshape", draw_named(c, what), "x", x, "shape",
                  mil_i32s(c->p, c->f, 4, shape), NULL);
}

/* The two last axes change places. */
struct mil_value *draw_swap(struct ctx *c, const char *what,
                            struct mil_value *x)
{
    static const int32_t perm[4] = {0, 1, 3, 2};
    return mil_op(c->p, c->f, "transpose", draw_named(c, what), "x", x, "perm",
                  mil_i32s(c->p, c->f, 4, perm), NULL);
}

struct mil_value *draw_matmul(struct ctx *c, const char *what,
                              struct mil_value *x, struct mil_value *y,
                              bool transpose_y)
{
    struct mil_value *tx = mil_bool(c->p, c->f, false);
    struct mil_value *ty = mil_bool(c->p, c->f, transpose_y);
    return mil_op(c->p, c->f, "matmul", draw_named(c, what), "x", x, "y", y,
                  "transpose_x", tx, "transpose_y", ty, NULL);
}

struct mil_value *draw_slice(struct ctx *c, const char *what,
                             struct mil_value *x, size_t axis, int32_t from,
                             int32_t to)
{
    int32_t begin[4] = {0, 0, 0, 0};
    int32_t end[4] = {0, 0, 0, 0};
    const int32_t stride[4] = {1, 1, 1, 1};
    bool whole[4] = {true, true, true, true};
    begin[axis] = from;
    end[axis] = to;
    whole[axis] = false;
    const bool none[4] = {false, false, false, false};
    struct mil_value *b = mil_i32s(c->p, c->f, 4, begin);
    struct mil_value *z = mil_i32s(c->p, c->f, 4, end);
    struct mil_value *by = mil_i32s(c->p, c->f, 4, stride);
    struct mil_value *all = mil_bools(c->p, c->f, 4, whole);
    struct mil_value *to_all = all;
    if (to == 0) {
        whole[axis] = true;
        to_all = mil_bools(c->p, c->f, 4, whole);
    }
    struct mil_value *no = mil_bools(c->p, c->f, 4, none);
    return mil_op(c->p, c->f, "slice_by_index", draw_named(c, what), "x", x,
                  "begin", b, "end", z, "stride", by, "begin_mask", all,
                  "end_mask", to_all, "squeeze_mask", no, NULL);
}

struct mil_value *draw_constant(struct ctx *c, const char *what,
                                const struct mil_const *k)
{
    return mil_const_op(c->p, c->f, draw_named(c, what), k);
}

/* A matrix of this layer times x, and its bias if there is one. */
struct mil_value *draw_project(struct ctx *c, const char *what,
                               struct mil_value *x, enum arch_slot slot,
                               enum arch_slot bias)
{
    char text[TEXT_ROOM];
    const struct weight *w = layer_matrix(c->w, slot);
    const struct mil_const *k =
        bias == SLOT_COUNT ? NULL : layer_vector(c->w, bias);
    (void)snprintf(text, sizeof(text), "%s_weight", what);
    struct mil_value *weight =
        weights_value(c->p, c->f, draw_named(c, text), w);
    struct mil_value *b = NULL;
    if (k != NULL) {
        (void)snprintf(text, sizeof(text), "%s_bias", what);
        b = draw_constant(c, text, k);
    }
    return mil_conv1x1(c->p, c->f, draw_named(c, what), x, weight, b);
}

/* x times a constant, left out when it is 1. */
struct mil_value *draw_times(struct ctx *c, const char *what,
                             struct mil_value *x, float by)
{
    return by == 1.0f ? x : draw_binary(c, "mul", what, x, draw_f16(c, by));
}

/* The last op of a program's last layer has the contract's name. */
struct mil_value *draw_last(struct ctx *c, bool last, const char *op,
                            const char *what, struct mil_value *x,
                            struct mil_value *y)
{
    return mil_op(c->p, c->f, op, last ? "hidden" : draw_named(c, what), "x", x,
                  "y", y, NULL);
}

/* --- norms --- */

/* RMSNorm over `axis` of d elements of x * alpha. The weight holds the gain;
 * NULL: there is none. */
struct mil_value *draw_norm(struct ctx *c, const char *what,
                            struct mil_value *x, int32_t axis, uint32_t d,
                            float alpha, const struct mil_const *weight)
{
    char text[TEXT_ROOM];
    float eps = norm_epsilon(c->m->norm, c->m->d->norm_eps, alpha);
    struct mil_value *y = NULL;
    struct mil_value *s = NULL;
    if (c->m->norm == NORM_SCALE) {
        y = draw_binary(c, "mul", "norm_x", x,
                        draw_f16(c, 1.0f / sqrtf((float)d)));
        s = draw_reduce(c, "reduce_sum", "norm_sum",
                        draw_binary(c, "mul", "norm_square", y, y), axis);
        if (eps > 0) {
            s = draw_binary(c, "add", "norm_eps", s, draw_f16(c, eps));
        }
    } else {
        struct mil_value *m =
            draw_reduce(c, "reduce_max", "norm_max",
                        draw_unary(c, "abs", "norm_abs", x), axis);
        m = draw_binary(c, "maximum", "norm_floor", m, draw_f16(c, NORM_FLOOR));
        y = draw_binary(c, "real_div", "norm_x", x, m);
        s = draw_reduce(c, "reduce_mean", "norm_mean",
                        draw_binary(c, "mul", "norm_square", y, y), axis);
        if (eps > 0) {
            struct mil_value *r = draw_binary(c, "real_div", "norm_root_eps",
                                              draw_f16(c, eps), m);
            s = draw_binary(c, "add", "norm_eps", s,
                            draw_binary(c, "mul", "norm_eps_square", r, r));
        }
    }
    s = mil_op(c->p, c->f, "rsqrt", draw_named(c, "norm_rsqrt"), "x", s,
               "epsilon", draw_f16(c, 0), NULL);
    if (weight == NULL) { /* the last operation has the name */
        float gain = norm_gain(c->m->norm, d);
        y = draw_binary(c, "mul", gain == 1.0f ? what : "norm_y", y, s);
        return draw_times(c, what, y, gain);
    }
    y = draw_binary(c, "mul", "norm_y", y, s);
    (void)snprintf(text, sizeof(text), "%s_weight", what);
    return draw_binary(c, "mul", what, y, draw_constant(c, text, weight));
}

/* --- inputs --- */

struct mil_value *draw_input(struct ctx *c, const char *name, int rank,
                             const int64_t *dims)
{
    bool encoder = c->m->d->encoder;
    return mil_add_input(c->p, c->f, name, MIL_FP16, rank, dims,
                         encoder ? program_rows_least(c->m->d) : 1,
                         encoder ? ENCODER_ROWS_MAX : SHAPE_RANGE_MAX);
}
