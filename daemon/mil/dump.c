/* dump.c - a program as text for people: one op a line, in program order.
 *
 *   %y: fp16[1,4,?,1] = conv(x=%x, weight=%w, groups=1)
 *
 * A constant is its type, up to ELEMENTS of its elements, and its place in the
 * weight file; a scalar is just its value.
 */
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "mil/impl.h"
#include "proto/json.h"

#define ELEMENTS 8

static void put_type(struct buf *out, const struct mil_type *t)
{
    char text[MIL_RANK_MAX * 24 + 32];
    mil_type_print(t, text, sizeof(text));
    buf_puts(out, text);
}

static void put_string(struct buf *out, const char *s)
{
    json_put_string(out, s, strlen(s));
}

/* Element k of c, whose first ELEMENTS stand in one of the arrays. */
static void put_elements(struct buf *out, const struct mil_const *c, size_t n)
{
    int64_t ints[ELEMENTS];
    float floats[ELEMENTS];
    bool bools[ELEMENTS];
    size_t got = 0;
    struct mil_const head = *c;
    head.type = (struct mil_type){
        .dtype = c->type.dtype, .rank = 1, .dims = {(int64_t)n}};
    bool is_bool = mil_const_bools(&head, bools, ELEMENTS, &got);
    bool is_int = !is_bool && mil_const_ints(&head, ints, ELEMENTS, &got);
    bool is_float =
        !is_bool && !is_int && mil_const_floats(&head, floats, ELEMENTS, &got);
    for (size_t k = 0; k < n; k++) {
        buf_puts(out, k > 0 ? ", " : "");
        if (c->type.dtype == MIL_STRING) {
            put_string(out, c->strings[k]);
        } else if (is_bool) {
            buf_puts(out, bools[k] ? "true" : "false");
        } else if (is_int) {
            buf_printf(out, "%" PRId64, ints[k]);
        } else if (is_float) {
            buf_printf(out, "%.9g", (double)floats[k]);
        } else {
            buf_puts(out, "?");
        }
    }
}

static void put_const(struct buf *out, const struct mil_const *c)
{
    uint64_t count = 0;
    if (c->type.dtype == MIL_NONE || !mil_type_count(&c->type, &count)) {
        buf_puts(out, "(no tensor)");
        return;
    }
    size_t n = count < ELEMENTS ? (size_t)count : ELEMENTS;
    bool scalar = c->type.rank == 0 && c->blob_file == NULL;
    if (!scalar) {
        put_type(out, &c->type);
        buf_puts(out, "{");
    }
    put_elements(out, c, n);
    if (!scalar) {
        buf_puts(out, count > n ? ", ...}" : "}");
    }
    if (c->blob_file != NULL) {
        const char *name = strrchr(c->blob_file, '/');
        buf_puts(out, "@");
        put_string(out, name != NULL ? name + 1 : c->blob_file);
        buf_printf(out, ":%" PRIu64, c->blob_offset);
    }
}

static void put_binding(struct buf *out, const struct mil_binding *b)
{
    if (b->imm != NULL) {
        put_const(out, b->imm);
    } else {
        buf_printf(out, "%%%s", b->value->name);
    }
}

static void put_args(struct buf *out, const struct mil_op *op)
{
    bool first = true;
    for (size_t i = 0; i < op->n_args; i++) {
        const struct mil_arg *a = &op->args[i];
        buf_printf(out, "%s%s=", first ? "" : ", ", a->name);
        buf_puts(out, a->n > 1 ? "(" : "");
        for (size_t k = 0; k < a->n; k++) {
            buf_puts(out, k > 0 ? ", " : "");
            put_binding(out, &a->b[k]);
        }
        buf_puts(out, a->n > 1 ? ")" : "");
        first = false;
    }
    for (size_t i = 0; i < op->n_attrs; i++) {
        if (strcmp(op->attrs[i].name, "name") == 0) {
            continue; /* says the output's name again */
        }
        buf_printf(out, "%s%s=", first ? "" : ", ", op->attrs[i].name);
        put_const(out, op->attrs[i].val);
        first = false;
    }
}

static void put_block(struct buf *out, const struct mil_block *b, int indent);

static void put_op(struct buf *out, const struct mil_op *op, int indent)
{
    buf_printf(out, "%*s", indent, "");
    for (size_t i = 0; i < op->n_outputs; i++) {
        buf_printf(out, "%s%%%s: ", i > 0 ? ", " : "", op->outputs[i]->name);
        put_type(out, &op->outputs[i]->type);
    }
    buf_printf(out, "%s%s(", op->n_outputs > 0 ? " = " : "", op->type);
    put_args(out, op);
    buf_puts(out, ")\n");
    for (size_t i = 0; i < op->n_blocks; i++) {
        put_block(out, op->blocks[i], indent + 2);
    }
}

static void put_block(struct buf *out, const struct mil_block *b, int indent)
{
    buf_printf(out, "%*sblock(", indent, "");
    for (size_t i = 0; i < b->n_inputs; i++) {
        buf_printf(out, "%s%%%s: ", i > 0 ? ", " : "", b->inputs[i]->name);
        put_type(out, &b->inputs[i]->type);
    }
    buf_puts(out, ") {\n");
    for (size_t i = 0; i < b->n_ops; i++) {
        put_op(out, b->ops[i], indent + 2);
    }
    buf_printf(out, "%*s} -> ", indent, "");
    for (size_t i = 0; i < b->n_outputs; i++) {
        buf_printf(out, "%s%%%s", i > 0 ? ", " : "", b->outputs[i]->name);
    }
    buf_puts(out, "\n");
}

static void put_bound(struct buf *out, int64_t hi)
{
    if (hi < 0) {
        buf_puts(out, "inf");
    } else {
        buf_printf(out, "%" PRId64, hi);
    }
}

static void put_feature(struct buf *out, const char *list,
                        const struct mil_feature *f)
{
    size_t rank = (size_t)f->type.rank;
    buf_printf(out, "  %s ", list);
    put_string(out, f->name);
    buf_puts(out, ": ");
    put_type(out, &f->type);
    for (size_t k = 0; f->has_range && k < rank; k++) {
        buf_printf(out, "%s%" PRId64 "..", k > 0 ? " x " : " range ", f->lo[k]);
        put_bound(out, f->hi[k]);
    }
    for (size_t i = 0; i < f->n_shapes; i++) {
        buf_puts(out, i > 0 ? "]" : " shapes");
        for (size_t k = 0; k < rank; k++) {
            buf_printf(out, "%s%" PRId64, k > 0 ? "," : " [",
                       f->shapes[i * rank + k]);
        }
    }
    buf_puts(out, f->n_shapes > 0 ? "]" : "");
    if (f->optional) {
        buf_printf(out, " optional, default %.9g", f->default_value);
    }
    buf_puts(out, "\n");
}

static void put_function(struct buf *out, const struct mil_function *f,
                         bool is_default)
{
    buf_printf(out, "function %s%s opset ", f->name,
               is_default ? " (default)" : "");
    put_string(out, f->opset);
    buf_puts(out, "\n");
    for (size_t i = 0; i < f->n_in; i++) {
        put_feature(out, "input", &f->in[i]);
    }
    for (size_t i = 0; i < f->n_states; i++) {
        put_feature(out, "state", &f->states[i]);
    }
    for (size_t i = 0; i < f->n_out; i++) {
        put_feature(out, "output", &f->out[i]);
    }
    for (size_t i = 0; i < f->n_inputs; i++) {
        buf_printf(out, "  %%%s: ", f->inputs[i]->name);
        put_type(out, &f->inputs[i]->type);
        buf_puts(out, "\n");
    }
    put_block(out, f->body, 2);
}

void mil_dump(const struct mil_program *p, struct buf *out)
{
    buf_printf(out, "program specification %d, %" PRIu64 " weight bytes\n",
               p->spec_version, p->weight_bytes);
    if (p->short_description != NULL) {
        buf_puts(out, "description ");
        put_string(out, p->short_description);
        buf_puts(out, "\n");
    }
    for (size_t i = 0; i < p->n_meta; i++) {
        buf_puts(out, "meta ");
        put_string(out, p->meta[i].key);
        buf_puts(out, " = ");
        put_string(out, p->meta[i].value);
        buf_puts(out, "\n");
    }
    for (size_t i = 0; i < p->n_functions; i++) {
        put_function(out, p->functions[i], i == p->default_function);
    }
}
