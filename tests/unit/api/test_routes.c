/* proto/api.json and the code say the same: every route of the table stands in
 * it and the other way round, and so does every field of a request. */
#include "../unit.h"
#include "api/api.h"
#include "api/doc.h"
#include "api/params.h"
#include "base/file.h"

static struct json *doc;
static struct buf text; /* of the file */

static int setup(void **state)
{
    (void)state;
    char path[1024];
    struct err e = {0};
    (void)snprintf(path, sizeof(path), "%s/../proto/api.json", unit_tests());
    unit_ok(file_read(path, MIB(4), &text, &e), &e);
    unit_ok(json_parse(text.p, text.n, &doc, &e), &e);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    json_free(doc);
    buf_fini(&text);
    return 0;
}

static bool described(const struct http_route *r)
{
    for (const struct json *p = json_first(json_get(doc, "paths")); p != NULL;
         p = json_next(p)) {
        if (strcmp(json_key(p), r->path) == 0) {
            return json_get(p, doc_method(r->method)) != NULL;
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
                     doc_method(api_routes[i].method), api_routes[i].path);
        }
    }
}

static bool routed(const char *path, const char *method)
{
    for (size_t i = 0; i < api_n_routes; i++) {
        if (strcmp(api_routes[i].path, path) == 0 &&
            strcmp(doc_method(api_routes[i].method), method) == 0) {
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
        for (const struct json *m = json_first(p); m != NULL;
             m = json_next(m)) {
            if (!routed(json_key(p), json_key(m))) {
                fail_msg("no route for %s %s", json_key(m), json_key(p));
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
    const struct fields *x = NULL;
    for (size_t d = 0; (x = doc_fields(d)) != NULL; d++) {
        const struct field *f = NULL;
        size_t n = 0;
        for (; (f = fields_row(x, n)) != NULL; n++) {
            if (json_get(described_fields(x), f->name) == NULL) {
                fail_msg("field %s is not in proto/api.json", f->name);
            }
            assert_true(f->doc != NULL && f->doc[0] != '\0');
        }
        assert_int_equal(n, json_count(described_fields(x)));
    }
}

/* What the tables say stands in the file, and in no other words: after a change
 * of a table `aned api --json` makes it anew. */
static void the_file_is_made_from_the_tables(void **state)
{
    (void)state;
    struct buf b;
    struct json *made = doc_make(doc);
    buf_init(&b, MIB(4));
    json_write(made, true, &b);
    buf_puts(&b, "\n");
    assert_true(buf_ok(&b));
    if (b.n != text.n || memcmp(b.p, text.p, b.n) != 0) {
        fail_msg("aned api --json proto/api.json >x && mv x proto/api.json");
    }
    buf_fini(&b);
    json_free(made);
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
        cmocka_unit_test(the_file_is_made_from_the_tables),
        cmocka_unit_test(references_lead_somewhere),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
