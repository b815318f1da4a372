/* The checks of `anectl doctor` that look at the machine, on folders that stand
 * for /proc, /sys and /usr; the runner. The others: tests/e2e/test_doctor.py.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "client/doctor.h"
#include "proto/limits.h"

static struct client client;
static struct doctor d;
static char root[64];

static int setup(void **state)
{
    (void)state;
    client = (struct client){.json = true};
    d = (struct doctor){.client = &client, .root = root, .check = "x"};
    d.service.client = &client;
    d.service.manager = &manager_systemd;
    (void)snprintf(root, sizeof(root), "/tmp/aned-doctor-XXXXXX");
    assert_non_null(mkdtemp(root));
    d.findings = json_array();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    struct err e = {0};
    json_free(d.findings);
    unit_ok(file_rmtree(root, &e), &e);
    return 0;
}

/* A file below the root. */
static void put(const char *path, const char *text)
{
    char full[512], dir[512];
    struct err e = {0};
    assert_true(doctor_path(&d, path, full, sizeof(full)));
    (void)snprintf(dir, sizeof(dir), "%s", full);
    *strrchr(dir, '/') = '\0';
    unit_ok(file_mkdirs(dir, 0700, &e), &e);
    unit_ok(file_write(full, text, strlen(text), &e), &e);
}

/* What the last doctor_say said, as "finding: text | remedy". */
static const char *last(void)
{
    static char text[2000];
    const struct json *x = json_first(d.findings);
    assert_non_null(x);
    while (json_next(x) != NULL) {
        x = json_next(x);
    }
    (void)snprintf(text, sizeof(text), "%s: %s | %s", ask_str(x, "finding"),
                   ask_str(x, "text"), ask_str(x, "remedy"));
    return text;
}

static void assert_has(const char *what)
{
    if (strstr(last(), what) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", last(), what);
    }
}

static void large_pages(void **state)
{
    (void)state;
    static const char file[] = "/sys/kernel/mm/transparent_hugepage/enabled";
    check_large_pages(&d);
    assert_has("note: not on this system");
    put(file, "always madvise [never]\n");
    check_large_pages(&d);
    assert_has("warning: off");
    assert_has(
        "| as root: echo madvise > /sys/kernel"); /* not below the root */
    put(file, "always [madvise] never\n");
    check_large_pages(&d);
    assert_has("ok: always [madvise] never |");
    put(file, "[always] madvise never\n");
    check_large_pages(&d);
    assert_has("ok: [always]");
}

static void limits_of_the_daemon(void **state)
{
    (void)state;
    static const struct {
        const char *soft, *want;
    } rows[] = {
        {"1024",      "warning: the daemon may open 1024 files, 4352 are wanted"},
        {"4351",      "warning: "                                               },
        {"4352",      "ok: the daemon may open 4352"                            },
        {"unlimited", "ok: the daemon may open"                                 },
        {"?",         "a daemon started here"                                   },
    };
    assert_int_equal(HTTP_CONNS_MAX + SERVE_FILES, 4352);
    d.pid = 77;
    for (size_t i = 0; i < countof(rows); i++) {
        char text[400];
        (void)snprintf(text, sizeof(text),
                       "Limit                     Soft Limit           Hard "
                       "Limit           Units     \n"
                       "Max processes             7                    7       "
                       "             processes \n"
                       "Max open files            %-20s 999999               "
                       "files     \n",
                       rows[i].soft);
        put("/proc/77/limits", text);
        check_files(&d);
        assert_has(rows[i].want);
    }
    d.pid = 0;
    check_files(&d);
    assert_has("a daemon started here");
}

static void apples_own_daemon(void **state)
{
    (void)state;
    d.program = "/nonexistent/aned";
    (void)setenv("PATH", "/nonexistent", 1);
    check_name(&d);
    assert_has("note: no aned in PATH");
    assert_int_equal(d.found[FINDING_NOTE], 1);
    put("/usr/libexec/aned", "");
    check_name(&d);
    assert_int_equal(d.found[FINDING_NOTE], 3);
    assert_non_null(strstr(ask_str(json_next(json_first(d.findings)), "text"),
                           "never end one by its name"));
}

static void where_there_is_a_neural_engine(void **state)
{
    (void)state;
    check_neural_engine(&d);
    assert_has("note: not on this system |");
    check_os_build(&d);
    assert_has("note: not on this system |");
    d.mac = true;
    check_neural_engine(&d);
    assert_has("note: not known: no daemon answers");
    d.status = json_object();
    json_add_str(d.status, "backend", "cpu");
    check_neural_engine(&d);
    assert_has("note: models run on the processor: the backend is cpu | "
               "[engine] backend = coreml");
    json_free(d.status);
    d.status = json_object();
    json_add_str(d.status, "backend", "coreml");
    check_neural_engine(&d);
    assert_has("ok: the backend is coreml, 0 models passed");
    json_free(d.status);
    d.status = NULL;
}

static const char reports[] =
    "{\"models\":["
    "{\"model\":\"good\",\"measured\":{\"machine\":\"M4, 24G84, ane\","
    "\"verdict\":\"passed\"}},"
    "{\"model\":\"old\",\"measured\":{\"machine\":\"M4, 24G849, ane\","
    "\"verdict\":\"warned\",\"reason\":\"width 4\"}},"
    "{\"model\":\"new\",\"measured\":null}]}";

static void what_was_measured(void **state)
{
    (void)state;
    struct err e = {0};
    d.mac = true;
    check_os_build(&d);
    assert_has("note: not known: no daemon");
    unit_ok(json_parse(reports, strlen(reports), &d.residency, &e), &e);
    check_os_build(&d);
    assert_has("note: not known: the system");
    (void)snprintf(d.build, sizeof(d.build), "24G84");
    check_os_build(&d);
    assert_has(
        "warning: old was measured on \"M4, 24G849, ane\", this is build "
        "24G84 | anectl probe old");
    assert_int_equal(d.found[FINDING_WARNING], 1);
    d.status = json_object();
    json_add_str(d.status, "backend", "coreml");
    check_neural_engine(&d);
    assert_has("note: new: not measured yet");
    assert_int_equal(d.found[FINDING_WARNING], 2);
    assert_int_equal(d.found[FINDING_OK], 0);
    json_free(d.status);
    json_free(d.residency);
    static const char one[] =
        "{\"models\":[{\"model\":\"good\",\"measured\":{\"machine\":"
        "\"M4, 24G84, ane\",\"verdict\":\"passed\"}}]}";
    unit_ok(json_parse(one, strlen(one), &d.residency, &e), &e);
    check_os_build(&d);
    assert_has("ok: build 24G84, 1 models measured on it");
    json_free(d.residency);
}

static void a_clock(void **state)
{
    (void)state;
    struct stat st;
    char path[128];
    (void)snprintf(d.home, sizeof(d.home), "%s", root);
    put("/aned.db", "");
    (void)snprintf(path, sizeof(path), "%s/aned.db", root);
    assert_int_equal(stat(path, &st), 0);
    d.now = 978307200;
    check_clock(&d);
    assert_has("error: it is 2001-01-01 00:00:00 UTC");
    d.now = (int64_t)st.st_mtime;
    check_clock(&d);
    assert_has("ok: 20");
    d.now = (int64_t)st.st_mtime - 100; /* clocks of two machines differ */
    check_clock(&d);
    assert_has("ok: 20");
    d.now = (int64_t)st.st_mtime - 200;
    check_clock(&d);
    assert_has("warning: it is 20");
}

/* --- the runner --- */

static void says_ok(struct doctor *x)
{
    doctor_say(x, FINDING_OK, NULL, "fine");
}

static void says_note(struct doctor *x)
{
    doctor_say(x, FINDING_NOTE, NULL, "to know");
    says_ok(x);
}

static void says_warning(struct doctor *x)
{
    doctor_say(x, FINDING_WARNING, "do", "slow");
}

static void says_error(struct doctor *x)
{
    says_warning(x);
    doctor_say(x, FINDING_ERROR, "mend", "broken");
    says_ok(x);
}

static void the_worst_finding_decides(void **state)
{
    (void)state;
    static const struct check checks[] = {
        {"a", "x", says_ok     },
        {"b", "x", says_note   },
        {"c", "x", says_warning},
        {"d", "x", says_error  }
    };
    static const int codes[] = {0, 0, 1, EXIT_UNAVAILABLE};
    for (size_t n = 1; n <= countof(checks); n++) {
        json_free(d.findings);
        memset(d.found, 0, sizeof(d.found));
        assert_int_equal(doctor_run(&d, checks, n), codes[n - 1]);
        assert_null(d.findings); /* they were printed */
    }
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(large_pages),
        CASE(limits_of_the_daemon),
        CASE(apples_own_daemon),
        CASE(where_there_is_a_neural_engine),
        CASE(what_was_measured),
        CASE(a_clock),
        CASE(the_worst_finding_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
