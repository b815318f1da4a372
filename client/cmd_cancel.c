/* cmd_cancel.c - end a conversion. */
#include "client/show.h"

static int run(struct client *c, const struct args *a)
{
    struct json *j = NULL;
    struct err e = {0};
    char path[256];
    if (ask_path(path, sizeof(path), "/aned/v1/jobs/", a->pos[0], "", &e) < 0 ||
        ask(c, "DELETE", path, NULL, &j, &e) < 0) {
        return ask_fail(c, &e);
    }
    if (c->json) {
        (void)ask_print(j);
    } else {
        printf("%s ", a->pos[0]);
        show_state(c,
                   json_bool(json_get(j, "cancelling")) ? "stopping"
                                                        : ask_str(j, "state"),
                   0);
        (void)putchar('\n');
    }
    json_free(j);
    return EXIT_SUCCESS;
}

const struct command cmd_cancel = {
    .name = "cancel",
    .args = "ID",
    .summary = "end a conversion; nothing of it stays",
    .examples = "  anectl cancel job_01J...\n",
    .pos_min = 1,
    .pos_max = 1,
    .takes = "job",
    .run = run,
};
