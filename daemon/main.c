/* main.c - the one executable: its first argument chooses a role or a command.
 * Each of them returns the exit code to main. */
#include <signal.h>
#include <stdarg.h>
#include <string.h>

#include "cli/cli.h"
#include "convert/convert.h"
#include "convert/verify.h"
#include "engine/engine.h"
#include "engine/probe/probe.h"

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help; /* NULL: a role that serve starts, not for people */
};

static const struct command commands[] = {
    {"serve", cli_serve, "the daemon: load models, answer on a Unix socket"},
    {"convert", cli_convert, "a GGUF into a bundle of Core ML shards"},
    {"import", cli_import, "Core ML packages with a manifest into a bundle"},
    {"reshard", cli_reshard, "a bundle divided anew, with its own weights"},
    {"plan", cli_plan, "what a conversion would make, and how fast it would be"},
    {"inspect", cli_inspect, "what a model file, package or bundle holds"},
    {"mil", cli_mil, "run a Core ML package on .npy files, or print it"},
    {"tensor", cli_tensor, "one tensor of a GGUF as a .npy"},
    {"tokenize", cli_tokenize, "text into token ids"},
    {"detokenize", cli_detokenize, "token ids into text"},
    {"template", cli_template, "messages into prompt text"},
    {"logits", cli_logits, "every position's logits of a list of token ids"},
    {"quality", cli_quality, "how far a bundle is from its source"},
    {"probe", cli_probe, "what this machine makes of a bundle's packages"},
    {"residency", cli_residency, "where a package's operations will run"},
    {"api", cli_api, "the routes of the daemon and the fields of requests"},
    {"machine", cli_machine, "what aned finds in this machine"},
    {"sandbox", cli_sandbox, "what the sandbox of a converter refuses"},
    {"engine", engine_role, NULL},
    {"convert-worker", convert_role, NULL},
    {"verify-worker", verify_role, NULL},
    {"probe-worker", probe_role, NULL},
    {NULL, NULL, NULL},
};

static void help(FILE *to)
{
    (void)fprintf(to, "usage: aned COMMAND [ARGUMENTS]\n\n");
    for (const struct command *c = commands; c->name != NULL; c++) {
        if (c->help != NULL) {
            (void)fprintf(to, "  %-11s %s\n", c->name, c->help);
        }
    }
    (void)fprintf(to, "\n`aned COMMAND --help` tells more. `anectl` talks to a "
                      "running daemon.\n");
}

int cli_usage(const char *usage, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)fprintf(stderr, "usage: ");
    (void)vfprintf(stderr, fmt, ap);
    va_end(ap);
    (void)fprintf(stderr, "\n%s", usage);
    return EXIT_USAGE;
}

int main(int argc, char **argv)
{
    (void)signal(SIGPIPE, SIG_IGN); /* a vanished reader is an error code */
    if (argc < 2) {
        help(stderr);
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 ||
        strcmp(name, "help") == 0) {
        help(stdout);
        return EXIT_SUCCESS;
    }
    if (strcmp(name, "--version") == 0) {
        printf("aned %s\n", ANED_VERSION);
        return EXIT_SUCCESS;
    }
    for (const struct command *c = commands; c->name != NULL; c++) {
        if (strcmp(name, c->name) == 0) {
            if (c->help == NULL) { /* a reload is serve's, whoever is sent it */
                (void)signal(SIGHUP, SIG_IGN);
            }
            return c->run(argc - 1, argv + 1);
        }
    }
    (void)fprintf(stderr, "usage: no command '%s'\n", name);
    help(stderr);
    return EXIT_USAGE;
}
