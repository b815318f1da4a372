/* err, buf, cur, arena, checked arithmetic, numbers and UTF-8 in text, hashes,
 * what the machine has. */
#include "../unit.h"

#include <errno.h>
#include <inttypes.h>
#include "base/arena.h"
#include "base/base64.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/isa.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/parse.h"
#include "base/utf8.h"

static void error_rows_are_unique_and_complete(void **state)
{
    (void)state;
    static const int codes[] = {
#define XX(name, value, http, exit, wire, text) (value),
        ERR_MAP(XX)
#undef XX
    };
    for (size_t i = 0; i < countof(codes); i++) {
        for (size_t k = 0; k < i; k++) {
            assert_int_not_equal(codes[i], codes[k]);
            assert_string_not_equal(err_name(codes[i]), err_name(codes[k]));
        }
        assert_int_equal(err_by_name(err_name(codes[i])), codes[i]);
        assert_in_range(err_http(codes[i]), 400, 599);
        assert_in_range(err_exit(codes[i]), 64, 78);
    }
    assert_int_equal(err_http(-4095), 500);
    assert_string_equal(err_name(-2), "internal");
}

static void messages_are_cut_and_cleaned(void **state)
{
    (void)state;
    struct err e = {0};
    char big[2 * ERR_MSG_MAX];
    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    assert_int_equal(err_set(&e, ERR_JSON, "a\x1b[31m\xff%s", "b\n"), ERR_JSON);
    assert_string_equal(e.msg, "a?[31m?b?");
    assert_int_equal(err_prefix(&e, ERR_JSON, "%s", "file"), ERR_JSON);
    assert_string_equal(e.msg, "file: a?[31m?b?");
    (void)err_set(&e, ERR_JSON, "%s", big);
    assert_int_equal(strlen(e.msg), ERR_MSG_MAX - 1);
    (void)err_prefix(&e, ERR_JSON, "%s", "prefix");
    assert_int_equal(strlen(e.msg), ERR_MSG_MAX - 1);
    assert_memory_equal(e.msg, "prefix: xxx", 11);
    (void)err_prefix(&e, ERR_JSON, "%s", big);
    assert_int_equal(strlen(e.msg), ERR_MSG_MAX - 1);
    assert_int_equal(err_set(NULL, ERR_IO, "nobody reads this"), ERR_IO);
    assert_int_equal(err_prefix(NULL, ERR_IO, "nor this"), ERR_IO);
    assert_int_equal(err_errno(&e, ENOENT, "x.gguf"), ERR_NOT_FOUND);
    assert_string_equal(e.msg, "x.gguf: No such file or directory");
    assert_int_equal(err_errno(&e, ENOSPC, "x"), ERR_NO_SPACE);
}

static void buffers_keep_their_limit(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 10);
    buf_puts(&b, "12345");
    buf_printf(&b, "%d", 67890);
    assert_true(buf_ok(&b));
    assert_string_equal(b.p, "1234567890");
    buf_put(&b, "x", 1);
    assert_false(buf_ok(&b));
    assert_int_equal(b.n, 10);
    buf_put(&b, "", 0); /* once over, always over */
    assert_false(buf_ok(&b));
    buf_clear(&b);
    assert_true(buf_ok(&b));
    buf_puts(&b, "abcdef");
    buf_shift(&b, 4);
    assert_string_equal(b.p, "ef");
    buf_fini(&b);

    char big[600];
    memset(big, 'y', sizeof(big));
    buf_init(&b, 1000);
    buf_printf(&b, "%.*s", (int)sizeof(big), big);
    assert_int_equal(b.n, 600);
    buf_printf(&b, "%.*s", (int)sizeof(big), big);
    assert_false(buf_ok(&b));
    assert_int_equal(b.n, 600);
    buf_fini(&b);
}

static void numbers_are_digits(void **state)
{
    (void)state;
    static const uint64_t v[] = {0,  7,    9,    10,         15,
                                 16, 0xff, 4096, UINT32_MAX, UINT64_MAX};
    for (size_t i = 0; i < countof(v); i++) {
        struct buf b, want;
        buf_init(&b, 100);
        buf_init(&want, 100);
        buf_dec(&b, v[i]);
        buf_puts(&b, " ");
        buf_hex(&b, v[i]);
        buf_printf(&want, "%" PRIu64 " %" PRIx64, v[i], v[i]);
        assert_string_equal(b.p, want.p);
        buf_fini(&b);
        buf_fini(&want);
    }
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 100);
    buf_u8(&b, 0xfe);
    buf_u16(&b, 0xfedc);
    buf_u32(&b, 0xfedcba98u);
    buf_u64(&b, 0xfedcba9876543210u);
    buf_f32(&b, -1.5F);
    assert_int_equal(b.n, 19);
    assert_memory_equal(b.p, "\xfe\xdc\xfe\x98\xba\xdc\xfe\x10\x32", 9);
    struct cur c = cur_of(b.p, b.n);
    assert_int_equal(cur_u8(&c), 0xfe);
    assert_int_equal(cur_u16(&c), 0xfedc);
    assert_int_equal(cur_u32(&c), 0xfedcba98u);
    assert_true(cur_u64(&c) == 0xfedcba9876543210u);
    assert_true(cur_f32(&c) == -1.5F);
    assert_true(cur_done(&c));
    assert_int_equal(cur_u16(&c), 0);
    assert_true(c.bad);
    c = cur_of(b.p, 3);
    assert_null(cur_bytes(&c, 4));
    assert_false(cur_done(&c));
    buf_fini(&b);
}

static void arenas_keep_their_limit(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 20);
    assert_null(arena_array(&a, SIZE_MAX / 4, 8));
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_alloc(&a, (1 << 20) + 1));
    uint8_t *p = arena_alloc(&a, 100000);
    assert_non_null(p);
    for (size_t i = 0; i < 100000; i++) {
        assert_int_equal(p[i], 0);
    }
    for (int i = 0; i < 1000; i++) {
        void *q = arena_alloc(&a, 33);
        assert_non_null(q);
        assert_int_equal((uintptr_t)q % 16, 0);
    }
    assert_string_equal(arena_printf(&a, "%s-%d", "x", 7), "x-7");
    assert_string_equal(arena_strn(&a, "hello", 4), "hell");
    arena_fini(&a);
    arena_fini(&a);
}

static void text_is_a_number_or_it_is_not(void **state)
{
    (void)state;
    static const struct {
        const char *s;
        bool u, i, d; /* parse_u64 up to 2^64 - 1, parse_i64, parse_double */
        double v;
    } t[] = {
        {"0",                     true,  true,  true,  0                     },
        {"007",                   true,  true,  true,  7                     },
        {"-5",                    false, true,  true,  -5                    },
        {"+5",                    false, true,  true,  5                     },
        {"9223372036854775807",   true,  true,  true,  9223372036854775807.0 },
        {"9223372036854775808",   true,  false, true,  9223372036854775808.0 },
        {"-9223372036854775808",  false, true,  true,  -9223372036854775808.0},
        {"-9223372036854775809",  false, false, true,  -9223372036854775809.0},
        {"18446744073709551615",  true,  false, true,  18446744073709551615.0},
        {"18446744073709551616",  false, false, true,  18446744073709551616.0},
        {"184467440737095516150", false, false, true,  184467440737095516150.},
        {"1.5e3",                 false, false, true,  1500                  },
        {"1e999",                 false, false, false, 0                     },
        {"",                      false, false, false, 0                     },
        {"-",                     false, false, false, 0                     },
        {" 1",                    false, false, false, 0                     },
        {"1 ",                    false, false, false, 0                     },
        {"0x10",                  false, false, false, 0                     },
        {"1,5",                   false, false, false, 0                     },
        {"--1",                   false, false, false, 0                     },
        {"nan",                   false, false, false, 0                     },
        {"inf",                   false, false, false, 0                     },
    };
    for (size_t k = 0; k < countof(t); k++) {
        uint64_t u = 77;
        int64_t i = 77;
        double d = 77;
        assert_int_equal(parse_u64(t[k].s, UINT64_MAX, &u), t[k].u);
        assert_int_equal(parse_i64(t[k].s, &i), t[k].i);
        assert_int_equal(parse_double(t[k].s, &d), t[k].d);
        assert_true(t[k].u ? (double)u == t[k].v : u == 77);
        assert_true(t[k].i ? (double)i == t[k].v : i == 77);
        assert_true(t[k].d ? d == t[k].v : d == 77);
    }
    uint64_t v = 77;
    assert_false(parse_u64("100", 99, &v));
    assert_string_equal(parse_digits("99 rest", 99, &v), " rest");
    assert_int_equal(v, 99);
    assert_null(parse_digits("rest", 99, &v));
}

static void base64_is_all_of_the_text(void **state)
{
    (void)state;
    static const struct {
        const char *s, *bytes; /* NULL: refused */
        size_t n;
    } t[] = {
        {"",         "",       0},
        {"AA==",     "\0",     1},
        {"/+8=",     "\xff\xef", 2},
        {"YW5lZA==", "aned",   4},
        {"YW5l",     "ane",    3},
        {"YW5lZA=",  NULL,     0},
        {"YW5lZB==", NULL,     0},
        {"YW5l====", NULL,     0},
        {"YQ==YQ==", NULL,     0},
        {"YW5*",     NULL,     0},
        {"=AAA",     NULL,     0},
        {"YW 5",     NULL,     0},
    };
    for (size_t i = 0; i < countof(t); i++) {
        uint8_t out[16];
        size_t n = 77;
        bool ok = parse_base64(t[i].s, strlen(t[i].s), out, &n);
        assert_int_equal(ok, t[i].bytes != NULL);
        assert_int_equal(n, ok ? t[i].n : 77);
        if (ok && n > 0) {
            assert_memory_equal(out, t[i].bytes, n);
        }
    }
}

static void utf8_is_the_shortest_form(void **state)
{
    (void)state;
    char out[4];
    for (uint32_t c = 0; c < 0x110000; c++) {
        size_t n = utf8_put(out, c), len = 0;
        bool surrogate = c >= 0xD800 && c < 0xE000;
        assert_int_equal(utf8_len(out, n), surrogate ? 0 : n);
        assert_true(surrogate || utf8_char(out, n) == c);
        if (n > 1) { /* what is cut short is a beginning */
            assert_int_equal(utf8_seq(out, n - 1, &len),
                             surrogate && n - 1 == 2 ? UTF8_BAD : UTF8_PART);
        }
    }
    static const char *const bad[] = {"\x80", "\xC0\x80", "\xC1\xBF",
                                      "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF",
                                      "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
                                      "\xFF"};
    for (size_t i = 0; i < countof(bad); i++) {
        assert_false(utf8_valid(bad[i], strlen(bad[i])));
    }
}

static void arithmetic_is_checked(void **state)
{
    (void)state;
    uint64_t r = 42;
    assert_false(num_add(UINT64_MAX, 1, &r));
    assert_false(num_mul(UINT64_MAX / 2, 3, &r));
    assert_false(num_align(UINT64_MAX - 3, 64, &r));
    assert_true(r == 42); /* untouched */
    assert_true(num_align(65, 64, &r));
    assert_true(r == 128);
}

static void hex_is(const void *p, size_t n, size_t piece, const char *want)
{
    struct sha256 s;
    uint8_t d[SHA256_BYTES];
    char hex[SHA256_HEX];
    sha256_init(&s);
    for (size_t i = 0; i < n; i += piece) {
        sha256_add(&s, (const char *)p + i, num_min(piece, n - i));
    }
    sha256_end(&s, d);
    sha256_hex(d, hex);
    assert_string_equal(hex, want);
}

static void sha256_gives_the_published_digests(void **state)
{
    (void)state;
    /* FIPS 180-2 appendix B and the NIST long message */
    static const char two[] =
        "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    hex_is("", 0, 1,
           "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    hex_is("abc", 3, 3,
           "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    for (size_t piece = 1; piece <= 57; piece += 7) {
        hex_is(
            two, strlen(two), piece,
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    }
    char *million = malloc(1000000);
    assert_non_null(million);
    memset(million, 'a', 1000000);
    for (size_t piece = 63; piece <= 100000; piece = piece * 3 + 1) {
        hex_is(
            million, 1000000, piece,
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
    free(million);
}

/* RFC 4648, 10. */
static void base64_of_any_length(void **state)
{
    static const char *const want[] = {"",         "Zg==",     "Zm8=",
                                       "Zm9v",     "Zm9vYg==", "Zm9vYmE=",
                                       "Zm9vYmFy"};
    (void)state;
    for (size_t n = 0; n < countof(want); n++) {
        char out[BASE64_CHARS(6) + 1] = "";
        base64_encode("foobar", n, out);
        assert_int_equal(strlen(want[n]), BASE64_CHARS(n));
        assert_string_equal(out, want[n]);
    }
}

/* Against coreutils: printf abc | sha256sum | xxd -r -p | base64. */
static void sha256_as_base64(void **state)
{
    struct sha256 s;
    uint8_t d[SHA256_BYTES];
    char out[SHA256_BASE64];
    (void)state;
    sha256_init(&s);
    sha256_add(&s, "abc", 3);
    sha256_end(&s, d);
    sha256_base64(d, out);
    assert_string_equal(out, "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
    memset(d, 0xff, sizeof(d));
    sha256_base64(d, out);
    assert_string_equal(out, "//////////////////////////////////////////8=");
}

/* Also where the system does not tell. */
static void a_core_has_a_first_cache(void **state)
{
    (void)state;
    size_t n = machine_first_cache();
    assert_in_range(n, 4096, 1u << 24);
    assert_int_equal(machine_first_cache(), n);
    FILE *f = fopen("/sys/devices/system/cpu/cpu0/cache/index0/size", "r");
    unsigned kib = 0;
    if (f != NULL) {
        char type[32] = {0};
        FILE *t = fopen("/sys/devices/system/cpu/cpu0/cache/index0/type", "r");
        bool data = t != NULL && fscanf(t, "%31s", type) == 1 &&
                    strcmp(type, "Data") == 0;
        if (data && fscanf(f, "%uK", &kib) == 1 && n != 32768) {
            assert_int_equal(n, (size_t)kib * 1024);
        }
        (void)fclose(f);
        if (t != NULL) {
            (void)fclose(t);
        }
    }
}

/* As the kernel says it. */
static void a_processor_has_a_maker(void **state)
{
    (void)state;
#if defined(__x86_64__) && defined(__linux__)
    char line[256];
    bool intel = false;
    FILE *f = fopen("/proc/cpuinfo", "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f) != NULL) {
        intel = intel || (strncmp(line, "vendor_id", 9) == 0 &&
                          strstr(line, "GenuineIntel") != NULL);
    }
    (void)fclose(f);
    assert_int_equal(isa_has(ISA_INTEL), intel);
#elif !defined(__x86_64__)
    assert_false(isa_has(ISA_INTEL));
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_rows_are_unique_and_complete),
        cmocka_unit_test(messages_are_cut_and_cleaned),
        cmocka_unit_test(buffers_keep_their_limit),
        cmocka_unit_test(numbers_are_digits),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(arenas_keep_their_limit),
        cmocka_unit_test(arithmetic_is_checked),
        cmocka_unit_test(text_is_a_number_or_it_is_not),
        cmocka_unit_test(base64_is_all_of_the_text),
        cmocka_unit_test(utf8_is_the_shortest_form),
        cmocka_unit_test(sha256_gives_the_published_digests),
        cmocka_unit_test(base64_of_any_length),
        cmocka_unit_test(sha256_as_base64),
        cmocka_unit_test(a_core_has_a_first_cache),
        cmocka_unit_test(a_processor_has_a_maker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
