/* Jobs: what a restart makes of an intent, and changes that count when the
 * store has them. This program is its own converter: one that stands still when
 * its job's name begins with "slow", one that tells of a gate what it may not
 * when that begins with "odd", and else ends with an empty bundle. */
#include "home.h"
#include "proto/frame.h"
#include "store/row.h"

#define GATES "{\"gates\":[{\"name\":\"quality\",\"verdict\":\"failed\"}]}"

/* Reports that no converter makes, by the name's last letter. */
static const char *const odd[] = {
    "{\"summary\":{\"verdict\":\"failed\"}}", /* rules never reject */
    "{\"summary\":{}}",
    "{}",
    "{\"function\":{},\"summary\":{\"verdict\":\"passed\"}}",
    "[",
};

static int tell_odd(char which)
{
    const char *text = odd[(which - '0') % (int)countof(odd)];
    struct err e = {0};
    return frame_write_fd(3, FRAME_CONVERT_REPORT, 1, text, strlen(text), &e);
}

static int worker(void)
{
    struct frame_in in;
    struct frame f;
    struct err e = {0};
    struct json *spec = NULL;
    frame_in_init(&in, FRAME_WORKER_MAX);
    while (frame_read_fd(3, &in, &f, &e) == 1 && f.type == FRAME_CONVERT) {
        if (json_parse((const char *)f.payload, f.n, &spec, &e) != 0) {
            return EXIT_BUG;
        }
        const char *name = json_str(json_get(spec, "name"));
        if (strncmp(name, "odd", 3) == 0) {
            return tell_odd(name[3]);
        }
        if (strncmp(name, "slow", 4) != 0) {
            return frame_write_fd(3, FRAME_CONVERT_DONE, 1, GATES,
                                  sizeof(GATES) - 1, &e);
        }
    }
    return EXIT_SUCCESS; /* cancelled */
}

static void put(const struct store_job *j)
{
    assert_int_equal(store_job_put(h.s.store, j, on_told, NULL), 0);
    assert_int_equal(wait_told(), 0);
}

/* A job as a crash between intent and commit leaves it. */
static void put_intent(const char *id, const char *name, const char *intent,
                       uint32_t attempts)
{
    char spec[] = "{\"source\":\"/dev/null\"}", result[] = GATES;
    struct store_job j = {.state = JOB_GATING,
                          .spec = spec,
                          .result = result,
                          .attempts = attempts,
                          .created_ms = 1};
    (void)snprintf(j.id, sizeof(j.id), "%s", id);
    (void)snprintf(j.name, sizeof(j.name), "%s", name);
    (void)snprintf(j.intent, sizeof(j.intent), "%s", intent);
    put(&j);
}

static const struct store_job *over(const char *id)
{
    struct job *j = jobs_find(h.s.jobs, id);
    assert_non_null(j);
    UNTIL(job_over(j));
    return job_row(j);
}

static void an_intent_and_its_folder(void **state)
{
    char fingerprint[65];
    (void)state;
    (void)snprintf(fingerprint, sizeof(fingerprint), "%s",
                   models_find(h.s.models, "m")->bundle->fingerprint);
    put_intent("job_1", "new", fingerprint, 1);
    home_close();
    home_bundle("new");
    home_open();
    const struct model *m = models_find(h.s.models, "new");
    assert_int_equal(m->state, MODEL_REJECTED); /* from the first moment */
    assert_string_equal(m->job, "job_1");
    assert_non_null(strstr(m->gates, "quality"));
    assert_string_equal(m->reason, "gate quality failed");
    assert_int_equal(over("job_1")->state, JOB_DONE);
    home_close();
    home_open(); /* and from the store */
    assert_int_equal(models_find(h.s.models, "new")->state, MODEL_REJECTED);
    assert_int_equal(over("job_1")->state, JOB_DONE);
    assert_string_equal(over("job_1")->intent, "");
}

/* Somebody else's folder is neither judged nor taken. */
static void an_intent_and_another_folder(void **state)
{
    (void)state;
    put_intent("job_1", "new", "beef", 1);
    home_close();
    home_bundle("new");
    home_open();
    assert_int_equal(models_find(h.s.models, "new")->state, MODEL_READY);
    assert_null(models_find(h.s.models, "new")->gates);
    assert_int_equal(over("job_1")->state, JOB_FAILED);
    assert_string_equal(over("job_1")->error, "exists");
    assert_true(home_has("models/new"));
}

static void an_intent_without_a_folder(void **state)
{
    (void)state;
    put_intent("job_1", "a", "beef", JOB_ATTEMPTS_MAX - 1);
    put_intent("job_2", "b", "beef", JOB_ATTEMPTS_MAX);
    home_close();
    home_open();
    assert_int_equal(over("job_1")->state, JOB_FAILED); /* it ran again */
    assert_int_equal(over("job_1")->attempts, JOB_ATTEMPTS_MAX);
    assert_int_equal(over("job_2")->state, JOB_INTERRUPTED);
    assert_string_equal(over("job_2")->error, "interrupted");
}

/* --- cancellations --- */

static struct job *jobs[2];

struct creation {
    struct job_created created;
    int i;
};

static void on_created(struct job_created *c, int rc, const char *param,
                       const struct err *e, const struct job *j)
{
    struct creation *k = container_of(c, struct creation, created);
    (void)param;
    unit_ok(rc, e);
    jobs[k->i] = jobs_find(h.s.jobs, job_row(j)->id);
}

static void create(int i, const char *name)
{
    static struct creation k[2];
    char text[HOME_PATH_MAX + 64], source[HOME_PATH_MAX];
    struct json *spec = NULL;
    const char *param = NULL;
    struct err e = {0};
    assert_true(file_join(source, sizeof(source), h.dir, "source"));
    unit_ok(file_write(source, "x", 1, &e), &e);
    (void)snprintf(text, sizeof(text),
                   "{\"source\":\"%.512s\",\"name\":\"%s\"}", source, name);
    unit_ok(json_parse(text, strlen(text), &spec, &e), &e);
    k[i] = (struct creation){.created = {.fn = on_created}, .i = i};
    jobs[i] = NULL;
    unit_ok(jobs_create(h.s.jobs, spec, &k[i].created, &param, &e), &e);
    json_free(spec);
    UNTIL(jobs[i] != NULL);
}

static void on_refused(struct job_created *c, int rc, const char *param,
                       const struct err *e, const struct job *j)
{
    (void)c;
    (void)j;
    assert_string_equal(param, "source");
    on_told(NULL, rc, e);
}

/* Whether there is such a source is found out on the file thread; the name is
 * taken meanwhile, and free again. */
static void a_source_that_is_not_there(void **state)
{
    static const char text[] = "{\"source\":\"/nowhere\",\"name\":\"a\"}";
    struct job_created c = {.fn = on_refused};
    struct json *spec = NULL;
    const char *param = NULL;
    struct err e = {0};
    (void)state;
    unit_ok(json_parse(text, sizeof(text) - 1, &spec, &e), &e);
    for (int i = 0; i < 2; i++) {
        unit_ok(jobs_create(h.s.jobs, spec, &c, &param, &e), &e);
        assert_int_equal(jobs_create(h.s.jobs, spec, &c, &param, &e),
                         ERR_EXISTS);
        assert_null(jobs_first(h.s.jobs)); /* not shown */
        assert_int_equal(wait_told(), ERR_INVALID);
        assert_int_equal(h.s.jobs->n, 0);
    }
    unit_ok(jobs_create(h.s.jobs, spec, &c, &param, &e), &e);
    json_free(spec);
    told.n = 0;
    home_close(); /* it is told before the jobs go */
    assert_int_equal(told.n, 1);
    home_open();
}

static void on_cancel(struct job_cancel *c, int rc, const struct err *e,
                      const struct job *j)
{
    (void)c;
    (void)j;
    on_told(NULL, rc, e);
}

static void cancelled_when_the_store_has_it(void **state)
{
    struct job_cancel c[3] = {
        {.fn = on_cancel}, {.fn = on_cancel}, {.fn = on_cancel}};
    struct err e = {0};
    (void)state;
    create(0, "slow_one");
    create(1, "slow_two");
    UNTIL(h.s.jobs->child != NULL);
    home_full(true);
    for (int i = 0; i < 2; i++) {
        enum job_state was = job_row(jobs[i])->state;
        unit_ok(job_cancel(jobs[i], &c[i], &e), &e);
        assert_int_equal(job_row(jobs[i])->state, was);
        assert_true(wait_told() < 0);
        assert_int_equal(job_row(jobs[i])->state, was);
        assert_false(jobs[i]->cancelling);
    }
    home_full(false);
    told.n = 0;
    unit_ok(job_cancel(jobs[1], &c[1], &e), &e);
    unit_ok(job_cancel(jobs[0], &c[0], &e), &e);
    unit_ok(job_cancel(jobs[0], &c[2], &e), &e); /* together */
    assert_int_equal(job_row(jobs[1])->state, JOB_QUEUED);
    UNTIL(told.n == 3);
    assert_int_equal(told.rc, 0);
    assert_int_equal(job_row(jobs[1])->state, JOB_CANCELLED);
    UNTIL(job_over(jobs[0]));
    assert_int_equal(job_row(jobs[0])->state, JOB_CANCELLED);
    assert_int_equal(job_cancel(jobs[0], &c[0], &e), ERR_CONFLICT);
}

/* The worker ends before the store has said yes: it is cancelled all the
 * same; the record says so. */
static void cancelled_while_it_fails(void **state)
{
    struct job_cancel c = {.fn = on_cancel};
    struct err e = {0};
    (void)state;
    create(0, "quick");
    UNTIL(h.s.jobs->child != NULL);
    told.n = 0;
    unit_ok(job_cancel(jobs[0], &c, &e), &e);
    UNTIL(job_over(jobs[0]));
    assert_int_equal(told.n, 1);
    assert_int_equal(job_row(jobs[0])->state, JOB_CANCELLED);
    UNTIL(workq_depth(h.s.files) == 0);
    assert_false(home_has("models/quick"));
}

static void a_failure_waits_for_room(void **state)
{
    (void)state;
    create(0, "slow");
    UNTIL(h.s.jobs->child != NULL);
    home_full(true);
    child_kill(h.s.jobs->child, ERR_TIMEOUT);
    UNTIL(job_row(jobs[0])->message != NULL);
    assert_int_equal(job_row(jobs[0])->state, JOB_RUNNING); /* as recorded */
    assert_non_null(strstr(job_row(jobs[0])->message, "waits to be recorded"));
    home_full(false);
    UNTIL(job_over(jobs[0]));
    assert_int_equal(job_row(jobs[0])->state, JOB_FAILED);
    assert_string_equal(job_row(jobs[0])->error, "timeout");
}

static void odd_reports(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(odd); i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "odd%zu", i);
        create(0, name);
        UNTIL(job_over(jobs[0]));
        assert_int_equal(job_row(jobs[0])->state, JOB_FAILED);
        assert_string_equal(job_row(jobs[0])->error, "frame.malformed");
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "convert-worker") == 0) {
        return worker();
    }
#define CASE(f) cmocka_unit_test_setup_teardown(f, home_up, home_down)
    const struct CMUnitTest tests[] = {
        CASE(an_intent_and_its_folder),   CASE(an_intent_and_another_folder),
        CASE(an_intent_without_a_folder), CASE(cancelled_when_the_store_has_it),
        CASE(cancelled_while_it_fails),   CASE(a_failure_waits_for_room),
        CASE(a_source_that_is_not_there), CASE(odd_reports),
    };
    return cmocka_run_group_tests_name("jobs", tests, NULL, NULL);
}
