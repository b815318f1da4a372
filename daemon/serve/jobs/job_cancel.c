/* job_cancel.c - an answer to a cancellation says that it lasts: the record
 * comes first, then the worker is told. A step that ends meanwhile waits
 * (job_advance). */
#include "base/log.h"
#include "serve/jobs/jobs_impl.h"
#include "store/row.h"

void job_cancels_told(struct job *j, int rc, const struct err *e)
{
    while (!list_empty(&j->cancels)) {
        struct job_cancel *c =
            container_of(j->cancels.next, struct job_cancel, link);
        list_del(&c->link);
        c->fn(c, rc, e, j);
    }
}

/* The job runs: it is over when its step is. */
static void stop_current(struct jobs *js, struct store_job *row)
{
    struct job *j = js->current;
    j->cancelling = true;
    js->last = *row;
    row->spec = row->message = row->result = NULL;
    if (js->child != NULL) {
        child_send(js->child, FRAME_CANCEL, 0, NULL, 0);
        child_deadline(js->child, JOB_CANCEL_MS);
    } else if (uv_is_active((uv_handle_t *)&js->retry) != 0) {
        must(uv_timer_stop(&js->retry) == 0);
        js->over = true;
    }
    job_tell(j);
}

static void on_recorded(struct job *j, int rc, const struct err *e,
                        struct store_job *row)
{
    struct jobs *js = j->of;
    bool current = j == js->current;
    if (rc == 0 && current) {
        stop_current(js, row);
    } else if (rc == 0) {
        job_adopt(j, row);
    }
    job_cancels_told(j, rc, e);
    if (rc == 0 && !current) {
        job_ended(j);
    }
    job_advance(js);
    jobs_next_run(js);
}

bool job_write_cancel(struct job *j)
{
    struct store_job row;
    struct err e = {0};
    job_next_row(j, &row);
    row.state = JOB_CANCELLED;
    row.intent[0] = '\0';
    row.finished_ms = server_unix_ms();
    row.message =
        row_dup(j == j->of->current ? "cancelled" : "cancelled while queued");
    (void)snprintf(row.error, sizeof(row.error), "%s", err_name(ERR_CANCELLED));
    int rc = job_record(j, &row, NULL, on_recorded, &e);
    if (rc != 0) {
        job_cancels_told(j, rc, &e);
    }
    return rc == 0;
}

int job_cancel(struct job *j, struct job_cancel *c, struct err *e)
{
    struct jobs *js = j->of;
    static const struct err none;
    if (job_over(j)) {
        return err_set(e, ERR_CONFLICT, "the job is %s already",
                       job_state_name(j->row.state));
    }
    if (js->stopping) {
        return err_set(e, ERR_UNAVAILABLE, "the daemon is stopping");
    }
    if (j->resumes || (j == js->current && js->step >= STEP_RENAME)) {
        return err_set(e, ERR_CONFLICT,
                       j == js->current && js->step == STEP_FAIL
                           ? "the job has failed"
                           : "the model is being published");
    }
    if (j->cancelling) {
        c->fn(c, 0, &none, j);
        return 0;
    }
    j->discard = c->discard;
    list_push(&j->cancels, &c->link);
    if (j->record == NULL) { /* else after that one */
        (void)job_write_cancel(j);
    }
    return 0;
}
