/* chat_parse_expr.c - expressions, by recursive descent with Jinja2's
 * precedence: if-else, or, and, not, comparison, + -, ~, * / %, unary minus,
 * then . [] () | is, which bind tightest.
 */
#include <string.h>

#include "model/chat_parse.h"

struct node *chat_misparse(struct parser *p, const char *what)
{
    if (!p->failed) {
        p->failed = true;
        (void)err_set(p->e, ERR_TEMPLATE, "the chat template: %s near '%.*s'",
                      what, (int)(p->t->s.n < 40 ? p->t->s.n : 40), p->t->s.p);
    }
    return NULL;
}

struct node *chat_node(struct parser *p, enum node_kind kind)
{
    struct node *n = arena_alloc(p->arena, sizeof(*n));
    if (n == NULL) {
        return chat_misparse(p, "too big");
    }
    n->kind = kind;
    return n;
}

bool chat_node_add(struct parser *p, struct node *n, struct node *kid,
                   struct span name)
{
    if (n->n == n->cap) {
        size_t cap = n->cap == 0 ? 4 : n->cap * 2;
        struct node **kids = arena_array(p->arena, cap, sizeof(*kids));
        struct span *names = arena_array(p->arena, cap, sizeof(*names));
        if (kids == NULL || names == NULL) {
            (void)chat_misparse(p, "too big");
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
    n->names[n->n] = name;
    n->n++;
    return true;
}

static bool want_op(struct parser *p, const char *op)
{
    if (!take_op(p, op)) {
        (void)chat_misparse(p, op);
        return false;
    }
    return true;
}

static struct node *parse_unary(struct parser *p);

static struct node *binary(struct parser *p, struct node *a, struct span op,
                           struct node *b)
{
    struct node *n = a != NULL && b != NULL ? chat_node(p, N_BINARY) : NULL;
    if (n != NULL) {
        n->a = a;
        n->b = b;
        n->s = op;
    }
    return n;
}

static struct node *literal(struct parser *p, struct val v)
{
    struct node *n = chat_node(p, N_LITERAL);
    if (n != NULL) {
        n->value = v;
    }
    return n;
}

/* Arguments up to `close`, after the opening. */
static bool parse_args(struct parser *p, struct node *n, const char *close)
{
    while (!take_op(p, close)) {
        struct span name = no_name;
        if (p->t->kind == TK_NAME && p->t[1].kind == TK_OP &&
            span_is(p->t[1].s, "=")) {
            name = p->t->s;
            p->t += 2;
        }
        struct node *arg = chat_expr(p);
        if (arg == NULL || !chat_node_add(p, n, arg, name)) {
            return false;
        }
        if (!at_op(p, close) && !want_op(p, ",")) {
            return false;
        }
    }
    return true;
}

static struct node *parse_dict(struct parser *p)
{
    struct node *n = chat_node(p, N_DICT);
    while (n != NULL && !take_op(p, "}")) {
        struct node *key = chat_expr(p);
        if (key == NULL || !want_op(p, ":")) {
            return NULL;
        }
        struct node *value = chat_expr(p);
        if (value == NULL || !chat_node_add(p, n, key, no_name) ||
            !chat_node_add(p, n, value, no_name)) {
            return NULL;
        }
        if (!at_op(p, "}") && !want_op(p, ",")) {
            return NULL;
        }
    }
    return n;
}

/* ( ... ): grouping, or a tuple where a comma comes. */
static struct node *parse_group(struct parser *p)
{
    struct node *first = at_op(p, ")") ? NULL : chat_expr(p);
    if (first != NULL && take_op(p, ")")) {
        return first;
    }
    struct node *n = chat_node(p, N_LIST);
    if (p->failed || n == NULL) {
        return NULL;
    }
    if (first != NULL &&
        (!chat_node_add(p, n, first, no_name) || !want_op(p, ","))) {
        return NULL;
    }
    return parse_args(p, n, ")") ? n : NULL;
}

static struct node *parse_name(struct parser *p)
{
    static const struct {
        const char *word;
        enum val_kind kind;
        bool b;
    } words[] = {
        {"true",  V_BOOL, true },
        {"True",  V_BOOL, true },
        {"false", V_BOOL, false},
        {"False", V_BOOL, false},
        {"none",  V_NONE, false},
        {"None",  V_NONE, false},
    };
    for (size_t i = 0; i < countof(words); i++) {
        if (take_word(p, words[i].word)) {
            return literal(
                p, (struct val){.kind = words[i].kind, .b = words[i].b});
        }
    }
    struct node *n = chat_node(p, N_NAME);
    if (n != NULL) {
        n->s = p->t++->s;
    }
    return n;
}

static struct node *parse_string(struct parser *p)
{
    struct span s = p->t++->s;
    while (p->t->kind == TK_STRING) { /* 'a' 'b' is one string */
        char *both = arena_alloc(p->arena, s.n + p->t->s.n + 1);
        if (both == NULL) {
            return chat_misparse(p, "too big");
        }
        memcpy(both, s.p, s.n);
        memcpy(both + s.n, p->t->s.p, p->t->s.n);
        s = (struct span){both, s.n + p->t->s.n};
        p->t++;
    }
    return literal(p, val_str(s));
}

static struct node *parse_primary(struct parser *p)
{
    if (p->t->kind == TK_NAME) {
        return parse_name(p);
    }
    if (p->t->kind == TK_STRING) {
        return parse_string(p);
    }
    if (p->t->kind == TK_INT) {
        return literal(p, val_int(p->t++->i));
    }
    if (take_op(p, "(")) {
        return parse_group(p);
    }
    if (take_op(p, "[")) {
        struct node *n = chat_node(p, N_LIST);
        return n != NULL && parse_args(p, n, "]") ? n : NULL;
    }
    if (take_op(p, "{")) {
        return parse_dict(p);
    }
    return chat_misparse(p, "an expression is missing");
}

/* After a '[': an index or a slice. */
static struct node *parse_subscript(struct parser *p, struct node *a)
{
    struct node *part[3] = {NULL, NULL, NULL};
    size_t i = 0;
    bool slice = false;
    while (!take_op(p, "]")) {
        if (take_op(p, ":")) {
            slice = true;
            if (++i > 2) {
                return chat_misparse(p, "a slice");
            }
        } else {
            part[i] = chat_expr(p);
            if (part[i] == NULL) {
                return NULL;
            }
            if (!at_op(p, ":") && !at_op(p, "]")) {
                return chat_misparse(p, "]");
            }
        }
    }
    struct node *n = chat_node(p, slice ? N_SLICE : N_INDEX);
    if (n == NULL || (!slice && part[0] == NULL)) {
        return chat_misparse(p, "an index");
    }
    n->a = a;
    n->b = part[0];
    for (i = 0; slice && i < 3; i++) {
        if (!chat_node_add(p, n, part[i], no_name)) {
            return NULL;
        }
    }
    return n;
}

/* `| name(args)` or `is [not] name [args]`. */
static struct node *parse_applied(struct parser *p, enum node_kind kind,
                                  struct node *a)
{
    struct node *n = chat_node(p, kind);
    bool negated = kind == N_TEST && take_word(p, "not");
    if (n == NULL || p->t->kind != TK_NAME) {
        return chat_misparse(p, "a filter or test");
    }
    n->a = a;
    n->s = p->t++->s;
    if (take_op(p, "(")) {
        if (!parse_args(p, n, ")")) {
            return NULL;
        }
    } else if (kind == N_TEST &&
               (p->t->kind == TK_STRING || p->t->kind == TK_INT)) {
        struct node *arg = parse_primary(p);
        if (arg == NULL || !chat_node_add(p, n, arg, no_name)) {
            return NULL;
        }
    }
    if (negated) {
        struct node *outer = chat_node(p, N_NOT);
        if (outer != NULL) {
            outer->a = n;
        }
        return outer;
    }
    return n;
}

static struct node *parse_postfix(struct parser *p, struct node *n)
{
    while (n != NULL) {
        struct node *a = n;
        if (take_op(p, ".")) {
            n = chat_node(p, N_ATTR);
            if (n == NULL || p->t->kind != TK_NAME) {
                return chat_misparse(p, "an attribute");
            }
            n->a = a;
            n->s = p->t++->s;
        } else if (take_op(p, "[")) {
            n = parse_subscript(p, a);
        } else if (take_op(p, "(")) {
            n = chat_node(p, N_CALL);
            if (n == NULL || !parse_args(p, n, ")")) {
                return NULL;
            }
            n->a = a;
        } else if (take_op(p, "|")) {
            n = parse_applied(p, N_FILTER, a);
        } else if (take_word(p, "is")) {
            n = parse_applied(p, N_TEST, a);
        } else {
            return n;
        }
    }
    return n;
}

static struct node *parse_unary(struct parser *p)
{
    struct node *n = NULL;
    if (++p->depth > CHAT_DEPTH_MAX) {
        return chat_misparse(p, "nested too deep");
    }
    if (take_op(p, "-")) {
        n = chat_node(p, N_MINUS);
        if (n != NULL) {
            n->a = parse_unary(p);
            n = n->a != NULL ? n : NULL;
        }
    } else {
        n = parse_postfix(p, parse_primary(p));
    }
    p->depth--;
    return n;
}

/* Left-associative levels, loosest first; the last is above unary. */
static struct node *parse_level(struct parser *p, size_t level)
{
    static const char *const ops[][4] = {
        {"+",                                                                   "-"},
        {     "~" },
        { "*", "/",                                                                   "//", "%"},
    };
    if (level == countof(ops)) {
        return parse_unary(p);
    }
    struct node *n = parse_level(p, level + 1);
    for (size_t i = 0; n != NULL && i < 4 && ops[level][i] != NULL;) {
        if (at_op(p, ops[level][i])) {
            struct span op = p->t++->s;
            n = binary(p, n, op, parse_level(p, level + 1));
            i = 0;
        } else {
            i++;
        }
    }
    return n;
}

static bool compare_op(struct parser *p, struct span *ret)
{
    static const char *const ops[] = {"==", "!=", "<", ">", "<=", ">="};
    static const struct span not_in = {"not in", 6};
    for (size_t i = 0; i < countof(ops); i++) {
        if (at_op(p, ops[i])) {
            *ret = p->t++->s;
            return true;
        }
    }
    if (at_word(p, "in")) {
        *ret = p->t++->s;
        return true;
    }
    if (at_word(p, "not") && p->t[1].kind == TK_NAME &&
        span_is(p->t[1].s, "in")) {
        p->t += 2;
        *ret = not_in;
        return true;
    }
    return false;
}

static struct node *parse_not(struct parser *p)
{
    if (at_word(p, "not")) {
        p->t++;
        if (++p->depth > CHAT_DEPTH_MAX) {
            return chat_misparse(p, "nested too deep");
        }
        struct node *n = chat_node(p, N_NOT);
        if (n != NULL) {
            n->a = parse_not(p);
            n = n->a != NULL ? n : NULL;
        }
        p->depth--;
        return n;
    }
    struct node *n = parse_level(p, 0);
    struct span op;
    bool chained = false;
    while (n != NULL && compare_op(p, &op)) {
        if (chained) {
            return chat_misparse(p, "a chain of comparisons");
        }
        chained = true;
        n = binary(p, n, op, parse_level(p, 0));
    }
    return n;
}

static struct node *parse_and(struct parser *p)
{
    struct node *n = parse_not(p);
    while (n != NULL && at_word(p, "and")) {
        struct span op = p->t++->s;
        n = binary(p, n, op, parse_not(p));
    }
    return n;
}

struct node *chat_expr_or(struct parser *p)
{
    struct node *n = parse_and(p);
    while (n != NULL && at_word(p, "or")) {
        struct span op = p->t++->s;
        n = binary(p, n, op, parse_and(p));
    }
    return n;
}

struct node *chat_expr(struct parser *p)
{
    if (++p->depth > CHAT_DEPTH_MAX) {
        return chat_misparse(p, "nested too deep");
    }
    struct node *n = chat_expr_or(p);
    while (n != NULL && take_word(p, "if")) {
        struct node *pick = chat_node(p, N_IF_ELSE);
        struct node *other = NULL;
        if (pick == NULL || (pick->a = chat_expr_or(p)) == NULL) {
            return NULL;
        }
        if (take_word(p, "else")) {
            other = chat_expr(p);
        } else {
            other = literal(p, (struct val){.kind = V_UNDEFINED});
        }
        if (other == NULL || !chat_node_add(p, pick, n, no_name) ||
            !chat_node_add(p, pick, other, no_name)) {
            return NULL;
        }
        n = pick;
    }
    p->depth--;
    return n;
}
