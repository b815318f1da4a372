/* parts.c - the text of a constraint, part by part (constrain_impl.h). */
#include <string.h>

#include "model/reply/constrain_impl.h"

static void comma(struct parts *p)
{
    if (p->comma) {
        buf_puts(p->b, ",");
    }
    p->comma = true;
}

void parts_begin(struct parts *p, const char *word)
{
    comma(p);
    buf_printf(p->b, "{\"%s\":[", word);
    p->comma = false;
}

void parts_end(struct parts *p)
{
    buf_puts(p->b, "]}");
    p->comma = true;
}

void parts_put(struct parts *p, const char *word, const char *s, size_t n)
{
    comma(p);
    buf_printf(p->b, "{\"%s\":", word);
    json_put_string(p->b, s, n);
    buf_puts(p->b, "}");
}

void parts_text(struct parts *p, const char *s)
{
    if (*s != '\0') {
        parts_put(p, "text", s, strlen(s));
    }
}

void parts_regex(struct parts *p, const char *s)
{
    if (*s != '\0') {
        parts_put(p, "regex", s, strlen(s));
    }
}

void parts_raw(struct parts *p, const char *json)
{
    comma(p);
    buf_puts(p->b, json);
}

/* The definitions of a schema, where s has no such word itself. */
static void put_definitions(struct parts *p, const struct json *s,
                            const struct json *root)
{
    static const char *const words[] = {"$defs", "definitions"};
    for (size_t i = 0; i < countof(words); i++) {
        const struct json *d = json_get(root, words[i]);
        if (d != NULL && json_get(s, words[i]) == NULL) {
            buf_printf(p->b, "%s\"%s\":", p->comma ? "," : "", words[i]);
            json_write(d, false, p->b);
            p->comma = true;
        }
    }
}

void parts_schema(struct parts *p, const struct json *s,
                  const struct json *root)
{
    comma(p);
    buf_puts(p->b, "{\"schema\":");
    if (s == root || json_type(s) != JSON_OBJECT) {
        json_write(s, false, p->b);
    } else {
        buf_puts(p->b, "{");
        p->comma = false;
        for (const struct json *w = json_first(s); w != NULL;
             w = json_next(w)) {
            buf_puts(p->b, p->comma ? "," : "");
            json_put_string(p->b, json_key(w), strlen(json_key(w)));
            buf_puts(p->b, ":");
            json_write(w, false, p->b);
            p->comma = true;
        }
        put_definitions(p, s, root);
        buf_puts(p->b, "}");
    }
    buf_puts(p->b, "}");
    p->comma = true;
}

void parts_repeat(struct parts *p)
{
    comma(p);
    buf_puts(p->b, "{\"repeat\":");
    p->comma = false;
}

void parts_repeat_end(struct parts *p, unsigned min, unsigned max,
                      const char *between)
{
    buf_printf(p->b, ",\"min\":%u", min);
    if (max > 0) {
        buf_printf(p->b, ",\"max\":%u", max);
    }
    if (*between != '\0') {
        buf_puts(p->b, ",\"between\":");
        p->comma = false;
        parts_regex(p, between);
    }
    buf_puts(p->b, "}");
    p->comma = true;
}

void parts_nothing(struct parts *p)
{
    parts_begin(p, "seq");
    parts_end(p);
}
