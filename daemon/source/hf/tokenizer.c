/* tokenizer.c - tokenizer.json as tokenizer.ggml.*.
 *
 * Unigram is unigram.c's, WordPiece wordpiece.c's. Two kinds of BPE are taken: of
 * bytes ("gpt2"), and of characters with byte fallback, by rank as well. For the second GGUF has a kind of its own in the
 * family that is named so ("gemma4"); of others it is a name of
 * tokenizer.ggml.pre that takes text as it is. */
#include <string.h>

#include "base/num.h"
#include "source/hf/hf.h"

#define WHERE     "tokenizer.json: "
#define KEY(name) "tokenizer.ggml." name

static int unknown(const char *member, const char *what, struct err *e)
{
    return err_set(e, ERR_TOKENIZER,
                   WHERE "%s: '%.64s' is nothing that aned's tokenizers do",
                   member, what != NULL ? what : "");
}

static const char *type_of(const struct json *j)
{
    const char *type = json_str(json_get(j, "type"));
    return type != NULL ? type : "";
}

/* --- the vocabulary --- */

int hf_vocab_init(struct hf_vocab *v, size_t n, struct err *e)
{
    if (n == 0 || n > MODEL_VOCAB_MAX) {
        return err_set(e, ERR_TOKENIZER, "a vocabulary of %zu tokens", n);
    }
    *v = (struct hf_vocab){.n = n,
                           .text = calloc(n, sizeof(*v->text)),
                           .type = calloc(n, sizeof(*v->type)),
                           .score = calloc(n, sizeof(*v->score))};
    return v->text != NULL && v->type != NULL && v->score != NULL
               ? 0
               : err_set(e, ERR_NOMEM, "a vocabulary of %zu tokens", n);
}

void hf_vocab_fini(struct hf_vocab *v)
{
    free(v->text);
    free(v->type);
    free(v->score);
    *v = (struct hf_vocab){.n = 0};
}

int hf_vocab_put(struct hf *h, struct hf_vocab *v, bool scores, struct err *e)
{
    for (size_t i = 0; i < v->n; i++) {
        if (v->type[i] != 0) {
            continue;
        }
        char *name = made_alloc(h->m, 24);
        if (name == NULL) {
            return err_set(e, ERR_NOMEM, "the vocabulary");
        }
        int n = snprintf(name, 24, "[PAD%zu]", i);
        v->text[i] = (struct span){name, (size_t)n};
        v->type[i] = HF_TOKEN_UNUSED;
        v->score[i] = -1000.0F;
    }
    RETERR(made_strs(h->m, KEY("tokens"), v->text, v->n, e));
    RETERR(scores ? made_f32s(h->m, KEY("scores"), v->score, v->n, e) : 0);
    return made_i32s(h->m, KEY("token_type"), v->type, v->n, e);
}

/* What looks like a special token is one, whatever the file says, as in
 * llama.cpp's converter. */
int32_t hf_added_type(const char *text, bool special)
{
    static const char *const known[] = {"<pad>", "<mask>", "<2mass>",
                                        "[@BOS@]"};
    size_t n = strlen(text);
    bool bars = n > 4 && strncmp(text, "<|", 2) == 0 &&
                strcmp(text + n - 2, "|>") == 0;
    bool wide = n > 8 && strncmp(text, "<\xEF\xBD\x9C", 4) == 0 &&
                strcmp(text + n - 4, "\xEF\xBD\x9C>") == 0;
    bool unused = n > 8 && strncmp(text, "<unused", 7) == 0 &&
                  text[n - 1] == '>';
    for (size_t i = 0; i < countof(known); i++) {
        special = special || strcmp(text, known[i]) == 0;
    }
    return special || bars || wide || unused ? HF_TOKEN_CONTROL
                                             : HF_TOKEN_USER;
}

static bool is_byte_token(struct span s)
{
    return s.n == 6 && memcmp(s.p, "<0x", 3) == 0 && s.p[5] == '>';
}

/* The largest id, of vocab and added tokens. */
static int count_ids(const struct json *vocab, const struct json *added,
                     size_t *ret, struct err *e)
{
    int64_t id = 0;
    int64_t last = -1;
    bool list = vocab != NULL && json_type(vocab) == JSON_ARRAY;
    last = list ? (int64_t)json_count(vocab) - 1 : last;
    for (const struct json *c = list ? NULL : json_first(vocab); c != NULL;
         c = json_next(c)) {
        if (!json_int(c, 0, MODEL_VOCAB_MAX - 1, &id)) {
            return err_set(e, ERR_TOKENIZER, WHERE "the id of '%.64s'",
                           json_key(c));
        }
        last = id > last ? id : last;
    }
    for (const struct json *c = json_first(added); c != NULL;
         c = json_next(c)) {
        if (!json_int(json_get(c, "id"), 0, MODEL_VOCAB_MAX - 1, &id) ||
            json_str(json_get(c, "content")) == NULL) {
            return err_set(e, ERR_TOKENIZER,
                           WHERE "an added token without id or content");
        }
        last = id > last ? id : last;
    }
    *ret = (size_t)(last + 1);
    return 0;
}

static int add_vocab(const struct json *vocab, bool fallback,
                     struct hf_vocab *v, struct err *e)
{
    for (const struct json *c = json_first(vocab); c != NULL;
         c = json_next(c)) {
        size_t id = (size_t)json_num(c); /* count_ids has looked at it */
        const char *text = json_key(c);
        struct span s = {text, strlen(text)};
        if (v->type[id] != 0 || s.n > TOKEN_BYTES_MAX) {
            return err_set(e, ERR_TOKENIZER,
                           WHERE "token %zu has two texts, or one of more "
                                 "than %u bytes",
                           id, TOKEN_BYTES_MAX);
        }
        v->text[id] = s;
        v->type[id] = fallback && is_byte_token(s) ? HF_TOKEN_BYTE
                                                   : HF_TOKEN_NORMAL;
    }
    return 0;
}

/* Ids of added tokens with which white space goes. */
struct strip {
    int32_t *left, *right;
    size_t n_left, n_right;
};

static void strip_fini(struct strip *s)
{
    free(s->left);
    free(s->right);
}

static int put_strip(struct hf *h, const struct strip *s, struct err *e)
{
    RETERR(s->n_left > 0 ? made_i32s(h->m, "tokenizer.aned.strip_left", s->left,
                                     s->n_left, e)
                         : 0);
    return s->n_right > 0 ? made_i32s(h->m, "tokenizer.aned.strip_right",
                                      s->right, s->n_right, e)
                          : 0;
}

/* Added tokens are found in text before anything else. */
static int add_added(const struct json *added, struct hf_vocab *v,
                     struct strip *strip, struct err *e)
{
    for (const struct json *c = json_first(added); c != NULL;
         c = json_next(c)) {
        const char *text = json_str(json_get(c, "content"));
        int64_t id = 0;
        struct span s = {text, strlen(text)};
        if (!json_int(json_get(c, "id"), 0, (int64_t)v->n - 1, &id) ||
            s.n == 0 || s.n > TOKEN_BYTES_MAX) {
            return err_set(e, ERR_TOKENIZER, WHERE "the added token '%.64s'",
                           text);
        }
        if (json_bool(json_get(c, "single_word"))) {
            return err_set(e, ERR_TOKENIZER,
                           WHERE "the added token '%.64s' has single_word",
                           text);
        }
        if (json_bool(json_get(c, "lstrip"))) {
            strip->left[strip->n_left++] = (int32_t)id;
        }
        if (json_bool(json_get(c, "rstrip"))) {
            strip->right[strip->n_right++] = (int32_t)id;
        }
        v->text[id] = s;
        v->type[id] =
            hf_added_type(text, json_bool(json_get(c, "special")));
    }
    return 0;
}

/* --- merges --- */

/* The two sides of a merge: "a b", or ["a", "b"]. */
static int read_merge(const struct json *c, struct span side[2], struct err *e)
{
    const char *both = json_str(c);
    if (both != NULL) {
        const char *space = strchr(both, ' ');
        if (space != NULL && space > both && space[1] != '\0' &&
            strchr(space + 1, ' ') == NULL) {
            side[0] = (struct span){both, (size_t)(space - both)};
            side[1] = (struct span){space + 1, strlen(space + 1)};
            return 0;
        }
    } else {
        const struct json *one = json_first(c);
        const struct json *two = one != NULL ? json_next(one) : NULL;
        const char *a = json_str(one);
        const char *b = json_str(two);
        if (a != NULL && b != NULL && json_next(two) == NULL && a[0] != '\0' &&
            b[0] != '\0' && strchr(a, ' ') == NULL && strchr(b, ' ') == NULL) {
            side[0] = (struct span){a, strlen(a)};
            side[1] = (struct span){b, strlen(b)};
            return 0;
        }
    }
    return err_set(e, ERR_TOKENIZER,
                   WHERE "a merge that is no pair of texts without spaces");
}

static int put_merges(struct hf *h, const struct json *merges, struct err *e)
{
    size_t n = json_count(merges);
    size_t i = 0;
    int rc = 0;
    struct span *list = calloc(n + 1, sizeof(*list));
    if (list == NULL || n > 4 * (size_t)MODEL_VOCAB_MAX) {
        rc = err_set(e, list == NULL ? ERR_NOMEM : ERR_TOKENIZER,
                     WHERE "%zu merges", n);
        goto out;
    }
    for (const struct json *c = json_first(merges); c != NULL;
         c = json_next(c)) {
        struct span side[2];
        CHECK(read_merge(c, side, e));
        size_t len = side[0].n + 1 + side[1].n;
        if (len > TOKEN_BYTES_MAX) {
            rc = err_set(e, ERR_TOKENIZER, WHERE "a merge of %zu bytes", len);
            goto out;
        }
        char *p = made_alloc(h->m, len);
        if (p == NULL) {
            rc = err_set(e, ERR_NOMEM, WHERE "%zu merges", n);
            goto out;
        }
        memcpy(p, side[0].p, side[0].n);
        p[side[0].n] = ' ';
        memcpy(p + side[0].n + 1, side[1].p, side[1].n);
        list[i++] = (struct span){p, len};
    }
    CHECK(made_strs(h->m, KEY("merges"), list, n, e));
out:
    free(list);
    return rc;
}

/* Words of characters end at line ends in the tokenizer rooms. No merge reaches
 * over one. */
static int check_lines(const struct json *merges, struct err *e)
{
    for (const struct json *c = json_first(merges); c != NULL;
         c = json_next(c)) {
        struct span side[2];
        size_t ends = 0;
        RETERR(read_merge(c, side, e));
        for (size_t i = 0; i < 2; i++) {
            for (size_t k = 0; k < side[i].n; k++) {
                ends += side[i].p[k] == '\n';
            }
        }
        if (ends != 0 && ends != side[0].n + side[1].n) {
            return unknown("merges", "one over the end of a line", e);
        }
    }
    return 0;
}

/* --- tokenizer.json --- */

static bool byte_level(const struct json *t)
{
    const struct json *pre = hf_get(t, "pre_tokenizer");
    bool found = strcmp(type_of(pre), "ByteLevel") == 0;
    for (const struct json *c = json_first(json_get(pre, "pretokenizers"));
         c != NULL; c = json_next(c)) {
        found = found || strcmp(type_of(c), "ByteLevel") == 0;
    }
    return found;
}

static bool is_unigram(const struct json *model)
{
    return strcmp(type_of(model), "Unigram") == 0;
}

static bool is_wordpiece(const struct json *model)
{
    return strcmp(type_of(model), "WordPiece") == 0;
}

/* Options of the model that change what it does. */
static int check_model(const struct json *m, struct err *e)
{
    static const char *const off[] = {"continuing_subword_prefix",
                                      "end_of_word_suffix"};
    if (is_unigram(m)) {
        return json_first(json_get(m, "vocab")) != NULL &&
                       json_type(json_get(m, "vocab")) == JSON_ARRAY
                   ? 0
                   : unknown("model", "Unigram without a list of pieces", e);
    }
    if (strcmp(type_of(m), "BPE") != 0 && type_of(m)[0] != '\0') {
        return unknown("model", type_of(m), e);
    }
    for (size_t i = 0; i < countof(off); i++) {
        const char *s = json_str(hf_get(m, off[i]));
        if (s != NULL && s[0] != '\0') {
            return unknown(off[i], s, e);
        }
    }
    if (json_num(hf_get(m, "dropout")) > 0) {
        return unknown("dropout", "", e);
    }
    return json_type(m) == JSON_OBJECT &&
                   json_first(json_get(m, "vocab")) != NULL &&
                   json_get(m, "merges") != NULL
               ? 0
               : err_set(e, ERR_TOKENIZER, WHERE "no vocab or merges");
}

/* What makes text of tokens is that of the kind, in the tokenizer rooms. */
static int check_decoder(const struct json *t, bool bytes, struct err *e)
{
    static const char *const steps[] = {"Replace", "ByteFallback", "Fuse",
                                        "Strip", "Metaspace"};
    const struct json *d = hf_get(t, "decoder");
    bool pieces = is_unigram(json_get(t, "model"));
    if (d == NULL || (bytes && strcmp(type_of(d), "ByteLevel") == 0) ||
        (pieces && strcmp(type_of(d), "Metaspace") == 0)) {
        return 0;
    }
    if (bytes || strcmp(type_of(d), "Sequence") != 0) {
        return unknown("decoder", type_of(d), e);
    }
    for (const struct json *c = json_first(json_get(d, "decoders"));
         c != NULL; c = json_next(c)) {
        bool known = false;
        for (size_t i = 0; i < countof(steps); i++) {
            bool spaces = strcmp(steps[i], "Metaspace") == 0;
            known = known || (strcmp(type_of(c), steps[i]) == 0 &&
                              (pieces || !spaces));
        }
        if (!known) {
            return unknown("decoder", type_of(c), e);
        }
    }
    return 0;
}

static int put_bytes(struct hf *h, const struct json *t, struct hf_vocab *v,
                     struct err *e)
{
    const char *pre = NULL;
    RETERR(hf_pre_of(t, &pre, e));
    RETERR(made_str(h->m, KEY("model"), "gpt2", e));
    RETERR(made_str(h->m, KEY("pre"), pre, e));
    RETERR(hf_vocab_put(h, v, false, e));
    return put_merges(h, json_get(json_get(t, "model"), "merges"), e);
}

static int put_fallback(struct hf *h, const struct json *t,
                        struct hf_vocab *v, struct err *e)
{
    const struct json *m = json_get(t, "model");
    bool prefix = false;
    if (!json_bool(json_get(m, "byte_fallback"))) {
        return unknown("model", "BPE of characters without byte_fallback", e);
    }
    if (json_bool(json_get(m, "ignore_merges"))) {
        return unknown("ignore_merges", "true, of characters", e);
    }
    RETERR(hf_spaces_of(t, &prefix, e));
    RETERR(made_bool(h->m, KEY("add_space_prefix"), prefix, e));
    RETERR(check_lines(json_get(m, "merges"), e));
    bool gemma4 = strcmp(h->family->arch, "gemma4") == 0;
    RETERR(made_str(h->m, KEY("model"), gemma4 ? "gemma4" : "gpt2", e));
    RETERR(gemma4 ? 0 : made_str(h->m, KEY("pre"), "sarvam-moe", e));
    RETERR(hf_vocab_put(h, v, false, e));
    return put_merges(h, json_get(m, "merges"), e);
}

static int check_all(const struct hf *h, const struct json *t, bool bytes,
                     struct err *e)
{
    if (h->wordpiece) {
        return hf_check_wordpiece(t, e);
    }
    RETERR(check_model(json_get(t, "model"), e));
    return check_decoder(t, bytes, e);
}

static int put_json(struct hf *h, const struct json *t, struct err *e)
{
    const struct json *m = json_get(t, "model");
    const struct json *added = json_get(t, "added_tokens");
    bool pieces = is_unigram(m);
    bool bytes = !pieces && byte_level(t);
    struct hf_vocab v = {.n = 0};
    struct strip strip = {.n_left = 0};
    size_t n = 0;
    int rc = 0;
    h->tokens = HF_TOKENIZER_JSON;
    h->wordpiece = is_wordpiece(m);
    CHECK(check_all(h, t, bytes, e));
    CHECK(count_ids(json_get(m, "vocab"), added, &n, e));
    CHECK(hf_vocab_init(&v, num_max(n, h->vocab), e));
    strip.left = calloc(json_count(added) + 1, sizeof(*strip.left));
    strip.right = calloc(json_count(added) + 1, sizeof(*strip.right));
    if (strip.left == NULL || strip.right == NULL) {
        rc = err_set(e, ERR_NOMEM, WHERE "added tokens");
        goto out;
    }
    CHECK(pieces ? hf_unigram_vocab(h, m, &v, e)
                 : add_vocab(json_get(m, "vocab"), !bytes && !h->wordpiece, &v,
                             e));
    CHECK(add_added(added, &v, &strip, e));
    CHECK(pieces         ? hf_put_unigram(h, t, &v, e)
          : h->wordpiece ? hf_put_wordpiece(h, t, &v, e)
          : bytes        ? put_bytes(h, t, &v, e)
                         : put_fallback(h, t, &v, e));
    CHECK(put_strip(h, &strip, e));
out:
    strip_fini(&strip);
    hf_vocab_fini(&v);
    return rc;
}

/* --- which of the files --- */

/* tokenizer.model, unless tokenizer.json is of another kind: some models have
 * a file of that name that is no SentencePiece model. t: also what vocab.txt
 * became. */
static int put_vocabulary(struct hf *h, const struct json *t,
                          const struct json *config, struct err *e)
{
    struct buf b;
    bool there = false;
    if (t != NULL && (byte_level(t) || is_unigram(json_get(t, "model")) ||
                      is_wordpiece(json_get(t, "model")))) {
        return put_json(h, t, e);
    }
    RETERR(hf_read(h, "tokenizer.model", HF_TOKENIZER_MAX, &b, &there, e));
    if (there) {
        int rc = hf_put_spm(h, b.p, b.n, config, e);
        buf_fini(&b);
        return rc;
    }
    return t != NULL ? put_json(h, t, e) : 0;
}

int hf_put_tokenizer(struct hf *h, struct err *e)
{
    struct json *t = NULL;
    struct json *config = NULL;
    int rc = 0;
    h->unk = -1;
    CHECK(hf_read_json(h, "tokenizer.json", HF_TOKENIZER_MAX, &t, e));
    CHECK(hf_read_json(h, "tokenizer_config.json", HF_INDEX_MAX, &config, e));
    CHECK(t == NULL ? hf_read_vocab_txt(h, config, &t, e) : 0);
    CHECK(put_vocabulary(h, t, config, e));
    CHECK(h->family->encodes ? hf_put_text_max(h, config, e) : 0);
    if (h->tokens != HF_NO_TOKENIZER) {
        CHECK(hf_put_special(h, t, config, e));
    }
out:
    json_free(t);
    json_free(config);
    return rc;
}
