#include "engine/backend.h"

#include <string.h>

#include "engine/cpu/kernels/kernel.h"
#include "engine/cpu/rows/row.h"

const struct backend *backend_find(const char *name)
{
    static const struct backend *const all[] = {
        &backend_cpu,
        &backend_interpreter,
    };
    for (size_t i = 0; i < countof(all); i++) {
        if (strcmp(all[i]->name, name) == 0) {
            return all[i];
        }
    }
    return NULL;
}

const char *backend_isa(size_t i)
{
    const struct kernels *k = kernels_each(i);
    return k != NULL ? kernels_name(k) : NULL;
}

const char *backend_pass(size_t i)
{
    return i == 0 ? ROW_STATES : row_passes[i - 1].name;
}
