/* call.c - what all forms of calls share: begin, arguments, verdict, end. */
#include "base/utf8.h"
#include "model/reply/reply_impl.h"
#include "proto/json.h"


bool reply_name_ok(const struct reply *r)
{
    for (size_t i = 0; i < r->name.n; i++) {
        if ((unsigned char)r->name.p[i] < 0x20) {
            return false;
        }
    }
    return r->name.n > 0 && buf_ok(&r->name);
}

void reply_call_begin(struct reply *r)
{
    must(!r->calling && reply_name_ok(r));
    reply_flush(r);
    r->sink->call(r->ctx, r->name.p, r->name.n);
    r->calling = true;
    r->fresh = true;
    r->after_mark = true;
    buf_clear(&r->args);
    reply_unhold(r);
}

void reply_args(struct reply *r, const char *p, size_t n)
{
    must(r->calling);
    buf_put(&r->args, p, n);
    reply_give(r, OUT_ARGS, p, n);
}

void reply_args_text(struct reply *r, const char *p, size_t n)
{
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char u = (unsigned char)p[i];
        if (u >= 0x20 && u != '"' && u != '\\') {
            continue;
        }
        reply_args(r, p + from, i - from);
        from = i + 1;
        struct buf b;
        if (u == 0) {
            reply_args(r, UTF8_REPLACEMENT, 3);
            continue;
        }
        buf_init(&b, 16);
        json_put_text(&b, p + i, 1);
        reply_args(r, b.p, b.n);
        buf_fini(&b);
    }
    reply_args(r, p + from, n - from);
}

void reply_call_end(struct reply *r)
{
    struct json *j = NULL;
    struct err e = {0};
    bool whole = buf_ok(&r->args) && r->args.n > 0 &&
                 json_parse(r->args.p, r->args.n, &j, &e) == 0 &&
                 json_type(j) == JSON_OBJECT;
    json_free(j);
    reply_flush(r);
    r->sink->call_end(r->ctx, whole);
    r->calling = false;
    r->tail = true;
    buf_fini(&r->args);
    buf_init(&r->args, REPLY_ARGS_MAX);
}

void reply_json_args(struct reply *r, reply_step_fn then)
{
    reply_call_begin(r);
    json_walk_init(&r->walk);
    r->then = then;
    r->matched = 0;
    r->step = reply_args_step;
}

/* Arguments that are no JSON any more end at the mark, too. True: c is of it.
 */
static bool close_in_args(struct reply *r, char c)
{
    if (r->matched > 0 && c != r->close[r->matched]) {
        reply_args(r, r->held.p, r->held.n);
        reply_unhold(r);
        r->matched = 0;
    }
    if (c != r->close[r->matched]) {
        return false;
    }
    reply_hold(r, c);
    if (r->close[++r->matched] == '\0') {
        reply_call_end(r);
        reply_section_end(r);
    }
    return true;
}

bool reply_args_step(struct reply *r, char c)
{
    if (r->walk.bad && r->close != NULL && close_in_args(r, c)) {
        return true;
    }
    enum walk w = json_walk_put(&r->walk, c);
    if (w != WALK_OVER) {
        reply_args(r, &c, 1);
    }
    if (w != WALK_MORE) {
        reply_call_end(r);
        r->step = r->then;
    }
    return w != WALK_OVER;
}
