/* test_plan.c - what the system says of where operations would run. */
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

static struct backend_plan plan_of(const struct pkg *k, const char *function)
{
    struct backend_plan p;
    struct err e = {0};
    unit_ok(BE->plan(k->path, function, &kit_coreml.conf, &p, &e), &e);
    assert_true(p.n_ops > 0);
    return p;
}

static const struct backend_plan_op *find(const struct backend_plan *p,
                                          const char *name)
{
    for (size_t i = 0; i < p->n_ops; i++) {
        if (strcmp(p->ops[i].name, name) == 0) {
            return &p->ops[i];
        }
    }
    return NULL;
}

static void test_operations(void **state)
{
    (void)state;
    struct backend_plan p = plan_of(&pkgs.kv, NULL);
    double cost = 0;
    bool saw = false;
    for (size_t i = 0; i < p.n_ops; i++) {
        const struct backend_plan_op *o = &p.ops[i];
        assert_string_not_equal(o->type, "const"); /* computes nothing */
        assert_null(strchr(o->type, '.'));         /* "ios18." is gone */
        assert_int_equal(o->preferred, BACKEND_NEURAL_ENGINE);
        assert_int_equal(o->supported,
                         1u << BACKEND_CPU | 1u << BACKEND_NEURAL_ENGINE);
        assert_true(o->cost > 0);
        cost += o->cost;
        saw = saw || strcmp(o->type, "matmul") == 0;
    }
    assert_true(saw);
    assert_true(fabs(cost - 1) < 1e-6);
    assert_string_equal(find(&p, "y")->type, "add");
    free(p.ops);
}

static void test_function(void **state)
{
    (void)state;
    struct backend_plan one = plan_of(&pkgs.kv_t, "t1");
    struct backend_plan four = plan_of(&pkgs.kv_t, "t4");
    struct backend_plan first = plan_of(&pkgs.kv_t, NULL); /* the default */
    assert_int_equal(first.n_ops, one.n_ops);
    /* names are unique in a package's functions: the second's differ */
    for (size_t i = 0; i < one.n_ops; i++) {
        assert_string_equal(one.ops[i].name, first.ops[i].name);
        assert_string_equal(one.ops[i].type, four.ops[i].type);
    }
    free(one.ops);
    free(four.ops);
    free(first.ops);
}

static void test_on_cpu(void **state)
{
    (void)state;
    static const struct coreml_conf cpu_only = {.cpu_only = true};
    const struct backend_conf conf = {.coreml = &cpu_only};
    struct err e = {0};
    kit_faults("plan_cpu = * ops=matmul");
    struct backend_plan p = plan_of(&pkgs.kv, NULL);
    for (size_t i = 0; i < p.n_ops; i++) {
        bool off = strcmp(p.ops[i].type, "matmul") == 0;
        assert_int_equal(p.ops[i].preferred,
                         off ? BACKEND_CPU : BACKEND_NEURAL_ENGINE);
    }
    free(p.ops);
    kit_faults("");
    unit_ok(BE->plan(pkgs.kv.path, NULL, &conf, &p, &e), &e);
    const struct backend_plan_op *y = find(&p, "y");
    assert_true(y != NULL && y->preferred == BACKEND_CPU);
    free(p.ops);
}

static void test_fails(void **state)
{
    (void)state;
    struct backend_plan p = {.n_ops = 7};
    struct err e = {0};
    kit_faults("plan_error = *");
    assert_int_equal(BE->plan(pkgs.kv.path, NULL, &kit_coreml.conf, &p, &e),
                     ERR_BACKEND);
    assert_non_null(strstr(e.msg, "planning failed"));
    assert_int_equal(p.n_ops, 0);
    assert_null(p.ops);
    kit_faults("");
    assert_int_equal(BE->plan(pkgs.kv_t.path, "t7", &kit_coreml.conf, &p, &e),
                     ERR_NOT_FOUND);
    assert_int_equal(
        BE->plan("/nowhere.mlpackage", NULL, &kit_coreml.conf, &p, &e),
        ERR_PKG_MISSING);
}

/* The plan and the model are of one compiled model. */
static void test_cache(void **state)
{
    (void)state;
    const char *folder = kit_path("cache");
    const struct backend_conf conf = {.cache = folder};
    const struct contract c = {BE, conf};
    struct backend_plan p;
    struct coreml_counts n;
    struct err e = {0};
    unit_ok(BE->plan(pkgs.kv.path, NULL, &conf, &p, &e), &e);
    free(p.ops);
    struct backend_model *m = open_pkg(&c, &pkgs.kv, NULL);
    coreml_counts(m, &n);
    assert_false(n.compiled);
    BE->close(m);
    unit_ok(file_rmtree(folder, &e), &e);
}

int main(int argc, char **argv)
{
    (void)argc;
    kit_start(argv);
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_operations), TEST(test_function), TEST(test_on_cpu),
        TEST(test_fails),      TEST(test_cache),
    };
    return cmocka_run_group_tests_name("coreml plan", tests, kit_make,
                                       kit_unmake);
}
