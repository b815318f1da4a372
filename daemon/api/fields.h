/* fields.h - what rows of the tables of fields are made of: functions that
 * check a value and set what it means (params.h, field_fn). All of them refuse
 * with the field's name and what it takes. */
#pragma once

#include "api/params.h"

#define REQ(f)    offsetof(struct params, req.f)
#define SAM(f)    offsetof(struct params, req.sampling.f)
#define OUR(f)    offsetof(struct params, f)
#define EXACT_MAX 9007199254740992.0 /* whole numbers in JSON: 2^53 */

/* --- values that arrive at f->offset --- */
field_fn set_bool;
field_fn set_float; /* a number from lo to hi */
field_fn set_uint;  /* a whole one; -1, where lo has it, is UINT32_MAX */

/* --- values with a place of their own --- */
field_fn set_model;
field_fn set_temperature;     /* set_float */
field_fn set_penalty;         /* set_float */
field_fn set_top_k;           /* -1 and 0 are off */
field_fn set_seed;            /* -1 is a random one */
field_fn set_keep_alive;      /* seconds or a duration */
field_fn set_stop;            /* a text or an array of them; "" is none */
field_fn set_bias;            /* {"token id": number or false} */
field_fn set_object;          /* its members are f->sub */
field_fn set_samplers;        /* samplers.c: which samplers apply, in order */
field_fn set_infill_samplers; /* the same, and llama-server's for code */
field_fn set_dry_base;
field_fn set_dry_texts; /* dry_sequence_breakers */
field_fn set_ttl;       /* LM Studio's keep_alive: a number of seconds */

/* --- taken, and nothing changes --- */
field_fn take_any; /* the dialect reads it, or nobody */
field_fn take_bool;
field_fn take_number; /* a whole number from lo to hi */
field_fn take_string;
field_fn take_word; /* one of f->words */
field_fn take_object;
field_fn take_strings; /* an array of texts */

/* --- only the value that changes nothing --- */
field_fn only_number; /* f->lo */
field_fn only_false;
field_fn only_absent;     /* none: the field is known, and not here */
field_fn only_empty;      /* "" or [] */
field_fn only_no_members; /* {} */
field_fn only_word;       /* one of f->words, or an array of them */

/* --- fields_answer.c: what the answer has to look like --- */
field_fn set_response_format; /* OpenAI's, llama-server's: {"type", ..} */
field_fn set_format; /* {"type", "schema"}: of /v1/responses, Anthropic's */
field_fn set_ollama_format; /* "json" or a schema */
field_fn set_grammar;       /* GBNF; "" is none */
field_fn set_json_schema;   /* a schema; {} is none */

/* --- fields_tools.c: tools, and what a model thinks --- */
field_fn set_tool_choice;        /* OpenAI's: none, auto, required, or one */
field_fn set_tool_choice_object; /* Anthropic's: {"type": "auto"} */
field_fn set_parallel;           /* parallel_tool_calls */
field_fn set_kwargs;             /* chat_template_kwargs */
field_fn set_effort;             /* reasoning_effort; none is no thinking */
field_fn set_thinks;             /* true or false */
field_fn set_think;              /* Ollama's: that, or an effort */
field_fn set_thinking;           /* Anthropic's: {"type", "budget_tokens"} */
field_fn set_reasoning_format;   /* llama-server's; one of f->words */

/* fields_rows.c: parts of tables. OpenAI's dialects and llama-server's have
 * both, /v1/responses has the first. */
extern const struct field fields_every[];  /* model, stream, seed, stop, ... */
extern const struct field fields_tuning[]; /* samplers, and what is off */
extern const struct field fields_samplers[]; /* their order */

/* For field_fn of a dialect. Each returns its error. */
int field_want(const struct field *f, struct err *e, const char *what);
int field_unsupported(const struct field *f, struct err *e, const char *what);
int field_full(const struct field *f, struct err *e);
/* v, a whole number from f->lo to f->hi. */
CHECKED int field_int(const struct field *f, const struct json *v, int64_t *ret,
                      struct err *e);
/* v is one of the words. */
bool field_is_word(const struct field *f, const struct json *v);
/* The text of {"type": "text", "text": ...}, else NULL. A cache_control beside
 * it is a hint: prefixes are kept without one. */
const char *field_text_part(const struct json *v);
