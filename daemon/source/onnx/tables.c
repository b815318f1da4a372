/* tables.c - the tables of rotations, and how long a sequence is.
 *
 * Tables are initialisers, or the results of an If that takes a long pair when
 * the sequence is longer than a constant (longrope). Lengths come from the
 * attention mask: how many ones it has, how long it is.
 */
#include "source/onnx/decoder.h"

/* --- lengths --- */

/* Sum of the mask along its second axis. */
static int match_sum(struct onnx_decoder *d, struct onnx_value *v,
                     struct err *e)
{
    struct onnx_node *n = NULL;
    int64_t axis = 0;
    RETERR(onnx_uncast(v, &v, e));
    n = onnx_made_by(v, "ReduceSum");
    if (n == NULL || onnx_const_ints(onnx_in(n, 1), &axis, 1) != 1 ||
        (axis != 1 && axis != -1)) {
        return onnx_not(v != NULL ? v->node : NULL, e,
                        "the sum of the attention mask is needed here");
    }
    RETERR(onnx_take(n, "keepdims noop_with_empty_axes", 2, e));
    RETERR(onnx_uncast(onnx_in(n, 0), &v, e));
    return onnx_same_input(&d->mask, v, n, e);
}

int onnx_match_total(struct onnx_decoder *d, struct onnx_value *total,
                     struct err *e)
{
    int64_t which = 0;
    struct onnx_value *v = NULL;
    RETERR(onnx_uncast(total, &v, e));
    struct onnx_node *max = onnx_made_by(v, "ReduceMax");
    struct onnx_node *pick = onnx_made_by(v, "Gather");
    if (max != NULL) {
        RETERR(onnx_take(max, "keepdims noop_with_empty_axes axes", 2, e));
        return match_sum(d, onnx_in(max, 0), e);
    }
    struct onnx_node *shape =
        pick != NULL ? onnx_made_by(onnx_in(pick, 0), "Shape") : NULL;
    if (shape == NULL || onnx_const_ints(onnx_in(pick, 1), &which, 1) != 1 ||
        which != 1 || onnx_attr_int(pick, "axis", 0) != 0) {
        return onnx_not(v != NULL ? v->node : NULL, e,
                        "the length of the attention mask is needed here");
    }
    RETERR(onnx_take(pick, "axis", 2, e));
    RETERR(onnx_take(shape, "", 1, e));
    return onnx_same_input(&d->mask, onnx_in(shape, 0), shape, e);
}

int onnx_match_lengths(struct onnx_decoder *d, struct onnx_value *less,
                       struct onnx_value *total, struct err *e)
{
    float one = 0;
    struct onnx_value *v = NULL;
    RETERR(onnx_uncast(less, &v, e));
    struct onnx_node *n = onnx_made_by(v, "Sub");
    if (n == NULL || !onnx_const_number(onnx_in(n, 1), &one) || one != 1) {
        return onnx_not(v != NULL ? v->node : NULL, e,
                        "the sum of the attention mask, less one, is needed "
                        "here");
    }
    RETERR(onnx_take(n, "", 2, e));
    RETERR(match_sum(d, onnx_in(n, 0), e));
    return onnx_match_total(d, total, e);
}

/* --- tables --- */

static int check_table(const struct onnx_tensor *c, const struct onnx_tensor *s,
                       const char *name, struct err *e)
{
    bool fits = c != NULL && s != NULL && c->n_dims == 2 && s->n_dims == 2 &&
                c->dims[0] == s->dims[0] && c->dims[1] == s->dims[1] &&
                c->type == s->type && c->dims[0] >= 2 &&
                c->dims[0] <= ONNX_CACHE_MAX && c->dims[1] >= 1 &&
                c->dims[1] <= MODEL_DIM_MAX &&
                (c->type == ONNX_FLOAT || c->type == ONNX_FLOAT16 ||
                 c->type == ONNX_BFLOAT16);
    return fits ? 0
                : err_set(e, ERR_ONNX_GRAPH,
                          "'%.100s' is no table of rotations", name);
}

/* A branch of the If: two constants, and nothing else. */
static int take_branch(const struct onnx_node *n, const char *name,
                       const struct onnx_tensor *ret[2], struct err *e)
{
    const struct onnx_attr *a = onnx_attr(n, name);
    const struct onnx_graph *g = a != NULL ? a->g : NULL;
    if (g == NULL || g->n_outputs != 2 || g->n_inputs != 0) {
        return onnx_not(n, e, "its %s is no pair of tables", name);
    }
    for (size_t i = 0; i < g->n_nodes; i++) {
        if (!g->nodes[i].seen) { /* a Constant is */
            return onnx_not(&g->nodes[i], e, "no table of rotations");
        }
    }
    for (size_t i = 0; i < 2; i++) {
        ret[i] = g->outputs[i]->init;
    }
    return check_table(ret[0], ret[1], n->name, e);
}

static int take_if(struct onnx_decoder *d, struct onnx_node *n,
                   struct onnx_rotation *r, struct err *e)
{
    const struct onnx_tensor *small[2] = {NULL, NULL};
    const struct onnx_tensor *large[2] = {NULL, NULL};
    int64_t original = 0;
    struct onnx_node *more = onnx_made_by(onnx_in(n, 0), "Greater");
    if (more == NULL ||
        onnx_const_ints(onnx_in(more, 1), &original, 1) != 1 || original < 1 ||
        original > INT32_MAX) {
        return onnx_not(n, e, "it does not compare a length with a constant");
    }
    RETERR(onnx_take(more, "", 2, e));
    RETERR(onnx_match_total(d, onnx_in(more, 0), e));
    RETERR(onnx_take(n, "then_branch else_branch", 1, e));
    RETERR(take_branch(n, "else_branch", small, e));
    RETERR(take_branch(n, "then_branch", large, e));
    if (small[0]->dims[1] != large[0]->dims[1] ||
        small[0]->dims[0] < (uint64_t)original) {
        return onnx_not(n, e, "its tables do not have the lengths that it "
                              "compares with");
    }
    *r = (struct onnx_rotation){small[0], small[1], large[0], large[1],
                                (uint64_t)original};
    return 0;
}

int onnx_rotation_of(struct onnx_decoder *d, struct onnx_value *cos,
                     struct onnx_value *sin, uint32_t *ret, struct err *e)
{
    struct onnx_rotation r = {0};
    struct onnx_node *n = onnx_made_by(cos, "If");
    if (cos == NULL || sin == NULL) {
        return err_set(e, ERR_ONNX_GRAPH, "a table of rotations is absent");
    }
    if (n != NULL) {
        if (sin->node != n || cos->out != 0 || sin->out != 1) {
            return onnx_not(n, e, "its results are no cosines and sines");
        }
        RETERR(take_if(d, n, &r, e));
    } else {
        RETERR(check_table(cos->init, sin->init, cos->name, e));
        r.cos = cos->init;
        r.sin = sin->init;
    }
    for (size_t i = 0; i < d->n_rotations; i++) {
        if (d->rotations[i].cos == r.cos && d->rotations[i].sin == r.sin) {
            *ret = (uint32_t)i;
            return 0;
        }
    }
    if (d->n_rotations == ONNX_ROTATIONS_MAX) {
        return err_set(e, ERR_TOO_BIG, "more than %u tables of rotations",
                       ONNX_ROTATIONS_MAX);
    }
    d->rotations[d->n_rotations] = r;
    *ret = (uint32_t)d->n_rotations++;
    return 0;
}
