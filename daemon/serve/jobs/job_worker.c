/* job_worker.c - the step that converts: source and staging on the file thread,
 * then a worker, then its end.
 *
 *   prepare (files) --> spawn, spec --> progress ... --> done | error --> exit
 *
 * The folder is named after what is asked for, so the next attempt, or a later
 * job that asks for the same, goes on with what is in it (convert/work.h).
 *
 * A frame that it should not send ends it. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "serve/jobs/jobs_impl.h"

#define TELL_US 250000u  /* between progress events */
#define SAVE_US 1000000u /* between progress writes */

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

static int on_report(struct jobs *js, const struct frame *f)
{
    struct json *o = NULL;
    RETERR(json_parse((const char *)f->payload, f->n, &o, NULL));
    const struct json *quality = json_get(o, "quality");
    if (js->predicted == NULL) {
        js->predicted = predicted_new();
    }
    int rc = quality != NULL ? job_quality_take(js, quality)
                             : predicted_take(js->predicted, o, f->n);
    json_free(o);
    return rc;
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
    } else if (f->type == FRAME_CONVERT_REPORT && js->result == NULL &&
               on_report(js, f) == 0) {
        return;
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
    struct err e = {0};
    int rc = 0;
    js->child = NULL;
    log_info("convert_exit", "job=%s status=%d signal=%d reason=%s",
             js->current->row.id, (int)x->status, x->signal,
             x->code != 0 ? err_name(x->code) : "none");
    if (js->failure.code != 0) {
        e = js->failure;
        rc = e.code;
    } else if (js->result == NULL) {
        rc = x->code == ERR_TIMEOUT || x->code == ERR_FRAME ? x->code
                                                            : ERR_WORKER_LOST;
        (void)err_set(&e, rc, "the converter ended (status %d, signal %d)",
                      (int)x->status, x->signal);
    }
    step_over(js, rc, &e);
}

static void send_spec(struct jobs *js)
{
    struct json *clean = json_object();
    for (const struct json *c = json_first(js->spec); c != NULL;
         c = json_next(c)) {
        const char *k = json_key(c);
        if (strcmp(k, "accept") != 0 && strcmp(k, "name") != 0 &&
            strcmp(k, "priority") != 0 && strcmp(k, "reshard") != 0 &&
            json_type(c) != JSON_NULL) {
            json_add_tree(clean, k, json_copy(c));
        }
    }
    json_add_str(clean, "name", js->current->row.name);
    json_add_str(clean, "out", js->bundle);
    json_add_bool(clean, "keep_records", true);
    if (js->origin[0] != '\0') {
        json_add_str(clean, "bundle", js->origin);
    }
    child_send_json(js->child, FRAME_CONVERT, 1, clean);
    json_free(clean);
}

static int spawn(struct jobs *js, struct err *e)
{
    const struct child_conf c = {
        .role = "convert-worker",
        .fd = js->source,
        .frame_max = FRAME_WORKER_MAX,
        .ctx = js,
        .on_frame = on_frame,
        .on_exit = on_gone,
    };
    RETERR(child_spawn(&js->srv->loop, &c, &js->child, e));
    child_deadline(js->child, JOB_STALL_MS);
    send_spec(js);
    return 0;
}

static int by_key(const void *a, const void *b)
{
    const struct json *const *x = a;
    const struct json *const *y = b;
    return strcmp(json_key(*x), json_key(*y));
}

/* Do the request's field and the bundle's bytes have to do with each other?
 * The source is told by its identity. */
static bool decides(const struct json *c)
{
    static const char *const others[] = {"source", "name", "accept", "priority",
                                         "threads"};
    for (size_t i = 0; i < countof(others); i++) {
        if (strcmp(json_key(c), others[i]) == 0) {
            return false;
        }
    }
    return json_type(c) != JSON_NULL;
}

#define WISH_KEYS_MAX 64u

/* One name for all requests that ask for the same bundle of the same file, so
 * that one finds what another left. What is in there is looked at by the
 * worker, whose key knows more (convert/job_work.c). */
static void work_name(const struct json *spec, const struct stat *st,
                      char out[WORK_HOME_CHARS])
{
    const struct json *v[WISH_KEYS_MAX];
    size_t n = 0;
    struct buf b;
    struct sha256 s;
    uint8_t d[SHA256_BYTES];
    char hex[SHA256_HEX];
    for (const struct json *c = json_first(spec);
         c != NULL && n < WISH_KEYS_MAX; c = json_next(c)) {
        if (decides(c)) {
            v[n++] = c;
        }
    }
    qsort(v, n, sizeof(v[0]), by_key);
    buf_init(&b, HTTP_BODY_MAX);
    buf_printf(&b, "%llu %lld %lld", (unsigned long long)st->st_ino,
               (long long)st->st_size, (long long)file_mtime_ns(st));
    for (size_t i = 0; i < n; i++) {
        buf_printf(&b, "\n%s=", json_key(v[i]));
        json_write(v[i], false, &b);
    }
    sha256_init(&s);
    sha256_add(&s, b.p, b.n);
    sha256_end(&s, d);
    sha256_hex(d, hex);
    buf_fini(&b);
    (void)snprintf(out, WORK_HOME_CHARS, WORK_HOME_PREFIX "%.32s", hex);
}

/* A bundle is told by its description, which has the hash of all else. */
static int look_at_source(const struct jobs *js, struct stat *st, struct err *e)
{
    char path[HOME_PATH_MAX];
    if (js->origin[0] == '\0') {
        return fstat(js->source, st) == 0
                   ? 0
                   : err_set(e, ERR_IO, "the source cannot be looked at");
    }
    return file_join(path, sizeof(path), js->origin, "bundle.json") &&
                   stat(path, st) == 0
               ? 0
               : err_set(e, ERR_NOT_FOUND,
                         "the model to be divided anew is gone");
}

/* The folders of the job: staging/work-.../JOB. */
static int find_folders(struct jobs *js, struct err *e)
{
    char name[WORK_HOME_CHARS];
    struct stat st;
    RETERR(look_at_source(js, &st, e));
    work_name(js->spec, &st, name);
    if (!file_join(js->staging, sizeof(js->staging), js->srv->home.staging,
                   name) ||
        !file_join(js->bundle, sizeof(js->bundle), js->staging,
                   js->current->row.id)) {
        js->staging[0] = '\0';
        return err_set(e, ERR_IO, "path too long");
    }
    return 0;
}

/* Its source, and the folder of its bundle. */
static void prepare_run(struct work *w) /* file thread */
{
    struct jobs *js = container_of(w, struct jobs, work);
    struct err *e = &js->work_error;
    const char *source = NULL;
    int rc = 0;
    if (js->origin[0] == '\0') {
        CHECK(json_want_str(js->spec, "source", true, &source, e));
        js->source = job_open_source(source, e);
        CHECK(js->source < 0 ? js->source : 0);
    }
    CHECK(find_folders(js, e));
    CHECK(file_mkdirs(js->staging, 0700, e));
out:
    js->work_rc = rc;
}

static void prepare_done(struct work *w)
{
    struct jobs *js = container_of(w, struct jobs, work);
    bool needed = !js->stopping && !js->current->cancelling;
    int rc = js->work_rc;
    js->working = false;
    if (rc == 0 && needed) {
        rc = spawn(js, &js->work_error);
    }
    if (js->source >= 0) {
        (void)close(js->source); /* the worker has its own */
    }
    js->source = -1;
    json_free(js->spec);
    js->spec = NULL;
    if (rc != 0 || !needed) {
        step_over(js, rc, &js->work_error);
    }
}

/* The folder of the model that it is made of. */
static int find_origin(struct jobs *js, struct err *e)
{
    const char *name = json_str(json_get(js->spec, "reshard"));
    js->origin[0] = '\0';
    if (name == NULL) {
        return 0;
    }
    struct model *m = models_find(js->srv->models, name);
    if (m == NULL || m->bundle == NULL) {
        return err_set(e, ERR_NOT_FOUND,
                       "there is no model '%.128s' to be divided anew", name);
    }
    return file_join(js->origin, sizeof(js->origin), js->srv->home.models,
                     name)
               ? 0
               : err_set(e, ERR_IO, "path too long");
}

/* The spec of the current job. */
static int prepare(struct jobs *js, struct err *e)
{
    const struct store_job *row = &js->current->row;
    if (models_find(js->srv->models, row->name) != NULL) {
        return err_set(e, ERR_EXISTS, "there is a model of that name already");
    }
    RETERR(json_parse(row->spec, strlen(row->spec), &js->spec, e));
    return find_origin(js, e);
}

void step_convert(struct jobs *js)
{
    struct err e = {0};
    int rc = prepare(js, &e);
    if (rc != 0) {
        step_over(js, rc, &e);
    } else {
        step_work(js, prepare_run, prepare_done);
    }
}
