/* constrain_impl.h - what the files for constraints of answers share.
 *
 *   constrain.c        thoughts, text and calls
 *   constrain_harmony.c  the same in messages
 *   constrain_call.c   tools, and a call piece by piece
 *   constrain_values.c arguments that are not JSON; constrain_tags.c: those
 *                      between tags
 *   spelling.c         how each form spells a call, as its templates do
 *   parts.c            constraints as they are written
 */
#pragma once

#include "model/reply/constrain.h"
#include "model/reply/reply_impl.h"

/* --- a constraint while it is written --- */

struct parts {
    struct buf *b;
    bool comma; /* something stands before in this list */
};

/* {"word": [ .. ]} */
void parts_begin(struct parts *p, const char *word);
void parts_end(struct parts *p);
/* {"word": "s"} */
void parts_put(struct parts *p, const char *word, const char *s, size_t n);
/* The same of texts and regular expressions; none if they are empty. */
void parts_text(struct parts *p, const char *s);
void parts_regex(struct parts *p, const char *s);
void parts_raw(struct parts *p, const char *json);
/* {"schema": s}, with the definitions of `root` if s is another. */
void parts_schema(struct parts *p, const struct json *s,
                  const struct json *root);
/* {"repeat": .. }, of one part; max 0: any number; between: a regular
 * expression, "": nothing. */
void parts_repeat(struct parts *p);
void parts_repeat_end(struct parts *p, unsigned min, unsigned max,
                      const char *between);
/* An alternative that is empty. */
void parts_nothing(struct parts *p);

/* --- how a form spells a call --- */

enum piece_kind { PIECE_END, PIECE_TEXT, PIECE_REGEX, PIECE_NAME, PIECE_ARGS };

struct piece {
    enum piece_kind kind;
    const char *s;
};

/* How arguments are written. */
enum spelled_values {
    VALUES_JSON,
    VALUES_TAGS,   /* struct value_tags */
    VALUES_PYTHON, /* a=1, b="x" */
    VALUES_GEMMA,  /* a:1,b:<|"|>x<|"|> */
};

struct value_tags {
    const char *key, *key_end; /* around a parameter's name */
    const char *gap;           /* behind that; a regular expression */
    const char *value;         /* before its value */
    const char *line;          /* behind a value that is JSON */
    const char *end;           /* behind a value */
    const char *after;         /* and then; a regular expression */
};

struct reply_spelling {
    enum reply_tools tools;
    const char *has;  /* a text of the template; the first row counts */
    const char *mark; /* begins the calls. NULL: nothing does, so no text may
                         stand before them */
    const char *say;  /* begins text; NULL: nothing does */
    struct piece open[2]; /* behind the mark, once */
    struct piece call[8];
    const char *between; /* two calls, a regular expression; NULL: there is
                            never a second */
    const char *close;   /* behind the last; NULL: nothing */
    bool plain_name;     /* it does not stand in a JSON string */
    enum spelled_values values;
    const struct value_tags *tags;
};

/* The row of a form; NULL: calls have none. */
const struct reply_spelling *spelling_find(enum reply_tools tools,
                                           const char *tmpl);

/* --- calls --- */

struct constrain {
    const struct reply_forms *f;
    const struct reply_want *w;
    struct parts p;
    struct err *e;
};

enum args_kind {
    ARGS_NONE,
    ARGS_ANY,
    ARGS_SCHEMA,
};

struct tool {
    const char *name;
    const struct json *schema; /* NULL: it has none */
    bool strict;
    enum args_kind args;
};

/* Calls of the tools, behind the mark. */
CHECKED int constrain_calls(struct constrain *c,
                            const struct reply_spelling *sp);
/* The next tool that may be called. *at: NULL at first. sp NULL: calls have a
 * plain name and JSON. False: there is none, or *rc is an error. */
bool constrain_next_tool(struct constrain *c, const struct reply_spelling *sp,
                         const struct json **at, struct tool *ret, int *rc);
/* The error that there is no such tool. */
int constrain_no_tool(struct constrain *c);
CHECKED int constrain_harmony(struct constrain *c);
/* JSON arguments. */
void constrain_json_args(struct constrain *c, const struct tool *t);
/* Arguments in other spellings. Errors: UNSUPPORTED, with the word and its
 * path: then what was written is to be dropped. */
CHECKED int constrain_args(struct constrain *c, const struct reply_spelling *sp,
                           const struct tool *t);

/* --- arguments that are not JSON --- */

struct values {
    struct constrain *c;
    const struct reply_spelling *sp;
    const struct tool *t;
    const char *name; /* of the parameter that is written */
};

/* The error that a word of the parameter's schema cannot be held. */
int values_unsupported(const struct values *v, const char *word,
                       const char *what);
/* How many words s has that say what is valid. */
unsigned values_n_words(const struct json *s);
/* A name in the definitions of the schema that s only refers to; else s. */
const struct json *values_follow(const struct values *v, const struct json *s);
bool values_type_is(const struct json *s, const char *type);
/* The first of these words that s has; NULL: none. */
const char *values_has_word(const struct json *s, const char *const *words,
                            size_t n);
/* Text up to s. */
void values_until(struct values *v, const char *s);

/* A parameter, s is its schema; any one. */
CHECKED int values_tag_member(struct values *v, const struct json *s);
void values_tag_any(struct values *v);
