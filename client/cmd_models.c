/* cmd_models.c - the models there are. */
#include <string.h>

#include "client/show.h"

enum { O_QUIET };
static const struct opt opts[] = {
    [O_QUIET] = {"quiet", 'q', OPT_FLAG, NULL, "names only", 0, 0},
};

static void show(const struct client *c, const struct json *m)
{
    char size[16];
    char used[24];
    char accepted[64];
    const char *reason = ask_str(m, "reason");
    const char *name = ask_str(m, "name");

    fmt_bytes((uint64_t)json_num(json_get(m, "bytes")), size);
    show_ago(json_get(m, "used_ms"), used);
    show_text(c, name);
    for (int i = (int)strlen(name); i < 24; i++) {
        (void)putchar(' ');
    }
    (void)putchar(' ');
    show_state(c, ask_str(m, "state"), 9);
    printf("%-8.15s %-12.15s %7.0f %9s  %s", ask_str(m, "architecture"),
           ask_str(m, "quant"), json_num(json_get(m, "context")), size, used);
    if (reason[0] != '\0') {
        printf("  ");
        show_text(c, reason);
    }
    show_accepted(m, accepted);
    if (accepted[0] != '\0') {
        printf("  accepted to fail: ");
        show_text(c, accepted);
    }
    (void)putchar('\n');
}

static int run(struct client *c, const struct args *a)
{
    static const struct show_list list = {
        .path = "/aned/v1/models",
        .key = "models",
        .none = "no model yet; make one: anectl convert FILE",
        .head = "MODEL                    STATE    ARCH     QUANT        "
                "CONTEXT      SIZE  USED",
        .id = "name",
        .row = show,
    };
    return show_list(c, &list, a->opt[O_QUIET].set);
}

const struct command cmd_models = {
    .name = "models",
    .args = "",
    .summary = "the models there are, and their state",
    .about =
        "ready: loads when it is used. loaded: in memory. rejected: a gate\n"
        "failed, `anectl show NAME` tells which. failed: cannot run. What a\n"
        "conversion's --accept let pass stands behind the line.\n",
    .examples = "  anectl models\n"
                "  anectl models --quiet\n",
    .opts = opts,
    .n_opts = countof(opts),
    .run = run,
};
