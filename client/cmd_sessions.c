/* cmd_sessions.c - the list of sessions. */
#include "client/show.h"

enum { O_QUIET };
static const struct opt opts[] = {
    [O_QUIET] = {"quiet", 'q', OPT_FLAG, NULL, "ids only", 0, 0},
};

static void show(const struct client *c, const struct json *j)
{
    char ago[24];
    show_ago(json_get(j, "used_ms"), ago);
    printf("%-31.39s %7.0f  %-7s %-12s ", ask_str(j, "id"),
           json_num(json_get(j, "n_tokens")),
           json_bool(json_get(j, "busy"))     ? "busy"
           : json_bool(json_get(j, "pinned")) ? "pinned"
                                              : "",
           ago);
    show_text(c, ask_str(j, "model"));
    (void)putchar('\n');
}

static int run(struct client *c, const struct args *a)
{
    struct json *j = NULL;
    int code = ask_tell(c, "GET", "/aned/v1/sessions", NULL, &j);
    if (code != EXIT_SUCCESS || c->json) {
        json_free(j);
        return code;
    }
    const struct json *list = ask_list(j, "sessions");
    if (json_first(list) == NULL && !a->opt[O_QUIET].set) {
        printf("no session yet; make one: anectl session new MODEL TEXT\n");
    } else if (!a->opt[O_QUIET].set) {
        printf("%-31s %7s  %-7s %-12s %s\n", "SESSION", "TOKENS", "", "USED",
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

const struct command cmd_sessions = {
    .name = "sessions",
    .args = "",
    .summary = "sessions, newest first",
    .examples = "  anectl sessions\n"
                "  anectl sessions --json\n",
    .opts = opts,
    .n_opts = countof(opts),
    .run = run,
};
