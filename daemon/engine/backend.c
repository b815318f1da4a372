#include "engine/backend.h"

#include <string.h>

#ifdef ANED_COREML
#include "engine/coreml/backend_coreml.h"
#endif
#include "engine/cpu/backend_cpu.h"

const struct backend *backend_find(const char *name)
{
    static const struct backend *const all[] = {
        &backend_cpu,
        &backend_interpreter,
#ifdef ANED_COREML
        &backend_coreml,
#endif
    };
    for (size_t i = 0; i < countof(all); i++) {
        if (strcmp(all[i]->name, name) == 0) {
            return all[i];
        }
    }
    return NULL;
}
