/* cmd_cancel.c - end a conversion. */
#include "client/show.h"

static int run(struct client *c, const struct args *a)
{
    struct json *j = NULL;
    int code = ask_tell_about(c, "DELETE", "/aned/v1/jobs/", a->pos[0], "", &j);
    if (code == EXIT_SUCCESS && !c->json) {
        printf("%s ", a->pos[0]);
        show_state(c,
                   json_bool(json_get(j, "cancelling")) ? "stopping"
                                                        : ask_str(j, "state"),
                   0);
        (void)putchar('\n');
    }
    json_free(j);
    return code;
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
