/* jobs_impl.h - shared by jobs.c (list, API), job_record.c (durable changes),
 * job_cancel.c, job_wish.c (requests), job_run.c (from step to step),
 * job_worker.c (the step that converts), job_work.c (its folder afterwards),
 * job_publish.c (those that publish) and job_quality.c (the quality report;
 * accepted gates). */
#pragma once

#include "convert/work.h"
#include "serve/child.h"
#include "serve/jobs/jobs.h"
#include "serve/probe/predicted.h"

enum job_step {
    STEP_BEGIN,
    STEP_CONVERT,
    STEP_EXAMINE,
    STEP_INTENT,
    STEP_RENAME,
    STEP_COMMIT,
    STEP_FAIL,
    STEP_COUNT
};

/* Name of a folder in staging/: "work-" and 32 hex digits. */
#define WORK_HOME_CHARS (sizeof(WORK_HOME_PREFIX) + 32u)

struct record; /* what the store is writing */

struct job {
    struct list link;     /* newest first */
    struct store_job row; /* as it is shown */
    struct list watches;
    struct jobs *of;
    int priority;    /* of the request, which is kept in row.spec */
    bool durable;    /* the store has it */
    bool cancelling; /* the store has that it is cancelled; it is still at it */
    bool discard;    /* and its work is not wanted again */
    bool resumes;    /* published before a restart: goes on at commit */
    struct job_created *created; /* waits for the source and the store */
    struct record *record;       /* on its way; NULL */
    struct list cancels; /* struct job_cancel: wait for it to be durable */
    uint64_t told_us, saved_us;
};

struct jobs {
    struct server *srv;
    struct list all;
    size_t n;
    struct job *current; /* the one that runs; NULL */
    /* its step */
    enum job_step step;
    bool entering; /* it is being begun */
    bool over;     /* it has ended, with rc and why */
    int rc;
    struct err why;
    uv_timer_t retry; /* begins it again */
    bool timing;      /* the timer's handle is open */
    /* what the steps make */
    struct json *spec;   /* of the current job, for its worker */
    int source;          /* descriptor for its worker; -1 */
    struct child *child; /* its worker */
    char staging[HOME_PATH_MAX]; /* "" until it is known */
    char bundle[HOME_PATH_MAX];  /* staging/JOB */
    char origin[HOME_PATH_MAX]; /* the model that it is made of; "": a source */
    struct json *result;        /* what the worker said at its end */
    struct predicted *predicted; /* and before; NULL: nothing */
    struct json *quality;        /* the report; NULL: none came */
    struct err failure;    /* of the worker, then of the job; code 0: none */
    char fingerprint[65];  /* of the bundle in staging */
    bool renaming;         /* the folder may have left staging */
    void (*unpublished)(struct jobs *js); /* goes on when it is back there */
    struct bundle *published; /* of the folder, opened where it is now */
    struct model *model;   /* to be committed; may not be listed yet */
    struct store_job last; /* what a cancelled job is shown as at its end */
    struct work work;      /* on the file thread */
    bool working;          /* it goes on */
    int work_rc;
    struct err work_error;
    size_t n_checks; /* new jobs whose source is being looked at */
    bool quiet;    /* start nothing more */
    bool stopping; /* and leave the record of what runs to the next start */
    bool choosing; /* jobs_next_run is at it */
    void (*closed)(void *ctx);
    void *ctx;
};

/* job_record.c */
/* The record is durable (rc 0), or all is as it was. `row` is the record: what
 * fn does not adopt is freed after it. */
typedef void record_fn(struct job *j, int rc, const struct err *e,
                       struct store_job *row);
/* A copy of the job's row to be changed and recorded; without a message. */
void job_next_row(const struct job *j, struct store_job *ret);
/* Give `row`, which is used up, to the store: with m's row and artifacts, if
 * there is one, all or nothing. One at a time (j->record). Errors (fn is not
 * called): BUSY, TOO_BIG, UNAVAILABLE. */
CHECKED int job_record(struct job *j, struct store_job *row,
                       const struct model *m, record_fn *fn, struct err *e);
/* The row becomes what is shown; strings move over. */
void job_adopt(struct job *j, struct store_job *row);
/* Stage and progress; nobody waits for it. */
void job_save(struct job *j);

/* job_run.c */
/* Start the oldest of the waiting jobs with the highest priority. */
void jobs_next_run(struct jobs *js);
/* The current job's step is over; e says why when rc < 0. */
void step_over(struct jobs *js, int rc, const struct err *e);
/* A step that is one record: over when it is durable. */
void step_record(struct jobs *js, struct store_job *row, const struct model *m);
/* A step that is done by `run` on the file thread; `done` calls step_over. */
void step_work(struct jobs *js, void (*run)(struct work *w),
               void (*done)(struct work *w));
/* The next step, where nothing that goes on forbids it. */
void job_advance(struct jobs *js);

/* job_worker.c */
void step_convert(struct jobs *js);

/* job_work.c */
/* The current job is over: its folder goes, or, with `keep`, what a later
 * conversion can go on with stays. */
void job_leave_work(struct jobs *js, bool keep);

/* job_cancel.c */
/* Record that j is cancelled; those that wait are told. false: the store does
 * not take it, and they were told. */
bool job_write_cancel(struct job *j);
void job_cancels_told(struct job *j, int rc, const struct err *e);

/* job_publish.c: four steps, and what a start needs of them */
void step_examine(struct jobs *js);
void step_intent(struct jobs *js);
void step_rename(struct jobs *js);
void step_commit(struct jobs *js);
/* The current job fails: its folder goes back to staging if it was taken out,
 * then `over`, or the step's end where that cannot be done now. */
void job_unpublish(struct jobs *js, void (*over)(struct jobs *js));
/* After a start: the model that the job's intent speaks of; or NULL. */
struct model *job_published(const struct job *j);
/* Tell m what the job's gates said. */
void job_judge(const struct job *j, struct model *m);

/* job_wish.c: what a request asks for, checked. Strings are the request's. */
struct job_wish {
    const char *source, *name, *quant, *head_quant, *shape, *kv, *profile;
    const char *norm, *calibrate, *calibration, *output, *experts;
    const char *chat_template;
    const char *reshard; /* a model, in place of a source; NULL */
    int64_t context, threads;
    double residual_scale;
    int64_t target_bytes;
    double target_kl;
    int priority;
    bool import; /* the source is a manifest of packages */
    const char *tokenizer;
};
/* The request's "priority": a word, or -JOB_PRIORITY_MAX to JOB_PRIORITY_MAX;
 * absent is 0. Errors: INVALID. */
CHECKED int job_wish_priority(const struct json *j, int *ret, struct err *e);
/* Errors: INVALID, UNSUPPORTED; *param names the field. */
CHECKED int job_wish_read(const struct json *j, struct job_wish *w,
                          const char **param, struct err *e);
/* A descriptor, O_RDONLY, of a regular file; on the file thread, for it may
 * block. what: the field that names it. Errors: INVALID. */
CHECKED int job_open_file(const char *path, const char *what, struct err *e);
/* The same of a source: a regular file, or a folder of them. */
CHECKED int job_open_source(const char *path, struct err *e);
/* The source's name (source_stem), or as import_name has it, made into a name;
 * the result is checked by the caller. */
void job_wish_name(const struct job_wish *w, char out[MODEL_NAME_MAX + 1]);

/* job_quality.c */
/* Errors: FRAME: no verdict that is known, or the second one. */
CHECKED int job_quality_take(struct jobs *js, const struct json *report);
/* Give it to the store, before the intent. None, or one that the store does not
 * take, is no reason to end a job: that is logged. */
void job_quality_save(const struct jobs *js);
/* A request's "accept": names of gates whose failure does not reject the model;
 * absent is none. Errors: INVALID, naming what is not such a gate. */
CHECKED int job_accept_check(const struct json *list, struct err *e);
bool job_accepts(const struct json *spec, const char *gate);

/* jobs.c */
struct job *job_of(struct list *l);
void job_set(struct job *j, enum job_state s); /* traced; must be allowed */
void job_tell(struct job *j);
/* The row is in its last state, durably: count it, tell, forget the watches. */
void job_ended(struct job *j);
void jobs_maybe_closed(struct jobs *js);
