/* sweep_sets.c - the backend that is swept: the one there is, or one as it must
 * not be, with sets of kernels in the place of those of kernel.c.
 *
 * MUTANT_PRODUCT    sums are added up in other blocks when there are more
 *                   columns than one
 * MUTANT_THREADS    the same in a thread's piece that is not the first
 * MUTANT_ATTENTION  chains of additions begin elsewhere, by columns
 * MUTANT_ISA        one set adds a row's weights up in another order
 * MUTANT_FORK       a fork shares one position too few
 * SIMULATED         nothing wrong: AVX-512 put together from smaller pieces,
 *                   for machines without
 *
 * The first four are what a faster kernel invites: results stay right but for
 * the last bits. The sweep must find every one but SIMULATED. */
#include <string.h>

#include "base/isa.h"
#include "engine/cpu/kernels/attention/attend.h"
#include "engine/cpu/kernels/kernel.h"
#include "engine/cpu/kernels/products/linear_impl.h"
#include "sweep.h"

#if defined(MUTANT_PRODUCT) || defined(MUTANT_THREADS) || \
    defined(MUTANT_ATTENTION) || defined(MUTANT_ISA) || defined(SIMULATED)
#define SETS
#endif

#if defined(MUTANT_FORK)

static int fork_short(const struct backend_state *from, uint32_t n,
                      struct backend_state **ret, struct err *e)
{
    return backend_cpu.rows->fork(from, n - 1, ret, e);
}

const struct backend *sweep_backend(void)
{
    static struct backend mutant;
    static struct backend_row_ops ops;
    mutant = backend_cpu;
    ops = *backend_cpu.rows;
    ops.fork = fork_short;
    mutant.rows = &ops;
    return &mutant;
}

#else

const struct backend *sweep_backend(void)
{
    return &backend_cpu;
}

#endif

/* Sets that not every machine runs. */
static const struct {
    const char *name;
    unsigned needs;
} wanted[] = {
#if defined(SIMULATED)
    {"avx512~", ISA_V3},
    {"avx2",    ISA_V3},
#elif !defined(SETS) && defined(__x86_64__)
#if defined(HAVE_AMX)
    {"amx", ISA_V3 | ISA_AMX},
#endif
    {"avx512", ISA_V3 | ISA_AVX512},
#if defined(HAVE_AVXVNNI)
    {"avxvnni", ISA_V3 | ISA_AVXVNNI},
#endif
    {"avx2", ISA_V3},
#elif !defined(SETS) && defined(__aarch64__)
    {"neon_i8mm", ISA_I8MM},
    {"neon_dot", ISA_DOTPROD},
#endif
    {NULL,      0     },
};

const char *sweep_lacks(size_t i)
{
    for (size_t s = 0; wanted[s].name != NULL; s++) {
        if (!isa_has(wanted[s].needs) && i-- == 0) {
            return wanted[s].name;
        }
    }
    return NULL;
}

#if defined(SETS)

#define SETS_MAX 3u

static struct kernels sets[SETS_MAX];
static size_t n_sets;

#if defined(MUTANT_PRODUCT) || defined(MUTANT_THREADS)

/* As the scalar set does it, or by blocks that are scaled before they are
 * added: one rounding more for each. The sums alone would often be exact. */
static void int8_rows(const struct linear_job *j, size_t begin, size_t end,
                      float *acc, bool blocks)
{
    size_t block = blocks ? 96 : LINEAR_BLOCK;
    must(j->kind == WEIGHT_I8);
    for (size_t o = begin; o < end; o++) {
        const signed char *w = (const signed char *)j->w + o * j->ldw;
        float s = blocks ? j->scale[o] : 1.0F;
        for (size_t c = 0; c < j->cols; c++) {
            const int16_t *q = j->q + c * j->ldq;
            acc[c] = 0;
            for (size_t k = 0; k < j->k; k += block) {
                size_t stop = k + block < j->k ? k + block : j->k;
                int32_t sum = 0;
                for (size_t i = k; i < stop; i++) {
                    sum += w[i] * q[i];
                }
                acc[c] += (float)sum * s;
            }
            acc[c] /= s; /* linear_finish scales */
        }
        linear_finish(j, o, 1, 0, j->n, acc, 1);
    }
}

static void mutant_rows(const struct linear_job *j, size_t begin, size_t end,
                        void *scratch)
{
#if defined(MUTANT_PRODUCT)
    int8_rows(j, begin, end, scratch, j->cols > 1);
#else
    int8_rows(j, begin, end, scratch, begin > 0);
#endif
}

static void mutate(void)
{
    sets[0] = kernels_scalar; /* whose columns are in natural order */
    sets[0].int_few = mutant_rows;
    sets[0].int_many = mutant_rows;
    n_sets = 1;
}

#elif defined(MUTANT_ATTENTION)

/* The same terms, begun with a different one for each number of columns. */
static void mutant_attend(const struct attend_product *m)
{
    struct attend_product a = *m;
    size_t first = m->cols % m->k;
    a.k = m->k - first;
    a.x = m->x + first;
    a.w = m->w + first * m->ldw;
    kernels_scalar.attend_product(&a);
    a = *m;
    a.k = first;
    a.add = true;
    kernels_scalar.attend_product(&a);
}

static void mutate(void)
{
    sets[0] = kernels_scalar;
    sets[0].attend_product = mutant_attend;
    n_sets = 1;
}

#elif defined(MUTANT_ISA)

static void mutant_weigh(float *x, size_t begin, size_t end, bool divide,
                         float scale, float *ret_max, float *ret_sum)
{
    float sum = 0;
    kernels_scalar.attend_weigh(x, begin, end, divide, scale, ret_max, ret_sum);
    for (size_t i = begin; i < end; i++) {
        sum += x[i];
    }
    *ret_sum = sum;
}

static void mutate(void)
{
    sets[0] = kernels_scalar;
    sets[0].name = "mutant";
    sets[0].attend_weigh = mutant_weigh;
    sets[1] = kernels_scalar;
    n_sets = 2;
}

#elif defined(SIMULATED)

extern const struct kernels kernels_simde;

static void mutate(void)
{
    if (isa_has(ISA_V3)) {
        sets[0] = kernels_simde; /* what it is put together from is AVX2's */
        sets[0].name = "avx512~";
        sets[1] = kernels_avx2;
        n_sets = 2;
    }
    sets[n_sets++] = kernels_scalar;
}

#endif

const struct kernels *kernels_each(size_t i)
{
    if (n_sets == 0) {
        mutate();
    }
    return i < n_sets ? &sets[i] : NULL;
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

#endif
