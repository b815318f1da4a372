/* probe.h - measures what a system makes of a bundle's packages, on this
 * machine: where the operations run, whether the numbers are right, which
 * widths give a row the same bits, how long a prediction takes.
 *
 * The first load of a package, its plan and its first predictions may take
 * minutes, and may end the process. So a probe runs in a child of its own
 * (probe_role), which tells its parent each step before it begins it. When the
 * child is lost, the parent knows where, and starts another one that leaves
 * that out (struct probe_conf, `lost`).
 *
 * For every package, all functions open side by side, as in the engine:
 *
 *   open        the function is loaded
 *   plan        the system is asked where its operations would run
 *   reference   our own backend computes the rows
 *   warm        a width is run once
 *   compare     the rows at this width: in whole chunks, in shifted ones, and
 *               one by one; cosine against the reference, NaN, states too
 *   time        PROBE_TIMED predictions
 *   cpu_open, cpu_time    the same where the system is to use its CPU only
 *   repeat      PROBE_REPEATS predictions more: each must give the same bits
 *
 * Inputs are those of the contract: rows of the model's own embeddings, some
 * with one number as large as any that the conversion measured, at positions
 * behind a random past. They are the same in every probe of a bundle.
 *
 * Thread: one.
 */
#pragma once

#include "engine/backend.h"
#include "proto/json.h"
#include "proto/msg.h"

enum probe_step {
    PROBE_OPEN,
    PROBE_PLAN,
    PROBE_REFERENCE,
    PROBE_WARM,
    PROBE_COMPARE,
    PROBE_TIME,
    PROBE_CPU_OPEN,
    PROBE_CPU_TIME,
    PROBE_REPEAT,
    PROBE_MARGIN,
    PROBE_STEPS
};
const char *probe_step_name(enum probe_step s); /* "open", "plan", ... */
/* PROBE_STEPS: there is none of that name. */
enum probe_step probe_step_find(const char *name);

/* What is about to be done. */
struct probe_place {
    enum probe_step step;
    const char *package;  /* its path in the bundle; "" for all */
    const char *function; /* "" for the default one, and for all */
    uint32_t width;       /* 0: of no one width */
};

struct probe_conf {
    const struct backend *be;
    const struct backend *reference; /* computes what is right */
    struct backend_conf conf;        /* for both */
    /* Change *c so that the system uses its CPU only, whatever else it has.
     * NULL: that cannot be asked for, and is not measured. */
    void (*cpu_only)(struct backend_conf *c);
    struct msg_widths widths; /* only these; n 0: all that the engine may use */
    size_t first;             /* package to begin with: shards, then heads */
    /* Where other children were lost: what would get there is left out. */
    const struct probe_place *lost;
    size_t n_lost;
    /* If the packages' arith is one of these, nothing is measured. */
    const char *const *known;
    size_t n_known;
    /* Called before each step and, in a long one, before each prediction.
     * done: packages that are over, of `all`. Not 0: the probe ends with it. */
    int (*at)(void *ctx, const struct probe_place *p, size_t done, size_t all);
    /* Called with each function's result, then with its package's: objects as
     * probe_report.c makes them, taken over. Not 0: the probe ends with it. */
    int (*result)(void *ctx, struct json *j);
    void *ctx;
};

/* Measure the packages from conf->first on. A package that fails is a result,
 * not an error. *ret_known: the one of conf->known that it is; NULL: none.
 * Errors: those of bundle_open, NOMEM, and what `at` and `result` return. */
CHECKED int probe_run(const char *bundle_dir, const struct probe_conf *conf,
                      const char **ret_known, struct err *e);

/* How far apart the logit leads of the likeliest token are when the same text
 * runs as different widths: of all pairs of `layers` and of PROBE_MARGIN_ROWS
 * tokens the largest. Errors: those of engine_open and engine_eval, what `at`
 * returns. */
CHECKED int probe_margin(const char *bundle_dir, const struct probe_conf *conf,
                         const struct msg_widths *layers,
                         const struct msg_widths *heads, double *ret,
                         struct err *e);

/* Main function of the probe role: reads one frame on fd 3, answers, ends.
 * Returns the exit code.
 *
 *   FRAME_PROBE {"bundle": folder, "backend", "threads", "cache": folder,
 *     "widths": [..], "first": package, "lost": [place ..], "known": [text ..]}
 *     or {"bundle", "backend", "threads", "cache",
 *     "margin": {"layers", "heads"}}
 *   -> FRAME_PROGRESS {"package", "function", "width", "step", "slow",
 *     "fraction"}; slow: the step may take as long as a load
 *   -> FRAME_PROBE_RESULT {"function": {..}, "ops": [..]} or {"package": {..}}
 *   -> FRAME_PROBE_DONE {"known": text or null} or {"margin": number}
 *   -> FRAME_ERROR */
int probe_role(int argc, char **argv);
/* The same with these backends, for tests. conf->at may be NULL; else it is
 * called when the parent has been told. */
int probe_role_with(const struct probe_conf *conf);
