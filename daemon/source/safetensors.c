/* The header is parsed as JSON with a bound on its bytes and members, then read
 * into a table; a sort by place finds tensors that share bytes. Equal names are
 * found by the JSON parser, which refuses a key that stands twice. */
#include "source/safetensors.h"

#include <string.h>

#include "base/arena.h"
#include "base/num.h"
#include "proto/json.h"
#include "source/gguf.h"

struct safetensors {
    struct arena arena; /* names */
    size_t n;
    struct safetensors_tensor *t;
    const struct safetensors_tensor **by_name;
};

static const struct {
    const char *name;
    enum safetensors_type type;
    uint32_t bits;
} types[] = {
    {"F32",     SAFETENSORS_F32,     32},
    {"F16",     SAFETENSORS_F16,     16},
    {"BF16",    SAFETENSORS_BF16,    16},
    {"F8_E4M3", SAFETENSORS_F8_E4M3, 8 },
    {"F8_E5M2", SAFETENSORS_F8_E5M2, 8 },
    {"F64",     SAFETENSORS_OTHER,   64},
    {"I64",     SAFETENSORS_OTHER,   64},
    {"U64",     SAFETENSORS_OTHER,   64},
    {"I32",     SAFETENSORS_OTHER,   32},
    {"U32",     SAFETENSORS_OTHER,   32},
    {"I16",     SAFETENSORS_OTHER,   16},
    {"U16",     SAFETENSORS_OTHER,   16},
    {"I8",      SAFETENSORS_OTHER,   8 },
    {"U8",      SAFETENSORS_OTHER,   8 },
    {"BOOL",    SAFETENSORS_OTHER,   8 },
    {"F8_E8M0", SAFETENSORS_OTHER,   8 },
    {"F4",      SAFETENSORS_OTHER,   4 },
};

/* --- one tensor --- */

static int read_type(const struct json *j, struct safetensors_tensor *t,
                     uint32_t *ret_bits, struct err *e)
{
    const char *name = json_str(json_get(j, "dtype"));
    for (size_t i = 0; name != NULL && i < countof(types); i++) {
        if (strcmp(name, types[i].name) == 0) {
            t->type = types[i].type;
            t->type_name = types[i].name;
            *ret_bits = types[i].bits;
            return 0;
        }
    }
    return err_set(e, ERR_SAFETENSORS, "the dtype '%.32s' is not known",
                   name != NULL ? name : "");
}

/* *ret: how many elements. */
static int read_shape(const struct json *j, struct safetensors_tensor *t,
                      uint64_t *ret, struct err *e)
{
    const struct json *shape = json_get(j, "shape");
    if (shape == NULL || json_type(shape) != JSON_ARRAY) {
        return err_set(e, ERR_SAFETENSORS, "no shape");
    }
    *ret = 1;
    for (const struct json *c = json_first(shape); c != NULL;
         c = json_next(c)) {
        int64_t v = 0;
        if (t->n_dims == SAFETENSORS_DIMS_MAX) {
            return err_set(e, ERR_SAFETENSORS, "more than %u dimensions",
                           SAFETENSORS_DIMS_MAX);
        }
        if (!json_int(c, 0, INT64_MAX, &v)) {
            return err_set(e, ERR_SAFETENSORS, "dimension %u is no count",
                           t->n_dims);
        }
        t->dims[t->n_dims++] = (uint64_t)v;
        if (!num_mul(*ret, (uint64_t)v, ret)) {
            return err_set(e, ERR_SAFETENSORS, "the shape overflows");
        }
    }
    return 0;
}

/* Bytes [begin, end) of the n behind the header. */
static int read_place(const struct json *j, uint64_t n, uint64_t *ret_begin,
                      uint64_t *ret_end, struct err *e)
{
    const struct json *place = json_get(j, "data_offsets");
    const struct json *first = json_first(place);
    const struct json *second = first != NULL ? json_next(first) : NULL;
    int64_t begin = 0;
    int64_t end = 0;
    if (json_type(place != NULL ? place : j) != JSON_ARRAY || second == NULL ||
        json_next(second) != NULL || !json_int(first, 0, INT64_MAX, &begin) ||
        !json_int(second, 0, INT64_MAX, &end) || begin > end) {
        return err_set(e, ERR_SAFETENSORS, "data_offsets are not two offsets");
    }
    *ret_begin = (uint64_t)begin;
    *ret_end = (uint64_t)end;
    return *ret_end <= n
               ? 0
               : err_set(e, ERR_SAFETENSORS,
                         "bytes %lld to %lld lie outside the file's %llu",
                         (long long)begin, (long long)end,
                         (unsigned long long)n);
}

static int read_tensor(const struct json *j, const uint8_t *data, uint64_t n,
                       struct safetensors_tensor *t, struct err *e)
{
    uint64_t items = 0;
    uint64_t bits = 0;
    uint64_t begin = 0;
    uint64_t end = 0;
    uint32_t each = 0;
    RETERR(read_type(j, t, &each, e));
    RETERR(read_shape(j, t, &items, e));
    RETERR(read_place(j, n, &begin, &end, e));
    if (!num_mul(items, each, &bits) || bits % 8 != 0) {
        return err_set(e, ERR_SAFETENSORS, "the shape overflows");
    }
    if (bits / 8 != end - begin) {
        return err_set(e, ERR_SAFETENSORS,
                       "%llu bytes; its shape says %llu",
                       (unsigned long long)(end - begin),
                       (unsigned long long)(bits / 8));
    }
    t->data = data + begin;
    t->bytes = end - begin;
    return 0;
}

/* --- all of them --- */

static int compare_places(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a;
    const struct safetensors_tensor *y = b;
    if (x->data != y->data) {
        return x->data < y->data ? -1 : 1;
    }
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int check_overlap(struct safetensors *s, struct err *e)
{
    if (s->n > 0) {
        qsort(s->t, s->n, sizeof(*s->t), compare_places);
    }
    for (size_t i = 1; i < s->n; i++) {
        if (s->t[i - 1].data + s->t[i - 1].bytes > s->t[i].data) {
            return err_set(e, ERR_SAFETENSORS,
                           "tensors '%s' and '%s' overlap", s->t[i - 1].name,
                           s->t[i].name);
        }
    }
    return 0;
}

static int read_table(struct safetensors *s, const struct json *root,
                      const uint8_t *data, uint64_t n, struct err *e)
{
    size_t count = json_count(root);
    if (json_type(root) != JSON_OBJECT || count > GGUF_TENSORS_MAX) {
        return err_set(e, ERR_SAFETENSORS,
                       "the header is no object of at most %u tensors",
                       GGUF_TENSORS_MAX);
    }
    s->t = calloc(count + 1, sizeof(*s->t));
    if (s->t == NULL) {
        return err_set(e, ERR_NOMEM, "%zu tensors", count);
    }
    for (const struct json *c = json_first(root); c != NULL;
         c = json_next(c)) {
        const char *name = json_key(c);
        if (strcmp(name, "__metadata__") == 0) {
            continue;
        }
        struct safetensors_tensor *t = &s->t[s->n];
        t->name = arena_str(&s->arena, name);
        if (t->name == NULL) {
            return err_set(e, ERR_NOMEM, "%zu tensors", count);
        }
        int rc = read_tensor(c, data, n, t, e);
        if (rc < 0) {
            return err_prefix(e, rc, "tensor '%.127s'", name);
        }
        s->n++;
    }
    return check_overlap(s, e);
}

static int compare_names(const void *a, const void *b)
{
    const struct safetensors_tensor *const *x = a;
    const struct safetensors_tensor *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int index_names(struct safetensors *s, struct err *e)
{
    s->by_name = calloc(s->n + 1, sizeof(const void *));
    if (s->by_name == NULL) {
        return err_set(e, ERR_NOMEM, "%zu tensors", s->n);
    }
    for (size_t i = 0; i < s->n; i++) {
        s->by_name[i] = &s->t[i];
    }
    qsort(s->by_name, s->n, sizeof(const void *), compare_names);
    return 0;
}

/* --- opening --- */

struct header {
    const uint8_t *p; /* the file */
    size_t n;
    char *text; /* a copy */
    size_t bytes;
};

/* The number alone, then the header: what is between them is an allocation,
 * which must not stand in a guard. */
static int read_length(void *ctx, struct err *e)
{
    struct header *h = ctx;
    uint64_t len = 0;
    if (h->n < sizeof(len)) {
        return err_set(e, ERR_SAFETENSORS, "a file of %zu bytes", h->n);
    }
    memcpy(&len, h->p, sizeof(len)); /* little-endian */
    if (len > h->n - sizeof(len)) {
        return err_set(e, ERR_SAFETENSORS,
                       "a header of %llu bytes is longer than the file",
                       (unsigned long long)len);
    }
    if (len < 2 || len > SAFETENSORS_HEADER_MAX) {
        return err_set(e, ERR_SAFETENSORS,
                       "a header of %llu bytes; 2 to %zu are read",
                       (unsigned long long)len, SAFETENSORS_HEADER_MAX);
    }
    h->bytes = (size_t)len;
    return 0;
}

static int copy_header(void *ctx, struct err *e)
{
    const struct header *h = ctx;
    (void)e;
    memcpy(h->text, h->p + sizeof(uint64_t), h->bytes);
    return 0;
}

int safetensors_open(const void *p, size_t n, struct safetensors **ret,
                     struct err *e)
{
    struct header h = {.p = p, .n = n};
    struct json *root = NULL;
    struct safetensors *s = calloc(1, sizeof(*s));
    must(s != NULL); /* fixed size */
    arena_init(&s->arena, 0);
    int rc = 0;
    size_t begin = 0;
    CHECK(gguf_guard(read_length, &h, e));
    h.text = malloc(h.bytes);
    if (h.text == NULL) {
        rc = err_set(e, ERR_NOMEM, "a header of %zu bytes", h.bytes);
        goto out;
    }
    CHECK(gguf_guard(copy_header, &h, e));
    rc = json_parse_big(h.text, h.bytes, &root, e);
    if (rc < 0) {
        rc = err_prefix(e, rc == ERR_NOMEM ? rc : ERR_SAFETENSORS,
                        "the header");
        goto out;
    }
    begin = sizeof(uint64_t) + h.bytes;
    CHECK(read_table(s, root, h.p + begin, n - begin, e));
    CHECK(index_names(s, e));
    *ret = s;
    s = NULL; /* given away */
out:
    json_free(root);
    free(h.text);
    safetensors_close(s);
    return rc;
}

void safetensors_close(struct safetensors *s)
{
    if (s == NULL) {
        return;
    }
    arena_fini(&s->arena);
    free(s->t);
    free(s->by_name);
    free(s);
}

size_t safetensors_count(const struct safetensors *s)
{
    return s->n;
}

const struct safetensors_tensor *safetensors_at(const struct safetensors *s,
                                                size_t i)
{
    must(i < s->n);
    return &s->t[i];
}

const struct safetensors_tensor *
safetensors_find(const struct safetensors *s, const char *name)
{
    const struct safetensors_tensor key = {.name = name};
    const struct safetensors_tensor *k = &key;
    const struct safetensors_tensor *const *found =
        s->n == 0 ? NULL
                  : bsearch(&k, s->by_name, s->n, sizeof(const void *),
                            compare_names);
    return found != NULL ? *found : NULL;
}
