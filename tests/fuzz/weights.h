/* weights.h - bytes of a fuzzer's input as the one weight file of a package. */
#pragma once

#include <string.h>

#include "mil/impl.h"

static int find_weights(void *ctx, const char *rel, const struct file_map **ret,
                        struct err *e)
{
    const struct file_map *m = ctx;
    int rc = strcmp(rel, "weights/weight.bin") == 0
                 ? blob_check_header(m, e)
                 : err_set(e, ERR_PKG_MISSING, "%s", rel);
    if (rc == 0) {
        *ret = m;
    }
    return rc;
}

/* A page-aligned copy, as a mapped file is; free() its p. */
static struct file_map map_weights(const void *p, size_t n)
{
    uint8_t *copy = aligned_alloc(4096, (n + 4096) / 4096 * 4096);
    must(copy != NULL);
    memcpy(copy, p, n);
    return (struct file_map){.p = copy, .n = n};
}
