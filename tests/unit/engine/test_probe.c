/* test_probe.c - what a probe finds wrong with a device: each fault that the
 * fake may have shows where it is, and nowhere else. */
#include <math.h>

#include "engine/probe/probe_impl.h"
#include "fake_device.h"

static struct {
    struct json *functions, *packages; /* arrays */
    struct json *ops[8];               /* of function i; roots */
    size_t n;
    unsigned steps[PROBE_STEPS];
    enum probe_step stop_at; /* PROBE_STEPS: never */
    const char *known;
    int rc;
} got;

static int on_at(void *ctx, const struct probe_place *p, size_t done,
                 size_t all)
{
    assert_ptr_equal(ctx, &got);
    assert_true(done < all || p->step == PROBE_MARGIN);
    got.steps[p->step]++;
    return p->step == got.stop_at ? ERR_CANCELLED : 0;
}

/* As the parent reads it: a tree that was built has texts for numbers. */
static struct json *sent(struct json *j)
{
    struct json *read = NULL;
    struct err e = {0};
    struct buf b;
    buf_init(&b, FRAME_WORKER_MAX);
    json_write(j, false, &b);
    assert_true(buf_ok(&b)); /* it fits a frame */
    unit_ok(json_parse(b.p, b.n, &read, &e), &e);
    buf_fini(&b);
    json_free(j);
    return read;
}

static int on_result(void *ctx, struct json *built)
{
    assert_ptr_equal(ctx, &got);
    struct json *j = sent(built);
    const struct json *f = json_get(j, "function");
    if (f != NULL) {
        json_add_tree(got.functions, NULL, json_copy(f));
        assert_true(got.n < countof(got.ops));
        got.ops[got.n++] = json_copy(json_get(j, "ops"));
    } else {
        json_add_tree(got.packages, NULL, json_copy(json_get(j, "package")));
    }
    json_free(j);
    return 0;
}

static struct probe_conf conf;

static void forget(void)
{
    json_free(got.functions);
    json_free(got.packages);
    for (size_t i = 0; i < got.n; i++) {
        json_free(got.ops[i]);
    }
    memset(&got, 0, sizeof(got));
    got.functions = json_array();
    got.packages = json_array();
    got.stop_at = PROBE_STEPS;
}

static int setup(void **state)
{
    int rc = fake_setup(state);
    conf = (struct probe_conf){.be = &device_backend,
                               .reference = &device_reference,
                               .conf = {.threads = 3},
                               .cpu_only = device_cpu_only,
                               .at = on_at,
                               .result = on_result,
                               .ctx = &got};
    forget();
    device_setup(0, 0);
    return rc;
}

static int teardown(void **state)
{
    forget();
    json_free(got.functions);
    json_free(got.packages);
    memset(&got, 0, sizeof(got));
    return fake_teardown(state);
}

static void probe(void)
{
    struct err e = {0};
    forget();
    device.opens = device.plans = device.warms = device.predictions = 0;
    device.references = 0;
    unit_ok(probe_run(fake_dir, &conf, &got.known, &e), &e);
}

/* --- looking at it --- */

static const struct json *nth(const struct json *list, size_t i)
{
    const struct json *c = json_first(list);
    while (c != NULL && i-- > 0) {
        c = json_next(c);
    }
    assert_non_null(c);
    return c;
}

/* Function i's width t. */
static const struct json *width(size_t i, int t)
{
    for (const struct json *w =
             json_first(json_get(nth(got.functions, i), "widths"));
         w != NULL; w = json_next(w)) {
        if ((int)json_num(json_get(w, "width")) == t) {
            return w;
        }
    }
    return NULL;
}

static char shown[256];

/* "[[1,2],[4]]" */
static const char *classes(size_t package)
{
    struct buf b;
    buf_init(&b, sizeof(shown));
    json_write(json_get(nth(got.packages, package), "classes"), false, &b);
    (void)snprintf(shown, sizeof(shown), "%s", b.p);
    buf_fini(&b);
    return shown;
}

static bool flag(size_t i, int t, const char *key)
{
    return json_bool(json_get(width(i, t), key));
}

static double number(size_t i, int t, const char *key)
{
    const struct json *v = json_get(width(i, t), key);
    assert_int_equal(json_type(v), JSON_NUMBER);
    return json_num(v);
}

static const char *text(const struct json *j, const char *key)
{
    const char *s = json_str(json_get(j, key));
    return s != NULL ? s : "";
}

/* All widths of all packages are sound but those of this one. */
static void others_are_sound(size_t but, int but_t)
{
    for (size_t i = 0; i < 4; i++) {
        for (int t = 1; t <= 4; t++) {
            if (i != but || (but_t != 0 && but_t != t)) {
                assert_true(flag(i, t, "sound"));
                assert_true(number(i, t, "cosine") > 0.99999);
            }
        }
    }
}

/* --- cases --- */

static void a_sound_device(void **state)
{
    (void)state;
    probe();
    assert_int_equal(got.n, 4); /* two shards, two heads */
    others_are_sound(9, 0);
    assert_int_equal(fake.n_exact, 0); /* no width was ruled out before */
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(classes(i), "[[1,2,3,4]]");
        assert_string_equal(text(nth(got.functions, i), "machine"),
                            "Fake M9, 42A1, all");
        for (int t = 1; t <= 4; t++) {
            assert_true(number(i, t, "median_us") >= 0);
            assert_true(number(i, t, "cpu_only_us") >= 0);
            assert_true(number(i, t, "warm_ms") >= 0);
        }
    }
    assert_string_equal(text(nth(got.packages, 0), "reference"), "reference");
    assert_int_equal(device.plans, 4);
    assert_int_equal(device.alone, 4);
    assert_true(device.predictions > 4 * PROBE_REPEATS);
    assert_null(got.known);
    assert_int_equal(got.steps[PROBE_OPEN], 4);
    assert_int_equal(device.references, 4);
    assert_true(got.steps[PROBE_REFERENCE] > 4); /* each prediction is told */
    assert_true(got.steps[PROBE_REPEAT] >= 4 * PROBE_REPEATS);
}

/* Operations by kind: those elsewhere first. */
static void a_plan(void **state)
{
    (void)state;
    probe();
    const struct json *p = json_get(nth(got.functions, 0), "plan");
    assert_true(json_num(json_get(p, "operations")) == 5);
    assert_true(json_num(json_get(p, "on_neural_engine")) == 2);
    assert_true(fabs(json_num(json_get(p, "share")) - 0.4) < 1e-9);
    assert_true(fabs(json_num(json_get(p, "share_of_cost")) - 0.7) < 1e-9);
    const struct json *o = json_first(got.ops[0]);
    assert_string_equal(text(o, "type"), "softmax");
    assert_string_equal(text(o, "device"), "cpu");
    assert_true(json_num(json_get(o, "count")) == 2);
    assert_true(fabs(json_num(json_get(o, "cost")) - 0.2) < 1e-9);
    assert_string_equal(text(o, "example"), "p");
    assert_int_equal(json_count(json_get(o, "could")), 2);
    o = json_next(o); /* the same, but that another device could */
    assert_true(json_num(json_get(o, "count")) == 1);
    o = json_next(o);
    assert_string_equal(text(o, "device"), "neural_engine");
    assert_null(json_next(o));
    device.fails = "plan";
    probe();
    assert_string_equal(text(nth(got.functions, 0), "plan_error"),
                        "error code: -14");
    assert_int_equal(json_type(json_get(nth(got.functions, 0), "plan")),
                     JSON_NULL);
    others_are_sound(9, 0); /* it runs all the same */
}

/* More kinds than are told: the rest of each device is one. */
static void many_kinds_of_operations(void **state)
{
    (void)state;
    enum { N = 300 };
    struct backend_plan_op ops[N];
    const struct backend_plan plan = {N, ops};
    struct plan_groups g;
    for (size_t i = 0; i < N; i++) {
        ops[i] = (struct backend_plan_op){
            .preferred = (enum backend_device)(i % 3), .cost = i == 7 ? -1 : 0};
        (void)snprintf(ops[i].type, sizeof(ops[i].type), "op%zu", i);
    }
    plan_group(&plan, &g);
    uint32_t n = 0;
    uint32_t here = 0;
    assert_true(g.n <= PROBE_OPS_MAX);
    for (size_t i = 0; i < g.n; i++) {
        n += g.of[i].n;
        here += g.of[i].preferred == BACKEND_NEURAL_ENGINE ? g.of[i].n : 0;
    }
    assert_int_equal(n, N);
    assert_int_equal(here, N / 3);
    assert_int_equal(g.n_here, N / 3);
}

static void numbers_that_are_none(void **state)
{
    (void)state;
    device.nan = true;
    device.kind = 'b';
    device.t = 3;
    probe();
    assert_true(number(1, 3, "not_finite") >= 1);
    assert_true(number(1, 3, "cosine") <= 0); /* like nothing */
    assert_false(flag(1, 3, "sound"));
    assert_string_equal(classes(1), "[[1,2,4]]");
    others_are_sound(1, 3);
}

static void numbers_that_are_wrong(void **state)
{
    (void)state;
    device.unlike = true;
    device.kind = 'h';
    device.t = 2;
    probe();
    for (size_t i = 2; i < 4; i++) {
        assert_true(number(i, 2, "cosine") < PROBE_COSINE_MIN);
        assert_string_equal(text(width(i, 2), "least_like"), "logits");
        assert_false(flag(i, 2, "sound"));
        assert_string_equal(classes(i), "[[1,3,4]]");
        assert_string_equal(classes(i - 2), "[[1,2,3,4]]");
    }
}

/* What it should store, it does not: seen in the states, and in later rows. */
static void states_that_stay(void **state)
{
    (void)state;
    device.forgets = true;
    device.kind = 'a';
    probe();
    for (int t = 1; t <= 4; t++) {
        assert_true(number(0, t, "cosine") < PROBE_COSINE_MIN);
        assert_false(flag(0, t, "sound"));
    }
    assert_string_equal(classes(0), "[]");
    others_are_sound(0, 0);
}

static void bits_of_the_width(void **state)
{
    (void)state;
    fake.by_width = 1.0F / 4096;
    probe();
    for (size_t i = 0; i < 2; i++) { /* layers; a head is the same */
        assert_string_equal(classes(i), "[[1],[2],[3],[4]]");
        assert_true(flag(i, 4, "sound"));
        assert_true(number(i, 4, "cosine") > 0.99);
    }
    assert_string_equal(classes(2), "[[1,2,3,4]]");
}

static void bits_of_the_place(void **state)
{
    (void)state;
    device.places = true;
    device.kind = 'b';
    probe();
    assert_true(flag(1, 1, "steady")); /* there is one place */
    for (int t = 2; t <= 4; t++) {
        assert_false(flag(1, t, "steady"));
        assert_true(flag(1, t, "repeats"));
    }
    assert_string_equal(classes(1), "[[1]]");
    others_are_sound(1, 0);
}

static void bits_of_the_moment(void **state)
{
    (void)state;
    device.turns = true;
    device.kind = 'a';
    device.t = 4;
    probe();
    assert_false(flag(0, 4, "repeats"));
    assert_string_equal(classes(0), "[[1,2,3]]");
    others_are_sound(0, 4);
}

/* A failure is told with its step, and costs what it is of. */
static void failures(void **state)
{
    (void)state;
    device.fails = "predict";
    device.kind = 'a';
    device.t = 2;
    probe();
    const struct json *x = json_get(width(0, 2), "error");
    assert_string_equal(text(x, "step"), "compare");
    assert_string_equal(text(x, "message"), "error code: -14");
    assert_string_equal(text(x, "code"), "backend.failed");
    assert_string_equal(classes(0), "[[1,3,4]]");
    others_are_sound(0, 2);
    device.fails = "warm";
    probe();
    assert_string_equal(text(json_get(width(0, 2), "error"), "step"), "warm");
    others_are_sound(0, 2);
    device.fails = "open";
    device.t = 0;
    probe();
    x = json_get(nth(got.functions, 0), "error");
    assert_string_equal(text(x, "step"), "open");
    assert_int_equal(json_count(json_get(nth(got.functions, 0), "widths")), 0);
    assert_string_equal(classes(0), "[]");
    others_are_sound(0, 0);
}

/* On the CPU alone it does not load: no fault of the model's. */
static void no_comparison_with_the_cpu(void **state)
{
    (void)state;
    device.fails = "alone";
    device.kind = 'b';
    probe();
    others_are_sound(9, 0);
    assert_string_equal(text(nth(got.functions, 1), "cpu_only_error"),
                        "layers_01_02.mlpackage: error code: -14");
    assert_int_equal(json_type(json_get(width(1, 1), "cpu_only_us")),
                     JSON_NULL);
    assert_true(number(0, 1, "cpu_only_us") >= 0);
    conf.cpu_only = NULL;
    probe();
    assert_int_equal(json_type(json_get(width(0, 1), "cpu_only_us")),
                     JSON_NULL);
}

static int no_reference(const char *pkg, const char *function,
                        const struct backend_conf *c,
                        struct backend_model **ret, struct err *e)
{
    (void)pkg;
    (void)function;
    (void)c;
    (void)ret;
    return err_set(e, ERR_MIL_OP, "an op of the future");
}

static void no_comparison_with_the_reference(void **state)
{
    (void)state;
    struct backend none = device_reference;
    none.open = no_reference;
    conf.reference = &none;
    probe();
    assert_string_equal(text(nth(got.packages, 0), "reference_error"),
                        "layers_00_01.mlpackage: an op of the future");
    assert_int_equal(json_type(json_get(width(0, 1), "cosine")), JSON_NULL);
    assert_true(flag(0, 1, "sound")); /* as far as that is known */
    assert_string_equal(classes(0), "[[1,2,3,4]]");
}

/* A package with a function for each width: they are one package's widths. */
static void functions(void **state)
{
    (void)state;
    device_setup(1, 4);
    probe();
    assert_int_equal(got.n, 6);
    assert_string_equal(text(nth(got.functions, 0), "function"), "t1");
    assert_string_equal(text(nth(got.functions, 1), "function"), "t4");
    assert_null(width(0, 4));
    assert_non_null(width(1, 4));
    assert_string_equal(classes(0), "[[1,4]]");
    assert_int_equal(device.references, 4); /* one a package */
    device.fails = "open";
    device.kind = 'b';
    device.t = 4;
    probe(); /* the other one is left */
    assert_string_equal(classes(0), "[[1,4]]");
    assert_string_equal(classes(1), "[[1]]");
}

/* Where other children were lost. */
static void what_was_lost_is_left_out(void **state)
{
    (void)state;
    static const char a[] = "layers_00_01.mlpackage";
    const struct probe_place lost[] = {
        {PROBE_WARM,      a,                        "", 2},
        {PROBE_REPEAT,    a,                        "", 3},
        {PROBE_PLAN,      a,                        "", 0},
        {PROBE_REFERENCE, "head_0.mlpackage",       "", 0},
        {PROBE_CPU_OPEN,  "head_1.mlpackage",       "", 4},
        {PROBE_OPEN,      "layers_01_02.mlpackage", "", 0},
    };
    conf.lost = lost;
    conf.n_lost = countof(lost);
    probe();
    assert_string_equal(classes(0), "[[1,4]]");
    assert_null(width(0, 2));
    assert_null(width(0, 3));
    assert_int_equal(json_type(json_get(nth(got.functions, 0), "plan")),
                     JSON_NULL);
    assert_string_equal(text(json_get(nth(got.functions, 1), "error"), "step"),
                        "open");
    assert_true(text(nth(got.packages, 2), "reference_error")[0] != '\0');
    assert_true(text(nth(got.functions, 3), "cpu_only_error")[0] != '\0');
    assert_int_equal(device.plans, 2); /* of the heads */
}

static void a_machine_that_is_known(void **state)
{
    (void)state;
    const char *known[] = {"Fake M9, 41Z9, all", "Fake M9, 42A1, all"};
    conf.known = known;
    conf.n_known = 1;
    probe();
    assert_null(got.known);
    assert_int_equal(got.n, 4);
    conf.n_known = 2;
    probe();
    assert_ptr_equal(got.known, known[1]);
    assert_int_equal(got.n, 0);
    assert_int_equal(device.opens, 1); /* that was enough */
    assert_int_equal(device.predictions, 0);
}

/* A device that names its machine: known before anything opens, and told of
 * what does not open. */
static void a_machine_that_is_named(void **state)
{
    (void)state;
    const char *known[] = {"Fake M9, 42A1, all"};
    struct backend named = *conf.be;
    named.machine = device_machine;
    conf.be = &named;
    conf.known = known;
    conf.n_known = 1;
    probe();
    assert_ptr_equal(got.known, known[0]);
    assert_int_equal(device.opens, 0);
    conf.n_known = 0;
    device.fails = "open";
    probe();
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(text(nth(got.functions, i), "machine"), known[0]);
    }
}

static void only_these_widths_and_packages(void **state)
{
    (void)state;
    conf.widths = (struct msg_widths){
        2, {3, 4}
    };
    conf.first = 1;
    probe();
    assert_int_equal(got.n, 3);
    assert_string_equal(text(nth(got.packages, 0), "package"),
                        "layers_01_02.mlpackage");
    assert_string_equal(classes(0), "[[3,4]]");
}

/* The parent is gone, at whatever step: the probe ends there. */
static void a_probe_that_is_stopped(void **state)
{
    (void)state;
    for (enum probe_step s = PROBE_OPEN; s < PROBE_MARGIN; s++) {
        struct err e = {0};
        forget();
        got.stop_at = s;
        assert_int_equal(probe_run(fake_dir, &conf, &got.known, &e),
                         ERR_CANCELLED);
        assert_int_equal(got.steps[s], 1);
        assert_int_equal(got.n, 0);
        assert_string_equal(
            probe_step_name(probe_step_find(probe_step_name(s))),
            probe_step_name(s));
    }
    assert_int_equal(probe_step_find("march"), PROBE_STEPS);
}

static double margin(void)
{
    const struct msg_widths w = {
        3, {1, 2, 4}
    };
    struct err e = {0};
    double m = -1;
    forget();
    unit_ok(probe_margin(fake_dir, &conf, &w, &w, &m, &e), &e);
    assert_true(got.steps[PROBE_MARGIN] > 3);
    return m;
}

static void a_margin(void **state)
{
    (void)state;
    assert_true(margin() <= 0);        /* the same bits in all */
    assert_int_equal(fake.n_exact, 3); /* the backend was told of them */
    assert_int_equal(fake.exact[2], 4);
    fake.by_width = 0.5F; /* moves the likeliest token */
    assert_true(margin() > 0);
}

/* The same rows in each probe, numbers of the contract. */
static void the_rows(void **state)
{
    (void)state;
    struct bundle *b = NULL;
    struct tables tables;
    struct probe_in in[2];
    struct err e = {0};
    unit_ok(bundle_open(fake_dir, &b, &e), &e);
    unit_ok(tables_open(&tables, b, &e), &e);
    const struct probe_part part = {b, &tables, &b->shards[1], NULL};
    for (size_t i = 0; i < 2; i++) {
        unit_ok(probe_in_make(&in[i], &part, 4, FAKE_D, &e), &e);
    }
    assert_int_equal(in[0].n, 9);
    assert_int_equal(in[0].past, FAKE_S / 2);
    assert_memory_equal(in[0].x, in[1].x, 9 * FAKE_D * sizeof(float));
    for (uint64_t i = 0; i < 10000; i++) {
        float v = probe_number(i % 7, i);
        assert_true(v >= -1 && v < 1 && half_round(v) >= v &&
                    half_round(v) <= v);
    }
    for (size_t i = 0; i < 2; i++) {
        probe_in_free(&in[i]);
    }
    tables_close(&tables);
    bundle_close(b);
}

/* What a layer adds to its input is compared, and not where one number is as
 * large as all others together. */
static void likeness_of_rows(void **state)
{
    (void)state;
    float x[] = {100, 200, 300, 60000};
    float right[] = {101, 202, 299, 60000, 5};
    float wrong[] = {99, 198, 301, 60000, 5}; /* the opposite is added */
    float coarse[] = {101, 202, 299, 60032, 5};
    uint32_t peak[] = {3};
    const struct probe_in in = {.n = 1, .d = 4, .x = x, .peak = peak};
    struct segment s[] = {
        {"hidden", 0, 4},
        {"state",  4, 1}
    };
    const struct probe_out want = {1, 5, 2, s, right};
    struct probe_out o = {1, 5, 2, s, wrong};
    struct likeness l = probe_out_like(&o, &want, &in, true);
    assert_true(l.cosine < -0.99);
    assert_string_equal(l.name, "hidden");
    assert_true(probe_out_like(&o, &want, &in, false).cosine > 0.99);
    o.v = coarse; /* as fp16 has it there */
    assert_true(probe_out_like(&o, &want, &in, true).cosine > 0.99);
    peak[0] = PEAK_NONE;
    assert_true(probe_out_like(&o, &want, &in, true).cosine < 0.5);
    wrong[4] = -5;
    memcpy(wrong, right, 4 * sizeof(float));
    o.v = wrong;
    l = probe_out_like(&o, &want, &in, true);
    assert_string_equal(l.name, "state");
    wrong[4] = INFINITY;
    assert_true(probe_out_like(&o, &want, &in, true).cosine <= 0);
    assert_int_equal(probe_out_bad(&o, 1), 1);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_sound_device),
        CASE(a_plan),
        CASE(many_kinds_of_operations),
        CASE(numbers_that_are_none),
        CASE(numbers_that_are_wrong),
        CASE(states_that_stay),
        CASE(bits_of_the_width),
        CASE(bits_of_the_place),
        CASE(bits_of_the_moment),
        CASE(failures),
        CASE(no_comparison_with_the_cpu),
        CASE(no_comparison_with_the_reference),
        CASE(functions),
        CASE(what_was_lost_is_left_out),
        CASE(a_machine_that_is_known),
        CASE(a_machine_that_is_named),
        CASE(only_these_widths_and_packages),
        CASE(a_probe_that_is_stopped),
        CASE(a_margin),
        CASE(the_rows),
        cmocka_unit_test(likeness_of_rows),
    };
    return cmocka_run_group_tests_name("probe", tests, NULL, NULL);
}
