/* job_work.c - what becomes of a job's folder when the job is over. */
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "serve/jobs/jobs_impl.h"

struct leaving { /* on the file thread */
    struct work work;
    bool keep;
    char staging[HOME_PATH_MAX];
    char bundle[HOME_PATH_MAX];
};

/* A bundle that was not published goes in any case: without its conversion's
 * end nobody knows how it was judged. */
static void leaving_run(struct work *w)
{
    struct leaving *l = container_of(w, struct leaving, work);
    struct err e = {0};
    int rc = file_rmtree(l->bundle, &e);
    if (rc == 0 && !(l->keep && work_left(l->staging))) {
        rc = file_rmtree(l->staging, &e);
    }
    if (rc != 0) {
        log_warn("remove_failed", "error=%s, continuing", e.msg);
    }
}

static void leaving_done(struct work *w)
{
    free(container_of(w, struct leaving, work));
}

void job_leave_work(struct jobs *js, bool keep)
{
    if (js->staging[0] == '\0') {
        return;
    }
    struct leaving *l = calloc(1, sizeof(*l));
    must(l != NULL);
    l->work = (struct work){.run = leaving_run, .done = leaving_done};
    l->keep = keep;
    memcpy(l->staging, js->staging, sizeof(l->staging));
    memcpy(l->bundle, js->bundle, sizeof(l->bundle));
    js->staging[0] = '\0';
    if (workq_put(js->srv->files, &l->work) != 0) {
        log_warn("remove_later", "%s goes at a later start, continuing",
                 l->staging);
        free(l);
    }
}
