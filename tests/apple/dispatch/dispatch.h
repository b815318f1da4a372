/* What serve/engines/pressure.c calls of libdispatch: documented signatures. */
#pragma once

#include <stdint.h>

typedef void (*dispatch_function_t)(void *);
typedef struct dispatch_object *dispatch_object_t;
typedef dispatch_object_t dispatch_queue_t;
typedef dispatch_object_t dispatch_source_t;
typedef dispatch_object_t dispatch_queue_attr_t;
typedef const struct dispatch_source_type *dispatch_source_type_t;

extern const struct dispatch_source_type dispatch_source_type_memorypressure;
#define DISPATCH_SOURCE_TYPE_MEMORYPRESSURE \
    (&dispatch_source_type_memorypressure)
#define DISPATCH_MEMORYPRESSURE_WARN     0x02
#define DISPATCH_MEMORYPRESSURE_CRITICAL 0x04
#define DISPATCH_QUEUE_SERIAL            NULL

dispatch_queue_t dispatch_queue_create(const char *label,
                                       dispatch_queue_attr_t attr);
dispatch_source_t dispatch_source_create(dispatch_source_type_t type,
                                         uintptr_t handle, uintptr_t mask,
                                         dispatch_queue_t queue);
void dispatch_source_set_event_handler_f(dispatch_source_t source,
                                         dispatch_function_t handler);
void dispatch_source_cancel(dispatch_source_t source);
void dispatch_set_context(dispatch_object_t object, void *context);
void dispatch_resume(dispatch_object_t object);
void dispatch_release(dispatch_object_t object);
void dispatch_sync_f(dispatch_queue_t queue, void *context,
                     dispatch_function_t work);
