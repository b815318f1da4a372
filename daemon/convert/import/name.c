/* name.c - the name of an import; also asked by serve, which reads jobs. */
#include <string.h>

#include "base/file.h"
#include "convert/import/manifest.h"

static size_t without(const char *name, size_t n, const char *end)
{
    size_t k = strlen(end);
    return n > k && memcmp(name + n - k, end, k) == 0 ? n - k : n;
}

void import_name(const char *path, char out[MODEL_NAME_MAX + 1])
{
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    size_t n = without(base, strlen(base), ".json");
    n = without(base, n, "runtime_meta");
    n = without(base, n, "_");
    file_name_from(base, n, out, MODEL_NAME_MAX + 1);
}
