/* Descriptions that do not fit their program: inputs, outputs and states; and
 * shapes that the reader refuses. */
#include "broken.h"
#include "mil/spec.h"

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

/* --- shapes as they stand in the file --- */

#define DIMS (MIL_RANK_MAX + 1)

/* What an input says: its default shape, then enumerated shapes (n > 0) or a
 * range (sizes >= 0), each of so many dimensions. */
struct shapes {
    const char *why;
    size_t given;
    size_t n, ranks[4];
    int sizes;
    int rc;
    const char *text;
    int rank; /* that it then has */
};

static void write_shapes(Ml__ArrayType *t, const struct shapes *s,
                         struct arena *a)
{
    static int64_t dims[DIMS] = {1, 4, 16, 1, 2, 3, 4, 5, 6};
    t->n_shape = s->given;
    t->shape = dims;
    t->flexibility_case = ML__ARRAY_TYPE__FLEXIBILITY__NOT_SET;
    if (s->n > 0) {
        t->flexibility_case = ML__ARRAY_TYPE__FLEXIBILITY_ENUMERATED;
        t->enumerated = pb_new(a, &ml__enumerated_shapes__descriptor);
        t->enumerated->n_shapes = s->n;
        t->enumerated->shapes = pb_array(a, s->n, sizeof(Ml__Shape *));
        for (size_t i = 0; i < s->n; i++) {
            t->enumerated->shapes[i] = pb_new(a, &ml__shape__descriptor);
            t->enumerated->shapes[i]->n_shape = s->ranks[i];
            t->enumerated->shapes[i]->shape = dims;
        }
    } else if (s->sizes >= 0) {
        size_t n = (size_t)s->sizes;
        t->flexibility_case = ML__ARRAY_TYPE__FLEXIBILITY_RANGE;
        t->range = pb_new(a, &ml__shape_range__descriptor);
        t->range->n_sizes = n;
        t->range->sizes = pb_array(a, n, sizeof(Ml__SizeRange *));
        for (size_t i = 0; i < n; i++) {
            t->range->sizes[i] = pb_new(a, &ml__size_range__descriptor);
            t->range->sizes[i]->lower = 1;
            t->range->sizes[i]->upper = 64;
        }
    }
}

static void check_shapes(const struct shapes *s)
{
    struct mil_program *p = NULL;
    struct arena a = {0};
    struct err e = {0};
    arena_init(&a, 0);
    Ml__Model *m = ml__model__unpack(NULL, spec.n, (const uint8_t *)spec.p);
    assert_non_null(m);
    Ml__ArrayType *t = m->description->input[0]->type->array;
    Ml__ArrayType was = *t;
    write_shapes(t, s, &a);
    size_t n = ml__model__get_packed_size(m);
    uint8_t *bytes = malloc(n);
    assert_non_null(bytes);
    assert_int_equal(ml__model__pack(m, bytes), n);
    int rc = parse(bytes, n, &p, &e);
    if (rc != s->rc || (rc < 0 && strstr(e.msg, s->text) == NULL)) {
        fail_msg("%s: %s: %s", s->why, err_name(rc), e.msg);
    }
    if (rc == 0) {
        const struct mil_feature *f = &p->functions[0]->in[0];
        struct buf text;
        assert_int_equal(f->type.rank, s->rank);
        assert_int_equal(f->n_shapes, s->n);
        for (size_t i = 0; i < s->n; i++) {
            assert_int_equal(f->shapes[i * (size_t)s->rank], 1);
        }
        buf_init(&text, MIB(1));
        mil_dump(p, &text);
        buf_fini(&text);
    }
    *t = was;
    ml__model__free_unpacked(m, NULL);
    mil_free(p);
    free(bytes);
    arena_fini(&a);
}

static void shapes_of_several_ranks(void **state)
{
    (void)state;
    static const struct shapes rows[] = {
        {"all of one rank",    4, 3, {4, 4, 4},    -1, 0,   NULL,                    4           },
        {"no default shape",   0, 3, {4, 4, 4},    -1, 0,   NULL,                    4           },
        {"the largest rank",   0, 2, {8, 8},       -1, 0,   NULL,                    MIL_RANK_MAX},
        {"0, then 8",          0, 4, {0, 8, 8, 8}, -1, SHP, "shape of 0 dimensions", 0           },
        {"0 twice, then 8",
         0,                       3,
         {0, 0, 8},
         -1,
         SHP,                                               "shape of 0 dimensions",
         0                                                                                       },
        {"0 alone",            0, 1, {0},          -1, SHP, "shape of 0 dimensions", 0           },
        {"4, then 0",          0, 2, {4, 0},       -1, SHP, "shape of 0 dimensions", 0           },
        {"4, then 8",          0, 2, {4, 8},       -1, SHP, "8 dimensions, rank 4",  0           },
        {"8, then 1",          0, 2, {8, 1},       -1, SHP, "1 dimensions, rank 8",  0           },
        {"given 4, then 8",    4, 1, {8},          -1, SHP, "8 dimensions, rank 4",  0           },
        {"above the largest",  0, 1, {DIMS},       -1, SHP, "9 dimensions",          0           },
        {"given too many",     9, 0, {0},          -1, SHP, "9 dimensions",          0           },
        {"a range",            4, 0, {0},          4,  0,   NULL,                    4           },
        {"a range gives it",   0, 0, {0},          8,  0,   NULL,                    MIL_RANK_MAX},
        {"a range of nothing", 0, 0, {0},          0,  SHP, "shape of 0 dimensions", 0           },
        {"a range too long",   0, 0, {0},          9,  SHP, "9 dimensions",          0           },
        {"a range of another", 4, 0, {0},          3,  SHP, "3 dimensions, rank 4",  0           },
        {"nothing at all",     0, 0, {0},          -1, 0,   NULL,                    0           },
    };
    for (size_t i = 0; i < countof(rows); i++) {
        check_shapes(&rows[i]);
    }
}

/* Messages inside messages; no message may contain itself, or a file would
 * choose how deep protobuf-c recurses. */
static int depth_of(const ProtobufCMessageDescriptor *d, int left)
{
    int deepest = 0;
    if (left == 0) {
        fail_msg("%s is nested too deep, or in itself", d->name);
    }
    for (unsigned i = 0; i < d->n_fields; i++) {
        if (d->fields[i].type == PROTOBUF_C_TYPE_MESSAGE) {
            int n = depth_of(d->fields[i].descriptor, left - 1);
            deepest = n > deepest ? n : deepest;
        }
    }
    return deepest + 1;
}

static void messages_do_not_recurse(void **state)
{
    (void)state;
    assert_in_range(depth_of(&ml__model__descriptor, 24), 8, 20);
    assert_in_range(depth_of(&ml__block__descriptor, 24), 4, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_descriptions),
        cmocka_unit_test(shapes_of_several_ranks),
        cmocka_unit_test(messages_do_not_recurse),
    };
    return cmocka_run_group_tests_name("mil_description", tests, write_example,
                                       remove_example);
}
