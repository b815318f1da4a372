/* role_state.c - saves and loads states in slices of time: role.c runs one
 * slice after each step, and more while no frame waits. */
#include <string.h>

#include "base/log.h"
#include "engine/role_impl.h"

#define SLICE_US 2000u /* what a step may wait for a state, at most */

static void job_free(struct job *j)
{
    if (j == NULL) {
        return;
    }
    snapshot_free(j->x);
    msg_state_fini(&j->m);
    free(j);
}

void role_job_end(struct role *r)
{
    job_free(r->jobs[0]);
    r->n_jobs--;
    memmove(r->jobs, r->jobs + 1, r->n_jobs * sizeof(r->jobs[0]));
}

/* The loaded sequence gets its place, unless that was taken meanwhile. */
static int job_place(struct role *r, const struct job *j, struct err *e)
{
    struct slot *s = NULL;
    int rc = role_add(r, j->m.seq, &s, e);
    if (s != NULL) {
        s->seq = snapshot_take(j->x);
    }
    return rc;
}

/* A slice of the first one. */
void role_job_run(struct role *r)
{
    struct job *j = r->jobs[0];
    struct msg_state_done done;
    struct err why;
    struct err e;
    int rc = snapshot_run(j->x, SLICE_US, &e);
    if (rc == 0) {
        return;
    }
    if (rc > 0) {
        snapshot_done(j->x, &done, &why);
        done.seq = j->m.seq;
        if (done.bad > 0) {
            log_warn("state_refused", "file=%s error=%s: %s, continuing",
                     j->m.parts[done.bad - 1].path, err_name(why.code),
                     why.msg);
        }
        rc = j->loads ? job_place(r, j, &e) : 0;
    }
    r->request = j->request;
    if (rc < 0) {
        role_answer_error(r, &e);
    } else {
        msg_state_done_put(&r->out, &done);
        role_answer(r, FRAME_STATE_DONE);
    }
    role_job_end(r);
}

static int job_start(struct role *r, enum frame_type type, struct job *j,
                     struct err *e)
{
    const struct slot *s = role_find(r, j->m.seq);
    if (r->n_jobs == countof(r->jobs)) {
        return err_set(e, ERR_BUSY, "%u states are on their way", r->n_jobs);
    }
    if (type == FRAME_STATE_LOAD) {
        return s == NULL
                   ? snapshot_load(r->g, &j->m, &j->x, e)
                   : err_set(e, ERR_CONFLICT, "sequence %u is open", j->m.seq);
    }
    if (s == NULL) {
        return err_set(e, ERR_NOT_FOUND, "no sequence %u", j->m.seq);
    }
    return j->m.n_parts == 1
               ? snapshot_save(s->seq, &j->m.parts[0], &j->x, e)
               : err_set(e, ERR_INVALID, "%u files to save", j->m.n_parts);
}

int role_on_state(struct role *r, const struct frame *f, struct err *e)
{
    struct job *j = calloc(1, sizeof(*j));
    must(j != NULL);
    j->request = f->request;
    j->loads = f->type == FRAME_STATE_LOAD;
    int rc = 0;
    CHECK(msg_state_get(f->payload, f->n, &j->m, e));
    CHECK(job_start(r, f->type, j, e));
    r->jobs[r->n_jobs++] = j;
    j = NULL; /* given away */
out:
    job_free(j);
    return rc;
}
