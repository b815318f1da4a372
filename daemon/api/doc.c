/* doc.c - see doc.h. */
#include "api/doc.h"

#include <string.h>

#include "api/api.h"
#include "api/fields.h"

const char *doc_method(unsigned method)
{
    return method == HTTP_M_GET    ? "get"
           : method == HTTP_M_POST ? "post"
                                   : "delete";
}

const struct fields *doc_fields(size_t i)
{
    for (size_t k = 0; k < api_n_routes; k++) {
        const struct fields *f = api_docs[k].fields;
        bool seen = f == NULL;
        for (size_t m = 0; m < k; m++) {
            seen = seen || api_docs[m].fields == f;
        }
        if (!seen && i-- == 0) {
            return f;
        }
    }
    return NULL;
}

/* A member of old, or nothing. */
static void keep(struct json *o, const struct json *old, const char *key)
{
    const struct json *v = json_get(old, key);
    if (v != NULL) {
        json_add_tree(o, key, json_copy(v));
    }
}

/* --- fields --- */

/* "string|array": one name, or a list of them with "null". */
static void put_types(struct json *o, const char *types, bool null)
{
    if ((!null || strcmp(types, "null") == 0) && strchr(types, '|') == NULL) {
        json_add_str(o, "type", types);
        return;
    }
    struct json *list = json_add_array(o, "type");
    for (const char *p = types; *p != '\0';) {
        size_t n = strcspn(p, "|");
        json_add_strn(list, NULL, p, n);
        p += n + (p[n] == '|');
    }
    if (null) {
        json_add_str(list, NULL, "null");
    }
}

/* The rows' JSON has ' in place of ". It is ours: it can be parsed. */
static void put_more(struct json *o, const char *more)
{
    struct buf b;
    struct json *j = NULL;
    buf_init(&b, KIB(16));
    buf_puts(&b, "{");
    buf_puts(&b, more);
    buf_puts(&b, "}");
    must(buf_ok(&b));
    for (size_t i = 0; i < b.n; i++) {
        b.p[i] = b.p[i] == '\'' ? '"' : b.p[i];
    }
    int rc = json_parse(b.p, b.n, &j, NULL);
    must(rc == 0);
    for (const struct json *c = json_first(j); c != NULL; c = json_next(c)) {
        keep(o, j, json_key(c));
    }
    json_free(j);
    buf_fini(&b);
}

static void put_field(struct json *to, const struct field *f, size_t skip,
                      bool needed)
{
    struct json *o = json_add_object(to, f->name + skip);
    if (f->type != NULL) {
        put_types(o, f->type, !needed);
    }
    if (f->set == only_number) {
        json_add_num(o, "const", f->lo);
    }
    if (f->lo < f->hi) {
        json_add_num(o, "minimum", f->lo);
        json_add_num(o, "maximum", f->hi);
    }
    if (f->words != NULL && f->more == NULL) {
        struct json *list = json_add_array(o, "enum");
        for (size_t i = 0; f->words[i] != NULL; i++) {
            json_add_str(list, NULL, f->words[i]);
        }
        json_add_null(list, NULL);
    }
    if (f->more != NULL) {
        put_more(o, f->more);
    }
    if (f->sub != NULL) {
        json_add_bool(o, "additionalProperties", false);
        struct json *in = json_add_object(o, "properties");
        for (const struct field *x = f->sub; x->name != NULL; x++) {
            put_field(in, x, strlen(f->name) + 1, false);
        }
    }
    json_add_str(o, "description", f->doc);
}

static bool is_needed(const struct fields *f, const char *name)
{
    for (size_t i = 0; i < countof(f->required) && f->required[i] != NULL;
         i++) {
        if (strcmp(f->required[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static void put_schema(struct json *schemas, const struct fields *f)
{
    struct json *o = json_add_object(schemas, f->schema);
    const struct field *x = NULL;
    json_add_str(o, "type", "object");
    if (f->required[0] != NULL) {
        struct json *list = json_add_array(o, "required");
        for (size_t i = 0; i < countof(f->required) && f->required[i] != NULL;
             i++) {
            json_add_str(list, NULL, f->required[i]);
        }
    }
    json_add_bool(o, "additionalProperties", false);
    struct json *in = json_add_object(o, "properties");
    for (size_t i = 0; (x = fields_row(f, i)) != NULL; i++) {
        put_field(in, x, 0, is_needed(f, x->name));
    }
}

static const struct fields *fields_of_schema(const char *name)
{
    const struct fields *f = NULL;
    for (size_t i = 0; (f = doc_fields(i)) != NULL; i++) {
        if (strcmp(f->schema, name) == 0) {
            return f;
        }
    }
    return NULL;
}

static void put_schemas(struct json *o, const struct json *old)
{
    struct json *schemas = json_add_object(o, "schemas");
    const struct fields *f = NULL;
    for (const struct json *c = json_first(old); c != NULL; c = json_next(c)) {
        if (fields_of_schema(json_key(c)) == NULL) {
            json_add_tree(schemas, json_key(c), json_copy(c));
        }
    }
    for (size_t i = 0; (f = doc_fields(i)) != NULL; i++) {
        put_schema(schemas, f);
    }
}

/* --- routes --- */

static void put_ref(struct json *o, const char *key, const char *name)
{
    struct json *x = json_object();
    char ref[128];
    (void)snprintf(ref, sizeof(ref), "#/components/%s", name);
    json_add_str(x, "$ref", ref);
    json_add_tree(o, key, x);
}

static void put_request(struct json *o, const struct fields *f)
{
    char name[64];
    (void)snprintf(name, sizeof(name), "schemas/%s", f->schema);
    struct json *x = json_add_object(o, "requestBody");
    json_add_bool(x, "required", true);
    struct json *c =
        json_add_object(json_add_object(x, "content"), "application/json");
    put_ref(c, "schema", name);
}

/* {name} of a path, until somebody describes it. */
static void put_parameters(struct json *o, const char *path)
{
    const char *p = strchr(path, '{');
    if (p == NULL) {
        return;
    }
    struct json *x = json_add_object(json_add_array(o, "parameters"), NULL);
    json_add_strn(x, "name", p + 1, strcspn(p + 1, "}"));
    json_add_str(x, "in", "path");
    json_add_bool(x, "required", true);
    json_add_str(json_add_object(x, "schema"), "type", "string");
}

/* The answers of a route that nobody has described yet. */
static void put_responses(struct json *o, const struct http_route *r)
{
    static const char *const codes[] = {"400", "404", "413", "415", "503"};
    struct json *x = json_add_object(o, "responses");
    json_add_str(json_add_object(x, "200"), "description", "The answer.");
    for (size_t i = 0; i < countof(codes) && r->body_max > 0; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "responses/e%s", codes[i]);
        put_ref(x, codes[i], name);
    }
}

static void put_route(struct json *path, size_t i, const struct json *old)
{
    const struct http_route *r = &api_routes[i];
    struct json *o = json_add_object(path, doc_method(r->method));
    json_add_str(json_add_array(o, "tags"), NULL, api_docs[i].of);
    json_add_str(o, "summary", api_docs[i].doc);
    keep(o, old, "description");
    if (json_get(old, "parameters") != NULL) {
        keep(o, old, "parameters");
    } else {
        put_parameters(o, r->path);
    }
    if (api_docs[i].fields != NULL) {
        put_request(o, api_docs[i].fields);
    } else {
        keep(o, old, "requestBody");
    }
    if (json_get(old, "responses") != NULL) {
        keep(o, old, "responses");
    } else {
        put_responses(o, r);
    }
}

static void put_paths(struct json *o, const struct json *old)
{
    struct json *paths = json_add_object(o, "paths");
    for (size_t i = 0; i < api_n_routes; i++) {
        const char *path = api_routes[i].path;
        if (json_get(paths, path) != NULL) {
            continue; /* an earlier row's, with all its methods */
        }
        struct json *x = json_add_object(paths, path);
        for (size_t k = i; k < api_n_routes; k++) {
            if (strcmp(api_routes[k].path, path) == 0) {
                put_route(x, k,
                          json_get(json_get(old, path),
                                   doc_method(api_routes[k].method)));
            }
        }
    }
}

static void put_tags(struct json *o)
{
    struct json *list = json_add_array(o, "tags");
    for (size_t i = 0; i < api_n_routes; i++) {
        bool seen = false;
        for (size_t k = 0; k < i; k++) {
            seen = seen || strcmp(api_docs[k].of, api_docs[i].of) == 0;
        }
        if (!seen) {
            json_add_str(json_add_object(list, NULL), "name", api_docs[i].of);
        }
    }
}

struct json *doc_make(const struct json *old)
{
    struct json *o = json_object();
    const struct json *parts = json_get(old, "components");
    keep(o, old, "openapi");
    keep(o, old, "info");
    keep(o, old, "servers");
    put_tags(o);
    put_paths(o, json_get(old, "paths"));
    struct json *x = json_add_object(o, "components");
    keep(x, parts, "responses");
    put_schemas(x, json_get(parts, "schemas"));
    return o;
}
