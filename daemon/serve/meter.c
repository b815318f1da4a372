/* meter.c - see meter.h.
 *
 *   poll (sleeps, then calls back) -> check -> closed handles, timers
 *    ^                                           -> prepare --+
 *    +--------------------------------------------------------+
 *
 * A turn costs one read of a vDSO clock. The thread's CPU clock is a system
 * call, and costs 5 us after an engine's step has emptied the caches. So it is
 * read at the end of a turn only if the loop may have used METER_SLACK_NS since
 * the last reading: so much time has passed, and the turns took so much of it.
 * A turn longer than that always ends with a reading. What the short turns
 * before it used is in the result, and is less than METER_SLACK_NS. Time of
 * other processes is not in it, and sleeping costs no CPU time.
 *
 * For the lag, libuv's own time is the end of the poll, in whole milliseconds;
 * a finer one would cost a second epoll_wait (UV_METRICS_IDLE_TIME). */
#include "serve/meter.h"

#include <time.h>

#include "base/num.h"

static uint64_t thread_cpu_ns(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void on_check(uv_check_t *h)
{
    struct meter *m = container_of(h, struct meter, after);
    m->woke_ms = uv_now(h->loop);
}

/* The poll ended in the millisecond that begins at `woke`. */
static void on_prepare(uv_prepare_t *h)
{
    struct meter *m = container_of(h, struct meter, before);
    uint64_t now = uv_hrtime();
    uint64_t woke = m->woke_ms * 1000000u;
    uint64_t latest = woke + 1000000u;
    hist_add_us(&m->lag, now > latest ? (now - latest) / 1000 : 0);
    m->awake_ns += now - num_max(woke, m->turn_ns);
    m->turn_ns = now;
    if (now - m->read_ns < METER_SLACK_NS || m->awake_ns < METER_SLACK_NS) {
        return;
    }
    uint64_t cpu = thread_cpu_ns();
    uint64_t used = cpu - m->cpu_ns;
    m->cpu_max_ns = used > m->cpu_max_ns ? used : m->cpu_max_ns;
    m->n_over += used > (uint64_t)LOOP_CPU_MS * 1000000u;
    m->read_ns = now;
    m->awake_ns = 0;
    m->cpu_ns = cpu;
}

void meter_start(struct meter *m, uv_loop_t *loop)
{
    *m = (struct meter){0};
    must(uv_check_init(loop, &m->after) == 0);
    must(uv_prepare_init(loop, &m->before) == 0);
    must(uv_check_start(&m->after, on_check) == 0);
    must(uv_prepare_start(&m->before, on_prepare) == 0);
    uv_unref((uv_handle_t *)&m->after);
    uv_unref((uv_handle_t *)&m->before);
    m->woke_ms = uv_now(loop);
    m->read_ns = uv_hrtime();
    m->turn_ns = m->read_ns;
    m->cpu_ns = thread_cpu_ns();
}

void meter_stop(struct meter *m)
{
    uv_close((uv_handle_t *)&m->after, NULL);
    uv_close((uv_handle_t *)&m->before, NULL);
}
