/* The metadata table of a GGUF. Limits of counts and lengths are compared with
 * the bytes left in the file before anything is allocated or skipped. Nested
 * arrays, which no writer makes, are refused. */
#include <string.h>

#include "base/num.h"
#include "source/gguf_impl.h"

enum { KV_BYTES_MIN = 8 + 4 + 1 }; /* an empty key and an u8 */

/* A string whose length is checked against the bytes left, then against max. */
int gguf_read_string(struct cur *c, size_t max, int too_long, const char *what,
                     struct span *ret, struct err *e)
{
    uint64_t n = cur_u64(c);
    if (c->bad || n > gguf_left(c)) {
        return gguf_truncated(e, what);
    }
    if (n > max) {
        return err_set(e, too_long, "%s is %llu bytes long; the limit is %zu",
                       what, (unsigned long long)n, max);
    }
    ret->n = (size_t)n;
    ret->p = cur_bytes(c, ret->n);
    return 0;
}

bool gguf_plain_ascii(struct span s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < 0x20 || s.p[i] > 0x7e) {
            return false;
        }
    }
    return true;
}

static bool all_bools(const uint8_t *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (p[i] > 1) {
            return false;
        }
    }
    return true;
}

static int read_scalars(struct cur *c, struct gguf_kv *kv, enum gguf_kind kind,
                        struct err *e)
{
    uint64_t bytes = 0;
    if (!num_mul(kv->count, gguf_kind_bytes(kind), &bytes) ||
        bytes > gguf_left(c)) {
        return err_set(
            e, kv->kind == GGUF_ARRAY ? ERR_GGUF_COUNT : ERR_GGUF_TRUNCATED,
            "the value does not fit into the file");
    }
    kv->bytes = bytes;
    kv->p = cur_bytes(c, (size_t)bytes);
    if (kind == GGUF_BOOL && !all_bools(kv->p, kv->count)) {
        return err_set(e, ERR_GGUF_VALUE, "a bool that is neither 0 nor 1");
    }
    return 0;
}

static int read_array(struct cur *c, struct gguf_kv *kv, struct err *e)
{
    uint32_t item = cur_u32(c);
    kv->count = cur_u64(c);
    if (c->bad) {
        return gguf_truncated(e, "an array");
    }
    kv->item = (enum gguf_kind)item;
    if (item > GGUF_F64 || item == GGUF_ARRAY) {
        return err_set(e, ERR_GGUF_VALUE, "an array of kind %u", item);
    }
    if (kv->count > GGUF_ARRAY_MAX) {
        return err_set(e, ERR_GGUF_COUNT, "an array of %llu; the limit is %u",
                       (unsigned long long)kv->count, GGUF_ARRAY_MAX);
    }
    if (item != GGUF_STRING) {
        return read_scalars(c, kv, kv->item, e);
    }
    if (kv->count > gguf_left(c) / 8) {
        return err_set(e, ERR_GGUF_COUNT,
                       "%llu strings do not fit into the file",
                       (unsigned long long)kv->count);
    }
    size_t start = c->at;
    for (uint64_t i = 0; i < kv->count; i++) {
        struct span s = {0};
        int rc = gguf_read_string(c, GGUF_STRING_MAX, ERR_GGUF_VALUE,
                                  "a string of an array", &s, e);
        if (rc < 0) {
            return rc;
        }
    }
    kv->p = c->p + start;
    kv->bytes = c->at - start;
    return 0;
}

static int read_value(struct cur *c, struct gguf_kv *kv, struct err *e)
{
    uint32_t kind = cur_u32(c);
    if (c->bad) {
        return gguf_truncated(e, "a value");
    }
    if (kind > GGUF_F64) {
        return err_set(e, ERR_GGUF_VALUE, "a value of unknown kind %u", kind);
    }
    kv->kind = (enum gguf_kind)kind;
    kv->item = kv->kind;
    kv->count = 1;
    if (kv->kind == GGUF_ARRAY) {
        return read_array(c, kv, e);
    }
    if (kv->kind != GGUF_STRING) {
        return read_scalars(c, kv, kv->kind, e);
    }
    struct span s = {0};
    int rc = gguf_read_string(c, GGUF_STRING_MAX, ERR_GGUF_VALUE,
                              "a string value", &s, e);
    if (rc < 0) {
        return rc;
    }
    kv->p = (const uint8_t *)s.p;
    kv->bytes = s.n;
    return 0;
}

/* The key becomes a copy: a file that shrinks while keys are sorted would jump
 * out of qsort, which may hold memory (guard.c). */
static int read_kv(struct gguf *g, struct cur *c, struct gguf_kv *kv,
                   struct err *e)
{
    int rc = gguf_read_string(c, GGUF_KEY_MAX, ERR_GGUF_KEY, "a metadata key",
                              &kv->key, e);
    if (rc < 0) {
        return rc;
    }
    if (kv->key.n == 0) {
        return err_set(e, ERR_GGUF_KEY, "a metadata key is empty");
    }
    if (!gguf_plain_ascii(kv->key)) {
        return err_set(e, ERR_GGUF_KEY, "a metadata key is not plain ASCII");
    }
    kv->key.p = arena_strn(&g->arena, kv->key.p, kv->key.n);
    if (kv->key.p == NULL) {
        return err_set(e, ERR_NOMEM, "a metadata key");
    }
    rc = read_value(c, kv, e);
    if (rc < 0) {
        return err_prefix(e, rc, "key '%.*s'", (int)kv->key.n, kv->key.p);
    }
    return 0;
}

static int compare_spans(struct span a, struct span b)
{
    int c = memcmp(a.p, b.p, num_min(a.n, b.n));
    return c != 0 ? c : (a.n > b.n) - (a.n < b.n);
}

static int compare_names(const void *a, const void *b)
{
    const struct gguf_by_name *x = a;
    const struct gguf_by_name *y = b;
    return compare_spans(x->name, y->name);
}

int gguf_sort_names(struct gguf *g, struct gguf_by_name *t, size_t n, int dup,
                    const char *what, size_t **ret, struct err *e)
{
    size_t *order = arena_array(&g->arena, n, sizeof(*order));
    if (order == NULL && n > 0) {
        return err_set(e, ERR_NOMEM, "%zu names", n);
    }
    if (n > 0) {
        qsort(t, n, sizeof(*t), compare_names);
    }
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && compare_names(&t[i - 1], &t[i]) == 0) {
            return err_set(e, dup, "%s '%.*s' is given twice", what,
                           (int)t[i].name.n, t[i].name.p);
        }
        order[i] = t[i].i;
    }
    *ret = order;
    return 0;
}

int gguf_index_kv(struct gguf *g, struct err *e)
{
    struct gguf_by_name *t = calloc(g->n_kv + 1, sizeof(*t));
    if (t == NULL) {
        return err_set(e, ERR_NOMEM, "%zu keys", g->n_kv);
    }
    for (size_t i = 0; i < g->n_kv; i++) {
        t[i] = (struct gguf_by_name){g->kv[i].key, i};
    }
    int rc =
        gguf_sort_names(g, t, g->n_kv, ERR_GGUF_KEY, "key", &g->kv_sorted, e);
    free(t);
    return rc;
}

int gguf_read_kv(struct gguf *g, struct cur *c, uint64_t n, struct err *e)
{
    if (n > GGUF_KV_MAX || n > gguf_left(c) / KV_BYTES_MIN) {
        return err_set(e, ERR_GGUF_COUNT,
                       "%llu metadata entries do not fit into the file or "
                       "exceed the limit %u",
                       (unsigned long long)n, GGUF_KV_MAX);
    }
    g->n_kv = (size_t)n;
    g->kv = arena_array(&g->arena, g->n_kv, sizeof(*g->kv));
    if (g->kv == NULL && n > 0) {
        return err_set(e, ERR_NOMEM, "%zu keys", g->n_kv);
    }
    for (size_t i = 0; i < g->n_kv; i++) {
        int rc = read_kv(g, c, &g->kv[i], e);
        if (rc < 0) {
            return rc;
        }
    }
    return gguf_index_kv(g, e);
}
