/* fault.h - how the stand-in behaves, and what it does wrong on purpose.
 *
 * The environment's ANED_STANDIN names a text file, "key = value" a line, '#'
 * begins a comment. It is read again at each compile, load, plan and
 * prediction when its size or time has changed, so a test can switch a running
 * daemon. No file: no faults, the defaults below. A key or value that is not
 * known ends the process with a message: a test must not run without its fault.
 *
 * Settings, one value each:
 *
 *   arith = fp16 | fp32   round each operation's result to fp16, as the Neural
 *                         Engine does (default), or compute in fp32
 *   threads = N           of the interpreter (1; 0: all cores)
 *   width_bits = W        results' last bits depend on the width of the
 *                         prediction; those of width W are the interpreter's.
 *                         0: they do not (default)
 *   load_ms = N           a load takes so long,
 *   shape_ms = N          and the first prediction of a shape, in each process,
 *   cache = FOLDER        unless this folder remembers that it was done
 *   neural_engine = 0|1   0: a machine without one
 *   os_build = TEXT       what is compiled under one build fails to load under
 *                         another, with error -14
 *   prints = 0|1          compiling writes a line to stdout, as Core ML does (1)
 *   counts = FILE         the counts are written there when this file is read
 *
 * Faults, as many as wanted: "KIND = MODEL OPTION...". MODEL is a pattern
 * (fnmatch) for the path of the compiled model or for that of the package it
 * was compiled from; '*' is every model. The first fault of its kind that
 * matches decides. Options:
 *
 *   function=NAME   only this function ("" is the default one, unnamed)
 *   from=K          the K-th time and later (1); counted since the file was read
 *   times=N         then N times only
 *   once=FILE       only the process that can create FILE: once in all processes
 *   ms=N            how long (slow faults)
 *   ops=NAME,...    which operations (plan_cpu; default: all)
 */
#pragma once

#include "base/base.h"

#define FAULT_MAP(XX)                                                      \
    XX(COMPILE_ERROR, "compile_error")   /* NSError */                     \
    XX(LOAD_ERROR, "load_error")         /* NSError with -14 */            \
    XX(LOAD_KILL, "load_kill")           /* SIGKILL */                     \
    XX(LOAD_HANG, "load_hang")           /* never comes back */            \
    XX(LOAD_ABORT, "load_abort")         /* C++ exception, other thread */ \
    XX(LOAD_EXCEPTION, "load_exception") /* NSException */                 \
    XX(PREDICT_ERROR, "predict_error")   /* NSError */                     \
    XX(PREDICT_EXCEPTION, "predict_exception")                             \
    XX(PREDICT_KILL, "predict_kill")                                       \
    XX(PREDICT_HANG, "predict_hang")                                       \
    XX(PREDICT_ABORT, "predict_abort")                                     \
    XX(PREDICT_SLOW, "predict_slow") /* ms=N */                            \
    XX(PREDICT_NAN, "predict_nan")   /* NaN in every output */             \
    XX(PLAN_CPU, "plan_cpu")         /* operations not on the ANE */       \
    XX(PLAN_ERROR, "plan_error")     /* NSError */                         \
    XX(BACKINGS_REFUSED, "backings_refused") /* NSError with any */ \
    XX(BACKINGS_IGNORED, "backings_ignored")

enum fault {
#define XX(name, text) FAULT_##name,
    FAULT_MAP(XX)
#undef XX
        FAULT_N
};

#define FAULT_PATH_MAX 1024
#define FAULT_TEXT_MAX 256

struct fault_conf {
    bool fp32;
    unsigned threads;
    int64_t width_bits;
    unsigned load_ms, shape_ms;
    char cache[FAULT_PATH_MAX]; /* "": none */
    bool neural_engine;
    char os_build[FAULT_TEXT_MAX];
    bool prints;
};

/* What a fault is asked about. */
struct fault_target {
    const char *path, *source; /* compiled, and the package; NULL: not known */
    const char *function;      /* NULL: the default one */
};

struct fault_hit {
    unsigned ms;
    char ops[FAULT_TEXT_MAX]; /* "": all */
};

/* Read the file again if it has changed, and give the settings. Thread: any. */
void si_fault_conf(struct fault_conf *ret);
/* Whether the fault happens now, to this target. ret may be NULL. Counts the
 * question, so ask once an occasion. Thread: any. */
bool si_fault_hit(enum fault f, const struct fault_target *t,
                  struct fault_hit *ret);
/* Sleep. */
void si_fault_sleep(unsigned ms);
