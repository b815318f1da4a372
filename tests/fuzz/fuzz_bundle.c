/* fuzz_bundle.c - any bytes as bundle.json of a folder without other files. */
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "model/bundle.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static char dir[] = "/tmp/aned-fuzz-bundle-XXXXXX";

static void clean(void)
{
    (void)!file_rmtree(dir, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static bool made;
    static char path[sizeof(dir) + 16];
    struct err e = {0};
    struct bundle *b = NULL;
    if (!made) {
        must(mkdtemp(dir) != NULL && atexit(clean) == 0);
        must(file_join(path, sizeof(path), dir, "bundle.json"));
        made = true;
    }
    FILE *f = fopen(path, "wbe"); /* not published: nobody else reads it */
    must(f != NULL && fwrite(p, 1, n, f) == n && fclose(f) == 0);
    if (bundle_open(dir, &b, &e) == 0) {
        bundle_close(b);
    }
    return 0;
}
