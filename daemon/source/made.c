/* made.c - the builder is a struct gguf whose tables grow.
 *
 * Values are stored as they would stand in a file, so that every reader of
 * gguf.h works on them. The first mapped file is the source's own, later ones
 * are its `more`, as the parts of a split model are: what asks for files
 * (digest, changes, bytes) sees all of them. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/num.h"
#include "source/dequant.h"
#include "source/gguf_impl.h"
#include "source/made.h"

struct made {
    struct gguf *g;
    size_t kv_room, tensor_room; /* of kv and tensors, which are ours */
    struct gguf_kv *kv;
    struct gguf_tensor *tensors;
    size_t n_kv, n_tensors, n_files;
};

int made_new(struct made **ret, struct err *e)
{
    struct made *m = calloc(1, sizeof(*m));
    if (m == NULL) {
        return err_set(e, ERR_NOMEM, "%s", err_text(ERR_NOMEM));
    }
    m->g = gguf_new();
    *ret = m;
    return 0;
}

void made_free(struct made *m)
{
    if (m == NULL) {
        return;
    }
    gguf_close(m->g);
    free(m->kv);
    free(m->tensors);
    free(m);
}

void *made_alloc(struct made *m, size_t n)
{
    return arena_alloc(&m->g->arena, n);
}

/* Room for one more of *n entries of `size` bytes; NULL: no memory. */
static void *grow(void *p, size_t n, size_t *room, size_t size)
{
    if (n < *room) {
        return p;
    }
    size_t more = *room == 0 ? 64 : 2 * *room;
    void *q = realloc(p, more * size); /* limits keep it small */
    if (q != NULL) {
        *room = more;
    }
    return q;
}

/* --- metadata --- */

static int check_key(const struct made *m, struct span key, struct err *e)
{
    if (key.n == 0 || key.n > GGUF_KEY_MAX || !gguf_plain_ascii(key)) {
        return err_set(e, ERR_GGUF_KEY, "key '%.64s': %s", key.p,
                       err_text(ERR_GGUF_KEY));
    }
    if (m->n_kv >= GGUF_KV_MAX) {
        return err_set(e, ERR_GGUF_COUNT, "more than %u keys", GGUF_KV_MAX);
    }
    for (size_t i = 0; i < m->n_kv; i++) {
        if (m->kv[i].key.n == key.n &&
            memcmp(m->kv[i].key.p, key.p, key.n) == 0) {
            return err_set(e, ERR_GGUF_KEY, "key '%s' is given twice", key.p);
        }
    }
    return 0;
}

/* A new entry, and room for its bytes. */
static int add_kv(struct made *m, const char *key, uint64_t bytes,
                  struct gguf_kv **ret, uint8_t **ret_p, struct err *e)
{
    struct span s = {key, strlen(key)};
    RETERR(check_key(m, s, e));
    struct gguf_kv *all = grow(m->kv, m->n_kv, &m->kv_room, sizeof(*all));
    m->kv = all != NULL ? all : m->kv;
    const char *copy = arena_strn(&m->g->arena, key, s.n);
    uint8_t *p = bytes < SIZE_MAX
                     ? arena_alloc(&m->g->arena, (size_t)bytes + 1)
                     : NULL;
    if (all == NULL || copy == NULL || p == NULL) {
        return err_set(e, ERR_NOMEM, "key '%s'", key);
    }
    *ret = &m->kv[m->n_kv++];
    **ret = (struct gguf_kv){
        .key = {copy, s.n}, .count = 1, .p = p, .bytes = bytes};
    *ret_p = p;
    return 0;
}

static int add_scalar(struct made *m, const char *key, enum gguf_kind kind,
                      const void *v, struct err *e)
{
    uint8_t *p = NULL;
    size_t n = gguf_kind_bytes(kind);
    struct gguf_kv *kv = NULL;
    RETERR(add_kv(m, key, n, &kv, &p, e));
    memcpy(p, v, n);
    kv->kind = kv->item = kind;
    return 0;
}

static int add_list(struct made *m, const char *key, enum gguf_kind kind,
                    const void *v, size_t n, struct err *e)
{
    uint8_t *p = NULL;
    if (n > GGUF_ARRAY_MAX) {
        return err_set(e, ERR_GGUF_COUNT, "key '%s': %zu elements", key, n);
    }
    size_t bytes = n * gguf_kind_bytes(kind);
    struct gguf_kv *kv = NULL;
    RETERR(add_kv(m, key, bytes, &kv, &p, e));
    if (bytes > 0) {
        memcpy(p, v, bytes);
    }
    kv->kind = GGUF_ARRAY;
    kv->item = kind;
    kv->count = n;
    return 0;
}

int made_span(struct made *m, const char *key, struct span v, struct err *e)
{
    uint8_t *p = NULL;
    if (v.n > GGUF_STRING_MAX) {
        return err_set(e, ERR_GGUF_VALUE, "key '%s': a string of %zu bytes",
                       key, v.n);
    }
    struct gguf_kv *kv = NULL;
    RETERR(add_kv(m, key, v.n, &kv, &p, e));
    if (v.n > 0) {
        memcpy(p, v.p, v.n);
    }
    kv->kind = kv->item = GGUF_STRING;
    return 0;
}

int made_str(struct made *m, const char *key, const char *v, struct err *e)
{
    return made_span(m, key, (struct span){v, strlen(v)}, e);
}

int made_u32(struct made *m, const char *key, uint32_t v, struct err *e)
{
    return add_scalar(m, key, GGUF_U32, &v, e);
}

int made_i32(struct made *m, const char *key, int32_t v, struct err *e)
{
    return add_scalar(m, key, GGUF_I32, &v, e);
}

int made_f32(struct made *m, const char *key, float v, struct err *e)
{
    return add_scalar(m, key, GGUF_F32, &v, e);
}

int made_bool(struct made *m, const char *key, bool v, struct err *e)
{
    return add_scalar(m, key, GGUF_BOOL, &v, e);
}

int made_strs(struct made *m, const char *key, const struct span *v, size_t n,
              struct err *e)
{
    uint64_t bytes = 0;
    uint8_t *p = NULL;
    if (n > GGUF_ARRAY_MAX) {
        return err_set(e, ERR_GGUF_COUNT, "key '%s': %zu elements", key, n);
    }
    for (size_t i = 0; i < n; i++) { /* no overflow: 2^24 times 2^24 */
        if (v[i].n > GGUF_STRING_MAX) {
            return err_set(e, ERR_GGUF_VALUE, "key '%s': a string of %zu bytes",
                           key, v[i].n);
        }
        bytes += 8 + v[i].n;
    }
    struct gguf_kv *kv = NULL;
    RETERR(add_kv(m, key, bytes, &kv, &p, e));
    for (size_t i = 0; i < n; i++) {
        uint64_t len = v[i].n;
        memcpy(p, &len, sizeof(len));
        if (len > 0) {
            memcpy(p + sizeof(len), v[i].p, (size_t)len);
        }
        p += sizeof(len) + len;
    }
    kv->kind = GGUF_ARRAY;
    kv->item = GGUF_STRING;
    kv->count = n;
    return 0;
}

int made_u8s(struct made *m, const char *key, const uint8_t *v, size_t n,
             struct err *e)
{
    return add_list(m, key, GGUF_U8, v, n, e);
}

int made_u32s(struct made *m, const char *key, const uint32_t *v, size_t n,
              struct err *e)
{
    return add_list(m, key, GGUF_U32, v, n, e);
}

int made_i32s(struct made *m, const char *key, const int32_t *v, size_t n,
              struct err *e)
{
    return add_list(m, key, GGUF_I32, v, n, e);
}

int made_f32s(struct made *m, const char *key, const float *v, size_t n,
              struct err *e)
{
    return add_list(m, key, GGUF_F32, v, n, e);
}

int made_bools(struct made *m, const char *key, const bool *v, size_t n,
               struct err *e)
{
    _Static_assert(sizeof(bool) == 1, "a bool of a file is one byte");
    return add_list(m, key, GGUF_BOOL, v, n, e);
}

/* --- tensors --- */

static int tensor_shape(struct gguf_tensor *t, const uint64_t *dims,
                        struct err *e)
{
    uint64_t items = 0;
    if (t->n_dims < 1 || t->n_dims > GGUF_DIMS_MAX) {
        return err_set(e, ERR_GGUF_TENSOR, "%u dimensions; 1 to %u are known",
                       t->n_dims, GGUF_DIMS_MAX);
    }
    t->rows = 1;
    for (uint32_t i = 0; i < GGUF_DIMS_MAX; i++) {
        t->dims[i] = i < t->n_dims ? dims[i] : 1;
        if (t->dims[i] == 0) {
            return err_set(e, ERR_GGUF_TENSOR, "dimension %u is 0", i);
        }
        if (i > 0 && !num_mul(t->rows, t->dims[i], &t->rows)) {
            return err_set(e, ERR_GGUF_TENSOR, "the shape overflows");
        }
    }
    t->cols = t->dims[0];
    return num_mul(t->cols, t->rows, &items) && items <= INT64_MAX
               ? 0
               : err_set(e, ERR_GGUF_TENSOR, "the shape overflows");
}

/* What t->type says of the bytes. */
static int tensor_bytes(struct gguf_tensor *t, struct err *e)
{
    uint64_t bytes = 0;
    struct gguf_block b = gguf_type_block(t->type);
    if (b.items == 0 || t->cols % b.items != 0) {
        return err_set(e, ERR_GGUF_TENSOR, "rows of %llu are not %s",
                       (unsigned long long)t->cols, gguf_type_name(t->type));
    }
    if (!num_mul(t->cols / b.items, b.bytes, &t->row_bytes) ||
        !num_mul(t->row_bytes, t->rows, &bytes)) {
        return err_set(e, ERR_GGUF_TENSOR, "the shape overflows");
    }
    return bytes == t->bytes
               ? 0
               : err_set(e, ERR_GGUF_TENSOR,
                         "%llu bytes; its shape says %llu",
                         (unsigned long long)t->bytes,
                         (unsigned long long)bytes);
}

/* t has all but its name and shape. */
static int add_tensor(struct made *m, const char *name, struct gguf_tensor t,
                      const uint64_t *dims, struct err *e)
{
    struct span s = {name, strlen(name)};
    if (s.n == 0 || s.n > GGUF_NAME_MAX || !gguf_plain_ascii(s)) {
        return err_set(e, ERR_GGUF_TENSOR,
                       "tensor '%.64s': a name is 1 to %u bytes of plain ASCII",
                       name, GGUF_NAME_MAX);
    }
    if (m->n_tensors >= GGUF_TENSORS_MAX) {
        return err_set(e, ERR_GGUF_COUNT, "more than %u tensors",
                       GGUF_TENSORS_MAX);
    }
    int rc = tensor_shape(&t, dims, e);
    if (rc == 0 && t.fn == NULL) {
        rc = tensor_bytes(&t, e);
    }
    if (rc < 0) {
        return err_prefix(e, rc, "tensor '%s'", name);
    }
    if (t.fn != NULL) {
        t.row_bytes = t.bytes / t.rows;
    }
    struct gguf_tensor *all =
        grow(m->tensors, m->n_tensors, &m->tensor_room, sizeof(*all));
    m->tensors = all != NULL ? all : m->tensors;
    t.name = arena_strn(&m->g->arena, name, s.n);
    if (all == NULL || t.name == NULL) {
        return err_set(e, ERR_NOMEM, "tensor '%s'", name);
    }
    m->tensors[m->n_tensors++] = t;
    return 0;
}

int made_tensor(struct made *m, const char *name, uint32_t n_dims,
                const uint64_t *dims, uint32_t type, const uint8_t *data,
                uint64_t bytes, struct err *e)
{
    const struct gguf_tensor t = {
        .type = type, .n_dims = n_dims, .data = data, .bytes = bytes};
    return add_tensor(m, name, t, dims, e);
}

int made_tensor_fn(struct made *m, const char *name, uint32_t n_dims,
                   const uint64_t *dims, const char *type_name,
                   made_rows_fn *fn, const void *ctx, uint64_t bytes,
                   struct err *e)
{
    const struct gguf_tensor t = {.type = GGUF_TYPE_FN,
                                  .n_dims = n_dims,
                                  .bytes = bytes,
                                  .fn = fn,
                                  .ctx = ctx,
                                  .type_name = type_name};
    must(fn != NULL && type_name != NULL);
    return add_tensor(m, name, t, dims, e);
}

bool made_decode(uint32_t type, const uint8_t *p, uint64_t blocks, float *out)
{
    dequant_fn *fn = gguf_dequantiser(type);
    if (fn != NULL) {
        fn(p, out, (size_t)blocks);
    }
    return fn != NULL;
}

/* --- files --- */

/* The next file's object: the source itself, then others of `more`. */
static struct gguf *add_file(struct made *m)
{
    if (m->n_files == 0) {
        m->n_files = 1;
        return m->g;
    }
    struct gguf **more =
        realloc(m->g->more, m->n_files * sizeof(*more)); /* one more */
    if (more == NULL) {
        return NULL;
    }
    m->g->more = more;
    more[m->g->n_more++] = gguf_new();
    m->n_files++;
    return more[m->g->n_more - 1];
}

int made_map(struct made *m, int fd, const char *name, struct span *ret,
             struct err *e)
{
    if (m->n_files >= GGUF_PARTS_MAX) {
        return err_set(e, ERR_GGUF_COUNT, "more than %u files",
                       GGUF_PARTS_MAX);
    }
    struct gguf *f = add_file(m);
    if (f == NULL) {
        return err_set(e, ERR_NOMEM, "%s", name);
    }
    f->name = arena_str(&m->g->arena, name);
    if (f->name == NULL) {
        return err_set(e, ERR_NOMEM, "%s", name);
    }
    f->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (f->fd < 0 || fstat(f->fd, &f->st) != 0) {
        return err_errno(e, errno, name);
    }
    int rc = file_map_fd(f->fd, &f->map, e);
    if (rc < 0) {
        return err_prefix(e, rc, "%s", name);
    }
    f->p = f->map.p;
    f->n = f->map.n;
    *ret = (struct span){(const char *)f->map.p, f->map.n};
    return 0;
}

/* --- the end --- */

/* The tables move into the source's own memory. */
static int settle(struct made *m, struct err *e)
{
    struct gguf *g = m->g;
    g->kv = arena_array(&g->arena, m->n_kv + 1, sizeof(*g->kv));
    g->tensors = arena_array(&g->arena, m->n_tensors + 1, sizeof(*g->tensors));
    if (g->kv == NULL || g->tensors == NULL) {
        return err_set(e, ERR_NOMEM, "%zu tensors", m->n_tensors);
    }
    g->n_kv = m->n_kv;
    g->n_tensors = m->n_tensors;
    if (m->n_kv > 0) {
        memcpy(g->kv, m->kv, m->n_kv * sizeof(*g->kv));
    }
    if (m->n_tensors > 0) {
        memcpy(g->tensors, m->tensors, m->n_tensors * sizeof(*g->tensors));
    }
    RETERR(gguf_index_kv(g, e));
    RETERR(gguf_index_tensors(g, e));
    return gguf_check_values(g, e);
}

int made_done(struct made *m, const char *format, struct gguf **ret,
              struct err *e)
{
    m->g->format = format;
    m->g->alignment = 32;
    int rc = settle(m, e);
    if (rc == 0) {
        *ret = m->g;
        m->g = NULL; /* given away */
    }
    made_free(m);
    return rc;
}
