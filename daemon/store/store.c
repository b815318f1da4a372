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

#include "base/log.h"
#include "store/db.h"
#include "store/row.h"
#include "store/store_impl.h"

static void request_free(struct request *r)
{
    bool in = r->kind == K_JOB_PUT || r->kind == K_MODEL_PUT ||
              r->kind == K_PUBLISH || r->kind == K_SESSION_PUT ||
              r->kind == K_ANSWER_PUT || r->kind == K_RESIDENCY_PUT ||
              r->kind == K_QUALITY_PUT;
    size_t n = in ? 1 : r->n;
    row_free_jobs(r->job_v, r->job_v != NULL ? n : 0);
    row_free_models(r->model_v, r->model_v != NULL ? n : 0);
    row_free_sessions(r->session_v, r->session_v != NULL ? n : 0);
    row_free_answers(r->answer_v, r->answer_v != NULL ? n : 0);
    row_free_residency(r->residency_v, r->residency_v != NULL ? n : 0);
    row_free_quality(r->quality_v, r->quality_v != NULL ? n : 0);
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
    case K_ANSWER_PUT:
        return db_answer_put(d, r->answer_v, &r->err);
    case K_ANSWER_DELETE:
        return db_answer_delete(d, r->name, &r->err);
    case K_ANSWERS:
        return db_answers(d, &r->answer_v, &r->n, &r->err);
    case K_RESIDENCY_PUT:
        return db_residency_put(d, r->residency_v, &r->err);
    case K_RESIDENCY:
        return db_residency(d, r->name[0] != '\0' ? r->name : NULL,
                            &r->residency_v, &r->n, &r->err);
    case K_QUALITY_PUT:
        return db_quality_put(d, r->quality_v, &r->err);
    case K_QUALITY:
        return db_quality(d, r->name, &r->quality_v, &r->n, &r->err);
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
    case K_ANSWER_PUT:
    case K_ANSWER_DELETE:
    case K_RESIDENCY_PUT:
    case K_QUALITY_PUT:
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
    case K_ANSWERS:
        r->fn.answers(r->ctx, r->status, bad ? NULL : r->answer_v,
                      bad ? 0 : r->n);
        return;
    case K_RESIDENCY:
        r->fn.residency(r->ctx, r->status, bad ? NULL : r->residency_v,
                        bad ? 0 : r->n);
        return;
    case K_QUALITY:
        r->fn.quality(r->ctx, r->status, bad ? NULL : r->quality_v,
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
