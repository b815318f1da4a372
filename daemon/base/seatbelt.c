#include "base/seatbelt.h"

#include <errno.h>
#include <unistd.h>

#include "base/log.h"

/* Symbolic links are looked at on the way to any file, and the sizes of files
 * tell little: metadata may be read. The log's service takes lines and gives
 * nothing. */
static const char convert[] =
    "(version 1)\n"
    "(deny default)\n"
    "(allow sysctl-read)\n"
    "(allow signal (target self))\n"
    "(allow file-read-metadata)\n"
    "(allow file-read* (literal \"/dev/urandom\") (literal \"/dev/random\"))\n"
    "(allow file-read* (subpath (param \"SOURCE\")))\n"
    "(allow file-read* file-write* (subpath (param \"ROOM\")))\n"
    "(allow mach-lookup (global-name \"com.apple.logd\"))\n";

/* Core ML talks to its compiler and to the Neural Engine's broker by Mach
 * messages and opens drivers: all of that stays allowed. It keeps what it has
 * compiled in the user's caches. */
static const char engine[] =
    "(version 1)\n"
    "(allow default)\n"
    "(deny network*)\n"
    "(deny process-exec*)\n"
    "(deny process-fork)\n"
    "(deny file-write*)\n"
    "(allow file-write* (literal \"/dev/null\"))\n"
    "(allow file-write* (subpath (param \"ROOM\")))\n"
    "(allow file-write* (subpath (param \"CACHES\")))\n"
    "(allow file-write* (subpath (param \"TEMPORARY\")))\n";

const char *seatbelt_profile(enum seatbelt kind)
{
    return kind == SEATBELT_CONVERT ? convert : engine;
}

#if defined(__APPLE__)
enum { PATH_BYTES = 4096 }; /* no less than PATH_MAX, as realpath asks */

/* libSystem has them; sandbox.h declares only the second, as deprecated.
 * `parameters` are names and values by turns, then NULL. */
int sandbox_init_with_parameters(const char *profile, uint64_t flags,
                                 const char *const parameters[],
                                 char **errorbuf);
void sandbox_free_error(char *errorbuf);

/* The folder of temporary files lies beside one of caches, in a folder that is
 * this user's alone. */
static bool user_folder(char out[PATH_BYTES])
{
    char temporary[PATH_BYTES], above[PATH_BYTES];
    size_t n = confstr(_CS_DARWIN_USER_TEMP_DIR, temporary, sizeof(temporary));
    return n > 0 && n <= sizeof(temporary) &&
           snprintf(above, sizeof(above), "%s/..", temporary) <
               (int)sizeof(above) &&
           realpath(above, out) != NULL;
}

static bool user_caches(char out[PATH_BYTES])
{
    char path[PATH_BYTES];
    const char *home = getenv("HOME");
    return home != NULL &&
           snprintf(path, sizeof(path), "%s/Library/Caches", home) <
               (int)sizeof(path) &&
           realpath(path, out) != NULL;
}

int seatbelt_enter(enum seatbelt kind, const char *room, const char *source,
                   struct err *e)
{
    char real[PATH_BYTES], caches[PATH_BYTES], temporary[PATH_BYTES];
    char readable[PATH_BYTES];
    char *why = NULL;
    if (realpath(room, real) == NULL) {
        return err_errno(e, errno, room);
    }
    if (realpath(source != NULL ? source : room, readable) == NULL) {
        return err_errno(e, errno, source);
    }
    const char *const parameters[] = {
        "ROOM",      real,
        "SOURCE",    readable,
        "CACHES",    user_caches(caches) ? caches : real,
        "TEMPORARY", user_folder(temporary) ? temporary : real,
        NULL,
    };
    if (sandbox_init_with_parameters(seatbelt_profile(kind), 0, parameters,
                                     &why) != 0) {
        int rc = err_set(e, ERR_UNAVAILABLE, "macOS refuses the sandbox: %s",
                         why != NULL ? why : "no reason given");
        sandbox_free_error(why);
        return rc;
    }
    return 0;
}

void seatbelt_engine(const char *room)
{
    struct err e = {0};
    if (seatbelt_enter(SEATBELT_ENGINE, room, NULL, &e) < 0) {
        log_warn("sandbox", "error=%s, continuing", e.msg);
    }
}
#else
int seatbelt_enter(enum seatbelt kind, const char *room, const char *source,
                   struct err *e)
{
    (void)kind;
    (void)room;
    (void)source;
    return err_set(e, ERR_UNAVAILABLE, "this system has no Seatbelt");
}

void seatbelt_engine(const char *room)
{
    (void)room;
}
#endif
