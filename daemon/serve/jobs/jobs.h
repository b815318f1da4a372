/* jobs.h - the conversion queue: one worker at a time, the job of the highest
 * priority next and of these the oldest; durable records.
 *
 *   queued -> running -> gating -> done | failed
 *      |         |          |
 *      +---------+----------+--> cancelled        (interrupted: by a restart)
 *
 * A state is shown when the store has it; `stage` and `progress` run ahead.
 * The steps of a job and what a crash after each leaves (steps[] of job_run.c):
 *
 *   step      does                                  the next start finds
 *   begin     record: running, one attempt more     running: queued again, or
 *   convert   the worker fills staging/WORK/JOB       interrupted after
 *   examine   the bundle is whole; its fingerprint    JOB_ATTEMPTS_MAX; what is
 *                                                     on record stays and is
 *                                                     gone on with
 *   intent    record: gating, the gates' results,   intent, no such folder: as
 *             the fingerprint                         above
 *   rename    sync, then staging/WORK/JOB           intent, and the folder with
 *             becomes models/NAME                     its fingerprint: judged by
 *                                                     its gates, goes to commit
 *   commit    record, all in one: model,            done
 *             artifacts, job done
 *   fail      record: failed or interrupted         the same
 *
 * A worker that dies (killed, or no memory) is one attempt; the next begins at
 * once. WORK is named after what was asked for (job_worker.c), so that a later
 * request for the same finds what a cancelled job or a full disk left; a job
 * that is done, or failed for a reason that lies in the request or the source,
 * leaves nothing.
 *
 * A record that the store refuses for want of room is tried again every
 * JOB_RETRY_MS: the job goes on when there is room.
 * Thread: the loop thread.
 */
#pragma once

#include "proto/json.h"
#include "serve/engines/models.h"

struct job;

/* Follows a job; embedded in who follows. fn is called after every change
 * that is worth telling (at most a few a second) and at the end, with `last`;
 * then the watch is off. */
struct job_watch {
    struct list link;
    struct job *job; /* NULL: not watching */
    void (*fn)(struct job_watch *w, const struct job *j, bool last);
};

CHECKED int jobs_new(struct server *s, struct jobs **ret);
/* What the store knows, newest first, after models_merge: finds out what a
 * crash left of those with an intent, and resumes what is queued. */
void jobs_load(struct jobs *js, const struct store_job *v, size_t n);
/* The daemon drains: start nothing more, end the watches. */
void jobs_quiet(struct jobs *js);
/* Kill the worker, end the watches; its record stays `running` so that the
 * next start takes it up. `closed` when the worker is gone. */
void jobs_stop(struct jobs *js, void (*closed)(void *ctx), void *ctx);
void jobs_free(struct jobs *js); /* NULL is fine */

/* Waits for a job to be made; embedded in who waits. */
struct job_created {
    /* rc: 0, INVALID (of field `param`: there is no such source), BUSY, or what
     * the store said; then there is no such job any more. */
    void (*fn)(struct job_created *c, int rc, const char *param,
               const struct err *e, const struct job *j);
};
/* A new job from the request's JSON ({source, name, quant, context, ...}, keys
 * as convert/convert.h, and force and priority). fn when its source was looked
 * at and it is durable. Errors (fn is not called; *param names the field):
 * INVALID, UNSUPPORTED, EXISTS, BUSY. */
CHECKED int jobs_create(struct jobs *js, const struct json *spec,
                        struct job_created *c, const char **param,
                        struct err *e);
struct job *jobs_find(struct jobs *js, const char *id); /* NULL */
/* Newest first: for (j = jobs_first(js); j != NULL; j = jobs_next(j)). */
struct job *jobs_first(struct jobs *js);
struct job *jobs_next(struct job *j);
size_t jobs_waiting(const struct jobs *js);
bool jobs_running(const struct jobs *js);
/* Waits for a cancellation to be durable; embedded in who waits. Then the job
 * does not run again, even if its worker has still to leave. */
struct job_cancel {
    struct list link;
    bool discard; /* what was made goes too, in place of waiting for the same
                     request to come again */
    /* rc: 0, or what the store said: then the job goes on. */
    void (*fn)(struct job_cancel *c, int rc, const struct err *e,
               const struct job *j);
};
/* Errors (fn is not called): CONFLICT (it has ended, or its model is being
 * published), UNAVAILABLE. */
CHECKED int job_cancel(struct job *j, struct job_cancel *c, struct err *e);
const struct store_job *job_row(const struct job *j);
bool job_over(const struct job *j);
/* The job as the API shows it; a new root. */
struct json *job_json(const struct job *j);
void job_watch(struct job *j, struct job_watch *w);
void job_unwatch(struct job_watch *w);
