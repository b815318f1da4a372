/* Broken programs: each is the worked example with one thing changed, and must
 * be refused with an error that names function, op and field. */
#include "../unit.h"
#include "base/file.h"
#include "example.h"
#include "mil/impl.h"

static char dir[64];
static struct buf spec;            /* the example's */
static struct file_map weight_map; /* its weight.bin */

static int write_example(void **state)
{
    (void)state;
    struct mil_writer *w = NULL;
    struct err e = {0};
    char path[256];
    (void)snprintf(dir, sizeof(dir), "/tmp/aned-mil-XXXXXX");
    if (mkdtemp(dir) == NULL || !file_join(path, sizeof(path), dir, "p") ||
        mil_writer_open(path, &w, &e) < 0) {
        return -1;
    }
    example_build(w);
    if (mil_writer_finish(w, &e) < 0) {
        (void)err_print(&e);
        return -1;
    }
    (void)snprintf(path, sizeof(path),
                   "%s/p/Data/com.apple.CoreML/model.mlmodel", dir);
    if (file_read(path, MIB(1), &spec, &e) < 0) {
        return -1;
    }
    (void)snprintf(path, sizeof(path),
                   "%s/p/Data/com.apple.CoreML/weights/weight.bin", dir);
    return file_map(path, &weight_map, &e);
}

static int remove_example(void **state)
{
    (void)state;
    struct err e = {0};
    buf_fini(&spec);
    file_unmap(&weight_map);
    return file_rmtree(dir, &e);
}

static int find(void *ctx, const char *rel, const struct file_map **ret,
                struct err *e)
{
    (void)ctx;
    if (strcmp(rel, "weights/weight.bin") != 0) {
        return err_set(e, ERR_PKG_MISSING, "%s", rel);
    }
    *ret = &weight_map;
    return 0;
}

static int parse(const void *bytes, size_t n, struct mil_program **ret,
                 struct err *e)
{
    struct mil_program *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    int rc = spec_read(p, bytes, n, (struct weights){.find = find}, e);
    if (rc < 0) {
        mil_free(p);
        return rc;
    }
    *ret = p;
    return 0;
}

/* --- what can be broken --- */

#define MAIN(p) ((p)->functions[0])

static struct mil_op *op_of(struct mil_program *p, const char *type)
{
    for (size_t i = 0; i < MAIN(p)->body->n_ops; i++) {
        if (strcmp(MAIN(p)->body->ops[i]->type, type) == 0) {
            return MAIN(p)->body->ops[i];
        }
    }
    fail_msg("no %s", type);
    abort(); /* fail_msg does not return; the compiler must know */
}

static struct mil_value *value_of(struct mil_program *p, const char *name)
{
    for (size_t i = 0; i < MAIN(p)->body->n_ops; i++) {
        struct mil_op *op = MAIN(p)->body->ops[i];
        if (op->n_outputs > 0 && strcmp(op->outputs[0]->name, name) == 0) {
            return op->outputs[0];
        }
    }
    fail_msg("no %s", name);
    abort(); /* fail_msg does not return; the compiler must know */
}

static struct mil_arg *arg_of(struct mil_op *op, const char *name)
{
    for (size_t i = 0; i < op->n_args; i++) {
        if (strcmp(op->args[i].name, name) == 0) {
            return &op->args[i];
        }
    }
    fail_msg("no operand %s", name);
    abort(); /* fail_msg does not return; the compiler must know */
}

/* The constant that a const op holds, to be changed in place. */
static struct mil_const *const_of(struct mil_program *p, const char *name)
{
    struct mil_op *op = value_of(p, name)->def;
    struct mil_const *c = arena_alloc(&p->arena, sizeof(*c));
    must(c != NULL);
    for (size_t i = 0; i < op->n_attrs; i++) {
        if (strcmp(op->attrs[i].name, "val") == 0) {
            *c = *op->attrs[i].val;
            op->attrs[i].val = c;
        }
    }
    return c;
}

static struct mil_const *inline_of(struct mil_program *p, const char *type,
                                   const char *name)
{
    struct mil_arg *a = arg_of(op_of(p, type), name);
    struct mil_const *c = arena_alloc(&p->arena, sizeof(*c));
    must(c != NULL);
    *c = *a->b[0].imm;
    a->b[0].imm = c;
    return c;
}

#define BREAK(name) static void name(struct mil_program *p)

BREAK(nothing)
{
    (void)p;
}
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

/* description */
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

struct row {
    const char *why;
    void (*change)(struct mil_program *p);
    int rc;
    const char *text;
};

/* rc 0: must be taken. */
static void check(const struct row *r, int rc, const struct err *e)
{
    if (rc != r->rc || (rc < 0 && strstr(e->msg, r->text) == NULL)) {
        fail_msg("%s: %s: %s", r->why, err_name(rc), e->msg);
    }
}

#define ROW(f, rc, text) \
    {                    \
#f, f, rc, text  \
    }
#define INV ERR_MIL_INVALID
#define SHP ERR_MIL_SHAPE

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
    for (size_t i = 0; i < countof(rows); i++) {
        struct mil_program *p = NULL;
        struct err e = {0};
        unit_ok(parse(spec.p, spec.n, &p, &e), &e);
        rows[i].change(p);
        check(&rows[i], mil_validate(p, &e), &e);
        mil_free(p);
    }
}

/* --- refused already by the reader --- */

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
        cmocka_unit_test(unreadable_programs),
        cmocka_unit_test(spoiled_bytes),
        cmocka_unit_test(several_states),
    };
    return cmocka_run_group_tests_name("mil_validate", tests, write_example,
                                       remove_example);
}
