/* names.c - which value a name is, in a graph and the graphs around it.
 *
 * Open addressing with linear probes, at most half full. Names of honest files
 * have short runs; a hash that is attacked gives long ones, which are refused
 * and not walked. Memory is the model's arena: a table that grows leaves its
 * older half as large behind.
 */
#include <string.h>

#include "base/hash.h"
#include "source/onnx/onnx.h"

#define PROBES_MAX 512u

struct onnx_names {
    size_t n, cap;
    struct onnx_value **slots;
};

/* The slot of name, or the free one where it would go; NULL: too many probes.
 */
static struct onnx_value **probe(const struct onnx_names *t, const char *name)
{
    size_t at = (size_t)hash_bytes(name, strlen(name));
    for (size_t i = 0; i < PROBES_MAX; i++, at++) {
        struct onnx_value **s = &t->slots[at & (t->cap - 1)];
        if (*s == NULL || strcmp((*s)->name, name) == 0) {
            return s;
        }
    }
    return NULL;
}

static bool grow(struct onnx *m, struct onnx_names *t)
{
    struct onnx_names bigger = {.n = t->n, .cap = t->cap > 0 ? t->cap * 2 : 64};
    bigger.slots =
        arena_array(&m->arena, bigger.cap, sizeof(struct onnx_value *));
    if (bigger.slots == NULL) {
        return false;
    }
    for (size_t i = 0; i < t->cap; i++) {
        if (t->slots[i] != NULL) {
            struct onnx_value **s = probe(&bigger, t->slots[i]->name);
            if (s == NULL) {
                return false;
            }
            *s = t->slots[i];
        }
    }
    *t = bigger;
    return true;
}

struct onnx_value *onnx_names_find(const struct onnx_graph *g, const char *name)
{
    for (; g != NULL; g = g->outer) {
        const struct onnx_names *t = g->names;
        struct onnx_value **s =
            t != NULL && t->cap > 0 ? probe(t, name) : NULL;
        if (s != NULL && *s != NULL) {
            return *s;
        }
    }
    return NULL;
}

int onnx_names_add(struct onnx *m, struct onnx_graph *g, struct onnx_value *v,
                   struct err *e)
{
    if (g->names == NULL) {
        g->names = arena_alloc(&m->arena, sizeof(*g->names));
    }
    if (g->names == NULL ||
        (g->names->n >= g->names->cap / 2 && !grow(m, g->names))) {
        return err_set(e, ERR_TOO_BIG, "the graph needs too much memory");
    }
    if (onnx_names_find(g, v->name) != NULL) {
        return err_set(e, ERR_ONNX, "value '%s' is made twice", v->name);
    }
    struct onnx_value **s = probe(g->names, v->name);
    if (s == NULL) {
        return err_set(e, ERR_TOO_BIG, "the names of values collide");
    }
    *s = v;
    g->names->n++;
    return 0;
}
