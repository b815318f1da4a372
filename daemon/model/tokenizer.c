/* tokenizer.c - the public calls, and what a text goes through:
 *
 *   text --special tokens--> fragments --kind--> words --merges--> ids
 *
 * Special tokens are found first, leftmost and then longest: user-defined ones
 * always, control tokens only where the caller trusts the text.
 */
#include "model/tokenizer.h"

#include <string.h>

#include "base/file.h"
#include "base/utf8.h"
#include "model/tokenizer_impl.h"
#include "model/tokenizer_norm.h"
#include "source/gguf.h"

/* A vocabulary on its way from a file. */
struct opening {
    const struct gguf *g;
    struct tokenizer *t; /* whole only when `load` has succeeded */
};

/* Kinds that aned has not are refused by name before their vocabulary is
 * looked at. */
static int load(void *ctx, struct err *e)
{
    const struct opening *o = ctx;
    RETERR(tokenizer_load(o->g, o->t, e));
    RETERR(gguf_check_vocab(o->g, NULL, e));
    /* a file cut within its last page was read as zeros */
    return gguf_check_unchanged(o->g, e);
}

/* Whatever t holds when the guard leaves `load` in the middle is freed with
 * it: nothing points into the file. */
int tokenizer_of(const struct gguf *g, struct tokenizer **ret, struct err *e)
{
    struct opening o = {g, calloc(1, sizeof(*o.t))};
    if (o.t == NULL) {
        return err_set(e, ERR_NOMEM, "tokenizer");
    }
    int rc = gguf_guard(load, &o, e);
    if (rc < 0) {
        tokenizer_close(o.t);
        return rc;
    }
    *ret = o.t;
    return 0;
}

int tokenizer_open(const char *path, struct tokenizer **ret, struct err *e)
{
    char inside[4096];
    struct gguf *g = NULL;
    if (file_is_dir(path)) {
        if (!file_join(inside, sizeof(inside), path, "tokenizer.gguf")) {
            return err_set(e, ERR_INVALID, "%s: the path is too long", path);
        }
        path = inside;
    }
    int rc = 0;
    CHECK(gguf_open(path, &g, e));
    CHECK(tokenizer_of(g, ret, e));
out:
    gguf_close(g);
    return rc;
}

int tokenizer_open_mem(const void *p, size_t n, struct tokenizer **ret,
                       struct err *e)
{
    struct gguf *g = NULL;
    int rc = 0;
    CHECK(gguf_open_mem(p, n, &g, e));
    CHECK(tokenizer_of(g, ret, e));
out:
    gguf_close(g);
    return rc;
}

void tokenizer_close(struct tokenizer *t)
{
    if (t == NULL) {
        return;
    }
    pre_code_free(t->code);
    free(t->tokens);
    buf_fini(&t->blob);
    free(t->texts.slots);
    free(t->merges.slots);
    trie_fini(&t->special);
    ugm_free(t->ugm);
    free(t->chat_template);
    free(t);
}

int32_t tokenizer_vocab(const struct tokenizer *t)
{
    return t->n_vocab;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

bool tokenizer_add_bos(const struct tokenizer *t)
{
    return t->add_bos;
}

bool tokenizer_add_eos(const struct tokenizer *t)
{
    return t->add_eos;
}

static bool known(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->n_vocab;
}

bool tokenizer_is_eog(const struct tokenizer *t, int32_t id)
{
    return known(t, id) && t->tokens[id].eog;
}

/* Control and unknown tokens have no place in running text. */
static bool is_hidden(const struct tokenizer *t, int32_t id)
{
    uint8_t type = t->tokens[id].type;
    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN;
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    return known(t, id) &&
           (is_hidden(t, id) || t->tokens[id].type == TOKEN_USER);
}

const char *tokenizer_template(const struct tokenizer *t)
{
    return t->chat_template;
}

const char *tokenizer_kind(const struct tokenizer *t)
{
    return t->kind_name;
}

const char *tokenizer_pre(const struct tokenizer *t)
{
    return t->pre_name;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t n)
{
    int32_t id = text_map_get(t, text, n);
    return known(t, id) ? id : TOKEN_NONE;
}

struct span tokenizer_piece(const struct tokenizer *t, int32_t id, bool special)
{
    if (!known(t, id) || (!special && is_hidden(t, id))) {
        return (struct span){NULL, 0};
    }
    const struct token *k = &t->tokens[id];
    return (struct span){t->blob.p + k->piece_at, k->piece_n};
}

void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n,
                      bool special, struct buf *b)
{
    bool start = t->space_prefix;
    for (size_t i = 0; i < n; i++) {
        struct span piece = tokenizer_piece(t, ids[i], special);
        if (start && piece.n > 0 && !is_hidden(t, ids[i])) {
            start = false;
            if (piece.p[0] == ' ') {
                piece.p++;
                piece.n--;
            }
        }
        if (piece.n > 0) {
            buf_put(b, piece.p, piece.n);
        }
    }
}

int encoder_emit(struct encoder *c, int32_t id, struct err *e)
{
    if (c->n_ids == c->ids_cap) {
        if (c->n_ids >= TOKENS_MAX) {
            return err_set(e, ERR_TOO_BIG, "more than %u tokens", TOKENS_MAX);
        }
        size_t cap = c->ids_cap == 0 ? 64 : c->ids_cap * 2;
        cap = cap > TOKENS_MAX ? TOKENS_MAX : cap;
        int32_t *ids = realloc(c->ids, cap * sizeof(*ids));
        if (ids == NULL) {
            return err_set(e, ERR_NOMEM, "%zu tokens", cap);
        }
        c->ids = ids;
        c->ids_cap = cap;
    }
    c->ids[c->n_ids++] = id;
    return 0;
}

int encoder_syms(struct encoder *c, size_t n, struct err *e)
{
    if (n > c->syms_cap) {
        size_t cap = c->syms_cap == 0 ? 256 : c->syms_cap;
        while (cap < n) {
            cap *= 2;
        }
        struct sym *syms = realloc(c->syms, cap * sizeof(*syms));
        if (syms == NULL) {
            return err_set(e, ERR_NOMEM, "a word of %zu bytes", n);
        }
        c->syms = syms;
        c->syms_cap = cap;
    }
    return 0;
}

/* --- words seen before --- */

#define WORDS_TEXT 1024u /* a text that is worth a table of its own */

struct tokenizer_words *tokenizer_words_new(void)
{
    return calloc(1, sizeof(struct tokenizer_words));
}

void tokenizer_words_free(struct tokenizer_words *w)
{
    free(w);
}

int encoder_word(struct encoder *c, const char *p, size_t n,
                 encode_word_fn miss, struct err *e)
{
    if (c->words == NULL || n > CACHE_WORD) {
        return miss(c, p, n, e);
    }
    uint32_t hash = text_hash(&c->t->texts.key, p, n);
    struct cache_entry *w = &c->words->entry[hash % CACHE_ENTRIES];
    if (w->hash == hash && w->n == n && memcmp(w->word, p, n) == 0) {
        for (size_t i = 0; i < w->n_ids; i++) {
            RETERR(encoder_emit(c, w->ids[i], e));
        }
        return 0;
    }
    size_t before = c->n_ids;
    RETERR(miss(c, p, n, e));
    size_t got = c->n_ids - before;
    if (got <= CACHE_IDS) {
        w->hash = hash;
        w->n = (uint8_t)n;
        w->n_ids = (uint8_t)got;
        memcpy(w->word, p, n);
        if (got > 0) { /* else there may be no list yet */
            memcpy(w->ids, c->ids + before, got * sizeof(*w->ids));
        }
    }
    return 0;
}

static int fragment(struct encoder *c, const char *p, size_t n, bool after,
                    struct err *e)
{
    if (n == 0) {
        return 0;
    }
    bool prefix = c->t->space_prefix && after;
    if (c->t->kind == TOKENIZER_UGM) {
        return ugm_fragment(c, p, n, e);
    }
    if (c->t->kind == TOKENIZER_WPM) {
        return wpm_fragment(c, p, n, e);
    }
    return c->t->kind == TOKENIZER_BPE ? bpe_fragment(c, p, n, prefix, e)
                                       : spm_fragment(c, p, n, prefix, e);
}

/* Bytes of white space that p[0..n) begins with. */
static size_t spaces_at(const char *p, size_t n)
{
    size_t i = 0;
    for (size_t len = 0; i < n; i += len) {
        if (utf8_seq(p + i, n - i, &len) != UTF8_OK ||
            !norm_is_space(utf8_char(p + i, len))) {
            break;
        }
    }
    return i;
}

/* p[0..n) without the white space at its end. */
static size_t without_spaces(const char *p, size_t n)
{
    while (n > 0) {
        size_t from = n - 1;
        while (from > 0 && n - from < 4 &&
               ((unsigned char)p[from] & 0xC0u) == 0x80u) {
            from--;
        }
        if (spaces_at(p + from, n - from) != n - from) {
            break;
        }
        n = from;
    }
    return n;
}

/* Cut out special tokens. `after`: a fragment at the start or after a special
 * token gets the vocabulary's space prefix. */
static int encode_text(struct encoder *c, const char *p, size_t n, bool special,
                       struct err *e)
{
    const struct tokenizer *t = c->t;
    size_t from = 0;
    bool after = true;
    c->begins = true;
    c->ends_text = false;
    for (size_t i = 0; i < n;) {
        int32_t id = TOKEN_NONE;
        if (t->special.first[(unsigned char)p[i]]) {
            id = special_at(t, p + i, n - i, special);
        }
        if (id == TOKEN_NONE) {
            i++;
            continue;
        }
        size_t len = i - from;
        len = t->tokens[id].strip_left ? without_spaces(p + from, len) : len;
        RETERR(fragment(c, p + from, len, after, e));
        RETERR(encoder_emit(c, id, e));
        i += t->tokens[id].text_n;
        i += t->tokens[id].strip_right ? spaces_at(p + i, n - i) : 0;
        from = i;
        after = true;
        c->begins = false;
    }
    c->ends_text = true;
    return fragment(c, p + from, n - from, after, e);
}

int tokenizer_encode_words(const struct tokenizer *t,
                           struct tokenizer_words *words, const char *text,
                           size_t n, bool special, int32_t **ret,
                           size_t *ret_n, struct err *e)
{
    if (n > TEXT_BYTES_MAX) {
        return err_set(e, ERR_TOO_BIG, "%zu bytes of text, the limit is %zu", n,
                       TEXT_BYTES_MAX);
    }
    struct encoder c = {.t = t, .words = words};
    buf_init(&c.text, 3 * TEXT_BYTES_MAX + 3); /* U+FFFD, U+2581: 3 bytes */
    buf_init(&c.other, 3 * TEXT_BYTES_MAX + 3);
    int rc = 0;
    CHECK(encode_text(&c, text, n, special, e));
    if (c.ids == NULL) {
        c.ids = malloc(sizeof(*c.ids)); /* no tokens is not NULL */
        if (c.ids == NULL) {
            rc = err_set(e, ERR_NOMEM, "tokens");
            goto out;
        }
    }
    *ret = c.ids;
    *ret_n = c.n_ids;
    c.ids = NULL; /* given away */
out:
    free(c.ids);
    free(c.syms);
    free(c.heap);
    free(c.best);
    free(c.ends[0]);
    free(c.ends[1]);
    pre_match_free(c.match);
    buf_fini(&c.text);
    buf_fini(&c.other);
    return rc;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n,
                     bool special, int32_t **ret, size_t *ret_n, struct err *e)
{
    struct tokenizer_words *own =
        n >= WORDS_TEXT ? tokenizer_words_new() : NULL;
    int rc = tokenizer_encode_words(t, own, text, n, special, ret, ret_n, e);
    tokenizer_words_free(own);
    return rc;
}
