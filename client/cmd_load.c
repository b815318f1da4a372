/* cmd_load.c - bring a model into memory now, not at its first use. */
#include "client/show.h"

enum { O_KEEP, O_PIN, O_UNPIN };
static const struct opt opts[] = {
    [O_KEEP] = {"keep-alive", 'k', OPT_STR,  "TIME",
                "how long it stays when idle: 10m, 1h30m, -1",                      0, 0},
    [O_PIN] = {"pin",        'p', OPT_FLAG, NULL,   "it stays, and leaves last",   0, 0},
    [O_UNPIN] = {"unpin",      0,   OPT_FLAG, NULL,   "its keep-alive counts again", 0,
                0                                                                       },
};

static struct json *wish(const struct args *a)
{
    struct json *o = json_object();
    if (a->opt[O_KEEP].set) {
        json_add_str(o, "keep_alive", a->opt[O_KEEP].str);
    }
    if (a->opt[O_PIN].set || a->opt[O_UNPIN].set) {
        json_add_bool(o, "pinned", a->opt[O_PIN].set);
    }
    return o;
}

static int run(struct client *c, const struct args *a)
{
    struct json *j = NULL;
    char took[16], path[256];
    struct err e = {0};
    double from = now_seconds();

    if (ask_path(path, sizeof(path), "/aned/v1/models/", a->pos[0], "/load",
                 &e) < 0) {
        return ask_fail(c, &e);
    }
    interrupt_catch();
    if (c->term.err_tty && !c->json) {
        (void)fprintf(stderr, "loading %s ...\r", a->pos[0]);
    }
    int code = ask_tell(c, "POST", path, wish(a), &j);
    if (code == EXIT_SUCCESS && !c->json) {
        fmt_seconds(now_seconds() - from, took);
        printf("%s ", a->pos[0]);
        show_state(c, ask_str(j, "state"), 0);
        printf(" after %s\n", took);
    }
    json_free(j);
    return code;
}

const struct command cmd_load = {
    .name = "load",
    .args = "NAME",
    .summary = "bring a model into memory",
    .about = "Not needed: a model is loaded when it is first used. Loading it\n"
             "before makes the first answer come at once.\n",
    .examples = "  anectl load gemma\n"
                "  anectl load gemma --keep-alive 2h\n",
    .opts = opts,
    .n_opts = countof(opts),
    .pos_min = 1,
    .pos_max = 1,
    .takes = "model",
    .run = run,
};
