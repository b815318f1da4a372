/* home.h - the folders and files of the daemon. */
#pragma once

#include "base/err.h"

#define HOME_PATH_MAX 1024

struct home {
    char dir[HOME_PATH_MAX];    /* belongs to this user, 0700 */
    char models[HOME_PATH_MAX]; /* published bundles, a folder each */
    char
        staging[HOME_PATH_MAX]; /* jobs' unfinished bundles; at start all
                                     goes but works (convert/work.h) */
    char states[HOME_PATH_MAX]; /* saved session states (cache.h) */
    char prepared[HOME_PATH_MAX]; /* what a device's compiler made of packages:
                                     a folder a model, made when needed */
    char db[HOME_PATH_MAX];
    char key[HOME_PATH_MAX]; /* of loopback TCP (proto/key_file.h) */
    char socket[HOME_PATH_MAX];
};

/* dir and socket: from the command line or the configuration; NULL or "" means
 * the defaults: $ANED_HOME, else the platform's; $ANED_SOCKET, else
 * $XDG_RUNTIME_DIR/aned/aned.sock, else HOME/run/aned.sock. Relative paths are
 * made absolute. Errors: CONFIG. */
CHECKED int home_paths(const char *dir, const char *socket, struct home *ret,
                       struct err *e);
/* Only the folder: to find HOME/aned.conf before the other paths are known. */
CHECKED int home_dir(const char *dir, char out[HOME_PATH_MAX], struct err *e);
/* Make the folders that are missing, 0700. Errors: CONFIG when HOME belongs to
 * another user or is open to others, or home_guarded refuses it; IO. */
CHECKED int home_make(const struct home *h, struct err *e);
/* On macOS: refuse a home in a folder of the user's (whose own folder is
 * `user`) that macOS keeps from background programs: a service would ask for
 * it, or fail, where nobody sees it. Else it is logged, since the same home may
 * serve later. Errors: CONFIG. */
CHECKED int home_guarded(const char *dir, const char *user, bool service,
                         struct err *e);
