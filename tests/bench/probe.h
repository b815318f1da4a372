/* probe.h - what the machine gives at this moment: read bandwidth, where its
 * cores stand, the rate of its multipliers, what others take of it.
 *
 * Figures of a virtual machine mean little without these beside them: the
 * hypervisor moves its cores about, and the same program then runs at another
 * speed. All of it is measured, nothing is asked of the system.
 */
#pragma once

#include "base/base.h"

#define PROBE_THREADS_MAX 64

struct probe;

/* threads: how many read together, at most PROBE_THREADS_MAX. NULL: no memory.
 */
struct probe *probe_new(unsigned threads);
void probe_free(struct probe *p); /* NULL is fine */

struct probe_place {
    double read_gb_s; /* all threads over one buffer larger than any cache */
    double trip_ns;   /* a cache line to another core and back; 0: one core */
    const char *state;
};

/* About 0.2 s. States: "smt" two threads of one core; "1ccd" two cores with one
 * last-level cache, "2ccd" with one each (AMD); "other". */
struct probe_place probe_place(struct probe *p);

/* Products and sums of small integers in registers only, all threads together,
 * 1e9 a second. *name: the instruction. */
double probe_multiply(struct probe *p, const char **name);

/* What a stretch of time cost. */
struct probe_clock {
    double wall, mine; /* seconds, of the clock and of this process */
    double busy;       /* processor seconds of all processes; < 0: not known */
    double stolen;     /* of the hypervisor for others */
};

struct probe_clock probe_clock(void);
/* Cores that other processes (*stolen: other machines) held meanwhile. */
double probe_others(const struct probe_clock *from, double *stolen);

double probe_seconds(void); /* CLOCK_MONOTONIC */
/* The middle of n values, which are sorted; n > 0. */
double probe_median(double *v, size_t n);
