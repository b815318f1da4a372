/* spm.c - tokenizer.model, a SentencePiece model, as tokenizer.ggml.*: BPE of
 * kind "llama", Unigram of kind "t5". Its pieces, scores and types are GGUF's. Tokens that were added
 * later stand in tokenizer_config.json or added_tokens.json. */
#include <string.h>

#include "base/num.h"
#include "base/parse.h"
#include "sentencepiece.pb-c.h"
#include "source/hf/hf.h"

#define WHERE     "tokenizer.model: "
#define KEY(name) "tokenizer.ggml." name

static int unknown(const char *what, struct err *e)
{
    return err_set(e, ERR_TOKENIZER,
                   WHERE "%s is nothing that aned's tokenizers do", what);
}

/* A format of 2018 says nothing of its trainer: then it is this. */
static bool is_unigram(const Sp__Model *m)
{
    return m->trainer == NULL || m->trainer->model_type == 1;
}

/* What the tokenizer rooms do: spaces as U+2581; of BPE nothing else is
 * changed. */
static int check_kind(const Sp__Model *m, struct err *e)
{
    const Sp__Trainer *t = m->trainer;
    const Sp__Normalizer *n = m->normalizer;
    if (!is_unigram(m) && t->model_type != 2) {
        return unknown("a vocabulary of words or characters", e);
    }
    if (t != NULL && t->treat_whitespace_as_suffix) {
        return unknown("white space behind words", e);
    }
    if (is_unigram(m)) {
        return n == NULL || n->escape_whitespaces
                   ? 0
                   : unknown("a normaliser that keeps white space", e);
    }
    if (n != NULL && n->charsmap.len > 0) {
        return unknown("a normaliser with a table of characters", e);
    }
    if (n == NULL || n->remove_extra_whitespaces || !n->escape_whitespaces) {
        return unknown("a normaliser that drops or keeps white space", e);
    }
    return 0;
}

static int add_pieces(const Sp__Model *m, struct hf_vocab *v, struct err *e)
{
    for (size_t i = 0; i < m->n_pieces; i++) {
        const Sp__Piece *p = m->pieces[i];
        if (p->type < HF_TOKEN_NORMAL || p->type > HF_TOKEN_BYTE ||
            p->text.len > TOKEN_BYTES_MAX) {
            return err_set(e, ERR_TOKENIZER,
                           WHERE "piece %zu has type %d and %zu bytes", i,
                           (int)p->type, p->text.len);
        }
        v->text[i] = (struct span){(const char *)p->text.data, p->text.len};
        v->type[i] = p->type;
        v->score[i] = p->score;
    }
    return 0;
}

static int add_one(struct hf_vocab *v, int64_t id, const char *text,
                   bool special, struct err *e)
{
    if (id < 0 || id >= (int64_t)v->n || text[0] == '\0' ||
        strlen(text) > TOKEN_BYTES_MAX) {
        return err_set(e, ERR_TOKENIZER,
                       "the added token '%.64s' has id %lld of %zu", text,
                       (long long)id, v->n);
    }
    bool same = v->text[id].n == strlen(text) &&
                memcmp(v->text[id].p, text, v->text[id].n) == 0;
    bool kept = same && (v->type[id] == HF_TOKEN_UNKNOWN ||
                         v->type[id] == HF_TOKEN_CONTROL ||
                         v->type[id] == HF_TOKEN_BYTE);
    if (kept) {
        return 0;
    }
    v->text[id] = (struct span){text, strlen(text)};
    v->type[id] = hf_added_type(text, special);
    v->score[id] = -1000.0F;
    return 0;
}

/* added: {"text": id}; config: {"added_tokens_decoder": {"id": {...}}}. */
static int add_added(const struct json *added, const struct json *config,
                     struct hf_vocab *v, struct err *e)
{
    for (const struct json *c = json_first(added); c != NULL;
         c = json_next(c)) {
        int64_t id = -1;
        (void)!json_int(c, 0, MODEL_VOCAB_MAX - 1, &id);
        RETERR(add_one(v, id, json_key(c), false, e));
    }
    for (const struct json *c =
             json_first(json_get(config, "added_tokens_decoder"));
         c != NULL; c = json_next(c)) {
        const char *text = json_str(json_get(c, "content"));
        uint64_t id = MODEL_VOCAB_MAX;
        (void)!parse_u64(json_key(c), MODEL_VOCAB_MAX - 1, &id);
        if (text == NULL || json_bool(json_get(c, "single_word"))) {
            return err_set(e, ERR_TOKENIZER,
                           "tokenizer_config.json: the added token %.16s has "
                           "no text, or single_word",
                           json_key(c));
        }
        RETERR(add_one(v, (int64_t)id, text,
                       json_bool(json_get(c, "special")), e));
    }
    return 0;
}

/* The last id that anything names. */
static size_t count_ids(const Sp__Model *m, const struct json *added,
                        const struct json *config)
{
    size_t n = m->n_pieces;
    for (const struct json *c = json_first(added); c != NULL;
         c = json_next(c)) {
        int64_t id = 0;
        if (json_int(c, 0, MODEL_VOCAB_MAX - 1, &id)) {
            n = num_max(n, (size_t)id + 1);
        }
    }
    for (const struct json *c =
             json_first(json_get(config, "added_tokens_decoder"));
         c != NULL; c = json_next(c)) {
        uint64_t id = 0;
        if (parse_u64(json_key(c), MODEL_VOCAB_MAX - 1, &id)) {
            n = num_max(n, (size_t)id + 1);
        }
    }
    return n;
}

/* Ids of added tokens with this flag. */
static int put_strip(struct hf *h, const struct json *config, const char *flag,
                     const char *key, struct err *e)
{
    const struct json *list = json_get(config, "added_tokens_decoder");
    size_t n = 0;
    int32_t *ids = calloc(json_count(list) + 1, sizeof(*ids));
    if (ids == NULL) {
        return err_set(e, ERR_NOMEM, "added tokens");
    }
    for (const struct json *c = json_first(list); c != NULL;
         c = json_next(c)) {
        uint64_t id = 0;
        if (json_bool(json_get(c, flag)) &&
            parse_u64(json_key(c), MODEL_VOCAB_MAX - 1, &id)) {
            ids[n++] = (int32_t)id;
        }
    }
    int rc = n > 0 ? made_i32s(h->m, key, ids, n, e) : 0;
    free(ids);
    return rc;
}

/* Its normaliser, which the rooms of Unigram have. */
static int put_unigram(struct hf *h, const Sp__Model *m, struct err *e)
{
    static const Sp__Normalizer plain = SP__NORMALIZER__INIT;
    const Sp__Normalizer *n = m->normalizer != NULL ? m->normalizer : &plain;
    const Sp__Trainer *t = m->trainer;
    h->unk = t != NULL ? t->unk_id : 0;
    if (h->unk < 0 || h->unk >= (int64_t)m->n_pieces ||
        m->pieces[h->unk]->type != HF_TOKEN_UNKNOWN) {
        return err_set(e, ERR_TOKENIZER, WHERE "unk_id %lld is no unknown piece",
                       (long long)h->unk);
    }
    RETERR(made_str(h->m, KEY("model"), "t5", e));
    RETERR(made_bool(h->m, KEY("add_space_prefix"), n->add_dummy_prefix, e));
    RETERR(made_bool(h->m, KEY("remove_extra_whitespaces"),
                     n->remove_extra_whitespaces, e));
    RETERR(made_bool(h->m, "tokenizer.aned.space_first", true, e));
    RETERR(made_bool(h->m, "tokenizer.aned.byte_fallback",
                     t != NULL && t->byte_fallback, e));
    return n->charsmap.len > 0 ? made_u8s(h->m, KEY("precompiled_charsmap"),
                                          n->charsmap.data, n->charsmap.len, e)
                               : 0;
}

static int put_bpe(struct hf *h, const Sp__Model *m, struct err *e)
{
    RETERR(made_str(h->m, KEY("model"), "llama", e));
    return m->normalizer->add_dummy_prefix
               ? 0
               : made_bool(h->m, KEY("add_space_prefix"), false, e);
}

static int put_model(struct hf *h, const Sp__Model *m,
                     const struct json *config, struct err *e)
{
    struct json *added = NULL;
    struct hf_vocab v = {.n = 0};
    int rc = 0;
    CHECK(check_kind(m, e));
    CHECK(hf_read_json(h, "added_tokens.json", HF_CONFIG_MAX, &added, e));
    CHECK(hf_vocab_init(&v, num_max(count_ids(m, added, config), h->vocab),
                        e));
    CHECK(add_pieces(m, &v, e));
    CHECK(add_added(added, config, &v, e));
    CHECK(is_unigram(m) ? put_unigram(h, m, e) : put_bpe(h, m, e));
    CHECK(made_str(h->m, KEY("pre"), "default", e));
    CHECK(hf_vocab_put(h, &v, true, e));
    CHECK(put_strip(h, config, "lstrip", "tokenizer.aned.strip_left", e));
    CHECK(put_strip(h, config, "rstrip", "tokenizer.aned.strip_right", e));
out:
    hf_vocab_fini(&v);
    json_free(added);
    return rc;
}

int hf_put_spm(struct hf *h, const void *p, size_t n,
               const struct json *config, struct err *e)
{
    h->tokens = HF_TOKENIZER_SPM;
    Sp__Model *m = n > 0 ? sp__model__unpack(NULL, n, p) : NULL;
    if (m == NULL) {
        return err_set(e, ERR_TOKENIZER, WHERE "no SentencePiece model");
    }
    int rc = m->n_pieces <= MODEL_VOCAB_MAX
                 ? put_model(h, m, config, e)
                 : err_set(e, ERR_TOKENIZER, WHERE "%zu pieces", m->n_pieces);
    sp__model__free_unpacked(m, NULL);
    return rc;
}
