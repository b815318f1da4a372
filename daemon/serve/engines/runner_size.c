/* runner_size.c - how many sequences an engine may have open, and how much they
 * may hold, from what READY says of their memory.
 */
#include "base/num.h"
#include "serve/engines/runner_impl.h"

static uint64_t blocks_for(uint64_t n, uint64_t each)
{
    return n / each + (n % each != 0 ? 1 : 0);
}

void runner_size(const struct runner *r, const struct msg_ready *m,
                 struct sched_conf *ret)
{
    uint64_t n = num_min(r->conf.sessions, m->seqs_max);
    uint64_t grant = r->conf.state_bytes;
    if (m->block_bytes == 0) { /* each costs the same from its beginning */
        n = m->state_bytes > 0 ? num_min(n, grant / m->state_bytes) : n;
        ret->seqs = n > 0 ? (uint32_t)n : 1;
        return;
    }
    ret->seqs = n > 0 ? (uint32_t)n : 1;
    uint64_t base = blocks_for(m->base_bytes, m->block_bytes);
    uint64_t full = base + blocks_for(m->context, STATE_BLOCK);
    uint64_t fit = grant > m->base_bytes
                       ? (grant - m->base_bytes) / m->block_bytes
                       : 0;
    if (fit / full >= ret->seqs) {
        return; /* all of them may be full */
    }
    ret->block = STATE_BLOCK;
    ret->overhead = (uint32_t)num_min(base * STATE_BLOCK, UINT32_MAX);
    ret->positions = num_max(fit, 1) * STATE_BLOCK;
}

uint64_t runner_state_bytes(const struct runner *r)
{
    const struct sched_conf *c = &r->sched.conf;
    const struct msg_ready *m = &r->ready;
    uint64_t all = c->seqs * m->state_bytes;
    if (c->positions == 0) {
        return all;
    }
    return num_min(all, m->base_bytes +
                            c->positions / STATE_BLOCK * m->block_bytes);
}
