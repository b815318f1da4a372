/* cmd_load.c - bring a model into memory now, not at its first use. */
#include "client/model_call.h"

static int run(struct client *c, const struct args *a)
{
    struct json *j = NULL;
    char took[16];
    double from = now_seconds();

    interrupt_catch();
    if (c->term.err_tty && !c->json) {
        (void)fprintf(stderr, "loading %s ...\r", a->pos[0]);
    }
    int code = model_call(c, "POST", a->pos[0], "/load", &j);
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
    .examples = "  anectl load gemma\n",
    .pos_min = 1,
    .pos_max = 1,
    .takes = "model",
    .run = run,
};
