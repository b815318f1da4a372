/* vocab.h - write a vocabulary-only GGUF, from scratch or from a model's own
 * rank file or SentencePiece model. Tests only: any failure is a failed test.
 *
 * Written apart from daemon/model on purpose: the byte characters and the
 * merges are made here by other means than they are read there.
 */
#pragma once

#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "tests/unit/unit.h"

struct vocab {
    struct buf kv;
    uint64_t n_kv;
};

static inline void vocab_init(struct vocab *v)
{
    buf_init(&v->kv, (size_t)1 << 28);
    v->n_kv = 0;
}

static inline void vocab_put_str(struct vocab *v, const char *p, size_t n)
{
    buf_u64(&v->kv, n);
    buf_put(&v->kv, p, n);
}

static inline void vocab_key(struct vocab *v, const char *key, uint32_t type)
{
    vocab_put_str(v, key, strlen(key));
    buf_u32(&v->kv, type);
    v->n_kv++;
}

static inline void vocab_array(struct vocab *v, const char *key, uint32_t item,
                               uint64_t n)
{
    vocab_key(v, key, 9);
    buf_u32(&v->kv, item);
    buf_u64(&v->kv, n);
}

static inline void vocab_str(struct vocab *v, const char *key,
                             const char *value)
{
    vocab_key(v, key, 8);
    vocab_put_str(v, value, strlen(value));
}

static inline void vocab_u32(struct vocab *v, const char *key, uint32_t value)
{
    vocab_key(v, key, 4);
    buf_u32(&v->kv, value);
}

static inline void vocab_bool(struct vocab *v, const char *key, bool value)
{
    vocab_key(v, key, 7);
    buf_u8(&v->kv, value);
}

static inline void vocab_strs(struct vocab *v, const char *key,
                              const char *const *list, size_t n)
{
    vocab_array(v, key, 8, n);
    for (size_t i = 0; i < n; i++) {
        vocab_put_str(v, list[i], strlen(list[i]));
    }
}

/* The whole file into b (initialised here). */
static inline void vocab_bytes(struct vocab *v, struct buf *b)
{
    buf_init(b, (size_t)1 << 28);
    buf_puts(b, "GGUF");
    buf_u32(b, 3);
    buf_u64(b, 0);
    buf_u64(b, v->n_kv);
    buf_put(b, v->kv.p, v->kv.n);
    assert_true(buf_ok(b) && buf_ok(&v->kv));
    buf_fini(&v->kv);
}

static inline void vocab_save(struct vocab *v, const char *path)
{
    struct err e = {0};
    struct buf b;
    vocab_bytes(v, &b);
    unit_ok(file_write(path, b.p, b.n, &e), &e);
    buf_fini(&b);
}

/* --- tiktoken rank files --- */

struct rank_token {
    char bytes[256];
    size_t n;
};

struct ranks {
    struct rank_token *t;
    size_t n;
    int32_t *slots; /* text -> rank, -1 free */
    size_t mask;
};

static inline size_t rank_slot(const struct ranks *r, const char *p, size_t n)
{
    uint32_t h = 5381;
    for (size_t i = 0; i < n; i++) {
        h = h * 33 + (unsigned char)p[i];
    }
    size_t at = (h * 2654435769U) & r->mask;
    while (r->slots[at] >= 0) {
        const struct rank_token *k = &r->t[r->slots[at]];
        if (k->n == n && memcmp(k->bytes, p, n) == 0) {
            break;
        }
        at = (at + 1) & r->mask;
    }
    return at;
}

static inline size_t base64(const char *p, size_t n, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopq"
                                 "rstuvwxyz0123456789+/";
    uint32_t bits = 0;
    unsigned have = 0;
    size_t at = 0;
    for (size_t i = 0; i < n && p[i] != '='; i++) {
        const char *d = strchr(digits, p[i]);
        assert_non_null(d);
        bits = bits << 6 | (uint32_t)(d - digits);
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[at++] = (char)(bits >> have);
        }
    }
    return at;
}

/* At most `max` ranks of path; false when the file is absent. */
static inline bool ranks_read(const char *path, size_t max, struct ranks *r)
{
    struct err e = {0};
    struct buf b = {0};
    memset(r, 0, sizeof(*r));
    if (!file_exists(path)) {
        return false;
    }
    unit_ok(file_read(path, (size_t)1 << 26, &b, &e), &e);
    r->t = calloc(max, sizeof(*r->t));
    r->mask = ((size_t)1 << 20) - 1;
    r->slots = malloc((r->mask + 1) * sizeof(*r->slots));
    assert_non_null(r->t);
    assert_non_null(r->slots);
    memset(r->slots, 0xFF, (r->mask + 1) * sizeof(*r->slots));
    for (char *p = b.p; p < b.p + b.n && r->n < max;) {
        /* memchr: strict checkers measure the whole string for strchr */
        size_t left = b.n - (size_t)(p - b.p);
        char *space = memchr(p, ' ', left);
        char *line = memchr(p, '\n', left);
        if (space == NULL) {
            break;
        }
        assert_int_equal(strtoul(space + 1, NULL, 10), r->n);
        assert_true(space - p < 340);
        struct rank_token *k = &r->t[r->n];
        k->n = base64(p, (size_t)(space - p), k->bytes);
        r->slots[rank_slot(r, k->bytes, k->n)] = (int32_t)r->n;
        r->n++;
        p = line != NULL ? line + 1 : b.p + b.n;
    }
    buf_fini(&b);
    return true;
}

static inline void ranks_free(struct ranks *r)
{
    free(r->t);
    free(r->slots);
}

/* Bytes as the characters of a byte-level vocabulary, by GPT-2's own recipe:
 * printable Latin-1 is itself, the rest counts up from 256. */
static inline void put_byte_chars(struct buf *out, const char *p, size_t n)
{
    static unsigned map[256];
    if (map[0] == 0) {
        unsigned next = 256;
        for (unsigned b = 0; b < 256; b++) {
            bool self =
                (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
            map[b] = self ? b : next++;
        }
    }
    for (size_t i = 0; i < n; i++) {
        unsigned c = map[(unsigned char)p[i]];
        if (c >= 0x80) {
            buf_u8(out, (uint8_t)(0xC0 | c >> 6));
            c = 0x80 | (c & 0x3F);
        }
        buf_u8(out, (uint8_t)c);
    }
}

struct split {
    int32_t left, right;
};

static inline int by_ranks(const void *a, const void *b)
{
    const struct split *x = a;
    const struct split *y = b;
    return x->left != y->left ? (x->left < y->left ? -1 : 1)
                              : (x->right > y->right) - (x->right < y->right);
}

/* Every way to cut a token in two tokens, in the order of the token's rank and
 * then the parts' ranks: what transformers' converter makes of rank files. */
static inline void vocab_merges(struct vocab *v, const struct ranks *r)
{
    struct buf merges;
    struct buf text;
    uint64_t n = 0;
    buf_init(&merges, (size_t)1 << 28);
    buf_init(&text, 4096);
    for (size_t i = 0; i < r->n; i++) {
        struct split splits[256];
        size_t n_splits = 0;
        const struct rank_token *k = &r->t[i];
        for (size_t at = 1; at < k->n; at++) {
            int32_t left = r->slots[rank_slot(r, k->bytes, at)];
            int32_t right = r->slots[rank_slot(r, k->bytes + at, k->n - at)];
            if (left >= 0 && right >= 0) {
                splits[n_splits++] = (struct split){left, right};
            }
        }
        qsort(splits, n_splits, sizeof(*splits), by_ranks);
        for (size_t s = 0; s < n_splits; s++) {
            const struct rank_token *a = &r->t[splits[s].left];
            const struct rank_token *b = &r->t[splits[s].right];
            buf_clear(&text);
            put_byte_chars(&text, a->bytes, a->n);
            buf_u8(&text, ' ');
            put_byte_chars(&text, b->bytes, b->n);
            buf_u64(&merges, text.n);
            buf_put(&merges, text.p, text.n);
            n++;
        }
    }
    vocab_array(v, "tokenizer.ggml.merges", 8, n);
    buf_put(&v->kv, merges.p, merges.n);
    assert_true(buf_ok(&merges));
    buf_fini(&merges);
    buf_fini(&text);
}

/* Ranks and control tokens after them, as a GGUF; the first of those is BOS
 * where the family adds one. */
static inline void ranks_save(const struct ranks *r, const char *pre,
                              const char *const *specials, size_t n_specials,
                              const char *path)
{
    struct vocab v;
    struct buf text;
    vocab_init(&v);
    buf_init(&text, 4096);
    vocab_str(&v, "general.architecture", "llama");
    vocab_str(&v, "tokenizer.ggml.model", "gpt2");
    vocab_str(&v, "tokenizer.ggml.pre", pre);
    vocab_array(&v, "tokenizer.ggml.tokens", 8, r->n + n_specials);
    for (size_t i = 0; i < r->n; i++) {
        buf_clear(&text);
        put_byte_chars(&text, r->t[i].bytes, r->t[i].n);
        vocab_put_str(&v, text.p, text.n);
    }
    for (size_t i = 0; i < n_specials; i++) {
        vocab_put_str(&v, specials[i], strlen(specials[i]));
    }
    vocab_array(&v, "tokenizer.ggml.token_type", 5, r->n + n_specials);
    for (size_t i = 0; i < r->n + n_specials; i++) {
        buf_u32(&v.kv, i < r->n ? 1 : 3);
    }
    if (n_specials > 0) {
        vocab_u32(&v, "tokenizer.ggml.bos_token_id", (uint32_t)r->n);
    }
    vocab_merges(&v, r);
    vocab_save(&v, path);
    buf_fini(&text);
}

/* --- SentencePiece models: a protobuf whose field 1 is a list of pieces
 * {1: text, 2: float score, 3: type} --- */

static inline uint64_t varint(struct cur *c)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t b = cur_u8(c);
        v |= (uint64_t)(b & 0x7F) << shift;
        if ((b & 0x80) == 0) {
            break;
        }
    }
    return v;
}

static inline void skip_field(struct cur *c, uint64_t wire)
{
    if (wire == 0) {
        (void)varint(c);
    } else {
        (void)cur_bytes(c, wire == 1 ? 8 : wire == 5 ? 4 : (size_t)varint(c));
    }
}

/* false when the file is absent. */
static inline bool spm_save(const char *model, bool space_prefix,
                            const char *path)
{
    struct err e = {0};
    struct buf b = {0};
    struct buf texts;
    struct buf scores;
    struct buf types;
    struct vocab v;
    uint64_t n = 0;
    if (!file_exists(model)) {
        return false;
    }
    unit_ok(file_read(model, (size_t)1 << 26, &b, &e), &e);
    buf_init(&texts, (size_t)1 << 26);
    buf_init(&scores, (size_t)1 << 26);
    buf_init(&types, (size_t)1 << 26);
    struct cur c = cur_of(b.p, b.n);
    while (c.at < c.n && !c.bad) {
        uint64_t tag = varint(&c);
        if (tag != (1 << 3 | 2)) {
            skip_field(&c, tag & 7);
            continue;
        }
        size_t len = (size_t)varint(&c);
        const void *p = cur_bytes(&c, len);
        assert_non_null(p);
        struct cur piece = cur_of(p, len);
        const void *text = "";
        size_t n_text = 0;
        float score = 0;
        uint32_t type = 1;
        while (piece.at < piece.n && !piece.bad) {
            uint64_t field = varint(&piece);
            if (field == (1 << 3 | 2)) {
                n_text = (size_t)varint(&piece);
                text = cur_bytes(&piece, n_text);
            } else if (field == (2 << 3 | 5)) {
                score = cur_f32(&piece);
            } else if (field == (3 << 3 | 0)) {
                type = (uint32_t)varint(&piece);
            } else {
                skip_field(&piece, field & 7);
            }
        }
        buf_u64(&texts, n_text);
        buf_put(&texts, text, n_text);
        buf_f32(&scores, score);
        buf_u32(&types, type);
        n++;
    }
    assert_false(c.bad);
    vocab_init(&v);
    vocab_str(&v, "general.architecture", "llama");
    vocab_str(&v, "tokenizer.ggml.model", "llama");
    vocab_array(&v, "tokenizer.ggml.tokens", 8, n);
    buf_put(&v.kv, texts.p, texts.n);
    vocab_array(&v, "tokenizer.ggml.scores", 6, n);
    buf_put(&v.kv, scores.p, scores.n);
    vocab_array(&v, "tokenizer.ggml.token_type", 5, n);
    buf_put(&v.kv, types.p, types.n);
    vocab_bool(&v, "tokenizer.ggml.add_space_prefix", space_prefix);
    vocab_save(&v, path);
    buf_fini(&texts);
    buf_fini(&scores);
    buf_fini(&types);
    buf_fini(&b);
    return true;
}
