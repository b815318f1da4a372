/* test_contract.c - the promises of backend.h, held by the CPU's backends. */
#include "contract.h"
#include "engine/cpu/backend_cpu.h"

int main(void)
{
    static const struct cpu_conf rounded = {.round_fp16 = true};
    static struct contract of[] = {
        {&backend_interpreter, {.threads = 1}                 },
        {&backend_interpreter, {.threads = 1, .cpu = &rounded}},
        {&backend_cpu,         {.threads = 2}                 },
    };
    static const char *const names[] = {"interpreter", "rounded", "cpu"};
    struct CMUnitTest tests[countof(of) * CONTRACT_COUNT];
    size_t n = 0;
    for (size_t i = 0; i < countof(of); i++) {
        contract_add(tests, &n, &of[i], names[i]);
    }
    return _cmocka_run_group_tests("contract", tests, n, contract_make,
                                   contract_unmake);
}
