/* A few hundred random programs, compiled against the interpreter. Many more:
 * ./dev bench random. */
#include "../unit.h"
#include "random_program.h"

static void test_random_programs(void **state)
{
    (void)state;
    int programs = UNIT_SANITIZED ? 60 : 300;
    int rows = 0;
    unsigned called_off = 0;
    for (int i = 1; i <= programs; i++) {
        struct random_result r;
        if (!random_run((uint64_t)i, 2, &r)) {
            fail_msg("%s", r.why);
        }
        rows += r.rows;
        called_off += r.called_off;
    }
    assert_true(rows > programs / 2); /* else little was tested */
    assert_true(called_off > (unsigned)programs / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
