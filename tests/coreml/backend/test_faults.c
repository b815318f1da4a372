/* test_faults.c - what goes wrong in Core ML, and what the backend makes of it:
 * errors with a text that helps, no damage, nothing left behind. */
#include <pthread.h>

#include "kit.h"

#define BE (&backend_coreml)

static struct kit_left before;

static int set_up(void **state)
{
    (void)state;
    kit_faults("");
    before = kit_count();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    kit_same(before);
    return 0;
}

static void says(const struct err *e, const char *a, const char *b)
{
    if (strstr(e->msg, a) == NULL || strstr(e->msg, b) == NULL) {
        fail_msg("'%s' and '%s' in: %s", a, b, e->msg);
    }
}

/* --- open --- */

static void test_compile_error(void **state)
{
    (void)state;
    struct backend_model *m = NULL;
    struct err e = {0};
    kit_faults("compile_error = *");
    assert_int_equal(BE->open(pkgs.kv.path, NULL, &kit_coreml.conf, &m, &e),
                     ERR_BACKEND);
    assert_null(m);
    says(&e, "compiling the package failed", "aned inspect");
}

static void test_load_error(void **state)
{
    (void)state;
    struct backend_model *m = NULL;
    struct err e = {0};
    kit_faults("load_error = *");
    assert_int_equal(BE->open(pkgs.kv.path, NULL, &kit_coreml.conf, &m, &e),
                     ERR_BACKEND);
    assert_null(m);
    says(&e, "could not make a plan for the Neural Engine", "--profile law");
    says(&e, "error code: -14", "loading failed");
}

/* --- predict --- */

static void check_again(struct rig *r, struct backend_state *s,
                        const char *fault, const char *text)
{
    struct err e = {0};
    kit_faults(fault);
    rig_store(r, 1, 3, 2);
    assert_int_equal(BE->predict(r->io, s, &e), ERR_BACKEND);
    says(&e, "the prediction failed", text);
    rig_predict(r, s); /* the same call again */
    check_sums(r, s);
    kit_faults("");
}

/* It may succeed again, with the arrays and the state as they are. */
static void test_predict_fails(void **state)
{
    (void)state;
    struct backend_model *m = open_pkg(&kit_coreml, &pkgs.kv, NULL);
    struct backend_state *s = new_state(&kit_coreml, m);
    struct coreml_counts n;
    struct rig r;
    rig_bind(&r, &kit_coreml, m, 2);
    check_again(&r, s, "predict_error = * times=1",
                "Unable to compute the prediction");
    check_again(&r, s, "predict_exception = * times=1",
                "raised NSGenericException: injected in a prediction");
    coreml_counts(m, &n);
    assert_int_equal(n.predictions, 4);
    assert_int_equal(n.moved, 0);
    assert_true(n.compiled && !n.refused);
    rig_drop(&r);
    BE->state_free(s);
    BE->close(m);
}

/* Results come in arrays of Core ML's own: each is right until the next
 * prediction, may only be read, and is counted. */
static void test_backings_ignored(void **state)
{
    (void)state;
    struct backend_model *m = open_pkg(&kit_coreml, &pkgs.plain, NULL);
    struct coreml_counts n;
    struct rig r;
    struct err e = {0};
    rig_bind(&r, &kit_coreml, m, 3);
    check_plain(&r, 1, 5);
    assert_int_equal(BE->lock(&r.io->out[0], true, &e), 0);
    BE->unlock(&r.io->out[0], true);
    kit_faults("backings_ignored = * from=2 times=2");
    check_plain(&r, 2, 5);
    for (uint32_t i = 3; i < 5; i++) {
        check_plain(&r, i, 5);
        assert_int_equal(BE->lock(&r.io->out[0], true, &e), ERR_BACKEND);
    }
    check_plain(&r, 5, 5);
    coreml_counts(m, &n);
    assert_int_equal(n.predictions, 5);
    assert_int_equal(n.moved, 2 * 2);
    rig_drop(&r);
    BE->close(m);
}

static void test_nan_passes(void **state)
{
    (void)state;
    struct backend_model *m = open_pkg(&kit_coreml, &pkgs.plain, NULL);
    struct rig r;
    float y[CONTRACT_N];
    rig_bind(&r, &kit_coreml, m, 2);
    kit_faults("predict_nan = *");
    rig_predict(&r, NULL);
    (void)move_numbers(&kit_coreml, &r.io->out[r.y], y, false);
    assert_true(isnan(y[0])); /* `aned probe` looks at it, steps do not */
    rig_drop(&r);
    BE->close(m);
}

/* --- waiting --- */

struct asked {
    pthread_t who;
    unsigned n, most; /* asked so often; false from `most` on */
};

static bool go(void *ctx)
{
    struct asked *a = ctx;
    assert_true(pthread_equal(a->who, pthread_self()));
    return ++a->n < a->most;
}

static struct asked asks(unsigned most)
{
    return (struct asked){.who = pthread_self(), .most = most};
}

/* The load goes on; its model is freed when it is there. */
static void test_cancelled_load(void **state)
{
    (void)state;
    struct backend_model *m = NULL;
    struct err e = {0};
    struct asked a = asks(2);
    struct backend_conf conf = {
        .watch = {go, &a}
    };
    int64_t loads = si_count_get(COUNT_LOADS);
    kit_faults("load_ms = 1500");
    assert_int_equal(BE->open(pkgs.other.path, NULL, &conf, &m, &e),
                     ERR_CANCELLED);
    assert_null(m);
    assert_int_equal(a.n, 2);
    assert_int_equal(si_count_get(COUNT_LOADS), loads + 1);
}

static void test_slow_load(void **state)
{
    (void)state;
    struct backend_model *m = NULL;
    struct err e = {0};
    struct asked a = asks(UINT32_MAX);
    struct backend_conf conf = {
        .watch = {go, &a}
    };
    kit_faults("load_ms = 900");
    unit_ok(BE->open(pkgs.other.path, NULL, &conf, &m, &e), &e);
    assert_true(a.n >= 2);
    BE->close(m);
}

static void test_slow_warm(void **state)
{
    (void)state;
    struct backend_model *m = open_pkg(&kit_coreml, &pkgs.kv, NULL);
    struct backend_state *s = new_state(&kit_coreml, m);
    struct asked a = asks(UINT32_MAX);
    const struct backend_watch watch = {go, &a};
    struct err e = {0};
    struct rig r;
    kit_faults("shape_ms = 900");
    int64_t was = si_count_get(COUNT_SPECIALISED);
    unit_ok(BE->warm(m, 2, &watch, &e), &e);
    assert_int_equal(si_count_get(COUNT_SPECIALISED), was + 1);
    assert_true(a.n >= 2);
    rig_bind(&r, &kit_coreml, m, 2);
    rig_store(&r, 1, 0, 2);
    rig_predict(&r, s); /* at once */
    check_sums(&r, s);
    assert_int_equal(si_count_get(COUNT_SPECIALISED), was + 1);
    rig_drop(&r);
    BE->state_free(s);
    BE->close(m);
}

/* Its prediction goes on: the next one waits for it, or the model closes. */
static void test_cancelled_warm(void **state)
{
    (void)state;
    struct backend_model *m = open_pkg(&kit_coreml, &pkgs.kv, NULL);
    struct backend_state *s = new_state(&kit_coreml, m);
    struct asked a = asks(1);
    struct asked b = asks(1);
    const struct backend_watch first = {go, &a};
    const struct backend_watch second = {go, &b};
    struct err e = {0};
    struct rig r;
    rig_bind(&r, &kit_coreml, m, 1);
    rig_store(&r, 1, 0, 1);
    kit_faults("shape_ms = 1000");
    assert_int_equal(BE->warm(m, 3, &first, &e), ERR_CANCELLED);
    kit_faults("");
    rig_predict(&r, s);
    check_sums(&r, s);
    rig_drop(&r);
    BE->state_free(s);
    kit_faults("shape_ms = 1000");
    assert_int_equal(BE->warm(m, 4, &second, &e), ERR_CANCELLED);
    BE->close(m);
}

/* --- activity --- */

static void test_at_work(void **state)
{
    (void)state;
    const bool works[] = {false, true, true, false, false, true, false};
    struct kit_left left = kit_count();
    for (size_t i = 0; i < countof(works); i++) {
        coreml_at_work(works[i]);
        assert_int_equal(si_count_get(COUNT_ACTIVITIES_OPEN), works[i]);
    }
    kit_same(left);
}

/* --- warm --- */

static void warm_with(const char *faults, bool refused, int want)
{
    struct backend_model *m = open_pkg(&kit_coreml, &pkgs.plain, NULL);
    const struct backend_watch watch = {0};
    struct coreml_counts n;
    struct err e = {0};
    struct rig r;
    kit_faults(faults);
    assert_int_equal(BE->warm(m, 2, &watch, &e), want);
    kit_faults("");
    coreml_counts(m, &n);
    assert_int_equal(n.refused, refused);
    rig_bind(&r, &kit_coreml, m, 2);
    check_plain(&r, 3, 5);
    coreml_counts(m, &n);
    assert_int_equal(n.moved, refused ? 2 : 0);
    rig_drop(&r);
    BE->close(m);
}

static void test_warm_fails(void **state)
{
    (void)state;
    warm_with("predict_error = *", false, ERR_BACKEND);
    /* once: not the fault of the backings */
    warm_with("predict_error = * times=1", false, 0);
    /* with them, not without, with them again: theirs */
    warm_with("predict_error = * times=1\npredict_exception = * from=3 times=1",
              true, 0);
}

/* --- arrays --- */

/* Halves lie in pixel buffers, unless they are too many or too wide. */
static void test_memory(void **state)
{
    (void)state;
    static const struct {
        int64_t dims[4];
        bool pixels;
    } of[] = {
        {{1, 4, 1, 8},     true },
        {{1, 64, 256, 1},  true },
        {{1, 65, 256, 1},  false},
        {{1, 1, 1, 16384}, true },
        {{1, 1, 1, 16385}, false},
    };
    for (size_t i = 0; i < countof(of); i++) {
        struct contract c = kit_coreml;
        struct pkg k;
        pkg_begin(&k);
        struct mil_value *x =
            mil_add_input(k.p, k.f, "x", MIL_FP16, 4, of[i].dims, 0, 0);
        mil_add_output(k.p, k.f, one(&k, "abs", x));
        pkg_finish(&k);
        struct backend_model *m = open_pkg(&c, &k, NULL);
        int64_t was = si_count_get(COUNT_PIXELS);
        struct backend_array *a = new_array(&c, m, 0, 4, of[i].dims);
        assert_int_equal(si_count_get(COUNT_PIXELS) - was, of[i].pixels);
        begin(&c, a, false);
        if (!of[i].pixels) {
            assert_int_equal((uintptr_t)a->data % 4096, 0);
        }
        end(&c, a, false);
        assert_null(a->data);
        BE->array_free(a);
        BE->close(m);
        pkg_end(&k);
    }
}

/* --- info --- */

static void check_exact(const struct pkg *k, const char *function,
                        const uint32_t *given, size_t n, const uint32_t *want,
                        size_t n_want)
{
    struct backend_conf conf = {.exact_widths = given, .n_exact_widths = n};
    struct contract c = {BE, conf};
    struct backend_model *m = open_pkg(&c, k, function);
    struct backend_info i;
    BE->info(m, &i);
    assert_int_equal(i.n_exact_widths, n_want);
    assert_memory_equal(i.exact_widths, want, n_want * sizeof(*want));
    BE->close(m);
}

static void test_exact_widths(void **state)
{
    (void)state;
    static const uint32_t given[] = {1, 3, 4, 64};
    static const uint32_t four[] = {4};
    static const uint32_t lone[] = {1};
    static const uint32_t eight[] = {8};
    check_exact(&pkgs.kv, NULL, given, 4, given, 3);
    check_exact(&pkgs.kv, NULL, NULL, 0, four, 1);
    check_exact(&pkgs.kv, NULL, eight, 1, four, 1);
    /* which width it is, a function of a fixed one cannot tell */
    check_exact(&pkgs.kv_t, "t4", given, 4, given, 4);
    check_exact(&pkgs.kv_t, "t4", NULL, 0, lone, 1);
}

static void test_arith(void **state)
{
    (void)state;
    static const struct coreml_conf cpu = {.cpu_only = true};
    const struct contract of[2] = {
        {BE, {0}             },
        {BE, {.coreml = &cpu}}
    };
    char arith[2][ARITH_BYTES_MAX];
    for (size_t i = 0; i < 2; i++) {
        struct backend_model *m = open_pkg(&of[i], &pkgs.kv, NULL);
        struct backend_info info;
        BE->info(m, &info);
        (void)snprintf(arith[i], sizeof(arith[i]), "%s", info.arith);
        BE->close(m);
    }
    assert_non_null(strstr(arith[0], "CPU and NE, frequent reshapes, fast"));
    assert_non_null(strstr(arith[1], "CPU, frequent reshapes, fast"));
}

int main(int argc, char **argv)
{
    (void)argc;
    kit_start(argv);
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_compile_error),  TEST(test_load_error),
        TEST(test_at_work),
        TEST(test_predict_fails),  TEST(test_backings_ignored),
        TEST(test_nan_passes),     TEST(test_cancelled_load),
        TEST(test_slow_load),      TEST(test_slow_warm),
        TEST(test_cancelled_warm), TEST(test_warm_fails),
        TEST(test_memory),         TEST(test_exact_widths),
        TEST(test_arith),
    };
    return cmocka_run_group_tests_name("coreml faults", tests, kit_make,
                                       kit_unmake);
}
