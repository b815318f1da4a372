/* spec_read.c - a serialized Model becomes a program.
 *
 * protobuf-c unpacks into a scratch arena whose limit is a multiple of the
 * input, so a small hostile file cannot take much memory. The schema has no
 * recursion; blocks inside operations are unpacked here, level by level.
 * Names are bound in one pass: a name must be defined before it is used, once
 * per function, and a block's own names end with the block.
 */
#include <string.h>

#include "mil/spec.h"

static int no_memory(struct err *e)
{
    return err_set(e, ERR_TOO_BIG, "the program needs too much memory");
}

static void *pb_alloc(void *ctx, size_t n)
{
    return arena_alloc(ctx, n > 0 ? n : 1);
}

static void pb_free(void *ctx, void *p)
{
    (void)ctx;
    (void)p; /* dies with the arena */
}

/* Copy of a string that must be an identifier. */
static int read_name(struct reader *r, const char *s, const char *what,
                     const char **ret, struct err *e)
{
    if (!mil_name_ok(s)) {
        return err_set(e, ERR_MIL_INVALID, "%s \"%s\" is not an identifier",
                       what, s);
    }
    *ret = arena_str(&r->p->arena, s);
    return *ret != NULL ? 0 : no_memory(e);
}

static int read_value(struct reader *r, const Ml__NamedType *in,
                      struct mil_op *def, size_t def_out,
                      struct mil_value **ret, struct err *e)
{
    struct mil_value *v = arena_alloc(&r->p->arena, sizeof(*v));
    if (v == NULL) {
        return no_memory(e);
    }
    int rc = read_name(r, in->name, "name", &v->name, e);
    if (rc < 0) {
        return rc;
    }
    rc = type_read(in->type, &v->type, e);
    if (rc < 0) {
        return err_prefix(e, rc, "%s", v->name);
    }
    v->def = def;
    v->def_out = (int)def_out;
    v->id = r->n_values++;
    if (!names_add(&r->names, v->name, v)) {
        return err_set(e, ERR_MIL_INVALID, "%s is defined twice", v->name);
    }
    *ret = v;
    return 0;
}

static int read_values(struct reader *r, Ml__NamedType *const *in, size_t n,
                       struct mil_op *def, struct mil_value ***ret,
                       struct err *e)
{
    struct mil_value **list = arena_array(&r->p->arena, n, sizeof(*list));
    if (list == NULL) {
        return no_memory(e);
    }
    for (size_t i = 0; i < n; i++) {
        int rc = read_value(r, in[i], def, i, &list[i], e);
        if (rc < 0) {
            return rc;
        }
    }
    *ret = list;
    return 0;
}

static int find_value(struct reader *r, const char *name,
                      struct mil_value **ret, struct err *e)
{
    const struct names_entry *found = names_find(&r->names, name);
    if (found == NULL || found->hidden) {
        return err_set(e, ERR_MIL_INVALID, "\"%s\" is not defined here", name);
    }
    *ret = found->value;
    return 0;
}

static int read_binding(struct reader *r, const Ml__Binding *in,
                        struct mil_binding *b, struct err *e)
{
    if (in->kind_case == ML__BINDING__KIND_NAME) {
        return find_value(r, in->name, &b->value, e);
    }
    if (in->kind_case == ML__BINDING__KIND_VALUE) {
        return value_read(r, in->value, &b->imm, e);
    }
    return err_set(e, ERR_MIL_INVALID, "an empty binding");
}

static int read_arg(struct reader *r, const Ml__ArgumentEntry *in,
                    struct mil_arg *arg, struct err *e)
{
    arg->name = arena_str(&r->p->arena, in->key);
    arg->n = in->value != NULL ? in->value->n_arguments : 0;
    arg->b = arena_array(&r->p->arena, arg->n, sizeof(*arg->b));
    if (arg->name == NULL || arg->b == NULL) {
        return no_memory(e);
    }
    if (arg->n == 0) {
        int rc = err_set(e, ERR_MIL_INVALID, "nothing is bound");
        return err_prefix(e, rc, "operand %s", arg->name);
    }
    for (size_t i = 0; i < arg->n; i++) {
        int rc = read_binding(r, in->value->arguments[i], &arg->b[i], e);
        if (rc < 0) {
            return err_prefix(e, rc, "operand %s", arg->name);
        }
    }
    return 0;
}

static int read_args(struct reader *r, const Ml__Operation *in,
                     struct mil_op *op, struct err *e)
{
    op->args = arena_array(&r->p->arena, in->n_inputs, sizeof(*op->args));
    if (op->args == NULL) {
        return no_memory(e);
    }
    for (size_t i = 0; i < in->n_inputs; i++) {
        if (mil_op_arg(op, in->inputs[i]->key) != NULL) {
            return err_set(e, ERR_MIL_INVALID, "operand %s is given twice",
                           in->inputs[i]->key);
        }
        int rc = read_arg(r, in->inputs[i], &op->args[i], e);
        if (rc < 0) {
            return rc;
        }
        op->n_args = i + 1;
    }
    return 0;
}

static int read_attrs(struct reader *r, const Ml__Operation *in,
                      struct mil_op *op, struct err *e)
{
    op->attrs = arena_array(&r->p->arena, in->n_attributes, sizeof(*op->attrs));
    if (op->attrs == NULL) {
        return no_memory(e);
    }
    for (size_t i = 0; i < in->n_attributes; i++) {
        const Ml__ValueEntry *from = in->attributes[i];
        for (size_t k = 0; k < i; k++) {
            if (strcmp(op->attrs[k].name, from->key) == 0) {
                return err_set(e, ERR_MIL_INVALID,
                               "attribute %s is given twice", from->key);
            }
        }
        op->attrs[i].name = arena_str(&r->p->arena, from->key);
        if (op->attrs[i].name == NULL) {
            return no_memory(e);
        }
        int rc = from->value != NULL
                     ? value_read(r, from->value, &op->attrs[i].val, e)
                     : err_set(e, ERR_MIL_INVALID, "no value");
        if (rc < 0) {
            return err_prefix(e, rc, "attribute %s", from->key);
        }
        op->n_attrs = i + 1;
    }
    return 0;
}

static int read_block(struct reader *r, const Ml__Block *in, unsigned depth,
                      struct mil_block **ret, struct err *e);

static int read_inner_blocks(struct reader *r, const Ml__Operation *in,
                             struct mil_op *op, unsigned depth, struct err *e)
{
    if (in->n_blocks == 0) {
        return 0;
    }
    if (depth >= MIL_NEST_MAX) {
        return err_set(e, ERR_TOO_BIG, "blocks nested deeper than %d",
                       MIL_NEST_MAX);
    }
    op->blocks = arena_array(&r->p->arena, in->n_blocks, sizeof(*op->blocks));
    if (op->blocks == NULL) {
        return no_memory(e);
    }
    for (size_t i = 0; i < in->n_blocks; i++) {
        const ProtobufCBinaryData *b = &in->blocks[i];
        const Ml__Block *block = ml__block__unpack(&r->alloc, b->len, b->data);
        if (block == NULL) {
            return err_set(e, ERR_PKG_PROTOBUF, "block %zu is malformed", i);
        }
        int rc = read_block(r, block, depth + 1, &op->blocks[i], e);
        if (rc < 0) {
            return rc;
        }
        op->n_blocks = i + 1;
    }
    return 0;
}

static int read_op_parts(struct reader *r, const Ml__Operation *in,
                         struct mil_op *op, unsigned depth, struct err *e)
{
    if (in->n_inputs > MIL_ARGS_MAX || in->n_attributes > MIL_ARGS_MAX ||
        in->n_blocks > MIL_ARGS_MAX) {
        return err_set(e, ERR_TOO_BIG,
                       "more than %d operands, attributes or "
                       "blocks",
                       MIL_ARGS_MAX);
    }
    RETERR(read_args(r, in, op, e));
    RETERR(read_attrs(r, in, op, e));
    RETERR(read_inner_blocks(r, in, op, depth, e));
    RETERR(read_values(r, in->outputs, in->n_outputs, op, &op->outputs, e));
    op->n_outputs = in->n_outputs;
    return 0;
}

static int read_op(struct reader *r, const Ml__Operation *in, unsigned depth,
                   struct mil_op **ret, struct err *e)
{
    if (++r->n_ops > MIL_OPS_MAX) {
        return err_set(e, ERR_TOO_BIG, "more than %u operations", MIL_OPS_MAX);
    }
    struct mil_op *op = arena_alloc(&r->p->arena, sizeof(*op));
    if (op == NULL) {
        return no_memory(e);
    }
    int rc = read_name(r, in->type, "operation type", &op->type, e);
    if (rc < 0) {
        return rc;
    }
    rc = read_op_parts(r, in, op, depth, e);
    if (rc < 0) {
        const char *name = in->n_outputs > 0 ? in->outputs[0]->name : "";
        return err_prefix(e, rc, "op %s (%s)", name, op->type);
    }
    *ret = op;
    return 0;
}

/* The block's names are no longer visible; other blocks may take them. */
static void hide(struct reader *r, const struct mil_block *b)
{
    for (size_t i = 0; i < b->n_inputs; i++) {
        names_find(&r->names, b->inputs[i]->name)->hidden = true;
    }
    for (size_t i = 0; i < b->n_ops; i++) {
        for (size_t k = 0; k < b->ops[i]->n_outputs; k++) {
            names_find(&r->names, b->ops[i]->outputs[k]->name)->hidden = true;
        }
    }
}

static int read_block(struct reader *r, const Ml__Block *in, unsigned depth,
                      struct mil_block **ret, struct err *e)
{
    struct arena *a = &r->p->arena;
    struct mil_block *b = arena_alloc(a, sizeof(*b));
    if (b == NULL) {
        return no_memory(e);
    }
    int rc = read_values(r, in->inputs, in->n_inputs, NULL, &b->inputs, e);
    if (rc < 0) {
        return rc;
    }
    b->n_inputs = in->n_inputs;
    b->ops = arena_array(a, in->n_operations, sizeof(*b->ops));
    b->outputs = arena_array(a, in->n_outputs, sizeof(*b->outputs));
    if (b->ops == NULL || b->outputs == NULL) {
        return no_memory(e);
    }
    for (size_t i = 0; i < in->n_operations; i++) {
        rc = read_op(r, in->operations[i], depth, &b->ops[i], e);
        if (rc < 0) {
            return rc;
        }
        b->n_ops = i + 1;
    }
    for (size_t i = 0; i < in->n_outputs; i++) {
        rc = find_value(r, in->outputs[i], &b->outputs[i], e);
        if (rc < 0) {
            return err_prefix(e, rc, "block output %zu", i);
        }
        b->n_outputs = i + 1;
    }
    if (depth > 0) {
        hide(r, b);
    }
    *ret = b;
    return 0;
}

static int read_function_parts(struct reader *r, const Ml__Function *in,
                               struct mil_function *f, struct err *e)
{
    f->opset = arena_str(&r->p->arena, in->opset);
    if (f->opset == NULL) {
        return no_memory(e);
    }
    if (in->n_inputs > 2 * MIL_FEATURES_MAX) {
        return err_set(e, ERR_TOO_BIG, "%zu inputs", in->n_inputs);
    }
    int rc = read_values(r, in->inputs, in->n_inputs, NULL, &f->inputs, e);
    if (rc < 0) {
        return rc;
    }
    f->n_inputs = in->n_inputs;
    for (size_t i = 0; i < in->n_blocks; i++) {
        if (strcmp(in->blocks[i]->key, in->opset) == 0 &&
            in->blocks[i]->value != NULL) {
            return read_block(r, in->blocks[i]->value, 0, &f->body, e);
        }
    }
    return err_set(e, ERR_MIL_INVALID,
                   "no block_specializations for its opset \"%s\"", in->opset);
}

static int read_function(struct reader *r, const Ml__FunctionEntry *in,
                         struct mil_function **ret, struct err *e)
{
    struct mil_function *f = arena_alloc(&r->p->arena, sizeof(*f));
    if (f == NULL) {
        return no_memory(e);
    }
    int rc = read_name(r, in->key, "function", &f->name, e);
    if (rc < 0) {
        return rc;
    }
    if (mil_function_find(r->p, f->name) != NULL || in->value == NULL) {
        return err_set(e, ERR_MIL_INVALID,
                       "function %s is empty or twice "
                       "there",
                       f->name);
    }
    names_fini(&r->names);
    r->n_values = 0;
    r->n_ops = 0;
    rc = read_function_parts(r, in->value, f, e);
    if (rc < 0) {
        return err_prefix(e, rc, "function %s", f->name);
    }
    f->n_values = r->n_values;
    *ret = f;
    return 0;
}

static int read_program(struct reader *r, const Ml__Program *in, struct err *e)
{
    struct mil_program *p = r->p;
    if (in->version != 1) {
        return err_set(e, ERR_MIL_INVALID, "program version %lld, not 1",
                       (long long)in->version);
    }
    if (in->n_functions == 0 || in->n_functions > MIL_FUNCTIONS_MAX) {
        return err_set(e, ERR_MIL_INVALID, "%zu functions", in->n_functions);
    }
    p->functions =
        arena_array(&p->arena, in->n_functions, sizeof(*p->functions));
    if (p->functions == NULL) {
        return no_memory(e);
    }
    for (size_t i = 0; i < in->n_functions; i++) {
        int rc = read_function(r, in->functions[i], &p->functions[i], e);
        if (rc < 0) {
            return rc;
        }
        p->n_functions = i + 1;
    }
    return 0;
}

static int read_model(struct reader *r, const Ml__Model *m, struct err *e)
{
    r->p->spec_version = m->specification_version;
    if (mil_opset(m->specification_version) == NULL) {
        return err_set(e, ERR_PKG_UNSUPPORTED,
                       "specification version %d is not one of ML Programs",
                       (int)m->specification_version);
    }
    if (m->ml_program == NULL || m->is_updatable) {
        return err_set(e, ERR_PKG_UNSUPPORTED,
                       m->ml_program == NULL ? "the model is no ML Program"
                                             : "the model is updatable");
    }
    if (m->description == NULL) {
        return err_set(e, ERR_MIL_INVALID, "the model has no description");
    }
    int rc = read_program(r, m->ml_program, e);
    return rc < 0 ? rc : describe_read(r, m->description, e);
}

int spec_read(struct mil_program *p, const void *bytes, size_t n,
              struct weights weights, struct err *e)
{
    if (n > MIL_SPEC_BYTES_MAX) {
        return err_set(e, ERR_TOO_BIG, "a specification of %zu bytes", n);
    }
    size_t limit = n * MIL_MEMORY_FACTOR + KIB(64);
    struct reader r = {.p = p, .weights = weights};
    arena_init(&r.scratch, limit);
    arena_init(&p->arena, limit);
    r.alloc = (ProtobufCAllocator){pb_alloc, pb_free, &r.scratch};
    int rc = 0;
    const Ml__Model *m = ml__model__unpack(&r.alloc, n, bytes);
    if (m == NULL) {
        rc = err_set(e, ERR_PKG_PROTOBUF, "%zu bytes that are no Model", n);
        goto out;
    }
    rc = read_model(&r, m, e);
out:
    names_fini(&r.names);
    arena_fini(&r.scratch);
    return rc;
}
