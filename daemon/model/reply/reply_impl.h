/* reply_impl.h - the parser of answers inside (reply.h).
 *
 * The parser is a function that takes one byte, `step`; what it knows of the
 * bytes before is in the fields. So how the text was cut cannot matter. Bytes
 * of which it is not certain yet what they are wait in `held`:
 *
 *   reply.c       text, thoughts, and a parser's life
 *   call.c        what all forms of calls share
 *   forms.c       the tables of marks, and which template shows which
 *   lex.c         JSON and escapes, byte by byte
 *   json_call.c   {"name": .., "arguments": ..}
 *   named_call.c  a name, a mark, a JSON object
 *   tagged_call.c <parameter=key>value</parameter> and kin
 *   literal_call.c f(a=1, b='x') and gemma 4's call:f{a:1}; literal.c: what is
 *                 between the brackets
 *   harmony.c     channels
 *
 * constrain_impl.h has the files that write what the parser reads.
 *
 * A mark is opened by its row's `open`, which sets the next step. A call is
 * certain from reply_call_begin on; before that, reply_fail makes everything
 * held text.
 */
#pragma once

#include "base/buf.h"
#include "model/reply/lex.h"
#include "model/reply/reply.h"
#include "proto/limits.h"

/* The next byte. False: it was not taken, and there is another step to ask. */
typedef bool (*reply_step_fn)(struct reply *r, char c);
typedef void (*reply_open_fn)(struct reply *r);

/* Texts around names and values: <function=NAME>, <parameter=KEY>VALUE... */
struct reply_tags {
    const char *call;     /* before the name; NULL: the name comes at once */
    const char *call_end; /* after it; NULL: white space or '<' */
    const char *key, *key_end;
    const char *value; /* before a value; NULL: nothing */
    const char *value_end;
    const char *close; /* after the last value */
};

struct reply_row {
    const char *mark;
    bool at_start;    /* only where no text stands before it */
    bool needs_args;  /* a JSON object is a call only with arguments, and
                         without members that no call has */
    reply_open_fn open;
    const char *close;            /* NULL: none */
    const struct reply_tags *tags; /* where '<' follows the mark */
    reply_open_fn word;            /* where a word does */
    const struct reply_tags *word_tags;
    const char *sep;     /* between a name and its arguments */
    const char *skip_to_sep; /* what follows it is no name */
};

/* One state for each way to write a call; only one is in use. */
struct json_call {
    bool list, more, fence, null_args;
    unsigned wraps;     /* objects around the one with the name */
    size_t args_at, args_n; /* in held: they came before the name */
    struct buf key;
    struct unescape esc;
    bool key_escape;
};

struct tagged_call {
    bool first; /* no value yet */
    bool undecided; /* the value may be JSON, and waits in `value` */
    bool begun;     /* a byte of the value is known */
    bool line;      /* the line break before it was there */
    bool only_text; /* the tool says so */
    struct buf key;
    struct buf value;
};

struct literal_call {
    bool list;
    bool gemma; /* gemma 4's quotes and keys */
    bool in_key;
    bool first[JSON_DEPTH_MAX]; /* nothing in this container yet */
    unsigned char kinds[JSON_DEPTH_MAX];
    unsigned depth;
    unsigned char state;
    char quote;
    bool triple;
    unsigned quotes; /* seen in a row */
    unsigned wraps;  /* print( around the call */
    struct unescape esc;
};

enum reply_out { OUT_TEXT, OUT_REASONING, OUT_ARGS };

struct harmony {
    enum reply_out kind;
    bool call;
};

struct reply {
    const struct reply_forms *forms;
    const struct reply_row *rows;
    size_t n_rows;
    const struct reply_sink *sink;
    void *ctx;
    reply_string_fn is_string; /* NULL: nothing is known of parameters */
    void *is_string_ctx;

    reply_step_fn step;
    struct buf held; /* what is not certain */
    size_t blank;    /* white space at its beginning, before a mark */
    bool fresh;      /* no text since the start, a thought or a call */
    bool after_mark; /* a thought or a call was there */
    bool thinking;   /* in a thought */
    bool thought;    /* which has text */
    bool tools;      /* calls are looked for */
    bool calling;    /* a call has begun and not ended */
    bool tail;       /* held is what may stand behind a call */

    const struct reply_row *row;
    const struct reply_tags *tags;
    const char *close;    /* ends the call's surroundings; NULL: nothing */
    size_t matched;       /* bytes of it */
    reply_step_fn closed; /* the step after it; NULL: text */
    reply_step_fn then;   /* the step after the arguments */
    struct buf name;
    struct buf word; /* a part of a tag, a number, a key */
    struct buf args; /* of the open call, for the verdict */
    struct json_walk walk;
    struct json_call json;
    struct tagged_call tagged;
    struct literal_call literal;
    struct harmony harmony;

    struct buf out; /* given, but not yet to the sink */
    enum reply_out out_kind;
};

/* --- text (reply.c) --- */

static inline bool reply_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

enum reply_match { MATCH_NONE, MATCH_PART, MATCH_WHOLE };
/* p[0..n) against the beginning of a mark. mark NULL: none. */
enum reply_match reply_match(const char *mark, const char *p, size_t n);

/* Keep c until it is certain; returns true, as steps do. */
bool reply_hold(struct reply *r, char c);
void reply_unhold(struct reply *r); /* held is of a mark, and no text */
/* Give a piece: to the sink it goes at the end of reply_put, when a piece of
 * another kind follows, or when it is long. */
void reply_give(struct reply *r, enum reply_out kind, const char *p, size_t n);
void reply_flush(struct reply *r); /* to the sink, now */

bool reply_text_step(struct reply *r, char c);
/* No call: what is held is text, and so is what follows. If one has begun, it
 * ends, broken. Returns false: c is not taken. */
bool reply_fail(struct reply *r);
/* The surroundings of a call have ended, without a mark: held is looked at
 * again as text. Returns false. */
bool reply_leave(struct reply *r);
/* They have ended with their mark. */
void reply_section_end(struct reply *r);
/* Wait for r->close, then go on with `closed` (NULL: text). Without a mark to
 * wait for, that is at once. */
void reply_close(struct reply *r, reply_step_fn closed);

/* --- calls (call.c) --- */

/* name is in r->name; held is part of the call. */
void reply_call_begin(struct reply *r);
void reply_args(struct reply *r, const char *p, size_t n);
/* The same of what stands in a JSON string, with its escapes. */
void reply_args_text(struct reply *r, const char *p, size_t n);
/* The verdict is the strict reader's. */
void reply_call_end(struct reply *r);
/* Whether r->name can be one: not empty, no control characters. */
bool reply_name_ok(const struct reply *r);
/* Begin the call; its arguments are one JSON value, after which `then`. */
void reply_json_args(struct reply *r, reply_step_fn then);
bool reply_args_step(struct reply *r, char c);

/* The arguments of such a call, from behind its bracket. BAD: this byte cannot
 * stand here; it is not taken. */
enum literal { LITERAL_MORE, LITERAL_DONE, LITERAL_BAD };
void literal_begin(struct reply *r, bool gemma);
enum literal literal_put(struct reply *r, char c);

/* --- forms --- */
void reply_open_silent(struct reply *r); /* the mark alone means nothing */
void reply_open_any(struct reply *r);    /* by what follows the mark */
void reply_open_list(struct reply *r); /* the same; the mark was a '[' */
void reply_open_json(struct reply *r);
void reply_open_object(struct reply *r); /* the mark was its '{' */
void reply_open_json_list(struct reply *r); /* '[' is held; '{' comes */
void reply_open_named(struct reply *r);
void reply_open_tagged(struct reply *r);
void reply_open_tagged_name(struct reply *r); /* the mark was tags->call */
void reply_open_tagged_word(struct reply *r); /* a name, by word_tags */
void reply_open_python(struct reply *r);
void reply_open_python_list(struct reply *r); /* '[' is held */
void reply_open_gemma(struct reply *r);       /* the mark ended in "call:" */
void reply_harmony_begin(struct reply *r, const char *tail, size_t n);
/* The answer has ended inside: what remains is given. */
void reply_tagged_end(struct reply *r);
bool reply_literal_step(struct reply *r, char c);
bool reply_tagged_value(struct reply *r, char c);
void reply_harmony_end(struct reply *r);
/* A value between tags as JSON: itself, or a word for one of Python's; NULL: it
 * is a string. */
const char *reply_tagged_json(const char *p, size_t n);

/* The rows of a form (forms.c). */
const struct reply_row *reply_rows(enum reply_tools tools, size_t *ret_n);
