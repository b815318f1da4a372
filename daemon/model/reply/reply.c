/* reply.c - see reply.h and reply_impl.h. Here: text, thoughts, and a parser's
 * life.
 *
 * In text, held is white space (`blank` bytes) and the beginning of a mark.
 * When the mark does not come, its first byte is text and the rest is looked at
 * again. When it comes, the white space is dropped with it.
 */
#include <string.h>

#include "model/reply/reply_impl.h"

/* A piece for the sink is not longer, but for what one byte may give. */
#define OUT_PIECE 4096

static bool thought_step(struct reply *r, char c);

/* --- giving --- */

void reply_flush(struct reply *r)
{
    struct buf *b = &r->out;
    if (b->n > 0) {
        void (*const to[])(void *, const char *, size_t) = {
            [OUT_TEXT] = r->sink->text,
            [OUT_REASONING] = r->sink->reasoning,
            [OUT_ARGS] = r->sink->arguments,
        };
        to[r->out_kind](r->ctx, b->p, b->n);
        buf_clear(b);
    }
}

void reply_give(struct reply *r, enum reply_out kind, const char *p, size_t n)
{
    if (r->out_kind != kind) {
        reply_flush(r);
        r->out_kind = kind;
    }
    while (n > 0) {
        size_t room = r->out.n < OUT_PIECE ? OUT_PIECE - r->out.n : 0;
        size_t take = n < room ? n : room;
        /* A piece ends at the end of a character. */
        while (take < n && ((unsigned char)p[take] & 0xC0) == 0x80) {
            take++;
        }
        buf_put(&r->out, p, take);
        must(buf_ok(&r->out));
        p += take;
        n -= take;
        if (n > 0) {
            reply_flush(r);
        }
    }
}

bool reply_hold(struct reply *r, char c)
{
    buf_put(&r->held, &c, 1);
    must(buf_ok(&r->held));
    return true;
}

void reply_unhold(struct reply *r)
{
    buf_clear(&r->held);
    r->blank = 0;
}

/* The first n bytes held are text. Behind a mark its blank lines are not. */
static void give_front(struct reply *r, size_t n)
{
    size_t from = 0;
    for (size_t i = 0; r->after_mark && i < r->blank && i < n; i++) {
        from = r->held.p[i] == '\n' ? i + 1 : from;
    }
    if (from < n) {
        reply_give(r, OUT_TEXT, r->held.p + from, n - from);
        r->fresh = false;
        r->after_mark = false;
    }
    buf_shift(&r->held, n);
    r->blank = 0;
}

/* --- text --- */

enum reply_match reply_match(const char *mark, const char *p, size_t n)
{
    size_t len = mark != NULL ? strlen(mark) : 0;
    if (n > len || memcmp(p, mark, n) != 0) {
        return MATCH_NONE;
    }
    return n == len ? MATCH_WHOLE : MATCH_PART;
}

static void open_thought(struct reply *r)
{
    r->thinking = true;
    r->thought = false;
    r->step = thought_step;
}

/* What p[0..n) is the beginning of; opens it when it is whole. */
static enum reply_match look(struct reply *r, const char *p, size_t n)
{
    const struct reply_forms *f = r->forms;
    if (f->thoughts == REPLY_THINK && r->fresh) {
        enum reply_match m = reply_match(f->open, p, n);
        if (m == MATCH_WHOLE) {
            reply_unhold(r);
            open_thought(r);
        }
        if (m != MATCH_NONE) {
            return m;
        }
    }
    for (size_t i = 0; i < r->n_rows; i++) {
        const struct reply_row *row = &r->rows[i];
        enum reply_match m = row->at_start && !r->fresh
                                 ? MATCH_NONE
                                 : reply_match(row->mark, p, n);
        if (m == MATCH_WHOLE) {
            r->row = row;
            r->close = row->close;
            r->closed = NULL;
            r->tail = false;
            row->open(r);
        }
        if (m != MATCH_NONE) {
            return m;
        }
    }
    return MATCH_NONE;
}

bool reply_text_step(struct reply *r, char c)
{
    reply_hold(r, c);
    while (r->held.n > r->blank) {
        const char *p = r->held.p + r->blank;
        if (look(r, p, r->held.n - r->blank) != MATCH_NONE) {
            break;
        }
        if (reply_blank(*p)) {
            r->blank++;
        } else {
            give_front(r, r->blank + 1);
        }
    }
    return true;
}

static void to_text(struct reply *r)
{
    r->step = reply_text_step;
    r->tail = false;
}

/* How many of the last bytes held may be the beginning of a mark. */
static size_t mark_at_end(const struct reply *r)
{
    size_t longest = 0;
    for (size_t i = 0; i < r->n_rows; i++) {
        const char *mark = r->rows[i].mark;
        size_t n = strlen(mark) - 1; /* at most; and not all that is held */
        n = n < r->held.n ? n : r->held.n - 1;
        for (; n > longest && !r->rows[i].at_start; n--) {
            if (memcmp(r->held.p + r->held.n - n, mark, n) == 0) {
                longest = n;
            }
        }
    }
    return longest;
}

bool reply_fail(struct reply *r)
{
    size_t keep = 0;
    if (r->calling) {
        reply_call_end(r);
        while (r->blank < r->held.n && reply_blank(r->held.p[r->blank])) {
            r->blank++;
        }
    } else if (r->held.n > r->blank + 1) {
        keep = mark_at_end(r);
    }
    give_front(r, r->held.n - keep);
    to_text(r);
    return false;
}

bool reply_leave(struct reply *r)
{
    struct buf again = r->held; /* short: white space and a part of a mark */
    buf_init(&r->held, r->held.max);
    r->blank = 0;
    to_text(r);
    for (size_t i = 0; i < again.n; i++) {
        while (!r->step(r, again.p[i])) {
        }
    }
    buf_fini(&again);
    return false;
}

void reply_section_end(struct reply *r)
{
    reply_unhold(r);
    r->fresh = true;
    r->after_mark = true;
    to_text(r);
}

static bool close_step(struct reply *r, char c)
{
    if (c == r->close[r->matched]) {
        reply_hold(r, c);
        if (r->close[++r->matched] == '\0' && r->closed != NULL) {
            reply_unhold(r);
            r->step = r->closed;
        } else if (r->close[r->matched] == '\0') {
            reply_section_end(r);
        }
        return true;
    }
    if (r->matched == 0 && (reply_blank(c) || c == '`')) {
        return reply_hold(r, c); /* a fence around JSON ends, too */
    }
    return reply_leave(r);
}

void reply_close(struct reply *r, reply_step_fn closed)
{
    r->matched = 0;
    r->closed = closed;
    if (r->close != NULL) {
        r->step = close_step;
    } else if (closed != NULL) {
        r->step = closed;
    } else {
        reply_section_end(r);
    }
}

/* --- thoughts --- */

static void close_thought(struct reply *r)
{
    r->thinking = false;
    reply_section_end(r);
}

static bool thought_step(struct reply *r, char c)
{
    const struct reply_forms *f = r->forms;
    reply_hold(r, c);
    while (r->held.n > r->blank) {
        const char *p = r->held.p + r->blank;
        size_t n = r->held.n - r->blank;
        enum reply_match m = reply_match(f->close, p, n);
        if (m == MATCH_WHOLE) {
            close_thought(r);
            break;
        }
        /* The prompt has opened it, and the model does so again. */
        enum reply_match twice =
            r->thought ? MATCH_NONE : reply_match(f->open, p, n);
        if (twice == MATCH_WHOLE) {
            reply_unhold(r);
            break;
        }
        if (m == MATCH_PART || twice == MATCH_PART) {
            break;
        }
        if (reply_blank(*p)) {
            r->blank++;
            continue;
        }
        size_t from = r->thought ? 0 : r->blank;
        reply_give(r, OUT_REASONING, r->held.p + from, r->blank + 1 - from);
        buf_shift(&r->held, r->blank + 1);
        r->blank = 0;
        r->thought = true;
    }
    return true;
}

/* --- life --- */

/* The prompt's last bytes are this mark, and white space. */
static bool ends_with(const char *p, size_t n, const char *mark)
{
    size_t len = strlen(mark);
    while (n > 0 && reply_blank(p[n - 1])) {
        n--;
    }
    return n >= len && memcmp(p + n - len, mark, len) == 0;
}

bool reply_opens_thought(const struct reply_forms *f, const char *tail,
                         size_t n)
{
    return f->thoughts == REPLY_THINK && ends_with(tail, n, f->open);
}

bool reply_closes_thought(const struct reply_forms *f, const char *tail,
                          size_t n)
{
    return f->thoughts == REPLY_THINK && ends_with(tail, n, f->close);
}

/* What the prompt has opened. */
static void begin(struct reply *r, const char *tail, size_t n)
{
    const struct reply_forms *f = r->forms;
    if (f->thoughts == REPLY_CHANNEL) {
        reply_harmony_begin(r, tail, n);
    }
    if (reply_opens_thought(f, tail, n)) {
        open_thought(r);
        return;
    }
    if (r->n_rows > 0 && f->tools == REPLY_FUNCTIONARY &&
        ends_with(tail, n, r->rows[0].mark)) {
        r->row = r->rows;
        r->row->open(r);
    }
}

struct reply *reply_new(const struct reply_forms *f, bool tools,
                        const char *prompt_tail, size_t n,
                        const struct reply_sink *sink, void *ctx)
{
    struct reply *r = calloc(1, sizeof(*r));
    must(r != NULL);
    r->forms = f;
    r->sink = sink;
    r->ctx = ctx;
    r->fresh = true;
    r->tools = tools;
    if (tools) {
        r->rows = reply_rows(f->tools, &r->n_rows);
    }
    buf_init(&r->held, REPLY_HELD_MAX);
    buf_init(&r->name, REPLY_NAME_MAX);
    buf_init(&r->word, REPLY_HELD_MAX);
    buf_init(&r->args, REPLY_ARGS_MAX);
    buf_init(&r->json.key, REPLY_NAME_MAX);
    buf_init(&r->tagged.key, REPLY_NAME_MAX);
    buf_init(&r->tagged.value, REPLY_HELD_MAX);
    buf_init(&r->out, 2 * OUT_PIECE);
    r->step = reply_text_step;
    begin(r, prompt_tail, n);
    return r;
}

void reply_strings(struct reply *r, reply_string_fn is_string, void *ctx)
{
    r->is_string = is_string;
    r->is_string_ctx = ctx;
}

void reply_free(struct reply *r)
{
    if (r == NULL) {
        return;
    }
    buf_fini(&r->held);
    buf_fini(&r->name);
    buf_fini(&r->word);
    buf_fini(&r->args);
    buf_fini(&r->json.key);
    buf_fini(&r->tagged.key);
    buf_fini(&r->tagged.value);
    buf_fini(&r->out);
    free(r);
}

/* More is held than any mark has. */
static void too_much(struct reply *r)
{
    if (r->thinking) {
        size_t from = r->thought ? 0 : r->blank;
        reply_give(r, OUT_REASONING, r->held.p + from, r->held.n - from);
        r->thought = r->thought || from < r->held.n;
        reply_unhold(r);
    } else if (r->step == reply_text_step) {
        give_front(r, r->held.n);
    } else {
        (void)reply_fail(r);
    }
}

void reply_put(struct reply *r, const char *p, size_t n)
{
    bool plain = r->n_rows == 0 && r->forms->thoughts == REPLY_NO_THOUGHTS &&
                 r->step == reply_text_step;
    if (plain) { /* nothing to look for */
        reply_give(r, OUT_TEXT, p, n);
    }
    for (size_t i = 0; !plain && i < n; i++) {
        if (r->held.n >= REPLY_HELD_MAX) {
            too_much(r);
        }
        while (!r->step(r, p[i])) {
        }
    }
    reply_flush(r);
}

void reply_end(struct reply *r)
{
    if (r->forms->thoughts == REPLY_CHANNEL) {
        reply_harmony_end(r);
    } else if (r->thinking) {
        if (r->held.n > r->blank) {
            too_much(r);
        }
    } else if (r->calling) {
        if (r->step == reply_literal_step) {
            reply_args(r, r->held.p, r->held.n);
        } else if (r->step == reply_tagged_value) {
            reply_tagged_end(r);
        }
        reply_call_end(r);
    } else if (!r->tail && !(r->after_mark && r->held.n == r->blank)) {
        give_front(r, r->held.n);
    }
    reply_unhold(r);
    reply_flush(r);
}
