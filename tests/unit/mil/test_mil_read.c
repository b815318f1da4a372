/* Specifications that the reader refuses already. */
#include "broken.h"

BREAK(swapped)
{
    struct mil_op **ops = MAIN(p)->body->ops;
    struct mil_op *op = ops[0];
    ops[0] = ops[6];
    ops[6] = op;
}
BREAK(defined_twice)
{
    value_of(p, "u")->name = "y";
}
BREAK(not_identifier)
{
    value_of(p, "u")->name = "9u";
}
BREAK(operand_twice)
{
    op_of(p, "conv")->args[2].name = "x";
}
BREAK(attribute_twice)
{
    value_of(p, "y_groups")->def->attrs[1].name = "name";
}
BREAK(nothing_bound)
{
    arg_of(op_of(p, "conv"), "pad")->n = 0;
}
BREAK(output_unknown)
{
    static struct mil_value v = {.name = "nowhere"};
    MAIN(p)->body->outputs[0] = &v;
}
BREAK(blob_offset)
{
    inline_of(p, "constexpr_blockwise_shift_scale", "data")->blob_offset = 128;
}
BREAK(blob_dtype)
{
    inline_of(p, "constexpr_blockwise_shift_scale", "data")->type.dtype =
        MIL_UINT8;
}
BREAK(blob_shape)
{
    inline_of(p, "constexpr_blockwise_shift_scale", "data")->type.dims[0] = 3;
}
BREAK(blob_elsewhere)
{
    inline_of(p, "constexpr_blockwise_shift_scale", "data")->blob_file =
        "/etc/passwd";
}
BREAK(blob_absent)
{
    inline_of(p, "constexpr_blockwise_shift_scale", "data")->blob_file =
        "@model_path/weights/other.bin";
}
BREAK(default_function)
{
    static struct mil_function f;
    static struct mil_function *list[2];
    p->multi = true;
    f = *MAIN(p);
    f.name = "9";
    list[0] = MAIN(p);
    list[1] = &f;
    p->functions = list;
    p->n_functions = 2;
}
BREAK(function_twice)
{
    default_function(p);
    p->functions[1]->name = "main";
}
BREAK(negative_default)
{
    MAIN(p)->in[0].type.dims[2] = -1;
}

/* An op whose block holds an op whose block ... */
static void nest(struct mil_program *p, int depth)
{
    static struct mil_op ops[MIL_NEST_MAX + 2];
    static struct mil_op *op_list[MIL_NEST_MAX + 2];
    static struct mil_block blocks[MIL_NEST_MAX + 2];
    static struct mil_block *block_list[MIL_NEST_MAX + 2];
    for (int i = 0; i < depth; i++) {
        op_list[i] = &ops[i];
        block_list[i] = &blocks[i];
        ops[i] = (struct mil_op){
            .type = "cond", .n_blocks = 1, .blocks = &block_list[i]};
        blocks[i] =
            (struct mil_block){.n_ops = i + 1 < depth, .ops = &op_list[i + 1]};
    }
    MAIN(p)->body->ops[0]->n_blocks = 1;
    MAIN(p)->body->ops[0]->blocks = block_list;
}
BREAK(nested)
{
    nest(p, MIL_NEST_MAX);
}
BREAK(nested_too_deep)
{
    nest(p, MIL_NEST_MAX + 1);
}

static void unreadable_programs(void **state)
{
    (void)state;
    static const struct row rows[] = {
        ROW(nothing, 0, ""),
        ROW(swapped, INV, "op y (conv): operand weight: \"w\" is not defined"),
        ROW(defined_twice, INV, "op y (add): y is defined twice"),
        ROW(not_identifier, INV, "name \"9u\" is not an identifier"),
        ROW(operand_twice, INV, "op y (conv): operand x is given twice"),
        ROW(attribute_twice, INV, "(const): attribute name is given twice"),
        ROW(nothing_bound, INV, "op y (conv): operand pad: nothing is bound"),
        ROW(output_unknown, INV, "block output 0: \"nowhere\" is not defined"),
        ROW(blob_offset, ERR_MIL_BLOB, "operand data: @model_path"),
        ROW(blob_dtype, ERR_MIL_BLOB, "dtype number 4, uint8 is 3"),
        ROW(blob_shape, ERR_MIL_BLOB, "holds 16 bytes, its type needs 12"),
        ROW(blob_elsewhere, ERR_MIL_BLOB, "is not below @model_path/"),
        ROW(blob_absent, ERR_PKG_MISSING, "operand data"),
        ROW(default_function, INV, "function \"9\" is not an identifier"),
        ROW(function_twice, INV, "function main is empty or twice there"),
        ROW(negative_default, SHP, "input 0: x: dimension 2 is negative"),
        ROW(nested, 0, ""),
        ROW(nested_too_deep, ERR_TOO_BIG, "nested deeper than 16"),
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct mil_program *p = NULL;
        struct mil_program *again = NULL;
        struct buf bytes = {0};
        struct err e = {0};
        buf_init(&bytes, MIB(1));
        unit_ok(parse(spec.p, spec.n, &p, &e), &e);
        rows[i].change(p);
        unit_ok(spec_write(p, &bytes, &e), &e);
        check(&rows[i], parse(bytes.p, bytes.n, &again, &e), &e);
        mil_free(again);
        mil_free(p);
        buf_fini(&bytes);
    }
}
/* Places in the example's bytes (format facts 10.3). */
static void spoiled_bytes(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        char to;
        int rc;
        const char *text;
    } rows[] = {
        {0x01, 5,      ERR_PKG_UNSUPPORTED, "specification version 5"                   },
        {0x01, 11,     ERR_PKG_UNSUPPORTED, "specification version 11"                  },
        {0x58, '\x2a', ERR_PKG_PROTOBUF,    "no Model"                                  },
        {0x5d, 2,      INV,                 "program version 2"                         },
        {0xcb, '9',    INV,                 "no block_specializations for its opset"    },
        {0x0b, 0x32,   ERR_PKG_UNSUPPORTED, "input 0: x: it is no multi-array"          },
        {0x14, '\x91', INV,                 "input 0: x: data type"                     },
        {0x76, 5,      SHP,                 "function main: x: rank 5 with 4 dimensions"},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct mil_program *p = NULL;
        struct err e = {0};
        char *copy = malloc(spec.n);
        assert_non_null(copy);
        memcpy(copy, spec.p, spec.n);
        copy[rows[i].at] = rows[i].to;
        int rc = parse(copy, spec.n, &p, &e);
        if (rc != rows[i].rc || strstr(e.msg, rows[i].text) == NULL) {
            fail_msg("byte 0x%zx: %s: %s", rows[i].at, err_name(rc), e.msg);
        }
        free(copy);
    }
    for (size_t n = 0; n < spec.n; n++) { /* every truncation */
        struct mil_program *p = NULL;
        struct err e = {0};
        char *copy = malloc(n + 1);
        assert_non_null(copy);
        memcpy(copy, spec.p, n);
        assert_true(parse(copy, n, &p, &e) < 0);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unreadable_programs),
        cmocka_unit_test(spoiled_bytes),
    };
    return cmocka_run_group_tests_name("mil_read", tests, write_example,
                                       remove_example);
}
