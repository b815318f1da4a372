/* Typed access to what gguf.c found sound. */
#include <math.h>
#include <string.h>

#include "source/gguf_impl.h"

size_t gguf_kind_bytes(enum gguf_kind k)
{
    switch (k) {
    case GGUF_U8:
    case GGUF_I8:
    case GGUF_BOOL:
        return 1;
    case GGUF_U16:
    case GGUF_I16:
        return 2;
    case GGUF_U32:
    case GGUF_I32:
    case GGUF_F32:
        return 4;
    case GGUF_U64:
    case GGUF_I64:
    case GGUF_F64:
        return 8;
    case GGUF_STRING:
    case GGUF_ARRAY:
    default:
        return 0;
    }
}

bool gguf_load_int(enum gguf_kind k, const uint8_t *p, int64_t *ret)
{
    switch (k) {
    case GGUF_U8:
    case GGUF_BOOL:
        *ret = *p;
        return true;
    case GGUF_I8:
        *ret = (int8_t)*p;
        return true;
    case GGUF_U16:
        *ret = gguf_u16(p);
        return true;
    case GGUF_I16:
        *ret = (int16_t)gguf_u16(p);
        return true;
    case GGUF_U32:
        *ret = gguf_u32(p);
        return true;
    case GGUF_I32:
        *ret = (int32_t)gguf_u32(p);
        return true;
    case GGUF_U64:
        if (gguf_u64(p) > INT64_MAX) {
            return false;
        }
        *ret = (int64_t)gguf_u64(p);
        return true;
    case GGUF_I64:
        *ret = (int64_t)gguf_u64(p);
        return true;
    case GGUF_F32:
    case GGUF_F64:
    case GGUF_STRING:
    case GGUF_ARRAY:
    default:
        return false;
    }
}

const char *gguf_format(const struct gguf *g)
{
    return g->format != NULL ? g->format : "gguf";
}

uint32_t gguf_version(const struct gguf *g)
{
    return g->version;
}

uint64_t gguf_file_bytes(const struct gguf *g)
{
    uint64_t n = g->n; /* no overflow: all are mapped at one time */
    for (size_t i = 0; i < g->n_more; i++) {
        n += g->more[i]->n;
    }
    return n;
}

size_t gguf_n_kv(const struct gguf *g)
{
    return g->n_kv;
}

const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i)
{
    must(i < g->n_kv);
    return &g->kv[i];
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
    size_t n = strlen(key);
    size_t lo = 0;
    size_t hi = g->n_kv;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const struct gguf_kv *kv = &g->kv[g->kv_sorted[mid]];
        int c = memcmp(kv->key.p, key, kv->key.n < n ? kv->key.n : n);
        if (c == 0 && kv->key.n == n) {
            return kv;
        }
        if (c < 0 || (c == 0 && kv->key.n < n)) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return NULL;
}

size_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    must(i < g->n_tensors);
    return &g->tensors[i];
}

const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name)
{
    size_t lo = 0;
    size_t hi = g->n_tensors;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const struct gguf_tensor *t = &g->tensors[g->tensors_sorted[mid]];
        int c = strcmp(t->name, name);
        if (c == 0) {
            return t;
        }
        if (c < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return NULL;
}

bool gguf_get_u32(const struct gguf *g, const char *key, uint32_t *ret)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    int64_t v = 0;
    if (kv == NULL || kv->kind == GGUF_BOOL ||
        !gguf_load_int(kv->kind, kv->p, &v) || v < 0 || v > UINT32_MAX) {
        return false;
    }
    *ret = (uint32_t)v;
    return true;
}

static float load_float(enum gguf_kind k, const uint8_t *p)
{
    if (k == GGUF_F64) {
        uint64_t u = gguf_u64(p);
        double d = 0;
        memcpy(&d, &u, sizeof(d));
        return (float)d;
    }
    uint32_t u = gguf_u32(p);
    float f = 0;
    memcpy(&f, &u, sizeof(f));
    return f;
}

bool gguf_get_f32(const struct gguf *g, const char *key, float *ret)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (kv == NULL || (kv->kind != GGUF_F32 && kv->kind != GGUF_F64)) {
        return false;
    }
    float f = load_float(kv->kind, kv->p);
    if (!isfinite(f)) {
        return false;
    }
    *ret = f;
    return true;
}

bool gguf_get_bool(const struct gguf *g, const char *key, bool *ret)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (kv == NULL || kv->kind != GGUF_BOOL) {
        return false;
    }
    *ret = *kv->p != 0;
    return true;
}

bool gguf_get_str(const struct gguf *g, const char *key, struct span *ret)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (kv == NULL || kv->kind != GGUF_STRING) {
        return false;
    }
    *ret = (struct span){(const char *)kv->p, (size_t)kv->bytes};
    return true;
}

const struct gguf_kv *gguf_get_arr(const struct gguf *g, const char *key,
                                   enum gguf_kind item)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (kv == NULL || kv->kind != GGUF_ARRAY || kv->item != item) {
        return NULL;
    }
    return kv;
}

/* The walk was checked at open; a file that is rewritten while it is mapped
 * may still say something else now, so the bounds are held again. */
struct span gguf_arr_str(const struct gguf_kv *a, uint64_t *at)
{
    must(a->item == GGUF_STRING);
    struct span s = {"", 0};
    uint64_t left = *at <= a->bytes ? a->bytes - *at : 0;
    if (left < 8) {
        return s;
    }
    uint64_t n = gguf_u64(a->p + *at);
    if (n > left - 8) {
        *at = a->bytes;
        return s;
    }
    s = (struct span){(const char *)a->p + *at + 8, (size_t)n};
    *at += 8 + n;
    return s;
}

int64_t gguf_arr_int(const struct gguf_kv *a, uint64_t i)
{
    int64_t v = 0;
    must(i < a->count);
    if (!gguf_load_int(a->item, a->p + i * gguf_kind_bytes(a->item), &v)) {
        return INT64_MAX; /* a U64 above it; nothing asks for one */
    }
    return v;
}

float gguf_arr_f32(const struct gguf_kv *a, uint64_t i)
{
    must(i < a->count && (a->item == GGUF_F32 || a->item == GGUF_F64));
    return load_float(a->item, a->p + i * gguf_kind_bytes(a->item));
}
