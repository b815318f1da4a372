/* serve.c - `aned serve`: options, configuration, then serve/server.c. */
#include <getopt.h>
#include <string.h>

#include "api/api.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/cli.h"
#include "engine/cpu/backend_cpu.h"
#include "serve/server.h"

static const char usage[] =
    "usage: aned serve [--config FILE] [--home DIR] [--socket PATH]\n"
    "       aned serve --print-config | --check [--config FILE]\n"
    "\n"
    "Serve the models under DIR on a Unix socket until SIGTERM or SIGINT.\n"
    "\n"
    "  --config FILE    options; default DIR/aned.conf when it exists\n"
    "  --home DIR       models, jobs, the socket; default $ANED_HOME, else\n"
    "                   the platform's data folder. Must be ours, mode 0700\n"
    "  --socket PATH    default $ANED_SOCKET, else\n"
    "                   $XDG_RUNTIME_DIR/aned/aned.sock, else\n"
    "                   DIR/run/aned.sock\n"
    "  --check          read the configuration, say whether it is right\n"
    "  --print-config   a configuration file with every option explained\n"
    "  --help           this text\n"
    "\n"
    "  curl --unix-socket PATH http://aned/v1/models\n";

struct options {
    const char *config, *home, *socket;
    bool check;
};

static int read_conf(const struct options *o, struct conf *c, struct err *e)
{
    char dir[HOME_PATH_MAX], path[HOME_PATH_MAX];
    conf_init(c);
    if (o->config != NULL) {
        int rc = conf_read(c, o->config, e);
        if (rc == ERR_NOT_FOUND) { /* named and absent: a wrong setting */
            e->code = ERR_CONFIG;
            return ERR_CONFIG;
        }
        return rc;
    }
    int rc = home_dir(o->home, dir, e);
    if (rc != 0) {
        return rc;
    }
    if (!file_join(path, sizeof(path), dir, "aned.conf")) {
        return err_set(e, ERR_CONFIG, "the home folder's path is too long");
    }
    return file_exists(path) ? conf_read(c, path, e) : 0;
}

static enum log_level level_of(const char *word)
{
    return strcmp(word, "error") == 0   ? LOG_ERROR
           : strcmp(word, "warn") == 0  ? LOG_WARN
           : strcmp(word, "debug") == 0 ? LOG_DEBUG
                                        : LOG_INFO;
}

static int serve(const struct options *o, struct err *e)
{
    static struct server_conf c;
    RETERR(read_conf(o, &c.conf, e));
    const char *socket = o->socket != NULL ? o->socket : c.conf.server_socket;
    RETERR(home_paths(o->home, socket, &c.home, e));
    if (o->check) {
        return 0;
    }
    log_setup(level_of(c.conf.server_log), "serve");
    log_info("machine", "kernels=%s", cpu_isa(0)); /* what engines take */
    c.routes = api_routes;
    c.n_routes = api_n_routes;
    c.error_body = api_error_body;
    return server_run(&c, e);
}

int cli_serve(int argc, char **argv)
{
    static const struct option longs[] = {
        {"config",       required_argument, NULL, 'c'},
        {"home",         required_argument, NULL, 'H'},
        {"socket",       required_argument, NULL, 's'},
        {"check",        no_argument,       NULL, 'k'},
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
            o.config = optarg;
            break;
        case 'H':
            o.home = optarg;
            break;
        case 's':
            o.socket = optarg;
            break;
        case 'k':
            o.check = true;
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
