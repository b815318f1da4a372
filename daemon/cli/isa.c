/* isa.c - the option --isa: which kernels a command runs on. */
#include <string.h>

#include "cli/cli.h"
#include "engine/cpu/backend_cpu.h"

int cli_isa(const char *usage, const char *name)
{
    static const char *const known[] = {
        "scalar", "avx2", "avxvnni",  "avx512",
        "amx",    "neon", "neon_dot", "neon_i8mm"};
    struct err e;
    char here[128] = "";
    size_t n = 0;
    for (size_t i = 0; cpu_isa(i) != NULL; i++) {
        if (strcmp(name, cpu_isa(i)) == 0) {
            return -1;
        }
        int k = snprintf(here + n, sizeof(here) - n, "%s%s", i > 0 ? ", " : "",
                         cpu_isa(i));
        must(k > 0 && n + (size_t)k < sizeof(here));
        n += (size_t)k;
    }
    for (size_t i = 0; i < countof(known); i++) {
        if (strcmp(name, known[i]) == 0) {
            (void)err_set(&e, ERR_UNAVAILABLE, "--isa %s: this machine has %s",
                          name, here);
            return err_print(&e);
        }
    }
    return cli_usage(usage, "--isa takes %s on this machine, not '%s'", here,
                     name);
}
