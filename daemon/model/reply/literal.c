/* literal.c - arguments as in Python, a=1, b=['x', None]), or as gemma 4 writes
 * them, a:1,b:[<|"|>x<|"|>,null]}. They become JSON text as they arrive.
 *
 * Containers are a stack. What is not decided yet - a number, a word, a part of
 * a quote - is in r->word, and in held, from where it becomes text or, in a
 * call that breaks, arguments.
 */
#include <ctype.h>
#include <string.h>

#include "model/reply/reply_impl.h"
#include "proto/json.h"

enum { IN_CALL, IN_DICT, IN_LIST, IN_TUPLE };

enum {
    L_ITEM,   /* a key or value, or the end of the container */
    L_KEY,    /* in a key without quotes */
    L_COLON,  /* = or : */
    L_VALUE,  /* a value */
    L_WORD,   /* in a number or a word */
    L_QUOTE,  /* in gemma's opening quote */
    L_OPEN,   /* behind a quote: one, two or three? */
    L_STRING, /* in a string */
    L_CLOSE,  /* in what may be the end of one */
    L_NEXT,   /* a comma or the end of the container */
};

#define GEMMA_QUOTE "<|\"|>"

static void decided(struct reply *r)
{
    buf_clear(&r->word);
    if (r->calling) {
        reply_unhold(r);
    }
}

/* c waits; more than a name's length is no key, number or word. */
static enum literal wait_for_more(struct reply *r, char c, unsigned char state)
{
    if (r->word.n >= REPLY_NAME_MAX) {
        return LITERAL_BAD;
    }
    buf_put(&r->word, &c, 1);
    reply_hold(r, c);
    r->literal.state = state;
    return LITERAL_MORE;
}

/* From here on it is a call. */
static void commit(struct reply *r)
{
    if (!r->calling) {
        reply_call_begin(r);
        reply_args(r, "{", 1);
    }
}

static unsigned char kind(const struct literal_call *l)
{
    return l->kinds[l->depth - 1];
}

static bool has_keys(const struct literal_call *l)
{
    return kind(l) == IN_CALL || kind(l) == IN_DICT;
}

static void push(struct literal_call *l, unsigned char k)
{
    must(l->depth < JSON_DEPTH_MAX);
    l->kinds[l->depth] = k;
    l->first[l->depth++] = true;
    l->state = L_ITEM;
}

/* A comma before every element but the first. */
static void separate(struct reply *r)
{
    bool *first = &r->literal.first[r->literal.depth - 1];
    if (!*first) {
        reply_args(r, ",", 1);
    }
    *first = false;
}

static enum literal pop(struct reply *r)
{
    struct literal_call *l = &r->literal;
    commit(r);
    reply_args(r, has_keys(l) ? "}" : "]", 1);
    l->depth--;
    l->state = L_NEXT;
    decided(r);
    return l->depth == 0 ? LITERAL_DONE : LITERAL_MORE;
}

static bool closes(const struct literal_call *l, char c)
{
    static const char close[] = {
        [IN_CALL] = ')', [IN_DICT] = '}', [IN_LIST] = ']', [IN_TUPLE] = ')'};
    return c == close[kind(l)];
}

/* What r->word is in JSON: a number, a constant, in gemma's form a string. */
static bool put_word(struct reply *r)
{
    static const char *const words[][2] = {{"True", "true"},
                                           {"False", "false"},
                                           {"None", "null"}};
    struct buf *w = &r->word;
    struct err e = {0};
    while (w->n > 0 && reply_blank(w->p[w->n - 1])) {
        w->n--;
    }
    for (size_t i = 0; i < countof(words); i++) {
        if (w->n == strlen(words[i][0]) &&
            memcmp(w->p, words[i][0], w->n) == 0) {
            reply_args(r, words[i][1], strlen(words[i][1]));
            decided(r);
            return true;
        }
    }
    if (json_check(w->p, w->n, &e) == 0) {
        reply_args(r, w->p, w->n);
    } else if (r->literal.gemma) {
        reply_args(r, "\"", 1);
        reply_args_text(r, w->p, w->n);
        reply_args(r, "\"", 1);
    } else {
        return false;
    }
    decided(r);
    return true;
}

static void begin_string(struct reply *r)
{
    struct literal_call *l = &r->literal;
    memset(&l->esc, 0, sizeof(l->esc));
    l->esc.python = !l->gemma || l->quote != '<';
    l->triple = false;
    l->quotes = 0;
    l->state = L_STRING;
    reply_args(r, "\"", 1);
    decided(r);
}

static void end_string(struct reply *r)
{
    struct literal_call *l = &r->literal;
    char out[UNESCAPE_MAX];
    reply_args_text(r, out, unescape_end(&l->esc, out));
    reply_args(r, "\"", 1);
    decided(r);
    l->state = l->in_key ? L_COLON : L_NEXT;
}

static void put_string_byte(struct reply *r, char c)
{
    char out[UNESCAPE_MAX];
    if (r->literal.quote == '<') {
        reply_args_text(r, &c, 1); /* gemma has no escapes */
    } else {
        reply_args_text(r, out, unescape_put(&r->literal.esc, c, out));
    }
}

/* A key or a value with quotes begins. */
static enum literal begin_quoted(struct reply *r, char c)
{
    struct literal_call *l = &r->literal;
    l->quote = c;
    l->in_key = l->state == L_ITEM && has_keys(l);
    if (c == '<') {
        return wait_for_more(r, c, L_QUOTE);
    }
    commit(r);
    if (l->state == L_ITEM) {
        separate(r);
    }
    begin_string(r);
    if (!l->gemma) {
        l->state = L_OPEN;
    }
    return LITERAL_MORE;
}

static bool quotes(const struct literal_call *l, char c)
{
    return c == '"' || c == '\'' || (c == '<' && l->gemma);
}

static enum literal put_value(struct reply *r, char c)
{
    struct literal_call *l = &r->literal;
    if (quotes(l, c)) {
        return begin_quoted(r, c);
    }
    bool opens = c == '[' || c == '{' || (c == '(' && !l->gemma);
    bool word = isalnum((unsigned char)c) || c == '-' || c == '_' ||
                (l->gemma && (unsigned char)c >= 0x80);
    if (!(opens || word) || (opens && l->depth >= JSON_DEPTH_MAX)) {
        return LITERAL_BAD;
    }
    if (l->state == L_ITEM) {
        separate(r);
    }
    if (word) {
        return wait_for_more(r, c, L_WORD);
    }
    reply_args(r, c == '{' ? "{" : "[", 1);
    decided(r);
    push(l, c == '{' ? IN_DICT : c == '[' ? IN_LIST : IN_TUPLE);
    return LITERAL_MORE;
}

static bool in_plain_key(const struct literal_call *l, char c)
{
    return l->gemma ? strchr(":,{}[]<\"'", c) == NULL
                    : isalnum((unsigned char)c) || c == '_';
}

static enum literal put_item(struct reply *r, char c)
{
    struct literal_call *l = &r->literal;
    if (closes(l, c)) {
        return pop(r);
    }
    if (!has_keys(l)) {
        return put_value(r, c);
    }
    if (quotes(l, c) && kind(l) == IN_DICT) {
        return begin_quoted(r, c);
    }
    bool plain = kind(l) == IN_CALL || l->gemma;
    return plain && in_plain_key(l, c) ? wait_for_more(r, c, L_KEY)
                                       : LITERAL_BAD;
}

/* print(f(..)): the name of the call is the inner one. */
static bool wrapped(struct reply *r)
{
    static const char print[] = "print";
    static const char space[] = "default_api.";
    struct literal_call *l = &r->literal;
    size_t n = sizeof(print) - 1;
    if (r->calling || l->depth != 1 || l->wraps > 0 || r->name.n != n ||
        memcmp(r->name.p, print, n) != 0) {
        return false;
    }
    buf_clear(&r->name);
    buf_put(&r->name, r->word.p, r->word.n);
    buf_clear(&r->word);
    n = sizeof(space) - 1;
    if (r->name.n > n && memcmp(r->name.p, space, n) == 0) {
        buf_shift(&r->name, n);
    }
    l->wraps = 1;
    l->state = L_ITEM;
    return true;
}

static enum literal put_key(struct reply *r, char c)
{
    struct literal_call *l = &r->literal;
    if (l->state == L_KEY && in_plain_key(l, c)) {
        return wait_for_more(r, c, L_KEY);
    }
    if (l->state == L_KEY && c == '.' && !r->calling) {
        return wait_for_more(r, c, L_KEY); /* a name, if any: see wrapped */
    }
    if (l->state == L_KEY && c == '(' && wrapped(r)) {
        reply_hold(r, c);
        return LITERAL_MORE;
    }
    if (reply_blank(c)) {
        reply_hold(r, c);
        l->state = L_COLON;
        return LITERAL_MORE;
    }
    if (c != (kind(l) == IN_CALL ? '=' : ':') ||
        memchr(r->word.p != NULL ? r->word.p : "", '.', r->word.n) != NULL) {
        return LITERAL_BAD;
    }
    if (r->word.n > 0) { /* else it had quotes, and is given */
        commit(r);
        separate(r);
        reply_args(r, "\"", 1);
        reply_args_text(r, r->word.p, r->word.n);
        reply_args(r, "\"", 1);
    }
    reply_args(r, ":", 1);
    decided(r);
    l->state = L_VALUE;
    return LITERAL_MORE;
}

static enum literal put_next(struct reply *r, char c)
{
    struct literal_call *l = &r->literal;
    if (closes(l, c)) {
        return pop(r);
    }
    if (c != ',') {
        return LITERAL_BAD;
    }
    l->state = L_ITEM;
    return LITERAL_MORE;
}

static enum literal put_word_byte(struct reply *r, char c)
{
    struct literal_call *l = &r->literal;
    bool in = l->gemma ? strchr(",}]", c) == NULL
                       : isalnum((unsigned char)c) ||
                             (c != '\0' && strchr("+-._", c) != NULL);
    if (in) {
        return wait_for_more(r, c, L_WORD);
    }
    if (!put_word(r)) {
        return LITERAL_BAD;
    }
    l->state = L_NEXT;
    return reply_blank(c) ? LITERAL_MORE : put_next(r, c);
}

/* In r->word is a part of gemma's quote, which opens or closes. */
static enum literal put_gemma_quote(struct reply *r, char c)
{
    struct literal_call *l = &r->literal;
    bool closing = l->state == L_CLOSE;
    (void)wait_for_more(r, c, l->state);
    switch (reply_match(GEMMA_QUOTE, r->word.p, r->word.n)) {
    case MATCH_PART:
        return LITERAL_MORE;
    case MATCH_WHOLE:
        break;
    case MATCH_NONE:
    default:
        r->word.n--; /* c is not of it */
        r->held.n--;
        if (!closing) {
            return LITERAL_BAD;
        }
        l->state = L_STRING;
        reply_args_text(r, r->word.p, r->word.n);
        decided(r);
        if (c == '<') {
            return wait_for_more(r, c, L_CLOSE);
        }
        put_string_byte(r, c);
        return LITERAL_MORE;
    }
    if (closing) {
        end_string(r);
        return LITERAL_MORE;
    }
    commit(r);
    if (l->in_key || !has_keys(l)) { /* it was an item, not a key's value */
        separate(r);
    }
    begin_string(r);
    return LITERAL_MORE;
}

/* Behind an opening quote: a second one is the end, or, with a third, the
 * beginning of a long string. */
static enum literal put_open(struct reply *r, char c)
{
    struct literal_call *l = &r->literal;
    if (c == l->quote) {
        if (++l->quotes == 2) {
            l->triple = true;
            l->quotes = 0;
            l->state = L_STRING;
        }
        return LITERAL_MORE;
    }
    if (l->quotes == 1) { /* it was empty */
        end_string(r);
        return l->state == L_COLON ? put_key(r, c)
               : reply_blank(c)    ? LITERAL_MORE
                                   : put_next(r, c);
    }
    l->state = L_STRING;
    put_string_byte(r, c);
    return LITERAL_MORE;
}

static enum literal put_string(struct reply *r, char c)
{
    struct literal_call *l = &r->literal;
    if (l->quote == '<' && c == '<') {
        return wait_for_more(r, c, L_CLOSE);
    }
    if (l->quote == '<' || l->esc.in || c != l->quote) {
        for (; l->quotes > 0; l->quotes--) {
            put_string_byte(r, l->quote);
        }
        put_string_byte(r, c);
    } else if (!l->triple || ++l->quotes == 3) {
        end_string(r);
    }
    return LITERAL_MORE;
}

enum literal literal_put(struct reply *r, char c)
{
    struct literal_call *l = &r->literal;
    switch (l->state) {
    case L_STRING:
        return put_string(r, c);
    case L_OPEN:
        return put_open(r, c);
    case L_QUOTE:
    case L_CLOSE:
        return put_gemma_quote(r, c);
    case L_WORD:
        return put_word_byte(r, c);
    case L_KEY:
    case L_COLON:
        return put_key(r, c);
    default:
        break;
    }
    if (reply_blank(c)) {
        return r->calling || reply_hold(r, c) ? LITERAL_MORE : LITERAL_BAD;
    }
    return l->state == L_NEXT   ? put_next(r, c)
           : l->state == L_ITEM ? put_item(r, c)
                                : put_value(r, c);
}

void literal_begin(struct reply *r, bool gemma)
{
    struct literal_call *l = &r->literal;
    l->depth = 0;
    l->wraps = 0;
    l->gemma = gemma;
    push(l, gemma ? IN_DICT : IN_CALL);
    buf_clear(&r->word);
}
