/* openai_impl.h - shared by openai.c (requests), openai_out.c (answers),
 * openai_whole.c (those that are not streamed), openai_probs.c (their
 * log-probabilities) and openai_usage.c (their cost). */
#pragma once

#include "api/api.h"
#include "api/params.h"
#include "serve/gen/resume.h"

#define PROBS_LISTS     4
#define EVENT_BYTES_MAX MIB(32) /* an echo, escaped; alternatives */

/* Log-probabilities of one choice, from a token until it was handed out. */
struct probs {
    struct {
        struct buf text; /* of entries */
        size_t sure;     /* bytes of those whose text was given out */
    } list[PROBS_LISTS];
};

struct call_choice {
    struct buf text; /* not streamed: all of it, escaped */
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
    struct api_read body;
    int read_rc;          /* what body.e says, once there is a model */
    const char *field;    /* that an error is about; NULL or "": none */
    struct arena arena;   /* of what p.req points to, until it is the gen's */
    struct params p;
    uint64_t arrived_us;
    char of_session[40];  /* whose generation was asked for; "": none */
    bool chat;
    bool begun; /* the stream's head was sent */
    bool full;  /* it ended at ANSWER_BYTES_MAX */
    bool storing; /* the session's turn: the answer waits for it */
    bool left;    /* meanwhile the client did */
    struct gen_usage usage; /* when gen is gone */
    char id[48];
    int64_t created; /* Unix seconds */
    char model[MODEL_NAME_MAX + 1];
    char session[40]; /* whose tokens are the prompt; "": none */
    struct buf drawn; /* then the tokens of the answer, int32_t each */
    const char *prompt_field; /* "prompt" or "messages" */
    struct buf echo; /* completions: the prompt, if wanted; escaped as `text` */
    struct buf out;           /* scratch of one event */
    size_t held;              /* counted in srv->answer_bytes */
    int refused;              /* 0, or why nothing can be answered after all */
    struct work work;         /* an answer that is written */
    bool writing;
    struct buf whole, tail;   /* it, and its members after the choices */
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

/* What all answers begin with; the text of finish_reason. */
struct json *call_head(const struct call *c, const char *object);
const char *call_reason(enum gen_finish why);

/* openai_whole.c */
/* n bytes more are held for the answer: is it enough, for it or for all? */
enum gen_more whole_hold(struct call *c, size_t n);
/* Answer. true: large, it is being written; c is freed when it was sent. */
bool whole_reply(struct call *c);
/* Nobody wants it. false: it is being written, and c freed after that. */
bool whole_stop(struct call *c);
void whole_release(struct call *c);

/* As gen has it, or had at its end. */
void call_get_usage(const struct call *c, struct gen_usage *ret);
/* openai_usage.c: members of an answer; the last one as text, its object. */
void call_put_usage(struct json *o, const struct call *c);
void call_put_timings(struct json *o, const struct call *c);
void call_write_timings(struct buf *b, const struct call *c);

/* openai_probs.c */
void probs_init(struct probs *p);
void probs_fini(struct probs *p);
/* A token of x was drawn; its text is still held back. */
void probs_note(const struct call *c, struct call_choice *x,
                const struct msg_token *t);
/* The pending tokens' text has been given out. */
void probs_confirm(struct probs *p);
/* It never will be. */
void probs_drop(struct probs *p);
size_t probs_bytes(const struct probs *p);
bool probs_ok(const struct probs *p); /* no entry was too large */
/* The value of "logprobs" of a choice; what is sure is used up. */
void probs_write(struct buf *b, const struct call *c, struct probs *p);
