/* seam.c - linked into aned_fault, which is aned with a disk that fails.
 *
 * For `serve` alone, every call that changes the disk counts: writes to regular
 * files, truncations, syncs, folders made, files made, renamed and removed,
 * SQLite's among them. The environment says what happens to them:
 *   ANED_FAULT=kill:N    SIGKILL before call N; between two calls nothing on
 *                        the disk changes, so all N are all states a crash of
 *                        the process leaves
 *   ANED_FAULT=full:N    call N fails with ENOSPC, once, if it needs room
 *   ANED_FAULT=full+:N   call N and every later one that does
 *   ANED_FAULT=sync:N    call N fails with EIO if it is a sync
 *   ANED_FAULT_COUNT=F   8 bytes in F: the calls so far
 *   ANED_FAULT_ARM=F     calls count while F exists
 *   ANED_FAULT_GATE=F    the store thread runs no statement while F exists
 * Removals do not fail.
 *
 * `convert-worker` is a stand-in that makes a bundle for the fake engine; the
 * quality gate of a model whose name begins with "bad" has failed.
 * While HOME/worker exists it waits before it begins.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <sqlite3.h>

#include "proto/frame.h"
#include "proto/json.h"

static struct {
    bool on, kill, sync, lasting;
    uint64_t at;
    const char *arm, *gate;
    _Atomic uint64_t *count; /* mapped: outlives a kill */
    pthread_t main;
} g;

/* --- the converter's stand-in --- */

/* As the converter does it; a daemon that is dead already hung up. */
static void die_with_parent(void)
{
#ifdef __linux__
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    struct pollfd p = {.fd = 3};
    if (poll(&p, 1, 0) != 0) { /* POLLHUP */
        _exit(EXIT_SUCCESS);
    }
}

static void send_json(enum frame_type t, const char *text)
{
    struct err e = {0};
    if (frame_write_fd(3, t, 1, text, strlen(text), &e) != 0) {
        _exit(EXIT_SUCCESS);
    }
}

static void make_bundle(const char *out)
{
    int st = 0;
    pid_t pid = fork();
    if (pid == 0) {
        die_with_parent();
        (void)execl(FAKE_BUNDLE, "fake_bundle", out, "512", (char *)NULL);
        _exit(EXIT_BUG);
    }
    must(pid > 0 && waitpid(pid, &st, 0) == pid && st == 0);
}

static _Noreturn void worker(void)
{
    struct frame_in in;
    struct frame f;
    struct err e = {0};
    struct json *spec = NULL;
    char path[1200];
    die_with_parent();
    frame_in_init(&in, FRAME_WORKER_MAX);
    if (frame_read_fd(3, &in, &f, &e) != 1 ||
        json_parse((const char *)f.payload, f.n, &spec, &e) != 0) {
        _exit(EXIT_BUG);
    }
    const char *out = json_str(json_get(spec, "out"));
    const char *name = json_str(json_get(spec, "name"));
    must(out != NULL && name != NULL);
    /* out is HOME/staging/work-.../JOB; an attempt before may have left one */
    const char *slash = strrchr(out, '/');
    must(slash != NULL);
    (void)snprintf(path, sizeof(path), "%.*s/../../worker", (int)(slash - out),
                   out);
    while (access(path, F_OK) == 0) {
        (void)usleep(5000);
    }
    make_bundle(out);
    (void)snprintf(path, sizeof(path), "%s/fake", out);
    FILE *file = fopen(path, "w");
    must(file != NULL && fputs("lo 100\nhi 126\n", file) > 0 &&
         fclose(file) == 0);
    send_json(FRAME_PROGRESS, "{\"stage\":\"gating\",\"fraction\":0.9}");
    send_json(FRAME_CONVERT_REPORT,
              "{\"function\":{\"package\":\"p\",\"function\":\"\"},\"ops\":[{"
              "\"type\":\"gather\",\"device\":\"cpu\",\"could\":[\"cpu\"],"
              "\"count\":1,\"cost\":1,\"example\":\"g\",\"rule\":\"op.gather\","
              "\"reason\":\"op.gather: no\"}]}");
    send_json(FRAME_CONVERT_REPORT,
              "{\"summary\":{\"machine\":\"law\",\"options\":\"rules=1\","
              "\"verdict\":\"warned\",\"reasons\":[\"op.gather: no\"]}}");
    char done[256];
    (void)snprintf(done, sizeof(done),
                   "{\"gates\":[{\"name\":\"quality\",\"verdict\":\"%s\","
                   "\"detail\":\"said so\"}]}",
                   strncmp(name, "bad", 3) == 0 ? "failed" : "passed");
    send_json(FRAME_CONVERT_DONE, done);
    json_free(spec);
    frame_in_fini(&in);
    _exit(EXIT_SUCCESS);
}

/* --- setting up --- */

static void map_count(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    must(fd >= 0 && ftruncate(fd, 8) == 0);
    void *p = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(p != MAP_FAILED);
    (void)close(fd);
    g.count = p;
}

__attribute__((constructor)) static void setup(int argc, char **argv)
{
    const char *fault = getenv("ANED_FAULT");
    const char *count = getenv("ANED_FAULT_COUNT");
    if (argc > 1 && strcmp(argv[1], "convert-worker") == 0) {
        worker();
    }
    if (argc < 2 || strcmp(argv[1], "serve") != 0) {
        return;
    }
    g.main = pthread_self();
    g.gate = getenv("ANED_FAULT_GATE");
    g.arm = getenv("ANED_FAULT_ARM");
    if (count == NULL) {
        return;
    }
    map_count(count);
    if (fault != NULL) {
        const char *colon = strchr(fault, ':');
        must(colon != NULL);
        g.kill = strncmp(fault, "kill", 4) == 0;
        g.sync = strncmp(fault, "sync", 4) == 0;
        g.lasting = colon[-1] == '+';
        g.at = strtoull(colon + 1, NULL, 10);
    }
    g.on = true;
}

/* --- counting --- */

enum kind { ROOM, SYNC, REMOVAL };

/* True: the call is to fail. */
static bool hit(enum kind k)
{
    if (!g.on || (g.arm != NULL && access(g.arm, F_OK) != 0)) {
        return false;
    }
    uint64_t n = atomic_fetch_add(g.count, 1) + 1;
    if (g.at == 0 || n < g.at || (n > g.at && !g.lasting)) {
        return false;
    }
    if (g.kill) {
        (void)kill(getpid(), SIGKILL);
        (void)pause();
    }
    if (k != (g.sync ? SYNC : ROOM)) {
        return false;
    }
    errno = g.sync ? EIO : ENOSPC;
    return true;
}

static bool regular(int fd)
{
    struct stat st;
    return fd > STDERR_FILENO && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

static void *real(const char *name)
{
    void *p = dlsym(RTLD_NEXT, name);
    must(p != NULL);
    return p;
}

/* ISO C has no cast from what dlsym gives to a function. */
#define REAL(type, name, ...)    \
    union {                      \
        void *p;                 \
        type (*fn)(__VA_ARGS__); \
    } u_ = {.p = real(name)};    \
    type (*const fn)(__VA_ARGS__) = u_.fn

/* --- the calls --- */

ssize_t write(int fd, const void *p, size_t n)
{
    REAL(ssize_t, "write", int, const void *, size_t);
    return regular(fd) && hit(ROOM) ? -1 : fn(fd, p, n);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    return hit(ROOM) ? -1 : fn(fd, p, n, at);
}

int ftruncate(int fd, off_t n)
{
    REAL(int, "ftruncate", int, off_t);
    return hit(ROOM) ? -1 : fn(fd, n);
}

int fsync(int fd)
{
    REAL(int, "fsync", int);
    return hit(SYNC) ? -1 : fn(fd);
}

int fdatasync(int fd)
{
    REAL(int, "fdatasync", int);
    return hit(SYNC) ? -1 : fn(fd);
}

int rename(const char *from, const char *to)
{
    REAL(int, "rename", const char *, const char *);
    return hit(ROOM) ? -1 : fn(from, to);
}

int mkdir(const char *path, mode_t mode)
{
    REAL(int, "mkdir", const char *, mode_t);
    return hit(ROOM) ? -1 : fn(path, mode);
}

int unlink(const char *path)
{
    REAL(int, "unlink", const char *);
    return hit(REMOVAL) ? -1 : fn(path);
}

int unlinkat(int dir, const char *path, int flags)
{
    REAL(int, "unlinkat", int, const char *, int);
    return hit(REMOVAL) ? -1 : fn(dir, path, flags);
}

/* --- the store that is slow --- */

int sqlite3_step(sqlite3_stmt *q)
{
    REAL(int, "sqlite3_step", sqlite3_stmt *);
    while (g.gate != NULL && !pthread_equal(g.main, pthread_self()) &&
           access(g.gate, F_OK) == 0) {
        (void)usleep(1000);
    }
    return fn(q);
}
