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

/* zod has a pattern beside each format, and the one for addresses, as that of
 * pydantic's decimals, begins with what must not come. */
static void test_several_words(void **state)
{
    (void)state;
#define MAIL                                                                   \
    "{\"format\":\"email\",\"pattern\":\"^(?!\\\\.)(?!.*\\\\.\\\\.)([A-Za-z0-" \
    "9_'+"                                                                     \
    "\\\\-\\\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\\\-]*\\\\.)+[A-Za-z]" \
    "{2,}$"                                                                    \
    "\"}"
#define DECIMAL  "{\"pattern\":\"^(?!^[-+.]*$)[+-]?0*\\\\d*\\\\.?\\\\d*$\"}"
#define DAY_2000 "{\"format\":\"date\",\"pattern\":\"^20\"}"
#define FEW      "{\"pattern\":\"^[a-z\xC3\xA9]+$\",\"minLength\":2,\"maxLength\":3}"
    static const struct schema_row rows[] = {
        {MAIL,                                      "\"a.b@c.de\"",   true },
        {MAIL,                                      "\".a@c.de\"",    false},
        {MAIL,                                      "\"a..b@c.de\"",  false},
        {MAIL,                                      "\"a!@c.de\"",    false}, /* of the format alone */
        {MAIL,                                      "\"a@c.d\"",      false},
        {MAIL,                                      "\"a@c.d1\"",     false},
        {DECIMAL,                                   "\"-1.50\"",      true },
        {DECIMAL,                                   "\"0\"",          true },
        {DECIMAL,                                   "\"\"",           false},
        {DECIMAL,                                   "\"-.\"",         false},
        {DECIMAL,                                   "\"+.5\"",        true },
        {DAY_2000,                                  "\"2024-02-29\"", true },
        {DAY_2000,                                  "\"1924-02-29\"", false},
        {DAY_2000,                                  "\"2023-02-29\"", false},
        {DAY_2000,                                  "\"20\"",         false},
        {FEW,                                       "\"a\"",          false},
        {FEW,                                       "\"ab\"",         true },
        {FEW,                                       "\"a\xC3\xA9z\"", true },
        {FEW,                                       "\"abcd\"",       false},
        {FEW,                                       "\"aB\"",         false},
 /* a pattern that may stand anywhere; an escape is one character */
        {"{\"pattern\":\"[0-9]\",\"maxLength\":2}", "\"\\u00411\"",   true },
        {"{\"pattern\":\"[0-9]\",\"maxLength\":2}", "\"\\u0041a\"",   false},
        {"{\"pattern\":\"[0-9]\",\"maxLength\":2}", "\"ab1\"",        false},
        {"{\"pattern\":\"^(?!a[|)]b)a.b$\"}",       "\"a|b\"",        false},
        {"{\"pattern\":\"^(?!a[|)]b)a.b$\"}",       "\"a.b\"",        true },
    };
    schema_check(rows, countof(rows));
}

/* What pydantic writes of timedelta, IPv6Address, UUID4, Base64Str, and, with
 * no more than a name to it, of SecretStr and Path. */
static void test_pydantic_formats(void **state)
{
    (void)state;
#define OF(f) "{\"format\":\"" f "\"}"
    static const struct schema_row rows[] = {
        {OF("duration"),                          "\"P1Y2M3DT4H5M6S\"",                       true },
        {OF("duration"),                          "\"PT90S\"",                                true },
        {OF("duration"),                          "\"P2W\"",                                  true },
        {OF("duration"),                          "\"P\"",                                    false},
        {OF("duration"),                          "\"P1DT\"",                                 false},
        {OF("duration"),                          "\"P1Y3D\"",                                false},
        {OF("ipv6"),                              "\"2001:db8::1\"",                          true },
        {OF("ipv6"),                              "\"::\"",                                   true },
        {OF("ipv6"),                              "\"1:2:3:4:5:6:7:8\"",                      true },
        {OF("ipv6"),                              "\"1:2:3:4:5:6:7::\"",                      true },
        {OF("ipv6"),                              "\"1:2:3:4:5:6:7\"",                        false},
        {OF("ipv6"),                              "\"1::2::3\"",                              false},
        {OF("ipv6"),                              "\"1:2:3:4:5:6:7:8:9\"",                    false},
        {OF("uuid4"),                             "\"0e2b0a3c-1d5e-4f6a-8b7c-9d0e1f2a3b4c\"", true },
        {OF("uuid4"),                             "\"0e2b0a3c-1d5e-1f6a-8b7c-9d0e1f2a3b4c\"", false},
        {OF("base64"),                            "\"YWJj\"",                                 true },
        {OF("base64"),                            "\"YQ==\"",                                 true },
        {OF("base64"),                            "\"YQ=\"",                                  false},
        {OF("password"),                          "\"any text\"",                             true },
        {"{\"format\":\"path\",\"maxLength\":3}", "\"/etc\"",                                 false},
    };
    schema_check(rows, countof(rows));
}

/* pydantic's HttpUrl has a maxLength of 2083; other formats a far shorter end.
 */
static void test_bounded_formats(void **state)
{
    (void)state;
#define URI(words) "{\"format\":\"uri\"," words "}"
    static const struct schema_row rows[] = {
        {URI("\"maxLength\":2083,\"minLength\":1"),     "\"https://a.de/b?c=d#e\"",
         true                                                                             },
        {URI("\"maxLength\":20"),                       "\"https://a.de/b234567\"",  true },
        {URI("\"maxLength\":20"),                       "\"https://a.de/b2345678\"", false},
        {URI("\"minLength\":20"),                       "\"https://a.de/b23456\"",   false},
        {"{\"format\":\"email\",\"maxLength\":254}",    "\"ada@example.org\"",
         true                                                                             },
        {"{\"format\":\"email\",\"minLength\":8}",      "\"a@b.org\"",               false},
        {"{\"format\":\"ipv4\",\"minLength\":8}",       "\"1.2.3.4\"",               false},
        {"{\"format\":\"ipv4\",\"minLength\":8}",       "\"1.2.3.40\"",              true },
        {"{\"pattern\":\"^a+$\",\"maxLength\":100000}", "\"aaa\"",                   true },
    };
    schema_check(rows, countof(rows));
}

/* --- masks where few characters are left --- */

/* Plain tokens of 1 to 40 characters, narrow, wide and cut; the same with what
 * ends a string, or begins an escape, in each place. */
static void add_plain_tokens(struct voc *v)
{
    static const char *const units[] = {"a", "\xC3\xA9", "\xF0\x9F\x98\x80"};
    static const char *const others[] = {"\"", "\\", "\\n", "\x01", "\xE4\xBD"};
    for (size_t u = 0; u < countof(units); u++) {
        for (size_t n = 1; n <= 40; n++) {
            char text[200];
            size_t len = strlen(units[u]);
            for (size_t i = 0; i < n; i++) {
                memcpy(text + i * len, units[u], len);
            }
            voc_add(v, text, n * len, TRIE_TEXT);
            voc_add(v, text, n * len - (len > 1), TRIE_TEXT);
            for (size_t o = 0; o < countof(others); o++) {
                size_t at = n / 2 * len; /* in the middle, and at the end */
                char mixed[200];
                size_t more = strlen(others[o]);
                memcpy(mixed, text, at);
                memcpy(mixed + at, others[o], more);
                voc_add(v, mixed, at + more, TRIE_TEXT);
                memcpy(mixed + at + more, text, n * len - at);
                voc_add(v, mixed, n * len + more, TRIE_TEXT);
            }
        }
    }
}

/* The mask at each place of a string, until no more characters may come, or 45
 * have. */
static void check_masks(const char *schema, const struct voc *v,
                        const struct trie *t, uint64_t *bits)
{
    struct err e = {0};
    struct grammar *g = NULL;
    struct matcher *m = NULL;
    struct masker *k = NULL;
    unit_ok(schema_compile(schema, &g, &e), &e);
    unit_ok(matcher_new(g, &m, &e), &e);
    unit_ok(masker_new(m, t, &k, &e), &e);
    match_t s = match_start(m);
    match_hold(m, s);
    assert_true(match_bytes(m, &s, "\"", 1));
    for (size_t i = 0; i < 45; i++) {
        assert_true(mask_compare(m, k, s, v, bits));
        if (!match_bytes(m, &s, i % 2 == 0 ? "b" : "\xC3\xA9", 1 + i % 2)) {
            break;
        }
    }
    match_drop(m, s);
    masker_free(k);
    matcher_free(m);
    grammar_free(g);
}

static void test_bounded_masks(void **state)
{
    (void)state;
    static struct voc v;
    static uint64_t bits[countof(v.tokens) / 64];
    struct err e = {0};
    struct trie *t = NULL;
    static const char *const schemas[] = {
        "{\"maxLength\":5}",
        "{\"maxLength\":80}",
        "{\"minLength\":3,\"maxLength\":70}",
        "{\"pattern\":\"^[^\\n]{0,9}$\"}",
        /* a plain character may follow the bounded ones, but not each */
        "{\"pattern\":\"^[^\\n]{9}[a-c]*$\"}",
        "{\"pattern\":\"^[^\\n]{9}\xC3\xA9*$\"}",
        /* looked for */
        "{\"pattern\":\"abc\"}",
        "{\"pattern\":\"\xC3\xA9$\"}",
        "{\"pattern\":\"[0-9]\",\"maxLength\":9}",
        "{\"pattern\":\"b[^a].*a\"}",
        "{\"anyOf\":[{\"maxLength\":4},{\"pattern\":\"^[a-z\xC3\xA9]*$\"}]}",
    };
    for (unsigned c = 0; c < 256; c++) {
        char byte = (char)c;
        voc_add(&v, &byte, 1, c == '!' ? TRIE_END : TRIE_TEXT);
    }
    add_plain_tokens(&v);
    unit_ok(trie_new(v.tokens, v.kinds, v.n, &t, &e), &e);
    for (size_t i = 0; i < countof(schemas); i++) {
        check_masks(schemas[i], &v, t, bits);
    }
    trie_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_undeclared),
        cmocka_unit_test(test_descriptions),
        cmocka_unit_test(test_large_bounds),
        cmocka_unit_test(test_years),
        cmocka_unit_test(test_several_words),
        cmocka_unit_test(test_pydantic_formats),
        cmocka_unit_test(test_bounded_formats),
        cmocka_unit_test(test_bounded_masks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
