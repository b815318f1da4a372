/* A package: Manifest.json, the specification and weight.bin; the first two
 * behind their lengths of 4 bytes. Whatever reads is validated and dumped too.
 * Items of a manifest are looked for below /, so that "dev/null" is there. */
#include <limits.h>
#include <string.h>

#include "mil/impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static int find(void *ctx, const char *rel, const struct file_map **ret,
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

/* A path that comes out stays below the folder it was given. */
static void check_manifest(const void *text, size_t n)
{
    char path[PATH_MAX];
    struct err e = {0};
    if (manifest_model(text, n, "/", path, sizeof(path), &e) == 0) {
        must(path[0] == '/' && strstr(path, "/../") == NULL);
        size_t end = strlen(path);
        must(end >= 3 && strcmp(path + end - 3, "/..") != 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct cur c = cur_of(p, n);
    size_t manifest_bytes = cur_u32(&c);
    const void *manifest = cur_bytes(&c, manifest_bytes);
    if (!c.bad) {
        check_manifest(manifest, manifest_bytes);
    }
    size_t spec_bytes = cur_u32(&c);
    const void *spec = cur_bytes(&c, spec_bytes);
    if (c.bad) {
        return 0;
    }
    /* A page-aligned copy, as a mapped file is. */
    size_t rest = n - c.at;
    uint8_t *weights = aligned_alloc(4096, (rest + 4096) / 4096 * 4096);
    struct mil_program *prog = calloc(1, sizeof(*prog));
    must(weights != NULL && prog != NULL);
    memcpy(weights, p + c.at, rest);
    struct file_map map = {.p = weights, .n = rest};
    struct err e = {0};
    struct buf text = {0};
    buf_init(&text, MIB(16));
    if (spec_read(prog, spec, spec_bytes,
                  (struct weights){.find = find, .ctx = &map}, &e) == 0) {
        (void)!mil_validate(prog, &e);
        mil_dump(prog, &text);
    }
    buf_fini(&text);
    mil_free(prog);
    free(weights);
    return 0;
}
