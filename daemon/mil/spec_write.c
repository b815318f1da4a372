/* spec_write.c - a program becomes a serialized Model.
 *
 * Messages are built in an arena, then packed once. protobuf-c writes fields
 * by ascending number and maps in the order of the arrays here: the same
 * program gives the same bytes. Blocks inside operations are packed separately,
 * because the schema has them as bytes.
 */
#include <string.h>

#include "mil/spec.h"

static char *text(struct arena *a, const char *s)
{
    char *copy = arena_str(a, s);
    must(copy != NULL);
    return copy;
}

static Ml__NamedType **write_values(struct arena *a, size_t n,
                                    struct mil_value *const *v)
{
    Ml__NamedType **list = pb_array(a, n, sizeof(*list));
    for (size_t i = 0; i < n; i++) {
        list[i] = pb_new(a, &ml__named_type__descriptor);
        list[i]->name = text(a, v[i]->name);
        list[i]->type = type_write(a, &v[i]->type);
    }
    return list;
}

static Ml__Binding *write_binding(struct arena *a, const struct mil_binding *b)
{
    Ml__Binding *out = pb_new(a, &ml__binding__descriptor);
    if (b->imm != NULL) {
        out->kind_case = ML__BINDING__KIND_VALUE;
        out->value = value_write(a, b->imm);
    } else {
        out->kind_case = ML__BINDING__KIND_NAME;
        out->name = text(a, b->value->name);
    }
    return out;
}

static Ml__ArgumentEntry *write_arg(struct arena *a, const struct mil_arg *arg)
{
    Ml__ArgumentEntry *out = pb_new(a, &ml__argument_entry__descriptor);
    out->key = text(a, arg->name);
    out->value = pb_new(a, &ml__argument__descriptor);
    out->value->n_arguments = arg->n;
    out->value->arguments = pb_array(a, arg->n, sizeof(Ml__Binding *));
    for (size_t i = 0; i < arg->n; i++) {
        out->value->arguments[i] = write_binding(a, &arg->b[i]);
    }
    return out;
}

static Ml__Block *write_block(struct arena *a, const struct mil_block *b);

static void write_inner_blocks(struct arena *a, const struct mil_op *op,
                               Ml__Operation *out)
{
    out->n_blocks = op->n_blocks;
    out->blocks = pb_array(a, op->n_blocks, sizeof(*out->blocks));
    for (size_t i = 0; i < op->n_blocks; i++) {
        const Ml__Block *b = write_block(a, op->blocks[i]);
        out->blocks[i].len = ml__block__get_packed_size(b);
        out->blocks[i].data = pb_array(a, out->blocks[i].len, 1);
        (void)ml__block__pack(b, out->blocks[i].data);
    }
}

static Ml__Operation *write_op(struct arena *a, const struct mil_op *op)
{
    Ml__Operation *out = pb_new(a, &ml__operation__descriptor);
    out->type = text(a, op->type);
    out->n_inputs = op->n_args;
    out->inputs = pb_array(a, op->n_args, sizeof(*out->inputs));
    for (size_t i = 0; i < op->n_args; i++) {
        out->inputs[i] = write_arg(a, &op->args[i]);
    }
    out->n_outputs = op->n_outputs;
    out->outputs = write_values(a, op->n_outputs, op->outputs);
    out->n_attributes = op->n_attrs;
    out->attributes = pb_array(a, op->n_attrs, sizeof(*out->attributes));
    for (size_t i = 0; i < op->n_attrs; i++) {
        out->attributes[i] = pb_new(a, &ml__value_entry__descriptor);
        out->attributes[i]->key = text(a, op->attrs[i].name);
        out->attributes[i]->value = value_write(a, op->attrs[i].val);
    }
    write_inner_blocks(a, op, out);
    return out;
}

static Ml__Block *write_block(struct arena *a, const struct mil_block *b)
{
    Ml__Block *out = pb_new(a, &ml__block__descriptor);
    out->n_inputs = b->n_inputs;
    out->inputs = write_values(a, b->n_inputs, b->inputs);
    out->n_outputs = b->n_outputs;
    out->outputs = pb_array(a, b->n_outputs, sizeof(*out->outputs));
    for (size_t i = 0; i < b->n_outputs; i++) {
        out->outputs[i] = text(a, b->outputs[i]->name);
    }
    out->n_operations = b->n_ops;
    out->operations = pb_array(a, b->n_ops, sizeof(*out->operations));
    for (size_t i = 0; i < b->n_ops; i++) {
        out->operations[i] = write_op(a, b->ops[i]);
    }
    return out;
}

static Ml__FunctionEntry *write_function(struct arena *a,
                                         const struct mil_function *f)
{
    Ml__FunctionEntry *out = pb_new(a, &ml__function_entry__descriptor);
    Ml__Function *to = pb_new(a, &ml__function__descriptor);
    out->key = text(a, f->name);
    out->value = to;
    to->n_inputs = f->n_inputs;
    to->inputs = write_values(a, f->n_inputs, f->inputs);
    to->opset = text(a, f->opset);
    to->n_blocks = 1;
    to->blocks = pb_array(a, 1, sizeof(*to->blocks));
    to->blocks[0] = pb_new(a, &ml__block_entry__descriptor);
    to->blocks[0]->key = text(a, f->opset);
    to->blocks[0]->value = write_block(a, f->body);
    return out;
}

int spec_write(const struct mil_program *p, struct buf *out, struct err *e)
{
    struct arena a = {0};
    arena_init(&a, 0);
    Ml__Model *m = pb_new(&a, &ml__model__descriptor);
    Ml__Program *prog = pb_new(&a, &ml__program__descriptor);
    m->specification_version = p->spec_version;
    m->description = describe_write(&a, p);
    m->ml_program = prog;
    prog->version = 1;
    prog->n_functions = p->n_functions;
    prog->functions = pb_array(&a, p->n_functions, sizeof(*prog->functions));
    for (size_t i = 0; i < p->n_functions; i++) {
        prog->functions[i] = write_function(&a, p->functions[i]);
    }
    size_t n = ml__model__get_packed_size(m);
    uint8_t *to = buf_grow(out, n);
    if (to != NULL) {
        must(ml__model__pack(m, to) == n);
    }
    arena_fini(&a);
    return to != NULL
               ? 0
               : err_set(e, ERR_TOO_BIG, "a specification of %zu bytes", n);
}
