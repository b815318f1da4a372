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
    {"typical_p", set_float, "number", .hi = 1, .offset = SAM(typical_p),
     .more = "'default': 1",
     .doc = "Draw from tokens whose surprise is nearest to the entropy, of this "
            "weight together; 1 is off."},
    {"top_n_sigma", set_float, "number", .lo = -1, .hi = 1000,
     .offset = SAM(top_n_sigma),
     .more = "'default': -1",
     .doc = "Draw from tokens whose logits are within so many standard "
            "deviations of the largest; 0 or less is off."},
    {"xtc_probability", set_float, "number", .hi = 1,
     .offset = SAM(xtc_probability),
     .more = "'default': 0",
     .doc = "How often, of the tokens of at least xtc_threshold, all but the "
            "least likely are left out; 0 is off."},
    {"xtc_threshold", set_float, "number", .hi = 1,
     .offset = SAM(xtc_threshold),
     .more = "'default': 0.1",
     .doc = "See xtc_probability; above 0.5 is off."},
    {"dynatemp_range", set_float, "number", .hi = 10,
     .offset = SAM(dynatemp_range),
     .more = "'default': 0",
     .doc = "The temperature is between temperature - this and temperature + "
            "this, and grows with the entropy; 0 is off."},
    {"dynatemp_exponent", set_float, "number", .hi = 10,
     .offset = SAM(dynatemp_exponent),
     .more = "'default': 1",
     .doc = "With dynatemp_range: the power of the entropy's share of the "
            "largest one."},
    {"dry_multiplier", set_float, "number", .hi = 100,
     .offset = SAM(dry_multiplier),
     .more = "'default': 0",
     .doc = "A token that makes a repetition longer loses dry_multiplier * "
            "dry_base ^ (repeated tokens - dry_allowed_length); 0 is off."},
    {"dry_base", set_dry_base, "number", .hi = 1000, .offset = SAM(dry_base),
     .more = "'default': 1.75",
     .doc = "See dry_multiplier; less than 1 is the default."},
    {"dry_allowed_length", set_uint, "integer", .hi = MODEL_CONTEXT_MAX,
     .offset = SAM(dry_allowed_length),
     .more = "'default': 2",
     .doc = "See dry_multiplier."},
    {"dry_penalty_last_n", set_uint, "integer", .lo = -1,
     .hi = MODEL_CONTEXT_MAX, .offset = SAM(dry_last_n),
     .more = "'default': 64",
     .doc = "Tokens in which repetitions are looked for; 0 is off, -1 is all."},
    {"dry_sequence_breakers", set_dry_texts, "array",
     .more = "'items': {'type': 'string', 'minLength': 1, 'maxLength': 40}, "
             "'maxItems': 64",
     .doc = "Texts across which nothing is a repetition. Default: a newline, "
            "':', '\"', '*'. Empty: none."},
    {"mirostat", set_uint, "integer", .hi = 2, .offset = SAM(mirostat),
     .more = "'default': 0",
     .doc = "1 or 2: tokens are drawn so that their mean surprise is "
            "mirostat_tau. As in llama-server only temperature and logit_bias "
            "apply then, and no other sampler or penalty. 0 is off."},
    {"mirostat_tau", set_float, "number", .hi = 100,
     .offset = SAM(mirostat_tau),
     .more = "'default': 5",
     .doc = "With mirostat: bits."},
    {"mirostat_eta", set_float, "number", .hi = 10,
     .offset = SAM(mirostat_eta),
     .more = "'default': 0.1",
     .doc = "With mirostat: how fast it learns."},
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

const struct field fields_samplers[] = {
    {"samplers", set_samplers, "array|string",
     .more = "'items': {'type': 'string'}, 'maxItems': 16, 'maxLength': 16",
     .doc = "The samplers that apply, in their order, of penalties, dry, "
            "top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature; others "
            "are off. Or their letters in a string (edskypmxt). Absent or "
            "empty: penalties, dry, top_n_sigma, temperature, top_k, typ_p, "
            "top_p, min_p, xtc."},
    {.name = NULL},
};

/* clang-format on */
