/* SHA-256 as FIPS 180-4 describes it; the plain form hashes about 400 MB/s.
 * x86's SHA extensions are used where the processor has them; on macOS the
 * system's CommonCrypto, which uses those of Apple's. */
#include "base/hash.h"

#include "base/base64.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/isa.h"

#if defined(__APPLE__)

void sha256_init(struct sha256 *s)
{
    *s = (struct sha256){.bytes = 0};
    (void)CC_SHA256_Init(&s->cc); /* these three return 1, always */
}

void sha256_add(struct sha256 *s, const void *data, size_t n)
{
    const uint8_t *p = data;
    s->bytes += n;
    while (n > 0) {
        CC_LONG piece = n < UINT32_MAX ? (CC_LONG)n : UINT32_MAX;
        (void)CC_SHA256_Update(&s->cc, p, piece);
        p += piece;
        n -= piece;
    }
}

void sha256_end(struct sha256 *s, uint8_t out[SHA256_BYTES])
{
    (void)CC_SHA256_Final(out, &s->cc);
}

#else

static const uint32_t k256[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotr(uint32_t x, unsigned n)
{
    return (x >> n) | (x << (32 - n));
}

static void blocks_plain(uint32_t h[8], const uint8_t *p, size_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, p += 64) {
        uint32_t w[64];
        for (size_t i = 0; i < 16; i++) {
            w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
                   (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
        }
        for (size_t i = 16; i < 64; i++) {
            uint32_t a = w[i - 15];
            uint32_t b = w[i - 2];
            w[i] = w[i - 16] + w[i - 7] +
                   (rotr(a, 7) ^ rotr(a, 18) ^ (a >> 3)) +
                   (rotr(b, 17) ^ rotr(b, 19) ^ (b >> 10));
        }
        uint32_t v[8];
        memcpy(v, h, sizeof(v));
        for (size_t i = 0; i < 64; i++) {
            uint32_t s1 = rotr(v[4], 6) ^ rotr(v[4], 11) ^ rotr(v[4], 25);
            uint32_t ch = (v[4] & v[5]) ^ (~v[4] & v[6]);
            uint32_t t1 = v[7] + s1 + ch + k256[i] + w[i];
            uint32_t s0 = rotr(v[0], 2) ^ rotr(v[0], 13) ^ rotr(v[0], 22);
            uint32_t maj = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
            memmove(v + 1, v, 7 * sizeof(v[0]));
            v[4] += t1;
            v[0] = t1 + s0 + maj;
        }
        for (size_t i = 0; i < 8; i++) {
            h[i] += v[i];
        }
    }
}

#if defined(__x86_64__)
#include <immintrin.h>

/* Two rounds per sha256rnds2; the state is kept as ABEF / CDGH. */
__attribute__((target("sha,sse4.1"))) static void
blocks_sha(uint32_t h[8], const uint8_t *p, size_t n_blocks)
{
    const __m128i swap =
        _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
    __m128i t = _mm_loadu_si128((const __m128i *)(const void *)h);
    __m128i s1 = _mm_loadu_si128((const __m128i *)(const void *)(h + 4));
    t = _mm_shuffle_epi32(t, 0xb1);
    s1 = _mm_shuffle_epi32(s1, 0x1b);
    __m128i s0 = _mm_alignr_epi8(t, s1, 8);
    s1 = _mm_blend_epi16(s1, t, 0xf0);
    for (; n_blocks > 0; n_blocks--, p += 64) {
        __m128i keep0 = s0;
        __m128i keep1 = s1;
        __m128i w[4];
        for (size_t i = 0; i < 4; i++) {
            w[i] = _mm_shuffle_epi8(
                _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i)),
                swap);
        }
        for (size_t r = 0; r < 16; r++) {
            __m128i cur = w[r & 3];
            __m128i m = _mm_add_epi32(
                cur,
                _mm_loadu_si128((const __m128i *)(const void *)(k256 + 4 * r)));
            s1 = _mm_sha256rnds2_epu32(s1, s0, m);
            s0 = _mm_sha256rnds2_epu32(s0, s1, _mm_shuffle_epi32(m, 0x0e));
            if (r < 12) { /* schedule the words of round r + 4 */
                __m128i x = _mm_sha256msg1_epu32(cur, w[(r + 1) & 3]);
                x = _mm_add_epi32(
                    x, _mm_alignr_epi8(w[(r + 3) & 3], w[(r + 2) & 3], 4));
                w[r & 3] = _mm_sha256msg2_epu32(x, w[(r + 3) & 3]);
            }
        }
        s0 = _mm_add_epi32(s0, keep0);
        s1 = _mm_add_epi32(s1, keep1);
    }
    t = _mm_shuffle_epi32(s0, 0x1b);
    s1 = _mm_shuffle_epi32(s1, 0xb1);
    s0 = _mm_blend_epi16(t, s1, 0xf0);
    s1 = _mm_alignr_epi8(s1, t, 8);
    _mm_storeu_si128((__m128i *)(void *)h, s0);
    _mm_storeu_si128((__m128i *)(void *)(h + 4), s1);
}
#endif

static void blocks(uint32_t h[8], const uint8_t *p, size_t n_blocks)
{
#if defined(__x86_64__)
    if (isa_has(ISA_SHA)) {
        blocks_sha(h, p, n_blocks);
        return;
    }
#endif
    blocks_plain(h, p, n_blocks);
}

void sha256_init(struct sha256 *s)
{
    *s = (struct sha256){
        .h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
              0x9b05688c, 0x1f83d9ab, 0x5be0cd19}
    };
}

void sha256_add(struct sha256 *s, const void *data, size_t n)
{
    const uint8_t *p = data;
    s->bytes += n;
    if (s->fill > 0) {
        size_t take = 64 - s->fill < n ? 64 - s->fill : n;
        memcpy(s->block + s->fill, p, take);
        s->fill += take;
        p += take;
        n -= take;
        if (s->fill < 64) {
            return;
        }
        blocks(s->h, s->block, 1);
        s->fill = 0;
    }
    blocks(s->h, p, n / 64);
    p += n / 64 * 64;
    n %= 64;
    if (n > 0) {
        memcpy(s->block, p, n);
        s->fill = n;
    }
}

void sha256_end(struct sha256 *s, uint8_t out[SHA256_BYTES])
{
    uint64_t bits = s->bytes * 8;
    uint8_t pad[72] = {0x80};
    size_t n = (s->fill < 56 ? 56 : 120) - s->fill;
    for (size_t i = 0; i < 8; i++) {
        pad[n + i] = (uint8_t)(bits >> (56 - 8 * i));
    }
    sha256_add(s, pad, n + 8);
    for (size_t i = 0; i < 32; i++) {
        out[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
    }
}

#endif

void sha256_hex(const uint8_t d[SHA256_BYTES], char out[SHA256_HEX])
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        out[2 * i] = hex[d[i] >> 4];
        out[2 * i + 1] = hex[d[i] & 15];
    }
    out[2 * SHA256_BYTES] = '\0';
}

void sha256_base64(const uint8_t d[SHA256_BYTES], char out[SHA256_BASE64])
{
    base64_encode(d, SHA256_BYTES, out);
    out[SHA256_BASE64 - 1] = '\0';
}

int sha256_file(const char *path, char out[SHA256_HEX], uint64_t *ret_bytes,
                struct err *e)
{
    enum { CHUNK = 1 << 18 };
    int rc = 0;
    uint8_t *chunk = NULL;
    uint8_t d[SHA256_BYTES];
    struct sha256 s;
    struct stat st;
    sha256_init(&s);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0) {
        rc = err_errno(e, errno, path);
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = err_set(e, ERR_INVALID, "%s: not a regular file", path);
        goto out;
    }
    chunk = malloc(CHUNK);
    must(chunk != NULL);
    for (;;) {
        ssize_t n = read(fd, chunk, CHUNK);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            rc = err_errno(e, errno, path);
            goto out;
        }
        if (n == 0) {
            break;
        }
        sha256_add(&s, chunk, (size_t)n);
    }
    if (ret_bytes != NULL) {
        *ret_bytes = s.bytes;
    }
    sha256_end(&s, d);
    sha256_hex(d, out);
out:
    free(chunk);
    if (fd >= 0) {
        (void)close(fd);
    }
    return rc;
}

uint64_t hash_bytes(const void *p, size_t n)
{
    const uint8_t *b = p;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ b[i]) * 0x100000001b3u;
    }
    return h;
}

static uint64_t word_le(const uint8_t *b)
{
    uint64_t w = 0;
    for (unsigned i = 0; i < 8; i++) {
        w |= (uint64_t)b[i] << (8 * i); /* one load where that is the order */
    }
    return w;
}

/* For a given other argument either one determines the result and is
 * determined by it, so one changed word always changes the sum. */
static uint64_t bulk_mix(uint64_t h, uint64_t w)
{
    h = (h ^ w) * 0x9e3779b97f4a7c15u;
    return h << 29 | h >> 35;
}

uint64_t hash_bulk(const void *p, size_t n)
{
    const uint8_t *b = p;
    uint64_t lane[4] = {1, 2, 3, 4}; /* four chains hide the multiply */
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        for (size_t k = 0; k < 4; k++) {
            lane[k] = bulk_mix(lane[k], word_le(b + i + 8 * k));
        }
    }
    uint64_t h = n;
    for (; i < n; i++) {
        h = bulk_mix(h, b[i]);
    }
    for (size_t k = 0; k < 4; k++) {
        h = bulk_mix(h, lane[k]);
    }
    return h ^ h >> 32;
}
