/* args.c - options from tables; help from the same. */
#include <getopt.h>
#include <math.h>
#include <string.h>

#include "base/parse.h"
#include "client/client.h"

const struct command *const commands[] = {
    &cmd_status,     &cmd_ps,         &cmd_top,     &cmd_convert,
    &cmd_reshard,    &cmd_import,     &cmd_plan,    &cmd_jobs,
    &cmd_job,        &cmd_cancel,     &cmd_models,  &cmd_show,
    &cmd_load,       &cmd_unload,     &cmd_rm,      &cmd_run,
    &cmd_complete,   &cmd_sessions,   &cmd_session, &cmd_tokenize,
    &cmd_detokenize, &cmd_completion, &cmd_verify,  &cmd_quality,
    &cmd_probe,      &cmd_residency,  &cmd_report,  &cmd_eval,
    &cmd_bench,      &cmd_service,    &cmd_doctor,  &cmd_api,
    &cmd_key,       &cmd_page,      &cmd_redact,  &cmd_embed,
    NULL,
};

const struct command *command_find(const char *name)
{
    for (size_t i = 0; commands[i] != NULL; i++) {
        if (strcmp(commands[i]->name, name) == 0) {
            return commands[i];
        }
    }
    return NULL;
}

/* Values of getopt_long for what every command takes; a command's own rows
 * are FIRST + index. */
enum { G_SOCKET = 256, G_URL, G_KEY, G_JSON, G_VERSION, FIRST };

static const struct option globals[] = {
    {"help",     no_argument,       NULL, 'h'     },
    {"socket",   required_argument, NULL, G_SOCKET},
    {"url",      required_argument, NULL, G_URL   },
    {"key-file", required_argument, NULL, G_KEY   },
    {"json",     no_argument,       NULL, G_JSON  },
};

static int parse_number(const struct opt *o, const char *text,
                        struct opt_value *v, struct err *e)
{
    double d = 0;
    if (!parse_double(text, &d) ||
        (o->kind == OPT_INT && !parse_i64(text, &v->integer))) {
        return err_set(e, ERR_USAGE, "--%s takes a%s number, not '%s'", o->name,
                       o->kind == OPT_INT ? " whole" : "", text);
    }
    if (d < o->lo || d > o->hi) {
        return err_set(e, ERR_USAGE, "--%s must lie from %.17g to %.17g",
                       o->name, o->lo, o->hi);
    }
    v->num = d;
    return 0;
}

static int set_value(const struct opt *o, const char *text, struct opt_value *v,
                     struct err *e)
{
    if (o->kind == OPT_GONE) {
        return err_set(e, ERR_USAGE, "--%s is gone: %s", o->name, o->help);
    }
    if (v->set && o->kind != OPT_FLAG && o->kind != OPT_LIST) {
        return err_set(e, ERR_USAGE, "--%s is given twice", o->name);
    }
    v->set = true;
    v->str = text;
    if (o->kind == OPT_LIST) {
        if (v->n_list == OPT_LIST_MAX) {
            return err_set(e, ERR_USAGE, "--%s is given more than %d times",
                           o->name, OPT_LIST_MAX);
        }
        v->list[v->n_list++] = text;
    }
    return o->kind == OPT_INT || o->kind == OPT_NUM
               ? parse_number(o, text, v, e)
               : 0;
}

static int set_global(struct client *c, int what, const char *text,
                      struct err *e)
{
    if (what == G_JSON) {
        c->json = true;
        return 0;
    }
    if (what == G_KEY) {
        return key_read(text, &c->peer.key, e);
    }
    return what == G_URL ? http_peer_url(&c->peer, text, e)
                         : http_peer_find(&c->peer, text, e);
}

static int bad_option(int argc, char **argv, int what, struct err *e)
{
    const char *at = optind > 0 && optind <= argc ? argv[optind - 1] : "?";
    if (what == ':') {
        return err_set(e, ERR_USAGE, "%s needs a value", at);
    }
    if (optopt > 0 && optopt < 256) {
        return err_set(e, ERR_USAGE, "no option -%c", optopt);
    }
    return err_set(e, ERR_USAGE, "no option %s, or it takes no value", at);
}

static void restart_getopt(void)
{
#ifdef __GLIBC__
    optind = 0;
#else
    optreset = 1;
    optind = 1;
#endif
    opterr = 0;
}

int args_parse(struct client *c, const struct command *cmd, int argc,
               char **argv, struct args *ret, struct err *e)
{
    struct option table[OPTS_MAX + countof(globals) + 1] = {{0}};
    char letters[2 * OPTS_MAX + 4] = ":h";
    size_t at = 2;
    int what = 0;

    must(cmd->n_opts <= OPTS_MAX);
    *ret = (struct args){0};
    memcpy(table, globals, sizeof(globals));
    for (size_t i = 0; i < cmd->n_opts; i++) {
        const struct opt *o = &cmd->opts[i];
        bool takes = o->kind != OPT_FLAG && o->kind != OPT_GONE;
        table[countof(globals) + i] =
            (struct option){o->name, takes ? required_argument : no_argument,
                            NULL, FIRST + (int)i};
        if (o->letter != 0) {
            letters[at++] = o->letter;
            if (takes) {
                letters[at++] = ':';
            }
        }
    }
    restart_getopt();
    while ((what = getopt_long(argc, argv, letters, table, NULL)) != -1) {
        int rc = 0;
        size_t row = (size_t)(what - FIRST);
        for (size_t i = 0; what < 256 && i < cmd->n_opts; i++) {
            row = cmd->opts[i].letter == what ? i : row;
        }
        if (what == '?' || what == ':') {
            rc = bad_option(argc, argv, what, e);
        } else if (what == 'h') {
            ret->help = true;
        } else if (what >= G_SOCKET && what <= G_JSON) {
            rc = set_global(c, what, optarg, e);
        } else {
            must(row < cmd->n_opts);
            rc = set_value(&cmd->opts[row], optarg, &ret->opt[row], e);
        }
        if (rc < 0) {
            return rc;
        }
    }
    ret->pos = argv + optind;
    ret->n_pos = argc - optind;
    if (!ret->help &&
        (ret->n_pos < cmd->pos_min || ret->n_pos > cmd->pos_max)) {
        return err_set(e, ERR_USAGE, "anectl %s takes %s", cmd->name,
                       cmd->args[0] != '\0' ? cmd->args : "no argument");
    }
    return 0;
}

int args_global(struct client *c, int argc, char **argv, bool *help,
                bool *version, struct err *e)
{
    struct option table[countof(globals) + 2] = {{0}};
    int what = 0;

    memcpy(table, globals, sizeof(globals));
    table[countof(globals)] =
        (struct option){"version", no_argument, NULL, G_VERSION};
    restart_getopt();
    /* '+': stop at the command */
    while ((what = getopt_long(argc, argv, "+:hV", table, NULL)) != -1) {
        int rc = 0;
        if (what == '?' || what == ':') {
            rc = bad_option(argc, argv, what, e);
        } else if (what == 'h') {
            *help = true;
        } else if (what == 'V' || what == G_VERSION) {
            *version = true;
        } else {
            rc = set_global(c, what, optarg, e);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return optind;
}

/* --- help --- */

static void help_option(const struct opt *o, FILE *to)
{
    char left[48];
    int n = 0;
    if (o->kind == OPT_GONE) {
        return;
    }
    if (o->letter != 0) {
        n = snprintf(left, sizeof(left), "-%c, ", o->letter);
    }
    (void)snprintf(left + n, sizeof(left) - (size_t)n, "--%s%s%s", o->name,
                   o->arg != NULL ? " " : "", o->arg != NULL ? o->arg : "");
    (void)fprintf(to, "  %-24s %s\n", left, o->help);
}

static const struct opt global_help[] = {
    {"socket",   0,   OPT_STR,  "PATH", "the daemon's socket",                  0, 0},
    {"url",      0,   OPT_STR,  "URL",  "or its loopback TCP address",          0, 0},
    {"key-file", 0,   OPT_STR,  "FILE", "its key; default $ANED_API_KEY",       0, 0},
    {"json",     0,   OPT_FLAG, NULL,   "print the daemon's JSON, for scripts", 0, 0},
    {"help",     'h', OPT_FLAG, NULL,   "this text",                            0, 0},
};

void args_help(const struct command *cmd, FILE *to)
{
    (void)fprintf(to, "usage: anectl %s%s%s%s\n\n%s\n", cmd->name,
                  cmd->n_opts > 0 ? " [OPTIONS]" : "",
                  cmd->args[0] != '\0' ? " " : "", cmd->args, cmd->summary);
    if (cmd->about != NULL) {
        (void)fprintf(to, "\n%s", cmd->about);
    }
    (void)fprintf(to, "\n");
    for (size_t i = 0; i < cmd->n_opts; i++) {
        help_option(&cmd->opts[i], to);
    }
    for (size_t i = 0; i < countof(global_help); i++) {
        help_option(&global_help[i], to);
    }
    (void)fprintf(to, "\nexamples:\n%s", cmd->examples);
}

void args_overview(FILE *to)
{
    (void)fprintf(to, "usage: anectl [--socket PATH | --url URL] [--json] "
                      "COMMAND ...\n\n"
                      "Talk to a running aned: convert models, look at them, "
                      "use them.\n\n");
    for (size_t i = 0; commands[i] != NULL; i++) {
        char left[40];
        (void)snprintf(left, sizeof(left), "%s %s", commands[i]->name,
                       commands[i]->args);
        (void)fprintf(to, "  %-24s %s\n", left, commands[i]->summary);
    }
    (void)fprintf(to, "\n"
                      "first steps:\n"
                      "  aned serve &                    start the daemon\n"
                      "  anectl convert model.gguf       make a model of a "
                      "file\n"
                      "  anectl run model \"Hello!\"       talk to it\n"
                      "\n"
                      "`anectl COMMAND --help` explains one with examples; "
                      "`man anectl` all of them.\n");
}
