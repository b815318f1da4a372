/* test_fim.c - the tokens of a prompt to be filled in: their order, and what is
 * cut where there is no room. */
#include "base/buf.h"
#include "model/fim.h"
#include "tests/unit/model/vocab.h"
#include "tests/unit/unit.h"

/* <unk>, <s>, </s>, 256 bytes, then tokens that only keys tell apart. */
enum { BYTE = 3, PRE = BYTE + 256, SUF, MID, REP, SEP, N_TOKENS, BOS = 1 };

struct want {
    bool fim, repository, bos;
    bool old;             /* the older names of the keys */
    const char *pre_text; /* of the token PRE */
};

static struct tokenizer *vocabulary(struct want w)
{
    struct vocab v;
    struct tokenizer *t = NULL;
    struct err e = {0};
    struct buf b;
    vocab_init(&v);
    vocab_str(&v, "tokenizer.ggml.model", "llama");
    vocab_array(&v, "tokenizer.ggml.tokens", 8, N_TOKENS);
    for (unsigned i = 0; i < N_TOKENS; i++) {
        static const char *const first[] = {"<unk>", "<s>", "</s>"};
        char text[32];
        (void)snprintf(text, sizeof(text), i >= PRE ? "<token%u>" : "<0x%02X>",
                       i >= PRE ? i : i - BYTE);
        const char *s = i < BYTE                         ? first[i]
                        : i == PRE && w.pre_text != NULL ? w.pre_text
                                                         : text;
        vocab_put_str(&v, s, strlen(s));
    }
    vocab_array(&v, "tokenizer.ggml.scores", 6, N_TOKENS);
    for (unsigned i = 0; i < N_TOKENS; i++) {
        buf_u32(&v.kv, 0);
    }
    vocab_array(&v, "tokenizer.ggml.token_type", 5, N_TOKENS);
    for (unsigned i = 0; i < N_TOKENS; i++) {
        buf_u32(&v.kv, i < BYTE || i >= PRE ? 3 : 6);
    }
    vocab_bool(&v, "tokenizer.ggml.add_space_prefix", false);
    vocab_bool(&v, "tokenizer.ggml.add_bos_token", w.bos);
    if (w.fim) {
        vocab_u32(&v,
                  w.old ? "tokenizer.ggml.suffix_token_id"
                        : "tokenizer.ggml.fim_suf_token_id",
                  SUF);
        vocab_u32(&v,
                  w.old ? "tokenizer.ggml.middle_token_id"
                        : "tokenizer.ggml.fim_mid_token_id",
                  MID);
    }
    if (w.fim && w.pre_text == NULL) {
        vocab_u32(&v,
                  w.old ? "tokenizer.ggml.prefix_token_id"
                        : "tokenizer.ggml.fim_pre_token_id",
                  PRE);
    }
    if (w.repository) {
        vocab_u32(&v, "tokenizer.ggml.fim_rep_token_id", REP);
        vocab_u32(&v, "tokenizer.ggml.fim_sep_token_id", SEP);
        vocab_u32(&v, "tokenizer.ggml.fim_pad_token_id", N_TOKENS + 5);
    }
    vocab_bytes(&v, &b);
    unit_ok(tokenizer_open_mem(b.p, b.n, &t, &e), &e);
    buf_fini(&b);
    return t;
}

/* U+2581, which stands for a space in such a vocabulary, as one. */
static bool is_space(const int32_t *ids, size_t left)
{
    return left >= 3 && ids[0] == BYTE + 0xE2 && ids[1] == BYTE + 0x96 &&
           ids[2] == BYTE + 0x81;
}

/* Ids as text: bytes as themselves, the others as [pre]. */
static void spell(const int32_t *ids, size_t n, struct buf *b)
{
    static const char *const names[] = {"[pre]", "[suf]", "[mid]", "[rep]",
                                        "[sep]"};
    buf_init(b, MIB(1));
    buf_puts(b, "");
    for (size_t i = 0; i < n; i++) {
        if (is_space(ids + i, n - i)) {
            buf_puts(b, " ");
            i += 2;
        } else if (ids[i] >= PRE) {
            buf_puts(b, names[ids[i] - PRE]);
        } else if (ids[i] >= BYTE) {
            buf_u8(b, (uint8_t)(ids[i] - BYTE));
        } else {
            buf_puts(b, ids[i] == BOS ? "[bos]" : "[?]");
        }
    }
}

static struct span text(const char *s)
{
    return (struct span){s, strlen(s)};
}

static bool check(const struct tokenizer *t, const struct fim_text *q,
                  size_t room, const char *want)
{
    struct err e = {0};
    struct buf b;
    int32_t *ids = NULL;
    size_t n = 0;
    bool cut = false;
    unit_ok(fim_encode(t, NULL, q, room, &ids, &n, &cut, &e), &e);
    assert_true(n <= room);
    spell(ids, n, &b);
    assert_string_equal(b.p, want);
    buf_fini(&b);
    free(ids);
    return cut;
}

static void test_tokens(void **state)
{
    (void)state;
    struct tokenizer *t =
        vocabulary((struct want){.fim = true, .repository = true});
    assert_int_equal(tokenizer_fim(t, FIM_PRE), PRE);
    assert_int_equal(tokenizer_fim(t, FIM_SUF), SUF);
    assert_int_equal(tokenizer_fim(t, FIM_MID), MID);
    assert_int_equal(tokenizer_fim(t, FIM_REP), REP);
    assert_int_equal(tokenizer_fim(t, FIM_SEP), SEP);
    assert_int_equal(tokenizer_fim(t, FIM_PAD), TOKEN_NONE); /* not in it */
    tokenizer_close(t);
    t = vocabulary((struct want){.fim = true, .old = true});
    assert_int_equal(tokenizer_fim(t, FIM_PRE), PRE);
    assert_int_equal(tokenizer_fim(t, FIM_SUF), SUF);
    assert_int_equal(tokenizer_fim(t, FIM_MID), MID);
    assert_int_equal(tokenizer_fim(t, FIM_SEP), TOKEN_NONE);
    tokenizer_close(t);
    t = vocabulary((struct want){.fim = true, .pre_text = "<|fim_prefix|>"});
    assert_int_equal(tokenizer_fim(t, FIM_PRE), PRE); /* by its text */
    tokenizer_close(t);
}

static void test_missing(void **state)
{
    (void)state;
    const struct fim_text q = {.prefix = text("a"), .suffix = text("b")};
    struct err e = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    bool cut = false;
    struct tokenizer *t = vocabulary((struct want){0});
    assert_int_equal(fim_encode(t, NULL, &q, 100, &ids, &n, &cut, &e),
                     ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "no token fim_pre fim_suf fim_mid"));
    tokenizer_close(t);
    t = vocabulary((struct want){.fim = true, .pre_text = "<other>"});
    assert_int_equal(fim_check(t, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "no token fim_pre"));
    assert_null(strstr(e.msg, "fim_suf"));
    tokenizer_close(t);
}

static void test_order(void **state)
{
    (void)state;
    static const struct fim_file files[] = {
        {{"a.c", 3}, {"int a;\n", 7}},
        {{"b.c", 3}, {"int b;\n", 7}},
    };
    const struct fim_text plain = {
        .prefix = text("x = "), .prompt = text("1"), .suffix = text(";\n")};
    struct fim_text q = plain;
    struct tokenizer *t = vocabulary((struct want){.fim = true, .bos = true});
    assert_false(check(t, &q, 1000, "[bos][pre]x = 1[suf];\n[mid]"));
    q.files = files;
    q.n_files = 2;
    assert_false(check(t, &q, 1000,
                       "[bos]\n\n--- snippet ---\n\nint a;\n"
                       "\n\n--- snippet ---\n\nint b;\n"
                       "[pre]x = 1[suf];\n[mid]"));
    tokenizer_close(t);
    t = vocabulary((struct want){.fim = true, .repository = true});
    assert_false(check(t, &q, 1000,
                       "[rep]myproject\n[sep]a.c\nint a;\n[sep]b.c\nint b;\n"
                       "[sep]filename\n[pre]x = 1[suf];\n[mid]"));
    memset(&q, 0, sizeof(q)); /* nothing at all */
    assert_false(
        check(t, &q, 1000, "[rep]myproject\n[sep]filename\n[pre][suf][mid]"));
    q.suffix = text("a<token261>[mid]");
    assert_false(check(t, &q, 1000,
                       "[rep]myproject\n[sep]filename\n"
                       "[pre][suf]a<token261>[mid][mid]"));
    tokenizer_close(t);
}

static void test_room(void **state)
{
    (void)state;
    static const struct fim_file files[] = {
        {{"a", 1}, {"0123456789", 10}}
    };
    struct err e = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    bool cut = false;
    struct fim_text q = {.prefix = text("abcdefghij"),
                         .prompt = text("klm"),
                         .suffix = text("nopqrstuvw")};
    struct tokenizer *t = vocabulary((struct want){.fim = true});
    assert_false(
        check(t, &q, 3 + 13 + 10, "[pre]abcdefghijklm[suf]nopqrstuvw[mid]"));
    /* 16 for text: 4 after the gap, 12 before it */
    assert_true(check(t, &q, 3 + 16, "[pre]bcdefghijklm[suf]nopq[mid]"));
    q.prefix = text("abc"); /* what it leaves, the suffix has */
    assert_true(check(t, &q, 3 + 12, "[pre]abcklm[suf]nopqrs[mid]"));
    q.files = files;
    q.n_files = 1; /* a quarter of 20 for files, their end */
    assert_true(check(t, &q, 3 + 20, "56789[pre]abcklm[suf]nopqrstuv[mid]"));
    assert_int_equal(fim_encode(t, NULL, &q, 3, &ids, &n, &cut, &e),
                     ERR_TOO_BIG);
    tokenizer_close(t);
}

/* Typing more moves nothing in front of it: what was computed stays warm. */
static void test_stays(void **state)
{
    (void)state;
    enum { N = 5000 };
    static char long_text[N + 1];
    memset(long_text, 'x', N);
    const struct fim_file files[] = {
        {{"a", 1}, {long_text, N}}
    };
    struct fim_text q = {.prefix = text("y="),
                         .suffix = text(";"),
                         .files = files,
                         .n_files = 1};
    struct tokenizer *t = vocabulary((struct want){.fim = true});
    struct err e = {0};
    int32_t *ids[2] = {0};
    size_t n[2] = {0};
    bool cut = false;
    unit_ok(fim_encode(t, NULL, &q, 1000, &ids[0], &n[0], &cut, &e), &e);
    q.prompt = text("1+2");
    unit_ok(fim_encode(t, NULL, &q, 1000, &ids[1], &n[1], &cut, &e), &e);
    assert_int_equal(n[1], n[0] + 3);
    size_t same = 0;
    while (ids[0][same] == ids[1][same]) {
        same++;
    }
    assert_int_equal(same, n[0] - 3); /* up to the gap */
    free(ids[0]);
    free(ids[1]);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens), cmocka_unit_test(test_missing),
        cmocka_unit_test(test_order),  cmocka_unit_test(test_room),
        cmocka_unit_test(test_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
