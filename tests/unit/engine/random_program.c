/* random_program.c - see random_program.h. */
#include "random_program.h"

#include <math.h>

#include "engine/cpu/rows/row.h"
#include "random_gen.h"
#include "row_twin.h"

/* --- numbers --- */

uint64_t gen_next(struct gen *g)
{
    uint64_t z = (g->rng += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int gen_pick(struct gen *g, int n)
{
    return (int)(gen_next(g) % (uint64_t)n);
}

bool gen_chance(struct gen *g, int percent)
{
    return gen_pick(g, 100) < percent;
}

float gen_float(struct gen *g, float lo, float hi)
{
    float f = (float)(gen_next(g) >> 40) / 16777216.0f;
    return half_round(lo + (hi - lo) * f);
}

/* --- values --- */

struct mil_value *gen_keep(struct gen *g, struct mil_value *v, int32_t a,
                           int32_t b)
{
    int at = g->n < GEN_VALUES ? g->n++ : gen_pick(g, GEN_VALUES);
    g->pool[at] = (struct gen_value){v, a, b, false};
    return v;
}

struct mil_value *gen_input(struct gen *g, int32_t a, int32_t b)
{
    char name[16];
    (void)snprintf(name, sizeof(name), "in%d", g->n_inputs++);
    return in4(&g->k, name, a, g->t, b);
}

/* A recent value more often than an old one; flat: [1, C, T, 1]. */
static const struct gen_value *any(struct gen *g, bool flat)
{
    for (int i = 0; i < 40; i++) {
        int back = gen_pick(g, 1 + gen_pick(g, g->n));
        const struct gen_value *v = &g->pool[g->n - 1 - back];
        if (!flat || v->b == 1) {
            return v;
        }
    }
    return &g->pool[0]; /* an input [1, C, T, 1] */
}

/* A value of that shape; x when there is no other. */
static struct mil_value *like(struct gen *g, const struct gen_value *x)
{
    int from = gen_pick(g, g->n);
    for (int i = 0; i < g->n; i++) {
        const struct gen_value *v = &g->pool[(from + i) % g->n];
        if (v->a == x->a && v->b == x->b) {
            return v->v;
        }
    }
    return x->v;
}

/* --- rounds --- */

static const char *any_function(struct gen *g)
{
    static const char *const names[] = {"relu", "tanh", "sigmoid",
                                        "silu", "gelu", "abs"};
    return names[gen_pick(g, (int)countof(names))];
}

static void elementwise(struct gen *g, const struct gen_value *x)
{
    static const char *const names[] = {"add",     "sub",     "mul",
                                        "maximum", "minimum", "real_div"};
    struct pkg *k = &g->k;
    int op = gen_pick(g, 6);
    struct mil_value *y =
        gen_chance(g, 50) && op != 5 ? like(g, x) : gen_constant(g, x->a, x->b);
    struct mil_value *v = x->v;
    if (op == 2) {
        v = one(k, "tanh", v); /* products stay small */
    }
    if (op != 5 && gen_chance(g, 50)) {
        struct mil_value *swap = v;
        v = y;
        y = swap;
    }
    (void)gen_keep(g, two(k, names[op], v, y), x->a, x->b);
}

static void glu(struct gen *g, const struct gen_value *x)
{
    struct pkg *k = &g->k;
    struct mil_value *up = one(k, "tanh", like(g, x));
    struct mil_value *f = one(k, any_function(g), x->v);
    if (gen_chance(g, 30)) {
        f = two(k, "mul", x->v, one(k, "sigmoid", x->v));
    }
    (void)gen_keep(
        g, gen_chance(g, 50) ? two(k, "mul", f, up) : two(k, "mul", up, f),
        x->a, x->b);
}

/* Pieces of an axis, or two values joined along it. */
static void cut_or_join(struct gen *g, const struct gen_value *x)
{
    struct pkg *k = &g->k;
    bool last = x->b > 1 && gen_chance(g, 50);
    int32_t n = last ? x->b : x->a;
    int axis = last ? 3 : 1;
    const struct gen_value v = *x; /* keeping others may move the pool */
    int how = gen_pick(g, 3);
    if (how == 0 && n % 2 == 0) {
        struct mil_value *p[2];
        mil_split(k->p, k->f, "split", v.v, 2, axis, p);
        for (int i = 0; i < 2; i++) {
            (void)gen_keep(g, p[i], last ? v.a : n / 2, last ? n / 2 : v.b);
        }
    } else if (how == 1 && n > 2) {
        int32_t from = gen_pick(g, n - 1);
        int32_t to = from + 1 + gen_pick(g, n - from);
        (void)gen_keep(g, slice(k, v.v, axis, from, to), last ? v.a : to - from,
                       last ? to - from : v.b);
    } else if (n < 128) {
        struct mil_value *p[2] = {v.v, like(g, x)};
        (void)gen_keep(g, mil_concat(k->p, k->f, "concat", 2, p, axis),
                       last ? v.a : 2 * n, last ? 2 * n : v.b);
    }
}

/* [1, a, T, b]: heads apart or joined, axes turned. */
static void turn(struct gen *g, const struct gen_value *x)
{
    static const int32_t counts[] = {1, 2, 3, 4, 8};
    struct pkg *k = &g->k;
    int32_t n = counts[gen_pick(g, 5)];
    if (gen_chance(g, 30)) {
        (void)gen_keep(g, transpose(k, x->v, 0, 3, 2, 1), x->b, x->a);
    } else if (x->b > 1) {
        (void)gen_keep(g, unheads(k, x->v, x->a, x->b), x->a * x->b, 1);
    } else if (x->a % n == 0) {
        (void)gen_keep(g, heads(k, x->v, n, x->a / n), n, x->a / n);
    }
}

/* Through a condition: of an input, whose numbers both sides have alike. */
static void choose(struct gen *g)
{
    struct pkg *k = &g->k;
    const struct gen_value x = g->pool[0];
    struct mil_value *cond =
        two(k, "greater", x.v, num(k, gen_float(g, -0.5f, 0.5f)));
    struct mil_value *a = like(g, &x);
    struct mil_value *b = like(g, &x);
    (void)gen_keep(g,
                   mil_op(k->p, k->f, "select", "select", "cond", cond, "a", a,
                          "b", b, NULL),
                   x.a, x.b);
}

static void round_of(struct gen *g)
{
    static const int32_t widths[] = {8, 16, 24, 40, 64, 96};
    struct pkg *k = &g->k;
    int what = gen_pick(g, 22);
    int32_t rows = widths[gen_pick(g, 6)];
    const struct gen_value x = *any(g, what < 6);
    if (what < 3) {
        (void)gen_keep(g, gen_conv(g, x.v, rows), rows, 1);
    } else if (what == 3) {
        (void)gen_keep(g, gen_dense(g, x.v, rows), rows, 1);
    } else if (what < 6) {
        if (g->n_states < 4 && x.a >= 8) {
            struct mil_value *v = gen_attention(g, x.v);
            (void)gen_keep(g, v, (int32_t)v->type.dims[1], 1);
        }
    } else if (what < 9) {
        int axis = x.b > 1 && gen_chance(g, 80) ? 3 : 1;
        if ((axis == 3 ? x.b : x.a) >= 4) { /* of one: a sign, and its error */
            (void)gen_keep(g, gen_norm(g, x.v, axis), x.a, x.b);
        }
    } else if (what == 9) {
        if (x.b >= 4 && x.b % 2 == 0) {
            (void)gen_keep(g, gen_rope(g, x.v), x.a, x.b);
        }
    } else if (what < 13) {
        elementwise(g, &x);
    } else if (what == 13) {
        (void)gen_keep(g, one(k, any_function(g), x.v), x.a, x.b);
    } else if (what == 14) {
        glu(g, &x);
    } else if (what < 17) {
        cut_or_join(g, &x);
    } else if (what == 17) {
        turn(g, &x);
    } else if (what == 18) {
        choose(g);
    } else if (what == 19) {
        (void)gen_keep(g, gen_shape(g, x.v, x.a, x.b), x.a, x.b);
    } else if (what == 20) {
        if (x.b == 1 && x.a > 8 && x.a <= 24 && gen_chance(g, 50)) {
            (void)gen_keep(g, gen_many(g, x.v, x.a), x.a, 1);
        }
    } else {
        (void)gen_keep(g, softmax(k, x.v, x.b > 1 ? 3 : 1), x.a, x.b);
    }
}

static void make_program(struct gen *g)
{
    static const int32_t widths[] = {16, 32, 48, 64};
    static const int64_t positions[] = {24, 64, 80, 130};
    pkg_begin(&g->k);
    g->t = gen_chance(g, 15) ? 1 : -1;
    g->real = gen_chance(g, 40);
    g->positions = positions[gen_pick(g, 4)];
    g->window_size = 1 + (uint32_t)gen_pick(g, 20);
    for (int i = 1 + gen_pick(g, 2); i > 0; i--) {
        int32_t n = widths[gen_pick(g, 4)];
        (void)gen_keep(g, gen_input(g, n, 1), n, 1);
        g->pool[g->n - 1].input = true;
    }
    int rounds = 2 + gen_pick(g, 12);
    int mix = gen_chance(g, 20) ? gen_pick(g, rounds) : -1;
    for (int i = 0; i < rounds; i++) {
        if (i == mix) {
            const struct gen_value x = *any(g, false);
            struct mil_value *v = gen_chance(g, 50)
                                      ? gen_mix(g, x.v, x.a, x.b)
                                      : gen_length(g, x.v, x.a, x.b);
            g->mixed = gen_keep(g, v, x.a, x.b);
        }
        round_of(g);
    }
    int n = 0;
    for (int i = g->n - 1; i >= 0 && n < 6; i--) {
        struct mil_value *v = g->pool[i].v;
        /* of one or two numbers their size says little about errors */
        if (!g->pool[i].input && v != g->mixed &&
            g->pool[i].a * g->pool[i].b >= 8 && (n == 0 || gen_chance(g, 40))) {
            output(&g->k, v);
            n++;
        }
    }
    if (g->mixed != NULL) {
        output(&g->k, g->mixed);
    } else if (n == 0) {
        output(&g->k, one(&g->k, "relu", g->pool[0].v));
    }
    pkg_finish(&g->k);
}

/* --- runs --- */

static bool run_rows(struct gen *g, struct twin *t)
{
    uint32_t most =
        g->n_states > 0 && gen_chance(g, 15) ? (uint32_t)g->positions : 16;
    uint32_t total[TWIN_SEQS];
    uint8_t which[2 * TWIN_ROWS];
    int chunk = g->t < 0 ? 8 : 1;
    for (int i = 0; i < TWIN_SEQS; i++) {
        total[i] = 1 + (uint32_t)gen_pick(g, (int)most);
        while (t->seq[i].n_ref < total[i]) {
            uint32_t n = 1 + (uint32_t)gen_pick(g, chunk);
            n = n > total[i] - t->seq[i].n_ref ? total[i] - t->seq[i].n_ref : n;
            if (!twin_reference(t, i, n)) {
                return false;
            }
        }
    }
    while (t->seq[0].n_rows < total[0]) {
        uint32_t n = 1 + (uint32_t)gen_pick(g, chunk);
        n = n > total[0] - t->seq[0].n_rows ? total[0] - t->seq[0].n_rows : n;
        if (!twin_predict(t, 0, n)) {
            return false;
        }
    }
    uint32_t left[TWIN_SEQS] = {0, total[1], total[2]};
    while (left[1] + left[2] > 0) {
        uint32_t n = 0;
        uint32_t most_now = 1 + (uint32_t)gen_pick(g, 24);
        while (n < most_now && left[1] + left[2] > 0) {
            int s = left[2] == 0 || (left[1] > 0 && gen_chance(g, 50)) ? 1 : 2;
            which[n++] = (uint8_t)s;
            left[s]--;
        }
        if (!twin_rows(t, n, which)) {
            return false;
        }
    }
    return true;
}

static bool run_whole(struct gen *g, struct twin *t)
{
    uint32_t at[2] = {0, 0};
    bool many = g->n_states == 0 && gen_chance(g, 10); /* shapes */
    for (int i = many ? 100 : 5; i > 0; i--) {
        int s = gen_pick(g, 2);
        uint32_t n = g->t < 0 ? 1 + (uint32_t)gen_pick(g, many ? 64 : 4) : 1;
        bool room = g->n_states == 0 || at[s] + n <= (uint32_t)g->positions;
        if (room && !twin_whole(t, s, n)) {
            return false;
        }
        at[s] += n;
    }
    return true;
}

static void count_ops(const struct row_program *p, struct random_result *r)
{
    for (int i = 0; p != NULL && i < p->n_ops; i++) {
        enum row_kind kind = p->ops[i].kind;
        r->ops += kind != ROW_DEAD && kind != ROW_VIEW;
        r->plain += kind == ROW_STEP;
        r->attends += kind == ROW_ATTEND;
        r->norms += kind == ROW_NORM;
        r->ropes += kind == ROW_ROPE;
        r->linears += kind == ROW_LINEAR;
    }
}

#define SHAKY 4 /* rounding in every operation beside that of the inputs */

/* Numbers that nearly cancel, and then a norm: inputs that differ by a unit in
 * the last place would give results that differ as much as t's do. */
static bool is_shaky(struct gen *g, const struct twin *t)
{
    struct twin u = {
        .seed = t->seed, .window = t->window, .bound = INFINITY, .nudged = true};
    bool ok = isfinite(t->worst) && t->worst > (double)t->bound &&
              twin_open(&u, g->k.path, NULL);
    for (int s = 0; ok && s < TWIN_SEQS; s++) {
        for (int i = 0; ok && i < 20; i++) {
            ok = twin_whole(&u, s, 1);
        }
    }
    twin_close(&u);
    return ok && SHAKY * u.worst >= t->worst;
}

bool random_run(uint64_t seed, unsigned threads, struct random_result *ret)
{
    struct gen g = {.rng = seed * 0x2545f4914f6cdd1du + 1};
    struct cpu_conf cpu = {0};
    const struct backend_conf conf = {.threads = threads, .cpu = &cpu};
    if (gen_chance(&g, 20)) { /* any passes may be left out */
        cpu.after = cpu_pass((size_t)gen_pick(&g, 10));
    }
    *ret = (struct random_result){0};
    make_program(&g);
    struct twin t = {.seed = (uint32_t)seed,
                     .window = g.window_size,
                     .bound = 5e-6f + (g.integers > 0 ? 2e-3f : 0) +
                              (g.n_states > 0 ? 2e-3f : 0)};
    ret->bound = (double)t.bound;
    ret->mixes = g.mixed != NULL && g.t < 0;
    bool ok = twin_open(&t, g.k.path, &conf);
    if (ok) {
        ret->rows = t.rows->rows != NULL;
        ret->left_out = cpu.after != NULL;
        count_ops(ret->left_out ? NULL : t.rows->rows, ret);
        ok = ret->rows ? run_rows(&g, &t) : run_whole(&g, &t);
        if (ok && ret->rows && ret->mixes) {
            ok = false;
            (void)snprintf(t.why, sizeof(t.why), "rows of what mixes rows");
        }
        if (!ret->rows) {
            (void)snprintf(ret->why, sizeof(ret->why), "%s",
                           t.rows->why_not_rows);
        }
    }
    ret->shaky = !ok && is_shaky(&g, &t);
    ok = ok || ret->shaky;
    ret->worst = ret->shaky ? 0 : t.worst;
    ret->called_off = t.called_off;
    if (!ok) {
        (void)snprintf(ret->why, sizeof(ret->why), "seed %llu: %s",
                       (unsigned long long)seed, t.why);
    }
    twin_close(&t);
    pkg_end(&g.k);
    return ok;
}
