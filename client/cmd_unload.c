/* cmd_unload.c - take a model out of memory; it stays on disk. */
#include "client/model_call.h"

static int run(struct client *c, const struct args *a)
{
    struct json *j = NULL;
    int code = model_call(c, "POST", a->pos[0], "/unload", &j);
    if (code == EXIT_SUCCESS && !c->json) {
        printf("%s ", a->pos[0]);
        show_state(c, ask_str(j, "state"), 0);
        (void)putchar('\n');
    }
    json_free(j);
    return code;
}

const struct command cmd_unload = {
    .name = "unload",
    .args = "NAME",
    .summary = "take a model out of memory; it stays on disk",
    .examples = "  anectl unload gemma\n",
    .pos_min = 1,
    .pos_max = 1,
    .takes = "model",
    .run = run,
};
