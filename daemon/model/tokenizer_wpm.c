/* tokenizer_wpm.c - WordPiece ("bert"): text is cleaned, lowered and stripped of
 * accents where the file says so or the vocabulary is so, cut at white space, punctuation and Chinese
 * characters; of a word the longest beginning that is a token, again and again.
 *
 * A token that begins a word is written with U+2581 in front, as llama.cpp's
 * converter does it; one that continues a word without. A word with a part that
 * is no token, or of more than WORD_CHARS characters, is one unknown token.
 *
 * The rules are those of the tokenizers library (BertNormalizer,
 * BertPreTokenizer); its tables are of an older Unicode, so characters newer than
 * that may be classed otherwise here.
 */
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "model/tokenizer_impl.h"

#define WORD_CHARS 100u /* the library's own */

/* --- characters --- */

static bool in_range(int32_t c, int32_t first, int32_t last)
{
    return c >= first && c <= last;
}

/* As the library has them: 2B820 to 2B91F are left out. */
static bool is_chinese(int32_t c)
{
    return in_range(c, 0x4E00, 0x9FFF) || in_range(c, 0x3400, 0x4DBF) ||
           in_range(c, 0xF900, 0xFAFF) || in_range(c, 0x20000, 0x2A6DF) ||
           in_range(c, 0x2A700, 0x2B81F) || in_range(c, 0x2B920, 0x2CEAF) ||
           in_range(c, 0x2F800, 0x2FA1F);
}

static bool is_space(int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return c == '\t' || c == '\n' || c == '\r' || k == UTF8PROC_CATEGORY_ZS ||
           k == UTF8PROC_CATEGORY_ZL || k == UTF8PROC_CATEGORY_ZP;
}

/* What is in no text: control and format characters, private ones, U+FFFD. */
static bool is_dropped(int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return c == 0xFFFD || k == UTF8PROC_CATEGORY_CC ||
           k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO;
}

static bool is_punctuation(int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    bool ascii = in_range(c, '!', '/') || in_range(c, ':', '@') ||
                 in_range(c, '[', '`') || in_range(c, '{', '~');
    return ascii || (k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO);
}

/* --- words --- */

/* The longest beginning of p[0..n) that is a token of running text; its bytes
 * in *ret_n. */
static int32_t longest(const struct tokenizer *t, const char *p, size_t n,
                       size_t *ret_n)
{
    size_t k = n < t->longest ? n : t->longest;
    for (; k > 0; k--) {
        bool cuts = k < n && ((unsigned char)p[k] & 0xC0) == 0x80;
        int32_t id = cuts ? TOKEN_NONE : text_map_get(t, p, k);
        if (id != TOKEN_NONE && t->tokens[id].type == TOKEN_NORMAL) {
            *ret_n = k;
            return id;
        }
    }
    return TOKEN_NONE;
}

/* encode_word_fn; p begins with U+2581. Where a part is no token, what was found
 * before it does not count. */
static int encode_word(struct encoder *c, const char *p, size_t n,
                       struct err *e)
{
    const size_t mark = sizeof(SPM_SPACE) - 1;
    size_t before = c->n_ids;
    size_t chars = 0;
    for (size_t i = mark; i < n; i++) {
        chars += ((unsigned char)p[i] & 0xC0) != 0x80;
    }
    bool known = chars <= WORD_CHARS;
    for (size_t i = 0; i < n && known;) {
        size_t k = 0;
        /* a text's own U+2581 is no beginning of a word */
        bool marked = i > 0 && n - i >= mark &&
                      memcmp(p + i, SPM_SPACE, mark) == 0;
        int32_t id = marked ? TOKEN_NONE : longest(c->t, p + i, n - i, &k);
        known = id != TOKEN_NONE && (i > 0 || k > mark);
        if (known) {
            RETERR(encoder_emit(c, id, e));
        }
        i += k;
    }
    if (known) {
        return 0;
    }
    c->n_ids = before;
    return c->t->unk == TOKEN_NONE ? 0 : encoder_emit(c, c->t->unk, e);
}

/* The word in c->text, if there is one; then it is empty. */
static int end_word(struct encoder *c, struct err *e)
{
    int rc = 0;
    if (c->text.n > sizeof(SPM_SPACE) - 1) {
        rc = encoder_word(c, c->text.p, c->text.n, encode_word, e);
    }
    buf_clear(&c->text);
    return rc;
}

static int put_char(struct encoder *c, int32_t ch, struct err *e)
{
    utf8proc_uint8_t bytes[4];
    bool alone = is_punctuation(ch);
    utf8proc_ssize_t n = utf8proc_encode_char(ch, bytes);
    if (alone) {
        RETERR(end_word(c, e));
    }
    if (c->text.n == 0) {
        buf_puts(&c->text, SPM_SPACE);
    }
    buf_put(&c->text, bytes, (size_t)n);
    if (!buf_ok(&c->text)) {
        return err_set(e, ERR_TOO_BIG, "the text");
    }
    return alone ? end_word(c, e) : 0;
}

/* What a small letter is: one character, but of U+0130. */
static int put_small(struct encoder *c, int32_t ch, struct err *e)
{
    if (ch == 0x130) {
        RETERR(put_char(c, 'i', e));
        return put_char(c, 0x307, e);
    }
    return put_char(c, utf8proc_tolower(ch), e);
}

/* Without its accents, and lowered where text is. */
static int put_plain(struct encoder *c, int32_t ch, struct err *e)
{
    enum { PARTS_MAX = 32 }; /* of a character; the longest has 4 */
    utf8proc_int32_t part[PARTS_MAX];
    int last = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char(
        ch, part, PARTS_MAX, UTF8PROC_DECOMPOSE, &last);
    if (n < 0 || n > PARTS_MAX) {
        return put_char(c, ch, e);
    }
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        if (utf8proc_category(part[i]) != UTF8PROC_CATEGORY_MN) {
            RETERR(put_char(c, c->t->lowers ? utf8proc_tolower(part[i])
                                            : part[i], e));
        }
    }
    return 0;
}

static int put_text_char(struct encoder *c, int32_t ch, struct err *e)
{
    bool alone = is_chinese(ch);
    if (is_space(ch)) {
        return end_word(c, e);
    }
    if (is_dropped(ch)) {
        return 0;
    }
    if (alone) {
        RETERR(end_word(c, e));
    }
    RETERR(c->t->strips   ? put_plain(c, ch, e)
           : c->t->lowers ? put_small(c, ch, e)
                          : put_char(c, ch, e));
    return alone ? end_word(c, e) : 0;
}

int wpm_fragment(struct encoder *c, const char *p, size_t n, struct err *e)
{
    buf_clear(&c->text);
    for (size_t i = 0; i < n;) {
        size_t len = utf8_len(p + i, n - i);
        utf8proc_int32_t ch = 0xFFFD; /* a byte that is no character */
        if (len > 0) {
            must(utf8proc_iterate((const utf8proc_uint8_t *)p + i,
                                  (utf8proc_ssize_t)len, &ch) > 0);
        }
        RETERR(put_text_char(c, ch, e));
        i += len > 0 ? len : 1;
    }
    return end_word(c, e);
}

/* A vocabulary without capitals is of lowered text, which has no accents
 * either; a GGUF of other converters does not say it. */
bool wpm_lowers(const struct tokenizer *t)
{
    for (int32_t id = 0; id < t->n_vocab; id++) {
        struct span s = token_text(t, id);
        bool text = t->tokens[id].type == TOKEN_NORMAL;
        for (size_t i = 0; i < s.n && text; i++) {
            if (s.p[i] >= 'A' && s.p[i] <= 'Z') {
                return false;
            }
        }
    }
    return true;
}
