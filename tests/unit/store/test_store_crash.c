/* What was acknowledged survives kill -9; what was running is taken in. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <sqlite3.h>

#include "harness.h"

struct note {
    int fd;
    unsigned i;
};

static unsigned in_flight; /* of the child */

static void on_acknowledged(void *ctx, int status, const struct err *e)
{
    struct note *n = ctx;
    (void)e;
    in_flight--;
    if (status == 0) {
        (void)!write(n->fd, &n->i, sizeof(n->i));
    }
    free(n);
}

/* The child: put jobs for ever, tell each acknowledged one. */
static void put_for_ever(struct fix *f, int fd, unsigned from)
{
    struct err e = {0};
    uv_loop_t loop;
    struct store *s = NULL;
    if (uv_loop_init(&loop) != 0 || store_open(&loop, f->path, &s, &e) != 0) {
        _exit(1);
    }
    for (unsigned i = from;; i++) {
        char id[40];
        struct note *n = malloc(sizeof(*n));
        (void)snprintf(id, sizeof(id), "job_%08u", i);
        struct store_job j = job_of(id, JOB_QUEUED);
        j.created_ms = i;
        must(n != NULL);
        *n = (struct note){fd, i};
        if (store_job_put(s, &j, on_acknowledged, n) != 0) {
            _exit(1);
        }
        in_flight++;
        do {
            (void)uv_run(&loop, in_flight >= 8 ? UV_RUN_ONCE : UV_RUN_NOWAIT);
        } while (in_flight >= 8);
    }
}

/* Jobs are numbered without a gap: how many are there, and is it so? */
static unsigned count_jobs(const char *path)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *q = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db,
                                        "SELECT count(*), max(created_ms), "
                                        "min(created_ms) FROM jobs",
                                        -1, &q, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(q), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(q, 0);
    assert_int_equal(sqlite3_column_int64(q, 1), n);
    assert_int_equal(sqlite3_column_int64(q, 2), 1);
    (void)sqlite3_finalize(q);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return (unsigned)n;
}

static void test_kill_in_commit_loop(void **state)
{
    struct fix *f = *state;
    unsigned last = 0;
    for (int round = 0; round < 8; round++) {
        int p[2];
        unsigned acked = 0;
        assert_int_equal(pipe(p), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            (void)close(p[0]);
            put_for_ever(f, p[1], last + 1);
        }
        (void)close(p[1]);
        unsigned target = last + 20 + (unsigned)round * 13;
        while (acked < target && read(p[0], &acked, sizeof(acked)) > 0) {
        }
        assert_true(acked >= target);
        usleep((useconds_t)(round * 300));
        assert_int_equal(kill(pid, SIGKILL), 0);
        int st = 0;
        assert_int_equal(waitpid(pid, &st, 0), pid);
        assert_true(WIFSIGNALED(st));
        while (read(p[0], &acked, sizeof(acked)) == sizeof(acked)) {
        }
        (void)close(p[0]);
        last = acked;

        struct err e = {0};
        unit_ok(fix_open(f, &e), &e);
        fix_close(f);
        unsigned n = count_jobs(f->path);
        if (n < last) { /* more may be there: committed, not yet told */
            fail_msg("round %d: %u acknowledged, %u there", round, last, n);
        }
        last = n;
    }
}

static void test_running_jobs_are_taken_in(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    static const struct {
        const char *id;
        enum job_state path[3];
        int n;
        uint32_t attempts;
        const char *then;
    } rows[] = {
        {"a", {JOB_QUEUED},                       1, 0,                    "a=queued/0 "   },
        {"b", {JOB_QUEUED, JOB_RUNNING},          2, 1,                    "b=queued/1 "   },
        {"c",
         {JOB_QUEUED, JOB_RUNNING, JOB_GATING},
         3,                                          JOB_ATTEMPTS_MAX - 1,
         "c=queued/2 "                                                                     },
        {"d",
         {JOB_QUEUED, JOB_RUNNING},
         2,                                          JOB_ATTEMPTS_MAX,
         "d=interrupted/3 "                                                                },
        {"e", {JOB_QUEUED, JOB_GATING, JOB_DONE}, 3, 1,                    "e=done/1 "     },
        {"f", {JOB_QUEUED, JOB_CANCELLED},        2, 0,                    "f=cancelled/0 "},
    };
    unit_ok(fix_open(f, &e), &e);
    for (size_t i = 0; i < countof(rows); i++) {
        struct store_job j = job_of(rows[i].id, JOB_QUEUED);
        j.attempts = rows[i].attempts;
        for (int k = 0; k < rows[i].n; k++) {
            j.state = rows[i].path[k];
            assert_int_equal(put_job(f, &j), 0);
        }
    }
    fix_close(f);
    unit_ok(fix_open(f, &e), &e);
    const char *all = list_jobs(f);
    for (size_t i = 0; i < countof(rows); i++) {
        if (strstr(all, rows[i].then) == NULL) {
            fail_msg("%s not in %s", rows[i].then, all);
        }
    }
}

/* A write that the system refuses is an error of that call only: nothing that
 * was acknowledged is lost, and writes work again when there is room. */
static void test_write_error_and_recovery(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    struct rlimit old;
    (void)signal(SIGXFSZ, SIG_IGN);
    unit_ok(fix_open(f, &e), &e);
    struct store_job j = job_of("small", JOB_QUEUED);
    assert_int_equal(put_job(f, &j), 0);

    struct store_job big = job_of("big", JOB_QUEUED);
    big.spec = malloc(MIB(2));
    must(big.spec != NULL);
    memset(big.spec, 'x', MIB(2) - 1);
    big.spec[MIB(2) - 1] = '\0';
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    struct rlimit tight = {KIB(512), old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    int rc = put_job(f, &big);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_true(rc == ERR_STORE || rc == ERR_NO_SPACE);
    assert_true(strlen(answer.msg) > 0);
    assert_string_equal(list_jobs(f), "small=queued/0 ");
    assert_int_equal(put_job(f, &big), 0);
    free(big.spec);
    fix_close(f);
    unit_ok(fix_open(f, &e), &e);
    (void)list_jobs(f);
    assert_int_equal(listed_n, 2);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, fix_up, fix_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_kill_in_commit_loop),
        T(test_running_jobs_are_taken_in),
        T(test_write_error_and_recovery),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
