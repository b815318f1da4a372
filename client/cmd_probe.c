/* cmd_probe.c - measures a model on this machine, and shows the report. */
#include <string.h>

#include "client/residency.h"
#include "client/watch.h"

static const char *state_of(const struct json *m)
{
    return ask_str(json_get(m, "probe"), "state");
}

static bool over(const struct json *m)
{
    return strcmp(state_of(m), "queued") != 0 &&
           strcmp(state_of(m), "running") != 0;
}

static double progress_of(const struct json *m)
{
    return json_num(json_get(json_get(m, "probe"), "progress"));
}

/* The report; 65 when the model does not run right. */
static int tell(struct client *c, const char *name, const struct json *m)
{
    struct json *j = NULL;
    struct err e = {0};
    const char *why = ask_str(json_get(m, "probe"), "error");
    if (why[0] != '\0') {
        (void)err_set(&e, ERR_BACKEND, "%s could not be measured: %s", name,
                      why);
        return ask_fail(c, &e);
    }
    int code = model_call(c, "GET", name, "/residency", &j);
    if (code == EXIT_SUCCESS && !c->json) {
        residency_show(j);
    }
    if (code == EXIT_SUCCESS &&
        strcmp(ask_str(json_get(j, "measured"), "verdict"), "failed") == 0) {
        code = EXIT_DATA;
    }
    json_free(j);
    return code;
}

static int run(struct client *c, const struct args *a)
{
    const struct watch w = {.verb = "/probe",
                            .doing = "probing",
                            .over = over,
                            .progress = progress_of};
    struct json *m = NULL;
    struct err e = {0};
    int rc = watch_model(c, a->pos[0], &w, &m, &e);
    int code = rc < 0 ? ask_fail(c, &e) : tell(c, a->pos[0], m);
    json_free(m);
    return code;
}

const struct command cmd_probe = {
    .name = "probe",
    .args = "NAME",
    .summary = "measure a model on this machine",
    .about = "Runs every package of the model in a process of its own: where\n"
             "its operations run, whether the numbers are right, which widths\n"
             "agree bit for bit, how long it takes. On the Neural Engine that\n"
             "is done by itself before a model is used the first time, and\n"
             "after an update of the system. 0: the model can be used; 65: it\n"
             "cannot, the report says why; 69: it could not be measured.\n",
    .examples = "  anectl probe gemma\n",
    .pos_min = 1,
    .pos_max = 1,
    .takes = "model",
    .run = run,
};
