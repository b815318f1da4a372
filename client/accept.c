/* accept.c - the steps in their order, and what runs them.
 *
 * A step that fails stops no other but those that need what it gives. Each has
 * a limit: whatever it waits for (a program, an answer, a job) waits until then
 * at most, and what it began is ended at the end. */
#include "client/accept.h"

#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define STEPS_MAX 96u
#define LOOK_S    60 /* `aned machine` */

const char *result_name(enum result r)
{
    static const char *const names[] = {
        [RESULT_PASSED] = "passed",
        [RESULT_MEASURED] = "measured",
        [RESULT_SKIPPED] = "skipped",
        [RESULT_FAILED] = "failed",
    };
    return names[r];
}

bool accept_on_mac(struct accept *a)
{
    if (!a->d.mac) {
        accept_away(a, "%s", "");
    }
    return a->d.mac;
}

int accept_left(const struct accept *a)
{
    double left = a->end_s - now_seconds();
    return left > 1 ? (int)left : 1;
}

/* --- the line on a terminal while a step runs --- */

/* Written by a signal's handler, with no call but write(2). */
static struct {
    char text[256];
    size_t n, digits; /* where the seconds stand: DIGITS of them */
    unsigned seconds;
} line;
#define DIGITS 5u

static void on_second(int sig)
{
    unsigned v = line.seconds;
    line.seconds += sig != 0 && v < 99999 ? 1 : 0;
    for (size_t i = 0; i < DIGITS && line.n > 0; i++) {
        line.text[line.digits + DIGITS - 1 - i] =
            v > 0 || i == 0 ? (char)('0' + v % 10) : ' ';
        v /= 10;
    }
    ssize_t k = write(STDERR_FILENO, line.text, line.n);
    (void)k; /* it is only shown */
}

static void each_second(bool on)
{
    const struct itimerval t = {
        {on, 0},
        {on, 0}
    };
    struct sigaction act;
    memset(&act, 0, sizeof(act));
    act.sa_handler = on_second;
    act.sa_flags = SA_RESTART; /* nobody's calls are to fail for it */
    (void)sigemptyset(&act.sa_mask);
    (void)sigaction(SIGALRM, &act, NULL);
    (void)setitimer(ITIMER_REAL, &t, NULL);
}

/* In place of what it shows now; the handler waits meanwhile. */
static void set_line(const struct accept *a, const char *stage)
{
    const struct step *s = &a->steps[a->at];
    char text[sizeof(line.text) - 2];
    sigset_t alarm;
    int width = (int)a->client.term.width - 1;
    int n = snprintf(text, sizeof(text), "[%zu/%zu] %-20s ", a->at + 1,
                     a->n_steps, s->check.name);
    size_t digits = (size_t)n + 1;
    must(n > 0 && digits + DIGITS < sizeof(text));
    (void)snprintf(text + n, sizeof(text) - (size_t)n,
                   "%*s s of at most %d  %s", (int)DIGITS, "", s->limit_s,
                   stage);
    width = width < (int)sizeof(text) - 1 ? width : (int)sizeof(text) - 1;
    (void)sigemptyset(&alarm);
    (void)sigaddset(&alarm, SIGALRM);
    (void)sigprocmask(SIG_BLOCK, &alarm, NULL);
    line.n = 0;
    if (width >= (int)(digits + DIGITS)) {
        line.n = (size_t)snprintf(line.text, sizeof(line.text), "\r%-*.*s",
                                  width, width, text);
        line.digits = digits;
    }
    on_second(0);
    (void)sigprocmask(SIG_UNBLOCK, &alarm, NULL);
}

void accept_stage(struct accept *a, const char *fmt, ...)
{
    char text[160];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (a->client.term.err_tty) {
        set_line(a, text);
    }
}

static void show_line(const struct accept *a)
{
    if (a->client.term.err_tty) {
        line.seconds = 0;
        set_line(a, "");
        each_second(true);
    }
}

static void wipe_line(const struct accept *a)
{
    if (a->client.term.err_tty) {
        each_second(false);
        (void)fprintf(stderr, "\r%*s\r", (int)line.n, "");
    }
}

/* --- one step --- */

/* Which earlier step was to give what this one lacks. */
static const char *giver(const struct accept *a, unsigned lacks)
{
    for (size_t i = 0; i < a->n_steps; i++) {
        if ((a->steps[i].gives & lacks) != 0) {
            return a->steps[i].check.name;
        }
    }
    return "?";
}

static enum result judge(const struct accept *a,
                         const unsigned before[FINDING_ERROR + 1])
{
    const unsigned *now = a->d.found;
    return now[FINDING_ERROR] > before[FINDING_ERROR] ||
                   now[FINDING_WARNING] > before[FINDING_WARNING]
               ? RESULT_FAILED
           : a->skipped                           ? RESULT_SKIPPED
           : now[FINDING_OK] > before[FINDING_OK] ? RESULT_PASSED
                                                  : RESULT_MEASURED;
}

static void run_step(struct accept *a, const struct step *s)
{
    unsigned before[FINDING_ERROR + 1];
    unsigned lacks = s->needs & ~a->has;
    memcpy(before, a->d.found, sizeof(before));
    a->began = now_seconds();
    a->end_s = a->began + s->limit_s;
    a->skipped = false;
    a->numbers = json_object();
    a->d.findings = json_array();
    a->d.check = s->check.name;
    show_line(a);
    if (interrupted != 0) {
        accept_skip(a, "interrupted");
    } else if ((lacks & a->away) != 0) {
        accept_away(a, "%s", "");
    } else if (lacks != 0) {
        accept_skip(a, "it needs what %s gives", giver(a, lacks));
    } else {
        doctor_check(&a->d, &s->check);
    }
    if (interrupted == 0 && now_seconds() > a->end_s) {
        accept_fail(a, "not over after %d s", s->limit_s);
    }
    wipe_line(a);
    enum result r = judge(a, before);
    if (r == RESULT_PASSED || r == RESULT_MEASURED) {
        a->has |= s->gives;
    }
    accept_told(a, s, r);
    json_free(a->d.findings);
    a->d.findings = NULL;
}

/* --- which steps --- */

static bool is_named(const struct accept_options *o, const char *name)
{
    for (size_t i = 0; i < o->n_only; i++) {
        if (strcmp(o->only[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* The steps to run: all, or those that were named and what they need. A job
 * that is installed is removed again. */
static void choose(const struct accept *a, bool chosen[STEPS_MAX])
{
    unsigned needs = 0;
    bool agent = false;
    for (size_t i = a->n_steps; i-- > 0;) {
        const struct step *s = &a->steps[i];
        chosen[i] = a->o.n_only == 0 || is_named(&a->o, s->check.name) ||
                    (s->gives & needs) != 0;
        needs |= chosen[i] ? s->needs : 0;
        agent = agent || (chosen[i] && (s->gives & ACCEPT_AGENT) != 0);
    }
    for (size_t i = 0; i < a->n_steps && agent; i++) {
        chosen[i] = chosen[i] || a->steps[i].check.run == step_agent_uninstall;
    }
}

static int check_names(const struct accept *a, struct err *e)
{
    for (size_t i = 0; i < a->o.n_only; i++) {
        size_t k = 0;
        while (k < a->n_steps &&
               strcmp(a->steps[k].check.name, a->o.only[i]) != 0) {
            k++;
        }
        if (k == a->n_steps) {
            return err_set(e, ERR_USAGE, "there is no step '%.40s'",
                           a->o.only[i]);
        }
    }
    return 0;
}

static void run_all(struct accept *a)
{
    bool chosen[STEPS_MAX];
    must(a->n_steps <= STEPS_MAX);
    choose(a, chosen);
    for (a->at = 0; a->at < a->n_steps; a->at++) {
        if (chosen[a->at]) {
            run_step(a, &a->steps[a->at]);
        }
    }
}

/* --- the whole --- */

static void tell_end(struct accept *a, const struct json *report,
                     const char *path)
{
    if (a->json) {
        (void)ask_print(report);
        return;
    }
    printf("passed %u, measured %u, skipped %u, failed %u\n",
           a->count[RESULT_PASSED], a->count[RESULT_MEASURED],
           a->count[RESULT_SKIPPED], a->count[RESULT_FAILED]);
    printf("report: %s\n  %s\n", path, ask_str(report, "send"));
    if (a->o.keep) {
        printf("kept: %s\n", a->work);
    }
}

/* What aned says of the machine; steps that need it say when it says nothing.
 */
static void look_at_machine(struct accept *a)
{
    const char *argv[] = {NULL, "machine", "--json", NULL};
    struct buf out;
    struct err none = {0};
    int code = 0;
    a->end_s = now_seconds() + LOOK_S;
    if (box_aned(a, argv, &out, &code, &none) == 0) {
        (void)!json_parse(out.p, out.n, &a->machine, &none);
    }
    buf_fini(&out);
}

static int report(struct accept *a, int code)
{
    char path[SERVICE_PATH_MAX] = "";
    struct err e = {0};
    struct json *j = accept_report(a);
    if (accept_write(a, j, path, &e) < 0) {
        code = ask_fail_plain(&a->client, &e);
    }
    tell_end(a, j, path);
    json_free(j);
    return code;
}

/* An option's path in full: a relative one may be a part of any word that is
 * told, and could not be hidden. */
static int settle(const char **path, char out[SERVICE_PATH_MAX], struct err *e)
{
    char *real = *path != NULL ? realpath(*path, NULL) : NULL;
    int rc = 0;
    if (*path != NULL) {
        rc = service_absolute(real != NULL ? real : *path, out,
                              SERVICE_PATH_MAX, e);
        *path = out;
    }
    free(real);
    return rc;
}

int accept_run(struct client *c, const struct service *s,
               const struct accept_options *o)
{
    struct accept *a = calloc(1, sizeof(*a));
    struct err e = {0};
    must(a != NULL);
    a->client = (struct client){.json = false, .term = c->term};
    a->json = c->json;
    a->o = *o;
    a->steps = accept_steps;
    a->n_steps = accept_n_steps;
    a->results = json_array();
    a->d = (struct doctor){.client = &a->client,
                           .service = *s,
                           .quiet = true,
                           .mac = s->manager == &manager_launchd,
                           .program = s->program,
                           .now = (int64_t)time(NULL)};
    a->d.service.client = &a->client;
    interrupt_catch_all();
    int code = EXIT_SUCCESS;
    if (check_names(a, &e) < 0 || settle(&a->o.model, a->model, &e) < 0 ||
        settle(&a->o.build, a->build, &e) < 0 || box_make(a, &e) < 0) {
        code = ask_fail_plain(c, &e);
    } else {
        look_at_machine(a);
        coreml_caches_before(a);
        run_all(a);
        code = interrupted != 0              ? EXIT_INTERRUPTED
               : a->count[RESULT_FAILED] > 0 ? EXIT_UNAVAILABLE
                                             : EXIT_SUCCESS;
        a->interrupted = interrupted != 0;
        interrupt_clear(); /* what was started is ended all the same */
        code = report(a, code);
    }
    box_end(a);
    json_free(a->results);
    json_free(a->expected);
    json_free(a->machine);
    json_free(a->probe);
    json_free(a->model_probe);
    json_free(a->d.status);
    free(a);
    return code;
}
