/* harmony.c - gpt-oss' messages in channels:
 *
 *   <|channel|>analysis<|message|>..<|end|>
 *   <|start|>assistant<|channel|>final<|message|>..
 *   <|start|>assistant to=functions.f<|channel|>commentary json<|message|>{..}
 *
 * The prompt ends with <|start|>assistant, so an answer begins in a header. The
 * end of a message is a control token; <|call|> and <|return|> end the answer,
 * so they are seldom seen here.
 */
#include <string.h>

#include "model/reply/reply_impl.h"

#define MESSAGE "<|message|>"

static bool header_step(struct reply *r, char c);
static bool body_step(struct reply *r, char c);
static bool between_step(struct reply *r, char c);

/* Marks that end a message, and those that begin the next one's header. */
static const char *const ends[] = {"<|end|>", "<|call|>", "<|return|>"};
static const char *const starts[] = {"<|start|>", "<|channel|>"};

static bool contains(const struct buf *b, const char *s, size_t *ret_end)
{
    size_t n = strlen(s);
    for (size_t i = 0; i + n <= b->n; i++) {
        if (memcmp(b->p + i, s, n) == 0) {
            *ret_end = i + n;
            return true;
        }
    }
    return false;
}

/* The word at b->p[from..]. */
static struct span word_at(const struct buf *b, size_t from)
{
    size_t n = 0;
    while (from + n < b->n && !reply_blank(b->p[from + n]) &&
           b->p[from + n] != '<') {
        n++;
    }
    return (struct span){b->p + from, n};
}

static void begin_body(struct reply *r, enum reply_out kind)
{
    r->harmony.kind = kind;
    r->step = body_step;
}

/* held is a whole header. */
static void read_header(struct reply *r)
{
    static const char space[] = "functions.";
    struct buf *h = &r->held;
    size_t at = 0;
    struct span channel = {"", 0};
    if (contains(h, "<|channel|>", &at)) {
        channel = word_at(h, at);
    }
    if (r->tools && contains(h, "to=", &at)) {
        struct span to = word_at(h, at);
        size_t skip = sizeof(space) - 1;
        if (to.n <= skip || memcmp(to.p, space, skip) != 0) {
            skip = 0;
        }
        buf_clear(&r->name);
        buf_put(&r->name, to.p + skip, to.n - skip);
        if (reply_name_ok(r)) {
            reply_json_args(r, between_step);
            begin_body(r, OUT_ARGS);
            return;
        }
    }
    if (contains(h, "to=", &at)) { /* a call that nobody looks for is text */
        reply_give(r, OUT_TEXT, h->p, h->n);
        begin_body(r, OUT_TEXT);
    } else {
        bool thought = channel.n == 8 && memcmp(channel.p, "analysis", 8) == 0;
        begin_body(r, thought ? OUT_REASONING : OUT_TEXT);
    }
    reply_unhold(r);
}

static bool header_step(struct reply *r, char c)
{
    size_t n = sizeof(MESSAGE) - 1;
    if (r->held.n >= REPLY_NAME_MAX) {
        reply_give(r, OUT_TEXT, r->held.p, r->held.n);
        reply_unhold(r);
        begin_body(r, OUT_TEXT);
        return false;
    }
    reply_hold(r, c);
    if (r->held.n >= n && memcmp(r->held.p + r->held.n - n, MESSAGE, n) == 0) {
        read_header(r);
    }
    return true;
}

/* What held is the beginning of, or all of. *ret_start: it opens a header. */
static enum reply_match look(const struct reply *r, bool *ret_start)
{
    enum reply_match m = MATCH_NONE;
    *ret_start = false;
    for (size_t i = 0; i < countof(ends) && m == MATCH_NONE; i++) {
        m = reply_match(ends[i], r->held.p, r->held.n);
    }
    for (size_t i = 0; i < countof(starts) && m == MATCH_NONE; i++) {
        m = reply_match(starts[i], r->held.p, r->held.n);
        *ret_start = m != MATCH_NONE;
    }
    return m;
}

static void give(struct reply *r, const char *p)
{
    if (r->calling && reply_args_step(r, *p)) {
        return;
    }
    if (r->harmony.kind == OUT_ARGS) { /* the arguments have ended */
        r->harmony.kind = OUT_TEXT;
    }
    reply_give(r, r->harmony.kind, p, 1);
}

static void end_message(struct reply *r, bool start)
{
    if (r->calling) {
        reply_call_end(r);
    }
    if (start) {
        r->step = header_step; /* which the mark is part of */
    } else {
        reply_unhold(r);
        r->step = between_step;
    }
}

static bool body_step(struct reply *r, char c)
{
    bool start = false;
    reply_hold(r, c);
    while (r->held.n > 0) {
        enum reply_match m = look(r, &start);
        if (m == MATCH_WHOLE) {
            end_message(r, start);
        }
        if (m != MATCH_NONE) {
            break;
        }
        give(r, r->held.p);
        buf_shift(&r->held, 1);
    }
    return true;
}

/* Behind a message or the arguments of a call: white space, then a mark. */
static bool between_step(struct reply *r, char c)
{
    bool start = false;
    if (r->held.n == 0 && reply_blank(c)) {
        return true;
    }
    reply_hold(r, c);
    switch (look(r, &start)) {
    case MATCH_WHOLE:
        end_message(r, start);
        return true;
    case MATCH_PART:
        return true;
    case MATCH_NONE:
    default:
        r->held.n--;
        reply_give(r, OUT_TEXT, r->held.p, r->held.n);
        reply_unhold(r);
        begin_body(r, OUT_TEXT);
        return false;
    }
}

/* The first bytes: a header, or text of a model that has lost its way. */
static bool begin_step(struct reply *r, char c)
{
    static const char *const first[] = {"<|channel|>", "<|start|>", " to=",
                                        "<|message|>"};
    reply_hold(r, c);
    for (size_t i = 0; i < countof(first); i++) {
        enum reply_match m = reply_match(first[i], r->held.p, r->held.n);
        if (m == MATCH_WHOLE) {
            r->step = header_step;
            if (strcmp(first[i], MESSAGE) == 0) {
                read_header(r);
            }
        }
        if (m != MATCH_NONE) {
            return true;
        }
    }
    r->held.n--;
    reply_give(r, OUT_TEXT, r->held.p, r->held.n);
    reply_unhold(r);
    begin_body(r, OUT_TEXT);
    return false;
}

void reply_harmony_begin(struct reply *r, const char *tail, size_t n)
{
    static const char *const open[] = {"<|channel|>analysis<|message|>",
                                       "<|channel|>final<|message|>"};
    for (size_t i = 0; i < countof(open); i++) {
        size_t len = strlen(open[i]);
        if (n >= len && memcmp(tail + n - len, open[i], len) == 0) {
            begin_body(r, i == 0 ? OUT_REASONING : OUT_TEXT);
            return;
        }
    }
    r->step = begin_step;
}

void reply_harmony_end(struct reply *r)
{
    if (r->step == body_step && r->harmony.kind == OUT_REASONING) {
        reply_give(r, OUT_REASONING, r->held.p, r->held.n);
    } else if (r->step == between_step || r->calling) {
        /* a part of a mark */
    } else {
        reply_give(r, OUT_TEXT, r->held.p, r->held.n);
    }
    if (r->calling) {
        reply_call_end(r);
    }
}
