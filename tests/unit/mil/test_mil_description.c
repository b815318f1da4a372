/* Descriptions that do not fit their program: inputs, outputs and states. */
#include "broken.h"

BREAK(input_renamed)
{
    MAIN(p)->in[0].name = "z";
}
BREAK(input_dtype)
{
    MAIN(p)->in[0].type.dtype = MIL_FP32;
}
BREAK(input_fp64)
{
    MAIN(p)->in[0].type.dtype = MIL_FP64;
}
BREAK(input_int8)
{
    MAIN(p)->in[0].type.dtype = MIL_INT8;
}
BREAK(input_rank)
{
    MAIN(p)->in[0].type.rank = 3;
}
BREAK(input_dim)
{
    MAIN(p)->in[0].type.dims[1] = 3;
    MAIN(p)->in[0].lo[1] = 3;
}
BREAK(input_no_shape)
{
    MAIN(p)->in[0].type.rank = 0;
}
BREAK(input_const_flexible)
{
    MAIN(p)->in[0].hi[1] = 5;
}
BREAK(input_no_range)
{
    MAIN(p)->in[0].has_range = false;
}
BREAK(range_inverted)
{
    MAIN(p)->in[0].lo[2] = 65;
}
BREAK(default_outside)
{
    MAIN(p)->in[0].type.dims[2] = 65;
}
BREAK(enumerated)
{
    static const int64_t shapes[] = {1, 4, 2, 1, 1, 4, 16, 1};
    MAIN(p)->in[0].has_range = false;
    MAIN(p)->in[0].n_shapes = 2;
    MAIN(p)->in[0].shapes = shapes;
}
BREAK(enumerated_right)
{
    enumerated(p);
    MAIN(p)->in[0].type.dims[2] = 16;
}
BREAK(input_twice)
{
    struct mil_feature *in = arena_array(&p->arena, 2, sizeof(*in));
    must(in != NULL);
    in[0] = MAIN(p)->in[0];
    in[1] = MAIN(p)->in[0];
    MAIN(p)->in = in;
    MAIN(p)->n_in = 2;
}
BREAK(all_optional)
{
    MAIN(p)->in[0].optional = true;
}
BREAK(no_output)
{
    MAIN(p)->n_out = 0;
}
BREAK(output_renamed)
{
    MAIN(p)->out[0].name = "result";
}
BREAK(output_type)
{
    MAIN(p)->out[0].type.dtype = MIL_FP32;
}
BREAK(output_shape)
{
    MAIN(p)->out[0].type = (struct mil_type){
        .dtype = MIL_FP16, .rank = 4, .dims = {1, 4, 8, 2}
    };
}
BREAK(output_bool)
{
    MAIN(p)->out[0].type.dtype = MIL_BOOL;
}
BREAK(state_absent)
{
    MAIN(p)->n_states = 0;
}
BREAK(state_dtype)
{
    MAIN(p)->states[0].type.dtype = MIL_INT8;
}
BREAK(state_shape)
{
    MAIN(p)->states[0].type.dims[3] = 2;
}
BREAK(state_flexible)
{
    MAIN(p)->states[0].has_range = true;
}
BREAK(state_default)
{
    MAIN(p)->states[0].has_default = true;
}
BREAK(state_optional)
{
    MAIN(p)->states[0].optional = true;
}
BREAK(state_is_none)
{
    MAIN(p)->states[0].type.state = false;
}
BREAK(functions_too_old)
{
    p->multi = true;
    p->spec_version = 8;
}

static void broken_descriptions(void **state)
{
    (void)state;
    static const struct row rows[] = {
        ROW(nothing, 0, ""),
        ROW(input_renamed, INV, "input x of the function is absent"),
        ROW(input_dtype, INV, "input x: its dtype or rank differs"),
        ROW(input_fp64, INV, "input x: dtype fp64 is not for CoreML8"),
        ROW(input_int8, INV, "input x: dtype int8 is not for CoreML8"),
        ROW(input_rank, INV, "input x: its dtype or rank differs"),
        ROW(input_dim, INV, "input x: a dimension differs"),
        ROW(input_no_shape, INV, "input x: no shape"),
        ROW(input_const_flexible, INV, "input x: a dimension differs"),
        ROW(input_no_range, INV, "input x: an unknown dimension needs"),
        ROW(range_inverted, INV, "input x: an upper bound is below"),
        ROW(default_outside, INV, "input x: the default shape is outside"),
        ROW(enumerated, INV, "input x: the default shape is not among"),
        ROW(enumerated_right, 0, ""),
        ROW(input_twice, INV, "input x: twice the same name"),
        ROW(all_optional, INV, "every input is optional"),
        ROW(no_output, INV, "no output"),
        ROW(output_renamed, INV, "output result: not the name"),
        ROW(output_type, INV, "output out: its type differs"),
        ROW(output_shape, INV, "output out: its type differs"),
        ROW(output_bool, INV, "output out: dtype bool is not for CoreML8"),
        ROW(state_absent, INV, "state acc of the function is absent"),
        ROW(state_dtype, INV, "state acc: dtype must be fp16"),
        ROW(state_shape, INV, "state acc: its type differs"),
        ROW(state_flexible, INV, "state acc: its shape must be static"),
        ROW(state_default, INV, "state acc: optional or with a default"),
        ROW(state_optional, INV, "state acc: optional or with a default"),
        ROW(state_is_none, INV, "state acc: is no state"),
        ROW(functions_too_old, INV, "functions need specification version 9"),
    };
    check_rows(rows, countof(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_descriptions),
    };
    return cmocka_run_group_tests_name("mil_description", tests, write_example,
                                       remove_example);
}
