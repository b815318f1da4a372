/* Reports on how far a bundle is from its source: one a bundle, kept over a
 * restart, gone with the last model of their bundle, or when it was never
 * published. */
#include <string.h>

#include <sqlite3.h>

#include "harness.h"

static const char finger[] =
    "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

static int put(struct fix *f, const char *verdict, const char *report)
{
    struct store_quality q = {.report = (char *)(uintptr_t)report,
                              .created_ms = 77};
    (void)snprintf(q.fingerprint, sizeof(q.fingerprint), "%s", finger);
    (void)snprintf(q.verdict, sizeof(q.verdict), "%s", verdict);
    int rc = store_quality_put(f->s, &q, on_done, NULL);
    return rc != 0 ? rc : wait_answer(f);
}

/* "verdict report"; "" for none. */
static char told[256];

static void on_quality(void *ctx, int status, const struct store_quality *v,
                       size_t n)
{
    (void)ctx;
    answer.n++;
    answer.status = status;
    told[0] = '\0';
    assert_true(n <= 1);
    if (n == 1) {
        assert_string_equal(v->fingerprint, finger);
        assert_int_equal(v->created_ms, 77);
        (void)snprintf(told, sizeof(told), "%s %s", v->verdict, v->report);
    }
}

static const char *get(struct fix *f, const char *fingerprint)
{
    assert_int_equal(store_quality(f->s, fingerprint, on_quality, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    return told;
}

static void again(struct fix *f)
{
    struct err e = {0};
    fix_close(f);
    unit_ok(fix_open(f, &e), &e);
}

static void put_model(struct fix *f, const char *name)
{
    struct store_model m = {.state = "ready"};
    (void)snprintf(m.name, sizeof(m.name), "%s", name);
    (void)snprintf(m.fingerprint, sizeof(m.fingerprint), "%s", finger);
    assert_int_equal(store_model_put(f->s, &m, NULL, 0, on_done, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
}

static void delete_model(struct fix *f, const char *name)
{
    assert_int_equal(store_model_delete(f->s, name, on_done, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
}

static void test_one_a_bundle(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    unit_ok(fix_open(f, &e), &e);
    put_model(f, "m");
    assert_int_equal(put(f, "failed", "{\"a\":\"it's\"}"), 0);
    assert_string_equal(get(f, finger), "failed {\"a\":\"it's\"}");
    assert_int_equal(put(f, "passed", "{}"), 0); /* in its place */
    again(f);
    assert_string_equal(get(f, finger), "passed {}");
    assert_string_equal(get(f, "another"), "");
    assert_int_equal(put(f, "great", "{}"), ERR_STORE); /* the table's CHECK */
    assert_string_equal(get(f, finger), "passed {}");
}

static void test_too_long(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    char *text = malloc(STORE_TEXT_MAX + 2);
    must(text != NULL);
    memset(text, ' ', STORE_TEXT_MAX + 1);
    text[STORE_TEXT_MAX + 1] = '\0';
    unit_ok(fix_open(f, &e), &e);
    assert_int_equal(put(f, "passed", text), ERR_TOO_BIG);
    text[STORE_TEXT_MAX] = '\0';
    assert_int_equal(put(f, "passed", text), 0);
    free(text);
}

static void test_gone_with_the_last_model(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    unit_ok(fix_open(f, &e), &e);
    assert_int_equal(put(f, "passed", "{}"), 0);
    put_model(f, "one");
    put_model(f, "two");
    delete_model(f, "one");
    assert_string_equal(get(f, finger), "passed {}");
    delete_model(f, "two");
    assert_string_equal(get(f, finger), "");
}

static void test_of_what_was_not_published(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    unit_ok(fix_open(f, &e), &e);
    assert_int_equal(put(f, "passed", "{}"), 0);
    again(f);
    assert_string_equal(get(f, finger), "");
    struct store_job j = job_of("j", JOB_QUEUED);
    (void)snprintf(j.intent, sizeof(j.intent), "%s", finger);
    assert_int_equal(put(f, "passed", "{}"), 0);
    assert_int_equal(put_job(f, &j), 0);
    again(f); /* the job is about to publish it */
    assert_string_equal(get(f, finger), "passed {}");
    j.intent[0] = '\0';
    assert_int_equal(put_job(f, &j), 0);
    again(f);
    assert_string_equal(get(f, finger), "");
}

/* What aned wrote before there were such reports: its rows stay. */
static void test_version_5_is_migrated(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    sqlite3 *db = NULL;
    unit_ok(fix_open(f, &e), &e);
    struct store_job j = job_of("j", JOB_QUEUED);
    assert_int_equal(put_job(f, &j), 0);
    put_model(f, "m");
    fix_close(f);
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "DROP TABLE quality_reports; DROP TABLE answers;"
                                  "PRAGMA user_version=5",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    unit_ok(fix_open(f, &e), &e);
    assert_string_equal(list_jobs(f), "j=queued/0 ");
    assert_string_equal(get(f, finger), "");
    assert_int_equal(put(f, "passed", "{}"), 0);
    again(f);
    assert_string_equal(get(f, finger), "passed {}");
}

int main(void)
{
#define CASE(t) cmocka_unit_test_setup_teardown(t, fix_up, fix_down)
    const struct CMUnitTest tests[] = {
        CASE(test_one_a_bundle),
        CASE(test_too_long),
        CASE(test_gone_with_the_last_model),
        CASE(test_of_what_was_not_published),
        CASE(test_version_5_is_migrated),
    };
    return cmocka_run_group_tests_name("store_quality", tests, NULL, NULL);
}
