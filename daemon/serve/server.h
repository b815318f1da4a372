/* server.h - the serve role: what it owns, and its life.
 *
 *   server_run: config, home, store, listen -> read the store -> ready
 *               -> drain -> closed
 *
 * Until every read of the store has come back, requests wait (http_hold) and
 * /health says 503 `starting`. A read that fails ends the daemon: what it does
 * not know it does not say.
 * SIGTERM or SIGINT ends event streams of jobs and models, stops the converter,
 * gives open requests conf.server_drain_ms and then closes everything; new work
 * is answered 503 meanwhile. A second signal closes at once.
 * Thread: the loop thread owns every field.
 */
#pragma once

#include <uv.h>

#include "http/http.h"
#include "serve/conf.h"
#include "serve/home.h"
#include "serve/meter.h"
#include "serve/stats.h"
#include "serve/workq.h"
#include "store/store.h"

struct cache;
struct models;
struct sessions;
struct jobs;
struct resumes;

struct server {
    uv_loop_t loop;
    struct conf conf;
    struct home home;
    struct stats stats;
    struct meter meter;
    uint64_t answer_bytes; /* of answers that wait for their end */
    struct store *store;
    struct workq *text;  /* tokenise, render, detokenise */
    struct workq *files; /* publish and remove folders */
    struct cache *cache; /* saved states; NULL: none are kept */
    struct models *models;
    struct jobs *jobs;
    struct sessions *sessions;
    struct resumes *resumes; /* resume.h */
    size_t n_http;
    struct http_server *http[HTTP_LISTENERS_MAX];
    uv_signal_t sigterm, sigint;
    uv_timer_t drain;
    uv_prepare_t turn;   /* before the loop sleeps */
    struct list runners; /* that are to form a step then */
    struct http_hold hold; /* requests that came before `ready` */
    unsigned reads;        /* of the store, not back yet */
    bool ready;
    int rc; /* why it ended by itself; 0: it was told to */
    bool draining, closing;
    unsigned open; /* parts that still have to say closed */
    uint64_t drain_until_us;
};

struct server_conf {
    struct conf conf;
    struct home home;
    const struct http_route *routes; /* static; http_ctx is struct server */
    size_t n_routes;
    void (*error_body)(const char *path, int code, const char *msg,
                       struct buf *b);
};

/* Runs until it was told to stop. Errors: CONFIG, CONFLICT, STORE, IO. */
CHECKED int server_run(const struct server_conf *c, struct err *e);

/* What this turn of the loop has written goes out now (http_flush); nothing
 * once listeners are being closed, which has flushed them. */
void server_flush(struct server *s);
/* uv_hrtime() in microseconds; the clock of everything below. */
uint64_t server_now_us(void);
/* Unix time in milliseconds, for records only. */
int64_t server_unix_ms(void);
