/* anthropic_fields.c - the fields of /v1/messages and its count_tokens.
 * Defaults are Anthropic's: temperature 1, no top_p, no top_k. */
#include <string.h>

#include "api/anthropic.h"
#include "api/fields.h"

static const char *type_of(const struct json *v)
{
    const char *type = json_str(json_get(v, "type"));
    return type != NULL ? type : "";
}

/* Edits of earlier thinking, which templates show as far as they want it. */
static int set_context(struct params *p, const struct field *f,
                       const struct json *v, struct err *e)
{
    const struct json *edits = json_get(v, "edits");
    (void)p;
    if (json_type(v) != JSON_OBJECT) {
        return field_want(f, e, "an object");
    }
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        if (c != edits && json_type(c) != JSON_NULL) {
            return field_unsupported(f, e, "only edits");
        }
    }
    for (const struct json *c = json_first(edits); c != NULL;
         c = json_next(c)) {
        if (strncmp(type_of(c), "clear_thinking_", 15) != 0) {
            return field_unsupported(f, e, "only edits clear_thinking_...");
        }
    }
    return 0;
}

static const char *const tiers[] = {"auto", "standard_only", NULL};

/* Rows are texts. */
/* clang-format off */

static const struct field output[] = {
    {"output_config.effort", set_effort, "string",
     .doc = "For the chat template, where it knows reasoning_effort."},
    {"output_config.format", set_format, "object",
     .more = "'properties': {'type': {'const': 'json_schema'}, 'schema': "
             "{'type': 'object'}}, 'required': ['type']",
     .doc = "json_schema: the answer is JSON that is valid by the schema. "
            "Words of it that cannot be kept are refused by name."},
    {.name = NULL},
};

/* What the prompt is made of, and hints about it. */
static const struct field prompt[] = {
    {"model", set_model, "string",
     .doc = "A model's name, or one of [aliases]. Absent or empty: [http] "
            "default_model, or the only one."},
    {"messages", take_any, "array",
     .more = "'minItems': 1, 'maxItems': 4096, 'items': {'type': 'object', "
             "'required': ['role', 'content'], 'properties': {'role': {'enum': "
             "['user', 'assistant', 'system']}, 'content': {'description': 'A "
             "text, or blocks of text, which become lines, of thinking, "
             "tool_use and tool_result.', 'oneOf': [{'type': 'string'}, "
             "{'type': 'array', 'items': {'type': 'object'}}]}}}",
     .doc = "The conversation. A last message of the assistant is continued: "
            "the answer has what comes after it."},
    {"system", take_any, "string|array",
     .more = "'items': {'type': 'object'}",
     .doc = "A text, or blocks of text. A block that begins with "
            "x-anthropic-billing-header: is left out: it varies, and nothing "
            "after it could be kept warm."},
    {"tools", take_any, "array",
     .more = "'maxItems': 512, 'items': {'type': 'object', 'required': "
             "['name'], 'properties': {'name': {'type': 'string', 'minLength': "
             "1, 'maxLength': 256}, 'input_schema': {'type': ['object', "
             "'null']}, 'type': {'enum': ['custom', null]}}}",
     .doc = "What the model may use, shown to it by its chat template; 400 "
            "where that shows none, and for the service's own tools."},
    {"tool_choice", set_tool_choice_object, "object",
     .more = "'properties': {'type': {'enum': ['auto', 'none', 'any', "
             "'tool']}, 'name': {'type': 'string'}, "
             "'disable_parallel_tool_use': {'type': ['boolean', 'null']}}",
     .doc = "auto: the model decides; none: it is not shown the tools; any: "
            "the answer calls at least one; tool: the one of this name. With "
            "disable_parallel_tool_use the answer ends after its first call. "
            "Inputs of a call that is required, and of strict tools, are valid "
            "by the tool's schema."},
    {"thinking", set_thinking, "object",
     .more = "'required': ['type'], 'properties': {'type': {'enum': "
             "['enabled', 'disabled', 'adaptive']}, 'budget_tokens': {'type': "
             "['integer', 'null'], 'minimum': 1}}",
     .doc = "For the chat template, where it knows enable_thinking or "
            "thinking, and thinking_budget. What a model thinks is a block of "
            "thinking in any case."},
    {"cache_control", take_object, "object",
     .doc = "Taken, without effect: prefixes are kept warm without it."},
    {"context_management", set_context, "object",
     .doc = "Only edits of earlier thinking; taken, without effect: a chat "
            "template shows what its model needs."},
    {"output_config", set_object, "object", .sub = output,
     .doc = "How the answer looks."},
    {.name = NULL},
};

static const struct field answer[] = {
    {"max_tokens", set_uint, "integer", .hi = MODEL_CONTEXT_MAX,
     .offset = REQ(max_tokens),
     .doc = "Tokens drawn at most; the context ends an answer too. 0 computes "
            "the prompt and keeps it warm."},
    {"stream", set_bool, "boolean", .offset = OUR(stream),
     .more = "'default': false",
     .doc = "Server-sent events instead of one answer."},
    {"stop_sequences", set_stop, "array",
     .more = "'items': {'type': 'string', 'minLength': 1, 'maxLength': 1024}, "
             "'maxItems': 16",
     .doc = "End the text before them; stop_sequence says which one did."},
    {"temperature", set_temperature, "number", .hi = 1,
     .offset = SAM(temperature),
     .more = "'default': 1",
     .doc = "0 is greedy."},
    {"top_p", set_float, "number", .hi = 1, .offset = SAM(top_p),
     .doc = "Draw from the likeliest tokens of this weight together."},
    {"top_k", set_top_k, "integer", .lo = -1, .hi = MODEL_VOCAB_MAX,
     .doc = "Draw from so many of the likeliest tokens; 0 or -1: of all."},
    {"metadata", take_object, "object",
     .doc = "Taken, without effect."},
    {"service_tier", take_word, "string", .words = tiers,
     .doc = "Taken, without effect."},
    {"seed", set_seed, "integer", .lo = -EXACT_MAX, .hi = EXACT_MAX,
     .doc = "aned's: same request, same seed, same tokens. Absent or -1: a "
            "random one."},
    {"keep_alive", set_keep_alive, "number|string",
     .doc = "aned's: how long the model stays in memory after this: seconds, "
            "or a duration such as \"10m\"; a negative one: for ever."},
    {"deadline_ms", set_uint, "integer", .lo = 1, .hi = DEADLINE_MAX_MS,
     .offset = REQ(deadline_ms),
     .doc = "aned's: milliseconds from the request's arrival after which its "
            "answer ends with the text that it has, as at max_tokens."},
    {.name = NULL},
};

/* clang-format on */

static int together(struct params *p, const struct json *j, struct err *e)
{
    const struct json *v = json_get(j, "max_tokens");
    if (v == NULL || json_type(v) == JSON_NULL) {
        params_blame(p, "max_tokens");
        return err_set(e, ERR_INVALID, "max_tokens: must be given");
    }
    return 0;
}

const struct fields anthropic_fields = {
    .schema = "MessagesRequest",
    .part = {prompt,       answer    },
    .required = {"max_tokens", "messages"},
    .cls = SCHED_CLASS_CHAT,
    .max_tokens = GEN_MAX_TOKENS,
    .together = together,
};

const struct fields anthropic_count_fields = {
    .schema = "CountTokensRequest",
    .part = {prompt},
    .required = {"messages"},
    .cls = SCHED_CLASS_CHAT,
    .max_tokens = GEN_MAX_TOKENS,
};
