/* sysctl(3): what serve/engines/residency.c and http/peer.c call. */
#pragma once

#include <stddef.h>
#include <sys/time.h>

#define CTL_KERN      1
#define KERN_PROC     14
#define KERN_PROC_PID 1

struct extern_proc {
    union {
        struct timeval __p_starttime;
    } p_un;
};
#define p_starttime p_un.__p_starttime

struct kinfo_proc {
    struct extern_proc kp_proc;
};

int sysctl(int *name, unsigned namelen, void *oldp, size_t *oldlenp,
           void *newp, size_t newlen);
int sysctlbyname(const char *name, void *oldp, size_t *oldlenp, void *newp,
                 size_t newlen);
