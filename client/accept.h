/* accept.h - `anectl doctor --mac-acceptance`: what only a Mac can show, step
 * by step, in a private home with a daemon of its own.
 *
 *   accept.c          runs the steps
 *   accept_table.c    the steps in their order: what, why, how, how long
 *   accept_report.c   what is told: lines, JSON, the file
 *   accept_box.c      the home, the daemon in it, requests to it
 *   accept_draw.c     generations and their tokens
 *   accept_demo.c     the demo model against what is recorded of it
 *   accept_same.c     the same tokens whatever the daemon does
 *   accept_coreml.c   Core ML and the Neural Engine
 *   accept_probe.c    what the daemon measured there, and where it ran
 *   accept_tokens.c   tokens of Core ML against the CPU's
 *   accept_agent.c    launchd
 *   accept_program.c  the program and its signature
 *   accept_system.c   the system around it
 *
 * A step is a check of doctor.h: it looks, and says what it found. What it says
 * comes to one result: failed (an error or a warning was said), skipped (with
 * the reason), passed (something was right), or measured (there are only notes
 * and numbers). No step changes anything outside of the private home but those
 * of launchd, which install a job under a label of their own and remove it.
 */
#pragma once

#include "client/doctor.h"

#define ACCEPT_LABEL      "dev.aned.acceptance" /* of the job, for launchd */
#define ACCEPT_TOKENS_MAX 512u                  /* of one timeline */
#define ACCEPT_RUNS_MAX   8u /* prompts in conf/demo/expected.json */
#define ACCEPT_TEXT_MAX   1024u
#define ACCEPT_STOP_S     45 /* until the daemon has ended: it saves states */
#define ACCEPT_START_S    60
/* Core ML's arithmetic is not ours: which of two tokens is likelier is only
 * sure where their logits are further apart. */
#define ACCEPT_LEAD 0.02

struct accept_options {
    const char *model;       /* a GGUF to try besides the demo; NULL: none */
    const char *out;         /* folder of the report; NULL: here */
    const char *build;       /* build folder with unit tests; NULL: none */
    const char *demo;        /* folder of the demo model; NULL: this source's */
    const char *const *only; /* names of steps; n_only 0: all */
    size_t n_only;
    bool keep;  /* the private home stays */
    bool sleep; /* the Mac may be sent to sleep */
};

/* What a step gives to later ones, and what it needs of earlier ones. */
enum {
    ACCEPT_DEMO = 1 << 0,     /* the demo is converted */
    ACCEPT_BUILT = 1 << 1,    /* this aned has Core ML */
    ACCEPT_COREML = 1 << 2,   /* Core ML has loaded the demo */
    ACCEPT_PROBE = 1 << 3,    /* the daemon has measured it there */
    ACCEPT_MODEL = 1 << 4,    /* the model of --model is converted */
    ACCEPT_MODEL_UP = 1 << 5, /* Core ML has loaded it */
    ACCEPT_MODEL_PROBE = 1 << 6,
    ACCEPT_AGENT = 1 << 7,    /* the job is installed */
    ACCEPT_AGENT_UP = 1 << 8, /* launchd has started it */
};

struct accept;

struct step {
    struct check check; /* name, what is expected, the function */
    const char *proves; /* a claim that nothing else can show */
    const char *how;
    int limit_s;
    unsigned needs, gives;
};

/* One timeline, and how it was made. */
struct draw {
    uint32_t n, n_prompt; /* tokens, of them the prompt's */
    int32_t ids[ACCEPT_TOKENS_MAX];
    /* How far the likeliest token was before the next, of those drawn: by
     * log-probability, which differ as logits do. Of ids[n_prompt + i]. */
    double lead[ACCEPT_TOKENS_MAX];
    uint32_t cached, drafted, accepted; /* of the last generation */
    double ms;
    bool on_cpu; /* a package had left the Neural Engine */
};

struct accept {
    struct doctor d; /* its client is the one below */
    struct client client;
    bool json; /* of the command */
    struct accept_options o;
    char model[SERVICE_PATH_MAX], build[SERVICE_PATH_MAX]; /* of o, absolute */
    const struct step *steps;                              /* the table */
    size_t n_steps, at;
    /* the box: accept_box.c */
    char work[SERVICE_PATH_MAX], home[SERVICE_PATH_MAX];
    char demo[SERVICE_PATH_MAX]; /* folder */
    pid_t daemon;                /* 0: none runs */
    char conf[512];              /* of the one that runs */
    bool agent;                  /* a job of ours may be installed */
    /* the running step */
    double began, end_s; /* now_seconds() */
    bool skipped;
    bool interrupted;     /* the steps after it were not run */
    struct json *numbers; /* name -> value */
    /* what was found */
    unsigned has;
    unsigned away;        /* what this system cannot give */
    struct json *results; /* a step each, in order */
    unsigned count[4];    /* of enum result */
    /* between steps */
    struct json *expected; /* conf/demo/expected.json */
    struct json *machine;  /* aned machine --json; NULL: it does not answer */
    struct draw base;      /* the first prompt, on the CPU, without drafts */
    struct draw core;      /* the same on Core ML */
    struct json *probe, *model_probe; /* records of /residency */
    uint64_t compiled;                /* what stood in the cache then */
    uint64_t caches_before;           /* bytes of Core ML's caches */
};

static inline struct accept *accept_of(struct doctor *d)
{
    return container_of(d, struct accept, d);
}

/* --- accept.c --- */

enum result { RESULT_PASSED, RESULT_MEASURED, RESULT_SKIPPED, RESULT_FAILED };
const char *result_name(enum result r);

/* Run the table. c: of the command. Returns the exit code. */
int accept_run(struct client *c, const struct service *s,
               const struct accept_options *o);
/* Whether the system, or a test in its place, is a Mac; else the step is
 * skipped. */
bool accept_on_mac(struct accept *a);
/* What the running step is at, for the line on a terminal. */
void accept_stage(struct accept *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Seconds that the running step has left, at least 1. */
int accept_left(const struct accept *a);

/* --- accept_report.c: what a step says --- */

void accept_pass(struct accept *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
void accept_note(struct accept *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
void accept_fail(struct accept *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
void accept_skip(struct accept *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Skipped because this system lacks it; fmt may be "". */
void accept_away(struct accept *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* A call failed: "what: name: message". After Ctrl-C the step is skipped. */
void accept_error(struct accept *a, const char *what, const struct err *e);
/* A number, with its unit in its name: "load_ms". */
void accept_number(struct accept *a, const char *name, double v);
/* The step's findings and numbers become a row of the results, and lines. */
void accept_told(struct accept *a, const struct step *s, enum result r);
/* The whole report as JSON, without paths of this machine. */
struct json *accept_report(struct accept *a);
/* Write it to a new file in a->o.out. Errors: as file_write. */
CHECKED int accept_write(struct accept *a, const struct json *report,
                         char path[SERVICE_PATH_MAX], struct err *e);
/* Replace this machine's paths in text by words; in place. */
void accept_hide(const struct accept *a, char *text, size_t size);

/* --- accept_box.c --- */

/* Make the private home; find the demo. Errors: IO, NOT_FOUND. */
CHECKED int box_make(struct accept *a, struct err *e);
/* End what was started, remove what was made. */
void box_end(struct accept *a);
/* A daemon with these lines in its aned.conf; the one that runs stays when it
 * has them. Errors: UNAVAILABLE, TIMEOUT. */
CHECKED int box_serve(struct accept *a, const char *conf, struct err *e);
/* The same with a backend, and so many drafts in a step at most. Short states
 * are saved too. */
CHECKED int box_backend(struct accept *a, bool coreml, int drafts,
                        struct err *e);
/* SIGTERM, and SIGKILL after ACCEPT_STOP_S. 0 when none runs. Errors:
 * UNAVAILABLE (it did not end in order). */
CHECKED int box_stop(struct accept *a, struct err *e);
/* One request to it, within the step's time; body is taken over. */
CHECKED int box_ask(struct accept *a, const char *method, const char *path,
                    struct json *body, struct json **ret, struct err *e);
/* A counter or gauge of /metrics; -1: it is not there. */
double box_metric(struct accept *a, const char *name);
/* Convert a GGUF, and wait. Errors: those of the job. */
CHECKED int box_convert(struct accept *a, const char *source, const char *name,
                        int context, struct err *e);
/* Load a model; *ret is its object. Errors: those of the load. */
CHECKED int box_load(struct accept *a, const char *model, struct json **ret,
                     struct err *e);
/* `aned ARGS...`, argv[0] is set here; out (initialised here) has what it
 * printed. Errors: as run_program; UNAVAILABLE with its last line when it ended
 * with another code than 0. */
CHECKED int box_aned(struct accept *a, const char **argv, struct buf *out,
                     int *code, struct err *e);
/* A file below the work folder. */
void box_path(const struct accept *a, const char *name,
              char out[SERVICE_PATH_MAX]);
/* Read "key": value out of a model's engine; 0 when absent. */
double box_engine(const struct json *model, const char *key);
/* Sleep some milliseconds; false when the step's time is over. */
CHECKED bool box_wait(const struct accept *a, int ms);

/* --- accept_draw.c --- */

struct draw_wish {
    const char *model, *prompt; /* prompt NULL: continue `session` */
    uint32_t n;                 /* tokens to draw */
    const struct draw *guess;   /* offer its tokens as drafts; NULL: none */
    char *session; /* [64]: "" on the way in begins one that stays, and has its
                      id on the way out; NULL: one that goes */
    uint32_t choices;            /* of a stream; 0: one */
    void (*on_first)(void *ctx); /* as a stream: called with its first piece */
    void (*on_next)(void *ctx);  /* and with each later one; may be NULL */
    void *ctx;
};
/* Draw greedily. Errors: those of the daemon. */
CHECKED int draw(struct accept *a, const struct draw_wish *w, struct draw *ret,
                 struct err *e);
/* The same as a stream alone, of which only the end is looked at: whole, or an
 * error. */
CHECKED int draw_stream(struct accept *a, const struct draw_wish *w,
                        struct err *e);
/* Say whether `got` has the tokens of `want`. */
bool draw_same(struct accept *a, const char *what, const struct draw *want,
               const struct draw *got);
/* The i-th prompt that is recorded, and its tokens; false: there is none. */
CHECKED bool draw_expected(const struct accept *a, size_t i,
                           const char **prompt, struct draw *ret);

/* --- the steps: accept_table.c --- */

extern const struct step accept_steps[];
extern const size_t accept_n_steps;

void step_system(struct doctor *d);
void step_program(struct doctor *d);
void step_signature(struct doctor *d);
void step_neural_engine(struct doctor *d);
void step_unit_tests(struct doctor *d);
void step_full_sync(struct doctor *d);
void step_clones(struct doctor *d);
void step_sandbox(struct doctor *d);
void step_engine_sandbox(struct doctor *d);

void step_convert(struct doctor *d);
void step_cpu_tokens(struct doctor *d);
void step_kernels(struct doctor *d);

void step_cpu_drafts(struct doctor *d);
void step_cpu_fork(struct doctor *d);
void step_cpu_restart(struct doctor *d);
void step_cpu_kill(struct doctor *d);
void step_cpu_memory(struct doctor *d);
void step_coreml_drafts(struct doctor *d);
void step_coreml_fork(struct doctor *d);
void step_coreml_restart(struct doctor *d);
void step_coreml_kill(struct doctor *d);
void step_coreml_memory(struct doctor *d);

void step_coreml_load(struct doctor *d);
void step_coreml_probe(struct doctor *d);
void step_coreml_placement(struct doctor *d);
void step_coreml_tokens(struct doctor *d);
void step_coreml_backings(struct doctor *d);
/* What the first opening and warming took, of all functions and widths. */
double probe_cold_ms(const struct json *probe);
void step_coreml_second(struct doctor *d);
void step_coreml_caches(struct doctor *d);
/* How large Core ML's caches were before. */
void coreml_caches_before(struct accept *a);
void step_model_convert(struct doctor *d);
void step_model_load(struct doctor *d);
void step_model_probe(struct doctor *d);
void step_model_placement(struct doctor *d);
void step_model_tokens(struct doctor *d);
void step_model_second(struct doctor *d);

void step_agent_install(struct doctor *d);
void step_agent_start(struct doctor *d);
void step_agent_priority(struct doctor *d);
void step_agent_log(struct doctor *d);
void step_agent_crash(struct doctor *d);
void step_agent_stop(struct doctor *d);
void step_agent_uninstall(struct doctor *d);
/* Remove the job if it is there; after Ctrl-C too. */
void agent_remove(struct accept *a);

void step_pressure(struct doctor *d);
void step_sleep(struct doctor *d);
void step_formula(struct doctor *d);
