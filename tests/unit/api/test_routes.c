/* proto/api.json and the code say the same: every route of the table stands in
 * it and the other way round, and so does every field of a request. */
#include "../unit.h"
#include "api/api.h"
#include "api/openai.h"
#include "base/file.h"

static struct json *doc;

static int setup(void **state)
{
    (void)state;
    char path[1024];
    struct err e = {0};
    struct buf b = {0};
    (void)snprintf(path, sizeof(path), "%s/../proto/api.json", unit_tests());
    unit_ok(file_read(path, MIB(4), &b, &e), &e);
    unit_ok(json_parse(b.p, b.n, &doc, &e), &e);
    buf_fini(&b);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    json_free(doc);
    return 0;
}

/* "/a/{name}/b" -> "/a/{}/b" */
static void normal(const char *path, char out[256])
{
    size_t n = 0;
    for (const char *c = path; *c != '\0' && n < 254; c++) {
        out[n++] = *c;
        if (*c == '{') {
            c += strcspn(c, "}");
            out[n++] = '}';
        }
    }
    out[n] = '\0';
}

static const char *method_name(enum http_method m)
{
    return m == HTTP_M_GET ? "get" : m == HTTP_M_POST ? "post" : "delete";
}

static bool described(const struct http_route *r)
{
    for (const struct json *p = json_first(json_get(doc, "paths")); p != NULL;
         p = json_next(p)) {
        char path[256];
        normal(json_key(p), path);
        if (strcmp(path, r->path) == 0) {
            return json_get(p, method_name(r->method)) != NULL;
        }
    }
    return false;
}

static void every_route_is_described(void **state)
{
    (void)state;
    for (size_t i = 0; i < api_n_routes; i++) {
        if (!described(&api_routes[i])) {
            fail_msg("%s %s is not in proto/api.json",
                     method_name(api_routes[i].method), api_routes[i].path);
        }
    }
}

static bool routed(const char *path, const char *method)
{
    for (size_t i = 0; i < api_n_routes; i++) {
        if (strcmp(api_routes[i].path, path) == 0 &&
            strcmp(method_name(api_routes[i].method), method) == 0) {
            return true;
        }
    }
    return false;
}

static void every_description_is_routed(void **state)
{
    (void)state;
    size_t n = 0;
    for (const struct json *p = json_first(json_get(doc, "paths")); p != NULL;
         p = json_next(p)) {
        char path[256];
        normal(json_key(p), path);
        for (const struct json *m = json_first(p); m != NULL;
             m = json_next(m)) {
            if (!routed(path, json_key(m))) {
                fail_msg("no route for %s %s", json_key(m), path);
            }
            n++;
        }
    }
    assert_int_equal(n, api_n_routes);
}

static const struct json *described_fields(const struct fields *f)
{
    const struct json *s = json_get(json_get(doc, "components"), "schemas");
    return json_get(json_get(s, f->schema), "properties");
}

static void every_field_is_described(void **state)
{
    (void)state;
    const struct fields *all[] = {&openai_completion_fields,
                                  &openai_chat_fields};
    for (size_t d = 0; d < countof(all); d++) {
        const struct field *f = NULL;
        size_t n = 0;
        for (; (f = fields_row(all[d], n)) != NULL; n++) {
            if (json_get(described_fields(all[d]), f->name) == NULL) {
                fail_msg("field %s is not in proto/api.json", f->name);
            }
        }
        assert_int_equal(n, json_count(described_fields(all[d])));
    }
}

static void check_refs(const struct json *j)
{
    const char *ref = json_str(json_get(j, "$ref"));
    if (ref != NULL) {
        const char *name = strrchr(ref, '/') + 1;
        const struct json *c = json_get(doc, "components");
        if (json_get(json_get(c, "schemas"), name) == NULL &&
            json_get(json_get(c, "responses"), name) == NULL) {
            fail_msg("%s leads nowhere", ref);
        }
    }
    for (const struct json *c = json_first(j); c != NULL; c = json_next(c)) {
        check_refs(c);
    }
}

static void references_lead_somewhere(void **state)
{
    (void)state;
    check_refs(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_route_is_described),
        cmocka_unit_test(every_description_is_routed),
        cmocka_unit_test(every_field_is_described),
        cmocka_unit_test(references_lead_somewhere),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
