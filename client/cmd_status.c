/* cmd_status.c - whether the daemon is well, and what it does. */
#include "client/show.h"

static int run(struct client *c, const struct args *a)
{
    struct json *j = NULL;
    char up[16];
    (void)a;

    int code = ask_tell(c, "GET", "/aned/v1/status", NULL, &j);
    if (code != EXIT_SUCCESS || c->json) {
        json_free(j);
        return code;
    }
    const struct json *jobs = json_get(j, "jobs");
    fmt_seconds(json_num(json_get(j, "uptime_ms")) / 1000, up);
    printf("aned %s ", ask_str(j, "version"));
    show_state(c, ask_str(j, "status"), 0);
    printf(", pid %.0f, up %s\n", json_num(json_get(j, "pid")), up);
    printf("socket   %s\n", c->peer.path);
    for (const struct json *l = json_first(json_get(j, "listeners")); l != NULL;
         l = json_next(l)) {
        if (json_get(l, "address") != NULL) {
            printf("tcp      %s%s\n", ask_str(l, "address"),
                   json_bool(json_get(l, "key_needed")) ? ", with the key"
                                                        : ", open to all");
        }
    }
    printf("home     ");
    show_text(c, ask_str(j, "home"));
    printf("\nbackend  %s\n", ask_str(j, "backend"));
    printf("answers  %.0f running, %.0f waiting (limit %.0f)\n",
           json_num(json_get(j, "running")), json_num(json_get(j, "queued")),
           json_num(json_get(j, "queue_limit")));
    printf("jobs     %s, %.0f waiting\n",
           json_bool(json_get(jobs, "running")) ? "one running"
                                                : "none running",
           json_num(json_get(jobs, "waiting")));
    printf("models   %zu\n", json_count(json_get(j, "models")));
    for (const struct json *m = json_first(json_get(j, "models")); m != NULL;
         m = json_next(m)) {
        const struct json *x = json_get(m, "engine");
        char size[16];
        printf("  ");
        show_state(c, ask_str(m, "state"), 9);
        show_text(c, ask_str(m, "name"));
        if (json_get(x, "weight_bytes") != NULL) {
            fmt_bytes((uint64_t)json_num(json_get(x, "weight_bytes")), size);
            printf("  %s, %.0f running, %.0f waiting", size,
                   json_num(json_get(x, "running")),
                   json_num(json_get(x, "waiting")));
        }
        (void)putchar('\n');
    }
    json_free(j);
    return EXIT_SUCCESS;
}

const struct command cmd_status = {
    .name = "status",
    .args = "",
    .summary = "is the daemon well, and what does it do",
    .examples = "  anectl status\n"
                "  anectl status --json | python3 -m json.tool\n",
    .run = run,
};
