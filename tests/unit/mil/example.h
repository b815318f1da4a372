/* example.h - the worked example of the format's facts, section 10, described
 * with build.h: a dequantised 1x1 conv over T, summed into a state. */
#pragma once

#include "mil/build.h"

/* const op of rank 1 or, for n == 0, a scalar; never shared, as there. */
static inline struct mil_value *
example_const(struct mil_program *p, struct mil_function *f, const char *name,
              enum mil_dtype t, int64_t n, const void *data)
{
    struct mil_type type = {.dtype = t, .rank = n > 0, .dims = {n}};
    return mil_const_new(p, f, name, mil_imm(p, &type, data));
}

static inline struct mil_value *example_conv(struct mil_program *p,
                                             struct mil_function *f,
                                             struct mil_value *x,
                                             struct mil_value *w)
{
    static const int32_t ones[] = {1, 1};
    static const int32_t zeros[] = {0, 0, 0, 0};
    struct mil_value *strides =
        example_const(p, f, "y_strides", MIL_INT32, 2, ones);
    struct mil_value *pad_type =
        mil_const_new(p, f, "y_pad_type", mil_imm_str(p, "valid"));
    struct mil_value *pad = example_const(p, f, "y_pad", MIL_INT32, 4, zeros);
    struct mil_value *dilations =
        example_const(p, f, "y_dilations", MIL_INT32, 2, ones);
    struct mil_value *groups =
        example_const(p, f, "y_groups", MIL_INT32, 0, ones);
    return mil_op(p, f, "conv", "y", "x", x, "weight", w, "strides", strides,
                  "pad_type", pad_type, "pad", pad, "dilations", dilations,
                  "groups", groups, NULL);
}

static inline struct mil_value *example_update(struct mil_program *p,
                                               struct mil_function *f,
                                               struct mil_value *r0,
                                               struct mil_value *u)
{
    static const int32_t zeros[] = {0, 0, 0, 0};
    static const int32_t ones[] = {1, 1, 1, 1};
    static const uint8_t no[] = {0, 0, 0, 0};
    static const uint8_t begin_mask[] = {0, 1, 1, 1};
    static const uint8_t end_mask[] = {1, 1, 1, 1};
    struct mil_value *b = example_const(p, f, "su_begin", MIL_INT32, 4, zeros);
    struct mil_value *e = example_const(p, f, "su_end", MIL_INT32, 4, zeros);
    struct mil_value *s = example_const(p, f, "su_stride", MIL_INT32, 4, ones);
    struct mil_value *bm =
        example_const(p, f, "su_begin_mask", MIL_BOOL, 4, begin_mask);
    struct mil_value *em =
        example_const(p, f, "su_end_mask", MIL_BOOL, 4, end_mask);
    struct mil_value *sm =
        example_const(p, f, "su_squeeze_mask", MIL_BOOL, 4, no);
    return mil_op(p, f, "slice_update", "su", "x", r0, "update", u, "begin", b,
                  "end", e, "stride", s, "begin_mask", bm, "end_mask", em,
                  "squeeze_mask", sm, NULL);
}

static inline void example_build(struct mil_writer *w)
{
    static const int64_t x_dims[] = {1, 4, MIL_UNKNOWN, 1};
    static const int64_t state_dims[] = {1, 4, 1, 1};
    static const uint16_t scales[] = {0x3800, 0x3400, 0x3000, 0x3c00};
    static const int32_t axis = 2;
    static const uint8_t yes = 1;
    int8_t weights[16];
    for (int i = 0; i < 16; i++) {
        weights[i] = (int8_t)(i - 8);
    }
    struct mil_program *p = mil_writer_program(w);
    struct mil_type wt = {
        .dtype = MIL_INT8, .rank = 4, .dims = {4, 4, 1, 1}
    };
    struct mil_type st = {
        .dtype = MIL_FP16, .rank = 4, .dims = {4, 1, 1, 1}
    };
    struct mil_function *f = mil_add_function(p, "main");
    struct mil_value *x = mil_add_input(p, f, "x", MIL_FP16, 4, x_dims, 1, 64);
    f->in[0].type.dims[2] = 8; /* the example's default T */
    struct mil_value *acc = mil_add_state(p, f, "acc", 4, state_dims);
    struct mil_value *cw = mil_dequant(p, f, "w", mil_blob(w, &wt, weights),
                                       mil_imm(p, &st, scales));
    struct mil_value *y = example_conv(p, f, x, cw);
    struct mil_value *axes = example_const(p, f, "s_axes", MIL_INT32, 1, &axis);
    struct mil_value *keep =
        example_const(p, f, "s_keep_dims", MIL_BOOL, 0, &yes);
    struct mil_value *s = mil_op(p, f, "reduce_sum", "s", "x", y, "axes", axes,
                                 "keep_dims", keep, NULL);
    struct mil_value *r0 = mil_state_read(p, f, "r0", acc);
    struct mil_value *u = mil_op(p, f, "add", "u", "x", r0, "y", s, NULL);
    struct mil_value *su = example_update(p, f, r0, u);
    (void)mil_op(p, f, "write_state", "su_write_state", "input", acc, "data",
                 su, NULL);
    struct mil_value *r1 = mil_state_read(p, f, "r1", acc);
    mil_add_output(p, f, mil_op(p, f, "add", "out", "x", y, "y", r1, NULL));
}
