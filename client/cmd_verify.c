/* cmd_verify.c - checks that a model's files are still those published. */
#include <string.h>

#include "client/model_call.h"

struct watching {
    struct client *c;
    struct json *last; /* owned */
    struct bar bar;
};

static const char *state_of(const struct json *m)
{
    return ask_str(json_get(m, "verification"), "state");
}

static bool over(const struct json *m)
{
    return strcmp(state_of(m), "queued") != 0 &&
           strcmp(state_of(m), "running") != 0;
}

/* CANCELLED: the answer is there, the stream may end. */
static int on_event(void *user, const char *event, const char *data, size_t n,
                    struct err *e)
{
    struct watching *w = user;
    struct json *j = NULL;
    (void)event;
    int rc = json_parse(data, n, &j, e);
    if (rc < 0) {
        return rc;
    }
    json_free(w->last);
    w->last = j;
    if (over(j)) {
        return err_set(e, ERR_CANCELLED, "%s", err_text(ERR_CANCELLED));
    }
    if (!w->c->json) {
        bar_draw(&w->bar, &w->c->term, "verifying",
                 json_num(json_get(json_get(j, "verification"), "progress")));
    }
    return 0;
}

/* Follow the model's events until hashing has ended. */
static int watch(struct watching *w, const char *name, struct err *e)
{
    char path[256];
    RETERR(
        ask_path(path, sizeof(path), "/aned/v1/models/", name, "/events", e));
    int rc = ask_events(w->c, "GET", path, NULL, on_event, w, e);
    bar_wipe(&w->bar);
    if (over(w->last)) {
        return 0;
    }
    return rc != 0 ? rc
                   : err_set(e, ERR_INTERRUPTED, "the daemon stopped telling");
}

/* Hash them now, and wait for it. */
static int verify(struct watching *w, const char *name, struct err *e)
{
    char path[256];
    RETERR(
        ask_path(path, sizeof(path), "/aned/v1/models/", name, "/verify", e));
    interrupt_catch();
    RETERR(ask(w->c, "POST", path, NULL, &w->last, e));
    return over(w->last) ? 0 : watch(w, name, e);
}

static int tell(const struct watching *w, const char *name)
{
    const struct json *m = w->last;
    const char *state = state_of(m);
    char took[16], size[16];
    if (strcmp(state, "verified") == 0) {
        fmt_seconds(now_seconds() - w->bar.began, took);
        fmt_bytes((uint64_t)json_num(json_get(m, "bytes")), size);
        if (!w->c->json) {
            printf("%s verified: %s after %s\n", name, size, took);
        }
        return EXIT_SUCCESS;
    }
    bool damaged = strcmp(state, "damaged") == 0;
    if (!w->c->json) {
        const char *why = damaged ? ask_str(m, "reason")
                                  : "its files could not be hashed; try again";
        (void)fprintf(stderr, "%s%s%s: ",
                      color_err(&w->c->term, COLOR_RED),
                      err_name(damaged ? ERR_BUNDLE : ERR_WORKER_LOST),
                      color_err(&w->c->term, COLOR_OFF));
        term_put(stderr, w->c->term.err_tty, why, strlen(why));
        (void)fputc('\n', stderr);
    }
    return damaged ? EXIT_DATA : EXIT_TEMPFAIL;
}

static int run(struct client *c, const struct args *a)
{
    struct watching w = {.c = c, .bar = {.began = now_seconds()}};
    struct err e = {0};
    const char *name = a->pos[0];
    int rc = verify(&w, name, &e);
    int code = rc < 0 ? ask_fail(c, &e) : tell(&w, name);
    if (rc == 0 && c->json) {
        (void)ask_print(w.last);
    }
    json_free(w.last);
    return code;
}

const struct command cmd_verify = {
    .name = "verify",
    .args = "NAME",
    .summary = "hash a model's files again",
    .about = "Compares every file of the model with the SHA-256 that was\n"
             "recorded when it was converted. 0: they are the same; 65: the\n"
             "model is damaged, is not used any more, and the message says\n"
             "what to convert again; 75: it could not be found out.\n",
    .examples = "  anectl verify gemma\n",
    .pos_min = 1,
    .pos_max = 1,
    .takes = "model",
    .run = run,
};
