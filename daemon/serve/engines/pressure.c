/* pressure.c - see pressure.h.
 *
 * The share of time is computed from the counter `total`, not taken from avg10:
 * an average of ten seconds stays high after enough memory was freed. */
#include "serve/engines/pressure.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/num.h"

#ifdef __APPLE__
#include <dispatch/dispatch.h>
#include <stdatomic.h>
#endif

#define SYSTEM_FILE "/proc/pressure/memory"
/* microseconds: 0.3 s of waiting in 2 s; see PRESSURE_SHARE, PRESSURE_MS */
#define TRIGGER "some 300000 2000000"

struct pressure {
    const char *path; /* "" with a trigger or a source */
    void (*fn)(void *ctx);
    void *ctx;
    bool on;
    unsigned open; /* handles libuv still holds */
    uv_timer_t timer;
    uv_poll_t poll; /* of the trigger */
    int fd;         /* of the trigger; -1 */
    uint64_t total_us, read_us;
    bool known; /* the two above are set */
#ifdef __APPLE__
    dispatch_queue_t queue; /* serial: what was begun can be waited for */
    dispatch_source_t source;
    uv_async_t async;
    atomic_ulong level; /* the last that was told: DISPATCH_MEMORYPRESSURE_* */
#endif
    char own[512];
};

int pressure_total(const char *text, uint64_t *ret_us)
{
    const char *p = strncmp(text, "some ", 5) == 0 ? text : NULL;
    size_t line = strcspn(text, "\n");
    p = p != NULL ? strstr(p, "total=") : NULL;
    if (p == NULL || (size_t)(p - text) >= line) {
        return ERR_INVALID;
    }
    uint64_t v = 0;
    size_t n = strspn(p + 6, "0123456789");
    if (n == 0 || n > 19) { /* 10^19 fits */
        return ERR_INVALID;
    }
    for (size_t i = 0; i < n; i++) {
        v = 10 * v + (uint64_t)(p[6 + i] - '0');
    }
    *ret_us = v;
    return 0;
}

static void on_closed(uv_handle_t *h)
{
    struct pressure *p = uv_handle_get_data(h);
    if (--p->open > 0) {
        return;
    }
    if (p->fd >= 0) {
        (void)close(p->fd);
    }
    free(p);
}

static int read_total(const char *path, uint64_t *ret_us)
{
    char text[256];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return ERR_IO;
    }
    ssize_t n = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    if (n < 0) {
        return ERR_IO;
    }
    text[n] = '\0';
    return pressure_total(text, ret_us);
}

static void on_timer(uv_timer_t *t)
{
    struct pressure *p = uv_handle_get_data((uv_handle_t *)t);
    uint64_t total = 0, now = uv_hrtime() / 1000;
    if (read_total(p->path, &total) != 0) {
        p->known = false; /* no such file here: no signs */
        return;
    }
    double waited = total > p->total_us ? (double)(total - p->total_us) : 0;
    double passed = (double)(now - p->read_us);
    bool sign = p->known && waited > PRESSURE_SHARE * passed;
    p->known = true;
    p->total_us = total;
    p->read_us = now;
    if (sign) {
        p->fn(p->ctx);
    }
}

#ifdef __linux__
static void on_trigger(uv_poll_t *h, int status, int events)
{
    struct pressure *p = uv_handle_get_data((uv_handle_t *)h);
    if (status < 0) {
        (void)uv_poll_stop(h);
    } else if (p->on && (events & UV_PRIORITIZED) != 0) {
        p->fn(p->ctx);
    }
}

/* Kernels before 6.5 want CAP_SYS_RESOURCE; containers may hide the file. */
static bool set_trigger(struct pressure *p, uv_loop_t *loop)
{
    static const char trigger[] =
        TRIGGER; /* with its NUL, as the kernel asks */
    int fd = open(SYSTEM_FILE, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    if (write(fd, trigger, sizeof(trigger)) < 0 ||
        uv_poll_init(loop, &p->poll, fd) != 0) {
        (void)close(fd);
        return false;
    }
    p->fd = fd;
    p->open++;
    uv_handle_set_data((uv_handle_t *)&p->poll, p);
    must(uv_poll_start(&p->poll, UV_PRIORITIZED, on_trigger) == 0);
    uv_unref((uv_handle_t *)&p->poll);
    return true;
}
#endif

#ifdef __APPLE__
static void on_source(void *ctx) /* a thread of libdispatch */
{
    struct pressure *p = ctx;
    atomic_store(&p->level, dispatch_source_get_data(p->source));
    (void)uv_async_send(&p->async);
}

static void on_still(uv_timer_t *t)
{
    struct pressure *p = uv_handle_get_data((uv_handle_t *)t);
    p->fn(p->ctx);
}

/* The source tells when the level changes, and not again while it stays: until
 * it is normal, each PRESSURE_MS is a sign. */
static void follow_level(struct pressure *p)
{
    bool is_short = atomic_load(&p->level) != DISPATCH_MEMORYPRESSURE_NORMAL;
    if (!p->on || !is_short) {
        must(uv_timer_stop(&p->timer) == 0);
    } else if (!uv_is_active((uv_handle_t *)&p->timer)) {
        must(uv_timer_start(&p->timer, on_still, 0, PRESSURE_MS) == 0);
    }
}

static void on_async(uv_async_t *a)
{
    follow_level(uv_handle_get_data((uv_handle_t *)a));
}

static void nothing(void *ctx)
{
    (void)ctx;
}

static bool set_source(struct pressure *p, uv_loop_t *loop)
{
    p->queue = dispatch_queue_create("aned.pressure", DISPATCH_QUEUE_SERIAL);
    atomic_init(&p->level, DISPATCH_MEMORYPRESSURE_NORMAL);
    p->source = dispatch_source_create(DISPATCH_SOURCE_TYPE_MEMORYPRESSURE, 0,
                                       DISPATCH_MEMORYPRESSURE_NORMAL |
                                           DISPATCH_MEMORYPRESSURE_WARN |
                                           DISPATCH_MEMORYPRESSURE_CRITICAL,
                                       p->queue);
    if (p->source == NULL) {
        dispatch_release(p->queue);
        return false;
    }
    must(uv_async_init(loop, &p->async, on_async) == 0);
    uv_handle_set_data((uv_handle_t *)&p->async, p);
    uv_unref((uv_handle_t *)&p->async);
    p->open++;
    dispatch_set_context(p->source, p);
    dispatch_source_set_event_handler_f(p->source, on_source);
    dispatch_resume(p->source);
    return true;
}
#endif

struct pressure *pressure_new(uv_loop_t *loop, const char *path,
                              void (*fn)(void *ctx), void *ctx)
{
    struct pressure *p = calloc(1, sizeof(*p));
    must(p != NULL);
    p->fn = fn;
    p->ctx = ctx;
    p->fd = -1;
    p->open = 1;
    (void)snprintf(p->own, sizeof(p->own), "%s", path);
    p->path = p->own;
    must(uv_timer_init(loop, &p->timer) == 0);
    uv_handle_set_data((uv_handle_t *)&p->timer, p);
    uv_unref((uv_handle_t *)&p->timer);
    bool told = false; /* it comes by itself */
    if (path[0] == '\0') {
#if defined(__linux__)
        told = set_trigger(p, loop);
#elif defined(__APPLE__)
        told = set_source(p, loop);
#endif
        p->path = told ? "" : SYSTEM_FILE;
    }
    log_debug("pressure", "source=%s", told ? "the system's" : p->path);
    return p;
}

void pressure_watch(struct pressure *p, bool on)
{
    if (p->on == on) {
        return;
    }
    p->on = on;
    p->known = false;
    if (p->path[0] == '\0') { /* it comes by itself */
#ifdef __APPLE__
        follow_level(p);
#endif
        return;
    }
    uint64_t ms = p->path == p->own ? PRESSURE_TEST_MS : PRESSURE_MS;
    must(on ? uv_timer_start(&p->timer, on_timer, 0, ms) == 0
            : uv_timer_stop(&p->timer) == 0);
}

void pressure_close(struct pressure *p)
{
    if (p == NULL) {
        return;
    }
    p->on = false;
#ifdef __APPLE__
    if (p->source != NULL) {
        dispatch_source_cancel(p->source);
        dispatch_sync_f(p->queue, NULL, nothing); /* on_source has returned */
        dispatch_release(p->source);
        dispatch_release(p->queue);
        uv_close((uv_handle_t *)&p->async, on_closed);
    }
#endif
    if (p->fd >= 0) {
        uv_close((uv_handle_t *)&p->poll, on_closed);
    }
    uv_close((uv_handle_t *)&p->timer, on_closed);
}
