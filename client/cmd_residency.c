/* cmd_residency.c - where a model's operations run, measured and predicted. */
#include "client/residency.h"

static void line(const struct client *c, const struct json *m, const char *kind)
{
    const struct json *r = json_get(m, kind);
    char when[24];
    show_ago(json_get(r, "created_ms"), when);
    printf("  %-10s ", kind);
    if (json_type(r) != JSON_OBJECT) {
        printf(kind[0] == 'p' ? "not run\n" : "no report\n");
        return;
    }
    show_state(c, ask_str(r, "verdict"), 8);
    show_text(c, ask_str(r, "machine"));
    printf(" (");
    show_text(c, ask_str(r, "options"));
    printf("), %s\n", when);
    if (ask_str(r, "reason")[0] != '\0') {
        printf("    ");
        show_text(c, ask_str(r, "reason"));
        (void)putchar('\n');
    }
}

static void show_one(const struct client *c, const struct json *m)
{
    show_text(c, ask_str(m, "model"));
    (void)putchar('\n');
    line(c, m, "measured");
    line(c, m, "predicted");
}

static int run(struct client *c, const struct args *a)
{
    static const struct show_list list = {
        .path = "/aned/v1/residency",
        .key = "models",
        .none = "no model yet; make one: anectl convert FILE",
        .head = "",
        .id = "model",
        .row = show_one,
    };
    struct json *j = NULL;
    if (a->n_pos == 0) {
        return show_list(c, &list, false);
    }
    int code = model_call(c, "GET", a->pos[0], "/residency", &j);
    if (code == EXIT_SUCCESS && !c->json) {
        residency_show(j);
    }
    json_free(j);
    return code;
}

const struct command cmd_residency = {
    .name = "residency",
    .args = "[NAME]",
    .summary = "where models' operations run, and whether they run right",
    .about =
        "Without a name: the verdict on each model. With one: for every\n"
        "function its share on the Neural Engine, what is elsewhere and why,\n"
        "times, likeness with aned's own backend, and the widths that give a\n"
        "row the same bits. `measured` is what this machine did (anectl probe\n"
        "NAME), `predicted` what the converter's rules say.\n",
    .examples = "  anectl residency\n"
                "  anectl residency gemma\n",
    .pos_max = 1,
    .takes = "model",
    .run = run,
};
