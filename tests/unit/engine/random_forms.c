/* random_forms.c - operations that have many spellings, see random_gen.h. */
#include "random_gen.h"

/* --- norm --- */

static struct mil_value *any_square(struct gen *g, struct mil_value *x)
{
    struct pkg *k = &g->k;
    switch (gen_pick(g, 3)) {
    case 0:
        return two(k, "mul", x, x);
    case 1:
        return two(k, "pow", x, num(k, 2));
    default:
        return one(k, "square", x);
    }
}

static struct mil_value *any_mean(struct gen *g, struct mil_value *x, int axis)
{
    struct pkg *k = &g->k;
    struct mil_value *c = num(k, 1.0f / (float)x->type.dims[axis]);
    struct mil_value *s = NULL;
    if (gen_chance(g, 50)) {
        return reduce(k, "reduce_mean", any_square(g, x), axis);
    }
    s = gen_chance(g, 50) ? reduce(k, "reduce_sum_square", x, axis)
                          : reduce(k, "reduce_sum", any_square(g, x), axis);
    return gen_chance(g, 50) ? two(k, "mul", s, c) : two(k, "mul", c, s);
}

static struct mil_value *any_root(struct gen *g, struct mil_value *mean,
                                  struct mil_value *eps)
{
    struct pkg *k = &g->k;
    bool inside = eps == NULL && gen_chance(g, 50);
    if (!inside) {
        eps = eps != NULL ? eps : num(k, gen_float(g, 0.01f, 0.1f));
        mean = gen_chance(g, 50) ? two(k, "add", mean, eps)
                                 : two(k, "add", eps, mean);
    }
    return mil_op(k->p, k->f, "rsqrt", "rsqrt", "x", mean, "epsilon",
                  num(k, inside ? gen_float(g, 0.01f, 0.1f) : 0), NULL);
}

struct mil_value *gen_norm(struct gen *g, struct mil_value *x, int axis)
{
    struct pkg *k = &g->k;
    struct mil_value *u = x;
    struct mil_value *eps = NULL;
    int form = gen_pick(g, 3);
    if (form == 1) {
        u = two(k, "mul", x, num(k, gen_float(g, 0.1f, 0.9f)));
    } else if (form == 2) {
        struct mil_value *top = reduce(k, "reduce_max", one(k, "abs", x), axis);
        top = two(k, "maximum", top, num(k, 0.01f));
        u = two(k, "real_div", x, top);
        if (gen_chance(g, 70)) {
            eps = two(k, "real_div", num(k, gen_float(g, 0.1f, 0.3f)), top);
            eps = two(k, "mul", eps, eps);
        }
    }
    struct mil_value *s = any_root(g, any_mean(g, u, axis), eps);
    x = gen_chance(g, 50) ? two(k, "mul", u, s) : two(k, "mul", s, u);
    for (int i = gen_pick(g, 3); i > 0; i--) {
        struct mil_value *w =
            gen_constant(g, (int32_t)x->type.dims[1], (int32_t)x->type.dims[3]);
        x = gen_chance(g, 50) ? two(k, "mul", x, w) : two(k, "mul", w, x);
    }
    return x;
}

/* --- rope --- */

static struct mil_value *any_times(struct gen *g, struct mil_value *a,
                                   struct mil_value *b)
{
    return gen_chance(g, 50) ? two(&g->k, "mul", a, b)
                             : two(&g->k, "mul", b, a);
}

/* Of [1, heads, T, dim]; at times a slip that makes it something else. */
struct mil_value *gen_rope(struct gen *g, struct mil_value *x)
{
    struct pkg *k = &g->k;
    int32_t n = (int32_t)x->type.dims[1];
    int32_t dim = (int32_t)x->type.dims[3];
    int32_t half = dim / 2 - (gen_chance(g, 30) && dim > 4 ? 2 : 0);
    int slip = gen_chance(g, 20) ? gen_pick(g, 4) : -1;
    struct mil_value *out[3];
    struct mil_value *p[2];
    size_t parts = 2;
    if (2 * half == dim && gen_chance(g, 50)) {
        mil_split(k->p, k->f, "split", x, 2, gen_chance(g, 50) ? 3 : -1, p);
    } else {
        p[0] = slice(k, x, 3, 0, half);
        p[1] = slice(k, x, 3, half, 2 * half);
    }
    struct mil_value *c =
        slip == 3 ? gen_input(g, n, 1) : gen_input(g, 1, half);
    struct mil_value *s = gen_input(g, 1, half);
    /* one at a time: C has no order of arguments, and a seed is one program */
    struct mil_value *f[4] = {p[0], p[1], p[slip == 1 ? 0 : 1],
                              p[slip == 1 ? 1 : 0]};
    for (int i = 0; i < 4; i++) {
        f[i] = any_times(g, f[i], i % 2 == 0 ? c : s);
    }
    out[0] = two(k, slip == 0 ? "add" : "sub", f[0], f[1]);
    out[1] = two(k, "add", f[2], f[3]);
    if (slip == 2) {
        struct mil_value *swap = out[0];
        out[0] = out[1];
        out[1] = swap;
    }
    if (2 * half < dim) {
        out[parts++] = slice(k, x, 3, 2 * half, dim);
    }
    return mil_concat(k->p, k->f, "rope", parts, out,
                      gen_chance(g, 50) ? 3 : -1);
}

/* --- products --- */

static int gen_weights(struct gen *g)
{
    int form = g->real ? ROW_OPS_FP16 : gen_pick(g, ROW_OPS_LUT6 + 1);
    g->integers += row_ops_integer(form);
    return form;
}

struct mil_value *gen_conv(struct gen *g, struct mil_value *x, int32_t rows)
{
    int form = gen_weights(g);
    bool bias = gen_chance(g, 50);
    return conv(&g->k, x, rows, form, bias, (uint32_t)gen_next(g));
}

struct mil_value *gen_dense(struct gen *g, struct mil_value *x, int32_t rows)
{
    struct pkg *k = &g->k;
    int32_t cols = (int32_t)x->type.dims[1];
    const int32_t flat[3] = {1, -1, cols};
    int form = gen_weights(g);
    x = reshape(k, transpose(k, x, 0, 3, 2, 1), 3, flat);
    x = dense(k, x, rows, form, (uint32_t)gen_next(g));
    return transpose(k, reshape4(k, x, 1, -1, rows), 0, 3, 2, 1);
}

/* Of [1, a, T, b], any of its axes left out. */
struct mil_value *gen_constant(struct gen *g, int32_t a, int32_t b)
{
    bool whole = gen_chance(g, 40);
    int32_t ca = whole || gen_chance(g, 40) ? a : 1;
    int32_t cb = whole || gen_chance(g, 40) ? b : 1;
    if (ca == 1 && cb == 1 && gen_chance(g, 70)) {
        return num(&g->k, gen_float(g, 0.5f, 1.5f));
    }
    return noise4(&g->k, ca, 1, cb, 1, 0.5f, (uint32_t)gen_next(g));
}

/* --- attention --- */

struct shape {
    int32_t heads, kv, dim, vdim;
};

static struct mil_value *any_mask(struct gen *g)
{
    struct mil_value **m = gen_chance(g, 50) ? &g->mask : &g->window;
    if (*m == NULL) {
        *m = in4(&g->k, m == &g->mask ? "mask" : "window", 1, g->t,
                 g->positions);
    }
    return *m;
}

/* q, k or v of [1, C, T, 1]: numbers that no score makes large. */
static struct mil_value *project(struct gen *g, struct mil_value *x,
                                 int32_t heads_n, int32_t dim, bool turn)
{
    struct mil_value *h =
        heads(&g->k, gen_conv(g, x, heads_n * dim), heads_n, dim);
    if (turn && gen_chance(g, 40)) {
        h = gen_norm(g, h, 3);
    }
    return turn && gen_chance(g, 60) ? gen_rope(g, h) : h;
}

static struct mil_value *stored(struct gen *g, struct mil_value *x,
                                struct mil_value **blend)
{
    char name[16];
    (void)snprintf(name, sizeof(name), "state%d", g->n_states++);
    return masked_write(&g->k, name, g->write, x, blend);
}

/* The joined form, or pieces of the heads joined after. */
static struct mil_value *any_attention(struct gen *g, const struct shape *s,
                                       struct mil_value *q,
                                       struct mil_value *keys,
                                       struct mil_value *values)
{
    struct pkg *k = &g->k;
    struct mil_value *mask = any_mask(g);
    float scale = gen_float(g, 0.1f, 0.4f);
    float cap = gen_chance(g, 25) ? gen_float(g, 1, 6) : 0;
    int32_t group = s->heads / s->kv;
    struct mil_value *o[8];
    if (s->kv == 1 || gen_chance(g, 70)) {
        return attention_capped(k, q, keys, values, mask, scale, cap);
    }
    for (int32_t h = 0; h < s->kv; h++) {
        o[h] = attention_capped(k, slice(k, q, 1, h * group, (h + 1) * group),
                                slice(k, keys, 1, h, h + 1),
                                slice(k, values, 1, h, h + 1), mask, scale,
                                cap);
    }
    return mil_concat(k->p, k->f, "heads", (size_t)s->kv, o, 1);
}

struct mil_value *gen_attention(struct gen *g, struct mil_value *x)
{
    static const int32_t dims[] = {8, 12, 16, 20, 32};
    int32_t kv = 1 << gen_pick(g, 3);
    int32_t dim = dims[gen_pick(g, 5)];
    int32_t vdim = dims[gen_pick(g, 5)];
    const struct shape s = {kv * (1 + gen_pick(g, 3)), kv, dim, vdim};
    struct mil_value *blend[2];
    if (g->write == NULL) {
        g->write = in4(&g->k, "write", 1, g->positions, g->t);
    }
    x = one(&g->k, "tanh", x);
    struct mil_value *q = project(g, x, s.heads, s.dim, true);
    struct mil_value *keys = stored(g, project(g, x, kv, s.dim, true), blend);
    struct mil_value *values =
        stored(g, project(g, x, kv, s.vdim, false), blend + 1);
    if (gen_chance(g, 30)) {
        keys = blend[0];
        values = blend[1];
    }
    x = any_attention(g, &s, q, keys, values);
    return unheads(&g->k, x, s.heads, s.vdim);
}

/* --- what mixes rows --- */

struct mil_value *gen_mix(struct gen *g, struct mil_value *x, int32_t a,
                          int32_t b)
{
    struct pkg *k = &g->k;
    static const int32_t t = 2;
    struct mil_value *no = mil_bool(k->p, k->f, false);
    switch (gen_pick(g, 6)) {
    case 0:
        return softmax(k, x, gen_chance(g, 50) ? 2 : -2);
    case 1:
        return mil_op(k->p, k->f, "cumsum", "cumsum", "x", one(k, "tanh", x),
                      "axis", mil_i32(k->p, k->f, 2), "exclusive", no,
                      "reverse", no, NULL);
    case 2:
        return mil_op(k->p, k->f, "reverse", "reverse", "x", x, "axes",
                      mil_i32s(k->p, k->f, 1, &t), NULL);
    case 3:
        return two(k, "sub", x, reduce(k, "reduce_max", x, 2));
    case 4: /* rows times rows */
        x = one(k, "tanh", x);
        return matmul(k, softmax(k, matmul(k, x, x, false, true), -1), x, false,
                      false);
    default: /* T joined with an axis in front of it, and apart otherwise */
        if (a % 2 != 0) {
            return softmax(k, x, 2);
        }
        x = one(k, "silu", reshape4(k, x, a / 2, -1, 2 * b));
        return reshape4(k, x, a, -1, b);
    }
}
