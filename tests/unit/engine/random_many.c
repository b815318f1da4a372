/* random_many.c - more of everything than a table of fixed size would hold,
 * see random_gen.h. */
#include "random_gen.h"

/* Channels of x, each cut out, in any order, joined at once. */
static struct mil_value *joined(struct gen *g, struct mil_value *x, int32_t a)
{
    struct pkg *k = &g->k;
    struct mil_value *v[GEN_MANY];
    for (int32_t i = 0; i < a; i++) {
        v[i] = slice(k, x, 1, i, i + 1);
    }
    for (int32_t i = a - 1; i > 0; i--) {
        int32_t j = gen_pick(g, i + 1);
        struct mil_value *swap = v[i];
        v[i] = v[j];
        v[j] = swap;
    }
    return mil_concat(k->p, k->f, "many", (size_t)a, v, 1);
}

/* The same by a split, some of whose pieces change. */
static struct mil_value *parted(struct gen *g, struct mil_value *x, int32_t a)
{
    struct pkg *k = &g->k;
    struct mil_value *v[GEN_MANY];
    mil_split(k->p, k->f, "parts", x, (size_t)a, 1, v);
    for (int32_t i = 0; i < a; i++) {
        v[i] = gen_chance(g, 30) ? one(k, "tanh", v[i]) : v[i];
    }
    return mil_concat(k->p, k->f, "many", (size_t)a, v, 1);
}

/* Products of inputs of every width. */
static struct mil_value *products(struct gen *g, struct mil_value *x, int32_t a)
{
    struct pkg *k = &g->k;
    struct mil_value *sum = NULL;
    for (int32_t i = 1; i <= a; i++) {
        struct mil_value *v = gen_conv(g, slice(k, x, 1, 0, i), a);
        sum = sum == NULL ? v : two(k, "add", sum, v);
    }
    return two(k, "mul", sum, num(k, 1.0f / (float)a));
}

struct mil_value *gen_many(struct gen *g, struct mil_value *x, int32_t a)
{
    switch (gen_pick(g, 3)) {
    case 0:
        return joined(g, x, a);
    case 1:
        return parted(g, x, a);
    default:
        return products(g, x, a);
    }
}
