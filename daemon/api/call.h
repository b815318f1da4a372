/* call.h - the life of one request for text, once for all dialects.
 *
 *   call_start: read the body (api_read) -> dialect.read -> a gen a prompt
 *      streamed:  begin, text ... end (per choice) -> finish
 *      whole:     text is collected -> head, choice ..., tail -> sent
 *   and from any state: an error, or the client has left
 *
 * call.c has the life, call_gens.c the gens, call_echo.c what an answer repeats
 * of its prompt, call_whole.c the answers that are not streamed, call_load.c
 * those without text, call_probs.c log-probabilities, call_reply.c those with
 * calls of tools and thoughts. A dialect is a struct of functions that read its
 * JSON and write its JSON; it knows nothing of connections, back-pressure,
 * resumption, sessions, limits or cancelling.
 *
 * Thread: the loop thread, except where a function says otherwise.
 */
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
    const struct probs *before; /* the prompt's, until they are written; NULL */
};

/* A call of a tool in an answer. */
struct call_tool {
    char id[48];          /* ours, unique: "call_..." */
    char *name;           /* owned */
    struct buf arguments; /* not streamed: all of them, JSON text, unescaped */
    bool whole;           /* one valid JSON object */
};

struct call_choice {
    struct buf text;           /* not streamed: all of it, escaped */
    struct buf reasoning;      /* the same of what the model thought */
    struct call_tool *tools;   /* owned; CALLS_MAX, or NULL */
    uint32_t n_tools, n_whole; /* all; those with whole arguments */
    struct reply *reply;       /* NULL: the text has no parts */
    struct call *call;         /* with that: whose choice i it is */
    uint32_t i;
    size_t tool_bytes; /* of all calls */
    bool in_call;
    bool thinks;        /* the last token had text that is thought; */
    uint32_t n_thought; /* tokens that had */
    bool slow;   /* the client has not taken what was sent */
    bool closed; /* what follows is dropped: the last call that is wanted */
    bool enough; /* ... which is as good an end as the model's own */
    struct probs probs;
    bool begun, ended;
    enum gen_finish why;
    const char *stop; /* of GEN_STOP, while there is a gen */
    size_t offset;    /* characters before the next token, for text_offset */
    bool opened;      /* echo: it has its prompt */
};

struct call;

/* How log-probabilities are written: an object a token, or OpenAI's legacy form
 * of four parallel arrays. */
enum probs_form { PROBS_OBJECTS, PROBS_ARRAYS };

struct dialect {
    const struct fields *fields;
    const char *prompt_field; /* that an overlong prompt is about */
    const char *gap_field;    /* that asks to fill in; NULL: the whole request */
    const char *id_prefix;    /* of the answer's id: "chatcmpl-" */
    enum probs_form probs;
    api_error_fn *error;     /* the tree of an error */
    const char *tool_prefix; /* of a call's id; NULL: "call_" */
    bool keeps_arguments;    /* also in a stream, until the end of the call or
                                longer: call_tool.arguments */

    /* The prompt, and what else the body says beside the fields: into c->p.req
     * and the dialect's part of c, allocated in c->arena. Sets c->field before
     * it fails. Any thread. */
    int (*read)(struct call *c, const struct json *j, struct err *e);

    /* What the answer needs of the daemon's own state: after read, before the
     * gen. Sets c->field before it fails. NULL: nothing. */
    int (*resolve)(struct call *c, struct err *e);
    /* Free c->own, which read may have made. NULL: it makes none. */
    void (*drop)(struct call *c);

    /* --- streams: all write to c->out and pass it to call_send --- */
    const char *content_type;
    bool events;      /* it is one of events: silence is broken by ... */
    const char *ping; /* ... this event, or a comment where it is NULL */
    /* What is around an error's tree: "data: ", "\n\n". */
    const char *error_before, *error_after;
    /* Write the last event of an answer that failed; NULL: the error's tree
     * between those. */
    void (*failed)(struct call *c, const struct api_error *x);
    /* What comes before a choice's first text. Called once a choice. */
    bool (*begin)(struct call *c, uint32_t i);
    /* n > 0 bytes of text, valid UTF-8, certain. False: the client is slow. */
    bool (*text)(struct call *c, uint32_t i, const char *text, size_t n);
    /* The same of what the model thinks before it answers. NULL: left out. */
    bool (*reasoning)(struct call *c, uint32_t i, const char *text, size_t n);
    /* Call k of a tool: c->choices[i].tools[k] has id and name. Then pieces of
     * its arguments, JSON text (this one may be NULL); then its end. All NULL:
     * the dialect knows none, and its read takes no tools. */
    bool (*tool_begin)(struct call *c, uint32_t i, uint32_t k);
    bool (*tool_arguments)(struct call *c, uint32_t i, uint32_t k,
                           const char *json, size_t n);
    bool (*tool_end)(struct call *c, uint32_t i, uint32_t k);
    /* The choice has ended, as c->choices[i] says. */
    void (*end)(struct call *c, uint32_t i);
    /* All choices have ended. */
    void (*finish)(struct call *c);

    /* The answer when the model was only loaded or unloaded; NULL where read
     * never asks for that (call.only_load). */
    void (*loaded)(struct call *c, struct buf *b, bool unloaded);

    /* --- whole answers: head and tail are ours, at most HTTP_REPLY_MAX / 4, and
     * cannot fail --- */
    void (*head)(struct call *c, struct buf *b);
    /* A choice with its text (escaped, without quotes). Any thread. */
    void (*choice)(struct call *c, struct buf *b, uint32_t i);
    void (*tail)(struct call *c, struct buf *b);
};

/* One of several prompts of a request. */
struct call_prompt {
    enum gen_kind kind; /* GEN_TEXT or GEN_TOKENS */
    const char *text;
    size_t text_n;
    const int32_t *tokens;
    size_t n_tokens;
    size_t echo_at, echo_n; /* its part of call.echo */
};

/* The gen of one prompt. */
struct call_gen {
    struct call *call;
    struct gen *gen; /* NULL: not any more */
    uint32_t first;  /* its choices: from this one of the call on */
    size_t echo_at, echo_n;
    /* With echo, from the first callback on: */
    bool opened;
    bool in_text;        /* a token of the prompt was found in its text */
    uint32_t n_noted;    /* tokens of the prompt in `prompt` */
    size_t offset;       /* characters of these */
    struct probs prompt; /* log-probabilities of the prompt's tokens */
};

/* One request for text, from its arrival to the last byte of its answer. */
struct call {
    const struct dialect *d;
    struct http_req *r;
    struct server *srv;
    /* NULL: not yet, or not any more. Of several: the one whose callback runs,
     * or ran last. */
    struct gen *gen;
    struct call_gen *gens; /* owned; from gens_start on */
    uint32_t n_gens;
    struct resume *resume; /* owns the connection; NULL: r is used directly */
    struct api_read body;
    int read_rc;        /* the error in body.e, sent once there is a model */
    const char *field;  /* that an error is about; NULL or "": none */
    struct arena arena; /* of what p.req points to, until gen_new takes it */
    /* Set by dialect.read, in the arena: several prompts, in place of the one
     * of p.req; 0: p.req has it. */
    struct call_prompt *prompts;
    uint32_t n_prompts;
    struct params p;
    void *own; /* the dialect's, or NULL */
    uint64_t arrived_us;
    char of_session[40];    /* session in the request's path; "": none */
    bool only_load;         /* there is no prompt: dialect.loaded answers */
    struct model_wait wait; /* for that */
    bool begun;             /* the stream's head was sent */
    bool full;              /* it ended at ANSWER_BYTES_MAX */
    bool storing; /* the answer waits for the session's turn to be durable */
    bool left;    /* the client left while it waited */
    struct gen_usage usage; /* of gens that have ended */
    char id[48];
    int64_t created; /* Unix seconds */
    char model[MODEL_NAME_MAX + 1];
    char session[40]; /* session whose tokens are the prompt; "": none */
    struct buf drawn; /* with a session: the answer's tokens, int32_t each */
    struct buf echo; /* completions: the prompts, if wanted; each escaped as
                        `text` */
    struct buf out;  /* scratch of one event */
    size_t held;     /* counted in srv->answer_bytes */
    int refused;     /* 0, or the error to answer after all */
    struct work work; /* writes a large answer on the text thread */
    bool writing;
    struct buf whole, tail; /* that answer; its members after the choices */
    struct buf text_head;   /* beginning of text events; made for the first */
    struct json *tools;     /* of the request, once a parameter was looked up */
    struct reply_forms forms;
    uint32_t n_blocks; /* of the dialect's stream: those begun; */
    const char *block; /* the type of the open one; NULL: none */
    struct call_choice *choices; /* owned; from gens_start on */
    uint32_t n_choices;          /* n of the first prompt, n of the next ... */
};

/* Answer r. session: the id of the one whose tokens are the prompt; "": none.
 */
void call_start(struct http_req *r, const struct dialect *d,
                const char *session);

/* --- for dialects --- */

/* Send c->out as one event. False: the client is slow. */
bool call_send(struct call *c);
/* The usage of all gens together, as they run or ended. */
void call_get_usage(const struct call *c, struct gen_usage *ret);
/* What choice i begins with, in a request with echo; call.echo's. */
struct span call_echo(const struct call *c, uint32_t i);

/* call_probs.c: */
/* Write the value of the log-probabilities of choice i whose text was given
 * out; they are removed. Any thread. */
void probs_write(struct buf *b, const struct call *c, struct probs *p);
bool probs_ok(const struct probs *p); /* no entry was too large */
