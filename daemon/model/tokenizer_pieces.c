/* tokenizer_pieces.c - the text of each token in running text, and the special
 * tokens that are found in text.
 */
#include <string.h>
#include <strings.h>

#include "model/tokenizer_impl.h"

/* Note the bytes that have a U+2581 after them inside a token. */
static void note_joins(struct tokenizer *t, struct span s)
{
    for (size_t i = 1; i + 3 <= s.n; i++) {
        bool run = i >= 3 && memcmp(s.p + i - 3, SPM_SPACE, 3) == 0;
        if (memcmp(s.p + i, SPM_SPACE, 3) == 0 && !run) {
            t->joins[(unsigned char)s.p[i - 1]] = true;
        }
    }
}

static void unescape(struct span s, struct buf *out)
{
    for (size_t i = 0; i < s.n;) {
        if (s.n - i >= 3 && memcmp(s.p + i, SPM_SPACE, 3) == 0) {
            buf_u8(out, ' ');
            i += 3;
        } else {
            buf_u8(out, (uint8_t)s.p[i]);
            i++;
        }
    }
}

static int hex(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The bytes of a token in running text, appended to out. */
static void make_piece(const struct tokenizer *t, int32_t id, struct span s,
                       struct buf *out)
{
    uint8_t type = t->tokens[id].type;
    if (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN || type == TOKEN_USER) {
        buf_put(out, s.p, s.n);
    } else if (t->kind == TOKENIZER_BPE && !t->raw) {
        bpe_decode(s, out);
    } else if (type == TOKEN_BYTE && s.n == 6 && hex(s.p[3]) >= 0 &&
               hex(s.p[4]) >= 0) {
        buf_u8(out, (uint8_t)(hex(s.p[3]) * 16 + hex(s.p[4])));
    } else {
        unescape(s, out);
    }
}

int tokenizer_pieces(struct tokenizer *t, struct err *e)
{
    struct buf piece;
    int rc = 0;
    buf_init(&piece, TOKEN_BYTES_MAX);
    for (int32_t id = 0; id < t->n_vocab; id++) {
        struct token *k = &t->tokens[id];
        struct span text = token_text(t, id);
        bool hidden = k->type == TOKEN_CONTROL || k->type == TOKEN_UNKNOWN;
        buf_clear(&piece);
        make_piece(t, id, text, &piece);
        must(buf_ok(&piece)); /* never longer than the text */
        if (!hidden && k->type != TOKEN_BYTE) {
            note_joins(t, text);
        }
        k->piece_n = (uint16_t)piece.n;
        k->piece_at = k->text_at;
        if (piece.n != text.n || memcmp(piece.p, text.p, text.n) != 0) {
            k->piece_at = (uint32_t)t->blob.n;
            buf_put(&t->blob, piece.p, piece.n);
        }
        if (!buf_ok(&t->blob)) {
            rc = tokenizer_too_much(e);
            goto out;
        }
    }
out:
    buf_fini(&piece);
    return rc;
}

int tokenizer_specials(struct tokenizer *t, struct err *e)
{
    for (int32_t id = 0; id < t->n_vocab; id++) {
        struct span text = token_text(t, id);
        if (tokenizer_is_special(t, id) && text.n > 0 &&
            text.n <= SPECIAL_TEXT_MAX && !trie_put(&t->special, text, id)) {
            return tokenizer_too_much(e);
        }
    }
    return 0;
}

/* Phi-3's special tokens swallow the white space after them. The file does
 * not say so; its name does. */
void tokenizer_habits(struct tokenizer *t, struct span name)
{
    static const char *const keep[] = {"<unk>", "<s>", "<|endoftext|>"};
    bool phi3 = false;
    for (size_t i = 0; i + 4 <= name.n; i++) {
        phi3 = phi3 || strncasecmp(name.p + i, "phi3", 4) == 0 ||
               (i + 5 <= name.n && strncasecmp(name.p + i, "phi-3", 5) == 0);
    }
    for (int32_t id = 0; phi3 && id < t->n_vocab; id++) {
        t->tokens[id].strip_right = tokenizer_is_special(t, id);
    }
    for (size_t i = 0; phi3 && i < countof(keep); i++) {
        int32_t id = tokenizer_find(t, keep[i], strlen(keep[i]));
        if (id != TOKEN_NONE) {
            t->tokens[id].strip_right = false;
        }
    }
}
