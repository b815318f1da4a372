#include "serve/settings.h"

#include <string.h>

#include "base/file.h"

static int find_file(const struct settings_source *src, char out[HOME_PATH_MAX],
                     struct err *e)
{
    char dir[HOME_PATH_MAX];
    if (src->config != NULL) {
        return snprintf(out, HOME_PATH_MAX, "%s", src->config) < HOME_PATH_MAX
                   ? 0
                   : err_set(e, ERR_CONFIG, "--config is too long");
    }
    RETERR(home_dir(src->home, dir, e));
    if (!file_join(out, HOME_PATH_MAX, dir, "aned.conf")) {
        return err_set(e, ERR_CONFIG, "the home folder's path is too long");
    }
    if (!file_exists(out)) {
        out[0] = '\0';
    }
    return 0;
}

static int find_paths(const struct settings_source *src, struct settings *r,
                      struct err *e)
{
    const char *socket =
        src->socket != NULL ? src->socket : r->conf.server_socket;
    return home_paths(src->home, socket, &r->home, e);
}

int settings_read(const struct settings_source *src, struct settings *ret,
                  struct err *e)
{
    int rc = 0;
    conf_init(&ret->conf);
    CHECK(find_file(src, ret->file, e));
    if (ret->file[0] != '\0') {
        CHECK(conf_read(&ret->conf, ret->file, e));
    }
    CHECK(find_paths(src, ret, e));
out:
    /* A file that is absent or cannot be read is a wrong setting too. */
    if (rc != 0 && rc != ERR_CONFIG) {
        rc = ERR_CONFIG;
        e->code = rc;
    }
    return rc;
}

int settings_default(const struct settings_source *src, struct settings *ret,
                     struct err *e)
{
    struct err none = {0};
    conf_init(&ret->conf);
    if (find_file(src, ret->file, &none) != 0) {
        ret->file[0] = '\0';
    }
    return find_paths(src, ret, e);
}

enum log_level settings_log_level(const struct conf *c)
{
    const char *word = c->server_log;
    return strcmp(word, "error") == 0   ? LOG_ERROR
           : strcmp(word, "warn") == 0  ? LOG_WARN
           : strcmp(word, "debug") == 0 ? LOG_DEBUG
                                        : LOG_INFO;
}
