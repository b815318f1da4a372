#include "client/model_call.h"

int model_call(struct client *c, const char *method, const char *name,
               const char *suffix, struct json **ret)
{
    return ask_tell_about(c, method, "/aned/v1/models/", name, suffix, ret);
}
