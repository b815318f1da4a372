/* program_conv.c - a short convolution (model/layer.h).
 *
 *   b, c, x = in_proj(h);  u = b * x  [1, d, T, 1] ──────► output ..._conv_new
 *   input ..._conv_tail [1, d, taps - 1, 1] ── concat u ── depthwise conv ── * c
 *
 * The tail is an input and not a state: rows that pad a chunk and drafts that
 * are refused then leave nothing behind, whoever runs the program keeps as many
 * earlier positions as it wants to go back to, and that costs it a copy of a
 * few columns beside megabytes of weights.
 */
#include "convert/program_impl.h"

static struct mil_value *tail_input(struct ctx *c, const char *stem,
                                    uint32_t len, uint32_t channels)
{
    int64_t dims[4] = {1, channels, len, 1};
    char name[NAME_ROOM];
    (void)snprintf(name, sizeof(name), "layers_%u_%s_tail", c->layer, stem);
    return c->t == MIL_UNKNOWN
               ? mil_add_fixed(c->p, c->f, name, MIL_FP16, 4, dims)
               : mil_add_input(c->p, c->f, name, MIL_FP16, 4, dims, 0, 0);
}

struct mil_value *draw_with_tail(struct ctx *c, const char *stem, uint32_t len,
                                 uint32_t channels, struct mil_value *x)
{
    struct mil_value *joined[2] = {tail_input(c, stem, len, channels), x};
    struct mil_value **tails = c->tails[c->first + c->layer];
    char text[TEXT_ROOM];
    tails[tails[0] != NULL ? 1 : 0] = x;
    (void)snprintf(text, sizeof(text), "%s_seen", stem);
    return mil_concat(c->p, c->f, draw_named(c, text), 2, joined, 2);
}

struct mil_value *draw_taps(struct ctx *c, const char *what,
                            struct mil_value *x, struct mil_value *weight,
                            struct mil_value *bias, uint32_t groups)
{
    static const int32_t one[2] = {1, 1};
    static const int32_t none[4] = {0, 0, 0, 0};
    struct mil_value *strides = mil_i32s(c->p, c->f, 2, one);
    struct mil_value *pad_type = mil_str(c->p, c->f, "valid");
    struct mil_value *pad = mil_i32s(c->p, c->f, 4, none);
    struct mil_value *n = mil_i32(c->p, c->f, (int32_t)groups);
    return mil_op(c->p, c->f, "conv", draw_named(c, what), "x", x, "weight",
                  weight, "bias", bias, "strides", strides, "pad_type",
                  pad_type, "pad", pad, "dilations", strides, "groups", n,
                  NULL);
}

struct mil_value *draw_conv(struct ctx *c, struct mil_value *h)
{
    uint32_t d = c->m->d->d_model;
    struct mil_value *all =
        draw_project(c, "conv_in", h, SLOT_CONV_IN, SLOT_COUNT);
    struct mil_value *part[3] = {NULL, NULL, NULL};
    mil_split(c->p, c->f, draw_named(c, "conv_bcx"), all, 3, 1, part);
    struct mil_value *u = draw_binary(c, "mul", "conv_new", part[0], part[2]);
    struct mil_value *x = draw_with_tail(c, "conv", layer_tail_len(c->l), d, u);
    struct mil_value *taps =
        draw_constant(c, "conv_taps", layer_vector(c->w, SLOT_CONV));
    struct mil_value *y = draw_taps(c, "conv_y", x, taps, NULL, d);
    return draw_binary(c, "mul", "conv", y, part[1]);
}
