#include "client/model_call.h"

int model_call(struct client *c, const char *method, const char *name,
               const char *suffix, struct json **ret)
{
    struct err e = {0};
    char path[512];
    if (ask_path(path, sizeof(path), "/aned/v1/models/", name, suffix, &e) <
            0 ||
        ask(c, method, path, NULL, ret, &e) < 0) {
        return ask_fail(c, &e);
    }
    if (c->json) {
        (void)ask_print(*ret);
    }
    return EXIT_SUCCESS;
}
