/* llamacpp_fields.c - the fields of /completion and /infill. Defaults are
 * llama-server's: temperature 0.8, top_k 40, top_p 0.95, min_p 0.05, to the end
 * of the context. */
#include <math.h>
#include <string.h>

#include "api/fields.h"
#include "api/llamacpp.h"

/* How many alternatives; 0 is none, and no log-probabilities. */
static int set_n_probs(struct params *p, const struct field *f,
                       const struct json *v, struct err *e)
{
    int64_t n = 0;
    int rc = field_int(f, v, &n, e);
    if (rc == 0) {
        p->logprobs = n > 0;
        p->req.sampling.logprobs = (uint32_t)n;
    }
    return rc;
}

/* Milliseconds; what is not above 0 is none. */
static int set_ms(struct params *p, const struct field *f, const struct json *v,
                  struct err *e)
{
    int64_t n = 0;
    int rc = field_int(f, v, &n, e);
    if (rc == 0) {
        p->req.lines_ms = n > 0 ? (uint32_t)n : 0;
    }
    return rc;
}

/* [[id, bias], ...]: an entry. */
static int read_bias(const struct field *f, const struct json *v,
                     struct msg_bias *ret, struct err *e)
{
    const struct json *id = json_first(v);
    const struct json *bias = id != NULL ? json_next(id) : NULL;
    bool ban = json_type(v) == JSON_ARRAY && json_count(v) == 2 &&
               json_type(bias) == JSON_BOOL && !json_bool(bias);
    int64_t n = 0;
    if (json_type(v) != JSON_ARRAY || json_count(v) != 2 ||
        !json_int(id, 0, MODEL_VOCAB_MAX - 1, &n)) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: entries must be [token id, bias]", f->name);
    }
    double x = json_num(bias);
    if (!ban && (json_type(bias) != JSON_NUMBER || x < -100 || x > 100)) {
        return err_set(e, ERR_INVALID,
                       "%s: the bias of %d must be a number from -100 to 100, "
                       "or false",
                       f->name, (int)n);
    }
    *ret =
        (struct msg_bias){.id = (int32_t)n, .bias = ban ? -INFINITY : (float)x};
    return 0;
}

static int set_bias_pairs(struct params *p, const struct field *f,
                          const struct json *v, struct err *e)
{
    struct msg_sampling *s = &p->req.sampling;
    size_t n = json_count(v);
    if (json_type(v) != JSON_ARRAY) {
        return set_bias(p, f, v, e);
    }
    if (n > ENGINE_BIAS_MAX) {
        return err_set(e, ERR_INVALID, "%s: at most %u entries", f->name,
                       ENGINE_BIAS_MAX);
    }
    s->bias = arena_array(p->a, n + 1, sizeof(*s->bias));
    if (s->bias == NULL) {
        return field_full(f, e);
    }
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        RETERR(read_bias(f, c, &s->bias[s->n_bias], e));
        s->n_bias++;
    }
    return 0;
}

/* Members of the answer: "content", "timings/prompt_n". */
static int set_shown(struct params *p, const struct field *f,
                     const struct json *v, struct err *e)
{
    size_t n = json_count(v);
    RETERR(take_strings(p, f, v, e));
    if (n > ANSWER_FIELDS_MAX) {
        return err_set(e, ERR_INVALID, "%s: at most %u", f->name,
                       ANSWER_FIELDS_MAX);
    }
    if (n == 0) {
        return 0;
    }
    const char **list = arena_array(p->a, n, sizeof(*list));
    p->shown = list;
    for (const struct json *c = json_first(v); c != NULL && list != NULL;
         c = json_next(c)) {
        char *copy = arena_str(p->a, json_str(c));
        if (copy == NULL) {
            return field_full(f, e);
        }
        list[p->n_shown++] = copy;
    }
    return list != NULL ? 0 : field_full(f, e);
}

/* Rows are texts. */
/* clang-format off */

static const struct field common[] = {
    {"n_predict", set_uint, "integer", .lo = -1, .hi = MODEL_CONTEXT_MAX,
     .offset = REQ(max_tokens),
     .more = "'default': -1",
     .doc = "Tokens drawn at most; 0 computes the prompt and keeps it warm, -1 "
            "is to the end of the context."},
    {"max_tokens", set_uint, "integer", .lo = -1, .hi = MODEL_CONTEXT_MAX,
     .offset = REQ(max_tokens),
     .doc = "OpenAI's name of n_predict."},
    {"n_cmpl", set_uint, "integer", .lo = 1, .hi = CHOICES_MAX,
     .offset = REQ(n),
     .more = "'default': 1",
     .doc = "Answers to the prompt; more than one come as an array."},
    {"n", set_uint, "integer", .lo = 1, .hi = CHOICES_MAX, .offset = REQ(n),
     .doc = "OpenAI's name of n_cmpl."},
    {"temperature", set_temperature, "number", .hi = 2,
     .offset = SAM(temperature),
     .more = "'default': 0.8",
     .doc = "0 is greedy."},
    {"top_k", set_top_k, "integer", .lo = -1, .hi = MODEL_VOCAB_MAX,
     .more = "'default': 40",
     .doc = "Draw from so many of the likeliest tokens; 0 or -1: of all."},
    {"top_p", set_float, "number", .hi = 1, .offset = SAM(top_p),
     .more = "'default': 0.95",
     .doc = "Draw from the likeliest tokens of this weight together."},
    {"min_p", set_float, "number", .hi = 1, .offset = SAM(min_p),
     .more = "'default': 0.05",
     .doc = "Draw from tokens of at least this share of the likeliest one's "
            "weight."},
    {"logit_bias", set_bias_pairs, "object|array",
     .more = "'maxProperties': 1024, 'additionalProperties': {'type': "
             "['number', 'boolean']}, 'items': {'type': 'array', 'minItems': "
             "2, 'maxItems': 2}, 'maxItems': 1024",
     .doc = "[token id, bias] pairs, or {\"id\": bias}; a bias is -100 to 100, "
            "false bans the token."},
    {"n_probs", set_n_probs, "integer", .hi = ENGINE_LOGPROBS_MAX,
     .more = "'default': 0",
     .doc = "Log-probabilities of the tokens and this many alternatives, in "
            "completion_probabilities; 0 is none."},
    {"n_indent", set_uint, "integer", .hi = 1024, .offset = REQ(indent),
     .more = "'default': 0",
     .doc = "Ends the text before a line that begins with fewer blanks."},
    {"t_max_predict_ms", set_ms, "integer", .lo = -1, .hi = DEADLINE_MAX_MS,
     .doc = "Milliseconds after the first token; then a text that has ended a "
            "line ends."},
    {"t_max_prompt_ms", take_number, "integer", .lo = -1, .hi = EXACT_MAX,
     .doc = "Taken, without effect, as in llama-server; deadline_ms has one."},
    {"timings_per_token", set_bool, "boolean", .offset = OUR(token_timings),
     .more = "'default': false",
     .doc = "Each event of a stream has timings."},
    {"response_fields", set_shown, "array",
     .more = "'items': {'type': 'string'}, 'maxItems': 64",
     .doc = "Only these members of the answer; \"timings/prompt_n\" is one of "
            "timings. Empty: all."},
    {"return_progress", take_bool, "boolean",
     .doc = "Taken, without effect: no event tells how far a prompt is."},
    {"return_tokens", only_false, "boolean",
     .doc = "Only false: tokens is empty; n_probs has their ids."},
    {"post_sampling_probs", only_false, "boolean",
     .doc = "Only false: probabilities are those before the filters."},
    {"n_keep", take_number, "integer", .lo = -1, .hi = EXACT_MAX,
     .doc = "Taken, without effect: no context is shifted."},
    {"n_discard", take_number, "integer", .hi = EXACT_MAX,
     .doc = "Taken, without effect: no context is shifted."},
    {"n_cache_reuse", take_number, "integer", .hi = EXACT_MAX,
     .doc = "Taken, without effect: only whole prefixes are warm."},
    {"min_keep", only_number, "integer", .lo = 0,
     .doc = "Only 0."},
    {.name = NULL},
};

static const struct field completion[] = {
    {"prompt", take_any, NULL,
     .more = "'oneOf': [{'type': 'string'}, {'type': 'array', 'items': "
             "{'type': 'string'}, 'minItems': 1, 'maxItems': 1}, {'type': "
             "'array', 'items': {'type': 'integer', 'minimum': 0}, 'minItems': "
             "1}, {'type': 'array', 'items': {'type': 'array', 'items': "
             "{'type': 'integer', 'minimum': 0}}, 'minItems': 1, 'maxItems': "
             "1}]",
     .doc = "A text, or token ids (then no BOS is added). One prompt a "
            "request, and no mixture of both."},
    {.name = NULL},
};

static const struct field infill[] = {
    {"input_prefix", take_string, "string",
     .doc = "The text before the gap. What has no room is cut, from its "
            "beginning."},
    {"input_suffix", take_string, "string",
     .doc = "The text after the gap; it is cut from its end."},
    {"prompt", take_string, "string",
     .doc = "Comes behind input_prefix: what was just typed."},
    {"input_extra", take_any, "array",
     .more = "'maxItems': 256, 'items': {'type': 'object', 'required': "
             "['text'], 'properties': {'text': {'type': 'string'}, 'filename': "
             "{'type': 'string'}, 'time': {}}}",
     .doc = "Other files, in front of the text, the most important last; the "
            "first are cut."},
    {"samplers", set_infill_samplers, "array|string",
     .more = "'items': {'type': 'string'}, 'maxLength': 17",
     .doc = "As of /completion; also infill, which here takes the likeliest "
            "token where llama-server draws from a few; with n_cmpl it is a "
            "min_p of at least 0.2."},
    {.name = NULL},
};

/* clang-format on */

static void defaults(struct params *p)
{
    struct msg_sampling *s = &p->req.sampling;
    s->temperature = 0.8f;
    s->top_k = 40;
    s->top_p = 0.95f;
    s->min_p = 0.05f;
}

/* "infill" is llama-server's filter for code; what it leaves is nearly always
 * the likeliest token, which is what is taken here. Several answers would all
 * be the same: for them it is a min_p. */
static int together(struct params *p, const struct json *j, struct err *e)
{
    struct msg_sampling *s = &p->req.sampling;
    (void)j;
    if (!p->likeliest) {
        return 0;
    }
    if (p->req.n == 1) {
        s->temperature = 0;
        s->dynatemp_range = 0;
        return 0;
    }
    s->min_p = fmaxf(s->min_p, 0.2f);
    if (!msg_sampling_uses(s, SAMPLER_MIN_P)) {
        if (s->n_chain == SAMPLERS_MAX) {
            params_blame(p, "samplers");
            return err_set(e, ERR_INVALID, "samplers: at most %u",
                           SAMPLERS_MAX - 1);
        }
        s->chain[s->n_chain++] = SAMPLER_MIN_P;
    }
    return 0;
}

const struct fields llamacpp_completion_fields = {
    .schema = "LlamaCompletionRequest",
    .part = {fields_every,   common, fields_tuning, fields_samplers, completion},
    .required = {"prompt"},
    .cls = SCHED_CLASS_INTERACTIVE,
    .max_tokens = GEN_MAX_TOKENS,
    .defaults = defaults,
    .together = together,
};

const struct fields llamacpp_infill_fields = {
    .schema = "InfillRequest",
    .part = {fields_every, common, fields_tuning, infill},
    .required = {"input_prefix",      "input_suffix"           },
    .cls = SCHED_CLASS_INTERACTIVE,
    .max_tokens = GEN_MAX_TOKENS,
    .defaults = defaults,
    .together = together,
};
