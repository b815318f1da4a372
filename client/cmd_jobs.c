/* cmd_jobs.c - the list of conversions. */
#include <string.h>

#include "client/show.h"

enum { O_QUIET };
static const struct opt opts[] = {
    [O_QUIET] = {"quiet", 'q', OPT_FLAG, NULL, "ids only", 0, 0},
};

static void show(const struct client *c, const struct json *j)
{
    char ago[24];
    const char *code = NULL;
    const char *text = NULL;
    show_ago(json_get(j, "created_ms"), ago);
    printf("%-31.39s ", ask_str(j, "id"));
    show_state(c, ask_str(j, "state"), 12);
    printf("%4.0f%%  %-12s ", json_num(json_get(j, "progress")) * 100, ago);
    show_text(c, ask_str(j, "name"));
    if (show_job_error(j, &code, &text)) {
        printf("  %s", code);
    }
    (void)putchar('\n');
}

static int run(struct client *c, const struct args *a)
{
    struct json *j = NULL;
    int code = ask_tell(c, "GET", "/aned/v1/jobs", NULL, &j);
    if (code != EXIT_SUCCESS || c->json) {
        json_free(j);
        return code;
    }
    const struct json *list = ask_list(j, "jobs");
    if (json_first(list) == NULL && !a->opt[O_QUIET].set) {
        printf("no job yet; make one: anectl convert FILE\n");
    } else if (!a->opt[O_QUIET].set) {
        printf("%-31s %-12s%5s  %-12s %s\n", "JOB", "STATE", "DONE", "CREATED",
               "MODEL");
    }
    for (const struct json *x = json_first(list); x != NULL; x = json_next(x)) {
        if (a->opt[O_QUIET].set) {
            printf("%s\n", ask_str(x, "id"));
        } else {
            show(c, x);
        }
    }
    json_free(j);
    return EXIT_SUCCESS;
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
