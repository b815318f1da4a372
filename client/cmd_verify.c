/* cmd_verify.c - checks that a model's files are still those published. */
#include <string.h>

#include "client/show.h"
#include "client/watch.h"

static const char *state_of(const struct json *m)
{
    return ask_str(json_get(m, "verification"), "state");
}

static bool over(const struct json *m)
{
    return strcmp(state_of(m), "queued") != 0 &&
           strcmp(state_of(m), "running") != 0;
}

static double progress_of(const struct json *m)
{
    return json_num(json_get(json_get(m, "verification"), "progress"));
}

static int tell(const struct client *c, const char *name, const struct json *m,
                double began)
{
    const char *state = state_of(m);
    char took[16], size[16];
    if (strcmp(state, "verified") == 0) {
        fmt_seconds(now_seconds() - began, took);
        fmt_bytes((uint64_t)json_num(json_get(m, "bytes")), size);
        if (!c->json) {
            printf("%s verified: %s after %s\n", name, size, took);
            show_gates(c, json_get(m, "gates"));
        }
        return EXIT_SUCCESS;
    }
    bool damaged = strcmp(state, "damaged") == 0;
    if (!c->json) {
        const char *why = damaged ? ask_str(m, "reason")
                                  : "its files could not be hashed; try again";
        (void)fprintf(stderr, "%s%s%s: ",
                      color_err(&c->term, COLOR_RED),
                      err_name(damaged ? ERR_BUNDLE : ERR_WORKER_LOST),
                      color_err(&c->term, COLOR_OFF));
        term_put(stderr, c->term.err_tty, why, strlen(why));
        (void)fputc('\n', stderr);
    }
    return damaged ? EXIT_DATA : EXIT_TEMPFAIL;
}

static int run(struct client *c, const struct args *a)
{
    const struct watch w = {.verb = "/verify",
                            .doing = "verifying",
                            .over = over,
                            .progress = progress_of};
    struct json *m = NULL;
    struct err e = {0};
    const char *name = a->pos[0];
    double began = now_seconds();
    int rc = watch_model(c, name, &w, &m, &e);
    int code = rc < 0 ? ask_fail(c, &e) : tell(c, name, m, began);
    if (rc == 0 && c->json) {
        (void)ask_print(m);
    }
    json_free(m);
    return code;
}

const struct command cmd_verify = {
    .name = "verify",
    .args = "NAME",
    .summary = "hash a model's files again",
    .about =
        "Compares every file of the model with the SHA-256 that was\n"
        "recorded when it was converted. 0: they are the same; 65: the\n"
        "model is damaged, is not used any more, and the message says\n"
        "what to convert again; 75: it could not be found out. Shows what the\n"
        "gates said of these files when they were made.\n",
    .examples = "  anectl verify gemma\n",
    .pos_min = 1,
    .pos_max = 1,
    .takes = "model",
    .run = run,
};
