#include "client/follow.h"

#include <string.h>

#include "client/show.h"

struct follow {
    struct client *c;
    bool changes;
    struct json *last; /* owned */
    struct bar bar;
    char stage[40]; /* as last printed */
    int told;       /* percent of the last line where there is no terminal */
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
    const char *stage = stage_of(j);
    int percent = (int)(fraction * 100);

    if (f->c->term.err_tty) {
        bar_draw(&f->bar, &f->c->term, stage, fraction);
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

int follow_job(struct client *c, const char *id, bool changes,
               struct json **ret, struct err *e)
{
    struct follow f = {.c = c,
                       .changes = changes,
                       .bar = {.began = now_seconds()},
                       .told = -10};
    char path[256];
    RETERR(ask_path(path, sizeof(path), "/aned/v1/jobs/", id, "/events", e));
    int rc = ask_events(c, "GET", path, NULL, on_event, &f, e);
    bar_wipe(&f.bar);
    CHECK(rc);
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
    return rc;
}

/* Of a job that is done: the next gate, after `g` (NULL: the first), whose
 * failure was not accepted. Any such rejects the model. */
static const struct json *rejecting(const struct json *job,
                                    const struct json *g)
{
    const struct json *gates = json_get(json_get(job, "result"), "gates");
    g = g == NULL ? json_first(gates) : json_next(g);
    while (g != NULL && (strcmp(ask_str(g, "verdict"), "failed") != 0 ||
                         json_bool(json_get(g, "accepted")))) {
        g = json_next(g);
    }
    return g;
}

int follow_exit(const struct json *job)
{
    const char *code = NULL;
    const char *text = NULL;
    if (strcmp(ask_str(job, "state"), "done") == 0) {
        return rejecting(job, NULL) == NULL ? EXIT_SUCCESS : EXIT_DATA;
    }
    return show_job_error(job, &code, &text) ? err_exit(err_by_name(code))
                                             : EXIT_TEMPFAIL;
}

/* What a model is for. */
enum use { USE_WRITES, USE_LABELS, USE_EMBEDS };

/* Not known: it writes. */
static enum use use_of(struct client *c, const char *name)
{
    char path[512];
    struct json *j = NULL;
    struct err e = {0};
    enum use use = USE_WRITES;
    if (ask_path(path, sizeof(path), "/aned/v1/models/", name, "", &e) == 0 &&
        ask(c, "GET", path, NULL, &j, &e) == 0 &&
        strcmp(ask_str(j, "kind"), "encoder") == 0) {
        use = json_get(j, "labels") != NULL ? USE_LABELS : USE_EMBEDS;
    }
    json_free(j);
    return use;
}

/* What a person does next with the model of a job that is done. */
static void tell_next(struct client *c, const struct json *job)
{
    const char *name = ask_str(job, "name");
    const struct json *g = rejecting(job, NULL);
    if (g == NULL) {
        enum use use = use_of(c, name);
        printf("next: anectl %s%s%s\n",
               use == USE_LABELS   ? "redact --model "
               : use == USE_EMBEDS ? "embed "
                                   : "run ",
               name,
               use == USE_LABELS   ? " FILE"
               : use == USE_EMBEDS ? " TEXT"
                                   : "");
        return;
    }
    (void)fprintf(stderr,
                  "%srejected%s: %s failed a gate, so it is not served; "
                  "where: anectl quality %s, to serve it even so: "
                  "anectl rm %s, then the same with --accept ",
                  color_err(&c->term, COLOR_RED),
                  color_err(&c->term, COLOR_OFF), name, name, name);
    for (const char *comma = ""; g != NULL; g = rejecting(job, g)) {
        (void)fprintf(stderr, "%s%.32s", comma, ask_str(g, "name"));
        comma = ",";
    }
    (void)fputc('\n', stderr);
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
        tell_next(c, job);
        return follow_exit(job);
    }
    (void)show_job_error(job, &code, &text);
    (void)fprintf(
        stderr, "%s%s%s: job %s %s%s%s\n", color_err(&c->term, COLOR_RED),
        code[0] != '\0' ? code : state, color_err(&c->term, COLOR_OFF),
        ask_str(job, "id"), state, text[0] != '\0' ? ": " : "", text);
    return follow_exit(job);
}
