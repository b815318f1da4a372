/* Checks a vocabulary, and writes a copy of it without tensors. Each check is
 * for a published crash of another reader: scores or types shorter than the
 * tokens, arrays read with the wrong element type, byte tokens spelled <0x-1>,
 * special ids used as an index before they were compared with the vocabulary.
 * Harmless oddities (an id that is not read, a token without text) become
 * notes. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/num.h"
#include "source/gguf_impl.h"

enum { TYPE_BYTE = 6, TYPE_MAX = 6 }; /* tokenizer.ggml.token_type */

#define ID_ABSENT    0xFFFFFFFF
#define TEMPLATE_KEY "tokenizer.chat_template"

void gguf_note(struct gguf_notes *notes, const char *fmt, ...)
{
    if (notes == NULL) {
        return;
    }
    if (notes->n == GGUF_NOTES_MAX) {
        notes->more++;
        return;
    }
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(notes->text[notes->n], sizeof(notes->text[0]), fmt, ap);
    va_end(ap);
    notes->n++;
}

static int check_tokens(const struct gguf *g, struct gguf_notes *notes,
                        uint64_t *ret_n, struct err *e)
{
    uint64_t n_empty = 0;
    uint64_t empty = 0;
    const char *key = "tokenizer.ggml.tokens";
    if (gguf_find(g, key) == NULL) {
        return err_set(e, ERR_GGUF_MISSING, "%s is absent", key);
    }
    const struct gguf_kv *a = gguf_get_arr(g, key, GGUF_STRING);
    if (a == NULL || a->count < 1 || a->count > MODEL_VOCAB_MAX) {
        return err_set(e, ERR_GGUF_VOCAB, "%s is no array of 1 to %u strings",
                       key, MODEL_VOCAB_MAX);
    }
    uint64_t at = 0;
    for (uint64_t i = 0; i < a->count; i++) {
        struct span s = gguf_arr_str(a, &at);
        if (s.n > TOKEN_BYTES_MAX) {
            return err_set(e, ERR_GGUF_VOCAB,
                           "token %llu is %zu bytes long; up to %u are sound",
                           (unsigned long long)i, s.n, TOKEN_BYTES_MAX);
        }
        if (s.n == 0) {
            empty = n_empty == 0 ? i : empty;
            n_empty++;
        }
    }
    if (n_empty > 0) {
        gguf_note(notes,
                  "%llu of %llu tokens have no text; the first is token %llu",
                  (unsigned long long)n_empty, (unsigned long long)a->count,
                  (unsigned long long)empty);
    }
    *ret_n = a->count;
    return 0;
}

/* An array of one of two kinds with at least n items: what llama.cpp takes. NULL
 * in *ret when it is absent; more items than tokens add a note. */
static int want_array(const struct gguf *g, const char *key,
                      enum gguf_kind kind, enum gguf_kind other, uint64_t n,
                      struct gguf_notes *notes, const struct gguf_kv **ret,
                      struct err *e)
{
    *ret = NULL;
    if (gguf_find(g, key) == NULL) {
        return 0;
    }
    const struct gguf_kv *a = gguf_get_arr(g, key, kind);
    a = a != NULL ? a : gguf_get_arr(g, key, other);
    if (a == NULL) {
        return err_set(e, ERR_GGUF_VOCAB, "%s is no array of its kind", key);
    }
    if (a->count < n) {
        return err_set(e, ERR_GGUF_VOCAB, "%s has %llu items for %llu tokens",
                       key, (unsigned long long)a->count,
                       (unsigned long long)n);
    }
    if (a->count > n) {
        gguf_note(notes, "%s has %llu items for %llu tokens: the last are "
                         "left out",
                  key, (unsigned long long)a->count, (unsigned long long)n);
    }
    *ret = a;
    return 0;
}

static int check_scores(const struct gguf *g, uint64_t n,
                        struct gguf_notes *notes, struct err *e)
{
    const struct gguf_kv *a = NULL;
    RETERR(want_array(g, "tokenizer.ggml.scores", GGUF_F32, GGUF_I32, n, notes,
                      &a, e));
    for (uint64_t i = 0; a != NULL && a->item == GGUF_F32 && i < n; i++) {
        if (isnan(gguf_arr_f32(a, i))) {
            return err_set(e, ERR_GGUF_VOCAB, "the score of token %llu is NaN",
                           (unsigned long long)i);
        }
    }
    return 0;
}

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') ||
           (c >= 'A' && c <= 'F');
}

static bool is_byte_token(struct span s)
{
    return s.n == 6 && memcmp(s.p, "<0x", 3) == 0 && is_hex(s.p[3]) &&
           is_hex(s.p[4]) && s.p[5] == '>';
}

static int check_types(const struct gguf *g, uint64_t n,
                       struct gguf_notes *notes, struct err *e)
{
    const struct gguf_kv *a = NULL;
    const struct gguf_kv *tokens =
        gguf_get_arr(g, "tokenizer.ggml.tokens", GGUF_STRING);
    RETERR(want_array(g, "tokenizer.ggml.token_type", GGUF_I32, GGUF_I32, n,
                      notes, &a, e));
    uint64_t at = 0;
    uint64_t n_odd = 0;
    for (uint64_t i = 0; a != NULL && tokens != NULL && i < n; i++) {
        struct span s = gguf_arr_str(tokens, &at);
        int64_t type = gguf_arr_int(a, i);
        n_odd += type < 0 || type > TYPE_MAX;
        if (type == TYPE_BYTE && !is_byte_token(s)) {
            return err_set(e, ERR_GGUF_VOCAB,
                           "byte token %llu is not spelled <0xHH>",
                           (unsigned long long)i);
        }
    }
    if (n_odd > 0) {
        gguf_note(notes, "%llu tokens have unknown types: taken for text",
                  (unsigned long long)n_odd);
    }
    return 0;
}

static int check_merges(const struct gguf *g, struct err *e)
{
    const char *key = "tokenizer.ggml.merges";
    if (gguf_find(g, key) == NULL) {
        return 0;
    }
    const struct gguf_kv *a = gguf_get_arr(g, key, GGUF_STRING);
    if (a == NULL) {
        return err_set(e, ERR_GGUF_VOCAB, "%s is no array of strings", key);
    }
    uint64_t at = 0;
    for (uint64_t i = 0; i < a->count; i++) {
        struct span s = gguf_arr_str(a, &at);
        /* "left right": a space that is neither the first nor the last byte */
        if (s.n < 3 || s.n > TOKEN_BYTES_MAX ||
            memchr(s.p + 1, ' ', s.n - 2) == NULL) {
            return err_set(e, ERR_GGUF_VOCAB, "merge %llu is no pair",
                           (unsigned long long)i);
        }
    }
    return 0;
}

static bool begins(struct span s, const char *prefix)
{
    size_t n = strlen(prefix);
    return s.n >= n && memcmp(s.p, prefix, n) == 0;
}

static bool ends(struct span s, const char *suffix)
{
    size_t n = strlen(suffix);
    return s.n >= n && memcmp(s.p + s.n - n, suffix, n) == 0;
}

/* Whether generation uses the id of this key. The other ids are not read. */
static bool at_stake(const struct gguf *g, struct span key)
{
    static const char *const always[] = {"eos_token_id", "eot_token_id",
                                         "eom_token_id"};
    struct span model = {0};
    bool add = true;
    for (size_t i = 0; i < countof(always); i++) {
        if (ends(key, always[i])) {
            return true;
        }
    }
    if (ends(key, ".bos_token_id")) {
        return !gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &add) || add;
    }
    return ends(key, ".unknown_token_id") &&
           gguf_get_str(g, "tokenizer.ggml.model", &model) && model.n == 5 &&
           begins(model, "llama");
}

static int check_ids(const struct gguf *g, uint64_t n, struct gguf_notes *notes,
                     struct err *e)
{
    for (size_t i = 0; i < g->n_kv; i++) {
        const struct gguf_kv *kv = &g->kv[i];
        int64_t id = 0;
        if (!begins(kv->key, "tokenizer.ggml.") ||
            !ends(kv->key, "_token_id")) {
            continue;
        }
        bool whole =
            kv->kind != GGUF_BOOL && gguf_load_int(kv->kind, kv->p, &id);
        if (whole && (id == -1 || id == (int64_t)ID_ABSENT ||
                      (id >= 0 && (uint64_t)id < n))) {
            continue;
        }
        if (at_stake(g, kv->key)) {
            return err_set(e, ERR_GGUF_VOCAB,
                           "%.*s is no token of a vocabulary of %llu",
                           (int)kv->key.n, kv->key.p, (unsigned long long)n);
        }
        gguf_note(notes, "%.*s is no token of a vocabulary of %llu: left out",
                  (int)num_min(kv->key.n, 64), kv->key.p,
                  (unsigned long long)n);
    }
    return 0;
}

static int check_kinds(const struct gguf *g, struct err *e)
{
    static const char *const strings[] = {"tokenizer.ggml.model",
                                          "tokenizer.ggml.pre", TEMPLATE_KEY};
    static const char *const bools[] = {"tokenizer.ggml.add_bos_token",
                                        "tokenizer.ggml.add_eos_token",
                                        "tokenizer.ggml.add_space_prefix"};
    for (size_t i = 0; i < countof(strings); i++) {
        const struct gguf_kv *kv = gguf_find(g, strings[i]);
        if (kv != NULL && kv->kind != GGUF_STRING) {
            return err_set(e, ERR_GGUF_VOCAB, "%s is no string", strings[i]);
        }
    }
    for (size_t i = 0; i < countof(bools); i++) {
        const struct gguf_kv *kv = gguf_find(g, bools[i]);
        if (kv != NULL && kv->kind != GGUF_BOOL) {
            return err_set(e, ERR_GGUF_VOCAB, "%s is no bool", bools[i]);
        }
    }
    return 0;
}

int gguf_check_vocab(const struct gguf *g, struct gguf_notes *notes,
                     struct err *e)
{
    uint64_t n = 0;
    RETERR(check_tokens(g, notes, &n, e));
    RETERR(check_scores(g, n, notes, e));
    RETERR(check_types(g, n, notes, e));
    RETERR(check_merges(g, e));
    RETERR(check_ids(g, n, notes, e));
    return check_kinds(g, e);
}

/* --- the copy --- */

/* tmpl: one that takes the place of g's own. */
static bool wanted(struct span arch, struct span key, const char *tmpl)
{
    if (tmpl != NULL && key.n == strlen(TEMPLATE_KEY) &&
        begins(key, TEMPLATE_KEY)) {
        return false;
    }
    if (begins(key, "general.") || begins(key, "tokenizer.")) {
        return true;
    }
    if (arch.n == 0 || key.n <= arch.n || key.p[arch.n] != '.' ||
        memcmp(key.p, arch.p, arch.n) != 0) {
        return false;
    }
    struct span rest = {key.p + arch.n + 1, key.n - arch.n - 1};
    return (rest.n == 10 && begins(rest, "vocab_size")) ||
           (rest.n == 14 && begins(rest, "context_length"));
}

static void put_kv(struct buf *b, const struct gguf_kv *kv)
{
    buf_u64(b, kv->key.n);
    buf_put(b, kv->key.p, kv->key.n);
    buf_u32(b, kv->kind);
    if (kv->kind == GGUF_ARRAY) {
        buf_u32(b, kv->item);
        buf_u64(b, kv->count);
    } else if (kv->kind == GGUF_STRING) {
        buf_u64(b, kv->bytes);
    }
    buf_put(b, kv->p, (size_t)kv->bytes);
}

static void put_template(struct buf *b, const char *tmpl)
{
    const struct gguf_kv kv = {
        .key = {TEMPLATE_KEY, strlen(TEMPLATE_KEY)},
        .kind = GGUF_STRING,
        .p = (const void *)tmpl,
        .bytes = strlen(tmpl),
    };
    put_kv(b, &kv);
}

int gguf_write_vocab(const struct gguf *g, const char *tmpl, const char *path,
                     struct err *e)
{
    struct buf b;
    struct span arch = {"", 0};
    uint64_t n = tmpl != NULL ? 1 : 0;
    (void)!gguf_get_str(g, "general.architecture", &arch);
    size_t room = KIB(1) + (tmpl != NULL ? strlen(tmpl) : 0);
    for (size_t i = 0; i < g->n_kv; i++) { /* no overflow: all are in memory */
        n += wanted(arch, g->kv[i].key, tmpl);
        room += g->kv[i].key.n + (size_t)g->kv[i].bytes + 32;
    }
    buf_init(&b, room);
    buf_put(&b, "GGUF", 4);
    buf_u32(&b, 3);
    buf_u64(&b, 0); /* tensors */
    buf_u64(&b, n);
    for (size_t i = 0; i < g->n_kv; i++) {
        if (wanted(arch, g->kv[i].key, tmpl)) {
            put_kv(&b, &g->kv[i]);
        }
    }
    if (tmpl != NULL) {
        put_template(&b, tmpl);
    }
    int rc = buf_ok(&b) ? file_write(path, b.p, b.n, e)
                        : err_set(e, ERR_NOMEM, "%s", err_text(ERR_NOMEM));
    buf_fini(&b);
    return rc;
}
