/* embed_fields.c - the fields of requests for embeddings. */
#include <string.h>

#include "api/embed.h"
#include "api/fields.h"
#include "api/ollama.h"
#include "api/openai.h"

static int set_format_of_numbers(struct params *p, const struct field *f,
                                 const struct json *v, struct err *e)
{
    if (!field_is_word(f, v)) {
        return field_want(f, e, "float or base64");
    }
    p->embed.base64 = strcmp(json_str(v), "base64") == 0;
    return 0;
}

/* llama-server's: 2 is the Euclidean length, -1 leaves vectors as they are. */
static int set_normalize(struct params *p, const struct field *f,
                         const struct json *v, struct err *e)
{
    int64_t n = 0;
    RETERR(field_int(f, v, &n, e));
    if (n != 2 && n != -1) {
        return field_unsupported(f, e, "only 2 (to length 1) and -1 (as they "
                                       "are)");
    }
    p->embed.raw = n == -1;
    return 0;
}

static const char *const number_formats[] = {"float", "base64", NULL};

/* Rows are texts. */
/* clang-format off */

#define INPUT_SCHEMA                                                           \
    "'oneOf': [{'type': 'string'}, {'type': 'array', 'items': {'type': "       \
    "'string'}, 'minItems': 1, 'maxItems': 2048}, {'type': 'array', 'items': " \
    "{'type': 'integer', 'minimum': 0}, 'minItems': 1}, {'type': 'array', "    \
    "'items': {'type': 'array', 'items': {'type': 'integer', 'minimum': 0}, "  \
    "'minItems': 1}, 'minItems': 1, 'maxItems': 2048}]"
#define INPUT_DOC                                                              \
    "A text, an array of texts, token ids, or an array of arrays of them. "     \
    "Token ids are taken as they are; texts get what the vocabulary puts "     \
    "around them (BOS, EOS). One longer than the model's context is refused."

static const struct field every[] = {
    {"model", set_model, "string",
     .doc = "A model's name, or one of [aliases]. Absent or empty: [http] "
            "default_model, or the only one."},
    {"keep_alive", set_keep_alive, "number|string",
     .doc = "How long the model stays in memory after this: seconds, or a "
            "duration such as \"10m\"; a negative one: for ever."},
    {"dimensions", set_uint, "integer", .lo = 1, .hi = EMBED_DIM_MAX,
     .offset = OUR(embed.dimensions),
     .doc = "So many numbers of each vector: the first ones, made of length 1 "
            "again. Models that were trained for it (Matryoshka) keep most of "
            "their worth then, others less. Default, and at most: all that "
            "the model's vectors have."},
    {.name = NULL},
};

static const struct field openai[] = {
    {"input", take_any, NULL, .more = INPUT_SCHEMA, .doc = INPUT_DOC},
    {"encoding_format", set_format_of_numbers, "string",
     .words = number_formats,
     .more = "'default': 'float'",
     .doc = "base64: 32-bit floats, little-endian."},
    {"user", take_string, "string",
     .doc = "Taken, without effect."},
    {"service_tier", openai_set_tier, "string",
     .more = "'enum': ['auto', 'default', 'flex', 'priority', null]",
     .doc = "flex: after everybody else (class batch); priority: before chat "
            "(class interactive)."},
    {"ttl", set_ttl, "number",
     .doc = "LM Studio's name of keep_alive: seconds."},
    {"embd_normalize", set_normalize, "integer", .lo = -1, .hi = 2,
     .more = "'default': 2, 'enum': [2, -1]",
     .doc = "llama-server's; 2: vectors of length 1; -1: as the model has "
            "them."},
    {.name = NULL},
};

static const struct field llamacpp[] = {
    {"content", take_any, NULL, .more = INPUT_SCHEMA, .doc = INPUT_DOC},
    {.name = NULL},
};

static const struct field ollama_both[] = {
    {"truncate", set_bool, "boolean", .offset = OUR(embed.truncate),
     .more = "'default': true",
     .doc = "A text longer than the model's context is cut behind its last "
            "token that fits; false: it is refused."},
    {"options", set_object, "object", .sub = ollama_options,
     .doc = "Taken, without effect: nothing is drawn."},
    {.name = NULL},
};

static const struct field ollama_input[] = {
    {"input", take_any, "string|array",
     .more = "'items': {'type': 'string'}, 'maxItems': 2048",
     .doc = "A text, or an array of texts. Empty: the model is loaded."},
    {.name = NULL},
};

static const struct field ollama_prompt[] = {
    {"prompt", take_any, "string",
     .doc = "A text. Empty: the model is loaded."},
    {.name = NULL},
};

/* clang-format on */

static void truncates(struct params *p)
{
    p->embed.truncate = true;
}

const struct fields embed_openai_fields = {
    .schema = "EmbeddingRequest",
    .part = {every, openai},
    .cls = SCHED_CLASS_CHAT,
};

const struct fields embed_llamacpp_fields = {
    .schema = "LlamaEmbeddingRequest",
    .part = {every, llamacpp, openai},
    .cls = SCHED_CLASS_CHAT,
};

const struct fields embed_ollama_fields = {
    .schema = "OllamaEmbedRequest",
    .part = {every, ollama_both, ollama_input},
    .cls = SCHED_CLASS_CHAT,
    .defaults = truncates,
};

const struct fields embed_ollama_old_fields = {
    .schema = "OllamaEmbeddingsRequest",
    .part = {every, ollama_both, ollama_prompt},
    .cls = SCHED_CLASS_CHAT,
    .defaults = truncates,
};
