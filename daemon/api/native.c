/* native.c - /aned/v1: jobs and streams. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "serve/gen/resume.h"

/* --- jobs --- */

struct creation { /* waits for the source and the store */
    struct job_created created;
    struct http_req *r; /* NULL: the client left; the job continues */
};

static void creation_gone(struct http_req *r, void *user)
{
    (void)r;
    ((struct creation *)user)->r = NULL;
}

static void on_created(struct job_created *jc, int rc, const char *param,
                       const struct err *e, const struct job *j)
{
    struct creation *c = container_of(jc, struct creation, created);
    if (c->r != NULL && rc == 0) {
        api_reply(c->r, 202, job_json(j));
    } else if (c->r != NULL) {
        api_fail(c->r, rc, param, e->msg);
    }
    free(c);
}

void api_jobs_create(struct http_req *r, const struct http_args *a)
{
    struct server *s = http_ctx(r);
    struct json *j = NULL;
    const char *param = NULL;
    struct err e = {0};
    (void)a;
    if (api_body(r, &j) != 0) {
        return;
    }
    struct creation *c = calloc(1, sizeof(*c));
    must(c != NULL);
    c->created.fn = on_created;
    c->r = r;
    int rc = jobs_create(s->jobs, j, &c->created, &param, &e);
    if (rc != 0) {
        api_fail(r, rc, param, e.msg);
        free(c);
    } else {
        http_on_gone(r, creation_gone, c);
    }
    json_free(j);
}

void api_jobs_list(struct http_req *r, const struct http_args *a)
{
    struct server *s = http_ctx(r);
    struct buf b;
    (void)a;
    api_list_begin(&b, "jobs", NULL);
    for (struct job *j = jobs_first(s->jobs); j != NULL; j = jobs_next(j)) {
        api_list_add(&b, job_json(j));
    }
    api_list_reply(r, &b);
}

static struct job *find_job(struct http_req *r, const struct http_args *a)
{
    struct server *s = http_ctx(r);
    struct job *j = jobs_find(s->jobs, a->v[0]);
    if (j == NULL) {
        http_reply_error(r, ERR_NOT_FOUND, "there is no such job");
    }
    return j;
}

void api_job_get(struct http_req *r, const struct http_args *a)
{
    struct job *j = find_job(r, a);
    if (j != NULL) {
        api_reply(r, 200, job_json(j));
    }
}

struct cancellation { /* waits for the store */
    struct job_cancel cancel;
    struct http_req *r; /* NULL: the client left; the job is cancelled */
};

static void cancellation_gone(struct http_req *r, void *user)
{
    (void)r;
    ((struct cancellation *)user)->r = NULL;
}

static void on_cancelled(struct job_cancel *jc, int rc, const struct err *e,
                         const struct job *j)
{
    struct cancellation *c = container_of(jc, struct cancellation, cancel);
    if (c->r != NULL && rc == 0) {
        api_reply(c->r, 200, job_json(j));
    } else if (c->r != NULL) {
        http_reply_error(c->r, rc, e->msg);
    }
    free(c);
}

/* {"discard": true}, or no body. false: answered. */
static bool cancel_wish(struct http_req *r, bool *discard)
{
    struct json *o = NULL;
    struct err e = {0};
    const char *param = "discard";
    if (http_body(r).n == 0) {
        return true;
    }
    if (api_body(r, &o) != 0) {
        return false;
    }
    int rc = json_want_bool(o, param, false, discard, &e);
    for (const struct json *c = json_first(o); rc == 0 && c != NULL;
         c = json_next(c)) {
        if (strcmp(json_key(c), param) != 0) {
            rc = err_set(&e, ERR_UNSUPPORTED, "no such field '%.64s'",
                         json_key(c));
            param = json_key(c);
        }
    }
    if (rc != 0) {
        api_fail(r, rc, param, e.msg);
    }
    json_free(o);
    return rc == 0;
}

void api_job_cancel(struct http_req *r, const struct http_args *a)
{
    struct job *j = find_job(r, a);
    struct err e = {0};
    bool discard = false;
    if (j == NULL || !cancel_wish(r, &discard)) {
        return;
    }
    struct cancellation *c = calloc(1, sizeof(*c));
    must(c != NULL);
    c->cancel.fn = on_cancelled;
    c->cancel.discard = discard;
    c->r = r;
    http_on_gone(r, cancellation_gone, c);
    int rc = job_cancel(j, &c->cancel, &e);
    if (rc != 0) {
        http_reply_error(r, rc, e.msg);
        free(c);
    }
}

struct follower { /* one event stream */
    struct job_watch watch;
    struct http_req *r;
    bool slow; /* skip until it has read: only the newest state counts */
};

static bool send_job(struct follower *f, const struct job *j)
{
    struct buf b;
    struct json *o = job_json(j);
    buf_init(&b, MIB(4));
    buf_puts(&b, "data: ");
    json_write(o, false, &b);
    buf_puts(&b, "\n\n");
    json_free(o);
    bool fast = !buf_ok(&b) || http_stream_write(f->r, b.p, b.n);
    buf_fini(&b);
    return fast;
}

static void on_job(struct job_watch *w, const struct job *j, bool last)
{
    struct follower *f = container_of(w, struct follower, watch);
    if (last || !f->slow) {
        f->slow = !send_job(f, j);
    }
    if (last) {
        http_stream_end(f->r);
        free(f);
    }
}

static void follower_gone(struct http_req *r, void *user)
{
    struct follower *f = user;
    (void)r;
    job_unwatch(&f->watch);
    free(f);
}

static void follower_drained(struct http_req *r, void *user)
{
    (void)r;
    ((struct follower *)user)->slow = false;
}

void api_job_events(struct http_req *r, const struct http_args *a)
{
    struct job *j = find_job(r, a);
    if (j == NULL) {
        return;
    }
    struct follower *f = calloc(1, sizeof(*f));
    must(f != NULL);
    f->r = r;
    f->watch.fn = on_job;
    http_stream_begin(r, 200, "text/event-stream");
    (void)send_job(f, j);
    if (job_over(j) || ((struct server *)http_ctx(r))->draining) {
        http_stream_end(r);
        free(f);
        return;
    }
    http_on_gone(r, follower_gone, f);
    http_stream_on_drain(r, follower_drained);
    job_watch(j, &f->watch);
}

/* --- resumable streams --- */

/* Last-Event-ID as SSE has it, or ?from=N: what follows event N. */
void api_stream(struct http_req *r, const struct http_args *a)
{
    struct server *s = http_ctx(r);
    struct err e = {0};
    char from[24];
    const char *last = http_header(r, "last-event-id");
    if (last == NULL) {
        last = http_query(r, "from", from, sizeof(from));
    }
    uint64_t after = 0;
    for (const char *p = last; p != NULL && *p != '\0'; p++) {
        if (*p < '0' || *p > '9' || p - last >= 18) {
            http_reply_error(r, ERR_INVALID,
                             "Last-Event-ID: must be the number of an event");
            return;
        }
        after = 10 * after + (uint64_t)(*p - '0');
    }
    int rc = resume_attach(s, a->v[0], after, r, &e);
    if (rc != 0) {
        http_reply_error(r, rc, e.msg);
    }
}

void api_stream_cancel(struct http_req *r, const struct http_args *a)
{
    struct server *s = http_ctx(r);
    if (resume_cancel(s, a->v[0]) != 0) {
        http_reply_error(r, ERR_NOT_FOUND, "there is no such stream");
        return;
    }
    struct json *o = json_object();
    json_add_str(o, "id", a->v[0]);
    json_add_str(o, "object", "aned.stream");
    json_add_bool(o, "deleted", true);
    api_reply(r, 200, o);
}
