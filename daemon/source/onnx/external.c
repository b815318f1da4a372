/* external.c - where the bytes of a tensor lie that is not in the model's file.
 *
 * A location is a text of the model, and nothing is opened by it: it is looked
 * up among files that were opened before (onnx_find_fn). Even so it must be a
 * relative path in UTF-8 without empty, "." or ".." components, backslashes and
 * control characters, so that what is refused is refused by its reason.
 */
#include <string.h>

#include "base/file.h"
#include "base/num.h"
#include "base/parse.h"
#include "base/utf8.h"
#include "source/onnx/reader.h"

bool onnx_location_ok(const char *location)
{
    size_t n = strlen(location);
    if (n == 0 || n > ONNX_PATH_MAX || !utf8_valid(location, n) ||
        !file_path_ok(location)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)location[i];
        if (c < 0x20 || c == 0x7f || c == '\\') {
            return false;
        }
    }
    /* a marker of ONNX Runtime for addresses in its own memory */
    return strstr(location, "_ORT_MEM_ADDR_") == NULL;
}

static int bad_location(const char *location, const char *why, struct err *e)
{
    return err_set(e, ERR_ONNX_DATA, "external data '%.100s': %s", location,
                   why);
}

/* The file of that name, read once. */
static int file_of(struct onnx *m, const struct onnx_files *files,
                   const char *location, const struct onnx_file **ret,
                   struct err *e)
{
    for (size_t i = 0; i < m->n_files; i++) {
        if (strcmp(m->files[i].location, location) == 0) {
            *ret = &m->files[i];
            return 0;
        }
    }
    if (m->n_files == ONNX_FILES_MAX) {
        return err_set(e, ERR_TOO_BIG, "more than %u external files",
                       ONNX_FILES_MAX);
    }
    struct onnx_file *f = &m->files[m->n_files];
    if (files == NULL || files->find == NULL) {
        return bad_location(location, "the model came without its folder", e);
    }
    RETERR(files->find(files->ctx, location, &f->bytes, e));
    f->location = location;
    m->n_files++;
    *ret = f;
    return 0;
}

struct place {
    const char *location;
    uint64_t offset, length;
    bool has_offset, has_length;
};

/* Plain decimal digits, and nothing else. */
static int read_number(const char *key, const char *text, bool *has,
                       uint64_t *ret, struct err *e)
{
    if (*has) {
        return err_set(e, ERR_ONNX_DATA, "external data: '%s' stands twice",
                       key);
    }
    *has = true;
    return text[0] >= '0' && text[0] <= '9' &&
                   parse_u64(text, (uint64_t)INT64_MAX, ret)
               ? 0
               : err_set(e, ERR_ONNX_DATA,
                         "external data: %s '%.40s' is no number of bytes",
                         key, text);
}

static int read_entry(struct onnx *m, const Ox__Entry *in, struct place *p,
                      struct err *e)
{
    const char *key = NULL;
    const char *text = NULL;
    RETERR(onnx_text(m, in->key.data, in->key.len, 64, "a key of external data",
                     &key, e));
    if (strcmp(key, "location") == 0) {
        if (p->location != NULL) {
            return err_set(e, ERR_ONNX_DATA,
                           "external data: 'location' stands twice");
        }
        if (onnx_text(m, in->value.data, in->value.len, ONNX_PATH_MAX,
                      "its path", &p->location, e) < 0) {
            return err_prefix(e, ERR_ONNX_DATA, "external data");
        }
        return onnx_location_ok(p->location)
                   ? 0
                   : bad_location(p->location,
                                  "not a path inside the model's folder", e);
    }
    RETERR(onnx_text(m, in->value.data, in->value.len, 256,
                     "a value of external data", &text, e));
    if (strcmp(key, "offset") == 0) {
        return read_number(key, text, &p->has_offset, &p->offset, e);
    }
    if (strcmp(key, "length") == 0) {
        return read_number(key, text, &p->has_length, &p->length, e);
    }
    if (strcmp(key, "checksum") == 0) {
        return 0; /* of the whole file, in a form that no exporter writes */
    }
    return err_set(e, ERR_ONNX_DATA, "external data has the unknown key '%.40s'",
                   key);
}

int onnx_external(struct onnx *m, const struct onnx_files *files,
                  const Ox__Tensor *in, struct onnx_tensor *t, struct err *e)
{
    struct place p = {0};
    const struct onnx_file *f = NULL;
    uint64_t end = 0;
    if (in->n_external_data > 8) {
        return err_set(e, ERR_ONNX_DATA, "external data has %zu entries",
                       in->n_external_data);
    }
    for (size_t i = 0; i < in->n_external_data; i++) {
        RETERR(read_entry(m, in->external_data[i], &p, e));
    }
    if (p.location == NULL) {
        return err_set(e, ERR_ONNX_DATA, "external data has no location");
    }
    if (p.has_length && p.length != t->bytes) {
        return err_set(e, ERR_ONNX_DATA,
                       "external data has %llu bytes, its shape takes %llu",
                       (unsigned long long)p.length,
                       (unsigned long long)t->bytes);
    }
    RETERR(file_of(m, files, p.location, &f, e));
    if (!num_add(p.offset, t->bytes, &end) || end > f->bytes.n) {
        return err_set(e, ERR_ONNX_DATA,
                       "bytes %llu to %llu lie outside '%.100s' of %zu bytes",
                       (unsigned long long)p.offset, (unsigned long long)end,
                       p.location, f->bytes.n);
    }
    t->location = f->location;
    t->offset = p.offset;
    t->data = t->bytes > 0 ? (const uint8_t *)f->bytes.p + p.offset
                           : (const uint8_t *)"";
    return 0;
}

/* --- all of them together --- */

static int by_place(const void *a, const void *b)
{
    const struct onnx_tensor *x = *(const struct onnx_tensor *const *)a;
    const struct onnx_tensor *y = *(const struct onnx_tensor *const *)b;
    int c = strcmp(x->location, y->location);
    if (c != 0) {
        return c;
    }
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

int onnx_check_overlap(struct onnx *m, struct err *e)
{
    const struct onnx_graph *g = &m->graph;
    const struct onnx_tensor **list =
        arena_array(&m->arena, g->n_inits + 1, sizeof(const void *));
    size_t n = 0;
    if (list == NULL) {
        return err_set(e, ERR_TOO_BIG, "the graph needs too much memory");
    }
    for (size_t i = 0; i < g->n_inits; i++) {
        if (g->inits[i].location != NULL && g->inits[i].bytes > 0) {
            list[n++] = &g->inits[i];
        }
    }
    qsort(list, n, sizeof(*list), by_place);
    for (size_t i = 1; i < n; i++) {
        const struct onnx_tensor *a = list[i - 1];
        const struct onnx_tensor *b = list[i];
        bool same = a->offset == b->offset && a->bytes == b->bytes;
        if (strcmp(a->location, b->location) == 0 && !same &&
            b->offset - a->offset < a->bytes) {
            return err_set(e, ERR_ONNX_DATA,
                           "tensors '%.80s' and '%.80s' share some of their "
                           "bytes, not all",
                           a->name, b->name);
        }
    }
    return 0;
}
