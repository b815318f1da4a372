/* responses_fields.c - the fields of /v1/responses. Defaults are OpenAI's:
 * temperature 1, top_p 1, the rest of the context, and store. */
#include <string.h>

#include "api/fields.h"
#include "api/openai.h"
#include "api/responses.h"

static int take_array(struct params *p, const struct field *f,
                      const struct json *v, struct err *e)
{
    (void)p;
    return json_type(v) == JSON_ARRAY ? 0 : field_want(f, e, "an array");
}

static int take_include(struct params *p, const struct field *f,
                        const struct json *v, struct err *e)
{
    (void)p;
    if (json_type(v) != JSON_ARRAY) {
        return field_want(f, e, "an array of strings");
    }
    for (const struct json *c = json_first(v); c != NULL; c = json_next(c)) {
        if (!field_is_word(f, c)) {
            return err_set(e, ERR_UNSUPPORTED, "%s: no '%.48s' here", f->name,
                           json_str(c) != NULL ? json_str(c) : "");
        }
    }
    return 0;
}

static const char *const truncations[] = {"disabled", "auto", NULL};
/* What an answer might have beside its items; there is none of it here. */
static const char *const includes[] = {
    "reasoning.encrypted_content",   "file_search_call.results",
    "web_search_call.results",       "web_search_call.action.sources",
    "message.input_image.image_url", "computer_call_output.output.image_url",
    "code_interpreter_call.outputs", NULL};

/* Rows are texts. */
/* clang-format off */

static const struct field format[] = {
    {"text.format", set_format, "object",
     .more = "'properties': {'type': {'enum': ['text', 'json_object', "
             "'json_schema']}, 'schema': {'type': 'object'}}, 'required': "
             "['type']",
     .doc = "json_object: any JSON object; json_schema: JSON that is valid by "
            "the schema. Words of it that cannot be kept are refused by name."},
    {"text.verbosity", take_string, "string",
     .doc = "Taken, without effect."},
    {.name = NULL},
};

static const struct field thought[] = {
    {"reasoning.effort", set_effort, "string",
     .doc = "For templates that know reasoning_effort; none: the model is told "
            "not to think, where its template can say that."},
    {"reasoning.summary", take_string, "string",
     .doc = "Taken, without effect: what a model thinks is given whole, as "
            "reasoning_text, and its summary is empty."},
    {"reasoning.generate_summary", take_string, "string",
     .doc = "Taken, without effect."},
    {.name = NULL},
};

static const struct field stream_options[] = {
    {"stream_options.include_obfuscation", take_bool, "boolean",
     .doc = "Taken, without effect: events are not padded."},
    {.name = NULL},
};

/* What the prompt is made of. */
static const struct field prompt[] = {
    {"input", take_any, "string|array",
     .more = "'minItems': 1, 'maxItems': 4096, 'items': {'type': 'object', "
             "'properties': {'type': {'enum': ['message', 'function_call', "
             "'function_call_output', 'reasoning', 'item_reference'], "
             "'default': 'message'}}}",
     .doc = "What the user says, or items: messages of text (roles user, "
            "assistant, system, developer), calls of functions and their "
            "results, and reasoning, whose content the template may show. "
            "A last message of the assistant is continued: the answer has what "
            "comes after it. An item_reference is the item with that id in the "
            "output of an answer that was stored. Other items are refused."},
    {"instructions", take_string, "string",
     .doc = "A system message in front of all others; of this request only. A "
            "developer message where the next one is such."},
    {"previous_response_id", take_string, "string",
     .doc = "Go on from this answer, with the messages that led to it. It must "
            "have been stored, and not have been pushed out by others."},
    {"tools", take_array, "array",
     .more = "'items': {'type': 'object', 'required': ['type'], 'properties': "
             "{'type': {'type': 'string'}}}, 'maxItems': 4096",
     .doc = "The model is shown functions, also those of namespaces, by its "
            "chat template; 400 where that shows none. Tools "
            "that a service runs by itself (web_search, file_search, "
            "code_interpreter, mcp and others) and custom tools are left out; "
            "the answer's tools are those that the model was shown."},
    {"tool_choice", set_tool_choice, "string|object",
     .more = "'oneOf': [{'enum': ['none', 'auto', 'required', null]}, {'type': "
             "'object', 'required': ['type', 'name'], 'properties': {'type': "
             "{'const': 'function'}, 'name': {'type': 'string'}}}]",
     .doc = "auto; none: the model is shown no tools; required: the answer "
            "calls at least one; a function: it calls that one. Arguments of a "
            "call that is required, and of strict tools, are valid by the "
            "tool's schema."},
    {"parallel_tool_calls", set_parallel, "boolean",
     .more = "'default': true",
     .doc = "false: the answer ends after its first call."},
    {"max_tool_calls", take_number, "integer", .lo = 0, .hi = EXACT_MAX,
     .doc = "Taken, without effect: it is about tools that a service runs."},
    {"conversation", only_absent, "null",
     .doc = "Not here: previous_response_id goes on."},
    {"prompt", only_absent, "null",
     .doc = "Not here: prompts are not stored."},
    {"truncation", take_word, "string", .words = truncations,
     .doc = "auto is as disabled: a conversation longer than the context is an "
            "error."},
    {"reasoning", set_object, "object", .sub = thought,
     .doc = "How the model thinks."},
    {"text", set_object, "object", .sub = format,
     .doc = "How the answer looks."},
    {.name = NULL},
};

static const struct field answer[] = {
    {"max_output_tokens", set_uint, "integer", .lo = 1,
     .hi = MODEL_CONTEXT_MAX, .offset = REQ(max_tokens),
     .doc = "Tokens drawn at most; the context ends an answer too. Default: to "
            "the end of the context."},
    {"stream_options", set_object, "object", .sub = stream_options,
     .doc = "Hints about events."},
    {"store", take_bool, "boolean",
     .more = "'default': true",
     .doc = "Keep the answer: GET /v1/responses/ID gives it again, and "
            "previous_response_id goes on from it. The newest 256 are kept, of "
            "64 MiB together. One whose items are over 256 KiB is not: its "
            "store is false."},
    {"background", only_false, "boolean",
     .doc = "Only false."},
    {"temperature", set_temperature, "number", .hi = 2,
     .offset = SAM(temperature),
     .more = "'default': 1",
     .doc = "0 is greedy."},
    {"top_p", set_float, "number", .hi = 1, .offset = SAM(top_p),
     .more = "'default': 1",
     .doc = "Draw from the likeliest tokens of this weight together; 1 is "
            "off."},
    {"top_k", set_top_k, "integer", .lo = -1, .hi = MODEL_VOCAB_MAX,
     .doc = "aned's: draw from so many of the likeliest tokens; 0 or -1 is "
            "off."},
    {"top_logprobs", only_number, "integer", .lo = 0,
     .doc = "Only 0; /v1/chat/completions has log-probabilities."},
    {"include", take_include, "array", .words = includes,
     .more = "'items': {'type': 'string'}",
     .doc = "Taken, without effect: answers have no encrypted content and no "
            "results of a service's tools. Not message.output_text.logprobs."},
    {"service_tier", openai_set_tier, "string",
     .more = "'enum': ['auto', 'default', 'flex', 'priority', null]",
     .doc = "flex: after everybody else (class batch); priority: before chat "
            "(class interactive). Answered in service_tier."},
    {.name = NULL},
};

static const struct field hints[] = {
    {"metadata", take_object, "object",
     .doc = "Answered as it is."},
    {"client_metadata", take_object, "object",
     .doc = "Codex's; taken, without effect."},
    {"user", take_string, "string",
     .doc = "Taken, without effect."},
    {"safety_identifier", take_string, "string",
     .doc = "Taken, without effect."},
    {"prompt_cache_key", take_string, "string",
     .doc = "Taken, without effect: warm prefixes are found by their tokens."},
    {"prompt_cache_retention", take_string, "string",
     .doc = "Taken, without effect."},
    {.name = NULL},
};

/* clang-format on */

const struct fields responses_fields = {
    .schema = "ResponsesRequest",
    .part = {fields_every, prompt, answer, hints},
    .required = {"input"},
    .cls = SCHED_CLASS_CHAT,
    .max_tokens = GEN_MAX_TOKENS,
};
