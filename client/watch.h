/* watch.h - begins something about a model and follows the model's events until
 * it is over: for verify and probe. */
#pragma once

#include "client/client.h"
#include "proto/json.h"

struct watch {
    const char *verb;  /* POST /aned/v1/models/NAME + this begins it */
    const char *doing; /* the word before the bar */
    bool (*over)(const struct json *model);
    double (*progress)(const struct json *model); /* 0..1 */
};

/* *ret: the model as it is then (json_free); also on failure, or NULL. Errors:
 * as ask(), CANCELLED after Ctrl-C, INTERRUPTED. */
CHECKED int watch_model(struct client *c, const char *name,
                        const struct watch *w, struct json **ret,
                        struct err *e);
