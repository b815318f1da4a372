/* A package as fuzz_package.c has it, run: what is valid is opened by the
 * interpreter and given one prediction of zeros. */
#include "program_run.h"
#include "weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct cur c = cur_of(p, n);
    size_t spec_bytes = cur_u32(&c);
    const void *spec = cur_bytes(&c, spec_bytes);
    if (c.bad) {
        return 0;
    }
    struct file_map map = map_weights(p + c.at, n - c.at);
    struct mil_program *prog = calloc(1, sizeof(*prog));
    must(prog != NULL);
    struct err e = {0};
    int rc = spec_read(prog, spec, spec_bytes,
                       (struct weights){.find = find_weights, .ctx = &map}, &e);
    if (rc == 0) {
        rc = mil_validate(prog, &e);
    }
    if (rc == 0) {
        run_program(prog, false);
        prog = NULL; /* taken */
    }
    mil_free(prog);
    free((void *)(uintptr_t)map.p);
    return 0;
}
