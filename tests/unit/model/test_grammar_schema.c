/* test_grammar_schema.c - JSON schemas: a row is a schema, a text, and whether
 * it matches; refused words; regular expressions. */
#include "schema_check.h"

/* A union with a tag, as many clients make them. */
#define TAGGED                                                                 \
    "{\"$defs\":{\"a\":{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":" \
    "\"a\"},\"x\":{\"type\":\"null\"}},\"required\":[\"kind\",\"x\"]},\"b\":{"     \
    "\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"b\"},\"y\":{"       \
    "\"type\":\"boolean\"}},\"required\":[\"kind\",\"y\"]}},\"oneOf\":[{"          \
    "\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/$defs/b\"}]}"

#define OBJECT(s) "{\"type\":\"object\",\"properties\":" s "}"

static void test_types(void **state)
{
    (void)state;
    static const struct schema_row rows[] = {
        {"{}", "{\"a\":[1,2.5e3,null,true,\"x\"]}", true},
        {"true", "[]", true},
        {"true", "[ 1]", true},
        {"true", "[1 ]", true},
        {"true", "[1 ,2]", false},
        {"true", "[1,\n  2\n]", true},
        {"true", "[1,\n\n\n2]", false},
        {"true", "[1,  2]", false},
        {"true", " 1", false},
        {"true", "1 ", false},
        {"true", "", false},
        {"{\"type\":\"null\"}", "null", true},
        {"{\"type\":\"null\"}", "nul", false},
        {"{\"type\":\"boolean\"}", "true", true},
        {"{\"type\":\"boolean\"}", "null", false},
        {"{\"type\":\"integer\"}", "-120", true},
        {"{\"type\":\"integer\"}", "0", true},
        {"{\"type\":\"integer\"}", "01", false},
        {"{\"type\":\"integer\"}", "1.5", false},
        {"{\"type\":\"integer\"}", "12345678901234567", false},
        {"{\"type\":\"number\"}", "-0.5e-7", true},
        {"{\"type\":\"number\"}", "1.", false},
        {"{\"type\":\"number\"}", ".5", false},
        {"{\"type\":\"number\"}", "1e5", true},
        {"{\"type\":\"string\"}", "\"a\\n\\u00e9\xC3\xA9\"", true},
        {"{\"type\":\"string\"}", "\"a\nb\"", false},
        {"{\"type\":\"string\"}", "\"\\x\"", false},
        {"{\"type\":\"string\"}", "\"\\u0000\"", false},
        {"{\"type\":\"string\"}", "\"\\u0001\\u0100\\u1000\\uffff\"", true},
        {"{\"type\":\"string\"}", "\"\\ud83d\\ude00\"", true},
        {"{\"type\":\"string\"}", "\"\\uD83D\"", false},
        {"{\"type\":\"string\"}", "\"\\uDE00\"", false},
        {"{\"type\":\"string\"}", "\"\\ud7ff\\ue000\"", true},
        {"{\"type\":\"string\"}", "\"\xFF\"", false},
        {"{\"type\":\"array\"}", "[[],{},1]", true},
        {"{\"type\":\"array\"}", "{}", false},
        {"{\"type\":\"object\"}", "{\"a\": {\"b\": 1}}", true},
        {"{\"type\":\"object\"}", "[]", false},
        {"{\"type\":[\"string\",\"null\"]}", "null", true},
        {"{\"type\":[\"string\",\"null\"]}", "\"\"", true},
        {"{\"type\":[\"string\",\"null\"]}", "1", false},
        {"{\"type\":[\"integer\",\"number\"]}", "1.5", true},
        {"{\"title\":\"x\",\"description\":\"y\",\"default\":1,\"examples\":[],"
         "\"$schema\":\"z\",\"$id\":\"i\",\"$comment\":\"\",\"deprecated\":"
         "true,\"readOnly\":true,\"writeOnly\":false,\"x-any\":1}", "1", true},
    };
    schema_check(rows, countof(rows));
}

static void test_objects(void **state)
{
    (void)state;
#define AB "{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"boolean\"}}"
    static const struct schema_row rows[] = {
        {OBJECT(AB), "{}", true},
        {OBJECT(AB), "{ }", true},
        {OBJECT(AB), "{\"a\":1}", true},
        {OBJECT(AB), "{\"b\":true}", true},
        {OBJECT(AB), "{\"a\": 1, \"b\": true}", true},
        {OBJECT(AB), "{\n  \"a\": 1,\n  \"b\": true\n}", true},
        {OBJECT(AB), "{\"b\":true,\"a\":1}", false},
        {OBJECT(AB), "{\"a\":1,\"a\":1}", false},
        {OBJECT(AB), "{\"a\":1,}", false},
        {OBJECT(AB), "{,\"a\":1}", false},
        {OBJECT(AB), "{\"c\":1}", false},
        {OBJECT(AB), "{\"a\":true}", false},
        {"{\"properties\":" AB ",\"required\":[\"b\"]}", "{\"b\":true}", true},
        {"{\"properties\":" AB ",\"required\":[\"b\"]}", "{\"a\":1}", false},
        {"{\"properties\":" AB ",\"required\":[\"b\"]}", "{}", false},
        {"{\"properties\":" AB ",\"required\":[\"a\",\"b\"]}",
         "{\"a\":1,\"b\":false}", true},
        {"{\"properties\":" AB ",\"required\":[\"a\",\"b\"]}", "{\"a\":1}",
         false},
        {"{\"properties\":" AB ",\"additionalProperties\":true}",
         "{\"a\":1,\"c\":[]}", true},
        {"{\"properties\":" AB ",\"additionalProperties\":true}",
         "{\"c\":[],\"a\":1}", false},
        {"{\"properties\":" AB ",\"additionalProperties\":true}",
         "{\"a\":1,\"a\":[]}", false},
        {"{\"properties\":" AB ",\"additionalProperties\":true}",
         "{\"aa\":1,\"\":[]}", true},
        {"{\"properties\":" AB ",\"additionalProperties\":true}",
         "{\"\\u0061\":[]}", false},
        {"{\"properties\":" AB ",\"additionalProperties\":true}",
         "{\"\\n\xC3\xA9\\\"\":[]}", true},
        {"{\"properties\":" AB ",\"additionalProperties\":{\"type\":"
         "\"string\"}}", "{\"x\":\"y\",\"z\":\"\"}", true},
        {"{\"properties\":" AB ",\"additionalProperties\":{\"type\":"
         "\"string\"}}", "{\"x\":1}", false},
        {"{\"additionalProperties\":{\"type\":\"integer\"}}",
         "{\"x\":1,\"\\u0061\":2}", true},
        {"{\"additionalProperties\":{\"type\":\"integer\"}}", "{\"x\":null}",
         false},
        {"{\"type\":\"object\",\"additionalProperties\":false}", "{}", true},
        {"{\"type\":\"object\",\"additionalProperties\":false}", "{\"a\":1}",
         false},
        {"{\"properties\":{\"ab\":{},\"abc\":{}},\"additionalProperties\":true}",
         "{\"a\":1,\"abcd\":1,\"b\":1}", true},
        {"{\"properties\":{\"ab\":{},\"abc\":{}},\"additionalProperties\":true}",
         "{\"a\":1,\"ab\":1}", false},
        {"{\"properties\":{\"\xC3\xA9\\\"\":{\"const\":1}}}",
         "{\"\xC3\xA9\\\"\":1}", true},
        {"{\"properties\":{\"a\":false,\"b\":true}}", "{\"b\":1}", true},
        {"{\"properties\":{\"a\":false,\"b\":true}}", "{\"a\":1}", false},
        {"{\"required\":[\"k\"],\"additionalProperties\":{\"type\":\"null\"}}",
         "{\"k\":null,\"l\":null}", true},
        {"{\"required\":[\"k\"],\"additionalProperties\":{\"type\":\"null\"}}",
         "{\"l\":null}", false},
        {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-z]+$\"}}",
         "{\"ab\":1,\"c\":2}", true},
        {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-z]+$\"}}",
         "{\"A\":1}", false},
        {"{\"type\":\"object\",\"propertyNames\":{\"maxLength\":2}}",
         "{\"ab\":1,\"c\":2}", true},
        {"{\"type\":\"object\",\"propertyNames\":{\"maxLength\":2}}",
         "{\"abc\":1}", false},
        {"{\"additionalProperties\":{\"type\":\"integer\"},\"propertyNames\":{"
         "\"enum\":[\"p\",\"q\"]}}", "{\"q\":2}", true},
        {"{\"additionalProperties\":{\"type\":\"integer\"},\"propertyNames\":{"
         "\"enum\":[\"p\",\"q\"]}}", "{\"p\":1,\"q\":2}", true},
        {"{\"additionalProperties\":{\"type\":\"integer\"},\"propertyNames\":{"
         "\"enum\":[\"p\",\"q\"]}}", "{\"r\":2}", false},
        {"{\"additionalProperties\":{\"type\":\"integer\"},\"propertyNames\":{"
         "\"enum\":[\"p\",\"q\"]}}", "{\"p\":1,\"p\":2}", false},
    };
    schema_check(rows, countof(rows));
}

static void test_arrays(void **state)
{
    (void)state;
#define INTS "\"items\":{\"type\":\"integer\"}"
    static const struct schema_row rows[] = {
        {"{" INTS "}", "[]", true},
        {"{" INTS "}", "[1,2, 3]", true},
        {"{" INTS "}", "[1,\"a\"]", false},
        {"{" INTS "}", "[1,]", false},
        {"{" INTS "}", "[,1]", false},
        {"{" INTS ",\"minItems\":1}", "[]", false},
        {"{" INTS ",\"minItems\":1}", "[1]", true},
        {"{" INTS ",\"minItems\":2}", "[1]", false},
        {"{" INTS ",\"minItems\":2}", "[1,2,3,4]", true},
        {"{" INTS ",\"maxItems\":2}", "[1,2]", true},
        {"{" INTS ",\"maxItems\":2}", "[1,2,3]", false},
        {"{" INTS ",\"minItems\":2,\"maxItems\":2}", "[1,2]", true},
        {"{" INTS ",\"minItems\":2,\"maxItems\":2}", "[1]", false},
        {"{" INTS ",\"maxItems\":0}", "[]", true},
        {"{" INTS ",\"maxItems\":0}", "[1]", false},
        {"{\"type\":\"array\",\"minItems\":1,\"maxItems\":2}", "[{},1]", true},
        {"{\"type\":\"array\",\"minItems\":1,\"maxItems\":2}", "[1,2,3]",
         false},
        {"{\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}",
         "[1,\"a\"]", true},
        {"{\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}",
         "[1]", true},
        {"{\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}",
         "[\"a\",1]", false},
        {"{\"prefixItems\":[{\"type\":\"integer\"}],\"items\":{\"type\":"
         "\"null\"}}", "[1,null,null]", true},
        {"{\"prefixItems\":[{\"type\":\"integer\"}],\"items\":{\"type\":"
         "\"null\"}}", "[1,2]", false},
        {"{\"prefixItems\":[{\"type\":\"integer\"}],\"items\":false,"
         "\"minItems\":1}", "[1]", true},
        {"{\"prefixItems\":[{\"type\":\"integer\"}],\"items\":false,"
         "\"minItems\":1}", "[1,1]", false},
        {"{\"prefixItems\":[{\"type\":\"integer\"}],\"items\":false,"
         "\"minItems\":1}", "[]", false},
        {"{\"prefixItems\":[{\"type\":\"integer\"}],\"minItems\":3}",
         "[1,\"x\",{}]", true},
        {"{\"items\":{\"items\":{\"type\":\"integer\"}}}", "[[1],[],[2,3]]",
         true},
        {"{\"items\":{\"items\":{\"type\":\"integer\"}}}", "[[1],2]", false},
    };
    schema_check(rows, countof(rows));
}

static void test_values(void **state)
{
    (void)state;
    static const struct schema_row rows[] = {
        {"{\"enum\":[\"a\",\"ab\",1,null,{\"k\":[1]}]}", "\"ab\"", true},
        {"{\"enum\":[\"a\",\"ab\",1,null,{\"k\":[1]}]}", "{\"k\":[1]}", true},
        {"{\"enum\":[\"a\",\"ab\",1,null,{\"k\":[1]}]}", "1", true},
        {"{\"enum\":[\"a\",\"ab\",1,null,{\"k\":[1]}]}", "\"b\"", false},
        {"{\"type\":\"string\",\"enum\":[\"a\",1]}", "\"a\"", true},
        {"{\"type\":\"string\",\"enum\":[\"a\",1]}", "1", false},
        {"{\"const\":\"x\\\"y\"}", "\"x\\\"y\"", true},
        {"{\"const\":\"x\"}", "\"y\"", false},
        {"{\"const\":null}", "null", true},
        {"{\"const\":[1,{\"a\":2}]}", "[1,{\"a\":2}]", true},
        {"{\"const\":2.5}", "2.5", true},
        {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}", "null",
         true},
        {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}", "\"\"",
         false},
        {"{\"oneOf\":[{\"const\":1},{\"const\":\"b\"}]}", "\"b\"", true},
        {"{\"oneOf\":[{\"const\":1},{\"const\":\"b\"}]}", "2", false},
        {"{\"oneOf\":[{\"type\":\"null\"},{\"type\":\"string\"},{\"type\":"
         "\"array\"}]}", "[]", true},
        {TAGGED, "{\"kind\":\"a\",\"x\":null}", true},
        {TAGGED, "{\"kind\":\"b\",\"y\":true}", true},
        {TAGGED, "{\"kind\":\"b\",\"x\":null}", false},
        {"{\"properties\":{\"n\":{\"type\":\"null\"}},\"oneOf\":[{"
         "\"properties\":{\"x\":true},\"required\":[\"x\"]},{\"properties\":{"
         "\"y\":true},\"required\":[\"y\"]}]}", "{\"n\":null,\"y\":1}",
         true},
        {"{\"oneOf\":[{\"properties\":{\"x\":{}},\"required\":[\"x\"],"
         "\"additionalProperties\":false},{\"properties\":{\"x\":{},\"y\":{}},"
         "\"required\":[\"x\",\"y\"],\"additionalProperties\":false}]}",
         "{\"x\":1,\"y\":2}", true},
        {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"t\":{\"type\":"
         "\"integer\"}},\"required\":[\"t\"]},{\"type\":\"object\","
         "\"properties\":{\"t\":{\"type\":\"string\"}},\"required\":[\"t\"]}"
         "]}", "{\"t\":\"s\"}", true},
        {"{\"type\":\"string\",\"anyOf\":[{\"maxLength\":1},{\"minLength\":3}]"
         "}", "\"a\"", true},
        {"{\"type\":\"string\",\"anyOf\":[{\"maxLength\":1},{\"minLength\":3}]"
         "}", "\"ab\"", false},
        {"{\"type\":\"string\",\"anyOf\":[{\"maxLength\":1},{\"minLength\":3}]"
         "}", "\"abcd\"", true},
        {"{\"allOf\":[{\"type\":\"integer\"},{\"minimum\":3},{\"maximum\":5}]}",
         "4", true},
        {"{\"allOf\":[{\"type\":\"integer\"},{\"minimum\":3},{\"maximum\":5}]}",
         "6", false},
        {"{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"null\"}},\"required\":"
         "[\"a\"]},{\"properties\":{\"b\":{\"type\":\"null\"}}}]}",
         "{\"a\":null,\"b\":null}", true},
        {"{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"null\"}},\"required\":"
         "[\"a\"]},{\"properties\":{\"b\":{\"type\":\"null\"}}}]}",
         "{\"b\":null}", false},
        {"{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}}},{"
         "\"properties\":{\"a\":{\"minimum\":2}}}]}", "{\"a\":2}", true},
        {"{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}}},{"
         "\"properties\":{\"a\":{\"minimum\":2}}}]}", "{\"a\":1}", false},
        {"{\"allOf\":[{\"properties\":{\"a\":true},\"additionalProperties\":"
         "false},{\"properties\":{\"b\":true}}]}", "{\"b\":1}", false},
        {"{\"allOf\":[{\"$ref\":\"#/$defs/p\"}],\"default\":1,\"$defs\":{\"p\":"
         "{\"type\":\"integer\"}}}", "5", true},
        {"{\"$ref\":\"#/$defs/p\",\"minimum\":3,\"$defs\":{\"p\":{\"type\":"
         "\"integer\"}}}", "5", true},
        {"{\"$ref\":\"#/$defs/p\",\"minimum\":3,\"$defs\":{\"p\":{\"type\":"
         "\"integer\"}}}", "2", false},
        {"{\"$ref\":\"#/definitions/a~1b%20c\",\"definitions\":{\"a/b c\":{"
         "\"type\":\"null\"}}}", "null", true},
        {"{\"properties\":{\"next\":{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":"
         "\"null\"}]}},\"required\":[\"next\"]}",
         "{\"next\":{\"next\":{\"next\":null}}}", true},
        {"{\"properties\":{\"next\":{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":"
         "\"null\"}]}},\"required\":[\"next\"]}", "{\"next\":{}}", false},
        {"{\"$defs\":{\"t\":{\"type\":\"array\",\"items\":{\"$ref\":"
         "\"#/$defs/t\"}}},\"$ref\":\"#/$defs/t\"}", "[[],[[[]]]]", true},
        {"{\"prefixItems\":[{\"type\":\"null\"},{\"$ref\":"
         "\"#/prefixItems/0\"}]}", "[null,null]", true},
        {"{\"anyOf\":[{\"properties\":{\"t\":{\"const\":\"a\"}},\"required\":"
         "[\"t\"]},{\"properties\":{\"t\":{\"const\":\"b\"}},\"required\":["
         "\"t\"]}],\"properties\":{\"n\":{\"type\":\"null\"}}}",
         "{\"n\":null,\"t\":\"b\"}", true},
        {"{\"anyOf\":[true,{\"type\":\"null\"}]}", "[]", true},
        {"{\"allOf\":[true,{\"type\":\"null\"}]}", "null", true},
    };
    schema_check(rows, countof(rows));
}

static void test_strings(void **state)
{
    (void)state;
#define FORMAT(f) "{\"type\":\"string\",\"format\":\"" f "\"}"
#define PATTERN(p) "{\"pattern\":\"" p "\"}"
    static const struct schema_row rows[] = {
        {"{\"minLength\":2}", "\"ab\"", true},
        {"{\"minLength\":2}", "\"a\"", false},
        {"{\"maxLength\":2}", "\"\xF0\x9F\x98\x80\\n\"", true},
        {"{\"maxLength\":2}", "\"\\ud83d\\ude00a\"", true},
        {"{\"maxLength\":2}", "\"abc\"", false},
        {"{\"minLength\":2,\"maxLength\":3}", "\"abc\"", true},
        {"{\"maxLength\":0}", "\"\"", true},
        {PATTERN("^a+$"), "\"aaa\"", true},
        {PATTERN("^a+$"), "\"aab\"", false},
        {PATTERN("^a+$"), "\"\"", false},
        {PATTERN("a+"), "\"xxay\"", true},
        {PATTERN("a+"), "\"xxy\"", false},
        {PATTERN("^a|b$"), "\"axx\"", true},
        {PATTERN("^a|b$"), "\"xxb\"", true},
        {PATTERN("^a|b$"), "\"xbx\"", false},
        {PATTERN("^\\\\d{3}-\\\\w+$"), "\"123-a_B\"", true},
        {PATTERN("^\\\\d{3}-\\\\w+$"), "\"12-a\"", false},
        {PATTERN("^(a|bc){2}$"), "\"abc\"", true},
        {PATTERN("^(?:x|y)?$"), "\"\"", true},
        {PATTERN("^[^a-z]$"), "\"\\\"\"", true},
        {PATTERN("^[^a-z]$"), "\"\\\\\"", true},
        {PATTERN("^[^a-z]$"), "\"b\"", false},
        {PATTERN("^.$"), "\"\xE2\x82\xAC\"", true},
        {PATTERN("^.$"), "\"\\n\"", false},
        {PATTERN("^\\\\s$"), "\"\\n\"", true},
        {PATTERN("^\\\\u00e9\\\\x41$"), "\"\xC3\xA9" "A\"", true},
        {PATTERN("^a\\\\.b$"), "\"a.b\"", true},
        {PATTERN("^a\\\\.b$"), "\"axb\"", false},
        {PATTERN(""), "\"anything\"", true},
        {FORMAT("date"), "\"2024-02-29\"", true},
        {FORMAT("date"), "\"2023-02-29\"", false},
        {FORMAT("date"), "\"2023-04-31\"", false},
        {FORMAT("date"), "\"2023-12-31\"", true},
        {FORMAT("time"), "\"23:59:59Z\"", true},
        {FORMAT("time"), "\"24:00:00Z\"", false},
        {FORMAT("date-time"), "\"2024-01-01T00:00:00.5+02:00\"", true},
        {FORMAT("date-time"), "\"2024-01-01\"", false},
        {FORMAT("uuid"), "\"123e4567-e89b-12d3-a456-426614174000\"", true},
        {FORMAT("uuid"), "\"123e4567-e89b-12d3-a456-42661417400\"", false},
        {FORMAT("ipv4"), "\"192.168.0.255\"", true},
        {FORMAT("ipv4"), "\"256.1.1.1\"", false},
        {FORMAT("email"), "\"a.b+c@example.org\"", true},
        {FORMAT("email"), "\"a@b\"", false},
        {FORMAT("email"), "\"a..b@example.org\"", false},
        {FORMAT("uri"), "\"https://example.org:80/a/b?c=d#e\"", true},
        {FORMAT("uri"), "\"urn:isbn:123\"", true},
        {FORMAT("uri"), "\"//example.org\"", false},
        {FORMAT("hostname"), "\"a-b.example\"", true},
        {FORMAT("hostname"), "\"-b.example\"", false},
    };
    schema_check(rows, countof(rows));
}

static void test_numbers(void **state)
{
    (void)state;
#define INT(w) "{\"type\":\"integer\"," w "}"
#define NUM(w) "{\"type\":\"number\"," w "}"
    static const struct schema_row rows[] = {
        {INT("\"minimum\":0"), "0", true},
        {INT("\"minimum\":0"), "-1", false},
        {INT("\"minimum\":5"), "10", true},
        {INT("\"minimum\":5"), "4", false},
        {INT("\"minimum\":-5,\"maximum\":12"), "-5", true},
        {INT("\"minimum\":-5,\"maximum\":12"), "-6", false},
        {INT("\"minimum\":-5,\"maximum\":12"), "12", true},
        {INT("\"minimum\":-5,\"maximum\":12"), "13", false},
        {INT("\"minimum\":-5,\"maximum\":12"), "-0", false},
        {INT("\"exclusiveMinimum\":1,\"exclusiveMaximum\":3"), "2", true},
        {INT("\"exclusiveMinimum\":1,\"exclusiveMaximum\":3"), "3", false},
        {INT("\"minimum\":1.5,\"maximum\":2.5"), "2", true},
        {INT("\"minimum\":1.5,\"maximum\":2.5"), "1", false},
        {INT("\"minimum\":-2.5,\"maximum\":-1.5"), "-2", true},
        {INT("\"minimum\":-2.5,\"maximum\":-1.5"), "-3", false},
        {INT("\"exclusiveMinimum\":1.5"), "2", true},
        {INT("\"maximum\":999"), "1000", false},
        {INT("\"maximum\":-1000"), "-999", false},
        {INT("\"maximum\":-1000"), "-1000", true},
        {INT("\"minimum\":0,\"exclusiveMinimum\":true"), "0", false},
        {NUM("\"minimum\":0,\"maximum\":1"), "0.5", true},
        {NUM("\"minimum\":0,\"maximum\":1"), "1.0", true},
        {NUM("\"minimum\":0,\"maximum\":1"), "1.01", false},
        {NUM("\"minimum\":0,\"maximum\":1"), "-0.1", false},
        {NUM("\"exclusiveMinimum\":0,\"maximum\":1"), "0.0", false},
        {NUM("\"exclusiveMinimum\":0,\"maximum\":1"), "0.001", true},
        {NUM("\"exclusiveMinimum\":0,\"exclusiveMaximum\":1"), "1", false},
        {NUM("\"exclusiveMinimum\":0,\"exclusiveMaximum\":1"), "0.99", true},
        {NUM("\"minimum\":-3,\"exclusiveMaximum\":-1"), "-1.5", true},
        {NUM("\"minimum\":-3,\"exclusiveMaximum\":-1"), "-1.0", false},
        {NUM("\"minimum\":-3,\"exclusiveMaximum\":-1"), "-3.00", true},
        {NUM("\"minimum\":-3,\"exclusiveMaximum\":-1"), "-3.01", false},
        {NUM("\"minimum\":-3,\"exclusiveMaximum\":0"), "-0.5", true},
        {NUM("\"minimum\":-3,\"exclusiveMaximum\":0"), "0", false},
        {NUM("\"minimum\":2"), "12.25", true},
        {NUM("\"minimum\":2"), "1.25", false},
        {NUM("\"minimum\":7,\"maximum\":7"), "7.0", true},
        {NUM("\"minimum\":7,\"maximum\":7"), "7.1", false},
    };
    schema_check(rows, countof(rows));
}

/* Every integer near the bounds, for many bounds. */
static void test_integer_ranges(void **state)
{
    (void)state;
    uint64_t seed = 11;
    for (int round = 0; round < 60; round++) {
        int width = round % 3 == 0 ? 20 : round % 3 == 1 ? 250 : 3000;
        int lo = (int)roll(&seed, (uint32_t)(2 * width)) - width;
        int hi = lo + (int)roll(&seed, (uint32_t)width);
        char schema[128];
        struct err e = {0};
        struct grammar *g = NULL;
        struct matcher *m = NULL;
        (void)snprintf(schema, sizeof(schema),
                       "{\"type\":\"integer\",\"minimum\":%d,\"maximum\":%d}",
                       lo, hi);
        unit_ok(schema_compile(schema, &g, &e), &e);
        unit_ok(matcher_new(g, &m, &e), &e);
        for (int x = lo - 130; x <= hi + 130; x++) {
            char text[16];
            int n = snprintf(text, sizeof(text), "%d", x);
            if (grammar_takes(m, text, (size_t)n) != (x >= lo && x <= hi)) {
                fail_msg("%s: %d", schema, x);
            }
        }
        matcher_free(m);
        grammar_free(g);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *want;
        int code;
    } rows[] = {
        {"{\"multipleOf\":2}", "schema #: multipleOf: this word",
         ERR_UNSUPPORTED},
        {OBJECT("{\"a\":{\"items\":{\"uniqueItems\":true}}}"),
         "schema #/properties/a/items: uniqueItems", ERR_UNSUPPORTED},
        {"{\"patternProperties\":{}}", "patternProperties", ERR_UNSUPPORTED},
        {"{\"if\":{}}", "#: if:", ERR_UNSUPPORTED},
        {"{\"not\":{}}", "#: not:", ERR_UNSUPPORTED},
        {"{\"dependentRequired\":{}}", "dependentRequired", ERR_UNSUPPORTED},
        {"{\"contains\":{}}", "contains", ERR_UNSUPPORTED},
        {"{\"unevaluatedProperties\":false}", "unevaluatedProperties",
         ERR_UNSUPPORTED},
        {"{\"minProperties\":1}", "minProperties", ERR_UNSUPPORTED},
        {"{\"format\":\"iri\"}", "format: this format", ERR_UNSUPPORTED},
        {"{\"pattern\":\"^(a?){500}(b?){500}[ab]*$\",\"minLength\":500}",
         "pattern: too large", ERR_UNSUPPORTED},
        {"{\"format\":\"date\",\"pattern\":\"^a$\"}", "nothing can match",
         ERR_INVALID},
        {"{\"pattern\":\"(?!a).*$\"}", "look-around", ERR_INVALID},
        {"{\"pattern\":\"^(?!a)b\"}", "look-around", ERR_INVALID},
        {"{\"pattern\":\"^(?!a)b|c$\"}", "look-around", ERR_INVALID},
        {"{\"pattern\":\"^a(?!a)b$\"}", "look-around", ERR_INVALID},
        {"{\"pattern\":\"^(?!(?=a)b)c$\"}", "look-around", ERR_INVALID},
        {"{\"pattern\":\"(?=a)\"}", "look-around", ERR_INVALID},
        {"{\"pattern\":\"\\\\bword\"}", "escape", ERR_INVALID},
        {"{\"pattern\":\"(a)\\\\1\"}", "escape", ERR_INVALID},
        {"{\"pattern\":\"\\\\p{L}\"}", "escape", ERR_INVALID},
        {"{\"pattern\":\"a^b\"}", "'^'", ERR_INVALID},
        {"{\"pattern\":\"(a$)\"}", "'$'", ERR_INVALID},
        {"{\"pattern\":1}", "pattern: is no string", ERR_INVALID},
        {"{\"type\":\"number\",\"minimum\":0.5}", "no integer",
         ERR_UNSUPPORTED},
        {"{\"type\":\"integer\",\"minimum\":1e300}", "beyond 2^53",
         ERR_UNSUPPORTED},
        {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}",
         "no number is valid", ERR_INVALID},
        {"{\"type\":\"strin\"}", "no type", ERR_INVALID},
        {"{\"type\":[]}", "no type", ERR_INVALID},
        {"{\"allOf\":[{\"type\":\"null\"},{\"type\":\"string\"}]}",
         "no type is valid", ERR_INVALID},
        {"{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}]}",
         "two different ones", ERR_UNSUPPORTED},
        {"{\"enum\":[]}", "no value is valid", ERR_INVALID},
        {"{\"enum\":[\"a\"],\"minLength\":3}", "beside enum", ERR_UNSUPPORTED},
        {"{\"$ref\":\"#/$defs/x\"}", "leads to nothing", ERR_INVALID},
        {"{\"$ref\":\"http://x/y\"}", "only references", ERR_UNSUPPORTED},
        {"{\"$ref\":\"#\"}", "refers to itself", ERR_INVALID},
        {"{\"allOf\":[{\"$ref\":\"#\"}]}", "hold at once", ERR_TOO_BIG},
        {"{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
         "nothing can match", ERR_INVALID},
        {"false", "nothing is valid", ERR_INVALID},
        {"{\"anyOf\":[]}", "anyOf: is no list", ERR_INVALID},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}",
         "#: oneOf: two of its", ERR_UNSUPPORTED},
        {"{\"oneOf\":[{\"type\":\"string\"},{\"const\":\"b\"}]}",
         "#: oneOf: two of its", ERR_UNSUPPORTED},
        {"{\"oneOf\":[true,{\"type\":\"null\"}]}", "#: oneOf: two of its",
         ERR_UNSUPPORTED},
        {"{\"oneOf\":[{\"enum\":[1,2]},{\"enum\":[2,3]}]}",
         "#: oneOf: two of its", ERR_UNSUPPORTED},
        /* "y" may stand beside "x" and makes both hold */
        {"{\"oneOf\":[{\"properties\":{\"x\":{},\"y\":{}},\"required\":[\"x\"]"
         "},{\"properties\":{\"y\":{}},\"required\":[\"y\"]}]}",
         "#: oneOf: two of its", ERR_UNSUPPORTED},
        /* and so may it here, from the schema beside */
        {"{\"allOf\":[{\"oneOf\":[{\"properties\":{\"x\":{}},\"required\":["
         "\"x\"]},{\"properties\":{\"y\":{}},\"required\":[\"y\"]}]},{"
         "\"properties\":{\"y\":{}}}]}", "oneOf: two of its",
         ERR_UNSUPPORTED},
        {"{\"items\":[{}]}", "its word is prefixItems", ERR_UNSUPPORTED},
        {"{\"minItems\":3,\"maxItems\":2}", "more than there can be",
         ERR_INVALID},
        {"{\"minLength\":3,\"maxLength\":2}", "more than maxLength",
         ERR_INVALID},
        {"{\"minLength\":10000000}", "larger than the limit", ERR_TOO_BIG},
        {"{\"minItems\":-1}", "is no count", ERR_INVALID},
        {"{\"properties\":{\"a\":false},\"required\":[\"a\"]}",
         "is required, but", ERR_INVALID},
        {"{\"properties\":[]}", "properties: is no object", ERR_INVALID},
        {"{\"properties\":{\"a\":1}}", "#/properties/a: neither", ERR_INVALID},
        {"{\"propertyNames\":{\"pattern\":\"a\"},\"properties\":{\"b\":{}}}",
         "propertyNames: together", ERR_UNSUPPORTED},
        {"{\"nullable\":true}", "nullable", ERR_UNSUPPORTED},
        {"[1]", "neither an object", ERR_INVALID},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct err e = {0};
        struct grammar *g = NULL;
        int rc = schema_compile(rows[i].schema, &g, &e);
        if (rc != rows[i].code || strstr(e.msg, rows[i].want) == NULL) {
            fail_msg("%s: %s: %s", rows[i].schema, err_name(rc), e.msg);
        }
    }
}

static void test_regex(void **state)
{
    (void)state;
    static const struct schema_row rows[] = {
        {"", "", true},
        {"", "a", false},
        {"abc", "abc", true},
        {"abc", "xabc", false},
        {"^abc$", "abc", true},
        {"a|b|", "", true},
        {"(a|b)*c", "ababc", true},
        {"a{2,3}?", "aaa", true},
        {"a{2,}", "a", false},
        {"[\\d_-]+", "1_-", true},
        {"[^\\w]", "-", true},
        {"[\\]a]", "]", true},
        {"\\D\\S\\W", "ab!", true},
        {"\\D\\S\\W", "1b!", false},
        {"[\\u{1F600}-\\u{1F64F}]", "\xF0\x9F\x98\x81", true},
        {"(?<n>x)y", "xy", true},
        {"\\$\\(\\)", "$()", true},
        {"\"", "\"", true},
        {".", "\n", false},
        {"((a{2}){2}){2}", "aaaaaaaa", true},
        {"((a{2}){2}){2}", "aaaaaaa", false},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct err e = {0};
        struct grammar *g = NULL;
        struct matcher *m = NULL;
        unit_ok(grammar_from_regex(rows[i].schema, strlen(rows[i].schema), &g,
                                   &e),
                &e);
        unit_ok(matcher_new(g, &m, &e), &e);
        if (grammar_takes(m, rows[i].text, strlen(rows[i].text)) !=
            rows[i].want) {
            fail_msg("%s: %s should %smatch", rows[i].schema, rows[i].text,
                     rows[i].want ? "" : "not ");
        }
        matcher_free(m);
        grammar_free(g);
    }
    static const char *const refused[] = {
        "(", ")", "a)", "[", "[a", "*", "a**", "a{2", "a{3,2}", "\\", "(?!a)",
        "(?<=a)", "a++", "[z-a]", "\\1", "\\q", "\xFF", "[\\d-z]{", "{2}",
    };
    for (size_t i = 0; i < countof(refused); i++) {
        struct err e = {0};
        struct grammar *g = NULL;
        if (grammar_from_regex(refused[i], strlen(refused[i]), &g, &e) !=
            ERR_INVALID) {
            fail_msg("%s is taken: %s", refused[i], e.msg);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),    cmocka_unit_test(test_objects),
        cmocka_unit_test(test_arrays),   cmocka_unit_test(test_values),
        cmocka_unit_test(test_strings),  cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_integer_ranges),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_regex),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
