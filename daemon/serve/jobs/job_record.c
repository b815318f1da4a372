/* job_record.c - changes of a job that count when the store has them.
 *
 * A record is the whole row as it is going to be. Until the store says yes the
 * job is shown as it was; if it says no that stays so. */
#include "base/log.h"
#include "serve/jobs/jobs_impl.h"
#include "store/row.h"

struct record {
    struct job *job;
    struct store_job row;
    record_fn *fn;
};

void job_next_row(const struct job *j, struct store_job *ret)
{
    row_copy_job(ret, &j->row);
    free(ret->message);
    ret->message = NULL;
}

void job_adopt(struct job *j, struct store_job *row)
{
    enum job_state s = row->state;
    row_free_strings(&j->row);
    row->state = j->row.state;
    j->row = *row;
    row->spec = row->message = row->result = NULL;
    job_set(j, s);
}

static void on_recorded(void *ctx, int status, const struct err *e)
{
    struct record *r = ctx;
    struct job *j = r->job;
    j->record = NULL;
    if (status != 0) {
        log_warn("job_not_saved", "job=%s error=%s: %s, continuing", j->row.id,
                 err_name(status), e->msg);
    }
    r->fn(j, status, e, &r->row);
    row_free_strings(&r->row);
    free(r);
}

static struct store_artifact *artifacts(const struct model *m)
{
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
    return a;
}

int job_record(struct job *j, struct store_job *row, const struct model *m,
               record_fn *fn, struct err *e)
{
    struct store *s = j->of->srv->store;
    int rc = 0;
    must(j->record == NULL);
    struct record *r = calloc(1, sizeof(*r));
    must(r != NULL);
    *r = (struct record){.job = j, .row = *row, .fn = fn};
    j->saved_us = server_now_us();
    if (m != NULL) {
        struct store_model mr;
        struct store_artifact *a = artifacts(m);
        model_row(m, &mr);
        rc = store_publish(s, row, &mr, a, m->bundle->n_files, on_recorded, r);
        free(a);
    } else {
        rc = store_job_put(s, row, on_recorded, r);
    }
    if (rc != 0) {
        row_free_strings(&r->row);
        free(r);
        return err_set(e, rc, "the store is busy");
    }
    j->record = r;
    return 0;
}

static void on_saved(void *ctx, int status, const struct err *e)
{
    (void)ctx;
    if (status != 0) {
        log_warn("job_not_saved", "error=%s: %s, continuing", err_name(status),
                 e->msg);
    }
}

void job_save(struct job *j)
{
    j->saved_us = server_now_us();
    if (j->record == NULL && !j->cancelling &&
        store_job_put(j->of->srv->store, &j->row, on_saved, NULL) != 0) {
        log_warn("store_busy", "job=%s not saved, continuing", j->row.id);
    }
}
