/* rule.h - what Core ML's documents ask of a caller. The real one answers a
 * broken rule with undefined behaviour; the stand-in ends the process with a
 * line on stderr that names the rule.
 *
 * Also memory that shows when a rule is broken: pages that may not be written,
 * or not even read. Thread: any.
 */
#pragma once

#include "base/base.h"

#define RULE_MAP(XX)                                                           \
    XX(MODEL_THREAD, "one thread at a time in one MLModel")                    \
    XX(STATE_PREDICTION, "one prediction at a time with one MLState")          \
    XX(STATE_BUSY, "a state is not touched while a prediction uses it")        \
    XX(STATE_HANDLER, "a state's array is valid only inside its handler")      \
    XX(RESULT_READ_ONLY, "a prediction's arrays are not written")              \
    XX(INPUT_CHANGED, "an input is not changed while a prediction uses it")    \
    XX(BACKING_TOUCHED, "an output backing is not touched while a prediction " \
                        "uses it")                                             \
    XX(PIXELS_UNLOCKED, "a pixel buffer is touched only while it is locked")   \
    XX(PIXELS_UNLOCK, "a pixel buffer is unlocked as it was locked")           \
    XX(ACTIVITY_ENDED, "an activity is ended once")                            \
    XX(QUEUE_DEADLOCK, "dispatch_sync is not called on the queue that runs")   \
    XX(SEMAPHORE_IN_USE, "a semaphore is freed with the count it began with")

enum rule {
#define XX(name, text) RULE_##name,
    RULE_MAP(XX)
#undef XX
        RULE_N
};

/* "standin: rule broken: TEXT: DETAIL" on stderr; abort. */
__attribute__((noreturn, cold)) void si_rule_broken(enum rule r,
                                                    const char *fmt, ...)
    PRINTF_LIKE(2, 3);

/* n bytes (at least one page, zeroed, aligned to pages) that may be read and
 * written. An access that their protection forbids breaks the rule r. */
void *si_pages_new(size_t n, enum rule r) __attribute__((returns_nonnull));
enum pages_access { PAGES_NONE, PAGES_READ, PAGES_WRITE };
/* p from pages_new. */
void si_pages_protect(void *p, enum pages_access access);
/* Nobody may touch them any more; the address is given to nothing else for some
 * time, then the memory goes back. */
void si_pages_retire(void *p);
void si_pages_free(void *p); /* at once; NULL is fine */
