/* cmd_job.c - one conversion, now or until it ends. */
#include <string.h>

#include "client/follow.h"
#include "client/show.h"

enum { O_FOLLOW };
static const struct opt opts[] = {
    [O_FOLLOW] = {"follow", 'f', OPT_FLAG, NULL, "stay until the job ends", 0,
                  0},
};

static int follow(struct client *c, const char *id)
{
    struct json *end = NULL;
    struct err e = {0};
    interrupt_catch();
    if (follow_job(c, id, true, &end, &e) < 0) {
        return ask_fail(c, &e);
    }
    int code = c->json ? follow_exit(end) : follow_end(c, end);
    json_free(end);
    return code;
}

static void show(const struct client *c, const struct json *j)
{
    const char *code = NULL;
    const char *text = NULL;
    char when[24];

    printf("job       %s\nstate     ", ask_str(j, "id"));
    show_state(c, ask_str(j, "state"), 0);
    printf("\nprogress  %.0f%% %s\n", json_num(json_get(j, "progress")) * 100,
           ask_str(j, "stage"));
    show_priority(j, when);
    printf("priority  %s\n", when);
    printf("model     ");
    show_text(c, ask_str(j, "name"));
    printf("\nsource    ");
    const char *source = ask_str(json_get(j, "request"), "source");
    show_text(c, source[0] != '\0' ? source : ask_str(j, "source"));
    show_ago(json_get(j, "created_ms"), when);
    printf("\ncreated   %s\n", when);
    show_ago(json_get(j, "finished_ms"), when);
    printf("finished  %s\n", when);
    if (show_job_error(j, &code, &text)) {
        printf("error     %s: ", code);
        show_text(c, text);
        (void)putchar('\n');
    }
    show_gates(c, json_get(json_get(j, "result"), "gates"));
    show_warnings(c, json_get(json_get(j, "result"), "warnings"));
}

static int run(struct client *c, const struct args *a)
{
    struct json *j = NULL;

    if (a->opt[O_FOLLOW].set) {
        return follow(c, a->pos[0]);
    }
    int code = ask_tell_about(c, "GET", "/aned/v1/jobs/", a->pos[0], "", &j);
    if (code == EXIT_SUCCESS && !c->json) {
        show(c, j);
    }
    json_free(j);
    return code;
}

const struct command cmd_job = {
    .name = "job",
    .args = "ID",
    .summary = "one conversion, now or until it ends",
    .about =
        "With --follow the exit code tells how it ended; with --json too,\n"
        "every change is a line.\n",
    .examples = "  anectl job job_01J...\n"
                "  anectl job job_01J... --follow\n",
    .opts = opts,
    .n_opts = countof(opts),
    .pos_min = 1,
    .pos_max = 1,
    .takes = "job",
    .run = run,
};
