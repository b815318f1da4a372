/* state_file.c - see state_file.h. A header is used only when its length fits
 * its counts and its checksum fits its bytes; every count is checked before it
 * is multiplied. */
#include "proto/state_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

#define MAGIC 0x31534e41u /* "ANS1" */
#define FIXED 280u        /* up to the tokens */

static_assert(STATE_HEADER_MAX >= FIXED + (uint64_t)MODEL_CONTEXT_MAX * 4 +
                                      STATE_ARRAYS_MAX * 8u +
                                      MODEL_CONTEXT_MAX / STATE_BLOCK * 8u + 8,
              "the largest header");

static uint64_t header_bytes(uint32_t from, uint32_t to, uint32_t arrays)
{
    return FIXED + (uint64_t)to * 4 + (uint64_t)arrays * 8 +
           (uint64_t)(to - from) / STATE_BLOCK * 8 + 8;
}

uint64_t state_header_bytes(const struct state_file *f)
{
    return header_bytes(f->from, f->to, f->n_arrays);
}

uint64_t state_file_bytes(const struct state_file *f)
{
    return state_header_bytes(f) + state_blocks(f) * f->block_bytes;
}

static void put_text(struct buf *b, const char *s, size_t size)
{
    char text[ARITH_BYTES_MAX] = {0};
    must(size <= sizeof(text) && strlen(s) <= size);
    memcpy(text, s, strlen(s));
    buf_put(b, text, size);
}

void state_file_put(struct buf *b, const struct state_file *f)
{
    size_t start = b->n;
    buf_u32(b, MAGIC);
    buf_u32(b, STATE_FORMAT);
    buf_u64(b, state_header_bytes(f));
    buf_u64(b, f->block_bytes);
    buf_u64(b, (uint64_t)f->created_ms);
    buf_u32(b, f->from);
    buf_u32(b, f->to);
    buf_u32(b, f->n_arrays);
    buf_u32(b, f->long_list);
    put_text(b, f->fingerprint, 64);
    put_text(b, f->backend, BACKEND_NAME_MAX);
    put_text(b, f->arith, ARITH_BYTES_MAX);
    buf_u64(b, 0);
    for (uint32_t i = 0; i < f->to; i++) {
        buf_u32(b, (uint32_t)f->tokens[i]);
    }
    for (uint32_t i = 0; i < f->n_arrays; i++) {
        buf_u32(b, f->arrays[i].layout);
        buf_u32(b, f->arrays[i].bytes);
    }
    for (uint32_t i = 0; i < state_blocks(f); i++) {
        buf_u64(b, f->sums[i]);
    }
    if (buf_ok(b)) {
        buf_u64(b, hash_bulk(b->p + start, b->n - start));
    }
}

static int bad(struct err *e, const char *what)
{
    return err_set(e, ERR_STATE, "%s", what);
}

int state_file_peek(const void *p, size_t n, uint64_t *ret, struct err *e)
{
    struct cur c = cur_of(p, n);
    uint32_t magic = cur_u32(&c);
    uint32_t format = cur_u32(&c);
    uint64_t bytes = cur_u64(&c);
    if (c.bad || magic != MAGIC) {
        return bad(e, "not a saved state");
    }
    if (format != STATE_FORMAT) {
        return err_set(e, ERR_STATE, "format %u, this aned knows %u", format,
                       STATE_FORMAT);
    }
    if (bytes < STATE_HEADER_LEAST || bytes > STATE_HEADER_MAX) {
        return bad(e, "the header's length");
    }
    *ret = bytes;
    return 0;
}

/* A text of `size` bytes with zeros after it; at least one character. */
static bool get_text(struct cur *c, size_t size, char *out)
{
    const char *p = cur_bytes(c, size);
    if (p == NULL) {
        return false;
    }
    size_t n = strnlen(p, size);
    for (size_t i = n; i < size; i++) {
        if (p[i] != 0) {
            return false;
        }
    }
    memcpy(out, p, n);
    out[n] = '\0';
    return n > 0;
}

static int get_fixed(struct cur *c, size_t n, struct state_file *f,
                     struct err *e)
{
    (void)cur_bytes(c, 16); /* peeked at */
    f->block_bytes = cur_u64(c);
    f->created_ms = (int64_t)cur_u64(c);
    f->from = cur_u32(c);
    f->to = cur_u32(c);
    f->n_arrays = cur_u32(c);
    uint32_t list = cur_u32(c);
    f->long_list = list == 1;
    char backend[BACKEND_NAME_MAX + 1];
    char arith[ARITH_BYTES_MAX + 1];
    if (!get_text(c, 64, f->fingerprint) ||
        !get_text(c, BACKEND_NAME_MAX, backend) ||
        strlen(backend) >= BACKEND_NAME_MAX ||
        !get_text(c, ARITH_BYTES_MAX, arith) ||
        strlen(arith) >= ARITH_BYTES_MAX || list > 1 || cur_u64(c) != 0) {
        return bad(e, "the names in the header");
    }
    memcpy(f->backend, backend, strlen(backend) + 1);
    memcpy(f->arith, arith, strlen(arith) + 1);
    if (f->from >= f->to || f->to > MODEL_CONTEXT_MAX ||
        f->from % STATE_BLOCK != 0 || f->to % STATE_BLOCK != 0) {
        return bad(e, "the positions in the header");
    }
    if (f->n_arrays == 0 || f->n_arrays > STATE_ARRAYS_MAX ||
        header_bytes(f->from, f->to, f->n_arrays) != n) {
        return bad(e, "the header's length does not fit its counts");
    }
    return 0;
}

static int get_lists(struct cur *c, struct state_file *f, struct err *e)
{
    uint64_t sum = 0;
    f->tokens = malloc((size_t)f->to * sizeof(*f->tokens));
    f->arrays = malloc((size_t)f->n_arrays * sizeof(*f->arrays));
    f->sums = malloc((size_t)state_blocks(f) * sizeof(*f->sums));
    if (f->tokens == NULL || f->arrays == NULL || f->sums == NULL) {
        return err_set(e, ERR_NOMEM, "a saved state of %u tokens", f->to);
    }
    for (uint32_t i = 0; i < f->to; i++) {
        f->tokens[i] = (int32_t)cur_u32(c);
    }
    for (uint32_t i = 0; i < f->n_arrays; i++) {
        f->arrays[i].layout = cur_u32(c);
        f->arrays[i].bytes = cur_u32(c);
        sum += f->arrays[i].bytes;
    }
    for (uint32_t i = 0; i < state_blocks(f); i++) {
        f->sums[i] = cur_u64(c);
    }
    if (sum == 0 || sum > STATE_BLOCK_MAX || sum != f->block_bytes) {
        return bad(e, "the size of a block");
    }
    return 0;
}

/* The checksum of a header of n bytes, its last eight. */
static bool sum_ok(const void *p, size_t n)
{
    struct cur end = cur_of((const char *)p + n - 8, 8);
    return hash_bulk(p, n - 8) == cur_u64(&end);
}

int state_file_get(const void *p, size_t n, struct state_file *ret,
                   struct err *e)
{
    struct state_file f = {0};
    struct cur c = cur_of(p, n);
    uint64_t bytes = 0;
    int rc = 0;
    CHECK(state_file_peek(p, n, &bytes, e));
    if (bytes != n) {
        rc = bad(e, "the header's length");
        goto out;
    }
    CHECK(get_fixed(&c, n, &f, e));
    if (!sum_ok(p, n)) {
        rc = bad(e, "the header's checksum");
        goto out;
    }
    CHECK(get_lists(&c, &f, e));
    *ret = f;
    f = (struct state_file){0}; /* given away */
out:
    state_file_fini(&f);
    return rc;
}

int state_file_read(int fd, void *p, size_t n, uint64_t at, struct err *e)
{
    char *to = p;
    while (n > 0) {
        ssize_t k = pread(fd, to, n, (off_t)at);
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k < 0) {
            return err_errno(e, errno, "reading a saved state");
        }
        if (k == 0) {
            return bad(e, "the file ends too early");
        }
        to += k;
        at += (uint64_t)k;
        n -= (size_t)k;
    }
    return 0;
}

static int read_header(int fd, uint64_t file_bytes, struct state_file *ret,
                       struct err *e)
{
    char least[STATE_HEADER_LEAST];
    uint64_t n = 0;
    RETERR(state_file_read(fd, least, sizeof(least), 0, e));
    RETERR(state_file_peek(least, sizeof(least), &n, e));
    if (n > file_bytes) {
        return bad(e, "the file ends in its header");
    }
    char *all = malloc(n);
    if (all == NULL) {
        return err_set(e, ERR_NOMEM, "a header");
    }
    int rc = 0;
    CHECK(state_file_read(fd, all, n, 0, e));
    CHECK(state_file_get(all, n, ret, e));
out:
    free(all);
    return rc;
}

int state_file_open(const char *path, struct state_file *ret, int *ret_fd,
                    struct err *e)
{
    struct state_file f = {0};
    struct stat st;
    int rc = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0) {
        rc = err_errno(e, errno, "opening a saved state");
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = bad(e, "not a regular file");
        goto out;
    }
    CHECK(read_header(fd, (uint64_t)st.st_size, &f, e));
    if (state_file_bytes(&f) != (uint64_t)st.st_size) {
        rc = err_set(e, ERR_STATE, "%llu bytes long, not %llu",
                     (unsigned long long)st.st_size,
                     (unsigned long long)state_file_bytes(&f));
        goto out;
    }
    *ret = f;
    *ret_fd = fd;
    return 0;
out:
    state_file_fini(&f);
    if (fd >= 0) {
        (void)close(fd);
    }
    return rc;
}

void state_file_fini(struct state_file *f)
{
    free(f->tokens);
    free(f->arrays);
    free(f->sums);
    *f = (struct state_file){0};
}
