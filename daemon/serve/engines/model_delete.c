/* model_delete.c - a model goes. See models.h.
 *
 *   model_delete --> away (files) --> row (store) --> forgotten; bytes go later
 *                      |                 |
 *                      +-- cannot move   +-- no --> back (files)
 *
 * Before the folder's bytes go the row does: until then the folder can be put
 * back. A crash in between leaves a row without a folder, which models_merge
 * drops. */
#include <errno.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "serve/engines/models_impl.h"
#include "serve/gen/session.h"

struct removal { /* of a tree, on the file thread */
    struct work work;
    char path[HOME_PATH_MAX];
};

static void removal_run(struct work *w)
{
    struct removal *r = container_of(w, struct removal, work);
    struct err e = {0};
    if (file_rmtree(r->path, &e) != 0) {
        log_warn("remove_failed", "error=%s, continuing", e.msg);
    }
}

static void removal_done(struct work *w)
{
    free(container_of(w, struct removal, work));
}

void models_remove_tree(struct server *s, const char *path)
{
    struct removal *r = calloc(1, sizeof(*r));
    must(r != NULL);
    r->work.run = removal_run;
    r->work.done = removal_done;
    (void)snprintf(r->path, sizeof(r->path), "%s", path);
    if (workq_put(s->files, &r->work) != 0) {
        log_warn("remove_later", "%s goes at the next start, continuing", path);
        free(r);
    }
}

/* What was saved of it goes, unless a twin of it could still use that. */
static void forget_states(const struct model *m)
{
    if (m->runner != NULL) {
        runner_discard(m->runner);
    }
    if (m->bundle == NULL || m->of->srv->cache == NULL) {
        return;
    }
    LIST_EACH(l, &m->of->all) {
        const struct model *x = model_of(l);
        if (x != m && x->bundle != NULL &&
            strcmp(x->bundle->fingerprint, m->bundle->fingerprint) == 0) {
            return;
        }
    }
    cache_forget(m->of->srv->cache, m->bundle->fingerprint);
}

struct deletion {
    struct work work;
    struct model *m;
    char trash[HOME_PATH_MAX]; /* where the folder is meanwhile */
    int rc;                    /* how it went until now */
    struct err why;
    store_done_fn *done;
    void *ctx;
};

/* Its row is gone, durably. */
static void forget(struct model *m, const char *trash)
{
    struct server *s = m->of->srv;
    log_info("model_deleted", "model=%s", m->name);
    verify_forget(m);
    probe_forget(m);
    forget_states(m);
    if (s->sessions != NULL) {
        sessions_forget(s->sessions, m->name);
    }
    models_remove_tree(s, trash);
    models_remove_tree(s, m->prepared); /* it may not be there */
    if (m->runner != NULL && runner_state(m->runner) != RUNNER_DOWN) {
        m->leaving = true;
        runner_stop(m->runner); /* on_down frees the model */
        list_del(&m->link);     /* not listed any more */
        list_push(&m->of->leaving, &m->link);
        m->of->n--;
        m->of->n_leaving++;
    } else {
        model_free(m);
    }
}

static void end(struct deletion *d)
{
    struct models *ms = d->m->of;
    if (d->rc == 0) {
        forget(d->m, d->trash);
    } else {
        d->m->deleting = false;
    }
    d->done(d->ctx, d->rc, &d->why);
    free(d);
    ms->n_deleting--;
    models_maybe_closed(ms);
}

static void fails(struct deletion *d, int rc, const char *why)
{
    d->rc = err_set(&d->why, rc, "%s", why);
}

static void back_run(struct work *w) /* file thread */
{
    struct deletion *d = container_of(w, struct deletion, work);
    if (rename(d->trash, d->m->dir) != 0) {
        log_error("model_lost", "model=%s lies at %s", d->m->name, d->trash);
    }
}

static void back_done(struct work *w)
{
    end(container_of(w, struct deletion, work));
}

static void put_back(struct deletion *d)
{
    d->work.run = back_run;
    d->work.done = back_done;
    if (workq_put(d->m->of->srv->files, &d->work) != 0) {
        back_run(&d->work); /* the loop rather waits than lose a model */
        end(d);
    }
}

static void on_row_deleted(void *ctx, int status, const struct err *e)
{
    struct deletion *d = ctx;
    if (status == 0) {
        end(d);
        return;
    }
    fails(d, status, e != NULL ? e->msg : "the row is not deleted");
    put_back(d);
}

static void away_run(struct work *w) /* file thread */
{
    struct deletion *d = container_of(w, struct deletion, work);
    if (rename(d->m->dir, d->trash) != 0) {
        d->rc = err_errno(&d->why, errno, "taking the model's folder away");
    }
}

static void away_done(struct work *w)
{
    struct deletion *d = container_of(w, struct deletion, work);
    if (d->rc != 0) {
        end(d);
        return;
    }
    int rc =
        store_model_delete(d->m->of->srv->store, d->m->name, on_row_deleted, d);
    if (rc != 0) {
        fails(d, rc, "the store is busy");
        put_back(d);
    }
}

int model_delete(struct model *m, store_done_fn *done, void *ctx, struct err *e)
{
    struct server *s = m->of->srv;
    char id[40];
    if (m->users > 0 || m->deleting) {
        return err_set(e, ERR_CONFLICT, "%s is in use", m->name);
    }
    struct deletion *d = calloc(1, sizeof(*d));
    must(d != NULL);
    *d = (struct deletion){
        .work = {.run = away_run, .done = away_done},
        .m = m,
        .done = done,
        .ctx = ctx,
    };
    store_new_id("del", id);
    int rc = !file_join(d->trash, sizeof(d->trash), s->home.staging, id)
                 ? err_set(e, ERR_IO, "path too long")
             : workq_put(s->files, &d->work) != 0
                 ? err_set(e, ERR_BUSY, "too many files are being worked on")
                 : 0;
    if (rc != 0) {
        free(d);
        return rc;
    }
    m->deleting = true;
    m->of->n_deleting++;
    return 0;
}
