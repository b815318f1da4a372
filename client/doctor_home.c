/* doctor_home.c - what the daemon keeps: folders, database, disk, caches. */
#include <dirent.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macos.h"
#include "base/num.h"
#include "client/doctor.h"

#define DISK_LEAST  MIB(256) /* below, records cannot be written safely */
#define DISK_WANTED (UINT64_C(1) << 30)
#define CACHE_LARGE (UINT64_C(1) << 30)
#define CLOCK_LEAST 1767225600 /* 2026-01-01: aned is not older */
#define CLOCK_SPARE 120        /* seconds that files may be ahead */

static bool inside(const struct doctor *d, const char *name, char *out)
{
    return file_join(out, SERVICE_PATH_MAX, d->home, name);
}

void check_home(struct doctor *d)
{
    static const char *const names[] = {"models", "staging", "cache",
                                        "cache/states"};
    if (d->mac && macos_guarded(d->home, d->service.user) != NULL) {
        doctor_say(d, FINDING_WARNING, "move it: --home, or ANED_HOME",
                   "macOS keeps background jobs out of %s", d->home);
        return;
    }
    if (!file_exists(d->home)) {
        doctor_say(d, FINDING_NOTE, NULL, "%s is made at the first start",
                   d->home);
        return;
    }
    bool ok = doctor_private(d, "the home", d->home, 0700);
    for (size_t i = 0; i < countof(names); i++) {
        char path[SERVICE_PATH_MAX];
        if (inside(d, names[i], path) && file_exists(path)) {
            ok = doctor_private(d, "its folder", path, 0700) && ok;
        }
    }
    if (ok) {
        doctor_say(d, FINDING_OK, NULL, "%s", d->home);
    }
}

void check_store(struct doctor *d)
{
    const char *argv[] = {NULL,     "serve", "--check-store",
                          "--home", d->home, NULL};
    char path[SERVICE_PATH_MAX];
    char line[600];
    char size[16];
    struct stat st;
    int code = 0;
    if (!inside(d, "aned.db", path) || stat(path, &st) != 0) {
        doctor_say(d, FINDING_NOTE, NULL, "it is made at the first start");
        return;
    }
    fmt_bytes((uint64_t)st.st_size, size);
    if (!doctor_private(d, "the database", path, 0600)) {
        return;
    }
    if (d->status != NULL) { /* it holds the lock */
        doctor_say(d, FINDING_OK, NULL,
                   "%s; the daemon found it sound when it started", size);
    } else if (!doctor_aned(d, argv, &code, line, sizeof(line))) {
        doctor_say(d, FINDING_NOTE, "name it with --program",
                   "not known: there is no aned to read it");
    } else if (code == EXIT_TEMPFAIL) {
        doctor_say(d, FINDING_NOTE, NULL, "not known: %s", line);
    } else if (code != 0) {
        doctor_say(d, FINDING_ERROR,
                   "as it says; models and conversations on disk stay", "%s",
                   line);
    } else {
        doctor_say(d, FINDING_OK, NULL, "%s, sound", size);
    }
}

/* --- disk --- */

/* The bytes below each folder in `path`: of all, and of the largest. */
static void measure(const char *path, uint64_t *all, uint64_t *largest)
{
    *all = 0;
    *largest = 0;
    DIR *dir = opendir(path);
    for (struct dirent *x = dir != NULL ? readdir(dir) : NULL; x != NULL;
         x = readdir(dir)) {
        char sub[SERVICE_PATH_MAX];
        if (x->d_name[0] == '.' ||
            !file_join(sub, sizeof(sub), path, x->d_name)) {
            continue;
        }
        uint64_t n = file_tree_bytes(sub);
        *all += n;
        *largest = num_max(*largest, n);
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

static bool free_bytes(const char *path, uint64_t *ret)
{
    struct statvfs v;
    char at[SERVICE_PATH_MAX];
    (void)snprintf(at, sizeof(at), "%s", path);
    while (statvfs(at, &v) != 0) { /* before the first start: a folder above */
        char *slash = strrchr(at, '/');
        if (slash == NULL || slash == at) {
            return false;
        }
        *slash = '\0';
    }
    *ret = (uint64_t)v.f_bavail * v.f_frsize;
    return true;
}

void check_disk(struct doctor *d)
{
    char path[SERVICE_PATH_MAX];
    char has[16];
    char need[16];
    char models[16];
    uint64_t room = 0;
    uint64_t all = 0;
    uint64_t largest = 0;
    if (!free_bytes(d->home, &room)) {
        doctor_say(d, FINDING_NOTE, NULL, "not known: %s", d->home);
        return;
    }
    if (inside(d, "models", path)) {
        measure(path, &all, &largest);
    }
    /* A conversion writes a model beside those there are; Core ML keeps its
     * compiled forms of each, twice its size or so. */
    uint64_t want = num_max(DISK_WANTED, d->mac ? 3 * largest : largest);
    fmt_bytes(room, has);
    fmt_bytes(want, need);
    fmt_bytes(all, models);
    if (room < DISK_LEAST) {
        doctor_say(d, FINDING_ERROR,
                   "make room: anectl rm MODEL, or [cache] disk_mib",
                   "%s free, models take %s: records and answers will fail",
                   has, models);
    } else if (room < want) {
        doctor_say(d, FINDING_WARNING,
                   "make room: anectl rm MODEL, or [cache] disk_mib",
                   "%s free, models take %s: a conversion may need %s", has,
                   models, need);
    } else {
        doctor_say(d, FINDING_OK, NULL, "%s free, models take %s", has, models);
    }
}

/* --- caches --- */

/* Core ML's compiled forms, a folder for each build of the system: all but the
 * present one's are of no use any more, and nobody removes them. */
static void check_builds(struct doctor *d, const char *cache)
{
    char path[SERVICE_PATH_MAX];
    const char *now = d->build;
    char newest[256] = "";
    time_t at = 0;
    if (!file_join(path, sizeof(path), cache, "com.apple.e5rt.e5bundlecache")) {
        return;
    }
    for (int round = 0; round < 2; round++) { /* find the newest, then tell */
        DIR *dir = opendir(path);
        for (struct dirent *x = dir != NULL ? readdir(dir) : NULL; x != NULL;
             x = readdir(dir)) {
            char sub[SERVICE_PATH_MAX];
            char size[16];
            char remedy[SERVICE_PATH_MAX + 16];
            struct stat st;
            if (x->d_name[0] == '.' ||
                !file_join(sub, sizeof(sub), path, x->d_name) ||
                stat(sub, &st) != 0 || !S_ISDIR(st.st_mode)) {
                continue;
            }
            if (round == 0) {
                if (newest[0] == '\0' || st.st_mtime > at) {
                    at = st.st_mtime;
                    (void)snprintf(newest, sizeof(newest), "%s", x->d_name);
                }
            } else if (strcmp(x->d_name, now[0] != '\0' ? now : newest) != 0) {
                fmt_bytes(file_tree_bytes(sub), size);
                (void)snprintf(remedy, sizeof(remedy), "rm -r '%s'", sub);
                doctor_say(d, FINDING_WARNING, remedy,
                           "%s of build %s, which is not this one", size,
                           x->d_name);
            }
        }
        if (dir != NULL) {
            (void)closedir(dir);
        }
    }
}

/* Core ML keeps compiled models by bundle id, or by the program's name where a
 * program has none, and never removes those of models that are gone. */
static void check_coreml_caches(struct doctor *d)
{
    static const char *const names[] = {SERVICE_LABEL, "aned"};
    char path[SERVICE_PATH_MAX];
    char size[16];
    char remedy[SERVICE_PATH_MAX + 64];
    uint64_t models = 0;
    uint64_t largest = 0;
    if (inside(d, "models", path)) {
        measure(path, &models, &largest);
    }
    for (size_t i = 0; i < countof(names); i++) {
        char dir[SERVICE_PATH_MAX];
        if (!file_join(dir, sizeof(dir), d->service.user, "Library/Caches") ||
            !file_join(path, sizeof(path), dir, names[i]) ||
            !file_exists(path)) {
            continue;
        }
        uint64_t n = file_tree_bytes(path);
        fmt_bytes(n, size);
        (void)snprintf(remedy, sizeof(remedy),
                       "stop aned, rm -r '%s': models are compiled again",
                       path);
        bool large = n > CACHE_LARGE && n > 3 * models;
        doctor_say(d, large ? FINDING_WARNING : FINDING_OK,
                   large ? remedy : NULL, "%s in %s%s", size, path,
                   large ? ", more than three times the models" : "");
        check_builds(d, path);
    }
}

void check_caches(struct doctor *d)
{
    char path[SERVICE_PATH_MAX];
    char size[16];
    if (inside(d, "cache/states", path)) {
        fmt_bytes(file_tree_bytes(path), size);
        doctor_say(d, FINDING_OK, NULL,
                   "%s of saved states in %s, bounded by [cache] disk_mib",
                   size, path);
    }
    if (inside(d, "cache/coreml", path) && file_exists(path)) {
        fmt_bytes(file_tree_bytes(path), size);
        doctor_say(d, FINDING_OK, NULL,
                   "%s compiled for Core ML in %s, without a bound: a copy of "
                   "all weights; anectl rm removes a model's",
                   size, path);
    }
    if (inside(d, "staging", path) && d->status == NULL &&
        file_tree_bytes(path) > 0) {
        fmt_bytes(file_tree_bytes(path), size);
        doctor_say(d, FINDING_NOTE, "the next start removes it",
                   "%s of an unfinished conversion", size);
    }
    if (d->mac) {
        check_coreml_caches(d);
    }
}

/* --- clock --- */

void check_clock(struct doctor *d)
{
    static const char *const names[] = {"aned.db", "models", "cache/states"};
    time_t now = (time_t)d->now;
    char text[40] = "?";
    struct tm tm = {0};
    if (gmtime_r(&now, &tm) != NULL) {
        (void)strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &tm);
    }
    if (now < CLOCK_LEAST) {
        doctor_say(d, FINDING_ERROR, "set the clock",
                   "it is %s: certificates, budgets and records will be wrong",
                   text);
        return;
    }
    for (size_t i = 0; i < countof(names); i++) {
        char path[SERVICE_PATH_MAX];
        struct stat st;
        if (inside(d, names[i], path) && stat(path, &st) == 0 &&
            st.st_mtime > now + CLOCK_SPARE) {
            doctor_say(d, FINDING_WARNING,
                       "set the clock; if it is right, it was wrong before",
                       "it is %s, and %s was written later than that", text,
                       path);
            return;
        }
    }
    doctor_say(d, FINDING_OK, NULL, "%s", text);
}
