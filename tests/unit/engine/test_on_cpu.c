/* test_on_cpu.c - real packages on a device that fails: the CPU takes its place
 * in the middle of a text, of a save, of a load. And on one whose widths do not
 * agree, with a margin. */
#include "converted.h"
#include "engine/cpu/backend_cpu.h"
#include "engine/impl.h"
#include "engine/snapshot.h"

static char dir[256];

static const struct form {
    const char *shape, *kv;
    bool measured; /* widths 1 to 4 are known to agree */
} forms[] = {
    {"ranged",    "state", false},
    {"functions", "state", false},
    {"ranged",    "host",  false},
    {"ranged",    "host",  true },
};

static int setup(void **state)
{
    (void)state;
    converted_dir(dir, "on-cpu");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    struct err e;
    return file_rmtree(dir, &e);
}

/* The interpreter, which fails from one prediction on. */
static struct {
    int after;  /* < 0: never */
    bool heads; /* a head fails, else the layers */
} device;

static int device_predict(struct backend_io *io, struct backend_state *s,
                          struct err *e)
{
    bool concerned = device.heads == (io->n_in == 1);
    if (concerned && device.after == 0) {
        return err_set(e, ERR_BACKEND, "the device is gone");
    }
    device.after -= concerned && device.after > 0;
    return backend_interpreter.predict(io, s, e);
}

static struct engine *open_device(const struct form *f)
{
    static struct backend be;
    struct engine_conf conf = {.threads = 1};
    struct engine *g = NULL;
    struct err e;
    char out[512];
    (void)snprintf(out, sizeof(out), "%s/%s-%s", dir, f->shape, f->kv);
    if (!file_exists(out)) {
        engine_close(converted_open(converted_demo(), out, NULL, f->shape,
                                    f->kv, &conf));
    }
    if (f->measured) {
        conf.layers = (struct msg_widths){4, {1, 2, 3, 4}};
    }
    be = backend_interpreter;
    be.predict = device_predict;
    be.rows = NULL;
    be.name = "device";
    unit_ok(engine_open_with(&be, out, &conf, &g, &e), &e);
    return g;
}

enum { LONG = 90 };

static struct engine_seq *read_some(struct engine *g, uint32_t n)
{
    int32_t tokens[LONG];
    struct engine_seq *s = NULL;
    struct err e;
    for (uint32_t i = 0; i < LONG; i++) {
        tokens[i] = (int32_t)(i * 7 % 200);
    }
    unit_ok(engine_seq_open(g, &s, &e), &e);
    unit_ok(engine_eval(s, tokens, n, 0, 0, NULL, NULL, &e), &e);
    return s;
}

/* Logits of the last of LONG tokens, in two pieces, the second in chunks. */
static void read_text(struct engine *g, float *ret, uint32_t first,
                      uint32_t chunk)
{
    struct engine_seq *s = read_some(g, first);
    const float *logits = NULL;
    int32_t tokens[LONG];
    struct err e;
    for (uint32_t i = first; i < LONG; i++) {
        tokens[i] = (int32_t)(i * 7 % 200);
    }
    unit_ok(engine_eval(s, tokens + first, LONG - first, chunk, 1, &logits,
                        NULL, &e),
            &e);
    memcpy(ret, logits, engine_bundle(g)->vocab * sizeof(*ret));
    engine_seq_close(s);
}

static bool last_event(struct engine *g, struct engine_event *ret)
{
    bool any = false;
    while (engine_event(g, ret)) {
        any = true;
    }
    return any;
}

/* Wherever the device fails, the rest is what the CPU gives from the first
 * token on, row by row. */
static void test_in_a_text(void **state)
{
    (void)state;
    for (size_t f = 0; f < countof(forms); f++) {
        if (unit_passed_over(f, 2)) {
            continue;
        }
        float *want = NULL;
        float *got = NULL;
        for (int k = 0; k < (UNIT_SANITIZED ? 4 : 6); k++) {
            /* 0: at once, layers; 1: heads */
            device.heads = k % 2 == 1;
            bool wide = strcmp(forms[f].shape, "functions") == 0;
            device.after = k < 2 || device.heads ? 0 : wide ? 1 : 5 * k;
            struct engine *g = open_device(&forms[f]);
            size_t vocab = engine_bundle(g)->vocab;
            char before[ARITH_BYTES_MAX];
            struct engine_event x;
            (void)snprintf(before, sizeof(before), "%s", engine_arith(g));
            want = want != NULL ? want : calloc(2 * vocab, sizeof(*want));
            got = got != NULL ? got : calloc(vocab, sizeof(*got));
            assert_true(want != NULL && got != NULL);
            read_text(g, k < 2 ? want + (size_t)k * vocab : got, 40,
                      k == 0 ? 1 : 0);
            assert_true(last_event(g, &x));
            assert_true(x.on_cpu);
            assert_string_not_equal(engine_arith(g), before);
            if (k >= 2) {
                assert_memory_equal(got, want + (size_t)(k % 2) * vocab,
                                    vocab * sizeof(*got));
            }
            engine_close(g);
        }
        free(want);
        free(got);
    }
}

/* The device fails when the first slice of a save or a load is done: what the
 * states held is gone, and their layout is another. */
static void test_in_a_save(void **state)
{
    (void)state;
    char path[300];
    const struct msg_state_part part = {0, STATE_BLOCK, path};
    (void)snprintf(path, sizeof(path), "%s/saved", dir);
    for (size_t f = 0; f < countof(forms); f++) {
        struct snapshot *x = NULL;
        struct err e = {0};
        device.heads = false;
        device.after = -1;
        struct engine *g = open_device(&forms[f]);
        struct engine_seq *s = read_some(g, LONG - 8);
        unit_ok(snapshot_save(s, &part, &x, &e), &e);
        device.after = 0;
        engine_seq_close(read_some(g, 8)); /* on the CPU */
        assert_int_equal(snapshot_run(x, 1000000, &e), ERR_BUSY);
        snapshot_free(x);
        assert_false(file_exists(path));
        unit_ok(engine_eval(s, (const int32_t[]){1}, 1, 0, 0, NULL, NULL, &e),
                &e);
        unit_ok(snapshot_save(s, &part, &x, &e), &e); /* whole again */
        assert_int_equal(snapshot_run(x, 1000000, &e), 1);
        snapshot_free(x);
        unit_ok(file_rmtree(path, &e), &e);
        engine_seq_close(s);
        engine_close(g);
    }
}

static void test_in_a_load(void **state)
{
    (void)state;
    char path[300];
    const struct msg_state_part part = {0, STATE_BLOCK, path};
    (void)snprintf(path, sizeof(path), "%s/saved", dir);
    for (size_t f = 0; f < countof(forms); f++) {
        struct snapshot *x = NULL;
        struct err e = {0};
        struct msg_state_done done;
        device.heads = false;
        device.after = -1;
        struct engine *g = open_device(&forms[f]);
        struct engine_seq *s = read_some(g, LONG);
        unit_ok(snapshot_save(s, &part, &x, &e), &e);
        assert_int_equal(snapshot_run(x, 1000000, &e), 1);
        snapshot_free(x);
        const struct msg_state m = {.tokens =
                                        (int32_t *)(uintptr_t)engine_seq_tokens(s),
                                    .n_tokens = LONG,
                                    .n_parts = 1,
                                    .parts = {part}};
        unit_ok(snapshot_load(g, &m, &x, &e), &e);
        assert_int_equal(snapshot_run(x, 0, &e), 0); /* opens the file */
        device.after = 0;
        engine_seq_close(read_some(g, 8));
        assert_int_equal(snapshot_run(x, 1000000, &e), 1);
        snapshot_done(x, &done, &e);
        assert_int_equal(done.n, 0);
        snapshot_free(x);
        unit_ok(file_rmtree(path, &e), &e);
        engine_seq_close(s);
        engine_close(g);
    }
}

/* --- a margin --- */

/* The widths are said not to agree. */
static void four_alone(const struct backend_model *m, struct backend_info *ret)
{
    static const uint32_t four[] = {4};
    backend_interpreter.info(m, ret);
    ret->exact_widths = four;
    ret->n_exact_widths = 1;
}

/* Greedy tokens after one; drafts are those of `truth`, if it is not NULL. How
 * many steps a close call ended behind a draft that was drawn. */
static unsigned greedy(struct engine *g, const int32_t *truth, int32_t *out,
                       uint32_t n)
{
    static const int32_t start[] = {5};
    struct engine_seq *s = NULL;
    struct err e;
    unsigned cut = 0;
    struct msg_row_done done;
    unit_ok(engine_seq_open(g, &s, &e), &e);
    for (uint32_t i = 0; i < n; i += done.n_tokens) {
        struct msg_row r = {.position = engine_seq_length(s),
                            .n_tokens = 1,
                            .tokens = (int32_t *)(uintptr_t)start,
                            .sample = true,
                            .out_index = i};
        r.tokens = i == 0 ? r.tokens : &out[i - 1];
        msg_sampling_init(&r.sampling);
        while (truth != NULL && r.n_drafts < 3 && i + r.n_drafts < n) {
            r.drafts[r.n_drafts] = truth[i + r.n_drafts];
            r.n_drafts++;
        }
        unit_ok(engine_step(s, &r, &done, NULL, &e), &e);
        assert_int_equal(done.n_tokens, done.n_accepted + 1);
        assert_int_equal(done.length, r.position + 1 + done.n_accepted);
        for (uint32_t k = 0; k < done.n_tokens && i + k < n; k++) {
            out[i + k] = done.tokens[k].id;
            assert_true(k >= done.n_accepted || out[i + k] == r.drafts[k]);
        }
        cut += done.n_accepted > 0 && done.n_accepted < r.n_drafts &&
               done.tokens[done.n_accepted].id == r.drafts[done.n_accepted];
    }
    engine_seq_close(s);
    return cut;
}

/* A row whose call is too close ends the step behind the token before it, which
 * is then the last one and no draft. */
static void test_close_calls(void **state)
{
    (void)state;
    enum { N = 100 };
    int32_t plain[N];
    int32_t drafted[N];
    struct backend be = backend_interpreter;
    char out[512];
    struct err e;
    unsigned cut = 0;
    be.info = four_alone;
    be.rows = NULL;
    (void)snprintf(out, sizeof(out), "%s/ranged-state", dir);
    for (float margin = 0.1F; margin < 10; margin *= 2) {
        const struct engine_conf conf = {.threads = 1, .margin = margin};
        struct engine *g = NULL;
        unit_ok(engine_open_with(&be, out, &conf, &g, &e), &e);
        assert_false(engine_exact(g));
        (void)greedy(g, NULL, plain, N);
        cut += greedy(g, plain, drafted, N);
        assert_memory_equal(plain, drafted, sizeof(plain)); /* they do agree */
        engine_close(g);
    }
    assert_true(cut > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_a_text),
        cmocka_unit_test(test_in_a_save),
        cmocka_unit_test(test_in_a_load),
        cmocka_unit_test(test_close_calls),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
