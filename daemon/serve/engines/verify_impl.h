/* verify_impl.h - shared by verify.c and verify_result.c. */
#pragma once

#include "serve/engines/models_impl.h"
#include "serve/engines/verify.h"

struct rows;

struct verifier {
    struct models *ms;
    struct model *current; /* what is hashed or compared; NULL */
    struct child *child;   /* NULL while the store is asked for the rows */
    struct rows *rows;     /* asked for; NULL */
    struct model *holding; /* inside verify_holds for it; NULL */
    bool gentle; /* the child: verify_busy() tells it */
    bool stopping;
    char known_path[HOME_PATH_MAX];
};

/* verify.c: begin the next one, or put off the one that runs for it. */
void verify_next(struct verifier *v);

/* verify_result.c */
/* m's files are not those that were published: `what` says which. */
void verify_damaged(struct model *m, const char *what);
/* The files of v->current are as its manifest says, and have this stamp: look
 * whether the store knows the same. Calls verify_next, maybe from inside. */
void verify_rows(struct verifier *v, const char *stamp);
/* v->current goes before the store has answered. */
void verify_rows_leave(struct verifier *v);
