/* ollama_fields.c - the fields of /api/chat and /api/generate, and their
 * options. Defaults are Ollama's: streamed, temperature 0.8, top_k 40, top_p
 * 0.9, repeat_penalty 1.1, to the end of the context. */
#include <string.h>

#include "api/fields.h"
#include "api/ollama.h"

/* Rows are texts. */
/* clang-format off */

const struct field ollama_options[] = {
    {"options.num_predict", set_uint, "integer", .lo = -2,
     .hi = MODEL_CONTEXT_MAX, .offset = REQ(max_tokens),
     .more = "'default': -1",
     .doc = "Tokens drawn at most; -1 and -2: to the end of the context."},
    {"options.temperature", set_temperature, "number", .hi = 2,
     .offset = SAM(temperature),
     .more = "'default': 0.8",
     .doc = "0 is greedy."},
    {"options.top_k", set_top_k, "integer", .lo = -1, .hi = MODEL_VOCAB_MAX,
     .more = "'default': 40",
     .doc = "Draw from so many of the likeliest tokens; 0 or -1: of all."},
    {"options.top_p", set_float, "number", .hi = 1, .offset = SAM(top_p),
     .more = "'default': 0.9",
     .doc = "Draw from the likeliest tokens of this weight together."},
    {"options.min_p", set_float, "number", .hi = 1, .offset = SAM(min_p),
     .more = "'default': 0",
     .doc = "Draw from tokens of at least this share of the likeliest one's "
            "weight."},
    {"options.seed", set_seed, "integer", .lo = -EXACT_MAX, .hi = EXACT_MAX,
     .doc = "Same request, same seed, same tokens. Absent or -1: a random "
            "one."},
    {"options.stop", set_stop, "string|array",
     .more = "'items': {'type': 'string', 'minLength': 1, 'maxLength': 1024}, "
             "'maxItems': 16",
     .doc = "Ends the text before it; never part of it."},
    {"options.repeat_penalty", set_penalty, "number", .lo = 0.01, .hi = 10,
     .offset = SAM(repeat_penalty),
     .more = "'default': 1.1",
     .doc = "1 is off."},
    {"options.repeat_last_n", set_uint, "integer", .lo = -1,
     .hi = MODEL_CONTEXT_MAX, .offset = SAM(repeat_last_n),
     .more = "'default': 64",
     .doc = "Tokens the penalties look back; -1 is all."},
    {"options.presence_penalty", set_float, "number", .lo = -2, .hi = 2,
     .offset = SAM(presence_penalty),
     .more = "'default': 0",
     .doc = "Taken from the logit of each token that was there."},
    {"options.frequency_penalty", set_float, "number", .lo = -2, .hi = 2,
     .offset = SAM(frequency_penalty),
     .more = "'default': 0",
     .doc = "Taken from a token's logit each time that it was there."},
    {"options.num_ctx", take_number, "integer", .hi = EXACT_MAX,
     .doc = "Taken, without effect: a model has the context that it was "
            "converted for, and a prompt beyond it is a 400."},
    {"options.num_keep", take_number, "integer", .lo = -1, .hi = EXACT_MAX,
     .doc = "Taken, without effect: no prompt is cut."},
    {"options.num_batch", take_number, "integer", .hi = EXACT_MAX,
     .doc = "Taken, without effect: the scheduler chooses."},
    {"options.num_gpu", take_number, "integer", .lo = -1, .hi = EXACT_MAX,
     .doc = "Taken, without effect: the backend is the daemon's."},
    {"options.main_gpu", take_number, "integer", .hi = EXACT_MAX,
     .doc = "Taken, without effect."},
    {"options.num_thread", take_number, "integer", .hi = EXACT_MAX,
     .doc = "Taken, without effect: threads are the daemon's."},
    {"options.draft_num_predict", take_number, "integer", .hi = EXACT_MAX,
     .doc = "Taken, without effect: drafts never change an answer."},
    {"options.numa", take_bool, "boolean",
     .doc = "Taken, without effect."},
    {"options.low_vram", take_bool, "boolean",
     .doc = "Taken, without effect."},
    {"options.f16_kv", take_bool, "boolean",
     .doc = "Taken, without effect."},
    {"options.use_mmap", take_bool, "boolean",
     .doc = "Taken, without effect."},
    {"options.use_mlock", take_bool, "boolean",
     .doc = "Taken, without effect."},
    {"options.typical_p", set_float, "number", .hi = 1,
     .offset = SAM(typical_p),
     .more = "'default': 1",
     .doc = "Draw from tokens whose surprise is nearest to the entropy, of this "
            "weight together; 1 is off."},
    {"options.tfs_z", only_number, "number", .lo = 1,
     .doc = "Only 1, which is off."},
    {"options.mirostat", set_uint, "integer", .hi = 2, .offset = SAM(mirostat),
     .more = "'default': 0",
     .doc = "1 or 2: tokens are drawn so that their mean surprise is "
            "mirostat_tau; only the temperature applies then. 0 is off."},
    {"options.mirostat_tau", set_float, "number", .hi = 100,
     .offset = SAM(mirostat_tau),
     .more = "'default': 5",
     .doc = "With mirostat: bits."},
    {"options.mirostat_eta", set_float, "number", .hi = 10,
     .offset = SAM(mirostat_eta),
     .more = "'default': 0.1",
     .doc = "With mirostat: how fast it learns."},
    {.name = NULL},
};

static const struct field common[] = {
    {"model", set_model, "string",
     .doc = "A model's name, or one of [aliases]. Absent or empty: [http] "
            "default_model, or the only one."},
    {"stream", set_bool, "boolean", .offset = OUR(stream),
     .more = "'default': true",
     .doc = "Lines of JSON as text is drawn, instead of one object."},
    {"options", set_object, "object", .sub = ollama_options,
     .doc = "How tokens are drawn, and hints about the engine."},
    {"keep_alive", set_keep_alive, "number|string",
     .doc = "How long the model stays in memory after this: seconds, or a "
            "duration such as \"10m\"; a negative one: for ever; 0 without a "
            "prompt unloads it now."},
    {"format", set_ollama_format, "string|object",
     .doc = "\"json\": any JSON object; a schema: JSON that is valid by it. "
            "Words of it that cannot be kept are refused by name. Empty: "
            "text."},
    {"think", set_think, "boolean|string",
     .doc = "true, false, or low, medium or high: for the chat template, where "
            "it knows enable_thinking, thinking or reasoning_effort. What a "
            "model thinks is in thinking in any case."},
    {"logprobs", set_bool, "boolean", .offset = OUR(logprobs),
     .more = "'default': false",
     .doc = "Log-probabilities of the tokens."},
    {"top_logprobs", set_uint, "integer", .hi = ENGINE_LOGPROBS_MAX,
     .offset = SAM(logprobs),
     .more = "'default': 0",
     .doc = "Alternatives for each token; only with logprobs."},
    {"truncate", take_bool, "boolean",
     .doc = "Taken, without effect: a prompt is never cut."},
    {"shift", take_bool, "boolean",
     .doc = "Taken, without effect: an answer ends with the context."},
    {"deadline_ms", set_uint, "integer", .lo = 1, .hi = DEADLINE_MAX_MS,
     .offset = REQ(deadline_ms),
     .doc = "aned's: milliseconds from the request's arrival after which its "
            "answer ends with the text that it has; done_reason is length."},
    {.name = NULL},
};

static const struct field chat[] = {
    {"messages", take_any, "array",
     .more = "'maxItems': 4096, 'items': {'type': 'object', 'required': "
             "['role'], 'properties': {'role': {'enum': ['system', 'user', "
             "'assistant', 'tool']}, 'content': {'type': 'string'}, "
             "'thinking': {'type': 'string', 'description': 'For templates "
             "that show it.'}, 'images': {'maxItems': 0}, 'tool_calls': "
             "{'type': 'array', 'maxItems': 128}, 'tool_name': {'type': "
             "'string'}, 'tool_call_id': {'type': 'string'}}}",
     .doc = "The conversation. A last message of the assistant is continued. "
            "Empty: the model is loaded, or unloaded with keep_alive 0."},
    {"tools", take_any, "array",
     .more = "'maxItems': 512, 'items': {'type': 'object', 'required': "
             "['function']}",
     .doc = "Functions that the model may call, in OpenAI's form, shown to it "
            "by its chat template; 400 where that shows none."},
    {.name = NULL},
};

static const struct field generate[] = {
    {"prompt", take_string, "string",
     .doc = "A text: what a user says, in the model's chat template, or with "
            "raw as it is. Empty: the model is loaded, or unloaded with "
            "keep_alive 0."},
    {"system", take_string, "string",
     .doc = "The system prompt; not with raw."},
    {"raw", set_bool, "boolean", .offset = OUR(raw),
     .more = "'default': false",
     .doc = "The prompt is continued as it is, without a template."},
    {"suffix", take_string, "string",
     .doc = "What comes after the text: it is filled in between prompt and "
            "this, as with /infill, by a model that has tokens for it. Not "
            "with raw or system."},
    {"template", only_empty, "string",
     .more = "'maxLength': 0",
     .doc = "Only empty: the template is the model's."},
    {"context", only_empty, "array",
     .more = "'maxItems': 0",
     .doc = "Only empty: what is warm is found by the prompt's tokens."},
    {"images", only_empty, "array",
     .more = "'maxItems': 0",
     .doc = "Only empty."},
    {.name = NULL},
};

/* clang-format on */

static void defaults(struct params *p)
{
    struct msg_sampling *s = &p->req.sampling;
    p->stream = true;
    s->temperature = 0.8F;
    s->top_k = 40;
    s->top_p = 0.9F;
    s->repeat_penalty = 1.1F;
}

static int together(struct params *p, const struct json *j, struct err *e)
{
    const char *system = json_str(json_get(j, "system"));
    if (!p->logprobs && p->req.sampling.logprobs > 0) {
        params_blame(p, "top_logprobs");
        return err_set(e, ERR_INVALID, "top_logprobs: only with logprobs");
    }
    if (p->raw && system != NULL && system[0] != '\0') {
        params_blame(p, "system");
        return err_set(e, ERR_INVALID, "system: not with raw");
    }
    return 0;
}

const struct fields ollama_chat_fields = {
    .schema = "OllamaChatRequest",
    .part = {common, chat},
    .cls = SCHED_CLASS_CHAT,
    .max_tokens = GEN_MAX_TOKENS,
    .defaults = defaults,
    .together = together,
};

const struct fields ollama_generate_fields = {
    .schema = "OllamaGenerateRequest",
    .part = {common, generate},
    .cls = SCHED_CLASS_INTERACTIVE,
    .max_tokens = GEN_MAX_TOKENS,
    .defaults = defaults,
    .together = together,
};
