/* openai_fields.c - the fields of /v1/completions and /v1/chat/completions.
 * Defaults are OpenAI's: temperature 1, top_p 1, no penalty, n 1, a random
 * seed, max_tokens 16 for completions and the rest of the context for chat. */
#include <string.h>

#include "api/fields.h"
#include "api/openai.h"

static int set_stream_options(struct params *p, const struct field *f,
                              const struct json *v, struct err *e)
{
    if (json_type(v) != JSON_OBJECT) {
        return field_want(f, e, "an object");
    }
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        if (strcmp(json_key(c), "include_usage") != 0) {
            return err_set(e, ERR_UNSUPPORTED, "%s: no such field '%.32s'",
                           f->name, json_key(c));
        }
        if (json_type(c) == JSON_NULL) {
            continue;
        }
        if (json_type(c) != JSON_BOOL) {
            return err_set(e, ERR_INVALID,
                           "%s.include_usage: must be true or false", f->name);
        }
        p->include_usage = json_bool(c);
    }
    return 0;
}

/* Completions: how many alternatives; being there asks for logprobs. */
static int set_logprobs_n(struct params *p, const struct field *f,
                          const struct json *v, struct err *e)
{
    int64_t n = 0;
    int rc = field_int(f, v, &n, e);
    if (rc == 0) {
        p->logprobs = true;
        p->req.sampling.logprobs = (uint32_t)n;
    }
    return rc;
}

/* {"type": "content", "content": text, parts of text or token ids}. */
static int set_prediction(struct params *p, const struct field *f,
                          const struct json *v, struct err *e)
{
    const char *type = json_str(json_get(v, "type"));
    const struct json *c = json_get(v, "content");
    bool ok = json_type(v) == JSON_OBJECT && json_count(v) == 2 &&
              type != NULL && strcmp(type, "content") == 0 && c != NULL &&
              (json_str(c) != NULL || json_type(c) == JSON_ARRAY);
    const struct json *part =
        ok && json_type(c) == JSON_ARRAY ? json_first(c) : NULL;
    bool ids = part != NULL && json_type(part) == JSON_NUMBER;
    int64_t id = 0;
    for (; part != NULL && ok; part = json_next(part)) {
        ok = ids ? json_int(part, 0, MODEL_VOCAB_MAX - 1, &id)
                 : field_text_part(part) != NULL;
    }
    p->prediction = ok ? c : NULL;
    return ok ? 0
              : field_want(
                    f, e,
                    "{\"type\": \"content\", \"content\": a string or an "
                    "array of text parts or of token ids}");
}

/* OpenAI's names: "flex" requests wait for all others, "priority" ones for
 * none. */
int openai_set_tier(struct params *p, const struct field *f,
                    const struct json *v, struct err *e)
{
    static const char *const tiers[] = {"default", "auto", "flex", "priority"};
    const char *s = json_str(v);
    for (size_t i = 0; s != NULL && i < countof(tiers); i++) {
        if (strcmp(s, tiers[i]) == 0) {
            p->tier = tiers[i < 2 ? 0 : i];
            p->req.cls = i == 2   ? SCHED_CLASS_BATCH
                         : i == 3 ? SCHED_CLASS_INTERACTIVE
                                  : p->req.cls;
            return 0;
        }
    }
    return field_want(f, e, "one of auto, default, flex, priority");
}

/* OpenAI's first form of tools. */
static int only_no_functions(struct params *p, const struct field *f,
                             const struct json *v, struct err *e)
{
    (void)p;
    return json_type(v) == JSON_ARRAY && json_first(v) == NULL
               ? 0
               : field_unsupported(f, e, "only empty: tools has them");
}

/* What fields of both ask of each other. */
static int together(struct params *p, const struct json *j, struct err *e)
{
    const struct json *options = json_get(j, "stream_options");
    if (options != NULL && !p->stream && json_type(options) != JSON_NULL) {
        params_blame(p, "stream_options");
        return err_set(e, ERR_INVALID, "stream_options: only with stream");
    }
    if (p->resumable && !p->stream) {
        params_blame(p, "resumable");
        return err_set(e, ERR_INVALID, "resumable: only with stream");
    }
    return 0;
}

static const char *const modalities[] = {"text", NULL};
static const char *const no_function[] = {"none", "auto", NULL};
static const char *const reasoning_formats[] = {"none", "auto",
                                                "deepseek", NULL};

/* Rows are texts. */
/* clang-format off */

/* Of both. */
static const struct field common[] = {
    {"resumable", set_bool, "boolean", .offset = OUR(resumable),
     .more = "'default': false",
     .doc = "Only with stream: every event has an `id`, and after a lost "
            "connection GET /aned/v1/streams/ID, where ID is the `id` in the "
            "events, goes on after the last one seen. The answer is made to "
            "its end without a reader too, for [http] resume_s."},
    {"stream_options", set_stream_options, "object",
     .more = "'additionalProperties': false, 'properties': {'include_usage': "
             "{'type': ['boolean', 'null'], 'description': 'A last event with "
             "usage and no choices.', 'default': false}}",
     .doc = "Only with stream."},
    {"n_predict", set_uint, "integer", .lo = -1, .hi = MODEL_CONTEXT_MAX,
     .offset = REQ(max_tokens),
     .doc = "llama-server's name of max_tokens; -1 is to the end of the "
            "context."},
    {"n", set_uint, "integer", .lo = 1, .hi = CHOICES_MAX, .offset = REQ(n),
     .more = "'default': 1",
     .doc = "Choices; they share the prompt's computation."},
    {"temperature", set_temperature, "number", .hi = 2,
     .offset = SAM(temperature),
     .more = "'default': 1",
     .doc = "0 is greedy."},
    {"top_p", set_float, "number", .hi = 1, .offset = SAM(top_p),
     .more = "'default': 1",
     .doc = "Draw from the likeliest tokens of this weight together; 1 is "
            "off."},
    {"top_k", set_top_k, "integer", .lo = -1, .hi = MODEL_VOCAB_MAX,
     .more = "'default': 0",
     .doc = "0 or -1 is off."},
    {"min_p", set_float, "number", .hi = 1, .offset = SAM(min_p),
     .more = "'default': 0",
     .doc = "Draw from tokens of at least this share of the likeliest one's "
            "weight; 0 is off."},
    {"logit_bias", set_bias, "object",
     .more = "'maxProperties': 1024, 'additionalProperties': {'type': "
             "['number', 'boolean']}",
     .doc = "Token id to bias, -100 to 100; false bans the token."},
    {"prediction", set_prediction, "object",
     .more = "'required': ['type', 'content'], 'properties': {'type': "
             "{'const': 'content'}, 'content': {'description': 'Text, an array "
             "of {\\'type\\': \\'text\\', \\'text\\': ...}, or token ids.', "
             "'oneOf': [{'type': 'string'}, {'type': 'array', 'items': "
             "{'type': 'object', 'required': ['type', 'text'], "
             "'additionalProperties': false, 'properties': {'type': {'const': "
             "'text'}, 'text': {'type': 'string'}}}}, {'type': 'array', "
             "'items': {'type': 'integer', 'minimum': 0}, 'minItems': 1, "
             "'maxItems': 1048576}]}}",
     .doc = "What the answer may look like: drafted where the answer goes the "
            "same way. Never changes an output."},
    {"service_tier", openai_set_tier, "string",
     .more = "'enum': ['auto', 'default', 'flex', 'priority', null]",
     .doc = "flex: after everybody else (class batch); priority: before chat "
            "(class interactive); default and auto: completions are "
            "interactive, chat is chat. Answered in service_tier."},
    {"user", take_string, "string",
     .doc = "Taken, without effect."},
    {"ttl", set_ttl, "number",
     .doc = "LM Studio's name of keep_alive: seconds."},
    {"response_fields", take_strings, "array",
     .more = "'items': {'type': 'string'}",
     .doc = "llama-server's; taken, without effect: an answer has all of its "
            "members."},
    {"n_cmpl", only_number, "integer", .lo = 1,
     .doc = "Only 1; n has choices."},
    {"repetition_penalty", only_number, "number", .lo = 1,
     .doc = "Only 1, which is off; repeat_penalty has others."},
    {"priority", only_number, "integer", .lo = 0,
     .doc = "Only 0; service_tier has others."},
    {"num_ctx", only_number, "integer", .lo = 0,
     .doc = "Only 0: a model has the context that it was converted for."},
    {"options", only_no_members, "object",
     .more = "'maxProperties': 0",
     .doc = "Only empty: Ollama's, which has /api/chat."},
    {"timings_per_token", only_false, "boolean",
     .doc = "Only false: timings come with the end."},
    {"return_progress", only_false, "boolean",
     .doc = "Only false."},
    {.name = NULL},
};

static const struct field completion[] = {
    {"max_tokens", set_uint, "integer", .lo = -1, .hi = MODEL_CONTEXT_MAX,
     .offset = REQ(max_tokens),
     .more = "'default': 16",
     .doc = "Tokens drawn for each choice at most; 0 computes the prompt and "
            "keeps it warm, -1 is to the end of the context."},
    {"prompt", take_any, NULL,
     .more = "'oneOf': [{'type': 'string'}, {'type': 'array', 'items': "
             "{'type': 'string'}, 'minItems': 1, 'maxItems': 32}, {'type': "
             "'array', 'items': {'type': 'integer', 'minimum': 0}, 'minItems': "
             "1}, {'type': 'array', 'items': {'type': 'array', 'items': "
             "{'type': 'integer', 'minimum': 0}, 'minItems': 1}, 'minItems': "
             "1, 'maxItems': 32}]",
     .doc = "A text, or token ids (then no BOS is added), or several of one "
            "kind: prompt i has the choices from i * n on, of 64 in all. They "
            "are computed side by side, each as if it was asked for alone."},
    {"logprobs", set_logprobs_n, "integer", .hi = ENGINE_LOGPROBS_MAX,
     .doc = "Log-probabilities of the tokens and this many alternatives."},
    {"n_probs", set_logprobs_n, "integer", .hi = ENGINE_LOGPROBS_MAX,
     .doc = "llama-server's name of logprobs."},
    {"echo", set_bool, "boolean", .offset = OUR(echo),
     .more = "'default': false",
     .doc = "The prompt in front of the text; only for a text prompt without "
            "logprobs."},
    {"best_of", only_number, "integer", .lo = 1,
     .doc = "Only 1."},
    {"suffix", take_string, "string",
     .doc = "What comes after the text: it is filled in between prompt and "
            "this, as with /infill, by a model that has tokens for it. Only "
            "with a text prompt, without echo."},
    {.name = NULL},
};

static const struct field chat[] = {
    {"max_tokens", set_uint, "integer", .lo = -1, .hi = MODEL_CONTEXT_MAX,
     .offset = REQ(max_tokens),
     .doc = "Tokens drawn for each choice at most; 0 computes the prompt and "
            "keeps it warm, -1 is to the end of the context."},
    {"messages", take_any, "array",
     .more = "'minItems': 1, 'maxItems': 4096, 'items': {'$ref': "
             "'#/components/schemas/Message'}",
     .doc = "The conversation. A last message of the assistant is continued: "
            "the answer has what comes after it."},
    {"continue_final_message", take_bool, "boolean",
     .doc = "What happens anyway: true with a last message of the assistant, "
            "false with any other."},
    {"add_generation_prompt", take_bool, "boolean",
     .doc = "The opposite of continue_final_message."},
    {"max_completion_tokens", set_uint, "integer", .lo = -1,
     .hi = MODEL_CONTEXT_MAX, .offset = REQ(max_tokens),
     .doc = "The newer name of max_tokens. Default: to the end of the "
            "context."},
    {"logprobs", set_bool, "boolean", .offset = OUR(logprobs),
     .more = "'default': false",
     .doc = "Log-probabilities of the tokens."},
    {"top_logprobs", set_uint, "integer", .hi = ENGINE_LOGPROBS_MAX,
     .offset = SAM(logprobs),
     .more = "'default': 0",
     .doc = "Alternatives for each token; only with logprobs."},
    {"tools", take_any, "array",
     .more = "'maxItems': 512, 'items': {'type': 'object', 'required': "
             "['function'], 'properties': {'type': {'const': 'function'}, "
             "'function': {'type': 'object', 'required': ['name'], "
             "'properties': {'name': {'type': 'string', 'minLength': 1, "
             "'maxLength': 256}, 'description': {'type': ['string', 'null']}, "
             "'parameters': {'type': ['object', 'null']}, 'strict': {'type': "
             "['boolean', 'null'], 'description': 'Arguments are valid by "
             "the schema.'}}}}}",
     .doc = "Functions that the model may call, shown to it by its chat "
            "template; 400 where that shows none."},
    {"tool_choice", set_tool_choice, "string|object",
     .more = "'oneOf': [{'enum': ['none', 'auto', 'required', null]}, {'type': "
             "'object', 'required': ['type'], 'properties': {'type': {'const': "
             "'function'}, 'function': {'type': 'object', 'required': "
             "['name'], 'properties': {'name': {'type': 'string'}}}}}]",
     .doc = "auto: the model decides; none: it is not shown the tools; "
            "required: the answer calls at least one; a function: it calls "
            "that one. Arguments of a call that is required, and of strict "
            "tools, are valid by the tool's schema."},
    {"response_format", set_response_format, "object",
     .more = "'properties': {'type': {'enum': ['text', 'json_object', "
             "'json_schema']}, 'json_schema': {'type': 'object', 'properties': "
             "{'schema': {'type': 'object'}}}}, 'required': ['type']",
     .doc = "json_object: any JSON object; json_schema: JSON that is valid by "
            "the schema. Words of it that cannot be kept are refused by name. "
            "Thoughts before the answer stay free."},
    {"parallel_tool_calls", set_parallel, "boolean",
     .more = "'default': true",
     .doc = "false: the answer ends after its first call."},
    {"documents", take_any, "array",
     .more = "'items': {'type': 'object'}",
     .doc = "For templates that show documents; others leave them out."},
    {"metadata", take_object, "object",
     .doc = "Taken, without effect."},
    {"store", take_bool, "boolean",
     .doc = "Taken, without effect: nothing is stored."},
    {"n_probs", only_number, "integer", .lo = 0,
     .doc = "Only 0; logprobs and top_logprobs have others."},
    {"reasoning_effort", set_effort, "string",
     .more = "'maxLength': 64",
     .doc = "For the chat template, where it knows reasoning_effort; none: "
            "also enable_thinking and thinking, false."},
    {"verbosity", take_string, "string",
     .doc = "Taken, without effect."},
    {"prompt_cache_key", take_string, "string",
     .doc = "Taken, without effect: warm prefixes are found by their tokens."},
    {"prompt_cache_retention", take_string, "string",
     .doc = "Taken, without effect."},
    {"safety_identifier", take_string, "string",
     .doc = "Taken, without effect."},
    {"modalities", only_word, "array", .words = modalities,
     .more = "'items': {'const': 'text'}",
     .doc = "Only text."},
    {"audio", only_absent, "null",
     .doc = "Not here: only text."},
    {"functions", only_no_functions, "array",
     .more = "'maxItems': 0",
     .doc = "Only empty: the older form of tools."},
    {"function_call", only_word, "string", .words = no_function,
     .doc = "Without effect: there are no functions."},
    {"web_search_options", only_no_members, "object",
     .more = "'maxProperties': 0",
     .doc = "Only empty."},
    {"chat_template_kwargs", set_kwargs, "object",
     .doc = "Variables of the chat template, beside or in place of those that "
            "other fields set; not messages, tools, documents."},
    {"thinking", set_thinking, "object",
     .more = "'required': ['type'], 'properties': {'type': {'enum': "
             "['enabled', 'disabled', 'adaptive']}, 'budget_tokens': {'type': "
             "['integer', 'null'], 'minimum': 1}}",
     .doc = "Anthropic's: for the chat template, where it knows "
            "enable_thinking or thinking, and thinking_budget."},
    {"enable_thinking", set_thinks, "boolean",
     .doc = "For the chat template, where it knows enable_thinking or "
            "thinking."},
    {"reasoning_format", set_reasoning_format, "string",
     .words = reasoning_formats,
     .more = "'enum': ['none', 'auto', 'deepseek', null]",
     .doc = "What a model thinks: in reasoning_content (auto, deepseek), or "
            "left in the text (none)."},
    {.name = NULL},
};

/* clang-format on */

static int completion_together(struct params *p, const struct json *j,
                               struct err *e)
{
    RETERR(together(p, j, e));
    if (p->echo && p->logprobs) {
        params_blame(p, "echo");
        return err_set(e, ERR_UNSUPPORTED, "echo: not together with logprobs");
    }
    return 0;
}

static int chat_together(struct params *p, const struct json *j, struct err *e)
{
    RETERR(together(p, j, e));
    if (!p->logprobs && p->req.sampling.logprobs > 0) {
        params_blame(p, "top_logprobs");
        return err_set(e, ERR_INVALID, "top_logprobs: only with logprobs");
    }
    return 0;
}

const struct fields openai_completion_fields = {
    .schema = "CompletionRequest",
    .part = {fields_every,   common, fields_tuning, fields_samplers, completion},
    .required = {"prompt"},
    .cls = SCHED_CLASS_INTERACTIVE,
    .max_tokens = 16,
    .together = completion_together,
};

const struct fields openai_chat_fields = {
    .schema = "ChatRequest",
    .part = {fields_every,   common, fields_tuning, fields_samplers, chat},
    .required = {"messages"},
    .cls = SCHED_CLASS_CHAT,
    .max_tokens = GEN_MAX_TOKENS,
    .together = chat_together,
};
