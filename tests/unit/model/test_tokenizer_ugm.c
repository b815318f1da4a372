/* Unigram vocabularies: the best way through a word, what is unknown, the table
 * of characters when it is hostile. (tests/oracle/test_unigram.py holds whole
 * vocabularies to the packages that they come from.) */
#include <math.h>
#include <string.h>

#include "model/tokenizer.h"
#include "vocab.h"

#define SPACE "\xE2\x96\x81"

static const struct {
    const char *text;
    float score;
    int32_t type;
} tokens[] = {
    {"<unk>", 0, 2},         {"<s>", 0, 3},       {"</s>", 0, 3},
    {SPACE, -3, 1},          {"a", -4, 1},        {"b", -4, 1},
    {"ab", -5, 1},           {"abab", -11, 1},    {SPACE "a", -5, 1},
    {"<0x62>", 0, 6},        {"<0xC3>", 0, 6},    {"<0xA9>", 0, 6},
    {"fi", -6, 1},           {"<sep>", 0, 4},
};

static void put_tokens(struct vocab *v)
{
    vocab_init(v);
    vocab_str(v, "general.architecture", "llama");
    vocab_str(v, "tokenizer.ggml.model", "t5");
    vocab_array(v, "tokenizer.ggml.tokens", 8, countof(tokens));
    for (size_t i = 0; i < countof(tokens); i++) {
        vocab_put_str(v, tokens[i].text, strlen(tokens[i].text));
    }
    vocab_array(v, "tokenizer.ggml.scores", 6, countof(tokens));
    for (size_t i = 0; i < countof(tokens); i++) {
        buf_f32(&v->kv, tokens[i].score);
    }
    vocab_array(v, "tokenizer.ggml.token_type", 5, countof(tokens));
    for (size_t i = 0; i < countof(tokens); i++) {
        buf_u32(&v->kv, (uint32_t)tokens[i].type);
    }
    vocab_u32(v, "tokenizer.ggml.unknown_token_id", 0);
}

static struct tokenizer *open_vocab(struct vocab *v)
{
    struct err e = {0};
    struct buf b;
    struct tokenizer *t = NULL;
    vocab_bytes(v, &b);
    unit_ok(tokenizer_open_mem(b.p, b.n, &t, &e), &e);
    buf_fini(&b);
    return t;
}

static void refused(struct vocab *v, const char *says)
{
    struct err e = {0};
    struct buf b;
    struct tokenizer *t = NULL;
    vocab_bytes(v, &b);
    int rc = tokenizer_open_mem(b.p, b.n, &t, &e);
    assert_int_equal(rc, e.code);
    assert_true(rc < 0);
    if (strstr(e.msg, says) == NULL) {
        fail_msg("'%s' does not say '%s'", e.msg, says);
    }
    assert_null(t);
    buf_fini(&b);
}

/* ids: -1 ends them */
static void gives(const struct tokenizer *t, const char *text, size_t n,
                  const int32_t *ids)
{
    struct err e = {0};
    int32_t *got = NULL;
    size_t n_got = 0;
    size_t i = 0;
    unit_ok(tokenizer_encode(t, text, n, false, &got, &n_got, &e), &e);
    for (; ids[i] >= 0; i++) {
        if (i >= n_got || got[i] != ids[i]) {
            fail_msg("'%s': token %zu of %zu is %d", text, i, n_got,
                     i < n_got ? got[i] : -1);
        }
    }
    assert_int_equal(n_got, i);
    free(got);
}
#define IDS(...) ((const int32_t[]){__VA_ARGS__, -1})
#define GIVES(t, text, ...) gives(t, text, sizeof(text) - 1, IDS(__VA_ARGS__))

static void test_best_way(void **state)
{
    (void)state;
    struct vocab v;
    put_tokens(&v);
    struct tokenizer *t = open_vocab(&v);
    GIVES(t, "ab", 6);       /* -5, and not -8 */
    GIVES(t, "abab", 6, 6);  /* -10, and not -11 */
    GIVES(t, "aab", 4, 6);
    GIVES(t, " a", 8);       /* a token of its own */
    GIVES(t, " ab", 3, 6);   /* -8, and not -9 */
    GIVES(t, "xya", 0, 4);   /* neighbours are one unknown token */
    GIVES(t, "ax b", 4, 0, 3, 5);
    GIVES(t, "a<sep>b", 4, 13, 5);
    GIVES(t, "<0x61><s>", 0); /* no text is a byte or a control token */
    GIVES(t, "\xFF" "a\xE4\xBD", 0, 4, 0);
    gives(t, "", 0, IDS(-1));
    assert_string_equal(tokenizer_kind(t), "t5");
    assert_true(tokenizer_add_eos(t)); /* as in llama.cpp */
    assert_false(tokenizer_add_bos(t));
    tokenizer_close(t);
}

static void test_bytes(void **state)
{
    (void)state;
    struct vocab v;
    put_tokens(&v);
    vocab_bool(&v, "tokenizer.aned.byte_fallback", true);
    struct tokenizer *t = open_vocab(&v);
    GIVES(t, "a\xC3\xA9" "b", 4, 10, 11, 5);
    GIVES(t, "a\xC3\xA8", 4, 0); /* not all of its bytes are tokens */
    assert_false(tokenizer_add_eos(t));
    tokenizer_close(t);
}

static void test_spaces(void **state)
{
    (void)state;
    struct vocab v;
    put_tokens(&v);
    vocab_bool(&v, "tokenizer.ggml.add_space_prefix", true);
    vocab_bool(&v, "tokenizer.ggml.remove_extra_whitespaces", true);
    struct tokenizer *t = open_vocab(&v);
    GIVES(t, "  a   a  ", 8, 8);
    GIVES(t, "a<sep>a", 8, 13, 8);
    gives(t, "    ", 4, IDS(-1));
    tokenizer_close(t);
    put_tokens(&v);
    vocab_bool(&v, "tokenizer.ggml.add_space_prefix", true);
    vocab_bool(&v, "tokenizer.ggml.remove_extra_whitespaces", true);
    vocab_bool(&v, "tokenizer.aned.space_first", true);
    t = open_vocab(&v);
    GIVES(t, " a<sep>a <sep>", 8, 13, 4, 3, 13);
    tokenizer_close(t);
}

/* "X" becomes "fi", "Y" nothing. */
static void put_table(struct vocab *v, uint32_t bytes, uint32_t broken,
                      uint32_t by, size_t cut)
{
    static const char texts[] = "fi\0";
    uint32_t unit[512] = {0};
    unit[0] = 256u << 10;
    unit[256 ^ 'X'] = 'X' | 1u << 8 | 256u << 10;
    unit[256 ^ 'Y'] = 'Y' | 1u << 8 | 256u << 10;
    unit['X'] = 0;
    unit['Y'] = 2;
    unit[broken] = by;
    vocab_array(v, "tokenizer.ggml.precompiled_charsmap", 0,
                4 + sizeof(unit) + sizeof(texts) - cut);
    buf_u32(&v->kv, bytes);
    for (size_t i = 0; i < countof(unit); i++) {
        buf_u32(&v->kv, unit[i]);
    }
    buf_put(&v->kv, texts, sizeof(texts) - cut);
}

static void test_table(void **state)
{
    (void)state;
    struct vocab v;
    static const uint32_t wild[][2] = {
        {0, UINT32_MAX}, {0, 511u << 10}, {256 ^ 'X', UINT32_MAX},
        {256 ^ 'X', 'X' | 1u << 8 | 0x3FFFFFu << 10}, {'X', 0x7FFFFFFF},
    };
    put_tokens(&v);
    put_table(&v, 2048, 1, 0, 0);
    struct tokenizer *t = open_vocab(&v);
    GIVES(t, "aXYa", 4, 12, 4);
    tokenizer_close(t);
    for (size_t i = 0; i < countof(wild); i++) { /* nothing is read outside */
        put_tokens(&v);
        put_table(&v, 2048, wild[i][0], wild[i][1], 0);
        t = open_vocab(&v);
        GIVES(t, "aXa", 4, 0, 4);
        tokenizer_close(t);
    }
}

static void test_hostile(void **state)
{
    (void)state;
    struct vocab v;
    static const char *const wrong[] = {"martian", "replace\x1F\x1Fx", "nfc\x1Fx",
                                        "prepend\x1F\xC3"};
    static const uint32_t sizes[] = {0, 2046, 4096, UINT32_MAX, 0x80000000};
    for (size_t i = 0; i < countof(sizes); i++) {
        put_tokens(&v);
        put_table(&v, sizes[i], 1, 0, 0);
        refused(&v, "malformed");
    }
    put_tokens(&v);
    put_table(&v, 2048, 1, 0, 4); /* no text, so no NUL at the end */
    refused(&v, "malformed");
    put_tokens(&v);
    put_table(&v, 2048, 1, 0, 2); /* the last text has no end */
    refused(&v, "malformed");
    for (size_t i = 0; i < countof(wrong); i++) {
        put_tokens(&v);
        vocab_strs(&v, "tokenizer.aned.steps", &wrong[i], 1);
        refused(&v, "step");
    }
    const char *many[40];
    for (size_t i = 0; i < countof(many); i++) {
        many[i] = "nfc";
    }
    put_tokens(&v);
    vocab_strs(&v, "tokenizer.aned.steps", many, countof(many));
    refused(&v, "step");
    put_tokens(&v);
    vocab_str(&v, "tokenizer.ggml.precompiled_charsmap", "x");
    refused(&v, "array of bytes");
}

static void test_scores(void **state)
{
    (void)state;
    struct vocab v;
    static const char *const one[] = {"a"};
    vocab_init(&v);
    vocab_str(&v, "tokenizer.ggml.model", "t5");
    vocab_strs(&v, "tokenizer.ggml.tokens", one, 1);
    refused(&v, "scores");
    vocab_init(&v);
    vocab_str(&v, "tokenizer.ggml.model", "t5");
    vocab_strs(&v, "tokenizer.ggml.tokens", one, 1);
    vocab_array(&v, "tokenizer.ggml.scores", 6, 1);
    buf_f32(&v.kv, -INFINITY);
    refused(&v, "score");
}

/* A long word without a place to cut it, and all of one character. */
static void test_long(void **state)
{
    (void)state;
    enum { N = 1 << 16 };
    struct vocab v;
    struct err e = {0};
    static char text[N];
    int32_t *ids = NULL;
    size_t n = 0;
    put_tokens(&v);
    struct tokenizer *t = open_vocab(&v);
    for (size_t i = 0; i < N; i++) {
        text[i] = i % 2 == 0 ? 'a' : 'b';
    }
    unit_ok(tokenizer_encode(t, text, N, false, &ids, &n, &e), &e);
    assert_int_equal(n, N / 2);
    free(ids);
    memset(text, 'x', N);
    unit_ok(tokenizer_encode(t, text, N, false, &ids, &n, &e), &e);
    assert_int_equal(n, 1);
    free(ids);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_way), cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_spaces),   cmocka_unit_test(test_table),
        cmocka_unit_test(test_hostile),  cmocka_unit_test(test_scores),
        cmocka_unit_test(test_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
