/* store_ask.c - what the loop asks of the store: a request is checked, copied
 * and queued. See store.h. */
#include <string.h>

#include "store/row.h"
#include "store/store_impl.h"

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

int store_answer_put(struct store *s, const struct store_answer *v,
                     store_done_fn *done, void *ctx)
{
    struct request *r = NULL;
    if (v->body_n > STORE_TEXT_MAX || v->talk_n > STORE_TEXT_MAX) {
        return ERR_TOO_BIG;
    }
    int rc = ask(s, K_ANSWER_PUT, ctx, &r);
    if (rc < 0) {
        return rc;
    }
    r->fn.done = done;
    r->answer_v = malloc(sizeof(*r->answer_v));
    must(r->answer_v != NULL);
    row_copy_answer(r->answer_v, v);
    return submit(s, r);
}

int store_answer_delete(struct store *s, const char *id, store_done_fn *done,
                        void *ctx)
{
    struct request *r = NULL;
    int rc = ask(s, K_ANSWER_DELETE, ctx, &r);
    if (rc < 0) {
        return rc;
    }
    r->fn.done = done;
    (void)snprintf(r->name, sizeof(r->name), "%s", id);
    return submit(s, r);
}

int store_answers(struct store *s, store_answers_fn *fn, void *ctx)
{
    struct request *r = NULL;
    int rc = ask(s, K_ANSWERS, ctx, &r);
    if (rc < 0) {
        return rc;
    }
    r->fn.answers = fn;
    return submit(s, r);
}

int store_residency_put(struct store *s, const struct store_residency *v,
                        store_done_fn *done, void *ctx)
{
    struct request *r = NULL;
    if (!fits(v->reason) || !fits(v->widths) || !fits(v->report) ||
        v->n_ops > RESIDENCY_OPS_MAX) {
        return ERR_TOO_BIG;
    }
    int rc = ask(s, K_RESIDENCY_PUT, ctx, &r);
    if (rc < 0) {
        return rc;
    }
    r->fn.done = done;
    r->residency_v = malloc(sizeof(*r->residency_v));
    must(r->residency_v != NULL);
    row_copy_residency(r->residency_v, v);
    return submit(s, r);
}

int store_residency(struct store *s, const char *fingerprint,
                    store_residency_fn *fn, void *ctx)
{
    struct request *r = NULL;
    int rc = ask(s, K_RESIDENCY, ctx, &r);
    if (rc < 0) {
        return rc;
    }
    r->fn.residency = fn;
    (void)snprintf(r->name, sizeof(r->name), "%s",
                   fingerprint != NULL ? fingerprint : "");
    return submit(s, r);
}

int store_quality_put(struct store *s, const struct store_quality *v,
                      store_done_fn *done, void *ctx)
{
    struct request *r = NULL;
    if (!fits(v->report)) {
        return ERR_TOO_BIG;
    }
    int rc = ask(s, K_QUALITY_PUT, ctx, &r);
    if (rc < 0) {
        return rc;
    }
    r->fn.done = done;
    r->quality_v = malloc(sizeof(*r->quality_v));
    must(r->quality_v != NULL);
    row_copy_quality(r->quality_v, v);
    return submit(s, r);
}

int store_quality(struct store *s, const char *fingerprint,
                  store_quality_fn *fn, void *ctx)
{
    struct request *r = NULL;
    int rc = ask(s, K_QUALITY, ctx, &r);
    if (rc < 0) {
        return rc;
    }
    r->fn.quality = fn;
    (void)snprintf(r->name, sizeof(r->name), "%s", fingerprint);
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
