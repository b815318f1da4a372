/* serve.c - `aned serve`: options, configuration, then serve/server.c. */
#include <getopt.h>

#include "api/api.h"
#include "base/log.h"
#include "cli/cli.h"
#include "engine/cpu/backend_cpu.h"
#include "serve/server.h"

static const char usage[] =
    "usage: aned serve [--config FILE] [--home DIR] [--socket PATH] "
    "[--service]\n"
    "       aned serve --print-config | --check [--config FILE] | "
    "--check-store\n"
    "\n"
    "Serve the models under DIR on a Unix socket until SIGTERM or SIGINT.\n"
    "SIGHUP reads the configuration again.\n"
    "\n"
    "  --config FILE    options; default DIR/aned.conf when it exists\n"
    "  --home DIR       models, jobs, the socket; default $ANED_HOME, else\n"
    "                   the platform's data folder. Must be ours, mode 0700\n"
    "  --socket PATH    default $ANED_SOCKET, else\n"
    "                   $XDG_RUNTIME_DIR/aned/aned.sock, else\n"
    "                   DIR/run/aned.sock\n"
    "  --service        for a service manager: with a wrong configuration do\n"
    "                   not end, but answer 503 with the reason until it is\n"
    "                   mended\n"
    "  --check          read the configuration, say whether it is right\n"
    "  --check-store    read DIR/aned.db, say whether it is sound; no daemon\n"
    "                   may run\n"
    "  --print-config   a configuration file with every option explained\n"
    "  --help           this text\n"
    "\n"
    "  curl --unix-socket PATH http://aned/v1/models\n";

struct options {
    struct settings_source source;
    bool check, check_store, service;
};

static int serve(const struct options *o, struct err *e)
{
    static struct server_conf c;
    c.source = o->source;
    c.service = o->service;
    if (o->check_store) { /* which has no options */
        RETERR(settings_default(&c.source, &c.read, e));
        return store_check(c.read.home.db, e);
    }
    int rc = settings_read(&c.source, &c.read, e);
    if (rc != 0 && o->service && !o->check) {
        c.trouble = *e;
        rc = settings_default(&c.source, &c.read, e);
    }
    if (rc != 0 || o->check) {
        return rc;
    }
    log_setup(settings_log_level(&c.read.conf), "serve");
    log_info("machine", "kernels=%s", cpu_isa(0)); /* what engines take */
    c.routes = api_routes;
    c.n_routes = api_n_routes;
    c.error_body = api_error_body;
    c.page = "/";
    return server_run(&c, e);
}

int cli_serve(int argc, char **argv)
{
    static const struct option longs[] = {
        {"config",       required_argument, NULL, 'c'},
        {"home",         required_argument, NULL, 'H'},
        {"socket",       required_argument, NULL, 's'},
        {"service",      no_argument,       NULL, 'S'},
        {"check",        no_argument,       NULL, 'k'},
        {"check-store",  no_argument,       NULL, 'K'},
        {"print-config", no_argument,       NULL, 'p'},
        {"help",         no_argument,       NULL, 'h'},
        {NULL,           0,                 NULL, 0  },
    };
    struct options o = {0};
    struct err e = {0};
    int c = 0;
    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        switch (c) {
        case 'c':
            o.source.config = optarg;
            break;
        case 'H':
            o.source.home = optarg;
            break;
        case 's':
            o.source.socket = optarg;
            break;
        case 'S':
            o.service = true;
            break;
        case 'k':
            o.check = true;
            break;
        case 'K':
            o.check_store = true;
            break;
        case 'p':
            conf_print(stdout);
            return EXIT_SUCCESS;
        case 'h':
            (void)fputs(usage, stdout);
            return EXIT_SUCCESS;
        default:
            return cli_usage(usage, "see the options below");
        }
    }
    if (optind < argc) {
        return cli_usage(usage, "no such argument '%s'", argv[optind]);
    }
    return serve(&o, &e) == 0 ? EXIT_SUCCESS : err_print(&e);
}
