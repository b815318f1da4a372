/* Dequantisation against the `gguf` package without either of them there: sums
 * over what it makes of pseudo-random blocks (dequant_sums.py prints them), on
 * each set of instructions that this machine has. */
#include "../unit.h"
#include "base/hash.h"
#include "base/isa.h"
#include "source/dequant.h"

enum { BLOCKS = 61, BLOCK_BYTES_MAX = 292, ITEMS_MAX = 256 };

/* bytes whose bits 6 and 2 are cleared: the scales stay finite */
static const struct {
    uint32_t type;
    int scale, other; /* other -1: one */
    const char *sum;
} sums[] = {
    {GGML_F16,     1,   -1,
     "6a9e8dcbf95a49129dfa5123a128200885fe1a4959d1dfd307a89b5cb67ed41e"},
    {GGML_BF16,    1,   -1,
     "7953b590eeaf7b728cd0cb698f7b504ee7b9e9858db00fbddeaf0212f27462c9"},
    {GGML_Q4_0,    1,   -1,
     "f5986f9870a9ec27a26a78a3c9737df8f06a5a5a40189a6cd71bf16baef4bb3f"},
    {GGML_Q4_1,    1,   3,
     "aec492901989a7c53ac6969266f0d3bdb24cbf9b9ad1f194b36ef78a435746ba"},
    {GGML_Q5_0,    1,   -1,
     "203a14ba24728fc9d852153919dab6bd86974ce7761d468f3f1b014f4e398703"},
    {GGML_Q5_1,    1,   3,
     "8a5c8bce1484282a03143a72946690420eadce226b9dd7665446e255b034b150"},
    {GGML_Q8_0,    1,   -1,
     "59f76aa378dcc2f277b55e3d9085f258291e898a0f1edc2678b682957b098e47"},
    {GGML_Q2_K,    81,  83,
     "2060480d1fa7c33ff884423028ef32e5a00b81f565710fc1183c5e3271edf926"},
    {GGML_Q3_K,    109, -1,
     "8956d5900f4ef4be40a07996445f38dea36bd814151fb3c786eacbc924171225"},
    {GGML_Q4_K,    1,   3,
     "2ad258ccfbbb7641abb1c145e974f982c65b801ecccc0b2bd7a49f37860611e0"},
    {GGML_Q5_K,    1,   3,
     "89e0ef41ad1523aad819e161c64f841d686cd215ba9054bc8eb09be25659f2ef"},
    {GGML_Q6_K,    209, -1,
     "ec3b282837ca63aec6fa050a3a273a2307703e05bd743809950d7bfb1c796117"},
    {GGML_IQ2_XXS, 1,   -1,
     "f49932b1b3c622166a0715c2d277f792b35e585e74a0122935ff2a4fcb851672"},
    {GGML_IQ2_XS,  1,   -1,
     "f0b26e381d30e454a9f96f7f29561e573b54598d3d8cdf7cd02cecf4e444c6fe"},
    {GGML_IQ3_XXS, 1,   -1,
     "cc9e66782901e1fc5c1beb1d246221226b731c9e82c1226e979f6a105e8e01ce"},
    {GGML_IQ1_S,   1,   -1,
     "1c473a4b8379caec403c6609a3da0e3c8244a68301f59b857e032287a7f37b48"},
    {GGML_IQ4_NL,  1,   -1,
     "68a4abee1bb26138e6a56a0d83fbd275b7dbda9b7fe4d7453569c7760426590c"},
    {GGML_IQ3_S,   1,   -1,
     "6524f100f8d5fbf5cab4926d54117634ae7d6bf731d6f4c7e68ca8c54decbdad"},
    {GGML_IQ2_S,   1,   -1,
     "363c80bcfd98618b542449da9d319f73fe60b662079568cbb0d9a84f172c9fc5"},
    {GGML_IQ4_XS,  1,   -1,
     "5e689770915dfbf3494944ffa0458706cd1f1371524a5d2b86205d218046ec7e"},
    {GGML_IQ1_M,   55,  -1,
     "7a2605b27f79b0a749d1998be9abe25416862647b54ff6695080196b84c9dc77"},
    {GGML_TQ1_0,   53,  -1,
     "777d3c3e2c826263a4f9e04da4d6a3b7cb4e27be6b490633b220282f9d0b539d"},
    {GGML_TQ2_0,   65,  -1,
     "9c9ddcb3802444145fd30333968291738a40cac19ff2b6675b75ebc7887909f8"},
    {GGML_MXFP4,   0,   -1,
     "99df12a09b893d5629a00cca93027dda49f2dcfedf55aa5e5c4295959d99ba7e"},
};

static uint8_t next_byte(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return (uint8_t)(*x >> 32);
}

/* The blocks, in memory of exactly their size, at an odd address. */
static uint8_t *make_blocks(size_t i, size_t bytes, uint8_t **ret)
{
    uint64_t x = 88172645463325252u;
    uint8_t *p = malloc(BLOCKS * bytes + 1);
    assert_non_null(p);
    for (size_t k = 0; k < BLOCKS * bytes; k++) {
        int at = (int)(k % bytes);
        bool finite = at == sums[i].scale || at == sums[i].other;
        p[k + 1] = next_byte(&x) & (finite ? 0xBB : 0xFF);
    }
    *ret = p;
    return p + 1;
}

static dequant_fn *find(const struct dequant *const *tables, size_t n,
                        uint32_t type)
{
    dequant_fn *fn = NULL;
    for (size_t i = 0; i < n; i++) {
        if (tables[i]->fns[type] != NULL) {
            assert_null(fn); /* one table has it */
            fn = tables[i]->fns[type];
        }
    }
    return fn;
}

static void check_set(const struct dequant *const *tables, size_t n)
{
    static float y[BLOCKS * ITEMS_MAX];
    for (size_t i = 0; i < countof(sums); i++) {
        struct gguf_block b = gguf_type_block(sums[i].type);
        dequant_fn *fn = find(tables, n, sums[i].type);
        struct sha256 s;
        uint8_t d[SHA256_BYTES];
        char hex[SHA256_HEX];
        uint8_t *whole = NULL;
        assert_true(b.bytes <= BLOCK_BYTES_MAX && b.items <= ITEMS_MAX);
        assert_non_null(fn);
        const uint8_t *p = make_blocks(i, b.bytes, &whole);
        fn(p, y, 7); /* and in more than one go */
        fn(p + 7 * (size_t)b.bytes, y + 7 * (size_t)b.items, BLOCKS - 7);
        sha256_init(&s);
        sha256_add(&s, y, BLOCKS * (size_t)b.items * sizeof(*y));
        sha256_end(&s, d);
        sha256_hex(d, hex);
        if (strcmp(hex, sums[i].sum) != 0) {
            fail_msg("%s differs: %s", gguf_type_name(sums[i].type), hex);
        }
        free(whole);
    }
}

static void equals_the_package(void **state)
{
    (void)state;
    static const struct dequant *const tables[] = {
        DEQUANT_TABLES(DEQUANT_POINTER, base)};
    check_set(tables, countof(tables));
}

static void equals_the_package_on_v3(void **state)
{
    (void)state;
#if defined(__x86_64__)
    static const struct dequant *const tables[] = {
        DEQUANT_TABLES(DEQUANT_POINTER, v3)};
    if (isa_has(ISA_V3)) {
        check_set(tables, countof(tables));
        return;
    }
#endif
    skip();
}

/* What is readable is summed above; F32 is a copy. */
static void forgets_no_type(void **state)
{
    (void)state;
    size_t n = 0;
    for (uint32_t type = 0; type < 64; type++) {
        n += gguf_type_readable(type);
    }
    assert_int_equal(n, countof(sums) + 1);
    assert_false(gguf_type_readable(UINT32_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_package),
        cmocka_unit_test(equals_the_package_on_v3),
        cmocka_unit_test(forgets_no_type),
    };
    return cmocka_run_group_tests_name("dequant", tests, NULL, NULL);
}
