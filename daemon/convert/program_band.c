/* program_band.c - attention of an encoder: queries in blocks, each over the
 * keys of its own block and of both neighbours.
 *
 *   q [1, n, T, d] ── [n, T / B, B, d] ─┐
 *   k ── B rows of zeros on each side ── before, own, after ── [1, T / B, 3 B, d]
 *     ── scores [n, T / B, B, 3 B] + mask ── softmax with a sink ── values
 *
 * B is layer_block(window), so a band of keys is never wider than three blocks
 * and the work grows with T, not with its square. T is whole blocks. Row i of
 * the input attn_mask [1, 1, T, 3 B] says which of the keys B * (i / B - 1) and
 * on it sees: the window, and where the text ends. Groups of heads that share
 * keys are drawn one after the other: nothing has more than four axes.
 *
 * Without a window there are no blocks: scores are [1, n, T, T]. The mask says
 * which keys are the text's; that is the same for all rows, so it is [1, 1, 1, T].
 *
 * A sink is a score without a value: it takes part in the largest score and in
 * the sum, written out so that no tensor is joined to the scores.
 */
#include "convert/program_impl.h"

static struct mil_value *blocks(struct ctx *c, const char *what,
                                struct mil_value *x, int32_t n, int32_t rows,
                                int32_t width)
{
    const int32_t shape[4] = {n, -1, rows, width};
    return mil_op(c->p, c->f, "reshape", draw_named(c, what), "x", x, "shape",
                  mil_i32s(c->p, c->f, 4, shape), NULL);
}

static struct mil_value *padded(struct ctx *c, const char *what,
                                struct mil_value *x, int32_t rows)
{
    const int32_t pad[8] = {0, 0, 0, 0, rows, rows, 0, 0};
    struct mil_value *by = mil_i32s(c->p, c->f, 8, pad);
    struct mil_value *mode = mil_str(c->p, c->f, "constant");
    struct mil_value *zero = draw_f16(c, 0);
    return mil_op(c->p, c->f, "pad", draw_named(c, what), "x", x, "pad", by,
                  "mode", mode, "constant_val", zero, NULL);
}

/* Keys or values of one group, [1, T / B, 3 B, d], from the padded ones. */
static struct mil_value *around(struct ctx *c, const char *what,
                                struct mil_value *x, int32_t block)
{
    /* with a known T ends are counted from the front */
    int32_t t = c->t == MIL_UNKNOWN ? -2 * block : (int32_t)c->t;
    int32_t d = (int32_t)c->l->d_head;
    struct mil_value *part[3] = {NULL, NULL, NULL};
    part[0] = draw_slice(c, "band_before", x, 2, 0, t);
    part[1] = draw_slice(c, "band_own", x, 2, block, t + block);
    part[2] = draw_slice(c, "band_after", x, 2, 2 * block, 0);
    for (size_t i = 0; i < 3; i++) {
        part[i] = blocks(c, "band_blocks", part[i], 1, block, d);
    }
    return mil_concat(c->p, c->f, draw_named(c, what), 3, part, 2);
}

/* softmax over the last axis; sink [n, 1, 1, 1], or NULL. */
static struct mil_value *softmax(struct ctx *c, struct mil_value *w,
                                 struct mil_value *sink)
{
    if (sink == NULL) {
        return mil_op(c->p, c->f, "softmax", draw_named(c, "probs"), "x", w,
                      "axis", mil_i32(c->p, c->f, -1), NULL);
    }
    struct mil_value *top = draw_reduce(c, "reduce_max", "scores_max", w, -1);
    top = draw_binary(c, "maximum", "scores_top", top, sink);
    w = draw_binary(c, "sub", "scores_less", w, top);
    w = draw_unary(c, "exp", "scores_exp", w);
    struct mil_value *sum = draw_reduce(c, "reduce_sum", "scores_sum", w, -1);
    struct mil_value *s = draw_binary(c, "sub", "sink_less", sink, top);
    s = draw_unary(c, "exp", "sink_exp", s);
    sum = draw_binary(c, "add", "scores_all", sum, s);
    return draw_binary(c, "real_div", "probs", w, sum);
}

/* The sinks of heads [first, last). */
static struct mil_value *sinks(struct ctx *c, int32_t first, int32_t last)
{
    const struct mil_const *k = layer_vector(c->w, SLOT_SINKS);
    int32_t nh = (int32_t)c->l->n_heads;
    if (k == NULL) {
        return NULL;
    }
    struct mil_value *s = draw_constant(c, "sinks", k);
    s = blocks(c, "sinks_heads", s, nh, 1, 1);
    return last - first == nh ? s
                              : draw_slice(c, "sinks_group", s, 0, first, last);
}

/* [1, n, T, d] of heads [first, last) of x; all of them: x. */
static struct mil_value *heads_of(struct ctx *c, const char *what,
                                  struct mil_value *x, uint32_t n,
                                  int32_t first, int32_t last)
{
    return last - first == (int32_t)n ? x
                                      : draw_slice(c, what, x, 1, first, last);
}

static struct mil_value *group(struct ctx *c, int32_t g, struct mil_value *q,
                               struct mil_value *k, struct mil_value *v,
                               struct mil_value *mask)
{
    const struct layer *l = c->l;
    int32_t block =
        (int32_t)layer_block(c->m->d->kinds[l->kind].window);
    int32_t n = (int32_t)(l->n_heads / l->n_kv);
    int32_t d = (int32_t)l->d_head;
    q = heads_of(c, "q_group", q, l->n_heads, g * n, (g + 1) * n);
    q = blocks(c, "q_blocks", q, n, block, d);
    k = heads_of(c, "k_group", k, l->n_kv, g, g + 1);
    k = around(c, "k_band", k, block);
    v = heads_of(c, "v_group", v, l->n_kv, g, g + 1);
    v = around(c, "v_band", v, block);
    struct mil_value *w = draw_matmul(c, "scores", q, k, true);
    w = draw_binary(c, "add", "scores_masked", w, mask);
    w = softmax(c, w, sinks(c, g * n, (g + 1) * n));
    struct mil_value *a = draw_matmul(c, "values", w, v, false);
    return draw_reshape(c, "values_heads", a, n, -1, d);
}

struct mil_value *draw_band(struct ctx *c, struct mil_value *q,
                            struct mil_value *k, struct mil_value *v)
{
    const struct layer *l = c->l;
    int32_t block =
        (int32_t)layer_block(c->m->d->kinds[l->kind].window);
    struct mil_value *all[MODEL_BAND_GROUPS] = {NULL};
    struct mil_value *mask = blocks(c, "band_mask", c->kinds[l->kind].mask, 1,
                                    block, 3 * block);
    must(l->n_kv <= MODEL_BAND_GROUPS);
    k = padded(c, "k_padded", k, block);
    v = padded(c, "v_padded", v, block);
    for (uint32_t g = 0; g < l->n_kv; g++) {
        all[g] = group(c, (int32_t)g, q, k, v, mask);
    }
    struct mil_value *a =
        l->n_kv == 1 ? all[0]
                     : mil_concat(c->p, c->f, draw_named(c, "values_all"),
                                  l->n_kv, all, 1);
    a = draw_swap(c, "values_t", a);
    return draw_reshape(c, "attn", a, (int32_t)(l->n_heads * l->d_head), -1,
                        1);
}

struct mil_value *draw_whole(struct ctx *c, struct mil_value *q,
                             struct mil_value *k, struct mil_value *v)
{
    const struct layer *l = c->l;
    must(l->n_kv == l->n_heads && !l->sinks); /* arch_read has looked */
    struct mil_value *w = draw_matmul(c, "scores", q, k, true);
    w = draw_binary(c, "add", "scores_masked", w, c->kinds[l->kind].mask);
    w = softmax(c, w, NULL);
    struct mil_value *a = draw_matmul(c, "values", w, v, false);
    a = draw_swap(c, "values_t", a);
    return draw_reshape(c, "attn", a, (int32_t)(l->n_heads * l->d_head), -1,
                        1);
}
