/* floats.c - which of the tables this process uses. */
#include "engine/cpu/kernels/floats.h"

#include <stdatomic.h>
#include <string.h>

#include "base/isa.h"

#if defined(__x86_64__)
extern const struct floats floats_avx2;
#elif defined(__aarch64__)
extern const struct floats floats_neon;
#endif
extern const struct floats floats_scalar;

static _Atomic(const struct floats *) chosen;

const struct floats *floats_each(size_t i)
{
    const struct floats *sets[3] = {NULL};
    size_t n = 0;
#if defined(__x86_64__)
    if (isa_has(ISA_V3)) {
        sets[n++] = &floats_avx2;
    }
#elif defined(__aarch64__)
    sets[n++] = &floats_neon;
#endif
    sets[n++] = &floats_scalar;
    return i < n ? sets[i] : NULL;
}

const struct floats *floats(void)
{
    const struct floats *f =
        atomic_load_explicit(&chosen, memory_order_relaxed);
    if (f == NULL) { /* every thread finds the same one */
        f = floats_each(0);
        atomic_store_explicit(&chosen, f, memory_order_relaxed);
    }
    return f;
}

void floats_choose(const char *isa)
{
    bool plain = strcmp(isa, floats_scalar.name) == 0;
    atomic_store(&chosen, plain ? &floats_scalar : floats_each(0));
}
