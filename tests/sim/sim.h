/* sim.h - the scheduler against a made-up engine and made-up clients, from one
 * seed: a clock that jumps, steps that cost what a model of costs says, clients
 * that come, stall, vanish and change their mind, crashes and refused rows.
 *
 * Checked after every call (the names are printed with a failure):
 *   engine    operations and rows are what an engine takes: sequences open,
 *             positions right, rows within its limits
 *   dead      no row for who left, is paused, or is late
 *   token     everybody gets the tokens of its own timeline, each once: they
 *             are a function of all tokens before, which the engine's copy of
 *             the timeline and the client's own must agree on
 *   queue     at most queue + running are taken, and that many are
 *   way       who finds the queue full gets in when one of a later class waits
 *             that never had a place, and then the youngest of the last such
 *             class goes, alone: none that had one, none for its equal. Who
 * went is dead place     no place stays free while somebody could have it; none
 * of a lower class waits while one of a higher class runs and could give way
 *   starved   who waits starts before it has waited its age and then, for each
 *             before it, twice the longest that a place was held; who runs gets
 *             rows
 *   budget    with others decoding, prompt rows make a step at most so much
 *             longer; a step is bounded anyway
 *   fair      peers that always want something get alike
 *   end       everything ends when nobody comes any more
 */
#pragma once

#include "sched/sched.h"

struct sim_result {
    uint64_t steps, tokens, accepted, finished, cancelled, parked, crashes,
        late, refused, displaced;
    const char *broken; /* NULL: all held; else the name, */
    char why[300];      /* and what was seen */
};

/* trace: where every event is written, or NULL. Adds to *ret. */
void sim_run(uint64_t seed, FILE *trace, struct sim_result *ret);
