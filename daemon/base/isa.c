/* isa.c - see isa.h. */
#include "base/isa.h"

#define KNOWN 0x80000000u /* it was looked */

static bool all(unsigned word, unsigned bits)
{
    return (word & bits) == bits;
}

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* Sets of the control register XCR0: XMM and YMM; also masks and ZMM; tiles. */
#define SAVED_256 0x06u
#define SAVED_512 0xe6u
#define SAVED_TILES 0x60000u

struct regs {
    unsigned a, b, c, d;
};

static struct regs cpuid(unsigned leaf, unsigned sub)
{
    struct regs r = {0};
    (void)__get_cpuid_count(leaf, sub, &r.a, &r.b, &r.c, &r.d);
    return r;
}

static unsigned saved_registers(void)
{
    unsigned low = 0;
    unsigned high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* The maker's name is in three registers. */
static bool is_intel(void)
{
    struct regs name = cpuid(0, 0);
    return name.b == signature_INTEL_ebx && name.d == signature_INTEL_edx &&
           name.c == signature_INTEL_ecx;
}

/* A process has to ask for its threads' 8 KiB of tiles, once (Linux 5.16,
 * Documentation/arch/x86/xstate.rst). */
static bool tiles_allowed(void)
{
#if defined(__linux__) && defined(SYS_arch_prctl)
    const int ask = 0x1023;  /* ARCH_REQ_XCOMP_PERM */
    const int tile_data = 18; /* XFEATURE_XTILE_DATA */
    return syscall(SYS_arch_prctl, ask, tile_data) == 0;
#else
    return false;
#endif
}

/* Bits as Intel's manual numbers them (volume 2, CPUID). */
static unsigned look(void)
{
    struct regs one = cpuid(1, 0);
    struct regs seven = cpuid(7, 0);
    struct regs more = cpuid(7, 1);
    struct regs far = cpuid(0x80000001u, 0);
    unsigned has = is_intel() ? ISA_INTEL : 0;
    if (all(seven.b, 1u << 29) && all(one.c, 1u << 19 | 1u << 9)) {
        has |= ISA_SHA; /* with SSE4.1 and SSSE3 */
    }
    /* FMA, MOVBE, OSXSAVE, AVX, F16C; BMI1, AVX2, BMI2; LZCNT */
    if (!all(one.c, 1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29) ||
        !all(seven.b, 1u << 3 | 1u << 5 | 1u << 8) || !all(far.c, 1u << 5) ||
        !all(saved_registers(), SAVED_256)) {
        return has;
    }
    has |= ISA_V3;
    if (seven.a >= 1 && all(more.a, 1u << 4)) {
        has |= ISA_AVXVNNI;
    }
    /* F, DQ, BW, VL; VNNI */
    if (all(seven.b, 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31) &&
        all(seven.c, 1u << 11) && all(saved_registers(), SAVED_512)) {
        has |= ISA_AVX512;
    }
    /* VBMI */
    if (all(has, ISA_AVX512) && all(seven.c, 1u << 1)) {
        has |= ISA_VBMI;
    }
    /* AMX-TILE and AMX-INT8 */
    if (all(has, ISA_VBMI) && all(seven.d, 1u << 24 | 1u << 25) &&
        all(saved_registers(), SAVED_TILES) && tiles_allowed()) {
        has |= ISA_AMX;
    }
    return has;
}

#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

/* Bits as the kernel's uapi/asm/hwcap.h numbers them. */
#define CAP_CRC32    (1u << 7)
#define CAP_ATOMICS  (1u << 8)
#define CAP_ASIMDRDM (1u << 12)
#define CAP_DCPOP    (1u << 16)
#define CAP_ASIMDDP  (1u << 20)
#define CAP2_I8MM    (1u << 13)

/* What is compiled for these two is compiled for ARMv8.2, so that the compiler
 * may use all that programs see of it. */
static unsigned look(void)
{
    unsigned caps = (unsigned)getauxval(AT_HWCAP);
    unsigned more = (unsigned)getauxval(AT_HWCAP2);
    unsigned has = 0;
    if (all(caps, CAP_CRC32 | CAP_ATOMICS | CAP_ASIMDRDM | CAP_DCPOP)) {
        has |= all(caps, CAP_ASIMDDP) ? ISA_DOTPROD : 0;
        has |= all(more, CAP2_I8MM) ? ISA_I8MM : 0;
    }
    return has;
}

#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>

/* No such name: a system older than the feature. All of Apple's processors for
 * macOS have ARMv8.4. */
static bool says(const char *name)
{
    int yes = 0;
    size_t size = sizeof(yes);
    return sysctlbyname(name, &yes, &size, NULL, 0) == 0 && yes != 0;
}

static unsigned look(void)
{
    unsigned has = 0;
    has |= says("hw.optional.arm.FEAT_DotProd") ? ISA_DOTPROD : 0;
    has |= says("hw.optional.arm.FEAT_I8MM") ? ISA_I8MM : 0;
    return has;
}

#else

static unsigned look(void)
{
    return 0;
}

#endif

bool isa_has(unsigned which)
{
    static unsigned found; /* every thread finds the same */
    unsigned has = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if (has == 0) {
        has = look() | KNOWN;
        __atomic_store_n(&found, has, __ATOMIC_RELAXED);
    }
    return all(has, which);
}
