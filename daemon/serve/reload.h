/* reload.h - reads the configuration: at the start, and again on SIGHUP.
 *
 * A reload takes all values of a file or, when it is wrong, none: the old ones
 * stay, and the log and /aned/v1/status say so. What a changed value needs to
 * count (nothing, a load, a restart) stands in its row of conf.h.
 *
 * A daemon started with --service does not end because its configuration or its
 * folders are wrong: a service manager would only start it again. It is in
 * trouble instead: it listens, answers every request with 503 and the reason,
 * and looks again every RELOAD_RETRY_MS and on SIGHUP until the mistake is
 * mended; then it starts as usual.
 *
 * SIGHUP of a terminal that was closed ends the daemon as SIGTERM does.
 *
 * Thread: the loop thread; files are read on the file thread.
 */
#pragma once

#include <unistd.h>

#include "serve/settings.h"
#include "serve/workq.h"

#define RELOAD_RETRY_MS  2000
#define RELOAD_WAITS_MAX 32u /* options that wait for a restart */

struct server;

struct reload {
    struct settings_source source;
    char file[HOME_PATH_MAX];
    struct err trouble; /* why nothing is served; code 0: no trouble */
    struct err last;    /* of the last reload; code 0: it was taken */
    uint64_t n;         /* reloads asked for, and ended */
    uint64_t n_load; /* of them changed what the next load of a model takes */
    int64_t at_ms;   /* the last one, Unix time; 0: none */
    size_t n_waits;
    char waits[RELOAD_WAITS_MAX][64]; /* changed, but only a restart counts */
    /* private to reload.c */
    bool open;
    bool terminal[STDERR_FILENO + 1]; /* descriptors that were one at the start
                                       */
    bool reading, again;              /* asked for while it reads */
    uv_signal_t sighup;
    uv_timer_t retry;
    struct work work;
    bool make, keyed; /* make the folders; read the key of `home` */
    struct home home;
    uint8_t key[HTTP_KEY_DIGEST];
    int rc;
    struct err error;
    struct settings read;
};

/* s->loop, s->files and s->reload.source are set. */
void reload_start(struct server *s);
void reload_stop(
    struct server *s); /* closes its handles; may be called twice */
/* Nothing can be served because of *why: refuse all, look again at times. */
void reload_trouble(struct server *s, const struct err *why);
