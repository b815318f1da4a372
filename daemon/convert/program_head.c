/* program_head.c - the final norm and a slice of the vocabulary. */
#include "convert/program_impl.h"

/* The logits' scale, and the division of a cap, stand in the norm's weight. */
float program_head_gain(const struct decoder *d)
{
    return d->logit_cap > 0 ? d->logit_scale / d->logit_cap : d->logit_scale;
}

/* The likeliest of the slice: [1, 1, T, 1], both. */
static void put_top(struct ctx *c, struct mil_value *y)
{
    struct mil_value *axis = mil_i32(c->p, c->f, 1);
    struct mil_value *keep = mil_bool(c->p, c->f, true);
    struct mil_value *type = mil_str(c->p, c->f, "int32");
    mil_add_output(c->p, c->f,
                   mil_op(c->p, c->f, "reduce_argmax", "top_id", "x", y, "axis",
                          axis, "keep_dims", keep, "output_dtype", type, NULL));
    const int32_t one = 1;
    struct mil_value *axes = mil_i32s(c->p, c->f, 1, &one);
    mil_add_output(c->p, c->f,
                   mil_op(c->p, c->f, "reduce_max", "top_value", "x", y, "axes",
                          axes, "keep_dims", keep, NULL));
}

void program_head(const struct emit *m, struct mil_program *p, const char *name,
                  int64_t t, const struct program_head *h)
{
    const struct decoder *d = m->d;
    struct ctx c = {.m = m, .p = p, .f = mil_add_function(p, name), .t = t};
    int64_t dims[4] = {1, d->d_model, t, 1};
    bool cap = d->logit_cap > 0;
    struct mil_value *x = draw_input(&c, "x", 4, dims);
    x = draw_norm(&c, "out_norm", x, 1, d->d_model, m->alpha, h->norm);
    struct mil_value *weight = weights_value(p, c.f, "head_weight", h->matrix);
    struct mil_value *bias =
        h->bias != NULL ? mil_const_op(p, c.f, "head_bias", h->bias) : NULL;
    struct mil_value *y =
        mil_conv1x1(p, c.f, cap ? "logits_raw" : "logits", x, weight, bias);
    if (cap) {
        y = mil_op(p, c.f, "tanh", "logits_tanh", "x", y, NULL);
        y = mil_op(p, c.f, "mul", "logits", "x", y, "y",
                   draw_f16(&c, d->logit_cap), NULL);
    }
    if (m->argmax) {
        put_top(&c, y);
    } else {
        mil_add_output(p, c.f, y);
    }
}
