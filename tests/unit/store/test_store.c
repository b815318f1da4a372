#include <sqlite3.h>

#include "harness.h"

static void test_state_machine(void **state)
{
    (void)state;
    static const char *const table[] = {
        /* from, then what may follow */
        [JOB_QUEUED] = " running gating failed cancelled interrupted ",
        [JOB_RUNNING] = " queued gating failed cancelled interrupted ",
        [JOB_GATING] = " queued running done failed cancelled interrupted ",
        [JOB_DONE] = " ",
        [JOB_FAILED] = " ",
        [JOB_CANCELLED] = " ",
        [JOB_INTERRUPTED] = " "};
    for (enum job_state a = JOB_QUEUED; a <= JOB_INTERRUPTED; a++) {
        for (enum job_state b = JOB_QUEUED; b <= JOB_INTERRUPTED; b++) {
            char name[24];
            (void)snprintf(name, sizeof(name), " %s ", job_state_name(b));
            assert_int_equal(job_state_allowed(a, b),
                             strstr(table[a], name) != NULL);
        }
    }
}

static void test_ids(void **state)
{
    (void)state;
    char a[40];
    char b[40];
    store_new_id("job", a);
    assert_int_equal(strlen(a), 4 + 26);
    assert_int_equal(strspn(a + 4, "0123456789ABCDEFGHJKMNPQRSTVWXYZ"), 26);
    assert_true(a[4] <= '7');
    usleep(2000);
    store_new_id("job", b);
    assert_true(strcmp(a, b) < 0);
}

static struct store_job seen;
static char seen_text[3][64];

static void on_one(void *ctx, int status, const struct store_job *v, size_t n)
{
    (void)ctx;
    answer.n++;
    answer.status = status;
    assert_int_equal(n, 1);
    seen = v[0];
    (void)snprintf(seen_text[0], 64, "%s", v[0].spec);
    (void)snprintf(seen_text[1], 64, "%s", v[0].message);
    (void)snprintf(seen_text[2], 64, "%s", v[0].result);
}

static void test_job_round_trip(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    char spec[] = "{\"source\":\"/x y\"}";
    char message[] = "it's \"fine\"; --";
    char result[] = "{\"g\":[1]}";
    unit_ok(fix_open(f, &e), &e);
    struct store_job j = job_of("job_A", JOB_QUEUED);
    assert_int_equal(put_job(f, &j), 0);
    j.state = JOB_RUNNING;
    assert_int_equal(put_job(f, &j), 0);
    j.state = JOB_FAILED;
    j.spec = spec;
    j.message = message;
    j.result = result;
    j.progress = 0.25;
    j.attempts = 2;
    j.started_ms = 5;
    j.finished_ms = INT64_C(1) << 50;
    (void)snprintf(j.stage, sizeof(j.stage), "layers");
    (void)snprintf(j.error, sizeof(j.error), "gguf.version");
    assert_int_equal(put_job(f, &j), 0);
    fix_close(f);

    unit_ok(fix_open(f, &e), &e); /* after a clean end it is all there */
    assert_int_equal(store_jobs(f->s, 10, on_one, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_string_equal(seen.id, "job_A");
    assert_int_equal(seen.state, JOB_FAILED);
    assert_string_equal(seen_text[0], spec);
    assert_string_equal(seen_text[1], message);
    assert_string_equal(seen_text[2], result);
    assert_string_equal(seen.stage, "layers");
    assert_string_equal(seen.error, "gguf.version");
    assert_true(seen.progress == 0.25);
    assert_int_equal(seen.attempts, 2);
    assert_int_equal(seen.created_ms, 1000);
    assert_int_equal(seen.started_ms, 5);
    assert_int_equal(seen.finished_ms, INT64_C(1) << 50);

    j.state = JOB_RUNNING; /* a final state is final */
    assert_int_equal(put_job(f, &j), ERR_CONFLICT);
    assert_non_null(strstr(answer.msg, "job_A is failed"));
    assert_string_equal(list_jobs(f), "job_A=failed/2 ");
}

static void test_jobs_newest_first(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    unit_ok(fix_open(f, &e), &e);
    for (int i = 0; i < 5; i++) {
        char id[40];
        (void)snprintf(id, sizeof(id), "j%d", i);
        struct store_job j = job_of(id, JOB_QUEUED);
        j.created_ms = 100 - 10 * (i % 2);
        assert_int_equal(put_job(f, &j), 0);
    }
    assert_int_equal(store_jobs(f->s, 3, on_jobs, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_string_equal(listed, "j4=queued/0 j2=queued/0 j0=queued/0 ");
}

static void on_models(void *ctx, int status, const struct store_model *v,
                      size_t n)
{
    (void)ctx;
    answer.n++;
    answer.status = status;
    listed_n = n;
    listed[0] = '\0';
    if (n > 0) {
        (void)snprintf(listed, sizeof(listed), "%s %s %s %s %llu", v[0].name,
                       v[0].state, v[0].reason != NULL ? v[0].reason : "-",
                       v[0].gates != NULL ? v[0].gates : "-",
                       (unsigned long long)v[0].bytes);
    }
}

static void on_artifacts(void *ctx, int status, const struct store_artifact *v,
                         size_t n)
{
    (void)ctx;
    answer.n++;
    answer.status = status;
    listed[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        size_t at = strlen(listed);
        (void)snprintf(listed + at, sizeof(listed) - at, "%s/%s %s %llu;",
                       v[i].model, v[i].path, v[i].sha256,
                       (unsigned long long)v[i].bytes);
    }
}

static int64_t ask_int(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *q = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &q, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(q), SQLITE_ROW);
    int64_t v = sqlite3_column_int64(q, 0);
    (void)sqlite3_finalize(q);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return v;
}

static void test_models_and_artifacts(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    char gates[] = "[]";
    char reason[] = "no";
    struct store_model m = {.name = "m1",
                            .state = "ready",
                            .gates = gates,
                            .bytes = UINT64_C(5) << 32};
    struct store_artifact a[2] = {
        {.model = "m1", .path = "b", .sha256 = "cd", .bytes = 2},
        {.model = "m1", .path = "a", .sha256 = "ab", .bytes = 1}
    };
    static const char count[] = "SELECT count(*) FROM artifacts";

    unit_ok(fix_open(f, &e), &e);
    assert_int_equal(store_model_put(f->s, &m, a, 2, on_done, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    m.reason = reason;
    memcpy(m.state, "failed", 7);
    assert_int_equal(store_model_put(f->s, &m, NULL, 0, on_done, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_int_equal(store_models(f->s, on_models, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_string_equal(listed, "m1 failed no [] 21474836480");
    assert_int_equal(store_artifacts(f->s, "m1", on_artifacts, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_string_equal(listed, "m1/a ab 1;m1/b cd 2;");
    assert_int_equal(store_artifacts(f->s, "m2", on_artifacts, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_string_equal(listed, "");
    fix_close(f);
    assert_int_equal(ask_int(f->path, count), 2);

    unit_ok(fix_open(f, &e), &e);
    memcpy(a[0].path, "a", 2); /* the same path twice: refused, all of it */
    memcpy(m.state, "ready", 6);
    assert_int_equal(store_model_put(f->s, &m, a, 2, on_done, NULL), 0);
    assert_int_equal(wait_answer(f), ERR_STORE);
    assert_int_equal(store_models(f->s, on_models, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_string_equal(listed, "m1 failed no [] 21474836480");
    fix_close(f);
    assert_int_equal(ask_int(f->path, count), 2);

    unit_ok(fix_open(f, &e), &e);
    assert_int_equal(store_model_delete(f->s, "m1", on_done, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_int_equal(store_models(f->s, on_models, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_int_equal(listed_n, 0);
    fix_close(f);
    assert_int_equal(ask_int(f->path, count), 0);
}

static void on_sessions(void *ctx, int status, const struct store_session *v,
                        size_t n)
{
    (void)ctx;
    answer.n++;
    answer.status = status;
    listed[0] = '\0';
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        at += (size_t)snprintf(listed + at, sizeof(listed) - at,
                               "%s=%s/%u/%d%s ", v[i].id, v[i].model, v[i].n,
                               v[i].n > 0 ? v[i].tokens[v[i].n - 1] : -1,
                               v[i].pinned ? "!" : "");
    }
}

static void test_sessions(void **state)
{
    struct fix *f = *state;
    struct err e;
    int32_t tokens[] = {5, 70000, 3};
    struct store_session v = {
        .id = "ses_a", .model = "m", .tokens = tokens, .n = 3, .created_ms = 1};
    unit_ok(fix_open(f, &e), &e);
    assert_int_equal(store_session_put(f->s, &v, on_done, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    v = (struct store_session){.id = "ses_b", .model = "n", .created_ms = 2};
    assert_int_equal(store_session_put(f->s, &v, on_done, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    fix_close(f);
    unit_ok(fix_open(f, &e), &e);
    assert_int_equal(store_sessions(f->s, on_sessions, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_string_equal(listed, "ses_b=n/0/-1 ses_a=m/3/3 ");
    v.tokens = tokens;
    v.n = 2;
    v.pinned = true;
    assert_int_equal(store_session_put(f->s, &v, on_done, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_int_equal(store_session_delete(f->s, "ses_a", on_done, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_int_equal(store_sessions(f->s, on_sessions, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_string_equal(listed, "ses_b=n/2/70000! ");
}

static void on_answers(void *ctx, int status, const struct store_answer *v,
                       size_t n)
{
    (void)ctx;
    answer.n++;
    answer.status = status;
    listed[0] = '\0';
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        at += (size_t)snprintf(listed + at, sizeof(listed) - at,
                               "%s=%s/%zu/%zu@%d ", v[i].id, v[i].body,
                               v[i].body_n, v[i].talk_n,
                               v[i].talk_n > 0 ? v[i].talk[1] : -1);
    }
}

static void test_answers(void **state)
{
    struct fix *f = *state;
    struct err e;
    char body[] = "{}", talk[] = {'a', '\0', 'c'};
    struct store_answer v = {
        .id = "resp_b", .body = body, .body_n = 2, .created_ms = 2};
    unit_ok(fix_open(f, &e), &e);
    assert_int_equal(store_answer_put(f->s, &v, on_done, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    v = (struct store_answer){.id = "resp_a",
                              .body = body,
                              .body_n = 2,
                              .talk = talk,
                              .talk_n = 3,
                              .created_ms = 1};
    assert_int_equal(store_answer_put(f->s, &v, on_done, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    fix_close(f);
    unit_ok(fix_open(f, &e), &e);
    assert_int_equal(store_answers(f->s, on_answers, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_string_equal(listed, "resp_a={}/2/3@0 resp_b={}/2/0@-1 ");
    assert_int_equal(store_answer_delete(f->s, "resp_a", on_done, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_int_equal(store_answers(f->s, on_answers, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_string_equal(listed, "resp_b={}/2/0@-1 ");
    v.body_n = STORE_TEXT_MAX + 1;
    assert_int_equal(store_answer_put(f->s, &v, on_done, NULL), ERR_TOO_BIG);
}

/* A job and its model become durable together, or neither does. */
static void test_publish(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    struct store_job j = job_of("j", JOB_QUEUED);
    struct store_model m = {.name = "m", .state = "ready"};
    struct store_artifact a[2] = {
        {.model = "m", .path = "a", .bytes = 1},
        {.model = "m", .path = "a", .bytes = 2}
    };
    unit_ok(fix_open(f, &e), &e);
    assert_int_equal(put_job(f, &j), 0);
    j.state = JOB_GATING;
    (void)snprintf(j.intent, sizeof(j.intent), "beef");
    assert_int_equal(put_job(f, &j), 0);
    j.state = JOB_DONE;
    assert_int_equal(store_publish(f->s, &j, &m, a, 2, on_done, NULL), 0);
    assert_int_equal(wait_answer(f), ERR_STORE); /* one path twice */
    assert_string_equal(list_jobs(f), "j=gating/0 ");
    assert_int_equal(store_models(f->s, on_models, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_int_equal(listed_n, 0);
    fix_close(f);

    unit_ok(fix_open(f, &e), &e); /* an intent is for the daemon to judge */
    assert_int_equal(store_jobs(f->s, 10, on_one, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_int_equal(seen.state, JOB_GATING);
    assert_string_equal(seen.intent, "beef");
    j.intent[0] = '\0';
    assert_int_equal(store_publish(f->s, &j, &m, a, 1, on_done, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_string_equal(list_jobs(f), "j=done/0 ");
    assert_int_equal(store_models(f->s, on_models, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_string_equal(listed, "m ready - - 0");
    j.state = JOB_FAILED; /* what is over takes no model along */
    assert_int_equal(store_publish(f->s, &j, &m, NULL, 0, on_done, NULL), 0);
    assert_int_equal(wait_answer(f), ERR_CONFLICT);
}

static void test_sessions_go_with_their_model(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    struct store_session v = {.id = "ses_a", .model = "m", .created_ms = 1};
    struct store_model m = {.name = "m", .state = "ready"};
    unit_ok(fix_open(f, &e), &e);
    assert_int_equal(store_model_put(f->s, &m, NULL, 0, on_done, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_int_equal(store_session_put(f->s, &v, on_done, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    v = (struct store_session){.id = "ses_b", .model = "n", .created_ms = 2};
    assert_int_equal(store_session_put(f->s, &v, on_done, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_int_equal(store_model_delete(f->s, "m", on_done, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_int_equal(store_sessions(f->s, on_sessions, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    assert_string_equal(listed, "ses_b=n/0/-1 ");
}

static void test_queue_is_bounded(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    struct store_job j = job_of("j", JOB_QUEUED);
    int rc = 0;
    int n = 0;
    unit_ok(fix_open(f, &e), &e);
    answer.n = 0;
    while (rc == 0) {
        rc = store_job_put(f->s, &j, on_done, NULL);
        n += rc == 0;
    }
    assert_int_equal(rc, ERR_BUSY);
    assert_int_equal(n, STORE_QUEUE_MAX);
    /* close answers what is queued, then refuses */
    struct store *s = f->s;
    store_close(s, fix_closed, f);
    assert_int_equal(store_job_put(s, &j, on_done, NULL), ERR_UNAVAILABLE);
    f->s = NULL;
    assert_int_equal(uv_run(&f->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(answer.n, STORE_QUEUE_MAX);
    assert_int_equal(answer.status, 0);
    assert_int_equal(f->closed, 1);
}

static void test_too_big(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    struct store_job j = job_of("j", JOB_QUEUED);
    unit_ok(fix_open(f, &e), &e);
    j.spec = malloc(STORE_TEXT_MAX + 2);
    must(j.spec != NULL);
    memset(j.spec, 'x', STORE_TEXT_MAX + 1);
    j.spec[STORE_TEXT_MAX + 1] = '\0';
    assert_int_equal(store_job_put(f->s, &j, on_done, NULL), ERR_TOO_BIG);
    j.spec[STORE_TEXT_MAX] = '\0';
    assert_int_equal(put_job(f, &j), 0);
    free(j.spec);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, fix_up, fix_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state_machine),
        cmocka_unit_test(test_ids),
        T(test_job_round_trip),
        T(test_jobs_newest_first),
        T(test_models_and_artifacts),
        T(test_sessions),
        T(test_answers),
        T(test_publish),
        T(test_sessions_go_with_their_model),
        T(test_queue_is_bounded),
        T(test_too_big),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
