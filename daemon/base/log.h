/* log.h - one line per event on stderr: `level event key=value ...`.
 *
 * The event name comes first, then key=value pairs written by the format.
 * Control bytes are escaped. Never a prompt or an answer above debug. In a
 * service of launchd lines go to macOS's log too: subsystem dev.aned.daemon,
 * category the role; lines for debugging are private there.
 * Thread: any; each line is one write(2).
 */
#pragma once

#include "base/base.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Lines above `level` are dropped. Default LOG_INFO. `role` (borrowed, static)
 * stands in every line: serve, engine, convert. */
void log_setup(enum log_level level, const char *role);
bool log_on(enum log_level level);
void log_line(enum log_level level, const char *event, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

#define log_error(event, ...) log_line(LOG_ERROR, event, __VA_ARGS__)
#define log_warn(event, ...)  log_line(LOG_WARN, event, __VA_ARGS__)
#define log_info(event, ...)  log_line(LOG_INFO, event, __VA_ARGS__)
#define log_debug(event, ...) log_line(LOG_DEBUG, event, __VA_ARGS__)
