/* libproc.h and sys/resource.h there: what serve/engines/residency.c reads. */
#pragma once

#include <stdint.h>

#define RUSAGE_INFO_V2 2
typedef void *rusage_info_t;

struct rusage_info_v2 {
    uint8_t ri_uuid[16];
    uint64_t ri_user_time, ri_system_time, ri_pkg_idle_wkups,
        ri_interrupt_wkups, ri_pageins, ri_wired_size, ri_resident_size,
        ri_phys_footprint;
};

int proc_pid_rusage(int pid, int flavor, rusage_info_t *buffer);
