/* state_file.h - the header of a file with saved state: the model, the timeline
 * and the positions that it holds, and the checksums of its blocks.
 *
 * The file is a header and then (to - from) / STATE_BLOCK blocks of block_bytes
 * each. A block is STATE_BLOCK positions of all layers. Their order is private
 * to the backend; `layout` of each array identifies it. The header has all that
 * the bytes of a position depend on: model, backend, arithmetic, the rotation's
 * list of factors, and the tokens [0, to), from the first one. So the file
 * serves every timeline that begins with some of these tokens.
 *
 * Little-endian:
 *   u32 magic 'ANS1'   u32 format   u64 header bytes   u64 block_bytes
 *   u64 created (Unix ms)   u32 from   u32 to   u32 n_arrays   u32 long_list
 *   char fingerprint[64]   char backend[32]   char arith[128], zeros after
 *   to * i32 tokens   n_arrays * {u32 layout, u32 bytes}
 *   blocks * u64 hash_bulk of the block   u64 hash_bulk of all before
 *
 * Pure, bytes in, bytes out, but for the two that read a file.
 */
#pragma once

#include "base/buf.h"
#include "proto/limits.h"

#define STATE_FORMAT       2u
#define STATE_HEADER_LEAST 288u /* no tokens, arrays or blocks */
#define STATE_HEADER_MAX   MIB(12)

/* What one array of a backend's state takes for STATE_BLOCK positions. */
struct state_array {
    uint32_t layout; /* the backend's number for the order of its elements */
    uint32_t bytes;
};

struct state_file {
    char fingerprint[65];
    char backend[BACKEND_NAME_MAX];
    char arith[ARITH_BYTES_MAX];
    uint32_t from, to;
    int64_t created_ms;
    uint64_t block_bytes; /* of all arrays */
    uint32_t n_arrays;
    bool long_list; /* of a sequence longer than bundle_short_max */
    /* owned when decoded */
    int32_t *tokens;            /* to */
    struct state_array *arrays; /* n_arrays */
    uint64_t *sums;             /* state_blocks() */
};

static inline uint32_t state_blocks(const struct state_file *f)
{
    return (f->to - f->from) / STATE_BLOCK;
}

/* Of the header, and of the whole file. */
uint64_t state_header_bytes(const struct state_file *f);
uint64_t state_file_bytes(const struct state_file *f);

/* Append the header. */
void state_file_put(struct buf *b, const struct state_file *f);
/* Read the header's size from its first STATE_HEADER_LEAST bytes. Errors:
 * STATE. */
CHECKED int state_file_peek(const void *p, size_t n, uint64_t *ret,
                            struct err *e);
/* Decode and check a whole header. Errors: STATE, NOMEM. */
CHECKED int state_file_get(const void *p, size_t n, struct state_file *ret,
                           struct err *e);
/* Open a file to read its blocks: a regular one, no link, with a sound header
 * and as long as that says. *ret_fd is the caller's to close. Errors: STATE,
 * NOMEM, and those of errno. */
CHECKED int state_file_open(const char *path, struct state_file *ret,
                            int *ret_fd, struct err *e);
/* n bytes of it from byte `at` on. Errors: STATE (it ends before), and those
 * of errno. */
CHECKED int state_file_read(int fd, void *p, size_t n, uint64_t at,
                            struct err *e);
void state_file_fini(struct state_file *f); /* zeroed is fine */
