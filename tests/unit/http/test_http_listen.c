/* Folder, lock, stale socket, activation: who may bind, and what is touched. */
#include <signal.h>
#include <sys/wait.h>

#include "harness.h"
#include "http/conn.h"

static void hello(struct http_req *r, const struct http_args *a)
{
    (void)a;
    http_reply(r, 200, NULL, "{}", 2);
}

static const struct http_route table[] = {
    {HTTP_M_GET, "/", hello, 0}
};
static const struct http_conf conf = {.routes = table, .n_routes = 1};

static int up(void **state)
{
    struct fix *f = calloc(1, sizeof(*f));
    must(f != NULL);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    fix_dir(f);
    *state = f;
    return 0;
}

static int down(void **state)
{
    fix_down(*state);
    free(*state);
    return 0;
}

static int try(struct fix *f, const char *path)
{
    struct http_server *s = NULL;
    struct err e = {0};
    int rc = http_listen(&f->loop, path, &conf, &s, &e);
    if (rc < 0) {
        assert_null(s);
        assert_true(strlen(e.msg) > 0);
        turn(f, 3);
    } else {
        f->srv = s;
    }
    return rc;
}

static void test_modes(void **state)
{
    struct fix *f = *state;
    struct stat st;
    mode_t old = umask(0);
    (void)snprintf(f->path, sizeof(f->path), "%s/a/b/s.sock", f->dir);
    assert_int_equal(try(f, f->path), 0);
    (void)umask(old);
    assert_int_equal(lstat(f->path, &st), 0);
    assert_true(S_ISSOCK(st.st_mode));
    assert_int_equal(st.st_mode & 07777, 0600);
    char dir[96];
    (void)snprintf(dir, sizeof(dir), "%s/a/b", f->dir);
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
}

static void test_bad_folders(void **state)
{
    struct fix *f = *state;
    char p[200];
    char link[96];
    assert_int_equal(chmod(f->dir, 0755), 0);
    assert_int_equal(try(f, f->path), ERR_CONFIG);
    assert_int_equal(chmod(f->dir, 0700), 0);
    (void)snprintf(link, sizeof(link), "%s/real", f->dir);
    assert_int_equal(mkdir(link, 0700), 0);
    (void)snprintf(p, sizeof(p), "%s/link", f->dir);
    assert_int_equal(symlink("real", p), 0);
    (void)snprintf(p, sizeof(p), "%s/link/s.sock", f->dir);
    assert_int_equal(try(f, p), ERR_CONFIG);
    (void)snprintf(p, sizeof(p), "%s/", f->dir);
    assert_int_equal(try(f, p), ERR_CONFIG);
    assert_int_equal(try(f, ""), ERR_CONFIG);
}

/* libuv would bind a cut path without a word (V-01). */
static void test_path_length(void **state)
{
    struct fix *f = *state;
    static const size_t lens[] = {108, 109, 150, 200};
    for (size_t i = 0; i < countof(lens); i++) {
        char p[256];
        int n = snprintf(p, sizeof(p), "%s/", f->dir);
        memset(p + n, 'x', lens[i] - (size_t)n);
        p[lens[i]] = '\0';
        assert_int_equal(try(f, p), ERR_CONFIG);
    }
    char p[256];
    int n = snprintf(p, sizeof(p), "%s/", f->dir);
    size_t max = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1;
    memset(p + n, 'x', max - (size_t)n);
    p[max] = '\0';
    assert_int_equal(try(f, p), 0);
    struct stat st;
    assert_int_equal(lstat(p, &st), 0);
}

static void test_foreign_files_stay(void **state)
{
    struct fix *f = *state;
    struct stat st;
    FILE *h = fopen(f->path, "we");
    assert_non_null(h);
    (void)fputs("precious", h);
    (void)fclose(h);
    assert_int_equal(try(f, f->path), ERR_CONFIG);
    assert_int_equal(lstat(f->path, &st), 0);
    assert_int_equal(st.st_size, 8);
    assert_int_equal(unlink(f->path), 0);
    assert_int_equal(symlink("/nowhere", f->path), 0);
    assert_int_equal(try(f, f->path), ERR_CONFIG);
    assert_int_equal(lstat(f->path, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
}

static void test_lock_and_stale(void **state)
{
    struct fix *f = *state;
    struct stat st;
    /* what a killed daemon leaves */
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", f->path);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    (void)close(fd);
    assert_int_equal(dial(f->path), -1);

    assert_int_equal(try(f, f->path), 0);
    struct http_server *first = f->srv;
    assert_int_equal(try(f, f->path), ERR_CONFLICT);
    f->srv = first;
    fd = dial(f->path); /* the loser took nothing away */
    assert_true(fd >= 0);
    (void)close(fd);
    turn(f, 5);

    http_close(f->srv, fix_closed, f);
    assert_int_equal(uv_run(&f->loop, UV_RUN_DEFAULT), 0);
    f->closed = false;
    assert_int_equal(lstat(f->path, &st), -1);
    f->srv = NULL;
    assert_int_equal(try(f, f->path), 0); /* and again */
}

/* A socket that somebody else put at our path is not ours to unlink. */
static void test_unlinks_only_ours(void **state)
{
    struct fix *f = *state;
    struct stat st;
    assert_int_equal(try(f, f->path), 0);
    assert_int_equal(unlink(f->path), 0);
    FILE *h = fopen(f->path, "we");
    assert_non_null(h);
    (void)fclose(h);
    http_close(f->srv, NULL, NULL);
    f->srv = NULL;
    assert_int_equal(uv_run(&f->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(lstat(f->path, &st), 0);
}

/* Another uid, with every permission opened on purpose: not a byte. */
static void test_other_uid(void **state)
{
    struct fix *f = *state;
    struct http_stats st;
    if (geteuid() != 0) {
        skip();
    }
    assert_int_equal(try(f, f->path), 0);
    assert_int_equal(chmod(f->dir, 0711), 0);
    assert_int_equal(chmod(f->path, 0666), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        static const char req[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        char c = 0;
        struct sockaddr_un sa = {.sun_family = AF_UNIX};
        (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", f->path);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (setgid(65534) != 0 || setuid(65534) != 0 ||
            connect(fd, (struct sockaddr *)&sa, sizeof(sa)) != 0) {
            _exit(2);
        }
        (void)send(fd, req, sizeof(req) - 1, MSG_NOSIGNAL);
        _exit(recv(fd, &c, 1, 0) > 0 ? 3 : 0);
    }
    int how = -1;
    for (int64_t end = now_ms() + WAIT_MS; now_ms() < end;) {
        turn(f, 5);
        if (waitpid(pid, &how, WNOHANG) == pid) {
            break;
        }
    }
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
    http_get_stats(f->srv, &st);
    assert_int_equal(st.refused_uid, 1);
    assert_int_equal(st.bytes_in + st.bytes_out + st.requests, 0);
    assert_int_equal(st.conns_open, 0);
}

static void test_handed_over(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    struct buf b;
    bool eof = false;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", f->path);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(http_listen_fd(&f->loop, fd, &conf, &f->srv, &e),
                     ERR_CONFIG); /* not listening */
    assert_int_equal(http_listen_fd(&f->loop, 0, &conf, &f->srv, &e),
                     ERR_CONFIG);
    assert_int_equal(listen(fd, 5), 0);
    unit_ok(http_listen_fd(&f->loop, fd, &conf, &f->srv, &e), &e);
    buf_init(&b, KIB(64));
    const char *r =
        talk(f, &b, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "{}", &eof);
    assert_int_equal(strncmp(r, "HTTP/1.1 200 ", 13), 0);
    buf_fini(&b);
    http_close(f->srv, NULL, NULL);
    f->srv = NULL;
    assert_int_equal(uv_run(&f->loop, UV_RUN_DEFAULT), 0);
    struct stat st;
    assert_int_equal(lstat(f->path, &st), 0); /* the manager's */
}

enum { FD_FIRST = 3 }; /* of LISTEN_FDS */

/* How many sockets there are; they are the descriptors from FD_FIRST on. */
static size_t handed_over(void)
{
    struct http_handed h = {0};
    struct err e = {0};
    must(http_activated(&h, &e) == 0);
    for (size_t i = 0; i < h.n; i++) {
        must(h.fd[i] == FD_FIRST + (int)i);
    }
    return h.n;
}

static void test_activation_env(void **state)
{
    (void)state;
    char pid[24];
    (void)snprintf(pid, sizeof(pid), "%d", (int)getpid());
    assert_int_equal(handed_over(), 0);
    (void)setenv("LISTEN_PID", "1", 1);
    (void)setenv("LISTEN_FDS", "1", 1);
    assert_int_equal(handed_over(), 0);
    assert_null(getenv("LISTEN_FDS"));
    (void)setenv("LISTEN_PID", pid, 1);
    (void)setenv("LISTEN_FDS", "2x", 1);
    assert_int_equal(handed_over(), 0);
    (void)setenv("LISTEN_PID", pid, 1);
    (void)setenv("LISTEN_FDS", "2", 1);
    assert_int_equal(handed_over(), 2);
    assert_null(getenv("LISTEN_PID"));
}

/* A listening socket of `dir`, at this descriptor. */
static void listen_at(const char *dir, int fd)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/%d", dir, fd);
    must(bind(s, (struct sockaddr *)&sa, sizeof(sa)) == 0);
    must(listen(s, 5) == 0);
    if (s != fd) {
        must(dup2(s, fd) == fd);
        (void)close(s);
    }
}

/* HTTP_LISTENERS_MAX of them are taken, the others closed: whoever connects
 * there hears so. What is no listening socket is nobody's to close. */
static void test_too_many_handed_over(void **state)
{
    struct fix *f = *state;
    enum { N = HTTP_LISTENERS_MAX + 4 };
    char text[24];
    pid_t child = fork(); /* descriptors 3 and up are to be its own */
    assert_true(child >= 0);
    if (child == 0) {
        int dead = FD_FIRST + N - 1;
        for (int i = 0; i < N - 1; i++) {
            listen_at(f->dir, FD_FIRST + i);
        }
        must(dup2(STDERR_FILENO, dead) == dead);
        (void)snprintf(text, sizeof(text), "%d", (int)getpid());
        (void)setenv("LISTEN_PID", text, 1);
        (void)snprintf(text, sizeof(text), "%d", N);
        (void)setenv("LISTEN_FDS", text, 1);
        bool ok = handed_over() == HTTP_LISTENERS_MAX;
        for (int i = 0; i < N; i++) {
            bool open = fcntl(FD_FIRST + i, F_GETFD) >= 0;
            ok = ok && open == (i < (int)HTTP_LISTENERS_MAX || i == N - 1);
        }
        _exit(ok ? 0 : 1);
    }
    int how = -1;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

/* launchd, as launch.h describes it. */
static struct {
    int error;
    size_t n;
    int fd[HTTP_LISTENERS_MAX + 3];
} launchd;

static int fake_launchd(const char *name, int **fds, size_t *n)
{
    must(strcmp(name, "aned") == 0);
    if (launchd.error == 0) {
        *fds = malloc(launchd.n * sizeof(int)); /* ASan finds it if it stays */
        must(*fds != NULL);
        memcpy(*fds, launchd.fd, launchd.n * sizeof(int));
        *n = launchd.n;
    }
    return launchd.error;
}

static void test_launchd(void **state)
{
    struct fix *f = *state;
    struct http_handed h = {.n = 0};
    struct err e = {0};
    launchd.error = ESRCH; /* started by hand */
    unit_ok(activate_launchd(fake_launchd, &h, &e), &e);
    launchd.error = ENOENT; /* an agent without Sockets */
    unit_ok(activate_launchd(fake_launchd, &h, &e), &e);
    assert_int_equal(h.n, 0);
    launchd.error = EALREADY;
    assert_int_equal(activate_launchd(fake_launchd, &h, &e), ERR_UNAVAILABLE);
    assert_non_null(strstr(e.msg, "aned"));

    launchd.error = 0;
    launchd.n = countof(launchd.fd);
    for (size_t i = 0; i < launchd.n; i++) {
        launchd.fd[i] = 200 + (int)i;
        listen_at(f->dir, launchd.fd[i]);
    }
    h.fd[h.n++] = STDIN_FILENO; /* what the environment gave is kept */
    unit_ok(activate_launchd(fake_launchd, &h, &e), &e);
    assert_int_equal(h.n, HTTP_LISTENERS_MAX);
    assert_int_equal(h.fd[0], STDIN_FILENO);
    for (size_t i = 0; i < launchd.n; i++) {
        int fd = launchd.fd[i];
        if (i + 1 < HTTP_LISTENERS_MAX) {
            assert_int_equal(h.fd[i + 1], fd);
            assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
            assert_true((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
            (void)close(fd);
        } else {
            assert_int_equal(fcntl(fd, F_GETFD), -1); /* closed */
        }
    }
}

/* A number of the process, not only of its pid; none of one that has ended. */
static void test_process(void **state)
{
    (void)state;
    int64_t me = getpid();
    assert_true(peer_process(me) != 0);
    assert_true(peer_process(me) == peer_process(me));
    assert_true(peer_process(getppid()) != peer_process(me));
    assert_true(peer_process(-1) == 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)pause();
        _exit(0);
    }
    uint64_t its = peer_process(child);
    assert_true(its != 0 && its != peer_process(me));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(peer_process(child) == 0);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, up, down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_modes),
        T(test_bad_folders),
        T(test_path_length),
        T(test_foreign_files_stay),
        T(test_lock_and_stale),
        T(test_unlinks_only_ours),
        T(test_other_uid),
        T(test_handed_over),
        T(test_too_many_handed_over),
        T(test_launchd),
        cmocka_unit_test(test_activation_env),
        cmocka_unit_test(test_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
