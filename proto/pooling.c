/* pooling.c - see pooling.h. */
#include "proto/pooling.h"

#include <string.h>

static const char *const names[POOLINGS] = {
    [POOL_NONE] = "none",
    [POOL_MEAN] = "mean",
    [POOL_CLS] = "cls",
    [POOL_LAST] = "last",
};

const char *pooling_name(enum pooling k)
{
    must(k < POOLINGS);
    return names[k];
}

enum pooling pooling_parse(const char *name)
{
    for (unsigned k = POOL_MEAN; name != NULL && k < POOLINGS; k++) {
        if (strcmp(names[k], name) == 0) {
            return (enum pooling)k;
        }
    }
    return POOL_NONE;
}
