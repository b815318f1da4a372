/* The key's file: what it may be, and that a key is not easily made twice. */
#include <sys/stat.h>
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "proto/key_file.h"

static char dir[64];
static char path[128];

static int setup(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/aned-key-XXXXXX");
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/%s", dir, KEY_FILE);
    return 0;
}

static int teardown(void **state)
{
    struct err e = {0};
    (void)state;
    unit_ok(file_rmtree(dir, &e), &e);
    return 0;
}

static void it_is_made_once(void **state)
{
    struct key_text a, b, c;
    struct err e = {0};
    struct stat st;
    bool made = false;
    (void)state;
    assert_int_equal(key_read(path, &a, &e), ERR_NOT_FOUND);
    mode_t old = umask(0);
    unit_ok(key_open(path, &a, &made, &e), &e);
    (void)umask(old);
    assert_true(made);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(strlen(a.s), 69);
    unit_ok(key_open(path, &b, &made, &e), &e);
    assert_false(made);
    assert_string_equal(a.s, b.s);
    unit_ok(key_make(path, &c, &e), &e);
    assert_string_not_equal(a.s, c.s);
    unit_ok(key_read(path, &b, &e), &e);
    assert_string_equal(b.s, c.s);
    key_forget(&b);
    for (size_t i = 0; i < sizeof(b.s); i++) {
        assert_int_equal(b.s[i], 0);
    }
}

static void put(const char *text)
{
    struct err e = {0};
    unit_ok(file_write(path, text, strlen(text), &e), &e);
}

static void others_must_not_know_it(void **state)
{
    static const mode_t modes[] = {0644, 0640, 0660, 0604,
                                     0602, 0700, 0400, 04600};
    struct key_text k;
    (void)state;
    put("0123456789abcdef0123456789abcdef\n");
    for (size_t i = 0; i < countof(modes); i++) {
        struct err e = {0};
        assert_int_equal(chmod(path, modes[i]), 0);
        assert_int_equal(key_open(path, &k, NULL, &e), ERR_CONFIG);
        assert_non_null(strstr(e.msg, "mode"));
        assert_null(strstr(e.msg, "0123456789"));
    }
    struct err e = {0};
    char other[160];
    assert_int_equal(chmod(path, 0600), 0);
    unit_ok(key_read(path, &k, &e), &e);
    (void)snprintf(other, sizeof(other), "%s/other", dir);
    assert_int_equal(link(path, other), 0);
    assert_int_equal(key_read(path, &k, &e), ERR_CONFIG);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("other", path), 0);
    assert_int_equal(key_open(path, &k, NULL, &e), ERR_CONFIG);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); /* nobody writes: no waiting */
    assert_int_equal(key_open(path, &k, NULL, &e), ERR_CONFIG);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(key_open(path, &k, NULL, &e), ERR_CONFIG);
    if (geteuid() == 0) {
        assert_int_equal(rmdir(path), 0);
        put("0123456789abcdef0123456789abcdef\n");
        assert_int_equal(chown(path, 65534, (gid_t)-1), 0);
        assert_int_equal(key_read(path, &k, &e), ERR_CONFIG);
        assert_non_null(strstr(e.msg, "another user"));
    }
}

static void what_a_key_is(void **state)
{
    (void)state;
    char longest[KEY_BYTES_MAX + 3];
    memset(longest, 'k', sizeof(longest));
    longest[KEY_BYTES_MAX] = '\n';
    longest[KEY_BYTES_MAX + 1] = '\0';
    struct key_text k;
    struct err e = {0};
    put(longest);
    unit_ok(key_read(path, &k, &e), &e);
    assert_int_equal(strlen(k.s), KEY_BYTES_MAX);
    put("0123456789abcdef._~+/=-A"); /* 24, without a newline */
    unit_ok(key_read(path, &k, &e), &e);
    assert_string_equal(k.s, "0123456789abcdef._~+/=-A");
    longest[KEY_BYTES_MAX] = 'k'; /* one more */
    const char *const bad[] = {
        "",
        "\n",
        "0123456789abcdef0123456\n",            /* 23 */
        "0123456789abcdef 0123456789abcdef\n",  /* a blank */
        "0123456789abcdef0123456789abcdef\n\n", /* two lines */
        "0123456789abcdef0123456789abcdef\r\n",
        "0123456789abcdef0123456789abcd\xc3\xa9\n",
        longest,
    };
    for (size_t i = 0; i < countof(bad); i++) {
        e = (struct err){0};
        put(bad[i]);
        assert_int_equal(key_read(path, &k, &e), ERR_CONFIG);
        assert_non_null(strstr(e.msg, "no key"));
        assert_null(strstr(e.msg, "0123456789"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_is_made_once, setup, teardown),
        cmocka_unit_test_setup_teardown(others_must_not_know_it, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_a_key_is, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
