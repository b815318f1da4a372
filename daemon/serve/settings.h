/* settings.h - what the command line, the environment and aned.conf say. */
#pragma once

#include "base/log.h"
#include "serve/conf.h"
#include "serve/home.h"

/* The command line's part; strings are borrowed while the daemon runs. */
struct settings_source {
    const char *config; /* --config; NULL: HOME/aned.conf when it exists */
    const char *home, *socket; /* --home, --socket; NULL */
};

struct settings {
    struct conf conf;
    struct home home;
    char file[HOME_PATH_MAX]; /* "": there is none */
};

/* Read the file that `src` means and find the home's paths. Any thread. Errors:
 * CONFIG, with the file and the line. */
CHECKED int settings_read(const struct settings_source *src,
                          struct settings *ret, struct err *e);
/* Defaults, and the paths that need no file: where settings_read failed.
 * Errors: CONFIG. */
CHECKED int settings_default(const struct settings_source *src,
                             struct settings *ret, struct err *e);
/* [server] log. */
enum log_level settings_log_level(const struct conf *c);
