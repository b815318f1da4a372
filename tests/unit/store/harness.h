/* harness.h - a store in a folder of its own, with its loop. */
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../unit.h"
#include "store/store.h"

struct fix {
    uv_loop_t loop;
    struct store *s;
    char dir[64];
    char path[96];
    int closed;
};

static inline void fix_closed(void *ctx)
{
    ((struct fix *)ctx)->closed++;
}

static inline int fix_open(struct fix *f, struct err *e)
{
    return store_open(&f->loop, f->path, &f->s, e);
}

static inline void fix_close(struct fix *f)
{
    if (f->s != NULL) {
        int before = f->closed;
        store_close(f->s, fix_closed, f);
        f->s = NULL;
        assert_int_equal(uv_run(&f->loop, UV_RUN_DEFAULT), 0);
        assert_int_equal(f->closed, before + 1);
    }
}

static inline int fix_up(void **state)
{
    struct fix *f = calloc(1, sizeof(*f));
    must(f != NULL);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/aned-store-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)snprintf(f->path, sizeof(f->path), "%s/aned.db", f->dir);
    *state = f;
    return 0;
}

static inline int fix_down(void **state)
{
    struct fix *f = *state;
    char cmd[160];
    fix_close(f);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    (void)snprintf(cmd, sizeof(cmd), "rm -rf '%s'", f->dir);
    assert_int_equal(system(cmd), 0);
    free(f);
    return 0;
}

/* The last answer. */
static struct {
    int n, status;
    char msg[ERR_MSG_MAX];
} answer;

static inline void on_done(void *ctx, int status, const struct err *e)
{
    (void)ctx;
    answer.n++;
    answer.status = status;
    (void)snprintf(answer.msg, sizeof(answer.msg), "%s", e->msg);
}

/* Turn the loop until one more answer is there. */
static inline int wait_answer(struct fix *f)
{
    int n = answer.n;
    while (answer.n == n) {
        (void)uv_run(&f->loop, UV_RUN_ONCE);
    }
    return answer.status;
}

static inline struct store_job job_of(const char *id, enum job_state state)
{
    struct store_job j = {
        .state = state, .spec = (char *)(uintptr_t) "{}", .created_ms = 1000};
    (void)snprintf(j.id, sizeof(j.id), "%s", id);
    (void)snprintf(j.name, sizeof(j.name), "m");
    return j;
}

static inline int put_job(struct fix *f, const struct store_job *j)
{
    int rc = store_job_put(f->s, j, on_done, NULL);
    assert_int_equal(rc, 0);
    return wait_answer(f);
}

/* A list as text: "id=state/attempts " each. */
static char listed[65536];
static size_t listed_n;

static inline void on_jobs(void *ctx, int status, const struct store_job *v,
                           size_t n)
{
    size_t at = 0;
    (void)ctx;
    answer.n++;
    answer.status = status;
    listed[0] = '\0';
    listed_n = n;
    for (size_t i = 0; i < n && at < sizeof(listed) - 100; i++) {
        at += (size_t)snprintf(listed + at, sizeof(listed) - at, "%s=%s/%u ",
                               v[i].id, job_state_name(v[i].state),
                               v[i].attempts);
    }
}

static inline const char *list_jobs(struct fix *f)
{
    assert_int_equal(store_jobs(f->s, 1000, on_jobs, NULL), 0);
    assert_int_equal(wait_answer(f), 0);
    return listed;
}
