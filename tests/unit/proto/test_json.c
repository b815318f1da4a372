/* json: what the validator refuses and cJSON would take, getters, builder. */
#include "../unit.h"

#include <math.h>

#include "proto/json.h"
#include "proto/limits.h"

static int parse(const char *text, struct json **j, struct err *e)
{
    return json_parse(text, strlen(text), j, e);
}

static void refuses_what_cjson_takes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n;
    } bad[] = {
#define S(s) {s, sizeof(s) - 1}
        S(""),
        S(" "),
        S("{} x"),
        S("{}{}"),
        S("{\"a\":1,\"a\":2}"),
        S("{\"a\":1,\"\\u0061\":2}"),
        S("\"a\0b\""),
        S("\"\\u0000\""),
        S("1e999"),
        S("-1e999"),
        S("012"),
        S("1."),
        S(".5"),
        S("+1"),
        S("-"),
        S("1e"),
        S("0x10"),
        S("NaN"),
        S("Infinity"),
        S("\"\t\""),
        S("\"\x01\""),
        S("\"\xff\""),
        S("\"\xc0\x80\""),
        S("\"\xed\xa0\x80\""),
        S("\"\xf4\x90\x80\x80\""),
        S("\"\xe2\x82\""),
        S("\xef\xbb\xbf{}"),
        S("\"\\ud800\""),
        S("\"\\udc00\""),
        S("\"\\ud800\\u0041\""),
        S("\"\\x41\""),
        S("\"\\u12g4\""),
        S("\"abc"),
        S("[1,]"),
        S("[1 2]"),
        S("{\"a\"}"),
        S("{\"a\":}"),
        S("{a:1}"),
        S("{1:1}"),
        S("[1"),
        S("{\"a\":1,}"),
        S("tru"),
        S("True"),
        S("'a'"),
        S("[1]\0"),
        S("//x\n1"),
        S("nul"),
        S("]"),
        S("{\"x\":{\"b\":1,\"c\":2,\"b\":3}}"),
        S("1234567890123456789012345678901234567890123456789012345678901234"),
#undef S
    };
    for (size_t i = 0; i < countof(bad); i++) {
        struct json *j = NULL;
        struct err e = {0};
        if (json_parse(bad[i].text, bad[i].n, &j, &e) != ERR_JSON) {
            fail_msg("accepted: %s", bad[i].text);
        }
        assert_null(j);
        assert_true(strlen(e.msg) > 0);
    }
}

static void takes_what_is_json(void **state)
{
    (void)state;
    static const char *const good[] = {
        "0",
        "-0",
        "1.5e-3",
        "1E5",
        "\"\"",
        "[]",
        "{}",
        " [ ] ",
        "null",
        "\"\\ud83d\\ude00\"",
        "\"\xf0\x9f\x98\x80\"",
        "\"\\u00e9\\n\\/\"",
        "{\"\":1}",
        "[[[[]]]]",
        "\t{\"a\" : [ true , false , null ] }\r\n",
    };
    for (size_t i = 0; i < countof(good); i++) {
        struct json *j = NULL;
        struct err e = {0};
        unit_ok(parse(good[i], &j, &e), &e);
        json_free(j);
    }
}

static void nesting_ends_at_the_limit(void **state)
{
    (void)state;
    for (int depth = JSON_DEPTH_MAX - 1; depth <= JSON_DEPTH_MAX + 1; depth++) {
        char text[4 * JSON_DEPTH_MAX];
        struct json *j = NULL;
        struct err e = {0};
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        int rc = json_parse(text, (size_t)depth * 2, &j, &e);
        assert_int_equal(rc, depth <= JSON_DEPTH_MAX ? 0 : ERR_JSON);
        json_free(j);
    }
}

static void members_are_typed(void **state)
{
    (void)state;
    struct err e = {0};
    struct json *j = NULL;
    int64_t i = 7;
    double d = 7;
    bool b = false;
    const char *s = "before";
    unit_ok(parse("{\"i\":3,\"f\":1.5,\"s\":\"x\",\"b\":true,\"n\":null,"
                  "\"big\":1e300,\"A\":1}",
                  &j, &e),
            &e);
    assert_int_equal(json_want_int(j, "i", true, 0, 3, &i, &e), 0);
    assert_int_equal(i, 3);
    assert_int_equal(json_want_int(j, "i", true, 0, 2, &i, &e), ERR_INVALID);
    assert_non_null(strstr(e.msg, "'i'"));
    assert_int_equal(json_want_int(j, "f", true, 0, 9, &i, &e), ERR_INVALID);
    assert_int_equal(
        json_want_int(j, "big", true, INT64_MIN, INT64_MAX, &i, &e),
        ERR_INVALID);
    assert_int_equal(json_want_int(j, "s", true, 0, 9, &i, &e), ERR_INVALID);
    assert_non_null(strstr(e.msg, "a string"));
    assert_int_equal(json_want_num(j, "f", true, 0, 2, &d, &e), 0);
    assert_true(d == 1.5);
    assert_int_equal(json_want_num(j, "f", true, 0, 1, &d, &e), ERR_INVALID);
    assert_int_equal(json_want_bool(j, "b", true, &b, &e), 0);
    assert_true(b);
    assert_int_equal(json_want_str(j, "none", false, &s, &e), 0);
    assert_int_equal(json_want_str(j, "n", false, &s, &e), 0);
    assert_string_equal(s, "before"); /* absent and null leave it */
    assert_int_equal(json_want_str(j, "none", true, &s, &e), ERR_INVALID);
    assert_null(json_get(j, "a")); /* keys are case-sensitive */
    assert_int_equal(json_count(j), 7);
    json_free(j);
}

/* What printf and strtod agree on first, of 15 to 17 digits. */
static void shortest(double v, char *out, size_t size)
{
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(out, size, "%.*g", digits, v);
        if (strtod(out, NULL) == v) {
            return;
        }
    }
}

static void numbers_are_the_shortest_that_read_back(void **state)
{
    (void)state;
    uint64_t rng = 1;
    for (int i = 0; i < 20000; i++) {
        rng = rng * 6364136223846793005u + 1442695040888963407u;
        double v = (double)(int64_t)(rng >> 11) - (double)(1ull << 52);
        v /= (double)(1ull << (rng % 50));     /* of any size */
        v = i % 2 == 0 ? round(v * 1000) / 1000 : v;
        v = fabs(v) < 1e15 ? v : v / 1e6;      /* else %g has exponents */
        v = fabs(v) > 1e-3 ? v : 0.25;
        char want[40];
        shortest(v, want, sizeof(want));
        struct json *j = json_object();
        struct buf b;
        buf_init(&b, 1000);
        json_add_num(j, "x", v);
        json_write(j, false, &b);
        assert_memory_equal(b.p, "{\"x\":", 5);
        assert_memory_equal(b.p + 5, want, strlen(want));
        assert_int_equal(b.n, 6 + strlen(want));
        buf_fini(&b);
        json_free(j);
    }
}

static void what_is_built_reads_back(void **state)
{
    (void)state;
    struct err e = {0};
    struct buf b;
    struct json *back = NULL;
    buf_init(&b, 10000);
    struct json *j = json_object();
    json_add_int(j, "big", 1700000000123456);
    json_add_num(j, "pi", 3.141592653589793);
    json_add_num(j, "tenth", 0.1);
    json_add_num(j, "nan", (double)NAN);
    json_add_strn(j, "dirty", "a\xff\"\\\n\x01z", 7);
    struct json *a = json_add_array(j, "list");
    json_add_bool(a, NULL, true);
    json_add_null(a, NULL);
    struct json *copy = json_copy(j);
    json_add_tree(j, "copy", copy);
    json_write(j, false, &b);
    assert_string_equal(
        b.p, "{\"big\":1700000000123456,\"pi\":3.141592653589793,\"tenth\":0.1,"
             "\"nan\":null,\"dirty\":\"a\xef\xbf\xbd\\\"\\\\\\n\\u0001z\","
             "\"list\":[true,null],\"copy\":{\"big\":1700000000123456,"
             "\"pi\":3.141592653589793,\"tenth\":0.1,\"nan\":null,"
             "\"dirty\":\"a\xef\xbf\xbd\\\"\\\\\\n\\u0001z\","
             "\"list\":[true,null]}}");
    unit_ok(json_parse(b.p, b.n, &back, &e), &e);
    int64_t big = 0;
    assert_true(json_int(json_get(back, "big"), 0, INT64_MAX, &big));
    assert_true(big == 1700000000123456);
    json_free(back);
    buf_clear(&b);
    json_write(j, true, &b);
    unit_ok(json_parse(b.p, b.n, &back, &e), &e);
    json_free(back);
    json_free(j);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_what_cjson_takes),
        cmocka_unit_test(takes_what_is_json),
        cmocka_unit_test(nesting_ends_at_the_limit),
        cmocka_unit_test(members_are_typed),
        cmocka_unit_test(numbers_are_the_shortest_that_read_back),
        cmocka_unit_test(what_is_built_reads_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
