/* hash.h - SHA-256 (FIPS 180-4) and a fast 64-bit hash for tables. */
#pragma once

#if defined(__APPLE__)
#include <CommonCrypto/CommonDigest.h>
#endif

#include "base/err.h"

struct sha256 {
    uint64_t bytes; /* so far */
#if defined(__APPLE__)
    CC_SHA256_CTX cc;
#else
    uint32_t h[8];
    uint8_t block[64];
    size_t fill;
#endif
};

#define SHA256_BYTES  32
#define SHA256_HEX    65 /* 64 digits and a NUL */
#define SHA256_BASE64 45 /* 43 digits, a '=' and a NUL */

void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *p, size_t n);
void sha256_end(struct sha256 *s, uint8_t out[SHA256_BYTES]);
/* As base64 (RFC 4648), which Content-Security-Policy takes. */
void sha256_base64(const uint8_t d[SHA256_BYTES], char out[SHA256_BASE64]);
void sha256_hex(const uint8_t d[SHA256_BYTES], char out[SHA256_HEX]);
/* Digest and size of a regular file, read in blocks. */
CHECKED int sha256_file(const char *path, char out[SHA256_HEX],
                        uint64_t *ret_bytes, struct err *e);

/* FNV-1a; not for adversarial keys. */
uint64_t hash_bytes(const void *p, size_t n);
/* A checksum at the speed of memory. It detects any single damaged word. It
 * protects against accidents, not against an attacker. */
uint64_t hash_bulk(const void *p, size_t n);
