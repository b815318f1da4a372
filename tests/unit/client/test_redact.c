/* test_redact.c - redact.h: where a text is cut. The rest needs a daemon
 * (tests/e2e/test_redact.py). */
#include "client/redact.h"

#include "tests/unit/unit.h"

#define SUN "\xe6\x97\xa5"

static void test_cut(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t from, to, want;
    } cases[] = {
        {"one\ntwo\nthree", 0,  12, 8 }, /* the last line end */
        {"one\ntwo\nthree", 0,  7,  4 },
        {"one\ntwo\nthree", 4,  7,  7 }, /* there is none: at the end */
        {"one\n\n\ntwo",    0,  8,  6 }, /* after all of them */
        {"one\n  two\nx",   0,  8,  4 }, /* better than a word's beginning */
        {"a\nb\n c",        0,  5,  2 }, /* better than before white space */
        {"a\r\nb",          0,  4,  3 }, /* behind both bytes */
        {"one two three",   0,  12, 7 }, /* before a space */
        {"one  two",        0,  5,  3 }, /* before the first of them */
        {"abcdef",          0,  4,  4 },
        {"abc\n",           0,  4,  4 },
        {SUN SUN SUN,       0,  8,  6 }, /* no inside of a character */
        {SUN SUN SUN,       0,  9,  9 },
        {SUN SUN SUN,       3,  7,  6 },
    };
    for (size_t i = 0; i < countof(cases); i++) {
        size_t got = redact_cut(cases[i].text, strlen(cases[i].text),
                                cases[i].from, cases[i].to);
        if (got != cases[i].want) {
            fail_msg("case %zu: %zu", i, got);
        }
    }
}

/* Any text: in the range, and between characters. */
static void test_cut_random(void **state)
{
    (void)state;
    static const char *const parts[] = {"a", SUN, "\n", " ", "\r\n",
                                        "\xf0\x9f\x91\xa9", "word", "\t"};
    uint64_t x = 3;
    for (int round = 0; round < 20000; round++) {
        char text[256] = "";
        size_t edge[64] = {0};
        size_t n = 0;
        for (size_t i = 1; i < 40; i++) {
            x = x * 6364136223846793005ull + 1442695040888963407ull;
            const char *p = parts[(x >> 40) % countof(parts)];
            memcpy(text + n, p, strlen(p));
            n += strlen(p);
            edge[i] = n;
        }
        size_t a = (x >> 20) % 30;
        size_t b = a + 1 + (x >> 30) % (39 - a);
        size_t got = redact_cut(text, n, edge[a], edge[b]);
        assert_true(got > edge[a] && got <= edge[b]);
        assert_true(got == n || ((uint8_t)text[got] & 0xc0) != 0x80);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_cut_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
