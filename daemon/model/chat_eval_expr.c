/* chat_eval_expr.c - the value of an expression. */
#include <inttypes.h>
#include <string.h>

#include "base/num.h"
#include "model/chat_impl.h"

int chat_too_big(struct chat_env *v)
{
    return err_set(v->e, ERR_TOO_BIG, "the prompt");
}

static int misfit(struct chat_env *v, const char *what, const struct val *a)
{
    return err_set(v->e, ERR_TEMPLATE_INPUT, "the chat template: %s with %s",
                   what, val_name(a));
}

int chat_concat(struct chat_env *v, struct span a, struct span b,
                struct val *ret)
{
    char *both = arena_alloc(v->arena, a.n + b.n + 1);
    if (both == NULL) {
        return chat_too_big(v);
    }
    if (a.n > 0) {
        memcpy(both, a.p, a.n);
    }
    if (b.n > 0) {
        memcpy(both + a.n, b.p, b.n);
    }
    *ret = val_str((struct span){both, a.n + b.n});
    return 0;
}

int chat_text(struct chat_env *v, const struct val *a, struct span *ret)
{
    char *number = NULL;
    switch (a->kind) {
    case V_UNDEFINED:
        *ret = (struct span){"", 0};
        return 0;
    case V_NONE:
        *ret = (struct span){"None", 4};
        return 0;
    case V_BOOL:
        *ret = a->b ? (struct span){"True", 4} : (struct span){"False", 5};
        return 0;
    case V_STRING:
        *ret = a->s;
        return 0;
    case V_INT:
        number = arena_printf(v->arena, "%" PRId64, a->i);
        if (number == NULL) {
            return chat_too_big(v);
        }
        *ret = (struct span){number, strlen(number)};
        return 0;
    case V_LIST:
    case V_MAP:
        break;
    }
    return chat_unknown(v->e, "the text of", (struct span){"a list", 6});
}

/* An operation that looks through n bytes takes as many steps more as they are
 * worth: a small template can make long texts. */
static int charge(struct chat_env *v, size_t n)
{
    v->steps += (uint32_t)num_min(n / CHAT_STEP_BYTES, CHAT_STEPS_MAX);
    return v->steps <= CHAT_STEPS_MAX
               ? 0
               : err_set(v->e, ERR_TOO_BIG,
                         "the chat template takes too long");
}

static int charge_text(struct chat_env *v, const struct val *a)
{
    return a->kind == V_STRING ? charge(v, a->s.n) : 0;
}

static int attribute(struct chat_env *v, const struct val *a, struct span name,
                     struct val *ret)
{
    if (a->kind == V_UNDEFINED) {
        return err_set(v->e, ERR_TEMPLATE_INPUT,
                       "the chat template: '%.*s' of something undefined",
                       (int)(name.n < 40 ? name.n : 40), name.p);
    }
    if (a->kind == V_MAP) {
        RETERR(charge(v, a->map->n * sizeof(a->map->keys[0])));
    }
    const struct val *have =
        a->kind == V_MAP ? val_map_get(a->map, name) : NULL;
    *ret = have != NULL ? *have : (struct val){.kind = V_UNDEFINED};
    return 0;
}

static int item(struct chat_env *v, const struct val *a, const struct val *i,
                struct val *ret)
{
    if (i->kind == V_STRING) {
        return attribute(v, a, i->s, ret);
    }
    if (a->kind == V_LIST && i->kind == V_INT) {
        int64_t n = (int64_t)a->list->n;
        int64_t at = i->i < 0 ? i->i + n : i->i;
        *ret = at >= 0 && at < n ? a->list->v[at]
                                 : (struct val){.kind = V_UNDEFINED};
        return 0;
    }
    return misfit(v, "an index", a);
}

/* Bound of a slice clamped to [0, n]. */
static int64_t clamp(int64_t i, int64_t n)
{
    i = i < 0 ? i + n : i;
    return i < 0 ? 0 : (i > n ? n : i);
}

static int slice(struct chat_env *v, const struct node *n, struct val *ret)
{
    struct val a;
    struct val part[3];
    RETERR(chat_eval(v, n->a, &a));
    for (size_t i = 0; i < 3; i++) {
        part[i] = (struct val){.kind = V_NONE};
        if (n->kids[i] != NULL) {
            RETERR(chat_eval(v, n->kids[i], &part[i]));
        }
        if (part[i].kind != V_NONE && part[i].kind != V_INT) {
            return misfit(v, "a slice", &part[i]);
        }
    }
    int64_t step = part[2].kind == V_INT ? part[2].i : 1;
    bool whole = part[0].kind == V_NONE && part[1].kind == V_NONE;
    if (a.kind != V_LIST || !(step == 1 || (step == -1 && whole))) {
        return chat_unknown(v->e, "a slice of",
                            (struct span){val_name(&a), strlen(val_name(&a))});
    }
    int64_t len = (int64_t)a.list->n;
    int64_t from = part[0].kind == V_INT ? clamp(part[0].i, len) : 0;
    int64_t to = part[1].kind == V_INT ? clamp(part[1].i, len) : len;
    struct val_list *l = arena_alloc(v->arena, sizeof(*l));
    if (l == NULL) {
        return chat_too_big(v);
    }
    l->n = to > from ? (size_t)(to - from) : 0;
    l->v = arena_array(v->arena, l->n + 1, sizeof(*l->v));
    if (l->v == NULL) {
        return chat_too_big(v);
    }
    for (size_t i = 0; i < l->n; i++) {
        l->v[i] = a.list->v[step == 1 ? (size_t)from + i : l->n - 1 - i];
    }
    *ret = (struct val){.kind = V_LIST, .list = l};
    return 0;
}

static int is_in(struct chat_env *v, const struct val *a, const struct val *b,
                 bool *ret)
{
    *ret = false;
    if (b->kind == V_STRING && a->kind == V_STRING) {
        *ret = a->s.n == 0 || (b->s.n >= a->s.n &&
                               memmem(b->s.p, b->s.n, a->s.p, a->s.n) != NULL);
        return 0;
    }
    if (b->kind == V_MAP && a->kind == V_STRING) {
        *ret = val_map_get(b->map, a->s) != NULL;
        return 0;
    }
    for (size_t i = 0; b->kind == V_LIST && i < b->list->n && !*ret; i++) {
        RETERR(charge_text(v, &b->list->v[i]));
        *ret = val_equal(a, &b->list->v[i]);
    }
    RETERR(charge(v, b->kind == V_LIST ? b->list->n * sizeof(*b) : 0));
    bool has_items = b->kind == V_LIST || b->kind == V_MAP ||
                     b->kind == V_UNDEFINED; /* which is empty */
    return has_items ? 0 : misfit(v, "in", b);
}

static int arithmetic(struct chat_env *v, char op, int64_t a, int64_t b,
                      struct val *ret)
{
    int64_t r = 0;
    bool over = false;
    if (op == '+') {
        over = __builtin_add_overflow(a, b, &r);
    } else if (op == '-') {
        over = __builtin_sub_overflow(a, b, &r);
    } else if (op == '%' && b > 0) {
        r = a % b < 0 ? a % b + b : a % b;
    } else {
        return chat_unknown(v->e, "the operator", (struct span){&op, 1});
    }
    if (over) {
        return chat_too_big(v);
    }
    *ret = val_int(r);
    return 0;
}

static int compare(struct chat_env *v, struct span op, const struct val *a,
                   const struct val *b, struct val *ret)
{
    int64_t order = 0;
    if (a->kind == V_STRING && b->kind == V_STRING) {
        size_t n = a->s.n < b->s.n ? a->s.n : b->s.n;
        order = n > 0 ? memcmp(a->s.p, b->s.p, n) : 0;
        if (order == 0) {
            order = (a->s.n > b->s.n) - (a->s.n < b->s.n);
        }
    } else if (a->kind == V_INT && b->kind == V_INT) {
        order = (a->i > b->i) - (a->i < b->i);
    } else {
        return misfit(v, "a comparison", a->kind == V_INT ? b : a);
    }
    bool equal = order == 0 && op.n == 2;
    *ret = val_bool(equal || (op.p[0] == '<' ? order < 0 : order > 0));
    return 0;
}

static int plus(struct chat_env *v, const struct val *a, const struct val *b,
                struct val *ret)
{
    if (a->kind == V_STRING && b->kind == V_STRING) {
        return chat_concat(v, a->s, b->s, ret);
    }
    if (a->kind == V_INT && b->kind == V_INT) {
        return arithmetic(v, '+', a->i, b->i, ret);
    }
    return misfit(v, "+", a->kind == V_STRING ? b : a);
}

static int binary(struct chat_env *v, const struct node *n, struct val *ret)
{
    struct val a;
    struct val b;
    bool yes = false;
    RETERR(chat_eval(v, n->a, &a));
    if (span_is(n->s, "and") || span_is(n->s, "or")) {
        if (val_true(&a) == span_is(n->s, "or")) {
            *ret = a;
            return 0;
        }
        return chat_eval(v, n->b, ret);
    }
    RETERR(chat_eval(v, n->b, &b));
    RETERR(charge_text(v, &a));
    RETERR(charge_text(v, &b));
    if (span_is(n->s, "==") || span_is(n->s, "!=")) {
        *ret = val_bool(val_equal(&a, &b) == span_is(n->s, "=="));
        return 0;
    }
    if (span_is(n->s, "in") || span_is(n->s, "not in")) {
        RETERR(is_in(v, &a, &b, &yes));
        *ret = val_bool(yes == span_is(n->s, "in"));
        return 0;
    }
    if (n->s.p[0] == '<' || n->s.p[0] == '>') {
        return compare(v, n->s, &a, &b, ret);
    }
    if (span_is(n->s, "~")) {
        struct span x;
        struct span y;
        RETERR(chat_text(v, &a, &x));
        RETERR(chat_text(v, &b, &y));
        return chat_concat(v, x, y, ret);
    }
    if (span_is(n->s, "+")) {
        return plus(v, &a, &b, ret);
    }
    if (n->s.n != 1 || a.kind != V_INT || b.kind != V_INT) {
        return misfit(v, "arithmetic", a.kind == V_INT ? &b : &a);
    }
    return arithmetic(v, n->s.p[0], a.i, b.i, ret);
}

#define ARGS_MAX 8

/* A call, filter or test: arguments, then the library. */
static int apply(struct chat_env *v, const struct node *n, struct val *ret)
{
    struct val argv[ARGS_MAX + 1];
    const struct node *self = n->a;
    struct span name = n->s;
    size_t argc = 0;
    bool function = n->kind == N_CALL && n->a->kind == N_NAME;
    if (n->kind == N_CALL && !function && n->a->kind != N_ATTR) {
        return chat_unknown(v->e, "a call of", (struct span){"a value", 7});
    }
    if (n->kind == N_CALL) {
        name = n->a->s;
        self = n->a->a;
    }
    if (n->n > ARGS_MAX) {
        return chat_unknown(v->e, "too many arguments of", name);
    }
    if (!function) {
        RETERR(chat_eval(v, self, &argv[argc++]));
    }
    for (size_t i = 0; i < n->n; i++) {
        if (n->names[i].p != NULL && !function) {
            return chat_unknown(v->e, "a named argument of", name);
        }
        RETERR(chat_eval(v, n->kids[i], &argv[argc++]));
    }
    for (size_t i = 0; i < argc; i++) {
        RETERR(charge_text(v, &argv[i]));
    }
    if (n->kind == N_TEST) {
        bool yes = false;
        RETERR(chat_test(v, name, argc, argv, &yes));
        *ret = val_bool(yes);
        return 0;
    }
    if (n->kind == N_FILTER) {
        return chat_filter(v, name, argc, argv, ret);
    }
    return function ? chat_function(v, name, argc, argv, n->names, ret)
                    : chat_method(v, name, argc, argv, ret);
}

static int list(struct chat_env *v, const struct node *n, struct val *ret)
{
    struct val_list *l = arena_alloc(v->arena, sizeof(*l));
    if (l == NULL ||
        (l->v = arena_array(v->arena, n->n + 1, sizeof(*l->v))) == NULL) {
        return chat_too_big(v);
    }
    for (; l->n < n->n; l->n++) {
        RETERR(chat_eval(v, n->kids[l->n], &l->v[l->n]));
    }
    *ret = (struct val){.kind = V_LIST, .list = l};
    return 0;
}

static int eval_kind(struct chat_env *v, const struct node *n, struct val *ret)
{
    struct val a;
    struct val b;
    const struct val *have = NULL;
    switch (n->kind) {
    case N_LITERAL:
        *ret = n->value;
        return 0;
    case N_NAME:
        have = chat_lookup(v, n->s);
        *ret = have != NULL ? *have : (struct val){.kind = V_UNDEFINED};
        return 0;
    case N_ATTR:
        RETERR(chat_eval(v, n->a, &a));
        return attribute(v, &a, n->s, ret);
    case N_INDEX:
        RETERR(chat_eval(v, n->a, &a));
        RETERR(chat_eval(v, n->b, &b));
        return item(v, &a, &b, ret);
    case N_SLICE:
        return slice(v, n, ret);
    case N_CALL:
    case N_FILTER:
    case N_TEST:
        return apply(v, n, ret);
    case N_BINARY:
        return binary(v, n, ret);
    case N_NOT:
        RETERR(chat_eval(v, n->a, &a));
        *ret = val_bool(!val_true(&a));
        return 0;
    case N_MINUS:
        RETERR(chat_eval(v, n->a, &a));
        return a.kind == V_INT ? arithmetic(v, '-', 0, a.i, ret)
                               : misfit(v, "-", &a);
    case N_IF_ELSE:
        RETERR(chat_eval(v, n->a, &a));
        return chat_eval(v, n->kids[val_true(&a) ? 0 : 1], ret);
    case N_LIST:
        return list(v, n, ret);
    case N_DICT:
    case N_TEXT:
    case N_PRINT:
    case N_IF:
    case N_FOR:
    case N_SET:
    case N_BLOCK:
    case N_BREAK:
    case N_CONTINUE:
        break;
    }
    return chat_unknown(v->e, "a", (struct span){"dictionary", 10});
}

int chat_eval(struct chat_env *v, const struct node *n, struct val *ret)
{
    *ret = (struct val){.kind = V_UNDEFINED};
    if (++v->steps > CHAT_STEPS_MAX) {
        return err_set(v->e, ERR_TOO_BIG, "the chat template takes too long");
    }
    return eval_kind(v, n, ret);
}
