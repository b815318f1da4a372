/* ast.h - tokens and the tree of a template. All of it lies in the template's
 * arena. Names are interned: two names are the same when their pointers are. */
#pragma once

#include "model/jinja/jinja.h"
#include "model/jinja/value.h"

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
    TK_FLOAT,
    TK_OP, /* an operator; s is its text */
};

struct tok {
    enum tok_kind kind;
    struct span s; /* TEXT, STRING: the finished bytes; NAME: interned */
    size_t at;     /* byte in the template */
    union {
        int64_t i;
        double f;
    };
};

struct toks {
    struct tok *t;
    size_t n, cap;
    struct span text; /* that they are of, borrowed */
};
/* The line, from 1, of a byte of the text. */
size_t toks_line(const struct toks *t, size_t at);

/* Interned names: a table of open addressing. */
struct names {
    struct span *slot;
    size_t n, cap;
};
/* p == NULL: out of memory. */
struct span intern_put(struct arena *a, struct names *t, struct span s);
/* p == NULL: the template has no such name. */
struct span intern_find(const struct names *t, struct span s);

/* Tokens are put in `tmp`, strings and names in `a`. */
CHECKED int jinja_lex(struct arena *tmp, struct arena *a, struct names *names,
                      const char *p, size_t n, struct toks *ret, struct err *e);

enum node_kind {
    /* expressions */
    N_CONST,   /* value */
    N_NAME,    /* s */
    N_ATTR,    /* a . s */
    N_INDEX,   /* a [ b ] */
    N_SLICE,   /* of an index: kids[0] : kids[1] : kids[2], each may be NULL */
    N_CALL,    /* a ( kids ); names[i]: of a keyword, or "*", "**", or none */
    N_FILTER,  /* a | s ( kids ); a NULL: of a block's text */
    N_TEST,    /* a is s ( kids ) */
    N_BINARY,  /* a op b */
    N_COMPARE, /* a ops[0] kids[0] ops[1] kids[1] ... */
    N_AND,     /* a and b */
    N_OR,
    N_CONCAT,  /* kids joined by ~ */
    N_NOT,     /* not a */
    N_MINUS,   /* - a */
    N_PLUS,    /* + a */
    N_IF_ELSE, /* kids[0] if a else kids[1], which may be NULL */
    N_LIST,    /* kids */
    N_TUPLE,   /* kids; also a target of set and for */
    N_DICT,    /* kids: key, value, ... */
    N_NSREF,   /* s . s2, a target of set */
    /* statements */
    N_TEXT,         /* s */
    N_PRINT,        /* a */
    N_IF,           /* kids: condition, body, ..., NULL, else body */
    N_FOR,          /* target c in a if b: kids[0], else kids[1] */
    N_SET,          /* c = a */
    N_SET_BLOCK,    /* c = kids[0] through filter b, which may be NULL */
    N_MACRO,        /* s (names[i] = kids[i] or none): body c */
    N_CALL_BLOCK,   /* call a; its caller is the macro b */
    N_FILTER_BLOCK, /* kids[0] through filter b */
    N_WITH,         /* c = a, with the targets and values as tuples: kids[0] */
    N_GENERATION,   /* kids[0] */
    N_BLOCK,        /* kids */
    N_BREAK,
    N_CONTINUE,
};

enum op {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN
};

struct node {
    enum node_kind kind;
    enum op op;       /* BINARY; COMPARE: of kids[0] */
    bool recursive;   /* FOR */
    bool uses_caller; /* MACRO: what its body names */
    bool uses_varargs, uses_kwargs;
    struct span s, s2;
    struct node *a, *b, *c;
    struct node **kids;
    struct span *names;
    enum op *ops;
    size_t n, cap;
    struct val value;
    /* Names that a scope of this node has undefined until they are set
     * (names.c): FOR, MACRO, SET_BLOCK, FILTER_BLOCK, WITH, GENERATION and the
     * outermost BLOCK. */
    struct span *hidden;
    size_t n_hidden;
};

struct jinja {
    struct arena arena;
    struct names names;
    struct node *root;
    struct span loop, caller, varargs, kwargs; /* interned */
};

CHECKED int jinja_parse(struct jinja *t, const struct toks *toks,
                        struct err *e);
/* Fill `hidden` in the tree. */
CHECKED int jinja_scopes(struct jinja *t, struct err *e);
