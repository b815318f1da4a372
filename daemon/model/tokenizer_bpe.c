/* tokenizer_bpe.c - BPE by rank ("gpt2", "gemma4"): a fragment is split into
 * words by the model's patterns, a word into bytes, and bytes merge by rank.
 *
 * The vocabulary writes bytes as printable characters: the printable bytes of
 * Latin-1 are themselves, the other bytes are U+0100, U+0101, ... in order.
 * Merging works on ids, so this form matters only when a vocabulary is loaded
 * and when a whole word is looked up.
 *
 * A raw vocabulary (PRE_RAW) writes text as it is, but for spaces: its words
 * are split into characters.
 */
#include <string.h>
#include <utf8proc.h>

#include "model/tokenizer_impl.h"
#include "base/utf8.h"

/* Latin-1 characters that stand for their own byte. */
static bool stands_for_itself(unsigned b)
{
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
}

/* The character of a byte: itself, or 0x100 + its index among the bytes that do
 * not stand for themselves (0x00-0x20, 0x7F-0xA0, 0xAD). */
static unsigned char_of_byte(unsigned b)
{
    if (stands_for_itself(b)) {
        return b;
    }
    if (b <= 0x20) {
        return 0x100 + b;
    }
    return b == 0xAD ? 0x143 : 0x121 + (b - 0x7F);
}

/* The byte of a character; -1 when it stands for none. */
static int byte_of_char(unsigned ch)
{
    if (ch < 0x100) {
        return stands_for_itself(ch) ? (int)ch : -1;
    }
    if (ch <= 0x120) {
        return (int)(ch - 0x100);
    }
    if (ch <= 0x142) {
        return (int)(ch - 0x121 + 0x7F);
    }
    return ch == 0x143 ? 0xAD : -1;
}

size_t bpe_char_bytes(uint8_t byte, char out[2])
{
    return utf8_put(out, char_of_byte(byte)); /* all are below U+0800 */
}

void bpe_decode(struct span text, struct buf *out)
{
    size_t len = 0;
    for (size_t i = 0; i < text.n; i += len) {
        const unsigned char *p = (const unsigned char *)text.p + i;
        enum utf8_kind k = utf8_seq(text.p + i, text.n - i, &len);
        int byte = -1;
        if (k == UTF8_OK && len == 1) {
            byte = byte_of_char(p[0]);
        } else if (k == UTF8_OK && len == 2) {
            byte = byte_of_char((p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu));
        }
        if (byte >= 0) {
            buf_u8(out, (uint8_t)byte);
        } else {
            buf_put(out, text.p + i, len);
        }
    }
}

static struct cand pair_by_rank(const struct encoder *c, const struct sym *l,
                                const struct sym *r)
{
    const struct merge_slot *m = merge_map_get(&c->t->merges, l->id, r->id);
    if (m == NULL) {
        return (struct cand){CAND_NONE, TOKEN_NONE};
    }
    return (struct cand){m->rank, m->id};
}

/* Some models (llama 3) take a word that is a token whole, whatever its
 * merges would give. */
static int32_t whole_word(const struct tokenizer *t, const char *p, size_t n)
{
    char text[TOKEN_BYTES_MAX];
    size_t at = 0;
    for (size_t i = 0; i < n && !t->raw; i++) {
        if (at + 2 > sizeof(text) || at >= t->longest) {
            return TOKEN_NONE;
        }
        at += bpe_char_bytes((uint8_t)p[i], text + at);
    }
    int32_t id = t->raw ? text_map_get(t, p, n) : text_map_get(t, text, at);
    return id < t->n_vocab ? id : TOKEN_NONE;
}

/* The symbols that a word begins as; how many. There is room for n. */
static size_t first_symbols(struct encoder *c, const char *p, size_t n)
{
    size_t n_syms = 0;
    for (size_t i = 0, len = 1; i < n; i += len) {
        int32_t id = c->t->byte_id[(uint8_t)p[i]];
        if (c->t->raw) {
            must(utf8_seq(p + i, n - i, &len) == UTF8_OK); /* repaired */
            id = text_map_get(c->t, p + i, len);
        }
        c->syms[n_syms++] =
            (struct sym){.id = id, .at = (uint32_t)i, .n = (uint32_t)len};
    }
    return n_syms;
}

/* A part of merges that is no token itself falls apart into its bytes; bytes
 * the vocabulary lacks are lost, as in the reference. */
static int emit_bytes(struct encoder *c, const char *p, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        int32_t id = c->t->byte_id[(uint8_t)p[i]];
        if (id != TOKEN_NONE && id < c->t->n_vocab) {
            int rc = encoder_emit(c, id, e);
            if (rc < 0) {
                return rc;
            }
        }
    }
    return 0;
}

static int encode_word(struct encoder *c, const char *p, size_t n,
                       struct err *e)
{
    /* A raw word of line feeds is one token where there is such a one, as in
     * llama.cpp. */
    if (pre_has(c->t->pre, PRE_WHOLE) || (c->t->raw && p[0] == '\n')) {
        int32_t id = whole_word(c->t, p, n);
        if (id != TOKEN_NONE) {
            return encoder_emit(c, id, e);
        }
    }
    RETERR(encoder_syms(c, n, e));
    RETERR(merge_run(c, first_symbols(c, p, n), pair_by_rank, e));
    for (int32_t i = 0; i >= 0; i = c->syms[i].next) {
        const struct sym *s = &c->syms[i];
        if (s->id != TOKEN_NONE && s->id < c->t->n_vocab) {
            RETERR(encoder_emit(c, s->id, e));
        } else {
            RETERR(emit_bytes(c, p + s->at, s->n, e));
        }
    }
    return 0;
}

/* Every byte that is not UTF-8 becomes U+FFFD, as in the reference; every space
 * of a raw vocabulary U+2581, which may stand in front too. */
static bool rewrite(struct buf *out, const char *p, size_t n, bool raw,
                    bool prefix)
{
    size_t len = 0;
    buf_clear(out);
    if (prefix) {
        buf_puts(out, SPM_SPACE);
    }
    for (size_t i = 0; i < n; i += len) {
        if (utf8_seq(p + i, n - i, &len) != UTF8_OK) {
            len = 1;
            buf_puts(out, UTF8_REPLACEMENT);
        } else if (raw && p[i] == ' ') {
            buf_puts(out, SPM_SPACE);
        } else {
            buf_put(out, p + i, len);
        }
    }
    return buf_ok(out);
}

/* Below U+0300 every string is already NFC. */
static bool may_change_in_nfc(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)p[i] >= 0xCC) {
            return true;
        }
    }
    return false;
}

static int to_nfc(struct buf *out, const char *p, size_t n, struct err *e)
{
    utf8proc_uint8_t *nfc = NULL;
    utf8proc_ssize_t len =
        utf8proc_map((const utf8proc_uint8_t *)p, (utf8proc_ssize_t)n, &nfc,
                     (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (len < 0) {
        return err_set(e, ERR_NOMEM, "normalising: %s", utf8proc_errmsg(len));
    }
    /* p may lie in out */
    buf_clear(out);
    buf_put(out, nfc, (size_t)len);
    free(nfc);
    return buf_ok(out) ? 0 : err_set(e, ERR_TOO_BIG, "the text");
}

int bpe_fragment(struct encoder *c, const char *p, size_t n, bool prefix,
                 struct err *e)
{
    int which = 0;
    if (c->t->raw || !utf8_valid(p, n)) {
        if (!rewrite(&c->text, p, n, c->t->raw, prefix)) {
            return err_set(e, ERR_TOO_BIG, "the text");
        }
        p = c->text.p;
        n = c->text.n;
    }
    if (pre_has(c->t->pre, PRE_NFC) && may_change_in_nfc(p, n)) {
        RETERR(to_nfc(&c->text, p, n, e));
        p = c->text.p;
        n = c->text.n;
    }
    RETERR(pre_split(c, p, n, &which, e));
    uint32_t at = 0;
    for (size_t i = 0; i < c->n_ends[which]; i++) {
        uint32_t end = c->ends[which][i];
        RETERR(encoder_word(c, p + at, end - at, encode_word, e));
        at = end;
    }
    return 0;
}
