/* Children over a real socketpair: frames, the ways to die, and the worker
 * thread. The child is /bin/sh with a script on its command line. */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../unit.h"
#include "serve/child.h"
#include "serve/workq.h"

static struct {
    uv_loop_t loop;
    struct child *child;
    struct child_exit x;
    int exits, frames;
    enum frame_type type;
    char payload[256];
    size_t n;
    char script[64];
} t;

static void on_frame(void *ctx, const struct frame *f)
{
    (void)ctx;
    t.frames++;
    t.type = f->type;
    t.n = f->n < sizeof(t.payload) ? f->n : sizeof(t.payload);
    memcpy(t.payload, f->payload, t.n);
}

static void on_end(void *ctx, const struct child_exit *x)
{
    (void)ctx;
    t.exits++;
    t.x = *x;
    t.child = NULL;
}

static int setup(void **state)
{
    (void)state;
    memset(&t, 0, sizeof(t));
    (void)snprintf(t.script, sizeof(t.script), "/tmp/aned-child-XXXXXX");
    int fd = mkstemp(t.script);
    assert_true(fd >= 0);
    (void)close(fd);
    return uv_loop_init(&t.loop);
}

static int teardown(void **state)
{
    (void)state;
    assert_int_equal(unlink(t.script), 0);
    return uv_loop_close(&t.loop); /* not 0: a handle leaked */
}

/* Start a script; $1 is its role, fd 3 the socketpair. */
static void spawn(const char *body, int fd)
{
    struct err e = {0};
    struct child_conf c = {.program = t.script,
                           .role = "engine",
                           .fd = fd,
                           .frame_max = 1024,
                           .on_frame = on_frame,
                           .on_exit = on_end};
    FILE *f = fopen(t.script, "w");
    assert_non_null(f);
    (void)fprintf(f, "#!/bin/sh\n%s\n", body);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(t.script, 0700), 0);
    unit_ok(child_spawn(&t.loop, &c, &t.child, &e), &e);
}

static void run(void)
{
    assert_int_equal(uv_run(&t.loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(t.exits, 1);
}

/* A PROGRESS frame with payload "hello", as printf takes it. */
#define HELLO                                                                  \
    "printf 'ANF1\\060\\000\\000\\000\\005\\000\\000\\000\\000\\000\\000\\000" \
    "hello' >&3"

static void frames_come_before_the_exit(void **state)
{
    (void)state;
    spawn(HELLO "; exit 5", -1);
    run();
    assert_int_equal(t.frames, 1);
    assert_int_equal(t.type, FRAME_PROGRESS);
    assert_memory_equal(t.payload, "hello", 5);
    assert_int_equal(t.x.status, 5);
    assert_int_equal(t.x.code, 0);
}

static void frames_go_out(void **state)
{
    (void)state;
    /* Sends the 20 bytes it gets back as the payload of a frame. */
    spawn("printf 'ANF1\\060\\000\\000\\000\\024\\000\\000\\000\\000\\000\\000"
          "\\000' >&3; head -c 20 <&3 >&3",
          -1);
    child_send(t.child, FRAME_CANCEL, 7, "abcd", 4);
    run();
    assert_int_equal(t.frames, 1);
    assert_int_equal(t.n, 20);
    assert_memory_equal(t.payload, "ANF1", 4);
    assert_memory_equal(t.payload + 16, "abcd", 4);
}

static void only_what_it_needs_is_passed_on(void **state)
{
    (void)state;
    int fd = open("/etc/passwd", O_RDONLY);
    assert_true(fd >= 0);
    (void)setenv("ANED_SECRET", "x", 1);
    spawn("[ \"$1\" = engine ] || exit 10\n"
          "[ -z \"$ANED_SECRET\" ] || exit 11\n"
          "[ \"$LANG\" = C ] || exit 12\n"
          "head -c 1 <&4 >/dev/null || exit 13\n"
          "read x && exit 14\n"
          "exit 0",
          fd);
    (void)close(fd);
    run();
    assert_int_equal(t.x.status, 0);
}

static void malformed_frames_kill(void **state)
{
    (void)state;
    spawn(
        "echo 'this is not a frame at all' >&3; exec sleep 100 >/dev/null 2>&1",
        -1);
    run();
    assert_int_equal(t.x.signal, SIGKILL);
    assert_int_equal(t.x.code, ERR_FRAME);
    assert_int_equal(t.frames, 0);
}

static void a_claimed_4_gib_frame_kills(void **state)
{
    (void)state;
    spawn("printf 'ANF1\\060\\000\\000\\000\\377\\377\\377\\377\\000\\000\\000"
          "\\000' >&3; exec sleep 100 >/dev/null 2>&1",
          -1);
    run();
    assert_int_equal(t.x.code, ERR_FRAME);
}

static void a_deadline_kills(void **state)
{
    (void)state;
    spawn("exec sleep 100 >/dev/null 2>&1", -1);
    child_deadline(t.child, 50);
    run();
    assert_int_equal(t.x.code, ERR_TIMEOUT);
}

static void a_disarmed_deadline_does_not(void **state)
{
    (void)state;
    spawn("sleep 0.2", -1);
    child_deadline(t.child, 50);
    child_deadline(t.child, 0);
    run();
    assert_int_equal(t.x.code, 0);
}

/* The last one counts: here the timer of the first one comes before it. */
static void a_later_deadline_kills_later(void **state)
{
    (void)state;
    uint64_t from = uv_hrtime();
    spawn("exec sleep 100 >/dev/null 2>&1", -1);
    child_deadline(t.child, 50);
    child_deadline(t.child, 0);
    child_deadline(t.child, 300);
    run();
    assert_int_equal(t.x.code, ERR_TIMEOUT);
    assert_true(uv_hrtime() - from >= 290000000u);
}

static void an_earlier_deadline_kills_earlier(void **state)
{
    (void)state;
    spawn("exec sleep 100 >/dev/null 2>&1", -1);
    child_deadline(t.child, 3600000); /* this test has minutes */
    child_deadline(t.child, 50);
    run();
    assert_int_equal(t.x.code, ERR_TIMEOUT);
}

static void one_that_closes_its_end_has_to_leave(void **state)
{
    (void)state;
    spawn("exec 3>&-; exec sleep 100 >/dev/null 2>&1", -1);
    run(); /* of the hundred seconds that it would take */
    assert_int_equal(t.x.signal, SIGKILL);
}

static void a_grandchild_does_not_hold_us(void **state)
{
    (void)state;
    spawn("sleep 30 >/dev/null 2>&1 & exit 4", -1);
    uint64_t from = uv_hrtime();
    run();
    assert_int_equal(t.x.status, 4);
    assert_true(uv_hrtime() - from < 25000000000u); /* it is still there */
}

static void one_that_does_not_read_is_killed(void **state)
{
    (void)state;
    char big[1024];
    memset(big, 'x', sizeof(big));
    spawn("exec sleep 100 >/dev/null 2>&1", -1);
    for (size_t i = 0; i < FRAME_QUEUE_MAX / sizeof(big) + 1024; i++) {
        child_send(t.child, FRAME_STEP, 0, big, sizeof(big));
    }
    run();
    assert_int_equal(t.x.code, ERR_TIMEOUT);
}

static void a_dropped_child_says_nothing(void **state)
{
    (void)state;
    spawn("exec sleep 100 >/dev/null 2>&1", -1);
    child_drop(t.child);
    assert_int_equal(uv_run(&t.loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(t.exits, 0);
}

static void an_absent_program_is_an_error(void **state)
{
    (void)state;
    struct err e = {0};
    struct child *c = NULL;
    struct child_conf conf = {.program = "/nonexistent/x",
                              .role = "engine",
                              .fd = -1,
                              .frame_max = 1024,
                              .on_exit = on_end};
    assert_int_equal(child_spawn(&t.loop, &conf, &c, &e), ERR_UNAVAILABLE);
    assert_null(c);
    assert_int_equal(uv_run(&t.loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(t.exits, 0);
}

/* --- workq --- */

struct job {
    struct work work;
    int n, order;
};

static int ran, finished;

static void job_run(struct work *w)
{
    container_of(w, struct job, work)->order = ran++;
}

static void job_done(struct work *w)
{
    struct job *j = container_of(w, struct job, work);
    assert_int_equal(j->order, j->n);
    finished++;
}

static void on_queue_closed(void *ctx)
{
    *(int *)ctx = 1;
}

/* Five jobs are taken by `put`, the sixth is not. */
static struct workq *put_six(struct job *j,
                             int (*put)(struct workq *q, struct work *w))
{
    struct workq *q = workq_new(&t.loop, 5);
    ran = finished = 0;
    for (int i = 0; i < 6; i++) {
        j[i].n = i;
        j[i].work.run = job_run;
        j[i].work.done = job_done;
        assert_int_equal(put(q, &j[i].work), i < 5 ? 0 : ERR_BUSY);
    }
    assert_int_equal(workq_depth(q), 5);
    return q;
}

static void work_runs_in_order_and_is_bounded(void **state)
{
    (void)state;
    struct job j[6] = {0};
    int closed = 0;
    struct workq *q = put_six(j, workq_put);
    workq_close(q, on_queue_closed, &closed);
    assert_int_equal(workq_put(q, &j[5].work), ERR_BUSY);
    assert_int_equal(uv_run(&t.loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(closed, 1);
    assert_int_equal(finished, 5); /* what was accepted is worked off */
}

/* done() never comes from inside of workq_run, nor has the loop to be woken. */
static void work_here_is_given_back_by_the_loop(void **state)
{
    (void)state;
    struct job j[6] = {0};
    int closed = 0;
    struct workq *q = put_six(j, workq_run);
    assert_int_equal(ran, 5);
    assert_int_equal(finished, 0);
    (void)uv_run(&t.loop, UV_RUN_ONCE); /* does not wait for an event */
    assert_int_equal(finished, 5);
    assert_int_equal(workq_depth(q), 0);
    assert_int_equal(workq_run(q, &j[5].work), 0);
    workq_close(q, on_queue_closed, &closed);
    assert_int_equal(workq_run(q, &j[0].work), ERR_BUSY);
    assert_int_equal(uv_run(&t.loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(closed, 1);
    assert_int_equal(finished, 6);
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(frames_come_before_the_exit),
        T(frames_go_out),
        T(only_what_it_needs_is_passed_on),
        T(malformed_frames_kill),
        T(a_claimed_4_gib_frame_kills),
        T(a_deadline_kills),
        T(a_disarmed_deadline_does_not),
        T(a_later_deadline_kills_later),
        T(an_earlier_deadline_kills_earlier),
        T(one_that_closes_its_end_has_to_leave),
        T(a_grandchild_does_not_hold_us),
        T(one_that_does_not_read_is_killed),
        T(a_dropped_child_says_nothing),
        T(an_absent_program_is_an_error),
        T(work_runs_in_order_and_is_bounded),
        T(work_here_is_given_back_by_the_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
