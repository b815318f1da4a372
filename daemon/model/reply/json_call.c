/* json_call.c - calls that are JSON objects: {"name": .., "arguments": {..}},
 * alone or in a list, with other members or without.
 *
 * Only the head is understood here: member by member until name and arguments
 * are there. Arguments that come first wait in held until there is a name.
 * Arguments may also be a string that has the JSON text.
 */
#include <string.h>

#include "model/reply/reply_impl.h"

static bool start_step(struct reply *r, char c);
static bool first_key_step(struct reply *r, char c);
static bool key_step(struct reply *r, char c);
static bool next_step(struct reply *r, char c);
static bool after_step(struct reply *r, char c);

static bool key_is(const struct reply *r, const char *s)
{
    const struct buf *k = &r->json.key;
    return buf_ok(k) && k->n == strlen(s) && memcmp(k->p, s, k->n) == 0;
}

static bool names_it(const struct reply *r)
{
    return key_is(r, "name") || key_is(r, "tool_name") ||
           key_is(r, "function");
}

static bool has_arguments(const struct reply *r)
{
    return key_is(r, "arguments") || key_is(r, "parameters");
}

/* An object without a mark around it is a call only with these members: others
 * are an answer in JSON, which is given as it arrives. */
static bool may_be_call(const struct reply *r)
{
    static const char *const beside[] = {"type", "id", "tool_call_id", "index"};
    bool known = names_it(r) || has_arguments(r);
    for (size_t i = 0; i < countof(beside); i++) {
        known = known || key_is(r, beside[i]);
    }
    return known || !r->row->needs_args || r->tail;
}

static void begin_object(struct reply *r)
{
    struct json_call *j = &r->json;
    j->wraps = 0;
    j->args_n = 0;
    j->null_args = false;
    buf_clear(&r->name);
    r->tail = false;
    r->step = first_key_step;
}

static void clear(struct reply *r)
{
    struct json_call *j = &r->json;
    j->list = false;
    j->more = false;
    j->fence = false;
    r->step = start_step;
}

void reply_open_json(struct reply *r)
{
    clear(r);
}

void reply_open_json_list(struct reply *r)
{
    clear(r);
    r->json.list = true;
}

void reply_open_object(struct reply *r)
{
    clear(r);
    begin_object(r);
}

static bool start_step(struct reply *r, char c)
{
    struct json_call *j = &r->json;
    if (reply_blank(c)) {
        j->fence = false;
        return reply_hold(r, c);
    }
    if (c == '{') {
        begin_object(r);
        return reply_hold(r, c);
    }
    if (c == '[' && !j->list && !j->more) {
        j->list = true;
        return reply_hold(r, c);
    }
    if (c == '`' || (j->fence && c >= 'a' && c <= 'z')) { /* ```json */
        j->fence = true;
        return reply_hold(r, c);
    }
    return reply_fail(r);
}

/* --- members --- */

static bool in_key_step(struct reply *r, char c);
static bool colon_step(struct reply *r, char c);
static bool value_step(struct reply *r, char c);
static bool object_end(struct reply *r);

static bool first_key_step(struct reply *r, char c)
{
    return c == '}' ? next_step(r, c) : key_step(r, c);
}

static bool key_step(struct reply *r, char c)
{
    if (c == '"') {
        buf_clear(&r->json.key);
        r->json.key_escape = false;
        r->step = in_key_step;
    } else if (!reply_blank(c)) {
        return reply_fail(r);
    }
    return reply_hold(r, c);
}

/* A key with escapes is none that is looked for. */
static bool in_key_step(struct reply *r, char c)
{
    if (c == '"' && !r->json.key_escape) {
        if (!may_be_call(r)) {
            return reply_fail(r);
        }
        r->step = colon_step;
    } else {
        r->json.key_escape = c == '\\' && !r->json.key_escape;
        buf_put(&r->json.key, &c, 1);
    }
    return reply_hold(r, c);
}

static bool colon_step(struct reply *r, char c)
{
    if (c == ':') {
        r->step = value_step;
    } else if (!reply_blank(c)) {
        return reply_fail(r);
    }
    return reply_hold(r, c);
}

static bool skip_step(struct reply *r, char c)
{
    enum walk w = json_walk_put(&r->walk, c);
    if (r->walk.bad) {
        return reply_fail(r);
    }
    if (w != WALK_MORE) {
        r->step = next_step;
    }
    return w != WALK_OVER && reply_hold(r, c);
}

/* Arguments before the name: they are read again when it is there. */
static bool early_step(struct reply *r, char c)
{
    bool taken = skip_step(r, c);
    if (r->step == next_step) {
        r->json.args_n = r->held.n - r->json.args_at;
    }
    return taken;
}

static bool args_string_step(struct reply *r, char c)
{
    char out[UNESCAPE_MAX];
    struct unescape *u = &r->json.esc;
    if (c == '"' && !u->in) {
        reply_args(r, out, unescape_end(u, out));
        reply_call_end(r);
        r->step = next_step;
    } else {
        reply_args(r, out, unescape_put(u, c, out));
    }
    return true;
}

static void begin_args_string(struct reply *r)
{
    memset(&r->json.esc, 0, sizeof(r->json.esc));
    r->step = args_string_step;
}

/* The name is there, and the arguments, if any, are in held. */
static void give_early(struct reply *r)
{
    struct json_call *j = &r->json;
    struct buf early;
    buf_init(&early, REPLY_HELD_MAX);
    buf_put(&early, r->held.p + j->args_at, j->args_n);
    must(buf_ok(&early));
    reply_call_begin(r);
    if (j->args_n == 0) {
        reply_args(r, "{}", 2);
        reply_call_end(r);
    } else if (early.p[0] == '"') {
        begin_args_string(r);
        for (size_t i = 1; i < early.n; i++) {
            (void)args_string_step(r, early.p[i]);
        }
    } else {
        reply_args(r, early.p, early.n);
        reply_call_end(r);
    }
    buf_fini(&early);
    r->step = next_step;
}

static bool name_step(struct reply *r, char c)
{
    char out[UNESCAPE_MAX];
    struct unescape *u = &r->json.esc;
    if (c != '"' || u->in) {
        if (c == '\0') {
            return reply_fail(r);
        }
        buf_put(&r->name, out, unescape_put(u, c, out));
        return reply_hold(r, c);
    }
    buf_put(&r->name, out, unescape_end(u, out));
    if (u->bad || !reply_name_ok(r)) {
        return reply_fail(r);
    }
    if (r->json.args_n > 0) {
        give_early(r);
        return true;
    }
    r->step = next_step;
    return reply_hold(r, c);
}

static bool begin_args(struct reply *r, char c)
{
    struct json_call *j = &r->json;
    if (r->name.n == 0) {
        j->args_at = r->held.n;
        json_walk_init(&r->walk);
        r->step = early_step;
        return false;
    }
    if (c == '"') {
        reply_call_begin(r);
        begin_args_string(r);
        return true;
    }
    reply_json_args(r, next_step);
    return false;
}

static bool value_step(struct reply *r, char c)
{
    struct json_call *j = &r->json;
    if (reply_blank(c)) {
        return reply_hold(r, c);
    }
    bool open = !r->tail; /* this object's call has not been given yet */
    if (open && r->name.n == 0 && c == '"' && names_it(r)) {
        memset(&j->esc, 0, sizeof(j->esc));
        r->step = name_step;
        return reply_hold(r, c);
    }
    if (open && c == '{' && key_is(r, "function")) {
        j->wraps++;
        r->step = first_key_step;
        return reply_hold(r, c);
    }
    if (open && has_arguments(r) && j->args_n == 0) {
        if (c != 'n') {
            return begin_args(r, c);
        }
        j->null_args = true;
    }
    json_walk_init(&r->walk);
    r->step = skip_step;
    return false;
}

static bool next_step(struct reply *r, char c)
{
    if (c == ',') {
        r->step = key_step;
    } else if (c == '}' && r->json.wraps > 0) {
        r->json.wraps--;
        r->step = next_step;
    } else if (c == '}') {
        return object_end(r);
    } else if (!reply_blank(c)) {
        return reply_fail(r);
    }
    return reply_hold(r, c);
}

/* --- behind an object --- */

static bool object_end(struct reply *r)
{
    struct json_call *j = &r->json;
    if (!r->tail) {
        if (r->name.n == 0 || j->args_n > 0 ||
            (r->row->needs_args && !j->null_args)) {
            return reply_fail(r);
        }
        give_early(r);
    }
    reply_unhold(r); /* what is around arguments is of the call */
    r->step = after_step;
    return true;
}

static bool after_step(struct reply *r, char c)
{
    struct json_call *j = &r->json;
    if (c == '{') { /* the next one, on a line of its own */
        begin_object(r);
        return reply_hold(r, c);
    }
    if (c == ',' || (c == ';' && !j->list)) {
        j->more = true;
        r->step = start_step;
        return reply_hold(r, c);
    }
    if (c == ']' && j->list) {
        j->list = false;
        reply_unhold(r);
        reply_close(r, NULL);
        return true;
    }
    if (reply_blank(c)) {
        return reply_hold(r, c);
    }
    if (j->list || r->close == NULL) {
        return reply_leave(r);
    }
    reply_close(r, NULL);
    return false;
}
