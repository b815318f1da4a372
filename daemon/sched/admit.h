/* admit.h - how many requests one model takes, and which ones are refused when
 * there are too many.
 *
 * A request counts for its model from its arrival to its end: while its text is
 * tokenised, while the model is loaded, while its choices wait and run.
 *
 *   (1) The choices of all requests to a model stay within `limit`.
 *   (2) When there is no room for a new request, requests of later classes that
 *       have not begun are refused for it: those of the last class first, and
 *       within a class the youngest first. Only as many are refused as needed.
 *       When all of them would not be enough, the new request is refused.
 *   (3) A request has begun once one of its choices had a place. After that it
 *       is not refused for another, even if it waits again (rule 7 of sched.h).
 *
 * Ownership: the request is embedded in the caller's object, and stays alive
 * until admit_leave().
 */
#pragma once

#include "sched/sched.h"

struct admit_req {
    /* set by the caller before admit_add */
    enum sched_class cls;
    uint32_t n; /* choices */
    /* x is refused: the caller ends it and answers that the queue is full. It
     * must call admit_leave before it returns. */
    void (*make_way)(struct admit_req *x);
    bool stays; /* not to be refused: by rule 3, or set by the caller */
    struct list link;
};

struct admit {
    struct list all; /* in the order of arrival */
    uint32_t n, limit;
};

void admit_init(struct admit *a, uint32_t limit);
/* Add x. It may take the room of others; then rule 1 does not hold until
 * admit_settle. Errors: BUSY; then x is untouched. */
CHECKED int admit_add(struct admit *a, struct admit_req *x);
void admit_leave(struct admit *a, struct admit_req *x);
/* Refuse requests until rule 1 holds; call it also after `limit` was lowered.
 */
void admit_settle(struct admit *a);
