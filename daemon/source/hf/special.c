/* special.c - which tokens are special, whether they are added to a text, and
 * the chat template.
 *
 * Names of tokens come from tokenizer_config.json, ids from config.json and
 * generation_config.json where that says nothing. */
#include <string.h>

#include "base/parse.h"
#include "source/hf/hf.h"

#define KEY(name) "tokenizer.ggml." name

/* "<s>", or {"content": "<s>"}. */
static const char *token_text(const struct json *config, const char *key)
{
    const struct json *j = hf_get(config, key);
    const char *s = json_str(j);
    return s != NULL ? s : json_str(json_get(j, "content"));
}

/* The id of a token by its text; false: there is none. */
static bool id_of(const struct json *tokenizer, const struct json *config,
                  const char *text, int64_t *ret)
{
    const struct json *vocab =
        json_get(json_get(tokenizer, "model"), "vocab");
    const int64_t most = MODEL_VOCAB_MAX - 1;
    for (const struct json *c = json_first(json_get(tokenizer,
                                                    "added_tokens"));
         c != NULL; c = json_next(c)) {
        const char *s = json_str(json_get(c, "content"));
        if (s != NULL && strcmp(s, text) == 0) {
            return json_int(json_get(c, "id"), 0, most, ret);
        }
    }
    for (const struct json *c =
             json_first(json_get(config, "added_tokens_decoder"));
         c != NULL; c = json_next(c)) {
        const char *s = json_str(json_get(c, "content"));
        if (s != NULL && strcmp(s, text) == 0) {
            uint64_t id = 0;
            bool ok = parse_u64(json_key(c), (uint64_t)most, &id);
            *ret = (int64_t)id;
            return ok;
        }
    }
    if (vocab == NULL || json_type(vocab) != JSON_ARRAY) {
        return json_int(json_get(vocab, text), 0, most, ret);
    }
    *ret = 0; /* a list of [text, score] */
    for (const struct json *c = json_first(vocab); c != NULL;
         c = json_next(c), (*ret)++) {
        const char *s = json_str(json_first(c));
        if (s != NULL && strcmp(s, text) == 0) {
            return true;
        }
    }
    return false;
}

/* Item i of a number or a list of them. */
static bool number_at(const struct json *j, size_t i, int64_t *ret)
{
    if (j == NULL || json_type(j) != JSON_ARRAY) {
        return i == 0 && json_int(j, 0, MODEL_VOCAB_MAX - 1, ret);
    }
    for (const struct json *c = json_first(j); c != NULL; c = json_next(c)) {
        if (i-- == 0) {
            return json_int(c, 0, MODEL_VOCAB_MAX - 1, ret);
        }
    }
    return false;
}

struct special {
    const struct json *tokenizer, *config;
    const struct json *from[2]; /* generation_config.json, config.json */
    int64_t bos, eos;           /* -1: none */
    bool wordpiece;
};

static bool find_id(const struct special *s, const char *token,
                    const char *key, int64_t *ret)
{
    const char *text = token_text(s->config, token);
    if (text != NULL && id_of(s->tokenizer, s->config, text, ret)) {
        return true;
    }
    for (size_t i = 0; i < countof(s->from); i++) {
        if (number_at(hf_get(s->from[i], key), 0, ret)) {
            return true;
        }
    }
    return false;
}

/* Tokens that end a generation beside eos: GGUF has two names for them. */
static int put_ends(struct hf *h, const struct special *s, int64_t eos,
                    struct err *e)
{
    static const char *const keys[] = {KEY("eot_token_id"),
                                       KEY("eom_token_id")};
    int64_t put[countof(keys)] = {-1, -1};
    size_t n = 0;
    for (size_t i = 0; i < countof(s->from); i++) {
        const struct json *list = hf_get(s->from[i], "eos_token_id");
        int64_t id = 0;
        for (size_t k = 0; number_at(list, k, &id); k++) {
            if (id == eos || id == put[0] || id == put[1] ||
                n == countof(keys)) {
                continue;
            }
            RETERR(made_u32(h->m, keys[n], (uint32_t)id, e));
            put[n++] = id;
        }
    }
    return 0;
}

/* WordPiece's, in the places of bos and eos: [CLS] and [SEP], unless
 * tokenizer_config.json names others. */
static int put_around_ids(struct hf *h, struct special *s, struct err *e)
{
    static const struct {
        const char *token, *text, *gguf;
    } rows[] = {
        {"cls_token", "[CLS]", KEY("cls_token_id")      },
        {"sep_token", "[SEP]", KEY("seperator_token_id")}, /* so spelled */
    };
    int64_t *const to[] = {&s->bos, &s->eos};
    for (size_t i = 0; i < countof(rows); i++) {
        const char *text = token_text(s->config, rows[i].token);
        text = text != NULL ? text : rows[i].text;
        if (!id_of(s->tokenizer, s->config, text, to[i])) {
            return err_set(e, ERR_TOKENIZER, "%s '%.64s' is no token",
                           rows[i].token, text);
        }
        RETERR(made_u32(h->m, rows[i].gguf, (uint32_t)*to[i], e));
    }
    return 0;
}

static int put_ids(struct hf *h, struct special *s, struct err *e)
{
    static const struct {
        const char *token, *key, *gguf;
    } rows[] = {
        {"bos_token", "bos_token_id", KEY("bos_token_id")    },
        {"eos_token", "eos_token_id", KEY("eos_token_id")    },
        {"unk_token", "unk_token_id", KEY("unknown_token_id")},
        {"pad_token", "pad_token_id", KEY("padding_token_id")},
    };
    if (h->wordpiece) {
        RETERR(put_around_ids(h, s, e));
    }
    for (size_t i = h->wordpiece ? 2 : 0; i < countof(rows); i++) {
        int64_t id = h->unk;
        bool known = i == 2 && id >= 0; /* the vocabulary itself says it */
        if (known || find_id(s, rows[i].token, rows[i].key, &id)) {
            RETERR(made_u32(h->m, rows[i].gguf, (uint32_t)id, e));
            s->bos = i == 0 ? id : s->bos;
            s->eos = i == 1 ? id : s->eos;
        }
    }
    return h->wordpiece ? 0 : put_ends(h, s, s->eos, e);
}

/* --- what is put around a text --- */

struct around {
    bool bos, eos; /* added */
    bool known;    /* something says so */
    int64_t first; /* the token in front, where no file names a bos; or -1 */
};

static int unknown(const char *what, struct err *e)
{
    return err_set(e, ERR_TOKENIZER,
                   "tokenizer.json: post_processor: '%.64s' is nothing that "
                   "aned's tokenizers do",
                   what);
}

/* [bos] text [eos]: no other token stands around it. */
static int read_template(const struct special *s, const struct json *j,
                         struct around *a, struct err *e)
{
    bool text = false;
    for (const struct json *c = json_first(json_get(j, "single")); c != NULL;
         c = json_next(c)) {
        const char *token =
            json_str(json_get(json_get(c, "SpecialToken"), "id"));
        int64_t id = -2;
        if (token == NULL) {
            text = true;
            continue;
        }
        bool known = id_of(s->tokenizer, s->config, token, &id);
        if (known && !text && !a->bos && (id == s->bos || s->bos < 0)) {
            a->bos = true;
            a->first = s->bos < 0 ? id : -1;
        } else if (known && text && id == s->eos) {
            a->eos = true;
        } else {
            return unknown(token, e);
        }
    }
    a->known = true;
    return 0;
}

/* "cls": ["[CLS]", 101] in front, "sep" behind. */
static int read_bert(const struct special *s, const struct json *j,
                     struct around *a, struct err *e)
{
    static const char *const keys[] = {"cls", "sep"};
    const int64_t want[] = {s->bos, s->eos};
    for (size_t i = 0; i < countof(keys); i++) {
        const struct json *pair = hf_get(j, keys[i]);
        const struct json *text = json_first(pair);
        const struct json *id = text != NULL ? json_next(text) : NULL;
        if (pair != NULL && (id == NULL || json_num(id) != (double)want[i])) {
            return unknown(keys[i], e);
        }
    }
    a->bos = a->eos = a->known = true;
    return 0;
}

static int read_processor(const struct special *s, const struct json *j,
                          struct around *a, struct err *e)
{
    const char *type = json_str(json_get(j, "type"));
    if (type == NULL || strcmp(type, "ByteLevel") == 0) {
        return 0; /* offsets alone */
    }
    if (s->wordpiece && strcmp(type, "BertProcessing") == 0) {
        return read_bert(s, j, a, e);
    }
    return strcmp(type, "TemplateProcessing") == 0
               ? read_template(s, j, a, e)
               : unknown(type, e);
}

static int put_around(struct hf *h, const struct special *s, bool spm,
                      struct err *e)
{
    const struct json *p = hf_get(s->tokenizer, "post_processor");
    const char *type = json_str(json_get(p, "type"));
    struct around a = {.bos = spm, .first = -1};
    if (!spm && type != NULL && strcmp(type, "Sequence") == 0) {
        for (const struct json *c = json_first(json_get(p, "processors"));
             c != NULL; c = json_next(c)) {
            RETERR(read_processor(s, c, &a, e));
        }
    } else if (!spm && p != NULL) {
        RETERR(read_processor(s, p, &a, e));
    }
    const struct json *eos = hf_get(s->config, "add_eos_token");
    a.known = a.known || eos != NULL;
    RETERR(hf_bool(s->config, "add_bos_token", &a.bos, e));
    RETERR(hf_bool(s->config, "add_eos_token", &a.eos, e));
    RETERR(made_bool(h->m, KEY("add_bos_token"), a.bos, e));
    RETERR(a.first >= 0 ? made_u32(h->m, KEY("bos_token_id"),
                                   (uint32_t)a.first, e)
                        : 0);
    return a.known ? made_bool(h->m, KEY("add_eos_token"), a.eos, e) : 0;
}

/* --- the template --- */

/* One string, or a list of named ones with "default" among them. */
static const char *template_of(const struct json *config)
{
    const struct json *j = hf_get(config, "chat_template");
    for (const struct json *c = json_first(j); c != NULL; c = json_next(c)) {
        const char *name = json_str(json_get(c, "name"));
        if (name != NULL && strcmp(name, "default") == 0) {
            return json_str(json_get(c, "template"));
        }
    }
    return json_str(j);
}

static int put_template(struct hf *h, const struct json *config,
                        struct err *e)
{
    struct buf b;
    bool there = false;
    RETERR(hf_read(h, "chat_template.jinja", HF_CONFIG_MAX, &b, &there, e));
    struct span s = {b.p, b.n};
    if (!there && template_of(config) != NULL) {
        s.p = template_of(config);
        s.n = strlen(s.p);
    }
    int rc = s.n > 0 ? made_span(h->m, "tokenizer.chat_template", s, e) : 0;
    buf_fini(&b);
    return rc;
}

int hf_put_special(struct hf *h, const struct json *tokenizer,
                   const struct json *config, struct err *e)
{
    struct json *generation = NULL;
    bool spm = h->tokens == HF_TOKENIZER_SPM;
    int rc = 0;
    struct special s = {.tokenizer = tokenizer,
                        .config = config,
                        .from = {NULL, h->root},
                        .bos = -1,
                        .eos = -1,
                        .wordpiece = h->wordpiece};
    CHECK(hf_read_json(h, "generation_config.json", HF_CONFIG_MAX, &generation,
                       e));
    s.from[0] = generation;
    CHECK(put_ids(h, &s, e));
    CHECK(put_around(h, &s, spm, e));
    CHECK(put_template(h, config, e));
out:
    json_free(generation);
    return rc;
}
