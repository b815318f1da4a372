/* gguf_impl.h - what the files of the GGUF reader share. */
#pragma once

#include <sys/stat.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/file.h"
#include "source/gguf.h"

/* What a file says of the split model that it is a part of. */
struct gguf_split {
    int64_t no;      /* from 0 */
    int64_t count;   /* 0 or 1: it is not split */
    int64_t tensors; /* of all parts */
};

struct gguf {
    struct file_map map; /* zeroed when the bytes are borrowed */
    const uint8_t *p;    /* the whole file */
    uint64_t n;
    int fd;         /* -1 when the bytes are borrowed */
    struct stat st; /* of fd when it was opened */
    struct arena arena;
    uint32_t version;
    uint64_t alignment;
    size_t n_kv;
    struct gguf_kv *kv; /* file order */
    size_t *kv_sorted;  /* indices of kv by key */
    size_t n_tensors;
    struct gguf_tensor *tensors; /* file order, part after part */
    size_t *tensors_sorted;      /* indices of tensors by name */
    struct gguf_split split;
    struct gguf **more; /* owned: the other parts; NULL */
    size_t n_more;
    const char *format; /* of a source that was made; NULL: GGUF */
    const char *name;   /* of a file of one; NULL */
};

struct gguf *gguf_new(void); /* empty; gguf_close frees it */

/* One file, which may be a part. fd is dup'ed, bytes are borrowed. */
CHECKED int gguf_open_one(int fd, struct gguf **ret, struct err *e);
CHECKED int gguf_open_bytes(const void *p, size_t n, struct gguf **ret,
                            struct err *e);

/* ggml's block of a tensor type: `items` elements in `bytes` bytes. */
struct gguf_block {
    uint32_t items;
    uint32_t bytes;
};
/* items 0 when the number is no type of ggml. */
struct gguf_block gguf_type_block(uint32_t type);

/* Bytes of one scalar; 0 for strings, arrays and unknown kinds. */
size_t gguf_kind_bytes(enum gguf_kind k);

/* The scalar integer (or bool) of kind k at p. false when k is no integer kind
 * or a U64 exceeds INT64_MAX. */
CHECKED bool gguf_load_int(enum gguf_kind k, const uint8_t *p, int64_t *ret);

/* --- what the two tables share --- */

int gguf_truncated(struct err *e, const char *where);

/* Bytes a cursor has not read yet. */
static inline size_t gguf_left(const struct cur *c)
{
    return c->bad ? 0 : c->n - c->at;
}

/* A string whose length is checked against the bytes left, then against max
 * (error too_long). Borrowed from the file. */
CHECKED int gguf_read_string(struct cur *c, size_t max, int too_long,
                             const char *what, struct span *ret, struct err *e);
bool gguf_plain_ascii(struct span s); /* 0x20..0x7e only */

/* qsort has no context argument: entries carry what is compared. */
struct gguf_by_name {
    struct span name;
    size_t i;
};
/* Sort n entries, refuse equal names with error dup, hand the order back in
 * memory of g. */
CHECKED int gguf_sort_names(struct gguf *g, struct gguf_by_name *t, size_t n,
                            int dup, const char *what, size_t **ret,
                            struct err *e);

/* Read the table of n entries at c into g. */
CHECKED int gguf_read_kv(struct gguf *g, struct cur *c, uint64_t n,
                         struct err *e);
CHECKED int gguf_read_tensors(struct gguf *g, struct cur *c, uint64_t n,
                              struct err *e);
/* g->kv_sorted; a key that is there twice is GGUF_KEY. */
CHECKED int gguf_index_kv(struct gguf *g, struct err *e);
/* The few values that everything after this room relies on. */
CHECKED int gguf_check_values(const struct gguf *g, struct err *e);
/* g->tensors_sorted; a name that is there twice is GGUF_TENSOR. */
CHECKED int gguf_index_tensors(struct gguf *g, struct err *e);

/* Little-endian loads from any address. aned runs on little-endian machines
 * only (base/half.h and the kernels rely on it too). */
static inline uint16_t gguf_u16(const uint8_t *p)
{
    uint16_t v = 0;
    __builtin_memcpy(&v, p, sizeof(v));
    return v;
}

static inline uint32_t gguf_u32(const uint8_t *p)
{
    uint32_t v = 0;
    __builtin_memcpy(&v, p, sizeof(v));
    return v;
}

static inline uint64_t gguf_u64(const uint8_t *p)
{
    uint64_t v = 0;
    __builtin_memcpy(&v, p, sizeof(v));
    return v;
}
