/* kit.h - what the tests of the Core ML backend share. They see it through
 * backend.h, as the engine does; the stand-in is told how to behave by its
 * fault file, and asked what it has counted. C: Objective-C is the backend's
 * own affair.
 */
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "../../unit/engine/contract.h"
#include "../standin/count.h"
#include "engine/coreml/backend_coreml.h"

static struct {
    char dir[256];    /* of this program */
    char tmp[300];    /* for temporary files */
    char faults[300]; /* the stand-in's file */
    unsigned edits;
} kit;

/* The content of the fault file. The stand-in looks at its size and time, so no
 * two in a row are of one size. */
static inline void kit_faults(const char *text)
{
    struct err e = {0};
    char all[2048];
    int n = snprintf(all, sizeof(all), "prints = 0\n%s\n#%.*s\n", text,
                     (int)(kit.edits++ % 8), "........");
    assert_in_range(n, 1, sizeof(all) - 1);
    unit_ok(file_replace(kit.faults, all, (size_t)n, &e), &e);
}

/* A folder or file of this program. */
static inline const char *kit_path(const char *name)
{
    static char path[4][512];
    static unsigned at;
    char *p = path[at++ % 4];
    (void)snprintf(p, sizeof(path[0]), "%s/%s", kit.dir, name);
    return p;
}

/* First in main. The program starts itself once more, with a folder of its own
 * for temporary files: Foundation reads the environment before main. */
static inline void kit_start(char **argv)
{
    const char *tmp = getenv("TMPDIR");
    const char *dir = getenv("ANED_KIT");
    if (dir == NULL) {
        (void)snprintf(kit.dir, sizeof(kit.dir), "%s/aned-coreml-test-XXXXXX",
                       tmp != NULL ? tmp : "/tmp");
        must(mkdtemp(kit.dir) != NULL);
        (void)snprintf(kit.tmp, sizeof(kit.tmp), "%s/tmp", kit.dir);
        must(mkdir(kit.tmp, 0700) == 0 && setenv("ANED_KIT", kit.dir, 1) == 0 &&
             setenv("TMPDIR", kit.tmp, 1) == 0 &&
             setenv("TEMP", kit.tmp, 1) == 0); /* GNUstep's name for it */
        (void)execv("/proc/self/exe", argv);
        must(false);
    }
    (void)snprintf(kit.dir, sizeof(kit.dir), "%s", dir);
    (void)snprintf(kit.tmp, sizeof(kit.tmp), "%s/tmp", kit.dir);
    (void)snprintf(kit.faults, sizeof(kit.faults), "%s/faults", kit.dir);
    must(setenv("ANED_STANDIN", kit.faults, 1) == 0);
}

static inline int kit_make(void **state)
{
    kit_faults("");
    return contract_make(state);
}

/* The names in a folder, sorted, with a space after each. */
static inline const char *kit_names(const char *dir)
{
    static char text[1024];
    struct dirent **list = NULL;
    int n = scandir(dir, &list, NULL, alphasort);
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        if (list[i]->d_name[0] != '.') {
            at += (size_t)snprintf(text + at, sizeof(text) - at, "%s ",
                                   list[i]->d_name);
        }
        free(list[i]);
    }
    free(list);
    return text;
}

static inline int kit_unmake(void **state)
{
    struct err e = {0};
    int rc = contract_unmake(state);
    const char *left = kit_names(kit.tmp);
    if (left[0] !=
        '\0') { /* cmocka reports a teardown's failure, and exits 0 */
        (void)fprintf(stderr, "temporary files stayed: %s\n", left);
        abort();
    }
    unit_ok(file_rmtree(kit.dir, &e), &e);
    return rc;
}

/* Wait until `is` says so; the test fails after a minute. */
static inline void kit_until(bool (*is)(void *ctx), void *ctx)
{
    const struct timespec nap = {.tv_nsec = 5000000};
    for (int i = 0; i < 12000 && !is(ctx); i++) {
        (void)nanosleep(&nap, NULL);
    }
    assert_true(is(ctx));
}

/* --- nothing is left --- */

struct kit_left {
    int64_t objects, bytes;
    size_t fds;
};

static inline struct kit_left kit_count(void)
{
    struct kit_left n = {.objects = si_count_objects(),
                         .bytes = si_count_get(COUNT_ARRAY_BYTES) +
                                  si_count_get(COUNT_PIXEL_BYTES) +
                                  si_count_get(COUNT_STATE_BYTES)};
    for (int fd = 0; fd < 256; fd++) {
        n.fds += fcntl(fd, F_GETFD) >= 0;
    }
    return n;
}

static inline bool kit_is(void *ctx)
{
    const struct kit_left *was = ctx;
    struct kit_left n = kit_count();
    return n.objects == was->objects && n.bytes == was->bytes &&
           n.fds == was->fds;
}

/* Also what other threads still hold for a moment. What a failed test leaves is
 * reported, and waited for, once. */
static inline void kit_same(struct kit_left was)
{
    static bool left;
    if (!left) {
        left = true;
        kit_until(kit_is, &was);
        left = false;
    }
}

static const struct contract kit_coreml = {&backend_coreml, {.threads = 1}};
