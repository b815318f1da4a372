/* Unit files: what is put into a template, and how it is escaped; programs that
 * are run. */
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "client/service.h"
#include "proto/limits.h"

static void texts_are_escaped(void **state)
{
    (void)state;
    static const struct {
        enum unit_form form;
        const char *text, *want; /* NULL: refused */
    } rows[] = {
        {UNIT_PLAIN, "a@b%&\"",       "a@b%&\""                },
        {UNIT_XML,   "a&b<c>\"d' %$", "a&amp;b&lt;c&gt;\"d' %$"},
        {UNIT_PATH,  "/a b%c$d\"e\\", "/a b%%c$d\"e\\"         },
        {UNIT_EXE,   "/a b%c$d",      "\"/a b%%c$d\""          },
        {UNIT_WORD,  "a b%c$d\"e\\f", "\"a b%%c$$d\\\"e\\\\f\""},
        {UNIT_WORD,  "\xc3\xa9",      "\"\xc3\xa9\""           },
        {UNIT_WORD,  "",              "\"\""                   },
        {UNIT_EXE,   "/a'b",          NULL                     },
        {UNIT_EXE,   "/a\\b",         NULL                     },
        {UNIT_XML,   "a\nb",          NULL                     },
        {UNIT_WORD,  "a\x7f",         NULL                     },
        {UNIT_PATH,  "a\tb",          NULL                     },
        {UNIT_XML,   "\xff",          NULL                     },
        {UNIT_PATH,  "\xc3",          NULL                     },
    };
    for (size_t i = 0; i < countof(rows); i++) {
        const struct unit_value v = {"V", rows[i].text, rows[i].form};
        struct buf b = {0};
        struct err e = {0};
        int rc = unit_fill("<@V@@V@>", &v, 1, &b, &e);
        if (rows[i].want == NULL) {
            assert_int_equal(rc, ERR_INVALID);
            assert_true(e.msg[0] != '\0');
            continue;
        }
        char want[200];
        unit_ok(rc, &e);
        (void)snprintf(want, sizeof(want), "<%s%s>", rows[i].want,
                       rows[i].want);
        assert_string_equal(b.p, want);
        buf_fini(&b);
    }
}

static void a_file_is_written_when_it_differs(void **state)
{
    (void)state;
    char dir[] = "/tmp/aned-unit-XXXXXX", path[64];
    struct err e = {0};
    struct buf b, got = {0};
    bool changed = false;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/a/b/unit", dir);
    buf_init(&b, 100);
    buf_puts(&b, "one");
    unit_ok(unit_write(path, &b, &changed, &e), &e);
    assert_true(changed);
    changed = false;
    unit_ok(unit_write(path, &b, &changed, &e), &e);
    assert_false(changed);
    buf_puts(&b, "two");
    unit_ok(unit_write(path, &b, &changed, &e), &e);
    assert_true(changed);
    unit_ok(file_read(path, 100, &got, &e), &e);
    assert_string_equal(got.p, "onetwo");
    buf_fini(&got);
    buf_fini(&b);
    unit_ok(file_rmtree(dir, &e), &e);
}

/* --- programs --- */

static int run_sh(const char *script, int limit_s, struct buf *out, int *code,
                  struct err *e)
{
    const char *argv[] = {"sh", "-c", script, NULL};
    return run_program(argv, limit_s, out, code, e);
}

static void what_a_program_says(void **state)
{
    (void)state;
    struct buf out;
    struct err e = {0};
    int code = 0;
    buf_init(&out, 20);
    unit_ok(run_sh("cat; echo out; echo err >&2; exit 7", 60, &out, &code, &e),
            &e);
    assert_int_equal(code, 7);
    assert_string_equal(out.p, "out\nerr\n"); /* and nothing on its stdin */
    assert_string_equal(run_last_line(&out), "err");
    buf_clear(&out);
    unit_ok(run_sh("yes | head -c 100000; kill -9 $$", 60, &out, &code, &e),
            &e);
    assert_int_equal(code, 128 + 9);
    assert_int_equal(out.n, 20); /* its limit; the rest was read, and dropped */
    buf_clear(&out);
    assert_string_equal(run_last_line(&out), "");
    const char *none[] = {"/nonexistent/x", NULL};
    assert_int_equal(run_program(none, 60, &out, &code, &e), ERR_NOT_FOUND);
    assert_int_equal(run_sh("exec sleep 60", 1, NULL, &code, &e), ERR_TIMEOUT);
    buf_fini(&out);
}

struct lines {
    unsigned n;
    size_t longest;
    char text[64];
    int end_at; /* 0: never */
};

static int on_line(void *ctx, const char *line, size_t n, struct err *e)
{
    struct lines *x = ctx;
    x->n++;
    x->longest = n > x->longest ? n : x->longest;
    (void)snprintf(x->text, sizeof(x->text), "%.*s", n < 60 ? (int)n : 60,
                   line);
    return x->end_at > 0 && x->n == (unsigned)x->end_at
               ? err_set(e, ERR_CANCELLED, "enough")
               : 0;
}

static void lines_of_a_program(void **state)
{
    (void)state;
    struct lines x = {0};
    struct err e = {0};
    int code = 0;
    const char *a[] = {"sh", "-c", "seq 1 5000; printf 'no end'; exit 3", NULL};
    unit_ok(run_lines(a, on_line, &x, &code, &e), &e);
    assert_int_equal(code, 3);
    assert_int_equal(x.n, 5001);
    assert_string_equal(x.text, "no end");
    const char *b[] = {"sh", "-c", "head -c 200000 /dev/zero | tr '\\0' z",
                       NULL};
    x = (struct lines){0};
    unit_ok(run_lines(b, on_line, &x, &code, &e), &e);
    assert_int_equal(x.n, 4); /* 200000 in pieces of 64 KiB */
    assert_int_equal(x.longest, RUN_LINE_MAX);
    const char *c[] = {"yes", NULL}; /* it would go on */
    x = (struct lines){.end_at = 100};
    assert_int_equal(run_lines(c, on_line, &x, &code, &e), ERR_CANCELLED);
    assert_int_equal(x.n, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_escaped),
        cmocka_unit_test(a_file_is_written_when_it_differs),
        cmocka_unit_test(what_a_program_says),
        cmocka_unit_test(lines_of_a_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
