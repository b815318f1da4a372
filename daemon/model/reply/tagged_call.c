/* tagged_call.c - calls whose values stand between tags (struct reply_tags).
 *
 * A value has no quotes, so what it is shows only at its end: it waits when its
 * first byte may begin JSON other than a string, and is streamed as a string
 * otherwise. A line break after the opening tag belongs to the tag, and then
 * one before the closing tag, too.
 */
#include <string.h>

#include "model/reply/reply_impl.h"
#include "proto/json.h"

static bool item_step(struct reply *r, char c);
static bool call_step(struct reply *r, char c);
static bool name_step(struct reply *r, char c);
static bool key_step(struct reply *r, char c);
static bool between_step(struct reply *r, char c);

/* What ends a call; GLM's ends with what is around it. */
static const char *call_close(const struct reply *r)
{
    return r->tags->close != NULL ? r->tags->close : r->row->close;
}

#define MARKS 3

/* One of these marks (NULL: none), byte by byte in r->word; c is held. *ret is
 * the one that is whole. */
static enum reply_match expect(struct reply *r, char c,
                               const char *const marks[MARKS],
                               const char **ret)
{
    enum reply_match m = MATCH_NONE;
    buf_put(&r->word, &c, 1);
    for (size_t i = 0; i < MARKS && m == MATCH_NONE; i++) {
        m = reply_match(marks[i], r->word.p, r->word.n);
        *ret = marks[i];
    }
    if (m != MATCH_NONE) {
        reply_hold(r, c);
    }
    if (m == MATCH_WHOLE) {
        buf_clear(&r->word);
    }
    return m;
}

static void begin(struct reply *r, reply_step_fn step)
{
    r->tagged.first = true;
    buf_clear(&r->name);
    buf_clear(&r->word);
    r->step = step;
}

void reply_open_tagged(struct reply *r)
{
    r->tags = r->row->tags;
    begin(r, call_step);
}

void reply_open_tagged_name(struct reply *r)
{
    r->tags = r->row->tags;
    begin(r, name_step);
}

void reply_open_tagged_word(struct reply *r)
{
    r->tags = r->row->word_tags;
    begin(r, name_step);
}

static bool call_step(struct reply *r, char c)
{
    const char *which = NULL;
    const char *const marks[MARKS] = {r->tags->call,
                                      r->tail ? r->row->close : NULL};
    if (r->word.n == 0 && reply_blank(c)) {
        return reply_hold(r, c);
    }
    switch (expect(r, c, marks, &which)) {
    case MATCH_NONE:
        return r->tail ? reply_leave(r) : reply_fail(r);
    case MATCH_PART:
        return true;
    case MATCH_WHOLE:
    default:
        break;
    }
    if (which == r->row->close) {
        reply_section_end(r);
    } else {
        r->tail = false;
        begin(r, name_step);
    }
    return true;
}

static bool name_step(struct reply *r, char c)
{
    const char *end = r->tags->call_end;
    if (end == NULL && (reply_blank(c) || c == '<')) {
        r->step = item_step;
        return reply_name_ok(r) ? false : reply_fail(r);
    }
    buf_put(&r->name, &c, 1);
    size_t n = end != NULL ? strlen(end) : 0;
    if (end != NULL && r->name.n >= n &&
        memcmp(r->name.p + r->name.n - n, end, n) == 0) {
        r->name.n -= n;
        r->step = item_step;
    }
    return reply_name_ok(r) ? reply_hold(r, c) : reply_fail(r);
}

/* --- between values --- */

static bool tail_step(struct reply *r, char c)
{
    buf_clear(&r->word);
    r->step = call_step; /* another call, or the end */
    return call_step(r, c);
}

static void call_end(struct reply *r, const char *which)
{
    reply_call_end(r);
    if (which == r->row->close || r->row->close == NULL) {
        reply_section_end(r);
    } else {
        reply_unhold(r);
        r->step = tail_step;
    }
}

/* Functionary has JSON where others have tags. */
static bool json_tail_step(struct reply *r, char c)
{
    reply_close(r, r->row->close != NULL ? tail_step : NULL);
    return r->step(r, c);
}

static bool item_step(struct reply *r, char c)
{
    /* The tag that ends the call may be left out before the last one. */
    const char *const marks[MARKS] = {r->tags->key, call_close(r),
                                      r->row->close};
    const char *which = NULL;
    if (r->word.n == 0 && reply_blank(c)) {
        return reply_hold(r, c);
    }
    if (r->word.n == 0 && c == '{' && r->tagged.first) {
        r->close = call_close(r);
        reply_json_args(r, json_tail_step);
        return false;
    }
    switch (expect(r, c, marks, &which)) {
    case MATCH_NONE:
        return reply_fail(r);
    case MATCH_PART:
        return true;
    case MATCH_WHOLE:
    default:
        break;
    }
    if (!r->calling) {
        reply_call_begin(r);
        reply_args(r, "{", 1);
    }
    reply_unhold(r);
    if (which == r->tags->key) {
        buf_clear(&r->tagged.key);
        r->step = key_step;
    } else {
        reply_args(r, "}", 1);
        call_end(r, which);
    }
    return true;
}

/* --- keys and values --- */

static void begin_value(struct reply *r)
{
    struct tagged_call *t = &r->tagged;
    t->undecided = false;
    t->begun = false;
    t->line = false;
    buf_clear(&t->value);
    buf_clear(&r->word);
    t->only_text = r->is_string != NULL &&
                   r->is_string(r->is_string_ctx, r->name.p, r->name.n,
                                t->key.p, t->key.n);
    r->step = reply_tagged_value;
}

static bool key_step(struct reply *r, char c)
{
    struct buf *k = &r->tagged.key;
    const char *end = r->tags->key_end;
    size_t n = strlen(end);
    buf_put(k, &c, 1);
    if (!buf_ok(k)) {
        return reply_fail(r);
    }
    reply_hold(r, c);
    if (k->n < n || memcmp(k->p + k->n - n, end, n) != 0) {
        return true;
    }
    k->n -= n;
    reply_args(r, r->tagged.first ? "\"" : ",\"", r->tagged.first ? 1 : 2);
    reply_args_text(r, k->p, k->n);
    reply_args(r, "\":", 2);
    reply_unhold(r);
    r->tagged.first = false;
    if (r->tags->value != NULL) {
        buf_clear(&r->word);
        r->step = between_step;
    } else {
        begin_value(r);
    }
    return true;
}

static bool between_step(struct reply *r, char c)
{
    const char *const marks[MARKS] = {r->tags->value};
    const char *which = NULL;
    if (r->word.n == 0 && reply_blank(c)) {
        return reply_hold(r, c);
    }
    switch (expect(r, c, marks, &which)) {
    case MATCH_NONE:
        return reply_fail(r);
    case MATCH_WHOLE:
        reply_unhold(r);
        begin_value(r);
        return true;
    case MATCH_PART:
    default:
        return true;
    }
}

static bool may_be_json(char c)
{
    return c != '\0' && strchr("{[-0123456789tfnTFN", c) != NULL;
}

const char *reply_tagged_json(const char *p, size_t n)
{
    static const char *const words[][2] = {
        {"True", "true"}, {"False", "false"}, {"None", "null"}};
    struct err e = {0};
    if (n == 0 || !may_be_json(*p)) {
        return NULL;
    }
    for (size_t i = 0; i < countof(words); i++) {
        if (n == strlen(words[i][0]) && memcmp(p, words[i][0], n) == 0) {
            return words[i][1];
        }
    }
    return json_check(p, n, &e) == 0 ? p : NULL;
}

/* A value that waited. */
static void put_undecided(struct reply *r)
{
    const struct buf *v = &r->tagged.value;
    const char *json = reply_tagged_json(v->p, v->n);
    if (json != NULL) {
        reply_args(r, json, json == v->p ? v->n : strlen(json));
        return;
    }
    reply_args(r, "\"", 1);
    reply_args_text(r, v->p, v->n);
    reply_args(r, "\"", 1);
}

static void put_value_byte(struct reply *r, char c)
{
    struct tagged_call *t = &r->tagged;
    if (!t->begun) {
        t->begun = true;
        t->undecided = !t->only_text && may_be_json(c);
        if (!t->undecided) {
            reply_args(r, "\"", 1);
        }
    }
    if (t->undecided && t->value.n + 1 >= REPLY_HELD_MAX) {
        t->undecided = false; /* too long to wait: a string */
        reply_args(r, "\"", 1);
        reply_args_text(r, t->value.p, t->value.n);
    }
    if (t->undecided) {
        buf_put(&t->value, &c, 1);
    } else {
        reply_args_text(r, &c, 1);
    }
}

static void value_end(struct reply *r)
{
    struct tagged_call *t = &r->tagged;
    if (!t->begun) {
        reply_args(r, "\"\"", 2);
    } else if (t->undecided) {
        put_undecided(r);
    } else {
        reply_args(r, "\"", 1);
    }
    buf_clear(&r->word);
    r->step = item_step;
}

/* r->word is what may be the closing tag, with a line break before it. */
bool reply_tagged_value(struct reply *r, char c)
{
    struct buf *w = &r->word;
    const char *end = r->tags->value_end;
    buf_put(w, &c, 1);
    while (w->n > 0) {
        bool breaks = !r->tagged.begun || r->tagged.line;
        size_t line = breaks && w->p[0] == '\n' ? 1 : 0;
        switch (reply_match(end, w->p + line, w->n - line)) {
        case MATCH_WHOLE:
            value_end(r);
            return true;
        case MATCH_PART:
            return true;
        case MATCH_NONE:
        default:
            break;
        }
        if (!r->tagged.begun && !r->tagged.line && line > 0) {
            r->tagged.line = true; /* the one after the opening tag */
        } else {
            put_value_byte(r, w->p[0]);
        }
        buf_shift(w, 1);
    }
    return true;
}

void reply_tagged_end(struct reply *r)
{
    struct tagged_call *t = &r->tagged;
    if (t->undecided) {
        reply_args(r, "\"", 1);
        reply_args_text(r, t->value.p, t->value.n);
    }
}
