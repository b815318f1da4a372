/* aned sandbox - enters the sandbox of a converter, or of an engine, and tries
 * what the sandbox is there to refuse.
 *
 * Whether a system's sandbox holds is not to be seen from outside, and a worker
 * that is as it should be never tries. The tries are the same on every system;
 * what is not refused on one that has no such rules is said so. */
#include "convert/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/seatbelt.h"
#include "cli/cli.h"
#include "proto/json.h"
#include "proto/limits.h"

extern char **environ;

static const char usage[] =
    "usage: aned sandbox DIR [--outside DIR] [--engine] [--json]\n"
    "\n"
    "Enter the sandbox of a converter whose folder is DIR/room, and try what\n"
    "it must refuse: write and read elsewhere below DIR, use a socket, start "
    "a\n"
    "program. DIR must exist; what is made there stays.\n"
    "\n"
    "  --outside DIR  what is elsewhere: below this folder instead\n"
    "  --engine       the sandbox of an engine (macOS): it may read, and "
    "write\n"
    "                 to caches and temporary folders\n"
    "  --json         as one object\n"
    "\n"
    "0: all is as it must be; 69: something is not refused, or this system\n"
    "cannot keep a process from files.\n";

struct room {
    char room[PATH_BYTES_MAX];    /* may be written */
    char inside[PATH_BYTES_MAX];  /* a file there */
    char outside[PATH_BYTES_MAX]; /* a file beside it, with some text */
    char refused[PATH_BYTES_MAX]; /* one beside it that does not exist */
    struct sockaddr_un listens;   /* a socket beside it */
};

/* --- the tries: true when it worked --- */

static bool make_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && write(fd, "x", 1) == 1;
    if (fd >= 0) {
        (void)close(fd);
    }
    return ok;
}

static bool write_inside(const struct room *r)
{
    return make_file(r->inside);
}

static bool write_outside(const struct room *r)
{
    return make_file(r->refused);
}

static bool read_outside(const struct room *r)
{
    char c = 0;
    int fd = open(r->outside, O_RDONLY | O_CLOEXEC);
    bool ok = fd >= 0 && read(fd, &c, 1) == 1;
    if (fd >= 0) {
        (void)close(fd);
    }
    return ok;
}

/* Somebody listens, so only the sandbox can refuse. */
static bool use_socket(const struct room *r)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    bool ok = fd >= 0 && connect(fd, (const struct sockaddr *)&r->listens,
                                 sizeof(r->listens)) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return ok;
}

static bool start_program(const struct room *r)
{
    static char name[] = "/usr/bin/true";
    char *const argv[] = {name, NULL};
    pid_t pid = 0;
    int status = 0;
    (void)r;
    return posix_spawn(&pid, name, NULL, NULL, argv, environ) == 0 &&
           waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

static const struct
try {
    const char *what;
    bool (*go)(const struct room *r);
    bool convert, engine; /* what each may */
}
tries[] = {
    {"write_inside",  write_inside,  true,  true },
    {"write_outside", write_outside, false, false},
    {"read_outside",  read_outside,  false, true },
    {"use_socket",    use_socket,    false, false},
    {"start_program", start_program, false, false},
};

/* --- before, and the whole --- */

/* A socket that listens, for as long as this process lives. */
static int listen_at(const char *dir, struct room *r, struct err *e)
{
    r->listens = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (!file_join(r->listens.sun_path, sizeof(r->listens.sun_path), dir,
                   "socket")) {
        return err_set(e, ERR_INVALID, "%s: too long for a socket", dir);
    }
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return fd >= 0 &&
                   bind(fd, (const struct sockaddr *)&r->listens,
                        sizeof(r->listens)) == 0 &&
                   listen(fd, 8) == 0
               ? 0
               : err_errno(e, errno, r->listens.sun_path);
}

/* beside: the folder of what must not be reached. */
static int prepare(const char *dir, const char *beside, struct room *r,
                   struct err *e)
{
    if (!file_join(r->room, sizeof(r->room), dir, "room") ||
        !file_join(r->inside, sizeof(r->inside), r->room, "inside") ||
        !file_join(r->outside, sizeof(r->outside), beside, "outside") ||
        !file_join(r->refused, sizeof(r->refused), beside, "refused")) {
        return err_set(e, ERR_INVALID, "%s: the path is too long", dir);
    }
    if (!file_is_dir(dir) || !file_is_dir(beside)) {
        return err_set(e, ERR_NOT_FOUND, "%s: there is no such folder",
                       file_is_dir(dir) ? beside : dir);
    }
    if (file_exists(r->room) || file_exists(r->outside) ||
        file_exists(r->refused)) {
        return err_set(e, ERR_EXISTS,
                       "%s: room, outside or refused is there already", dir);
    }
    RETERR(file_mkdirs(r->room, 0700, e));
    RETERR(file_write(r->outside, "text\n", 5, e));
    return listen_at(beside, r, e);
}

/* What keeps a process from files here; NULL: nothing does. */
static const char *enter(const struct room *r, bool engine, struct err *e)
{
    if (engine) {
        return seatbelt_enter(SEATBELT_ENGINE, r->room, NULL, e) == 0 ? "seatbelt"
                                                                : NULL;
    }
    const struct sandbox_conf c = {
        .writable = r->room, .keep_fds = 3, .source_bytes = 1};
    struct sandbox_report got;
    sandbox_enter(&c, &got);
    (void)err_set(e, ERR_UNAVAILABLE, "this system has no such rules");
    return got.seatbelt ? "seatbelt" : got.landlock ? "landlock" : NULL;
}

/* Enter, try, tell on stdout. Returns the exit code. */
static int run(const struct room *r, bool engine, bool as_json)
{
    struct err e = {0};
    struct buf b;
    const char *by = enter(r, engine, &e);
    bool right = by != NULL;
    struct json *o = json_object();
    json_add_str(o, "object", "aned.sandbox");
    json_add_str(o, "of", engine ? "engine" : "converter");
    if (by != NULL) {
        json_add_str(o, "by", by);
    } else {
        json_add_null(o, "by");
        json_add_str(o, "reason", e.msg);
    }
    struct json *list = json_add_array(o, "tries");
    buf_init(&b, KIB(16));
    for (size_t i = 0; i < countof(tries) && by != NULL; i++) {
        bool did = tries[i].go(r);
        bool may = engine ? tries[i].engine : tries[i].convert;
        struct json *x = json_add_object(list, NULL);
        json_add_str(x, "what", tries[i].what);
        json_add_bool(x, "worked", did);
        json_add_bool(x, "may", may);
        right = right && did == may;
        if (!as_json) {
            buf_printf(&b, "%-14s %s%s\n", tries[i].what,
                       did ? "allowed" : "refused",
                       did == may ? "" : ": WRONG");
        }
    }
    json_add_bool(o, "right", right);
    if (as_json) {
        json_write(o, false, &b);
        buf_puts(&b, "\n");
    } else if (by == NULL) {
        buf_printf(&b, "no sandbox: %s\n", e.msg);
    }
    must(buf_ok(&b));
    int rc = file_put(STDOUT_FILENO, b.p, b.n, FILE_HERE, "stdout", &e);
    buf_fini(&b);
    json_free(o);
    return rc != 0 ? EXIT_CANTCREAT : right ? EXIT_SUCCESS : EXIT_UNAVAILABLE;
}

struct options {
    const char *outside; /* NULL: the same folder */
    bool engine, json;
};

/* 0: continue; -1: end with exit code *ret. */
static int parse(int argc, char **argv, struct options *o, int *ret)
{
    static const struct option longs[] = {
        {"engine",  no_argument,       NULL, 'e'},
        {"outside", required_argument, NULL, 'o'},
        {"json",    no_argument,       NULL, 'j'},
        {"help",    no_argument,       NULL, 'h'},
        {NULL,      0,                 NULL, 0  },
    };
    int opt = 0;
    while ((opt = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
        if (opt == 'h') {
            (void)fputs(usage, stdout);
            *ret = EXIT_SUCCESS;
            return -1;
        }
        if (opt != 'e' && opt != 'j' && opt != 'o') {
            *ret = cli_usage(usage, "wrong option");
            return -1;
        }
        o->engine = o->engine || opt == 'e';
        o->json = o->json || opt == 'j';
        o->outside = opt == 'o' ? optarg : o->outside;
    }
    if (argc - optind != 1) {
        *ret = cli_usage(usage, "one folder is needed");
        return -1;
    }
    return 0;
}

int cli_sandbox(int argc, char **argv)
{
    static struct room r;
    struct options o = {0};
    struct err e = {0};
    int code = 0;
    if (parse(argc, argv, &o, &code) != 0) {
        return code;
    }
    const char *dir = argv[optind];
    if (prepare(dir, o.outside != NULL ? o.outside : dir, &r, &e) < 0) {
        return err_print(&e);
    }
    return run(&r, o.engine, o.json);
}
