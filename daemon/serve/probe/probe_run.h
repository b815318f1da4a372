/* probe_run.h - a probe of one bundle: the children that measure it, and what
 * their results come to.
 *
 * A child tells each step before it begins it (engine/probe/probe.h). When one
 * ends without an answer, or says nothing for too long, the step becomes a
 * result, and the next child leaves it out; packages that were over stay. After
 * PROBE_LOST_MAX such children the probe is over with what it has.
 *
 * The verdict:
 *   passed   every width of every package computes what the reference does
 *   warned   it can be used, but not all of it, or not as well as hoped: widths
 *            left out, operations elsewhere, slower than the CPU alone
 *   failed   no width runs right in all packages
 *
 * Thread: the loop thread.
 */
#pragma once

#include <uv.h>

#include "proto/json.h"
#include "proto/msg.h"
#include "store/store.h"

struct probe_run;

struct probe_run_conf {
    uv_loop_t *loop;
    const char *program; /* NULL: aned itself */
    const char *bundle;  /* folder; copied */
    const char *backend; /* copied */
    uint32_t threads;
    /* For what the backend prepares; the engine's own, so that it finds it
     * there. Copied; NULL: none. */
    const char *cache;
    uint32_t time_out_ms; /* of a load, a plan, a warm-up; 0: ENGINE_WARM_MS */
    uint32_t step_ms;     /* of a prediction; 0: PROBE_STEP_MS */
    struct msg_widths widths; /* only these; n 0: all */
    /* Machines that there is a verdict for: on one of these the probe is over
     * at once. Copied, at most PROBE_KNOWN_MAX. */
    const char *const *known;
    size_t n_known;
    void *ctx;
    void (*on_progress)(void *ctx); /* may be NULL */
    /* Called once, never from inside probe_run_start. rc 0: probe_run_known or
     * probe_run_result has it. Errors: the probe could not measure: those of
     * bundle_open, UNSUPPORTED (no such backend), UNAVAILABLE, BACKEND (a child
     * was lost before its first step). */
    void (*on_over)(void *ctx, int rc, const struct err *e);
};

struct probe_run *probe_run_new(const struct probe_run_conf *c);
/* Ends its child; on_over is not called any more. NULL is fine. */
void probe_run_free(struct probe_run *r);
/* Begin, or go on with the package at which probe_run_pause ended it. Errors:
 * UNAVAILABLE. */
CHECKED int probe_run_start(struct probe_run *r, struct err *e);
void probe_run_pause(struct probe_run *r);
double probe_run_progress(const struct probe_run *r); /* 0..1 */
/* "layers_00_08.mlpackage t4: warm, width 4"; "" at first. */
const char *probe_run_stage(const struct probe_run *r);

/* After on_over with rc 0. The machine of conf.known that it is; else NULL, and
 * there is a result. */
const char *probe_run_known(const struct probe_run *r);
/* All but the fingerprint; borrowed until probe_run_free. */
const struct store_residency *probe_run_result(const struct probe_run *r);
/* {"layers": [..], "heads": [..]} of a record. Errors: STORE. */
CHECKED int probe_widths(const struct store_residency *v,
                         struct msg_widths *layers, struct msg_widths *heads,
                         struct err *e);
/* A record with its operations, as the API and `aned probe --json` show it. */
struct json *probe_record_json(const struct store_residency *v);
/* The same without report and operations. */
struct json *probe_summary_json(const struct store_residency *v);
