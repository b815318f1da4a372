/* cmd_api.c - the daemon's API for people: its routes, and what a request to
 * one may say. From proto/api.json, which the daemon's own tables made and
 * which was built in: no daemon has to run. */
#include <ctype.h>
#include <string.h>

#include "client/client.h"
#include "proto/json.h"
#include "proto/limits.h"

/* proto/api.json: embed.c */
extern const unsigned char api_json[];
extern const size_t api_json_n;

enum { INDENT = 6, NEST_MAX = 4 };

static struct json *document(void)
{
    struct json *j = NULL;
    int rc = json_parse((const char *)api_json, api_json_n, &j, NULL);
    must(rc == 0); /* a unit test reads the same file */
    return j;
}

/* What "$ref": "#/components/schemas/Job" in v means, else v itself. */
static const struct json *resolve(const struct json *doc, const struct json *v)
{
    const char *ref = json_str(json_get(v, "$ref"));
    const struct json *to = doc;
    if (ref == NULL || strncmp(ref, "#/", 2) != 0) {
        return v;
    }
    for (ref += 2; to != NULL && *ref != '\0';) {
        char key[64];
        size_t n = strcspn(ref, "/");
        (void)snprintf(key, sizeof(key), "%.*s", (int)n, ref);
        to = json_get(to, key);
        ref += n + (ref[n] == '/');
    }
    return to;
}

/* Lines of at most `width` columns, each after `indent` spaces. */
static void put_wrapped(const char *text, unsigned indent, unsigned width)
{
    unsigned room = width > indent + 20 ? width - indent : 20;
    while (*text != '\0') {
        size_t n = strlen(text);
        if (n > room) {
            n = room;
            while (n > 0 && text[n] != ' ') {
                n--;
            }
            n = n > 0 ? n : strcspn(text, " ");
        }
        printf("%*s%.*s\n", (int)indent, "", (int)n, text);
        text += n;
        text += strspn(text, " ");
    }
}

/* --- fields --- */

/* "integer", or "string|array" of ["string", "array", "null"]. */
static void put_types(const struct json *v)
{
    const struct json *type = json_get(v, "type");
    const char *gap = "";
    if (json_str(type) != NULL) {
        printf("%s", json_str(type));
        return;
    }
    if (type == NULL) {
        printf("any");
    }
    for (const struct json *c = json_first(type); c != NULL; c = json_next(c)) {
        const char *s = json_str(c);
        if (s != NULL && strcmp(s, "null") != 0) {
            printf("%s%s", gap, s);
            gap = "|";
        }
    }
}

static void put_value(const char *before, const struct json *v)
{
    struct buf b;
    if (v == NULL) {
        return;
    }
    buf_init(&b, KIB(64));
    json_write(v, false, &b);
    if (buf_ok(&b)) {
        printf("%s%s", before, b.p);
    }
    buf_fini(&b);
}

static bool is_required(const struct json *schema, const char *name)
{
    for (const struct json *c = json_first(json_get(schema, "required"));
         c != NULL; c = json_next(c)) {
        if (json_str(c) != NULL && strcmp(json_str(c), name) == 0) {
            return true;
        }
    }
    return false;
}

/* outer: the name of the field that these are inside of, or empty. */
static void put_fields(const struct client *c, const struct json *doc,
                       const struct json *schema, struct buf *outer,
                       unsigned depth)
{
    size_t before = outer->n;
    schema = resolve(doc, schema);
    for (const struct json *f = json_first(json_get(schema, "properties"));
         f != NULL; f = json_next(f)) {
        const struct json *v = resolve(doc, f);
        const char *text = json_str(json_get(v, "description"));
        buf_puts(outer, before > 0 ? "." : "");
        buf_puts(outer, json_key(f));
        must(buf_ok(outer)); /* ours, NEST_MAX names */
        printf("  %s%s%s (", color_out(&c->term, COLOR_BOLD), outer->p,
               color_out(&c->term, COLOR_OFF));
        put_types(v);
        put_value(", from ", json_get(v, "minimum"));
        put_value(" to ", json_get(v, "maximum"));
        put_value(", one of ", json_get(v, "enum"));
        put_value(", default ", json_get(v, "default"));
        printf("%s)\n", is_required(schema, json_key(f)) ? ", required" : "");
        if (text != NULL) {
            put_wrapped(text, INDENT, c->term.width);
        }
        if (json_get(v, "properties") != NULL && depth < NEST_MAX) {
            put_fields(c, doc, v, outer, depth + 1);
        }
        outer->n = before;
    }
}

/* --- routes --- */

static void put_method(const char *method)
{
    for (int i = 0; i < 6; i++) {
        size_t n = strlen(method);
        (void)putchar((size_t)i < n ? toupper((unsigned char)method[i]) : ' ');
    }
}

static void show_route(const struct client *c, const struct json *doc,
                       const char *path, const struct json *methods)
{
    for (const struct json *m = json_first(methods); m != NULL;
         m = json_next(m)) {
        const char *more = json_str(json_get(m, "description"));
        const struct json *body =
            json_get(json_get(json_get(m, "requestBody"), "content"),
                     "application/json");
        put_method(json_key(m));
        printf(" %s: %s\n", path, ask_str(m, "summary"));
        if (more != NULL) {
            put_wrapped(more, 2, c->term.width);
        }
        for (const struct json *p = json_first(json_get(m, "parameters"));
             p != NULL; p = json_next(p)) {
            printf("  %s (in the %s)\n", ask_str(p, "name"), ask_str(p, "in"));
        }
        struct buf outer;
        buf_init(&outer, KIB(4));
        put_fields(c, doc, json_get(body, "schema"), &outer, 0);
        buf_fini(&outer);
    }
}

static bool is_of(const struct json *method, const char *tag)
{
    const char *s = json_str(json_first(json_get(method, "tags")));
    return s != NULL && strcmp(s, tag) == 0;
}

static void list_routes(const struct client *c, const struct json *doc)
{
    const struct json *paths = json_get(doc, "paths");
    for (const struct json *t = json_first(json_get(doc, "tags")); t != NULL;
         t = json_next(t)) {
        const char *tag = ask_str(t, "name");
        printf("%s%s%s\n", color_out(&c->term, COLOR_BOLD), tag,
               color_out(&c->term, COLOR_OFF));
        for (const struct json *p = json_first(paths); p != NULL;
             p = json_next(p)) {
            for (const struct json *m = json_first(p); m != NULL;
                 m = json_next(m)) {
                if (is_of(m, tag)) {
                    printf("  ");
                    put_method(json_key(m));
                    printf(" %-34s %s\n", json_key(p), ask_str(m, "summary"));
                }
            }
        }
    }
}

/* The document with this path alone; its schemas stay. */
static int print_path(const struct json *doc, const char *path)
{
    struct json *o = json_object();
    for (const struct json *c = json_first(doc); c != NULL; c = json_next(c)) {
        if (strcmp(json_key(c), "paths") != 0) {
            json_add_tree(o, json_key(c), json_copy(c));
            continue;
        }
        json_add_tree(json_add_object(o, "paths"), path,
                      json_copy(json_get(c, path)));
    }
    int rc = ask_print(o);
    json_free(o);
    return rc;
}

static int run(struct client *c, const struct args *a)
{
    struct json *doc = document();
    const char *path = a->n_pos > 0 ? a->pos[0] : NULL;
    const struct json *route =
        path != NULL ? json_get(json_get(doc, "paths"), path) : NULL;
    struct err e = {0};
    int code = EXIT_SUCCESS;
    if (path != NULL && route == NULL) {
        (void)err_set(&e, ERR_NOT_FOUND,
                      "there is no route %.200s; `anectl api` lists them",
                      path);
        code = ask_fail_plain(c, &e);
    } else if (c->json && path != NULL) {
        code = print_path(doc, path);
    } else if (c->json) {
        code = ask_print(doc);
    } else if (path != NULL) {
        show_route(c, doc, path, route);
    } else {
        list_routes(c, doc);
    }
    json_free(doc);
    return code;
}

const struct command cmd_api = {
    .name = "api",
    .args = "[PATH]",
    .summary = "the routes of the daemon, and the fields of their requests",
    .about =
        "Without PATH all routes, by whose clients ask for them. With it the\n"
        "fields of its requests: type, range, what absent means, and what it\n"
        "does here. No daemon has to run. --json is OpenAPI 3.1.\n",
    .examples = "  anectl api\n"
                "  anectl api /v1/chat/completions\n"
                "  anectl api --json >aned.json\n",
    .pos_max = 1,
    .run = run,
};
