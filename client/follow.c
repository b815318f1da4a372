#include "client/follow.h"

#include <string.h>

#include "client/show.h"
#include "client/sse.h"
#include "proto/limits.h"

struct follow {
    struct client *c;
    bool changes;
    struct sse sse;
    struct json *last; /* owned */
    struct eta eta;
    double began;
    char stage[40]; /* as last printed */
    int told;       /* percent of the last line where there is no terminal */
    bool drawn;     /* a line is on the terminal */
};

bool follow_over(const char *state)
{
    static const char *const ends[] = {"done", "failed", "cancelled",
                                       "interrupted"};
    for (size_t i = 0; i < countof(ends); i++) {
        if (strcmp(state, ends[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void wipe(struct follow *f)
{
    if (f->drawn) {
        (void)fprintf(stderr, "\r\033[K");
        f->drawn = false;
    }
}

/* What the job does now, in a word or two. */
static const char *stage_of(const struct json *j)
{
    const char *stage = ask_str(j, "stage");
    const char *state = ask_str(j, "state");
    return strcmp(state, "queued") == 0 || stage[0] == '\0' ? state : stage;
}

static void draw(struct follow *f, const struct json *j)
{
    double fraction = json_num(json_get(j, "progress"));
    double now = now_seconds() - f->began;
    const char *stage = stage_of(j);
    double left = eta_update(&f->eta, fraction, now);
    int percent = (int)(fraction * 100);

    if (f->c->term.err_tty) {
        char line[256];
        bar_render(line, sizeof(line), f->c->term.width - 1, stage, fraction,
                   now, left);
        (void)fprintf(stderr, "\r\033[K%s", line);
        (void)fflush(stderr);
        f->drawn = true;
        return;
    }
    if (strcmp(stage, f->stage) != 0 || percent >= f->told + 10) {
        (void)fprintf(stderr, "%s %d%%\n", stage, percent);
        (void)snprintf(f->stage, sizeof(f->stage), "%s", stage);
        f->told = percent;
    }
}

static int on_event(void *user, const char *event, const char *data, size_t n,
                    struct err *e)
{
    struct follow *f = user;
    struct json *j = NULL;
    (void)event;
    int rc = json_parse(data, n, &j, e);
    if (rc < 0) {
        return rc;
    }
    json_free(f->last);
    f->last = j;
    if (f->c->json && f->changes) {
        return ask_print(j);
    }
    if (!f->c->json && !follow_over(ask_str(j, "state"))) {
        draw(f, j);
    }
    return 0;
}

static int on_data(void *user, const char *p, size_t n, struct err *e)
{
    return sse_feed(&((struct follow *)user)->sse, p, n, e);
}

int follow_job(struct client *c, const char *id, bool changes,
               struct json **ret, struct err *e)
{
    struct follow f = {
        .c = c, .changes = changes, .began = now_seconds(), .told = -10};
    struct buf out;
    char path[256];
    int status = 0;

    buf_init(&out, HTTP_REPLY_MAX);
    sse_init(&f.sse, on_event, &f);
    int rc = 0;
    CHECK(ask_path(path, sizeof(path), "/aned/v1/jobs/", id, "/events", e));
    rc = http_request(&c->peer, "GET", path, NULL, 0, on_data, &f, &status,
                      &out, e);
    wipe(&f);
    if (rc != 0) {
        goto out;
    }
    if (status < 200 || status > 299) {
        CHECK(ask_error(status, out.p != NULL ? out.p : "", out.n, e));
    }
    if (f.last == NULL || !follow_over(ask_str(f.last, "state"))) {
        rc = err_set(e, ERR_INTERRUPTED,
                     "the daemon stopped telling; the job goes on when it "
                     "runs again: anectl job %s --follow",
                     id);
        goto out;
    }
    *ret = f.last;
    f.last = NULL; /* given away */
out:
    json_free(f.last);
    sse_fini(&f.sse);
    buf_fini(&out);
    return rc;
}

int follow_exit(const struct json *job)
{
    const char *code = NULL;
    const char *text = NULL;
    if (strcmp(ask_str(job, "state"), "done") == 0) {
        return EXIT_SUCCESS;
    }
    return show_job_error(job, &code, &text) ? err_exit(err_by_name(code))
                                             : EXIT_TEMPFAIL;
}

int follow_end(struct client *c, const struct json *job)
{
    const char *state = ask_str(job, "state");
    const char *code = NULL;
    const char *text = NULL;
    double ms = json_num(json_get(job, "finished_ms")) -
                json_num(json_get(job, "started_ms"));
    char took[16];

    if (strcmp(state, "done") == 0) {
        fmt_seconds(ms / 1000, took);
        printf("%s%s%s is there after %s\n", color_out(&c->term, COLOR_BOLD),
               ask_str(job, "name"), color_out(&c->term, COLOR_OFF), took);
        show_gates(c, json_get(json_get(job, "result"), "gates"));
        show_warnings(c, json_get(json_get(job, "result"), "warnings"));
        printf("next: anectl run %s\n", ask_str(job, "name"));
        return EXIT_SUCCESS;
    }
    (void)show_job_error(job, &code, &text);
    (void)fprintf(
        stderr, "%s%s%s: job %s %s%s%s\n", color_err(&c->term, COLOR_RED),
        code[0] != '\0' ? code : state, color_err(&c->term, COLOR_OFF),
        ask_str(job, "id"), state, text[0] != '\0' ? ": " : "", text);
    return follow_exit(job);
}
