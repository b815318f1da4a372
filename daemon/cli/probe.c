/* probe.c - `aned probe`: what this machine makes of a bundle's packages. The
 * measuring is done by children (serve/probe/probe_run.h), for the system may
 * end them. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <uv.h>

#include "base/file.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "proto/residency_text.h"
#include "serve/probe/probe_run.h"

static const char usage[] =
    "usage: aned probe BUNDLE [options]\n"
    "\n"
    "Run every package of a bundle in a process of its own, and tell where "
    "its\n"
    "operations run, whether the numbers are right (against aned's own CPU\n"
    "backend), which widths give a row the same bits, and how long it takes.\n"
    "\n"
    "  --backend B    cpu (default), interpreter or coreml\n"
    "  --widths LIST  only these, say 1,4 (default: all that the engine may "
    "use)\n"
    "  --time-out S   seconds that a load, a plan or a first prediction may "
    "take\n"
    "                 (default: 1800)\n"
    "  --cache DIR    keep there what the backend compiles (default: a "
    "temporary\n"
    "                 folder, removed at the end)\n"
    "  --json         the report as JSON\n"
    "  --help\n"
    "\n"
    "Exit code 0: it can be used, perhaps with warnings; 65: it cannot.\n";

struct options {
    const char *bundle, *backend, *cache;
    struct msg_widths widths;
    uint32_t time_out_ms;
    bool json;
};

struct probing {
    uv_loop_t loop;
    struct probe_run *run;
    bool terminal;
    char shown[200]; /* the line on the terminal */
    uv_signal_t sigint, sigterm;
    bool over;
    int signal; /* that ended it; 0: none */
    int rc;
    struct err err;
};

static void wipe(struct probing *p)
{
    if (p->shown[0] != '\0') {
        (void)fprintf(stderr, "\r%*s\r", (int)strlen(p->shown), "");
        p->shown[0] = '\0';
    }
}

static void on_progress(void *ctx)
{
    struct probing *p = ctx;
    char line[sizeof(p->shown)];
    (void)snprintf(line, sizeof(line), "%3.0f%% %.150s",
                   100 * probe_run_progress(p->run), probe_run_stage(p->run));
    if (p->terminal && strcmp(line, p->shown) != 0) {
        wipe(p);
        memcpy(p->shown, line, sizeof(line));
        (void)fputs(line, stderr);
    }
}

static void on_over(void *ctx, int rc, const struct err *e)
{
    struct probing *p = ctx;
    p->over = true;
    p->rc = rc;
    p->err = *e;
}

static void on_signal(uv_signal_t *h, int signum)
{
    struct probing *p = uv_handle_get_data((uv_handle_t *)h);
    p->signal = signum;
    p->over = true;
    p->rc = err_set(&p->err, ERR_CANCELLED, "ended by a signal");
}

static void watch_signals(struct probing *p)
{
    uv_signal_t *h[] = {&p->sigint, &p->sigterm};
    static const int number[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < countof(h); i++) {
        must(uv_signal_init(&p->loop, h[i]) == 0);
        uv_handle_set_data((uv_handle_t *)h[i], p);
        must(uv_signal_start(h[i], on_signal, number[i]) == 0);
        uv_unref((uv_handle_t *)h[i]);
    }
}

/* The folder for what is compiled: the one asked for, or one made here, which
 * is removed at the end: a child that is killed leaves what it has. */
static int take_cache(struct options *o, char *made, size_t size,
                      struct err *e)
{
    const char *tmp = getenv("TMPDIR"); /* NOLINT: nobody sets it */
    if (o->cache != NULL) {
        return file_mkdirs(o->cache, 0700, e);
    }
    int n = snprintf(made, size, "%s/aned-probe-XXXXXX",
                     tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp");
    if (n < 0 || (size_t)n >= size) {
        made[0] = '\0';
        return err_set(e, ERR_INVALID, "TMPDIR is too long");
    }
    if (mkdtemp(made) == NULL) {
        made[0] = '\0';
        return err_errno(e, errno, "a temporary folder");
    }
    o->cache = made;
    return 0;
}

static int run(struct probing *p, const struct options *o, struct err *e)
{
    const struct probe_run_conf c = {.loop = &p->loop,
                                     .bundle = o->bundle,
                                     .backend = o->backend,
                                     .cache = o->cache,
                                     .time_out_ms = o->time_out_ms,
                                     .widths = o->widths,
                                     .ctx = p,
                                     .on_progress = on_progress,
                                     .on_over = on_over};
    p->run = probe_run_new(&c);
    RETERR(probe_run_start(p->run, e));
    while (!p->over) {
        (void)uv_run(&p->loop, UV_RUN_ONCE);
    }
    wipe(p);
    if (p->rc != 0) {
        *e = p->err;
    }
    return p->rc;
}

static int print(const struct probing *p, bool as_json)
{
    struct store_residency v = *probe_run_result(p->run);
    struct json *raw = NULL;
    struct json *j = NULL;
    struct buf b;
    v.created_ms = (int64_t)time(NULL) * 1000;
    raw = probe_record_json(&v);
    buf_init(&b, 2 * STORE_TEXT_MAX);
    json_write(raw, false, &b);
    json_free(raw);
    must(buf_ok(&b));
    if (as_json) {
        buf_puts(&b, "\n");
    } else { /* members that are text until now become a tree */
        must(json_parse(b.p, b.n, &j, NULL) == 0);
        buf_clear(&b);
        residency_text(j, NULL, v.created_ms, &b);
        json_free(j);
    }
    bool wrote = fwrite(b.p, 1, b.n, stdout) == b.n && fflush(stdout) == 0;
    buf_fini(&b);
    return !wrote                             ? EXIT_CANTCREAT
           : strcmp(v.verdict, "failed") == 0 ? EXIT_DATA
                                              : EXIT_SUCCESS;
}

/* "1,4,64" */
static bool read_widths(const char *s, struct msg_widths *w)
{
    uint64_t t = 0;
    do {
        s = parse_digits(s, ENGINE_CHUNK_MAX, &t);
        if (s == NULL || w->n == ENGINE_WIDTHS_MAX) {
            return false;
        }
        w->of[w->n++] = (uint32_t)t;
    } while (*s++ == ',');
    return s[-1] == '\0' && msg_widths_ok(w);
}

/* 0: continue; -1: end with exit code *ret. */
static int parse(int argc, char **argv, struct options *o, int *ret)
{
    static const struct option longs[] = {
        {"backend",  required_argument, NULL, 'b'},
        {"widths",   required_argument, NULL, 'w'},
        {"time-out", required_argument, NULL, 't'},
        {"cache",    required_argument, NULL, 'c'},
        {"json",     no_argument,       NULL, 'j'},
        {"help",     no_argument,       NULL, 'h'},
        {NULL,       0,                 NULL, 0  },
    };
    uint64_t s = 0;
    int c = 0;
    *ret = EXIT_USAGE;
    while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
        if (c == 'b' && strlen(optarg) < BACKEND_NAME_MAX) {
            o->backend = optarg;
        } else if (c == 'w' && read_widths(optarg, &o->widths)) {
            continue;
        } else if (c == 't' && parse_u64(optarg, 86400, &s) && s > 0) {
            o->time_out_ms = (uint32_t)s * 1000;
        } else if (c == 'c' && optarg[0] != '\0' &&
                   strlen(optarg) < PATH_BYTES_MAX) {
            o->cache = optarg;
        } else if (c == 'j') {
            o->json = true;
        } else if (c == 'h') {
            (void)fputs(usage, stdout);
            *ret = EXIT_SUCCESS;
            return -1;
        } else if (c == '?') {
            (void)cli_usage(usage, "wrong option");
            return -1;
        } else {
            (void)cli_usage(usage, "'%s' is not acceptable here", optarg);
            return -1;
        }
    }
    if (argc - optind != 1) {
        (void)cli_usage(usage, "one bundle is needed");
        return -1;
    }
    o->bundle = argv[optind];
    return 0;
}

int cli_probe(int argc, char **argv)
{
    struct options o = {.backend = "cpu"};
    struct probing p = {.terminal = isatty(STDERR_FILENO) != 0};
    struct err e = {0};
    int code = 0;
    if (parse(argc, argv, &o, &code) != 0) {
        return code;
    }
    char made[PATH_BYTES_MAX] = "";
    must(uv_loop_init(&p.loop) == 0);
    watch_signals(&p);
    int rc = take_cache(&o, made, sizeof(made), &e);
    rc = rc == 0 ? run(&p, &o, &e) : rc;
    code = p.signal != 0 ? 128 + p.signal
           : rc == 0     ? print(&p, o.json)
                         : err_print(&e);
    probe_run_free(p.run);
    uv_close((uv_handle_t *)&p.sigint, NULL);
    uv_close((uv_handle_t *)&p.sigterm, NULL);
    (void)uv_run(&p.loop, UV_RUN_DEFAULT); /* the child's handles close */
    must(uv_loop_close(&p.loop) == 0);
    if (made[0] != '\0' && file_rmtree(made, &e) < 0) {
        (void)err_print(&e);
    }
    return code;
}
