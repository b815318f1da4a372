/* admit.h - how many requests one model takes, and who makes way for whom when
 * they are too many.
 *
 * A request is on its model from its arrival to its end: while its text is made
 * into tokens, while the model is loaded, while its choices wait and run.
 *
 *   (1) The choices of all requests on a model stay within `limit`.
 *   (2) Who finds no room gets that of requests of a later class that have not
 *       begun: of the last class first, and in it of the youngest. Only as many
 *       go as are needed, and none when all of them would not be enough: then
 *       the new one is refused, as it is among equals.
 *   (3) A request has begun when one of its choices had a place; it may wait
 *       again since (rule 7 of sched.h), and never makes way.
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
