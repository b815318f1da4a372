/* wordpiece.c - WordPiece as tokenizer.ggml.* of kind "bert": a tokenizer.json of
 * that kind, or a vocab.txt, which becomes the tokenizer.json that the
 * transformers library makes of it.
 *
 * A token that begins a word gets U+2581 in front, one that goes on loses its
 * "##", as llama.cpp's converter writes them. What BertNormalizer does stands in
 * two keys of ours, tokenizer.aned.lowercase and tokenizer.aned.strip_accents;
 * its other steps are always done (model/tokenizer_wpm.c). */
#include <string.h>

#include "base/num.h"
#include "source/hf/hf.h"

#define WHERE     "tokenizer.json: "
#define KEY(name) "tokenizer.ggml." name
#define MARK      "\xE2\x96\x81" /* U+2581 */
#define GOES_ON   "##"

static int unknown(const char *member, const char *what, struct err *e)
{
    return err_set(e, ERR_TOKENIZER,
                   WHERE "%s: '%.64s' is nothing that aned's WordPiece does",
                   member, what != NULL ? what : "");
}

static const char *type_of(const struct json *j)
{
    const char *type = json_str(json_get(j, "type"));
    return type != NULL ? type : "";
}

static bool says(const struct json *j, const char *key, const char *want)
{
    const char *s = json_str(hf_get(j, key));
    return s == NULL || strcmp(s, want) == 0;
}

/* --- checks --- */

int hf_check_wordpiece(const struct json *t, struct err *e)
{
    const struct json *m = json_get(t, "model");
    const struct json *pre = hf_get(t, "pre_tokenizer");
    const struct json *d = hf_get(t, "decoder");
    const struct json *chars = hf_get(m, "max_input_chars_per_word");
    if (json_first(json_get(m, "vocab")) == NULL ||
        json_type(json_get(m, "vocab")) != JSON_OBJECT) {
        return unknown("model", "WordPiece without a vocab", e);
    }
    if (!says(m, "continuing_subword_prefix", GOES_ON)) {
        return unknown("continuing_subword_prefix", "another than ##", e);
    }
    if (chars != NULL && json_num(chars) != 100) {
        return unknown("max_input_chars_per_word", "another than 100", e);
    }
    if (strcmp(type_of(pre), "BertPreTokenizer") != 0) {
        return unknown("pre_tokenizer", type_of(pre), e);
    }
    return d == NULL || (strcmp(type_of(d), "WordPiece") == 0 &&
                         says(d, "prefix", GOES_ON))
               ? 0
               : unknown("decoder", type_of(d), e);
}

/* --- the normalizer --- */

/* Lowercase in front of it, as do_lower_case of sentence-transformers puts it,
 * strips no accents. */
static int put_normalizer(struct hf *h, const struct json *t, struct err *e)
{
    static const char *const always[] = {"clean_text", "handle_chinese_chars"};
    const struct json *n = hf_get(t, "normalizer");
    bool lowers = true;
    if (strcmp(type_of(n), "BertNormalizer") != 0) {
        return unknown("normalizer", type_of(n), e);
    }
    for (size_t i = 0; i < countof(always); i++) {
        const struct json *on = hf_get(n, always[i]);
        if (on != NULL && !json_bool(on)) {
            return unknown(always[i], "false", e);
        }
    }
    RETERR(hf_bool(n, "lowercase", &lowers, e));
    bool strips = lowers; /* where it says null */
    RETERR(hf_bool(n, "strip_accents", &strips, e));
    RETERR(made_bool(h->m, "tokenizer.aned.lowercase", lowers || h->lowers, e));
    return made_bool(h->m, "tokenizer.aned.strip_accents", strips, e);
}

/* --- the vocabulary --- */

/* Texts of v as GGUF has them. */
static int mark_words(struct hf *h, struct hf_vocab *v, struct err *e)
{
    const size_t on = sizeof(GOES_ON) - 1;
    const size_t mark = sizeof(MARK) - 1;
    for (size_t i = 0; i < v->n; i++) {
        struct span *s = &v->text[i];
        if (v->type[i] != HF_TOKEN_NORMAL) {
            continue;
        }
        if (s->n > on && memcmp(s->p, GOES_ON, on) == 0) {
            *s = (struct span){s->p + on, s->n - on};
            continue;
        }
        char *p = made_alloc(h->m, mark + s->n);
        if (p == NULL) {
            return err_set(e, ERR_NOMEM, "the vocabulary");
        }
        memcpy(p, MARK, mark);
        memcpy(p + mark, s->p, s->n);
        *s = (struct span){p, mark + s->n};
    }
    return 0;
}

int hf_put_wordpiece(struct hf *h, const struct json *t, struct hf_vocab *v,
                     struct err *e)
{
    const struct json *m = json_get(t, "model");
    const char *unk = json_str(hf_get(m, "unk_token"));
    const struct json *id = json_get(json_get(m, "vocab"),
                                     unk != NULL ? unk : "[UNK]");
    if (!json_int(id, 0, (int64_t)v->n - 1, &h->unk)) {
        return unknown("unk_token", unk, e);
    }
    RETERR(put_normalizer(h, t, e));
    RETERR(mark_words(h, v, e));
    RETERR(made_str(h->m, KEY("model"), "bert", e));
    return hf_vocab_put(h, v, false, e);
}

/* --- vocab.txt --- */

/* Lines as ids. */
static int read_lines(const char *p, size_t n, struct json *vocab,
                      struct err *e)
{
    int64_t id = 0;
    for (size_t at = 0; at < n; id++) {
        const char *end = memchr(p + at, '\n', n - at);
        size_t len = end != NULL ? (size_t)(end - p) - at : n - at;
        const char *line = p + at;
        at += len + 1;
        len -= len > 0 && line[len - 1] == '\r' ? 1 : 0;
        if (len > TOKEN_BYTES_MAX || id >= MODEL_VOCAB_MAX ||
            memchr(line, '\0', len) != NULL) {
            return err_set(e, ERR_TOKENIZER,
                           "vocab.txt: line %lld is no token, or there are "
                           "more than %u",
                           (long long)id + 1, MODEL_VOCAB_MAX);
        }
        char text[TOKEN_BYTES_MAX + 1];
        memcpy(text, line, len);
        text[len] = '\0';
        json_add_num(vocab, text, (double)id);
    }
    return 0;
}

/* The names of special tokens, each an added token. */
static void add_specials(const struct json *config, const struct json *vocab,
                         struct json *added)
{
    static const char *const rows[][2] = {{"unk_token", "[UNK]"},
                                          {"sep_token", "[SEP]"},
                                          {"pad_token", "[PAD]"},
                                          {"cls_token", "[CLS]"},
                                          {"mask_token", "[MASK]"}};
    for (size_t i = 0; i < countof(rows); i++) {
        const struct json *j = hf_get(config, rows[i][0]);
        const char *text = json_str(j);
        text = text != NULL ? text : json_str(json_get(j, "content"));
        text = text != NULL ? text : rows[i][1];
        int64_t id = 0;
        if (json_int(json_get(vocab, text), 0, MODEL_VOCAB_MAX - 1, &id)) {
            struct json *one = json_add_object(added, NULL);
            json_add_num(one, "id", (double)id);
            json_add_str(one, "content", text);
            json_add_bool(one, "special", true);
        }
    }
}

/* What the library's BertTokenizer is without a tokenizer.json. */
static void add_rest(const struct json *config, struct json *t)
{
    const struct json *lower = hf_get(config, "do_lower_case");
    const struct json *strip = hf_get(config, "strip_accents");
    const struct json *chinese = hf_get(config, "tokenize_chinese_chars");
    struct json *n = json_add_object(t, "normalizer");
    json_add_str(n, "type", "BertNormalizer");
    json_add_bool(n, "lowercase", lower == NULL || json_bool(lower));
    json_add_bool(n, "handle_chinese_chars",
                  chinese == NULL || json_bool(chinese));
    if (strip != NULL) {
        json_add_bool(n, "strip_accents", json_bool(strip));
    }
    json_add_str(json_add_object(t, "pre_tokenizer"), "type",
                 "BertPreTokenizer");
    json_add_str(json_add_object(t, "post_processor"), "type",
                 "BertProcessing");
}

int hf_read_vocab_txt(struct hf *h, const struct json *config,
                      struct json **ret, struct err *e)
{
    struct buf b;
    bool there = false;
    RETERR(hf_read(h, "vocab.txt", HF_TOKENIZER_MAX, &b, &there, e));
    if (!there) {
        return 0;
    }
    struct json *t = json_object();
    struct json *m = json_add_object(t, "model");
    json_add_str(m, "type", "WordPiece");
    const char *unk = json_str(hf_get(config, "unk_token"));
    json_add_str(m, "unk_token", unk != NULL ? unk : "[UNK]");
    struct json *vocab = json_add_object(m, "vocab");
    int rc = read_lines(b.p != NULL ? b.p : "", b.n, vocab, e);
    buf_fini(&b);
    if (rc < 0) {
        json_free(t);
        return rc;
    }
    add_specials(config, vocab, json_add_array(t, "added_tokens"));
    add_rest(config, t);
    *ret = t;
    return 0;
}
