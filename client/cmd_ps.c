/* cmd_ps.c - the models that are in memory. */
#include "client/engines.h"

static int run(struct client *c, const struct args *a)
{
    struct json *j = NULL;
    char memory[48];
    (void)a;
    int code = ask_tell(c, "GET", "/aned/v1/status", NULL, &j);
    if (code == EXIT_SUCCESS && !c->json) {
        engines_show(c, j);
        engines_memory(j, memory);
        printf("memory %s\n", memory);
    }
    json_free(j);
    return code;
}

const struct command cmd_ps = {
    .name = "ps",
    .args = "",
    .summary = "the models in memory, and what they hold",
    .about =
        "MEMORY is what counts in the daemon's budget: weights, states of\n"
        "all sessions, scratch. RESIDENT is what the process has now.\n"
        "LEAVES tells when an idle model goes (keep-alive).\n",
    .examples = "  anectl ps\n"
                "  anectl ps --json | python3 -m json.tool\n",
    .run = run,
};
