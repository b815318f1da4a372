/* cmd_report.c - one HTML page about a model, and the program that shows it. */
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "client/browser.h"
#include "client/model_call.h"
#include "client/report.h"

enum { O_OUT, O_NO_OPEN };
static const struct opt opts[] = {
    [O_OUT] = {"out",     'o', OPT_STR,  "FILE",
               "write the page there; default below the user's caches", 0, 0},
    [O_NO_OPEN] = {"no-open", 0,   OPT_FLAG, NULL,   "only write it",       0, 0},
};

/* --- where --- */

/* The user's own folder, which browsers in a sandbox may read too, unlike
 * /tmp. */
static int default_path(const char *name, char out[1024], struct err *e)
{
    const char *base = getenv("XDG_CACHE_HOME");
    const char *tail = "aned/reports";
    char dir[900];
    if (base == NULL || base[0] != '/') {
        base = getenv("HOME");
        tail = ".cache/aned/reports";
#ifdef __APPLE__
        tail = "Library/Caches/dev.aned.daemon/reports";
#endif
    }
    if (base == NULL || base[0] != '/') {
        return err_set(e, ERR_USAGE, "$HOME is not set: name a file, --out F");
    }
    int n = snprintf(dir, sizeof(dir), "%s/%s", base, tail);
    if (n < 0 || (size_t)n >= sizeof(dir)) {
        return err_set(e, ERR_IO, "the path of the user's caches is too long");
    }
    RETERR(file_mkdirs(dir, 0700, e));
    (void)snprintf(out, 1024, "%s/%.100s.html", dir, name);
    return 0;
}

/* --- making --- */

static int write_page(const struct report *r, const char *path, struct err *e)
{
    struct buf b;
    buf_init(&b, REPORT_BYTES_MAX);
    report_html(r, &b);
    int rc = buf_ok(&b) ? file_replace(path, b.p, b.n, e)
                        : err_set(e, ERR_TOO_BIG, "the page is over %u bytes",
                                  (unsigned)REPORT_BYTES_MAX);
    buf_fini(&b);
    return rc;
}

/* What the page is made of; *code is the exit code where something is missing.
 */
static bool fetch(struct client *c, const char *name, struct json *of[3],
                  int *code)
{
    static const char *const parts[] = {"", "/quality", "/residency"};
    bool as_json = c->json;
    c->json = false; /* the path is the answer, not these */
    *code = EXIT_SUCCESS;
    for (size_t i = 0; i < countof(parts) && *code == EXIT_SUCCESS; i++) {
        *code = model_call(c, "GET", name, parts[i], &of[i]);
    }
    c->json = as_json;
    return *code == EXIT_SUCCESS;
}

static void tell(const struct client *c, const char *path)
{
    if (!c->json) {
        printf("%s\n", path);
        return;
    }
    struct json *o = json_object();
    json_add_str(o, "path", path);
    (void)ask_print(o);
    json_free(o);
}

static int run(struct client *c, const struct args *a)
{
    struct json *of[3] = {NULL, NULL, NULL};
    struct err e = {0};
    char path[1024];
    char made[32];
    time_t now = time(NULL);
    struct tm when = {0};
    struct report r = {.model = NULL};
    int code = EXIT_SUCCESS;
    int rc = 0;
    if (a->opt[O_OUT].set) {
        (void)snprintf(path, sizeof(path), "%.1000s", a->opt[O_OUT].str);
    }
    if (!fetch(c, a->pos[0], of, &code)) {
        goto out;
    }
    if (!a->opt[O_OUT].set) {
        CHECK(default_path(a->pos[0], path, &e));
    }
    (void)localtime_r(&now, &when);
    (void)strftime(made, sizeof(made), "%Y-%m-%d %H:%M", &when);
    r = (struct report){of[0], of[1], of[2], made};
    CHECK(write_page(&r, path, &e));
    tell(c, path);
    if (!a->opt[O_NO_OPEN].set && browser_has_display(c) &&
        browser_open(path, &e) < 0) { /* the page is there */
        (void)fprintf(stderr, "not opened: %s\n", e.msg);
    }
out:
    for (size_t i = 0; i < countof(of); i++) {
        json_free(of[i]);
    }
    return rc < 0 ? ask_fail(c, &e) : code;
}

const struct command cmd_report = {
    .name = "report",
    .args = "NAME",
    .summary = "one page about a model: gates, quality, devices, bytes",
    .about =
        "Writes an HTML page that needs nothing beside it, opens it with the\n"
        "system's opener where there is a display, and prints its path. It\n"
        "shows what the gates found: each layer's likeness, KL by position,\n"
        "layers and operations by predicted device, packages, bytes.\n",
    .examples = "  anectl report gemma\n"
                "  anectl report gemma --out gemma.html --no-open\n",
    .opts = opts,
    .n_opts = countof(opts),
    .pos_min = 1,
    .pos_max = 1,
    .takes = "model",
    .run = run,
};
