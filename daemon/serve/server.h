/* server.h - the serve role: what it owns, how it starts and how it ends.
 *
 *   server_run: config, home, store, listen -> read the store -> ready
 *               -> drain -> closed
 *
 * Until the store has answered every read, requests wait (http_hold) and
 * /health answers 503 `starting`. A read that fails ends the daemon: it gives
 * no answers from half of its records. A wrong configuration does too, but not
 * under a service manager (reload.h).
 *
 * SIGTERM or SIGINT ends event streams of jobs and models and stops the
 * converter. Open requests then have conf.server_drain_ms to end; new ones are
 * answered 503. After that everything is closed. A second signal closes at
 * once.
 *
 * Thread: the loop thread owns every field.
 */
#pragma once

#include <uv.h>

#include "http/http.h"
#include "serve/conf.h"
#include "serve/home.h"
#include "serve/meter.h"
#include "serve/reload.h"
#include "serve/stats.h"
#include "serve/workq.h"
#include "store/store.h"

struct cache;
struct models;
struct sessions;
struct answers;
struct jobs;
struct resumes;

struct server {
    uv_loop_t loop;
    const struct server_conf *given;
    struct conf conf; /* as it is used: reload.h */
    struct home home;
    struct reload reload;
    struct stats stats;
    struct meter meter;
    uint64_t answer_bytes; /* of whole answers that are not complete yet */
    struct store *store;
    struct workq *text;  /* tokenise, render, detokenise */
    struct workq *files; /* publish and remove folders */
    struct cache *cache; /* saved states; NULL: none are kept */
    struct models *models;
    struct jobs *jobs;
    struct sessions *sessions;
    struct answers *answers;
    struct resumes *resumes; /* resume.h */
    struct http_handed given_fds; /* that nobody has taken yet */
    bool handed;             /* the service manager passed the sockets */
    bool handed_tcp;         /* and TCP ones among them */
    bool listens;            /* on those, or on home.socket */
    bool listens_tcp;        /* as [http] listen says */
    bool keyed;              /* guard.key is the key of home.key */
    struct http_guard guard; /* of TCP listeners */
    size_t n_http;
    struct http_server *http[HTTP_LISTENERS_MAX + HTTP_TCP_MAX];
    struct http_server *own; /* of them: on home.socket; NULL: none */
    uv_signal_t sigterm, sigint;
    uv_timer_t drain;
    uv_prepare_t turn;   /* called before the loop sleeps */
    struct list runners; /* these form a step then */
    struct http_hold hold; /* requests that came before `ready` */
    unsigned reads;        /* reads that the store has not answered yet */
    bool ready;
    struct err why; /* the error that ended it; code 0: a signal did */
    bool draining, closing;
    unsigned open; /* parts whose `closed` is still to come */
    uint64_t drain_until_us;
};

struct server_conf {
    struct settings_source source;
    struct settings read; /* what it gave, or the defaults */
    struct err trouble;   /* why there are only defaults; code 0: none */
    bool service;         /* stay when in trouble */
    const struct http_route *routes; /* static; http_ctx is struct server */
    size_t n_routes;
    void (*error_body)(const char *path, int code, const char *msg,
                       struct buf *b);
    const char *page; /* http_conf.page */
};

/* Run until a signal or an error ends it. Errors: CONFIG, CONFLICT, STORE, IO.
 */
CHECKED int server_run(const struct server_conf *c, struct err *e);
/* As SIGTERM: drain, then close; at once when it drains already. */
void server_stop(struct server *s);

/* For reload.c: the trouble is over; start with these. */
void server_mended(struct server *s, const struct conf *c,
                   const struct home *h);
/* Listeners take the times of s->conf. */
void server_set_times(struct server *s);
struct cache_conf server_cache_conf(const struct server *s);

/* Send what this turn of the loop has written (http_flush). Does nothing while
 * listeners are being closed: that has flushed them. */
void server_flush(struct server *s);
/* uv_hrtime() in microseconds; the clock of everything below. */
uint64_t server_now_us(void);
/* Unix time in milliseconds, for records only. */
int64_t server_unix_ms(void);
