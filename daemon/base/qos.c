#include "base/qos.h"

#if defined(__APPLE__)
#include <pthread/qos.h>

void qos_set(enum qos q)
{
    static const qos_class_t classes[] = {
        [QOS_ANSWER] = QOS_CLASS_USER_INITIATED,
        [QOS_JOB] = QOS_CLASS_UTILITY,
        [QOS_BACKGROUND] = QOS_CLASS_BACKGROUND,
    };
    /* It fails for a thread with a priority of its own; that one stays. */
    (void)pthread_set_qos_class_self_np(classes[q], 0);
}

int qos_thread(pthread_t *ret, void *(*fn)(void *), void *arg)
{
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);
    if (rc != 0) {
        return rc;
    }
    /* A thread that never chose a class has none to pass on: the new one then
     * has the process's. */
    (void)pthread_attr_set_qos_class_np(&attr, qos_class_self(), 0);
    rc = pthread_create(ret, &attr, fn, arg);
    (void)pthread_attr_destroy(&attr);
    return rc;
}
#else
void qos_set(enum qos q)
{
    (void)q;
}

int qos_thread(pthread_t *ret, void *(*fn)(void *), void *arg)
{
    return pthread_create(ret, NULL, fn, arg);
}
#endif
