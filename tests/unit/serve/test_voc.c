/* A vocabulary that cannot be opened: refused with its reason, and tried again
 * when that may have passed. */
#include <sys/resource.h>
#include <unistd.h>

#include "../unit.h"
#include "base/file.h"
#include "serve/gen/voc.h"

static struct {
    uv_loop_t loop;
    struct workq *q;
    struct voc *voc;
    struct text_work work;
    char dir[64], file[160], away[160];
    bool closed, over;
} t;

static void on_closed(void *ctx)
{
    (void)ctx;
    t.closed = true;
}

static int setup(void **state)
{
    char command[1200];
    (void)state;
    memset(&t, 0, sizeof(t));
    (void)snprintf(t.dir, sizeof(t.dir), "/tmp/aned-voc-XXXXXX");
    assert_non_null(mkdtemp(t.dir));
    (void)snprintf(command, sizeof(command),
                   "mkdir -p %s/fake && "
                   "'%s/tests/unit/serve/fake_bundle' %s/fake 512",
                   t.dir, getenv("ANED_BUILD"), t.dir);
    assert_int_equal(system(command), 0);
    (void)snprintf(t.file, sizeof(t.file), "%s/fake/tokenizer.gguf", t.dir);
    (void)snprintf(t.away, sizeof(t.away), "%s/away", t.dir);
    (void)snprintf(command, sizeof(command), "%s/fake", t.dir);
    assert_int_equal(uv_loop_init(&t.loop), 0);
    t.q = workq_new(&t.loop, 4);
    t.voc = voc_new(command);
    return 0;
}

static int teardown(void **state)
{
    struct err e = {0};
    (void)state;
    voc_unref(t.voc);
    workq_close(t.q, on_closed, NULL);
    assert_int_equal(uv_run(&t.loop, UV_RUN_DEFAULT), 0);
    assert_true(t.closed);
    assert_int_equal(uv_loop_close(&t.loop), 0);
    return file_rmtree(t.dir, &e);
}

static void on_done(struct text_work *w)
{
    (void)w;
    t.over = true;
}

/* What became of a short text. */
static int encode(void)
{
    t.work = (struct text_work){
        .kind = TEXT_ENCODE, .text = "hello", .text_n = 5, .done = on_done};
    t.over = false;
    assert_int_equal(text_put(t.q, t.voc, &t.work), 0);
    while (!t.over) {
        (void)uv_run(&t.loop, UV_RUN_ONCE);
    }
    int rc = t.work.rc;
    assert_int_equal(t.work.n_tokens > 0, rc == 0);
    text_fini(&t.work);
    return rc;
}

static void the_file_is_mended(void **state)
{
    (void)state;
    assert_int_equal(rename(t.file, t.away), 0);
    int rc = encode();
    assert_true(rc < 0);
    assert_false(t.voc->open);
    assert_int_equal(rename(t.away, t.file), 0);
    t.voc->again_ms = UINT64_MAX; /* not again for a while: the same reason */
    assert_int_equal(encode(), rc);
    t.voc->again_ms = 0;
    assert_int_equal(encode(), 0);
    assert_true(t.voc->open);
    assert_int_equal(encode(), 0); /* on the loop now */
}

/* No descriptor was free just then. */
static void descriptors_ran_out(void **state)
{
    struct rlimit r;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &r), 0);
    rlim_t all = r.rlim_cur;
    int next = dup(STDIN_FILENO);
    assert_true(next >= 0);
    (void)close(next);
    r.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &r), 0);
    int rc = encode();
    r.rlim_cur = all;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &r), 0);
    assert_true(rc < 0);
    for (int i = 0; i < 100 && encode() != 0; i++) { /* by its own clock */
        (void)usleep(VOC_RETRY_MS * 100);
    }
    assert_true(t.voc->open);
}

/* A short conversation becomes this prompt by that template. */
static void chat(const char *template, const char *prompt, bool here)
{
    struct err e = {0};
    const struct chat_message m = {
        .role = "user", .content = "hello", .content_n = 5};
    chat_free(t.voc->tmpl);
    unit_ok(chat_compile(template, &t.voc->tmpl, &e), &e);
    t.voc->tmpl_rc = 0;
    t.work = (struct text_work){.kind = TEXT_CHAT,
                                .messages = &m,
                                .n_messages = 1,
                                .done = on_done};
    t.over = false;
    assert_int_equal(text_put(t.q, t.voc, &t.work), 0);
    while (!t.over) {
        (void)uv_run(&t.loop, UV_RUN_ONCE);
    }
    unit_ok(t.work.rc, &t.work.e);
    assert_int_equal(t.work.here, here);
    assert_int_equal(t.work.out.n, strlen(prompt));
    assert_memory_equal(t.work.out.p, prompt, strlen(prompt));
    assert_true(t.work.n_tokens > 0);
    text_fini(&t.work);
}

/* The loop gives a template a few steps; one that takes more is the text
 * thread's. */
static void long_templates_leave_the_loop(void **state)
{
    (void)state;
    assert_int_equal(encode(), 0); /* it is open from here on */
    chat("<{{ messages[0].content }}>", "<hello>", true);
    chat("{% for i in range(30000) %}{% endfor %}<{{ messages[0].content }}>",
         "<hello>", false);
    chat("<{{ messages[0].content }}>", "<hello>", true);
}

struct gate {
    struct work work;
    uv_sem_t open;
};

static void wait_at_gate(struct work *w)
{
    uv_sem_wait(&container_of(w, struct gate, work)->open);
}

static void on_passed(struct work *w)
{
    (void)w;
}

/* What the thread has not begun is taken back; what it has is waited for. */
static void work_is_taken_back(void **state)
{
    struct gate g = {.work = {.run = wait_at_gate, .done = on_passed}};
    (void)state;
    assert_int_equal(uv_sem_init(&g.open, 0), 0);
    assert_int_equal(workq_put(t.q, &g.work), 0);
    t.work = (struct text_work){
        .kind = TEXT_ENCODE, .text = "hello", .text_n = 5, .done = on_done};
    assert_int_equal(text_put(t.q, t.voc, &t.work), 0);
    assert_int_equal(workq_depth(t.q), 2);
    assert_int_equal(t.voc->refs, 2);
    assert_true(text_cancel(t.q, &t.work));
    assert_int_equal(workq_depth(t.q), 1);
    assert_int_equal(t.voc->refs, 1);
    uv_sem_post(&g.open);
    while (workq_depth(t.q) > 0) {
        (void)uv_run(&t.loop, UV_RUN_ONCE);
    }
    assert_false(workq_cancel(t.q, &g.work));
    assert_false(t.over);
    uv_sem_destroy(&g.open);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(the_file_is_mended),
        T(descriptors_ran_out),
        T(long_templates_leave_the_loop),
        T(work_is_taken_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
