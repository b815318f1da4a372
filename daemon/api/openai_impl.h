/* openai_impl.h - shared by openai.c (requests), openai_out.c (answers),
 * openai_whole.c (answers that are not streamed), openai_probs.c (their
 * log-probabilities) and openai_usage.c (their usage and timings). */
#pragma once

#include "api/api.h"
#include "api/params.h"
#include "serve/gen/resume.h"

#define PROBS_LISTS     4
#define EVENT_BYTES_MAX MIB(32) /* an echo, escaped; alternatives */

/* Log-probabilities of one choice's tokens, until they are written. */
struct probs {
    struct {
        struct buf text; /* the entries as JSON */
        size_t sure;     /* bytes of entries whose token's text was given out */
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
    struct resume *resume; /* owns the connection; NULL: r is used directly */
    struct api_read body;
    int read_rc;          /* the error in body.e, sent once there is a model */
    const char *field;    /* that an error is about; NULL or "": none */
    struct arena arena;   /* of what p.req points to, until gen_new takes it */
    struct params p;
    uint64_t arrived_us;
    char of_session[40];  /* session in the request's path; "": none */
    bool chat;
    bool begun; /* the stream's head was sent */
    bool full;  /* it ended at ANSWER_BYTES_MAX */
    bool storing; /* the answer waits for the session's turn to be durable */
    bool left;    /* the client left while it waited */
    struct gen_usage usage; /* when gen is gone */
    char id[48];
    int64_t created; /* Unix seconds */
    char model[MODEL_NAME_MAX + 1];
    char session[40]; /* session whose tokens are the prompt; "": none */
    struct buf drawn; /* with a session: the answer's tokens, int32_t each */
    const char *prompt_field; /* "prompt" or "messages" */
    struct buf echo; /* completions: the prompt, if wanted; escaped as `text` */
    struct buf out;           /* scratch of one event */
    size_t held;              /* counted in srv->answer_bytes */
    int refused;              /* 0, or the error to answer after all */
    struct work work;         /* writes a large answer on the text thread */
    bool writing;
    struct buf whole, tail;   /* that answer; its members after the choices */
    struct buf text_head;     /* beginning of text events; made for the first */
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

/* The members with which all answers begin. */
struct json *call_head(const struct call *c, const char *object);
/* The text of finish_reason. */
const char *call_reason(enum gen_finish why);

/* openai_whole.c */
/* n bytes more are held for the answer. GEN_ENOUGH: this answer, or all answers
 * together, have reached their limit. */
enum gen_more whole_hold(struct call *c, size_t n);
/* Answer. True: it is large and is being written; c is freed when it was sent.
 */
bool whole_reply(struct call *c);
/* The client has left. False: the answer is being written; c is freed after
 * that. */
bool whole_stop(struct call *c);
void whole_release(struct call *c);

/* The usage of the gen, while it runs or as it ended. */
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
/* The text of the pending tokens has been given out. */
void probs_confirm(struct probs *p);
/* The text of the pending tokens will never be given out. */
void probs_drop(struct probs *p);
size_t probs_bytes(const struct probs *p);
bool probs_ok(const struct probs *p); /* no entry was too large */
/* Write the value of "logprobs" of a choice, from the entries whose text was
 * given out; they are removed. */
void probs_write(struct buf *b, const struct call *c, struct probs *p);
