/* kernel.c - which set of inner loops this machine runs. */
#include "engine/cpu/kernels/kernel.h"

#include <string.h>

#include "base/isa.h"
#include "engine/cpu/kernels/kernel_impl.h"

static bool always(void)
{
    return true;
}

#if defined(__x86_64__)
static bool has_avx512(void)
{
    return isa_has(ISA_V3 | ISA_AVX512);
}

#if defined(HAVE_AVXVNNI)
static bool has_avxvnni(void)
{
    return isa_has(ISA_V3 | ISA_AVXVNNI);
}
#endif

static bool has_avx2(void)
{
    return isa_has(ISA_V3);
}
#endif

/* Best first. */
static const struct {
    const struct kernels *k;
    bool (*runs)(void);
} sets[] = {
#if defined(__x86_64__)
    {&kernels_avx512, has_avx512},
#if defined(HAVE_AVXVNNI)
    {&kernels_avxvnni, has_avxvnni},
#endif
    {&kernels_avx2,   has_avx2  },
#elif defined(__aarch64__)
    {&kernels_neon, always},
#endif
    {&kernels_scalar, always    },
};

const struct kernels *kernels_each(size_t i)
{
    for (size_t s = 0; s < countof(sets); s++) {
        if (sets[s].runs() && i-- == 0) {
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
