/* job_run.c - one job at a time, step by step: the table, and the first and the
 * last step (that converts: job_worker.c; those that publish: job_publish.c).
 *
 *   enter --...--> step_over --> job_advance --> enter the next one
 *                                 |   \-- cancelled meanwhile: leave
 *                                 \-- no room in the store: again, later
 *
 * A step is entered when nothing of the last one goes on. Its end may come from
 * inside of enter(); job_advance() is a loop for that. */
#include "base/log.h"
#include "serve/jobs/jobs_impl.h"
#include "store/row.h"

static void step_begin(struct jobs *js);
static void step_fail(struct jobs *js);

/* What a crash after each leaves: jobs.h. */
static const struct {
    const char *name;
    void (*enter)(struct jobs *js);
    enum { NEVER, ROOM, ALWAYS } again; /* after a failure; else: fail */
    enum job_step next;                 /* STEP_COUNT: the job is over */
} steps[STEP_COUNT] = {
    [STEP_BEGIN] = {"begin", step_begin, ROOM, STEP_CONVERT},
    [STEP_CONVERT] = {"convert", step_convert, NEVER, STEP_EXAMINE},
    [STEP_EXAMINE] = {"examine", step_examine, NEVER, STEP_INTENT},
    [STEP_INTENT] = {"intent", step_intent, ROOM, STEP_RENAME},
    [STEP_RENAME] = {"rename", step_rename, NEVER, STEP_COMMIT},
    [STEP_COMMIT] = {"commit", step_commit, ALWAYS, STEP_COUNT},
    [STEP_FAIL] = {"fail", step_fail, ALWAYS, STEP_COUNT},
};

/* --- from step to step --- */

static void enter(struct jobs *js)
{
    js->entering = true;
    steps[js->step].enter(js);
    js->entering = false;
}

/* What the worker said does not count: the next one says it again. */
static void worker_forget(struct jobs *js)
{
    json_free(js->result);
    json_free(js->quality);
    predicted_free(js->predicted);
    js->result = js->quality = NULL;
    js->predicted = NULL;
    js->failure = (struct err){0};
}

/* Is it worth while to ask for the same again? Code 0: it was cancelled. */
static bool can_go_on(int code)
{
    return code == 0 || code == ERR_CANCELLED || code == ERR_NO_SPACE ||
           code == ERR_IO || code == ERR_NOMEM || code == ERR_STORE ||
           code == ERR_INTERRUPTED;
}

/* The current job has its last record. */
static void leave(struct jobs *js)
{
    struct job *j = js->current;
    bool keep = js->step == STEP_FAIL && can_go_on(js->failure.code) &&
                !(j->cancelling && j->discard);
    if (js->step == STEP_COMMIT) {
        js->model->adopted = false; /* its row is there */
        if (!model_listed(js->model)) {
            models_list(js->model);
        }
        js->model = NULL;
    }
    js->current = NULL;
    js->renaming = false;
    j->resumes = false;
    j->cancelling = false;
    json_free(js->spec);
    js->spec = NULL;
    worker_forget(js);
    job_leave_work(js, keep);
    job_ended(j);
}

static void on_retry(uv_timer_t *t)
{
    struct jobs *js = container_of(t, struct jobs, retry);
    enter(js);
    job_advance(js);
}

/* Show why nothing happens, and wait. */
static void wait_for_room(struct jobs *js)
{
    struct job *j = js->current;
    char text[ERR_MSG_MAX + 64];
    (void)snprintf(text, sizeof(text), "waits to be recorded: %s", js->why.msg);
    free(j->row.message);
    j->row.message = row_dup(text);
    must(uv_timer_start(&js->retry, on_retry, JOB_RETRY_MS, 0) == 0);
    job_tell(j);
}

/* The step failed: which is next, STEP_COUNT when it is to be tried again later.
 * A worker that died (it was killed, or memory ran out) gets a successor, which
 * goes on from its records. */
static enum job_step after_failure(struct jobs *js)
{
    int rc = js->rc;
    bool room = rc == ERR_NO_SPACE || rc == ERR_STORE || rc == ERR_BUSY;
    if (steps[js->step].again == ALWAYS ||
        (steps[js->step].again == ROOM && room)) {
        wait_for_room(js);
        return STEP_COUNT;
    }
    if (js->step == STEP_CONVERT && rc == ERR_WORKER_LOST) {
        if (js->current->row.attempts < JOB_ATTEMPTS_MAX) {
            log_warn("convert_again", "job=%s attempts=%u error=%s",
                     js->current->row.id, (unsigned)js->current->row.attempts,
                     js->why.msg);
            worker_forget(js);
            return STEP_BEGIN;
        }
        struct err why = js->why;
        (void)err_set(&js->why, rc, "%.300s, %u times", why.msg,
                      JOB_ATTEMPTS_MAX);
    }
    js->failure = js->why;
    js->failure.code = rc;
    return STEP_FAIL;
}

void job_advance(struct jobs *js)
{
    while (js->over && !js->stopping && js->current->record == NULL) {
        struct job *j = js->current;
        enum job_step next = steps[js->step].next;
        if (!j->cancelling && !list_empty(&j->cancels) && next != STEP_COUNT) {
            (void)job_write_cancel(j);
            continue;
        }
        js->over = false;
        if (j->cancelling) {
            job_adopt(j, &js->last);
            js->step = STEP_FAIL;
            leave(js);
            break;
        }
        if (js->rc == 0 && next == STEP_COUNT) {
            leave(js);
            break;
        }
        next = js->rc == 0 ? next : after_failure(js);
        if (next == STEP_COUNT) {
            break; /* on_retry goes on */
        }
        js->step = next;
        log_debug("job_step", "job=%s step=%s", j->row.id, steps[next].name);
        enter(js);
    }
    if (js->current == NULL) {
        jobs_next_run(js);
    }
}

void step_over(struct jobs *js, int rc, const struct err *e)
{
    js->over = true;
    js->rc = rc;
    js->why = (struct err){0};
    if (rc != 0) {
        (void)err_set(&js->why, rc, "%s", e->msg);
    }
    if (!js->entering) {
        job_advance(js);
    }
    jobs_maybe_closed(js);
}

/* --- the steps --- */

static void on_step_recorded(struct job *j, int rc, const struct err *e,
                             struct store_job *row)
{
    if (rc == 0) {
        job_adopt(j, row);
        if (!job_over(j)) {
            job_tell(j);
        }
    }
    step_over(j->of, rc, e);
}

void step_record(struct jobs *js, struct store_job *row, const struct model *m)
{
    struct err e = {0};
    int rc = job_record(js->current, row, m, on_step_recorded, &e);
    if (rc != 0) {
        step_over(js, rc, &e);
    }
}

void step_work(struct jobs *js, void (*run)(struct work *w),
               void (*done)(struct work *w))
{
    struct err e = {0};
    js->work.run = run;
    js->work.done = done;
    js->work_rc = 0;
    js->work_error = (struct err){0};
    js->working = true;
    int rc = workq_put(js->srv->files, &js->work);
    if (rc != 0) {
        js->working = false;
        (void)err_set(&e, rc, "too many files are being worked on");
        step_over(js, rc, &e);
    }
}

static void step_begin(struct jobs *js)
{
    struct store_job row;
    struct err e = {0};
    job_next_row(js->current, &row);
    if (row.attempts >= JOB_ATTEMPTS_MAX) {
        row_free_strings(&row);
        step_over(js,
                  err_set(&e, ERR_INTERRUPTED,
                          "the daemon or its converter ended while the job "
                          "ran, %u times",
                          JOB_ATTEMPTS_MAX),
                  &e);
        return;
    }
    row.state = JOB_RUNNING;
    row.attempts++;
    row.started_ms = server_unix_ms();
    row.progress = 0;
    row.intent[0] = '\0'; /* of a bundle that was not published */
    (void)snprintf(row.stage, sizeof(row.stage), "starting");
    step_record(js, &row, NULL);
}

static void record_failure(struct jobs *js)
{
    struct store_job row;
    int code = js->failure.code;
    job_next_row(js->current, &row);
    row.state = code == ERR_INTERRUPTED ? JOB_INTERRUPTED : JOB_FAILED;
    row.intent[0] = '\0';
    row.finished_ms = server_unix_ms();
    (void)snprintf(row.error, sizeof(row.error), "%s", err_name(code));
    row.message = row_dup(js->failure.msg);
    step_record(js, &row, NULL);
}

static void step_fail(struct jobs *js)
{
    job_unpublish(js, record_failure);
}

/* --- which job --- */

static void start(struct jobs *js, struct job *j)
{
    js->current = j;
    js->over = false;
    js->failure = (struct err){0};
    js->model = j->resumes ? job_published(j) : NULL;
    js->step = js->model != NULL ? STEP_COMMIT : STEP_BEGIN;
    enter(js);
    job_advance(js);
}

/* Whether a, which is older, runs before b. What a restart found published is
 * a record away from its end. */
static bool before(const struct job *a, const struct job *b)
{
    return a->resumes || (!b->resumes && a->priority >= b->priority);
}

static struct job *next_of(struct jobs *js)
{
    struct job *first = NULL;
    LIST_EACH(l, &js->all) { /* newest first */
        struct job *j = job_of(l);
        if ((j->row.state == JOB_QUEUED || j->resumes) && j->durable &&
            j->record == NULL && (first == NULL || before(j, first))) {
            first = j;
        }
    }
    return first;
}

void jobs_next_run(struct jobs *js)
{
    /* A loop, not recursion through leave(): many jobs may fail at once. */
    if (js->choosing) {
        return;
    }
    js->choosing = true;
    while (js->current == NULL && !js->quiet) {
        struct job *first = next_of(js);
        if (first == NULL) {
            break;
        }
        start(js, first);
    }
    js->choosing = false;
}

/* --- the end --- */

void jobs_quiet(struct jobs *js)
{
    js->quiet = true;
    LIST_EACH(l, &js->all) {
        struct job *j = job_of(l);
        while (!list_empty(&j->watches)) {
            struct job_watch *w =
                container_of(j->watches.next, struct job_watch, link);
            job_unwatch(w);
            w->fn(w, j, true);
        }
    }
}

void jobs_maybe_closed(struct jobs *js)
{
    if (js->closed != NULL && js->child == NULL && !js->working &&
        js->n_checks == 0 && !js->timing) {
        void (*fn)(void *) = js->closed;
        js->closed = NULL;
        fn(js->ctx);
    }
}

static void on_retry_closed(uv_handle_t *h)
{
    struct jobs *js = container_of((uv_timer_t *)h, struct jobs, retry);
    js->timing = false;
    jobs_maybe_closed(js);
}

void jobs_stop(struct jobs *js, void (*closed)(void *ctx), void *ctx)
{
    jobs_quiet(js);
    js->stopping = true;
    js->closed = closed;
    js->ctx = ctx;
    if (js->child != NULL) {
        child_kill(js->child, ERR_INTERRUPTED);
    }
    uv_close((uv_handle_t *)&js->retry, on_retry_closed);
}
