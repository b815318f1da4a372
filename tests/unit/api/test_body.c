/* Bodies that the text thread reads: what it found is what `go` sees, also when
 * it is done before api_read_body returns. http/ is stood in for, so that there
 * is no connection; workq_put returns when the work has run. */
#include "../unit.h"
#include "api/api.h"

static struct server server;
static struct buf body;
static bool gone_is_set;
static uv_sem_t ran;

int __real_workq_put(struct workq *q, struct work *w);
int __wrap_workq_put(struct workq *q, struct work *w);
void *__wrap_http_ctx(const struct http_req *r);
struct span __wrap_http_body(const struct http_req *r);
void __wrap_http_take_body(struct http_req *r, struct buf *ret);
void __wrap_http_on_gone(struct http_req *r,
                         void (*fn)(struct http_req *r, void *user),
                         void *user);

static void (*real_run)(struct work *w);

static void run_and_tell(struct work *w) /* text thread */
{
    real_run(w);
    uv_sem_post(&ran);
}

int __wrap_workq_put(struct workq *q, struct work *w)
{
    real_run = w->run;
    w->run = run_and_tell;
    int rc = __real_workq_put(q, w);
    if (rc == 0) {
        uv_sem_wait(&ran);
    }
    return rc;
}

void *__wrap_http_ctx(const struct http_req *r)
{
    (void)r;
    return &server;
}

struct span __wrap_http_body(const struct http_req *r)
{
    (void)r;
    return (struct span){body.p, body.n};
}

void __wrap_http_take_body(struct http_req *r, struct buf *ret)
{
    (void)r;
    *ret = body;
    buf_init(&body, MIB(4));
}

void __wrap_http_on_gone(struct http_req *r,
                         void (*fn)(struct http_req *r, void *user), void *user)
{
    (void)r;
    (void)user;
    gone_is_set = fn != NULL;
}

/* --- */

struct handler {
    struct api_read read;
    int64_t n; /* what `read` took */
    int rc, gone;
};

static int take_n(struct api_read *x, const struct json *j)
{
    struct handler *k = container_of(x, struct handler, read);
    return json_want_int(j, "n", true, 1, 16, &k->n, &x->e);
}

static void go(struct api_read *x)
{
    struct handler *k = container_of(x, struct handler, read);
    k->rc = x->rc;
    k->gone++;
}

/* A body of at least `size` bytes, after which `n` bodies wait. */
static void ask(struct handler *k, const char *begin, size_t size)
{
    static char request;
    *k = (struct handler){
        .read = {.read = take_n, .go = go},
          .rc = 1
    };
    buf_init(&body, MIB(4));
    buf_puts(&body, begin);
    for (size_t i = 0; i < size; i++) {
        buf_puts(&body, " ");
    }
    api_read_body((struct http_req *)(void *)&request, &k->read);
    while (k->gone == 0) {
        (void)uv_run(&server.loop, UV_RUN_ONCE);
    }
    assert_int_equal(k->gone, 1);
    assert_false(gone_is_set);
    buf_fini(&body);
}

static void what_the_thread_found(void **state)
{
    static const size_t sizes[] = {0, KIB(256)}; /* here, on the thread */
    struct handler k;
    (void)state;
    for (size_t i = 0; i < countof(sizes); i++) {
        ask(&k, "{\"n\":7}", sizes[i]);
        assert_int_equal(k.rc, 0);
        assert_int_equal(k.n, 7);
        ask(&k, "{\"n\":", sizes[i]);
        assert_int_equal(k.rc, ERR_JSON);
        ask(&k, "[1]", sizes[i]);
        assert_int_equal(k.rc, ERR_JSON);
        ask(&k, "{\"n\":17}", sizes[i]);
        assert_int_equal(k.rc, ERR_INVALID);
        assert_int_equal(k.read.e.code, ERR_INVALID);
    }
}

static void on_closed(void *ctx)
{
    *(bool *)ctx = true;
}

static int up(void **state)
{
    (void)state;
    assert_int_equal(uv_sem_init(&ran, 0), 0);
    assert_int_equal(uv_loop_init(&server.loop), 0);
    server.text = workq_new(&server.loop, 4);
    return 0;
}

static int down(void **state)
{
    bool closed = false;
    (void)state;
    workq_close(server.text, on_closed, &closed);
    assert_int_equal(uv_run(&server.loop, UV_RUN_DEFAULT), 0);
    assert_true(closed);
    uv_sem_destroy(&ran);
    return uv_loop_close(&server.loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_thread_found),
    };
    return cmocka_run_group_tests_name("body", tests, up, down);
}
