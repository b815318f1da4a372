/* meter.h - measures how much CPU time the loop thread uses between two polls,
 * and how long an event may have waited for it.
 *
 * The rule (NOTES 48): at most LOOP_CPU_MS of CPU time between two polls, and
 * no call that blocks. tests/e2e/test_loop.py checks both; the first by
 * `n_over`, which other processes do not influence. They do influence the lag
 * (wall time), so only ./dev bench looks at it.
 *
 * Thread: the loop thread.
 */
#pragma once

#include <uv.h>

#include "serve/stats.h"

struct meter {
    uv_check_t after;    /* called after a poll and its callbacks */
    uv_prepare_t before; /* called before the next poll */
    uint64_t woke_ms;    /* uv_now() when the last poll ended */
    uint64_t turn_ns;    /* uv_hrtime() before the last poll */
    uint64_t awake_ns;   /* wall time of turns since read_ns, at most so much */
    uint64_t read_ns;    /* uv_hrtime() of the last look at the CPU clock */
    uint64_t cpu_ns;     /* what that clock said */
    uint64_t cpu_max_ns; /* most between two polls, up to METER_SLACK_NS high */
    uint64_t n_over;     /* how often it was more than LOOP_CPU_MS */
    struct hist lag;     /* from the end of a poll to the next one */
};

/* The CPU clock is read when the loop may have used this much CPU time since
 * the last reading: a long turn is measured, short turns are summed up. */
#define METER_SLACK_NS 2000000u

/* Call it before any other prepare handle is started, so that the meter's runs
 * last. */
void meter_start(struct meter *m, uv_loop_t *loop);
/* Close the handles; m must stay until the loop has turned. */
void meter_stop(struct meter *m);
