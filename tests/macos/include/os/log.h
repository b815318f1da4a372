/* log.h - what daemon/base/log.c uses of Apple's os/log.h, which the wheel that
 * brings the other headers lacks: so that a machine without Apple's can compile
 * it. A Mac has its own, and never sees this file.
 *
 * Of these functions libSystem.tbd has the names. Types and values are those of
 * Apple's header; the compiler knows the format of a message's arguments.
 */
#pragma once

#include <os/availability.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct os_log_s *os_log_t;
typedef uint8_t os_log_type_t;
enum {
    OS_LOG_TYPE_DEFAULT = 0x00,
    OS_LOG_TYPE_INFO = 0x01,
    OS_LOG_TYPE_DEBUG = 0x02,
    OS_LOG_TYPE_ERROR = 0x10,
};

extern struct mach_header __dso_handle;

API_AVAILABLE(macos(10.12))
os_log_t os_log_create(const char *subsystem, const char *category);
API_AVAILABLE(macos(10.12))
bool os_log_type_enabled(os_log_t log, os_log_type_t type);
API_AVAILABLE(macos(10.12))
void _os_log_impl(void *dso, os_log_t log, os_log_type_t type,
                  const char *format, uint8_t *message, uint32_t size);

/* The format is a constant, and stands in a section of its own. */
#define os_log_with_type(log_, type_, format_, ...)                            \
    __extension__({                                                            \
        os_log_t l_ = (log_);                                                  \
        os_log_type_t t_ = (type_);                                            \
        if (os_log_type_enabled(l_, t_)) {                                     \
            __attribute__((section(                                            \
                "__TEXT,__oslogstring,cstring_literals"))) static const char   \
                f_[] = format_;                                                \
            uint8_t _Alignas(16)                                               \
                m_[__builtin_os_log_format_buffer_size(format_, __VA_ARGS__)]; \
            __builtin_os_log_format(m_, format_, __VA_ARGS__);                 \
            _os_log_impl(&__dso_handle, l_, t_, f_, m_, sizeof(m_));           \
        }                                                                      \
    })
