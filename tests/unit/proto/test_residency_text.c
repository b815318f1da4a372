/* test_residency_text.c - a measured and a predicted report side by side. */
#include "../unit.h"
#include "proto/limits.h"
#include "proto/residency_text.h"

static struct json *parsed(const char *text)
{
    struct json *j = NULL;
    struct err e = {0};
    unit_ok(json_parse(text, strlen(text), &j, &e), &e);
    return j;
}

static const char measured[] =
    "{\"kind\":\"measured\",\"machine\":\"Fake M9\\u001b[31m\",\"options\":"
    "\"backend=coreml\",\"verdict\":\"warned\",\"created_ms\":1000000,"
    "\"widths\":{\"layers\":[1,4],\"heads\":[]},\"report\":{\"reasons\":["
    "\"a.mlpackage t4: it is\\nslow\"],\"margin\":0.0125,\"functions\":[{"
    "\"package\":\"a.mlpackage\",\"function\":\"t4\",\"plan_error\":null,"
    "\"plan\":{\"operations\":512,\"share\":0.98,\"share_of_cost\":0.979},"
    "\"widths\":[{\"width\":1,\"sound\":true,\"median_us\":1200,"
    "\"cpu_only_us\":3100.5,\"cosine\":0.99998713,\"not_finite\":0,"
    "\"steady\":true,\"repeats\":true,\"error\":null},{\"width\":2,\"sound\":"
    "false,\"median_us\":null,\"cpu_only_us\":null,\"cosine\":null,"
    "\"not_finite\":12,\"steady\":true,\"repeats\":true,\"error\":null},{"
    "\"width\":4,\"sound\":true,\"median_us\":250000,\"cpu_only_us\":null,"
    "\"cosine\":1,\"not_finite\":0,\"steady\":true,\"repeats\":true,\"error\":"
    "null}]}],\"packages\":[{\"package\":\"a.mlpackage\",\"classes\":[[1],[4]]}"
    "]},\"ops\":[{\"package\":\"a.mlpackage\",\"function\":\"t4\",\"type\":"
    "\"softmax\",\"device\":\"cpu\",\"could\":\"cpu gpu\",\"count\":4,\"cost\":"
    "0.021,\"example\":\"layers_0_p\",\"reason\":\"not there\"},{\"package\":"
    "\"a.mlpackage\",\"function\":\"t4\",\"type\":\"conv\",\"device\":"
    "\"neural_engine\",\"could\":\"neural_engine\",\"count\":508,\"cost\":0.9,"
    "\"example\":\"q\",\"reason\":null}]}";

static const char predicted[] =
    "{\"kind\":\"predicted\",\"machine\":\"m4-max\",\"options\":\"rules=6\","
    "\"verdict\":\"passed\",\"created_ms\":900000,\"widths\":{},\"report\":{"
    "\"functions\":[{\"package\":\"a.mlpackage\",\"function\":\"t4\",\"plan\":{"
    "\"operations\":512,\"share\":1,\"share_of_cost\":null},\"findings\":[{"
    "\"rule\":\"R4\",\"verdict\":\"unknown\",\"reason\":\"R4: small\"}]},{"
    "\"package\":"
    "\"a.mlpackage\",\"function\":\"t8\",\"plan\":{\"operations\":512,"
    "\"share\":0.9}}]},\"ops\":[{\"package\":\"a.mlpackage\",\"function\":"
    "\"t4\",\"type\":\"topk\",\"device\":\"unknown\",\"could\":\"cpu\","
    "\"count\":1,\"cost\":0,\"example\":\"k\",\"reason\":\"R6: on the CPU\"},{"
    "\"package\":\"a.mlpackage\",\"function\":\"t4\",\"type\":\"topk\","
    "\"device\":\"cpu\",\"could\":\"cpu\",\"count\":2,\"cost\":0.5,"
    "\"example\":\"m\",\"reason\":\"R7: never\"},{"
    "\"package\":\"a.mlpackage\",\"function\":\"t4\",\"type\":\"softmax\","
    "\"device\":\"neural_engine\",\"could\":\"cpu neural_engine\",\"count\":"
    "4,\"cost\":0.1,\"example\":\"p\",\"reason\":null},{"
    "\"package\":\"a.mlpackage\",\"function\":\"t4\",\"type\":\"conv\","
    "\"device\":\"neural_engine\",\"could\":\"cpu neural_engine\",\"count\":"
    "505,\"cost\":0.4,\"example\":\"q\",\"reason\":null}]}";

static const char both[] =
    "measured   warned  Fake M9?[31m (backend=coreml), 2m ago\n"
    "  a.mlpackage t4: it is?slow\n"
    "predicted  passed  m4-max (rules=6), 4m ago\n"
    "widths     layers 1 4, heads none (the same bits in all of these)\n"
    "margin     0.0125: how far a width moves a token's lead\n"
    "\n"
    "a.mlpackage t4\n"
    "  Neural Engine, measured   97.9% of the cost, 98.0% of 512 operations\n"
    "  Neural Engine, predicted  100.0% of 512 operations\n"
    "  predicted, unknown: R4: small\n"
    "  operation           predicted         measured           why not on the "
    "Neural Engine\n"
    "  topk                1 unknown, 2 off  -                  R6: on the "
    "CPU; "
    "one is k\n"
    "                                                           R7: never, "
    "50.0% "
    "of the cost; one is m\n"
    "  softmax             4 on              4 cpu              not there "
    "(could: cpu gpu), 2.1% of the cost; one is layers_0_p\n"
    "  all others          505 on            508 on\n"
    "  width     median  CPU alone       cosine  bits\n"
    "      1    1.20 ms    3.10 ms  0.999987130  a\n"
    "      2          -          -            -  -  numbers that are not "
    "finite\n"
    "      4     250 ms          -  1.000000000  b\n"
    "\n"
    "a.mlpackage t8\n"
    "  Neural Engine, measured   no report\n"
    "  Neural Engine, predicted  90.0% of 512 operations\n";

static void side_by_side(void **state)
{
    (void)state;
    struct json *m = parsed(measured);
    struct json *p = parsed(predicted);
    struct buf b;
    buf_init(&b, KIB(64));
    residency_text(m, p, 1120000 + 20000, &b);
    assert_true(buf_ok(&b));
    assert_string_equal(b.p, both);
    buf_clear(&b);
    residency_text(NULL, p, 900000, &b);
    assert_non_null(strstr(b.p, "measured   no report\n"));
    assert_non_null(strstr(b.p, "rules=6), 0s ago\n"));
    assert_non_null(strstr(b.p, "a.mlpackage t8\n"));
    buf_clear(&b);
    residency_text(NULL, NULL, 0, &b);
    assert_string_equal(b.p, "measured   no report\npredicted  not run\n");
    buf_fini(&b);
    json_free(m);
    json_free(p);
}

/* Whatever stands in a record, it is text: nothing is trusted to be there. */
static void odd_records(void **state)
{
    static const char *const odd[] = {
        "{}",
        "{\"report\":[],\"ops\":{}}",
        "{\"report\":{\"functions\":[1,{}],\"reasons\":[1]},\"ops\":[2,{}]}",
        ("{\"widths\":7,\"created_ms\":\"x\",\"report\":{\"functions\":[{"
         "\"widths\":[3,{\"error\":{}}]}],\"packages\":[4,{\"classes\":[5]}]}"
         "}"),
    };
    (void)state;
    for (size_t i = 0; i < countof(odd); i++) {
        struct json *j = parsed(odd[i]);
        struct buf b;
        buf_init(&b, KIB(64));
        residency_text(j, j, 1, &b);
        assert_true(buf_ok(&b) && b.n > 20);
        buf_fini(&b);
        json_free(j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(side_by_side),
        cmocka_unit_test(odd_records),
    };
    return cmocka_run_group_tests_name("residency_text", tests, NULL, NULL);
}
