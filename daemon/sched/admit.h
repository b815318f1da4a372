/* admit.h - how many requests one model takes, and which are refused when there
 * are too many.
 *
 * A request is on its model from its arrival to its end: while its text is made
 * into tokens, while the model is loaded, while its choices wait and run.
 *
 *   (1) The choices of all requests on a model stay within `limit`.
 *   (2) A request that finds no room takes that of requests of a later class
 *       that have not begun: of the last class first, and within it of the
 *       youngest. Only as many are refused as needed; when all of them would
 * not be enough, or the others are of its own class, the new one is refused.
 *   (3) A request has begun once one of its choices had a place. Even if it
 *       waits again (rule 7 of sched.h), it is not refused for another.
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
    /* The caller ends it, and answers as to a queue that is full: it must
     * admit_leave before it returns. */
    void (*make_way)(struct admit_req *x);
    bool stays; /* by rule 3; the caller may hold it as well */
    struct list link;
};

struct admit {
    struct list all; /* in the order of arrival */
    uint32_t n, limit;
};

void admit_init(struct admit *a, uint32_t limit);
/* Take x. When there is no room, rule 1 is broken until admit_settle.
 * Errors: BUSY; then x is untouched. */
CHECKED int admit_add(struct admit *a, struct admit_req *x);
void admit_leave(struct admit *a, struct admit_req *x);
/* Let requests make way until rule 1 holds; also after limit became less. */
void admit_settle(struct admit *a);
