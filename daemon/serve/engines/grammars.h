/* grammars.h - the grammars that one engine knows, by the ids that rows name.
 *
 * The same text has the same id, as long as streams have it, and for a while
 * after that: the engine keeps what it has found out about a grammar, and the
 * next request often asks for the same. The engine is told of a text before the
 * first step that needs it, by each process once.
 *
 * Thread: the loop thread.
 */
#pragma once

#include "base/list.h"
#include "proto/frame.h"
#include "proto/msg.h"

struct grammars {
    struct list all; /* the one used last at the end */
    uint32_t n_idle; /* those that no stream has */
    uint32_t next;   /* id */
    void *ctx;
    /* Queue a frame; called only inside of the functions below. */
    void (*send)(void *ctx, enum frame_type type, const struct buf *payload);
};

void grammars_init(struct grammars *g);
void grammars_fini(struct grammars *g); /* streams must be gone */

/* The id of a text (copied) for one stream more; never 0. May send a frame that
 * drops another. Errors: NOMEM, TOO_BIG (CONSTRAINT_BYTES_MAX). */
CHECKED int grammars_take(struct grammars *g, const char *text, size_t n,
                          uint32_t *ret, struct err *e);
void grammars_release(struct grammars *g, uint32_t id);
/* A step with this id is about to be sent: tell the engine, unless it knows. */
void grammars_tell(struct grammars *g, uint32_t id);
/* The engine is gone, and what it knew. */
void grammars_lost(struct grammars *g);
