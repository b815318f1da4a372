#include "proto/tier.h"

#include <stdio.h>

/* Sorted in as it comes; false: it is there already. */
static bool add(struct tiers *t, uint32_t context)
{
    uint32_t at = t->n;
    while (at > 0 && t->context[at - 1] <= context) {
        if (t->context[at - 1] == context) {
            return false;
        }
        at--;
    }
    for (uint32_t i = t->n; i > at; i--) {
        t->context[i] = t->context[i - 1];
    }
    t->context[at] = context;
    t->n++;
    return true;
}

int tiers_parse(const char *text, struct tiers *ret, struct err *e)
{
    struct tiers t = {0};
    for (const char *p = text;; p++) {
        uint32_t n = 0;
        const char *first = p;
        for (; *p >= '0' && *p <= '9' && n <= MODEL_CONTEXT_MAX; p++) {
            n = n * 10 + (uint32_t)(*p - '0');
        }
        if (p == first || (*p != ',' && *p != '\0') || n == 0 ||
            n > MODEL_CONTEXT_MAX || t.n == TIERS_MAX || !add(&t, n)) {
            return err_set(e, ERR_INVALID,
                           "context '%.64s': a number from 1 to %u, or at most "
                           "%u different ones with ',' between them",
                           text, MODEL_CONTEXT_MAX, TIERS_MAX);
        }
        if (*p == '\0') {
            *ret = t;
            return 0;
        }
    }
}

void tier_suffix(uint32_t context, char out[TIER_SUFFIX_MAX])
{
    bool k = context % 1024 == 0;
    (void)snprintf(out, TIER_SUFFIX_MAX, "-%u%s", k ? context / 1024 : context,
                   k ? "k" : "");
}
