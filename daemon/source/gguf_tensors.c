/* The tensor table of a GGUF: shapes, types and places. A tensor is accepted
 * when all of its bytes lie inside the file and no other tensor's. */
#include <string.h>

#include "base/num.h"
#include "source/gguf_impl.h"

enum { TENSOR_BYTES_MIN = 8 + 4 + 8 + 4 + 8 }; /* one dimension, no name */

static int tensor_shape(struct cur *c, struct gguf_tensor *t, struct err *e)
{
    t->n_dims = cur_u32(c);
    if (c->bad) {
        return gguf_truncated(e, "a tensor's shape");
    }
    if (t->n_dims < 1 || t->n_dims > GGUF_DIMS_MAX) {
        return err_set(e, ERR_GGUF_TENSOR, "%u dimensions; 1 to %u are known",
                       t->n_dims, GGUF_DIMS_MAX);
    }
    t->rows = 1;
    for (uint32_t i = 0; i < GGUF_DIMS_MAX; i++) {
        t->dims[i] = i < t->n_dims ? cur_u64(c) : 1;
        if (c->bad) {
            return gguf_truncated(e, "a tensor's shape");
        }
        if (t->dims[i] == 0) {
            return err_set(e, ERR_GGUF_TENSOR, "dimension %u is 0", i);
        }
        if (i > 0 && !num_mul(t->rows, t->dims[i], &t->rows)) {
            return err_set(e, ERR_GGUF_TENSOR, "the shape overflows");
        }
    }
    t->cols = t->dims[0];
    return 0;
}

static int tensor_type(struct cur *c, struct gguf_tensor *t, struct err *e)
{
    t->type = cur_u32(c);
    if (c->bad) {
        return gguf_truncated(e, "a tensor's type");
    }
    struct gguf_block b = gguf_type_block(t->type);
    if (b.items == 0) {
        return err_set(e, ERR_GGUF_TENSOR, "unknown type %u", t->type);
    }
    if (t->cols % b.items != 0) {
        return err_set(e, ERR_GGUF_TENSOR,
                       "rows of %llu are no multiple of %s's block of %u",
                       (unsigned long long)t->cols, gguf_type_name(t->type),
                       b.items);
    }
    uint64_t items = 0; /* must be countable too, not just storable */
    if (!num_mul(t->cols / b.items, b.bytes, &t->row_bytes) ||
        !num_mul(t->row_bytes, t->rows, &t->bytes) ||
        !num_mul(t->cols, t->rows, &items) || items > INT64_MAX) {
        return err_set(e, ERR_GGUF_TENSOR, "the shape overflows");
    }
    return 0;
}

static int read_tensor(struct gguf *g, struct cur *c, struct gguf_tensor *t,
                       uint64_t *ret_offset, struct err *e)
{
    struct span name = {0};
    int rc = gguf_read_string(c, GGUF_NAME_MAX, ERR_GGUF_TENSOR,
                              "a tensor's name", &name, e);
    if (rc < 0) {
        return rc;
    }
    if (name.n == 0 || !gguf_plain_ascii(name)) {
        return err_set(e, ERR_GGUF_TENSOR,
                       "a tensor's name is empty or not plain ASCII");
    }
    t->name = arena_strn(&g->arena, name.p, name.n);
    if (t->name == NULL) {
        return err_set(e, ERR_NOMEM, "tensor names");
    }
    rc = tensor_shape(c, t, e);
    if (rc == 0) {
        rc = tensor_type(c, t, e);
    }
    if (rc < 0) {
        return err_prefix(e, rc, "tensor '%s'", t->name);
    }
    *ret_offset = cur_u64(c);
    if (c->bad) {
        return gguf_truncated(e, "the tensor table");
    }
    return 0;
}

static int compare_places(const void *a, const void *b)
{
    const struct gguf_tensor *const *x = a;
    const struct gguf_tensor *const *y = b;
    return ((*x)->data > (*y)->data) - ((*x)->data < (*y)->data);
}

static int check_overlap(struct gguf *g, struct err *e)
{
    const struct gguf_tensor **t =
        calloc(g->n_tensors + 1, sizeof(const void *));
    int rc = 0;
    if (t == NULL) {
        return err_set(e, ERR_NOMEM, "%zu tensors", g->n_tensors);
    }
    for (size_t i = 0; i < g->n_tensors; i++) {
        t[i] = &g->tensors[i];
    }
    qsort(t, g->n_tensors, sizeof(const void *), compare_places);
    for (size_t i = 1; i < g->n_tensors; i++) {
        if (t[i - 1]->data + t[i - 1]->bytes > t[i]->data) {
            rc = err_set(e, ERR_GGUF_TENSOR, "tensors '%s' and '%s' overlap",
                         t[i - 1]->name, t[i]->name);
            goto out;
        }
    }
out:
    free(t);
    return rc;
}

/* Turn offsets into pointers, now that it is known where the data begins. */
static int place_tensors(struct gguf *g, size_t header, const uint64_t *offsets,
                         struct err *e)
{
    uint64_t start = 0;
    if (!num_align(header, g->alignment, &start)) {
        return err_set(e, ERR_GGUF_ALIGNMENT, "the header's end overflows");
    }
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        uint64_t first = 0;
        uint64_t end = 0;
        if (offsets[i] % g->alignment != 0) {
            return err_set(e, ERR_GGUF_ALIGNMENT,
                           "tensor '%s': offset %llu is no multiple of %llu",
                           t->name, (unsigned long long)offsets[i],
                           (unsigned long long)g->alignment);
        }
        if (!num_add(start, offsets[i], &first) ||
            !num_add(first, t->bytes, &end) || end > g->n) {
            return err_set(e, ERR_GGUF_OFFSET,
                           "tensor '%s': %llu bytes at offset %llu lie outside "
                           "the file's %llu bytes",
                           t->name, (unsigned long long)t->bytes,
                           (unsigned long long)offsets[i],
                           (unsigned long long)g->n);
        }
        t->data = g->p + first;
    }
    return check_overlap(g, e);
}

int gguf_index_tensors(struct gguf *g, struct err *e)
{
    struct gguf_by_name *t = calloc(g->n_tensors + 1, sizeof(*t));
    if (t == NULL) {
        return err_set(e, ERR_NOMEM, "%zu tensors", g->n_tensors);
    }
    for (size_t i = 0; i < g->n_tensors; i++) {
        const char *s = g->tensors[i].name;
        t[i] = (struct gguf_by_name){
            {s, strlen(s)},
            i
        };
    }
    int rc = gguf_sort_names(g, t, g->n_tensors, ERR_GGUF_TENSOR, "tensor",
                             &g->tensors_sorted, e);
    free(t);
    return rc;
}

int gguf_read_tensors(struct gguf *g, struct cur *c, uint64_t n, struct err *e)
{
    if (n == 0) {
        return 0;
    }
    if (n > GGUF_TENSORS_MAX || n > gguf_left(c) / TENSOR_BYTES_MIN) {
        return err_set(e, ERR_GGUF_COUNT,
                       "%llu tensors do not fit into the file or exceed the "
                       "limit %u",
                       (unsigned long long)n, GGUF_TENSORS_MAX);
    }
    g->n_tensors = (size_t)n;
    g->tensors = arena_array(&g->arena, g->n_tensors, sizeof(*g->tensors));
    /* in the arena: a file that shrinks while it is read jumps out of here */
    uint64_t *offsets = arena_array(&g->arena, g->n_tensors, sizeof(*offsets));
    if (g->tensors == NULL || offsets == NULL) {
        return err_set(e, ERR_NOMEM, "%zu tensors", g->n_tensors);
    }
    for (size_t i = 0; i < g->n_tensors; i++) {
        RETERR(read_tensor(g, c, &g->tensors[i], &offsets[i], e));
    }
    RETERR(gguf_index_tensors(g, e));
    return place_tensors(g, c->at, offsets, e);
}
