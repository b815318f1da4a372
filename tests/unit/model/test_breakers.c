/* test_breakers.c - texts that end a repetition, as tokens: inside of one, or
 * from the end of one on. */
#include "base/buf.h"
#include "model/breakers.h"
#include "proto/msg.h"
#include "tests/unit/model/vocab.h"
#include "tests/unit/unit.h"

/* <unk>, 256 bytes, then words. */
enum { BYTE = 1, WORD = BYTE + 256, N_WORDS = 8 };
static const char *const words[N_WORDS] = {
    "a:b", "x\n", "\nUs", "er", "User", ":", "aU", "\n\nU",
};

static struct tokenizer *vocabulary(unsigned more)
{
    struct vocab v;
    struct tokenizer *t = NULL;
    struct err e = {0};
    struct buf b;
    unsigned n = WORD + N_WORDS + more;
    vocab_init(&v);
    vocab_str(&v, "tokenizer.ggml.model", "llama");
    vocab_array(&v, "tokenizer.ggml.tokens", 8, n);
    for (unsigned i = 0; i < n; i++) {
        char text[32] = "<unk>";
        if (i >= WORD + N_WORDS) {
            (void)snprintf(text, sizeof(text), "%u.%u", i, i);
        } else if (i >= WORD) {
            (void)snprintf(text, sizeof(text), "%s", words[i - WORD]);
        } else if (i >= BYTE) {
            (void)snprintf(text, sizeof(text), "<0x%02X>", i - BYTE);
        }
        vocab_put_str(&v, text, strlen(text));
    }
    vocab_array(&v, "tokenizer.ggml.scores", 6, n);
    for (unsigned i = 0; i < n; i++) {
        buf_u32(&v.kv, 0);
    }
    vocab_array(&v, "tokenizer.ggml.token_type", 5, n);
    for (unsigned i = 0; i < n; i++) {
        buf_u32(&v.kv, i == 0 ? 2 : i < WORD ? 6 : 1);
    }
    vocab_bool(&v, "tokenizer.ggml.add_space_prefix", false);
    vocab_bytes(&v, &b);
    unit_ok(tokenizer_open_mem(b.p, b.n, &t, &e), &e);
    buf_fini(&b);
    return t;
}

static void put_ids(struct buf *b, const int32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] >= WORD) {
            buf_printf(b, " w%d", (int)ids[i] - WORD);
        } else {
            buf_printf(b, " %c", (char)(ids[i] - BYTE));
        }
    }
}

/* All groups as text: heads, then > and the tail. */
static void check(const struct tokenizer *t, const char *const *texts, size_t n,
                  const char *want)
{
    struct msg_sampling s = {0};
    struct msg_breaker g;
    struct err e = {0};
    struct buf b;
    size_t n_breaks = 0;
    buf_init(&b, KIB(4));
    buf_puts(&b, "");
    unit_ok(breakers_find(t, texts, n, &s.breaks, &n_breaks, &e), &e);
    s.n_breaks = (uint32_t)n_breaks;
    uint32_t at = 0;
    while (msg_breaker_next(&s, &at, &g)) {
        put_ids(&b, g.heads, g.n_heads);
        buf_puts(&b, " >");
        put_ids(&b, g.tail, g.n_tail);
        buf_puts(&b, ";");
        for (uint32_t i = 0; i < g.n_heads; i++) {
            assert_true(msg_breaker_has(&g, g.heads[i]));
        }
        assert_false(msg_breaker_has(&g, 0));
    }
    assert_int_equal(at, s.n_breaks);
    assert_string_equal(b.p, want);
    buf_fini(&b);
    free(s.breaks);
}

static void test_groups(void **state)
{
    (void)state;
    struct tokenizer *t = vocabulary(0);
    const char *const none[] = {"\x7f\x7f\x7f"};
    const char *const one[] = {":"};
    const char *const two[] = {"b", ":"};
    const char *const user[] = {"User:"};
    check(t, NULL, 0, "");
    check(t, one, 1, " : w0 w5 >;");
    check(t, two, 2, " : b w0 w5 >;");
    /* "\nUs" + "er:", "aU" + "ser:", "\n\nU" the same; a byte U begins it too
     */
    check(t, user, 1, " U w6 w7 > s w3 w5; w2 > w3 w5; w4 > w5;");
    check(t, none, 1, " \x7f > \x7f \x7f;");
    tokenizer_close(t);
}

static void test_limits(void **state)
{
    (void)state;
    struct tokenizer *t = vocabulary(DRY_BREAKS_MAX);
    struct err e = {0};
    int32_t *breaks = NULL;
    size_t n = 0;
    const char *const dot[] = {"."};
    assert_int_equal(breakers_find(t, dot, 1, &breaks, &n, &e), ERR_TOO_BIG);
    assert_null(breaks);
    tokenizer_close(t);
    /* each text of 40 letters has 39 beginnings, of which one byte has the
     * first */
    t = vocabulary(0);
    static char text[DRY_TEXTS_MAX][DRY_TEXT_BYTES + 1];
    const char *all[DRY_TEXTS_MAX];
    for (unsigned i = 0; i < DRY_TEXTS_MAX; i++) {
        memset(text[i], 'A' + (int)i % 26, DRY_TEXT_BYTES);
        all[i] = text[i];
    }
    unit_ok(breakers_find(t, all, DRY_TEXTS_MAX, &breaks, &n, &e), &e);
    struct msg_sampling s = {.breaks = breaks, .n_breaks = (uint32_t)n};
    struct msg_breaker g;
    uint32_t at = 0;
    assert_true(msg_breaker_next(&s, &at, &g));
    assert_int_equal(g.n_tail, DRY_TAIL_MAX); /* 39 are too many */
    free(breaks);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
