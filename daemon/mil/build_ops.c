/* build_ops.c - appending operations; output types come from mil_infer. */
#include <stdarg.h>
#include <string.h>

#include "mil/build.h"
#include "mil/sig.h"

static void add_arg(struct mil_program *p, struct mil_op *op, const char *name,
                    size_t n, const struct mil_binding *b)
{
    struct mil_arg *a = &op->args[op->n_args++];
    a->name = build_keep(p, name);
    a->n = n;
    a->b = build_take(p, n, sizeof(*a->b));
    memcpy(a->b, b, n * sizeof(*b));
}

static void add_value(struct mil_program *p, struct mil_op *op,
                      const char *name, struct mil_value *v)
{
    add_arg(p, op, name, 1, &(struct mil_binding){.value = v});
}

/* A mistake of our emitter: say which before must() ends us. */
static void mistake(const struct mil_op *op, const char *what)
{
    (void)fprintf(stderr, "aned: builder: %s %s: %s\n", op->type,
                  mil_const_str(op->attrs[0].val), what);
}

/* Facts 5.0: operands with a default are given, whatever a loader fills in. */
static void check_defaults(struct mil_program *p, const struct mil_op *op)
{
    bool known = false;
    const struct sig *s = sig_find(op->type, p->spec_version, &known);
    must(s != NULL);
    for (const struct sig_operand *o = s->operands; o->name != NULL; o++) {
        if ((o->flags & SIG_DEFAULT) != 0 && mil_op_arg(op, o->name) == NULL) {
            mistake(op, o->name);
            must((o->flags & SIG_DEFAULT) == 0);
        }
    }
}

/* Infer the outputs of an op that has all its operands. One output is called
 * `out` (op's own name), several out_0, out_1 ... */
static void finish_op(struct mil_program *p, struct mil_function *f,
                      struct mil_op *op, const char *out)
{
    struct err e = {0};
    size_t n = 0;
    if (mil_infer(op, p->spec_version, NULL, 0, &n, &e) < 0) {
        mistake(op, e.msg);
        must(e.code == 0);
    }
    check_defaults(p, op);
    struct mil_type *types = build_take(p, n, sizeof(*types));
    must(mil_infer(op, p->spec_version, types, n, &n, &e) == 0);
    op->outputs = build_take(p, n, sizeof(*op->outputs));
    op->n_outputs = n;
    for (size_t i = 0; i < n; i++) {
        const char *name = out;
        if (n > 1) {
            const char *hint = arena_printf(&p->arena, "%s_%zu", out, i);
            must(hint != NULL);
            name = build_unique(p, f, hint);
        }
        op->outputs[i] = build_value(p, f, name, &types[i], op, (int)i);
    }
}

static struct mil_op *start_op(struct mil_program *p, struct mil_function *f,
                               const char *type, const char *out, size_t n_args,
                               const char **ret_name)
{
    *ret_name = build_unique(p, f, out);
    struct mil_op *op = build_op(p, f, type, *ret_name);
    op->args = build_take(p, n_args, sizeof(*op->args));
    return op;
}

struct mil_value *mil_op(struct mil_program *p, struct mil_function *f,
                         const char *type, const char *out, ...)
{
    const char *name = NULL;
    struct mil_op *op = start_op(p, f, type, out, MIL_ARGS_MAX / 4, &name);
    va_list ap;
    va_start(ap, out);
    for (const char *arg = NULL; (arg = va_arg(ap, const char *)) != NULL;) {
        struct mil_value *v = va_arg(ap, struct mil_value *);
        must(op->n_args < MIL_ARGS_MAX / 4);
        if (v != NULL) {
            add_value(p, op, arg, v);
        }
    }
    va_end(ap);
    finish_op(p, f, op, name);
    return op->n_outputs > 0 ? op->outputs[0] : NULL;
}

struct mil_value *mil_concat(struct mil_program *p, struct mil_function *f,
                             const char *out, size_t n,
                             struct mil_value *const *v, int32_t axis)
{
    const char *name = NULL;
    struct mil_value *at = mil_i32(p, f, axis);
    struct mil_value *no = mil_bool(p, f, false);
    struct mil_op *op = start_op(p, f, "concat", out, 3, &name);
    struct mil_binding *b = build_take(p, n, sizeof(*b));
    for (size_t i = 0; i < n; i++) {
        b[i].value = v[i];
    }
    add_arg(p, op, "values", n, b);
    add_value(p, op, "axis", at);
    add_value(p, op, "interleave", no);
    finish_op(p, f, op, name);
    return op->outputs[0];
}

void mil_split(struct mil_program *p, struct mil_function *f, const char *out,
               struct mil_value *x, size_t n, int32_t axis,
               struct mil_value **ret)
{
    const char *name = NULL;
    struct mil_value *parts = mil_i32(p, f, (int32_t)n);
    struct mil_value *at = mil_i32(p, f, axis);
    struct mil_op *op = start_op(p, f, "split", out, 3, &name);
    add_value(p, op, "x", x);
    add_value(p, op, "num_splits", parts);
    add_value(p, op, "axis", at);
    finish_op(p, f, op, name);
    must(op->n_outputs == n);
    memcpy(ret, op->outputs, n * sizeof(*ret));
}

/* An op of two constants, written in place. */
static struct mil_value *of_constants(struct mil_program *p,
                                      struct mil_function *f, const char *type,
                                      const char *out, const char *const *names,
                                      const struct mil_const *const *values)
{
    const char *name = NULL;
    struct mil_op *op = start_op(p, f, type, out, 2, &name);
    for (size_t i = 0; i < 2; i++) {
        add_arg(p, op, names[i], 1, &(struct mil_binding){.imm = values[i]});
    }
    finish_op(p, f, op, name);
    return op->outputs[0];
}

struct mil_value *mil_dequant(struct mil_program *p, struct mil_function *f,
                              const char *out, const struct mil_const *data,
                              const struct mil_const *scale)
{
    static const char *const names[] = {"data", "scale"};
    const struct mil_const *const values[] = {data, scale};
    return of_constants(p, f, "constexpr_blockwise_shift_scale", out, names,
                        values);
}

struct mil_value *mil_look_up(struct mil_program *p, struct mil_function *f,
                              const char *out, const struct mil_const *indices,
                              const struct mil_const *lut)
{
    static const char *const names[] = {"indices", "lut"};
    const struct mil_const *const values[] = {indices, lut};
    return of_constants(p, f, "constexpr_lut_to_dense", out, names, values);
}

struct mil_value *mil_conv1x1(struct mil_program *p, struct mil_function *f,
                              const char *out, struct mil_value *x,
                              struct mil_value *weight, struct mil_value *bias)
{
    static const int32_t ones[] = {1, 1};
    static const int32_t zeros[] = {0, 0, 0, 0};
    struct mil_value *one2 = mil_i32s(p, f, 2, ones);
    struct mil_value *pad = mil_i32s(p, f, 4, zeros);
    struct mil_value *valid = mil_str(p, f, "valid");
    struct mil_value *one = mil_i32(p, f, 1);
    return mil_op(p, f, "conv", out, "x", x, "weight", weight, "bias", bias,
                  "strides", one2, "pad_type", valid, "pad", pad, "dilations",
                  one2, "groups", one, NULL);
}

struct mil_value *mil_state_read(struct mil_program *p, struct mil_function *f,
                                 const char *out, struct mil_value *state)
{
    return mil_op(p, f, "read_state", out, "input", state, NULL);
}

struct mil_value *mil_state_write(struct mil_program *p, struct mil_function *f,
                                  const char *out, struct mil_value *state,
                                  struct mil_value *r0,
                                  struct mil_value *update)
{
    must(r0->def != NULL && strcmp(r0->def->type, "read_state") == 0 &&
         mil_op_value(r0->def, "input") == state);
    int32_t zeros[MIL_RUNTIME_RANK_MAX] = {0};
    int32_t ones[MIL_RUNTIME_RANK_MAX];
    bool no[MIL_RUNTIME_RANK_MAX] = {false};
    bool begin[MIL_RUNTIME_RANK_MAX];
    bool end[MIL_RUNTIME_RANK_MAX];
    size_t n = (size_t)state->type.rank;
    for (size_t i = 0; i < n; i++) {
        ones[i] = 1;
        begin[i] = i > 0; /* the torch converter's spelling of `state[:] =` */
        end[i] = true;
    }
    struct mil_value *zero = mil_i32s(p, f, n, zeros);
    struct mil_value *stride = mil_i32s(p, f, n, ones);
    struct mil_value *begin_mask = mil_bools(p, f, n, begin);
    struct mil_value *end_mask = mil_bools(p, f, n, end);
    struct mil_value *squeeze = mil_bools(p, f, n, no);
    const char *updated = arena_printf(&p->arena, "%s_updated", out);
    must(updated != NULL);
    struct mil_value *u =
        mil_op(p, f, "slice_update", updated, "x", r0, "update", update,
               "begin", zero, "end", zero, "stride", stride, "begin_mask",
               begin_mask, "end_mask", end_mask, "squeeze_mask", squeeze, NULL);
    const char *write = arena_printf(&p->arena, "%s_write_state", u->name);
    must(write != NULL);
    (void)mil_op(p, f, "write_state", write, "input", state, "data", u, NULL);
    return mil_state_read(p, f, out, state);
}
