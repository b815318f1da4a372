/* parse_expr.c - the expressions of templates, by recursive descent: from
 * `a if b else c` down to names, as Jinja2 orders them. */
#include <string.h>

#include "model/jinja/parse.h"
#include "proto/limits.h"

struct node *misparse(struct parser *p, const char *what)
{
    if (!p->failed) {
        struct span s = p->at->s;
        (void)err_set(p->e, ERR_TEMPLATE,
                      "the chat template: %s in line %zu, at \"%.*s\" (byte "
                      "%zu)",
                      what, toks_line(p->toks, p->at->at),
                      (int)(s.n < 40 ? s.n : 40), s.p != NULL ? s.p : "",
                      p->at->at);
    }
    p->failed = true;
    return NULL;
}

struct node *ast_new(struct parser *p, enum node_kind kind)
{
    if (++p->nodes > JINJA_NODES_MAX) {
        return misparse(p, "too many parts");
    }
    struct node *n = arena_alloc(p->arena, sizeof(*n));
    if (n == NULL) {
        return misparse(p, "too large");
    }
    n->kind = kind;
    return n;
}

bool ast_add(struct parser *p, struct node *n, struct node *kid,
             struct span name)
{
    if (n->n == n->cap) {
        size_t cap = n->cap == 0 ? 4 : n->cap * 2;
        struct node **kids = arena_array(p->arena, cap, sizeof(struct node *));
        struct span *names = arena_array(p->arena, cap, sizeof(*names));
        if (kids == NULL || names == NULL) {
            (void)misparse(p, "too large");
            return false;
        }
        if (n->n > 0) {
            memcpy(kids, n->kids, n->n * sizeof(struct node *));
            memcpy(names, n->names, n->n * sizeof(*names));
        }
        n->kids = kids;
        n->names = names;
        n->cap = cap;
    }
    n->kids[n->n] = kid;
    n->names[n->n++] = name;
    return true;
}

bool parse_enter(struct parser *p)
{
    if (++p->depth > JINJA_DEPTH_MAX) {
        (void)misparse(p, "nested too deep");
        return false;
    }
    return true;
}

struct node *parse_constant(struct parser *p, struct val v)
{
    struct node *n = ast_new(p, N_CONST);
    if (n != NULL) {
        n->value = v;
    }
    return n;
}

/* Strings that stand side by side are one. */
static struct node *parse_string(struct parser *p)
{
    struct span s = p->at++->s;
    while (p->at->kind == TK_STRING) {
        size_t n = s.n + p->at->s.n;
        char *joined = arena_alloc(p->arena, n + 1);
        if (joined == NULL) {
            return misparse(p, "too large");
        }
        memcpy(joined, s.p, s.n);
        memcpy(joined + s.n, p->at->s.p, p->at->s.n);
        s = (struct span){joined, n};
        p->at++;
    }
    return parse_constant(p, val_str(s));
}

static struct node *parse_name(struct parser *p)
{
    static const struct {
        const char *name;
        struct val v;
    } constants[] = {
        {"true",  {.kind = V_BOOL, .b = true} },
        {"True",  {.kind = V_BOOL, .b = true} },
        {"false", {.kind = V_BOOL, .b = false}},
        {"False", {.kind = V_BOOL, .b = false}},
        {"none",  {.kind = V_NONE}            },
        {"None",  {.kind = V_NONE}            },
    };
    struct span s = p->at++->s;
    for (size_t i = 0; i < countof(constants); i++) {
        if (span_is(s, constants[i].name)) {
            return parse_constant(p, constants[i].v);
        }
    }
    struct node *n = ast_new(p, N_NAME);
    if (n != NULL) {
        n->s = s;
    }
    return n;
}

static struct node *parse_list(struct parser *p)
{
    struct node *n = ast_new(p, N_LIST);
    while (n != NULL && !take_op(p, "]")) {
        if (n->n > 0 && !take_op(p, ",")) {
            return misparse(p, "expected ',' in a list");
        }
        if (take_op(p, "]")) {
            break;
        }
        struct node *kid = parse_expr(p);
        if (kid == NULL || !ast_add(p, n, kid, no_name)) {
            return NULL;
        }
    }
    return n;
}

static struct node *parse_dict(struct parser *p)
{
    struct node *n = ast_new(p, N_DICT);
    while (n != NULL && !take_op(p, "}")) {
        if (n->n > 0 && !take_op(p, ",")) {
            return misparse(p, "expected ',' in a dictionary");
        }
        if (take_op(p, "}")) {
            break;
        }
        struct node *key = parse_expr(p);
        if (key == NULL || !take_op(p, ":")) {
            return misparse(p, "expected ':' in a dictionary");
        }
        struct node *v = parse_expr(p);
        if (v == NULL || !ast_add(p, n, key, no_name) ||
            !ast_add(p, n, v, no_name)) {
            return NULL;
        }
    }
    return n;
}

/* a, b and a, and where `brackets` stand around it also nothing. */
static struct node *tuple(struct parser *p, bool with_if, bool brackets)
{
    struct node *one = NULL;
    struct node *n = NULL;
    for (;;) {
        bool end = p->at->kind == TK_STMT_CLOSE ||
                   p->at->kind == TK_EXPR_CLOSE || at_op(p, ")") ||
                   at_word(p, "recursive");
        if (end && (n != NULL || brackets)) {
            return n != NULL ? n : ast_new(p, N_TUPLE);
        }
        struct node *kid = with_if ? parse_expr(p) : parse_or(p);
        if (kid == NULL || (n != NULL && !ast_add(p, n, kid, no_name))) {
            return NULL;
        }
        one = n == NULL ? kid : one;
        if (!take_op(p, ",")) {
            return n != NULL ? n : one;
        }
        if (n == NULL && ((n = ast_new(p, N_TUPLE)) == NULL ||
                          !ast_add(p, n, one, no_name))) {
            return NULL;
        }
        brackets = true; /* a comma: it may end here */
    }
}

struct node *parse_tuple(struct parser *p, bool with_if)
{
    return tuple(p, with_if, false);
}

struct node *parse_primary(struct parser *p)
{
    const struct tok *t = p->at;
    struct node *n = NULL;
    switch ((int)t->kind) {
    case TK_NAME:
        return parse_name(p);
    case TK_STRING:
        return parse_string(p);
    case TK_INT:
    case TK_FLOAT:
        p->at++;
        return parse_constant(p, t->kind == TK_INT ? val_int(t->i)
                                                   : val_float(t->f));
    default:
        break;
    }
    if (take_op(p, "(")) {
        n = tuple(p, true, true);
        return n != NULL && !take_op(p, ")") ? misparse(p, "expected ')'") : n;
    }
    if (take_op(p, "[")) {
        return parse_list(p);
    }
    if (take_op(p, "{")) {
        return parse_dict(p);
    }
    return misparse(p, "expected an expression");
}

/* --- operators --- */

static struct node *pair(struct parser *p, enum node_kind kind, struct node *a,
                         struct node *b)
{
    struct node *n = b != NULL ? ast_new(p, kind) : NULL;
    if (n != NULL) {
        n->a = a;
        n->b = b;
    }
    return n;
}

static struct node *parse_unary(struct parser *p, bool with_filter)
{
    struct node *n = NULL;
    bool minus = at_op(p, "-");
    if (!parse_enter(p)) {
        return NULL;
    }
    if (minus || at_op(p, "+")) {
        n = ast_new(p, minus ? N_MINUS : N_PLUS);
        p->at++;
        if (n != NULL && (n->a = parse_unary(p, false)) == NULL) {
            return NULL;
        }
    } else {
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);
    p->depth--;
    return with_filter ? parse_behind(p, n) : n;
}

static bool take_binary(struct parser *p, const char *const *words,
                        const enum op *ops, size_t n, enum op *ret)
{
    for (size_t i = 0; i < n; i++) {
        if (take_op(p, words[i])) {
            *ret = ops[i];
            return true;
        }
    }
    return false;
}

static struct node *parse_pow(struct parser *p)
{
    struct node *a = parse_unary(p, true);
    while (a != NULL && take_op(p, "**")) {
        a = pair(p, N_BINARY, a, parse_unary(p, true));
        if (a != NULL) {
            a->op = OP_POW;
        }
    }
    return a;
}

static struct node *parse_product(struct parser *p)
{
    static const char *const words[] = {"*", "/", "//", "%"};
    static const enum op ops[] = {OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD};
    enum op op = OP_MUL;
    struct node *a = parse_pow(p);
    while (a != NULL && take_binary(p, words, ops, countof(words), &op)) {
        a = pair(p, N_BINARY, a, parse_pow(p));
        if (a != NULL) {
            a->op = op;
        }
    }
    return a;
}

static struct node *parse_concat(struct parser *p)
{
    struct node *a = parse_product(p);
    if (a == NULL || !at_op(p, "~")) {
        return a;
    }
    struct node *n = ast_new(p, N_CONCAT);
    if (n == NULL || !ast_add(p, n, a, no_name)) {
        return NULL;
    }
    while (take_op(p, "~")) {
        a = parse_product(p);
        if (a == NULL || !ast_add(p, n, a, no_name)) {
            return NULL;
        }
    }
    return n;
}

static struct node *parse_sum(struct parser *p)
{
    static const char *const words[] = {"+", "-"};
    static const enum op ops[] = {OP_ADD, OP_SUB};
    enum op op = OP_ADD;
    struct node *a = parse_concat(p);
    while (a != NULL && take_binary(p, words, ops, countof(words), &op)) {
        a = pair(p, N_BINARY, a, parse_concat(p));
        if (a != NULL) {
            a->op = op;
        }
    }
    return a;
}

static bool take_comparison(struct parser *p, enum op *ret)
{
    static const char *const words[] = {"==", "!=", "<", "<=", ">", ">="};
    static const enum op ops[] = {OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE};
    if (take_word(p, "in")) {
        *ret = OP_IN;
        return true;
    }
    if (at_word(p, "not") && p->at[1].kind == TK_NAME &&
        span_is(p->at[1].s, "in")) {
        p->at += 2;
        *ret = OP_NOT_IN;
        return true;
    }
    return take_binary(p, words, ops, countof(words), ret);
}

/* Room for the operator of each operand. */
static bool add_operand(struct parser *p, struct node *n, enum op op)
{
    size_t before = n->cap;
    struct node *b = parse_sum(p);
    if (b == NULL || !ast_add(p, n, b, no_name)) {
        return false;
    }
    if (n->cap != before) {
        enum op *ops = arena_array(p->arena, n->cap, sizeof(*ops));
        if (ops == NULL) {
            (void)misparse(p, "too large");
            return false;
        }
        if (before > 0) {
            memcpy(ops, n->ops, before * sizeof(*ops));
        }
        n->ops = ops;
    }
    n->ops[n->n - 1] = op;
    return true;
}

static struct node *parse_compare(struct parser *p)
{
    struct node *n = NULL;
    enum op op = OP_EQ;
    struct node *a = parse_sum(p);
    while (a != NULL && take_comparison(p, &op)) {
        if (n == NULL) {
            n = ast_new(p, N_COMPARE);
            if (n == NULL) {
                return NULL;
            }
            n->a = a;
        }
        if (!add_operand(p, n, op)) {
            return NULL;
        }
    }
    return n != NULL ? n : a;
}

static struct node *parse_not(struct parser *p)
{
    if (!take_word(p, "not")) {
        return parse_compare(p);
    }
    struct node *n = parse_enter(p) ? ast_new(p, N_NOT) : NULL;
    if (n == NULL || (n->a = parse_not(p)) == NULL) {
        return NULL;
    }
    p->depth--;
    return n;
}

static struct node *parse_and(struct parser *p)
{
    struct node *a = parse_not(p);
    while (a != NULL && take_word(p, "and")) {
        a = pair(p, N_AND, a, parse_not(p));
    }
    return a;
}

struct node *parse_or(struct parser *p)
{
    struct node *a = parse_and(p);
    while (a != NULL && take_word(p, "or")) {
        a = pair(p, N_OR, a, parse_and(p));
    }
    return a;
}

struct node *parse_expr(struct parser *p)
{
    if (!parse_enter(p)) {
        return NULL;
    }
    struct node *a = parse_or(p);
    while (a != NULL && take_word(p, "if")) {
        struct node *n = ast_new(p, N_IF_ELSE);
        struct node *other = NULL;
        if (n == NULL || (n->a = parse_or(p)) == NULL) {
            return NULL;
        }
        if (take_word(p, "else") && (other = parse_expr(p)) == NULL) {
            return NULL;
        }
        if (!ast_add(p, n, a, no_name) || !ast_add(p, n, other, no_name)) {
            return NULL;
        }
        a = n;
    }
    p->depth--;
    return a;
}
