/* cmd_verify.c - are a model's files still those that were published? */
#include <string.h>

#include "client/model_call.h"
#include "client/sse.h"
#include "proto/limits.h"

struct watching {
    struct client *c;
    struct sse sse;
    struct json *last; /* owned */
    struct eta eta;
    double began;
    bool drawn; /* a line is on the terminal */
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

static void wipe(struct watching *w)
{
    if (w->drawn) {
        (void)fprintf(stderr, "\r\033[K");
        w->drawn = false;
    }
}

static void draw(struct watching *w)
{
    char line[256];
    double now = now_seconds() - w->began;
    double fraction =
        json_num(json_get(json_get(w->last, "verification"), "progress"));
    if (!w->c->term.err_tty || w->c->json) {
        return;
    }
    bar_render(line, sizeof(line), w->c->term.width - 1, "verifying", fraction,
               now, eta_update(&w->eta, fraction, now));
    (void)fprintf(stderr, "\r\033[K%s", line);
    (void)fflush(stderr);
    w->drawn = true;
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
    draw(w);
    return 0;
}

static int on_data(void *user, const char *p, size_t n, struct err *e)
{
    return sse_feed(&((struct watching *)user)->sse, p, n, e);
}

/* Follow the model's events until hashing has ended. */
static int watch(struct watching *w, const char *name, struct err *e)
{
    struct buf out;
    char path[256];
    int status = 0;
    buf_init(&out, HTTP_REPLY_MAX);
    sse_init(&w->sse, on_event, w);
    int rc = ask_path(path, sizeof(path), "/aned/v1/models/", name, "/events",
                      e);
    if (rc == 0) {
        rc = http_request(&w->c->peer, "GET", path, NULL, 0, on_data, w,
                          &status, &out, e);
    }
    wipe(w);
    if (rc == 0 && (status < 200 || status > 299)) {
        rc = ask_error(status, out.p != NULL ? out.p : "", out.n, e);
    }
    if (over(w->last)) {
        rc = 0;
    } else if (rc == 0) {
        rc = err_set(e, ERR_INTERRUPTED, "the daemon stopped telling");
    }
    sse_fini(&w->sse);
    buf_fini(&out);
    return rc;
}

static int tell(const struct watching *w, const char *name)
{
    const struct json *m = w->last;
    const char *state = state_of(m);
    char took[16], size[16];
    if (strcmp(state, "verified") == 0) {
        fmt_seconds(now_seconds() - w->began, took);
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
    struct watching w = {.c = c, .began = now_seconds()};
    struct err e = {0};
    char path[256];
    const char *name = a->pos[0];
    int rc = ask_path(path, sizeof(path), "/aned/v1/models/", name, "/verify",
                      &e);
    if (rc == 0) {
        interrupt_catch();
        rc = ask(c, "POST", path, NULL, &w.last, &e);
    }
    if (rc == 0 && !over(w.last)) {
        rc = watch(&w, name, &e);
    }
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
