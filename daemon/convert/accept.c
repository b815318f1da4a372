#include "convert/accept.h"

#include <string.h>

/* Gates whose failure leaves a bundle that can run. The others end the
 * conversion (structure, range) or never reject (residency). */
static const char *const may_fail[] = {"quality", "exactness"};

int accept_gate(const char *name, struct err *e)
{
    static const char *const others[] = {"structure", "range", "residency"};
    for (size_t i = 0; i < countof(may_fail); i++) {
        if (strcmp(name, may_fail[i]) == 0) {
            return 0;
        }
    }
    for (size_t i = 0; i < countof(others); i++) {
        if (strcmp(name, others[i]) == 0) {
            return err_set(e, ERR_INVALID,
                           "accept: %s: %s; quality and exactness can be "
                           "accepted",
                           name,
                           i == 2 ? "this gate never rejects"
                                  : "what fails this gate cannot run");
        }
    }
    return err_set(e, ERR_INVALID,
                   "accept: there is no gate '%.64s'; quality and exactness "
                   "can be accepted",
                   name);
}

/* The next name of a list with commas between; returns what follows it. */
static const char *next_name(const char *at, char name[64])
{
    size_t n = strcspn(at, ",");
    (void)snprintf(name, 64, "%.*s", (int)(n < 64 ? n : 63), at);
    return at + n + (at[n] == ',' ? 1 : 0);
}

int accept_check(const char *list, struct err *e)
{
    char name[64];
    while (*list != '\0') {
        list = next_name(list, name);
        RETERR(accept_gate(name, e));
    }
    return 0;
}

bool accept_has(const char *list, const char *gate)
{
    char name[64];
    while (list != NULL && *list != '\0') {
        list = next_name(list, name);
        if (strcmp(name, gate) == 0) {
            return true;
        }
    }
    return false;
}
