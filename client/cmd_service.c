/* cmd_service.c - aned under launchd or systemd: install, start, look at. */
#include <signal.h>
#include <string.h>
#include <time.h>

#include "client/service.h"
#include "client/show.h"

#define ANSWER_S 60 /* for a daemon that starts: its store may be large */
#define RELOAD_S 20 /* until it has read its configuration */

enum { O_MANAGER, O_PROGRAM, O_HOME, O_LINES, O_FOLLOW, O_NO_WAIT };
static const struct opt opts[] = {
    [O_MANAGER] = {"manager", 0,   OPT_STR,  "M",
                   "launchd or systemd, whatever the platform has",                     0, 0      },
    [O_PROGRAM] = {"program", 0,   OPT_STR,  "PATH",
                   "install: the aned to start; default the one beside anectl",         0, 0      },
    [O_HOME] = {"home",    0,   OPT_STR,  "DIR",
                   "install: its home; default $ANED_HOME, else as installed",          0,
                   0                                                                              },
    [O_LINES] = {"lines",   'n', OPT_INT,  "N",    "logs: so many of the last lines",
                   0,                                                                      1000000},
    [O_FOLLOW] = {"follow",  'f', OPT_FLAG, NULL,
                   "logs: and what comes, until "
                  "Ctrl-C",                                                             0, 0      },
    [O_NO_WAIT] = {"no-wait", 0,   OPT_FLAG, NULL,
                   "do not wait until the daemon answers",                              0, 0      },
};

struct job {
    struct client *c;
    const struct args *a;
    struct service s;
};

/* --- what is --- */

/* The daemon's own word; only of one that runs: a look must not start it. */
static struct json *daemon_json(struct client *c)
{
    struct json *o = json_object();
    struct json *j = NULL;
    struct err e = {0};
    int rc = ask(c, "GET", "/aned/v1/status", NULL, &j, &e);
    json_add_str(o, "status", rc == 0 ? ask_str(j, "status") : err_name(rc));
    if (rc == 0) {
        json_add_str(o, "version", ask_str(j, "version"));
        json_add_num(o, "pid", json_num(json_get(j, "pid")));
        json_add_null(o, "message");
    } else {
        json_add_null(o, "version");
        json_add_null(o, "pid");
        json_add_str(o, "message", e.msg);
    }
    json_free(j);
    return o;
}

static void add_number(struct json *o, const char *key, int64_t v, bool known)
{
    if (known) {
        json_add_int(o, key, v);
    } else {
        json_add_null(o, key);
    }
}

static struct json *state_json(struct job *x, const struct service_state *t)
{
    struct json *o = json_object();
    json_add_str(o, "object", "aned.service");
    json_add_str(o, "manager", x->s.manager->name);
    json_add_bool(o, "installed", t->installed);
    json_add_str(o, "unit", t->unit);
    json_add_bool(o, "packaged", t->packaged);
    json_add_bool(o, "enabled", t->enabled);
    json_add_bool(o, "listening", t->listening);
    json_add_bool(o, "running", t->running);
    json_add_bool(o, "failed", t->failed);
    add_number(o, "pid", t->pid, t->pid > 0);
    add_number(o, "last_exit", t->last_exit, t->last_exit >= 0);
    json_add_str(o, "state", t->text);
    json_add_str(o, "home", t->installed ? x->s.kept : x->s.home);
    json_add_str(o, "socket", x->c->peer.path);
    if (t->running) {
        json_add_tree(o, "daemon", daemon_json(x->c));
    } else {
        json_add_null(o, "daemon");
    }
    return o;
}

static const char *yes_no(bool v)
{
    return v ? "yes" : "no";
}

static void print_state(struct job *x, const struct json *o,
                        const struct service_state *t)
{
    const struct json *d = json_get(o, "daemon");
    printf("manager    %s\ninstalled  %s%s", x->s.manager->name,
           yes_no(t->installed), t->installed ? ": " : "");
    show_text(x->c, t->installed ? t->unit : "");
    printf("%s\nenabled    %s\n", t->packaged ? " (of the package)" : "",
           t->installed ? yes_no(t->enabled) : "no");
    printf("state      ");
    show_text(x->c, t->text);
    if (t->pid > 0) {
        printf(", pid %lld", (long long)t->pid);
    }
    if (t->failed && t->last_exit >= 0) {
        printf(", exit status %lld", (long long)t->last_exit);
    }
    printf("\nsocket     ");
    show_text(x->c, x->c->peer.path);
    printf("%s\ndaemon     ", t->listening ? "" : " (nobody listens)");
    if (json_type(d) == JSON_OBJECT) {
        show_state(x->c, ask_str(d, "status"), 0);
        printf(" ");
        show_text(x->c, json_str(json_get(d, "message")) != NULL
                            ? ask_str(d, "message")
                            : ask_str(d, "version"));
        (void)putchar('\n');
    } else {
        printf("%s\n", t->listening ? "starts when a client connects" : "-");
    }
    printf("log        %s\n", x->s.manager->log_hint);
}

static int status(struct job *x)
{
    struct service_state t;
    struct err e = {0};
    if (x->s.manager->state(&x->s, &t, &e) != 0) {
        return ask_fail_plain(x->c, &e);
    }
    struct json *o = state_json(x, &t);
    if (x->c->json) {
        (void)ask_print(o);
    } else {
        print_state(x, o, &t);
    }
    const struct json *d = json_get(o, "daemon");
    bool well = !t.running || strcmp(ask_str(d, "status"), "ok") == 0;
    json_free(o);
    return !t.installed               ? EXIT_NOINPUT
           : !t.listening || t.failed ? EXIT_UNAVAILABLE
           : well                     ? EXIT_SUCCESS
                                      : EXIT_TEMPFAIL;
}

/* --- what changes it: a line for people, the state as JSON --- */

static int done(struct job *x, const char *said)
{
    if (x->c->json) {
        (void)status(x);
    } else {
        printf("%s\n", said);
    }
    return EXIT_SUCCESS;
}

/* With the daemon's own answer, which starts it when a socket is all there is.
 */
static int done_answering(struct job *x, const char *said)
{
    struct json *j = NULL;
    struct err e = {0};
    if (x->a->opt[O_NO_WAIT].set) {
        return done(x, said);
    }
    interrupt_catch();
    if (service_answers(x->c, ANSWER_S, &j, &e) != 0) {
        int code = ask_fail_plain(x->c, &e);
        if (code != EXIT_INTERRUPTED) {
            (void)fprintf(stderr,
                          "  %s, but it does not answer; `anectl "
                          "service logs` may say why\n",
                          said);
        }
        return code;
    }
    if (!x->c->json) {
        printf("%s: aned %s, pid %.0f, answers on ", said,
               ask_str(j, "version"), json_num(json_get(j, "pid")));
        show_text(x->c, x->c->peer.path);
        (void)putchar('\n');
    }
    json_free(j);
    return x->c->json ? done(x, said) : EXIT_SUCCESS;
}

static int install(struct job *x)
{
    struct err e = {0};
    bool changed = false;
    char advice[200] = "";
    if (service_place(&x->s, &e) != 0 ||
        x->s.manager->install(&x->s, &changed, &e) != 0) {
        return ask_fail_plain(x->c, &e);
    }
    int code = done_answering(x, changed ? "installed" : "was installed");
    x->s.manager->advice(&x->s, advice, sizeof(advice));
    if (!x->c->json && advice[0] != '\0') {
        printf("note: %s\n", advice);
    }
    if (!x->c->json && x->s.own_socket) {
        printf("note: other programs find it by ANED_SOCKET=%s\n",
               x->c->peer.path);
    }
    return code;
}

static int uninstall(struct job *x)
{
    struct err e = {0};
    char said[SERVICE_PATH_MAX + 100];
    if (x->s.manager->uninstall(&x->s, &e) != 0) {
        return ask_fail_plain(x->c, &e);
    }
    (void)snprintf(said, sizeof(said),
                   "uninstalled; models and sessions stay in %s", x->s.kept);
    return done(x, said);
}

static int start(struct job *x)
{
    struct err e = {0};
    return x->s.manager->start(&x->s, &e) != 0 ? ask_fail_plain(x->c, &e)
                                               : done_answering(x, "started");
}

static int stop(struct job *x)
{
    struct err e = {0};
    return x->s.manager->stop(&x->s, &e) != 0
               ? ask_fail_plain(x->c, &e)
               : done(x, "stopped, until `anectl service start` or the next "
                         "login");
}

static int restart(struct job *x)
{
    struct err e = {0};
    return x->s.manager->restart(&x->s, &e) != 0
               ? ask_fail_plain(x->c, &e)
               : done_answering(x, "started again");
}

/* --- reload --- */

/* How often it was read; -1: the daemon cannot say, e has why. */
static int64_t reloads(struct client *c, struct json **ret, struct err *e)
{
    json_free(*ret);
    *ret = NULL;
    *e = (struct err){0};
    return ask(c, "GET", "/aned/v1/status", NULL, ret, e) == 0
               ? (int64_t)json_num(
                     json_get(json_get(*ret, "config"), "reloads"))
               : -1;
}

/* Through the manager, or, when somebody else started it, by its own pid. */
static int send_reload(struct job *x, const struct json *now, struct err *e)
{
    struct service_state t = {0};
    double pid = json_num(json_get(now, "pid"));
    bool managed = x->s.manager->state(&x->s, &t, e) == 0 && t.running &&
                   (now == NULL || (int64_t)pid == t.pid);
    *e = (struct err){0};
    if (managed) {
        return x->s.manager->reload(&x->s, e);
    }
    if (now == NULL) { /* one in trouble looks every two seconds, by itself */
        return 0;
    }
    if (pid < 2 || kill((pid_t)pid, SIGHUP) != 0) {
        return err_set(e, ERR_UNAVAILABLE, "no aned of this service runs");
    }
    return 0;
}

static int tell_reload(struct job *x, const struct json *now)
{
    const struct json *c = json_get(now, "config");
    const char *error = json_str(json_get(c, "error"));
    struct err e = {0};
    if (x->c->json) {
        (void)ask_print(c);
    }
    if (error != NULL) {
        (void)err_set(&e, ERR_CONFIG, "%s; the old options are used", error);
        return ask_fail_plain(x->c, &e);
    }
    if (!x->c->json) {
        const char *file = json_str(json_get(c, "file"));
        printf("read ");
        show_text(x->c, file != NULL ? file : "no file: all defaults");
        (void)putchar('\n');
        for (const struct json *o = json_first(json_get(c, "restart_needed"));
             o != NULL; o = json_next(o)) {
            printf("note: %.64s counts after `anectl service restart`\n",
                   json_str(o) != NULL ? json_str(o) : "");
        }
    }
    return EXIT_SUCCESS;
}

static int reload(struct job *x)
{
    struct json *now = NULL;
    struct err e = {0};
    struct err why = {0};
    double end = now_seconds() + RELOAD_S;
    int64_t before = reloads(x->c, &now, &why);
    int rc = before < 0 && why.code != ERR_CONFIG ? why.code
                                                  : send_reload(x, now, &e);
    if (rc != 0) {
        json_free(now);
        return ask_fail_plain(x->c, rc == why.code ? &why : &e);
    }
    for (;;) {
        struct timespec pause = {.tv_nsec = 50000000};
        int64_t n = reloads(x->c, &now, &why);
        /* one that was in trouble starts now, and has not reloaded anything */
        if (n > before) {
            int code = tell_reload(x, now);
            json_free(now);
            return code;
        }
        if (now_seconds() >= end) {
            json_free(now);
            (void)err_set(&e, ERR_TIMEOUT, "aned has not read it after %d s",
                          RELOAD_S);
            return ask_fail_plain(x->c, why.code != 0 ? &why : &e);
        }
        (void)nanosleep(&pause, NULL);
    }
}

/* --- logs --- */

static int on_line(void *ctx, const char *line, size_t n, struct err *e)
{
    const struct client *c = ctx;
    (void)e;
    if (c->json) {
        struct json *o = json_object();
        json_add_strn(o, "line", line, n);
        (void)ask_print(o);
        json_free(o);
    } else {
        term_put(stdout, c->term.out_tty, line, n);
        (void)putchar('\n');
        (void)fflush(stdout);
    }
    return 0;
}

static int logs(struct job *x)
{
    struct err e = {0};
    int64_t n = x->a->opt[O_LINES].set ? x->a->opt[O_LINES].integer : 100;
    return x->s.manager->logs(&x->s, n, x->a->opt[O_FOLLOW].set, on_line, x->c,
                              &e) != 0
               ? ask_fail_plain(x->c, &e)
               : EXIT_SUCCESS;
}

static int run(struct client *c, const struct args *a)
{
    static const struct {
        const char *verb;
        int (*run)(struct job *x);
    } verbs[] = {
        {"install",   install  },
        {"uninstall", uninstall},
        {"start",     start    },
        {"stop",      stop     },
        {"restart",   restart  },
        {"reload",    reload   },
        {"status",    status   },
        {"logs",      logs     },
    };
    struct job x = {.c = c, .a = a};
    struct err e = {0};
    const struct opt_value *o = a->opt;
    if (service_find(c, o[O_MANAGER].str, o[O_PROGRAM].str, o[O_HOME].str, &x.s,
                     &e) != 0) {
        return ask_fail_plain(c, &e);
    }
    for (size_t i = 0; i < countof(verbs); i++) {
        if (strcmp(verbs[i].verb, a->pos[0]) == 0) {
            return verbs[i].run(&x);
        }
    }
    (void)err_set(&e, ERR_USAGE, "no verb '%s'; `anectl service --help`",
                  a->pos[0]);
    return ask_fail_plain(c, &e);
}

const struct command cmd_service = {
    .name = "service",
    .args = "VERB",
    .summary = "aned under launchd or systemd",
    .about =
        "  install    write its units for this user, and have the manager "
        "load\n"
        "             them: it starts with the first client; may be repeated\n"
        "  uninstall  stop it and remove them; models and sessions stay\n"
        "  start, stop, restart\n"
        "             stop: its socket too, so that no client starts it\n"
        "  reload     read aned.conf again, and say what became of it\n"
        "  status     0: it runs, or the first client will start it; 66: it "
        "is\n"
        "             not installed; 69: it does not run; 75: it runs, but\n"
        "             serves nothing now\n"
        "  logs       what it has logged\n",
    .examples = "  anectl service install\n"
                "  anectl service status --json\n"
                "  anectl service logs -n 50 --follow\n",
    .opts = opts,
    .n_opts = countof(opts),
    .pos_min = 1,
    .pos_max = 1,
    .takes = "service",
    .run = run,
};
