/* Broken programs: each is the worked example with one thing changed, and must
 * be refused with an error that names function, op and field. */
#include "broken.h"

BREAK(opset)
{
    MAIN(p)->opset = "CoreML7";
}
BREAK(spec_version)
{
    p->spec_version = 8;
}
BREAK(old_spec)
{
    p->spec_version = 8;
    MAIN(p)->opset = "CoreML7";
}
BREAK(old_spec_no_state)
{
    old_spec(p);
    MAIN(p)->n_states = 0;
    MAIN(p)->n_inputs = 1;
}
BREAK(unknown_op)
{
    op_of(p, "conv")->type = "frobnicate";
}
BREAK(unknown_operand)
{
    arg_of(op_of(p, "conv"), "groups")->name = "group";
}
BREAK(missing_operand)
{
    op_of(p, "conv")->n_args = 1;
}
BREAK(two_bindings)
{
    struct mil_arg *a = arg_of(op_of(p, "conv"), "x");
    struct mil_binding *b = arena_array(&p->arena, 2, sizeof(*b));
    must(b != NULL);
    b[0] = a->b[0];
    b[1] = a->b[0];
    a->b = b;
    a->n = 2;
}
BREAK(output_dtype)
{
    value_of(p, "y")->type.dtype = MIL_FP32;
}
BREAK(output_dim)
{
    value_of(p, "s")->type.dims[1] = 5;
}
BREAK(output_count)
{
    struct mil_op *op = op_of(p, "write_state");
    op->outputs = value_of(p, "u")->def->outputs;
    op->n_outputs = 1;
}
BREAK(axis)
{
    static const int32_t four = 4;
    const_of(p, "s_axes")->data = &four;
}
BREAK(axis_not_const)
{
    arg_of(op_of(p, "reduce_sum"), "axes")->b[0].value = value_of(p, "y");
}
BREAK(axis_dtype)
{
    arg_of(op_of(p, "reduce_sum"), "axes")->b[0].value =
        value_of(p, "s_keep_dims");
}
BREAK(pad_type)
{
    static const char *const odd[] = {"odd"};
    const_of(p, "y_pad_type")->strings = odd;
}
BREAK(strides)
{
    static const int32_t zero[] = {1, 0};
    const_of(p, "y_strides")->data = zero;
}
BREAK(groups)
{
    static const int32_t three = 3;
    const_of(p, "y_groups")->data = &three;
}
BREAK(val_missing)
{
    value_of(p, "y_groups")->def->n_attrs = 1;
}
BREAK(name_not_string)
{
    struct mil_op *op = op_of(p, "conv");
    op->attrs[0].val = mil_value_const(value_of(p, "y_groups"));
}
BREAK(scale_negative)
{
    static const uint16_t s[] = {0x3800, 0xb400, 0x3000, 0x3c00};
    inline_of(p, "constexpr_blockwise_shift_scale", "scale")->data = s;
}
BREAK(scale_blocks)
{
    inline_of(p, "constexpr_blockwise_shift_scale", "scale")->type.dims[0] = 3;
}
BREAK(scale_rank)
{
    inline_of(p, "constexpr_blockwise_shift_scale", "scale")->type.rank = 3;
}
BREAK(broadcast)
{
    arg_of(value_of(p, "u")->def, "y")->b[0].value = value_of(p, "w");
    value_of(p, "r0")->type.dims[1] = 3;
    MAIN(p)->inputs[1]->type.dims[1] = 3;
    MAIN(p)->states[0].type.dims[1] = 3;
}
BREAK(mixed_dtypes)
{
    arg_of(value_of(p, "u")->def, "y")->b[0].value = value_of(p, "y_groups");
}
BREAK(state_as_tensor)
{
    arg_of(value_of(p, "u")->def, "x")->b[0].value = MAIN(p)->inputs[1];
}
BREAK(tensor_as_state)
{
    arg_of(op_of(p, "read_state"), "input")->b[0].value = MAIN(p)->inputs[0];
}
BREAK(write_shape)
{
    arg_of(op_of(p, "write_state"), "data")->b[0].value = value_of(p, "w");
}
BREAK(written_is_output)
{
    MAIN(p)->body->outputs[0] = value_of(p, "su");
    MAIN(p)->out[0].name = "su";
}
BREAK(state_unused)
{
    /* up to s: constexpr, 5 consts, conv, 2 consts, reduce_sum */
    MAIN(p)->body->n_ops = 10;
    MAIN(p)->body->outputs[0] = value_of(p, "y");
    MAIN(p)->out[0].name = "y";
}
BREAK(state_is_output)
{
    MAIN(p)->body->outputs[0] = MAIN(p)->inputs[1];
    MAIN(p)->out[0].name = "acc";
}
BREAK(reserved_output)
{
    value_of(p, "u")->name = "state";
}
BREAK(reserved_input)
{
    MAIN(p)->inputs[0]->name = "tensor";
    MAIN(p)->in[0].name = "tensor";
}
BREAK(slice_rank)
{
    static const int32_t b[] = {0, 0, 0};
    struct mil_const *c = const_of(p, "su_begin");
    c->data = b;
    c->bytes = sizeof(b);
    c->type.dims[0] = 3;
    value_of(p, "su_begin")->type.dims[0] = 3;
}
BREAK(slice_shape)
{
    static const uint8_t m[] = {0, 0, 1, 1};
    const_of(p, "su_end_mask")->data = m;
}
BREAK(block_input)
{
    MAIN(p)->body->n_inputs = 1;
    MAIN(p)->body->inputs = MAIN(p)->inputs;
}

static void broken_programs(void **state)
{
    (void)state;
    static const struct row rows[] = {
        ROW(nothing, 0, ""),
        ROW(opset, INV, "function main: opset CoreML7"),
        ROW(spec_version, INV, "function main: opset CoreML8"),
        ROW(old_spec, INV, "state acc: needs specification version 9"),
        ROW(old_spec_no_state, ERR_MIL_OP,
            "op w (constexpr_blockwise_shift_scale): operation "
            "constexpr_blockwise_shift_scale is not in CoreML7"),
        ROW(unknown_op, ERR_MIL_OP,
            "function main: op y (frobnicate): operation frobnicate"),
        ROW(unknown_operand, INV, "op y (conv): operand group: conv has no"),
        ROW(missing_operand, INV, "op y (conv): operand weight: is missing"),
        ROW(two_bindings, INV, "op y (conv): operand x: has 2 bindings"),
        ROW(output_dtype, SHP,
            "op y (conv): output y: declared fp32[1,4,?,1], inference gives "
            "fp16[1,4,?,1]"),
        ROW(output_dim, SHP, "op s (reduce_sum): output s: declared"),
        ROW(output_count, INV, "(write_state): outputs: declares 1, has 0"),
        ROW(axis, SHP, "op s (reduce_sum): operand axes: 4 is outside rank 4"),
        ROW(axis_not_const, INV, "operand axes: must be constant"),
        ROW(axis_dtype, INV, "operand axes: dtype bool is not for reduce_sum"),
        ROW(pad_type, INV, "op y (conv): operand pad_type: \"odd\""),
        ROW(strides, INV, "op y (conv): operand strides: must be positive"),
        ROW(groups, SHP, "op y (conv): operand weight: [4,4] in 3 groups"),
        ROW(val_missing, INV, "op y_groups (const): attribute val: is missing"),
        ROW(name_not_string, INV, "op y (conv): attribute name: is no string"),
        ROW(scale_negative, INV, "operand scale: element 1 is negative"),
        ROW(scale_blocks, SHP, "operand scale: dimension 0: 3 blocks of 4"),
        ROW(scale_rank, SHP, "operand scale: rank 3, the data has 4"),
        ROW(broadcast, SHP,
            "op u (add): operand y: fp16[4,4,1,1] does not broadcast"),
        ROW(mixed_dtypes, INV, "op u (add): operand y: dtype int32 beside"),
        ROW(state_as_tensor, INV, "op u (add): operand x: a state can only"),
        ROW(tensor_as_state, INV, "(read_state): operand input: must be a"),
        ROW(write_shape, SHP,
            "op su_write_state (write_state): operand data: is fp16[4,4,1,1]"),
        ROW(written_is_output, INV,
            "op su_write_state (write_state): operand data: su is an output"),
        ROW(state_unused, INV, "function main: state acc is never used"),
        ROW(state_is_output, INV, "output acc: a state"),
        ROW(reserved_output, INV, "op state (add): output state: a reserved"),
        ROW(reserved_input, INV, "input tensor: a reserved"),
        ROW(slice_rank, SHP, "op su (slice_update): operand begin: 3 elements"),
        ROW(slice_shape, SHP, "op su (slice_update): operand update: is"),
        ROW(block_input, INV, "function main: its block has inputs"),
    };
    check_rows(rows, countof(rows));
}

/* --- rules about several states and inputs --- */

static struct mil_value *two_states(struct mil_program *p, bool ranged,
                                    bool fixed, struct mil_value *s[2],
                                    struct mil_value *r[2])
{
    static const int64_t dims[] = {1, 2, 32, 4};
    const int64_t x_dims[] = {1, 2, 32, ranged ? MIL_UNKNOWN : 4};
    struct mil_function *f = mil_add_function(p, "main");
    struct mil_value *x = mil_add_input(p, f, "x", MIL_FP16, 4, x_dims, 1, 4);
    if (fixed) {
        (void)mil_add_input(p, f, "pos", MIL_INT32, 1, (int64_t[]){1}, 1, 1);
    }
    s[0] = mil_add_state(p, f, "k", 4, dims);
    s[1] = mil_add_state(p, f, "v", 4, dims);
    r[0] = mil_state_read(p, f, "k0", s[0]);
    r[1] = mil_state_read(p, f, "v0", s[1]);
    return mil_op(p, f, "add", "u", "x", r[0], "y", x, NULL);
}

static void several_states(void **state)
{
    (void)state;
    static const char *const texts[] = {
        NULL,
        "operand data: must be a slice_update of k's read",
        "operand data: v1_updated does not update a read of k",
        "input pos: has no shapeRange beside others",
        NULL, /* all ranged */
        "operand data: k1_updated has no operand squeeze_mask",
    };
    for (size_t i = 0; i < countof(texts); i++) {
        struct mil_program *p = build_program();
        struct mil_value *s[2];
        struct mil_value *r[2];
        struct err e = {0};
        struct mil_value *u = two_states(p, i >= 3 && i <= 4, i == 3, s, r);
        struct mil_function *f = p->functions[0];
        if (i == 1) {
            (void)mil_op(p, f, "write_state", "wr", "input", s[0], "data", u,
                         NULL);
        } else if (i == 2) {
            (void)mil_state_write(p, f, "v1", s[1], r[1], u);
            (void)mil_op(p, f, "write_state", "wr", "input", s[0], "data",
                         value_of(p, "v1_updated"), NULL);
        } else {
            (void)mil_state_write(p, f, "k1", s[0], r[0], u);
        }
        if (i == 5) {
            struct mil_op *op = value_of(p, "k1_updated")->def;
            op->n_args--; /* squeeze_mask comes last */
        }
        mil_add_output(p, f, mil_op(p, f, "identity", "o", "x", r[1], NULL));
        int rc = mil_validate(p, &e);
        if (texts[i] == NULL) {
            unit_ok(rc, &e);
        } else if (rc != INV || strstr(e.msg, texts[i]) == NULL) {
            fail_msg("row %zu: %s: %s", i, err_name(rc), e.msg);
        }
        build_free(p);
    }
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_programs),
        cmocka_unit_test(several_states),
    };
    return cmocka_run_group_tests_name("mil_validate", tests, write_example,
                                       remove_example);
}
