/* test_probe_run.c - a probe whose children are lost, at each step and in each
 * way: the report says where and how, and has everything else. The children are
 * this program itself, the real role on a fake device, which does what the file
 * HOME/script says: "STEP PACKAGE WIDTH HOW" a line. */
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "../engine/fake_device.h"
#include "serve/probe/probe_impl.h"

/* --- the child --- */

static struct {
    char step[16], package[64], how[16];
    unsigned width;
} lines[16];
static size_t n_lines;

static void read_script(void)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/script", getenv("HOME"));
    FILE *f = fopen(path, "re");
    while (f != NULL && n_lines < countof(lines) &&
           fscanf(f, "%15s %63s %u %15s", lines[n_lines].step,
                  lines[n_lines].package, &lines[n_lines].width,
                  lines[n_lines].how) == 4) {
        n_lines++;
    }
    if (f != NULL) {
        (void)fclose(f);
    }
}

static void act(const char *how)
{
    struct err e = {0};
    if (strcmp(how, "kill") == 0) {
        (void)raise(SIGKILL);
    } else if (strcmp(how, "hang") == 0) {
        struct pollfd p = {.fd = 3};
        (void)poll(&p, 1, -1); /* until the parent is gone */
        _exit(1);
    } else if (strcmp(how, "exit") == 0) {
        _exit(7);
    } else if (strcmp(how, "lie") == 0) {
        (void)!write(3, "this is no frame at all", 23);
    } else if (strcmp(how, "huge") == 0) { /* numbers of no function */
        static const char huge[] =
            "{\"function\":{\"package\":\"x\",\"widths\":[{\"width\":1e300},"
            "{\"width\":-1e300,\"not_finite\":1e300}]},\"ops\":[{\"count\":-1},"
            "{\"count\":1e300,\"cost\":1e300,\"type\":7}]}";
        unit_ok(frame_write_fd(3, FRAME_PROBE_RESULT, 1, huge, sizeof(huge) - 1,
                               &e),
                &e);
    } else if (strcmp(how, "odd") == 0) { /* a frame, but not of a probe */
        unit_ok(frame_write_fd(3, FRAME_READY, 1, "{}", 2, &e), &e);
    }
}

static int on_at(void *ctx, const struct probe_place *p, size_t done,
                 size_t all)
{
    (void)ctx;
    (void)done;
    (void)all;
    for (size_t i = 0; i < n_lines; i++) {
        if (strcmp(lines[i].step, probe_step_name(p->step)) == 0 &&
            (lines[i].package[0] == '*' ||
             strcmp(lines[i].package, p->package) == 0) &&
            (lines[i].width == 0 || lines[i].width == p->width)) {
            act(lines[i].how);
        }
    }
    return 0;
}

static bool said(const char *word)
{
    for (size_t i = 0; i < n_lines; i++) {
        if (strcmp(lines[i].step, word) == 0) {
            return true;
        }
    }
    return false;
}

static int child(void)
{
    static struct backend be;
    const struct probe_conf c = {.be = &be,
                                 .reference = &device_reference,
                                 .cpu_only = device_cpu_only,
                                 .at = on_at};
    be = device_backend;
    read_script();
    fake.t_lo = 1;
    fake.t_hi = 4;
    fake.fail_after = -1;
    fake.by_width = said("by_width") ? 1.0F / 4096 : 0;
    device.nan = said("nan");
    if (!said("plan") && !said("planned")) {
        be.plan = NULL;
    }
    if (said("early")) {
        return 3;
    }
    return probe_role_with(&c);
}

/* --- the parent --- */

static struct {
    uv_loop_t loop;
    struct probe_run *run;
    struct json *report;
    int over, rc;
    struct err e;
    unsigned progress;
} t;

static void script(const char *text)
{
    char path[512];
    struct err e = {0};
    assert_true(file_join(path, sizeof(path), fake_dir, "script"));
    unit_ok(file_write(path, text, strlen(text), &e), &e);
}

static void on_over(void *ctx, int rc, const struct err *e)
{
    assert_ptr_equal(ctx, &t);
    t.over++;
    t.rc = rc;
    t.e = *e;
}

static void on_progress(void *ctx)
{
    assert_ptr_equal(ctx, &t);
    t.progress++;
    assert_true(probe_run_stage(t.run)[0] != '\0');
    assert_true(probe_run_progress(t.run) >= 0);
}

static int setup(void **state)
{
    int rc = fake_setup(state);
    memset(&t, 0, sizeof(t));
    assert_int_equal(uv_loop_init(&t.loop), 0);
    device_setup(0, 0);
    assert_int_equal(setenv("HOME", fake_dir, 1), 0);
    script("");
    return rc;
}

static void drop(void)
{
    probe_run_free(t.run);
    t.run = NULL;
    json_free(t.report);
    t.report = NULL;
    assert_int_equal(uv_run(&t.loop, UV_RUN_DEFAULT), 0);
}

static int teardown(void **state)
{
    drop();
    assert_int_equal(uv_loop_close(&t.loop), 0);
    return fake_teardown(state);
}

static struct probe_run_conf conf_of(void)
{
    return (struct probe_run_conf){.loop = &t.loop,
                                   .bundle = fake_dir,
                                   .backend = "device",
                                   .threads = 3,
                                   .ctx = &t,
                                   .on_progress = on_progress,
                                   .on_over = on_over};
}

static void finish(const struct probe_run_conf *c)
{
    struct err e = {0};
    drop();
    t.over = 0;
    t.run = probe_run_new(c);
    unit_ok(probe_run_start(t.run, &e), &e);
    while (t.over == 0) {
        (void)uv_run(&t.loop, UV_RUN_ONCE);
    }
    assert_int_equal(t.over, 1);
    const struct store_residency *v = probe_run_result(t.run);
    if (t.rc == 0 && v->report != NULL) {
        unit_ok(json_parse(v->report, strlen(v->report), &t.report, &e), &e);
    }
}

static void probe(const char *text)
{
    struct probe_run_conf c = conf_of();
    c.time_out_ms = 60000;
    c.step_ms = 60000;
    script(text);
    finish(&c);
}

static const struct store_residency *result(void)
{
    unit_ok(t.rc, &t.e);
    return probe_run_result(t.run);
}

static void widths_are(const char *layers, const char *heads)
{
    char want[128];
    (void)snprintf(want, sizeof(want), "{\"layers\":[%s],\"heads\":[%s]}",
                   layers, heads);
    assert_string_equal(result()->widths, want);
}

static size_t count(const char *key)
{
    return json_count(json_get(t.report, key));
}

static void a_sound_bundle(void **state)
{
    (void)state;
    struct msg_widths layers;
    struct msg_widths heads;
    struct err e = {0};
    probe("");
    assert_string_equal(result()->verdict, "passed");
    assert_null(result()->reason);
    assert_string_equal(result()->machine, "Fake M9, 42A1, all");
    assert_string_equal(result()->options, "backend=device");
    assert_true(result()->measured);
    widths_are("1,2,3,4", "1,2,3,4");
    unit_ok(probe_widths(result(), &layers, &heads, &e), &e);
    assert_int_equal(layers.n, 4);
    assert_int_equal(heads.of[3], 4);
    assert_int_equal(count("functions"), 4);
    assert_int_equal(count("packages"), 4);
    assert_int_equal(count("lost"), 0);
    assert_int_equal(json_type(json_get(t.report, "margin")), JSON_NULL);
    assert_int_equal(result()->n_ops, 0);
    assert_true(t.progress > 20);
}

/* Most of it elsewhere: it may be used, and the report says so. */
static void a_bundle_off_the_neural_engine(void **state)
{
    (void)state;
    probe("planned * 0 -");
    assert_string_equal(result()->verdict, "warned");
    assert_string_equal(result()->reason,
                        "layers_00_01.mlpackage: 30.0% of the costs are not "
                        "on the Neural Engine");
    assert_int_equal(result()->n_ops, 12); /* three kinds in each package */
    const struct store_residency_op *o = &result()->ops[3];
    assert_string_equal(o->package, "layers_01_02.mlpackage");
    assert_string_equal(o->type, "softmax");
    assert_string_equal(o->device, "cpu");
    assert_string_equal(o->could, "cpu gpu");
    assert_string_equal(o->reason, "the Neural Engine does not run it");
    assert_int_equal(o->count, 2);
    struct json *j = probe_record_json(result());
    assert_int_equal(json_count(json_get(j, "ops")), 12);
    json_free(j);
}

static const char B[] = "layers_01_02.mlpackage";

/* A child that ends at a step of package b costs what the step is of. */
static void a_loss_at_each_step(void **state)
{
    (void)state;
    static const struct {
        const char *step;
        unsigned width;
        const char *verdict, *layers;
    } rows[] = {
        {"open",      0, "failed", ""       },
        {"plan",      0, "warned", "1,2,3,4"},
        {"reference", 0, "warned", "1,2,3,4"},
        {"warm",      2, "warned", "1,3,4"  },
        {"compare",   3, "warned", "1,2,4"  },
        {"time",      4, "warned", "1,2,3"  },
        {"cpu_open",  0, "warned", "1,2,3,4"},
        {"cpu_time",  1, "warned", "1,2,3,4"},
        {"repeat",    1, "warned", "2,3,4"  },
    };
    for (size_t i = 0; i < countof(rows); i++) {
        char text[128];
        (void)snprintf(text, sizeof(text), "%s %s %u kill", rows[i].step, B,
                       rows[i].width);
        print_message("# %s\n", text);
        probe(text);
        assert_string_equal(result()->verdict, rows[i].verdict);
        widths_are(rows[i].layers, "1,2,3,4");
        assert_int_equal(count("functions"), 4); /* each once */
        assert_int_equal(count("packages"), 4);
        assert_int_equal(count("lost"), 1);
        const struct json *x = json_first(json_get(t.report, "lost"));
        assert_string_equal(json_str(json_get(x, "step")), rows[i].step);
        assert_string_equal(json_str(json_get(x, "package")), B);
        assert_string_equal(json_str(json_get(x, "how")),
                            "was ended by signal 9");
        assert_true((unsigned)json_num(json_get(x, "width")) == rows[i].width ||
                    rows[i].width == 0);
        assert_non_null(strstr(result()->reason, "signal 9 at step"));
        assert_non_null(strstr(result()->reason, rows[i].step));
    }
}

static void a_loss_in_each_way(void **state)
{
    (void)state;
    static const struct {
        const char *script, *how;
    } rows[] = {
        {"warm layers_01_02.mlpackage 2 hang",    "said nothing for 0.5 s"    },
        {"compare layers_01_02.mlpackage 2 hang", "said nothing for 0.7 s"    },
        {"time layers_01_02.mlpackage 2 exit",    "ended with status 7"       },
        {"repeat layers_01_02.mlpackage 2 lie",   "was ended: frame.malformed"},
        {"repeat layers_01_02.mlpackage 2 odd",   "was ended: frame.malformed"},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct probe_run_conf c = conf_of();
        bool hangs = strstr(rows[i].script, "hang") != NULL;
        c.time_out_ms = hangs ? 500 : 60000;
        c.step_ms = hangs ? 700 : 60000;
        script(rows[i].script);
        finish(&c);
        const struct json *x = json_first(json_get(t.report, "lost"));
        assert_string_equal(json_str(json_get(x, "how")), rows[i].how);
        assert_string_equal(json_str(json_get(x, "package")), B);
        widths_are("1,3,4", "1,2,3,4");
    }
}

/* Whatever it does it is lost: given up, with what is known by then. */
static void too_many_losses(void **state)
{
    (void)state;
    probe("warm * 0 kill");
    assert_string_equal(result()->verdict, "failed");
    assert_int_equal(count("lost"), PROBE_LOST_MAX);
    assert_true(count("packages") < 4);
    const struct json *last = json_first(json_get(t.report, "reasons"));
    bool given_up = false;
    for (; last != NULL; last = json_next(last)) {
        given_up = given_up || strstr(json_str(last), "given up") != NULL;
    }
    assert_true(given_up);
}

/* Before it told anything: the probe could not measure. */
static void a_loss_at_once(void **state)
{
    (void)state;
    probe("early * 0 -");
    assert_int_equal(t.rc, ERR_BACKEND);
    assert_non_null(strstr(t.e.msg, "before it began"));
    struct probe_run_conf c = conf_of();
    c.bundle = "/nowhere/at/all";
    script("");
    finish(&c);
    assert_int_equal(t.rc, ERR_NOT_FOUND);
}

static void odd_results(void **state)
{
    (void)state;
    probe("open layers_00_01.mlpackage 0 huge");
    assert_int_equal(count("functions"), 5);
    assert_string_equal(result()->verdict, "warned");
    assert_int_equal(result()->n_ops, 2);
    assert_int_equal(result()->ops[0].count, 0);
    assert_string_equal(result()->ops[1].type, "");
    widths_are("1,2,3,4", "1,2,3,4");
}

static void numbers_that_are_none(void **state)
{
    (void)state;
    probe("nan * 0 -");
    assert_string_equal(result()->verdict, "failed");
    assert_non_null(strstr(result()->reason, "not finite"));
    widths_are("", "");
}

static void a_margin(void **state)
{
    (void)state;
    probe("by_width * 0 -");
    assert_string_equal(result()->verdict, "passed");
    widths_are("4", "1,2,3,4"); /* a row alone runs at 4 */
    assert_int_equal(json_type(json_get(t.report, "margin")), JSON_NUMBER);
    probe("by_width * 0 -\nmargin * 0 kill"); /* then it is not known */
    widths_are("4", "1,2,3,4");
    assert_int_equal(json_type(json_get(t.report, "margin")), JSON_NULL);
    assert_int_equal(count("lost"), 1);
    assert_int_equal(count("functions"), 4);
    assert_string_equal(result()->verdict, "warned");
}

static void a_known_machine(void **state)
{
    (void)state;
    const char *known[] = {"x", "Fake M9, 42A1, all"};
    struct probe_run_conf c = conf_of();
    c.known = known;
    c.n_known = 2;
    finish(&c);
    unit_ok(t.rc, &t.e);
    assert_string_equal(probe_run_known(t.run), known[1]);
    c.n_known = 1;
    finish(&c);
    assert_null(probe_run_known(t.run));
    assert_string_equal(result()->verdict, "passed");
}

/* Ended at any moment, it goes on with the package at which it was. */
static void a_pause(void **state)
{
    (void)state;
    struct probe_run_conf c = conf_of();
    struct err e = {0};
    for (unsigned after = 1; after < 40; after += 6) {
        drop();
        t.over = 0;
        t.progress = 0;
        t.run = probe_run_new(&c);
        unit_ok(probe_run_start(t.run, &e), &e);
        while (t.over == 0 && t.progress < after) {
            (void)uv_run(&t.loop, UV_RUN_ONCE);
        }
        if (t.over == 0) {
            double reached = probe_run_progress(t.run);
            probe_run_pause(t.run);
            unit_ok(probe_run_start(t.run, &e), &e);
            while (t.over == 0) {
                (void)uv_run(&t.loop, UV_RUN_ONCE);
                assert_true(probe_run_progress(t.run) >= reached);
            }
        }
        const struct store_residency *v = result();
        unit_ok(json_parse(v->report, strlen(v->report), &t.report, &e), &e);
        assert_int_equal(count("functions"), 4);
        assert_int_equal(count("packages"), 4);
        assert_string_equal(v->verdict, "passed");
    }
}

/* --- widths of several packages --- */

static void agree(const char *packages, const char *layers, const char *all)
{
    struct probe_found f = {0};
    struct probe_agreement a;
    struct err e = {0};
    char text[2][64] = {"", ""};
    unit_ok(json_parse(packages, strlen(packages), &f.packages, &e), &e);
    probe_agree(&f, "layers", &a);
    const struct msg_widths *w[] = {&a.best, &a.all};
    for (size_t k = 0; k < 2; k++) {
        size_t at = 0;
        for (uint32_t i = 0; i < w[k]->n; i++) {
            at += (size_t)snprintf(text[k] + at, 64 - at, "%s%u",
                                   i > 0 ? " " : "", w[k]->of[i]);
        }
    }
    assert_string_equal(text[0], layers);
    assert_string_equal(text[1], all);
    json_free(f.packages);
}

#define P(classes) "{\"kind\":\"layers\",\"classes\":" classes "}"
#define H(classes) "{\"kind\":\"head\",\"classes\":" classes "}"

static void widths_of_packages(void **state)
{
    (void)state;
    agree("[]", "", "");
    agree("[" P("[]") "]", "", "");
    agree("[" P("[[1,4],[64]]") "," P("[[1,4,64]]") "]", "1 4", "1 4 64");
    agree("[" P("[[1,2],[3,4]]") "," P("[[1],[2,3,4]]") "]", "3 4", "1 2 3 4");
    agree("[" P("[[1,2]]") "," P("[[3,4]]") "]", "", "");
    agree("[" P("[[1],[2],[4],[8]]") "," H("[[1]]") "]", "4", "1 2 4 8");
    agree("[" P("[[1],[2]]") "]", "2", "1 2"); /* the largest below 4 */
    agree("[" P("[[1,2,4]]") "," P("[[1,4],[2]]") "," P("[[1,2],[4]]") "]", "4",
          "1 2 4");
}

/* All is well, as far as it was measured. */
static void a_report_that_is_not_whole(void **state)
{
    (void)state;
    static const char good[] = "[" P("[[1,4]]") "," H("[[1]]") "]";
    struct probe_found f = {.whole = true};
    struct probe_verdict v;
    struct err e = {0};
    unit_ok(json_parse(good, strlen(good), &f.packages, &e), &e);
    probe_judge(&f, &v);
    assert_string_equal(v.word, "passed");
    assert_int_equal(v.n, 0);
    f.whole = false;
    probe_judge(&f, &v);
    assert_string_equal(v.word, "failed");
    assert_non_null(strstr(v.reason[0], "given up"));
    json_free(f.packages);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "probe-worker") == 0) {
        return child();
    }
    (void)signal(SIGPIPE, SIG_IGN); /* as the daemon does */
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_sound_bundle),
        CASE(a_bundle_off_the_neural_engine),
        CASE(a_loss_at_each_step),
        CASE(a_loss_in_each_way),
        CASE(too_many_losses),
        CASE(a_loss_at_once),
        CASE(odd_results),
        CASE(numbers_that_are_none),
        CASE(a_margin),
        CASE(a_known_machine),
        CASE(a_pause),
        cmocka_unit_test(widths_of_packages),
        cmocka_unit_test(a_report_that_is_not_whole),
    };
    return cmocka_run_group_tests_name("probe_run", tests, NULL, NULL);
}
