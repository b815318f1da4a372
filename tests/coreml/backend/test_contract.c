/* test_contract.c - the promises of backend.h, held by the Core ML backend on
 * the stand-in: as on the Neural Engine, with fp32 arithmetic, without a Neural
 * Engine, and with output backings that are ignored. */
#include "kit.h"

/* The backend on a stand-in that behaves so. */
struct way {
    struct contract c;
    const char *name, *faults;
};

/* In each test; nothing may be left at its end. */
static struct kit_left before;

static int set_up(void **state)
{
    struct contract *c = *state;
    kit_faults(container_of(c, struct way, c)->faults);
    before = kit_count();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    kit_same(before);
    return 0;
}

int main(int argc, char **argv)
{
    (void)argc;
    kit_start(argv);
    static struct way ways[] = {
        {{&backend_coreml, {.threads = 1}}, "coreml",    ""                    },
        {{&backend_coreml, {.threads = 1}}, "fp32",      "arith = fp32"        },
        {{&backend_coreml, {.threads = 1}}, "no engine", "neural_engine = 0"   },
        {{&backend_coreml, {.threads = 1}}, "ignored",   "backings_ignored = *"},
    };
    struct CMUnitTest tests[countof(ways) * CONTRACT_COUNT];
    size_t n = 0;
    for (size_t i = 0; i < countof(ways); i++) {
        contract_add(tests, &n, &ways[i].c, ways[i].name);
    }
    for (size_t i = 0; i < n; i++) {
        tests[i].setup_func = set_up;
        tests[i].teardown_func = tear_down;
    }
    return _cmocka_run_group_tests("coreml contract", tests, n, kit_make,
                                   kit_unmake);
}
