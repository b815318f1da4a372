/* cmd_key.c - the key of loopback TCP: print it, or make a new one. The daemon
 * tells where its file is, never what it is. */
#include <string.h>

#include "base/file.h"
#include "client/client.h"
#include "proto/json.h"
#include "proto/key_file.h"

enum { O_PATH, O_NEW };

static const struct opt opts[] = {
    [O_PATH] = {"path", 0, OPT_FLAG, NULL, "print the path of its file", 0, 0},
    [O_NEW] = {"new",  0, OPT_FLAG, NULL,
                "make a new one first; the old one ends at once",        0, 0},
};

/* The daemon's file; where none runs, that of its usual home. */
static int find_file(struct client *c, bool new, char *out, size_t size,
                     struct err *e)
{
    struct json *j = NULL;
    char home[400];
    int rc = new ? ask(c, "POST", "/aned/v1/key", NULL, &j, e)
                 : ask(c, "GET", "/aned/v1/status", NULL, &j, e);
    if (rc == 0) {
        const char *file = ask_str(j, "key_file");
        rc = file[0] != '\0' && snprintf(out, size, "%s", file) < (int)size
                 ? 0
                 : err_set(e, ERR_UNSUPPORTED,
                           "this daemon has no loopback TCP");
    } else if (rc == ERR_UNAVAILABLE && !new && !c->peer.named &&
               http_home(home, sizeof(home)) &&
               file_join(out, size, home, KEY_FILE)) {
        rc = 0;
    }
    json_free(j);
    return rc;
}

static int read_key(const char *file, struct key_text *k, struct err *e)
{
    int rc = key_read(file, k, e);
    if (rc == ERR_NOT_FOUND) {
        return err_set(e, rc,
                       "%s: there is no key yet; aned makes it at its first "
                       "start with [http] listen in aned.conf",
                       file);
    }
    return rc;
}

static void print_json(const char *file, const char *key)
{
    struct json *o = json_object();
    json_add_str(o, "key_file", file);
    if (key != NULL) {
        json_add_str(o, "key", key);
    }
    (void)ask_print(o);
    json_free(o);
}

static int run(struct client *c, const struct args *a)
{
    char file[1024];
    struct key_text k = {{0}};
    struct err e = {0};
    bool path = a->opt[O_PATH].set;
    if (find_file(c, a->opt[O_NEW].set, file, sizeof(file), &e) != 0 ||
        (!path && read_key(file, &k, &e) != 0)) {
        return ask_fail(c, &e);
    }
    if (c->json) {
        print_json(file, path ? NULL : k.s);
    } else {
        printf("%s\n", path ? file : k.s);
    }
    key_forget(&k);
    return EXIT_SUCCESS;
}

const struct command cmd_key = {
    .name = "key",
    .args = "",
    .summary = "the key that loopback TCP asks for",
    .about = "Clients send it as 'Authorization: Bearer KEY' or 'x-api-key: "
             "KEY'; the Unix\nsocket needs none. [http] listen in aned.conf "
             "turns TCP on.\n",
    .examples = "  export OPENAI_API_KEY=$(anectl key)\n"
                "  anectl key --path\n"
                "  anectl key --new\n",
    .opts = opts,
    .n_opts = countof(opts),
    .run = run,
};
