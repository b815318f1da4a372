/* A package: Manifest.json, the specification and weight.bin; the first two
 * after their lengths of 4 bytes. Whatever reads is validated and dumped too,
 * and where it would run is predicted.
 * Items of a manifest are looked for below /, so that "dev/null" is there. */
#include <limits.h>
#include <string.h>

#include "mil/impl.h"
#include "predict_any.h"
#include "weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

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
    struct file_map map = map_weights(p + c.at, n - c.at);
    struct mil_program *prog = calloc(1, sizeof(*prog));
    must(prog != NULL);
    struct err e = {0};
    struct buf text = {0};
    buf_init(&text, MIB(16));
    if (spec_read(prog, spec, spec_bytes,
                  (struct weights){.find = find_weights, .ctx = &map},
                  &e) == 0) {
        (void)!mil_validate(prog, &e);
        mil_dump(prog, &text);
        predict_any(prog);
    }
    buf_fini(&text);
    mil_free(prog);
    free((void *)(uintptr_t)map.p);
    return 0;
}
