/* system.c - this machine, as it matters for the bits of a result. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#ifdef __APPLE__
#include <sys/sysctl.h>
#else
#include <sys/utsname.h>
#endif

#include "engine/coreml/system.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char chip[64], build[64];

#ifdef __APPLE__
static void ask(const char *name, char *ret, size_t size)
{
    if (sysctlbyname(name, ret, &size, NULL, 0) != 0 || ret[0] == '\0') {
        (void)snprintf(ret, sizeof(chip), "unknown");
    }
}

static void look(void)
{
    ask("machdep.cpu.brand_string", chip, sizeof(chip));
    ask("kern.osversion", build, sizeof(build));
}
#else
/* Of a machine that imitates Core ML. */
static void look(void)
{
    struct utsname u;
    bool known = uname(&u) == 0;
    (void)snprintf(chip, sizeof(chip), "%.60s", known ? u.machine : "unknown");
    (void)snprintf(build, sizeof(build), "%.60s",
                   known ? u.release : "unknown");
}
#endif

const char *system_chip(void)
{
    (void)pthread_once(&once, look);
    return chip;
}

const char *system_build(void)
{
    (void)pthread_once(&once, look);
    return build;
}
