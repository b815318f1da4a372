/* fields_rows.c - rows that several dialects have, with one meaning. */
#include "api/fields.h"

/* Rows are texts. */
/* clang-format off */

const struct field fields_every[] = {
    {"model", set_model, "string",
     .doc = "A model's name, or one of [aliases]. Absent or empty: [http] "
            "default_model, or the only one."},
    {"stream", set_bool, "boolean", .offset = OUR(stream),
     .more = "'default': false",
     .doc = "Server-sent events instead of one answer."},
    {"seed", set_seed, "integer", .lo = -EXACT_MAX, .hi = EXACT_MAX,
     .doc = "Same request, same seed, same tokens; 0 is a seed. Absent or -1: "
            "a random one."},
    {"stop", set_stop, "string|array",
     .more = "'items': {'type': 'string', 'minLength': 1, 'maxLength': 1024}, "
             "'maxItems': 16",
     .doc = "Ends the text before it; never part of it."},
    {"deadline_ms", set_uint, "integer", .lo = 1, .hi = DEADLINE_MAX_MS,
     .offset = REQ(deadline_ms),
     .doc = "Milliseconds from the request's arrival after which its answer "
            "ends, wherever it is by then: after others, while the model "
            "loads, in the prompt, between tokens. What was drawn until then "
            "is the answer, of status 200 (clients send a request that met an "
            "error again, which would have even less time); it ends as at a "
            "limit of tokens, timings.deadline_reached is true, and usage "
            "counts what there is. Of one client's requests of a class the "
            "earliest deadline goes first."},
    {"keep_alive", set_keep_alive, "number|string",
     .doc = "How long the model stays in memory after this: seconds, or a "
            "duration such as \"10m\" or \"1h30m\"; 0 ends it at once, a "
            "negative one never. Default: [engine] keep_alive_s."},
    {.name = NULL},
};

const struct field fields_tuning[] = {
    {"repeat_penalty", set_penalty, "number", .lo = 0.01, .hi = 10,
     .offset = SAM(repeat_penalty),
     .more = "'default': 1",
     .doc = "1 is off."},
    {"repeat_last_n", set_uint, "integer", .lo = -1, .hi = MODEL_CONTEXT_MAX,
     .offset = SAM(repeat_last_n),
     .more = "'default': 64",
     .doc = "Tokens the penalties look back; -1 is all."},
    {"presence_penalty", set_float, "number", .lo = -2, .hi = 2,
     .offset = SAM(presence_penalty),
     .more = "'default': 0",
     .doc = "Taken from the logit of each token that was there."},
    {"frequency_penalty", set_float, "number", .lo = -2, .hi = 2,
     .offset = SAM(frequency_penalty),
     .more = "'default': 0",
     .doc = "Taken from a token's logit each time that it was there."},
    {"ignore_eos", set_bool, "boolean", .offset = REQ(ignore_eos),
     .more = "'default': false",
     .doc = "End-of-generation tokens are never drawn."},
    {"cache_prompt", set_bool, "boolean", .offset = REQ(reuse),
     .more = "'default': true",
     .doc = "May continue a warm prefix."},
    {"id_slot", take_number, "integer", .lo = -1, .hi = EXACT_MAX,
     .doc = "Taken for llama-server's clients; a hint without effect: the warm "
            "prefix is found by its tokens."},
    {"typical_p", only_number, "number", .lo = 1,
     .doc = "Only 1, which is off."},
    {"mirostat", only_number, "integer", .lo = 0,
     .doc = "Only 0, which is off."},
    {"dry_multiplier", only_number, "number", .lo = 0,
     .doc = "Only 0, which is off."},
    {"lora", only_empty, "array",
     .more = "'maxItems': 0",
     .doc = "Only empty: adapters are part of a conversion."},
    {"grammar", set_grammar, "string",
     .more = "'maxLength': 262144",
     .doc = "GBNF, as llama.cpp has it: the answer matches its rule root. Empty "
            "is none."},
    {"json_schema", set_json_schema, "object",
     .doc = "The answer is JSON that is valid by this schema. Words of it that "
            "cannot be kept are refused by name. Empty is none."},
    {.name = NULL},
};

/* clang-format on */
