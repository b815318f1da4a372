/* params.h - the fields of a request for text: one table row a field, with its
 * type, its range, what it sets and what it means. A field without a row is
 * refused with a 400 that names it; null counts as absent, also of a field
 * that has no row. Each dialect has its own rows (openai_fields.c, ...);
 * fields.h has what sets values.
 *
 * Leniency: a field of others is taken where its value changes nothing here,
 * as a hint (take_...) or because the value is the neutral one (only_...).
 *
 * Thread: any; it uses only its arguments.
 */
#pragma once

#include "proto/json.h"
#include "serve/gen/gen.h"

struct params {
    struct gen_req req; /* sampling, n, max_tokens, stops, ... */
    const char *model;  /* borrowed from the request's tree; NULL = absent */
    bool stream, include_usage;
    bool resumable; /* serve/gen/resume.h */
    bool logprobs;  /* how many alternatives: req.sampling.logprobs */
    bool echo;
    bool raw; /* Ollama's: the prompt needs no template */
    bool seeded;
    bool token_timings;       /* llama-server's: each event has timings */
    bool likeliest;           /* llama-server's filter "infill" was asked for */
    const char *const *shown; /* paths of members of the answer; NULL: all */
    size_t n_shown;
    bool tempered;       /* the request has a temperature */
    bool penalised;      /* the request has a penalty of repeated tokens */
    const struct json *prediction; /* its content, checked; borrowed */
    bool no_tools;                 /* tool_choice none: tools are not shown */
    bool one_call;                 /* the answer ends after its first call */
    bool thoughts_in_text;         /* what the model thinks is not told apart */
    enum { THINKS_UNSAID, THINKS_YES, THINKS_NO } thinks;
    const char *effort;        /* reasoning_effort; NULL = absent */
    uint32_t think_tokens;     /* tokens to think with; 0 = absent */
    const struct json *kwargs; /* chat_template_kwargs; borrowed */
    const char *tier;          /* service_tier of the answer; NULL = absent */
    bool keeps;      /* the request has a keep_alive: keep_ms is set */
    int64_t keep_ms; /* residency.h; < 0: no limit */
    struct {
        uint32_t dimensions; /* 0: all */
        bool base64;
        bool truncate;
        bool raw; /* vectors as the model has them, of any length */
    } embed;
    struct arena *a; /* during params_read */
    char param[64];  /* the field that an error is about; "" none */
};

struct field;
/* Check v, the value of field f, and set what it means. Errors: INVALID,
 * UNSUPPORTED, TOO_BIG; the message begins with the field's name. */
typedef int field_fn(struct params *p, const struct field *f,
                     const struct json *v, struct err *e);

struct field {
    const char *name; /* inside of another field: "options.seed" */
    field_fn *set;
    const char *type; /* JSON types that it takes: "string|array"; NULL: any */
    double lo, hi;    /* range of a number; equal: none */
    size_t offset;    /* in struct params, of what it sets */
    const char *const *words; /* values of a text, NULL at the end; or NULL */
    const struct field *sub;  /* fields of an object, or NULL */
    const char *more; /* further members of its schema: JSON with ' for " */
    const char *doc;  /* for people */
};

/* The fields of one dialect. Tables end with a row without a name. */
struct fields {
    const char *schema;          /* its name in proto/api.json */
    const struct field *part[5]; /* NULL at the end */
    const char *required[3];     /* that the dialect wants; NULL at the end */
    enum sched_class cls;
    uint32_t max_tokens; /* when the request does not say */
    /* Set other defaults of the dialect; NULL: OpenAI's (temperature 1, top_p
     * 1, no penalty, n 1). */
    void (*defaults)(struct params *p);
    /* What fields ask of each other; sets p->param. NULL: nothing. */
    int (*together)(struct params *p, const struct json *j, struct err *e);
};

/* Fill p from the request object. What p->req points to is allocated in a. The
 * seed is random unless the request has one.
 * Errors: INVALID, UNSUPPORTED, TOO_BIG (a is full); p->param is set. */
CHECKED int params_read(const struct json *j, const struct fields *f,
                        struct arena *a, struct params *p, struct err *e);
/* An error is about this field. */
void params_blame(struct params *p, const char *name);

/* The rows: for (i = 0; (x = fields_row(f, i)) != NULL; i++). */
const struct field *fields_row(const struct fields *f, size_t i);
