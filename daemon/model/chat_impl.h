/* chat_impl.h - the part of the template language that the known families use.
 *
 *   chat.c        families, messages into variables
 *   chat_lex.c    template text into tokens, white space control
 *   chat_parse.c  tokens into a tree; chat_parse_expr.c its expressions
 *   chat_eval.c   the tree into text; chat_eval_expr.c its values
 *   chat_lib.c    filters, methods, tests, functions
 *
 * Anything else in a template is an error (TEMPLATE) when it is reached, never
 * a wrong prompt. Tools, macros and arithmetic beyond + - % are parsed, because
 * templates have them in branches that plain messages do not take.
 *
 * One rendering allocates everything in one arena.
 */
#pragma once

#include <time.h>

#include "base/arena.h"
#include "base/buf.h"
#include "proto/limits.h"

enum tok_kind {
    TK_END,
    TK_TEXT,       /* outside tags */
    TK_STMT_OPEN,  /* {% */
    TK_STMT_CLOSE, /* %} */
    TK_EXPR_OPEN,  /* {{ */
    TK_EXPR_CLOSE, /* }} */
    TK_NAME,
    TK_STRING,
    TK_INT,
    TK_OP, /* an operator; s is its text */
};

struct tok {
    enum tok_kind kind;
    struct span s; /* TEXT and STRING: the finished bytes */
    int64_t i;
};

struct toks {
    struct tok *t;
    size_t n, cap;
};

CHECKED int chat_lex(struct arena *a, const char *p, size_t n, struct toks *ret,
                     struct err *e);

enum node_kind {
    /* expressions */
    N_LITERAL,
    N_NAME,    /* s */
    N_ATTR,    /* a . s */
    N_INDEX,   /* a [ b ] */
    N_SLICE,   /* a [ kids[0] : kids[1] : kids[2] ], any may be NULL */
    N_CALL,    /* a ( kids ), names[i] for keyword arguments */
    N_FILTER,  /* a | s ( kids ) */
    N_TEST,    /* a is s ( kids ) */
    N_BINARY,  /* a s b; and, or too */
    N_NOT,     /* not a */
    N_MINUS,   /* - a */
    N_IF_ELSE, /* kids[0] if a else kids[1] */
    N_LIST,    /* kids */
    N_DICT,    /* kids: key, value, ... */
    /* statements */
    N_TEXT,  /* s */
    N_PRINT, /* a */
    N_IF,    /* kids: condition, body, ..., else body with NULL condition */
    N_FOR,   /* s (s2) in a if b: kids[0], else kids[1] */
    N_SET,   /* s = a, or s.s2 = a; a NULL: the block kids[0] */
    N_BLOCK, /* kids */
    N_BREAK,
    N_CONTINUE,
};

enum val_kind {
    V_UNDEFINED,
    V_NONE,
    V_BOOL,
    V_INT,
    V_STRING,
    V_LIST,
    V_MAP,
};

struct val {
    enum val_kind kind;
    bool b;
    int64_t i;
    struct span s;
    struct val_list *list;
    struct val_map *map;
};

struct val_list {
    struct val *v;
    size_t n;
};

struct val_map {
    struct span *keys;
    struct val *v;
    size_t n, cap;
};

struct node {
    enum node_kind kind;
    struct span s, s2;
    struct node *a, *b;
    struct node **kids;
    struct span *names;
    size_t n, cap;
    struct val value; /* N_LITERAL */
};

CHECKED int chat_parse(struct arena *a, const struct toks *t, struct node **ret,
                       struct err *e);

struct chat_env {
    struct arena *arena;
    struct {
        struct span name;
        struct val v;
        unsigned frame;
    } vars[CHAT_VALUES_MAX];
    size_t n_vars;
    unsigned frame;
    uint32_t steps;
    int depth;
    enum { GO_ON, GO_BREAK, GO_CONTINUE } jump;
    time_t now; /* for strftime_now */
    struct buf *out;
    struct err *e;
};

CHECKED int chat_eval_block(struct chat_env *v, const struct node *n);
CHECKED int chat_set(struct chat_env *v, struct span name, struct val value);
struct val *chat_lookup(struct chat_env *v, struct span name); /* NULL */

/* chat_eval_expr.c */
CHECKED int chat_eval(struct chat_env *v, const struct node *n,
                      struct val *ret);
CHECKED int chat_concat(struct chat_env *v, struct span a, struct span b,
                        struct val *ret);
/* The text that printing a value gives. */
CHECKED int chat_text(struct chat_env *v, const struct val *a,
                      struct span *ret);
int chat_too_big(struct chat_env *v); /* returns the error */

/* chat_lib.c */
struct val val_str(struct span s);
struct val val_strz(const char *s);
struct val val_int(int64_t i);
struct val val_bool(bool b);
bool val_true(const struct val *v);
bool val_equal(const struct val *a, const struct val *b);
const char *val_name(const struct val *v); /* "a string" for messages */
CHECKED int val_map_put(struct arena *a, struct val_map *m, struct span key,
                        struct val v, struct err *e);
const struct val *val_map_get(const struct val_map *m, struct span key);
bool span_is(struct span s, const char *z);
/* `name` is that of the filter, method, test or function; argv[0] of filters,
 * methods and tests is the value that they apply to. */
CHECKED int chat_filter(struct chat_env *v, struct span name, size_t argc,
                        const struct val *argv, struct val *ret);
CHECKED int chat_method(struct chat_env *v, struct span name, size_t argc,
                        const struct val *argv, struct val *ret);
CHECKED int chat_test(struct chat_env *v, struct span name, size_t argc,
                      const struct val *argv, bool *ret);
CHECKED int chat_function(struct chat_env *v, struct span name, size_t argc,
                          const struct val *argv, const struct span *names,
                          struct val *ret);
/* "the template uses ..., which aned does not know" */
int chat_unknown(struct err *e, const char *what, struct span name);
