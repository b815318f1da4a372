/* process.c - what the system gives this process. It tells that itself: macOS
 * lets nobody else ask for the background or the limits of a process. */
#include <sys/resource.h>
#if defined(__linux__)
#include <sched.h>
#endif

#include "api/api.h"

#if defined(__APPLE__)
static bool in_background(void)
{
    /* 1 or 0; PRIO_DARWIN_BG is only for setpriority */
    return getpriority(PRIO_DARWIN_PROCESS, 0) != 0;
}
#elif defined(__linux__)
static bool in_background(void)
{
    int policy = sched_getscheduler(0);
    return policy == SCHED_IDLE || policy == SCHED_BATCH;
}
#else
static bool in_background(void)
{
    return false;
}
#endif

void api_put_process(struct json *o)
{
    struct json *x = json_add_object(o, "process");
    struct rlimit r = {0};
    json_add_bool(x, "background", in_background());
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur != RLIM_INFINITY) {
        json_add_int(x, "files", (int64_t)r.rlim_cur);
    } else {
        json_add_null(x, "files");
    }
}
