/* cmd_jobs.c - the list of conversions. */
#include "client/show.h"

enum { O_QUIET };
static const struct opt opts[] = {
    [O_QUIET] = {"quiet", 'q', OPT_FLAG, NULL, "ids only", 0, 0},
};

static void show(const struct client *c, const struct json *j)
{
    char ago[24];
    char priority[16];
    const char *code = NULL;
    const char *text = NULL;
    show_ago(json_get(j, "created_ms"), ago);
    show_priority(j, priority);
    printf("%-31.39s ", ask_str(j, "id"));
    show_state(c, ask_str(j, "state"), 12);
    printf("%4.0f%%  %-8s %-12s ", json_num(json_get(j, "progress")) * 100,
           priority, ago);
    show_text(c, ask_str(j, "name"));
    if (show_job_error(j, &code, &text)) {
        printf("  %s", code);
    }
    (void)putchar('\n');
}

static int run(struct client *c, const struct args *a)
{
    static const struct show_list list = {
        .path = "/aned/v1/jobs",
        .key = "jobs",
        .none = "no job yet; make one: anectl convert FILE",
        .head = "JOB                             STATE        DONE  PRIORITY "
                "CREATED      MODEL",
        .id = "id",
        .row = show,
    };
    return show_list(c, &list, a->opt[O_QUIET].set);
}

const struct command cmd_jobs = {
    .name = "jobs",
    .args = "",
    .summary = "conversions, newest first",
    .examples = "  anectl jobs\n"
                "  anectl jobs --json\n",
    .opts = opts,
    .n_opts = countof(opts),
    .run = run,
};
