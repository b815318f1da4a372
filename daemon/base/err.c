#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

static const struct {
    int code;
    int http;
    int exit;
    const char *wire;
    const char *text;
} rows[] = {
#define XX(name, value, http, exit, wire, text) \
    {(value), (http), (exit), (wire), (text)},
    ERR_MAP(XX)
#undef XX
};

static void clean(char *s)
{
    for (; *s != '\0'; s++) {
        if ((unsigned char)*s < 0x20 || (unsigned char)*s >= 0x7f) {
            *s = '?';
        }
    }
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
    must(code < 0);
    if (e != NULL) {
        va_list ap;
        va_start(ap, fmt);
        e->code = code;
        (void)vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
        va_end(ap);
        clean(e->msg);
    }
    return code;
}

int err_errno(struct err *e, int errno_value, const char *what)
{
    int code = ERR_IO;
    if (errno_value == ENOSPC || errno_value == EDQUOT) {
        code = ERR_NO_SPACE;
    } else if (errno_value == ENOENT) {
        code = ERR_NOT_FOUND;
    } else if (errno_value == ENOMEM) {
        code = ERR_NOMEM;
    } else if (errno_value == EEXIST || errno_value == ENOTEMPTY) {
        code = ERR_EXISTS;
    }
    char space[128] = "";
#if defined(__GLIBC__) /* the GNU form under _GNU_SOURCE: returns the text */
    const char *text = strerror_r(errno_value, space, sizeof(space));
#else
    const char *text = space;
    if (strerror_r(errno_value, space, sizeof(space)) != 0) {
        (void)snprintf(space, sizeof(space), "errno %d", errno_value);
    }
#endif
    return err_set(e, code, "%s: %s", what, text);
}

int err_prefix(struct err *e, int code, const char *fmt, ...)
{
    must(code < 0);
    if (e == NULL) {
        return code;
    }
    e->code = code;
    char old[ERR_MSG_MAX];
    (void)snprintf(old, sizeof(old), "%s", e->msg);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n + 2 < sizeof(e->msg)) { /* the tail is cut */
        memcpy(e->msg + n, ": ", 2);
        size_t room = sizeof(e->msg) - (size_t)n - 3;
        size_t len = strnlen(old, room);
        memcpy(e->msg + n + 2, old, len);
        e->msg[(size_t)n + 2 + len] = '\0';
    }
    clean(e->msg);
    return code;
}

static size_t find(int code)
{
    for (size_t i = 0; i < countof(rows); i++) {
        if (rows[i].code == code) {
            return i;
        }
    }
    return 0; /* INTERNAL */
}

const char *err_name(int code)
{
    return rows[find(code)].wire;
}

const char *err_text(int code)
{
    return rows[find(code)].text;
}

int err_http(int code)
{
    return rows[find(code)].http;
}

int err_exit(int code)
{
    return rows[find(code)].exit;
}

int err_by_name(const char *wire)
{
    for (size_t i = 0; i < countof(rows); i++) {
        if (strcmp(rows[i].wire, wire) == 0) {
            return rows[i].code;
        }
    }
    return ERR_INTERNAL;
}

int err_print(const struct err *e)
{
    (void)fprintf(stderr, "%s: %s\n", err_name(e->code),
                  e->msg[0] != '\0' ? e->msg : err_text(e->code));
    return err_exit(e->code);
}
