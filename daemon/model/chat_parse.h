/* chat_parse.h - the parser of chat templates, for its two files: statements
 * in chat_parse.c, expressions in chat_parse_expr.c. */
#pragma once

#include "model/chat_impl.h"

struct parser {
    struct arena *arena;
    const struct tok *t;
    int depth;
    struct err *e;
    bool failed;
};

/* Set the error "expected `what` here", unless there is one; returns NULL. */
struct node *chat_misparse(struct parser *p, const char *what);
struct node *chat_node(struct parser *p, enum node_kind kind);
/* Append a child (NULL is a child too) with an optional name. */
bool chat_node_add(struct parser *p, struct node *n, struct node *kid,
                   struct span name);
/* Parse an expression at the present token; NULL after chat_misparse(). The
 * second function stops before an `if`, which belongs to the loop in
 * {% for x in xs if y %}. */
struct node *chat_expr(struct parser *p);
struct node *chat_expr_or(struct parser *p);

static const struct span no_name = {NULL, 0};

static inline bool at_op(const struct parser *p, const char *op)
{
    return p->t->kind == TK_OP && span_is(p->t->s, op);
}

static inline bool at_word(const struct parser *p, const char *word)
{
    return p->t->kind == TK_NAME && span_is(p->t->s, word);
}

static inline bool take_op(struct parser *p, const char *op)
{
    if (at_op(p, op)) {
        p->t++;
        return true;
    }
    return false;
}

static inline bool take_word(struct parser *p, const char *word)
{
    if (at_word(p, word)) {
        p->t++;
        return true;
    }
    return false;
}
