/* cmd_cancel.c - end a conversion. */
#include "client/show.h"

enum { O_DISCARD };
static const struct opt opts[] = {
    [O_DISCARD] = {"discard", 0, OPT_FLAG, NULL,
                   "remove what was made, too", 0, 0},
};

static int run(struct client *c, const struct args *a)
{
    struct json *j = NULL;
    struct json *wish = NULL;
    struct err e = {0};
    char path[256];
    if (ask_path(path, sizeof(path), "/aned/v1/jobs/", a->pos[0], "", &e) < 0) {
        return ask_fail(c, &e);
    }
    if (a->opt[O_DISCARD].set) {
        wish = json_object();
        json_add_bool(wish, "discard", true);
    }
    int code = ask_tell(c, "DELETE", path, wish, &j);
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
    .summary = "end a conversion",
    .about = "What it has made is kept for some days: the same conversion, asked\n"
             "for again, goes on from there.\n",
    .examples = "  anectl cancel job_01J...\n"
                "  anectl cancel --discard job_01J...\n",
    .opts = opts,
    .n_opts = countof(opts),
    .pos_min = 1,
    .pos_max = 1,
    .takes = "job",
    .run = run,
};
