/* pre.c - how a tokenizer.json normalises and cuts text, held against what the
 * rooms of model/ have (tokenizer_patterns.c), by name.
 *
 * The steps of pre_tokenizer are written down as one line each; the lines
 * together are looked up in a table. Anything else is refused: a pattern that is
 * nearly one of these gives other ids. */
#include <string.h>

#include "base/buf.h"
#include "source/hf/hf.h"

#define WHERE "tokenizer.json: "

/* --- what the steps are --- */

#define SPLIT(x) "split " x "\n"
/* what ByteLevel itself cuts with */
#define GPT2                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|" \
    "\\s+(?!\\S)|\\s+"

struct steps {
    struct buf text;
    bool bytes;   /* the last step makes bytes of text */
    bool removed; /* a pattern's gaps are dropped, not kept */
    bool nfc;
};

static const char *type_of(const struct json *j)
{
    const char *type = json_str(json_get(j, "type"));
    return type != NULL ? type : "";
}

static int unknown(const char *member, const char *what, struct err *e)
{
    return err_set(e, ERR_TOKENIZER,
                   WHERE "%s: '%.200s' is nothing that aned's tokenizers do",
                   member, what);
}

/* A line break in a pattern is written as one or as an escape, a quote with or
 * without a backslash. */
static void put_regex(struct buf *b, const char *s)
{
    for (; *s != '\0'; s++) {
        if (*s == '\n' || *s == '\r') {
            buf_puts(b, *s == '\n' ? "\\n" : "\\r");
        } else if (*s == '\\' && s[1] == '\\') {
            buf_puts(b, "\\\\");
            s++;
        } else if (!(*s == '\\' && s[1] == '"')) {
            buf_u8(b, (uint8_t)*s);
        }
    }
}

static int add_split(const struct json *j, struct steps *s, struct err *e)
{
    const char *regex = json_str(json_get(json_get(j, "pattern"), "Regex"));
    const char *how = json_str(json_get(j, "behavior"));
    bool invert = json_bool(json_get(j, "invert"));
    bool isolated = how != NULL && strcmp(how, "Isolated") == 0 && !invert;
    bool removed = how != NULL && strcmp(how, "Removed") == 0 && invert;
    if (regex == NULL || (!isolated && !removed)) {
        return unknown("pre_tokenizer: a Split of another kind",
                       how != NULL ? how : "", e);
    }
    s->removed = s->removed || removed;
    buf_puts(&s->text, "split ");
    put_regex(&s->text, regex);
    buf_puts(&s->text, "\n");
    return 0;
}

static int add_bytes(const struct json *j, struct steps *s, struct err *e)
{
    const struct json *prefix = json_get(j, "add_prefix_space");
    const struct json *regex = json_get(j, "use_regex");
    if (prefix == NULL || json_bool(prefix)) { /* the default is true */
        return unknown("pre_tokenizer", "ByteLevel with add_prefix_space", e);
    }
    s->bytes = true;
    buf_puts(&s->text, regex == NULL || json_bool(regex) ? SPLIT(GPT2) : "");
    return 0;
}

static int add_step(const struct json *j, struct steps *s, struct err *e)
{
    const char *type = type_of(j);
    if (s->bytes) {
        return unknown("pre_tokenizer", "a step behind ByteLevel", e);
    }
    if (strcmp(type, "Split") == 0) {
        return add_split(j, s, e);
    }
    if (strcmp(type, "ByteLevel") == 0) {
        return add_bytes(j, s, e);
    }
    if (strcmp(type, "Digits") == 0) {
        buf_puts(&s->text, json_bool(json_get(j, "individual_digits"))
                               ? SPLIT("\\p{N}")
                               : SPLIT("\\p{N}+"));
        return 0;
    }
    return unknown("pre_tokenizer", type, e);
}

static int read_steps(const struct json *pre, struct steps *s, struct err *e)
{
    if (strcmp(type_of(pre), "Sequence") != 0) {
        return add_step(pre, s, e);
    }
    for (const struct json *c = json_first(json_get(pre, "pretokenizers"));
         c != NULL; c = json_next(c)) {
        RETERR(add_step(c, s, e));
    }
    return 0;
}

static int read_normalizer(const struct json *j, struct steps *s,
                           struct err *e)
{
    if (j == NULL || json_type(j) == JSON_NULL) {
        return 0;
    }
    if (strcmp(type_of(j), "NFC") == 0) {
        s->nfc = true;
        return 0;
    }
    if (strcmp(type_of(j), "Sequence") != 0) {
        return unknown("normalizer", type_of(j), e);
    }
    for (const struct json *c = json_first(json_get(j, "normalizers"));
         c != NULL; c = json_next(c)) {
        if (strcmp(type_of(c), "NFC") != 0) {
            return unknown("normalizer", type_of(c), e);
        }
        s->nfc = true;
    }
    return 0;
}

/* --- the table --- */

#define ENDINGS  "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL     "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define WORD     "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define OTHERS   "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
#define WORDS(n) ENDINGS "|" WORD n OTHERS TAIL
#define UPPER    "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define CASED(not, end)                                           \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER not "]*" LOWER not "]+" end    \
    "|[^\\r\\n\\p{L}\\p{N}]?" UPPER not "]+" LOWER not "]*" end "|"
#define SYMBOLS  " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" TAIL
#define O200K    CASED("", ENDINGS "?") "\\p{N}{1,3}|" SYMBOLS
#define NO_HAN   "&&[^\\p{Han}]"
#define HAN_KANA                                                   \
    "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82" \
    "\xA0-\xE3\x83\xBF]+"
#define PUNCT                                                 \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|" \
    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
#define MARKS    " ?[\\p{P}\\p{S}]+[\\r\\n]*|" TAIL
#define ASIAN                                                                 \
    "[\xE4\xB8\x80-\xE9\xBF\xBF\xE3\x90\x80-\xE4\xB6\xBF\xEF\xA4\x80-\xEF"   \
    "\xAB\xBF\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF\xEF\xBD\xA5" \
    "-\xEF\xBE\x9F\xE2\xBC\x80-\xE2\xBF\x9F\xE0\xB9\x80-\xE0\xB9\xBF\xE0"    \
    "\xBA\x80-\xE0\xBB\xBF\xE1\x9E\x80-\xE1\x9F\xBF\xE1\x80\x80-\xE1\x82"    \
    "\x9F\xEA\xA9\xA0-\xEA\xA9\xBF\xEA\xA7\xA0-\xEA\xA7\xBF\xEA\xB0\x80-"    \
    "\xED\x9E\xAF\xE1\x84\x80-\xE1\x87\xBF]+"

/* plain and whole: names of tokenizer.ggml.pre, without and with ignore_merges;
 * nfc: text is composed first. NULL: no room has that. matches_all: the pattern
 * leaves no gaps. */
static const struct {
    const char *steps;
    const char *plain, *whole, *nfc;
    bool matches_all;
} rows[] = {
    {SPLIT(GPT2), "gpt-2", NULL, NULL, true},
    {SPLIT("\\p{N}") SPLIT(GPT2), "refact", NULL, NULL, false},
    {SPLIT(WORDS("\\p{N}{1,3}")), "dbrx", "llama-bpe", NULL, true},
    {SPLIT(WORDS("\\p{N}")), "stablelm2", NULL, "qwen2", true},
    {SPLIT(ENDINGS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
                   "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" TAIL),
     NULL, NULL, "qwen35", true},
    {SPLIT(O200K), "gpt-4o", "granite-embed-multi-97m", NULL, true},
    {SPLIT(CASED("", "") "\\p{N}|" SYMBOLS), NULL, "tekken", NULL, true},
    {SPLIT("\\p{N}{1,3}") SPLIT(HAN_KANA) SPLIT(PUNCT MARKS), "deepseek-v3",
     NULL, NULL, false},
    {SPLIT("\\p{N}{1,3}") SPLIT(WORDS("\\p{N}+")), NULL, "minicpm5", NULL,
     false},
    {SPLIT("\\p{N}{1,3}") SPLIT(HAN_KANA)
         SPLIT(PUNCT " ?[\\p{P}\\p{S}]+|[\\r\\n]|\\s+(?!\\S)|\\s+")
             SPLIT("\\p{N}"),
     "spark2_5", NULL, NULL, false},
    {SPLIT("\\d{1,3}(?=(?:\\d{3})*\\b)") SPLIT(O200K), "tiny_aya", NULL, NULL,
     false},
    {SPLIT("\\p{N}+") SPLIT("\\d{1,3}(?=(?:\\d{3})*(?!\\d))"), "superbpe",
     NULL, NULL, false},
    {SPLIT("[\\p{Han}]+|" CASED(NO_HAN, ENDINGS "?") "\\p{N}{1,3}" OTHERS
           TAIL),
     "kimi-k2", NULL, NULL, true},
    {SPLIT("\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))") SPLIT(ASIAN)
         SPLIT(PUNCT MARKS),
     "afmoe", NULL, NULL, false},
    {SPLIT("[^\\n]+|[\\n]+") SPLIT(WORDS("\\p{N}")), "laguna", NULL, NULL,
     false},
    {SPLIT(WORD "\\p{N}" OTHERS TAIL), "ufakzeka", NULL, NULL, true},
    {SPLIT(ENDINGS "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)"
                   "*)+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|"
                   "\\s+(?!\\S)|\\s+"),
     "exaone-moe", NULL, NULL, true},
};

static int look_up(const struct steps *s, bool whole, const char **ret,
                   struct err *e)
{
    for (size_t i = 0; i < countof(rows); i++) {
        if (strlen(rows[i].steps) != s->text.n ||
            memcmp(rows[i].steps, s->text.p, s->text.n) != 0) {
            continue;
        }
        *ret = s->nfc   ? (whole ? NULL : rows[i].nfc)
               : whole  ? rows[i].whole
                        : rows[i].plain;
        if (s->removed && !rows[i].matches_all) {
            return unknown("pre_tokenizer", "behavior Removed", e);
        }
        if (*ret == NULL) {
            return err_set(e, ERR_TOKENIZER,
                           WHERE "this pre_tokenizer with normalizer %s and "
                                 "ignore_merges %s is nothing that aned's "
                                 "tokenizers do",
                           s->nfc ? "NFC" : "null", whole ? "true" : "false");
        }
        return 0;
    }
    return unknown("pre_tokenizer", s->text.p != NULL ? s->text.p : "", e);
}

int hf_pre_of(const struct json *tokenizer, const char **ret, struct err *e)
{
    struct steps s = {.bytes = false};
    bool whole =
        json_bool(json_get(json_get(tokenizer, "model"), "ignore_merges"));
    int rc = 0;
    buf_init(&s.text, HF_CONFIG_MAX);
    CHECK(read_normalizer(json_get(tokenizer, "normalizer"), &s, e));
    CHECK(read_steps(json_get(tokenizer, "pre_tokenizer"), &s, e));
    if (!s.bytes) {
        rc = unknown("pre_tokenizer", "no ByteLevel at its end", e);
        goto out;
    }
    if (!buf_ok(&s.text)) {
        rc = err_set(e, ERR_TOKENIZER, WHERE "pre_tokenizer is too long");
        goto out;
    }
    CHECK(look_up(&s, whole, ret, e));
out:
    buf_fini(&s.text);
    return rc;
}

/* --- byte fallback --- */

#define SPACE "\xE2\x96\x81" /* U+2581 */

static bool is_text(const struct json *j, const char *want)
{
    const char *s = json_str(j);
    return s != NULL && strcmp(s, want) == 0;
}

static bool is_replace(const struct json *j)
{
    return strcmp(type_of(j), "Replace") == 0 &&
           is_text(json_get(json_get(j, "pattern"), "String"), " ") &&
           is_text(json_get(j, "content"), SPACE);
}

int hf_spaces_of(const struct json *tokenizer, bool *ret_prefix,
                 struct err *e)
{
    const struct json *n = hf_get(tokenizer, "normalizer");
    const struct json *pre = hf_get(tokenizer, "pre_tokenizer");
    bool replaces = is_replace(n);
    *ret_prefix = false;
    if (pre != NULL) {
        return unknown("pre_tokenizer of a vocabulary with byte fallback",
                       type_of(pre), e);
    }
    if (!replaces && strcmp(type_of(n), "Sequence") != 0) {
        return unknown("normalizer", type_of(n), e);
    }
    for (const struct json *c = json_first(json_get(n, "normalizers"));
         c != NULL; c = json_next(c)) {
        bool prefix = strcmp(type_of(c), "Prepend") == 0 &&
                      is_text(json_get(c, "prepend"), SPACE);
        if (!prefix && !is_replace(c)) {
            return unknown("normalizer", type_of(c), e);
        }
        replaces = replaces || !prefix;
        *ret_prefix = *ret_prefix || prefix;
    }
    return replaces ? 0 : unknown("normalizer", "spaces stay as they are", e);
}
