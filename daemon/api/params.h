/* params.h - the fields of /v1/completions and /v1/chat/completions: one row a
 * field, with its type, its range and what it sets. A field without a row is
 * refused with a 400 that names it; null counts as absent.
 *
 * Defaults are OpenAI's: temperature 1, top_p 1, no penalty, n 1, a random
 * seed, max_tokens 16 for completions and the rest of the context for chat.
 */
#pragma once

#include "proto/json.h"
#include "serve/gen/gen.h"

enum { PARAMS_COMPLETION = 1, PARAMS_CHAT = 2 };

struct params {
    struct gen_req req; /* sampling, n, max_tokens, stops, ... */
    const char *model;  /* borrowed from the request's tree; NULL = absent */
    bool stream, include_usage;
    bool resumable; /* serve/gen/resume.h */
    bool logprobs;  /* how many alternatives: req.sampling.logprobs */
    bool echo;
    bool seeded;
    bool tempered; /* the request has a temperature */
    const struct json *prediction; /* its content, checked; borrowed */
    const char *tier; /* service_tier of the answer; NULL = absent */
    bool keeps;       /* the request has a keep_alive: keep_ms is set */
    int64_t keep_ms;  /* residency.h; < 0: no limit */
    struct arena *a;  /* during params_read */
    char param[64];   /* the field that an error is about; "" none */
};

/* Fill p from the request object. What p->req points to is allocated in a.
 * Errors: INVALID, UNSUPPORTED, TOO_BIG (a is full); p->param is set. */
CHECKED int params_read(const struct json *j, unsigned dialect,
                        struct arena *a, struct params *p, struct err *e);

/* The rows, for the test that compares them with proto/api.json. */
size_t params_count(void);
const char *params_name(size_t i);
unsigned params_dialects(size_t i);
