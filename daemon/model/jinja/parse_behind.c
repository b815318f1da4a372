/* parse_behind.c - what stands behind a value: calls, attributes, subscripts,
 * filters, tests. */
#include "model/jinja/parse.h"

static struct node *parse_argument(struct parser *p, struct span *name)
{
    if (take_op(p, "*")) {
        *name = zspan("*");
    } else if (take_op(p, "**")) {
        *name = zspan("**");
    } else if (p->at->kind == TK_NAME && p->at[1].kind == TK_OP &&
               span_is(p->at[1].s, "=")) {
        *name = p->at->s;
        p->at += 2;
    }
    return parse_expr(p);
}

/* After '(': arguments into n, and the ')'. */
static bool parse_arguments(struct parser *p, struct node *n)
{
    bool keywords = false;
    bool first = true;
    while (!take_op(p, ")")) {
        struct span name = no_name;
        if (!first && !take_op(p, ",")) {
            (void)misparse(p, "expected ',' between arguments");
            return false;
        }
        if (take_op(p, ")")) {
            break;
        }
        first = false;
        struct node *v = parse_argument(p, &name);
        if (v == NULL || !ast_add(p, n, v, name)) {
            return false;
        }
        if (name.p == NULL && keywords) {
            (void)misparse(p, "an argument without a name behind one with it");
            return false;
        }
        keywords = keywords || name.p != NULL;
    }
    return true;
}

static struct node *parse_call(struct parser *p, struct node *f)
{
    struct node *n = ast_new(p, N_CALL);
    if (n == NULL || !parse_arguments(p, n)) {
        return NULL;
    }
    n->a = f;
    return n;
}

/* i, or i:j:k with each part optional. */
static struct node *parse_subscribed(struct parser *p)
{
    struct node *part[3] = {NULL, NULL, NULL};
    size_t i = 0;
    bool slice = false;
    do {
        bool empty = at_op(p, ":") || at_op(p, "]") || at_op(p, ",");
        if (!empty && (part[i] = parse_expr(p)) == NULL) {
            return NULL;
        }
        if (!take_op(p, ":")) {
            break;
        }
        slice = true;
    } while (++i < 3);
    if (!slice) {
        return part[0] != NULL ? part[0] : misparse(p, "expected an index");
    }
    struct node *n =
        i < 3 ? ast_new(p, N_SLICE) : misparse(p, "a slice of too many parts");
    for (i = 0; n != NULL && i < 3; i++) {
        if (!ast_add(p, n, part[i], no_name)) {
            return NULL;
        }
    }
    return n;
}

static struct node *parse_subscript(struct parser *p, struct node *a)
{
    struct node *i = parse_subscribed(p);
    struct node *many = NULL;
    while (i != NULL && take_op(p, ",")) {
        if (many == NULL && ((many = ast_new(p, N_TUPLE)) == NULL ||
                             !ast_add(p, many, i, no_name))) {
            return NULL;
        }
        if (at_op(p, "]")) {
            break;
        }
        i = parse_subscribed(p);
        if (i != NULL && !ast_add(p, many, i, no_name)) {
            return NULL;
        }
    }
    struct node *n = i != NULL ? ast_new(p, N_INDEX) : NULL;
    if (n == NULL || !take_op(p, "]")) {
        return misparse(p, "expected ']'");
    }
    n->a = a;
    n->b = many != NULL ? many : i;
    return n;
}

/* .name or .0 */
static struct node *parse_attr(struct parser *p, struct node *a)
{
    bool number = p->at->kind == TK_INT;
    if (p->at->kind != TK_NAME && !number) {
        return misparse(p, "expected a name behind '.'");
    }
    struct node *n = ast_new(p, number ? N_INDEX : N_ATTR);
    if (n == NULL) {
        return NULL;
    }
    n->a = a;
    n->s = p->at->s;
    if (number && (n->b = parse_constant(p, val_int(p->at->i))) == NULL) {
        return NULL;
    }
    p->at++;
    return n;
}

struct node *parse_postfix(struct parser *p, struct node *n)
{
    while (n != NULL) {
        if (take_op(p, ".")) {
            n = parse_attr(p, n);
        } else if (take_op(p, "[")) {
            n = parse_subscript(p, n);
        } else if (take_op(p, "(")) {
            n = parse_call(p, n);
        } else {
            break;
        }
    }
    return n;
}

struct node *parse_filters(struct parser *p, struct node *n, bool first)
{
    while (first || take_op(p, "|")) {
        struct node *f = ast_new(p, N_FILTER);
        if (f == NULL || p->at->kind != TK_NAME) {
            return misparse(p, "expected the name of a filter");
        }
        first = false;
        f->a = n;
        f->s = p->at++->s;
        if (take_op(p, "(") && !parse_arguments(p, f)) {
            return NULL;
        }
        n = f;
    }
    return n;
}

/* After `is`. */
static struct node *parse_test(struct parser *p, struct node *a)
{
    bool negated = take_word(p, "not");
    struct node *n = ast_new(p, N_TEST);
    if (n == NULL || p->at->kind != TK_NAME) {
        return misparse(p, "expected the name of a test");
    }
    n->a = a;
    n->s = p->at++->s;
    bool argument = (p->at->kind == TK_NAME && !at_word(p, "else") &&
                     !at_word(p, "or") && !at_word(p, "and")) ||
                    p->at->kind == TK_STRING || p->at->kind == TK_INT ||
                    p->at->kind == TK_FLOAT || at_op(p, "[") || at_op(p, "{");
    if (take_op(p, "(")) {
        if (!parse_arguments(p, n)) {
            return NULL;
        }
    } else if (argument && at_word(p, "is")) {
        return misparse(p, "a test behind a test");
    } else if (argument) {
        struct node *v = parse_postfix(p, parse_primary(p));
        if (v == NULL || !ast_add(p, n, v, no_name)) {
            return NULL;
        }
    }
    if (!negated) {
        return n;
    }
    struct node *not = ast_new(p, N_NOT);
    if (not != NULL) {
        not ->a = n;
    }
    return not ;
}

struct node *parse_behind(struct parser *p, struct node *n)
{
    while (n != NULL) {
        if (at_op(p, "|")) {
            n = parse_filters(p, n, false);
        } else if (take_word(p, "is")) {
            n = parse_test(p, n);
        } else if (take_op(p, "(")) {
            n = parse_call(p, n);
        } else {
            break;
        }
    }
    return n;
}
