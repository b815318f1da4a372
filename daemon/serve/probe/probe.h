/* probe.h - measures models on the device of this machine before they are used,
 * and keeps what was found out.
 *
 * Only where [engine] backend is a device (runner_device): the Neural Engine
 * may refuse a model, compute it wrongly, or end the process that uses it. The
 * CPU backends are probed when a client asks, and loads never wait for it.
 *
 *   - Before the engine of a model starts that has no verdict for this machine:
 *     the load waits (AWAITING), the model is `loading`, its stage `probing`. A
 *     verdict `failed` makes the model `rejected`, with the reason; else the
 *     engine gets the widths that agree.
 *   - When a client asks.
 *   - Behind an update of the system, which changes `machine`: models with
 *     verdicts of another machine are measured again, one at a time, while
 *     nothing else is done. It is put off when a generation begins.
 *
 * Which machine this is, a child tells (probe_run.h), once in a run of the
 * daemon: only it calls the system's framework. If there is a verdict for the
 * machine it ends at once.
 *
 * A verdict counts when the store has it, or said that it cannot take it.
 *
 * Thread: the loop thread.
 */
#pragma once

#include "serve/probe/probe_run.h"

struct model;
struct models;
struct server;

enum probing { PROBING_REST, PROBING_QUEUED, PROBING_RUNNING };

struct probe { /* in struct model */
    enum probing state;
    bool asked;            /* a client asked: measure, whatever is known */
    bool again;            /* the next load does the same */
    bool rejected;         /* its state is REJECTED for its verdict */
    struct probe_run *run; /* goes on when it is this model's turn again */
    char *why; /* the last probe could not measure, or be stored; NULL */
};

/* Models are probed from now on; blocking, before the loop runs. Without this
 * call nothing ever is. */
void probes_start(struct models *ms);
/* What the store has of all bundles, newest first. */
void probes_load(struct models *ms, const struct store_residency *v, size_t n);
/* End the child and start no other. */
void probes_stop(struct models *ms);
void probes_free(struct models *ms); /* after the loop */

/* Call before m's engine starts. 1: m is measured first, and model_probed() is
 * called later, never from inside. 0: go on. Errors: REJECTED. */
CHECKED int probe_holds(struct model *m, struct err *e);
/* m was converted just now. A verdict that forbids its bundle may be of damaged
 * files of the same bundle: m is measured again before its first load. */
void probe_converted(struct model *m);
/* Measure m now. Errors: BUNDLE (it cannot be read), NOMEM (no room beside what
 * is loaded). */
CHECKED int probe_ask(struct model *m, struct err *e);
/* What the engine of m is told: the widths of its verdict; none without one. */
void probe_widths_of(const struct model *m, struct msg_widths *layers,
                     struct msg_widths *heads);
/* Call when the first generation of all models begins, and when the last one
 * ended. */
void probe_busy(struct models *ms);
/* Call before m is loaded: what is done in the background for other models
 * makes way. */
void probe_yield(const struct model *m);
/* Bytes that the probe at work may take. */
uint64_t probe_bytes(const struct models *ms);
/* Call before m is freed. */
void probe_forget(struct model *m);

/* The newest measured record of m's bundle on this backend: of this machine if
 * that is known; NULL. Borrowed until the loop's next turn. */
const struct store_residency *probe_verdict(const struct model *m);
/* The newest prediction of m's bundle; NULL. */
const struct store_residency *probe_prediction(const struct model *m);
/* Put {"state", "stage", "progress", ...} as member "probe" into o. */
void probe_put(struct json *o, const struct model *m);
