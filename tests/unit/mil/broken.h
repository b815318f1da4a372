/* broken.h - the worked example, written once, read again with one thing
 * changed. Each row names the change and what refuses it. */
#pragma once

#include <unistd.h> /* mkdtemp of macOS */

#include "../unit.h"
#include "base/file.h"
#include "example.h"
#include "mil/impl.h"

static char dir[64];
static struct buf spec;            /* the example's */
static struct file_map weight_map; /* its weight.bin */

static inline int write_example(void **state)
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

static inline int remove_example(void **state)
{
    (void)state;
    struct err e = {0};
    buf_fini(&spec);
    file_unmap(&weight_map);
    return file_rmtree(dir, &e);
}

static inline int find(void *ctx, const char *rel, const struct file_map **ret,
                       struct err *e)
{
    (void)ctx;
    if (strcmp(rel, "weights/weight.bin") != 0) {
        return err_set(e, ERR_PKG_MISSING, "%s", rel);
    }
    *ret = &weight_map;
    return 0;
}

static inline int parse(const void *bytes, size_t n, struct mil_program **ret,
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

static inline struct mil_op *op_of(struct mil_program *p, const char *type)
{
    for (size_t i = 0; i < MAIN(p)->body->n_ops; i++) {
        if (strcmp(MAIN(p)->body->ops[i]->type, type) == 0) {
            return MAIN(p)->body->ops[i];
        }
    }
    fail_msg("no %s", type);
    abort(); /* fail_msg does not return; the compiler must know */
}

static inline struct mil_value *value_of(struct mil_program *p,
                                         const char *name)
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

static inline struct mil_arg *arg_of(struct mil_op *op, const char *name)
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
static inline struct mil_const *const_of(struct mil_program *p,
                                         const char *name)
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

static inline struct mil_const *inline_of(struct mil_program *p,
                                          const char *type, const char *name)
{
    struct mil_arg *a = arg_of(op_of(p, type), name);
    struct mil_const *c = arena_alloc(&p->arena, sizeof(*c));
    must(c != NULL);
    *c = *a->b[0].imm;
    a->b[0].imm = c;
    return c;
}

#define BREAK(name) static inline void name(struct mil_program *p)

BREAK(nothing)
{
    (void)p;
}

struct row {
    const char *why;
    void (*change)(struct mil_program *p);
    int rc;
    const char *text;
};

/* rc 0: must be taken. */
static inline void check(const struct row *r, int rc, const struct err *e)
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

/* Change the example as each row says, and validate. */
static inline void check_rows(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct mil_program *p = NULL;
        struct err e = {0};
        unit_ok(parse(spec.p, spec.n, &p, &e), &e);
        rows[i].change(p);
        check(&rows[i], mil_validate(p, &e), &e);
        mil_free(p);
    }
}
