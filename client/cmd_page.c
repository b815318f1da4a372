/* cmd_page.c - the address of the daemon's page, and the program that shows it.
 * The address has no key in it: addresses are kept and shown by browsers. */
#include <string.h>

#include "client/browser.h"
#include "proto/json.h"

enum { O_OPEN };
static const struct opt opts[] = {
    [O_OPEN] = {"open", 0, OPT_FLAG, NULL, "open it in the browser", 0, 0},
};

/* The first listener that a browser reaches; NULL: there is none. */
static const struct json *find_listener(const struct json *status)
{
    for (const struct json *l = json_first(json_get(status, "listeners"));
         l != NULL; l = json_next(l)) {
        if (strcmp(ask_str(l, "transport"), "tcp") == 0) {
            return l;
        }
    }
    return NULL;
}

static void tell(const struct client *c, const char *url, bool key_needed)
{
    if (!c->json) {
        printf("%s\n", url);
        if (key_needed && c->term.out_tty) {
            printf("it asks for the key: anectl key\n");
        }
        return;
    }
    struct json *o = json_object();
    json_add_str(o, "url", url);
    json_add_bool(o, "key_needed", key_needed);
    (void)ask_print(o);
    json_free(o);
}

static int run(struct client *c, const struct args *a)
{
    struct json *j = NULL;
    struct err e = {0};
    char url[128];
    int rc = ask(c, "GET", "/aned/v1/status", NULL, &j, &e);
    const struct json *l = rc == 0 ? find_listener(j) : NULL;
    if (rc == 0 && l == NULL) {
        rc = err_set(&e, ERR_UNSUPPORTED,
                     "browsers know no Unix socket: set listen = "
                     "127.0.0.1:11435 under [http] in aned.conf, and start "
                     "aned again");
    }
    if (rc == 0) {
        (void)snprintf(url, sizeof(url), "http://%.100s/",
                       ask_str(l, "address"));
        tell(c, url, json_bool(json_get(l, "key_needed")));
        rc = a->opt[O_OPEN].set ? browser_open(url, &e) : 0;
    }
    json_free(j);
    return rc < 0 ? ask_fail(c, &e) : EXIT_SUCCESS;
}

const struct command cmd_page = {
    .name = "page",
    .args = "",
    .summary = "the address of a page that shows what the daemon does",
    .about = "Models, streams, speed, cache, memory and jobs, live, and a chat,"
             " in a browser.\nThe page asks for the key, which `anectl key` "
             "prints. It needs [http] listen in\naned.conf.\n",
    .examples = "  anectl page\n"
                "  anectl page --open\n",
    .opts = opts,
    .n_opts = countof(opts),
    .run = run,
};
