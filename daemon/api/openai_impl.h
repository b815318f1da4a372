/* openai_impl.h - shared by openai.c (requests), openai_out.c (answers),
 * openai_probs.c (their log-probabilities) and openai_usage.c (their cost). */
#pragma once

#include "api/api.h"
#include "api/params.h"
#include "serve/gen/resume.h"

#define CALL_TEXT_MAX MIB(16) /* one choice's text, not streamed */

/* Log-probabilities of one choice, from a token until it was handed out. */
struct probs {
    struct json *sure;    /* entries whose text was given out */
    struct json *pending; /* entries whose text is held back */
};

struct call_choice {
    struct buf text; /* not streamed: all of it */
    struct probs probs;
    bool begun, ended;
    enum gen_finish why;
    size_t offset; /* characters before the next token, for text_offset */
};

/* One request for text, from its arrival to the last byte of its answer. */
struct call {
    struct http_req *r;
    struct server *srv;
    struct gen *gen;
    struct resume *resume; /* has the connection; NULL: r is ours */
    struct params p;
    bool chat;
    bool begun; /* the stream's head was sent */
    bool done;  /* all was drawn */
    char id[48];
    int64_t created; /* Unix seconds */
    char model[MODEL_NAME_MAX + 1];
    char session[40]; /* whose tokens are the prompt; "": none */
    struct buf drawn; /* then the tokens of the answer, int32_t each */
    const char *prompt_field; /* "prompt" or "messages" */
    struct buf echo;          /* completions: the prompt, if wanted */
    struct buf out;           /* scratch of one event */
    struct buf text_head;     /* how events of text begin; made for the first */
    struct call_choice choices[CHOICES_MAX];
};

extern const struct gen_sink call_sink;
void call_on_gone(struct http_req *r, void *user);
void call_on_drain(struct http_req *r, void *user);
/* The same for a resumable stream. */
extern const struct resume_owner call_resume_owner;
void call_free(struct call *c);
/* Answer an error before anything was sent; c is freed. */
void call_refuse(struct call *c, int code, const char *param, const char *msg);

/* openai_usage.c: members of an answer; the last one as text, its object. */
void call_put_usage(struct json *o, const struct call *c);
void call_put_timings(struct json *o, const struct call *c);
void call_write_timings(struct buf *b, const struct call *c);

/* openai_probs.c */
/* A token of x was drawn; its text is still held back. */
void probs_note(const struct call *c, struct call_choice *x,
                const struct msg_token *t);
/* The pending tokens' text has been given out. */
void probs_confirm(struct probs *p);
/* It never will be. */
void probs_drop(struct probs *p);
/* Member "logprobs" of a choice; what is sure is used up. */
void probs_put(struct json *o, const struct call *c, struct probs *p);
void probs_fini(struct probs *p);
