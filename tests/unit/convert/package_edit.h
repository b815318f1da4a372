/* package_edit.h - changes a converted package as a faulty emitter would have
 * written it: operations get other types and operands. */
#pragma once

#include "base/half.h"
#include "coreml.pb-c.h"
#include "room.h"

struct edit {
    Ml__Model *m;
    Ml__Block *b; /* of the function that is being changed */
    char file[2048];
};

static inline void edit_open(struct edit *x, const char *package)
{
    struct buf text = {0};
    struct err e = {0};
    (void)snprintf(x->file, sizeof(x->file),
                   "%s/%s/Data/com.apple.CoreML/model.mlmodel", at("b"),
                   package);
    unit_ok(file_read(x->file, MIB(64), &text, &e), &e);
    x->m = ml__model__unpack(NULL, text.n, (const uint8_t *)text.p);
    buf_fini(&text);
    assert_non_null(x->m);
}

/* NULL: the only function. */
static inline void edit_function(struct edit *x, const char *name)
{
    x->b = NULL;
    for (size_t i = 0; i < x->m->ml_program->n_functions; i++) {
        Ml__FunctionEntry *f = x->m->ml_program->functions[i];
        if (name == NULL || strcmp(f->key, name) == 0) {
            x->b = f->value->blocks[0]->value;
        }
    }
    assert_non_null(x->b);
}

static inline void edit_close(struct edit *x)
{
    struct err e = {0};
    size_t n = ml__model__get_packed_size(x->m);
    uint8_t *p = malloc(n);
    assert_non_null(p);
    assert_int_equal(ml__model__pack(x->m, p), n);
    unit_ok(file_write(x->file, p, n, &e), &e);
    free(p);
    ml__model__free_unpacked(x->m, NULL);
}

static inline void edit_text(char **to, const char *text)
{
    free(*to);
    *to = strdup(text);
    must(*to != NULL);
}

/* The operation whose first result is `name`; write_state has none: the one
 * that writes the state of that name. */
static inline Ml__Operation *edit_op(struct edit *x, const char *name)
{
    for (size_t i = 0; i < x->b->n_operations; i++) {
        Ml__Operation *o = x->b->operations[i];
        if (o->n_outputs > 0 && strcmp(o->outputs[0]->name, name) == 0) {
            return o;
        }
        for (size_t k = 0; o->n_outputs == 0 && k < o->n_inputs; k++) {
            const Ml__Binding *b = o->inputs[k]->value->arguments[0];
            if (strcmp(o->inputs[k]->key, "input") == 0 &&
                strcmp(b->name, name) == 0) {
                return o;
            }
        }
    }
    fail_msg("there is no %s", name);
    abort(); /* not reached: fail_msg does not return */
}

static inline void edit_type(struct edit *x, const char *op, const char *type)
{
    edit_text(&edit_op(x, op)->type, type);
}

static inline void edit_arg(struct edit *x, const char *op, const char *key,
                            const char *value)
{
    Ml__Operation *o = edit_op(x, op);
    for (size_t i = 0; i < o->n_inputs; i++) {
        if (strcmp(o->inputs[i]->key, key) == 0) {
            edit_text(&o->inputs[i]->value->arguments[0]->name, value);
            return;
        }
    }
    fail_msg("%s has no %s", op, key);
}

/* Whoever reads `from` reads `to`. */
static inline void edit_uses(struct edit *x, const char *from, const char *to)
{
    size_t n = 0;
    for (size_t i = 0; i < x->b->n_operations; i++) {
        Ml__Operation *o = x->b->operations[i];
        for (size_t k = 0; k < o->n_inputs; k++) {
            Ml__Argument *a = o->inputs[k]->value;
            for (size_t j = 0; j < a->n_arguments; j++) {
                Ml__Binding *b = a->arguments[j];
                if (b->kind_case == ML__BINDING__KIND_NAME &&
                    strcmp(b->name, from) == 0) {
                    edit_text(&b->name, to);
                    n++;
                }
            }
        }
    }
    assert_true(n > 0);
}

/* A copy of the constant that op reads as `key`, for it alone, with its bytes
 * `from` as `to`: found behind the type, in the immediate value. */
static inline void edit_constant(struct edit *x, const char *op,
                                 const char *key, uint8_t from, uint8_t to)
{
    Ml__Operation *o = edit_op(x, op);
    size_t at_op = 0;
    Ml__Operation *c = NULL;
    for (size_t i = 0; i < o->n_inputs; i++) {
        if (strcmp(o->inputs[i]->key, key) == 0) {
            c = edit_op(x, o->inputs[i]->value->arguments[0]->name);
        }
    }
    assert_non_null(c);
    uint8_t packed[512];
    size_t n = ml__operation__get_packed_size(c);
    assert_true(n <= sizeof(packed));
    assert_int_equal(ml__operation__pack(c, packed), n);
    size_t hit = n; /* the value stands last */
    while (hit > 0 && packed[hit - 1] != from) {
        hit--;
    }
    assert_true(hit > 0);
    packed[hit - 1] = to;
    c = ml__operation__unpack(NULL, n, packed);
    assert_non_null(c);
    edit_text(&c->outputs[0]->name, "planted");
    while (x->b->operations[at_op] != o) {
        at_op++;
    }
    size_t all = ++x->b->n_operations;
    x->b->operations = realloc(x->b->operations, all * sizeof(Ml__Operation *));
    assert_non_null(x->b->operations);
    memmove(x->b->operations + at_op + 1, x->b->operations + at_op,
            (all - 1 - at_op) * sizeof(Ml__Operation *));
    x->b->operations[at_op] = c;
    edit_arg(x, op, key, "planted");
}

/* op gives what has the type of `like`'s result. */
static inline void edit_result(struct edit *x, const char *op, const char *like)
{
    uint8_t packed[256];
    Ml__NamedType *to = edit_op(x, op)->outputs[0];
    const Ml__NamedType *from = edit_op(x, like)->outputs[0];
    size_t n = ml__value_type__get_packed_size(from->type);
    must(n <= sizeof(packed));
    assert_int_equal(ml__value_type__pack(from->type, packed), n);
    ml__value_type__free_unpacked(to->type, NULL);
    to->type = ml__value_type__unpack(NULL, n, packed);
    must(to->type != NULL);
}

/* Each fp16 number of a constant in weight.bin, changed. */
static inline void edit_weights(const char *package, const char *name,
                                uint16_t (*fn)(uint16_t))
{
    struct mil_program *p = NULL;
    struct err e = {0};
    struct buf text = {0};
    char path[2048];
    (void)snprintf(path, sizeof(path), "%s/%s", at("b"), package);
    unit_ok(mil_read(path, &p, &e), &e);
    const struct mil_const *c = NULL;
    const struct mil_block *b = p->functions[0]->body;
    for (size_t i = 0; i < b->n_ops; i++) {
        if (b->ops[i]->n_outputs > 0 &&
            strcmp(b->ops[i]->outputs[0]->name, name) == 0) {
            c = mil_value_const(b->ops[i]->outputs[0]);
        }
    }
    must(c != NULL && c->type.dtype == MIL_FP16 && p->n_maps == 1);
    size_t from =
        (size_t)((const uint8_t *)c->data - (const uint8_t *)p->maps[0].p);
    size_t n = (size_t)c->bytes;
    mil_free(p);
    (void)snprintf(path, sizeof(path),
                   "%s/%s/Data/com.apple.CoreML/weights/weight.bin", at("b"),
                   package);
    unit_ok(file_read(path, MIB(64), &text, &e), &e);
    assert_true(from + n <= text.n);
    for (size_t i = 0; i < n; i += 2) {
        uint16_t h = 0;
        memcpy(&h, text.p + from + i, 2);
        h = fn(h);
        memcpy(text.p + from + i, &h, 2);
    }
    unit_ok(file_write(path, text.p, text.n, &e), &e);
    buf_fini(&text);
}
