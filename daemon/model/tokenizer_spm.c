/* tokenizer_spm.c - SentencePiece-style BPE ("llama"): spaces become U+2581,
 * characters merge while the two together are a token, the one with the
 * highest score first; what is no token falls apart into byte tokens.
 *
 * The whole fragment is one word. But hardly any token has a U+2581 after
 * another character (Llama: none, Gemma: one), and no merge reaches over a
 * place that no token spans: there the fragment is cut into words.
 */
#include <string.h>

#include "model/tokenizer_impl.h"
#include "base/utf8.h"

/* Control tokens and byte tokens never come out of plain text. */
static int32_t find_piece(const struct tokenizer *t, const char *p, size_t n)
{
    int32_t id = text_map_get(t, p, n);
    if (id == TOKEN_NONE) {
        return TOKEN_NONE;
    }
    uint8_t type = t->tokens[id].type;
    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN || type == TOKEN_BYTE
               ? TOKEN_NONE
               : id;
}

static struct cand pair_by_score(const struct encoder *c, const struct sym *l,
                                 const struct sym *r)
{
    size_t n = (size_t)l->n + r->n;
    int32_t id =
        n > c->t->longest ? TOKEN_NONE : find_piece(c->t, c->word + l->at, n);
    if (id == TOKEN_NONE) {
        return (struct cand){CAND_NONE, TOKEN_NONE};
    }
    return (struct cand){c->t->tokens[id].key, id};
}

static int emit_bytes(struct encoder *c, const char *p, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        int32_t id = c->t->byte_id[(uint8_t)p[i]];
        if (id == TOKEN_NONE) {
            id = c->t->unk;
        }
        if (id != TOKEN_NONE) {
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
    size_t n_syms = 0;
    RETERR(encoder_syms(c, n, e));
    for (size_t i = 0; i < n;) {
        size_t len = 0;
        if (utf8_seq(p + i, n - i, &len) != UTF8_OK) {
            len = 1; /* becomes a byte token */
        }
        c->syms[n_syms++] = (struct sym){.id = find_piece(c->t, p + i, len),
                                         .at = (uint32_t)i,
                                         .n = (uint32_t)len};
        i += len;
    }
    c->word = p;
    RETERR(merge_run(c, n_syms, pair_by_score, e));
    for (int32_t i = 0; i >= 0; i = c->syms[i].next) {
        const struct sym *s = &c->syms[i];
        if (s->id != TOKEN_NONE) {
            RETERR(encoder_emit(c, s->id, e));
        } else {
            RETERR(emit_bytes(c, p + s->at, s->n, e));
        }
    }
    return 0;
}

size_t spm_word_end(const struct tokenizer *t, const char *p, size_t n,
                    size_t at)
{
    size_t i = at;
    while (n - i >= 3 && memcmp(p + i, SPM_SPACE, 3) == 0) {
        i += 3;
    }
    while (i < n) {
        const char *space = memmem(p + i, n - i, SPM_SPACE, 3);
        if (space == NULL) {
            break;
        }
        size_t end = (size_t)(space - p);
        bool run = end >= at + 3 && memcmp(space - 3, SPM_SPACE, 3) == 0;
        if (!run && end > at && !t->joins[(unsigned char)space[-1]]) {
            return end;
        }
        i = end + 3;
    }
    return n;
}

int spm_fragment(struct encoder *c, const char *p, size_t n, bool prefix,
                 struct err *e)
{
    struct buf *b = &c->text;
    buf_clear(b);
    if (prefix) {
        buf_puts(b, SPM_SPACE);
    }
    for (size_t i = 0; i < n;) {
        const char *space = memchr(p + i, ' ', n - i);
        size_t end = space != NULL ? (size_t)(space - p) : n;
        buf_put(b, p + i, end - i);
        if (space != NULL) {
            buf_puts(b, SPM_SPACE);
        }
        i = end + 1;
    }
    if (!buf_ok(b)) {
        return err_set(e, ERR_TOO_BIG, "the text");
    }
    for (size_t at = 0; at < b->n;) {
        size_t end = spm_word_end(c->t, b->p, b->n, at);
        RETERR(encoder_word(c, b->p + at, end - at, encode_word, e));
        at = end;
    }
    return 0;
}
