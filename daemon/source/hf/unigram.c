/* unigram.c - a tokenizer.json of kind Unigram as tokenizer.ggml.* of kind "t5".
 *
 * What its normalizer and its pre_tokenizer do is written down as a list of
 * steps, tokenizer.aned.steps (model/tokenizer_norm.h), in their order; the
 * table of characters is GGUF's tokenizer.ggml.precompiled_charsmap. */
#include <string.h>

#include "base/parse.h"
#include "source/hf/hf.h"

#define WHERE     "tokenizer.json: "
#define KEY(name) "tokenizer.ggml." name
#define SPACE     "\xE2\x96\x81" /* U+2581 */
#define STEPS_MAX 40u

struct steps {
    struct hf *h;
    struct span list[STEPS_MAX];
    size_t n;
    bool table;  /* there is a table of characters already */
    bool spaces; /* Metaspace was there: words come before it */
    bool prefix; /* it puts a space in front */
};

static const char *type_of(const struct json *j)
{
    const char *type = json_str(json_get(j, "type"));
    return type != NULL ? type : "";
}

static int unknown(const char *member, const char *what, struct err *e)
{
    return err_set(e, ERR_TOKENIZER,
                   WHERE "%s: '%.64s' is nothing that aned's Unigram does",
                   member, what != NULL ? what : "");
}

/* name, and arguments (NULL: none) behind marks. */
static int add(struct steps *s, const char *name, const char *a, const char *b,
               struct err *e)
{
    const char *parts[] = {name, a, b};
    size_t n = 0;
    for (size_t i = 0; i < countof(parts) && parts[i] != NULL; i++) {
        n += strlen(parts[i]) + (i > 0);
        if (strlen(parts[i]) > TOKEN_BYTES_MAX ||
            strchr(parts[i], '\x1F') != NULL) {
            return unknown(name, "a text that is too long, or has U+001F", e);
        }
    }
    char *p = made_alloc(s->h->m, n + 1);
    if (p == NULL || s->n == STEPS_MAX) {
        return p == NULL ? err_set(e, ERR_NOMEM, "the vocabulary")
                         : unknown("normalizer", "more than 40 steps", e);
    }
    s->list[s->n++] = (struct span){p, n};
    for (size_t i = 0; i < countof(parts) && parts[i] != NULL; i++) {
        size_t len = strlen(parts[i]);
        if (i > 0) {
            *p++ = '\x1F';
        }
        memcpy(p, parts[i], len);
        p += len;
    }
    return 0;
}

/* --- normalizer --- */

static int add_table(const struct json *j, struct steps *s, struct err *e)
{
    const char *text = json_str(json_get(j, "precompiled_charsmap"));
    size_t n = text != NULL ? strlen(text) : 0;
    if (n == 0 || s->table) {
        return unknown("normalizer", s->table ? "a second Precompiled"
                                              : "Precompiled without a table",
                       e);
    }
    uint8_t *p = made_alloc(s->h->m, n);
    if (p == NULL) {
        return err_set(e, ERR_NOMEM, "the table of characters");
    }
    if (!parse_base64(text, n, p, &n)) {
        return unknown("normalizer", "Precompiled whose table is no base64", e);
    }
    s->table = true;
    RETERR(made_u8s(s->h->m, KEY("precompiled_charsmap"), p, n, e));
    return add(s, "table", NULL, NULL, e);
}

static int add_replace(const struct json *j, struct steps *s, struct err *e)
{
    const struct json *pattern = json_get(j, "pattern");
    const char *text = json_str(json_get(pattern, "String"));
    const char *regex = json_str(json_get(pattern, "Regex"));
    const char *by = json_str(json_get(j, "content"));
    if (text != NULL && text[0] != '\0' && by != NULL) {
        return add(s, "replace", text, by, e);
    }
    if (regex != NULL && strcmp(regex, " {2,}") == 0 && by != NULL) {
        return add(s, "collapse", by, NULL, e);
    }
    return unknown("normalizer: Replace", regex, e);
}

static int add_strip(const struct json *j, struct steps *s, struct err *e)
{
    bool left = json_bool(json_get(j, "strip_left"));
    bool right = json_bool(json_get(j, "strip_right"));
    RETERR(left ? add(s, "strip left", NULL, NULL, e) : 0);
    return right ? add(s, "strip right", NULL, NULL, e) : 0;
}

static int add_normalizer(const struct json *j, struct steps *s, struct err *e)
{
    static const char *const plain[][2] = {
        {"NFC", "nfc"},   {"NFD", "nfd"},
        {"NFKC", "nfkc"}, {"NFKD", "nfkd"},
        {"Nmt", "nmt"},   {"Lowercase", "lowercase"},
        {"StripAccents", "strip accents"},
    };
    const char *type = type_of(j);
    for (size_t i = 0; i < countof(plain); i++) {
        if (strcmp(type, plain[i][0]) == 0) {
            return add(s, plain[i][1], NULL, NULL, e);
        }
    }
    if (strcmp(type, "Precompiled") == 0) {
        return add_table(j, s, e);
    }
    if (strcmp(type, "Replace") == 0) {
        return add_replace(j, s, e);
    }
    if (strcmp(type, "Strip") == 0) {
        return add_strip(j, s, e);
    }
    const char *front = json_str(json_get(j, "prepend"));
    return strcmp(type, "Prepend") == 0 && front != NULL
               ? add(s, "prepend", front, NULL, e)
               : unknown("normalizer", type, e);
}

/* --- pre_tokenizer --- */

static int add_spaces(const struct json *j, struct steps *s, struct err *e)
{
    static const char *const schemes[][2] = {{"always", "space always"},
                                             {"first", "space first"},
                                             {"never", "space never"}};
    const char *by = json_str(json_get(j, "replacement"));
    const char *scheme = json_str(json_get(j, "prepend_scheme"));
    const struct json *old = json_get(j, "add_prefix_space");
    const struct json *split = json_get(j, "split");
    scheme = scheme != NULL                     ? scheme
             : old != NULL && !json_bool(old) ? "never"
                                                : "always";
    if (by == NULL || strcmp(by, SPACE) != 0 || s->spaces) {
        return unknown("pre_tokenizer: Metaspace", by, e);
    }
    for (size_t i = 0; i < countof(schemes); i++) {
        if (strcmp(scheme, schemes[i][0]) == 0) {
            s->spaces = true;
            s->prefix = strcmp(scheme, "never") != 0;
            RETERR(add(s, schemes[i][1], NULL, NULL, e));
            return split == NULL || json_bool(split)
                       ? add(s, "cut", NULL, NULL, e)
                       : 0;
        }
    }
    return unknown("pre_tokenizer: Metaspace", scheme, e);
}

static int add_pre(const struct json *j, struct steps *s, struct err *e)
{
    const char *type = type_of(j);
    if (strcmp(type, "Metaspace") == 0) {
        return add_spaces(j, s, e);
    }
    return strcmp(type, "WhitespaceSplit") == 0 && !s->spaces
               ? add(s, "split", NULL, NULL, e)
               : unknown("pre_tokenizer", type, e);
}

typedef int add_fn(const struct json *j, struct steps *s, struct err *e);

/* j, or each of its members when it is a sequence. */
static int add_each(const struct json *j, const char *members, add_fn *fn,
                    struct steps *s, struct err *e)
{
    if (j == NULL || strcmp(type_of(j), "Sequence") != 0) {
        return j != NULL ? fn(j, s, e) : 0;
    }
    for (const struct json *c = json_first(json_get(j, members)); c != NULL;
         c = json_next(c)) {
        RETERR(fn(c, s, e));
    }
    return 0;
}

static int put_steps(struct hf *h, const struct json *t, struct err *e)
{
    struct steps s = {.h = h};
    RETERR(add_each(hf_get(t, "normalizer"), "normalizers", add_normalizer, &s,
                    e));
    RETERR(add_each(hf_get(t, "pre_tokenizer"), "pretokenizers", add_pre, &s,
                    e));
    RETERR(made_bool(h->m, KEY("add_space_prefix"), s.prefix, e));
    return made_strs(h->m, "tokenizer.aned.steps", s.list, s.n, e);
}

/* --- the vocabulary --- */

/* ["text", score] */
static int read_piece(const struct json *c, size_t id, struct hf_vocab *v,
                      struct err *e)
{
    const struct json *one = json_first(c);
    const struct json *two = one != NULL ? json_next(one) : NULL;
    const char *text = json_str(one);
    if (text == NULL || two == NULL || json_type(two) != JSON_NUMBER ||
        json_next(two) != NULL || strlen(text) > TOKEN_BYTES_MAX) {
        return err_set(e, ERR_TOKENIZER,
                       WHERE "piece %zu of the vocabulary is no text with a "
                             "score",
                       id);
    }
    v->text[id] = (struct span){text, strlen(text)};
    v->type[id] = HF_TOKEN_NORMAL;
    v->score[id] = (float)json_num(two);
    return 0;
}

static bool is_byte(struct span s)
{
    return s.n == 6 && memcmp(s.p, "<0x", 3) == 0 && s.p[5] == '>';
}

int hf_unigram_vocab(struct hf *h, const struct json *model, struct hf_vocab *v,
                     struct err *e)
{
    bool bytes = json_bool(json_get(model, "byte_fallback"));
    const struct json *unk = hf_get(model, "unk_id");
    int64_t id = -1;
    size_t n = 0;
    for (const struct json *c = json_first(json_get(model, "vocab")); c != NULL;
         c = json_next(c)) {
        RETERR(read_piece(c, n, v, e));
        if (bytes && is_byte(v->text[n])) {
            v->type[n] = HF_TOKEN_BYTE;
        }
        n++;
    }
    if (unk != NULL && !json_int(unk, 0, (int64_t)n - 1, &id)) {
        return err_set(e, ERR_TOKENIZER, WHERE "unk_id is no token");
    }
    if (unk == NULL && !bytes) {
        return unknown("model", "Unigram without unk_id and byte_fallback", e);
    }
    if (unk != NULL) {
        v->type[id] = HF_TOKEN_UNKNOWN;
    }
    h->unk = id;
    return 0;
}

int hf_put_unigram(struct hf *h, const struct json *t, struct hf_vocab *v,
                   struct err *e)
{
    const struct json *m = json_get(t, "model");
    RETERR(made_str(h->m, KEY("model"), "t5", e));
    RETERR(made_str(h->m, KEY("pre"), "default", e));
    RETERR(made_bool(h->m, "tokenizer.aned.byte_fallback",
                     json_bool(json_get(m, "byte_fallback")), e));
    RETERR(put_steps(h, t, e));
    return hf_vocab_put(h, v, true, e);
}
