/* package.c - the .mlpackage folder: Manifest.json leads to the model file,
 * blob references lead to weight files beside it.
 *
 * "@model_path" is the folder that holds the model file. Every path that comes
 * out of a file is relative, has no ".." and no empty part.
 */
#include <limits.h>
#include <string.h>

#include "mil/impl.h"
#include "proto/json.h"

struct package {
    struct mil_program *p;
    char model[PATH_MAX];              /* the model file */
    char dir[PATH_MAX];                /* its folder */
    char *names[MIL_WEIGHT_FILES_MAX]; /* of p->maps, owned */
};

/* "1.0.0": three numbers, not above 1.0.0. */
static bool version_ok(const char *s)
{
    unsigned v[3] = {0};
    char tail = 0;
    for (const char *p = s; *p != '\0'; p++) {
        if (*p != '.' && (*p < '0' || *p > '9')) {
            return false;
        }
    }
    if (strlen(s) > 16 ||
        sscanf(s, "%u.%u.%u%c", &v[0], &v[1], &v[2], &tail) != 3) {
        return false;
    }
    return v[0] == 0 || (v[0] == 1 && v[1] == 0 && v[2] == 0);
}

static int check_item(const struct json *items, const struct json *item,
                      const char *data, struct err *e)
{
    static const char *const keys[] = {"path", "name", "author", "description"};
    const char *v[countof(keys)] = {0};
    for (size_t i = 0; i < countof(keys); i++) {
        v[i] = json_str(json_get(item, keys[i]));
        if (v[i] == NULL) {
            return err_set(e, ERR_PKG_MANIFEST, "item %s has no %s",
                           json_key(item), keys[i]);
        }
    }
    char path[PATH_MAX];
    if (!file_path_ok(v[0]) || !file_join(path, sizeof(path), data, v[0])) {
        return err_set(e, ERR_PKG_MANIFEST, "item %s: path \"%s\"",
                       json_key(item), v[0]);
    }
    if (!file_exists(path)) {
        return err_set(e, ERR_PKG_MISSING, "%s is absent", v[0]);
    }
    for (const struct json *o = json_first(items); o != item;
         o = json_next(o)) {
        const char *name = json_str(json_get(o, "name"));
        const char *author = json_str(json_get(o, "author"));
        if (name != NULL && author != NULL && strcmp(name, v[1]) == 0 &&
            strcmp(author, v[2]) == 0) {
            return err_set(e, ERR_PKG_MANIFEST, "two items %s of %s", v[1],
                           v[2]);
        }
    }
    return 0;
}

/* The root item's path, borrowed from j. */
static int check_manifest(const struct json *j, const char *data,
                          const char **ret, struct err *e)
{
    const char *version = json_str(json_get(j, "fileFormatVersion"));
    const char *root = json_str(json_get(j, "rootModelIdentifier"));
    const struct json *items = json_get(j, "itemInfoEntries");
    if (version == NULL || !version_ok(version)) {
        return err_set(e, ERR_PKG_MANIFEST, "fileFormatVersion is %s",
                       version != NULL ? version : "absent");
    }
    if (items == NULL || json_type(items) != JSON_OBJECT) {
        return err_set(e, ERR_PKG_MANIFEST, "itemInfoEntries is no object");
    }
    for (const struct json *i = json_first(items); i != NULL;
         i = json_next(i)) {
        int rc = check_item(items, i, data, e);
        if (rc < 0) {
            return rc;
        }
    }
    const struct json *item = root != NULL ? json_get(items, root) : NULL;
    if (item == NULL) {
        return err_set(e, ERR_PKG_MANIFEST,
                       "rootModelIdentifier names no item");
    }
    *ret = json_str(json_get(item, "path"));
    return 0;
}

int manifest_model(const void *text, size_t n, const char *data, char *ret,
                   size_t room, struct err *e)
{
    struct json *j = NULL;
    const char *model = NULL;
    int rc = json_parse(text, n, &j, e);
    if (rc < 0) {
        rc = rc == ERR_JSON ? ERR_PKG_MANIFEST : rc;
        if (e != NULL) {
            e->code = rc;
        }
        return rc;
    }
    rc = check_manifest(j, data, &model, e);
    if (rc == 0 && !file_join(ret, room, data, model)) {
        rc = err_set(e, ERR_INVALID, "the path is too long");
    }
    json_free(j);
    return rc;
}

/* Fill g->model and g->dir. */
static int find_model(struct package *g, const char *path, struct err *e)
{
    char file[PATH_MAX];
    char data[PATH_MAX];
    struct buf text = {0};
    if (!file_join(file, sizeof(file), path, "Manifest.json") ||
        !file_join(data, sizeof(data), path, "Data")) {
        return err_set(e, ERR_INVALID, "the path is too long");
    }
    int rc = file_read(file, MIL_MANIFEST_MAX, &text, e);
    if (rc < 0) {
        return rc == ERR_NOT_FOUND
                   ? err_set(e, ERR_PKG_MISSING, "Manifest.json is absent")
                   : rc;
    }
    rc = manifest_model(text.p != NULL ? text.p : "", text.n, data, g->model,
                        sizeof(g->model), e);
    if (rc == 0) {
        memcpy(g->dir, g->model, sizeof(g->dir));
        *strrchr(g->dir, '/') = '\0';
    }
    buf_fini(&text);
    return rc;
}

static int map_weights(struct package *g, const char *rel, struct err *e)
{
    struct mil_program *p = g->p;
    char path[PATH_MAX];
    if (!file_path_ok(rel) || !file_join(path, sizeof(path), g->dir, rel)) {
        return err_set(e, ERR_MIL_BLOB, "weight file \"%s\" is no path here",
                       rel);
    }
    if (p->n_maps == MIL_WEIGHT_FILES_MAX) {
        return err_set(e, ERR_TOO_BIG, "more than %u weight files",
                       MIL_WEIGHT_FILES_MAX);
    }
    if (p->maps == NULL) {
        p->maps = calloc(MIL_WEIGHT_FILES_MAX, sizeof(*p->maps));
        must(p->maps != NULL);
    }
    struct file_map m = {0};
    int rc = file_map(path, &m, e);
    if (rc < 0) {
        return rc == ERR_NOT_FOUND
                   ? err_set(e, ERR_PKG_MISSING, "%s is absent", rel)
                   : rc;
    }
    rc = blob_check_header(&m, e);
    if (rc < 0) {
        file_unmap(&m);
        return err_prefix(e, rc, "%s", rel);
    }
    g->names[p->n_maps] = strdup(rel);
    must(g->names[p->n_maps] != NULL);
    p->maps[p->n_maps++] = m;
    p->weight_bytes += m.n;
    return 0;
}

static int find_weights(void *ctx, const char *rel, const struct file_map **ret,
                        struct err *e)
{
    struct package *g = ctx;
    for (size_t i = 0; i < g->p->n_maps; i++) {
        if (strcmp(g->names[i], rel) == 0) {
            *ret = &g->p->maps[i];
            return 0;
        }
    }
    int rc = map_weights(g, rel, e);
    if (rc < 0) {
        return rc;
    }
    *ret = &g->p->maps[g->p->n_maps - 1];
    return 0;
}

int mil_read(const char *path, struct mil_program **ret, struct err *e)
{
    struct package *g = calloc(1, sizeof(*g));
    struct mil_program *p = calloc(1, sizeof(*p));
    struct buf spec = {0};
    must(g != NULL && p != NULL);
    g->p = p;
    int rc = find_model(g, path, e);
    if (rc < 0) {
        goto out;
    }
    rc = file_read(g->model, MIL_SPEC_BYTES_MAX, &spec, e);
    if (rc < 0) {
        goto out;
    }
    rc = spec_read(p, spec.p, spec.n,
                   (struct weights){.find = find_weights, .ctx = g}, e);
    if (rc < 0) {
        goto out;
    }
    *ret = p;
    p = NULL;
out:
    for (size_t i = 0; i < MIL_WEIGHT_FILES_MAX; i++) {
        free(g->names[i]);
    }
    free(g);
    mil_free(p);
    buf_fini(&spec);
    return rc;
}
