/* chat_lib.c - values, and the filters, methods, tests and functions that the
 * known families apply to plain text messages.
 */
#include <string.h>

#include "model/chat_impl.h"
#include "base/utf8.h"

struct val val_str(struct span s)
{
    return (struct val){.kind = V_STRING, .s = s};
}

struct val val_strz(const char *s)
{
    return val_str((struct span){s, strlen(s)});
}

struct val val_int(int64_t i)
{
    return (struct val){.kind = V_INT, .i = i};
}

struct val val_bool(bool b)
{
    return (struct val){.kind = V_BOOL, .b = b};
}

bool span_is(struct span s, const char *z)
{
    return s.n == strlen(z) && memcmp(s.p, z, s.n) == 0;
}

bool val_true(const struct val *v)
{
    switch (v->kind) {
    case V_BOOL:
        return v->b;
    case V_INT:
        return v->i != 0;
    case V_STRING:
        return v->s.n > 0;
    case V_LIST:
        return v->list->n > 0;
    case V_MAP:
        return v->map->n > 0;
    case V_UNDEFINED:
    case V_NONE:
        break;
    }
    return false;
}

/* Lists and maps are equal only when they are the same one: the families
 * compare neither. */
bool val_equal(const struct val *a, const struct val *b)
{
    bool numbers = (a->kind == V_INT || a->kind == V_BOOL) &&
                   (b->kind == V_INT || b->kind == V_BOOL);
    if (numbers) {
        return (a->kind == V_INT ? a->i : a->b) ==
               (b->kind == V_INT ? b->i : b->b);
    }
    if (a->kind != b->kind) {
        return false;
    }
    if (a->kind == V_STRING) {
        return a->s.n == b->s.n &&
               (a->s.n == 0 || memcmp(a->s.p, b->s.p, a->s.n) == 0);
    }
    return a->list == b->list && a->map == b->map;
}

const char *val_name(const struct val *v)
{
    static const char *const names[] = {
        [V_UNDEFINED] = "an undefined value",
        [V_NONE] = "none",
        [V_BOOL] = "true or false",
        [V_INT] = "a number",
        [V_STRING] = "a string",
        [V_LIST] = "a list",
        [V_MAP] = "a mapping",
    };
    return names[v->kind];
}

int val_map_put(struct arena *a, struct val_map *m, struct span key,
                struct val v, struct err *e)
{
    for (size_t i = 0; i < m->n; i++) {
        if (m->keys[i].n == key.n && memcmp(m->keys[i].p, key.p, key.n) == 0) {
            m->v[i] = v;
            return 0;
        }
    }
    if (m->n == m->cap) {
        size_t cap = m->cap == 0 ? 10 : m->cap * 2;
        struct span *keys = arena_array(a, cap, sizeof(*keys));
        struct val *values = arena_array(a, cap, sizeof(*values));
        if (keys == NULL || values == NULL) {
            return err_set(e, ERR_TOO_BIG, "the prompt");
        }
        if (m->n > 0) {
            memcpy(keys, m->keys, m->n * sizeof(*keys));
            memcpy(values, m->v, m->n * sizeof(*values));
        }
        m->keys = keys;
        m->v = values;
        m->cap = cap;
    }
    m->keys[m->n] = key;
    m->v[m->n++] = v;
    return 0;
}

const struct val *val_map_get(const struct val_map *m, struct span key)
{
    for (size_t i = 0; i < m->n; i++) {
        if (m->keys[i].n == key.n && memcmp(m->keys[i].p, key.p, key.n) == 0) {
            return &m->v[i];
        }
    }
    return NULL;
}

int chat_unknown(struct err *e, const char *what, struct span name)
{
    return err_set(e, ERR_TEMPLATE,
                   "the chat template uses %s %.*s, which aned does not know",
                   what, (int)(name.n < 40 ? name.n : 40), name.p);
}

/* --- strings --- */

/* str.isspace() of Python. */
static bool is_white(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 ||
           c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
           c == 0x3000;
}

/* The character at p, of len bytes; bytes that are no UTF-8 are not white. */
static uint32_t char_at(const char *p, size_t n, size_t *len)
{
    if (utf8_seq(p, n, len) != UTF8_OK) {
        *len = 1;
        return 0xFFFD;
    }
    return utf8_char(p, *len);
}

/* In `set`, or white space when set is NULL. */
static bool strips(uint32_t c, const struct span *set)
{
    return set == NULL ? is_white(c)
                       : c < 0x80 && memchr(set->p, (int)c, set->n) != NULL;
}

static struct span strip(struct span s, bool left, bool right,
                         const struct span *set)
{
    size_t len = 0;
    while (left && s.n > 0 && strips(char_at(s.p, s.n, &len), set)) {
        s.p += len;
        s.n -= len;
    }
    while (right && s.n > 0) {
        size_t at = s.n - 1;
        while (at > 0 && s.n - at < 4 &&
               ((unsigned char)s.p[at] & 0xC0) == 0x80) {
            at--;
        }
        uint32_t c = char_at(s.p + at, s.n - at, &len);
        if (at + len != s.n || !strips(c, set)) {
            break;
        }
        s.n = at;
    }
    return s;
}

static struct val undefined(void)
{
    return (struct val){.kind = V_UNDEFINED};
}

static struct val change_case(struct chat_env *v, struct span s, bool upper)
{
    char *p = arena_strn(v->arena, s.p, s.n);
    if (p == NULL) {
        return undefined();
    }
    for (size_t i = 0; i < s.n; i++) {
        if (upper && p[i] >= 'a' && p[i] <= 'z') {
            p[i] = (char)(p[i] - 'a' + 'A');
        } else if (!upper && p[i] >= 'A' && p[i] <= 'Z') {
            p[i] = (char)(p[i] - 'A' + 'a');
        }
    }
    return val_str((struct span){p, s.n});
}

static int split(struct chat_env *v, struct span s, struct span by,
                 struct val *ret)
{
    struct val_list *l = arena_alloc(v->arena, sizeof(*l));
    size_t n = 1;
    for (size_t at = 0; at + by.n <= s.n;) {
        const char *p = memmem(s.p + at, s.n - at, by.p, by.n);
        if (p == NULL) {
            break;
        }
        n++;
        at = (size_t)(p - s.p) + by.n;
    }
    if (l == NULL || (l->v = arena_array(v->arena, n, sizeof(*l->v))) == NULL) {
        return err_set(v->e, ERR_TOO_BIG, "the prompt");
    }
    while (l->n + 1 < n) {
        const char *p = memmem(s.p, s.n, by.p, by.n);
        size_t len = (size_t)(p - s.p);
        l->v[l->n++] = val_str((struct span){s.p, len});
        s.p += len + by.n;
        s.n -= len + by.n;
    }
    l->v[l->n++] = val_str(s);
    *ret = (struct val){.kind = V_LIST, .list = l};
    return 0;
}

static int replace(struct chat_env *v, struct span s, struct span from,
                   struct span to, struct val *ret)
{
    struct buf out;
    buf_init(&out, CHAT_ARENA_MAX / 4);
    while (s.n > 0) {
        const char *p = memmem(s.p, s.n, from.p, from.n);
        size_t keep = p != NULL ? (size_t)(p - s.p) : s.n;
        size_t used = keep + (p != NULL ? from.n : 0);
        buf_put(&out, s.p, keep);
        if (p != NULL) {
            buf_put(&out, to.p, to.n);
        }
        s.p += used;
        s.n -= used;
    }
    const char *copy = buf_ok(&out)
                           ? arena_strn(v->arena, out.n > 0 ? out.p : "", out.n)
                           : NULL;
    *ret = val_str((struct span){copy, out.n});
    buf_fini(&out);
    return copy != NULL ? 0 : err_set(v->e, ERR_TOO_BIG, "the prompt");
}

static bool ends(struct span s, struct span part, bool at_start)
{
    return s.n >= part.n &&
           memcmp(at_start ? s.p : s.p + s.n - part.n, part.p, part.n) == 0;
}

int chat_method(struct chat_env *v, struct span name, size_t argc,
                const struct val *argv, struct val *ret)
{
    const struct val *self = &argv[0];
    bool arg = argc == 2 && argv[1].kind == V_STRING;
    if (self->kind == V_UNDEFINED) {
        return err_set(v->e, ERR_TEMPLATE_INPUT,
                       "the chat template: '%.*s' of something undefined",
                       (int)(name.n < 40 ? name.n : 40), name.p);
    }
    if (self->kind == V_MAP && span_is(name, "get") && argc >= 2 &&
        argv[1].kind == V_STRING) {
        const struct val *have = val_map_get(self->map, argv[1].s);
        *ret = have != NULL
                   ? *have
                   : (argc > 2 ? argv[2] : (struct val){.kind = V_NONE});
        return 0;
    }
    if (self->kind != V_STRING) {
        return chat_unknown(v->e, "the method", name);
    }
    bool both = span_is(name, "strip");
    if ((argc == 1 || arg) &&
        (both || span_is(name, "lstrip") || span_is(name, "rstrip"))) {
        *ret =
            val_str(strip(self->s, both || name.p[0] == 'l',
                          both || name.p[0] == 'r', arg ? &argv[1].s : NULL));
        return 0;
    }
    if (arg && (span_is(name, "startswith") || span_is(name, "endswith"))) {
        *ret = val_bool(ends(self->s, argv[1].s, name.p[0] == 's'));
        return 0;
    }
    if (arg && argv[1].s.n > 0 && span_is(name, "split")) {
        return split(v, self->s, argv[1].s, ret);
    }
    if (argc == 3 && argv[1].kind == V_STRING && argv[1].s.n > 0 &&
        argv[2].kind == V_STRING && span_is(name, "replace")) {
        return replace(v, self->s, argv[1].s, argv[2].s, ret);
    }
    return chat_unknown(v->e, "the method", name);
}

int chat_filter(struct chat_env *v, struct span name, size_t argc,
                const struct val *argv, struct val *ret)
{
    const struct val *a = &argv[0];
    if (span_is(name, "trim") && argc == 1 &&
        (a->kind == V_STRING || a->kind == V_UNDEFINED)) {
        *ret = a->kind == V_STRING ? val_str(strip(a->s, true, true, NULL))
                                   : val_strz("");
        return 0;
    }
    if (span_is(name, "length") || span_is(name, "count")) {
        size_t n = 0;
        size_t len = 0;
        if (a->kind == V_LIST || a->kind == V_MAP) {
            n = a->kind == V_LIST ? a->list->n : a->map->n;
        } else if (a->kind == V_STRING) {
            for (size_t i = 0; i < a->s.n; i += len, n++) {
                (void)char_at(a->s.p + i, a->s.n - i, &len);
            }
        } else if (a->kind != V_UNDEFINED) {
            return chat_unknown(v->e, "the length of",
                                (struct span){"a number", 8});
        }
        *ret = val_int((int64_t)n);
        return 0;
    }
    if (span_is(name, "default") && argc == 2) {
        *ret = a->kind == V_UNDEFINED ? argv[1] : *a;
        return 0;
    }
    if (a->kind == V_LIST && argc == 1 &&
        (span_is(name, "first") || span_is(name, "last"))) {
        size_t n = a->list->n;
        *ret = n == 0 ? undefined() : a->list->v[name.p[0] == 'f' ? 0 : n - 1];
        return 0;
    }
    if (argc == 1 && ((a->kind == V_LIST && span_is(name, "list")) ||
                      (a->kind == V_STRING &&
                       (span_is(name, "string") || span_is(name, "safe"))))) {
        *ret = *a;
        return 0;
    }
    bool upper = span_is(name, "upper");
    if (a->kind == V_STRING && argc == 1 && (upper || span_is(name, "lower"))) {
        for (size_t i = 0; i < a->s.n; i++) {
            if ((unsigned char)a->s.p[i] >= 0x80) { /* ASCII only */
                return chat_unknown(v->e, "a case filter beyond ASCII:", name);
            }
        }
        *ret = change_case(v, a->s, upper);
        return 0;
    }
    return chat_unknown(v->e, "the filter", name);
}

int chat_test(struct chat_env *v, struct span name, size_t argc,
              const struct val *argv, bool *ret)
{
    const struct val *a = &argv[0];
    const struct {
        const char *name;
        bool yes;
    } tests[] = {
        {"defined",   a->kind != V_UNDEFINED                                           },
        {"undefined", a->kind == V_UNDEFINED                                           },
        {"none",      a->kind == V_NONE                                                },
        {"string",    a->kind == V_STRING                                              },
        {"mapping",   a->kind == V_MAP                                                 },
        {"boolean",   a->kind == V_BOOL                                                },
        {"integer",   a->kind == V_INT                                                 },
        {"number",    a->kind == V_INT || a->kind == V_BOOL                            },
        {"true",      a->kind == V_BOOL && a->b                                        },
        {"false",     a->kind == V_BOOL && !a->b                                       },
        {"iterable",  a->kind == V_STRING || a->kind == V_LIST ||
                         a->kind == V_MAP || a->kind == V_UNDEFINED},
        {"sequence",  a->kind == V_STRING || a->kind == V_LIST ||
                         a->kind == V_MAP || a->kind == V_UNDEFINED},
    };
    for (size_t i = 0; argc == 1 && i < countof(tests); i++) {
        if (span_is(name, tests[i].name)) {
            *ret = tests[i].yes;
            return 0;
        }
    }
    if (argc == 2 && (span_is(name, "equalto") || span_is(name, "eq"))) {
        *ret = val_equal(a, &argv[1]);
        return 0;
    }
    return chat_unknown(v->e, "the test", name);
}

static int date(struct chat_env *v, struct span format, struct val *ret)
{
    char fmt[64];
    char text[128];
    struct tm tm;
    if (format.n == 0 || format.n >= sizeof(fmt) ||
        localtime_r(&v->now, &tm) == NULL) {
        return chat_unknown(v->e, "the date format", format);
    }
    memcpy(fmt, format.p, format.n);
    fmt[format.n] = '\0';
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t n = strftime(text, sizeof(text), fmt, &tm);
#pragma GCC diagnostic pop
    const char *copy = arena_strn(v->arena, text, n);
    if (n == 0 || copy == NULL) {
        return chat_unknown(v->e, "the date format", format);
    }
    *ret = val_str((struct span){copy, n});
    return 0;
}

static int range(struct chat_env *v, int64_t from, int64_t to, struct val *ret)
{
    struct val_list *l = arena_alloc(v->arena, sizeof(*l));
    if (from < 0 || to > INT64_MAX / 2 || to - from > 1 << 16 || l == NULL) {
        return err_set(v->e, ERR_TOO_BIG, "a range in the chat template");
    }
    l->n = to > from ? (size_t)(to - from) : 0;
    l->v = arena_array(v->arena, l->n + 1, sizeof(*l->v));
    if (l->v == NULL) {
        return err_set(v->e, ERR_TOO_BIG, "the prompt");
    }
    for (size_t i = 0; i < l->n; i++) {
        l->v[i] = val_int(from + (int64_t)i);
    }
    *ret = (struct val){.kind = V_LIST, .list = l};
    return 0;
}

int chat_function(struct chat_env *v, struct span name, size_t argc,
                  const struct val *argv, const struct span *names,
                  struct val *ret)
{
    if (span_is(name, "raise_exception") && argc == 1 &&
        argv[0].kind == V_STRING) {
        return err_set(v->e, ERR_TEMPLATE_INPUT, "%.*s",
                       (int)(argv[0].s.n < 300 ? argv[0].s.n : 300),
                       argv[0].s.p);
    }
    if (span_is(name, "strftime_now") && argc == 1 &&
        argv[0].kind == V_STRING) {
        return date(v, argv[0].s, ret);
    }
    if (span_is(name, "range") && argc >= 1 && argc <= 2 &&
        argv[0].kind == V_INT && argv[argc - 1].kind == V_INT) {
        return range(v, argc == 2 ? argv[0].i : 0, argv[argc - 1].i, ret);
    }
    if (span_is(name, "namespace") || span_is(name, "dict")) {
        struct val_map *m = arena_alloc(v->arena, sizeof(*m));
        if (m == NULL) {
            return err_set(v->e, ERR_TOO_BIG, "the prompt");
        }
        for (size_t i = 0; i < argc; i++) {
            if (names[i].p == NULL) {
                return chat_unknown(v->e, "an argument of", name);
            }
            RETERR(val_map_put(v->arena, m, names[i], argv[i], v->e));
        }
        *ret = (struct val){.kind = V_MAP, .map = m};
        return 0;
    }
    return chat_unknown(v->e, "the function", name);
}
