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
    static const struct show_list list = {
        .path = "/aned/v1/sessions",
        .key = "sessions",
        .none = "no session yet; make one: anectl session new MODEL TEXT",
        .head = "SESSION                          TOKENS          USED         "
                "MODEL",
        .id = "id",
        .row = show,
    };
    return show_list(c, &list, a->opt[O_QUIET].set);
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
