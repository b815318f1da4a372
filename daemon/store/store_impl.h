/* store_impl.h - shared by store.c (the thread and its answers) and
 * store_ask.c (what is asked of it). */
#pragma once

#include "base/list.h"
#include "store/store.h"

#define STORE_MAGIC 0x73746f72u

enum kind {
    K_JOB_PUT,
    K_MODEL_PUT,
    K_PUBLISH,
    K_MODEL_DELETE,
    K_SESSION_PUT,
    K_SESSION_DELETE,
    K_ANSWER_PUT,
    K_ANSWER_DELETE,
    K_RESIDENCY_PUT,
    K_QUALITY_PUT,
    K_JOBS,
    K_MODELS,
    K_ARTIFACTS,
    K_SESSIONS,
    K_ANSWERS,
    K_RESIDENCY,
    K_QUALITY
};

struct request {
    struct list link;
    enum kind kind;
    union {
        store_done_fn *done;
        store_jobs_fn *jobs;
        store_models_fn *models;
        store_artifacts_fn *artifacts;
        store_sessions_fn *sessions;
        store_answers_fn *answers;
        store_residency_fn *residency;
        store_quality_fn *quality;
    } fn;
    void *ctx;
    int status;
    struct err err;
    /* in: one record, owned; out: n of them */
    struct store_job *job_v;
    struct store_model *model_v;
    struct store_session *session_v;
    struct store_answer *answer_v;
    struct store_residency *residency_v;
    struct store_quality *quality_v;
    size_t n;
    struct store_artifact *artifacts; /* in: NULL leaves them; out: n of them */
    size_t n_artifacts;
    char name[MODEL_NAME_MAX + 1]; /* or a fingerprint; "" for all */
    size_t limit;
};

struct store {
    uint32_t magic;
    uv_async_t async;
    uv_thread_t thread;
    uv_mutex_t mutex; /* guards queue, done, stop, finished */
    uv_cond_t cond;
    struct list queue, done;
    bool stop, finished;
    struct db *db;  /* the thread's */
    size_t waiting; /* the loop's: asked, not answered */
    bool closing;   /* the loop's */
    void (*closed)(void *ctx);
    void *closed_ctx;
};
