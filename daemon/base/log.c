#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#if defined(__APPLE__)
#include <os/log.h>

#include "base/macos.h"
#endif

static _Atomic int log_max = LOG_INFO;
static _Atomic(const char *) log_role = "aned";

/* --- macOS's log --- */

#if defined(__APPLE__)
static _Atomic(os_log_t) system_log; /* NULL: stderr alone */

static void system_setup(const char *role)
{
    if (atomic_load(&system_log) == NULL &&
        macos_is_service(getenv("XPC_SERVICE_NAME"))) {
        atomic_store(&system_log, os_log_create(MACOS_IDENTIFIER, role));
    }
}

/* `text` without time and level, which the system keeps beside it. Other
 * programs can read its log, and a line for debugging may hold a prompt. */
static void system_line(enum log_level level, const char *text)
{
    static const os_log_type_t types[] = {
        [LOG_ERROR] = OS_LOG_TYPE_ERROR,
        [LOG_WARN] = OS_LOG_TYPE_DEFAULT,
        [LOG_INFO] = OS_LOG_TYPE_INFO,
        [LOG_DEBUG] = OS_LOG_TYPE_DEBUG,
    };
    os_log_t log = atomic_load(&system_log);
    if (log == NULL) {
        return;
    }
    if (level == LOG_DEBUG) {
        os_log_with_type(log, types[level], "%{private}s", text);
    } else {
        os_log_with_type(log, types[level], "%{public}s", text);
    }
}
#else
static void system_setup(const char *role)
{
    (void)role;
}

static void system_line(enum log_level level, const char *text)
{
    (void)level;
    (void)text;
}
#endif

/* --- lines --- */

void log_setup(enum log_level level, const char *role)
{
    atomic_store(&log_max, (int)level);
    atomic_store(&log_role, role);
    system_setup(role);
}

bool log_on(enum log_level level)
{
    return (int)level <= atomic_load(&log_max);
}

void log_line(enum log_level level, const char *event, const char *fmt, ...)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    if (!log_on(level)) {
        return;
    }
    char raw[1024];
    struct timespec ts = {0};
    struct tm tm = {0};
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    (void)gmtime_r(&ts.tv_sec, &tm);
    int n =
        snprintf(raw, sizeof(raw), "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %s ",
                 tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour,
                 tm.tm_min, tm.tm_sec, ts.tv_nsec / 1000000, names[level]);
    size_t head = n > 0 ? (size_t)n : 0; /* nothing to escape in it */
    n = snprintf(raw + head, sizeof(raw) - head, "%s %s ",
                 atomic_load(&log_role), event);
    size_t used = head + (n > 0 ? (size_t)n : 0);
    if (used < sizeof(raw)) {
        va_list ap;
        va_start(ap, fmt);
        n = vsnprintf(raw + used, sizeof(raw) - used, fmt, ap);
        va_end(ap);
        used += n > 0 ? (size_t)n : 0;
    }
    if (used > sizeof(raw) - 1) {
        used = sizeof(raw) - 1;
    }
    char line[4 * sizeof(raw) + 1]; /* worst case: every byte as \xNN */
    size_t m = 0;
    for (size_t i = 0; i < used; i++) {
        unsigned char c = (unsigned char)raw[i];
        if (c < 0x20 || c == 0x7f) {
            static const char hex[] = "0123456789abcdef";
            line[m++] = '\\';
            line[m++] = 'x';
            line[m++] = hex[c >> 4];
            line[m++] = hex[c & 15];
        } else {
            line[m++] = (char)c;
        }
    }
    line[m] = '\0';
    system_line(level, line + head);
    line[m++] = '\n';
    ssize_t w = write(STDERR_FILENO, line, m);
    (void)w; /* nowhere left to say it */
}
