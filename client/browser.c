/* browser.c - see browser.h. */
#include "client/browser.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "client/run.h"

bool browser_has_display(const struct client *c)
{
    if (!c->term.out_tty) {
        return false;
    }
#ifdef __APPLE__
    return true;
#else
    const char *x = getenv("DISPLAY");
    const char *w = getenv("WAYLAND_DISPLAY");
    return (x != NULL && x[0] != '\0') || (w != NULL && w[0] != '\0');
#endif
}

int browser_open(const char *what, struct err *e)
{
#ifdef __APPLE__
    const char *const argv[] = {"open", what, NULL};
#else
    const char *const argv[] = {"xdg-open", what, NULL};
#endif
    pid_t pid = 0;
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null < 0) {
        return err_errno(e, errno, "/dev/null");
    }
    int rc = run_start(argv, null, &pid, e);
    (void)close(null);
    return rc;
}
