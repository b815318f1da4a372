/* ask.h - a request that is answered by one piece of work on text: tokenise,
 * detokenise, count.
 *
 *   ask_start -> read (the body) -> text thread -> write -> sent
 *   ask_vocabulary                  -> text thread -> write -> sent
 *
 * Thread: the loop thread; `read` and `write` run on any and use only the ask.
 */
#pragma once

#include "api/api.h"

struct ask {
    struct api_read body;
    struct text_work work; /* `read` fills it */
    struct arena arena;    /* what `work` and model point to */
    const char *model;     /* NULL: not named */
    char param[64];        /* the field an error is about; "": none */
    bool pieces;           /* of /tokenize */
    struct buf out;        /* the answer, after room for its head */
    struct json *known;    /* of ask_vocabulary; owned */
    /* private to ask.c */
    void (*write)(struct ask *k);
    struct http_req *r; /* NULL: the client left */
};

/* read: api_read.read, with x in a struct ask. write: append the answer of
 * k->work to k->out. */
void ask_start(struct http_req *r,
               int (*read)(struct api_read *x, const struct json *j),
               void (*write)(struct ask *k));
/* Answer about the vocabulary of m, which is opened where it is not yet. known:
 * what the caller knows, for `write`, freed after it; or NULL. Where the
 * vocabulary cannot be opened, its error is the answer. */
void ask_vocabulary(struct http_req *r, struct model *m, struct json *known,
                    void (*write)(struct ask *k));
struct ask *ask_of(struct api_read *x);
/* Every key of the body is one of `keys`. Errors: UNSUPPORTED; param is set. */
CHECKED int ask_only(struct ask *k, const struct json *j,
                     const char *const *keys, size_t n, struct err *e);
/* A copy in the arena. Errors: TOO_BIG. NULL is copied as NULL. */
CHECKED int ask_copy(struct ask *k, const char *s, const char **ret,
                     struct err *e);
