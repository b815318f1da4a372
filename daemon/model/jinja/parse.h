/* parse.h - the parser, for its files: statements in parse.c, expressions in
 * parse_expr.c, what stands behind a value in parse_behind.c. */
#pragma once

#include "model/jinja/ast.h"

struct parser {
    struct jinja *t;
    struct arena *arena;
    const struct toks *toks;
    const struct tok *at;
    const struct node *macro; /* whose body is parsed, or NULL */
    size_t nodes;
    int depth;
    int loops; /* around the present statement: break needs one */
    struct err *e;
    bool failed;
};

/* Set the error "expected `what` here", unless there is one; returns NULL. */
struct node *misparse(struct parser *p, const char *what);
struct node *ast_new(struct parser *p, enum node_kind kind);
/* Append a child (NULL is a child too) with an optional name. */
bool ast_add(struct parser *p, struct node *n, struct node *kid,
             struct span name);
/* One level deeper; false after misparse(). */
bool parse_enter(struct parser *p);

/* Expressions at the present token; NULL after misparse(). parse_or stops
 * before an `if`, parse_tuple takes `a, b` too. */
struct node *parse_expr(struct parser *p);
struct node *parse_or(struct parser *p);
struct node *parse_tuple(struct parser *p, bool with_if);
struct node *parse_primary(struct parser *p);
struct node *parse_constant(struct parser *p, struct val v);
/* Calls, attributes and subscripts behind n; parse_behind: filters and tests
 * too. */
struct node *parse_postfix(struct parser *p, struct node *n);
struct node *parse_behind(struct parser *p, struct node *n);
/* `| name(args) | ...` behind n, which may be NULL; `first`: without its '|'.
 */
struct node *parse_filters(struct parser *p, struct node *n, bool first);
/* What a value can be given to. `with_ns`: ns.name too. */
struct node *parse_target(struct parser *p, bool with_ns);

static const struct span no_name = {NULL, 0};

static inline bool at_op(const struct parser *p, const char *op)
{
    return p->at->kind == TK_OP && span_is(p->at->s, op);
}

static inline bool at_word(const struct parser *p, const char *word)
{
    return p->at->kind == TK_NAME && span_is(p->at->s, word);
}

static inline bool take_op(struct parser *p, const char *op)
{
    if (at_op(p, op)) {
        p->at++;
        return true;
    }
    return false;
}

static inline bool take_word(struct parser *p, const char *word)
{
    if (at_word(p, word)) {
        p->at++;
        return true;
    }
    return false;
}
