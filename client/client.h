/* client.h - shared by all files of anectl: the context, the commands, their
 * options.
 *
 * A command is one const struct command in a file cmd_NAME.c. Its table of
 * options gives parsing, --help and shell completion. All I/O is blocking.
 */
#pragma once

#include <signal.h>

#include "base/err.h"
#include "client/http.h"
#include "client/sse.h"
#include "client/term.h"

struct json;

struct client {
    struct http_peer peer;
    bool json; /* print what the daemon answered, for scripts */
    struct term term;
};

/* --- options --- */

enum opt_kind {
    OPT_FLAG,
    OPT_GONE, /* only an error that says what is there instead: `help` */
    OPT_STR,
    OPT_LIST, /* a string, may be given several times */
    OPT_INT,
    OPT_NUM
};

struct opt {
    const char *name; /* "max-tokens" */
    char letter;      /* 0: none */
    enum opt_kind kind;
    const char *arg; /* "N"; NULL for flags */
    const char *help;
    double lo, hi; /* of OPT_INT and OPT_NUM */
};

#define OPTS_MAX     24
#define OPT_LIST_MAX 16

struct opt_value {
    bool set;
    const char *str; /* borrowed from argv */
    const char *list[OPT_LIST_MAX];
    size_t n_list;
    int64_t integer;
    double num;
};

struct args {
    struct opt_value opt[OPTS_MAX]; /* as the command's table */
    char **pos;                     /* positional, borrowed from argv */
    int n_pos;
    bool help;
};

/* --- commands --- */

struct command {
    const char *name;
    const char *args;     /* "MODEL [PROMPT]" */
    const char *summary;  /* one line */
    const char *about;    /* some lines; NULL */
    const char *examples; /* lines of two columns */
    const struct opt *opts;
    size_t n_opts;
    int pos_min, pos_max;
    const char *takes; /* completes the first positional: "model", "job",
                          "file", "shell"; NULL */
    /* Returns the exit code. */
    int (*run)(struct client *c, const struct args *a);
};

extern const struct command cmd_ps, cmd_top, cmd_status, cmd_convert, cmd_jobs,
    cmd_reshard, cmd_import, cmd_job, cmd_cancel, cmd_models, cmd_show,
    cmd_load, cmd_unload, cmd_rm, cmd_run, cmd_complete, cmd_sessions,
    cmd_session, cmd_tokenize,
    cmd_detokenize, cmd_completion, cmd_verify, cmd_probe, cmd_residency,
    cmd_service, cmd_doctor, cmd_key, cmd_plan, cmd_quality, cmd_report,
    cmd_api, cmd_eval, cmd_bench, cmd_page, cmd_redact, cmd_embed;

/* All of them, in the order of the help text; ends with NULL. */
extern const struct command *const commands[];
const struct command *command_find(const char *name); /* NULL */

/* Parse argv (argv[0] is the command's name), its options and the global
 * ones, in any order. Errors: USAGE. */
CHECKED int args_parse(struct client *c, const struct command *cmd, int argc,
                       char **argv, struct args *ret, struct err *e);
/* Parse global options before the command; returns the index of the first other
 * argument, or an error. *help, *version: the option was given. */
CHECKED int args_global(struct client *c, int argc, char **argv, bool *help,
                        bool *version, struct err *e);
void args_help(const struct command *cmd, FILE *to);
void args_overview(FILE *to);

/* --- asking the daemon (ask.c) --- */

/* One request; *ret is the parsed answer (json_free). An answer of 4xx or 5xx
 * is an error with the daemon's code and message. body may be NULL. */
CHECKED int ask(struct client *c, const char *method, const char *path,
                const struct json *body, struct json **ret, struct err *e);
/* The tokens of a text in a model's vocabulary, appended to ids (int32_t each).
 * bos: with what the tokenizer puts in front. Errors: as ask(), TOO_BIG. */
CHECKED int ask_tokens(struct client *c, const char *model, const char *text,
                       size_t n, bool bos, struct buf *ids, struct err *e);
/* One request whose answer is a stream of events, until it ends. Errors: as
 * ask(), and what fn returns. */
CHECKED int ask_events(struct client *c, const char *method, const char *path,
                       const struct json *body, sse_fn *fn, void *user,
                       struct err *e);
/* Set *e from the error object of an answer. Returns its code, < 0. */
int ask_error(int status, const char *body, size_t n, struct err *e);
/* prefix + name + suffix. Errors: NOT_FOUND (not a valid name). */
CHECKED int ask_path(char *out, size_t size, const char *prefix,
                     const char *name, const char *suffix, struct err *e);
/* Print j as it came (one line), for --json. Returns 0. */
int ask_print(const struct json *j);
/* The list inside an answer: "data", or the member `key`. */
const struct json *ask_list(const struct json *j, const char *key);
/* Member as text, "" when absent or no string. */
const char *ask_str(const struct json *j, const char *key);
/* Whether word stands in text, not as a part of a longer one. */
bool ask_has_word(const char *text, const char *word);
/* Print the error for a person, with the next step; returns the exit code. */
int ask_fail(const struct client *c, const struct err *e);
/* The same without a next step. */
int ask_fail_plain(const struct client *c, const struct err *e);
/* ask() for a command: it frees body, which may be NULL, prints an error, and
 * with --json prints the answer. Returns the exit code; *ret is set on success
 * only. */
int ask_tell(struct client *c, const char *method, const char *path,
             struct json *body, struct json **ret);
/* The same without a body, of the path that ask_path makes. */
int ask_tell_about(struct client *c, const char *method, const char *prefix,
                   const char *name, const char *suffix, struct json **ret);

/* --- Ctrl-C (sig.c) --- */
extern volatile sig_atomic_t interrupted; /* how often since the last clear */
void interrupt_catch(void); /* count SIGINT instead of ending the process */
void interrupt_catch_all(void); /* and SIGTERM and SIGHUP */
void interrupt_clear(void);
#define EXIT_INTERRUPTED 130
