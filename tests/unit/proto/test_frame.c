/* test_frame.c - frame.h: whole frames out of any pieces, and what is refused.
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/frame.h"
#include "../unit.h"

static void put_three(struct buf *b)
{
    buf_init(b, KIB(64));
    frame_put(b, FRAME_LOAD, 7, "hello", 5);
    frame_put(b, FRAME_OK, 0, NULL, 0);
    frame_put(b, FRAME_STEP_DONE, UINT32_MAX, "x", 1);
}

static void check_three(const struct frame *f, int i)
{
    static const struct {
        enum frame_type type;
        uint32_t request;
        const char *payload;
    } want[] = {
        {FRAME_LOAD,      7,          "hello"},
        {FRAME_OK,        0,          ""     },
        {FRAME_STEP_DONE, UINT32_MAX, "x"    },
    };
    assert_int_equal(f->type, want[i].type);
    assert_int_equal(f->request, want[i].request);
    assert_int_equal(f->n, strlen(want[i].payload));
    assert_memory_equal(f->payload, want[i].payload, f->n);
}

static void test_bytes(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 64);
    frame_put(&b, FRAME_STEP, 0x01020304, "ab", 2);
    static const char want[] = "ANF1"
                               "\6\0"
                               "\0\0"
                               "\2\0\0\0"
                               "\4\3\2\1"
                               "ab";
    assert_int_equal(b.n, sizeof(want) - 1);
    assert_memory_equal(b.p, want, b.n);
    buf_fini(&b);
}

/* Three frames, cut into pieces of every size. */
static void test_pieces(void **state)
{
    (void)state;
    struct buf b;
    put_three(&b);
    for (size_t piece = 1; piece <= b.n; piece++) {
        struct frame_in in;
        struct err e;
        int seen = 0;
        frame_in_init(&in, 16);
        for (size_t at = 0; at < b.n; at += piece) {
            size_t n = b.n - at < piece ? b.n - at : piece;
            unit_ok(frame_in_put(&in, b.p + at, n, &e), &e);
            struct frame f;
            int rc = 0;
            while ((rc = frame_in_next(&in, &f, &e)) == 1) {
                check_three(&f, seen++);
            }
            assert_int_equal(rc, 0);
        }
        assert_int_equal(seen, 3);
        frame_in_fini(&in);
    }
    buf_fini(&b);
}

static void test_malformed(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        size_t at;
        uint8_t byte;
    } t[] = {
        {"magic",                   0, 'B'},
        {"type 0",                  4, 0  },
        {"type between the groups", 4, 40 },
        {"type high byte",          5, 1  },
        {"the zero field",          6, 1  },
        {"length above the limit",  8, 17 },
    };
    for (size_t i = 0; i < countof(t); i++) {
        struct buf b;
        struct frame_in in;
        struct frame f;
        struct err e;
        buf_init(&b, 256);
        frame_put(&b, FRAME_LOAD, 1, "0123456789abcdef", 16);
        b.p[t[i].at] = (char)t[i].byte;
        frame_in_init(&in, 16);
        print_message("# %s\n", t[i].why);
        assert_int_equal(frame_in_put(&in, b.p, 15, &e), 0);
        assert_int_equal(frame_in_next(&in, &f, &e), 0);
        assert_int_equal(frame_in_put(&in, b.p + 15, 1, &e), ERR_FRAME);
        /* and it stays so, whatever comes */
        assert_int_equal(frame_in_next(&in, &f, &e), ERR_FRAME);
        assert_int_equal(frame_in_put(&in, b.p, b.n, &e), ERR_FRAME);
        assert_int_equal(frame_in_next(&in, &f, &e), ERR_FRAME);
        frame_in_fini(&in);
        buf_fini(&b);
    }
}

/* A good frame before a bad one is still given. */
static void test_good_then_bad(void **state)
{
    (void)state;
    struct buf b;
    struct frame_in in;
    struct frame f;
    struct err e;
    buf_init(&b, 256);
    frame_put(&b, FRAME_OK, 9, NULL, 0);
    buf_put(&b, "garbage-garbage-", 16);
    frame_in_init(&in, 16);
    unit_ok(frame_in_put(&in, b.p, b.n, &e), &e);
    assert_int_equal(frame_in_next(&in, &f, &e), 1);
    assert_int_equal(f.request, 9);
    assert_int_equal(frame_in_next(&in, &f, &e), ERR_FRAME);
    frame_in_fini(&in);
    buf_fini(&b);
}

/* Nobody takes: the buffer's limit holds. */
static void test_bounded(void **state)
{
    (void)state;
    struct frame_in in;
    struct err e;
    struct buf b;
    buf_init(&b, 64);
    frame_put(&b, FRAME_OK, 0, NULL, 0);
    frame_in_init(&in, 0);
    int rc = 0;
    size_t puts = 0;
    while ((rc = frame_in_put(&in, b.p, b.n, &e)) == 0) {
        puts++;
        assert_true(puts < MIB(1));
    }
    assert_int_equal(rc, ERR_FRAME);
    assert_true(in.b.n <= in.b.max);
    frame_in_fini(&in);
    buf_fini(&b);
}

static void test_put_is_whole_or_nothing(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, FRAME_HEADER + 3);
    frame_put(&b, FRAME_LOAD, 1, "four", 4);
    assert_false(buf_ok(&b));
    assert_int_equal(b.n, 0);
    buf_fini(&b);
}

/* A frame larger than the socket's buffer, in both directions of one pair:
 * the writer is another process, as in life. */
static void test_fd(void **state)
{
    (void)state;
    int fd[2];
    struct err e;
    size_t n = MIB(1);
    uint8_t *big = malloc(n);
    assert_non_null(big);
    for (size_t i = 0; i < n; i++) {
        big[i] = (uint8_t)(i * 31 >> 3);
    }
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)close(fd[0]);
        int rc = frame_write_fd(fd[1], FRAME_STATE_LOAD, 5, big, n, &e);
        rc = rc < 0 ? rc : frame_write_fd(fd[1], FRAME_OK, 6, NULL, 0, &e);
        rc = rc < 0 ? rc : (int)(write(fd[1], "ANF", 3) - 3);
        _exit(rc == 0 ? 0 : 1);
    }
    (void)close(fd[1]);
    struct frame_in in;
    struct frame f;
    frame_in_init(&in, n);
    assert_int_equal(frame_read_fd(fd[0], &in, &f, &e), 1);
    assert_int_equal(f.type, FRAME_STATE_LOAD);
    assert_int_equal(f.n, n);
    assert_memory_equal(f.payload, big, n);
    assert_int_equal(frame_read_fd(fd[0], &in, &f, &e), 1);
    assert_int_equal(f.request, 6);
    assert_int_equal(frame_read_fd(fd[0], &in, &f, &e), ERR_FRAME);
    frame_in_fini(&in);
    (void)close(fd[0]);
    free(big);
}

static void test_fd_end(void **state)
{
    (void)state;
    int fd[2];
    struct err e;
    struct frame_in in;
    struct frame f;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    unit_ok(frame_write_fd(fd[1], FRAME_UNLOAD, 1, NULL, 0, &e), &e);
    (void)close(fd[1]);
    frame_in_init(&in, 16);
    assert_int_equal(frame_read_fd(fd[0], &in, &f, &e), 1);
    assert_int_equal(frame_read_fd(fd[0], &in, &f, &e), 0);
    frame_in_fini(&in);
    (void)close(fd[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_good_then_bad),
        cmocka_unit_test(test_bounded),
        cmocka_unit_test(test_put_is_whole_or_nothing),
        cmocka_unit_test(test_fd),
        cmocka_unit_test(test_fd_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
