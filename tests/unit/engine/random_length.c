/* random_length.c - shapes, and what can be made of T, see random_gen.h. */
#include "random_gen.h"

#define TABLE_ROWS 64 /* the most that the inputs' T may be */

static struct mil_value *i32(struct gen *g, int32_t v)
{
    return mil_i32(g->k.p, g->k.f, v);
}

/* One dimension of x, by one of the ways that lead there. */
static struct mil_value *any_dim(struct gen *g, struct mil_value *x, int32_t at)
{
    struct pkg *k = &g->k;
    struct mil_value *s = shape_of(k, x);
    struct mil_value *part[4];
    switch (gen_pick(g, 3)) {
    case 0:
        return gather(k, s, i32(g, at), 0);
    case 1:
        mil_split(k->p, k->f, "dims", s, 4, 0, part);
        s = part[at];
        break;
    default:
        s = slice(k, s, 0, at, at + 1);
        break;
    }
    return gen_chance(g, 50) ? reshape(k, s, 0, NULL) : s;
}

/* [1], whether any_dim gave a scalar or not. */
static struct mil_value *listed(struct gen *g, struct mil_value *x)
{
    static const int32_t one_long = 1;
    return x->type.rank == 1 ? x : reshape(&g->k, x, 1, &one_long);
}

/* dims with T of x in the place of the -1. */
static struct mil_value *with_t(struct gen *g, struct mil_value *x, size_t n,
                                const int32_t *dims)
{
    struct pkg *k = &g->k;
    struct mil_value *v[4];
    for (size_t i = 0; i < n; i++) {
        v[i] = dims[i] < 0 ? listed(g, any_dim(g, x, 2))
                           : mil_i32s(k->p, k->f, 1, &dims[i]);
    }
    return mil_concat(k->p, k->f, "dims", n, v, 0);
}

/* 0 .. T - 1 */
static struct mil_value *t_range(struct gen *g, struct mil_value *x)
{
    struct mil_value *t = any_dim(g, x, 2);
    return range_of(&g->k, reshape(&g->k, t, 0, NULL));
}

struct mil_value *gen_shape(struct gen *g, struct mil_value *x, int32_t a,
                            int32_t b)
{
    struct pkg *k = &g->k;
    const int32_t dims[4] = {1, a, -1, b};
    const int32_t turned[4] = {1, b, a, -1};
    static const int32_t reps[4] = {1, 1, -1, 1};
    struct mil_value *v = NULL;
    switch (gen_pick(g, 6)) {
    case 0: /* a width as a number */
        v = number(k, any_dim(g, x, gen_chance(g, 50) ? 1 : 3));
        return two(k, "mul", x, two(k, "mul", v, num(k, 1.0f / 64)));
    case 1: /* into the shape that it has */
        return reshaped(k, one(k, "tanh", x), shape_of(k, x), dims);
    case 2: /* through another one: nothing moves along T */
        v = transpose(k, x, 0, 3, 1, 2);
        v = reshaped(k, v, with_t(g, x, 4, turned), turned);
        return transpose(k, v, 0, 2, 3, 1);
    case 3: /* the same number everywhere */
        v = gen_chance(g, 50) ? shape_of(k, x) : with_t(g, x, 4, dims);
        v = declared(filled(k, v, 0.5f), dims);
        return two(k, gen_chance(g, 50) ? "add" : "maximum", x,
                   gen_chance(g, 50) ? one(k, "exp", v) : v);
    case 4: /* the same row everywhere */
        v = noise4(k, a, 1, b, 1, 0.5f, (uint32_t)gen_next(g));
        return two(k, "sub", x, tiled(k, v, with_t(g, x, 4, reps), dims));
    default: /* widths of widths */
        v = two(k, "floor_div", two(k, "mul", any_dim(g, x, 1), i32(g, 3)),
                i32(g, 2));
        v = reshape(k, number(k, v), 0, NULL);
        return two(k, "maximum", x, two(k, "mul", v, num(k, 1.0f / 128)));
    }
}

/* [T] numbers that say where a row is among them, as [1, 1, T, 1]. */
static struct mil_value *places(struct gen *g, struct mil_value *x)
{
    static const int32_t flat[4] = {1, 1, -1, 1};
    static const int32_t square[2] = {-1, -1};
    static const int32_t list[1] = {-1};
    struct pkg *k = &g->k;
    struct mil_value *no = mil_bool(k->p, k->f, false);
    struct mil_value *v = NULL;
    switch (gen_pick(g, 4)) {
    case 0:
        v = number(k, t_range(g, x));
        break;
    case 1:
        v = mil_op(k->p, k->f, "cumsum", "cumsum", "x",
                   filled(k, with_t(g, x, 1, list), 1), "axis", i32(g, 0),
                   "exclusive", no, "reverse", no, NULL);
        break;
    case 2: /* a triangle */
        v = mil_op(k->p, k->f, "band_part", "band", "x",
                   filled(k, with_t(g, x, 2, square), 1), "lower", i32(g, -1),
                   "upper", i32(g, 0), NULL);
        v = reduce(k, "reduce_sum", v, 1);
        break;
    default: /* those after the first */
        v = two(k, "greater", t_range(g, x), i32(g, 0));
        v = number(k, v);
        break;
    }
    return reshape(k, v, 4, flat);
}

/* One number that T says. */
static struct mil_value *length(struct gen *g, struct mil_value *x, int32_t b)
{
    const int32_t dims[4] = {1, 1, -1, b};
    const int32_t axes[4] = {0, 1, 2, 3};
    struct pkg *k = &g->k;
    struct mil_value *v = NULL;
    switch (gen_pick(g, 5)) {
    case 0:
        v = number(k, any_dim(g, x, 2));
        break;
    case 1:
        v = reduce_over(k, "reduce_sum", filled(k, with_t(g, x, 4, dims), 1),
                        4, axes, false);
        break;
    case 2: /* the shape of what has T's */
        v = number(k, any_dim(g, filled(k, shape_of(k, x), 1), 2));
        break;
    case 3: /* how many are not zero */
        v = mil_op(k->p, k->f, "non_zero", "nonzero", "x",
                   filled(k, with_t(g, x, 4, dims), 1), NULL);
        v = number(k, gather(k, shape_of(k, v), i32(g, 0), 0));
        break;
    default: /* all dimensions at once: T among them */
        v = reduce_over(k, "reduce_sum", number(k, shape_of(k, x)), 1, axes,
                        false);
        break;
    }
    return reshape(k, v, 0, NULL);
}

/* A row of a table for each place: [1, a, T, b]. */
static struct mil_value *looked_up(struct gen *g, struct mil_value *x,
                                   int32_t a, int32_t b)
{
    const int64_t dims[2] = {TABLE_ROWS, (int64_t)a * b};
    const int32_t apart[4] = {1, -1, a, b};
    struct pkg *k = &g->k;
    struct mil_value *v = NULL;
    if (gen_chance(g, 50)) {
        v = gather(k, noise(k, 2, dims, 0, 0.5f, (uint32_t)gen_next(g)),
                   t_range(g, x), 0);
    } else {
        v = mil_op(k->p, k->f, "one_hot", "hot", "indices", t_range(g, x),
                   "one_hot_vector_size", i32(g, a * b), "axis", i32(g, -1),
                   "on_value", num(k, 0.5f), "off_value", num(k, 0.0f), NULL);
    }
    return transpose(k, reshape(k, v, 4, apart), 0, 2, 1, 3);
}

struct mil_value *gen_length(struct gen *g, struct mil_value *x, int32_t a,
                             int32_t b)
{
    struct pkg *k = &g->k;
    struct mil_value *v = NULL;
    x = one(k, "tanh", x);
    switch (gen_pick(g, 6)) {
    case 0:
        return two(k, "mul", x, length(g, x, b));
    case 1:
        return two(k, "real_div", x, length(g, x, b));
    case 2:
        return two(k, gen_chance(g, 50) ? "add" : "mul", x, places(g, x));
    case 3:
        return two(k, "add", x, looked_up(g, x, a, b));
    case 4: /* a channel that T names */
        v = two(k, "mod", any_dim(g, x, 2), i32(g, a));
        v = gather(k, x, v->type.rank == 0 ? listed(g, v) : v, 1);
        return two(k, "sub", x, v);
    default: /* one of two, as T says */
        v = two(k, "greater", length(g, x, b), num(k, 2.5f));
        return mil_op(k->p, k->f, "select", "select", "cond", v, "a", x, "b",
                      two(k, "mul", x, num(k, -0.5f)), NULL);
    }
}
