/* names.c - open addressing with linear probes, at most half full. */
#include <string.h>

#include "base/hash.h"
#include "mil/impl.h"

/* Half-full tables of honest names have runs of a few dozen at most; FNV can
 * be attacked, so a longer run is refused instead of walked. */
#define PROBES_MAX 512

void names_fini(struct names *t)
{
    free(t->slots);
    *t = (struct names){0};
}

/* The slot of name, or the free one where it would go; NULL after too many
 * probes. cap > 0. */
static struct names_entry *probe(const struct names *t, const char *name)
{
    size_t at = (size_t)hash_bytes(name, strlen(name));
    for (size_t i = 0; i < PROBES_MAX; i++, at++) {
        struct names_entry *s = &t->slots[at & (t->cap - 1)];
        if (s->name == NULL || strcmp(s->name, name) == 0) {
            return s;
        }
    }
    return NULL;
}

struct names_entry *names_find(const struct names *t, const char *name)
{
    struct names_entry *s = t->cap > 0 ? probe(t, name) : NULL;
    return s != NULL && s->name != NULL ? s : NULL;
}

static bool grow(struct names *t)
{
    struct names bigger = {.n = t->n, .cap = t->cap > 0 ? t->cap * 2 : 1024};
    bigger.slots = calloc(bigger.cap, sizeof(*bigger.slots));
    if (bigger.slots == NULL) {
        return false;
    }
    for (size_t i = 0; i < t->cap; i++) {
        if (t->slots[i].name == NULL) {
            continue;
        }
        struct names_entry *s = probe(&bigger, t->slots[i].name);
        if (s == NULL) {
            names_fini(&bigger);
            return false;
        }
        *s = t->slots[i];
    }
    names_fini(t);
    *t = bigger;
    return true;
}

bool names_add(struct names *t, const char *name, struct mil_value *v)
{
    if (t->n >= t->cap / 2 && !grow(t)) {
        return false;
    }
    struct names_entry *s = probe(t, name);
    if (s == NULL || (s->name != NULL && !s->hidden)) {
        return false;
    }
    t->n += s->name == NULL;
    *s = (struct names_entry){.name = name, .value = v};
    return true;
}
