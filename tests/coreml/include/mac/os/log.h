/* The part of Apple's <os/log.h> that aned needs. NOT PROVEN: no machine-made
 * source has these types; written from Apple's documentation. Only that
 * libSystem has the symbols is checked (tests/coreml/decl/exceptions.py).
 */
#ifndef ANED_OS_LOG_H
#define ANED_OS_LOG_H
#pragma clang system_header

#include <os/base.h>
#include <os/object.h>
#include <stdbool.h>
#include <stdint.h>

__BEGIN_DECLS

#if OS_OBJECT_USE_OBJC
OS_OBJECT_DECL(os_log);
#else
typedef struct os_log_s *os_log_t;
#endif
extern struct os_log_s _os_log_default;
#define OS_LOG_DEFAULT OS_OBJECT_GLOBAL_OBJECT(os_log_t, _os_log_default)

OS_ENUM(os_log_type, uint8_t, OS_LOG_TYPE_DEFAULT = 0x00,
        OS_LOG_TYPE_INFO = 0x01, OS_LOG_TYPE_DEBUG = 0x02,
        OS_LOG_TYPE_ERROR = 0x10, OS_LOG_TYPE_FAULT = 0x11);

OS_OBJECT_RETURNS_RETAINED
os_log_t os_log_create(const char *subsystem, const char *category);
bool os_log_type_enabled(os_log_t oslog, os_log_type_t type);
void _os_log_impl(void *dso, os_log_t log, os_log_type_t type,
                  const char *format, uint8_t *buf, uint32_t size);

extern struct mach_header __dso_handle;

/* The compiler lays the arguments out; the format stays in the program. */
#define os_log_with_type(log, type, format, ...)                             \
    __extension__({                                                          \
        os_log_t _log = (log);                                               \
        os_log_type_t _type = (type);                                        \
        if (os_log_type_enabled(_log, _type)) {                              \
            __attribute__((section(                                          \
                "__TEXT,__oslogstring,cstring_literals"))) static const char \
                _format[] = format;                                          \
            uint8_t _Alignas(16) _buf[__builtin_os_log_format_buffer_size(   \
                format, ##__VA_ARGS__)];                                     \
            _os_log_impl(&__dso_handle, _log, _type, _format,                \
                         (uint8_t *)__builtin_os_log_format(_buf, format,    \
                                                            ##__VA_ARGS__),  \
                         (uint32_t)sizeof(_buf));                            \
        }                                                                    \
    })

__END_DECLS

#endif
