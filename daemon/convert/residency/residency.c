/* residency.c - the walk over a program: every operation judged, then what the
 * whole forbids, then the sums. */
#include <ctype.h>
#include <string.h>

#include "convert/residency/rules.h"

const char *predict_word(enum predict_verdict v)
{
    static const char *const words[] = {"off", "unknown", "on"};
    return words[v];
}

/* "m4-max" is 4. A profile of no chip is law or stricter: the oldest. */
static unsigned chip_of(const char *profile)
{
    return profile[0] == 'm' && isdigit((unsigned char)profile[1]) != 0
               ? (unsigned)(profile[1] - '0')
               : 1;
}

int predict_limits(const char *profile, struct predict_limits *ret,
                   struct err *e)
{
    struct plan_profile p = {0};
    RETERR(plan_profile(profile, &p, e));
    if (!p.chip) { /* a Neural Engine may meet it all the same */
        RETERR(plan_profile(NULL, &p, e));
    }
    *ret = (struct predict_limits){.program_bytes = p.program_bytes,
                                   .states = p.states,
                                   .head_rows = p.head_rows,
                                   .axis = p.axis,
                                   .chip = chip_of(p.name)};
    (void)snprintf(ret->profile, sizeof(ret->profile), "%s", p.name);
    return 0;
}

/* --- the walk --- */

struct walk {
    struct predict_function *to;
    const struct predict_limits *l;
    size_t cap;
    int64_t rows; /* of a ranged axis, by default */
    uint8_t *uses;
    size_t *reads;
    double *bytes; /* of each operation */
};

static void visit(const struct mil_block *b, unsigned depth, void *ctx,
                  void (*fn)(void *ctx, const struct mil_op *op,
                             unsigned depth))
{
    for (size_t i = 0; i < b->n_ops; i++) {
        if (look_is_const(b->ops[i])) {
            continue;
        }
        fn(ctx, b->ops[i], depth);
        for (size_t k = 0; k < b->ops[i]->n_blocks; k++) {
            visit(b->ops[i]->blocks[k], depth + 1, ctx, fn);
        }
    }
}

static void note_uses(void *ctx, const struct mil_op *op, unsigned depth)
{
    struct walk *w = ctx;
    (void)depth;
    bool writes = look_is(op, "write_state");
    size_t at = w->to->n_ops++;
    for (size_t i = 0; i < op->n_args; i++) {
        bool data = writes && strcmp(op->args[i].name, "data") == 0;
        for (size_t k = 0; k < op->args[i].n; k++) {
            const struct mil_value *v = op->args[i].b[k].value;
            if (v != NULL) {
                w->uses[v->id] |= data ? USE_STATE : USE_OTHER;
            }
        }
    }
    const struct mil_value *s =
        look_is(op, "read_state") ? mil_op_value(op, "input") : NULL;
    if (s != NULL) {
        w->reads[s->id] = at + 1;
    }
}

/* --- bytes --- */

static double type_bytes(const struct mil_type *t, int64_t rows)
{
    double n = mil_dtype_bits(t->dtype) / 8.0;
    for (int i = 0; i < t->rank; i++) {
        n *= (double)(t->dims[i] == MIL_UNKNOWN ? rows : t->dims[i]);
    }
    return n;
}

/* Of a constant as stored: its operands, where it is compressed. depth ends a
 * chain of them. */
static double stored_bytes(const struct mil_op *made, unsigned depth)
{
    double n = 0;
    if (depth == 0) {
        return 0;
    }
    for (size_t i = 0; i < made->n_attrs; i++) {
        n += (double)made->attrs[i].val->bytes;
    }
    for (size_t i = 0; i < made->n_args; i++) {
        for (size_t k = 0; k < made->args[i].n; k++) {
            const struct mil_binding *b = &made->args[i].b[k];
            if (b->imm != NULL) {
                n += (double)b->imm->bytes;
            } else if (b->value->def != NULL) {
                n += stored_bytes(b->value->def, depth - 1);
            }
        }
    }
    return n;
}

/* These give the same bytes another name. */
static bool moves_nothing(const struct mil_op *op)
{
    return rule_word("reshape squeeze expand_dims read_state write_state",
                     op->type);
}

static double weight_bytes(const struct mil_op *op)
{
    double n = 0;
    for (size_t i = 0; i < op->n_args; i++) {
        for (size_t k = 0; k < op->args[i].n; k++) {
            const struct mil_value *v = op->args[i].b[k].value;
            if (v != NULL && v->def != NULL && look_is_const(v->def)) {
                n += stored_bytes(v->def, 4);
            }
        }
    }
    return n;
}

static double op_bytes(const struct mil_op *op, int64_t rows)
{
    double n = 0;
    if (moves_nothing(op)) {
        return 0;
    }
    for (size_t i = 0; i < op->n_outputs; i++) {
        n += type_bytes(&op->outputs[i]->type, rows);
    }
    for (size_t i = 0; i < op->n_args; i++) {
        for (size_t k = 0; k < op->args[i].n; k++) {
            const struct mil_value *v = op->args[i].b[k].value;
            if (v == NULL) {
                continue; /* a flag */
            }
            n += v->def != NULL && look_is_const(v->def)
                     ? stored_bytes(v->def, 4)
                     : type_bytes(&v->type, rows);
        }
    }
    return n;
}

/* --- one function --- */

static void judge(void *ctx, const struct mil_op *op, unsigned depth)
{
    struct walk *w = ctx;
    struct predict_function *to = w->to;
    struct predict_op *o = &to->ops[to->n_ops];
    struct look k = {.l = w->l,
                     .f = to->f,
                     .op = op,
                     .at = to->n_ops,
                     .depth = depth,
                     .uses = w->uses,
                     .reads = w->reads};
    const struct op_rule *r = rule_for(&k);
    *o = (struct predict_op){.op = op, .verdict = r->verdict, .rule = &r->is};
    memcpy(o->detail, k.detail, sizeof(o->detail));
    o->weights = weight_bytes(op);
    w->bytes[to->n_ops++] = op_bytes(op, w->rows);
}

static int64_t default_rows(const struct mil_function *f)
{
    for (size_t i = 0; i < f->n_in; i++) {
        const struct mil_feature *in = &f->in[i];
        for (int d = 0; in->has_range && d < in->type.rank; d++) {
            if (in->lo[d] != in->hi[d] && in->type.dims[d] > 0) {
                return in->type.dims[d];
            }
        }
    }
    return 1;
}

static void *take(size_t n, size_t size)
{
    void *p = calloc(n + 1, size); /* zero of them are fine */
    must(p != NULL);
    return p;
}

static void predict_one(const struct mil_function *f,
                        const struct predict_limits *l,
                        struct predict_function *to)
{
    struct walk w = {.to = to, .l = l, .rows = default_rows(f)};
    to->f = f;
    w.uses = take(f->n_values, sizeof(*w.uses));
    w.reads = take(f->n_values, sizeof(*w.reads));
    visit(f->body, 0, &w, note_uses);
    for (size_t i = 0; i < f->body->n_outputs; i++) {
        w.uses[f->body->outputs[i]->id] |= USE_OTHER;
    }
    to->ops = take(to->n_ops, sizeof(*to->ops));
    w.bytes = take(to->n_ops, sizeof(*w.bytes));
    to->n_ops = 0;
    visit(f->body, 0, &w, judge);
    for (size_t i = 0; i < to->n_ops; i++) {
        to->bytes += w.bytes[i];
    }
    for (size_t i = 0; i < to->n_ops; i++) {
        to->ops[i].cost = to->bytes > 0 ? w.bytes[i] / to->bytes : 0;
    }
    find_in_function(f, l, &to->findings);
    free(w.uses);
    free(w.reads);
    free(w.bytes);
}

/* What is not accepted as a whole has no operation there. */
static void take_along(struct predict_function *to,
                       const struct predict_findings *why)
{
    for (size_t i = 0; i < why->n; i++) {
        const struct predict_finding *x = &why->of[i];
        for (size_t k = 0; x->verdict == PREDICT_OFF && k < to->n_ops; k++) {
            struct predict_op *o = &to->ops[k];
            if (o->verdict != PREDICT_OFF) {
                o->verdict = PREDICT_OFF;
                o->rule = x->rule;
                memcpy(o->detail, x->detail, sizeof(o->detail));
            }
        }
    }
}

static void sum(struct predict_function *to)
{
    for (size_t i = 0; i < to->n_ops; i++) {
        to->count[to->ops[i].verdict]++;
        to->cost[to->ops[i].verdict] += to->ops[i].cost;
    }
    if (to->n_ops > 0 && to->count[PREDICT_ON] == to->n_ops &&
        to->cost[PREDICT_ON] > 0) {
        to->cost[PREDICT_ON] = 1; /* what a long sum misses by */
    }
}

void predict_program(const struct mil_program *p, uint64_t weight_bytes,
                     const struct predict_limits *l, struct prediction *ret)
{
    *ret = (struct prediction){
        .limits = *l,
        .p = p,
        .weight_bytes = weight_bytes != 0 ? weight_bytes : p->weight_bytes,
        .n = p->n_functions,
        .f = take(p->n_functions, sizeof(*ret->f)),
    };
    find_in_program(p, ret->weight_bytes, l, &ret->findings);
    for (size_t i = 0; i < ret->n; i++) {
        struct predict_function *to = &ret->f[i];
        predict_one(p->functions[i], l, to);
        take_along(to, &to->findings);
        take_along(to, &ret->findings);
        sum(to);
    }
}

void predict_free(struct prediction *v)
{
    for (size_t i = 0; i < v->n; i++) {
        free(v->f[i].ops);
    }
    free(v->f);
    *v = (struct prediction){0};
}

void predict_reason(const struct predict_rule *rule, const char *detail,
                    char *out, size_t size)
{
    (void)snprintf(out, size, "%s: %s%s%s", rule->id, rule->reason,
                   detail[0] != '\0' ? ": " : "", detail);
}
