/* qos.h - how urgent a thread's work is, said to a scheduler that asks.
 *
 * macOS chooses a thread's kind of core, its speed and its turn by its class.
 * Elsewhere these functions only start threads: what must stand back there has
 * a nice level (convert/verify.c).
 *
 * Thread: any.
 */
#pragma once

#include <pthread.h>

#include "base/base.h"

enum qos {
    QOS_ANSWER,     /* somebody waits for it: the next token */
    QOS_JOB,        /* somebody watches its progress: a conversion */
    QOS_BACKGROUND, /* nobody waits: files are hashed */
};

/* The class of the calling thread, and of those that it starts with qos_thread
 * from now on. */
void qos_set(enum qos q);
/* pthread_create with the caller's class. Returns 0 or an error number. */
CHECKED int qos_thread(pthread_t *ret, void *(*fn)(void *), void *arg);
