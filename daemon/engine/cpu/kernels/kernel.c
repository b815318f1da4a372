/* kernel.c - which set of inner loops this machine runs. */
#include "engine/cpu/kernels/kernel.h"

#include <string.h>

#include "base/isa.h"
#include "engine/cpu/kernels/kernel_impl.h"

/* Best first. */
static const struct {
    const struct kernels *k;
    unsigned needs; /* of base/isa.h */
} sets[] = {
#if defined(__x86_64__)
#if defined(HAVE_AMX)
    {&kernels_amx,     ISA_V3 | ISA_AMX    },
#endif
    {&kernels_avx512,  ISA_V3 | ISA_AVX512 },
#if defined(HAVE_AVXVNNI)
    {&kernels_avxvnni, ISA_V3 | ISA_AVXVNNI},
#endif
    {&kernels_avx2,    ISA_V3              },
#elif defined(__aarch64__)
#if defined(HAVE_NEON_I8MM)
    {&kernels_neon_i8mm, ISA_I8MM},
#endif
#if defined(HAVE_NEON_DOT)
    {&kernels_neon_dot, ISA_DOTPROD},
#endif
    {&kernels_neon, 0},
#endif
    {&kernels_scalar,  0                   },
};

const struct kernels *kernels_each(size_t i)
{
    for (size_t s = 0; s < countof(sets); s++) {
        if (isa_has(sets[s].needs) && i-- == 0) {
            return sets[s].k;
        }
    }
    return NULL;
}

const struct kernels *kernels_find(const char *name)
{
    for (size_t i = 0;; i++) {
        const struct kernels *k = kernels_each(i);
        if (k == NULL || name == NULL || strcmp(k->name, name) == 0) {
            return k;
        }
    }
}

const char *kernels_name(const struct kernels *k)
{
    return k->name;
}
