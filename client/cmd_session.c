/* cmd_session.c - one session: begin, extend, continue, cut, copy, drop. */
#include <string.h>

#include "base/parse.h"
#include "client/gen.h"
#include "client/show.h"

#define SESSIONS "/aned/v1/sessions"

enum { O_PIN = GEN_OPTS };
static const struct opt opts[] = {
    GEN_OPT_ROWS,
    [O_PIN] = {"pin", 'p', OPT_FLAG, NULL, "new: keep its saved state longest",
               0, 0},
};

static int usage(const char *what)
{
    (void)fprintf(stderr, "usage: anectl session %s\n", what);
    return EXIT_USAGE;
}

static void show(const struct client *c, const struct json *j)
{
    printf("%s  %.0f tokens", ask_str(j, "id"),
           json_num(json_get(j, "n_tokens")));
    printf("%s  ", json_bool(json_get(j, "pinned")) ? ", pinned" : "");
    show_text(c, ask_str(j, "model"));
    (void)putchar('\n');
}

/* POST to the session's `verb`; body (may be NULL) is taken over. */
static int change(struct client *c, const char *id, const char *verb,
                  struct json *body)
{
    char path[256];
    struct json *j = NULL;
    struct err e = {0};
    if (ask_path(path, sizeof(path), SESSIONS "/", id, verb, &e) < 0) {
        json_free(body);
        return ask_fail(c, &e);
    }
    int code = ask_tell(c, "POST", path, body, &j);
    if (code == EXIT_SUCCESS && !c->json) {
        show(c, j);
    }
    json_free(j);
    return code;
}

/* {"prompt": the text from argument `first` on, or of stdin} */
static int add_text(const struct args *a, int first, struct json *body,
                    struct err *e)
{
    struct buf text;
    int rc = gen_prompt(a, first, &text, e);
    if (rc == 0) {
        json_add_strn(body, "prompt", text.p, text.n);
        buf_fini(&text);
    }
    return rc;
}

static int run_new(struct client *c, const struct args *a)
{
    struct json *j = NULL;
    struct json *body = json_object();
    struct err e = {0};
    json_add_str(body, "model", a->pos[1]);
    if (a->opt[O_PIN].set) {
        json_add_bool(body, "pinned", true);
    }
    if (a->n_pos > 2 && add_text(a, 2, body, &e) < 0) {
        json_free(body);
        return ask_fail(c, &e);
    }
    int code = ask_tell(c, "POST", SESSIONS, body, &j);
    if (code == EXIT_SUCCESS && !c->json) {
        printf("%s\n", ask_str(j, "id"));
    }
    json_free(j);
    return code;
}

static int run_show(struct client *c, const struct args *a)
{
    struct json *j = NULL;
    int code = ask_tell_about(c, "GET", SESSIONS "/", a->pos[1], "", &j);
    if (code == EXIT_SUCCESS && !c->json) {
        show(c, j);
    }
    json_free(j);
    return code;
}

static int run_append(struct client *c, const struct args *a)
{
    struct json *body = json_object();
    struct err e = {0};
    if (add_text(a, 2, body, &e) < 0) {
        json_free(body);
        return ask_fail(c, &e);
    }
    return change(c, a->pos[1], "/append", body);
}

static int run_generate(struct client *c, const struct args *a)
{
    char path[256];
    struct err e = {0};
    struct gen_stats st = {0};
    if (ask_path(path, sizeof(path), SESSIONS "/", a->pos[1], "/generate", &e) <
        0) {
        return ask_fail(c, &e);
    }
    struct json *body = gen_request(NULL, a);
    if (c->json) {
        struct json *j = NULL;
        int code = ask_tell(c, "POST", path, body, &j);
        json_free(j);
        return code;
    }
    interrupt_catch();
    int rc = gen_stream(c, path, body, NULL, &st, &e);
    return gen_end(c, a, rc, &st, &e);
}

/* The number in argument 2. */
static bool add_n(const struct args *a, struct json *body)
{
    uint64_t n = 0;
    if (!parse_u64(a->pos[2], INT32_MAX, &n)) {
        return false;
    }
    json_add_int(body, "n", (int64_t)n);
    return true;
}

static int run_cut(struct client *c, const struct args *a)
{
    bool fork = strcmp(a->pos[0], "fork") == 0;
    struct json *body = json_object();
    if (a->n_pos > 2 && !add_n(a, body)) {
        json_free(body);
        return usage(fork ? "fork ID [N]" : "truncate ID N");
    }
    return change(c, a->pos[1], fork ? "/fork" : "/truncate", body);
}

static int run_pin(struct client *c, const struct args *a)
{
    struct json *body = json_object();
    json_add_bool(body, "pinned", strcmp(a->pos[0], "pin") == 0);
    return change(c, a->pos[1], "/pin", body);
}

static int run_rm(struct client *c, const struct args *a)
{
    int code = EXIT_SUCCESS;
    for (int i = 1; i < a->n_pos && code == EXIT_SUCCESS; i++) {
        struct json *j = NULL;
        code = ask_tell_about(c, "DELETE", SESSIONS "/", a->pos[i], "", &j);
        if (code == EXIT_SUCCESS && !c->json) {
            printf("%s removed\n", a->pos[i]);
        }
        json_free(j);
    }
    return code;
}

static int run(struct client *c, const struct args *a)
{
    static const struct {
        const char *name, *usage;
        int least, most; /* arguments */
        int (*run)(struct client *c, const struct args *a);
    } subs[] = {
        {"new",      "new MODEL [TEXT]", 1, 999, run_new     },
        {"show",     "show ID",          1, 1,   run_show    },
        {"append",   "append ID [TEXT]", 1, 999, run_append  },
        {"generate", "generate ID",      1, 1,   run_generate},
        {"fork",     "fork ID [N]",      1, 2,   run_cut     },
        {"truncate", "truncate ID N",    2, 2,   run_cut     },
        {"pin",      "pin ID",           1, 1,   run_pin     },
        {"unpin",    "unpin ID",         1, 1,   run_pin     },
        {"rm",       "rm ID...",         1, 999, run_rm      },
    };
    for (size_t i = 0; i < countof(subs); i++) {
        if (strcmp(a->pos[0], subs[i].name) == 0) {
            int n = a->n_pos - 1;
            return n < subs[i].least || n > subs[i].most ? usage(subs[i].usage)
                                                         : subs[i].run(c, a);
        }
    }
    return usage("new|show|append|generate|fork|truncate|pin|unpin|rm ...");
}

const struct command cmd_session = {
    .name = "session",
    .args = "VERB ID [TEXT|N]",
    .summary = "a text that the daemon keeps, and goes on with",
    .about =
        "new MODEL [TEXT]    begin one; prints its id\n"
        "show ID             how long it is\n"
        "append ID [TEXT]    put text after it (or standard input)\n"
        "generate ID         go on; the answer becomes part of it\n"
        "fork ID [N]         a new one that begins like it, with N tokens\n"
        "truncate ID N       keep its first N tokens\n"
        "pin, unpin ID       keep its saved state longest, or not\n"
        "rm ID...            drop it\n",
    .examples = "  id=$(anectl session new gemma \"Once upon a time\")\n"
                "  anectl session generate $id --max-tokens 100\n",
    .opts = opts,
    .n_opts = countof(opts),
    .pos_min = 2,
    .pos_max = 1000,
    .takes = "session",
    .run = run,
};
