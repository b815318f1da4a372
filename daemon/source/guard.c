/* The guard: SIGBUS is delivered to the thread whose read faulted, so the
 * handler jumps back into that thread's innermost guard. With SA_NODEFER the
 * signal mask need not be saved, so a guard is cheap enough for each call of
 * gguf_rows. For a SIGBUS on a thread without a guard the default action is
 * restored, and the read faults again. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>

#include "source/gguf_impl.h"

static _Thread_local sigjmp_buf *volatile innermost;

static void on_sigbus(int sig)
{
    sigjmp_buf *env = innermost;
    if (env != NULL) {
        siglongjmp(*env, 1);
    }
    (void)signal(sig, SIG_DFL);
}

/* Called at every outermost guard: a test framework or a sanitizer may have
 * set its own handler since the last one. */
static int install(struct err *e)
{
    struct sigaction sa = {.sa_flags = SA_NODEFER};
    sa.sa_handler = on_sigbus;
    (void)sigemptyset(&sa.sa_mask);
    if (sigaction(SIGBUS, &sa, NULL) != 0) {
        return err_errno(e, errno, "sigaction");
    }
    return 0;
}

int gguf_guard(int (*fn)(void *ctx, struct err *e), void *ctx, struct err *e)
{
    int rc = innermost == NULL ? install(e) : 0;
    if (rc < 0) {
        return rc;
    }
    /* volatile: read again after the jump */
    sigjmp_buf *volatile outer = innermost;
    sigjmp_buf env;
    if (sigsetjmp(env, 0) != 0) {
        innermost = outer;
        return err_set(e, ERR_SOURCE_CHANGED,
                       "the file was truncated while it was read");
    }
    innermost = &env;
    rc = fn(ctx, e);
    innermost = outer;
    return rc;
}
