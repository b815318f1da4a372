/* literal_call.c - calls that are written as in Python, f(a=1, b=['x', None]),
 * or as gemma 4 does, call:f{a:1,b:[<|"|>x<|"|>,null]}: names, lists of calls,
 * and what stands behind them. literal.c has the arguments.
 */
#include <ctype.h>
#include <string.h>

#include "model/reply/reply_impl.h"

static bool start_step(struct reply *r, char c);
static bool after_step(struct reply *r, char c);


bool reply_literal_step(struct reply *r, char c)
{
    switch (literal_put(r, c)) {
    case LITERAL_MORE:
        return true;
    case LITERAL_DONE:
        reply_call_end(r);
        r->step = after_step;
        return true;
    case LITERAL_BAD:
    default:
        break;
    }
    if (r->calling) { /* it has what the model wrote up to here */
        reply_args(r, r->held.p, r->held.n);
        reply_unhold(r);
    }
    return reply_fail(r);
}

static bool in_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '-';
}

/* Llama's own tools are called as NAME.call(..). */
static void plain_name(struct buf *b)
{
    static const char call[] = ".call";
    size_t n = sizeof(call) - 1;
    if (b->n > n && memcmp(b->p + b->n - n, call, n) == 0) {
        b->n -= n;
    }
}

static bool name_step(struct reply *r, char c)
{
    if (in_name(c)) {
        buf_put(&r->name, &c, 1);
        return buf_ok(&r->name) ? reply_hold(r, c) : reply_fail(r);
    }
    if (c != '(') {
        return reply_fail(r);
    }
    plain_name(&r->name);
    literal_begin(r, false);
    r->step = reply_literal_step;
    return reply_hold(r, c);
}

static bool begins_name(char c)
{
    return isalpha((unsigned char)c) || c == '_';
}

static bool start_step(struct reply *r, char c)
{
    if (begins_name(c)) {
        buf_clear(&r->name);
        r->tail = false;
        r->step = name_step;
        return false;
    }
    return reply_blank(c) ? reply_hold(r, c) : reply_fail(r);
}

static bool after_step(struct reply *r, char c)
{
    struct literal_call *l = &r->literal;
    if (reply_blank(c)) {
        return reply_hold(r, c);
    }
    if (c == ')' && l->wraps > 0) {
        l->wraps--;
        return reply_hold(r, c);
    }
    if (c == ']' && l->list) {
        l->list = false;
        reply_unhold(r);
        reply_close(r, NULL);
        return true;
    }
    if (!l->gemma && (c == ',' || (c == ';' && !l->list))) {
        r->step = start_step;
        return reply_hold(r, c);
    }
    if (!l->gemma && !l->list && begins_name(c) && r->held.n > 0) {
        r->step = start_step; /* on a line of its own */
        return false;
    }
    if (l->list || r->close == NULL) {
        return reply_leave(r);
    }
    reply_close(r, NULL);
    return false;
}

void reply_open_python(struct reply *r)
{
    r->literal.list = false;
    r->step = start_step;
}

void reply_open_python_list(struct reply *r)
{
    r->literal.list = true;
    r->step = start_step;
}

static bool gemma_name_step(struct reply *r, char c)
{
    if (c == '{' && reply_name_ok(r)) {
        literal_begin(r, true);
        r->step = reply_literal_step;
        return reply_hold(r, c);
    }
    buf_put(&r->name, &c, 1);
    bool ok = !reply_blank(c) && c != '{' && c != '<' && reply_name_ok(r);
    return ok ? reply_hold(r, c) : reply_fail(r);
}

void reply_open_gemma(struct reply *r)
{
    buf_clear(&r->name);
    r->literal.list = false;
    r->step = gemma_name_step;
}
