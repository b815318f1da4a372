/* job_publish.c - from a bundle in staging to a model in the list.
 *
 * The intent makes the two worlds one: it is durable before the folder moves,
 * and holds what the gates said and which bundle it was. So whoever finds the
 * folder after a crash knows whose it is and how it was judged. */
#include <errno.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "serve/jobs/jobs_impl.h"
#include "serve/probe/probe.h"
#include "store/row.h"

/* --- what the gates said --- */

/* The gates as the model keeps them: with what was accepted. *rejects: the
 * first that failed and was not, one of `gates`; or NULL. */
static struct json *judge_gates(const struct json *gates,
                                const struct json *spec,
                                const struct json **rejects)
{
    struct json *list = json_array();
    *rejects = NULL;
    for (const struct json *g = json_first(gates); g != NULL;
         g = json_next(g)) {
        const char *name = json_str(json_get(g, "name"));
        const char *word = json_str(json_get(g, "verdict"));
        struct json *copy = json_copy(g);
        bool failed = name != NULL && word != NULL && !strcmp(word, "failed");
        bool accepted = failed && job_accepts(spec, name);
        if (accepted && json_get(g, "accepted") == NULL) {
            json_add_bool(copy, "accepted", true);
        }
        if (failed && !accepted && *rejects == NULL) {
            *rejects = g;
        }
        json_add_tree(list, NULL, copy);
    }
    return list;
}

/* The worker's result as the job keeps it. */
static struct json *judged_result(const struct json *result,
                                  const struct json *spec)
{
    struct json *ret = json_object();
    const struct json *bad = NULL;
    for (const struct json *m = json_first(result); m != NULL;
         m = json_next(m)) {
        bool gates = strcmp(json_key(m), "gates") == 0;
        json_add_tree(ret, json_key(m),
                      gates ? judge_gates(m, spec, &bad) : json_copy(m));
    }
    return ret;
}

static struct json *parsed(const char *text)
{
    struct json *j = NULL;
    return text != NULL && json_parse(text, strlen(text), &j, NULL) == 0 ? j
                                                                         : NULL;
}

void job_judge(const struct job *j, struct model *m)
{
    struct json *spec = parsed(j->row.spec);
    struct json *result = parsed(j->row.result);
    const struct json *bad = NULL;
    struct json *gates = judge_gates(json_get(result, "gates"), spec, &bad);
    char reason[ERR_MSG_MAX + 64] = "";
    struct buf b;
    buf_init(&b, FRAME_WORKER_MAX);
    json_write(gates, false, &b);
    if (bad != NULL) {
        const char *why = json_str(json_get(bad, "detail"));
        (void)snprintf(reason, sizeof(reason), "gate %.32s failed%s%.500s",
                       json_str(json_get(bad, "name")), why != NULL ? ": " : "",
                       why != NULL ? why : "");
    }
    model_judge(m, bad != NULL, bad != NULL ? reason : NULL,
                json_first(gates) != NULL ? b.p : NULL, j->row.id);
    buf_fini(&b);
    json_free(gates);
    json_free(spec);
    json_free(result);
}

/* --- examine --- */

/* Files as the origin has them take room once; else they stay copies. */
static void share(struct jobs *js)
{
    uint64_t bytes = 0;
    struct err e = {0};
    if (bundle_share(js->origin, js->bundle, &bytes, &e) < 0) {
        log_warn("not_shared", "error=%s, continuing", e.msg);
        return;
    }
    log_info("shared", "job=%s bytes=%llu", js->current->row.id,
             (unsigned long long)bytes);
}

static void examine_run(struct work *w) /* file thread */
{
    struct jobs *js = container_of(w, struct jobs, work);
    struct bundle *b = NULL;
    js->work_rc = bundle_open(js->bundle, &b, &js->work_error);
    if (js->work_rc == 0) {
        (void)snprintf(js->fingerprint, sizeof(js->fingerprint), "%s",
                       b->fingerprint);
    }
    bundle_close(b);
    if (js->work_rc == 0 && js->origin[0] != '\0') {
        share(js);
    }
}

static void examine_done(struct work *w)
{
    struct jobs *js = container_of(w, struct jobs, work);
    js->working = false;
    if (js->work_rc == 0 && models_count(js->srv->models) >= MODELS_MAX) {
        js->work_rc = err_set(&js->work_error, ERR_BUSY,
                              "there are %u models already", MODELS_MAX);
    }
    step_over(js, js->work_rc, &js->work_error);
}

void step_examine(struct jobs *js)
{
    step_work(js, examine_run, examine_done);
}

/* --- intent --- */

void step_intent(struct jobs *js)
{
    struct store_job row;
    struct buf b;
    if (js->predicted != NULL) { /* the store takes it before the intent */
        predicted_save(js->predicted, js->srv->models, js->fingerprint);
    }
    job_quality_save(js);
    job_next_row(js->current, &row);
    struct json *spec = parsed(row.spec);
    struct json *result = judged_result(js->result, spec);
    buf_init(&b, FRAME_WORKER_MAX);
    json_write(result, false, &b);
    json_free(result);
    json_free(spec);
    free(row.result);
    row.result = row_dup(buf_ok(&b) ? b.p : NULL);
    buf_fini(&b);
    row.state = JOB_GATING;
    (void)snprintf(row.stage, sizeof(row.stage), "publishing");
    (void)snprintf(row.intent, sizeof(row.intent), "%s", js->fingerprint);
    step_record(js, &row, NULL);
}

/* --- rename --- */

static bool target(const struct jobs *js, char out[HOME_PATH_MAX])
{
    return file_join(out, HOME_PATH_MAX, js->srv->home.models,
                     js->current->row.name);
}

static void rename_run(struct work *w) /* file thread */
{
    struct jobs *js = container_of(w, struct jobs, work);
    struct err *e = &js->work_error;
    char to[HOME_PATH_MAX];
    js->work_rc = target(js, to) ? file_publish_dir(js->bundle, to, e)
                                 : err_set(e, ERR_IO, "path too long");
    if (js->work_rc == 0) {
        js->work_rc = bundle_open(to, &js->published, e);
    }
}

static void rename_done(struct work *w)
{
    struct jobs *js = container_of(w, struct jobs, work);
    js->working = false;
    if (js->work_rc == 0 && js->stopping) {
        bundle_close(js->published); /* the next start finds the folder */
    } else if (js->work_rc == 0) {
        js->model =
            model_new(js->srv->models, js->current->row.name, js->published);
        probe_converted(js->model);
        job_judge(js->current, js->model);
    }
    js->published = NULL;
    step_over(js, js->work_rc, &js->work_error);
}

void step_rename(struct jobs *js)
{
    js->renaming = true;
    step_work(js, rename_run, rename_done);
}

/* A sync may fail after the folder has moved: then nobody knows that it is
 * there for good, and it moves back. */
static void unpublish_run(struct work *w) /* file thread */
{
    struct jobs *js = container_of(w, struct jobs, work);
    char to[HOME_PATH_MAX];
    if (!file_exists(js->bundle) && target(js, to) &&
        rename(to, js->bundle) != 0 && errno != ENOENT) {
        js->work_rc = err_set(&js->work_error, ERR_BUSY,
                              "the model's folder cannot be moved");
    }
}

static void unpublish_done(struct work *w)
{
    struct jobs *js = container_of(w, struct jobs, work);
    js->working = false;
    if (js->work_rc != 0 || js->stopping) {
        step_over(js, js->work_rc, &js->work_error);
        return;
    }
    js->renaming = false;
    js->unpublished(js);
}

void job_unpublish(struct jobs *js, void (*over)(struct jobs *js))
{
    if (!js->renaming) {
        over(js);
        return;
    }
    model_free(js->model);
    js->model = NULL;
    js->unpublished = over;
    step_work(js, unpublish_run, unpublish_done);
}

/* --- commit --- */

void step_commit(struct jobs *js)
{
    struct job *j = js->current;
    struct store_job row;
    job_next_row(j, &row);
    row.state = JOB_DONE;
    row.intent[0] = '\0';
    row.progress = 1;
    row.finished_ms = server_unix_ms();
    step_record(js, &row, js->model);
}

struct model *job_published(const struct job *j)
{
    struct model *m = models_find(j->of->srv->models, j->row.name);
    return j->row.intent[0] != '\0' && m != NULL && m->adopted &&
                   m->bundle != NULL &&
                   strcmp(m->bundle->fingerprint, j->row.intent) == 0
               ? m
               : NULL;
}
