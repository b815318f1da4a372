#include "engine/backend.h"

#include <string.h>

#include "engine/cpu/backend_cpu.h"

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
