/* test_text.c - however the bytes are cut, the text is the same. */
#include "model/text.h"
#include "tests/unit/model/vocab.h"
#include "tests/unit/unit.h"

/* The text of p[0..n) when it arrives in pieces of random size up to `most`;
 * every piece handed out must be valid UTF-8 by itself. */
static void stream(const char *p, size_t n, const char *const *stops,
                   size_t n_stops, size_t most, struct buf *out, int *ret_stop)
{
    struct err e = {0};
    struct text_stream s;
    unit_ok(text_stream_init(&s, NULL, false, stops, n_stops, &e), &e);
    for (size_t i = 0; i < n;) {
        size_t step = 1 + (size_t)rand() % most;
        step = step < n - i ? step : n - i;
        size_t before = out->n;
        text_stream_bytes(&s, p + i, step, out);
        if (out->n > before) {
            assert_int_not_equal(out->p[before] & 0xC0, 0x80);
        }
        i += step;
    }
    text_stream_end(&s, out);
    *ret_stop = s.stopped ? s.stop_index : -1;
    text_stream_fini(&s);
}

static void check(const char *in, const char *const *stops, size_t n_stops,
                  const char *want, int want_stop)
{
    for (size_t most = 1; most < 40; most++) {
        struct buf out;
        int stop = 0;
        buf_init(&out, 4096);
        buf_puts(&out, "");
        stream(in, strlen(in), stops, n_stops, most, &out, &stop);
        assert_string_equal(out.p, want);
        assert_int_equal(stop, want_stop);
        buf_fini(&out);
    }
}

static void test_stops(void **state)
{
    (void)state;
    static const char *const two[] = {"###", "\n\nUser:"};
    static const char *const nested[] = {"abcd", "bc"};
    static const char *const tail[] = {"ab", "xab"};
    static const char *const overlap[] = {"aab"};
    check("no stop here", two, 2, "no stop here", -1);
    check("one ## two ### three", two, 2, "one ## two ", 0);
    check("hi\n\nUser: x", two, 2, "hi", 1);
    check("hi\n\nUse", two, 2, "hi\n\nUse", -1);
    check("##", two, 2, "##", -1);
    check("xabcd", nested, 2, "xa", 1); /* complete first */
    check("..xab..", tail, 2, "..", 1); /* the longest that ends there */
    check("aaab", overlap, 1, "a", 0);
    check("aaaaac", overlap, 1, "aaaaac", -1);
}

/* Text with lines of at least `indent` blanks, however it is cut. */
static void check_indent(const char *in, uint32_t indent, const char *want)
{
    for (size_t step = 1; step < 12; step++) {
        struct err e = {0};
        struct text_stream s;
        struct buf out;
        buf_init(&out, 4096);
        buf_puts(&out, "");
        unit_ok(text_stream_init(&s, NULL, false, NULL, 0, &e), &e);
        s.indent = indent;
        for (size_t i = 0; i < strlen(in); i += step) {
            size_t n = strlen(in) - i < step ? strlen(in) - i : step;
            text_stream_bytes(&s, in + i, n, &out);
        }
        text_stream_end(&s, &out);
        assert_string_equal(out.p, want);
        assert_int_equal(s.stopped, strcmp(in, want) != 0);
        assert_int_equal(s.stop_index, -1);
        text_stream_fini(&s);
        buf_fini(&out);
    }
}

static void test_indent(void **state)
{
    (void)state;
    check_indent("first\n    a\n  b\nc", 0, "first\n    a\n  b\nc");
    check_indent("first\n    a\n  b\nc", 2, "first\n    a\n  b\n");
    check_indent("first\n    a\n  b\nc", 4, "first\n    a\n  ");
    check_indent("first\n\t\ta\n\n\t\tb", 2, "first\n\t\ta\n\n\t\tb");
    check_indent("first", 8, "first");
}

static void test_utf8(void **state)
{
    (void)state;
    check("gr\xC3\xBC\xC3\x9F \xF0\x9F\x98\x80!", NULL, 0,
          "gr\xC3\xBC\xC3\x9F \xF0\x9F\x98\x80!", -1);
    /* what Python's errors="replace" gives */
    check("a\xFF\xC0z", NULL, 0, "a\xEF\xBF\xBD\xEF\xBF\xBDz", -1);
    check("\xE4\xBDx", NULL, 0, "\xEF\xBF\xBDx", -1);
    check("\xF0\x9F\x98", NULL, 0, "\xEF\xBF\xBD", -1);
    check("\xED\xA0\x80", NULL, 0, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD", -1);
    check("\xF0\x9F\xF0\x9F\x98\x80", NULL, 0, "\xEF\xBF\xBD\xF0\x9F\x98\x80",
          -1);
    static const char *const stops[] = {"\xF0\x9F\x98\x80"};
    check("ab\xF0\x9F\x98\x81\xF0\x9F\x98\x80", stops, 1, "ab\xF0\x9F\x98\x81",
          0);
}

/* Random text over few letters, random stops: all cuts agree, and no stop
 * string is in what came out. */
static void test_any_split(void **state)
{
    (void)state;
    /* whole characters first: only those stand in stop strings */
    static const char *const atoms[] = {
        "a", "b", "\n", "\xC3\xA9", "\xF0\x9F\x98\x80", "\xC3", "\x80"};
    srand(7);
    for (int round = 0; round < 3000; round++) {
        char text[256] = "";
        char stop_text[3][32] = {"", "", ""};
        const char *stops[3];
        size_t n_stops = (size_t)rand() % 4;
        struct buf want;
        int want_stop = 0;
        for (int i = rand() % 30; i > 0; i--) {
            strcat(text, atoms[(size_t)rand() % countof(atoms)]);
        }
        for (size_t i = 0; i < n_stops; i++) {
            stops[i] = stop_text[i];
            for (int k = 1 + rand() % 4; k > 0; k--) {
                strcat(stop_text[i], atoms[rand() % 5]);
            }
        }
        buf_init(&want, 4096);
        buf_puts(&want, "");
        stream(text, strlen(text), stops, n_stops, 1000, &want, &want_stop);
        for (size_t i = 0; i < n_stops; i++) {
            assert_null(strstr(want.p, stops[i]));
        }
        for (size_t most = 1; most < 6; most++) {
            struct buf got;
            int stop = 0;
            buf_init(&got, 4096);
            buf_puts(&got, "");
            stream(text, strlen(text), stops, n_stops, most, &got, &stop);
            assert_string_equal(got.p, want.p);
            assert_int_equal(stop, want_stop);
            buf_fini(&got);
        }
        buf_fini(&want);
    }
}

/* Control tokens are silent, but for marks; user-defined ones are text. */
static void test_marks(void **state)
{
    (void)state;
    static const char *const more[] = {"<think>", "<call>", "<other>", "hi"};
    static const uint32_t types[] = {4, 3, 3, 1};
    static const char *const marks[] = {"<call>", "<think>", "hi", "<none>",
                                        NULL};
    struct err e = {0};
    struct vocab v;
    struct buf b;
    struct tokenizer *t = NULL;
    vocab_init(&v);
    vocab_str(&v, "general.architecture", "llama");
    vocab_str(&v, "tokenizer.ggml.model", "gpt2");
    vocab_str(&v, "tokenizer.ggml.pre", "gpt-2");
    vocab_array(&v, "tokenizer.ggml.tokens", 8, 256 + countof(more));
    buf_init(&b, 16);
    for (int i = 0; i < 256; i++) {
        char byte = (char)i;
        buf_clear(&b);
        put_byte_chars(&b, &byte, 1);
        vocab_put_str(&v, b.p, b.n);
    }
    buf_fini(&b);
    for (size_t i = 0; i < countof(more); i++) {
        vocab_put_str(&v, more[i], strlen(more[i]));
    }
    vocab_array(&v, "tokenizer.ggml.token_type", 5, 256 + countof(more));
    for (size_t i = 0; i < 256 + countof(more); i++) {
        buf_u32(&v.kv, i < 256 ? 1 : types[i - 256]);
    }
    vocab_strs(&v, "tokenizer.ggml.merges", NULL, 0);
    vocab_bytes(&v, &b);
    unit_ok(tokenizer_open_mem(b.p, b.n, &t, &e), &e);
    buf_fini(&b);
    for (int with = 0; with < 2; with++) {
        struct text_stream s;
        unit_ok(text_stream_init(&s, t, false, NULL, 0, &e), &e);
        if (with == 1) {
            text_stream_marks(&s, marks);
        }
        buf_init(&b, 4096);
        for (int32_t id = 256; id < 260; id++) {
            text_stream_put(&s, id, &b);
        }
        text_stream_put(&s, -1, &b);
        text_stream_end(&s, &b);
        assert_string_equal(b.p,
                            with == 1 ? "<think><call>hi" : "<think>hi");
        buf_fini(&b);
        text_stream_fini(&s);
    }
    tokenizer_close(t);
}

static void test_limits(void **state)
{
    (void)state;
    struct err e = {0};
    struct text_stream s;
    const char *many[STOP_STRINGS_MAX + 1];
    char *big = malloc(STOP_BYTES_MAX + 2);
    assert_non_null(big);
    memset(big, 'x', STOP_BYTES_MAX + 1);
    big[STOP_BYTES_MAX + 1] = '\0';
    for (size_t i = 0; i < countof(many); i++) {
        many[i] = "x";
    }
    const char *const empty[] = {""};
    const char *const long_one[] = {big};
    const char *const broken[] = {"\xC3"};
    assert_int_equal(text_stream_init(&s, NULL, false, broken, 1, &e),
                     ERR_INVALID);
    assert_int_equal(text_stream_init(&s, NULL, false, many, countof(many), &e),
                     ERR_TOO_BIG);
    assert_int_equal(text_stream_init(&s, NULL, false, empty, 1, &e),
                     ERR_INVALID);
    assert_int_equal(text_stream_init(&s, NULL, false, long_one, 1, &e),
                     ERR_TOO_BIG);
    /* the longest stop, and far more text than pending holds */
    big[STOP_BYTES_MAX] = '\0';
    struct buf out;
    struct buf in;
    int stop = 0;
    buf_init(&out, 1 << 20);
    buf_init(&in, 1 << 20);
    for (int i = 0; i < 50000; i++) {
        buf_puts(&in, i % 1000 == 999 ? "y" : "x");
    }
    stream(in.p, in.n, long_one, 1, 5000, &out, &stop);
    assert_int_equal(stop, -1);
    assert_int_equal(out.n, in.n);
    buf_puts(&in, big);
    buf_clear(&out);
    stream(in.p, in.n, long_one, 1, 5000, &out, &stop);
    assert_int_equal(stop, 0);
    assert_int_equal(out.n, 50000);
    buf_fini(&out);
    buf_fini(&in);
    free(big);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stops),  cmocka_unit_test(test_indent),
        cmocka_unit_test(test_utf8),   cmocka_unit_test(test_any_split),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
