/* cmd_show.c - everything about one model. */
#include <string.h>

#include "client/model_call.h"

static void row(const struct client *c, const char *name, const char *value)
{
    if (value[0] != '\0') {
        printf("%-13s ", name);
        show_text(c, value);
        (void)putchar('\n');
    }
}

static void row_num(const struct json *j, const char *name, const char *key)
{
    if (json_get(j, key) != NULL) {
        printf("%-13s %.15g\n", name, json_num(json_get(j, key)));
    }
}

static void row_bytes(const struct json *j, const char *name, const char *key)
{
    char size[16];
    if (json_get(j, key) != NULL) {
        fmt_bytes((uint64_t)json_num(json_get(j, key)), size);
        printf("%-13s %s\n", name, size);
    }
}

/* "warming 40%": what a load is at. */
static void row_stage(const struct client *c, const struct json *m)
{
    const struct json *progress = json_get(m, "progress");
    char text[64];
    if (json_type(progress) == JSON_NUMBER) {
        (void)snprintf(text, sizeof(text), "%.40s %.0f%%", ask_str(m, "stage"),
                       100 * json_num(progress));
        row(c, "stage", text);
    } else {
        row(c, "stage", ask_str(m, "stage"));
    }
}

/* "passed on Apple M4, 24F74": whether it runs right on this machine. */
static void row_probe(const struct client *c, const struct json *p)
{
    const char *state = ask_str(p, "state");
    const char *machine = ask_str(p, "machine");
    char text[256];
    if (strcmp(state, "unknown") == 0 && ask_str(p, "error")[0] != '\0') {
        (void)snprintf(text, sizeof(text), "unknown: %.200s",
                       ask_str(p, "error"));
    } else {
        (void)snprintf(text, sizeof(text), "%.32s%s%.128s", state,
                       machine[0] != '\0' ? " on " : "", machine);
    }
    row(c, "measured", text);
}

static void show(const struct client *c, const struct json *m)
{
    const struct json *source = json_get(m, "source");
    const struct json *engine = json_get(m, "engine");
    char when[24];
    char accepted[64];

    row(c, "model", ask_str(m, "name"));
    printf("%-13s ", "state");
    show_state(c, ask_str(m, "state"), 0);
    (void)putchar('\n');
    row_stage(c, m);
    row(c, "reason", ask_str(m, "reason"));
    show_accepted(m, accepted);
    row(c, "accepted", accepted);
    row(c, "architecture", ask_str(m, "architecture"));
    row(c, "quant", ask_str(m, "quant"));
    row_num(m, "context", "context");
    row_num(m, "layers", "layers");
    row_num(m, "d_model", "d_model");
    row_num(m, "vocabulary", "vocab");
    row_num(m, "shards", "shards");
    row_bytes(m, "size", "bytes");
    row(c, "source", ask_str(source, "name"));
    row(c, "fingerprint", ask_str(m, "fingerprint"));
    row(c, "files", ask_str(json_get(m, "verification"), "state"));
    row_probe(c, json_get(m, "probe"));
    row(c, "job", ask_str(m, "job"));
    show_ago(json_get(m, "created_ms"), when);
    row(c, "created", when);
    if (json_get(engine, "pid") != NULL) {
        row_num(engine, "engine pid", "pid");
        row_bytes(engine, "weights", "weight_bytes");
        row_num(engine, "running", "running");
        row_num(engine, "waiting", "waiting");
        row(c, "arithmetic", ask_str(engine, "arith"));
        if (json_get(engine, "exact") != NULL &&
            !json_bool(json_get(engine, "exact"))) {
            row(c, "exact", "not exact: [engine] margin");
        }
        if (json_num(json_get(engine, "packages_on_cpu")) > 0) {
            row_num(engine, "on the CPU", "packages_on_cpu");
        }
        row(c, "last failure", ask_str(engine, "last_failure"));
    }
    if (json_first(json_get(m, "gates")) != NULL) {
        printf("gates\n");
        show_gates(c, json_get(m, "gates"));
    }
}

static int run(struct client *c, const struct args *a)
{
    struct json *j = NULL;
    int code = model_call(c, "GET", a->pos[0], "", &j);
    if (code == EXIT_SUCCESS && !c->json) {
        show(c, j);
    }
    json_free(j);
    return code;
}

const struct command cmd_show = {
    .name = "show",
    .args = "NAME",
    .summary = "everything about one model",
    .examples = "  anectl show gemma\n",
    .pos_min = 1,
    .pos_max = 1,
    .takes = "model",
    .run = run,
};
