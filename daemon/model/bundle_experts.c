/* bundle_experts.c - packages of experts that the engine runs itself.
 *
 *   "groups": [{"path", "layer", "weight_bytes",
 *               "experts": [{"expert", "t", "function"}, ...]}, ...]
 *
 * The list is there where a layer is sparse (layer.h), and then says for each
 * expert of each such layer which function of which package it is: one for any
 * number of rows (t 0), or one for each T that the shards have. An expert without
 * a function would be found by the first token that chooses it, so all are looked
 * for here.
 */
#include <string.h>

#include "model/bundle_impl.h"

/* --- read, write --- */

static int read_expert(struct bundle *b, const struct json *j,
                       struct bundle_expert *x, struct err *e)
{
    int64_t expert = 0;
    int64_t t = 0;
    RETERR(json_want_int(j, "expert", true, 0, MODEL_EXPERTS_MAX - 1, &expert,
                         e));
    RETERR(json_want_int(j, "t", true, 0, ENGINE_CHUNK_MAX, &t, e));
    x->expert = (uint32_t)expert;
    x->t = (uint32_t)t;
    return bundle_want_str(b, j, "function", BUNDLE_TEXT_MAX, &x->function, e);
}

/* Member `key` as an array of at most `most` things of `size` bytes. */
static int want_list(struct bundle *b, const struct json *j, const char *key,
                     size_t most, size_t size, void **ret, size_t *ret_n,
                     struct err *e)
{
    const struct json *a = json_get(j, key);
    if (a == NULL || json_type(a) != JSON_ARRAY || json_count(a) > most) {
        return err_set(e, ERR_INVALID, "%s is not an array of at most %zu", key,
                       most);
    }
    *ret_n = json_count(a);
    *ret = arena_array(&b->arena, *ret_n > 0 ? *ret_n : 1, size);
    return *ret != NULL ? 0 : err_set(e, ERR_NOMEM, "%s", key);
}

static int read_group(struct bundle *b, const struct json *j,
                      struct bundle_group *g, struct err *e)
{
    int64_t layer = 0;
    int64_t bytes = 0;
    void *items = NULL;
    size_t i = 0;
    RETERR(bundle_want_str(b, j, "path", BUNDLE_PATH_MAX, &g->path, e));
    RETERR(json_want_int(j, "layer", true, 0, MODEL_LAYERS_MAX, &layer, e));
    RETERR(json_want_int(j, "weight_bytes", true, 0, INT64_MAX / 4, &bytes, e));
    RETERR(want_list(b, j, "experts", MIL_FUNCTIONS_MAX, sizeof(*g->experts),
                     &items, &g->n_experts, e));
    g->layer = (uint32_t)layer;
    g->weight_bytes = (uint64_t)bytes;
    g->experts = items;
    for (const struct json *c = json_first(json_get(j, "experts")); c != NULL;
         c = json_next(c)) {
        int rc = read_expert(b, c, &g->experts[i], e);
        if (rc < 0) {
            return err_prefix(e, rc, "experts[%zu]", i);
        }
        i++;
    }
    return 0;
}

int bundle_read_groups(struct bundle *b, const struct json *j, struct err *e)
{
    void *items = NULL;
    size_t i = 0;
    if (json_get(j, "groups") == NULL) { /* as in all bundles of dense form */
        return 0;
    }
    RETERR(want_list(b, j, "groups", EXPERT_PACKAGES_MAX, sizeof(*b->groups),
                     &items, &b->n_groups, e));
    b->groups = items;
    for (const struct json *c = json_first(json_get(j, "groups")); c != NULL;
         c = json_next(c)) {
        int rc = read_group(b, c, &b->groups[i], e);
        if (rc < 0) {
            return err_prefix(e, rc, "groups[%zu]", i);
        }
        i++;
    }
    return 0;
}

void bundle_put_groups(struct json *j, const struct bundle *b)
{
    struct json *a = b->n_groups > 0 ? json_add_array(j, "groups") : NULL;
    for (size_t i = 0; i < b->n_groups; i++) {
        const struct bundle_group *g = &b->groups[i];
        struct json *o = json_add_object(a, NULL);
        json_add_str(o, "path", g->path);
        json_add_int(o, "layer", g->layer);
        json_add_int(o, "weight_bytes", (int64_t)g->weight_bytes);
        struct json *list = json_add_array(o, "experts");
        for (size_t k = 0; k < g->n_experts; k++) {
            struct json *x = json_add_object(list, NULL);
            json_add_int(x, "expert", g->experts[k].expert);
            json_add_int(x, "t", g->experts[k].t);
            json_add_str(x, "function", g->experts[k].function);
        }
    }
}

/* --- check --- */

/* What was found of the experts, whose functions are all in one group. */
struct found {
    const struct bundle *b;
    size_t n_t;
    const uint32_t *t; /* NULL: any number of rows */
    struct seen {
        uint64_t t;    /* a bit for each of them */
        size_t group;  /* that has it */
    } * of;            /* (layer, MODEL_EXPERTS_MAX) */
};

static struct seen *found_of(const struct found *f, uint32_t l, uint32_t expert)
{
    return &f->of[(size_t)l * MODEL_EXPERTS_MAX + expert];
}

static int find_expert(struct found *f, const struct bundle_group *g,
                       const struct bundle_expert *x, struct err *e)
{
    uint32_t n = f->b->layers[g->layer].n_experts;
    size_t i = 0;
    if (x->function == NULL || x->function[0] == '\0' ||
        strlen(x->function) >= BUNDLE_TEXT_MAX) {
        return err_set(e, ERR_BUNDLE, "%s: a function has no name", g->path);
    }
    if (x->expert >= n) {
        return err_set(e, ERR_BUNDLE, "%s: expert %u of layer %u, which has %u",
                       g->path, x->expert, g->layer, n);
    }
    while (i < f->n_t && (f->t != NULL ? f->t[i] : 0) != x->t) {
        i++;
    }
    if (i == f->n_t) {
        return err_set(e, ERR_BUNDLE,
                       "%s: %s has T %u, which the shards do not have", g->path,
                       x->function, x->t);
    }
    struct seen *seen = found_of(f, g->layer, x->expert);
    if (seen->t != 0 && &f->b->groups[seen->group] != g) {
        return err_set(e, ERR_BUNDLE, "%s: expert %u of layer %u is in %s too",
                       g->path, x->expert, g->layer,
                       f->b->groups[seen->group].path);
    }
    if ((seen->t >> i & 1) != 0) {
        return err_set(e, ERR_BUNDLE,
                       "%s: expert %u of layer %u has a second function, %s",
                       g->path, x->expert, g->layer, x->function);
    }
    seen->t |= (uint64_t)1 << i;
    seen->group = (size_t)(g - f->b->groups);
    return 0;
}

static int check_group(struct found *f, size_t i, struct err *e)
{
    const struct bundle_group *g = &f->b->groups[i];
    RETERR(bundle_check_package(f->b, g->path, e));
    if (g->layer >= f->b->n_layers || !f->b->layers[g->layer].sparse) {
        return err_set(e, ERR_BUNDLE, "%s: layer %u is not sparse", g->path,
                       g->layer);
    }
    for (size_t k = 0; k < i; k++) {
        if (strcmp(f->b->groups[k].path, g->path) == 0) {
            return err_set(e, ERR_BUNDLE, "%s stands in two groups", g->path);
        }
    }
    if (g->n_experts == 0 || g->n_experts > MIL_FUNCTIONS_MAX) {
        return err_set(e, ERR_BUNDLE, "%s: %zu functions of experts", g->path,
                       g->n_experts);
    }
    for (size_t k = 0; k < g->n_experts; k++) {
        RETERR(find_expert(f, g, &g->experts[k], e));
    }
    return 0;
}

/* Whatever a sparse layer can choose has its functions. */
static int check_found(const struct found *f, struct err *e)
{
    uint64_t all = f->n_t == 64 ? UINT64_MAX : ((uint64_t)1 << f->n_t) - 1;
    for (uint32_t l = 0; l < f->b->n_layers; l++) {
        const struct layer *y = &f->b->layers[l];
        for (uint32_t x = 0; y->sparse && x < y->n_experts; x++) {
            if (found_of(f, l, x)->t != all) {
                return err_set(e, ERR_BUNDLE,
                               "expert %u of layer %u has not all its functions "
                               "in the groups",
                               x, l);
            }
        }
    }
    return 0;
}

static bool any_sparse(const struct bundle *b)
{
    uint32_t l = 0;
    while (l < b->n_layers && !b->layers[l].sparse) {
        l++;
    }
    return l < b->n_layers;
}

int bundle_check_groups(const struct bundle *b, struct err *e)
{
    bool ranged = strcmp(b->shape, "ranged") == 0;
    struct found f = {.b = b, .n_t = 1};
    int rc = 0;
    if (b->n_groups == 0 && !any_sparse(b)) {
        return 0;
    }
    if (!ranged) {
        f.n_t = b->shards[0].n_functions;
        f.t = b->shards[0].function_t;
    }
    if (f.n_t > ENGINE_WIDTHS_MAX || b->n_groups > EXPERT_PACKAGES_MAX) {
        return err_set(e, ERR_BUNDLE, "%zu groups of experts, %zu functions each",
                       b->n_groups, f.n_t);
    }
    f.of = calloc((size_t)b->n_layers * MODEL_EXPERTS_MAX, sizeof(*f.of));
    if (f.of == NULL) {
        return err_set(e, ERR_NOMEM, "groups");
    }
    for (size_t i = 0; rc == 0 && i < b->n_groups; i++) {
        rc = check_group(&f, i, e);
    }
    rc = rc < 0 ? rc : check_found(&f, e);
    free(f.of);
    return rc;
}

/* --- hash, packages --- */

void bundle_hash_groups(struct sha256 *h, const struct bundle *b)
{
    for (size_t i = 0; i < b->n_groups; i++) {
        const struct bundle_group *g = &b->groups[i];
        bundle_hash_text(h, "\ngroup %s %u", g->path, g->layer);
        for (size_t k = 0; k < g->n_experts; k++) {
            bundle_hash_text(h, "\nexpert %u %u %s", g->experts[k].expert,
                             g->experts[k].t, g->experts[k].function);
        }
    }
}

const char *bundle_experts(const struct bundle *b)
{
    const char *form = NULL;
    for (uint32_t l = 0; l < b->n_layers; l++) {
        form = b->layers[l].n_experts > 0 && form == NULL ? "dense" : form;
    }
    return b->n_groups > 0 ? "sparse" : form;
}

size_t bundle_n_packages(const struct bundle *b)
{
    return b->n_shards + b->n_groups + b->n_heads_shards;
}

const char *bundle_package(const struct bundle *b, size_t i)
{
    if (i < b->n_shards) {
        return b->shards[i].path;
    }
    i -= b->n_shards;
    return i < b->n_groups ? b->groups[i].path
                           : b->heads[i - b->n_groups].path;
}
