/* jobs.h - the conversion queue: one worker at a time, durable records.
 *
 *   queued -> running -> gating -> done | failed
 *      |         |          |
 *      +---------+----------+--> cancelled        (interrupted: by a restart)
 *
 * What each step leaves behind when the daemon dies right after it is the
 * table of facts 5.2: a record that says running becomes queued again (or
 * interrupted after JOB_ATTEMPTS_MAX), home/staging is emptied, a bundle that
 * was published without its row is adopted.
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
/* What the store knows, newest first; resumes what is queued. */
void jobs_load(struct jobs *js, const struct store_job *v, size_t n);
/* The daemon drains: start nothing more, end the watches. */
void jobs_quiet(struct jobs *js);
/* Kill the worker, end the watches; its record stays `running` so that the
 * next start takes it up. `closed` when the worker is gone. */
void jobs_stop(struct jobs *js, void (*closed)(void *ctx), void *ctx);
void jobs_free(struct jobs *js); /* NULL is fine */

struct job_created {
    void (*fn)(struct job_created *c, int rc, const struct job *j);
};
/* A new job from the request's JSON ({source, name, quant, context, ...}, keys
 * as convert/convert.h, and force). fn when it is durable. Errors (fn is not
 * called; *param names the field): INVALID, UNSUPPORTED, EXISTS, BUSY. */
CHECKED int jobs_create(struct jobs *js, const struct json *spec,
                        struct job_created *c, const char **param,
                        struct err *e);
struct job *jobs_find(struct jobs *js, const char *id); /* NULL */
/* Newest first: for (j = jobs_first(js); j != NULL; j = jobs_next(j)). */
struct job *jobs_first(struct jobs *js);
struct job *jobs_next(struct job *j);
size_t jobs_waiting(const struct jobs *js);
bool jobs_running(const struct jobs *js);
/* Errors: CONFLICT (it has ended). */
CHECKED int job_cancel(struct job *j, struct err *e);
const struct store_job *job_row(const struct job *j);
bool job_over(const struct job *j);
/* The job as the API shows it; a new root. */
struct json *job_json(const struct job *j);
void job_watch(struct job *j, struct job_watch *w);
void job_unwatch(struct job_watch *w);
