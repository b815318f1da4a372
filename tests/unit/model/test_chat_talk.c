/* test_chat_talk.c - messages as bytes and back. */
#include "model/chat_talk.h"
#include "proto/limits.h"
#include "tests/unit/unit.h"

static const struct chat_message talk[] = {
    {.role = "user",      .content = "Hi",  .content_n = 2},
    {.role = "assistant",
     .fields = {"{\"tool_calls\":[]}", 17},
     .reasoning = "Hm",
     .reasoning_n = 2},
    {.role = "tool",                   .content = "",                      .fields = {"{\"a\":1}", 7}    },
};

static void check_same(const struct chat_message *m)
{
    for (size_t i = 0; i < countof(talk); i++) {
        assert_string_equal(m[i].role, talk[i].role);
        assert_int_equal(m[i].content_n, talk[i].content_n);
        assert_int_equal(m[i].content == NULL, talk[i].content == NULL);
        if (m[i].content != NULL) {
            assert_string_equal(m[i].content, talk[i].content);
        }
        assert_int_equal(m[i].reasoning_n, talk[i].reasoning_n);
        assert_int_equal(m[i].reasoning == NULL, talk[i].reasoning == NULL);
        if (m[i].reasoning != NULL) {
            assert_string_equal(m[i].reasoning, talk[i].reasoning);
        }
        assert_int_equal(m[i].fields.n, talk[i].fields.n);
        assert_memory_equal(m[i].fields.p != NULL ? m[i].fields.p : "",
                            talk[i].fields.p != NULL ? talk[i].fields.p : "",
                            talk[i].fields.n);
    }
}

static void test_back(void **state)
{
    (void)state;
    struct err e = {0};
    struct arena a;
    struct buf b;
    struct chat_message *m = NULL;
    size_t n = 0;
    arena_init(&a, MIB(1));
    buf_init(&b, 4096);
    talk_put(&b, talk, countof(talk));
    unit_ok(talk_get(&a, b.p, b.n, 2, 3, &m, &n, &e), &e);
    assert_int_equal(n, countof(talk));
    memset(b.p, 'x', b.n); /* nothing is borrowed */
    check_same(m + 2);
    assert_null(m[0].role);
    assert_null(m[2 + n + 2].role);
    buf_fini(&b);
    unit_ok(talk_get(&a, NULL, 0, 1, 0, &m, &n, &e), &e);
    assert_int_equal(n, 0);
    arena_fini(&a);
}

/* Whatever bytes there are: messages that are whole, or an error. */
static void test_damaged(void **state)
{
    (void)state;
    struct arena a;
    struct buf b;
    struct chat_message *m = NULL;
    size_t n = 0, bad = 0;
    buf_init(&b, 4096);
    talk_put(&b, talk, countof(talk));
    for (size_t cut = 1; cut < b.n; cut++) {
        arena_init(&a, MIB(1));
        bad += talk_get(&a, b.p, cut, 0, 0, &m, &n, NULL) == ERR_STORE;
        arena_fini(&a);
    }
    assert_int_equal(bad, b.n - 1 - 2); /* but where a message ends */
    for (size_t i = 0; i < 16; i++) {   /* a length */
        char was = b.p[i];
        b.p[i] = (char)(was ^ 0x40);
        arena_init(&a, MIB(1));
        assert_int_equal(talk_get(&a, b.p, b.n, 0, 0, &m, &n, NULL), ERR_STORE);
        arena_fini(&a);
        b.p[i] = was;
    }
    buf_fini(&b);
}

static void test_limits(void **state)
{
    (void)state;
    struct arena a;
    struct buf b;
    struct chat_message *m = NULL;
    size_t n = 0;
    buf_init(&b, 4096);
    talk_put(&b, talk, countof(talk));
    arena_init(&a, MIB(1));
    assert_int_equal(
        talk_get(&a, b.p, b.n, 0, CHAT_MESSAGES_MAX - 2, &m, &n, NULL),
        ERR_TOO_BIG);
    arena_fini(&a);
    arena_init(&a, 64);
    assert_int_equal(talk_get(&a, b.p, b.n, 0, 0, &m, &n, NULL), ERR_TOO_BIG);
    arena_fini(&a);
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_back),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests_name("chat_talk", tests, NULL, NULL);
}
