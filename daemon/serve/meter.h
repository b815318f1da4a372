/* meter.h - what the loop thread costs between two polls, and how long an event
 * may have waited for it.
 *
 * The rule (NOTES 48): LOOP_CPU_MS of its own CPU time between two polls, and
 * no call that blocks. tests/e2e/test_loop.py holds both, the first by
 * `n_over`, which is not for other processes to change; the lag on the wall can
 * be anybody's, and
 * ./dev bench alone looks at it.
 * Thread: the loop thread.
 */
#pragma once

#include <uv.h>

#include "serve/stats.h"

struct meter {
    uv_check_t after;    /* a poll and what it called */
    uv_prepare_t before; /* the next one */
    uint64_t woke_ms;    /* uv_now() when the last poll ended */
    uint64_t read_ns;    /* uv_hrtime() of the last look at the CPU clock */
    uint64_t cpu_ns;     /* what that clock said */
    uint64_t cpu_max_ns; /* most between two polls; METER_SLACK_NS too much */
    uint64_t n_over;     /* how often it was more than LOOP_CPU_MS */
    struct hist lag;     /* from the end of a poll to the next one */
};

/* The CPU clock is read when so much time has gone since it was read last: a
 * turn that was long is measured, short ones are summed up. */
#define METER_SLACK_NS 2000000u

/* Before any other prepare handle is started: that one is the last to run. */
void meter_start(struct meter *m, uv_loop_t *loop);
/* Its handles are closed; m must stay until the loop has turned. */
void meter_stop(struct meter *m);
