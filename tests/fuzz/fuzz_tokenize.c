/* fuzz_tokenize.c - any bytes through the tokenizers.
 *
 * The first byte chooses: 0..21 the bytes after it are text for a small
 * vocabulary (by kind, with and without special tokens); above that they are a
 * GGUF whose vocabulary is loaded and used.
 */
#include <string.h>

#include "base/buf.h"
#include "model/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void put_str(struct buf *b, const char *s, size_t n)
{
    buf_u64(b, n);
    buf_put(b, s, n);
}

static void put_key(struct buf *b, const char *key, uint32_t type)
{
    put_str(b, key, strlen(key));
    buf_u32(b, type);
}

static void put_head(struct buf *b, uint64_t n_kv, const char *kind)
{
    buf_init(b, 1 << 16);
    buf_puts(b, "GGUF");
    buf_u32(b, 3);
    buf_u64(b, 0);
    buf_u64(b, n_kv);
    put_key(b, "tokenizer.ggml.model", 8);
    put_str(b, kind, strlen(kind));
}

static void put_array(struct buf *b, const char *key, uint32_t item, uint64_t n)
{
    put_key(b, key, 9);
    buf_u32(b, item);
    buf_u64(b, n);
}

static const char *const words[] = {"<s>",
                                    "<x>",
                                    "a",
                                    "b",
                                    "ab",
                                    "aba",
                                    "\xC4\xA0",
                                    "\xC3\xA9",
                                    "\xE2\x96\x81",
                                    ("\xE2\x96\x81"
                                     "a"),
                                    "aa",
                                    "<0x0A>"};
static const char *const merges[] = {"a b", "ab a", "a a", "\xC4\xA0 a"};

/* which 0: SentencePiece, else byte-level with that pre-tokenizer. */
static struct tokenizer *make(const char *pre)
{
    struct buf b;
    struct err e = {0};
    struct tokenizer *t = NULL;
    put_head(&b, pre != NULL ? 5 : 4, pre != NULL ? "gpt2" : "llama");
    put_array(&b, "tokenizer.ggml.tokens", 8, countof(words));
    for (size_t i = 0; i < countof(words); i++) {
        put_str(&b, words[i], strlen(words[i]));
    }
    put_array(&b, "tokenizer.ggml.token_type", 5, countof(words));
    for (size_t i = 0; i < countof(words); i++) {
        buf_u32(&b, i == 0 ? 3 : (i == 1 ? 4 : (i == 11 ? 6 : 1)));
    }
    if (pre == NULL) {
        put_array(&b, "tokenizer.ggml.scores", 6, countof(words));
        for (size_t i = 0; i < countof(words); i++) {
            buf_f32(&b, -(float)(i % 5));
        }
    } else {
        put_key(&b, "tokenizer.ggml.pre", 8);
        put_str(&b, pre, strlen(pre));
        put_array(&b, "tokenizer.ggml.merges", 8, countof(merges));
        for (size_t i = 0; i < countof(merges); i++) {
            put_str(&b, merges[i], strlen(merges[i]));
        }
    }
    must(tokenizer_open_mem(b.p, b.n, &t, &e) == 0);
    buf_fini(&b);
    return t;
}

static void run(const struct tokenizer *t, const uint8_t *p, size_t n,
                bool special)
{
    struct err e = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0;
    struct buf b;
    if (tokenizer_encode(t, (const char *)p, n, special, &ids, &n_ids, &e) <
        0) {
        return;
    }
    for (size_t i = 0; i < n_ids; i++) {
        must(ids[i] >= 0 && ids[i] < tokenizer_vocab(t));
    }
    buf_init(&b, MIB(64));
    tokenizer_decode(t, ids, n_ids, true, &b);
    buf_fini(&b);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const char *const pres[] = {
        NULL,     "gpt-2",    "qwen2",   "deepseek-llm", "tekken",    "gpt-4o",
        "gemma4", "superbpe", "kimi-k2", "jais-2",       "exaone-moe"};
    static struct tokenizer *made[countof(pres)]; /* reachable: no leak */
    if (n == 0) {
        return 0;
    }
    if (p[0] < 2 * countof(pres)) {
        size_t which = p[0] / 2;
        if (made[which] == NULL) {
            made[which] = make(pres[which]);
        }
        run(made[which], p + 1, n - 1, (p[0] & 1) != 0);
        return 0;
    }
    struct err e = {0};
    struct tokenizer *t = NULL;
    if (tokenizer_open_mem(p + 1, n - 1, &t, &e) == 0) {
        run(t, p, n, true);
        tokenizer_close(t);
    }
    return 0;
}
