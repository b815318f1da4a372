/* store.h - durable records: jobs, models, artifacts, sessions, reports. The
 * only room that knows SQL. It has one connection, on a thread of its own.
 *
 * Thread: call on the loop thread; calls return at once. Callbacks come on the
 * loop thread, after the data is durable (WAL, FULL). Records in callbacks are
 * borrowed for the call.
 */
#pragma once

#include <uv.h>

#include "base/err.h"
#include "proto/limits.h"

enum job_state {
    JOB_QUEUED,
    JOB_RUNNING,
    JOB_GATING,
    JOB_DONE,
    JOB_FAILED,
    JOB_CANCELLED,
    JOB_INTERRUPTED
};
const char *job_state_name(enum job_state s);
/* Whether the state machine allows this transition. */
bool job_state_allowed(enum job_state from, enum job_state to);

struct store_job {
    char id[40]; /* "job_" + 26 characters, time-ordered */
    enum job_state state;
    char *spec; /* JSON of the request: source, name, quant, ... */
    char name[MODEL_NAME_MAX + 1]; /* of the model it makes */
    char stage[32];
    double progress; /* 0..1 */
    char error[64];  /* wire name, "" when none */
    char *message;   /* for a person; NULL when none */
    char *result;    /* JSON: gates and sizes; NULL before the end */
    /* Fingerprint of the bundle that is about to be published; `result` has its
     * gates then. "" when none is (serve/jobs/jobs.h). */
    char intent[65];
    uint32_t attempts;
    int64_t created_ms, started_ms, finished_ms; /* Unix time; 0 = not yet */
};

struct store_model {
    char name[MODEL_NAME_MAX + 1];
    char fingerprint[65];
    char state[16]; /* "ready" | "rejected" | "failed" */
    char *reason;   /* NULL when ready */
    char job[40];
    char *gates; /* JSON array of {name, verdict, detail} */
    uint64_t bytes;
    int64_t created_ms, used_ms;
};

struct store_artifact {
    char model[MODEL_NAME_MAX + 1];
    char path[256];
    char sha256[65];
    uint64_t bytes;
};

/* A timeline that its client named (serve/gen/session.h). */
struct store_session {
    char id[40]; /* "ses_..." */
    char model[MODEL_NAME_MAX + 1];
    int32_t *tokens; /* NULL when there is none */
    uint32_t n;      /* at most MODEL_CONTEXT_MAX */
    bool pinned;
    int64_t created_ms, used_ms;
};

/* An answer that its client may go on from (serve/gen/answers.h). */
struct store_answer {
    char id[48];
    char *body; /* JSON */
    size_t body_n;
    char *talk; /* bytes of model/chat_talk.h */
    size_t talk_n;
    int64_t created_ms;
};

/* Operations of one function that are alike. */
struct store_residency_op {
    char package[256], function[128]; /* "" for the default one */
    char type[48];                    /* "softmax" */
    char device[16]; /* "neural_engine", "gpu", "cpu"; "unknown" if predicted */
    char could[40];  /* all devices that could, separated by spaces */
    uint32_t count;
    double cost;      /* their share of the function's, 0..1 */
    char example[96]; /* the name of one of them */
    /* Why it is not on the Neural Engine, if told; "" */
    char reason[PREDICT_REASON_MAX];
    char rule[32]; /* that a prediction is by; "" where measured */
};

/* Where the operations of a bundle run, and whether they run right. There is
 * one of each (fingerprint, kind, options, machine). */
struct store_residency {
    char fingerprint[65]; /* of the bundle */
    bool measured;        /* else predicted */
    /* On what: chip, system build, compute units, as backend_info.arith tells;
     * of a prediction the name of the profile. */
    char machine[ARITH_BYTES_MAX];
    char options[64]; /* what else it depends on: "backend=coreml" */
    char verdict[8];  /* "passed" | "warned" | "failed" */
    char *reason;     /* NULL when passed */
    char *widths;     /* JSON: {"layers": [..], "heads": [..]} that agree */
    char *report;     /* JSON: all the rest; NULL in lists */
    size_t n_ops;
    struct store_residency_op *ops; /* none in lists */
    int64_t created_ms;
};

/* How far a bundle is from the model it was made of (convert/quality). There is
 * one of each bundle. */
struct store_quality {
    char fingerprint[65];
    char verdict[8]; /* "passed" | "failed" | "not run" */
    char *report;    /* JSON */
    int64_t created_ms;
};

struct store;

/* Open or create home/aned.db, check its integrity, migrate it; blocking,
 * before the loop runs. A job found `running` or `gating` becomes `queued`
 * again, or `interrupted` after JOB_ATTEMPTS_MAX attempts. A job with an intent
 * keeps its state: whether its bundle was published is to be seen on disk.
 * Errors: STORE (with what to do next in the message), CONFLICT (locked),
 * CONFIG (written by a newer aned), NO_SPACE, IO. */
CHECKED int store_open(uv_loop_t *loop, const char *path, struct store **ret,
                       struct err *e);
/* Check the integrity of home/aned.db, which no daemon may have open; blocking.
 * Its records are not changed. Errors: NOT_FOUND, and as store_open. */
CHECKED int store_check(const char *path, struct err *e);
/* Finish and answer what is queued, then close and call `closed` on the loop.
 */
void store_close(struct store *s, void (*closed)(void *ctx), void *ctx);

typedef void store_done_fn(void *ctx, int status, const struct err *e);
typedef void store_jobs_fn(void *ctx, int status, const struct store_job *v,
                           size_t n);
typedef void store_models_fn(void *ctx, int status, const struct store_model *v,
                             size_t n);
typedef void store_artifacts_fn(void *ctx, int status,
                                const struct store_artifact *v, size_t n);
typedef void store_sessions_fn(void *ctx, int status,
                               const struct store_session *v, size_t n);
typedef void store_answers_fn(void *ctx, int status,
                              const struct store_answer *v, size_t n);
typedef void store_residency_fn(void *ctx, int status,
                                const struct store_residency *v, size_t n);
typedef void store_quality_fn(void *ctx, int status,
                              const struct store_quality *v, size_t n);

/* Writes. Records are copied. done may be NULL. Errors of the call (done is not
 * called then): BUSY when STORE_QUEUE_MAX requests wait, TOO_BIG, UNAVAILABLE
 * after store_close. Errors of done: CONFLICT when the state machine does not
 * allow the job's new state, NO_SPACE, STORE. store_model_put replaces the
 * model's artifacts by the n_a of `a`; when `a` is NULL, they stay. */
CHECKED int store_job_put(struct store *s, const struct store_job *j,
                          store_done_fn *done, void *ctx);
CHECKED int store_model_put(struct store *s, const struct store_model *m,
                            const struct store_artifact *a, size_t n_a,
                            store_done_fn *done, void *ctx);
/* Both records, or none of them. */
CHECKED int store_publish(struct store *s, const struct store_job *j,
                          const struct store_model *m,
                          const struct store_artifact *a, size_t n_a,
                          store_done_fn *done, void *ctx);
/* Delete a model, its artifacts and its sessions; the reports of its bundle
 * unless another model is the same bundle. */
CHECKED int store_model_delete(struct store *s, const char *name,
                               store_done_fn *done, void *ctx);
CHECKED int store_session_put(struct store *s, const struct store_session *v,
                              store_done_fn *done, void *ctx);
CHECKED int store_session_delete(struct store *s, const char *id,
                                 store_done_fn *done, void *ctx);
CHECKED int store_answer_put(struct store *s, const struct store_answer *v,
                             store_done_fn *done, void *ctx);
CHECKED int store_answer_delete(struct store *s, const char *id,
                                store_done_fn *done, void *ctx);
/* In the place of the one with the same key. Of more than RESIDENCY_KEPT_MAX
 * of a bundle and a kind the oldest go. A prediction whose bundle is no model's,
 * and no job is about to publish, goes at the next start. */
CHECKED int store_residency_put(struct store *s,
                                const struct store_residency *v,
                                store_done_fn *done, void *ctx);
/* In the place of the bundle's last one. One whose bundle is no model's, and no
 * job is about to publish, goes at the next start. */
CHECKED int store_quality_put(struct store *s, const struct store_quality *v,
                              store_done_fn *done, void *ctx);
/* Reads, newest first. */
CHECKED int store_jobs(struct store *s, size_t limit, store_jobs_fn *fn,
                       void *ctx);
CHECKED int store_models(struct store *s, store_models_fn *fn, void *ctx);
/* The artifacts of one model, ordered by path. */
CHECKED int store_artifacts(struct store *s, const char *model,
                            store_artifacts_fn *fn, void *ctx);
CHECKED int store_sessions(struct store *s, store_sessions_fn *fn, void *ctx);
/* Oldest first. */
CHECKED int store_answers(struct store *s, store_answers_fn *fn, void *ctx);
/* Those of one bundle, whole; of all bundles (fingerprint NULL) without report
 * and ops. */
CHECKED int store_residency(struct store *s, const char *fingerprint,
                            store_residency_fn *fn, void *ctx);
/* That of one bundle: one, or none. */
CHECKED int store_quality(struct store *s, const char *fingerprint,
                          store_quality_fn *fn, void *ctx);

/* A new job id: 48 bits of Unix milliseconds and 80 random bits, Crockford
 * base 32, so that ids sort by time. */
void store_new_id(const char *prefix, char out[40]);
