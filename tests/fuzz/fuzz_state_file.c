/* fuzz_state_file.c - the header of a saved state: whatever the bytes, it is
 * refused or it is sound; with a checksum made right, so that the checks after
 * it are reached; and what is taken encodes to the very same bytes. */
#include <string.h>

#include "base/hash.h"
#include "proto/state_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void take(const uint8_t *p, size_t n)
{
    struct state_file f;
    struct buf b;
    struct err e;
    uint64_t bytes = 0;
    if (state_file_get(p, n, &f, &e) != 0) {
        must(e.code == ERR_STATE || e.code == ERR_NOMEM);
        return;
    }
    must(state_file_peek(p, n, &bytes, &e) == 0 && bytes == n);
    must(f.from < f.to && state_blocks(&f) > 0 && f.n_arrays > 0);
    buf_init(&b, STATE_HEADER_MAX);
    state_file_put(&b, &f);
    must(b.n == n && memcmp(b.p, p, n) == 0);
    buf_fini(&b);
    state_file_fini(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    take(p, n);
    if (n < 16) {
        return 0;
    }
    uint8_t *q = malloc(n);
    must(q != NULL);
    memcpy(q, p, n);
    for (size_t i = 0; i < 8; i++) {
        q[8 + i] = i < 4 ? (uint8_t)(n >> (8 * i)) : 0; /* header bytes */
    }
    uint64_t sum = hash_bulk(q, n - 8);
    for (size_t i = 0; i < 8; i++) {
        q[n - 8 + i] = (uint8_t)(sum >> (8 * i));
    }
    take(q, n);
    free(q);
    return 0;
}
