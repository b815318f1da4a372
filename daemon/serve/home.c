/* home.c - see home.h. It never calls chmod: a wrong mode may be the user's
 * intention, so the folder is refused, and the error says what to do. */
#include "serve/home.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/macos.h"
#include "proto/key_file.h"

static const char *env(const char *name)
{
    const char *v = getenv(name);
    return v != NULL && v[0] != '\0' ? v : NULL;
}

static int absolute(const char *path, char out[HOME_PATH_MAX], struct err *e)
{
    char cwd[HOME_PATH_MAX];
    bool ok = false;
    if (path[0] == '/') {
        ok = snprintf(out, HOME_PATH_MAX, "%s", path) < HOME_PATH_MAX;
    } else if (getcwd(cwd, sizeof(cwd)) != NULL) {
        ok = file_join(out, HOME_PATH_MAX, cwd, path);
    }
    if (!ok) {
        return err_set(e, ERR_CONFIG, "path too long: %s", path);
    }
    size_t n = strlen(out);
    while (n > 1 && out[n - 1] == '/') {
        out[--n] = '\0';
    }
    return 0;
}

int home_dir(const char *dir, char out[HOME_PATH_MAX], struct err *e)
{
    if (dir == NULL || dir[0] == '\0') {
        dir = env("ANED_HOME");
    }
    if (dir != NULL) {
        return absolute(dir, out, e);
    }
#if defined(__APPLE__)
    static const char tail[] = "Library/Application Support/dev.aned.daemon";
#else
    static const char tail[] = ".local/share/aned";
#endif
    const char *user = env("HOME");
    if (user == NULL || user[0] != '/') {
        return err_set(e, ERR_CONFIG,
                       "neither --home, ANED_HOME nor HOME "
                       "tells where to keep things");
    }
    return file_join(out, HOME_PATH_MAX, user, tail)
               ? 0
               : err_set(e, ERR_CONFIG, "HOME is too long");
}

int home_paths(const char *dir, const char *socket, struct home *ret,
               struct err *e)
{
    struct home h = {0};
    RETERR(home_dir(dir, h.dir, e));
    bool ok = file_join(h.models, sizeof(h.models), h.dir, "models") &&
              file_join(h.staging, sizeof(h.staging), h.dir, "staging") &&
              file_join(h.states, sizeof(h.states), h.dir, "cache/states") &&
              file_join(h.prepared, sizeof(h.prepared), h.dir,
                        "cache/coreml") &&
              file_join(h.db, sizeof(h.db), h.dir, "aned.db") &&
              file_join(h.key, sizeof(h.key), h.dir, KEY_FILE);
    if (socket == NULL || socket[0] == '\0') {
        socket = env("ANED_SOCKET");
    }
    const char *xdg = env("XDG_RUNTIME_DIR");
    if (socket != NULL) {
        RETERR(absolute(socket, h.socket, e));
    } else if (xdg != NULL && xdg[0] == '/') {
        ok = ok && file_join(h.socket, sizeof(h.socket), xdg, "aned/aned.sock");
    } else {
        ok =
            ok && file_join(h.socket, sizeof(h.socket), h.dir, "run/aned.sock");
    }
    if (!ok) {
        return err_set(e, ERR_CONFIG, "the home folder's path is too long");
    }
    *ret = h;
    return 0;
}

static int check_dir(const char *path, struct err *e)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        return err_errno(e, errno, path);
    }
    if (!S_ISDIR(st.st_mode)) {
        return err_set(e, ERR_CONFIG, "%s is not a folder", path);
    }
    if (st.st_uid != geteuid()) {
        return err_set(e, ERR_CONFIG, "%s belongs to another user", path);
    }
    if ((st.st_mode & 077u) != 0) {
        return err_set(e, ERR_CONFIG,
                       "%s is open to others (mode %03o); chmod 700 it", path,
                       (unsigned)(st.st_mode & 0777u));
    }
    return 0;
}

int home_guarded(const char *dir, const char *user, bool service, struct err *e)
{
    const char *folder = macos_guarded(dir, user);
    if (folder == NULL) {
        return 0;
    }
    if (service) {
        return err_set(e, ERR_CONFIG,
                       "%s lies in %s, which macOS keeps from services; "
                       "choose another folder with --home",
                       dir, folder);
    }
    log_warn("home",
             "dir=%s lies in %s, which macOS keeps from services, continuing",
             dir, folder);
    return 0;
}

int home_make(const struct home *h, struct err *e)
{
    const char *dirs[] = {h->dir, h->models, h->staging, h->states};
#if defined(__APPLE__)
    RETERR(home_guarded(h->dir, env("HOME"),
                        macos_is_service(env("XPC_SERVICE_NAME")), e));
#endif
    for (size_t i = 0; i < countof(dirs); i++) {
        RETERR(file_mkdirs(dirs[i], 0700, e));
        RETERR(check_dir(dirs[i], e));
    }
    return 0;
}
