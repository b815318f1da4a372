/* store.c - the store thread, its queue, and the answers to the loop.
 *
 *   loop thread                       store thread
 *   store_*() --queue--> [mutex] --> take all, BEGIN, run each, COMMIT
 *   on_async  <--done--  [mutex] <-- uv_async_send
 *
 * Requests that wait at the same time are committed together: one sync makes
 * them all durable, and none is answered before it. The thread owns the
 * connection; a request belongs to one of the two threads at a time. */
#include "store/store.h"

#include <string.h>

#include "base/list.h"
#include "base/log.h"
#include "store/db.h"
#include "store/row.h"

#define STORE_MAGIC 0x73746f72u

enum kind {
    K_JOB_PUT,
    K_MODEL_PUT,
    K_PUBLISH,
    K_MODEL_DELETE,
    K_SESSION_PUT,
    K_SESSION_DELETE,
    K_JOBS,
    K_MODELS,
    K_ARTIFACTS,
    K_SESSIONS
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
    } fn;
    void *ctx;
    int status;
    struct err err;
    /* in: one record, owned; out: n of them */
    struct store_job *job_v;
    struct store_model *model_v;
    struct store_session *session_v;
    size_t n;
    struct store_artifact *artifacts; /* in: NULL leaves them; out: n of them */
    size_t n_artifacts;
    char name[MODEL_NAME_MAX + 1];
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

static void request_free(struct request *r)
{
    bool in = r->kind == K_JOB_PUT || r->kind == K_MODEL_PUT ||
              r->kind == K_PUBLISH || r->kind == K_SESSION_PUT;
    size_t n = in ? 1 : r->n;
    row_free_jobs(r->job_v, r->job_v != NULL ? n : 0);
    row_free_models(r->model_v, r->model_v != NULL ? n : 0);
    row_free_sessions(r->session_v, r->session_v != NULL ? n : 0);
    free(r->artifacts);
    free(r);
}

/* --- store thread --- */

static int put_model(struct db *d, struct request *r)
{
    return db_model_put(d, r->model_v, r->artifacts, r->n_artifacts, &r->err);
}

static int publish(struct db *d, struct request *r)
{
    RETERR(db_job_put(d, r->job_v, &r->err));
    return put_model(d, r);
}

static int run(struct db *d, struct request *r)
{
    switch (r->kind) {
    case K_JOB_PUT:
        return db_job_put(d, r->job_v, &r->err);
    case K_MODEL_PUT:
        return put_model(d, r);
    case K_PUBLISH:
        return publish(d, r);
    case K_MODEL_DELETE:
        return db_model_delete(d, r->name, &r->err);
    case K_SESSION_PUT:
        return db_session_put(d, r->session_v, &r->err);
    case K_SESSION_DELETE:
        return db_session_delete(d, r->name, &r->err);
    case K_ARTIFACTS:
        return db_artifacts(d, r->name, &r->artifacts, &r->n, &r->err);
    case K_SESSIONS:
        return db_sessions(d, &r->session_v, &r->n, &r->err);
    case K_JOBS:
        return db_jobs(d, r->limit, &r->job_v, &r->n, &r->err);
    case K_MODELS:
        return db_models(d, &r->model_v, &r->n, &r->err);
    default:
        return err_set(&r->err, ERR_INTERNAL, "store request %d", (int)r->kind);
    }
}

static void run_batch(struct db *d, struct list *batch)
{
    struct err e = {0};
    int rc = db_begin(d, &e);
    LIST_EACH(l, batch) {
        struct request *r = container_of(l, struct request, link);
        if (rc < 0) {
            break;
        }
        r->status = db_mark(d, &r->err);
        if (r->status == 0) {
            r->status = run(d, r);
            db_unmark(d, r->status == 0);
        }
    }
    if (rc == 0) {
        rc = db_commit(d, &e);
    }
    if (rc == 0) {
        return;
    }
    LIST_EACH(l, batch) { /* nothing of it is durable */
        struct request *r = container_of(l, struct request, link);
        if (r->status == 0) {
            r->status = rc;
            r->err = e;
        }
    }
}

static void move_all(struct list *from, struct list *to)
{
    LIST_EACH_SAFE(l, from) {
        list_del(l);
        list_push(to, l);
    }
}

static void thread_main(void *arg)
{
    struct store *s = arg;
    bool stop = false;
    while (!stop) {
        struct list batch;
        list_init(&batch);
        uv_mutex_lock(&s->mutex);
        while (list_empty(&s->queue) && !s->stop) {
            uv_cond_wait(&s->cond, &s->mutex);
        }
        stop = list_empty(&s->queue);
        move_all(&s->queue, &batch);
        uv_mutex_unlock(&s->mutex);
        if (!stop) {
            run_batch(s->db, &batch);
        } else {
            db_close(s->db);
        }
        uv_mutex_lock(&s->mutex);
        move_all(&batch, &s->done);
        s->finished = stop;
        uv_mutex_unlock(&s->mutex);
        must(uv_async_send(&s->async) == 0);
    }
}

/* --- loop thread --- */

static void deliver(const struct request *r)
{
    bool bad = r->status < 0;
    switch (r->kind) {
    case K_JOB_PUT:
    case K_MODEL_PUT:
    case K_PUBLISH:
    case K_MODEL_DELETE:
    case K_SESSION_PUT:
    case K_SESSION_DELETE:
        if (r->fn.done != NULL) {
            r->fn.done(r->ctx, r->status, &r->err);
        } else if (bad) { /* no caller will report it */
            log_error("store.write", "kind=%d error=%s text=\"%s\"",
                      (int)r->kind, err_name(r->status), r->err.msg);
        }
        return;
    case K_JOBS:
        r->fn.jobs(r->ctx, r->status, bad ? NULL : r->job_v, bad ? 0 : r->n);
        return;
    case K_MODELS:
        r->fn.models(r->ctx, r->status, bad ? NULL : r->model_v,
                     bad ? 0 : r->n);
        return;
    case K_ARTIFACTS:
        r->fn.artifacts(r->ctx, r->status, bad ? NULL : r->artifacts,
                        bad ? 0 : r->n);
        return;
    case K_SESSIONS:
        r->fn.sessions(r->ctx, r->status, bad ? NULL : r->session_v,
                       bad ? 0 : r->n);
        return;
    default:
        return;
    }
}

static void on_async_closed(uv_handle_t *h)
{
    struct store *s = uv_handle_get_data(h);
    void (*closed)(void *ctx) = s->closed;
    void *ctx = s->closed_ctx;
    uv_mutex_destroy(&s->mutex);
    uv_cond_destroy(&s->cond);
    s->magic = 0;
    free(s);
    if (closed != NULL) {
        closed(ctx);
    }
}

static void on_async(uv_async_t *a)
{
    struct store *s = uv_handle_get_data((uv_handle_t *)a);
    struct list done;

    must(s->magic == STORE_MAGIC);
    list_init(&done);
    uv_mutex_lock(&s->mutex);
    move_all(&s->done, &done);
    bool finished = s->finished;
    uv_mutex_unlock(&s->mutex);
    while (!list_empty(&done)) { /* a callback may ask again, or close */
        struct request *r = container_of(done.next, struct request, link);
        list_del(&r->link);
        s->waiting--;
        deliver(r);
        request_free(r);
    }
    if (finished) {
        must(uv_thread_join(&s->thread) == 0);
        uv_close((uv_handle_t *)a, on_async_closed);
    }
}

int store_open(uv_loop_t *loop, const char *path, struct store **ret,
               struct err *e)
{
    struct db *db = NULL;
    int rc = db_open(path, &db, e);
    if (rc < 0) {
        return rc;
    }
    struct store *s = calloc(1, sizeof(*s));
    must(s != NULL);
    s->magic = STORE_MAGIC;
    s->db = db;
    list_init(&s->queue);
    list_init(&s->done);
    must(uv_mutex_init(&s->mutex) == 0 && uv_cond_init(&s->cond) == 0 &&
         uv_async_init(loop, &s->async, on_async) == 0);
    uv_handle_set_data((uv_handle_t *)&s->async, s);
    must(uv_thread_create(&s->thread, thread_main, s) == 0);
    *ret = s;
    return 0;
}

void store_close(struct store *s, void (*closed)(void *ctx), void *ctx)
{
    must(s->magic == STORE_MAGIC && !s->closing);
    s->closing = true;
    s->closed = closed;
    s->closed_ctx = ctx;
    uv_mutex_lock(&s->mutex);
    s->stop = true;
    uv_cond_signal(&s->cond);
    uv_mutex_unlock(&s->mutex);
}

/* --- requests --- */

static int ask(struct store *s, enum kind kind, void *ctx, struct request **ret)
{
    must(s->magic == STORE_MAGIC);
    if (s->closing) {
        return ERR_UNAVAILABLE;
    }
    if (s->waiting >= STORE_QUEUE_MAX) {
        return ERR_BUSY;
    }
    struct request *r = calloc(1, sizeof(*r));
    must(r != NULL);
    r->kind = kind;
    r->ctx = ctx;
    *ret = r;
    return 0;
}

static int submit(struct store *s, struct request *r)
{
    s->waiting++;
    uv_mutex_lock(&s->mutex);
    list_push(&s->queue, &r->link);
    uv_cond_signal(&s->cond);
    uv_mutex_unlock(&s->mutex);
    return 0;
}

static bool fits(const char *text)
{
    return text == NULL || strlen(text) <= STORE_TEXT_MAX;
}

static bool job_fits(const struct store_job *j)
{
    return fits(j->spec) && fits(j->message) && fits(j->result);
}

static void take_job(struct request *r, const struct store_job *j)
{
    r->job_v = malloc(sizeof(*r->job_v));
    must(r->job_v != NULL);
    row_copy_job(r->job_v, j);
}

static void take_model(struct request *r, const struct store_model *m,
                       const struct store_artifact *a, size_t n_a)
{
    r->model_v = malloc(sizeof(*r->model_v));
    must(r->model_v != NULL);
    row_copy_model(r->model_v, m);
    if (a != NULL) {
        r->artifacts = calloc(n_a + 1, sizeof(*a)); /* never NULL for none */
        must(r->artifacts != NULL);
        memcpy(r->artifacts, a, n_a * sizeof(*a));
        r->n_artifacts = n_a;
    }
}

int store_job_put(struct store *s, const struct store_job *j,
                  store_done_fn *done, void *ctx)
{
    struct request *r = NULL;
    if (!job_fits(j)) {
        return ERR_TOO_BIG;
    }
    int rc = ask(s, K_JOB_PUT, ctx, &r);
    if (rc < 0) {
        return rc;
    }
    r->fn.done = done;
    take_job(r, j);
    return submit(s, r);
}

int store_model_put(struct store *s, const struct store_model *m,
                    const struct store_artifact *a, size_t n_a,
                    store_done_fn *done, void *ctx)
{
    struct request *r = NULL;
    if (!fits(m->reason) || !fits(m->gates)) {
        return ERR_TOO_BIG;
    }
    int rc = ask(s, K_MODEL_PUT, ctx, &r);
    if (rc < 0) {
        return rc;
    }
    r->fn.done = done;
    take_model(r, m, a, n_a);
    return submit(s, r);
}

int store_publish(struct store *s, const struct store_job *j,
                  const struct store_model *m, const struct store_artifact *a,
                  size_t n_a, store_done_fn *done, void *ctx)
{
    struct request *r = NULL;
    if (!job_fits(j) || !fits(m->reason) || !fits(m->gates)) {
        return ERR_TOO_BIG;
    }
    int rc = ask(s, K_PUBLISH, ctx, &r);
    if (rc < 0) {
        return rc;
    }
    r->fn.done = done;
    take_job(r, j);
    take_model(r, m, a, n_a);
    return submit(s, r);
}

int store_model_delete(struct store *s, const char *name, store_done_fn *done,
                       void *ctx)
{
    struct request *r = NULL;
    int rc = ask(s, K_MODEL_DELETE, ctx, &r);
    if (rc < 0) {
        return rc;
    }
    r->fn.done = done;
    (void)snprintf(r->name, sizeof(r->name), "%s", name);
    return submit(s, r);
}

int store_session_put(struct store *s, const struct store_session *v,
                      store_done_fn *done, void *ctx)
{
    struct request *r = NULL;
    int rc = ask(s, K_SESSION_PUT, ctx, &r);
    if (rc < 0) {
        return rc;
    }
    r->fn.done = done;
    r->session_v = malloc(sizeof(*r->session_v));
    must(r->session_v != NULL);
    row_copy_session(r->session_v, v);
    return submit(s, r);
}

int store_session_delete(struct store *s, const char *id, store_done_fn *done,
                         void *ctx)
{
    struct request *r = NULL;
    int rc = ask(s, K_SESSION_DELETE, ctx, &r);
    if (rc < 0) {
        return rc;
    }
    r->fn.done = done;
    (void)snprintf(r->name, sizeof(r->name), "%s", id);
    return submit(s, r);
}

int store_artifacts(struct store *s, const char *model, store_artifacts_fn *fn,
                    void *ctx)
{
    struct request *r = NULL;
    int rc = ask(s, K_ARTIFACTS, ctx, &r);
    if (rc < 0) {
        return rc;
    }
    r->fn.artifacts = fn;
    (void)snprintf(r->name, sizeof(r->name), "%s", model);
    return submit(s, r);
}

int store_sessions(struct store *s, store_sessions_fn *fn, void *ctx)
{
    struct request *r = NULL;
    int rc = ask(s, K_SESSIONS, ctx, &r);
    if (rc < 0) {
        return rc;
    }
    r->fn.sessions = fn;
    return submit(s, r);
}

int store_jobs(struct store *s, size_t limit, store_jobs_fn *fn, void *ctx)
{
    struct request *r = NULL;
    int rc = ask(s, K_JOBS, ctx, &r);
    if (rc < 0) {
        return rc;
    }
    r->fn.jobs = fn;
    r->limit = limit < JOBS_LISTED_MAX ? limit : JOBS_LISTED_MAX;
    return submit(s, r);
}

int store_models(struct store *s, store_models_fn *fn, void *ctx)
{
    struct request *r = NULL;
    int rc = ask(s, K_MODELS, ctx, &r);
    if (rc < 0) {
        return rc;
    }
    r->fn.models = fn;
    return submit(s, r);
}
