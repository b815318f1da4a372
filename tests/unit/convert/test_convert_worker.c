/* The convert role over its socket, and what its sandbox holds. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../source/gguf_make.h"
#include "base/file.h"
#include "base/hash.h"
#include "convert/convert.h"
#include "convert/sandbox.h"
#include "convert/verify.h"
#include "mkgguf.h"
#include "proto/frame.h"
#include "proto/json.h"
#include "proto/msg.h"

static char room[64];

static int setup(void **state)
{
    (void)state;
    struct err e = {0};
    char path[128];
    (void)snprintf(room, sizeof(room), "/tmp/aned-worker-XXXXXX");
    if (mkdtemp(room) == NULL) {
        return -1;
    }
    struct buf b = mk_gguf(&mk_gemma3);
    (void)snprintf(path, sizeof(path), "%s/m.gguf", room);
    int rc = file_write(path, b.p, b.n, &e);
    buf_fini(&b);
    (void)snprintf(path, sizeof(path), "%s/out", room);
    return rc < 0 ? rc : file_mkdirs(path, 0700, &e);
}

static int teardown(void **state)
{
    (void)state;
    struct err e = {0};
    return file_rmtree(room, &e);
}

/* Run fn in a child whose fd 3 is a socket to us and whose fd 4 is the file
 * (NULL: closed). `strays` leaves it descriptors that it was not given. */
static pid_t child_of(int (*fn)(int, char **), const char *path, bool strays,
                      int *ret_fd)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int s = fcntl(pair[1], F_DUPFD, 20);
        int m = path != NULL ? open(path, O_RDONLY) : -1;
        m = m >= 0 ? fcntl(m, F_DUPFD, 20) : -1;
        (void)close(4);
        if (s < 0 || dup2(s, 3) < 0 || (m >= 0 && dup2(m, 4) < 0)) {
            _exit(99);
        }
        for (int fd = 5; fd < 40; fd++) {
            (void)close(fd);
        }
        if (strays && (dup2(2, 6) < 0 || dup2(2, 8) < 0)) {
            _exit(98);
        }
        char role[] = "convert-worker";
        char *argv[] = {role, NULL};
        _exit(fn(1, argv));
    }
    (void)close(pair[1]);
    *ret_fd = pair[0];
    return pid;
}

static pid_t child(int (*fn)(int, char **), bool with_model, int *ret_fd)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/m.gguf", room);
    return child_of(fn, with_model ? path : NULL, false, ret_fd);
}

static int ended(pid_t pid)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void send_job(int fd, const char *more)
{
    struct err e = {0};
    char text[512];
    (void)snprintf(text, sizeof(text),
                   "{\"source\":\"%s/m.gguf\",\"out\":\"%s/out/b\"%s}", room,
                   room, more);
    unit_ok(frame_write_fd(fd, FRAME_CONVERT, 9, text, strlen(text), &e), &e);
}

static bool out_is_empty(void)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/out", room);
    return rmdir(path) == 0 && mkdir(path, 0700) == 0;
}

static void a_job_from_frame_to_bundle(void **state)
{
    (void)state;
    for (int with_model = 0; with_model < 2; with_model++) {
        int fd = -1;
        pid_t pid = child(convert_role, with_model != 0, &fd);
        struct frame_in in;
        struct frame f;
        struct err e = {0};
        unsigned progress = 0;
        unsigned functions = 0;
        unsigned summaries = 0;
        unsigned qualities = 0;
        struct json *done = NULL;
        char path[128];
        frame_in_init(&in, FRAME_WORKER_MAX);
        send_job(fd, ",\"quant\":\"fp16\",\"context\":32,\"name\":\"n\"");
        while (frame_read_fd(fd, &in, &f, &e) == 1) {
            assert_int_equal(f.request, 9);
            if (f.type == FRAME_PROGRESS) {
                struct json *j = NULL;
                unit_ok(json_parse((const char *)f.payload, f.n, &j, &e), &e);
                assert_non_null(json_str(json_get(j, "stage")));
                json_free(j);
                progress++;
            } else if (f.type == FRAME_CONVERT_REPORT) {
                struct json *j = NULL;
                unit_ok(json_parse((const char *)f.payload, f.n, &j, &e), &e);
                const struct json *q = json_get(j, "quality");
                assert_int_equal(summaries, q != NULL); /* quality is last */
                functions += json_get(j, "function") != NULL;
                summaries += json_get(j, "summary") != NULL;
                qualities += q != NULL;
                json_free(j);
            } else {
                assert_int_equal(f.type, FRAME_CONVERT_DONE);
                assert_null(done);
                unit_ok(json_parse((const char *)f.payload, f.n, &done, &e),
                        &e);
            }
        }
        frame_in_fini(&in);
        (void)close(fd);
        assert_int_equal(ended(pid), 0);
        assert_true(progress >= 5);
        assert_int_equal(functions, 2); /* layers, head */
        assert_int_equal(summaries, 1);
        assert_int_equal(qualities, 1);
        assert_non_null(done);
        assert_int_equal(json_count(json_get(done, "gates")), 5);
        assert_true(json_num(json_get(done, "bundle_bytes")) > 1000);
        struct json *again = json_copy(json_get(done, "sandbox"));
        printf("# sandbox: limits=%d landlock=%d seccomp=%d seatbelt=%d\n",
               json_bool(json_get(again, "limits")),
               json_bool(json_get(again, "landlock")),
               json_bool(json_get(again, "seccomp")),
               json_bool(json_get(again, "seatbelt")));
        json_free(again);
        json_free(done);
        (void)snprintf(path, sizeof(path), "%s/out/b", room);
        assert_true(file_is_dir(path));
        unit_ok(file_rmtree(path, &e), &e);
        assert_true(out_is_empty());
    }
}

/* The answer to one job: 0, or the error of *m. */
static int answer(int fd, struct msg_error *m)
{
    struct frame_in in;
    struct frame f = {.n = 0};
    struct err e = {0};
    frame_in_init(&in, FRAME_WORKER_MAX);
    do {
        assert_int_equal(frame_read_fd(fd, &in, &f, &e), 1);
    } while (f.type == FRAME_PROGRESS || f.type == FRAME_CONVERT_REPORT);
    if (f.type != FRAME_CONVERT_DONE) {
        assert_int_equal(f.type, FRAME_ERROR);
        unit_ok(msg_error_get(f.payload, f.n, m, &e), &e);
    }
    int code = f.type == FRAME_CONVERT_DONE ? 0 : m->code;
    frame_in_fini(&in);
    return code;
}

enum { PARTS = 4 };

static void part_path(size_t i, char out[128])
{
    (void)snprintf(out, 128, "%s/m-%05zu-of-00004.gguf", room, i + 1);
}

static void write_parts(void)
{
    struct err e = {0};
    struct gguf *g = NULL;
    struct buf whole = mk_gguf(&mk_gemma3);
    unit_ok(gguf_open_mem(whole.p, whole.n, &g, &e), &e);
    for (size_t i = 0; i < PARTS; i++) {
        struct buf b;
        char path[128];
        const struct make_says says = {(uint32_t)i, PARTS,
                                       (uint32_t)gguf_n_tensors(g)};
        make_part(&b, g, (const uint8_t *)whole.p, i, PARTS, &says);
        must(buf_ok(&b));
        part_path(i, path);
        unit_ok(file_write(path, b.p, b.n, &e), &e);
        buf_fini(&b);
    }
    gguf_close(g);
    buf_fini(&whole);
}

/* The named part is fd 4, or its path; the others are opened beside it, before
 * the sandbox, whatever descriptors are in the way. */
static void a_split_source(void **state)
{
    (void)state;
    struct err e = {0};
    char path[128];
    write_parts();
    for (size_t i = 0; i < 2 * (size_t)PARTS; i++) {
        int fd = -1;
        struct msg_error m = {0};
        char text[512];
        part_path(i % PARTS, path);
        pid_t pid =
            child_of(convert_role, i < PARTS ? path : NULL, i % 2 == 0, &fd);
        (void)snprintf(text, sizeof(text),
                       "{\"source\":\"%s\",\"out\":\"%s/out/b\",\"quant\":"
                       "\"fp16\",\"context\":32}",
                       path, room);
        unit_ok(frame_write_fd(fd, FRAME_CONVERT, 9, text, strlen(text), &e),
                &e);
        if (i > PARTS + 1) { /* the last part is gone */
            assert_int_equal(answer(fd, &m), ERR_NOT_FOUND);
            part_path(3, path);
            assert_non_null(strstr(m.msg, path));
        } else {
            assert_int_equal(answer(fd, &m), 0);
        }
        if (i == PARTS + 1) {
            part_path(3, path);
            assert_int_equal(unlink(path), 0);
        }
        (void)close(fd);
        assert_int_equal(ended(pid), m.code != 0 ? err_exit(m.code) : 0);
        (void)snprintf(path, sizeof(path), "%s/out/b", room);
        unit_ok(file_rmtree(path, &e), &e);
        assert_true(out_is_empty());
    }
}

/* CANCEL, or nobody there any more: the job ends soon and leaves nothing. */
static void cancel_and_lost_parent(void **state)
{
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        int fd = -1;
        pid_t pid = child(convert_role, true, &fd);
        struct frame_in in;
        struct frame f = {.n = 0};
        struct err e = {0};
        send_job(fd, "");
        unit_ok(frame_write_fd(fd, FRAME_CANCEL, 9, NULL, 0, &e), &e);
        if (lost) {
            (void)close(fd);
        } else {
            struct msg_error m = {0};
            frame_in_init(&in, FRAME_WORKER_MAX);
            do {
                assert_int_equal(frame_read_fd(fd, &in, &f, &e), 1);
            } while (f.type == FRAME_PROGRESS);
            assert_int_equal(f.type, FRAME_ERROR);
            unit_ok(msg_error_get(f.payload, f.n, &m, &e), &e);
            assert_int_equal(m.code, ERR_CANCELLED);
            frame_in_fini(&in);
            (void)close(fd);
        }
        assert_int_not_equal(ended(pid), 0);
        assert_true(out_is_empty());
    }
}

static void bad_jobs(void **state)
{
    (void)state;
    static const struct {
        enum frame_type type;
        const char *text;
        int code;
    } t[] = {
        {FRAME_CANCEL, "", ERR_FRAME},
        {FRAME_CONVERT, "{", ERR_JSON},
        {FRAME_CONVERT, "{}", ERR_INVALID},
        {FRAME_CONVERT, "{\"out\":\"/proc/none/b\"}", ERR_NOT_FOUND},
        {FRAME_CONVERT, "{\"out\":\"/proc/none/b\",\"threads\":-1}", ERR_INVALID},
    };
    for (size_t i = 0; i < countof(t); i++) {
        int fd = -1;
        pid_t pid = child(convert_role, true, &fd);
        struct frame_in in;
        struct frame f = {.n = 0};
        struct err e = {0};
        struct msg_error m = {0};
        frame_in_init(&in, FRAME_WORKER_MAX);
        unit_ok(
            frame_write_fd(fd, t[i].type, 1, t[i].text, strlen(t[i].text), &e),
            &e);
        do {
            assert_int_equal(frame_read_fd(fd, &in, &f, &e), 1);
        } while (f.type == FRAME_PROGRESS);
        assert_int_equal(f.type, FRAME_ERROR);
        unit_ok(msg_error_get(f.payload, f.n, &m, &e), &e);
        if (m.code != t[i].code) {
            fail_msg("row %zu: %s: %s", i, err_name(m.code), m.msg);
        }
        frame_in_fini(&in);
        (void)close(fd);
        assert_int_not_equal(ended(pid), 0);
    }
}

static void *nothing(void *arg)
{
    return arg;
}

/* In the child: exit code tells which wall has a hole. */
static int try_walls(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    char path[160];
    struct sandbox_report r = {0};
    (void)snprintf(path, sizeof(path), "%s/out", room);
    struct sandbox_conf c = {
        .writable = path, .keep_fds = 5, .source_bytes = 1000};
    sandbox_enter(&c, &r);
    if (!r.seccomp && !r.landlock && !r.seatbelt) {
        return 77; /* a sanitizer, or a system without */
    }
    bool calls = r.seccomp || r.seatbelt;
    bool files = r.landlock || r.seatbelt;
    if (r.seccomp && socket(AF_UNIX, SOCK_STREAM, 0) >= 0) {
        return 1;
    }
    if (calls && fork() >= 0) {
        return 2;
    }
    if (calls && execl("/bin/true", "true", (char *)NULL) != -1) {
        return 3;
    }
    if (r.seccomp && mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {
        return 4;
    }
    if (calls && kill(getppid(), 0) == 0) {
        return 5;
    }
    if (files && open("/etc/passwd", O_RDONLY) >= 0) {
        return 6;
    }
    if (files && mkdir("/tmp/aned-hole", 0700) == 0) {
        (void)rmdir("/tmp/aned-hole");
        return 7;
    }
    pthread_t t;
    if (pthread_create(&t, NULL, nothing, NULL) != 0 ||
        pthread_join(t, NULL) != 0) {
        return 8;
    }
    (void)snprintf(path, sizeof(path), "%s/out/file", room);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    if (fd < 0 || write(fd, "x", 1) != 1 || close(fd) != 0 ||
        unlink(path) != 0) {
        return 9;
    }
    /* volatile: else clang leaves out a malloc that nobody uses */
    void *volatile p = r.limits ? malloc((size_t)2 << 30) : NULL;
    return p != NULL ? 10 : 0;
}

/* A folder that may be read, and no more. */
static int try_readable(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    char path[160];
    char model[160];
    struct sandbox_report r = {0};
    (void)snprintf(path, sizeof(path), "%s/out", room);
    (void)snprintf(model, sizeof(model), "%s/m.gguf", room);
    struct sandbox_conf c = {
        .writable = path, .readable = room, .keep_fds = 5, .file_bytes = 1};
    sandbox_enter(&c, &r);
    if (!r.landlock && !r.seatbelt) {
        return 77;
    }
    if (open(model, O_RDONLY) < 0) {
        return 1;
    }
    if (open(model, O_WRONLY) >= 0 || unlink(model) == 0) {
        return 2;
    }
    (void)snprintf(path, sizeof(path), "%s/new", room);
    if (open(path, O_WRONLY | O_CREAT, 0600) >= 0) {
        return 3;
    }
    if (open("/etc/passwd", O_RDONLY) >= 0) {
        return 4;
    }
    (void)snprintf(path, sizeof(path), "%s/out/file", room);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    if (fd < 0 || write(fd, "xy", 2) != 1 || close(fd) != 0 ||
        unlink(path) != 0) {
        return 5; /* one byte a file is the limit */
    }
    return 0;
}

static void a_readable_folder_is_only_read(void **state)
{
    (void)state;
    int fd = -1;
    int rc = ended(child(try_readable, true, &fd));
    (void)close(fd);
    if (rc == 77) {
        skip();
    }
    assert_int_equal(rc, 0);
}

static void walls_hold(void **state)
{
    (void)state;
    int fd = -1;
    int rc = ended(child(try_walls, true, &fd));
    (void)close(fd);
    if (rc == 77) {
        skip();
    }
    assert_int_equal(rc, 0);
}

/* --- the verify role --- */

static pid_t begin_verify(const char *known, const char *more, int *fd)
{
    struct err e = {0};
    char text[512];
    pid_t pid = child(verify_role, false, fd);
    (void)snprintf(text, sizeof(text),
                   "{\"bundle\":\"%s/out/b\",\"known\":\"%s\"%s}", room,
                   known, more);
    unit_ok(frame_write_fd(*fd, FRAME_VERIFY, 4, text, strlen(text), &e), &e);
    return pid;
}

/* The role's answer; *ret is DONE's JSON, or NULL after an error, which is in
 * *m. */
static void end_verify(pid_t pid, int fd, struct json **ret,
                       struct msg_error *m)
{
    struct frame_in in;
    struct frame f = {.n = 0};
    struct err e = {0};
    *ret = NULL;
    frame_in_init(&in, FRAME_WORKER_MAX);
    do {
        assert_int_equal(frame_read_fd(fd, &in, &f, &e), 1);
        assert_int_equal(f.request, 4);
    } while (f.type == FRAME_PROGRESS);
    if (f.type == FRAME_VERIFY_DONE) {
        unit_ok(json_parse((const char *)f.payload, f.n, ret, &e), &e);
    } else {
        assert_int_equal(f.type, FRAME_ERROR);
        unit_ok(msg_error_get(f.payload, f.n, m, &e), &e);
    }
    frame_in_fini(&in);
    (void)close(fd);
    int code = *ret != NULL ? 0 : err_exit(m->code);
    assert_int_equal(ended(pid), code);
}

static void verify_once(const char *known, bool gentle, struct json **ret,
                        struct msg_error *m)
{
    int fd = -1;
    pid_t pid = begin_verify(known, gentle ? ",\"gentle\":true" : "", &fd);
    end_verify(pid, fd, ret, m);
}

static void write_busy(int fd, bool busy)
{
    struct err e = {0};
    const char *text = busy ? "{\"busy\":true}" : "{\"busy\":false}";
    unit_ok(frame_write_fd(fd, FRAME_BUSY, 4, text, strlen(text), &e), &e);
}

static double seconds(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Each of the five files is a piece, with a rest after it. Slow machines only
 * make it longer. */
static void check_busy(void)
{
    struct json *done = NULL;
    struct msg_error m = {0};
    struct err e = {0};
    int fd = -1;
    double from = seconds();
    pid_t pid = begin_verify("", ",\"gentle\":true,\"busy\":true", &fd);
    end_verify(pid, fd, &done, &m);
    assert_non_null(done);
    json_free(done);
    assert_true(seconds() - from >= 5 * 0.25);

    pid = begin_verify("", ",\"gentle\":true,\"busy\":true", &fd);
    for (int i = 0; i < 9; i++) { /* ends with true, and ends nevertheless */
        write_busy(fd, i % 2 == 0);
    }
    end_verify(pid, fd, &done, &m);
    assert_non_null(done);
    json_free(done);

    pid = begin_verify("", ",\"gentle\":true,\"busy\":true", &fd);
    unit_ok(frame_write_fd(fd, FRAME_CANCEL, 4, NULL, 0, &e), &e);
    end_verify(pid, fd, &done, &m);
    assert_null(done);
    assert_int_equal(m.code, ERR_CANCELLED);

    pid = begin_verify("", ",\"gentle\":true,\"busy\":true", &fd);
    (void)close(fd); /* nobody is left to answer */
    assert_int_not_equal(ended(pid), 0);
}

static void verify_a_bundle(void **state)
{
    (void)state;
    char source[128];
    char out[128];
    char path[160];
    char stamp[SHA256_HEX] = "";
    struct convert_options o;
    struct convert_result r = {0};
    struct err e = {0};
    struct json *done = NULL;
    struct msg_error m = {0};
    (void)snprintf(source, sizeof(source), "%s/m.gguf", room);
    (void)snprintf(out, sizeof(out), "%s/out/b", room);
    convert_options_init(&o);
    o.source = source;
    o.out = out;
    unit_ok(convert_run(&o, &r, &e), &e);
    for (int again = 0; again < 3; again++) { /* the second time it is known */
        verify_once(again == 2 ? "other" : stamp, again != 1, &done, &m);
        assert_non_null(done);
        assert_int_equal(json_bool(json_get(done, "hashed")), again != 1);
        const char *s = json_str(json_get(done, "stamp"));
        assert_int_equal(strlen(s), SHA256_HEX - 1);
        assert_true(again == 0 || strcmp(s, stamp) == 0);
        memcpy(stamp, s, sizeof(stamp));
        json_free(done);
    }
    check_busy();
    (void)snprintf(path, sizeof(path), "%s/embed.bin", out);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "\0\0\0\0\0\0\0\0", 8, 4096), 8);
    (void)close(fd);
    verify_once(stamp, false, &done, &m);
    assert_null(done);
    assert_int_equal(m.code, ERR_BUNDLE);
    assert_non_null(strstr(m.msg, "embed.bin"));
    unit_ok(file_rmtree(out, &e), &e);
    assert_true(out_is_empty());
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(a_job_from_frame_to_bundle),
        cmocka_unit_test(a_split_source),
        cmocka_unit_test(cancel_and_lost_parent),
        cmocka_unit_test(bad_jobs),
        cmocka_unit_test(walls_hold),
        cmocka_unit_test(a_readable_folder_is_only_read),
        cmocka_unit_test(verify_a_bundle),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(t, setup, teardown);
}
