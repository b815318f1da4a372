/* reload.c - see reload.h. */
#include "serve/reload.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "serve/engines/cache.h"
#include "serve/engines/models.h"
#include "serve/listeners.h"
#include "serve/notify.h"
#include "serve/server.h"
#include "serve/tcp.h"

/* --- taking new values --- */

static void on_change(void *ctx, const char *name, enum conf_when when)
{
    struct reload *x = &((struct server *)ctx)->reload;
    static const char *const text[] = {"now", "load", "restart"};
    log_info("option_changed", "option=%s counts=%s", name, text[when]);
    if (when == CONF_START && x->n_waits < RELOAD_WAITS_MAX) {
        (void)snprintf(x->waits[x->n_waits++], sizeof(x->waits[0]), "%s", name);
    }
    x->n_load += when == CONF_LOAD ? 1 : 0;
}

static void take(struct server *s)
{
    struct reload *x = &s->reload;
    x->n_waits = 0;
    conf_take(&s->conf, &x->read.conf, on_change, s);
    (void)snprintf(x->file, sizeof(x->file), "%s", x->read.file);
    log_setup(settings_log_level(&s->conf), "serve");
    server_set_times(s);
    if (x->keyed) { /* the old key ends here */
        memcpy(s->guard.key, x->key, sizeof(x->key));
    }
    if (s->cache != NULL) {
        struct cache_conf c = server_cache_conf(s);
        cache_set_conf(s->cache, &c, server_unix_ms());
    }
    models_set_conf(s->models);
}

static void tell(struct server *s)
{
    const struct reload *x = &s->reload;
    if (x->trouble.code != 0) {
        notify("READY=1\nSTATUS=serves nothing: %s", x->trouble.msg);
    } else if (x->last.code != 0) {
        notify("STATUS=the old options are used: %s", x->last.msg);
    } else {
        notify("STATUS=");
    }
}

/* --- trouble --- */

/* The reason and, in the same words for every client, what to do about it. */
static void set_trouble(struct server *s, const struct err *why)
{
    struct reload *x = &s->reload;
    struct err t = {0};
    (void)err_set(&t, ERR_CONFIG, "%.300s. Mend it: aned goes on by itself",
                  why->msg);
    if (strcmp(t.msg, x->trouble.msg) != 0) {
        log_error("trouble", "%s", t.msg);
        x->trouble = t;
        http_hold_answer(&s->hold, t.code, t.msg);
        tell(s);
    }
}

static void read_again(struct server *s);

static void on_retry(uv_timer_t *t)
{
    read_again(uv_handle_get_data((uv_handle_t *)t));
}

void reload_trouble(struct server *s, const struct err *why)
{
    set_trouble(s, why);
    must(uv_timer_start(&s->reload.retry, on_retry, RELOAD_RETRY_MS,
                        RELOAD_RETRY_MS) == 0);
}

static void mended(struct server *s)
{
    struct reload *x = &s->reload;
    log_info("trouble_over", "starting");
    must(uv_timer_stop(&x->retry) == 0);
    x->trouble = (struct err){0};
    (void)snprintf(x->file, sizeof(x->file), "%s", x->read.file);
    log_setup(settings_log_level(&x->read.conf), "serve");
    tell(s);
    server_mended(s, &x->read.conf, &x->read.home);
}

/* --- reading again --- */

/* On the file thread: only the fields of the work are touched. */
static void on_run(struct work *w)
{
    struct reload *x = container_of(w, struct reload, work);
    x->error = (struct err){0};
    x->rc = settings_read(&x->source, &x->read, &x->error);
    if (x->rc == 0 && x->make) {
        x->rc = home_make(&x->read.home, &x->error);
    }
    if (x->rc == 0 && x->keyed) {
        x->rc = tcp_key(&x->home, x->key, &x->error);
    }
}

static void on_done(struct work *w)
{
    struct reload *x = container_of(w, struct reload, work);
    struct server *s = container_of(x, struct server, reload);
    x->reading = false;
    if (s->closing || s->draining) {
        return;
    }
    if (x->trouble.code != 0) {
        if (x->rc == 0) {
            x->rc =
                listeners_open_tcp(s, &x->read.conf, &x->read.home, &x->error);
        }
        if (x->rc == 0) {
            mended(s);
        } else {
            set_trouble(s, &x->error);
        }
    } else {
        x->last = x->error;
        x->at_ms = server_unix_ms();
        x->n++;
        if (x->rc == 0) {
            take(s);
            log_info("reloaded", "file=%s",
                     x->file[0] != '\0' ? x->file : "none");
        } else {
            log_warn("reload_refused", "%s, continuing with the old options",
                     x->error.msg);
        }
        tell(s);
    }
    if (x->again) {
        x->again = false;
        read_again(s);
    }
}

static void read_again(struct server *s)
{
    struct reload *x = &s->reload;
    if (x->reading) {
        x->again = true;
        return;
    }
    x->work = (struct work){.run = on_run, .done = on_done};
    x->make = x->trouble.code != 0;
    x->keyed = s->keyed && !x->make;
    x->home = s->home;
    if (workq_put(s->files, &x->work) == 0) {
        x->reading = true;
    } else {
        log_warn("reload", "the file thread is busy, send SIGHUP again");
    }
}

/* --- the signal --- */

/* Whether a terminal that was there at the start is closed: the kernel sends
 * SIGHUP for that too. */
static bool hung_up(const struct reload *x)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++) {
        if (x->terminal[fd] && isatty(fd) == 0) {
            return true;
        }
    }
    return false;
}

static void on_sighup(uv_signal_t *h, int signum)
{
    struct server *s = uv_handle_get_data((uv_handle_t *)h);
    (void)signum;
    if (hung_up(&s->reload)) {
        log_info("terminal_closed", "stopping");
        server_stop(s);
    } else if (!s->draining && !s->closing) {
        read_again(s);
    }
}

void reload_start(struct server *s)
{
    struct reload *x = &s->reload;
    for (int fd = 0; fd <= STDERR_FILENO; fd++) {
        x->terminal[fd] = isatty(fd) == 1;
    }
    must(uv_signal_init(&s->loop, &x->sighup) == 0);
    must(uv_timer_init(&s->loop, &x->retry) == 0);
    uv_handle_set_data((uv_handle_t *)&x->sighup, s);
    uv_handle_set_data((uv_handle_t *)&x->retry, s);
    must(uv_signal_start(&x->sighup, on_sighup, SIGHUP) == 0);
    x->open = true;
}

void reload_stop(struct server *s)
{
    struct reload *x = &s->reload;
    if (x->open) {
        x->open = false;
        uv_close((uv_handle_t *)&x->sighup, NULL);
        uv_close((uv_handle_t *)&x->retry, NULL);
    }
}
