/* aliases.c - see aliases.h. Lines are few and requests rare beside tokens:
 * they are tried one after another. */
#include "serve/aliases.h"

#include <fnmatch.h>
#include <string.h>

static int copy(char to[MODEL_NAME_MAX + 1], const char *s, const char *what,
                struct err *e)
{
    size_t n = strlen(s);
    if (n == 0 || n > MODEL_NAME_MAX) {
        return err_set(e, ERR_CONFIG, "an alias's %s has 1 to %u bytes", what,
                       MODEL_NAME_MAX);
    }
    memcpy(to, s, n + 1);
    return 0;
}

int aliases_add(struct aliases *a, const char *pattern, const char *model,
                struct err *e)
{
    struct alias x;
    memset(&x, 0, sizeof(x));
    RETERR(copy(x.pattern, pattern, "name", e));
    RETERR(copy(x.model, model, "model", e));
    for (size_t i = 0; i < a->n; i++) {
        if (strcmp(a->row[i].pattern, pattern) == 0) {
            return err_set(e, ERR_CONFIG, "'%.128s' is given twice", pattern);
        }
    }
    if (a->n == ALIASES_MAX) {
        return err_set(e, ERR_CONFIG, "more than %u aliases", ALIASES_MAX);
    }
    a->row[a->n++] = x;
    return 0;
}

const char *aliases_find(const struct aliases *a, const char *name)
{
    if (strlen(name) > MODEL_NAME_MAX) {
        return NULL; /* fnmatch takes its time with long ones */
    }
    for (size_t i = 0; i < a->n; i++) {
        if (fnmatch(a->row[i].pattern, name, FNM_NOESCAPE) == 0) {
            return a->row[i].model;
        }
    }
    return NULL;
}

bool alias_is_name(const struct alias *a)
{
    return strpbrk(a->pattern, "*?[") == NULL;
}

bool aliases_same(const struct aliases *a, const struct aliases *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++) {
        same = strcmp(a->row[i].pattern, b->row[i].pattern) == 0 &&
               strcmp(a->row[i].model, b->row[i].model) == 0;
    }
    return same;
}
