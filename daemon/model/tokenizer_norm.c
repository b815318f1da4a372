/* tokenizer_norm.c - texts of Unigram vocabularies before they are cut. Each
 * step of a tokenizer.json is what the `tokenizers` package does by that name, down
 * to its taking the table's shortest text and graphemes of fewer than six bytes
 * at once.
 */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/num.h"
#include "base/utf8.h"
#include "model/tokenizer_norm.h"
#include "source/gguf.h"

#define SPACE "\xE2\x96\x81" /* U+2581 */
#define MARK  '\x1F'

bool norm_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* --- steps --- */

static const struct {
    const char *name;
    enum norm_op op;
    unsigned n_args;
} names[] = {
    {"nfc",           NORM_NFC,      0},
    {"nfd",           NORM_NFD,      0},
    {"nfkc",          NORM_NFKC,     0},
    {"nfkd",          NORM_NFKD,     0},
    {"lowercase",     NORM_LOWER,    0},
    {"strip accents", NORM_ACCENTS,  0},
    {"nmt",           NORM_NMT,      0},
    {"table",         NORM_TABLE,    0},
    {"strip left",    NORM_LEFT,     0},
    {"strip right",   NORM_RIGHT,    0},
    {"prepend",       NORM_PREPEND,  1},
    {"replace",       NORM_REPLACE,  2},
    {"collapse",      NORM_COLLAPSE, 1},
};

static bool is(struct span s, const char *text)
{
    return s.n == strlen(text) && memcmp(s.p, text, s.n) == 0;
}

/* The part of *s before a mark; *s is what follows. */
static struct span cut_mark(struct span *s)
{
    const char *m = memchr(s->p, MARK, s->n);
    size_t n = m != NULL ? (size_t)(m - s->p) : s->n;
    struct span part = {s->p, n};
    n += m != NULL;
    *s = (struct span){s->p + n, s->n - n};
    return part;
}

static bool read_words(struct norm *m, struct span s)
{
    static const char *const spaces[] = {"space never", "space first",
                                         "space always"};
    for (unsigned i = 0; i < countof(spaces); i++) {
        if (is(s, spaces[i])) {
            m->space = i + 1;
            return true;
        }
    }
    m->split = m->split || is(s, "split");
    m->cut = m->cut || is(s, "cut");
    return is(s, "split") || is(s, "cut");
}

static int read_step(struct norm *m, struct span s, struct err *e)
{
    struct span rest = s;
    struct span name = cut_mark(&rest);
    for (size_t i = 0; i < countof(names); i++) {
        if (!is(name, names[i].name) || m->n_steps == NORM_STEPS_MAX) {
            continue;
        }
        struct norm_step *to = &m->step[m->n_steps++];
        to->op = names[i].op;
        to->a = names[i].n_args > 0 ? cut_mark(&rest) : to->a;
        to->b = names[i].n_args > 1 ? cut_mark(&rest) : to->b;
        bool good =
            utf8_valid(to->a.p, to->a.n) && utf8_valid(to->b.p, to->b.n);
        if (good && rest.n == 0 && (to->op != NORM_REPLACE || to->a.n > 0)) {
            return 0;
        }
    }
    return read_words(m, s) ? 0
                            : err_set(e, ERR_TOKENIZER,
                                      "the step '%.*s' of normalising a text",
                                      (int)num_min(s.n, 64), s.p);
}

static int read_steps(const struct gguf_kv *a, struct norm *m, struct err *e)
{
    uint64_t at = 0;
    m->text = malloc((size_t)a->bytes + 1);
    if (m->text == NULL) {
        return err_set(e, ERR_NOMEM, "the vocabulary");
    }
    char *to = m->text;
    for (uint64_t i = 0; i < a->count; i++) {
        struct span s = gguf_arr_str(a, &at);
        memcpy(to, s.p, s.n);
        RETERR(read_step(m, (struct span){to, s.n}, e));
        to += s.n;
    }
    return 0;
}

int norm_load(const struct gguf *g, struct norm *m, struct err *e)
{
    const char *key = "tokenizer.ggml.precompiled_charsmap";
    const struct gguf_kv *table = gguf_get_arr(g, key, GGUF_U8);
    table = table != NULL ? table : gguf_get_arr(g, key, GGUF_I8);
    if (table != NULL) {
        RETERR(charsmap_open(&m->map, table->p, (size_t)table->bytes, e));
    } else if (gguf_find(g, key) != NULL) {
        return err_set(e, ERR_GGUF_VALUE, "%s is no array of bytes", key);
    }
    const struct gguf_kv *steps =
        gguf_get_arr(g, "tokenizer.aned.steps", GGUF_STRING);
    m->steps_given = steps != NULL;
    return steps != NULL ? read_steps(steps, m, e) : 0;
}

void norm_fini(struct norm *m)
{
    charsmap_fini(&m->map);
    free(m->text);
    m->text = NULL;
}

/* --- characters --- */

/* The character at the beginning of s, which is not empty. */
static uint32_t char_at(struct span s, size_t *ret_len)
{
    must(utf8_seq(s.p, s.n, ret_len) == UTF8_OK); /* repaired before */
    return utf8_char(s.p, *ret_len);
}

static struct span after(struct span s, size_t n)
{
    return (struct span){s.p + n, s.n - n};
}

static void put_lower(struct buf *out, uint32_t c)
{
    char text[4];
    if (c == 0x130) { /* the one that becomes two */
        buf_puts(out, "i\xCC\x87");
        return;
    }
    buf_put(out, text,
            utf8_put(text, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c)));
}

static bool is_mark(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC ||
           k == UTF8PROC_CATEGORY_ME;
}

static bool is_control(uint32_t c)
{
    return (c >= 1 && c <= 8) || c == 0x0B || (c >= 0x0E && c <= 0x1F) ||
           c == 0x7F || c == 0x8F || c == 0x9F;
}

static bool is_like_space(uint32_t c)
{
    return c == 9 || c == 10 || c == 12 || c == 13 || c == 0x1680 ||
           (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 ||
           c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
}

static void each_char(enum norm_op op, struct span in, struct buf *out,
                      bool *moved)
{
    size_t len = 0;
    for (; in.n > 0; in = after(in, len)) {
        uint32_t c = char_at(in, &len);
        bool drop = (op == NORM_ACCENTS && is_mark(c)) ||
                    (op == NORM_NMT && is_control(c));
        if (drop) {
            *moved = *moved || out->n == 0;
            continue;
        }
        if (op == NORM_LOWER) {
            put_lower(out, c);
        } else if (op == NORM_NMT && is_like_space(c)) {
            buf_u8(out, ' ');
        } else {
            buf_put(out, in.p, len);
        }
    }
}

static bool compose(enum norm_op op, struct span in, struct buf *out)
{
    utf8proc_option_t how =
        UTF8PROC_STABLE |
        (op == NORM_NFC || op == NORM_NFKC ? UTF8PROC_COMPOSE
                                           : UTF8PROC_DECOMPOSE) |
        (op == NORM_NFKC || op == NORM_NFKD ? UTF8PROC_COMPAT : 0);
    utf8proc_uint8_t *text = NULL;
    utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)in.p,
                                      (utf8proc_ssize_t)in.n, &text, how);
    if (n < 0) {
        return false;
    }
    buf_put(out, text, (size_t)n);
    free(text);
    return true;
}

/* --- the table --- */

static size_t grapheme(struct span in)
{
    utf8proc_int32_t state = 0;
    size_t len = 0;
    uint32_t before = char_at(in, &len);
    for (size_t more = 0; len < in.n; len += more) {
        uint32_t c = char_at(after(in, len), &more);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)before,
                                             (utf8proc_int32_t)c, &state)) {
            break;
        }
        before = c;
    }
    return len;
}

static void through_table(const struct charsmap *m, struct span in,
                          struct buf *out, bool *moved)
{
    struct span by;
    while (in.n > 0) {
        size_t n = grapheme(in);
        if (n < 6 && charsmap_find(m, in.p, n, false, &by) > 0) {
            *moved = *moved || out->n + by.n == 0;
            buf_put(out, by.p, by.n);
            in = after(in, n);
            continue;
        }
        for (size_t len = 0; n > 0; n -= len, in = after(in, len)) {
            (void)char_at(in, &len);
            if (charsmap_find(m, in.p, len, false, &by) > 0) {
                *moved = *moved || out->n + by.n == 0;
                buf_put(out, by.p, by.n);
            } else {
                buf_put(out, in.p, len);
            }
        }
    }
}

/* --- spaces --- */

static size_t spaces_before(struct span in)
{
    size_t n = 0;
    for (size_t len = 0; n < in.n && norm_is_space(char_at(after(in, n), &len));
         n += len) {
    }
    return n;
}

static size_t without_spaces_behind(struct span in)
{
    size_t end = 0;
    size_t len = 0;
    for (size_t i = 0; i < in.n; i += len) {
        end = norm_is_space(char_at(after(in, i), &len)) ? end : i + len;
    }
    return end;
}

static void replace(struct span in, struct span from, struct span to,
                    struct buf *out)
{
    for (;;) {
        const char *p = memmem(in.p, in.n, from.p, from.n);
        size_t n = p != NULL ? (size_t)(p - in.p) : in.n;
        buf_put(out, in.p, n);
        if (p == NULL) {
            return;
        }
        buf_put(out, to.p, to.n);
        in = after(in, n + from.n);
    }
}

static void collapse(struct span in, struct span to, struct buf *out)
{
    for (size_t i = 0; i < in.n;) {
        size_t n = 0;
        while (i + n < in.n && in.p[i + n] == ' ') {
            n++;
        }
        if (n > 1) {
            buf_put(out, to.p, to.n);
        } else {
            buf_u8(out, (uint8_t)in.p[i]);
        }
        i += n > 1 ? n : 1;
    }
}

bool norm_step_run(const struct norm *m, const struct norm_step *s,
                   struct span in, struct buf *out, bool *moved)
{
    bool ok = true;
    buf_clear(out);
    switch (s->op) {
    case NORM_NFC:
    case NORM_NFD:
    case NORM_NFKC:
    case NORM_NFKD:
        ok = compose(s->op, in, out);
        break;
    case NORM_LOWER:
    case NORM_ACCENTS:
    case NORM_NMT:
        each_char(s->op, in, out, moved);
        break;
    case NORM_TABLE:
        through_table(&m->map, in, out, moved);
        break;
    case NORM_LEFT:
        *moved = *moved || spaces_before(in) > 0;
        in = after(in, spaces_before(in));
        buf_put(out, in.p, in.n);
        break;
    case NORM_RIGHT:
        buf_put(out, in.p, without_spaces_behind(in));
        break;
    case NORM_PREPEND:
        buf_put(out, s->a.p, in.n > 0 ? s->a.n : 0);
        buf_put(out, in.p, in.n);
        break;
    case NORM_REPLACE:
        replace(in, s->a, s->b, out);
        break;
    case NORM_COLLAPSE:
        collapse(in, s->a, out);
        break;
    }
    return ok && buf_ok(out);
}

/* --- SentencePiece's way --- */

/* What stands for the text at the beginning of in: by the table, else a
 * character as it is. Returns the bytes it took. */
static size_t next_piece(const struct norm *m, struct span in, struct span *ret)
{
    size_t n = charsmap_find(&m->map, in.p, in.n, true, ret);
    if (n == 0) {
        (void)char_at(in, &n);
        *ret = (struct span){in.p, n};
    }
    return n;
}

static void put_spaces(struct span s, struct buf *out)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == ' ') {
            buf_puts(out, SPACE);
        } else {
            buf_u8(out, (uint8_t)s.p[i]);
        }
    }
}

static bool ends_in_space(const struct buf *b)
{
    return b->n >= 3 && memcmp(b->p + b->n - 3, SPACE, 3) == 0;
}

bool norm_pieces(const struct norm *m, struct span in, bool begins, bool ends,
                 struct buf *out)
{
    struct span piece;
    bool space = begins && m->merge; /* one before: more are left out */
    size_t n = 0;
    buf_clear(out);
    for (; space && in.n > 0; in = after(in, n)) {
        n = next_piece(m, in, &piece);
        if (!is(piece, " ")) {
            break;
        }
    }
    if (begins && m->prefix && in.n > 0) {
        buf_puts(out, SPACE);
    }
    for (; in.n > 0; in = after(in, n)) {
        n = next_piece(m, in, &piece);
        while (space && piece.n > 0 && piece.p[0] == ' ') {
            piece = after(piece, 1);
        }
        put_spaces(piece, out);
        space = m->merge &&
                (piece.n > 0 ? piece.p[piece.n - 1] == ' ' : space);
    }
    while (m->merge && ends && ends_in_space(out)) {
        out->n -= 3;
    }
    return buf_ok(out);
}
