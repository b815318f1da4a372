/* test_tokenizer.c - both kinds on vocabularies small enough to check by hand.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "model/tokenizer.h"
#include "tests/unit/model/vocab.h"
#include "tests/unit/unit.h"

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

static void refused(struct vocab *v, int code, const char *tells)
{
    struct err e = {0};
    struct buf b;
    struct tokenizer *t = NULL;
    vocab_bytes(v, &b);
    int rc = tokenizer_open_mem(b.p, b.n, &t, &e);
    if (rc != code || strstr(e.msg, tells) == NULL) {
        fail_msg("%s: %s, wanted %s: %s", err_name(rc), e.msg, err_name(code),
                 tells);
    }
    assert_null(t);
    buf_fini(&b);
}

/* The ids as text, "1 2 3". */
static const char *ids_of(const struct tokenizer *t, const char *text, size_t n,
                          bool special)
{
    static char out[4096];
    struct err e = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0;
    size_t at = 0;
    unit_ok(tokenizer_encode(t, text, n, special, &ids, &n_ids, &e), &e);
    out[0] = '\0';
    for (size_t i = 0; i < n_ids; i++) {
        at += (size_t)snprintf(out + at, sizeof(out) - at, "%s%d",
                               i > 0 ? " " : "", ids[i]);
    }
    free(ids);
    return out;
}

static void gives(const struct tokenizer *t, const char *text, bool special,
                  const char *want)
{
    assert_string_equal(ids_of(t, text, strlen(text), special), want);
}

static void decodes(const struct tokenizer *t, const int32_t *ids, size_t n,
                    bool special, const char *want)
{
    struct buf b;
    buf_init(&b, 4096);
    buf_puts(&b, "");
    tokenizer_decode(t, ids, n, special, &b);
    assert_string_equal(b.p, want);
    buf_fini(&b);
}

/* --- byte-level BPE: ids 0..255 are the bytes --- */

enum { HE = 256, LL, HELL, HELLO, SPACE_W, TOOL, END, BOS, N_BPE };

static const char *const bpe_more[] = {
    "he", "ll", "hell", "hello", "\xC4\xA0w", "<tool>", "<|im_end|>", "<s>"};
static const char *const merges[] = {"h e", "l l", "he ll", "hell o",
                                     "\xC4\xA0 w",
                                     /* a part that is no token */
                                     "x y", "xy z"};

static void bpe_tokens(struct vocab *v, const char *pre)
{
    struct buf text;
    buf_init(&text, 16);
    vocab_init(v);
    vocab_str(v, "general.architecture", "llama");
    vocab_str(v, "tokenizer.ggml.model", "gpt2");
    vocab_str(v, "tokenizer.ggml.pre", pre);
    vocab_array(v, "tokenizer.ggml.tokens", 8, N_BPE);
    for (int i = 0; i < 256; i++) {
        char byte = (char)i;
        buf_clear(&text);
        put_byte_chars(&text, &byte, 1);
        vocab_put_str(v, text.p, text.n);
    }
    for (size_t i = 0; i < countof(bpe_more); i++) {
        vocab_put_str(v, bpe_more[i], strlen(bpe_more[i]));
    }
    vocab_array(v, "tokenizer.ggml.token_type", 5, N_BPE);
    for (uint32_t i = 0; i < N_BPE; i++) {
        buf_u32(&v->kv, i == TOOL ? 4 : (i >= END ? 3 : 1));
    }
    buf_fini(&text);
}

static struct tokenizer *open_bpe(const char *pre)
{
    struct vocab v;
    bpe_tokens(&v, pre);
    vocab_strs(&v, "tokenizer.ggml.merges", merges, countof(merges));
    vocab_u32(&v, "tokenizer.ggml.bos_token_id", BOS);
    vocab_u32(&v, "tokenizer.ggml.eos_token_id", UINT32_MAX);
    vocab_str(&v, "tokenizer.chat_template", "{{ x }}");
    return open_vocab(&v);
}

static void test_bpe(void **state)
{
    (void)state;
    struct tokenizer *t = open_bpe("gpt-2");
    gives(t, "", false, "");
    gives(t, "hello", false, "259");
    gives(t, "hell", false, "258");
    gives(t, "hello w", false, "259 260");
    gives(t, "helll", false, "258 108");
    gives(t, "ll  w", false, "257 32 260");
    gives(t, "xyz", false, "120 121 122"); /* "xyz" is no token */
    gives(t, "h\xC3\xA9", false, "104 195 169");
    /* not UTF-8: U+FFFD for each byte */
    gives(t, "h\xFF\xC3", false, "104 239 191 189 239 191 189");
    assert_string_equal(ids_of(t, "a\0b", 3, false), "97 0 98");
    assert_string_equal(tokenizer_kind(t), "gpt2");
    assert_string_equal(tokenizer_pre(t), "gpt-2");
    assert_string_equal(tokenizer_template(t), "{{ x }}");
    assert_int_equal(tokenizer_vocab(t), N_BPE);
    assert_int_equal(tokenizer_bos(t), BOS);
    assert_int_equal(tokenizer_eos(t), TOKEN_NONE); /* 0xFFFFFFFF */
    assert_false(tokenizer_add_bos(t));
    assert_int_equal(tokenizer_find(t, "hello", 5), HELLO);
    assert_int_equal(tokenizer_find(t, "xy", 2), TOKEN_NONE);
    assert_int_equal(tokenizer_find(t, "hullo", 5), TOKEN_NONE);
    tokenizer_close(t);
}

static void test_special(void **state)
{
    (void)state;
    struct tokenizer *t = open_bpe("gpt-2");
    const int32_t ids[] = {BOS,     HELLO, TOOL,  END,
                           SPACE_W, -1,    N_BPE, INT32_MAX};
    gives(t, "ll<tool>ll", false, "257 261 257"); /* user-defined: always */
    gives(t, "hello<|im_end|>", true, "259 262");
    gives(t, "<|im_end|><s><|im_end", true,
          "262 263 60 124 105 109 95 101 110 100");
    gives(t, "<s>", false, "60 115 62");
    decodes(t, ids, countof(ids), false, "hello<tool> w");
    decodes(t, ids, countof(ids), true, "<s>hello<tool><|im_end|> w");
    assert_true(tokenizer_is_eog(t, END)); /* by its text */
    assert_false(tokenizer_is_eog(t, BOS));
    assert_false(tokenizer_is_eog(t, -1));
    assert_true(tokenizer_is_special(t, TOOL));
    assert_true(tokenizer_is_special(t, BOS));
    assert_false(tokenizer_is_special(t, HELLO));
    assert_int_equal(tokenizer_piece(t, SPACE_W, false).n, 2);
    assert_int_equal(tokenizer_piece(t, END, false).n, 0);
    tokenizer_close(t);
}

/* Families of patterns that differ on one text. */
static void test_patterns(void **state)
{
    (void)state;
    static const struct {
        const char *pre;
        const char *want; /* of "hello  hello": where the spaces go */
    } rows[] = {
        {"gpt-2",          "259 32 32 259"},
        {"qwen2",          "259 32 32 259"},
        {"llama-bpe",      "259 32 32 259"},
        {"deepseek-coder", "259 32 32 259"},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct tokenizer *t = open_bpe(rows[i].pre);
        gives(t, "hello  hello", false, rows[i].want);
        tokenizer_close(t);
    }
    /* NFC only where the family normalises: e + U+0301 */
    struct tokenizer *t = open_bpe("qwen2");
    gives(t, "e\xCC\x81", false, "195 169");
    tokenizer_close(t);
    t = open_bpe("gpt-2");
    gives(t, "e\xCC\x81", false, "101 204 129");
    tokenizer_close(t);
    t = open_bpe("llama-bpe"); /* adds BOS unless told otherwise */
    assert_true(tokenizer_add_bos(t));
    tokenizer_close(t);
}

/* --- merging: short and long words against the plainest implementation --- */

static const char *const letter_merges[] = {"a b", "b a",  "a a",  "ab a",
                                            "c c", "aa b", "cc c", "ba ba"};

static struct tokenizer *open_letters(void)
{
    static const char *const tokens[] = {"a",   "b",  "c",   "ab",  "ba",  "aa",
                                         "aba", "cc", "aab", "ccc", "baba"};
    struct vocab v;
    vocab_init(&v);
    vocab_str(&v, "tokenizer.ggml.model", "gpt2");
    vocab_str(&v, "tokenizer.ggml.pre", "gpt-2");
    vocab_strs(&v, "tokenizer.ggml.tokens", tokens, countof(tokens));
    vocab_strs(&v, "tokenizer.ggml.merges", letter_merges,
               countof(letter_merges));
    return open_vocab(&v);
}

/* Merge the leftmost pair of lowest rank until none is left; symbols are
 * separated by one space in `word`. */
static void merge_plainly(char *word)
{
    for (size_t rank = 0; rank < countof(letter_merges);) {
        const char *pair = letter_merges[rank];
        size_t n = strlen(pair);
        char *at = strstr(word, pair);
        while (at != NULL && !((at == word || at[-1] == ' ') &&
                               (at[n] == '\0' || at[n] == ' '))) {
            at = strstr(at + 1, pair);
        }
        if (at == NULL) {
            rank++;
            continue;
        }
        char *space = strchr(at, ' ');
        memmove(space, space + 1, strlen(space));
        rank = 0;
    }
}

static void test_merges(void **state)
{
    (void)state;
    struct tokenizer *t = open_letters();
    struct tokenizer_words *words = tokenizer_words_new();
    assert_non_null(words);
    srand(3);
    for (int round = 0; round < 3000; round++) {
        char text[128] = "";
        char word[256] = "";
        struct err e = {0};
        int32_t *ids = NULL;
        size_t n_ids = 0;
        /* both sides of SHORT_WORD; every second is short */
        size_t n = 1 + (size_t)rand() % (round % 2 == 0 ? 100 : 8);
        for (size_t i = 0; i < n; i++) {
            text[i] = (char)('a' + rand() % 3);
            word[2 * i] = text[i];
            word[2 * i + 1] = i + 1 < n ? ' ' : '\0';
        }
        merge_plainly(word);
        /* most short ones were there before, and some share their place */
        unit_ok(tokenizer_encode_words(t, words, text, n, false, &ids, &n_ids,
                                       &e),
                &e);
        const char *p = word;
        for (size_t i = 0; i < n_ids; i++) {
            struct span piece = tokenizer_piece(t, ids[i], false);
            assert_memory_equal(p, piece.p, piece.n);
            p += piece.n;
            assert_true(*p == ' ' || *p == '\0');
            p += *p == ' ';
        }
        assert_int_equal(*p, '\0');
        free(ids);
    }
    tokenizer_words_free(words);
    tokenizer_close(t);
}

/* A megabyte without a space: n log n, not n squared. */
static void test_long_word(void **state)
{
    (void)state;
    struct tokenizer *t = open_letters();
    size_t n = (size_t)1 << 20;
    struct err e = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0;
    char *text = malloc(n);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++) {
        text[i] = i % 3 == 2 ? 'b' : 'a'; /* aab aab aab ... */
    }
    unit_ok(tokenizer_encode(t, text, n, false, &ids, &n_ids, &e), &e);
    size_t at = 0;
    for (size_t i = 0; i < n_ids; i++) {
        struct span piece = tokenizer_piece(t, ids[i], false);
        assert_memory_equal(text + at, piece.p, piece.n);
        at += piece.n;
    }
    assert_int_equal(at, n);
    free(ids);
    free(text);
    tokenizer_close(t);
}

static void test_limits(void **state)
{
    (void)state;
    struct tokenizer *t = open_letters();
    struct err e = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0;
    size_t n = TEXT_BYTES_MAX + 1;
    char *text = malloc(n);
    assert_non_null(text);
    memset(text, 'b', n);
    assert_int_equal(tokenizer_encode(t, text, n, false, &ids, &n_ids, &e),
                     ERR_TOO_BIG);
    assert_int_equal(
        tokenizer_encode(t, text, TEXT_BYTES_MAX, false, &ids, &n_ids, &e),
        ERR_TOO_BIG); /* more than TOKENS_MAX */
    assert_null(ids);
    free(text);
    tokenizer_close(t);
}

/* --- SentencePiece-style BPE --- */

#define SP "\xE2\x96\x81"

static const struct {
    const char *text;
    float score;
    uint32_t type;
} pieces[] = {
    {"<unk>",    0,   2},
    {"<s>",      0,   3},
    {"</s>",     0,   3},
    {"<0x0A>",   0,   6},
    {"<0xC3>",   0,   6},
    {"<0xA9>",   0,   6},
    {SP,         -9,  1},
    {"h",        -9,  1},
    {"i",        -9,  1},
    {"hi",       -1,  1},
    {SP "hi",    -2,  1},
    {SP SP,      -1,  1},
    {"i" SP "h", -5,  1}, /* joins two words */
    {"\n\n",     -20, 4},
    {SP "h",     -1,  1},
};

static void spm_tokens(struct vocab *v, size_t n)
{
    vocab_init(v);
    vocab_str(v, "tokenizer.ggml.model", "llama");
    vocab_array(v, "tokenizer.ggml.tokens", 8, n);
    for (size_t i = 0; i < n; i++) {
        vocab_put_str(v, pieces[i].text, strlen(pieces[i].text));
    }
    vocab_array(v, "tokenizer.ggml.scores", 6, n);
    for (size_t i = 0; i < n; i++) {
        buf_f32(&v->kv, pieces[i].score);
    }
    vocab_array(v, "tokenizer.ggml.token_type", 5, n);
    for (size_t i = 0; i < n; i++) {
        buf_u32(&v->kv, pieces[i].type);
    }
}

static void test_spm(void **state)
{
    (void)state;
    struct vocab v;
    spm_tokens(&v, countof(pieces));
    struct tokenizer *t = open_vocab(&v);
    const int32_t ids[] = {1, 10, 10, 4, 5, 2};
    gives(t, "", false, "");
    gives(t, "hi", false, "10"); /* the prefix belongs to it */
    gives(t, "hh", false, "14 7");
    gives(t, "ii h", false, "6 8 12"); /* the token that joins words */
    gives(t, "<s>hi", true, "1 10");
    gives(t, "h\xC3\xA9", false, "14 4 5"); /* byte tokens */
    gives(t, "h\xFF", false, "14 0");       /* no such byte: unknown */
    gives(t, "\n", false, "6 3");
    gives(t, "\n\n", false, "13");     /* user-defined, no prefix before it */
    gives(t, "<s>", false, "6 0 0 0"); /* control tokens are not text */
    assert_true(tokenizer_add_bos(t));
    assert_int_equal(tokenizer_bos(t), 1); /* by its text */
    assert_int_equal(tokenizer_eos(t), 2);
    assert_true(tokenizer_is_eog(t, 2));
    decodes(t, ids, countof(ids), false, "hi hi\xC3\xA9");
    decodes(t, ids, countof(ids), true, "<s>hi hi\xC3\xA9</s>");
    assert_int_equal(tokenizer_piece(t, 10, false).n, 3); /* " hi" */
    tokenizer_close(t);

    spm_tokens(&v, countof(pieces) - 1);
    vocab_bool(&v, "tokenizer.ggml.add_space_prefix", false);
    vocab_bool(&v, "tokenizer.ggml.add_bos_token", false);
    t = open_vocab(&v);
    gives(t, "hi", false, "9");
    gives(t, " hi", false, "10");
    gives(t, "  hi", false, "11 9");
    gives(t, "hi hi", false, "9 10");
    assert_false(tokenizer_add_bos(t));
    decodes(t, ids, 3, false, " hi hi");
    tokenizer_close(t);
}

/* What files leave out, or have too much of. */
static void test_defaults(void **state)
{
    (void)state;
    static const char *const tokens[] = {"a", "b", "c", "ab", "bc", "abc",
                                         "<0x0A>"};
    static const uint32_t scores[] = {0, 0, 0, 1, 2, 3, 0, 9, 9};
    struct vocab v;
    /* no scores: all are equal, the leftmost pair merges first */
    vocab_init(&v);
    vocab_str(&v, "tokenizer.ggml.model", "llama");
    vocab_strs(&v, "tokenizer.ggml.tokens", tokens, countof(tokens));
    vocab_bool(&v, "tokenizer.ggml.add_space_prefix", false);
    struct tokenizer *t = open_vocab(&v);
    gives(t, "abcab", false, "5 3");
    gives(t, "bcbc\n", false, "4 4 6");
    assert_int_equal(tokenizer_bos(t), 1); /* SentencePiece's numbers */
    assert_int_equal(tokenizer_eos(t), 2);
    tokenizer_close(t);
    /* whole scores, and two more than tokens; a type nobody knows */
    vocab_init(&v);
    vocab_str(&v, "tokenizer.ggml.model", "llama");
    vocab_strs(&v, "tokenizer.ggml.tokens", tokens, 5);
    vocab_bool(&v, "tokenizer.ggml.add_space_prefix", false);
    vocab_array(&v, "tokenizer.ggml.scores", 5, countof(scores));
    for (size_t i = 0; i < countof(scores); i++) {
        buf_u32(&v.kv, scores[i]);
    }
    vocab_array(&v, "tokenizer.ggml.token_type", 5, countof(scores));
    for (size_t i = 0; i < countof(scores); i++) {
        buf_u32(&v.kv, i == 2 ? 77 : 1);
    }
    t = open_vocab(&v);
    gives(t, "abc", false, "0 4"); /* bc has the higher score */
    assert_int_equal(tokenizer_vocab(t), 5);
    assert_false(tokenizer_is_special(t, 2));
    tokenizer_close(t);
}

/* --- BPE of characters, with byte fallback --- */

static void test_raw(void **state)
{
    (void)state;
    static const char *const tokens[] = {
        "<bos>", "<turn|>", "h",  "i",    SP,        "hi",     SP "hi",
        "\n",    "\n\n",   "\xC3\xA9",  "<0xE2>", "<0x82>", "<0xAC>", "<tool>"};
    static const char *const joins[] = {"h i", SP " hi"};
    static const uint32_t types[] = {3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 6, 6, 6, 4};
    static const char *const models[][2] = {
        {"gemma4", "default"          }, /* its own, whatever is said */
        {"gpt2",   "sarvam-moe"       }
    };
    for (size_t i = 0; i < countof(models); i++) {
        struct vocab v;
        vocab_init(&v);
        vocab_str(&v, "tokenizer.ggml.model", models[i][0]);
        vocab_str(&v, "tokenizer.ggml.pre", models[i][1]);
        vocab_strs(&v, "tokenizer.ggml.tokens", tokens, countof(tokens));
        vocab_strs(&v, "tokenizer.ggml.merges", joins, countof(joins));
        vocab_array(&v, "tokenizer.ggml.token_type", 5, countof(types));
        for (size_t k = 0; k < countof(types); k++) {
            buf_u32(&v.kv, types[k]);
        }
        vocab_u32(&v, "tokenizer.ggml.bos_token_id", 0);
        vocab_bool(&v, "tokenizer.ggml.add_bos_token", false);
        struct tokenizer *t = open_vocab(&v);
        const int32_t ids[] = {6, 4, 9, 10, 11, 12, 8, 13};
        gives(t, "", false, "");
        gives(t, "hi hi", false, "5 6"); /* no space is put before it */
        gives(t, "  hi", false, "4 6");
        gives(t, "h\xC3\xA9i", false, "2 9 3");
        gives(t, "\xE2\x82\xAC", false, "10 11 12"); /* byte by byte */
        gives(t, "x", false, "");                     /* no byte for it */
        gives(t, "\n\n", false, "8");
        gives(t, "\n\n\n", false, "7 7 7"); /* no merge */
        gives(t, "hi<tool> hi", false, "5 13 6");
        gives(t, "<turn|>", false, "");
        gives(t, "<turn|>hi", true, "1 5");
        decodes(t, ids, countof(ids), false, " hi \xC3\xA9\xE2\x82\xAC\n\n<tool>");
        assert_string_equal(tokenizer_kind(t), models[i][0]);
        assert_int_equal(tokenizer_add_bos(t), i == 0); /* Gemma's, always */
        assert_true(tokenizer_is_eog(t, 1));
        tokenizer_close(t);
    }
}

/* Phi-3's special tokens swallow the white space after them. */
static void test_strip(void **state)
{
    (void)state;
    struct vocab v;
    bpe_tokens(&v, "gpt-2");
    vocab_strs(&v, "tokenizer.ggml.merges", merges, countof(merges));
    vocab_str(&v, "general.name", "Phi-3 Mini");
    struct tokenizer *t = open_vocab(&v);
    gives(t, "<|im_end|> \nll", true, "262 257");
    gives(t, "<s> ll", true, "263 32 257");
    tokenizer_close(t);
}

static void test_refused(void **state)
{
    (void)state;
    struct vocab v;
    static const char *const bad_merge[] = {"ab"};
    static const char *const one[] = {"a"};
    static const char *const two[] = {"a", "b"};

    vocab_init(&v);
    vocab_str(&v, "general.architecture", "llama");
    refused(&v, ERR_GGUF_MISSING, "tokenizer.ggml.model");
    vocab_init(&v);
    vocab_str(&v, "tokenizer.ggml.model", "rwkv");
    refused(&v, ERR_TOKENIZER, "rwkv");
    vocab_init(&v);
    vocab_str(&v, "tokenizer.ggml.model", "gpt2");
    vocab_str(&v, "tokenizer.ggml.pre", "martian");
    refused(&v, ERR_TOKENIZER, "martian");
    bpe_tokens(&v, "gpt-2");
    refused(&v, ERR_GGUF_MISSING, "merges");
    bpe_tokens(&v, "gpt-2");
    vocab_strs(&v, "tokenizer.ggml.merges", bad_merge, 1);
    refused(&v, ERR_GGUF_VOCAB, "merge 0");
    bpe_tokens(&v, "gpt-2");
    vocab_strs(&v, "tokenizer.ggml.merges", merges, countof(merges));
    vocab_u32(&v, "tokenizer.ggml.bos_token_id", N_BPE);
    refused(&v, ERR_GGUF_VOCAB, "bos_token_id");
    vocab_init(&v);
    vocab_str(&v, "tokenizer.ggml.model", "llama");
    refused(&v, ERR_GGUF_MISSING, "tokens");
    vocab_init(&v);
    vocab_str(&v, "tokenizer.ggml.model", "llama");
    vocab_strs(&v, "tokenizer.ggml.tokens", two, 2);
    vocab_array(&v, "tokenizer.ggml.scores", 6, 1);
    buf_f32(&v.kv, 0);
    refused(&v, ERR_GGUF_VOCAB, "scores");
    vocab_init(&v);
    vocab_str(&v, "tokenizer.ggml.model", "llama");
    vocab_strs(&v, "tokenizer.ggml.tokens", two, 2);
    vocab_array(&v, "tokenizer.ggml.token_type", 5, 1);
    buf_u32(&v.kv, 1);
    refused(&v, ERR_GGUF_VOCAB, "token_type");
    vocab_init(&v);
    vocab_str(&v, "tokenizer.ggml.model", "none");
    refused(&v, ERR_TOKENIZER, "'none'");
    vocab_init(&v);
    vocab_str(&v, "tokenizer.ggml.model", "llama");
    vocab_strs(&v, "tokenizer.ggml.tokens", one, 1);
    vocab_array(&v, "tokenizer.ggml.scores", 6, 1);
    buf_u32(&v.kv, 0x7FC00000); /* NaN */
    refused(&v, ERR_GGUF_VOCAB, "score");
}

/* --- a file that shrinks while it is opened --- */

#define SHRINK_TOKENS 8000

struct shrinker {
    char path[64];
    struct buf bytes;
    atomic_bool stop;
};

/* Cut it and write it again, in turns, until told to stop. */
static void *shrink(void *arg)
{
    struct shrinker *s = arg;
    for (unsigned i = 0; !atomic_load(&s->stop); i++) {
        struct timespec pause = {.tv_nsec = (long)(i * 7919 % 8000) * 1000};
        int fd = open(s->path, O_WRONLY | O_CLOEXEC);
        must(fd >= 0);
        must(pwrite(fd, s->bytes.p, s->bytes.n, 0) == (ssize_t)s->bytes.n);
        (void)nanosleep(&pause, NULL);
        must(ftruncate(fd, 4096) == 0);
        (void)nanosleep(&pause, NULL);
        (void)close(fd);
    }
    return NULL;
}

/* Nothing dies of it, on any thread: the vocabulary is whole, or an error. */
static void shrinking_file(void **state)
{
    (void)state;
    struct shrinker s = {.path = "/tmp/aned-shrink-XXXXXX"};
    struct vocab v;
    vocab_init(&v);
    vocab_str(&v, "tokenizer.ggml.model", "llama");
    vocab_array(&v, "tokenizer.ggml.tokens", 8, SHRINK_TOKENS);
    for (unsigned i = 0; i < SHRINK_TOKENS; i++) {
        char text[32];
        int n = snprintf(text, sizeof(text), "token number %u", i);
        vocab_put_str(&v, text, (size_t)n);
    }
    vocab_array(&v, "tokenizer.ggml.scores", 6, SHRINK_TOKENS);
    for (unsigned i = 0; i < SHRINK_TOKENS; i++) {
        buf_f32(&v.kv, -(float)i);
    }
    vocab_bytes(&v, &s.bytes);
    int fd = mkstemp(s.path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, s.bytes.p, s.bytes.n), s.bytes.n);
    (void)close(fd);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, shrink, &s), 0);
    for (unsigned cut = 0; cut < 50;) {
        struct tokenizer *t = NULL;
        struct err e = {0};
        int rc = tokenizer_open(s.path, &t, &e);
        assert_true(rc < 0 || tokenizer_vocab(t) == SHRINK_TOKENS);
        cut += rc == ERR_SOURCE_CHANGED;
        tokenizer_close(t);
    }
    atomic_store(&s.stop, true);
    (void)pthread_join(thread, NULL);
    struct tokenizer *t = NULL;
    struct err e = {0};
    unit_ok(file_write(s.path, s.bytes.p, s.bytes.n, &e), &e);
    unit_ok(tokenizer_open(s.path, &t, &e), &e);
    assert_int_equal(tokenizer_find(t, "token number 7", 14), 7);
    tokenizer_close(t);
    (void)unlink(s.path);
    buf_fini(&s.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bpe),       cmocka_unit_test(test_special),
        cmocka_unit_test(test_patterns),  cmocka_unit_test(test_merges),
        cmocka_unit_test(test_long_word), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_spm),       cmocka_unit_test(test_strip),
        cmocka_unit_test(test_defaults),  cmocka_unit_test(test_raw),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(shrinking_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
