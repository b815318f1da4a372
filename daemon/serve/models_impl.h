/* models_impl.h - shared by models.c and model_load.c only. */
#pragma once

#include "serve/models.h"

struct models {
    struct server *srv;
    struct list all;     /* by name */
    struct list leaving; /* deleted; their engines are still there */
    size_t n, n_leaving;
    bool stopping;
    void (*closed)(void *ctx);
    void *ctx;
};

struct model *model_of(struct list *l);
char *model_strdup(const char *s); /* NULL stays NULL */
void model_reason(struct model *m, const char *reason);
void model_free(struct model *m);
/* Write the record's row; failure is logged. */
void model_save(struct model *m);
