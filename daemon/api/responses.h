/* responses.h - OpenAI's dialect of responses: /v1/responses.
 * responses_fields.c has what a request may say, responses_read.c its items as
 * messages, responses_tools.c its tools, responses_out.c the answer and its
 * events, responses.c what is kept of it and the routes, responses_items.c items
 * of what is kept. */
#pragma once

#include "api/call.h"

extern const struct fields responses_fields;
extern const struct dialect responses_dialect;

enum responses_item {
    RESPONSES_NONE,
    RESPONSES_REASONING,
    RESPONSES_MESSAGE,
    RESPONSES_CALL,
    RESPONSES_KINDS
};

/* What a call of this dialect has beside the others: call.own. */
struct responses {
    char previous[64]; /* the id of the answer to go on from; "": none */
    bool store;        /* keep the answer */
    bool instructed;   /* the first message is `instructions` */
    struct json *input; /* with item_reference in it, until resolve; NULL */
    char *instructions; /* owned, as long; NULL */
    struct buf echo;   /* members of the answer that repeat the request */
    struct buf spaces; /* names of functions of namespaces, and of these: each
                          with a NUL behind it */
    /* of the answer: */
    struct buf items; /* those that are complete, as JSON between commas */
    uint32_t n_items;
    enum responses_item open; /* of the one that is streamed */
    uint32_t tool;            /* of a call */
    struct buf text;          /* what it has so far, escaped */
    uint64_t n_events;
};

static inline struct responses *responses_of(const struct call *c)
{
    return c->own;
}

/* responses.c */
int responses_read(struct call *c, const struct json *j, struct err *e);
int responses_resolve(struct call *c, struct err *e);
void responses_drop(struct call *c);
/* Keep the answer whose items are complete, if the client wants that; whether
 * it is kept. */
bool responses_keep(struct call *c);

/* responses_read.c: messages of "input", after `before` others, which are
 * zeroed. Any thread. */
CHECKED int responses_messages(struct arena *a, const struct json *input,
                               size_t before, struct chat_message **ret,
                               size_t *ret_n, const char **field,
                               struct err *e);

/* responses_items.c */
struct answer;
/* Answer r with a page of the items that led to a. */
void responses_list_items(struct http_req *r, const struct answer *a);
/* Whether "input" has an item_reference. Any thread. */
bool responses_has_references(const struct json *input);
/* "input" with the items that its references are, to be freed. Errors:
 * NOT_FOUND, INVALID (it is in previous_response_id), TOO_BIG. */
CHECKED int responses_refer(struct call *c, const struct json *input,
                            struct json **ret, struct err *e);

/* responses_tools.c: the tools that the model is shown; `echo` gets the
 * answer's member "tools", which repeats them. Any thread. */
CHECKED int responses_tools(struct call *c, const struct json *j,
                            struct json *echo, struct err *e);
/* The namespace of a function; NULL: none. */
const char *responses_space(const struct responses *x, const char *name);

/* responses_out.c: the answer's JSON, with what is complete. status:
 * "in_progress", "completed", "incomplete", "failed"; `x` is then the error. */
void responses_put(struct buf *b, const struct call *c, const char *status,
                   bool stored, const struct api_error *x);
const char *responses_status(const struct call *c);
