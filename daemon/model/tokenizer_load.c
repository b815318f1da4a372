/* tokenizer_load.c - a GGUF's vocabulary metadata into a tokenizer.
 *
 * Everything is copied, and the file is closed before tokenizer_open returns.
 * Where a file leaves something out, llama.cpp's defaults hold: its ids are
 * what GGUF files are made for.
 */
#include <math.h>
#include <string.h>

#include "model/tokenizer_impl.h"
#include "source/gguf.h"

#define KEY(name) "tokenizer.ggml." name

#define BLOB_MAX MIB(256) /* all texts and pieces */

/* Tokens whose text tells what they are, whatever their type in the file. */
static const struct {
    const char *text;
    bool eog; /* ends a generation; else only control */
} well_known[] = {
    {"<|eot_id|>",                                              true },
    {"<|eom_id|>",                                              true },
    {"<|im_end|>",                                              true },
    {"<|end|>",                                                 true },
    {"<|return|>",                                              true },
    {"<|call|>",                                                true },
    {"<|calls|>",                                               true },
    {"<|flush|>",                                               true },
    {"<end_of_turn>",                                           true },
    {"<|endoftext|>",                                           true },
    {"<|end_of_text|>",                                         true },
    {"<EOT>",                                                   true },
    {"_<EOT>",                                                  true },
    {"[EOT]",                                                   true },
    {"[EOS]",                                                   true },
    {"<end_of_utterance>",                                      true },
    {"<|turn_end|>",                                            true },
    {"<eos>",                                                   true },
    {"<turn|>",                                                 true },
    {"<|tool_response>",                                        true },
    {"[e~[",                                                    true },
    {"<\xEF\xBD\x9C"
     "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>", true },
    {"<|fim_pad|>",                                             true },
    {"<|fim_repo|>",                                            true },
    {"<|repo_name|>",                                           true },
    {"<|file_sep|>",                                            true },
    {"<fim-pad>",                                               true },
    {"<fim_pad>",                                               true },
    {"<fim-repo>",                                              true },
    {"<reponame>",                                              true },
    {"<|fim_prefix|>",                                          false},
    {"<|fim_suffix|>",                                          false},
    {"<|fim_middle|>",                                          false},
    {"<fim-prefix>",                                            false},
    {"<fim-suffix>",                                            false},
    {"<fim-middle>",                                            false},
    {"<fim_prefix>",                                            false},
    {"<fim_suffix>",                                            false},
    {"<fim_middle>",                                            false},
    {"<PRE>",                                                   false},
    {"<SUF>",                                                   false},
    {"<MID>",                                                   false},
    {SPM_SPACE "<PRE>",                                         false},
    {SPM_SPACE "<SUF>",                                         false},
    {SPM_SPACE "<MID>",                                         false},
    {"<|code_prefix|>",                                         false},
    {"<|code_suffix|>",                                         false},
    {"<|code_middle|>",                                         false},
    {"<|prefix|>",                                              false},
    {"<|suffix|>",                                              false},
    {"<|middle|>",                                              false},
    {"<\xEF\xBD\x9C"
     "fim\xE2\x96\x81"
     "begin\xEF\xBD\x9C>",                                       false},
    {"<\xEF\xBD\x9C"
     "fim\xE2\x96\x81"
     "hole\xEF\xBD\x9C>",                                        false},
    {"<\xEF\xBD\x9C"
     "fim\xE2\x96\x81"
     "end\xEF\xBD\x9C>",                                         false},
};

/* An array of at least n elements of one kind, NULL when it is absent. */
static int want_arr(const struct gguf *g, const char *key, enum gguf_kind item,
                    uint64_t n, const struct gguf_kv **ret, struct err *e)
{
    const struct gguf_kv *a = gguf_get_arr(g, key, item);
    if (a == NULL && gguf_find(g, key) != NULL) {
        return err_set(e, ERR_GGUF_VALUE, "%s is not an array of its kind",
                       key);
    }
    if (a != NULL && a->count < n) {
        return err_set(e, ERR_GGUF_VOCAB, "%s has %llu entries for %llu tokens",
                       key, (unsigned long long)a->count,
                       (unsigned long long)n);
    }
    *ret = a;
    return 0;
}

static int load_kind(const struct gguf *g, struct tokenizer *t, struct err *e)
{
    static const struct {
        const char *name;
        enum tokenizer_kind kind;
        const char *pre; /* NULL: the file names it */
    } kinds[] = {
        {"gpt2",   TOKENIZER_BPE, NULL    },
        {"llama",  TOKENIZER_SPM, NULL    },
        {"gemma4", TOKENIZER_BPE, "gemma4"},
        {"t5",     TOKENIZER_UGM, NULL    },
        {"bert",   TOKENIZER_WPM, NULL    },
    };
    struct span model = {NULL, 0};
    struct span pre = {"", 0};
    if (!gguf_get_str(g, KEY("model"), &model)) {
        return err_set(e, ERR_GGUF_MISSING, KEY("model"));
    }
    (void)!gguf_get_str(g, KEY("pre"), &pre);
    for (size_t i = 0; i < countof(kinds); i++) {
        if (strlen(kinds[i].name) == model.n &&
            memcmp(kinds[i].name, model.p, model.n) == 0) {
            t->kind_name = kinds[i].name;
            t->kind = kinds[i].kind;
            pre = kinds[i].pre != NULL
                      ? (struct span){kinds[i].pre, strlen(kinds[i].pre)}
                      : pre;
        }
    }
    if (t->kind_name == NULL) {
        return err_set(e, ERR_TOKENIZER,
                       "tokenizer.ggml.model '%.*s': aned has BPE (gpt2, "
                       "gemma4), SentencePiece BPE (llama), Unigram (t5) and "
                       "WordPiece (bert)",
                       (int)(model.n < 32 ? model.n : 32), model.p);
    }
    if (pre.n < sizeof(t->pre_name)) {
        memcpy(t->pre_name, pre.p, pre.n);
    }
    if (t->kind != TOKENIZER_BPE) {
        return 0;
    }
    t->pre = pre.n < sizeof(t->pre_name) ? pre_find(t->pre_name) : NULL;
    if (t->pre == NULL) {
        return err_set(e, ERR_TOKENIZER, "the pre-tokenizer '%.*s'",
                       (int)(pre.n < 64 ? pre.n : 64), pre.p);
    }
    t->raw = pre_has(t->pre, PRE_RAW);
    return pre_compile(t->pre, &t->code, e);
}

int tokenizer_too_much(struct err *e)
{
    return err_set(e, ERR_NOMEM, "the vocabulary");
}

/* A new id whose text is p[0..n). Errors: NOMEM. */
static int add_token(struct tokenizer *t, const char *p, size_t n,
                     struct err *e)
{
    if ((size_t)t->n_tokens == t->tokens_cap) {
        size_t cap = t->tokens_cap == 0 ? 1024 : t->tokens_cap * 2;
        struct token *k = realloc(t->tokens, cap * sizeof(*k));
        if (k == NULL) {
            return tokenizer_too_much(e);
        }
        t->tokens = k;
        t->tokens_cap = cap;
    }
    size_t at = t->blob.n;
    buf_put(&t->blob, p, n);
    if (!buf_ok(&t->blob)) {
        return tokenizer_too_much(e);
    }
    t->tokens[t->n_tokens++] = (struct token){
        .text_at = (uint32_t)at, .text_n = (uint16_t)n, .type = TOKEN_NORMAL};
    return 0;
}

static int load_tokens(const struct gguf *g, struct tokenizer *t, struct err *e)
{
    const struct gguf_kv *texts = NULL;
    uint64_t at = 0;
    RETERR(want_arr(g, KEY("tokens"), GGUF_STRING, 0, &texts, e));
    if (texts == NULL) {
        return err_set(e, ERR_GGUF_MISSING, KEY("tokens"));
    }
    if (texts->count == 0 || texts->count > MODEL_VOCAB_MAX) {
        return err_set(e, ERR_GGUF_VOCAB, "%llu tokens",
                       (unsigned long long)texts->count);
    }
    t->n_vocab = (int32_t)texts->count;
    buf_init(&t->blob, BLOB_MAX);
    for (int32_t i = 0; i < t->n_vocab; i++) {
        struct span s = gguf_arr_str(texts, &at);
        if (s.n > TOKEN_BYTES_MAX) {
            return err_set(e, ERR_GGUF_VOCAB, "token %d has %zu bytes", i, s.n);
        }
        RETERR(add_token(t, s.p, s.n, e));
        if (s.n > 0 && !text_map_put(t, i)) {
            return tokenizer_too_much(e);
        }
        t->longest = s.n > t->longest ? s.n : t->longest;
    }
    return 0;
}

static int load_types(const struct gguf *g, struct tokenizer *t, struct err *e)
{
    const struct gguf_kv *types = NULL;
    RETERR(want_arr(g, KEY("token_type"), GGUF_I32, (uint64_t)t->n_vocab,
                    &types, e));
    for (int32_t i = 0; types != NULL && i < t->n_vocab; i++) {
        int64_t v = gguf_arr_int(types, (uint64_t)i);
        t->tokens[i].type =
            v >= TOKEN_NORMAL && v <= TOKEN_BYTE ? (uint8_t)v : TOKEN_NORMAL;
    }
    return 0;
}

/* A score as an unsigned number that orders the other way round: the highest
 * score has the lowest key. */
static uint32_t score_key(float score)
{
    uint32_t bits = 0;
    score += 0.0F; /* -0 and 0 are equal */
    memcpy(&bits, &score, sizeof(bits));
    bits ^= (bits >> 31) != 0 ? 0xFFFFFFFFU : 0x80000000U;
    return ~bits;
}

/* Scores are f32, or i32; without them all are equal. */
static int load_scores(const struct gguf *g, struct tokenizer *t, struct err *e)
{
    const struct gguf_kv *scores = gguf_get_arr(g, KEY("scores"), GGUF_I32);
    bool whole = scores != NULL;
    RETERR(want_arr(g, KEY("scores"), whole ? GGUF_I32 : GGUF_F32,
                    (uint64_t)t->n_vocab, &scores, e));
    for (int32_t i = 0; i < t->n_vocab; i++) {
        float score = 0;
        if (scores != NULL) {
            score = whole ? (float)gguf_arr_int(scores, (uint64_t)i)
                          : gguf_arr_f32(scores, (uint64_t)i);
        }
        if (isnan(score)) {
            return err_set(e, ERR_GGUF_VOCAB, "the score of token %d is NaN",
                           i);
        }
        t->tokens[i].key = score_key(score);
    }
    return 0;
}

/* The id of a text; a new one above the vocabulary when no token has it. */
static int intern(struct tokenizer *t, const char *p, size_t n, int32_t *ret,
                  struct err *e)
{
    int32_t id = text_map_get(t, p, n);
    if (id == TOKEN_NONE) {
        int rc = add_token(t, p, n, e);
        if (rc < 0) {
            return rc;
        }
        id = t->n_tokens - 1;
        if (!text_map_put(t, id)) {
            return tokenizer_too_much(e);
        }
    }
    *ret = id;
    return 0;
}

/* "left right"; a left part may begin with a space. */
static int load_merge(struct tokenizer *t, struct span s, uint32_t rank,
                      struct err *e)
{
    char both[2 * TOKEN_BYTES_MAX];
    int32_t left = 0;
    int32_t right = 0;
    int32_t id = 0;
    const char *space = s.n > 2 ? memchr(s.p + 1, ' ', s.n - 2) : NULL;
    if (space == NULL || s.n > TOKEN_BYTES_MAX) {
        return err_set(e, ERR_GGUF_VOCAB, "merge %u is not two texts", rank);
    }
    size_t n_left = (size_t)(space - s.p);
    size_t n_right = s.n - n_left - 1;
    memcpy(both, s.p, n_left);
    memcpy(both + n_left, space + 1, n_right);
    RETERR(intern(t, s.p, n_left, &left, e));
    RETERR(intern(t, space + 1, n_right, &right, e));
    RETERR(intern(t, both, n_left + n_right, &id, e));
    merge_map_put(&t->merges, left, right, rank, id);
    return 0;
}

static int load_merges(const struct gguf *g, struct tokenizer *t, struct err *e)
{
    const struct gguf_kv *merges = NULL;
    uint64_t at = 0;
    RETERR(want_arr(g, KEY("merges"), GGUF_STRING, 0, &merges, e));
    if (merges == NULL) {
        return err_set(e, ERR_GGUF_MISSING, KEY("merges"));
    }
    if (merges->count > 4 * (uint64_t)MODEL_VOCAB_MAX) {
        return err_set(e, ERR_GGUF_VOCAB, "%llu merges",
                       (unsigned long long)merges->count);
    }
    if (!merge_map_reserve(&t->merges, (size_t)merges->count)) {
        return tokenizer_too_much(e);
    }
    for (uint32_t i = 0; i < (uint32_t)merges->count; i++) {
        RETERR(load_merge(t, gguf_arr_str(merges, &at), i, e));
    }
    return 0;
}

static void find_bytes(struct tokenizer *t)
{
    for (unsigned b = 0; b < 256; b++) {
        char text[8];
        size_t n = 0;
        if (t->kind == TOKENIZER_BPE && !t->raw) {
            n = bpe_char_bytes((uint8_t)b, text);
            t->byte_id[b] = text_map_get(t, text, n);
            continue;
        }
        (void)snprintf(text, sizeof(text), "<0x%02X>", b);
        t->byte_id[b] = tokenizer_find(t, text, 6);
        if (t->byte_id[b] == TOKEN_NONE && b < 0x80 && !t->raw) {
            text[0] = (char)b;
            t->byte_id[b] = tokenizer_find(t, text, 1);
        }
    }
}

/* An id of the file; *ret stays where it says none, or one outside of the
 * vocabulary: gguf_check_vocab decides whether that matters. */
static void want_id(const struct gguf *g, const struct tokenizer *t,
                    const char *key, int32_t *ret)
{
    uint32_t id = UINT32_MAX;
    if (gguf_get_u32(g, key, &id) && id < (uint32_t)t->n_vocab) {
        *ret = (int32_t)id;
    }
}

static bool flag(const struct gguf *g, const char *key, bool otherwise)
{
    bool v = otherwise;
    return gguf_get_bool(g, key, &v) ? v : otherwise;
}

static bool has(const struct tokenizer *t, const char *text)
{
    return tokenizer_find(t, text, strlen(text)) != TOKEN_NONE;
}

/* In harmony vocabularies, and those like them, <|end|> only ends a message. */
static bool ends_messages(const struct tokenizer *t)
{
    return (has(t, "<|call|>") || has(t, "<|calls|>")) &&
           (has(t, "<|return|>") || has(t, "<|flush|>"));
}

static void mark_well_known(struct tokenizer *t)
{
    bool messages = ends_messages(t);
    for (size_t i = 0; i < countof(well_known); i++) {
        const char *text = well_known[i].text;
        int32_t id = tokenizer_find(t, text, strlen(text));
        if (id == TOKEN_NONE) {
            continue;
        }
        t->tokens[id].type = TOKEN_CONTROL;
        t->tokens[id].eog =
            well_known[i].eog && !(messages && strcmp(text, "<|end|>") == 0);
    }
}

/* Tokens that swallow the white space beside them, where the file says so. */
static void load_strip(const struct gguf *g, struct tokenizer *t)
{
    const struct gguf_kv *right =
        gguf_get_arr(g, "tokenizer.aned.strip_right", GGUF_I32);
    const struct gguf_kv *left =
        gguf_get_arr(g, "tokenizer.aned.strip_left", GGUF_I32);
    for (uint64_t i = 0; right != NULL && i < right->count; i++) {
        int64_t id = gguf_arr_int(right, i);
        if (id >= 0 && id < t->n_vocab) {
            t->tokens[id].strip_right = true;
        }
    }
    for (uint64_t i = 0; left != NULL && i < left->count; i++) {
        int64_t id = gguf_arr_int(left, i);
        if (id >= 0 && id < t->n_vocab) {
            t->tokens[id].strip_left = true;
        }
    }
}

/* SentencePiece's own numbers, where a file names none and no text tells. */
static int32_t spm_default(const struct tokenizer *t, const char *text,
                           int32_t id)
{
    int32_t found = tokenizer_find(t, text, strlen(text));
    return found == TOKEN_NONE && id < t->n_vocab ? id : found;
}

/* WordPiece's [CLS] and [SEP] stand around a text. */
static void wpm_ids(const struct gguf *g, struct tokenizer *t)
{
    t->bos = tokenizer_find(t, "[CLS]", 5);
    t->eos = tokenizer_find(t, "[SEP]", 5);
    t->unk = tokenizer_find(t, "[UNK]", 5);
    want_id(g, t, KEY("bos_token_id"), &t->bos);
    want_id(g, t, KEY("cls_token_id"), &t->bos);
    want_id(g, t, KEY("eos_token_id"), &t->eos);
    want_id(g, t, KEY("seperator_token_id"), &t->eos); /* so spelled */
    want_id(g, t, KEY("unknown_token_id"), &t->unk);
    t->add_bos = flag(g, KEY("add_bos_token"), true) && t->bos != TOKEN_NONE;
    t->add_eos = flag(g, KEY("add_eos_token"), true) && t->eos != TOKEN_NONE;
    t->space_prefix = true;
    t->lowers = flag(g, "tokenizer.aned.lowercase", wpm_lowers(t));
    t->strips = flag(g, "tokenizer.aned.strip_accents", t->lowers);
}

static void load_ids(const struct gguf *g, struct tokenizer *t)
{
    int32_t eot = TOKEN_NONE;
    int32_t eom = TOKEN_NONE;
    bool spm = t->kind == TOKENIZER_SPM;
    const struct {
        const char *key;
        int32_t *id;
    } ids[] = {
        {KEY("bos_token_id"),     &t->bos},
        {KEY("eos_token_id"),     &t->eos},
        {KEY("unknown_token_id"), &t->unk},
        {KEY("eot_token_id"),     &eot   },
        {KEY("eom_token_id"),     &eom   },
    };
    /* of a tokenizer.json all are said that there are */
    bool ugm = t->kind == TOKENIZER_UGM &&
               gguf_find(g, "tokenizer.aned.byte_fallback") == NULL;
    t->bos = spm ? spm_default(t, "<s>", 1) : TOKEN_NONE;
    t->eos = spm   ? spm_default(t, "</s>", 2)
             : ugm ? spm_default(t, "</s>", 1)
                   : TOKEN_NONE;
    t->unk = spm   ? spm_default(t, "<unk>", 0)
             : ugm ? spm_default(t, "<unk>", 2)
                   : TOKEN_NONE;
    for (size_t i = 0; i < countof(ids); i++) {
        want_id(g, t, ids[i].key, ids[i].id);
    }
    mark_well_known(t);
    tokenizer_load_fim(g, t);
    const int32_t ends[] = {t->eos, eot, eom};
    for (size_t i = 0; i < countof(ends); i++) {
        if (ends[i] != TOKEN_NONE) {
            t->tokens[ends[i]].eog = true;
        }
    }
    bool bpe = t->kind == TOKENIZER_BPE;
    t->add_bos = flag(g, KEY("add_bos_token"),
                      spm || (bpe && pre_has(t->pre, PRE_BOS)));
    t->add_bos =
        (t->add_bos || (bpe && pre_has(t->pre, PRE_BOS_ALWAYS))) &&
        t->bos != TOKEN_NONE;
    t->add_eos = flag(g, KEY("add_eos_token"), ugm) && t->eos != TOKEN_NONE;
    /* of BPE, only where the file says so, and text is not made of bytes */
    t->space_prefix =
        (!bpe || t->raw) && flag(g, KEY("add_space_prefix"), spm);
}

int tokenizer_load(const struct gguf *g, struct tokenizer *t, struct err *e)
{
    struct span chat = {NULL, 0};
    RETERR(load_kind(g, t, e));
    RETERR(load_tokens(g, t, e));
    RETERR(load_types(g, t, e));
    RETERR(t->kind == TOKENIZER_SPM   ? load_scores(g, t, e)
           : t->kind == TOKENIZER_BPE ? load_merges(g, t, e)
                                      : 0);
    find_bytes(t);
    if (t->kind == TOKENIZER_WPM) {
        wpm_ids(g, t);
    } else {
        load_ids(g, t);
    }
    RETERR(tokenizer_pieces(t, e));
    RETERR(tokenizer_specials(t, e));
    RETERR(t->kind == TOKENIZER_UGM ? ugm_load(g, t, e) : 0);
    struct span name = {NULL, 0};
    if (gguf_get_str(g, "general.name", &name)) {
        tokenizer_habits(t, name);
    }
    load_strip(g, t);
    if (gguf_get_str(g, "tokenizer.chat_template", &chat)) {
        t->chat_template = strndup(chat.p, chat.n);
        if (t->chat_template == NULL) {
            return tokenizer_too_much(e);
        }
    }
    return 0;
}
