#include "serve/notify.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"

void notify(const char *fmt, ...)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    char text[600];
    if (path == NULL || (path[0] != '/' && path[0] != '@') ||
        strlen(path) >= sizeof(sa.sun_path)) {
        return;
    }
    memcpy(sa.sun_path, path, strlen(path) + 1);
    if (path[0] == '@') { /* Linux's abstract names */
        sa.sun_path[0] = '\0';
    }
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    size_t len = n < 0                      ? 0
                 : (size_t)n < sizeof(text) ? (size_t)n
                                            : sizeof(text) - 1;
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    socklen_t size =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    if (fd < 0 ||
        sendto(fd, text, len, MSG_DONTWAIT, (struct sockaddr *)&sa, size) < 0) {
        log_warn("notify", "the service manager does not listen, continuing");
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}
