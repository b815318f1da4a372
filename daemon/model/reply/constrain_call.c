/* constrain_call.c - calls in a constraint: which tools, what is to hold of
 * their arguments, and a call piece by piece as spelling.c has it.
 *
 * A schema is compiled here to see whether it can be held, before the engine
 * has to: what is wrong with it is said of its tool. */
#include <ctype.h>
#include <string.h>

#include "model/grammar/match.h"
#include "model/reply/constrain_impl.h"

/* --- tools --- */

static unsigned depth_of(const struct json *j, unsigned most)
{
    unsigned deepest = 0;
    for (const struct json *x = json_first(j); x != NULL && most > 0;
         x = json_next(x)) {
        unsigned d = 1 + depth_of(x, most - 1);
        deepest = d > deepest ? d : deepest;
    }
    return deepest;
}

/* Whether every text of a schema begins with '{'. */
static int only_objects(const struct grammar *g, struct err *e)
{
    struct matcher *m = NULL;
    RETERR(matcher_new(g, &m, e));
    bool only = true;
    for (unsigned c = 0; c < 256; c++) {
        only &=
            c == '{' || match_byte(m, match_start(m), (uint8_t)c) == MATCH_DEAD;
    }
    matcher_free(m);
    return only ? 0
                : err_set(e, ERR_INVALID,
                          "parameters: the schema is not one of objects");
}

static int look_at_schema(const struct json *s, bool in_json, struct err *e)
{
    struct grammar *g = NULL;
    unsigned most = in_json ? REPLY_SCHEMA_DEPTH_MAX : REPLY_PARAM_DEPTH_MAX;
    if (depth_of(s, most + 1) > most) {
        return err_set(e, ERR_UNSUPPORTED,
                       "parameters: the schema is nested deeper than %u", most);
    }
    RETERR(grammar_from_schema(s, &g, e));
    int rc = only_objects(g, e);
    grammar_free(g);
    return rc;
}

/* What is to hold of its arguments. */
static int choose_args(struct constrain *c, bool in_json, struct tool *t)
{
    struct err e = {0};
    const struct json *s = t->schema;
    t->args = ARGS_ANY;
    if (c->w->kind == WANT_AUTO && !t->strict) {
        return 0;
    }
    if (s == NULL || json_type(s) == JSON_NULL ||
        (json_type(s) == JSON_OBJECT && json_first(s) == NULL)) {
        t->args = ARGS_NONE;
        return 0;
    }
    int rc = look_at_schema(s, in_json, &e);
    if (rc == 0) {
        t->args = ARGS_SCHEMA;
    } else if (t->strict || rc == ERR_NOMEM) {
        return err_set(c->e, rc, "tool '%s': %s", t->name, e.msg);
    }
    return 0;
}

/* Whether a call can name it: the parser reads what stands between marks up to
 * a mark, and cuts some beginnings off. */
static bool name_ok(const char *name, bool plain)
{
    size_t n = strlen(name);
    bool ok = n > 0 && n <= REPLY_NAME_MAX;
    for (size_t i = 0; i < n; i++) {
        unsigned char u = (unsigned char)name[i];
        ok &= u >= 0x20 &&
              (!plain || isalnum(u) || u == '_' || u == '-' || u == '.');
    }
    return ok && (!plain || ((isalpha((unsigned char)*name) || *name == '_') &&
                             strncmp(name, "functions.", 10) != 0 &&
                             strcmp(name, "all") != 0));
}

static int read_tool(struct constrain *c, const struct json *x, struct tool *t)
{
    const struct json *f = json_get(x, "function");
    t->name = json_str(json_get(f, "name"));
    t->schema = json_get(f, "parameters");
    t->strict = json_bool(json_get(f, "strict"));
    return t->name != NULL ? 0
                           : err_set(c->e, ERR_INVALID,
                                     "a tool is no function with a name");
}

bool constrain_next_tool(struct constrain *c, const struct reply_spelling *sp,
                         const struct json **at, struct tool *ret, int *rc)
{
    const struct reply_want *w = c->w;
    bool plain_name = sp == NULL || sp->plain_name;
    bool in_json = sp == NULL || sp->values == VALUES_JSON;
    bool named = w->kind == WANT_CALL && w->name != NULL;
    while (*rc == 0) {
        *at = *at == NULL ? json_first(w->tools) : json_next(*at);
        if (*at == NULL) {
            return false;
        }
        *rc = read_tool(c, *at, ret);
        if (*rc != 0 || (named && strcmp(ret->name, w->name) != 0)) {
            continue;
        }
        if (!name_ok(ret->name, plain_name)) {
            *rc = err_set(c->e, ERR_INVALID,
                          "tool '%s': the model's calls cannot have this name",
                          ret->name);
            return false;
        }
        *rc = choose_args(c, in_json, ret);
        return *rc == 0;
    }
    return false;
}

/* --- calls --- */

void constrain_json_args(struct constrain *c, const struct tool *t)
{
    switch (t->args) {
    case ARGS_NONE:
        parts_text(&c->p, "{}");
        break;
    case ARGS_SCHEMA:
        parts_schema(&c->p, t->schema, t->schema);
        break;
    case ARGS_ANY:
    default:
        parts_raw(&c->p, "{\"object\":true}");
        break;
    }
}

/* Whether what was written since byte n can be compiled: parts of a schema may
 * refer to what is not in them. */
static int look_at_args(struct constrain *c, size_t n)
{
    struct grammar *g = NULL;
    struct buf b;
    const struct buf *out = c->p.b;
    if (!buf_ok(out)) {
        return 0; /* said of the whole */
    }
    n += n < out->n && out->p[n] == ',';
    buf_init(&b, GRAMMAR_TEXT_MAX);
    buf_puts(&b, "{\"seq\":[");
    buf_put(&b, out->p + n, out->n - n);
    buf_puts(&b, "]}");
    int rc = buf_ok(&b) ? grammar_from_text(b.p, b.n, &g, c->e)
                        : err_set(c->e, ERR_TOO_BIG, "arguments");
    grammar_free(g);
    buf_fini(&b);
    return rc;
}

static int args(struct constrain *c, const struct reply_spelling *sp,
                struct tool *t)
{
    struct parts before = c->p;
    size_t n = c->p.b->n;
    if (sp->values == VALUES_JSON) {
        constrain_json_args(c, t);
        return 0;
    }
    int rc = constrain_args(c, sp, t);
    if (rc == 0 && t->args == ARGS_SCHEMA) {
        rc = look_at_args(c, n);
        rc = rc != 0 ? err_prefix(c->e, rc, "tool '%s'", t->name) : 0;
    }
    if (rc != 0 && rc != ERR_NOMEM && !t->strict) {
        c->p = before;
        c->p.b->n = n;
        t->args = ARGS_ANY;
        rc = constrain_args(c, sp, t);
    }
    return rc;
}

/* What was gathered of a call, as one part. */
static void flush(struct constrain *c, struct buf *text)
{
    if (text->n > 0) {
        parts_put(&c->p, "text", text->p, text->n);
    }
    buf_clear(text);
}

static void put_name(struct buf *text, const struct reply_spelling *sp,
                     const char *name)
{
    if (sp->plain_name) {
        buf_puts(text, name);
    } else {
        json_put_text(text, name, strlen(name));
    }
}

static int pieces(struct constrain *c, const struct reply_spelling *sp,
                  const struct piece *list, size_t n, struct tool *t)
{
    int rc = 0;
    struct buf text;
    buf_init(&text, REPLY_HELD_MAX);
    for (size_t i = 0; i < n && list[i].kind != PIECE_END && rc == 0; i++) {
        const char *s = list[i].s;
        switch (list[i].kind) {
        case PIECE_TEXT:
            buf_puts(&text, s);
            break;
        case PIECE_NAME:
            put_name(&text, sp, t->name);
            break;
        case PIECE_REGEX:
            flush(c, &text);
            parts_regex(&c->p, s);
            break;
        case PIECE_ARGS:
            flush(c, &text);
            rc = args(c, sp, t);
            break;
        case PIECE_END:
        default:
            break;
        }
    }
    must(buf_ok(&text));
    flush(c, &text);
    buf_fini(&text);
    return rc;
}

int constrain_calls(struct constrain *c, const struct reply_spelling *sp)
{
    const struct json *at = NULL;
    struct tool t = {0};
    int rc = 0;
    unsigned n = 0;
    bool many = c->w->parallel && sp->between != NULL;
    RETERR(pieces(c, sp, sp->open, countof(sp->open), &t));
    if (many) {
        parts_repeat(&c->p);
    }
    parts_begin(&c->p, "any");
    for (; constrain_next_tool(c, sp, &at, &t, &rc); n++) {
        parts_begin(&c->p, "seq");
        RETERR(pieces(c, sp, sp->call, countof(sp->call), &t));
        parts_end(&c->p);
    }
    parts_end(&c->p);
    if (many) {
        parts_repeat_end(&c->p, 1, 0, sp->between);
    }
    if (sp->close != NULL) {
        parts_text(&c->p, sp->close);
    }
    return rc == 0 && n == 0 ? constrain_no_tool(c) : rc;
}

int constrain_no_tool(struct constrain *c)
{
    const char *name = c->w->name;
    return err_set(c->e, ERR_INVALID, "there is no tool%s%s%s",
                   name != NULL ? " '" : "", name != NULL ? name : "",
                   name != NULL ? "'" : "");
}
