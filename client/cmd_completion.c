/* cmd_completion.c - scripts that complete anectl's command line, from the
 * same tables as its --help. */
#include <string.h>

#include "client/client.h"

static void words(const struct command *cmd)
{
    for (size_t i = 0; i < cmd->n_opts; i++) {
        if (cmd->opts[i].kind != OPT_GONE) {
            printf("--%s ", cmd->opts[i].name);
        }
    }
    printf("--json --socket --url --key-file --help");
}

/* Where the names for the first positional come from, as shell words. */
static const char *source_of(const struct command *cmd)
{
    static const struct {
        const char *takes, *source;
    } rows[] = {
        {"model",   "$(anectl models --quiet 2>/dev/null)"               },
        {"job",     "$(anectl jobs --quiet 2>/dev/null)"                 },
        {"shell",   "bash zsh fish"                                      },
        {"session", "new show append generate fork truncate pin unpin rm"},
        {"service", "install uninstall start stop restart reload status logs"},
    };
    for (size_t i = 0; cmd->takes != NULL && i < countof(rows); i++) {
        if (strcmp(rows[i].takes, cmd->takes) == 0) {
            return rows[i].source;
        }
    }
    return NULL;
}

static bool takes_file(const struct command *cmd)
{
    return cmd->takes != NULL && strcmp(cmd->takes, "file") == 0;
}

static void names(void)
{
    for (size_t i = 0; commands[i] != NULL; i++) {
        printf("%s ", commands[i]->name);
    }
    printf("help --json --socket --url --key-file --help --version");
}

static void bash(void)
{
    printf("# bash completion for anectl; add to ~/.bashrc:\n"
           "#   source <(anectl completion bash)\n"
           "_anectl() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} cmd= i\n"
           "    COMPREPLY=()\n"
           "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
           "        case ${COMP_WORDS[i]} in\n"
           "        --socket|--url|--key-file) ((i++)) ;;\n"
           "        -*) ;;\n"
           "        *) cmd=${COMP_WORDS[i]}; break ;;\n"
           "        esac\n"
           "    done\n"
           "    case $cmd in\n"
           "    '') COMPREPLY=($(compgen -W \"");
    names();
    printf("\" -- \"$cur\")) ;;\n");
    for (size_t i = 0; commands[i] != NULL; i++) {
        const struct command *cmd = commands[i];
        const char *source = source_of(cmd);
        printf("    %s)\n        if [[ $cur == -* ]]; then\n"
               "            COMPREPLY=($(compgen -W \"",
               cmd->name);
        words(cmd);
        printf("\" -- \"$cur\"))\n        else\n            ");
        if (takes_file(cmd)) {
            printf("COMPREPLY=($(compgen -f -- \"$cur\"))\n");
        } else {
            printf("COMPREPLY=($(compgen -W \"%s\" -- \"$cur\"))\n",
                   source != NULL ? source : "");
        }
        printf("        fi ;;\n");
    }
    printf("    esac\n}\ncomplete -o filenames -F _anectl anectl\n");
}

static void zsh(void)
{
    printf("#compdef anectl\n"
           "# zsh completion for anectl; add to ~/.zshrc:\n"
           "#   source <(anectl completion zsh)\n"
           "_anectl() {\n"
           "    local cmd= i\n"
           "    for ((i = 2; i < CURRENT; i++)); do\n"
           "        case ${words[i]} in\n"
           "        --socket|--url|--key-file) ((i++)) ;;\n"
           "        -*) ;;\n"
           "        *) cmd=${words[i]}; break ;;\n"
           "        esac\n"
           "    done\n"
           "    case $cmd in\n"
           "    '') compadd -- ");
    names();
    printf(" ;;\n");
    for (size_t i = 0; commands[i] != NULL; i++) {
        const struct command *cmd = commands[i];
        const char *source = source_of(cmd);
        printf("    %s)\n        if [[ $PREFIX == -* ]]; then\n"
               "            compadd -- ",
               cmd->name);
        words(cmd);
        printf("\n        else\n            ");
        if (takes_file(cmd)) {
            printf("_files\n");
        } else {
            printf("compadd -- %s\n", source != NULL ? source : "");
        }
        printf("        fi ;;\n");
    }
    /* loaded by its name from a folder of functions, it is the first call */
    printf("    esac\n}\n"
           "if [[ ${funcstack[1]} == _anectl ]]; then\n"
           "    _anectl \"$@\"\n"
           "else\n"
           "    compdef _anectl anectl\n"
           "fi\n");
}

/* Inside single quotes of fish. */
static void quoted(const char *s)
{
    for (; *s != '\0'; s++) {
        if (*s == '\'' || *s == '\\') {
            (void)putchar('\\');
        }
        (void)putchar(*s);
    }
}

static void fish(void)
{
    printf("# fish completion for anectl; put it into\n"
           "#   ~/.config/fish/completions/anectl.fish\n"
           "complete -c anectl -f\n"
           "complete -c anectl -l socket -r -F -d 'the daemon\\'s socket'\n"
           "complete -c anectl -l url -x -d 'or its loopback TCP address'\n"
           "complete -c anectl -l key-file -r -F -d 'the key for that'\n"
           "complete -c anectl -l json -d 'print the daemon\\'s JSON'\n"
           "complete -c anectl -s h -l help -d 'explain'\n");
    for (size_t i = 0; commands[i] != NULL; i++) {
        const struct command *cmd = commands[i];
        const char *source = source_of(cmd);
        printf("complete -c anectl -n __fish_use_subcommand -a %s -d '",
               cmd->name);
        quoted(cmd->summary);
        printf("'\n");
        for (size_t k = 0; k < cmd->n_opts; k++) {
            const struct opt *o = &cmd->opts[k];
            if (o->kind == OPT_GONE) {
                continue;
            }
            printf("complete -c anectl -n '__fish_seen_subcommand_from %s' "
                   "-l %s%s -d '",
                   cmd->name, o->name, o->kind != OPT_FLAG ? " -r" : "");
            quoted(o->help);
            printf("'\n");
        }
        if (takes_file(cmd)) {
            printf("complete -c anectl -n '__fish_seen_subcommand_from %s' "
                   "-F\n",
                   cmd->name);
        } else if (source != NULL) {
            /* fish calls a command as (...), not $(...) before 3.4 */
            printf("complete -c anectl -n '__fish_seen_subcommand_from %s' "
                   "-a '%s'\n",
                   cmd->name, source[0] == '$' ? source + 1 : source);
        }
    }
}

static int run(struct client *c, const struct args *a)
{
    const char *shell = a->pos[0];
    struct err e = {0};
    if (strcmp(shell, "bash") == 0) {
        bash();
    } else if (strcmp(shell, "zsh") == 0) {
        zsh();
    } else if (strcmp(shell, "fish") == 0) {
        fish();
    } else {
        (void)err_set(&e, ERR_USAGE, "bash, zsh and fish, not %s", shell);
        return ask_fail(c, &e);
    }
    return EXIT_SUCCESS;
}

const struct command cmd_completion = {
    .name = "completion",
    .args = "SHELL",
    .summary = "completion script for bash, zsh or fish",
    .examples = "  source <(anectl completion bash)\n"
                "  source <(anectl completion zsh)\n"
                "  anectl completion fish > "
                "~/.config/fish/completions/anectl.fish\n",
    .pos_min = 1,
    .pos_max = 1,
    .takes = "shell",
    .run = run,
};
