/* spm.c - tokenizer.model, a SentencePiece BPE model, as tokenizer.ggml.* of
 * kind "llama". Its pieces, scores and types are GGUF's. Tokens that were added
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

/* What the tokenizer rooms do: BPE, spaces as U+2581, nothing else changed. */
static int check_kind(const Sp__Model *m, struct err *e)
{
    const Sp__Trainer *t = m->trainer;
    const Sp__Normalizer *n = m->normalizer;
    if (t == NULL || t->model_type != 2) {
        return unknown(t == NULL || t->model_type == 1
                           ? "a Unigram vocabulary"
                           : "a vocabulary of words or characters",
                       e);
    }
    if (t->treat_whitespace_as_suffix) {
        return unknown("white space behind words", e);
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
        if (text == NULL || json_bool(json_get(c, "single_word")) ||
            json_bool(json_get(c, "lstrip"))) {
            return err_set(e, ERR_TOKENIZER,
                           "tokenizer_config.json: the added token %.16s has "
                           "no text, single_word or lstrip",
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

static int put_strip(struct hf *h, const struct json *config, struct err *e)
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
        if (json_bool(json_get(c, "rstrip")) &&
            parse_u64(json_key(c), MODEL_VOCAB_MAX - 1, &id)) {
            ids[n++] = (int32_t)id;
        }
    }
    int rc = n > 0 ? made_i32s(h->m, "tokenizer.aned.strip_right", ids, n, e)
                   : 0;
    free(ids);
    return rc;
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
    CHECK(made_str(h->m, KEY("model"), "llama", e));
    CHECK(made_str(h->m, KEY("pre"), "default", e));
    CHECK(hf_vocab_put(h, &v, true, e));
    CHECK(put_strip(h, config, e));
    if (!m->normalizer->add_dummy_prefix) {
        CHECK(made_bool(h->m, KEY("add_space_prefix"), false, e));
    }
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
