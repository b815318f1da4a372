/* residency.c - see residency.h for the rules. */
#include "serve/engines/residency.h"

#include <math.h>
#include <string.h>
#include <unistd.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif
#if defined(__APPLE__)
#include <libproc.h>
#include <sys/sysctl.h>
#endif

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/parse.h"
#include "serve/engines/models_impl.h"

#define YEAR_MS ((int64_t)365 * 24 * 3600 * 1000)
#define TRIM_MS 1000u /* of rest, before freed memory is given back */
#define BUDGET_PARTS                                        \
    4u /* of the machine's memory; one stays for the others \
        */

/* --- keep-alive --- */

int keep_alive_seconds(double s, int64_t *ret_ms, struct err *e)
{
    if (!isfinite(s)) {
        return err_set(e, ERR_INVALID, "keep_alive: not a number of seconds");
    }
    *ret_ms = s < 0 || s * 1000 > (double)YEAR_MS ? KEEP_FOREVER
                                                  : (int64_t)(s * 1000);
    return 0;
}

/* Seconds of one unit at *p, which is moved after it; 0: no such unit. */
static double unit(const char **p)
{
    static const struct {
        const char *name;
        double s;
    } units[] = {
        {"ms", 1e-3},
        {"us", 1e-6},
        {"ns", 1e-9},
        {"h",  3600},
        {"m",  60  },
        {"s",  1   },
    };
    for (size_t i = 0; i < countof(units); i++) {
        size_t n = strlen(units[i].name);
        if (strncmp(*p, units[i].name, n) == 0) {
            *p += n;
            return units[i].s;
        }
    }
    return 0;
}

int keep_alive_text(const char *s, int64_t *ret_ms, struct err *e)
{
    const char *p = s;
    double sum = 0;
    bool negative = *p == '-';
    bool bad = false;
    p += *p == '-' || *p == '+' ? 1 : 0;
    do {
        size_t n = strspn(p, "0123456789.");
        char *end = NULL;
        double v = n > 0 && n < 20 ? strtod(p, &end) : 0;
        bad = end != p + n || end == NULL;
        if (bad) {
            break;
        }
        bool first = sum == 0 && (p == s || p == s + 1);
        p = end;
        double each = first && *p == '\0' ? 1 : unit(&p);
        bad = each == 0;
        sum += v * each;
    } while (*p != '\0' && !bad);
    if (bad) {
        return err_set(e, ERR_INVALID,
                       "keep_alive: a duration such as \"10m\", \"1h30m\" or "
                       "\"-1\", not '%.32s'",
                       s);
    }
    return keep_alive_seconds(negative && sum > 0 ? -1 : sum, ret_ms, e);
}

/* --- what is there, and what is used --- */

uint64_t residency_budget(const struct conf *c)
{
    uint64_t all = machine_memory();
    if (c->limits_memory_mib != 0) {
        return (uint64_t)c->limits_memory_mib << 20;
    }
    return all != 0 ? all / BUDGET_PARTS * (BUDGET_PARTS - 1) : INT64_MAX;
}

uint64_t models_budget(const struct models *ms)
{
    return ms->budget;
}

static bool is_down(const struct model *m)
{
    return m->runner == NULL || runner_state(m->runner) == RUNNER_DOWN;
}

/* What a load of it may come to: known when it was up before. */
static uint64_t need_bytes(const struct model *m)
{
    const struct msg_ready *t =
        m->runner != NULL ? runner_ready(m->runner) : NULL;
    if (t == NULL || t->context == 0) {
        return m->bundle->total_bytes;
    }
    return t->weight_bytes + m->scratch_bytes + runner_state_bytes(m->runner);
}

uint64_t model_bytes(const struct model *m)
{
    if (m->state == MODEL_AWAITING || is_down(m)) {
        return 0;
    }
    uint64_t n = need_bytes(m);
    return runner_state(m->runner) == RUNNER_UP ? n : n + m->grant_bytes;
}

uint64_t models_bytes(const struct models *ms)
{
    uint64_t n = 0;
    LIST_EACH(l, &ms->all) {
        n += model_bytes(model_of(l));
    }
    LIST_EACH(l, &ms->leaving) {
        n += model_bytes(model_of(l));
    }
    return n + probe_bytes(ms);
}

uint64_t model_resident_bytes(const struct model *m)
{
    int pid = is_down(m) ? 0 : runner_pid(m->runner);
    if (pid <= 0) {
        return 0;
    }
#if defined(__APPLE__)
    struct rusage_info_v2 u = {0};
    return proc_pid_rusage(pid, RUSAGE_INFO_V2, (rusage_info_t *)&u) == 0
               ? u.ri_phys_footprint
               : 0;
#elif defined(__linux__)
    char path[64];
    struct buf b = {0};
    uint64_t resident = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/statm", pid);
    if (file_read(path, 256, &b, NULL) != 0) {
        return 0;
    }
    buf_u8(&b, '\0');
    if (buf_ok(&b)) { /* "size resident shared ..." in pages */
        const char *rest = parse_digits(b.p, UINT64_MAX, &resident);
        resident = 0;
        if (rest == NULL || *rest != ' ' ||
            parse_digits(rest + 1, UINT64_MAX, &resident) == NULL) {
            resident = 0;
        }
    }
    buf_fini(&b);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
#else
    return 0;
#endif
}

uint64_t residency_grant(const struct model *m)
{
    const struct models *ms = m->of;
    const struct conf *c = &ms->srv->conf;
    uint64_t want = (uint64_t)c->cache_state_mib << 20;
    uint64_t used = models_bytes(ms) + m->bundle->total_bytes;
    uint64_t left = ms->budget > used ? ms->budget - used : 0;
    return num_min(want, c->cache_models > 1 ? left / 2 : left);
}

/* --- which model leaves --- */

static bool idle(const struct model *m)
{
    return m->runner != NULL && runner_state(m->runner) == RUNNER_UP &&
           !model_going(m) && m->users == 0;
}

/* The next one in rule 2's order. NULL: none can leave. */
static struct model *first_to_go(const struct models *ms)
{
    struct model *best = NULL;
    LIST_EACH(l, &ms->all) {
        struct model *m = model_of(l);
        if (idle(m) &&
            (best == NULL || (best->pinned && !m->pinned) ||
             (best->pinned == m->pinned && m->used_us < best->used_us))) {
            best = m;
        }
    }
    return best;
}

static void let_go(struct model *m, const char *why)
{
    log_info("model_leaves", "model=%s why=%s", m->name, why);
    model_set(m, MODEL_UNLOADING);
    runner_stop(m->runner);
    model_changed(m);
}

/* Bytes and engines left when all models that are unloading have left. */
static uint64_t staying(const struct models *ms, const struct model *but,
                        int64_t *ret_n)
{
    uint64_t bytes = 0;
    int64_t n = 0;
    LIST_EACH(l, &ms->all) {
        const struct model *m = model_of(l);
        if (m != but && !is_down(m) && !model_going(m)) {
            bytes += model_bytes(m);
            n++;
        }
    }
    *ret_n = n;
    return bytes;
}

int residency_room(struct model *m, struct err *e)
{
    struct models *ms = m->of;
    const struct conf *c = &ms->srv->conf;
    uint64_t need = need_bytes(m);
    for (;;) {
        int64_t n = 0;
        uint64_t used = staying(ms, m, &n);
        bool fits = used + need <= ms->budget;
        if (fits && n < c->cache_models) {
            /* Wait for those on their way out, if their bytes are needed. */
            return models_bytes(ms) + need <= ms->budget ? 1 : 0;
        }
        struct model *gone = need <= ms->budget ? first_to_go(ms) : NULL;
        if (gone != NULL) {
            ms->srv->stats.models_evicted++;
            let_go(gone, "room");
        } else if (!fits) {
            return err_set(e, ERR_NOMEM,
                           "%s needs %llu MiB; %llu of %llu MiB are in use",
                           m->name, (unsigned long long)(need >> 20),
                           (unsigned long long)(used >> 20),
                           (unsigned long long)(ms->budget >> 20));
        } else {
            return err_set(e, ERR_BUSY, "%d models are loaded and in use",
                           (int)n);
        }
    }
}

int residency_settle(struct model *m, struct err *e)
{
    struct models *ms = m->of;
    const struct msg_ready *t = runner_ready(m->runner);
    uint64_t resident = model_resident_bytes(m);
    int64_t n = 0;
    m->scratch_bytes =
        resident > t->weight_bytes ? resident - t->weight_bytes : 0;
    while (staying(ms, NULL, &n) > ms->budget) {
        struct model *gone = NULL;
        m->users++; /* not this one */
        gone = first_to_go(ms);
        m->users--;
        if (gone == NULL) {
            return err_set(e, ERR_NOMEM,
                           "%s holds %llu MiB, more than the %llu MiB that "
                           "[limits] memory_mib has left",
                           m->name, (unsigned long long)(model_bytes(m) >> 20),
                           (unsigned long long)(ms->budget >> 20));
        }
        ms->srv->stats.models_evicted++;
        let_go(gone, "room");
    }
    return 0;
}

void models_set_conf(struct models *ms)
{
    const struct conf *c = &ms->srv->conf;
    struct model *gone = NULL;
    int64_t n = 0;
    ms->budget = residency_budget(c);
    LIST_EACH(l, &ms->all) {
        model_set_conf(model_of(l));
    }
    while ((staying(ms, NULL, &n) > ms->budget || n > c->cache_models) &&
           (gone = first_to_go(ms)) != NULL) {
        ms->srv->stats.models_evicted++;
        let_go(gone, "options");
    }
    residency_changed(ms);
}

/* --- keep-alive: one timer for the next to leave --- */

int64_t model_leaves_ms(const struct model *m)
{
    if (!idle(m) || m->pinned || m->keep_ms < 0) {
        return KEEP_FOREVER;
    }
    int64_t gone = (int64_t)((server_now_us() - m->used_us) / 1000);
    return gone < m->keep_ms ? m->keep_ms - gone : 0;
}

static void on_timer(uv_timer_t *t)
{
    struct models *ms = uv_handle_get_data((uv_handle_t *)t);
    LIST_EACH(l, &ms->all) {
        struct model *m = model_of(l);
        if (model_leaves_ms(m) == 0) {
            let_go(m, "keep_alive");
        }
    }
    residency_changed(ms);
}

/* What a burst of requests took stays with the allocator otherwise: it gives
 * back only from the end of the heap. */
static void trim(struct models *ms)
{
    ms->untrimmed = false;
#if defined(__GLIBC__)
    (void)malloc_trim(0);
#endif
}

static void on_rest(uv_timer_t *t)
{
    trim(uv_handle_get_data((uv_handle_t *)t));
}

static void on_pressure(void *ctx)
{
    struct models *ms = ctx;
    uint32_t shed = 0;
    ms->srv->stats.memory_signs++;
    LIST_EACH(l, &ms->all) {
        struct model *m = model_of(l);
        shed += is_down(m) ? 0 : runner_shed(m->runner);
    }
    struct model *gone = shed == 0 ? first_to_go(ms) : NULL;
    if (shed > 0) {
        ms->srv->stats.states_shed += shed;
        log_info("memory_pressure", "warm states closed=%u", shed);
    } else if (gone != NULL) {
        ms->srv->stats.models_evicted++;
        let_go(gone, "memory_pressure");
    } else {
        log_debug("memory_pressure", "nothing to give back");
    }
    trim(ms);
    residency_changed(ms);
}

void residency_changed(struct models *ms)
{
    int64_t next = KEEP_FOREVER;
    bool any = false, used = false;
    if (!ms->timing) {
        return;
    }
    LIST_EACH(l, &ms->all) {
        int64_t ms_left = model_leaves_ms(model_of(l));
        any = any || !is_down(model_of(l));
        used = used || model_of(l)->users > 0;
        if (ms_left >= 0 && (next < 0 || ms_left < next)) {
            next = ms_left;
        }
    }
    pressure_watch(ms->pressure, any);
    if (used) {
        ms->untrimmed = true;
        must(uv_timer_stop(&ms->rest) == 0);
    } else if (ms->untrimmed) {
        must(uv_timer_start(&ms->rest, on_rest, TRIM_MS, 0) == 0);
    }
    if (next < 0) {
        must(uv_timer_stop(&ms->timer) == 0);
    } else { /* a millisecond later: clocks are cut to milliseconds */
        must(uv_timer_start(&ms->timer, on_timer,
                            (uint64_t)next + (next > 0 ? 1 : 0), 0) == 0);
    }
}

void models_start(struct models *ms)
{
    must(uv_timer_init(&ms->srv->loop, &ms->timer) == 0);
    uv_handle_set_data((uv_handle_t *)&ms->timer, ms);
    must(uv_timer_init(&ms->srv->loop, &ms->rest) == 0);
    uv_handle_set_data((uv_handle_t *)&ms->rest, ms);
    ms->pressure = pressure_new(
        &ms->srv->loop, ms->srv->conf.limits_pressure_file, on_pressure, ms);
    ms->timing = true;
}

void residency_stop(struct models *ms)
{
    if (ms->timing) {
        ms->timing = false;
        uv_close((uv_handle_t *)&ms->timer, NULL);
        uv_close((uv_handle_t *)&ms->rest, NULL);
        pressure_close(ms->pressure);
        ms->pressure = NULL;
    }
}

int64_t residency_keep(const struct models *ms)
{
    int64_t s = ms->srv->conf.engine_keep_alive_s;
    return s < 0 ? KEEP_FOREVER : s * 1000;
}

void model_keep(struct model *m, int64_t keep_ms)
{
    m->keep_ms = keep_ms;
    m->keep_asked = true;
    residency_changed(m->of);
}

void model_pin(struct model *m, bool pinned)
{
    m->pinned = pinned;
    residency_changed(m->of);
}

/* --- preload --- */

struct preload {
    struct model_wait wait;
    char name[MODEL_NAME_MAX + 1];
};

static void on_preloaded(struct model_wait *w, int rc, const struct err *e)
{
    struct preload *p = container_of(w, struct preload, wait);
    if (rc != 0) {
        log_warn("preload", "model=%s error=%s: %s, continuing", p->name,
                 err_name(rc), e->msg);
    }
    free(p);
}

static void preload(struct models *ms, const char *name)
{
    struct err e = {0};
    struct model *m = models_find(ms, name);
    struct preload *p = calloc(1, sizeof(*p));
    must(p != NULL);
    (void)snprintf(p->name, sizeof(p->name), "%s", name);
    p->wait.fn = on_preloaded;
    int rc = ERR_MODEL_NOT_FOUND;
    if (m != NULL) {
        model_pin(m, true);
        rc = model_load(m, false, &p->wait, &e);
    } else {
        (void)err_set(&e, rc, "there is no such model");
    }
    if (rc != 0) {
        on_preloaded(&p->wait, rc < 0 ? rc : 0, &e);
    }
}

void models_preload(struct models *ms)
{
    const char *p = ms->srv->conf.engine_preload;
    while (*p != '\0') {
        char name[MODEL_NAME_MAX + 1];
        p += strspn(p, " ");
        size_t n = strcspn(p, " ");
        if (n > 0) {
            (void)snprintf(name, sizeof(name), "%.*s", (int)n, p);
            preload(ms, name);
        }
        p += n;
    }
}
