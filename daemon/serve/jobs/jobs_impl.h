/* jobs_impl.h - shared by jobs.c (records, API), job_wish.c (requests) and
 * job_run.c (the worker). */
#pragma once

#include "serve/jobs/jobs.h"

struct job {
    struct list link; /* newest first */
    struct store_job row;
    struct list watches;
    struct jobs *of;
    bool durable; /* the store has it */
    bool cancelling;
    bool publishing;
    struct job_created *created; /* waits for the store */
    uint64_t told_us, saved_us;
};

struct jobs {
    struct server *srv;
    struct list all;
    size_t n;
    struct job *current; /* the one that runs; NULL */
    struct child *child; /* its worker */
    char staging[HOME_PATH_MAX];
    char bundle[HOME_PATH_MAX]; /* staging/bundle */
    struct json *result;        /* what the worker said at its end */
    struct err failure;         /* what it failed with; code 0 = nothing */
    struct work publish;
    int publish_rc;
    struct err publish_error;
    bool quiet;    /* start nothing more */
    bool stopping; /* and leave the record of what runs to the next start */
    bool choosing; /* jobs_next_run is at it */
    void (*closed)(void *ctx);
    void *ctx;
};

/* job_run.c */
void jobs_next_run(struct jobs *js); /* start the oldest waiting job */
void job_run_cancel(struct job *j);  /* the current one */

/* job_wish.c: what a request asks for, checked. Strings are the request's. */
struct job_wish {
    const char *source, *name, *quant, *shape, *kv, *profile, *norm;
    int64_t context, threads;
    double residual_scale;
    bool force;
};
/* Errors: INVALID, UNSUPPORTED; *param names the field. */
CHECKED int job_wish_read(const struct json *j, struct job_wish *w,
                          const char **param, struct err *e);
/* A descriptor, O_RDONLY, of a regular file. Errors: INVALID. */
CHECKED int job_open_source(const char *path, struct err *e);
/* The source's file name without ".gguf", made into a name; the result is
 * checked by the caller. */
void job_wish_name(const char *source, char out[MODEL_NAME_MAX + 1]);

/* jobs.c */
struct job *job_of(struct list *l);
void job_set(struct job *j, enum job_state s); /* traced; must be allowed */
void job_save(struct job *j);
void job_tell(struct job *j);
/* Terminal: record, tell, forget the watches. */
void job_finish(struct job *j, enum job_state s, int code, const char *msg);
void jobs_maybe_closed(struct jobs *js);
