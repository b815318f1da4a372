/* eval_expr.c - expressions into values.
 *
 * eval() is called for each node of a path, so it and what it calls on the way
 * down keep their frames small: arguments and lists lie in the arena. */
#include <string.h>

#include "model/jinja/eval.h"
#include "model/jinja/text.h"

static int undefined(struct run *r, const struct val *v)
{
    return run_error(r, "'%.*s' is undefined", (int)(v->s.n < 60 ? v->s.n : 60),
                     v->s.p);
}

/* --- attributes and items --- */

static int macro_attr(const struct macro *m, struct span name, struct val *ret)
{
    *ret = span_is(name, "name")
               ? val_str(m->is_caller ? zspan("caller") : m->def->s)
               : val_undefined(name);
    return 0;
}

/* A method that is not called yet; MISSING: there is none of that name. */
static int method_of(struct run *r, const struct val *a, struct span name,
                     struct val *ret)
{
    const struct builtin *f = find_method(a, name);
    *ret = val_missing;
    if (f == NULL) {
        return 0;
    }
    if (f->fn == NULL) { /* the sandbox forbids it */
        *ret = val_undefined(name);
        return 0;
    }
    struct method *m = arena_alloc(r->arena, sizeof(*m));
    if (m == NULL) {
        return run_no_memory(r);
    }
    *m = (struct method){*a, f};
    *ret = (struct val){.kind = V_METHOD, .method = m};
    return run_charge(r, 0);
}

/* What Python's getattr finds; MISSING: nothing. */
static int python_attr(struct run *r, const struct val *a, struct span name,
                       struct val *ret)
{
    const struct val *v = NULL;
    RETERR(method_of(r, a, name, ret));
    if (ret->kind != V_MISSING) {
        return 0;
    }
    if (a->kind == V_LOOP) {
        RETERR(loop_attr(r, a->loop, name, ret));
    } else if (a->kind == V_MACRO) {
        RETERR(macro_attr(a->macro, name, ret));
    } else if (a->kind == V_NS && (v = dict_gets(a->dict, name)) != NULL) {
        *ret = *v;
    } else if (a->kind == V_TUPLE && span_is(a->list->label, "group")) {
        if (span_is(name, "grouper") || span_is(name, "list")) {
            *ret = a->list->v[span_is(name, "list") ? 1 : 0];
        }
    }
    return 0;
}

int eval_attr(struct run *r, const struct val *a, struct span name,
              struct val *ret)
{
    if (a->kind == V_UNDEFINED) {
        return undefined(r, a);
    }
    RETERR(python_attr(r, a, name, ret));
    if (ret->kind != V_MISSING) {
        return 0;
    }
    const struct val *v = NULL;
    if (a->kind == V_DICT) {
        RETERR(run_charge(r, a->dict->n * sizeof(struct val_item)));
        v = dict_gets(a->dict, name);
    }
    *ret = v != NULL ? *v : val_undefined(name);
    return 0;
}

/* Item i of a sequence; MISSING: it has none there. */
static int item_at(struct run *r, const struct val *a, int64_t i,
                   struct val *ret)
{
    int64_t n = 0;
    if (a->kind == V_STR) {
        RETERR(run_charge(r, a->s.n));
        n = (int64_t)text_length(a->s);
    } else {
        n = (int64_t)a->list->n;
    }
    i += i < 0 ? n : 0;
    *ret = val_missing;
    if (i < 0 || i >= n) {
        return 0;
    }
    if (a->kind != V_STR) {
        *ret = a->list->v[i];
        return 0;
    }
    size_t from = text_at(a->s, (size_t)i);
    struct span rest = {a->s.p + from, a->s.n - from};
    *ret = val_str((struct span){rest.p, text_at(rest, 1)});
    return 0;
}

int eval_index(struct run *r, const struct val *a, const struct val *i,
               struct val *ret)
{
    int64_t at = 0;
    const struct val *v = NULL;
    bool sequence = a->kind == V_STR || a->kind == V_LIST ||
                    a->kind == V_TUPLE || a->kind == V_RANGE;
    *ret = val_missing;
    if (a->kind == V_UNDEFINED) {
        return undefined(r, a);
    }
    if (sequence && val_as_int(i, &at)) {
        RETERR(item_at(r, a, at, ret));
    } else if (a->kind == V_DICT && val_hashable(i)) {
        RETERR(run_charge(r, a->dict->n * sizeof(struct val_item)));
        v = dict_get(a->dict, i);
        *ret = v != NULL ? *v : val_missing;
    }
    if (ret->kind == V_MISSING && i->kind == V_STR) {
        RETERR(python_attr(r, a, i->s, ret));
    }
    if (ret->kind == V_MISSING) {
        *ret = val_undefined(i->kind == V_STR ? i->s : zspan("an item"));
    }
    return 0;
}

/* --- slices --- */

/* A part of a slice: `missing` where it is none. */
static int slice_part(struct run *r, const struct node *n, int64_t missing,
                      int64_t *ret)
{
    struct val v = val_none;
    *ret = missing;
    if (n != NULL) {
        RETERR(eval(r, n, &v));
    }
    return v.kind == V_NONE || val_as_int(&v, ret)
               ? 0
               : run_error(r, "slice indices must be integers, not '%s'",
                           val_type(&v));
}

/* i, an index of a slice, into [lo, hi]. */
static int64_t clamp(int64_t i, int64_t n, int64_t lo, int64_t hi)
{
    i += i < 0 ? n : 0;
    return i < lo ? lo : (i > hi ? hi : i);
}

/* Items from, from + step, ... before `to`, of n. */
static int take_slice(struct run *r, const struct val *a, int64_t from,
                      int64_t to, int64_t step, struct val *ret)
{
    struct val_list all;
    if (a->kind == V_STR && step == 1) {
        size_t i = text_at(a->s, (size_t)from);
        size_t k = to > from ? text_at(a->s, (size_t)to) : i;
        *ret = val_str((struct span){a->s.p + i, k - i});
        ret->markup = a->markup;
        return run_charge(r, a->s.n);
    }
    RETERR(run_items(r, a, &all));
    struct val l;
    RETERR(run_list(r, a->kind == V_STR ? V_LIST : a->kind, &l));
    for (int64_t i = from; step > 0 ? i < to : i > to;) {
        RETERR(run_push(r, &l, all.v[i]));
        if (__builtin_add_overflow(i, step, &i)) {
            break;
        }
    }
    *ret = l;
    if (a->kind == V_STR) {
        struct buf b;
        run_buf(r, &b);
        for (size_t i = 0; i < l.list->n; i++) {
            buf_put(&b, l.list->v[i].s.p, l.list->v[i].s.n);
        }
        int rc = run_take(r, &b, ret);
        buf_fini(&b);
        return rc;
    }
    ret->list->label = a->kind == V_RANGE ? a->list->label : zspan("");
    return 0;
}

static int slice(struct run *r, const struct val *a, const struct node *n,
                 struct val *ret)
{
    int64_t from = 0;
    int64_t to = 0;
    int64_t step = 1;
    if (a->kind == V_UNDEFINED) {
        return undefined(r, a);
    }
    if (a->kind != V_STR && a->kind != V_LIST && a->kind != V_TUPLE &&
        a->kind != V_RANGE) {
        return run_error(r, "'%s' object cannot be sliced", val_type(a));
    }
    int64_t len = (int64_t)(a->kind == V_STR ? text_length(a->s) : a->list->n);
    RETERR(slice_part(r, n->kids[2], 1, &step));
    if (step == 0) {
        return run_error(r, "slice step cannot be zero");
    }
    RETERR(slice_part(r, n->kids[0], step > 0 ? 0 : INT64_MAX, &from));
    RETERR(slice_part(r, n->kids[1], step > 0 ? INT64_MAX : INT64_MIN, &to));
    if (step > 0) {
        from = clamp(from, len, 0, len);
        to = clamp(to, len, 0, len);
    } else {
        from = clamp(from, len, -1, len - 1);
        to = to == INT64_MIN ? -1 : clamp(to, len, -1, len - 1);
    }
    return take_slice(r, a, from, to, step, ret);
}

static int index_node(struct run *r, const struct node *n, struct val *ret)
{
    struct val a;
    struct val i;
    RETERR(eval(r, n->a, &a));
    if (n->b->kind == N_SLICE) {
        return slice(r, &a, n->b, ret);
    }
    RETERR(eval(r, n->b, &i));
    return eval_index(r, &a, &i, ret);
}

static int attr_node(struct run *r, const struct node *n, struct val *ret)
{
    struct val a;
    RETERR(eval(r, n->a, &a));
    return eval_attr(r, &a, n->s, ret);
}

/* --- operators --- */

int eval_binary(struct run *r, enum op op, const struct val *a,
                const struct val *b, struct val *ret)
{
    bool yes = false;
    int order = 0;
    if (op <= OP_POW) {
        return arith(r, op, a, b, ret);
    }
    if (op == OP_IN || op == OP_NOT_IN) {
        RETERR(val_in(r, a, b, &yes));
        *ret = val_bool(yes == (op == OP_IN));
        return 0;
    }
    if (op == OP_EQ || op == OP_NE) {
        RETERR(val_equal(r, a, b, &yes));
        *ret = val_bool(yes == (op == OP_EQ));
        return 0;
    }
    RETERR(val_compare(r, a, b, &order));
    yes = op == OP_LT   ? order == -1
          : op == OP_LE ? order == -1 || order == 0
          : op == OP_GT ? order == 1
                        : order == 1 || order == 0;
    *ret = val_bool(yes);
    return 0;
}

static int binary_node(struct run *r, const struct node *n, struct val *ret)
{
    struct val a;
    struct val b;
    RETERR(eval(r, n->a, &a));
    RETERR(eval(r, n->b, &b));
    return eval_binary(r, n->op, &a, &b, ret);
}

static int compare_node(struct run *r, const struct node *n, struct val *ret)
{
    struct val a;
    struct val b;
    RETERR(eval(r, n->a, &a));
    for (size_t i = 0; i < n->n; i++) {
        RETERR(eval(r, n->kids[i], &b));
        RETERR(eval_binary(r, n->ops[i], &a, &b, ret));
        if (!val_true(ret)) {
            break;
        }
        a = b;
    }
    return 0;
}

/* a and b, a or b: the value that decides. */
static int logic_node(struct run *r, const struct node *n, struct val *ret)
{
    RETERR(eval(r, n->a, ret));
    return val_true(ret) == (n->kind == N_AND) ? eval(r, n->b, ret) : 0;
}

static int concat_node(struct run *r, const struct node *n, struct val *ret)
{
    struct buf b;
    struct val v;
    struct span s;
    int rc = 0;
    run_buf(r, &b);
    for (size_t i = 0; i < n->n; i++) {
        CHECK(eval(r, n->kids[i], &v));
        CHECK(val_text(r, &v, &s));
        buf_put(&b, s.p, s.n);
    }
    rc = run_take(r, &b, ret);
out:
    buf_fini(&b);
    return rc;
}

static int sign_node(struct run *r, const struct node *n, struct val *ret)
{
    struct val a;
    int64_t i = 0;
    RETERR(eval(r, n->a, &a));
    if (a.kind == V_FLOAT) {
        *ret = val_float(n->kind == N_MINUS ? -a.f : a.f);
        return 0;
    }
    if (a.kind == V_UNDEFINED) {
        return undefined(r, &a);
    }
    if (!val_as_int(&a, &i)) {
        return run_error(r, "bad operand type for unary %s: '%s'",
                         n->kind == N_MINUS ? "-" : "+", val_type(&a));
    }
    struct val zero = val_int(0);
    struct val v = val_int(i);
    return arith(r, n->kind == N_MINUS ? OP_SUB : OP_ADD, &zero, &v, ret);
}

static int if_else_node(struct run *r, const struct node *n, struct val *ret)
{
    RETERR(eval(r, n->a, ret));
    const struct node *kid = n->kids[val_true(ret) ? 0 : 1];
    if (kid == NULL) {
        *ret = val_undefined(zspan("an if without else"));
        return 0;
    }
    return eval(r, kid, ret);
}

static int list_node(struct run *r, const struct node *n, struct val *ret)
{
    struct val l;
    struct val v;
    RETERR(run_list(r, n->kind == N_LIST ? V_LIST : V_TUPLE, &l));
    for (size_t i = 0; i < n->n; i++) {
        RETERR(eval(r, n->kids[i], &v));
        RETERR(run_push(r, &l, v));
    }
    *ret = l;
    return 0;
}

static int dict_node(struct run *r, const struct node *n, struct val *ret)
{
    struct val d;
    struct val key;
    struct val v;
    RETERR(run_dict(r, V_DICT, &d));
    for (size_t i = 0; i < n->n; i += 2) {
        RETERR(eval(r, n->kids[i], &key));
        RETERR(eval(r, n->kids[i + 1], &v));
        RETERR(run_put(r, &d, key, v));
    }
    *ret = d;
    return 0;
}

static int name_node(struct run *r, const struct node *n, struct val *ret)
{
    const struct val *v = scope_find(r, n->s);
    if (v != NULL) {
        *ret = v->kind == V_MISSING ? val_undefined(n->s) : *v;
        return 0;
    }
    const struct builtin *f = find_function(n->s);
    *ret = f != NULL ? (struct val){.kind = V_FUNC, .func = f}
                     : val_undefined(n->s);
    return 0;
}

/* --- calls --- */

static int call_node(struct run *r, const struct node *n, struct val *ret)
{
    struct args args;
    struct val f;
    RETERR(eval(r, n->a, &f));
    RETERR(eval_args(r, n, &args));
    return call_value(r, &f, &args, ret);
}

static int filter_node(struct run *r, const struct node *n, struct val *ret)
{
    struct args args;
    struct val a;
    RETERR(eval(r, n->a, &a));
    RETERR(eval_args(r, n, &args));
    return call_filter(r, n->s, &a, &args, ret);
}

static int test_node(struct run *r, const struct node *n, struct val *ret)
{
    struct args args;
    struct val a;
    bool yes = false;
    RETERR(eval(r, n->a, &a));
    RETERR(eval_args(r, n, &args));
    RETERR(call_test(r, n->s, &a, &args, &yes));
    *ret = val_bool(yes);
    return 0;
}

static int not_node(struct run *r, const struct node *n, struct val *ret)
{
    RETERR(eval(r, n->a, ret));
    *ret = val_bool(!val_true(ret));
    return 0;
}

static int by_kind(struct run *r, const struct node *n, struct val *ret)
{
    switch ((int)n->kind) {
    case N_CONST:
        *ret = n->value;
        return 0;
    case N_NAME:
        return name_node(r, n, ret);
    case N_ATTR:
        return attr_node(r, n, ret);
    case N_INDEX:
        return index_node(r, n, ret);
    case N_CALL:
        return call_node(r, n, ret);
    case N_FILTER:
        return filter_node(r, n, ret);
    case N_TEST:
        return test_node(r, n, ret);
    case N_BINARY:
        return binary_node(r, n, ret);
    case N_COMPARE:
        return compare_node(r, n, ret);
    case N_AND:
    case N_OR:
        return logic_node(r, n, ret);
    case N_CONCAT:
        return concat_node(r, n, ret);
    case N_NOT:
        return not_node(r, n, ret);
    case N_MINUS:
    case N_PLUS:
        return sign_node(r, n, ret);
    case N_IF_ELSE:
        return if_else_node(r, n, ret);
    case N_LIST:
    case N_TUPLE:
        return list_node(r, n, ret);
    case N_DICT:
        return dict_node(r, n, ret);
    default: /* a slice beside other indices */
        return run_error(r, "a slice among several indices");
    }
}

int eval(struct run *r, const struct node *n, struct val *ret)
{
    RETERR(run_enter(r));
    RETERR(run_charge(r, 0));
    RETERR(by_kind(r, n, ret));
    run_leave(r);
    return 0;
}
