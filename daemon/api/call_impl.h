/* call_impl.h - shared by call.c and the other call_*.c. */
#pragma once

#include "api/call.h"

void call_free(struct call *c);

struct session;

extern const struct gen_sink call_sink; /* call.c; its ctx is a call_gen */
extern const struct resume_owner call_resume_owner;

/* call_gens.c */
/* Make and start a gen for each prompt; x: the session that has it, or NULL.
 * Errors: those of gen_start, of sessions and of resumption; then there is no
 * gen, and c->field says which field it is about. */
CHECKED int gens_start(struct call *c, struct model *m, struct session *x,
                       struct err *e);
/* End and free those that run. */
void gens_cancel(struct call *c);
void gens_resume(struct call *c);
/* In on_done of x: count what it used. True: it was the last one. */
bool gens_ended(struct call_gen *x);

/* call_load.c: answer when m was loaded, or unloaded; c is freed then. */
void call_load(struct call *c, struct model *m);

/* call_whole.c */
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

/* call_reply.c */
/* Whether choice i of a gen with tokens has parts; then its text goes to
 * reply_text. */
bool reply_open(struct call *c, uint32_t i);
/* The next n bytes, in a stream that has begun; last: there are no more. False:
 * the client is slow. */
bool reply_text(struct call *c, uint32_t i, const char *p, size_t n, bool last);
bool reply_ok(const struct call_choice *x); /* nothing was too large */
void reply_release(struct call_choice *x);

/* call_probs.c */
void probs_init(struct probs *p);
void probs_fini(struct probs *p);
/* A token of x was drawn; its text is still held back. */
void probs_note(const struct call *c, struct call_choice *x,
                const struct msg_token *t);
/* The text of the pending tokens has been given out. */
void probs_confirm(struct probs *p);
/* The text of the pending tokens will never be given out. */
void probs_drop(struct probs *p);
/* The next token of g's prompt, whose text has `width` characters in the echo;
 * NULL logprob: it is the first one. */
void probs_prompt(const struct call *c, struct call_gen *g,
                  const struct msg_token *t, size_t width);
size_t probs_bytes(const struct probs *p);

/* call_echo.c */
/* In a callback of g: its prompt's echo is there, and before choice i's own
 * text and log-probabilities; in a stream it is sent. */
void echo_open(struct call_gen *g, uint32_t i);
/* gen_sink.on_scores; its ctx is a call_gen. */
void echo_scores(void *ctx, const struct msg_token *t, uint32_t n);
/* call.c: a stream's choice has begun. False: the client is slow. */
bool call_begin_choice(struct call *c, uint32_t i);
