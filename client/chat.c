/* chat.c - see chat.h. The daemon keeps the state of a conversation by its
 * tokens: sending the whole history again costs only the new part. */
#include "client/chat.h"

#include <string.h>

#include "client/line.h"

struct chat {
    struct client *c;
    const char *model;
    const struct args *args;
    char *system;          /* owned; NULL: none */
    struct json *messages; /* owned array: role and content */
    bool raw;              /* no chat template: `text` is continued */
    struct buf text;       /* the conversation of a raw model */
};

static void clear(struct chat *k)
{
    json_free(k->messages);
    k->messages = json_array();
    buf_clear(&k->text);
    if (k->system != NULL) {
        struct json *m = json_add_object(k->messages, NULL);
        json_add_str(m, "role", "system");
        json_add_str(m, "content", k->system);
    }
}

static void init(struct chat *k, struct client *c, const char *model,
                 const char *system, const struct args *a)
{
    *k = (struct chat){.c = c, .model = model, .args = a};
    buf_init(&k->text, TEXT_BYTES_MAX);
    k->system = system != NULL ? strdup(system) : NULL;
    clear(k);
}

static void fini(struct chat *k)
{
    json_free(k->messages);
    buf_fini(&k->text);
    free(k->system);
}

static void add(struct chat *k, const char *role, const char *text)
{
    struct json *m = json_add_object(k->messages, NULL);
    json_add_str(m, "role", role);
    json_add_str(m, "content", text);
}

static struct json *request(const struct chat *k)
{
    struct json *o = gen_request(k->model, k->args);
    if (k->raw) {
        json_add_str(o, "prompt", k->text.p != NULL ? k->text.p : "");
    } else {
        json_add_tree(o, "messages", json_copy(k->messages));
    }
    return o;
}

static const char *path_of(const struct chat *k)
{
    return k->raw ? "/v1/completions" : "/v1/chat/completions";
}

/* From now on without roles: what was said so far is the text. */
static void go_raw(struct chat *k)
{
    k->raw = true;
    buf_clear(&k->text);
    for (const struct json *m = json_first(k->messages); m != NULL;
         m = json_next(m)) {
        buf_puts(&k->text, k->text.n > 0 ? "\n" : "");
        buf_puts(&k->text, ask_str(m, "content"));
    }
    (void)fprintf(stderr,
                  "%sthis model has no chat template that aned knows: it "
                  "continues your text as it is%s\n",
                  color_err(&k->c->term, COLOR_DIM),
                  color_err(&k->c->term, COLOR_OFF));
}

/* Ask with what was said; the answer is said, too. */
static int turn(struct chat *k, const char *text, struct gen_stats *st,
                struct err *e)
{
    struct buf answer;

    buf_init(&answer, TEXT_BYTES_MAX);
    add(k, "user", text);
    if (k->raw) {
        buf_puts(&k->text, k->text.n > 0 ? "\n" : "");
        buf_puts(&k->text, text);
    }
    int rc = gen_stream(k->c, path_of(k), request(k), &answer, st, e);
    if (rc == ERR_TEMPLATE && !k->raw) {
        go_raw(k);
        rc = gen_stream(k->c, path_of(k), request(k), &answer, st, e);
    }
    if (rc == 0 || answer.n > 0) { /* also what came before a Ctrl-C */
        const char *said = answer.n > 0 ? answer.p : "";
        add(k, "assistant", said);
        buf_puts(&k->text, k->raw ? said : "");
    }
    buf_fini(&answer);
    return rc;
}

static int once_json(struct chat *k, const char *prompt)
{
    struct json *j = NULL;
    struct err e = {0};
    add(k, "user", prompt);
    struct json *body = request(k);
    int rc = ask(k->c, "POST", path_of(k), body, &j, &e);
    json_free(body);
    if (rc == ERR_TEMPLATE) {
        go_raw(k);
        body = request(k);
        rc = ask(k->c, "POST", path_of(k), body, &j, &e);
        json_free(body);
    }
    if (rc == 0) {
        (void)ask_print(j);
        json_free(j);
    }
    return rc < 0 ? ask_fail(k->c, &e) : EXIT_SUCCESS;
}

int chat_once(struct client *c, const char *model, const char *system,
              const char *prompt, const struct args *a)
{
    struct chat k;
    struct gen_stats st = {0};
    struct err e = {0};
    int code = EXIT_SUCCESS;

    interrupt_catch();
    init(&k, c, model, system, a);
    if (c->json) {
        code = once_json(&k, prompt);
    } else {
        int rc = turn(&k, prompt, &st, &e);
        code = gen_end(c, a, rc, &st, &e);
    }
    fini(&k);
    return code;
}

static void help(void)
{
    printf("  /clear          forget the conversation\n"
           "  /system TEXT    begin anew with a system message\n"
           "  /bye            leave; so does Ctrl-D\n"
           "Ctrl-C stops an answer.\n");
}

/* A line that begins with '/'. Returns false to leave. */
static bool command(struct chat *k, const char *line)
{
    if (strcmp(line, "/bye") == 0 || strcmp(line, "/quit") == 0 ||
        strcmp(line, "/exit") == 0) {
        return false;
    }
    if (strcmp(line, "/clear") == 0) {
        clear(k);
    } else if (strncmp(line, "/system", 7) == 0 &&
               (line[7] == ' ' || line[7] == '\0')) {
        free(k->system);
        k->system = line[7] == ' ' ? strdup(line + 8) : NULL;
        clear(k);
    } else {
        help();
    }
    return true;
}

int chat_loop(struct client *c, const char *model, const char *system,
              const struct args *a)
{
    struct chat k;
    struct gen_stats st = {0};
    bool go = true;

    interrupt_catch();
    init(&k, c, model, system, a);
    struct line *l = line_open();
    printf("%s%s%s: /help tells the commands, Ctrl-D leaves\n",
           color_out(&c->term, COLOR_BOLD), model,
           color_out(&c->term, COLOR_OFF));
    while (go) {
        bool stopped = false;
        struct err e = {0};
        const char *line = line_read(l, "> ", &stopped);
        if (line == NULL) {
            (void)putchar('\n');
            break;
        }
        if (line[0] == '\0') {
            continue;
        }
        if (line[0] == '/') {
            go = command(&k, line);
            continue;
        }
        int rc = turn(&k, line, &st, &e);
        (void)putchar('\n');
        (void)fflush(stdout);
        if (rc < 0 && rc != ERR_CANCELLED) {
            (void)ask_fail(c, &e);
            go = rc != ERR_UNAVAILABLE && rc != ERR_MODEL_NOT_FOUND;
        } else if (rc == 0 && a->opt[GEN_STATS].set) {
            gen_print_stats(c, &st);
        }
    }
    line_close(l);
    fini(&k);
    return EXIT_SUCCESS;
}
