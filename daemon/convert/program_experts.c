/* program_experts.c - a mixture of experts in dense form: every expert is
 * computed, and what was not chosen is multiplied by zero.
 *
 *   scores [1, E, T, 1] ── how many are better ── rank < n_top ── gates
 *   h ── gate, up (1x1 conv: all experts' rows) ── act(gate) * (up * gates)
 *     ── down (1x1 conv, a group an expert) ── [1, E, d_model, T] ── sum
 *
 * The choice is exact: expert e's rank is the number of experts whose score is
 * higher, or equal with a lower index, counted in numbers that fp16 holds. A
 * softmax over all would be another model (facts of the families). Scores that
 * were not chosen leave the softmax as SCORE_OUT, whose exp is zero in fp16 and
 * fp32, so that the gates need no division. They meet `up` alone, before the
 * product that fp16 may not hold where nobody chose and nothing was measured.
 *
 * The CPU backend takes the products and the sum for one operation, which reads
 * the rows of experts with a gate that is not zero (rows/row_experts.c).
 */
#include "convert/program_impl.h"

#define SCORE_OUT (-30000.0f)

static const char *const names[] = {
    "expert_gate", "expert_up", "expert_down"};

/* [1, E, 1, E]: 1 where the second expert has the lower index. */
static struct mil_value *lower_index(struct ctx *c)
{
    uint32_t n = arch_classes(c->l);
    struct mil_type type = {
        .dtype = MIL_FP16, .rank = 4, .dims = {1, n, 1, n}
    };
    uint16_t *data = calloc((size_t)n * n, sizeof(*data));
    must(data != NULL);
    for (size_t e = 0; e < n; e++) {
        for (size_t other = 0; other < e; other++) {
            data[e * n + other] = half_from_float(1.0f);
        }
    }
    struct mil_value *v = mil_const_op(c->p, c->f, "lower_index",
                                       mil_imm(c->p, &type, data));
    free(data);
    return v;
}

/* a where cond is true, else b; one of them has the result's shape: some infer
 * it from them alone. */
static struct mil_value *pick(struct ctx *c, const char *what,
                              struct mil_value *cond, struct mil_value *a,
                              struct mil_value *b)
{
    return mil_op(c->p, c->f, "select", draw_named(c, what), "cond", cond, "a",
                  a, "b", b, NULL);
}

/* [1, a, T, b] with the axes of a and b in each other's place. */
static struct mil_value *turn(struct ctx *c, const char *name,
                              struct mil_value *x)
{
    static const int32_t perm[4] = {0, 3, 2, 1};
    return mil_op(c->p, c->f, "transpose", name, "x", x, "perm",
                  mil_i32s(c->p, c->f, 4, perm), NULL);
}

/* Which experts are among the n_top best: bool [1, E, T, 1]. A cast from bool
 * would split the program; picking among numbers does not. */
static struct mil_value *choose(struct ctx *c, struct mil_value *keys)
{
    struct mil_value *others = turn(c, draw_named(c, "router_others"), keys);
    struct mil_value *first =
        draw_binary(c, "mul", "router_zeros", others, draw_f16(c, 0));
    first = draw_binary(c, "add", "router_first", lower_index(c), first);
    struct mil_value *same =
        draw_binary(c, "greater_equal", "router_same", others, keys);
    same = pick(c, "router_tied", same, first, draw_f16(c, 0));
    struct mil_value *more =
        draw_binary(c, "greater", "router_more", others, keys);
    more = pick(c, "router_better", more, draw_f16(c, 1), same);
    struct mil_value *rank =
        draw_reduce(c, "reduce_sum", "router_rank", more, 3);
    return draw_binary(c, "less", "router_chosen", rank,
                       draw_f16(c, (float)c->l->n_top));
}

/* What experts are multiplied by, zero where not chosen: [1, E, T, 1]. */
static struct mil_value *gates(struct ctx *c, struct mil_value *scores)
{
    struct mil_value *g = NULL;
    const struct mil_const *scale = layer_vector(c->w, SLOT_EXPERT_SCALE);
    const char *last = c->l->sparse ? EXPERT_GATES : "router_gates";
    const char *name = scale != NULL ? "router_gates" : last;
    if (c->l->router == ROUTER_SIGMOID_BIAS) {
        struct mil_value *s = draw_unary(c, "sigmoid", "router_p", scores);
        struct mil_value *bias = draw_constant(
            c, "router_bias", layer_vector(c->w, SLOT_ROUTER_BIAS));
        struct mil_value *keys = draw_binary(c, "add", "router_keys", s, bias);
        struct mil_value *chosen = choose(c, keys);
        s = pick(c, "router_kept", chosen, s, draw_f16(c, 0));
        struct mil_value *sum =
            draw_reduce(c, "reduce_sum", "router_sum", s, 1);
        sum = draw_binary(c, "add", "router_sum_min", sum,
                          draw_f16(c, ROUTER_SUM_MIN));
        g = draw_binary(c, "real_div", name, s, sum);
    } else if (c->l->router == ROUTER_NETWORK) {
        struct mil_value *p =
            mil_op(c->p, c->f, "softmax", draw_named(c, "router_p"), "x",
                   scores, "axis", mil_i32(c->p, c->f, 1), NULL);
        struct mil_value *bias = draw_constant(
            c, "router_bias", layer_vector(c->w, SLOT_ROUTER_BIAS));
        struct mil_value *keys = draw_binary(c, "add", "router_keys", p, bias);
        struct mil_value *chosen = choose(c, keys);
        g = pick(c, "router_all", chosen, p, draw_f16(c, 0));
        g = draw_slice(c, name, g, 1, 0, (int32_t)c->l->n_experts);
    } else {
        struct mil_value *chosen = choose(c, scores);
        g = pick(c, "router_kept", chosen, scores, draw_f16(c, SCORE_OUT));
        g = mil_op(c->p, c->f, "softmax", draw_named(c, name), "x", g,
                   "axis", mil_i32(c->p, c->f, 1), NULL);
    }
    if (scale == NULL) {
        return g;
    }
    struct mil_value *by = draw_constant(c, "expert_scale", scale);
    return draw_binary(c, "mul", c->l->sparse ? last : "router_scaled", g, by);
}

/* Matrix `which` of group `g` of experts times x; groups: of the conv. */
static struct mil_value *project(struct ctx *c, enum expert_matrix which,
                                 uint32_t g, struct mil_value *x,
                                 int32_t groups)
{
    char text[TEXT_ROOM];
    static const int32_t ones[] = {1, 1};
    static const int32_t zeros[] = {0, 0, 0, 0};
    expert_constant_name(which, g, text);
    struct mil_value *w = weights_value(c->p, c->f, draw_named(c, text),
                                        &c->w->experts[which][g]);
    struct mil_value *one = mil_i32s(c->p, c->f, 2, ones);
    struct mil_value *pad = mil_i32s(c->p, c->f, 4, zeros);
    struct mil_value *valid = mil_str(c->p, c->f, "valid");
    struct mil_value *n = mil_i32(c->p, c->f, groups);
    const struct mil_const *bias = c->w->expert_bias[which][g];
    struct mil_value *b = NULL;
    if (bias != NULL && which != EXPERT_DOWN) {
        expert_bias_name(which, g, text);
        b = draw_constant(c, text, bias);
    }
    if (b == NULL) {
        return mil_op(c->p, c->f, "conv", draw_named(c, names[which]), "x", x,
                      "weight", w, "strides", one, "pad_type", valid, "pad",
                      pad, "dilations", one, "groups", n, NULL);
    }
    return mil_op(c->p, c->f, "conv", draw_named(c, names[which]), "x", x,
                  "weight", w, "bias", b, "strides", one, "pad_type", valid,
                  "pad", pad, "dilations", one, "groups", n, NULL);
}

/* What the gate makes of a. */
static struct mil_value *gate_side(struct ctx *c, struct mil_value *a)
{
    if (c->l->act != ACT_CLAMPED) {
        return draw_activation(c, "expert_act", a);
    }
    a = draw_binary(c, "minimum", "expert_gate_low", a, draw_f16(c, ACT_LIMIT));
    struct mil_value *s =
        draw_binary(c, "mul", "expert_slope", a, draw_f16(c, ACT_SLOPE));
    s = draw_unary(c, "sigmoid", "expert_sigmoid", s);
    return draw_binary(c, "mul", "expert_act", a, s);
}

/* What the gate is multiplied by: u, or with ACT_CLAMPED its clamped form + 1. */
static struct mil_value *up_side(struct ctx *c, struct mil_value *u)
{
    if (c->l->act != ACT_CLAMPED) {
        return u;
    }
    u = draw_binary(c, "minimum", "expert_up_low", u, draw_f16(c, ACT_LIMIT));
    u = draw_binary(c, "maximum", "expert_up_high", u,
                    draw_f16(c, -ACT_LIMIT));
    return draw_binary(c, "add", "expert_up_one", u, draw_f16(c, 1));
}

/* The biases of what experts give, by their gates: [1, d, T, 1]. */
static struct mil_value *biases(struct ctx *c, uint32_t g, struct mil_value *by)
{
    char text[EXPERT_NAME_MAX];
    expert_bias_name(EXPERT_DOWN, g, text);
    struct mil_value *w =
        draw_constant(c, text, c->w->expert_bias[EXPERT_DOWN][g]);
    return mil_conv1x1(c->p, c->f, draw_named(c, "expert_biases"), by, w, NULL);
}

/* Experts [first, first + n) of h, by their gates, summed: [1, d, T, 1]. */
static struct mil_value *group(struct ctx *c, uint32_t g, uint32_t first,
                               uint32_t n, struct mil_value *h,
                               struct mil_value *by)
{
    int32_t ne = (int32_t)n;
    int32_t wide = (int32_t)c->l->d_expert;
    int32_t d = (int32_t)c->m->d->d_model;
    struct mil_value *a = project(c, EXPERT_GATE, g, h, 1);
    struct mil_value *u = project(c, EXPERT_UP, g, h, 1);
    u = up_side(c, u);
    u = draw_reshape(c, "expert_each", u, ne, wide, -1);
    if (n < c->l->n_experts) {
        by = draw_slice(c, "expert_gates", by, 1, (int32_t)first,
                        (int32_t)(first + n));
    }
    struct mil_value *added =
        c->w->expert_bias[EXPERT_DOWN][g] != NULL ? biases(c, g, by) : NULL;
    by = draw_reshape(c, "expert_by", by, ne, 1, -1);
    u = draw_binary(c, "mul", "expert_up_by", u, by);
    u = draw_reshape(c, "expert_all", u, ne * wide, -1, 1);
    a = gate_side(c, a);
    a = draw_binary(c, "mul", "expert_act_up", a, u);
    a = project(c, EXPERT_DOWN, g, a, ne);
    a = draw_reshape(c, "expert_outs", a, ne, d, -1);
    a = draw_reduce(c, "reduce_sum", "experts", a, 1);
    a = draw_reshape(c, "experts_sum", a, d, -1, 1);
    return added != NULL ? draw_binary(c, "add", "experts_biased", a, added)
                         : a;
}

static struct mil_value *mix(struct ctx *c, struct mil_value *h,
                             struct mil_value *by)
{
    uint32_t each = layer_expert_group(c->l, c->m->d->d_model);
    struct mil_value *sum = NULL;
    for (uint32_t g = 0; g * each < c->l->n_experts; g++) {
        uint32_t left = c->l->n_experts - g * each;
        struct mil_value *y =
            group(c, g, g * each, left < each ? left : each, h, by);
        sum = sum == NULL ? y : draw_binary(c, "add", "experts_all", sum, y);
    }
    return sum;
}

static struct mil_value *vector_of(struct ctx *c, size_t i)
{
    static const char *const text[] = {"router_down_bias", "router_before",
                                       "router_net_norm_weight",
                                       "router_1_bias", "router_2_bias"};
    return draw_constant(c, text[i], c->w->extra[EXTRA_ROUTER + i]);
}

static struct mil_value *inner(struct ctx *c, const char *what,
                               const char *biased, const char *act,
                               struct mil_value *x, enum arch_slot slot,
                               size_t bias)
{
    x = draw_project(c, what, x, slot, SLOT_COUNT);
    x = draw_binary(c, "add", biased, x, vector_of(c, bias));
    return mil_op(c->p, c->f, "gelu", draw_named(c, act), "x", x, "mode",
                  mil_str(c->p, c->f, "EXACT"), NULL);
}

/* What an earlier program's last router had: [1, R, T, 1]. */
static struct mil_value *take_router(struct ctx *c)
{
    char name[PROGRAM_PORT_MAX];
    const int64_t dims[4] = {1, 1, c->t, c->l->d_router};
    program_takes_name(ctx_layer(c) - 1, PORT_ROUTER, name);
    struct mil_value *x = draw_input(c, name, 4, dims);
    return turn(c, draw_named(c, "router_taken"), x);
}

struct mil_value *draw_give_router(struct ctx *c)
{
    char name[PROGRAM_PORT_MAX];
    program_gives_name(c->first, c->first + c->layer, PORT_ROUTER, name);
    return turn(c, name, c->router);
}

/* The scores of ROUTER_NETWORK. */
static struct mil_value *network(struct ctx *c, struct mil_value *h)
{
    struct mil_value *r =
        draw_project(c, "router_down", h, SLOT_ROUTER_DOWN, SLOT_COUNT);
    r = draw_binary(c, "add", "router_own", r, vector_of(c, 0));
    if (ctx_layer(c) > 0) {
        c->router = c->layer > 0 ? c->router : take_router(c);
        must(c->router != NULL); /* every layer has one */
        struct mil_value *before =
            draw_binary(c, "mul", "router_scaled", c->router, vector_of(c, 1));
        r = draw_binary(c, "add", "router_state", r, before);
    }
    c->router = r;
    r = draw_norm(c, "router_net_norm", r, 1, c->l->d_router, 1,
                  c->w->extra[EXTRA_ROUTER + 2]);
    r = inner(c, "router_1", "router_1_biased", "router_1_act", r,
              SLOT_ROUTER_1, 3);
    r = inner(c, "router_2", "router_2_biased", "router_2_act", r,
              SLOT_ROUTER_2, 4);
    return draw_project(c, "router", r, SLOT_ROUTER, SLOT_COUNT);
}

/* What experts are multiplied by. x: the stream; *h: what the block reads, and
 * then what the experts do, which has the name `in` in a branch of its own. */
static struct mil_value *route(struct ctx *c, struct mil_value *x,
                               const char *in, struct mil_value **h)
{
    const struct emit *m = c->m;
    struct mil_value *r = *h;
    if (c->l->expert_branch) { /* 1 / sqrt(d) stands in the scale */
        r = draw_norm(c, "router_norm", x, 1, m->d->d_model, m->alpha,
                      layer_vector(c->w, SLOT_ROUTER_SCALE));
        *h = draw_norm(c, in, x, 1, m->d->d_model, m->alpha,
                       layer_vector(c->w, SLOT_EXPERT_NORM));
    }
    struct mil_value *scores =
        c->l->router == ROUTER_NETWORK
            ? network(c, r)
            : draw_project(c, "router", r, SLOT_ROUTER, SLOT_ROUTER_ADD);
    return gates(c, scores);
}

struct mil_value *draw_experts(struct ctx *c, struct mil_value *x,
                               struct mil_value *h)
{
    struct mil_value *by = route(c, x, "expert_norm", &h);
    return mix(c, h, by);
}

void draw_router(struct ctx *c, struct mil_value *x)
{
    struct mil_value *h = NULL;
    if (!c->l->expert_branch) {
        h = draw_enter(c, EXPERT_IN, x, SLOT_FFN_NORM);
    }
    if (h == x) { /* an output of its own */
        h = draw_binary(c, "mul", EXPERT_IN, x, draw_f16(c, 1));
    }
    c->expert_gates = route(c, x, EXPERT_IN, &h);
    c->expert_in = h;
}

struct mil_value *draw_branches(struct ctx *c, struct mil_value *experts,
                                struct mil_value *dense)
{
    uint32_t d = c->m->d->d_model;
    dense = draw_norm(c, "post_dense_norm", dense, 1, d, 1,
                      layer_vector(c->w, SLOT_POST_DENSE));
    experts = draw_norm(c, "post_experts_norm", experts, 1, d, 1,
                        layer_vector(c->w, SLOT_POST_EXPERTS));
    return draw_binary(c, "add", "branches", dense, experts);
}

/* --- constants --- */

void expert_constant_name(enum expert_matrix which, uint32_t group,
                          char out[EXPERT_NAME_MAX])
{
    (void)snprintf(out, EXPERT_NAME_MAX, "%s_%u_weight", names[which], group);
}

void expert_bias_name(enum expert_matrix which, uint32_t group,
                      char out[EXPERT_NAME_MAX])
{
    (void)snprintf(out, EXPERT_NAME_MAX, "%s_%u_bias", names[which], group);
}

/* Experts [first, first + n) of a table of biases. */
static int put_bias(const struct emit *m, struct mil_writer *w, uint32_t l,
                    enum expert_matrix which, uint32_t first, uint32_t n,
                    const struct mil_const **ret, struct err *e)
{
    static const enum arch_slot slots[] = {
        [EXPERT_GATE] = SLOT_EXPERT_GATE_BIAS,
        [EXPERT_UP] = SLOT_EXPERT_UP_BIAS,
        [EXPERT_DOWN] = SLOT_EXPERT_DOWN_BIAS};
    const struct part *p = arch_part(m->d, l, slots[which]);
    return p->t == NULL ? 0
                        : weights_table(w, p, first, n, which == EXPERT_DOWN,
                                        ret, e);
}

int experts_put(const struct emit *m, struct mil_writer *w, uint32_t l,
                struct layer_weights *r, struct err *e)
{
    const struct layer *y = &m->d->layers[l];
    uint32_t experts = y->sparse ? 0 : y->n_experts;
    uint32_t each = experts > 0 ? layer_expert_group(y, m->d->d_model) : 1;
    for (uint32_t g = 0; g * each < experts; g++) {
        uint32_t n = y->n_experts - g * each;
        n = n < each ? n : each;
        for (unsigned k = 0; k < EXPERT_MATRICES; k++) {
            const struct part *p = arch_part(m->d, l, expert_slot(k));
            uint64_t rows = p->rows / y->n_experts;
            RETERR(weights_matrix(&m->weights, w, p, g * each * rows, n * rows,
                                  NULL, &r->experts[k][g], e));
            RETERR(put_bias(m, w, l, (enum expert_matrix)k, g * each, n,
                            &r->expert_bias[k][g], e));
        }
    }
    return 0;
}
