/* named_call.c - calls that are a name, a mark and a JSON object, and the
 * choice of the form by what follows a mark.
 */
#include <ctype.h>
#include <string.h>

#include "model/reply/reply_impl.h"

/* --- by what follows the mark --- */

static bool any_step(struct reply *r, char c);

void reply_open_any(struct reply *r)
{
    r->step = any_step;
}

/* Behind a '[', which may begin a list of objects or of Python's calls. */
static bool any_list_step(struct reply *r, char c)
{
    if (reply_blank(c)) {
        return reply_hold(r, c);
    }
    if (c == '{') {
        reply_open_json_list(r);
    } else {
        reply_open_python_list(r);
    }
    return false;
}

void reply_open_list(struct reply *r)
{
    r->step = any_list_step;
}

static bool any_step(struct reply *r, char c)
{
    if (reply_blank(c)) {
        return reply_hold(r, c);
    }
    if (c == '[') {
        r->step = any_list_step;
        return reply_hold(r, c);
    }
    if (c == '{' || c == '`') {
        reply_open_json(r);
    } else if (c == '<' && r->row->tags != NULL && r->row->tags->call != NULL) {
        reply_open_tagged(r);
    } else if (r->row->word != NULL &&
               (isalpha((unsigned char)c) || c == '_')) {
        r->row->word(r);
    } else {
        return reply_fail(r);
    }
    return false;
}

static bool silent_step(struct reply *r, char c)
{
    (void)c;
    reply_unhold(r);
    r->step = reply_text_step;
    return false;
}

void reply_open_silent(struct reply *r)
{
    r->step = silent_step;
    r->tail = true; /* at the end, too */
}

/* --- a name and an object --- */

static bool ends(const struct buf *b, const char *s)
{
    size_t n = s != NULL ? strlen(s) : 0;
    return n > 0 && b->n >= n && memcmp(b->p + b->n - n, s, n) == 0;
}

static void trim(struct buf *b)
{
    while (b->n > 0 && reply_blank(b->p[b->n - 1])) {
        b->n--;
    }
    size_t from = 0;
    while (from < b->n && reply_blank(b->p[from])) {
        from++;
    }
    buf_shift(b, from);
}

/* Kimi's functions.NAME:0 is NAME. */
static void plain_name(struct buf *b)
{
    static const char space[] = "functions.";
    trim(b);
    if (b->n > sizeof(space) - 1 &&
        memcmp(b->p, space, sizeof(space) - 1) == 0) {
        buf_shift(b, sizeof(space) - 1);
    }
    size_t n = b->n;
    while (n > 0 && isdigit((unsigned char)b->p[n - 1])) {
        n--;
    }
    if (n > 1 && n < b->n && b->p[n - 1] == ':') {
        b->n = n - 1;
    }
}

static bool tail_step(struct reply *r, char c)
{
    reply_close(r, NULL);
    return r->step(r, c);
}

static bool args_step(struct reply *r, char c);

/* DeepSeek R1 has a type, the mark, then the name on a line of its own. */
static bool second_name_step(struct reply *r, char c)
{
    if (c == '\n') {
        plain_name(&r->name);
        r->json.fence = false;
        r->step = args_step;
    } else {
        buf_put(&r->name, &c, 1);
    }
    return buf_ok(&r->name) ? reply_hold(r, c) : reply_fail(r);
}

static bool args_step(struct reply *r, char c)
{
    struct json_call *j = &r->json;
    if (c == '{' && reply_name_ok(r)) {
        reply_json_args(r, tail_step);
        return false;
    }
    if (reply_blank(c) || c == '`' || (j->fence && c >= 'a' && c <= 'z')) {
        j->fence = c == '`' || (j->fence && !reply_blank(c));
        return reply_hold(r, c);
    }
    if (j->more && (isalpha((unsigned char)c) || c == '_')) {
        j->more = false;
        buf_clear(&r->name);
        r->step = second_name_step;
        return false;
    }
    return reply_fail(r);
}

static bool skip_step(struct reply *r, char c)
{
    buf_put(&r->word, &c, 1);
    if (ends(&r->word, r->row->sep)) {
        r->step = args_step;
    }
    return reply_hold(r, c);
}

static bool name_step(struct reply *r, char c)
{
    struct buf *b = &r->name;
    buf_put(b, &c, 1);
    if (!buf_ok(b)) {
        return reply_fail(r);
    }
    reply_hold(r, c);
    if (ends(b, r->row->sep)) {
        b->n -= strlen(r->row->sep);
        r->step = args_step;
    } else if (ends(b, r->row->skip_to_sep)) {
        b->n -= strlen(r->row->skip_to_sep);
        buf_clear(&r->word);
        r->step = skip_step;
    }
    if (r->step != name_step) {
        plain_name(b);
    }
    if (r->step == args_step && r->forms->tools == REPLY_FUNCTIONARY &&
        b->n == 3 && memcmp(b->p, "all", 3) == 0) {
        reply_section_end(r); /* >>>all: text follows */
    }
    return true;
}

void reply_open_named(struct reply *r)
{
    buf_clear(&r->name);
    r->json.fence = false;
    r->json.more = r->forms->tools == REPLY_DEEPSEEK;
    r->step = name_step;
}
