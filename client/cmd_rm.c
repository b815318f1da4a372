/* cmd_rm.c - remove a model from disk. */
#include "client/model_call.h"

static int run(struct client *c, const struct args *a)
{
    int code = EXIT_SUCCESS;
    for (int i = 0; i < a->n_pos && code == EXIT_SUCCESS; i++) {
        struct json *j = NULL;
        code = model_call(c, "DELETE", a->pos[i], "", &j);
        if (code == EXIT_SUCCESS && !c->json) {
            printf("%s removed\n", a->pos[i]);
        }
        json_free(j);
    }
    return code;
}

const struct command cmd_rm = {
    .name = "rm",
    .args = "NAME...",
    .summary = "remove models from disk",
    .about = "The file a model was made of is not touched.\n",
    .examples = "  anectl rm old-model\n",
    .pos_min = 1,
    .pos_max = 1000,
    .takes = "model",
    .run = run,
};
