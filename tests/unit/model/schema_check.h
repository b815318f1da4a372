/* schema_check.h - what tests of schemas share: a row is a schema, a text, and
 * whether it matches. Any failure is a failed test. */
#pragma once

#include "grammar_check.h"
#include "proto/json.h"

struct schema_row {
    const char *schema, *text;
    bool want;
};

static inline int schema_compile(const char *schema, struct grammar **g,
                                 struct err *e)
{
    struct json *j = NULL;
    unit_ok(json_parse(schema, strlen(schema), &j, e), e);
    int rc = grammar_from_schema(j, g, e);
    json_free(j);
    return rc;
}

static inline void schema_check(const struct schema_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct err e = {0};
        struct grammar *g = NULL;
        struct matcher *m = NULL;
        int rc = schema_compile(rows[i].schema, &g, &e);
        if (rc != 0) {
            fail_msg("%s: %s: %s", rows[i].schema, err_name(rc), e.msg);
        }
        unit_ok(matcher_new(g, &m, &e), &e);
        if (grammar_takes(m, rows[i].text, strlen(rows[i].text)) !=
            rows[i].want) {
            fail_msg("%s: %s should %smatch", rows[i].schema, rows[i].text,
                     rows[i].want ? "" : "not ");
        }
        matcher_free(m);
        grammar_free(g);
    }
}
