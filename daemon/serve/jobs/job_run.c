/* job_run.c - one conversion: worker, publication, records.
 *
 *   start --spawn--> worker --DONE, exit--> publish (file thread) --> rows,
 * done |                 |  \--ERROR, exit, stall--> failed | \--cancel frame,
 * exit or SIGKILL--> cancelled
 *     +-- model already there from before a crash: adopt --> done
 */
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "serve/jobs/jobs_impl.h"

#define TELL_US 250000u  /* between progress events */
#define SAVE_US 1000000u /* between progress writes */

static void end(struct jobs *js, enum job_state s, int code, const char *msg)
{
    struct job *j = js->current;
    js->current = NULL;
    j->publishing = false;
    json_free(js->result);
    js->result = NULL;
    js->failure = (struct err){0};
    if (js->staging[0] != '\0') {
        models_remove_tree(js->srv, js->staging);
        js->staging[0] = '\0';
    }
    job_finish(j, s, code, msg);
    jobs_maybe_closed(js);
    jobs_next_run(js);
}

void jobs_maybe_closed(struct jobs *js)
{
    if (js->closed != NULL && js->child == NULL &&
        (js->current == NULL || !js->current->publishing)) {
        void (*fn)(void *) = js->closed;
        js->closed = NULL;
        fn(js->ctx);
    }
}

/* --- publication --- */

static bool gate_failed(const struct json *result)
{
    const struct json *g = json_first(json_get(result, "gates"));
    for (; g != NULL; g = json_next(g)) {
        const char *v = json_str(json_get(g, "verdict"));
        if (v != NULL && strcmp(v, "failed") == 0) {
            return true;
        }
    }
    return false;
}

static bool forced(const struct job *j)
{
    struct json *spec = NULL;
    if (json_parse(j->row.spec, strlen(j->row.spec), &spec, NULL) != 0) {
        return false;
    }
    bool force = json_bool(json_get(spec, "force"));
    json_free(spec);
    return force;
}

static void save_model(struct server *s, const struct model *m)
{
    struct store_model row;
    const struct bundle *b = m->bundle;
    struct store_artifact *a = calloc(b->n_files + 1, sizeof(*a));
    must(a != NULL);
    for (size_t i = 0; i < b->n_files; i++) {
        (void)snprintf(a[i].model, sizeof(a[i].model), "%s", m->name);
        (void)snprintf(a[i].path, sizeof(a[i].path), "%s", b->files[i].path);
        (void)snprintf(a[i].sha256, sizeof(a[i].sha256), "%s",
                       b->files[i].sha256);
        a[i].bytes = b->files[i].bytes;
    }
    model_row(m, &row);
    if (store_model_put(s->store, &row, a, b->n_files, model_saved, NULL) !=
        0) {
        log_warn("store_busy", "model=%s not saved, continuing", m->name);
    }
    free(a);
}

static void publish_run(struct work *w) /* file thread */
{
    struct jobs *js = container_of(w, struct jobs, publish);
    char to[HOME_PATH_MAX];
    if (!file_join(to, sizeof(to), js->srv->home.models,
                   js->current->row.name)) {
        js->publish_rc = err_set(&js->publish_error, ERR_IO, "path too long");
        return;
    }
    js->publish_rc = file_publish_dir(js->bundle, to, &js->publish_error);
}

static void publish_done(struct work *w)
{
    struct jobs *js = container_of(w, struct jobs, publish);
    struct job *j = js->current;
    struct err e = js->publish_error;
    int rc = js->publish_rc;
    if (rc == 0) {
        struct model *m = NULL;
        struct buf gates;
        const struct json *g = json_get(js->result, "gates");
        buf_init(&gates, FRAME_WORKER_MAX);
        if (g != NULL) {
            json_write(g, false, &gates);
        }
        bool bad = gate_failed(js->result), force = forced(j);
        rc = models_add(js->srv->models, j->row.name, bad && !force,
                        bad ? force ? "served by force: a gate failed"
                                    : "a gate failed"
                            : NULL,
                        gates.p, j->row.id, &m, &e);
        buf_fini(&gates);
        if (rc == 0) {
            save_model(js->srv, m);
        }
    }
    if (rc == 0) {
        end(js, JOB_DONE, 0, NULL);
    } else {
        end(js, JOB_FAILED, rc, e.msg);
    }
}

static void publish(struct jobs *js)
{
    struct job *j = js->current;
    struct buf b;
    buf_init(&b, FRAME_WORKER_MAX);
    json_write(js->result, false, &b);
    if (buf_ok(&b) && b.p != NULL) {
        free(j->row.result);
        j->row.result = strdup(b.p);
        must(j->row.result != NULL);
    }
    buf_fini(&b);
    job_set(j, JOB_GATING);
    (void)snprintf(j->row.stage, sizeof(j->row.stage), "publishing");
    job_save(j);
    job_tell(j);
    js->publish.run = publish_run;
    js->publish.done = publish_done;
    js->publish_error = (struct err){0};
    j->publishing = true;
    int rc = workq_put(js->srv->files, &js->publish);
    if (rc != 0) {
        end(js, JOB_FAILED, rc, "too many files are being worked on");
    }
}

/* --- the worker --- */

static void on_progress(struct jobs *js, const struct frame *f)
{
    struct job *j = js->current;
    struct json *o = NULL;
    const char *stage = NULL;
    double fraction = j->row.progress;
    if (json_parse((const char *)f->payload, f->n, &o, NULL) != 0 ||
        json_want_str(o, "stage", false, &stage, NULL) != 0 ||
        json_want_num(o, "fraction", false, 0, 1, &fraction, NULL) != 0) {
        json_free(o);
        child_kill(js->child, ERR_FRAME);
        return;
    }
    if (!j->cancelling) {
        child_deadline(js->child, JOB_STALL_MS);
    }
    bool changed = stage != NULL && strcmp(stage, j->row.stage) != 0;
    if (changed) {
        (void)snprintf(j->row.stage, sizeof(j->row.stage), "%.31s", stage);
        if (strcmp(j->row.stage, "gating") == 0) {
            job_set(j, JOB_GATING);
        }
    }
    json_free(o);
    j->row.progress = fraction;
    uint64_t now = server_now_us();
    if (changed || now - j->saved_us >= SAVE_US) {
        job_save(j);
    }
    if (changed || now - j->told_us >= TELL_US) {
        job_tell(j);
    }
}

static void on_frame(void *ctx, const struct frame *f)
{
    struct jobs *js = ctx;
    struct msg_error m = {0};
    struct err e = {0};
    if (js->current == NULL) {
        return;
    }
    if (f->type == FRAME_PROGRESS) {
        on_progress(js, f);
    } else if (f->type == FRAME_CONVERT_DONE && js->result == NULL &&
               js->failure.code == 0 &&
               json_parse((const char *)f->payload, f->n, &js->result, &e) ==
                   0) {
        child_deadline(js->child, JOB_CANCEL_MS); /* it only has to leave */
    } else if (f->type == FRAME_ERROR &&
               msg_error_get(f->payload, f->n, &m, &e) == 0) {
        (void)err_set(&js->failure, m.code < 0 ? m.code : ERR_INTERNAL, "%s",
                      m.msg);
        child_deadline(js->child, JOB_CANCEL_MS);
    } else {
        child_kill(js->child, ERR_FRAME);
    }
}

static void on_gone(void *ctx, const struct child_exit *x)
{
    struct jobs *js = ctx;
    struct job *j = js->current;
    js->child = NULL;
    log_info("convert_exit", "job=%s status=%d signal=%d reason=%s", j->row.id,
             (int)x->status, x->signal,
             x->code != 0 ? err_name(x->code) : "none");
    if (js->stopping) { /* the record stays as it is: the next start resumes */
        jobs_maybe_closed(js);
    } else if (j->cancelling) {
        end(js, JOB_CANCELLED, ERR_CANCELLED, "cancelled");
    } else if (js->failure.code != 0) {
        struct err e = js->failure;
        end(js, JOB_FAILED, e.code, e.msg);
    } else if (js->result != NULL) {
        publish(js);
    } else {
        struct err e = {0};
        int rc = x->code == ERR_TIMEOUT || x->code == ERR_FRAME
                     ? x->code
                     : ERR_WORKER_LOST;
        (void)err_set(&e, rc, "the converter ended (status %d, signal %d)",
                      (int)x->status, x->signal);
        end(js, JOB_FAILED, rc, e.msg);
    }
}

static void send_spec(struct jobs *js, const struct json *spec)
{
    struct json *o = json_copy(spec);
    struct json *clean = json_object();
    for (const struct json *c = json_first(o); c != NULL; c = json_next(c)) {
        const char *k = json_key(c);
        if (strcmp(k, "force") != 0 && strcmp(k, "name") != 0 &&
            json_type(c) != JSON_NULL) {
            json_add_tree(clean, k, json_copy(c));
        }
    }
    json_free(o);
    json_add_str(clean, "name", js->current->row.name);
    json_add_str(clean, "out", js->bundle);
    struct buf b;
    buf_init(&b, FRAME_WORKER_MAX);
    json_write(clean, false, &b);
    json_free(clean);
    if (buf_ok(&b)) {
        child_send(js->child, FRAME_CONVERT, 1, b.p, b.n);
    } else {
        child_kill(js->child, ERR_TOO_BIG);
    }
    buf_fini(&b);
}

static int spawn(struct jobs *js, struct err *e)
{
    struct json *spec = NULL;
    const char *source = NULL;
    struct job *j = js->current;
    int fd = -1;
    int rc = json_parse(j->row.spec, strlen(j->row.spec), &spec, e);
    if (rc == 0) {
        rc = json_want_str(spec, "source", true, &source, e);
    }
    if (rc == 0) {
        fd = job_open_source(source, e);
        rc = fd < 0 ? fd : 0;
    }
    if (rc == 0 &&
        (!file_join(js->staging, sizeof(js->staging), js->srv->home.staging,
                    j->row.id) ||
         !file_join(js->bundle, sizeof(js->bundle), js->staging, "bundle"))) {
        js->staging[0] = '\0';
        rc = err_set(e, ERR_IO, "path too long");
    }
    if (rc == 0) {
        rc = file_mkdirs(js->staging, 0700, e);
    }
    if (rc == 0) {
        struct child_conf c = {
            .role = "convert-worker",
            .fd = fd,
            .frame_max = FRAME_WORKER_MAX,
            .ctx = js,
            .on_frame = on_frame,
            .on_exit = on_gone,
        };
        rc = child_spawn(&js->srv->loop, &c, &js->child, e);
    }
    if (rc == 0) {
        child_deadline(js->child, JOB_STALL_MS);
        send_spec(js, spec);
    }
    if (fd >= 0) {
        (void)close(fd); /* the child has its own */
    }
    json_free(spec);
    return rc;
}

/* The model is there although the job has not ended. */
static void resume_published(struct jobs *js, struct model *m)
{
    struct job *j = js->current;
    job_set(j, JOB_GATING);
    if (!m->adopted || m->bundle == NULL) {
        end(js, JOB_FAILED, ERR_EXISTS,
            "there is a model of that name already");
        return;
    }
    m->adopted = false;
    (void)snprintf(m->job, sizeof(m->job), "%s", j->row.id);
    save_model(js->srv, m);
    end(js, JOB_DONE, 0, "published before a restart");
}

static void start(struct jobs *js, struct job *j)
{
    struct err e = {0};
    js->current = j;
    js->failure = (struct err){0};
    job_set(j, JOB_RUNNING);
    j->row.attempts++;
    j->row.started_ms = server_unix_ms();
    j->row.progress = 0;
    (void)snprintf(j->row.stage, sizeof(j->row.stage), "starting");
    job_save(j);
    job_tell(j);
    struct model *m = models_find(js->srv->models, j->row.name);
    if (m != NULL) {
        resume_published(js, m);
        return;
    }
    int rc = spawn(js, &e);
    if (rc != 0) {
        end(js, JOB_FAILED, rc, e.msg);
    }
}

void jobs_next_run(struct jobs *js)
{
    /* A loop, not recursion through end(): many jobs may fail at once. */
    if (js->choosing) {
        return;
    }
    js->choosing = true;
    while (js->current == NULL && !js->quiet) {
        struct job *oldest = NULL;
        LIST_EACH(l, &js->all) {
            struct job *j = job_of(l);
            if (j->row.state == JOB_QUEUED && j->durable) {
                oldest = j;
            }
        }
        if (oldest == NULL) {
            break;
        }
        start(js, oldest);
    }
    js->choosing = false;
}

void job_run_cancel(struct job *j)
{
    struct jobs *js = j->of;
    if (j->cancelling || js->child == NULL) {
        return;
    }
    j->cancelling = true;
    child_send(js->child, FRAME_CANCEL, 0, NULL, 0);
    child_deadline(js->child, JOB_CANCEL_MS);
    job_tell(j);
}

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

void jobs_stop(struct jobs *js, void (*closed)(void *ctx), void *ctx)
{
    jobs_quiet(js);
    js->stopping = true;
    js->closed = closed;
    js->ctx = ctx;
    if (js->child != NULL) {
        child_kill(js->child, ERR_INTERRUPTED);
    }
    jobs_maybe_closed(js);
}
