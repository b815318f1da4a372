/* main.c - anectl: global options, then one command. */
#include <locale.h>
#include <signal.h>
#include <string.h>

#include "client/client.h"

static int usage(const struct err *e)
{
    (void)fprintf(stderr, "usage: %s\n", e->msg);
    (void)fprintf(stderr, "`anectl --help` shows how\n");
    return EXIT_USAGE;
}

int main(int argc, char **argv)
{
    struct client c = {0};
    struct args a = {0};
    struct err e = {0};
    bool help = false;
    bool version = false;

    (void)setlocale(LC_CTYPE, "");  /* line editing in the user's encoding */
    (void)signal(SIGPIPE, SIG_IGN); /* a vanished reader is an error code */
    term_init(&c.term);
    int at = args_global(&c, argc, argv, &help, &version, &e);
    if (at < 0) {
        return usage(&e);
    }
    if (version) {
        printf("anectl %s\n", ANED_VERSION);
        return EXIT_SUCCESS;
    }
    const char *name = at < argc ? argv[at] : NULL;
    if (name != NULL && strcmp(name, "help") == 0) {
        help = true;
        name = ++at < argc ? argv[at] : NULL;
    }
    const struct command *cmd = name != NULL ? command_find(name) : NULL;
    if (name == NULL) {
        args_overview(help ? stdout : stderr);
        return help ? EXIT_SUCCESS : EXIT_USAGE;
    }
    if (cmd == NULL) {
        (void)err_set(&e, ERR_USAGE, "no command '%s'", name);
        return usage(&e);
    }
    if (help) {
        args_help(cmd, stdout);
        return EXIT_SUCCESS;
    }
    if (args_parse(&c, cmd, argc - at, argv + at, &a, &e) < 0) {
        (void)fprintf(stderr, "usage: %s\n`anectl %s --help` shows how\n",
                      e.msg, cmd->name);
        return EXIT_USAGE;
    }
    if (a.help) {
        args_help(cmd, stdout);
        return EXIT_SUCCESS;
    }
    if (c.peer.path[0] == '\0' && http_peer_find(&c.peer, NULL, &e) < 0) {
        return ask_fail(&c, &e);
    }
    int rc = cmd->run(&c, &a);
    if (fflush(stdout) != 0 && rc == EXIT_SUCCESS) {
        return EXIT_CANTCREAT;
    }
    return rc;
}
