/* cmd_doctor.c - what could be wrong with aned here, and what to do. */
#include <string.h>
#include <time.h>

#include "client/accept.h"

enum {
    O_MANAGER,
    O_PROGRAM,
    O_HOME,
    O_MAC,
    O_MODEL,
    O_OUT,
    O_KEEP,
    O_ONLY,
    O_BUILD,
    O_DEMO,
    O_SLEEP
};
static const struct opt opts[] = {
    [O_MANAGER] = {"manager",        0, OPT_STR,  "M",
                   "launchd or systemd, whatever the platform has",                         0, 0},
    [O_PROGRAM] = {"program",        0, OPT_STR,  "PATH",
                   "the aned to ask; default the one beside anectl",                        0, 0},
    [O_HOME] = {"home",           0, OPT_STR,  "DIR",
                   "the daemon's home, where no daemon tells it",                           0, 0},
    [O_MAC] = {"mac-acceptance", 0, OPT_FLAG, NULL,
                   "what only a Mac can show, in a home of its own",                        0, 0},
    [O_MODEL] = {"model",          0, OPT_STR,  "FILE",
                   "with it: a GGUF to try on Core ML, beside the demo",                    0, 0},
    [O_OUT] = {"out",            0, OPT_STR,  "DIR",
                   "with it: where the report goes; default here",                          0, 0},
    [O_KEEP] = {"keep",           0, OPT_FLAG, NULL,   "with it: keep the private home", 0,
                   0                                                                            },
    [O_ONLY] = {"only",           0, OPT_LIST, "STEP",
                   "with it: this step and what it needs; may be repeated",                 0, 0},
    [O_BUILD] = {"build",          0, OPT_STR,  "DIR",
                   "with it: run the unit tests of this build folder too",                  0, 0},
    [O_DEMO] = {"demo",           0, OPT_STR,  "DIR",
                   "with it: the source's conf/demo, where it is elsewhere",                0, 0},
    [O_SLEEP] = {"with-sleep",     0, OPT_FLAG, NULL,
                   "with it: send the Mac to sleep once; you wake it",                      0, 0},
};

static const struct check checks[] = {
    {"daemon",        "it answers, and is of this version",                        check_daemon     },
    {"service",       "the service manager knows it, and it has not failed",
     check_service                                                                                  },
    {"socket",        "a socket of mode 0600 in a folder of mode 0700, both ours",
     check_socket                                                                                   },
    {"home",          "folders of mode 0700, ours",                                check_home       },
    {"config",        "aned.conf has no mistake, and what it says is used",
     check_config                                                                                   },
    {"store",         "the database is sound",                                     check_store      },
    {"disk",          "room for a conversion",                                     check_disk       },
    {"caches",        "within their limits, of this system's build",               check_caches     },
    {"priority",      "not lowered",                                               check_priority   },
    {"files",         "as many descriptors as connections",                        check_files      },
    {"large-pages",   "weights may be mapped in large pages",                      check_large_pages},
    {"neural-engine", "models run on it, where there is one",
     check_neural_engine                                                                            },
    {"os-build",      "models were probed on this system's build",                 check_os_build   },
    {"name",          "PATH has this aned",                                        check_name       },
    {"clock",         "it tells the time",                                         check_clock      },
};

/* Ask once what several checks look at. */
static void ask_all(struct doctor *d)
{
    const char *home = NULL;
    struct err none = {0};
    if (d->service.manager->state(&d->service, &d->state, &d->state_error) !=
        0) {
        d->state = (struct service_state){.last_exit = -1};
    }
    if (ask(d->client, "GET", "/aned/v1/status", NULL, &d->status,
            &d->status_error) == 0) {
        home = json_str(json_get(d->status, "home"));
        d->pid = (int64_t)json_num(json_get(d->status, "pid"));
        if (ask(d->client, "GET", "/aned/v1/residency", NULL, &d->residency,
                &none) != 0) {
            d->residency = NULL; /* an older daemon has no such answer */
        }
    }
    doctor_build(d->build, sizeof(d->build));
    (void)snprintf(d->home, sizeof(d->home), "%s",
                   home != NULL ? home : d->service.home);
}

static int accept_all(struct client *c, const struct opt_value *o)
{
    struct service s;
    struct err e = {0};
    const struct accept_options how = {
        .model = o[O_MODEL].str,
        .out = o[O_OUT].str,
        .build = o[O_BUILD].str,
        .demo = o[O_DEMO].str,
        .only = o[O_ONLY].list,
        .n_only = o[O_ONLY].n_list,
        .keep = o[O_KEEP].set,
        .sleep = o[O_SLEEP].set,
    };
    return service_find(c, o[O_MANAGER].str, o[O_PROGRAM].str, NULL, &s, &e) !=
                   0
               ? ask_fail_plain(c, &e)
               : accept_run(c, &s, &how);
}

/* Options that only an acceptance has. */
static int check_options(const struct opt_value *o, struct err *e)
{
    for (size_t i = O_MODEL; i < countof(opts); i++) {
        if (o[i].set && !o[O_MAC].set) {
            return err_set(e, ERR_USAGE, "--%s goes with --mac-acceptance",
                           opts[i].name);
        }
    }
    return o[O_MAC].set && o[O_HOME].set
               ? err_set(e, ERR_USAGE, "--mac-acceptance has a home of its own")
               : 0;
}

static int run(struct client *c, const struct args *a)
{
    struct doctor d = {.client = c, .now = (int64_t)time(NULL)};
    struct err e = {0};
    const struct opt_value *o = a->opt;
    if (check_options(o, &e) != 0) {
        return ask_fail_plain(c, &e);
    }
    if (o[O_MAC].set) {
        return accept_all(c, o);
    }
    if (service_find(c, o[O_MANAGER].str, o[O_PROGRAM].str, o[O_HOME].str,
                     &d.service, &e) != 0) {
        return ask_fail_plain(c, &e);
    }
    d.mac = d.service.manager == &manager_launchd;
    d.program = d.service.program[0] != '\0' ? d.service.program : NULL;
    ask_all(&d);
    int code = doctor_run(&d, checks, countof(checks));
    json_free(d.status);
    json_free(d.residency);
    return code;
}

const struct command cmd_doctor = {
    .name = "doctor",
    .args = "",
    .summary = "what is wrong here, and what to do",
    .about =
        "Looks at daemon, service, socket, folders, configuration, database,\n"
        "disk, caches, priority, limits and the machine. Each finding is ok,\n"
        "a note, a warning or an error, with its remedy; nothing is changed.\n"
        "A daemon that waits for its first client is started by being asked.\n"
        "0: no more than notes; 1: warnings; 69: errors.\n"
        "\n"
        "With --mac-acceptance it runs every check that only a Mac can do, on "
        "a\n"
        "daemon of its own in a private home, ends all that it started, and\n"
        "writes a report to be sent. It may take from minutes to hours: each\n"
        "step has a limit. Elsewhere the steps that a Mac alone has are "
        "skipped.\n"
        "0: no step failed; 69: some did; 130: interrupted.\n",
    .examples = "  anectl doctor\n"
                "  anectl doctor --json | python3 -m json.tool\n"
                "  anectl doctor --mac-acceptance --model gemma.gguf\n",
    .opts = opts,
    .n_opts = countof(opts),
    .run = run,
};
