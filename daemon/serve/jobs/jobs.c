/* jobs.c - the records of conversion jobs and what the API asks of them. See
 * jobs.h; requests are read in job_wish.c, job_run.c runs them. */
#include "serve/jobs/jobs.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "model/chat.h"
#include "serve/jobs/jobs_impl.h"
#include "source/source.h"
#include "store/row.h"

struct job *job_of(struct list *l)
{
    return container_of(l, struct job, link);
}

static void job_free(struct job *j)
{
    must(list_empty(&j->watches));
    list_del(&j->link);
    j->of->n--;
    row_free_strings(&j->row);
    free(j);
}

static struct job *job_new(struct jobs *js)
{
    struct job *j = calloc(1, sizeof(*j));
    must(j != NULL);
    j->of = js;
    list_init(&j->watches);
    list_init(&j->cancels);
    return j;
}

int jobs_new(struct server *s, struct jobs **ret)
{
    struct jobs *js = calloc(1, sizeof(*js));
    must(js != NULL);
    js->srv = s;
    js->source = -1;
    list_init(&js->all);
    must(uv_timer_init(&s->loop, &js->retry) == 0);
    js->timing = true;
    *ret = js;
    return 0;
}

void jobs_free(struct jobs *js)
{
    if (js == NULL) {
        return;
    }
    while (!list_empty(&js->all)) {
        job_free(job_of(js->all.next));
    }
    json_free(js->spec);
    json_free(js->result);
    json_free(js->quality);
    predicted_free(js->predicted);
    row_free_strings(&js->last);
    if (js->model != NULL && !model_listed(js->model)) {
        model_free(js->model);
    }
    free(js);
}

bool job_over(const struct job *j)
{
    enum job_state s = j->row.state;
    return s == JOB_DONE || s == JOB_FAILED || s == JOB_CANCELLED ||
           s == JOB_INTERRUPTED;
}

/* Rows of ended jobs beyond JOBS_LISTED_MAX leave memory; the store keeps
 * them. */
static void trim(struct jobs *js)
{
    for (struct list *l = js->all.prev;
         js->n > JOBS_LISTED_MAX && l != &js->all;) {
        struct job *j = job_of(l);
        l = l->prev;
        if (job_over(j) && list_empty(&j->watches)) {
            job_free(j);
        }
    }
}

void job_set(struct job *j, enum job_state s)
{
    if (j->row.state == s) {
        return;
    }
    must(job_state_allowed(j->row.state, s));
    log_info("job_state", "job=%s model=%s %s -> %s", j->row.id, j->row.name,
             job_state_name(j->row.state), job_state_name(s));
    j->row.state = s;
}

void job_tell(struct job *j)
{
    bool last = job_over(j);
    j->told_us = server_now_us();
    struct list mine; /* fn may unwatch, itself or others */
    list_init(&mine);
    while (!list_empty(&j->watches)) {
        struct list *l = j->watches.next;
        list_del(l);
        list_push(&mine, l);
    }
    while (!list_empty(&mine)) {
        struct list *l = mine.next;
        struct job_watch *w = container_of(l, struct job_watch, link);
        list_del(l);
        if (last) {
            w->job = NULL;
        } else {
            list_push(&j->watches, l);
        }
        w->fn(w, j, last);
    }
}

void job_ended(struct job *j)
{
    struct stats *st = &j->of->srv->stats;
    enum job_state s = j->row.state;
    must(list_empty(&j->cancels));
    st->jobs_done += s == JOB_DONE ? 1 : 0;
    st->jobs_failed += s == JOB_FAILED ? 1 : 0;
    st->jobs_cancelled += s == JOB_CANCELLED ? 1 : 0;
    job_tell(j);
}

/* --- creation --- */

/* A job that has not ended makes it. */
static bool claimed(const struct jobs *js, const char *name)
{
    LIST_EACH(l, &js->all) {
        if (!job_over(job_of(l)) && strcmp(job_of(l)->row.name, name) == 0) {
            return true;
        }
    }
    return false;
}

static int check_name(struct jobs *js, const char *name, struct err *e)
{
    if (!file_name_ok(name)) {
        return err_set(e, ERR_INVALID,
                       "name: 1 to %u of A-Z a-z 0-9 . _ -, first a letter or "
                       "digit, no '..'",
                       MODEL_NAME_MAX);
    }
    if (models_find(js->srv->models, name) != NULL) {
        return err_set(e, ERR_EXISTS, "name: there is a model '%s' already",
                       name);
    }
    LIST_EACH(l, &js->all) {
        struct job *j = job_of(l);
        if (!job_over(j) && strcmp(j->row.name, name) == 0) {
            return err_set(e, ERR_EXISTS, "name: job %s is making '%s'",
                           j->row.id, name);
        }
    }
    return 0;
}

/* There is such a model, or there will be: then that job runs first, or this
 * one fails. */
static int check_origin(struct jobs *js, const char *name, struct err *e)
{
    struct model *m = models_find(js->srv->models, name);
    if (m != NULL && m->bundle != NULL) {
        return 0;
    }
    return claimed(js, name) ? 0
                             : err_set(e, ERR_INVALID,
                                       "reshard: there is no model '%.128s'",
                                       name);
}

/* It is made, or leaves the list again. */
static void created(struct job *j, int rc, const char *param,
                    const struct err *e)
{
    struct jobs *js = j->of;
    struct job_created *c = j->created;
    j->created = NULL;
    if (rc != 0) {
        list_del(&j->link); /* not listed any more */
        list_init(&j->link);
        c->fn(c, rc, param, e, j);
        job_free(j);
        return;
    }
    j->durable = true;
    js->srv->stats.jobs_created++;
    c->fn(c, 0, NULL, e, j);
    jobs_next_run(js);
}

static void on_created(void *ctx, int status, const struct err *e)
{
    struct job *j = ctx;
    struct err why = {0};
    if (status != 0) {
        log_error("job_not_saved", "job=%s error=%s", j->row.id,
                  e != NULL ? e->msg : "");
        (void)err_set(&why, status, "the job could not be recorded");
    }
    created(j, status, NULL, &why);
}

struct check {
    struct work work;
    struct job *job;
    char *source, *calibration; /* NULL: a model, no text to calibrate with */
    char *chat_template;        /* NULL: the source's */
    const char *param;          /* the field that is wrong */
    int rc;
    struct err e;
};

static void check_file(struct check *c, const char *path, const char *field)
{
    int fd = c->rc == 0 && path != NULL ? job_open_file(path, field, &c->e) : 0;
    if (fd < 0) {
        c->rc = fd;
        c->param = field;
    } else if (fd > 0) {
        (void)close(fd);
    }
}

static void check_template(struct check *c)
{
    struct chat_template *t = NULL;
    struct buf text = {0};
    check_file(c, c->chat_template, "chat_template");
    if (c->rc != 0 || c->chat_template == NULL) {
        return;
    }
    c->rc = chat_read(c->chat_template, &text, &c->e);
    if (c->rc == 0) {
        c->rc = chat_compile(text.p, &t, &c->e);
    }
    if (c->rc != 0) {
        c->param = "chat_template";
        c->rc = err_prefix(&c->e, c->rc, "%s", c->param);
    }
    chat_free(t);
    buf_fini(&text);
}

static void check_free(struct check *c)
{
    free(c->source);
    free(c->calibration);
    free(c->chat_template);
    free(c);
}

static void check_run(struct work *w) /* file thread */
{
    struct check *c = container_of(w, struct check, work);
    int fd = c->source != NULL ? job_open_source(c->source, &c->e) : 0;
    if (fd < 0) {
        c->rc = fd;
        c->param = "source";
    } else if (fd > 0) {
        (void)close(fd);
        c->rc = source_look(c->source, &c->e);
        c->param = c->rc < 0 ? "source" : NULL;
    }
    check_file(c, c->calibration, "calibration");
    check_template(c);
}

static void check_done(struct work *w)
{
    struct check *c = container_of(w, struct check, work);
    struct job *j = c->job;
    struct jobs *js = j->of;
    const char *param = c->param;
    if (c->rc == 0 && js->stopping) {
        c->rc = err_set(&c->e, ERR_UNAVAILABLE, "the daemon is stopping");
    }
    if (c->rc == 0 &&
        store_job_put(js->srv->store, &j->row, on_created, j) != 0) {
        c->rc = err_set(&c->e, ERR_BUSY, "the store is busy");
    }
    if (c->rc != 0) {
        created(j, c->rc, param, &c->e);
    }
    check_free(c);
    js->n_checks--;
    jobs_maybe_closed(js);
}

/* A job's record; it is neither checked nor durable. Errors: TOO_BIG. */
static int record_new(struct jobs *js, const struct json *spec,
                      const char *name, struct job **ret, struct err *e)
{
    struct job *j = job_new(js);
    struct buf b;
    store_new_id("job", j->row.id);
    j->row.state = JOB_QUEUED;
    j->row.created_ms = server_unix_ms();
    (void)snprintf(j->row.name, sizeof(j->row.name), "%s", name);
    list_push(js->all.next, &j->link); /* in front: newest first */
    js->n++;
    buf_init(&b, HTTP_BODY_MAX);
    json_write(spec, false, &b);
    bool whole = buf_ok(&b) && b.p != NULL;
    j->row.spec = whole ? row_dup(b.p) : NULL;
    buf_fini(&b);
    if (!whole) {
        job_free(j);
        return err_set(e, ERR_TOO_BIG, "the request is too long");
    }
    *ret = j;
    return 0;
}

/* Look at its files, then store it. Errors: BUSY. */
static int check_files(struct job *j, const struct job_wish *wish,
                       struct err *e)
{
    struct check *c = calloc(1, sizeof(*c));
    must(c != NULL);
    c->work = (struct work){.run = check_run, .done = check_done};
    c->job = j;
    c->source = wish->source != NULL ? row_dup(wish->source) : NULL;
    c->calibration =
        wish->calibration != NULL ? row_dup(wish->calibration) : NULL;
    c->chat_template =
        wish->chat_template != NULL ? row_dup(wish->chat_template) : NULL;
    if (workq_put(j->of->srv->files, &c->work) != 0) {
        check_free(c);
        return err_set(e, ERR_BUSY, "too many files are being worked on");
    }
    j->of->n_checks++;
    return 0;
}

int jobs_create(struct jobs *js, const struct json *spec, struct job_created *c,
                const char **param, struct err *e)
{
    struct job_wish w = {0};
    struct job *j = NULL;
    char name[MODEL_NAME_MAX + 1] = "";
    RETERR(job_wish_read(spec, &w, param, e));
    *param = "name";
    if (w.name == NULL) {
        job_wish_name(&w, name);
    } else if (snprintf(name, sizeof(name), "%s", w.name) >=
               (int)sizeof(name)) {
        return err_set(e, ERR_INVALID, "name: too long");
    }
    RETERR(check_name(js, name, e));
    if (w.reshard != NULL) {
        *param = "reshard";
        RETERR(check_origin(js, w.reshard, e));
    }
    *param = NULL;
    if (js->quiet ||
        jobs_waiting(js) >= (size_t)js->srv->conf.limits_jobs_queued) {
        js->srv->stats.refused_busy++;
        return err_set(e, ERR_BUSY, "%zu jobs wait already", jobs_waiting(js));
    }
    RETERR(record_new(js, spec, name, &j, e));
    int rc = check_files(j, &w, e);
    if (rc != 0) {
        job_free(j);
        return rc;
    }
    j->created = c;
    j->priority = w.priority;
    trim(js);
    return 0;
}

/* --- after a start --- */

/* An intent that a crash left: the folder is there, then the gates are known,
 * or it is not, then the job begins anew. */
static void settle(struct job *j)
{
    struct model *m = job_published(j);
    if (m != NULL) {
        log_info("job_resumes", "job=%s model=%s was published", j->row.id,
                 j->row.name);
        j->resumes = true;
        job_judge(j, m);
    } else {
        job_set(j, JOB_QUEUED);
    }
}

static void adopt(struct jobs *js, struct model *m)
{
    struct store_model row;
    m->adopted = false;
    log_info("model_adopted", "model=%s", m->name);
    model_row(m, &row);
    if (store_model_put(js->srv->store, &row, NULL, 0, model_saved, NULL) !=
        0) {
        log_warn("store_busy", "model=%s not saved, continuing", m->name);
    }
}

/* The priority of a stored request. It was checked when it came. */
static int stored_priority(const struct store_job *row)
{
    struct json *spec = NULL;
    int n = 0;
    if (json_parse(row->spec, strlen(row->spec), &spec, NULL) != 0 ||
        job_wish_priority(spec, &n, NULL) != 0) {
        n = 0;
    }
    json_free(spec);
    return n;
}

void jobs_load(struct jobs *js, const struct store_job *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct job *j = job_new(js);
        j->durable = true;
        row_copy_job(&j->row, &v[i]);
        j->priority = stored_priority(&j->row);
        list_push(&js->all, &j->link);
        js->n++;
        if (!job_over(j) && j->row.intent[0] != '\0') {
            settle(j);
        }
    }
    for (struct model *m = models_first(js->srv->models); m != NULL;
         m = models_next(m)) {
        if (m->adopted && m->bundle != NULL && !claimed(js, m->name)) {
            adopt(js, m);
        }
    }
    jobs_next_run(js);
}

/* --- what the API asks --- */

struct job *jobs_find(struct jobs *js, const char *id)
{
    LIST_EACH(l, &js->all) {
        if (strcmp(job_of(l)->row.id, id) == 0 && job_of(l)->durable) {
            return job_of(l);
        }
    }
    return NULL;
}

static struct job *from(struct jobs *js, struct list *l)
{
    while (l != &js->all && !job_of(l)->durable) {
        l = l->next;
    }
    return l == &js->all ? NULL : job_of(l);
}

struct job *jobs_first(struct jobs *js)
{
    return from(js, js->all.next);
}

struct job *jobs_next(struct job *j)
{
    return from(j->of, j->link.next);
}

size_t jobs_waiting(const struct jobs *js)
{
    size_t n = 0;
    LIST_EACH(l, &js->all) {
        n += job_of(l)->row.state == JOB_QUEUED ? 1 : 0;
    }
    return n;
}

bool jobs_running(const struct jobs *js)
{
    return js->current != NULL;
}

const struct store_job *job_row(const struct job *j)
{
    return &j->row;
}

void job_watch(struct job *j, struct job_watch *w)
{
    w->job = j;
    list_push(&j->watches, &w->link);
}

void job_unwatch(struct job_watch *w)
{
    if (w->job != NULL) {
        w->job = NULL;
        list_del(&w->link);
    }
}

/* JSON that our own writer made: a list of jobs would parse a thousand. */
static void add_text(struct json *o, const char *key, const char *json_text)
{
    if (json_text == NULL) {
        json_add_null(o, key);
    } else {
        json_add_raw(o, key, json_text);
    }
}

static void add_time(struct json *o, const char *key, int64_t ms)
{
    if (ms == 0) {
        json_add_null(o, key);
    } else {
        json_add_int(o, key, ms);
    }
}

struct json *job_json(const struct job *j)
{
    const struct store_job *r = &j->row;
    struct json *o = json_object();
    json_add_str(o, "id", r->id);
    json_add_str(o, "object", "aned.job");
    json_add_str(o, "state", job_state_name(r->state));
    json_add_bool(o, "cancelling", j->cancelling && !job_over(j));
    json_add_str(o, "name", r->name);
    json_add_str(o, "stage", r->stage);
    json_add_num(o, "progress", r->progress);
    if (r->error[0] != '\0') {
        struct json *x = json_add_object(o, "error");
        json_add_str(x, "code", r->error);
        json_add_str(x, "message", r->message != NULL ? r->message : "");
    } else {
        json_add_null(o, "error");
    }
    if (r->error[0] == '\0' && r->message != NULL) {
        json_add_str(o, "message", r->message);
    } else {
        json_add_null(o, "message");
    }
    json_add_int(o, "priority", j->priority);
    json_add_int(o, "attempts", (int64_t)r->attempts);
    add_time(o, "created_ms", r->created_ms);
    add_time(o, "started_ms", r->started_ms);
    add_time(o, "finished_ms", r->finished_ms);
    add_text(o, "request", r->spec);
    add_text(o, "result", r->result);
    return o;
}
