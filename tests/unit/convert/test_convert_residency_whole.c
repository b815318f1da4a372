/* Predicted residency of functions, programs and bundles: a planted fault for
 * each rule; what reports hold. */
#include "residency_rig.h"

/* --- functions and programs --- */

/* Every input carries T, or Core ML ends the process. */
static void inputs_without_t(void **state)
{
    (void)state;
    (void)unary("exp", r.x); /* of fixed shape */
    predict(NULL);
    assert_int_equal(r.v.f[0].findings.n, 0);
    (void)unary("tanh", input("y", MIL_FP16, 4, 1, 64, MIL_UNKNOWN, 1, 4));
    predict(NULL);
    found("input.no_t", PREDICT_OFF);
    op_is("tanh", PREDICT_OFF, "input.no_t");
    assert_string_equal(last_of("tanh")->detail, "x fp16[1,64,4,32]");
    r.f->in[0].has_range = true; /* from 4 to 4 */
    for (int i = 0; i < 4; i++) {
        r.f->in[0].lo[i] = r.f->in[0].hi[i] = r.f->in[0].type.dims[i];
    }
    predict(NULL);
    found("input.explicit", PREDICT_UNKNOWN);
    op_is("tanh", PREDICT_ON, "op.native");
}

static void ranges(void **state)
{
    (void)state;
    r.f->n_in = 0; /* without x */
    (void)unary("exp", input("y", MIL_FP16, 4, 1, 64, MIL_UNKNOWN, 1, 4));
    predict(NULL);
    assert_int_equal(r.v.f[0].findings.n, 0);
    predict("m5");
    found("range.narrow", PREDICT_UNKNOWN);
    r.f->in[0].hi[2] = 64;
    predict(NULL);
    found("range.wide", PREDICT_UNKNOWN);
    r.f->in[0].hi[2] = -1;
    predict(NULL);
    found("range.wide", PREDICT_UNKNOWN);
    r.f->in[0].hi[2] = 4;
    r.f->in[0].hi[3] = 8;
    predict(NULL);
    found("input.two_ranges", PREDICT_OFF);
    r.f->in[0].hi[3] = 1;
    r.f->in[0].n_shapes = 2;
    predict(NULL);
    found("input.enumerated", PREDICT_UNKNOWN);
    (void)a_state("k", 32);
    predict(NULL);
    found("input.enumerated_state", PREDICT_OFF);
}

static void other_ranges(void **state)
{
    (void)state;
    r.f->n_in = 0;
    (void)input("y", MIL_FP16, 4, 1, 64, MIL_UNKNOWN, 1, 4);
    (void)unary("exp", input("z", MIL_FP16, 4, 1, 64, MIL_UNKNOWN, 1, 8));
    predict(NULL);
    found("input.two_ranges", PREDICT_OFF);
}

static void states(void **state)
{
    (void)state;
    char name[16];
    (void)unary("exp", r.x);
    for (unsigned i = 0; i < 41; i++) {
        predict(NULL);
        assert_null(find(&r.v.f[0].findings, "state.count"));
        (void)snprintf(name, sizeof(name), "k%u", i);
        (void)a_state(name, 32);
    }
    predict(NULL);
    found("state.count", PREDICT_UNKNOWN);
    predict("m5");
    found("state.system", PREDICT_UNKNOWN);
    r.f->states[3].type.dims[2] = MIL_UNKNOWN;
    predict(NULL);
    found("state.ranged", PREDICT_OFF);
}

static void sizes(void **state)
{
    (void)state;
    (void)unary("exp", r.x);
    predict_bytes(NULL, 300000000);
    found("program.bytes", PREDICT_UNKNOWN);
    op_is("exp", PREDICT_ON, "op.native"); /* it warns */
    assert_string_equal(r.v.findings.of[0].detail,
                        "300.0 MB, profile law has 250 MB");
    predict_bytes("m4", 300000000);
    assert_int_equal(r.v.findings.n, 0);
    predict_bytes("m4", 2300000000);
    found("program.bytes_max", PREDICT_OFF);
    predict_bytes("m4", 14000000);
    found("program.floor", PREDICT_UNKNOWN);
    assert_non_null(strstr(r.v.findings.of[0].detail, "14 MB did not"));
    predict_bytes("m4", 300);
    found("program.floor", PREDICT_UNKNOWN);
    assert_non_null(strstr(r.v.findings.of[0].detail, "of 5 to 20 MB"));
    r.p->spec_version = 8;
    predict(NULL);
    found("spec.opset", PREDICT_UNKNOWN);
}

static void of_a_bundle(void **state)
{
    (void)state;
    struct predict_total t;
    (void)unary("exp", r.x);
    predict(NULL);
    predict_total_init(&t, &r.v.limits);
    for (int i = 0; i < 100; i++) {
        predict_total_add(&t, "a", &r.v);
    }
    t.bytes = 2900000000;
    assert_string_equal(predict_judge(&t), "passed");
    t.bytes = 3100000000;
    predict_total_add(&t, "a", &r.v);
    assert_string_equal(predict_judge(&t), "warned");
    assert_int_equal(t.n, 2);
    for (size_t i = 0; i < 2; i++) {
        const struct predict_finding *x =
            find(&t.findings, i == 0 ? "bundle.bytes" : "bundle.programs");
        assert_true(x != NULL && x->verdict == PREDICT_UNKNOWN);
    }
}

/* --- reports --- */

/* A large program that is on and a small one that is not: bytes count, not
 * programs. */
static void shares_of_a_bundle(void **state)
{
    (void)state;
    struct predict_total t;
    char line[ERR_MSG_MAX];
    (void)unary("exp", input("y", MIL_FP16, 4, 1, 64, 400, 32, 0));
    predict(NULL);
    predict_total_init(&t, &r.v.limits);
    predict_total_add(&t, "large", &r.v);
    r.f->body->n_ops = 0;
    unary("tanh", r.x)->def->type = "gather"; /* a hundredth of it */
    predict(NULL);
    predict_total_add(&t, "small", &r.v);
    (void)predict_judge(&t);
    predict_line(&t, line, sizeof(line));
    assert_non_null(strstr(line, "50.0% of 2 operations"));
    assert_non_null(strstr(line, "99.0% of the bytes"));
}

/* The gravest comes first, whatever was met first; alike ones are one. */
static void reasons(void **state)
{
    (void)state;
    struct predict_total t;
    char line[ERR_MSG_MAX];
    struct mil_value *y = unary("exp", r.x);
    y->def->type = "frobnicate";
    y = unary("exp", r.x);
    y->def->type = "frobnicate";
    y = unary("exp", r.x);
    y->def->type = "gather";
    (void)unary("exp", r.x);
    predict_bytes(NULL, 300000000);
    predict_total_init(&t, &r.v.limits);
    predict_total_add(&t, "one.mlpackage", &r.v);
    predict_total_add(&t, "two.mlpackage", &r.v);
    assert_string_equal(predict_judge(&t), "warned");
    assert_int_equal(t.n, 3);
    assert_string_equal(t.rule[0], "op.gather");
    assert_string_equal(t.rule[1], "op.unlisted");
    assert_string_equal(t.rule[2], "program.bytes");
    assert_non_null(strstr(t.reason[0], "one.mlpackage: op.gather: a gather"));
    predict_line(&t, line, sizeof(line));
    assert_non_null(strstr(line, "predicted for profile law: 25.0% of 8 "));
    assert_non_null(strstr(line, "op.gather"));
}

static struct json *as_json(void)
{
    struct json *raw = predict_function_json(&r.v, 0, "p", "layers");
    struct json *j = NULL;
    struct buf b;
    struct err e = {0};
    buf_init(&b, FRAME_WORKER_MAX); /* it is told in one frame */
    json_write(raw, false, &b);
    assert_true(buf_ok(&b));
    unit_ok(json_parse(b.p, b.n, &j, &e), &e);
    buf_fini(&b);
    json_free(raw);
    return j;
}

static void function_as_json(void **state)
{
    (void)state;
    struct mil_value *y = unary("exp", r.x);
    (void)unary("exp", y);
    y = unary("exp", r.x);
    y->def->type = "topk";
    predict_bytes(NULL, 300);
    struct json *j = as_json();
    const struct json *f = json_get(j, "function");
    const struct json *plan = json_get(f, "plan");
    const struct json *op = json_first(json_get(j, "ops"));
    assert_string_equal(json_str(json_get(f, "function")), "");
    assert_int_equal((int)json_num(json_get(plan, "operations")), 3);
    assert_int_equal((int)json_num(json_get(plan, "on_neural_engine")), 2);
    assert_int_equal(json_count(json_get(f, "findings")), 1);
    assert_string_equal(json_str(json_get(op, "type")), "topk");
    assert_string_equal(json_str(json_get(op, "device")), "cpu");
    assert_string_equal(json_str(json_get(op, "rule")), "op.topk");
    op = json_next(op);
    assert_string_equal(json_str(json_get(op, "device")), "neural_engine");
    assert_int_equal((int)json_num(json_get(op, "count")), 2);
    assert_int_equal(json_type(json_get(op, "reason")), JSON_NULL);
    json_free(j);
}

static void op_at(const char *name, const char *type)
{
    struct mil_value *y = unary("exp", r.x);
    y->name = name;
    y->def->type = type;
}

static char *map_text(void)
{
    static char text[1024];
    struct json *j = predict_map_json(&r.v.f[0]);
    struct buf b;
    assert_non_null(j);
    buf_init(&b, sizeof(text));
    json_write(j, false, &b);
    (void)snprintf(text, sizeof(text), "%s", b.p);
    buf_fini(&b);
    json_free(j);
    return text;
}

/* Layers that are alike are told once; what is of none, last. */
static void layer_by_layer(void **state)
{
    (void)state;
    op_at("layers_0_a", "exp");
    op_at("layers_1_a", "topk");
    op_at("mask", "exp");
    op_at("layers_2_a", "exp");
    op_at("layers_x", "exp");
    predict(NULL);
    assert_string_equal(
        map_text(), "{\"rules\":[\"op.native\",\"op.topk\"],\"groups\":["
                    "{\"layers\":[0,2],\"ops\":[[\"a\",\"exp\",\"on\",0,0]]},"
                    "{\"layers\":[1],\"ops\":[[\"a\",\"topk\",\"off\",1,0]]},"
                    "{\"layers\":[],\"ops\":[[\"mask\",\"exp\",\"on\",0,0],"
                    "[\"layers_x\",\"exp\",\"on\",0,0]]}]}");
    r.v.f[0].ops[3].weights = 64; /* layers that differ in bytes are alike */
    assert_non_null(strstr(map_text(), "[\"a\",\"exp\",\"on\",0,[0,64]]"));
    for (unsigned i = 0; i < 900; i++) {
        op_at("a_name_that_is_not_short", "exp");
    }
    predict(NULL);
    assert_null(predict_map_json(&r.v.f[0])); /* no frame would hold it */
}

/* More kinds than are told of: the rest is one, and a frame holds them. */
static void many_kinds(void **state)
{
    (void)state;
    static char name[PREDICT_KINDS_MAX + 20][24];
    uint32_t n = 0;
    for (size_t i = 0; i < countof(name); i++) {
        (void)snprintf(name[i], sizeof(name[i]), "strange_%zu", i);
        unary("exp", r.x)->def->type = name[i];
    }
    predict(NULL);
    struct json *j = as_json();
    const struct json *ops = json_get(j, "ops");
    const struct json *last = NULL;
    for (const struct json *o = json_first(ops); o != NULL; o = json_next(o)) {
        n += (uint32_t)json_num(json_get(o, "count"));
        last = o;
    }
    assert_int_equal(n, countof(name));
    assert_int_equal(json_count(ops), PREDICT_KINDS_MAX + 1);
    assert_string_equal(json_str(json_get(last, "type")), "others");
    json_free(j);
}

static void profiles(void **state)
{
    (void)state;
    struct predict_limits l = {0};
    struct err e = {0};
    unit_ok(predict_limits("m4-max", &l, &e), &e);
    assert_int_equal(l.chip, 4);
    assert_int_equal(l.states, 40);
    unit_ok(predict_limits(NULL, &l, &e), &e);
    assert_string_equal(l.profile, "law");
    assert_int_equal(l.chip, 1);
    assert_int_equal(predict_limits("m99", &l, &e), ERR_INVALID);
}

static void each_rule_was_seen(void **state)
{
    (void)state;
    rig_each_was_seen(false);
}

int main(void)
{
#define T(t) cmocka_unit_test_setup_teardown(t, up, down)
    const struct CMUnitTest tests[] = {
        T(inputs_without_t),
        T(ranges),
        T(other_ranges),
        T(states),
        T(sizes),
        T(of_a_bundle),
        T(shares_of_a_bundle),
        T(reasons),
        T(layer_by_layer),
        T(function_as_json),
        T(many_kinds),
        T(profiles),
        cmocka_unit_test(each_rule_was_seen),
    };
    return cmocka_run_group_tests_name("residency_whole", tests, NULL, NULL);
}
