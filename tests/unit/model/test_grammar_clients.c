/* test_grammar_clients.c - what clients' schemas need, and what tests/constrain
 * found. */
#include "schema_check.h"

/* A comma stood before the end of an object that declares no property. */
static void test_undeclared(void **state)
{
    (void)state;
#define BOOLS "\"additionalProperties\":{\"type\":\"boolean\"}"
    static const struct schema_row rows[] = {
        {"{\"type\":\"object\"}",                                  "{}",                        true },
        {"{\"type\":\"object\"}",                                  "{ }",                       true },
        {"{\"type\":\"object\"}",                                  "{,}",                       false},
        {"{\"type\":\"object\"}",                                  "{\"a\":1}",                 true },
        {"{\"type\":\"object\"}",                                  "{\"a\":1,}",                false},
        {"{\"type\":\"object\"}",                                  "{\"a\":1,\n}",              false},
        {"{\"type\":\"object\"}",                                  "{\"a\":1, \"b\":2}",        true },
        {"{" BOOLS "}",                                            "{\"a\":true,\"b\":false}",  true },
        {"{" BOOLS "}",                                            "{\"a\":true,\"b\":false,}", false},
        {"{\"properties\":{\"a\":{\"type\":\"null\"}}," BOOLS "}",
         "{\"a\":null,}",                                                                       false},
        {"{\"properties\":{\"a\":{\"type\":\"null\"}}," BOOLS "}",
         "{\"a\":null,\"b\":true,}",                                                            false},
        {"{\"properties\":{\"a\":{\"type\":\"null\"}}," BOOLS "}",
         "{\"b\":true,\"c\":true}",                                                             true },
        {"{\"propertyNames\":{\"maxLength\":2}}",                  "{\"ab\":1,}",               false},
        {"{\"propertyNames\":{\"maxLength\":2}}",                  "{\"ab\":1,\"c\":2}",        true },
    };
    schema_check(rows, countof(rows));
}

/* pydantic's unions, Gemini's and gptel's objects. */
static void test_descriptions(void **state)
{
    (void)state;
    static const struct schema_row rows[] = {
        {"{\"discriminator\":{\"propertyName\":\"k\",\"mapping\":{\"a\":"
         "\"#/$defs/a\"}},\"oneOf\":[{\"type\":\"null\"},{\"const\":1}]}", "1",                 true},
        {"{\"type\":\"object\",\"properties\":{\"b\":{\"const\":1},\"a\":{"
         "\"const\":2}},\"propertyOrdering\":[\"b\",\"a\"]}",              "{\"b\":1,\"a\":2}", true},
        {"{\"type\":\"string\",\"contentMediaType\":\"application/json\","
         "\"contentSchema\":{\"type\":\"object\"}}",                       "\"{}\"",            true},
    };
    schema_check(rows, countof(rows));
}

/* Claude Code has a maxLength of 524288 in a tool. */
static void test_large_bounds(void **state)
{
    (void)state;
    static const struct schema_row rows[] = {
        {"{\"maxLength\":524288}",                "\"ab\"", true },
        {"{\"maxLength\":1e300,\"minLength\":1}", "\"\"",   false},
    };
    schema_check(rows, countof(rows));
}

/* No calendar of Python, and so no client of pydantic's, has a year 0. */
static void test_years(void **state)
{
    (void)state;
#define IS_DATE "{\"format\":\"date\"}"
    static const struct schema_row rows[] = {
        {IS_DATE,                      "\"0000-02-23\"",           false},
        {IS_DATE,                      "\"0000-02-29\"",           false},
        {IS_DATE,                      "\"0001-01-01\"",           true },
        {IS_DATE,                      "\"0010-01-01\"",           true },
        {IS_DATE,                      "\"0100-01-01\"",           true },
        {IS_DATE,                      "\"1000-12-31\"",           true },
        {IS_DATE,                      "\"0400-02-29\"",           true },
        {IS_DATE,                      "\"0100-02-29\"",           false},
        {IS_DATE,                      "\"2000-02-29\"",           true },
        {IS_DATE,                      "\"2024-02-29\"",           true },
        {IS_DATE,                      "\"2023-02-29\"",           false},
        {IS_DATE,                      "\"9999-12-31\"",           true },
        {"{\"format\":\"date-time\"}", "\"0000-02-16T21:11:34Z\"", false},
    };
    schema_check(rows, countof(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_undeclared),
        cmocka_unit_test(test_descriptions),
        cmocka_unit_test(test_large_bounds),
        cmocka_unit_test(test_years),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
