/* What the Core ML backend may use of Apple's libdispatch, for Linux
 * (tests/coreml/standin/dispatch.m). Same names, arguments and meaning; the
 * types are opaque here as there.
 */
#ifndef STANDIN_DISPATCH_H
#define STANDIN_DISPATCH_H

#include <stdint.h>

typedef struct standin_queue *dispatch_queue_t;
typedef struct standin_semaphore *dispatch_semaphore_t;
typedef struct standin_queue_attr *dispatch_queue_attr_t;
typedef void *dispatch_object_t;
typedef uint64_t dispatch_time_t;
typedef unsigned int dispatch_qos_class_t;
typedef long dispatch_once_t;
typedef void (^dispatch_block_t)(void);
typedef void (*dispatch_function_t)(void *);

#define DISPATCH_TIME_NOW     ((dispatch_time_t)0)
#define DISPATCH_TIME_FOREVER (~(dispatch_time_t)0)
#define DISPATCH_QUEUE_SERIAL ((dispatch_queue_attr_t)0)
#define NSEC_PER_SEC          1000000000ull
#define NSEC_PER_MSEC         1000000ull
#define USEC_PER_SEC          1000000ull
#define NSEC_PER_USEC         1000ull

dispatch_time_t dispatch_time(dispatch_time_t when, int64_t delta);

dispatch_semaphore_t dispatch_semaphore_create(long value);
/* 0: signalled; not 0: the time is over. */
long dispatch_semaphore_wait(dispatch_semaphore_t dsema,
                             dispatch_time_t timeout);
/* Not 0: a thread was woken. */
long dispatch_semaphore_signal(dispatch_semaphore_t dsema);

/* Serial queues only. The quality of service says nothing here. */
dispatch_queue_t dispatch_queue_create(const char *label,
                                       dispatch_queue_attr_t attr);
dispatch_queue_attr_t
dispatch_queue_attr_make_with_qos_class(dispatch_queue_attr_t attr,
                                        dispatch_qos_class_t qos_class,
                                        int relative_priority);
void dispatch_async(dispatch_queue_t queue, dispatch_block_t block);
void dispatch_sync(dispatch_queue_t queue, dispatch_block_t block);
void dispatch_async_f(dispatch_queue_t queue, void *context,
                      dispatch_function_t work);
void dispatch_sync_f(dispatch_queue_t queue, void *context,
                     dispatch_function_t work);

void dispatch_once(dispatch_once_t *predicate, dispatch_block_t block);

void dispatch_retain(dispatch_object_t object);
void dispatch_release(dispatch_object_t object);

#endif
