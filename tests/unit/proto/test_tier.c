/* One model for several contexts: their list, and their names. */
#include "../unit.h"
#include "proto/tier.h"

static void lists(void **state)
{
    (void)state;
    struct tiers t;
    struct err e = {0};
    unit_ok(tiers_parse("4096", &t, &e), &e);
    assert_int_equal(t.n, 1);
    assert_int_equal(t.context[0], 4096);
    unit_ok(tiers_parse("512,8192,2048", &t, &e), &e);
    assert_int_equal(t.n, 3);
    assert_int_equal(t.context[0], 8192);
    assert_int_equal(t.context[1], 2048);
    assert_int_equal(t.context[2], 512);
}

static void wrong_lists(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "0",
        "x",
        "1,",
        ",1",
        "1,,2",
        "1 ",
        "-1",
        "8,8",
        "1,0",
        "1048577",
        "99999999999999999999",
        "1,2,3,4,5,6,7,8,9",
    };
    for (size_t i = 0; i < countof(wrong); i++) {
        struct tiers t;
        struct err e = {0};
        assert_int_equal(tiers_parse(wrong[i], &t, &e), ERR_INVALID);
        assert_non_null(strstr(e.msg, "context"));
    }
}

static void suffixes(void **state)
{
    (void)state;
    char s[TIER_SUFFIX_MAX];
    tier_suffix(2048, s);
    assert_string_equal(s, "-2k");
    tier_suffix(1000, s);
    assert_string_equal(s, "-1000");
    tier_suffix(MODEL_CONTEXT_MAX, s);
    assert_string_equal(s, "-1024k");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists),
        cmocka_unit_test(wrong_lists),
        cmocka_unit_test(suffixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
