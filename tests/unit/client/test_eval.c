/* test_eval.c - small parts of anectl eval and bench: words as Python counts
 * them, lines, medians. The whole: tests/e2e/test_eval.py. */
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "client/bench.h"
#include "client/eval.h"

static void words(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n; /* len(re.split(r"\s+", text)) */
    } t[] = {
        {"",           1},
        {"a",          1},
        {"a b",        2},
        {" a  b\n\n",  4},
        {"a\tb\x0b"
         "c\x1f"
         "d", 4},
        {"a\xc2\xa0"
         "b\xe2\x80\x83\xe3\x80\x80"
         "c", 3}, /* U+00A0, U+2003, U+3000 */
        {"a\xe2\x80\x8b"
         "b", 1}, /* U+200B is no space */
        {"\xff \xff",  2}, /* no UTF-8 */
    };
    for (size_t i = 0; i < countof(t); i++) {
        print_message("# %zu\n", i);
        assert_int_equal(eval_words(t[i].text, strlen(t[i].text)), t[i].n);
    }
}

static void lines(void **state)
{
    (void)state;
    static const char text[] = "\none\r\n \t\n\r\ntwo";
    char path[] = "/tmp/aned-eval-XXXXXX";
    struct eval_lines l = {0};
    struct err e = {0};
    const char *line = NULL;
    size_t n = 0;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
    (void)close(fd);
    unit_ok(eval_lines_open(&l, path, &e), &e);
    assert_true(eval_lines_next(&l, &line, &n));
    assert_int_equal(n, 3);
    assert_memory_equal(line, "one", 3);
    assert_int_equal(l.number, 2);
    assert_true(eval_lines_read(&l) > 0.3 && eval_lines_read(&l) < 0.5);
    assert_true(eval_lines_next(&l, &line, &n));
    assert_int_equal(n, 3);
    assert_memory_equal(line, "two", 3);
    assert_int_equal(l.number, 5);
    assert_false(eval_lines_next(&l, &line, &n));
    assert_true(eval_lines_read(&l) >= 1);
    eval_lines_close(&l);
    eval_lines_close(&l);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(eval_lines_open(&l, path, &e), ERR_NOT_FOUND);
}

static void medians(void **state)
{
    (void)state;
    double v[] = {5, 1, 4, 2, 3};
    assert_true(bench_median(v, 5) == 3);
    assert_true(v[0] == 1 && v[4] == 5);
    assert_true(bench_median(v, 4) == 2.5);
    assert_true(bench_median(v, 1) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words),
        cmocka_unit_test(lines),
        cmocka_unit_test(medians),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
