/* sim.h - the scheduler against a simulated engine and simulated clients, all
 * from one seed: a clock that jumps, steps whose time a cost model gives,
 * clients that come, stall, vanish and cancel, crashes and refused rows.
 *
 * Checked after every call (the names are printed with a failure):
 *   engine    an engine would accept the operations and rows: sequences open,
 *             positions right, rows within its limits
 *   list      a token is drawn by the list of factors that the length of its
 *             text is for (rule 12), and all before it were computed by that
 *             list
 *   dead      no row for a stream that left, is paused, or is late
 *   token     each client gets the tokens of its own timeline, each once: a
 *             token is a function of all tokens before it, so the engine's copy
 *             of the timeline and the client's own must agree
 *   queue     at most queue + running streams are taken, and that many are
 *   way       a request that finds the queue full gets in when one of a later
 *             class waits that never had a place; then the youngest of the last
 *             such class is refused, and no other: none that had a place, none
 *             of the same class. A refused request gets no rows
 *   place     no place stays free while a stream could have it; none of a lower
 *             class waits while one of a higher class runs and could give way
 *   room      what the engine has written of all open sequences, in whole
 *             blocks and with what each takes beside, is at most
 *             conf.positions, and the scheduler counts no less (rule 13)
 *   starved   a stream that waits starts before it has waited its age and then,
 *             for each stream before it, twice the longest time that a place
 *             was held; a running stream gets rows
 *   budget    while other streams decode, prompt rows make a step longer only
 *             by the factor of rule 3; a step is bounded in any case
 *   score     each row of a prompt that is scored is so once, in order, and all
 *             before a token is drawn (rule 14)
 *   pool      rows of a text that is pooled come in one sequence, in order, the
 *             last one marked, and no such sequence stays warm (rule 16)
 *   fair      peers that always have work are served alike
 *   end       everything ends when no client comes any more
 */
#pragma once

#include "sched/sched.h"

struct sim_result {
    uint64_t steps, tokens, accepted, finished, cancelled, parked, crashes,
        late, refused, displaced, again;
    const char *broken; /* NULL: all held; else the name, */
    char why[300];      /* and what was seen */
};

/* trace: where every event is written, or NULL. Adds to *ret. */
void sim_run(uint64_t seed, FILE *trace, struct sim_result *ret);
