/* Reports on where a bundle's operations run: kept whole, one for each key, as
 * many as are wanted, gone with the last model of their bundle. */
#include <string.h>

#include <sqlite3.h>

#include "harness.h"

static const char finger[] =
    "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

static struct store_residency report_of(const char *machine)
{
    struct store_residency r = {
        .measured = true,
        .reason = (char *)(uintptr_t) "layers_00_05.mlpackage: it's \"slow\"",
        .widths = (char *)(uintptr_t) "{\"layers\":[1,4],\"heads\":[]}",
        .report = (char *)(uintptr_t) "{\"functions\":[]}",
        .created_ms = 77,
    };
    (void)snprintf(r.fingerprint, sizeof(r.fingerprint), "%s", finger);
    (void)snprintf(r.machine, sizeof(r.machine), "%s", machine);
    (void)snprintf(r.options, sizeof(r.options), "backend=coreml");
    (void)snprintf(r.verdict, sizeof(r.verdict), "warned");
    return r;
}

static int put(struct fix *f, const struct store_residency *r)
{
    assert_int_equal(store_residency_put(f->s, r, on_done, NULL), 0);
    return wait_answer(f);
}

/* The last list: "kind machine verdict ops; " each. */
static char told[4096];
static struct store_residency first;
static struct store_residency_op second_op;
static char first_text[3][128];

static void on_reports(void *ctx, int status, const struct store_residency *v,
                       size_t n)
{
    size_t at = 0;
    (void)ctx;
    answer.n++;
    answer.status = status;
    told[0] = '\0';
    listed_n = n;
    for (size_t i = 0; i < n && at < sizeof(told) - 200; i++) {
        at += (size_t)snprintf(told + at, sizeof(told) - at, "%s %s %s %zu; ",
                               v[i].measured ? "measured" : "predicted",
                               v[i].machine, v[i].verdict, v[i].n_ops);
    }
    if (n > 0) {
        first = v[0];
        (void)snprintf(first_text[0], 128, "%s", v[0].reason);
        (void)snprintf(first_text[1], 128, "%s", v[0].widths);
        (void)snprintf(first_text[2], 128, "%s",
                       v[0].report != NULL ? v[0].report : "-");
    }
    if (n > 0 && v[0].n_ops > 1) {
        second_op = v[0].ops[1];
    }
}

static const char *list(struct fix *f, const char *fingerprint)
{
    assert_int_equal(store_residency(f->s, fingerprint, on_reports, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    return told;
}

static void test_round_trip(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    struct store_residency_op ops[] = {
        {.package = "layers_00_05.mlpackage",
         .function = "t4",
         .type = "conv",
         .device = "neural_engine",
         .could = "cpu gpu neural_engine",
         .count = 21,
         .cost = 0.75,
         .example = "layers_0_q"},
        {.package = "layers_00_05.mlpackage",
         .function = "t4",
         .type = "softmax",
         .device = "cpu",
         .could = "cpu gpu",
         .count = 5,
         .cost = 0.25,
         .example = "p",
         .reason = "unsupported op 7 (softmax): 'x'; --",
         .rule = "op.softmax"},
    };
    unit_ok(fix_open(f, &e), &e);
    struct store_residency r = report_of("Apple M4, 24F74");
    r.ops = ops;
    r.n_ops = countof(ops);
    assert_int_equal(put(f, &r), 0);
    fix_close(f);
    unit_ok(fix_open(f, &e), &e); /* a restart */
    assert_string_equal(list(f, finger), "measured Apple M4, 24F74 warned 2; ");
    assert_string_equal(first.fingerprint, finger);
    assert_string_equal(first.options, "backend=coreml");
    assert_string_equal(first_text[0], r.reason);
    assert_string_equal(first_text[1], r.widths);
    assert_string_equal(first_text[2], r.report);
    assert_int_equal(first.created_ms, 77);
    assert_memory_equal(&second_op, &ops[1], sizeof(second_op));
    assert_string_equal(list(f, NULL), "measured Apple M4, 24F74 warned 0; ");
    assert_string_equal(first_text[2], "-"); /* lists are short */
    assert_string_equal(list(f, "another"), "");
}

/* One for each key; the newest first; a prediction is another. */
static void test_keys(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    struct store_residency_op op = {.type = "conv", .device = "cpu"};
    unit_ok(fix_open(f, &e), &e);
    struct store_residency r = report_of("a");
    r.ops = &op;
    r.n_ops = 1;
    assert_int_equal(put(f, &r), 0);
    r = report_of("b");
    assert_int_equal(put(f, &r), 0);
    r.measured = false;
    assert_int_equal(put(f, &r), 0);
    r = report_of("a"); /* again: in the place of the first, without its op */
    (void)snprintf(r.verdict, sizeof(r.verdict), "passed");
    assert_int_equal(put(f, &r), 0);
    assert_string_equal(list(f, finger), "measured a passed 0; "
                                         "predicted b warned 0; "
                                         "measured b warned 0; ");
    (void)snprintf(r.options, sizeof(r.options), "backend=cpu");
    assert_int_equal(put(f, &r), 0);
    (void)list(f, finger);
    assert_int_equal(listed_n, 4);
    (void)snprintf(r.verdict, sizeof(r.verdict), "great");
    assert_int_equal(put(f, &r), ERR_STORE); /* the table's CHECK */
    (void)list(f, finger);
    assert_int_equal(listed_n, 4); /* nor was the old one dropped */
}

static void test_as_many_as_are_kept(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    unit_ok(fix_open(f, &e), &e);
    for (unsigned i = 0; i < RESIDENCY_KEPT_MAX + 3; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "os %u", i);
        struct store_residency r = report_of(name);
        assert_int_equal(put(f, &r), 0);
    }
    (void)list(f, finger);
    assert_int_equal(listed_n, RESIDENCY_KEPT_MAX);
    assert_string_equal(first.machine, "os 10");
    struct store_residency r = report_of("law"); /* of another kind */
    r.measured = false;
    assert_int_equal(put(f, &r), 0);
    (void)list(f, finger);
    assert_int_equal(listed_n, RESIDENCY_KEPT_MAX + 1);
    r = report_of("another");
    assert_int_equal(put(f, &r), 0);
    assert_non_null(strstr(list(f, finger), "predicted law warned"));
    assert_int_equal(listed_n, RESIDENCY_KEPT_MAX + 1);
    r = report_of("x");
    r.n_ops = RESIDENCY_OPS_MAX + 1;
    assert_int_equal(store_residency_put(f->s, &r, on_done, NULL), ERR_TOO_BIG);
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

/* They belong to a bundle: its twin keeps them. */
static void test_gone_with_the_last_model(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    unit_ok(fix_open(f, &e), &e);
    struct store_residency r = report_of("a");
    assert_int_equal(put(f, &r), 0);
    put_model(f, "one");
    put_model(f, "two");
    delete_model(f, "none");
    delete_model(f, "one");
    assert_string_equal(list(f, finger), "measured a warned 0; ");
    delete_model(f, "two");
    assert_string_equal(list(f, finger), "");
}

/* Those of a bundle that was not published go at the next start; those of one
 * that a job is about to publish, and those of a model, stay. */
static void test_predictions_left_behind(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    unit_ok(fix_open(f, &e), &e);
    struct store_residency r = report_of("law");
    r.measured = false;
    assert_int_equal(put(f, &r), 0);
    fix_close(f);
    unit_ok(fix_open(f, &e), &e);
    assert_string_equal(list(f, finger), "");

    struct store_job j = job_of("j", JOB_QUEUED);
    (void)snprintf(j.intent, sizeof(j.intent), "%s", finger);
    assert_int_equal(put(f, &r), 0);
    assert_int_equal(put_job(f, &j), 0);
    fix_close(f);
    unit_ok(fix_open(f, &e), &e);
    assert_string_equal(list(f, finger), "predicted law warned 0; ");

    j.intent[0] = '\0';
    assert_int_equal(put_job(f, &j), 0);
    put_model(f, "one");
    fix_close(f);
    unit_ok(fix_open(f, &e), &e);
    assert_string_equal(list(f, finger), "predicted law warned 0; ");
    delete_model(f, "one");
    assert_string_equal(list(f, finger), "");
}

static void sql(const char *path, const char *text)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* What aned wrote before there were reports: its rows stay. */
static void test_version_3_is_migrated(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    unit_ok(fix_open(f, &e), &e);
    put_model(f, "one");
    struct store_job j = job_of("j", JOB_QUEUED);
    assert_int_equal(put_job(f, &j), 0);
    fix_close(f);
    sql(f->path, "DROP TABLE quality_reports; DROP TABLE answers;"
                 "DROP TABLE residency_ops; DROP TABLE residency_reports;"
                 "PRAGMA user_version=3");
    unit_ok(fix_open(f, &e), &e);
    assert_string_equal(list_jobs(f), "j=queued/0 ");
    assert_string_equal(list(f, finger), "");
    struct store_residency r = report_of("a");
    assert_int_equal(put(f, &r), 0);
    fix_close(f);
    unit_ok(fix_open(f, &e), &e); /* and again: no step runs twice */
    assert_string_equal(list(f, finger), "measured a warned 0; ");
    delete_model(f, "one");
    assert_string_equal(list(f, finger), "");
}

/* And what it wrote before there were predictions: operations have no rule. */
static void test_version_4_is_migrated(void **state)
{
    struct fix *f = *state;
    struct err e = {0};
    struct store_residency_op ops[] = {
        {.type = "conv", .device = "cpu"},
        {.type = "topk", .device = "cpu", .rule = "gone"},
    };
    unit_ok(fix_open(f, &e), &e);
    struct store_residency r = report_of("a");
    r.ops = ops;
    r.n_ops = countof(ops);
    assert_int_equal(put(f, &r), 0);
    fix_close(f);
    sql(f->path, "DROP TABLE quality_reports; DROP TABLE answers;"
                 "ALTER TABLE residency_ops DROP COLUMN rule;"
                 "PRAGMA user_version=4");
    unit_ok(fix_open(f, &e), &e);
    assert_string_equal(list(f, finger), "measured a warned 2; ");
    assert_string_equal(second_op.type, "topk");
    assert_string_equal(second_op.rule, "");
}

int main(void)
{
#define CASE(t) cmocka_unit_test_setup_teardown(t, fix_up, fix_down)
    const struct CMUnitTest tests[] = {
        CASE(test_round_trip),
        CASE(test_keys),
        CASE(test_as_many_as_are_kept),
        CASE(test_gone_with_the_last_model),
        CASE(test_predictions_left_behind),
        CASE(test_version_3_is_migrated),
        CASE(test_version_4_is_migrated),
    };
    return cmocka_run_group_tests_name("store_residency", tests, NULL, NULL);
}
